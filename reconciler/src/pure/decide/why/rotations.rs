//! What a rotation of the newest commit waits for: this version checks rotations and walks none, and says so by name.

use std::sync::Arc;

use jiff::Timestamp;
use meshplan_schemas::document::read;
use meshplan_schemas::document::rotations::RotationsFile;
use meshplan_schemas::finding::Source;

use super::Why;
use crate::pure::delivery::Delivery;

/// The file that has them.
pub const FILE: &str = "rotations.toml";

/// Explains the rotation of this name in the text of [`FILE`] at the fleet's commit in a delivery's tree; none where it has none
/// of that name.
#[must_use]
pub fn why_rotation(id: &str, text: Arc<[u8]>, of: &Delivery, now: Timestamp) -> Option<Why> {
    let source = Source::new(FILE, text).ok()?;
    let file: RotationsFile = read::document(&source, &mut Vec::new())?;
    let mut entries = file.rotations.iter().map(|at| &at.value);
    let entry = entries.find(|entry| entry.id.value.as_str() == id)?;
    let line = source.error(entry.id.span.clone(), "").line;
    let parts = of.parts();
    let commit = parts.fleet.short();
    Some(Why {
        waits_for: format!(
            "a version that walks rotations: `{id}` is checked, and not walked by this one; {} is {} ({})",
            of.name, of.state, of.code
        ),
        rule: format!("{FILE}:{line} of {commit}: nothing of a commit that has rotations is signed"),
        next: "a commit that takes it out lets the rest of the tree go on".to_owned(),
        deadline: None,
        command: Some(format!("meshplan deliveries show {}", of.commit.short())),
        as_of: now,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // holds: DL-16
    #[test]
    fn a_rotation_that_stands_in_the_tree_is_answered_by_name_and_line() {
        let text = "# later\n\n[[rotations]]\nid = \"rot-1\"\nkind = \"reconciler_transport\"\n\
                    publish_at = 1796000000\nactivate_at = 1796003600\nretire_at = 0\n";
        let of = Delivery::announced("fleet", "a".repeat(40).parse().unwrap(), 1, Timestamp::UNIX_EPOCH);
        let ask = |id: &str| why_rotation(id, text.as_bytes().into(), &of, Timestamp::UNIX_EPOCH);
        let said = ask("rot-1").unwrap();
        assert!(
            said.waits_for.contains("`rot-1` is checked, and not walked"),
            "{said:?}"
        );
        assert!(
            said.rule.starts_with("rotations.toml:4 of aaaaaaaaaaaa"),
            "{said:?}"
        );
        assert_eq!(ask("rot-2"), None);
    }
}
