//! What a running host says of itself beside its state: since when, and how it stands with the link. For people only.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Until;

const FILE: &str = "presence.json";

/// What `presence.json` holds. It is not synced: after a power cut it is of no interest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presence {
    #[serde(skip)]
    path: PathBuf,
    /// The host's process.
    pub pid: u32,
    /// Whether it ends by itself when nothing is left to do (`apply --once`).
    #[serde(default)]
    pub once: bool,
    /// Its version.
    pub version: String,
    /// Unix seconds.
    pub started_at: i64,
    /// Whether a session stands.
    pub link_up: bool,
    /// Since when, unix seconds.
    pub link_since: i64,
    /// Why there is none.
    pub link_why: String,
}

impl Presence {
    pub(super) fn new(state_dir: &Path, until: Until, now: i64) -> Self {
        Self {
            path: state_dir.join(FILE),
            pid: std::process::id(),
            once: until == Until::Rest,
            version: crate::edge::boot::version().to_string(),
            started_at: now,
            link_up: false,
            link_since: now,
            link_why: "not dialled yet".to_owned(),
        }
    }

    /// The last words of the host of a state folder.
    #[must_use]
    pub fn read(state_dir: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(state_dir.join(FILE)).ok()?).ok()
    }

    /// A host that runs until it is told to stop, and whose process is there.
    #[must_use]
    pub fn stays(&self) -> bool {
        !self.once && self.is_there()
    }

    /// Whether its process is there.
    #[must_use]
    pub fn is_there(&self) -> bool {
        Path::new("/proc").join(self.pid.to_string()).exists()
    }

    pub(super) fn up(&mut self, now: i64) {
        (self.link_up, self.link_since) = (true, now);
        self.link_why.clear();
        self.write();
    }

    /// The time since which there is none is that of the first failure, not of the last attempt.
    pub(super) fn down(&mut self, now: i64, why: &str) {
        if self.link_up {
            self.link_since = now;
        }
        if self.link_up || self.link_why != why {
            self.link_up = false;
            tracing::warn!(why, "no session with the reconciler");
            why.clone_into(&mut self.link_why);
            self.write();
        }
    }

    pub(super) fn write(&self) {
        let beside = self.path.with_extension("tmp");
        let written = serde_json::to_vec(self)
            .map_err(std::io::Error::from)
            .and_then(|bytes| std::fs::write(&beside, bytes))
            .and_then(|()| std::fs::rename(&beside, &self.path));
        if let Err(error) = written {
            tracing::debug!(%error, "the presence file cannot be written");
        }
    }

    pub(super) fn stopped(&self) {
        let _gone = std::fs::remove_file(&self.path);
    }
}
