//! The published test vectors (SG-10): made here, judged by [`meshplan_schemas::judge`], cross-checked by an independent
//! implementation of DSSE and Ed25519.
//!
//! `MESHPLAN_WRITE_VECTORS=1 cargo nextest run --workspace the_published_files` writes `schemas/vectors/` anew; otherwise the files there are
//! compared with what would be written, byte for byte.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

mod bad;
mod crosscheck;
mod good;
mod judged;
mod make;

use std::collections::BTreeMap;
use std::path::PathBuf;

use make::Vector;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("vectors")
}

/// Every vector by its name.
fn all() -> BTreeMap<&'static str, Vector> {
    let mut all = BTreeMap::new();
    for vector in good::vectors().into_iter().chain(bad::vectors()) {
        let name = vector.name;
        assert!(
            all.insert(name, vector).is_none(),
            "two vectors are called {name}"
        );
    }
    all
}

// holds: SG-10
#[test]
fn the_published_files_are_what_the_generator_makes() {
    let write = std::env::var_os("MESHPLAN_WRITE_VECTORS").is_some();
    let all = all();
    if write {
        if folder().exists() {
            std::fs::remove_dir_all(folder()).unwrap();
        }
        for (name, vector) in &all {
            let folder = folder().join(name);
            std::fs::create_dir_all(&folder).unwrap();
            for (file, bytes) in vector.files() {
                std::fs::write(folder.join(file), bytes).unwrap();
            }
        }
        std::fs::write(folder().join("README.md"), make::README).unwrap();
    }
    for (name, vector) in &all {
        for (file, bytes) in vector.files() {
            let path = folder().join(name).join(file);
            let published = std::fs::read(&path).unwrap_or_default();
            assert!(
                published == bytes,
                "{} is not what the generator makes; MESHPLAN_WRITE_VECTORS=1 writes it anew",
                path.display()
            );
        }
    }
    let published: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    for name in published {
        assert!(
            all.contains_key(name.as_str()),
            "nothing makes the vector {name} any more"
        );
    }
}

// holds: SG-10, SG-5
#[test]
fn every_vector_is_judged_as_it_says() {
    for name in all().keys() {
        let folder = folder().join(name);
        let read = |file: &str| std::fs::read(folder.join(file)).unwrap();
        let keys: make::Keys = serde_json::from_slice(&read("keys.json")).unwrap();
        let expected: make::Expected = serde_json::from_slice(&read("expected.json")).unwrap();
        let verdict = judged::judge(&keys, &read("envelope.json"));
        assert_eq!(verdict, expected.verdict, "the vector {name}");
    }
}
