//! What a pass reads of the repository: the trees that open deliveries need, modules as earlier commits have them, and how
//! commits are signed.

use std::collections::BTreeMap;
use std::sync::Arc;

use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::CommitId;
use meshplan_schemas::lifecycle::delivery::State;

use super::Engine;
use crate::edge::mesh::Links;
use crate::edge::repository::{FleetRepo, News};
use crate::pure::compose::Composed;
use crate::pure::compose::former::Former;
use crate::pure::decide::{Tree, bases};
use crate::pure::delivery::Delivery;
use crate::pure::diff::proven;
use crate::pure::scope::Scope;
use crate::pure::signatures::Brought;
use crate::pure::snapshot::Snapshot;

impl<R: FleetRepo, L: Links> Engine<R, L> {
    /// The trees of all open deliveries, of the commits before them, and of the new commits.
    pub(super) async fn trees(&mut self, snapshot: &Snapshot, news: &News) -> BTreeMap<CommitId, Tree> {
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
            if let Some(tree) = self.repository.tree(&commit, &self.health).await {
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
                && let Some(tree) = self.repository.tree(commit, &self.health).await
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
                let former = self
                    .repository
                    .former(commit, &module, &wanted, &self.health)
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
    ) -> BTreeMap<CommitId, Brought> {
        let mut signatures = BTreeMap::new();
        for (commit, base) in bases(snapshot, &news.commits) {
            let asks = match trees.get(&base) {
                Some(Tree::Composed(tree)) => tree.fleet.commit_signers.is_some(),
                _ => false,
            };
            if asks && let Some(brought) = self.repository.brought(&base, &commit, &self.health).await {
                signatures.insert(commit, brought);
            }
        }
        signatures
    }
}
