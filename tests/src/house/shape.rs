//! Names and sizes: what a file may be called, how it opens, how long it may get.

use super::SourceFile;

/// Lines from which a file is two files (CONVENTIONS of the project: find the second noun).
pub const MOST_LINES: usize = 600;

/// Names that hide what they hold.
const HIDING: [&str; 9] = [
    "mod", "util", "utils", "common", "helper", "helpers", "misc", "types", "stuff",
];

/// What is wrong with the shape of a Rust file, in sentences.
#[must_use]
pub fn faults(file: &SourceFile) -> Vec<String> {
    let mut faults = Vec::new();
    for part in file.path.split('/') {
        let name = part.strip_suffix(".rs").unwrap_or(part);
        if HIDING.contains(&name) {
            faults.push(format!(
                "{}: `{part}` hides what it holds; name it for that",
                file.path
            ));
        }
    }
    // The tests beside a module need no story but the module's.
    let beside = file.path.ends_with("/tests.rs") && file.path.contains("/src/");
    if !beside && !opens_with_its_story(&file.text) {
        faults.push(format!(
            "{}:1: a module opens with `//!`: what it is, why it stands alone, its invariant",
            file.path
        ));
    }
    let lines = file.text.lines().count();
    if lines > MOST_LINES {
        faults.push(format!(
            "{}: {lines} lines; from {MOST_LINES} on find the second noun",
            file.path
        ));
    }
    faults
}

fn opens_with_its_story(text: &str) -> bool {
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    first
        .strip_prefix("//!")
        .is_some_and(|story| !story.trim().is_empty())
}
