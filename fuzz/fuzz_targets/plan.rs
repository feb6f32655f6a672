//! Any bytes as a document of the kind `plan`.
#![no_main]

#[path = "../bodies/documents.rs"]
mod documents;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    documents::body("plan", bytes);
});
