//! The way back, made before the first step forward (HR-14): acts of a frozen vocabulary, each of which puts one
//! path into the state it was found in.
//!
//! Stands alone because the vocabulary must never change: a journal written by one build is replayed by another,
//! and by the launcher, which knows nothing else. Every act may be repeated, and does nothing where nothing was
//! done. Invariant: removals first, deepest first, then what was there, topmost first.

use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::ResourceName;
use serde::{Deserialize, Serialize};

use super::record::Thing;
use super::target_path::TargetPath;

/// The version of the journal.
pub const JOURNAL_VERSION: u32 = 1;

/// The way back of a whole window, in the order in which it is walked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    /// [`JOURNAL_VERSION`].
    pub version: u32,
    /// The acts.
    pub acts: Vec<Entry>,
}

/// One act and for whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Whose thing it is; none for what is no resource's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<ResourceName>,
    /// Which tree.
    pub place: Place,
    /// Where.
    pub path: TargetPath,
    /// What.
    pub act: UndoAct,
}

/// Which tree a path is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// The machine's.
    Root,
    /// The state folder.
    State,
}

/// The frozen vocabulary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UndoAct {
    /// Nothing may stand here: a file or link goes, a folder when it is empty.
    Remove,
    /// This file stands here.
    PutFile {
        /// The digest of its bytes, which is the name of its blob.
        blob: Digest,
        /// Permission bits.
        mode: u32,
        /// User number.
        uid: u32,
        /// Group number.
        gid: u32,
    },
    /// This link stands here.
    PutLink {
        /// What it points at.
        target: String,
        /// User number.
        uid: u32,
        /// Group number.
        gid: u32,
    },
    /// This folder stands here.
    PutDirectory {
        /// Permission bits.
        mode: u32,
        /// User number.
        uid: u32,
        /// Group number.
        gid: u32,
    },
}

/// A path that will be touched, and the act that brings back what stands there now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Before {
    /// Whose thing it is.
    pub name: Option<ResourceName>,
    /// Which tree.
    pub place: Place,
    /// Where.
    pub path: TargetPath,
    /// The way back.
    pub act: UndoAct,
}

/// The act that puts a path into a state.
#[must_use]
pub fn act_to(thing: Option<&Thing>) -> UndoAct {
    match thing {
        None => UndoAct::Remove,
        Some(Thing::File {
            content,
            mode,
            uid,
            gid,
        }) => UndoAct::PutFile {
            blob: *content,
            mode: *mode,
            uid: *uid,
            gid: *gid,
        },
        Some(Thing::Link { target, uid, gid }) => UndoAct::PutLink {
            target: target.clone(),
            uid: *uid,
            gid: *gid,
        },
        Some(Thing::Directory { mode, uid, gid }) => UndoAct::PutDirectory {
            mode: *mode,
            uid: *uid,
            gid: *gid,
        },
    }
}

/// Makes the way back from what stands at every path that will be touched.
#[must_use]
pub fn journal(befores: Vec<Before>) -> Journal {
    let (mut gone, mut back): (Vec<Before>, Vec<Before>) = befores
        .into_iter()
        .partition(|before| before.act == UndoAct::Remove);
    let depth = |before: &Before| before.path.components().count();
    gone.sort_by(|a, b| depth(b).cmp(&depth(a)).then_with(|| a.path.cmp(&b.path)));
    back.sort_by(|a, b| depth(a).cmp(&depth(b)).then_with(|| a.path.cmp(&b.path)));
    let acts = gone
        .into_iter()
        .chain(back)
        .map(|before| Entry {
            act: before.act,
            name: before.name,
            place: before.place,
            path: before.path,
        })
        .collect();
    Journal {
        version: JOURNAL_VERSION,
        acts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn before(path: &str, thing: Option<Thing>) -> Before {
        Before {
            name: None,
            place: Place::Root,
            path: TargetPath::parse(path).unwrap(),
            act: act_to(thing.as_ref()),
        }
    }

    // holds: HR-14
    #[test]
    fn what_was_made_goes_deepest_first_and_what_was_there_comes_back_topmost_first() {
        let folder = || {
            Some(Thing::Directory {
                mode: 0o755,
                uid: 0,
                gid: 0,
            })
        };
        let file = || {
            Some(Thing::File {
                content: Digest::of(b"x"),
                mode: 0o644,
                uid: 0,
                gid: 0,
            })
        };
        let journal = journal(vec![
            before("/new", None),
            before("/old/deep/file", file()),
            before("/new/a/b", None),
            before("/old/deep", folder()),
            before("/new/a", None),
        ]);
        let paths: Vec<&str> = journal.acts.iter().map(|e| e.path.as_str()).collect();
        assert_eq!(
            paths,
            ["/new/a/b", "/new/a", "/new", "/old/deep", "/old/deep/file"]
        );
    }

    // holds: HR-13
    #[test]
    fn the_journals_words_are_frozen() {
        let entry = Entry {
            name: None,
            place: Place::Root,
            path: TargetPath::parse("/etc/motd").unwrap(),
            act: UndoAct::PutFile {
                blob: Digest::of(b""),
                mode: 0o644,
                uid: 0,
                gid: 1,
            },
        };
        let text = serde_json::to_string(&entry).unwrap();
        assert_eq!(
            text,
            "{\"place\":\"root\",\"path\":\"/etc/motd\",\"act\":{\"put_file\":{\"blob\":\"sha256:\
             e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\",\"mode\":420,\"uid\":0,\"gid\":1}}}"
        );
    }
}
