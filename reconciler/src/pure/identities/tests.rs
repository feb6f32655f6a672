//! Edits of the records of a generated fleet, and what may not be done to who they are.

use std::sync::Arc;

use super::*;
use crate::pure::compose::compose_tree;
use crate::pure::example::generate;
use crate::pure::preview::outcome::Outcome;
use crate::pure::source_tree::{EntryKind, SourceTree};

type Files = Vec<(String, Vec<u8>)>;

fn compose(files: &Files) -> Composed {
    let entries = files.iter().map(|(path, bytes)| {
        let bytes: Arc<[u8]> = Arc::from(bytes.as_slice());
        (path.clone().into_bytes(), EntryKind::Blob, bytes)
    });
    match compose_tree(&SourceTree::from_entries(entries.collect()).0, None, None) {
        Ok(composed) => composed,
        Err(error) => panic!("{error:#?}"),
    }
}

fn fleet() -> Files {
    generate(4, 1)
}

fn text(files: &Files, node: &str) -> String {
    let (_, bytes) = files.iter().find(|(path, _)| path.ends_with(node)).unwrap();
    String::from_utf8(bytes.clone()).unwrap()
}

/// The value of a key in a record.
fn value(files: &Files, node: &str, key: &str) -> String {
    let text = text(files, node);
    let line = text
        .lines()
        .find(|line| line.split(' ').next() == Some(key))
        .unwrap();
    line.split('"').nth(1).unwrap().to_owned()
}

fn edit(files: &Files, node: &str, from: &str, to: &str) -> Files {
    let old = text(files, node);
    assert!(old.contains(from), "{node} has no {from}");
    let new = old.replace(from, to).into_bytes();
    let path = |path: &String| path.ends_with(node);
    let file =
        |(at, bytes): &(String, Vec<u8>)| (at.clone(), if path(at) { new.clone() } else { bytes.clone() });
    files.iter().map(file).collect()
}

fn without(files: &Files, node: &str) -> Files {
    files
        .iter()
        .filter(|(path, _)| !path.ends_with(node))
        .cloned()
        .collect()
}

/// The record in `nodes/revoked/`.
fn revoked(files: &Files, node: &str) -> Files {
    let record = format!("revoked = true\n{}", text(files, node));
    let mut files = without(files, node);
    files.push((format!("nodes/revoked/{node}"), record.into_bytes()));
    files
}

fn said(before: &Files, after: &Files, revoked: &Revoked) -> Vec<String> {
    let found = faults(Some(&compose(before)), &compose(after), revoked);
    assert!(
        found
            .iter()
            .all(|f| f.is_error() && f.help.is_some() && f.line > 0),
        "{found:#?}"
    );
    found
        .into_iter()
        .map(|f| format!("{}:{} {}", f.file, f.line, f.message))
        .collect()
}

const OTHER_ID: &str = "0192f0c1-0000-7000-8000-00000000abcd";

// holds: FR-5
#[test]
fn the_id_of_a_record_stays_and_the_name_of_one_that_was_revoked_is_free() {
    let files = fleet();
    let id = value(&files, "n00001.toml", "id");
    let other = edit(&files, "n00001.toml", &id, OTHER_ID);
    assert_eq!(
        said(&files, &other, &Revoked::new())[0],
        format!("nodes/000/n00001.toml:1 the id of `n00001` is another, it was {id}")
    );
    // Another machine takes the name: the old record is revoked in the same commit, or was deleted by one before.
    let gone = without(&files, "n00001.toml");
    let bare = (
        "nodes/n00001.toml".to_owned(),
        format!("id = \"{OTHER_ID}\"\n").into_bytes(),
    );
    for before_it in [revoked(&files, "n00001.toml"), gone] {
        let mut after = before_it.clone();
        after.push(bare.clone());
        if before_it.iter().any(|(path, _)| path.contains("revoked")) {
            assert_eq!(said(&files, &after, &Revoked::new()), [""; 0]);
        }
        assert_eq!(said(&before_it, &after, &Revoked::new()), [""; 0]);
    }
}

// holds: FR-5
#[test]
fn keys_come_by_enrolment_and_change_by_rotation_only() {
    let (files, others) = (fleet(), generate(4, 2));
    let (old, new) = (
        value(&files, "n00002.toml", "transport_key"),
        value(&others, "n00002.toml", "transport_key"),
    );
    let signing = value(&files, "n00002.toml", "signing_key");
    let none = Revoked::new();
    let swapped = edit(&files, "n00002.toml", &old, &new);
    let found = said(&files, &swapped, &none);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(
        found[0].ends_with("the transport key of `n00002` is another, and no rotation has told of it"),
        "{found:#?}"
    );
    let bare = edit(&files, "n00002.toml", &format!("transport_key = \"{old}\"\n"), "");
    let bare = edit(
        &bare,
        "n00002.toml",
        &format!("signing_key = \"{signing}\"\n"),
        "",
    );
    assert_eq!(
        said(&files, &bare, &none),
        ["nodes/000/n00002.toml:1 the keys of `n00002` are taken away"]
    );
    // Enrolment brings keys; a rotation tells of the next one, then moves to it.
    assert_eq!(said(&bare, &files, &none), [""; 0]);
    let line = format!("transport_key = \"{old}\"\n");
    let next = edit(
        &files,
        "n00002.toml",
        &line,
        &format!("{line}next_transport_key = \"{new}\"\n"),
    );
    assert_eq!(said(&files, &next, &none), [""; 0]);
    assert_eq!(said(&next, &swapped, &none), [""; 0]);
    // The one that it has replaced is retired.
    let left = leaving(&compose(&next), &compose(&swapped));
    assert_eq!(left.into_keys().collect::<Vec<_>>(), [Digest::of(old.as_bytes())]);
    // A next one that a rotation gave up was never anybody's; with the machine it leaves for good.
    assert!(leaving(&compose(&next), &compose(&files)).is_empty());
    let gone = without(&next, "n00002.toml");
    assert!(leaving(&compose(&next), &compose(&gone)).contains_key(&Digest::of(new.as_bytes())));
}

// holds: FR-5, SG-3
#[test]
fn what_was_revoked_or_deleted_does_not_come_back() {
    let files = fleet();
    let node = "n00003.toml";
    let (id, key) = (value(&files, node, "id"), value(&files, node, "transport_key"));
    let commit: CommitId = "c".repeat(40).parse().unwrap();
    let gone = without(&files, node);
    let left = leaving(&compose(&files), &compose(&gone));
    assert_eq!(left.len(), 3, "its uuid and both keys");
    let left: Revoked = left
        .into_iter()
        .map(|(digest, node)| {
            let commit = commit.clone();
            (
                digest,
                Left {
                    node: Some(node),
                    commit,
                },
            )
        })
        .collect();
    // Deleted by one commit, back with another.
    let found = said(&gone, &files, &left);
    assert_eq!(found.len(), 3, "{found:#?}");
    let expected = format!(
        "the uuid {id} was `n00003`'s, which left the fleet with cccccccccccc, and may not come back"
    );
    assert!(found[0].ends_with(&expected), "{found:#?}");
    // Its key alone, on another record.
    let mut moved = gone.clone();
    let text = text(&files, node).replace(&id, OTHER_ID);
    moved.push(("nodes/new.toml".to_owned(), text.into_bytes()));
    let found = said(&gone, &moved, &left);
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(
        found[0].contains(&format!("the transport key {key} was `n00003`'s")),
        "{found:#?}"
    );
    // In the same commit too.
    let found = said(&files, &moved, &Revoked::new());
    assert!(found[0].contains("which leaves the fleet here"), "{found:#?}");
    // Taken out of `nodes/revoked/`, by whoever has no record of what left.
    let found = said(&revoked(&files, node), &files, &Revoked::new());
    assert_eq!(found.len(), 3, "{found:#?}");
    assert!(
        found[0].ends_with(&format!("the uuid {id} was revoked, and may not come back")),
        "{found:#?}"
    );
    // Where there is nothing to compare with, what left is known all the same.
    assert_eq!(faults(None, &compose(&files), &left).len(), 3);
    assert_eq!(faults(None, &compose(&files), &Revoked::new()), []);
}

// holds: FR-5, DL-8
#[test]
fn a_merge_that_breaks_an_identity_is_refused_in_its_preview_at_the_line() {
    let files = fleet();
    let id = value(&files, "n00001.toml", "id");
    let other = edit(&files, "n00001.toml", &id, OTHER_ID);
    let (before, after) = (compose(&files), compose(&other));
    let revoked = Revoked::new();
    let passed = |tree| Passed {
        tree,
        revoked: &revoked,
    };
    let outcome = Outcome::of("main", Ok(&before), Ok(&after), passed(Some(&before))).unwrap();
    let Outcome::Refused { what, findings } = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(what, "the merge does not check");
    assert!(
        findings
            .iter()
            .any(|f| f.line == 1 && f.message.starts_with("the id of `n00001`"))
    );
    // What was refused and is mended is held against what was let through before it.
    let mended = Outcome::of("main", Ok(&after), Ok(&before), passed(Some(&before))).unwrap();
    assert!(matches!(mended, Outcome::Preview(_)), "{mended:?}");
}
