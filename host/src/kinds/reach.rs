//! What a kind reaches of a machine, and the way back that it makes: what every kind begins with.

use std::collections::BTreeMap;
use std::time::Duration;

use meshplan_schemas::digest::Digest;

use crate::edge::disk::{Disk, DiskError, NewFile, Owner, atomic};
use crate::edge::observe::observe;
use crate::edge::system::System;
use crate::pure::inverse::{Act, Place, UndoAct, When, path_act};
use crate::pure::observed::Observed;
use crate::pure::target::{Sort, Target};
use crate::pure::target_path::TargetPath;

/// How long a tool of the system may take.
pub(super) const BOUND: Duration = Duration::from_secs(120);

/// What a kind reaches of a machine.
#[derive(Debug, Clone, Copy)]
pub struct Reach<'a> {
    /// Its files.
    pub root: &'a dyn Disk,
    /// Its programs and its service manager.
    pub system: &'a dyn System,
    /// The state folder: artifacts, and what is known of trees.
    pub state: &'a dyn Disk,
}

/// A way back, and the bytes that it takes.
#[derive(Debug, Default)]
pub struct Back {
    /// In order.
    pub acts: Vec<Act>,
    /// By digest.
    pub blobs: BTreeMap<Digest, Vec<u8>>,
}

impl Back {
    /// Keeps what stands at a path now, and the folders that are missing on the way to it.
    pub(super) fn path(&mut self, path: TargetPath, reach: Reach<'_>) -> Result<(), String> {
        for folder in atomic::missing_folders(reach.root, &path) {
            self.path_to(folder, &Observed::Absent);
        }
        let there = observe(reach.root, &path);
        if let Observed::Unknown(why) | Observed::Other(why) = &there {
            return Err(format!("{path}: {why}"));
        }
        self.path_to(path, &there);
        Ok(())
    }

    /// Keeps what stands at a path of the state folder now.
    pub(super) fn state_path(&mut self, path: TargetPath, reach: Reach<'_>) -> Result<(), String> {
        let there = observe(reach.state, &path);
        if let Observed::Unknown(why) | Observed::Other(why) = &there {
            return Err(format!("{path}: {why}"));
        }
        self.place_to(Place::State, path, &there);
        Ok(())
    }

    /// What brings a path to how it is described.
    pub(super) fn path_to(&mut self, path: TargetPath, there: &Observed) {
        self.place_to(Place::Root, path, there);
    }

    fn place_to(&mut self, place: Place, path: TargetPath, there: &Observed) {
        self.acts.push(Act {
            when: When::Paths,
            place,
            target: Target::Path(path),
            act: path_act(there.thing().as_ref()),
        });
        if let Observed::File { bytes, .. } = there {
            self.blobs.insert(Digest::of(bytes), bytes.clone());
        }
    }

    /// A program of the way back of a thing.
    pub(super) fn run(&mut self, when: When, (sort, name): (Sort, &str), argv: &[&str], accepts: &[i32]) {
        self.acts.push(Act {
            when,
            place: Place::Root,
            target: Target::Thing(sort, name.to_owned()),
            act: UndoAct::run(argv, accepts),
        });
    }
}

/// Runs a tool of the system.
pub(super) fn run(system: &dyn System, argv: &[&str], accepts: &[i32]) -> Result<(), String> {
    let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
    system.run(&argv, BOUND).fault(&argv, accepts).map_or(Ok(()), Err)
}

/// Writes a file of the system's settings, which ends with a line end, with the folders on the way to it.
pub(super) fn put_text(reach: Reach<'_>, path: &TargetPath, text: &str) -> Result<(), String> {
    let words = |e: DiskError| e.to_string();
    for folder in atomic::missing_folders(reach.root, path).iter().rev() {
        atomic::put_folder(reach.root, folder, 0o755, Owner::default()).map_err(words)?;
    }
    let bytes = format!("{}\n", text.trim_end());
    let file = NewFile {
        bytes: bytes.as_bytes(),
        mode: 0o644,
        owner: Owner::default(),
    };
    atomic::put_file(reach.root, path, &file, None).map_err(words)
}

/// What stands in such a file, without its end; none where there is none.
pub(super) fn text_of(reach: Reach<'_>, path: &TargetPath) -> Result<Option<String>, String> {
    match observe(reach.root, path) {
        Observed::Absent => Ok(None),
        Observed::File { bytes, .. } => Ok(Some(String::from_utf8_lossy(&bytes).trim_end().to_owned())),
        Observed::Unknown(why) => Err(why),
        other => Err(format!("{path} is {}, no file", other.word())),
    }
}
