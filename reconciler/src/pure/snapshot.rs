//! Everything that one pass may know, in one printable value; the store fills it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use meshplan_schemas::digest::Digest;
use meshplan_schemas::epoch::Targeting;
use meshplan_schemas::fleet_list::{Author, Reconciler};
use meshplan_schemas::ident::{CommitId, DeliveryName, NodeId};
use meshplan_schemas::report::{Paused, Report};
use meshplan_schemas::timestamp::BlockMark;
use serde::{Deserialize, Serialize};

use super::delivery::Delivery;
use super::identities::Revoked;
use super::recover::waiting::Recovering;
use super::rollout::words::Overrides;
use super::scope::Scope;

/// What a pass knows.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The highest numbers used so far.
    pub counters: Counters,
    /// The lease's term (LK-6); 1 until there is a lease.
    pub term: u64,
    /// The deliveries that are not final, by commit, the newest final one, and those that open requests speak of.
    pub deliveries: BTreeMap<CommitId, Delivery>,
    /// The names of deliveries of components' commits, whatever became of them.
    pub of_components: BTreeMap<CommitId, DeliveryName>,
    /// The content last accepted for each scope, and the commit that has it.
    pub accepted: BTreeMap<Scope, ContentRef>,
    /// What each node shall run and what it has proven: [`Scope::Module`] and [`Scope::Policy`] only.
    pub assignments: Arc<Assignments>,
    /// How often an assignment was ever changed: at the same number they are the same. None where nobody counts.
    pub changes: Option<i64>,
    /// The epochs that stand, newest first; the first is the newest signed one.
    pub epochs: Vec<StandingEpoch>,
    /// The newest head of the fleet list.
    pub head: Option<HeadRef>,
    /// What is heard of each node.
    pub nodes: Arc<Nodes>,
    /// The nodes whose newest order is a declaration that went back for a reason which says nothing about its content, by
    /// its sequence; not where it was given once more already (DL-13).
    pub aside: BTreeMap<NodeId, u64>,
    /// The nodes whose newest epoch went back so, by its number, where it stands; not where it was given once more already.
    pub aside_epochs: BTreeMap<NodeId, u64>,
    /// The nodes with an open session.
    pub connected: BTreeSet<NodeId>,
    /// What failed before (DL-14).
    pub known_bad: BTreeMap<(Scope, Digest), KnownBad>,
    /// Reviews of the open deliveries' commits.
    pub reviews: BTreeMap<CommitId, Vec<Review>>,
    /// What a forge says of the checks of the open deliveries' commits; none where it was not heard yet.
    pub checks: BTreeMap<CommitId, Vec<Checked>>,
    /// Every uuid and key that was ever revoked, deleted or retired (FR-5).
    pub revoked: Arc<Revoked>,
    /// No new delivery begins (DL-4).
    pub freeze: Option<Freeze>,
    /// The database was lost and is rebuilt; nothing is signed yet (SG-8).
    pub recovering: Option<Recovering>,
    /// What people asked for and is not answered yet, oldest first.
    pub requests: Vec<Request>,
}

/// The highest numbers used (SG-8).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    /// Epochs.
    pub epoch: u64,
    /// Revisions of the fleet list.
    pub revision: u64,
    /// Sequences of declarations.
    pub sequence: u64,
    /// Deliveries in first-parent order.
    pub order: u64,
    /// Looks.
    pub look: u64,
    /// Journal blocks, with the digest of the newest.
    pub block: Option<BlockMark>,
}

/// Content and the commit that brought it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentRef {
    /// The content's digest.
    pub digest: Digest,
    /// The commit.
    pub commit: CommitId,
}

/// Assignments by node and scope.
pub type Assignments = BTreeMap<(NodeId, Scope), Assignment>;

/// What a node shall run of a scope, and what it has proven. None is "not there".
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// What it shall run now.
    pub assigned: Option<ContentRef>,
    /// With what a delivery last ended well there.
    pub proven: Option<ContentRef>,
    /// What was accepted for it while the node is left behind, where that is something else (UC-1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_back: Option<HeldBack>,
}

/// What a node that is left behind gets once it follows. None is "not there".
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldBack {
    /// The content.
    pub content: Option<ContentRef>,
}

impl Assignment {
    /// Everything that it names.
    pub fn contents(&self) -> impl Iterator<Item = &ContentRef> {
        let held_back = self.held_back.as_ref().and_then(|held| held.content.as_ref());
        [self.assigned.as_ref(), self.proven.as_ref(), held_back]
            .into_iter()
            .flatten()
    }
}

/// An epoch that stands (SG-2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandingEpoch {
    /// Its number.
    pub epoch: u64,
    /// The digest of its payload.
    pub digest: Digest,
    /// Whom it addresses.
    pub targeting: Targeting,
    /// The digest of its policy text.
    pub policy: Digest,
}

/// The newest head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadRef {
    /// Its revision.
    pub revision: u64,
    /// The digest of its payload.
    pub digest: Digest,
    /// The oldest revision that it still accepts.
    pub oldest_accepted: u64,
    /// Digests of uuids and keys revoked or retired since that one.
    pub revoked: Vec<Digest>,
    /// Who may sign from it on.
    pub authors: Vec<Author>,
    /// Where hosts find the reconcilers.
    pub reconcilers: Vec<Reconciler>,
}

/// What is heard of the nodes that were ever heard from.
pub type Nodes = BTreeMap<NodeId, NodeState>;

/// What is heard of a node.
#[derive(Debug, Clone, Default)]
pub struct NodeState {
    /// When the newest report was stored; none: never heard from (`expected`, DL-6).
    pub heard_at: Option<Timestamp>,
    /// The newest report.
    pub report: Option<Report>,
    /// The newest report that answers a look.
    pub look: Option<Report>,
    /// When that was stored.
    pub look_at: Option<Timestamp>,
}

impl NodeState {
    /// The pause that a person made on the machine, as it said last (HR-17). Its end is the machine's to say: it reports
    /// it, and nothing of its clock is known here.
    #[must_use]
    pub fn paused(&self) -> Option<&Paused> {
        self.report.as_ref()?.paused.as_ref()
    }
}

/// Content that failed (DL-14).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownBad {
    /// The commit that brought it.
    pub commit: CommitId,
    /// Since when.
    pub since: Timestamp,
    /// Why.
    pub reason: String,
    /// On which machines: content that is proven elsewhere is kept from these alone.
    #[serde(default)]
    pub on: BTreeSet<NodeId>,
}

/// What a person asked for (DL-4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Its id.
    pub id: String,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub actor: String,
    /// What.
    pub verb: Verb,
    /// Which delivery; none for a word about the whole fleet.
    pub commit: Option<CommitId>,
    /// Until when, of a freeze.
    #[serde(default)]
    pub until: Option<Timestamp>,
    /// Why, as the person says.
    pub why: String,
    /// It starts a rollout, with what is other for that one alone (RO-6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Overrides>,
    /// Who of a forge said it; none for who is at the reconciler itself. The plan's actors bind whoever comes by a forge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Person>,
}

/// Somebody of a forge, who may write there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Person {
    /// As the forge names them.
    pub login: String,
    /// What the forge said of the teams that the plans named, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub teams: BTreeMap<String, InTeam>,
}

/// Whether somebody is in a team, as the forge said when their word was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InTeam {
    /// They are.
    Yes,
    /// They are not.
    No,
    /// It does not tell, and why.
    Untold(String),
}

/// A review of a forge that approves a change (DL-15).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Review {
    /// Who, as the forge names them.
    pub by: String,
    /// When.
    pub at: Timestamp,
    /// The digest of what was seen: [`crate::pure::delivery::Delivery::binds`].
    pub binds: Digest,
}

/// What became of a check, as a forge says (DL-2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    /// Which.
    pub name: String,
    /// What.
    pub verdict: Verdict,
}

/// What a check says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Yes.
    Passed,
    /// Nothing yet.
    Running,
    /// No.
    Failed,
}

/// A freeze of the fleet (DL-4, FR-12).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freeze {
    /// Since when.
    pub since: Timestamp,
    /// Until when; none: until a person lifts it.
    pub until: Option<Timestamp>,
    /// Who.
    pub actor: String,
    /// Why.
    pub why: String,
}

/// The orders that a person may give a delivery, or the fleet (DL-4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    /// Go on.
    Go,
    /// Try what failed once more.
    GoAgain,
    /// Wait.
    Hold,
    /// Stop where it is.
    Stop,
    /// Take it back.
    Withdraw,
    /// Take a rollout back (page 04).
    Abort,
    /// The failed stage once more.
    Retry,
    /// No new delivery of the fleet begins.
    Freeze,
    /// They begin again.
    Lift,
    /// After the database was lost: go on without the machines that were not heard (SG-8).
    Recover,
}
