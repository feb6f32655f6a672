//! Nothing vanishes by accident (FR-12): what a commit takes away from machines is counted, and above the plan's bound a
//! person must have meant it.
//!
//! Counted is what stands on machines by what they are assigned. A target that another resource takes over is no removal,
//! nor is what a left-out module keeps.

use std::collections::{BTreeMap, BTreeSet};

use meshplan_schemas::declaration::ModuleContent;
use meshplan_schemas::digest::Digest;
use meshplan_schemas::document::PlanDoc;
use meshplan_schemas::document::plan::MaxRemovals;
use meshplan_schemas::ident::{ModuleName, NodeId};
use meshplan_schemas::lifecycle::delivery::Code;
use meshplan_schemas::resource::Resource;

use super::holds::{Hold, place};
use crate::pure::compose::Composed;
use crate::pure::decide::draft::Draft;
use crate::pure::decide::walk::selection::resolve;
use crate::pure::delivery::Delivery;
use crate::pure::scope::Scope;

/// What a reason names of many.
const NAMED: usize = 3;

/// What a delivery takes away.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Removals {
    /// By node: what goes there, as `<module>.<id>`.
    resources: BTreeMap<NodeId, BTreeSet<String>>,
    /// Nodes that leave the fleet with things of ours on them.
    nodes: BTreeSet<NodeId>,
    /// How many nodes have things of ours.
    of: usize,
}

/// Why the delivery waits for a person's word; none where it takes away no more than may go.
pub(super) fn hold(
    draft: &Draft<'_>,
    delivery: &Delivery,
    tree: &Composed,
    plans: &[Option<PlanDoc>],
) -> Option<Hold> {
    let removals = of(draft, delivery, tree);
    let (strict, says, reason) = removals.beyond(plans, tree)?;
    // Who wrote the commit is the forge's to confirm, and a plan that names people believes those alone.
    let anybody = plans.iter().flatten().all(|plan| plan.actors.is_empty());
    if anybody && delivery.allows_removals.is_some() {
        return None;
    }
    let help = if anybody {
        "; an `Allow-Removals: why` line in the commit, or a go, lets them go"
    } else {
        "; a go lets them go"
    };
    let rule = place(draft, tree, strict, ("max_removals", &says));
    Some(Hold::new(Code::Removals, format!("{reason}{help}")).by(&rule))
}

/// What the delivery takes away, in words for its note; none where it takes nothing.
pub(super) fn fact(draft: &Draft<'_>, delivery: &Delivery, tree: &Composed) -> Option<(String, String)> {
    let removals = of(draft, delivery, tree);
    let resources: usize = removals.resources.values().map(BTreeSet::len).sum();
    if resources == 0 && removals.nodes.is_empty() {
        return None;
    }
    let mut text = format!("{resources} resources on {} machines", removals.resources.len());
    if !removals.nodes.is_empty() {
        text.push_str(&format!(", {} nodes", removals.nodes.len()));
    }
    if let Some(why) = &delivery.allows_removals {
        text.push_str(&format!(", allowed by the commit: {why}"));
    }
    Some(("Removals".to_owned(), text))
}

fn of(draft: &Draft<'_>, delivery: &Delivery, tree: &Composed) -> Removals {
    let snapshot = draft.known.snapshot;
    let contents = &draft.known.contents.modules;
    // By node, what it is assigned of each module.
    let mut stands: BTreeMap<NodeId, BTreeMap<&ModuleName, Digest>> = BTreeMap::new();
    for ((node, scope), assignment) in snapshot.assignments.iter() {
        if let (Scope::Module(module), Some(assigned)) = (scope, &assignment.assigned) {
            stands.entry(*node).or_default().insert(module, assigned.digest);
        }
    }
    let mut removals = Removals {
        of: stands.len(),
        ..Removals::default()
    };
    let mut targets = Targets::default();
    for (id, modules) in &stands {
        let Some(node) = tree.nodes.get(id) else {
            removals.nodes.insert(*id);
            continue;
        };
        let after = |module: &ModuleName| -> Option<&ModuleContent> {
            let changed = (delivery.legs.iter())
                .any(|leg| leg.nodes.contains_key(id) && leg.scope == Scope::Module(module.clone()));
            if changed {
                return node.modules.get(module).map(|(_, made)| &made.content);
            }
            contents.get(modules.get(module)?).map(|content| &**content)
        };
        let mut gone: BTreeMap<String, String> = BTreeMap::new();
        for (module, digest) in modules {
            let after_digest = node.modules.get(*module).map(|(digest, _)| *digest);
            let Some(before) = contents.get(digest).filter(|_| after_digest != Some(*digest)) else {
                continue;
            };
            gone.extend(targets.of(*digest, before).clone());
        }
        if gone.is_empty() {
            continue;
        }
        let all: BTreeSet<&ModuleName> = modules.keys().copied().chain(node.modules.keys()).collect();
        for target in all
            .into_iter()
            .filter_map(after)
            .flat_map(|content| content.resources.iter().map(Resource::place))
        {
            gone.remove(&target);
        }
        if !gone.is_empty() {
            removals.resources.insert(*id, gone.into_values().collect());
        }
    }
    removals
}

/// What contents put on machines: by target the resource's name. Made once for each content, however many nodes have it.
#[derive(Default)]
struct Targets(BTreeMap<Digest, BTreeMap<String, String>>);

impl Targets {
    fn of(&mut self, digest: Digest, content: &ModuleContent) -> &BTreeMap<String, String> {
        self.0.entry(digest).or_insert_with(|| {
            let standing = content.resources.iter().filter(|resource| stands(resource));
            standing
                .map(|resource| (resource.place(), resource.name.to_string()))
                .collect()
        })
    }
}

/// Whether anything of a resource is left on the machine when it was applied.
fn stands(resource: &Resource) -> bool {
    !matches!(resource.kind.as_str(), "probe" | "action" | "upgrade" | "reboot")
}

impl Removals {
    /// Why this is more than the strictest of the plans lets go without a word: that plan, what it says, and the reason.
    fn beyond<'p>(
        &self,
        plans: &'p [Option<PlanDoc>],
        tree: &Composed,
    ) -> Option<(Option<&'p PlanDoc>, String, String)> {
        let bounds: Vec<(Option<&PlanDoc>, MaxRemovals)> = (plans.iter())
            .map(|plan| {
                (
                    plan.as_ref(),
                    plan.as_ref().map(|plan| plan.max_removals).unwrap_or_default(),
                )
            })
            .collect();
        let of_nodes = |bound: &MaxRemovals| resolve(bound.nodes, self.of).max(1);
        let (by_resources, resources) = bounds.iter().min_by_key(|(_, bound)| bound.resources)?;
        let resources = resources.resources;
        let (by_nodes, nodes) = bounds.iter().min_by_key(|(_, bound)| of_nodes(bound))?;
        let nodes = of_nodes(nodes);
        if self.nodes.len() > nodes {
            let reason = format!(
                "it takes {} of {} nodes out of the fleet, and {nodes} may go without a word",
                self.nodes.len(),
                self.of
            );
            return Some((
                *by_nodes,
                format!("max_removals: {nodes} of {} nodes", self.of),
                reason,
            ));
        }
        let most = (self.resources.iter())
            .filter(|(_, gone)| u32::try_from(gone.len()).unwrap_or(u32::MAX) > resources)
            .min_by_key(|(_, gone)| std::cmp::Reverse(gone.len()));
        most.map(|(id, gone)| {
            let node = tree
                .nodes
                .get(id)
                .map_or_else(|| id.to_string(), |node| node.name.to_string());
            let named: Vec<&str> = gone.iter().take(NAMED).map(String::as_str).collect();
            let more = gone.len().saturating_sub(NAMED);
            let more = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            let reason = format!(
                "it takes {} resources from {node} ({}{more}), and {resources} may go without a word",
                gone.len(),
                named.join(", ")
            );
            (
                *by_resources,
                format!("max_removals: {resources} resources of a node"),
                reason,
            )
        })
    }
}
