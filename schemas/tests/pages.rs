//! The reference pages are those of the types (FR-16).

use std::path::Path;

use meshplan_schemas::document::{pages, published};

// holds: FR-16
#[test]
fn the_reference_pages_are_those_of_the_types() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference");
    let names: Vec<&str> = pages::PLACES.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, published::NAMES);
    let made = (names.into_iter()).map(|name| (format!("{name}.md"), pages::page(name).unwrap()));
    for (file, text) in made.chain([("README.md".to_owned(), pages::index())]) {
        let path = folder.join(&file);
        if std::env::var_os("MESHPLAN_BLESS").is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            written == text,
            "docs/reference/{file} is not what the types say: MESHPLAN_BLESS=1 writes it anew"
        );
    }
}
