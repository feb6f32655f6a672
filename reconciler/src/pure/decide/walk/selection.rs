//! Which machines a stage takes (DL-6).

use std::collections::BTreeSet;

use meshplan_schemas::document::plan::Amount;
use meshplan_schemas::epoch::{Share, Targeting, share_place};
use meshplan_schemas::fleet_list::UpdateClass;
use meshplan_schemas::ident::{CommitId, NodeId, RoleName};

use super::{changed, leaving, ordered};
use crate::pure::compose::Composed;
use crate::pure::decide::classes;
use crate::pure::decide::draft::Draft;
use crate::pure::delivery::{Delivery, StageRun, Walk};
use crate::pure::guard::{Guard, stands};

/// The machines that a stage may select: changed, heard from once, in no stage before, awaited at all, and in the fleet still.
pub(super) fn candidates(draft: &Draft<'_>, delivery: &Delivery, walk: &Walk) -> BTreeSet<NodeId> {
    let before = ordered(delivery);
    let heard = |id: &NodeId| {
        draft
            .known
            .snapshot
            .nodes
            .get(id)
            .is_some_and(|n| n.heard_at.is_some())
    };
    let fleet = leaving::fleet(draft);
    let is_gone = |id: &NodeId| fleet.as_ref().is_some_and(|fleet| !fleet.nodes.contains_key(id));
    changed(delivery)
        .into_iter()
        .filter(|id| !is_gone(id) && heard(id) && !before.contains(id) && !walk.excused.contains(id))
        .filter(|id| classes::of(walk, id) != UpdateClass::LeftBehind || !stands(Guard::LeftBehind))
        .collect()
}

/// What a stage takes.
pub(in crate::pure::decide) struct Selection {
    /// The machines.
    pub(in crate::pure::decide) machines: BTreeSet<NodeId>,
    /// How an order addresses them without listing them: waves always, others where they are very many (DL-6).
    pub(in crate::pure::decide) group: Option<Targeting>,
    /// What is worth saying about the choice.
    pub(in crate::pure::decide) line: Option<String>,
}

impl Selection {
    fn of(machines: BTreeSet<NodeId>) -> Self {
        Self {
            machines,
            group: None,
            line: None,
        }
    }

    /// Machines that need not be named because there is a group that they are.
    fn grouped(mut self, roles: &[RoleName]) -> Self {
        if !roles.is_empty() {
            self.group.get_or_insert_default().roles = Some(roles.to_vec());
        }
        if self.machines.len() <= NAMES {
            self.group = None;
        }
        self
    }
}

/// So many machines an order names one by one; more are addressed as a group. A group is wider than its selection: a
/// machine of it that is away comes back to the new content. So few are named where they can be.
const NAMES: usize = 200;

/// What a stage takes of the candidates (DL-6). `salt` is that of the walk's shares so far.
pub(in crate::pure::decide) fn select(
    commit: &CommitId,
    tree: &Composed,
    stage: &StageRun,
    salt: Option<&str>,
    candidates: &BTreeSet<NodeId>,
) -> Selection {
    let wanted = &stage.select;
    if wanted.rest {
        return match stage.batch {
            Some(batch) => {
                let many = resolve(batch, candidates.len()).max(1);
                share(commit, tree, salt, candidates, many)
            }
            None => Selection::of(candidates.clone()),
        };
    }
    let named = !wanted.nodes.is_empty() || !wanted.roles.is_empty();
    let fits = |id: &&NodeId| {
        tree.nodes.get(id).is_some_and(|node| {
            (wanted.nodes.is_empty() || wanted.nodes.contains(&node.name))
                && (wanted.roles.is_empty() || wanted.roles.iter().any(|r| node.roles.contains(r)))
        })
    };
    let fitting: BTreeSet<NodeId> = candidates.iter().filter(fits).copied().collect();
    if !fitting.is_empty() || !named {
        return match wanted.count {
            // What the plan names one by one an order may name as well.
            None if !wanted.nodes.is_empty() => Selection::of(fitting),
            None => Selection::of(fitting).grouped(&wanted.roles),
            Some(amount) => {
                let many = resolve(amount, fitting.len()).max(1);
                if many > NAMES && wanted.nodes.is_empty() {
                    share(commit, tree, salt, &fitting, many).grouped(&wanted.roles)
                } else {
                    Selection::of(first_by_hash(commit, tree, &fitting, many))
                }
            }
        };
    }
    // No named canary is among the machines that this changes: one that is takes its place (DL-6).
    let instead = first_by_hash(commit, tree, candidates, 1);
    let line = instead.first().and_then(|id| tree.nodes.get(id)).map(|node| {
        format!(
            "no machine that the stage {} names is changed by this; {} goes first instead",
            stage.name, node.name
        )
    });
    Selection {
        line,
        ..Selection::of(instead)
    }
}

/// So many machines from the bottom of a hash range, and the range: an order that addresses them need not list them.
fn share(
    commit: &CommitId,
    tree: &Composed,
    salt: Option<&str>,
    from: &BTreeSet<NodeId>,
    many: usize,
) -> Selection {
    let salt = salt.map_or_else(|| new_salt(commit, &lifelines(tree), from, many), str::to_owned);
    let placed = placed(&salt, from);
    let Some((highest, _)) = placed.iter().take(many).next_back() else {
        return Selection::of(BTreeSet::new());
    };
    let upto = highest.saturating_add(1);
    let machines = placed.iter().filter(|(place, _)| *place < upto);
    Selection {
        machines: machines.map(|(_, id)| *id).collect(),
        group: Some(Targeting {
            share: Some(Share { salt, upto }),
            ..Targeting::default()
        }),
        line: None,
    }
}

/// The salt of a walk's shares: the commit's id. Where that would put a lifeline among the first, the id and a number
/// that does not, or fewest, of some: a range has no holes, so the choice is made here (DL-6).
fn new_salt(commit: &CommitId, lifelines: &BTreeSet<NodeId>, from: &BTreeSet<NodeId>, many: usize) -> String {
    const TRIED: u32 = 32;
    let mut best: Option<(usize, String)> = None;
    for tried in 0..TRIED {
        let salt = match tried {
            0 => commit.to_string(),
            n => format!("{commit}/{n}"),
        };
        if from.is_disjoint(lifelines) {
            return salt;
        }
        let first = placed(&salt, from).into_iter().take(many);
        let among = first.filter(|(_, id)| lifelines.contains(id)).count();
        if among == 0 {
            return salt;
        }
        if best.as_ref().is_none_or(|(fewest, _)| among < *fewest) {
            best = Some((among, salt));
        }
    }
    best.map_or_else(|| commit.to_string(), |(_, salt)| salt)
}

/// Machines in the order of their hash.
pub(super) fn in_order(salt: &str, from: &BTreeSet<NodeId>) -> impl Iterator<Item = NodeId> {
    placed(salt, from).into_iter().map(|(_, id)| id)
}

fn placed(salt: &str, from: &BTreeSet<NodeId>) -> Vec<(u64, NodeId)> {
    let mut placed: Vec<_> = from.iter().map(|id| (share_place(salt, *id), *id)).collect();
    placed.sort_unstable();
    placed
}

fn lifelines(tree: &Composed) -> BTreeSet<NodeId> {
    let lifelines = tree.leaves.values().filter(|listed| listed.leaf.lifeline);
    lifelines.map(|listed| listed.leaf.id).collect()
}

/// So many of them in the order of their hash with the commit: lifelines last, and before them machines that are not
/// awaited, which as the only canaries would say little, or nothing in time (UC-1).
fn first_by_hash(
    commit: &CommitId,
    tree: &Composed,
    from: &BTreeSet<NodeId>,
    many: usize,
) -> BTreeSet<NodeId> {
    let lifelines = lifelines(tree);
    let volunteer = |id: &NodeId| classes::of_record(tree, *id) != UpdateClass::Required;
    let mut hashed: Vec<(bool, bool, u64, NodeId)> = placed(commit.as_str(), from)
        .into_iter()
        .map(|(place, id)| (lifelines.contains(&id), volunteer(&id), place, id))
        .collect();
    hashed.sort_unstable();
    hashed.into_iter().take(many).map(|(.., id)| id).collect()
}

/// An amount of so many machines: a share is rounded down.
pub(in crate::pure::decide) fn resolve(amount: Amount, of: usize) -> usize {
    match amount {
        Amount::Number(n) => usize::try_from(n).unwrap_or(usize::MAX),
        Amount::Percent(p) => of * usize::try_from(p.min(100)).unwrap_or(100) / 100,
    }
}

/// The amount as a number of machines, at least one.
pub(super) fn as_number(amount: Amount, of: usize) -> Amount {
    Amount::Number(u32::try_from(resolve(amount, of).max(1)).unwrap_or(u32::MAX))
}
