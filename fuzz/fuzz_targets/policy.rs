//! Any bytes as a document of the kind `policy`.
#![no_main]

#[path = "../bodies/documents.rs"]
mod documents;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    documents::body("policy", bytes);
});
