//! The act while it is made: numbers are drawn, assignments changed, transitions taken down, each in one place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use meshplan_schemas::digest::{Digest, canonical};
use meshplan_schemas::document::texts::SecretName;
use meshplan_schemas::ident::{CommitId, DeliveryName, ModuleName, NodeId};
use meshplan_schemas::lifecycle::delivery::{Code, State};

use super::faults::Faults;
use super::{DecideError, Known, Tree};
use crate::pure::act::{Act, Look};
use crate::pure::compose::{Composed, Filled, Retired};
use crate::pure::delivery::{Delivery, Transition};
use crate::pure::guard::{Guard, stands};
use crate::pure::scope::Scope;
use crate::pure::snapshot::{Assignment, ContentRef, Counters, Freeze, HeldBack, StandingEpoch};

/// An act that is being made.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    /// What is known.
    pub(super) known: &'a Known<'a>,
    /// What was decided so far.
    pub(super) act: Act,
    /// The numbers as drawn so far.
    pub(super) counters: Counters,
    /// The deliveries as they stand now.
    pub(super) deliveries: BTreeMap<CommitId, Delivery>,
    /// Those that differ from the snapshot.
    touched: BTreeSet<CommitId>,
    /// The epochs that stand now, newest first.
    pub(super) epochs: Vec<StandingEpoch>,
    /// The freeze of the fleet as it is now.
    pub(super) freeze: Option<Freeze>,
    /// What cannot be decided.
    pub(super) faults: &'a Faults,
}

impl<'a> Draft<'a> {
    pub(super) fn new(known: &'a Known<'a>, faults: &'a Faults) -> Self {
        Self {
            known,
            act: Act::default(),
            counters: known.snapshot.counters.clone(),
            deliveries: known.snapshot.deliveries.clone(),
            touched: BTreeSet::new(),
            epochs: known.snapshot.epochs.clone(),
            freeze: known.snapshot.freeze.clone(),
            faults,
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.known.now
    }

    /// Takes back a delivery that was taken out of the map to be worked on.
    pub(super) fn put(&mut self, delivery: Delivery) {
        if self.known.snapshot.deliveries.get(&delivery.commit) != Some(&delivery) {
            self.touched.insert(delivery.commit.clone());
        }
        self.deliveries.insert(delivery.commit.clone(), delivery);
    }

    /// The composed tree of a commit, when it composes.
    pub(super) fn tree(&self, commit: &CommitId) -> Option<Arc<Composed>> {
        match self.known.trees.get(commit) {
            Some(Tree::Composed(tree)) => Some(Arc::clone(tree)),
            _ => None,
        }
    }

    /// How the delivery of a commit is called.
    pub(super) fn name_of(&self, commit: &CommitId) -> DeliveryName {
        let open = self.deliveries.get(commit).map(|delivery| &delivery.name);
        let known = open.or_else(|| self.known.snapshot.of_components.get(commit));
        let of_fleet = || DeliveryName::new(&self.known.settings.repo, commit);
        known.cloned().unwrap_or_else(of_fleet)
    }

    /// Moves a delivery, and takes the transition down with its facts.
    pub(super) fn transit(
        &mut self,
        delivery: &mut Delivery,
        to: State,
        code: Code,
        actor: &str,
        reason: String,
        facts: Vec<(String, String)>,
    ) -> Result<(), DecideError> {
        let mut transition = delivery.transit(self.known.now, to, code, actor, reason)?;
        transition.facts = facts;
        self.record(transition);
        Ok(())
    }

    /// Takes down what happened to a delivery that stays in its state.
    pub(super) fn remark(
        &mut self,
        delivery: &mut Delivery,
        code: Code,
        actor: &str,
        reason: String,
        facts: Vec<(String, String)>,
    ) {
        self.record(Transition {
            commit: delivery.commit.clone(),
            seq: delivery.transitions,
            at: self.now(),
            from: Some(delivery.state),
            to: delivery.state,
            code,
            actor: actor.to_owned(),
            reason,
            facts,
        });
        delivery.transitions += 1;
    }

    pub(super) fn record(&mut self, transition: Transition) {
        self.act.transitions.push(transition);
    }

    /// Freezes the fleet, or lifts that.
    pub(super) fn set_freeze(&mut self, freeze: Option<Freeze>) {
        self.freeze.clone_from(&freeze);
        self.act.freeze = Some(freeze);
    }

    /// Draws the number of the next order of declarations.
    pub(super) fn next_sequence(&mut self) -> u64 {
        self.counters.sequence += u64::from(stands(Guard::NewNumbers));
        self.counters.sequence
    }

    /// Draws the number of the next epoch.
    pub(super) fn next_epoch(&mut self) -> u64 {
        self.counters.epoch += 1;
        self.counters.epoch
    }

    /// Asks a node for a report (DL-5); the look's id.
    pub(super) fn ask(&mut self, node: NodeId) -> u64 {
        self.counters.look += 1;
        self.act.looks.push(Look {
            id: self.counters.look,
            node,
        });
        self.counters.look
    }

    /// Says when the next pass is due, if nothing wakes it before.
    pub(super) fn due(&mut self, at: Timestamp) {
        self.act.next_at = Some(self.act.next_at.map_or(at, |before| before.min(at)));
    }

    /// What a node shall run of a scope and has proven, as decided by now.
    pub(super) fn assignment(&self, node: NodeId, scope: &Scope) -> Option<&Assignment> {
        let key = (node, scope.clone());
        match self.act.assignments.get(&key) {
            Some(changed) => changed.as_ref(),
            None => self.known.snapshot.assignments.get(&key),
        }
    }

    /// The modules that a node shall run, by name, as decided by now.
    pub(super) fn modules_on(&self, node: NodeId) -> BTreeMap<&ModuleName, &ContentRef> {
        let from = (node, Scope::List);
        let known = self.known.snapshot.assignments.range(from.clone()..);
        let known = known.map(|(key, assignment)| (key, Some(assignment)));
        let changed = self.act.assignments.range(from..);
        let changed = changed.map(|(key, assignment)| (key, assignment.as_ref()));
        let mut modules = BTreeMap::new();
        let of_node = |((id, _), _): &(&(NodeId, Scope), _)| *id == node;
        for ((_, scope), assignment) in known.take_while(of_node).chain(changed.take_while(of_node)) {
            let Scope::Module(name) = scope else { continue };
            match assignment.and_then(|a| a.assigned.as_ref()) {
                Some(content) => modules.insert(name, content),
                None => modules.remove(name),
            };
        }
        modules
    }

    /// Sets what a node shall run of a scope.
    pub(super) fn assign(&mut self, node: NodeId, scope: &Scope, content: Option<ContentRef>) {
        let mut assignment = self.assignment(node, scope).cloned().unwrap_or_default();
        assignment.assigned = content;
        assignment.held_back = None;
        self.put_assignment(node, scope, assignment);
    }

    /// Keeps for later what a node that is left behind gets once it follows; whether that is news.
    pub(super) fn hold_back(&mut self, node: NodeId, scope: &Scope, content: Option<ContentRef>) -> bool {
        let mut assignment = self.assignment(node, scope).cloned().unwrap_or_default();
        let digest = |content: &Option<ContentRef>| content.as_ref().map(|c| c.digest);
        let has =
            digest(&content) == digest(&assignment.assigned) && assignment.assigned == assignment.proven;
        let held_back = (!has).then_some(HeldBack { content });
        let of = |held: &Option<HeldBack>| held.as_ref().map(|held| digest(&held.content));
        let news = of(&held_back) != of(&assignment.held_back);
        if news {
            assignment.held_back = held_back;
            self.put_assignment(node, scope, assignment);
        }
        news
    }

    /// What is held back for a node, by scope, as decided by now.
    pub(super) fn held_back(&self, node: NodeId) -> BTreeMap<Scope, Option<ContentRef>> {
        let from = (node, Scope::List);
        let known = self.known.snapshot.assignments.range(from.clone()..);
        let known = known.map(|(key, assignment)| (key, Some(assignment)));
        let changed = self.act.assignments.range(from..);
        let changed = changed.map(|(key, assignment)| (key, assignment.as_ref()));
        let of_node = |((id, _), _): &(&(NodeId, Scope), _)| *id == node;
        let mut held = BTreeMap::new();
        for ((_, scope), assignment) in known.take_while(of_node).chain(changed.take_while(of_node)) {
            match assignment.and_then(|a| a.held_back.as_ref()) {
                Some(back) => held.insert(scope.clone(), back.content.clone()),
                None => held.remove(scope),
            };
        }
        held
    }

    /// What is assigned there is proven now.
    pub(super) fn prove(&mut self, node: NodeId, scope: &Scope) {
        let mut assignment = self.assignment(node, scope).cloned().unwrap_or_default();
        assignment.proven.clone_from(&assignment.assigned);
        self.put_assignment(node, scope, assignment);
    }

    fn put_assignment(&mut self, node: NodeId, scope: &Scope, assignment: Assignment) {
        let there = (assignment != Assignment::default()).then_some(assignment);
        self.act.assignments.insert((node, scope.clone()), there);
    }

    /// Keeps content for a roll-back or a later declaration.
    pub(super) fn keep<T: serde::Serialize>(
        &mut self,
        digest: Digest,
        content: &T,
    ) -> Result<(), DecideError> {
        if let std::collections::btree_map::Entry::Vacant(free) = self.act.contents.entry(digest) {
            free.insert(canonical(content)?);
        }
        Ok(())
    }

    /// The secrets that are retired: in the tree of a commit, and in the newest one.
    pub(super) fn retired(&self, commit: &CommitId) -> Vec<BTreeMap<SecretName, Retired>> {
        let newest = self
            .deliveries
            .values()
            .max_by_key(|d| d.order)
            .map(|d| &d.commit);
        let commits = std::iter::once(commit).chain(newest.filter(|newest| *newest != commit));
        let trees = commits.filter_map(|commit| self.tree(commit));
        trees.map(|tree| tree.secrets.retired.clone()).collect()
    }

    /// As [`Draft::keep`], for a module on a node, with the values and the artifacts that it names.
    pub(super) fn keep_module(&mut self, digest: Digest, module: &Filled) -> Result<(), DecideError> {
        // Nodes share contents: what is kept of one is not looked through for each of them.
        if self.act.contents.contains_key(&digest) {
            return Ok(());
        }
        for value in &module.values {
            self.act.values.insert(value.digest(), value.clone());
        }
        for (digest, bytes) in &module.artifacts.bytes {
            self.act.artifacts.insert(*digest, Arc::clone(bytes));
        }
        self.keep(digest, &module.content)
    }

    /// Whether machines may be judged silent and gates may open (RO-8).
    pub(super) fn may_judge(&self, heartbeat_secs: u32) -> bool {
        self.known.now >= self.calm_until(heartbeat_secs)
    }

    /// When the first two report intervals of this reconciler are over (RO-8).
    pub(super) fn calm_until(&self, heartbeat_secs: u32) -> Timestamp {
        super::after_secs(self.known.serving_since, heartbeat_secs.saturating_mul(2))
    }

    /// A deadline as it counts now. One that was set before this reconciler could hear its hosts, or by a clock that was
    /// set back since, counts from when it could: who could not be heard is not silent (RO-8).
    pub(super) fn anchored(&self, deadline: Timestamp, within_secs: u32) -> Timestamp {
        let since = self.known.serving_since;
        let begun = deadline.checked_sub(SignedDuration::from_secs(i64::from(within_secs)));
        match begun {
            Ok(begun) if (since..=self.known.now).contains(&begun) => deadline,
            _ => super::after_secs(since, within_secs),
        }
    }

    /// The act; the journal's blocks follow once its orders are signed ([`crate::pure::journal`]).
    pub(super) fn finish(mut self) -> Act {
        for commit in &self.touched {
            if let Some(delivery) = self.deliveries.get(commit) {
                self.act.deliveries.push(delivery.clone());
            }
        }
        self.act.deliveries.sort_by_key(|d| d.order);
        if self.epochs != self.known.snapshot.epochs {
            self.act.standing = Some(self.epochs);
        }
        self.act.faults = self.faults.words();
        self.act.counters_before = self.known.snapshot.counters.clone();
        self.act.counters = self.counters;
        self.act
    }
}
