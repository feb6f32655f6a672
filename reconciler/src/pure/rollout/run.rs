//! Which epochs are one rollout: those of one commit, from the first to the one that releases or takes back.
//!
//! It stands alone because the store keeps epochs, not rollouts: a delivery that is tried once more is another rollout
//! under the same name, told apart by its first epoch, whose number is never used twice.

use meshplan_schemas::epoch::{Epoch, Phase, Targeting};
use meshplan_schemas::ident::{CommitId, NodeId, RoleName};
use semver::Version;
use serde::{Deserialize, Serialize};

/// What a rollout needs to know of a signed epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedEpoch {
    /// Its number.
    pub epoch: u64,
    /// Canaries, everyone, or the way back.
    pub phase: Phase,
    /// Whom it addresses.
    pub targeting: Targeting,
    /// Unix seconds.
    pub issued_at: i64,
    /// Its commit-confirm window in seconds.
    pub confirm_secs: u32,
    /// Hosts older than this do not take it.
    pub min_daemon_version: Option<Version>,
}

impl From<&Epoch> for SignedEpoch {
    fn from(epoch: &Epoch) -> Self {
        Self {
            epoch: epoch.epoch,
            phase: epoch.phase,
            targeting: epoch.targeting.clone(),
            issued_at: epoch.issued_at,
            confirm_secs: epoch.confirm_secs,
            min_daemon_version: epoch.min_daemon_version.clone(),
        }
    }
}

/// The epochs of one rollout, oldest first; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The commit.
    pub commit: CommitId,
    /// A later run of the same commit exists: its delivery speaks of that one.
    pub former: bool,
    first: SignedEpoch,
    more: Vec<SignedEpoch>,
}

impl Run {
    /// The run of these epochs, oldest first; none of no epochs.
    #[must_use]
    pub fn of(commit: CommitId, former: bool, epochs: Vec<SignedEpoch>) -> Option<Self> {
        let mut epochs = epochs.into_iter();
        Some(Self {
            commit,
            former,
            first: epochs.next()?,
            more: epochs.collect(),
        })
    }

    /// The first epoch.
    #[must_use]
    pub fn first(&self) -> &SignedEpoch {
        &self.first
    }

    /// The newest epoch, without those that single machines were given once more after the release to everyone (DL-13): they
    /// move nobody else.
    #[must_use]
    pub fn newest(&self) -> &SignedEpoch {
        let to_all = |e: &SignedEpoch| e.phase == Phase::Release && e.targeting == Targeting::everyone();
        let released = self.epochs().any(to_all);
        let once_more =
            |e: &SignedEpoch| released && e.phase == Phase::Release && e.targeting.nodes.is_some();
        let newest = self.epochs().rev().find(|e| !once_more(e));
        newest.unwrap_or(&self.first)
    }

    /// All of them, oldest first.
    pub fn epochs(&self) -> impl DoubleEndedIterator<Item = &SignedEpoch> {
        std::iter::once(&self.first).chain(&self.more)
    }

    /// Whether it is on its way back, or was taken back.
    #[must_use]
    pub fn is_taken_back(&self) -> bool {
        self.newest().phase == Phase::Abort
    }

    /// The epochs that count now: those of the way back once there is one, else those of the way out.
    pub fn counting(&self) -> impl DoubleEndedIterator<Item = &SignedEpoch> {
        let back = self.is_taken_back();
        self.epochs().filter(move |e| (e.phase == Phase::Abort) == back)
    }

    /// The first epoch that counts now and addresses this node.
    #[must_use]
    pub fn addressing(&self, node: NodeId, roles: &[RoleName]) -> Option<&SignedEpoch> {
        self.counting().find(|e| e.targeting.addresses(node, roles))
    }

    /// The first canary epoch, none where it began with the release.
    #[must_use]
    pub fn canary_epoch(&self) -> Option<u64> {
        (self.first.phase == Phase::Canary).then_some(self.first.epoch)
    }

    /// The epoch to settle on: what releases, or what takes back.
    #[must_use]
    pub fn final_epoch(&self) -> Option<u64> {
        let newest = self.newest();
        (newest.phase != Phase::Canary).then_some(newest.epoch)
    }
}
