//! Any bytes as a document of the kind `fleet`.
#![no_main]

#[path = "../bodies/documents.rs"]
mod documents;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    documents::body("fleet", bytes);
});
