//! Any bytes as a template.
#![no_main]

#[path = "../bodies/templates.rs"]
mod templates;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    templates::body(bytes);
});
