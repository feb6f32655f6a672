//! The story of a delivery as its two tellers have it: the database, and the note on the commit.

use serde_json::Value;

/// The blocks that `deliveries show --json` tells.
#[must_use]
pub fn told(shown: &Value) -> Vec<&str> {
    let story = shown["story"].as_array().into_iter().flatten();
    story.filter_map(Value::as_str).collect()
}

/// The blocks of a note, each without its place in the chain.
#[must_use]
pub fn blocks(note: &str) -> Vec<&str> {
    let told = note
        .split("\n\n")
        .filter_map(|block| block.split("\nBlock: ").next());
    told.map(str::trim).filter(|block| !block.is_empty()).collect()
}
