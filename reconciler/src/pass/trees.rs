//! What a pass reads of the repository: the trees that open deliveries need, modules as earlier commits have them, and how
//! commits are signed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::CommitId;
use meshplan_schemas::lifecycle::delivery::State;

use super::Engine;
use crate::edge::mesh::Links;
use crate::edge::repository::{FleetRepo, Made, News};
use crate::edge::store::StoreError;
use crate::pure::compose::Composed;
use crate::pure::compose::former::Former;
use crate::pure::decide::{Tree, bases};
use crate::pure::delivery::Delivery;
use crate::pure::diff::proven;
use crate::pure::parts::{self, Parts};
use crate::pure::scope::Scope;
use crate::pure::signatures::Brought;
use crate::pure::snapshot::Snapshot;

/// What trees are made of, by the commits of their deliveries, and which of these are decided.
#[derive(Debug, Default)]
pub(super) struct Makings {
    parts: BTreeMap<CommitId, Parts>,
    decided: BTreeSet<CommitId>,
}

impl Makings {
    fn take(&mut self, delivery: &Delivery) {
        self.parts.insert(delivery.commit.clone(), delivery.parts());
        if delivery.state.is_final() {
            self.decided.insert(delivery.commit.clone());
        }
    }

    /// A commit that no component has anything to do with is a tree by itself.
    fn of(&self, commit: &CommitId) -> Made {
        let alone = || Parts::alone(commit.clone());
        Made {
            commit: commit.clone(),
            parts: self.parts.get(commit).cloned().unwrap_or_else(alone),
            is_open: !self.decided.contains(commit),
        }
    }
}

impl<R: FleetRepo, L: Links> Engine<R, L> {
    /// What the trees are made of that a pass reads: of deliveries, of new commits, and of those that have accepted content.
    pub(super) async fn made(&self, snapshot: &Snapshot, news: &News) -> Result<Makings, StoreError> {
        let deliveries = snapshot.deliveries.values();
        let mut all = Makings::default();
        for delivery in deliveries {
            all.take(delivery);
        }
        let newest = snapshot.deliveries.values().max_by_key(|d| d.order);
        all.parts
            .extend(parts::of_news(newest, &news.left, &news.commits));
        if snapshot.of_components.is_empty() {
            return Ok(all);
        }
        let bases = bases(snapshot, &news.commits).into_values();
        let previous = snapshot.deliveries.values().filter_map(|d| d.previous.clone());
        let accepted = snapshot.accepted.values().map(|content| content.commit.clone());
        let proven = snapshot.assignments.values();
        let proven = proven.filter_map(|assignment| Some(assignment.proven.as_ref()?.commit.clone()));
        let beside: BTreeSet<CommitId> = bases.chain(previous).chain(accepted).chain(proven).collect();
        for commit in beside {
            if !all.parts.contains_key(&commit)
                && let Some(delivery) = self.store.delivery(&commit).await?
            {
                all.take(&delivery);
            }
        }
        Ok(all)
    }

    /// The trees of all open deliveries, of the commits before them, and of the new commits.
    pub(super) async fn trees(
        &mut self,
        snapshot: &Snapshot,
        news: &News,
        made: &Makings,
    ) -> BTreeMap<CommitId, Tree> {
        let open = snapshot
            .deliveries
            .values()
            .filter(|d| !d.state.is_final() || d.order == snapshot.counters.order || d.owes());
        let mut wanted: Vec<CommitId> = open
            .flat_map(|d| std::iter::once(&d.commit).chain(&d.previous))
            .cloned()
            .collect();
        wanted.extend(news.commits.iter().map(|c| c.commit.clone()));
        wanted.extend(bases(snapshot, &news.commits).into_values());
        if snapshot.recovering.is_some() {
            let standing = [Scope::List, Scope::Policy];
            let standing = standing.iter().filter_map(|scope| snapshot.accepted.get(scope));
            wanted.extend(standing.map(|content| content.commit.clone()));
        }
        wanted.sort();
        wanted.dedup();
        let mut trees = BTreeMap::new();
        for commit in wanted {
            if let Some(tree) = self.repository.tree(&made.of(&commit), &self.health).await {
                trees.insert(commit, tree);
            }
        }
        // Where the gate is another, what stood before decides too (DL-15); where the list is, it tells whose key changes.
        type Of = fn(&Composed) -> Digest;
        let beside: [(Scope, Of); 2] = [
            (Scope::Gate, |tree| tree.gate_digest),
            (Scope::List, |tree| tree.list_digest),
        ];
        for (scope, of) in beside {
            let Some(accepted) = snapshot.accepted.get(&scope) else {
                continue;
            };
            let other = |tree: &Tree| matches!(tree, Tree::Composed(tree) if of(tree) != accepted.digest);
            let commit = &accepted.commit;
            if !trees.contains_key(commit)
                && trees.values().any(other)
                && let Some(tree) = self.repository.tree(&made.of(commit), &self.health).await
            {
                trees.insert(commit.clone(), tree);
            }
        }
        let list = snapshot.accepted.get(&Scope::List);
        if snapshot.recovering.is_some()
            && let Some(Tree::Composed(tree)) = list.and_then(|list| trees.get(&list.commit))
        {
            self.health.set_list(Arc::clone(tree));
        }
        let stored = snapshot
            .deliveries
            .values()
            .max_by_key(|d| d.order)
            .map(|d| &d.commit);
        let newest = news.commits.last().map(|c| &c.commit).or(stored);
        if let Some(Tree::Composed(tree)) = newest.and_then(|commit| trees.get(commit)) {
            self.health.set_roster(Arc::clone(tree));
        }
        self.repository.forget_but(&trees.keys().collect());
        trees
    }

    /// What waiting deliveries need of earlier commits: modules as they were last accepted, for nodes that lack them.
    pub(super) async fn formers(
        &mut self,
        snapshot: &Snapshot,
        trees: &BTreeMap<CommitId, Tree>,
        news: &News,
        made: &Makings,
    ) -> BTreeMap<CommitId, Former> {
        let waiting = snapshot.deliveries.values();
        let recovering = snapshot.recovering.is_some();
        let waits = |d: &&Delivery| matches!(d.state, State::Proposed | State::Held) && !d.has_begun();
        let waiting = waiting.filter(|d| waits(d) || (recovering && !d.state.is_final()));
        let new = news.commits.iter().map(|c| &c.commit);
        let mut formers: BTreeMap<CommitId, Former> = BTreeMap::new();
        for commit in waiting.map(|d| &d.commit).chain(new) {
            let Some(Tree::Composed(tree)) = trees.get(commit) else {
                continue;
            };
            for (module, wanted) in proven::wanted(tree, snapshot) {
                let (now, then) = (made.of(commit), made.of(&wanted.commit));
                let former = self
                    .repository
                    .former((&now, &then), &module, &wanted, &self.health)
                    .await;
                formers
                    .entry(commit.clone())
                    .or_default()
                    .extend(former.unwrap_or_default());
            }
        }
        formers
    }

    /// How what waits is signed, where the tree before it asks for that.
    pub(super) async fn signatures(
        &mut self,
        snapshot: &Snapshot,
        trees: &BTreeMap<CommitId, Tree>,
        news: &News,
        made: &Makings,
    ) -> BTreeMap<CommitId, Vec<Brought>> {
        let mut signatures = BTreeMap::new();
        for (commit, base) in bases(snapshot, &news.commits) {
            let asks = match trees.get(&base) {
                Some(Tree::Composed(tree)) => tree.fleet.commit_signers.is_some(),
                _ => false,
            };
            let (from, to) = (made.of(&base), made.of(&commit));
            if asks && let Some(brought) = self.repository.brought(&from, &to, &self.health).await {
                signatures.insert(commit, brought);
            }
        }
        signatures
    }
}
