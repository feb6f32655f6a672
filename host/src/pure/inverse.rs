//! The way back, made before the first step forward (HR-14): acts of a frozen vocabulary, each of which puts one
//! thing into the state it was found in.
//!
//! Stands alone because the vocabulary must never change: a journal written by one build is replayed by another,
//! and by the launcher, which knows nothing else. Every act may be repeated, and does nothing where nothing was
//! done. Invariant: what was started stops first; then paths, removals deepest first, then what was there, topmost
//! first; then what stands on the paths comes back.

use std::collections::BTreeSet;

use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::ResourceName;
use serde::{Deserialize, Serialize};

use super::record::Thing;
use super::target::Target;
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
    #[serde(rename = "path")]
    pub target: Target,
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
    /// Nothing may stand here, nor beside it under this name: a folder goes with all that is in it, where the host has put
    /// one here since.
    RemoveTree {
        /// Under which the next tree was made.
        made: String,
        /// What stands in the state folder where the host has put a tree here.
        mark: String,
    },
    /// The tree that was kept beside stands here again, and what stands here goes; nothing where none is kept: it never
    /// left, or is back. Nothing stands beside it under the other name.
    PutTree {
        /// Under which it is kept.
        from: String,
        /// Under which the next tree was made.
        made: String,
    },
    /// This program runs, without a shell, and ends well.
    Run {
        /// The program, which is looked for where root's programs are, and its arguments.
        argv: Vec<String>,
        /// Exit codes beside 0 that say that the state was there already.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        accepts: Vec<i32>,
        /// After so many seconds it is ended with all that it started.
        timeout_secs: u32,
    },
}

/// How long a program of the way back may take, in seconds.
const RUN_SECS: u32 = 600;

/// With what the launcher's words for containers end where the engine does not answer. The launcher has the same number.
pub const SILENT: i32 = 75;

/// The words of a program that name a container engine, where it acts on one: `meshplan-launcher container SOCKET`.
#[must_use]
pub fn engine_of(argv: &[String]) -> Option<&[String]> {
    let engine = argv.get(..3)?;
    (engine.get(1)? == "container").then_some(engine)
}

impl UndoAct {
    /// A program that runs; `accepts` are exit codes that say that the state was there already.
    #[must_use]
    pub fn run(argv: &[&str], accepts: &[i32]) -> Self {
        Self::Run {
            argv: argv.iter().map(|word| (*word).to_owned()).collect(),
            accepts: accepts.to_vec(),
            timeout_secs: RUN_SECS,
        }
    }
}

/// Something that will be touched, how it stands now, and what brings that back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Before {
    /// Whose thing it is.
    pub name: Option<ResourceName>,
    /// What it is.
    pub target: Target,
    /// How it stands; none where it is not there.
    pub thing: Option<Thing>,
    /// The way back, in the order in which it is to be walked.
    pub acts: Vec<Act>,
}

/// One act of a way back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Act {
    /// When.
    pub when: When,
    /// Which tree.
    pub place: Place,
    /// On what.
    pub target: Target,
    /// What.
    pub act: UndoAct,
}

/// When an act of the way back has its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// Before the paths: what stands on them stops.
    First,
    /// With the paths.
    Paths,
    /// When the paths stand, and before anything is started from them: what is to be read anew is.
    Read,
    /// After that: what stands on them comes back.
    Last,
}

impl Before {
    /// A path that will be touched.
    #[must_use]
    pub fn path(name: Option<ResourceName>, place: Place, path: TargetPath, thing: Option<Thing>) -> Self {
        let target = Target::Path(path);
        let act = Act {
            when: When::Paths,
            place,
            target: target.clone(),
            act: path_act(thing.as_ref()),
        };
        Self {
            name,
            target,
            thing,
            acts: vec![act],
        }
    }

    /// Whether something new will stand at a path.
    #[must_use]
    pub fn is_new_path(&self) -> bool {
        self.target.path().is_some() && self.thing.is_none()
    }
}

/// The act that puts a path into a state. What is no path's has none, and nothing may stand there.
#[must_use]
pub fn path_act(thing: Option<&Thing>) -> UndoAct {
    match thing {
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
        None
        | Some(
            Thing::Unit { .. }
            | Thing::Process { .. }
            | Thing::User(_)
            | Thing::Group { .. }
            | Thing::Setting { .. }
            | Thing::KernelModule { .. }
            | Thing::Package { .. }
            | Thing::Tree { .. }
            | Thing::Container(_)
            | Thing::Network { .. }
            | Thing::Volume
            | Thing::Filter { .. },
        ) => UndoAct::Remove,
    }
}

/// Makes the way back from what will be touched, in the order in which it will be. What is to be read anew is read
/// once.
#[must_use]
pub fn journal(befores: Vec<Before>) -> Journal {
    let mut acts: Vec<(Option<ResourceName>, Act)> = Vec::new();
    // The last thing done is the first to be undone.
    for before in befores.into_iter().rev() {
        let name = before.name;
        acts.extend(before.acts.into_iter().map(|act| (name.clone(), act)));
    }
    acts.sort_by(|(_, a), (_, b)| a.when.cmp(&b.when).then_with(|| on_paths(a, b)));
    let mut read: BTreeSet<Vec<String>> = BTreeSet::new();
    acts.retain(|(_, act)| match &act.act {
        UndoAct::Run { argv, .. } if act.when == When::Read => read.insert(argv.clone()),
        _ => true,
    });
    let entry = |(name, act): (Option<ResourceName>, Act)| Entry {
        name,
        place: act.place,
        target: act.target,
        act: act.act,
    };
    Journal {
        version: JOURNAL_VERSION,
        acts: acts.into_iter().map(entry).collect(),
    }
}

/// The order of acts on paths: removals deepest first, then what was there, topmost first.
fn on_paths(a: &Act, b: &Act) -> std::cmp::Ordering {
    let (Some(at), Some(bt)) = (a.target.path(), b.target.path()) else {
        return std::cmp::Ordering::Equal;
    };
    let depth = |path: &TargetPath| path.components().count();
    let is_put = |act: &Act| !matches!(act.act, UndoAct::Remove | UndoAct::RemoveTree { .. });
    let deeper = match is_put(a) {
        true => depth(at).cmp(&depth(bt)),
        false => depth(bt).cmp(&depth(at)),
    };
    (is_put(a).cmp(&is_put(b))).then(deeper).then_with(|| at.cmp(bt))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn before(path: &str, thing: Option<Thing>) -> Before {
        Before::path(None, Place::Root, TargetPath::parse(path).unwrap(), thing)
    }

    fn run(when: When, target: &str, argv: &[&str]) -> Before {
        let target: Target = target.parse().unwrap();
        let act = Act {
            when,
            place: Place::Root,
            target: target.clone(),
            act: UndoAct::run(argv, &[]),
        };
        Before {
            name: None,
            target,
            thing: None,
            acts: vec![act],
        }
    }

    // holds: HR-14
    #[test]
    fn what_stands_on_paths_stops_before_them_and_comes_back_after_them_in_the_reverse_order() {
        let reload = ["systemctl", "daemon-reload"];
        let journal = journal(vec![
            run(When::First, "unit:a.service", &["stop", "a"]),
            run(When::Read, "unit:a.service", &reload),
            before("/etc/a.service", None),
            run(When::First, "unit:b.service", &["stop", "b"]),
            run(When::Read, "unit:b.service", &reload),
            run(When::Last, "unit:c.service", &["start", "c"]),
            run(When::Last, "unit:d.service", &["start", "d"]),
        ]);
        let words: Vec<String> = (journal.acts.iter())
            .map(|entry| match &entry.act {
                UndoAct::Run { argv, .. } => argv.join(" "),
                _ => entry.target.to_string(),
            })
            .collect();
        assert_eq!(
            words,
            [
                "stop b",
                "stop a",
                "/etc/a.service",
                "systemctl daemon-reload",
                "start d",
                "start c"
            ]
        );
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
        let paths: Vec<&str> = journal
            .acts
            .iter()
            .filter_map(|e| e.target.path())
            .map(TargetPath::as_str)
            .collect();
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
            target: "/etc/motd".parse().unwrap(),
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
        let word = |act: UndoAct| serde_json::to_string(&act).unwrap();
        let made = || "new".to_owned();
        let remove = UndoAct::RemoveTree {
            made: made(),
            mark: "/trees/x".to_owned(),
        };
        assert_eq!(
            word(remove),
            r#"{"remove_tree":{"made":"new","mark":"/trees/x"}}"#
        );
        let put = UndoAct::PutTree {
            from: "old".to_owned(),
            made: made(),
        };
        assert_eq!(word(put), r#"{"put_tree":{"from":"old","made":"new"}}"#);
        let entry = Entry {
            name: Some("web.site".parse().unwrap()),
            place: Place::Root,
            target: "user:web".parse().unwrap(),
            act: UndoAct::run(&["userdel", "web"], &[6]),
        };
        assert_eq!(
            serde_json::to_string(&entry).unwrap(),
            "{\"name\":\"web.site\",\"place\":\"root\",\"path\":\"user:web\",\"act\":{\"run\":{\"argv\":[\"userdel\",\
             \"web\"],\"accepts\":[6],\"timeout_secs\":600}}}"
        );
    }
}
