//! A delivery: one merged commit on its way, as a value that the store keeps (DL-1, DL-3).
//!
//! States and codes are those of [`meshplan_schemas::lifecycle::delivery`]; [`Delivery::transit`] is the only way
//! from one to another, and it asks the table.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use meshplan_schemas::declaration::LeftOut;
use meshplan_schemas::digest::Digest;
use meshplan_schemas::document::fleet::ConfigMgmt;
use meshplan_schemas::document::plan::{Amount, Budget, Select};
use meshplan_schemas::document::texts::SecretName;
use meshplan_schemas::epoch::Targeting;
use meshplan_schemas::fleet_list::UpdateClass;
use meshplan_schemas::ident::{CommitId, DeliveryName, NodeId, NodeName, PlanName, ResourceName};
use meshplan_schemas::lifecycle::delivery::{Code, InvalidTransition, State, check};
use meshplan_schemas::maintenance::Window;
use serde::{Deserialize, Serialize};

use super::parts::Parts;
use super::rollout::words::Overrides;
use super::scope::Scope;
use super::shared::Shared;
use super::unpassed::Unpassed;

mod awaits;
mod left_behind;
mod shut;
mod spent;

pub use awaits::Awaits;
pub use left_behind::{Follows, LeftBehind};
pub use shut::Shut;
pub use spent::SpentValue;

/// A delivery as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Delivery {
    /// The commit.
    pub commit: CommitId,
    /// The repository, as the configuration names it.
    pub repo: String,
    /// `<repo>@<12 hex>`.
    pub name: DeliveryName,
    /// Its place in first-parent order, over all deliveries of the fleet.
    pub order: u64,
    /// The delivery before it in that order, none for the first.
    pub previous: Option<CommitId>,
    /// What its tree is made of, where that is not its commit alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_of: Option<Parts>,
    /// Its commit, or one that its tree is made of, has left its branch: of what a tree after it is made instead (DL-2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts_after: Option<Parts>,
    /// The commit's first line.
    pub subject: String,
    /// The commit's author, by name.
    pub author: String,
    /// Where it stands.
    pub state: State,
    /// Why it stands there.
    pub code: Code,
    /// Since when.
    pub since: Timestamp,
    /// In a sentence.
    pub reason: String,
    /// What it waits for before it begins, as it was last judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaits: Option<Awaits>,
    /// How many transitions it has had.
    pub transitions: u32,
    /// What it changes; empty until it is diffed.
    #[serde(default)]
    pub legs: Vec<Leg>,
    /// Scopes that are left alone, and why (`known-bad since COMMIT`).
    #[serde(default)]
    pub skipped: BTreeMap<Scope, String>,
    /// Modules that a node should have and gets nothing of by this delivery, and why (FR-8).
    #[serde(default)]
    pub left_out: BTreeMap<NodeId, Vec<LeftOut>>,
    /// The plan that covers it, none for the built-in one; known once it is diffed.
    #[serde(default)]
    pub plan: Option<PlanName>,
    /// The walk, once it has begun.
    #[serde(default)]
    pub walk: Option<Walk>,
    /// The digest of what an approval of it binds: what its legs change, and under which gate (DL-15).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binds: Option<Digest>,
    /// The checks that its plans name, whose verdicts are asked of the forge while it is proposed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<String>,
    /// Commits whose place it took before they had passed their gate: its legs answer for these too (DL-15).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unpassed: Vec<Unpassed>,
    /// The teams that its plans name among those who may say something: the forge is asked who is in them (DL-4).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub teams: Vec<String>,
    /// A person said `--again`: known-bad does not hold it, and its orders say so.
    #[serde(default)]
    pub again: bool,
    /// Why its commit says that what it takes away may go (FR-12).
    #[serde(default)]
    pub allows_removals: Option<String>,
    /// The newest commit before it that was let through when it was announced: whose tree says by whom it must be signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<CommitId>,
    /// The branch was rewritten before it, and nobody has let that through since (FG-3).
    #[serde(default)]
    pub rewritten: bool,
    /// A person said hold before it began.
    #[serde(default)]
    pub person_hold: bool,
    /// What a walk whose place it took had put on machines: its own walk answers for that too.
    #[serde(default)]
    pub inherited: Option<Inherited>,
    /// Machines that are left behind what it brings: in none of its stages, and never waited for (UC-1).
    #[serde(default)]
    pub left_behind: Shared<BTreeMap<NodeId, LeftBehind>>,
    /// What a person said is other for its rollout alone (RO-6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overrides: Option<Overrides>,
}

/// What a walk left on machines when a newer delivery took its place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Inherited {
    /// The machines.
    pub reached: Shared<BTreeMap<NodeId, Reached>>,
    /// Its first epoch, 0 without one.
    pub first_epoch: u64,
}

/// One transition, as stored and as written into the note.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Transition {
    /// The delivery's commit.
    pub commit: CommitId,
    /// From 0 for each delivery.
    pub seq: u32,
    /// When.
    pub at: Timestamp,
    /// From; none for "(new)".
    pub from: Option<State>,
    /// To.
    pub to: State,
    /// Why, as a word.
    pub code: Code,
    /// Who: `reconciler`, `forge`, or a person.
    pub actor: String,
    /// Why, in a sentence.
    pub reason: String,
    /// Facts for the note's trailers, in order: `("Epoch", "12")`.
    pub facts: Vec<(String, String)>,
}

/// What a delivery changes in one scope.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Leg {
    /// The scope.
    pub scope: Scope,
    /// The scope's digest at the commit: what known-bad goes by.
    pub digest: Digest,
    /// Fleet-wide content before (policy, list, gate); none where nothing was accepted yet, or for modules.
    pub before: Option<Digest>,
    /// The newest content failed before and stays out: the nodes get what this commit, the one in which the scope was
    /// last accepted, has of it (DL-3). None: the delivery's own content.
    #[serde(default)]
    pub from: Option<CommitId>,
    /// For modules and policy: the nodes that it changes.
    pub nodes: Shared<BTreeMap<NodeId, NodeChange>>,
    /// The same for nodes that are left behind: accepted for them with the others, and ordered later or never (UC-1).
    #[serde(default, skip_serializing_if = "is_nobody")]
    pub behind: Shared<BTreeMap<NodeId, NodeChange>>,
}

fn is_nobody(nodes: &Shared<BTreeMap<NodeId, NodeChange>>) -> bool {
    nodes.is_empty()
}

/// What a leg changes on one node: content digests; none is "not there".
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeChange {
    /// Before: what is proven there.
    pub before: Option<Digest>,
    /// After.
    pub after: Option<Digest>,
}

/// How far the walk is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Walk {
    /// The plan that is walked, none for the built-in one.
    pub plan: Option<PlanName>,
    /// The stages, with their selections once they have started.
    pub stages: Vec<StageRun>,
    /// The stage in hand.
    pub current: usize,
    /// What happens in it.
    pub step: Step,
    /// The highest sequence that was ordered for it, 0 before the first.
    pub sequence: u64,
    /// The newest epoch that was ordered for it, 0 without one.
    pub epoch: u64,
    /// The first epoch that was ordered for it, 0 without one: a roll-back leaves none of them standing.
    #[serde(default)]
    pub first_epoch: u64,
    /// The revision of the fleet list that it became, 0 without one.
    #[serde(default)]
    pub revision: u64,
    /// Every machine to which any order of it was addressed (DL-7).
    pub reached: Shared<BTreeMap<NodeId, Reached>>,
    /// The newest epoch addresses everyone.
    #[serde(default)]
    pub released: bool,
    /// Windows outside of which no stage opens: those of the plan before and after (DL-15, DL-17).
    #[serde(default)]
    pub windows: Vec<Window>,
    /// Where a plan says so, with the line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub windows_at: String,
    /// Machines that are not awaited: absent at the start, and the plan or a person says so (DL-19).
    #[serde(default)]
    pub excused: BTreeSet<NodeId>,
    /// The class of each machine that it changes and that is not required, as it counts now (UC-1).
    #[serde(default)]
    pub classes: Shared<BTreeMap<NodeId, UpdateClass>>,
    /// What is worth saying of the walk: an empty stage, a canary that was replaced, a class that is another now.
    #[serde(default)]
    pub lines: Vec<String>,
    /// Each leg has its own fate (DL-3, `legs = "apart"`).
    #[serde(default)]
    pub apart: bool,
    /// A roll-back also opens a pull request that reverts the commit (DL-7).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reverts: bool,
    /// Legs that were taken back while the others went on.
    #[serde(default)]
    pub taken: Vec<TakenLeg>,
    /// What caused the roll-back.
    #[serde(default)]
    pub abort_cause: Option<AbortCause>,
    /// What the roll-back left as it is because it goes only forward, and on how many machines (DL-7).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stays: BTreeMap<ResourceName, usize>,
    /// What the roll-back does not restore because it needs a value that is retired, by the secret's name (DL-7).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub spent: BTreeMap<SecretName, SpentValue>,
    /// After the roll-back's deadline: machines that do not have the former content yet.
    #[serde(default)]
    pub outstanding: Vec<NodeName>,
}

/// A leg that was taken back while the others went on (DL-3).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TakenLeg {
    /// The leg.
    pub leg: Leg,
    /// Why, as a word.
    pub code: Code,
    /// Why, in a sentence.
    pub reason: String,
}

/// The moment of a walk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// The stage is not ordered yet.
    Open,
    /// Ordered; looks decide.
    Looking {
        /// When the stage is over.
        deadline: Timestamp,
    },
    /// The stage has passed; those that passed before are looked at once more before the next opens (DL-13).
    Regard {
        /// When that look must have been answered.
        deadline: Timestamp,
    },
    /// The former content is ordered; reports are awaited.
    Returning {
        /// When the rest is listed as outstanding.
        deadline: Timestamp,
    },
}

/// One stage as it is walked: the plan's words with the numbers resolved (DL-6).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageRun {
    /// Its name.
    pub name: String,
    /// The line of the plan's file on which it begins; 0 for a built-in one.
    #[serde(default)]
    pub line: u32,
    /// Where none of the machines that it names is changed: hold, instead of another machine (DL-6).
    #[serde(default)]
    pub named_only: bool,
    /// Which machines, of those that the delivery changes and no stage before has.
    pub select: Select,
    /// How many at once; the others follow in a stage of the same name.
    pub batch: Option<Amount>,
    /// Healthy looks in a row that pass a machine; 0: told only.
    pub times: u32,
    /// Seconds between looks.
    pub every_secs: u32,
    /// Seconds within which a machine must pass.
    pub within_secs: u32,
    /// What a failed machine does to the delivery.
    pub failed: OnTrouble,
    /// What a silent machine does to the delivery.
    pub silent: OnTrouble,
    /// How many may fail or be silent.
    pub tolerate: Amount,
    /// How many machines may be unavailable at once (DL-17).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budget: Vec<Budget>,
    /// The two ends of one link are not disturbed together (DL-17).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spread_links: bool,
    /// A person said go in spite of machines that are down.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub over_budget: bool,
    /// Its budgets let nobody begin: since when, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<(Timestamp, String)>,
    /// A window is shut, or was, that it must not open in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shut: Option<Shut>,
    /// Once it has started: how an order addresses its machines without listing them, where it does: a wave, or a stage
    /// of very many (DL-6, RO-2).
    #[serde(default)]
    pub group: Option<Targeting>,
    /// The machines, once the stage has started.
    pub machines: Shared<BTreeMap<NodeId, MachineRun>>,
    /// When it was ordered.
    #[serde(default)]
    pub ordered_at: Option<Timestamp>,
}

/// What trouble does to a delivery (`failed`, `silent` of a stage).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnTrouble {
    /// The former content is ordered again.
    RollBack,
    /// A person decides.
    Hold,
    /// Listed and left.
    Leave,
}

/// One machine of a stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MachineRun {
    /// Its name.
    pub name: NodeName,
    /// The declaration that it was sent in this stage, 0 where the delivery changes only its policy.
    pub sequence: u64,
    /// The epoch that it was sent in this stage, 0 where the delivery changes no policy on it.
    pub epoch: u64,
    /// The order was given once more, after a revert that says nothing about the content (DL-13).
    #[serde(default)]
    pub ordered_again: bool,
    /// Healthy looks in a row so far.
    pub healthy: u32,
    /// The first of them.
    #[serde(default)]
    pub healthy_since: Option<Timestamp>,
    /// The newest look that was asked: its id and when.
    #[serde(default)]
    pub asked: Option<(u64, Timestamp)>,
    /// The newest look that was judged.
    #[serde(default)]
    pub judged: u64,
    /// The restart counter at the first look, which must not move (DL-5).
    #[serde(default)]
    pub restarts: Option<u64>,
    /// What the newest look saw, in words.
    #[serde(default)]
    pub last: String,
    /// It saw "no", not merely "cannot tell" (DL-13).
    #[serde(default)]
    pub unhealthy: bool,
    /// Decided, or still open.
    #[serde(default)]
    pub verdict: Option<Verdict>,
    /// Its own maintenance window was shut, and opens then: its time counts from there (DL-17).
    #[serde(default)]
    pub opens: Option<Timestamp>,
    /// A person said go although it did not pass: it troubles nobody any more.
    #[serde(default)]
    pub forced: bool,
}

/// What became of a machine in its stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The word.
    pub word: VerdictWord,
    /// `healthy 3 times over 2m32s`, or why not.
    pub reason: String,
}

/// The words of a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerdictWord {
    /// Healthy as often as asked.
    Passed,
    /// Told only.
    Sent,
    /// Not healthy.
    Failed,
    /// Not heard from.
    Silent,
}

/// A machine to which an order was addressed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reached {
    /// Its name.
    pub name: NodeName,
    /// The sequence of the order that takes it back, 0 before.
    pub return_sequence: u64,
    /// The epoch that takes it back, 0 before or without one.
    pub return_epoch: u64,
    /// It has the former content again.
    pub returned: bool,
}

/// What caused a roll-back (DL-7).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbortCause {
    /// Which machine, by short id.
    pub node_id_short: String,
    /// And by name.
    pub name: String,
    /// `failed`, `silent` or a person's word, with what was seen.
    pub reason: String,
    /// The stage.
    pub phase: String,
}

impl Delivery {
    /// A commit that became known, before anything else is known of it.
    #[must_use]
    pub fn announced(repo: &str, commit: CommitId, order: u64, since: Timestamp) -> Self {
        Self {
            repo: repo.to_owned(),
            name: DeliveryName::new(repo, &commit),
            commit,
            order,
            previous: None,
            made_of: None,
            parts_after: None,
            subject: String::new(),
            author: String::new(),
            state: State::Proposed,
            code: Code::Announced,
            since,
            reason: String::new(),
            awaits: None,
            transitions: 0,
            legs: Vec::new(),
            skipped: BTreeMap::new(),
            left_out: BTreeMap::new(),
            plan: None,
            walk: None,
            binds: None,
            checks: Vec::new(),
            unpassed: Vec::new(),
            teams: Vec::new(),
            again: false,
            allows_removals: None,
            base: None,
            rewritten: false,
            person_hold: false,
            inherited: None,
            left_behind: BTreeMap::new().into(),
            overrides: None,
        }
    }

    /// The repository, where it is a component's.
    #[must_use]
    pub fn component(&self) -> Option<&str> {
        let parts = self.made_of.as_ref().filter(|parts| parts.fleet != self.commit);
        parts.map(|_| self.repo.as_str())
    }

    /// What its tree is made of.
    #[must_use]
    pub fn parts(&self) -> Parts {
        let parts = self.made_of.clone();
        parts.unwrap_or_else(|| Parts::alone(self.commit.clone()))
    }

    /// What a tree after it is made of, before that one's own commit.
    #[must_use]
    pub fn parts_after(&self) -> Parts {
        self.parts_after.clone().unwrap_or_else(|| self.parts())
    }

    /// Whether what it brings is in trees after it: its own commit has not left its branch.
    #[must_use]
    pub fn stays(&self) -> bool {
        self.parts_after()
            .each()
            .any(|(_, commit)| *commit == self.commit)
    }

    /// Whether it waits, and no order of it is out.
    #[must_use]
    pub fn waits(&self) -> bool {
        matches!(self.state, State::Proposed | State::Held) && !self.has_begun()
    }

    /// Whether it has begun and is not over.
    #[must_use]
    pub fn walks(&self) -> bool {
        matches!(self.state, State::Delivering | State::RollingBack)
            || (self.state == State::Held && self.has_begun())
    }

    /// Moves to `to`, when the table has it, and gives the transition for record and note.
    ///
    /// # Errors
    /// [`InvalidTransition`]; nothing has changed then.
    pub fn transit(
        &mut self,
        now: Timestamp,
        to: State,
        code: Code,
        actor: &str,
        reason: String,
    ) -> Result<Transition, InvalidTransition> {
        check(Some(self.state), to, code)?;
        let transition = Transition {
            commit: self.commit.clone(),
            seq: self.transitions,
            at: now,
            from: Some(self.state),
            to,
            code,
            actor: actor.to_owned(),
            reason: reason.clone(),
            facts: Vec::new(),
        };
        self.transitions += 1;
        self.awaits = None;
        (self.state, self.code, self.since, self.reason) = (to, code, now, reason);
        Ok(transition)
    }

    /// The fleet's times, with what a person said is other for this one.
    #[must_use]
    pub fn config_mgmt(&self, fleet: &ConfigMgmt) -> ConfigMgmt {
        let overrides = self.overrides.as_ref();
        overrides.map_or_else(|| fleet.clone(), |o| o.over(fleet))
    }

    /// Whether it was taken back and machines that it had reached do not have the former content yet (DL-2).
    #[must_use]
    pub fn is_outstanding(&self) -> bool {
        self.state == State::RolledBack && self.walk.as_ref().is_some_and(|w| !w.outstanding.is_empty())
    }

    /// Whether it is over and still has something to order: the former content, or its own to machines that follow later.
    #[must_use]
    pub fn owes(&self) -> bool {
        self.is_outstanding() || self.left_behind.values().any(|left| left.follows.is_some())
    }

    /// Whether this machine is left behind it and follows to it.
    #[must_use]
    pub fn is_followed_by(&self, name: &str) -> bool {
        let left = self.left_behind.values();
        left.into_iter()
            .any(|left| left.name.as_str() == name && left.follows.is_some())
    }

    /// Whether orders of it are out, or may be.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.walk.as_ref().is_some_and(|w| !w.reached.is_empty())
    }
}
