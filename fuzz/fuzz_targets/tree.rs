//! Any documents, laid over a good tree.
#![no_main]

#[path = "../bodies/trees.rs"]
mod trees;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    trees::body(bytes);
});
