//! How many machines a stage may disturb at once: its budgets by a variable, and the two ends of a link (DL-17).
//!
//! A stage whose selection is more than its budgets let begin is walked in parts, one after the other. What is down
//! already counts: a budget is about how many of a group are there, whoever took the others away. A machine without the
//! variable is counted with the others that lack it. A budget rounds down and lets at least one begin, so that no stage
//! is left waiting by arithmetic; one that waits for machines that are down is held at the end of its time, and a go goes
//! on in spite of them.

use std::collections::{BTreeMap, BTreeSet};

use meshplan_schemas::document::plan::Budget;
use meshplan_schemas::fleet_list::UpdateClass;
use meshplan_schemas::ident::{NodeId, NodeName};
use meshplan_schemas::policy;

use super::selection::{in_order, resolve};
use crate::pure::compose::Composed;
use crate::pure::decide::draft::Draft;
use crate::pure::decide::{after_secs, classes};
use crate::pure::delivery::{Delivery, StageRun, VerdictWord, Walk};

/// What of a selection may begin now.
pub(super) struct Bounded {
    /// The machines.
    pub(super) machines: BTreeSet<NodeId>,
    /// Why none of them may, where none may.
    pub(super) why: Option<String>,
}

/// Takes as many of the selected machines as the stage's budgets let begin, in the order of their hash.
pub(super) fn bound(
    draft: &Draft<'_>,
    delivery: &Delivery,
    tree: &Composed,
    stage: &StageRun,
    selected: BTreeSet<NodeId>,
) -> Bounded {
    let Some(walk) = delivery.walk.as_ref().filter(|_| is_bounded(stage)) else {
        return Bounded {
            machines: selected,
            why: None,
        };
    };
    let down = down(draft, tree, walk, stage);
    let mut groups: Vec<Group<'_>> = stage
        .budget
        .iter()
        .map(|budget| Group::new(budget, tree, &down))
        .collect();
    let links = if stage.spread_links {
        links(tree)
    } else {
        BTreeMap::new()
    };
    let mut machines = BTreeSet::new();
    let mut why = None;
    for id in in_order(delivery.commit.as_str(), &selected) {
        if let Some(full) = groups.iter().find_map(|group| group.full(id)) {
            why.get_or_insert(full);
            continue;
        }
        let linked = links.get(&id).is_some_and(|ends| !ends.is_disjoint(&machines));
        if linked {
            continue;
        }
        groups.iter_mut().for_each(|group| group.take(id));
        machines.insert(id);
    }
    let why = why.filter(|_| machines.is_empty() && !selected.is_empty());
    Bounded { machines, why }
}

fn is_bounded(stage: &StageRun) -> bool {
    stage.spread_links || !stage.budget.is_empty()
}

/// The machines of the fleet that are not there to be counted on: away, paused, or sent an order of this walk and not healthy
/// with it.
fn down(draft: &Draft<'_>, tree: &Composed, walk: &Walk, stage: &StageRun) -> BTreeMap<NodeId, &'static str> {
    let snapshot = draft.known.snapshot;
    let mut down = BTreeMap::new();
    let away = |id: &NodeId| {
        let heard = snapshot.nodes.get(id).and_then(|state| state.heard_at);
        let long_ago = heard.is_some_and(|at| after_secs(at, tree.fleet.present_secs) <= draft.now());
        long_ago && !snapshot.connected.contains(id)
    };
    let paused = |id: &NodeId| {
        snapshot
            .nodes
            .get(id)
            .is_some_and(|state| state.paused().is_some())
    };
    if !stage.over_budget {
        down.extend(
            tree.nodes
                .keys()
                .filter(|id| paused(id))
                .map(|id| (*id, "paused on the machine")),
        );
        down.extend(
            tree.nodes
                .keys()
                .filter(|id| away(id))
                .map(|id| (*id, "not heard from")),
        );
    }
    for (id, machine) in walk.stages.iter().flat_map(|stage| &stage.machines) {
        let word = machine.verdict.as_ref().map(|verdict| verdict.word);
        match word {
            None if classes::of(walk, id) == UpdateClass::Required => down.insert(*id, "under way"),
            Some(VerdictWord::Failed) if !stage.over_budget => down.insert(*id, "failed"),
            Some(VerdictWord::Silent) if !stage.over_budget => down.insert(*id, "silent"),
            _ => None,
        };
    }
    down
}

/// The machines that share a value of a budget's variable, counted.
struct Group<'a> {
    budget: &'a Budget,
    tree: &'a Composed,
    sizes: BTreeMap<&'a str, usize>,
    down: BTreeMap<&'a str, BTreeMap<NodeId, &'static str>>,
}

impl<'a> Group<'a> {
    fn new(budget: &'a Budget, tree: &'a Composed, down: &BTreeMap<NodeId, &'static str>) -> Self {
        let mut group = Self {
            budget,
            tree,
            sizes: BTreeMap::new(),
            down: BTreeMap::new(),
        };
        for id in tree.nodes.keys() {
            *group.sizes.entry(group.value(*id)).or_default() += 1;
        }
        for (id, why) in down {
            group.down.entry(group.value(*id)).or_default().insert(*id, why);
        }
        group
    }

    fn value(&self, id: NodeId) -> &'a str {
        let node = self.tree.nodes.get(&id);
        node.and_then(|node| node.vars.get(&self.budget.var))
            .map_or("", String::as_str)
    }

    /// Why this machine may not begin, where it may not.
    fn full(&self, id: NodeId) -> Option<String> {
        let value = self.value(id);
        let size = self.sizes.get(value).copied().unwrap_or(1);
        let most = resolve(self.budget.max_unavailable, size).max(1);
        let none = BTreeMap::new();
        let down = self.down.get(value).unwrap_or(&none);
        // A machine that is down itself makes nothing worse by beginning.
        if down.contains_key(&id) || down.len() < most {
            return None;
        }
        let value = if value.is_empty() { "none" } else { value };
        let named: Vec<String> = down
            .iter()
            .take(5)
            .map(|(id, why)| {
                let name = self
                    .tree
                    .nodes
                    .get(id)
                    .map_or_else(|| id.to_string(), |node| node.name.to_string());
                format!("{name} ({why})")
            })
            .collect();
        Some(format!(
            "of the machines with {} = {value} {most} may be unavailable, and {} are: {}",
            self.budget.var,
            down.len(),
            named.join(", ")
        ))
    }

    fn take(&mut self, id: NodeId) {
        let value = self.value(id);
        self.down.entry(value).or_default().insert(id, "under way");
    }
}

/// The other ends of each machine's links: the relays that its policy names, and those whose relay it is.
fn links(tree: &Composed) -> BTreeMap<NodeId, BTreeSet<NodeId>> {
    let Ok(policy) = policy::parse(&tree.policy) else {
        return BTreeMap::new();
    };
    let names: BTreeMap<&NodeName, NodeId> = tree.nodes.values().map(|node| (&node.name, node.id)).collect();
    let mut by_roles: BTreeMap<&[_], Vec<NodeId>> = BTreeMap::new();
    let mut links: BTreeMap<NodeId, BTreeSet<NodeId>> = BTreeMap::new();
    for node in tree.nodes.values() {
        let relays = by_roles.entry(node.roles.as_slice()).or_insert_with(|| {
            let file = policy::sections("policy", &policy.effective_text(&node.roles)).ok();
            let relays = file
                .and_then(|file| file.traversal)
                .and_then(|traversal| traversal.relays);
            relays
                .iter()
                .flatten()
                .filter_map(|at| names.get(&at.value).copied())
                .collect()
        });
        for relay in relays.iter().filter(|relay| **relay != node.id) {
            links.entry(node.id).or_default().insert(*relay);
            links.entry(*relay).or_default().insert(node.id);
        }
    }
    links
}
