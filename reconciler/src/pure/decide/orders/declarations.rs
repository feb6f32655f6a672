//! Declarations: the sum of what is assigned to a node, signed under one number for all of an order (DL-3, SG-4).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use meshplan_schemas::declaration::{Declaration, LeftOut, Mode, ModuleContent, ModuleEntry, OnFailure};
use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::{ModuleName, NodeId, ResourceName};
use meshplan_schemas::limits::SCHEMA;
use meshplan_schemas::resource::Resource;

use crate::pure::act::Order;
use crate::pure::decide::DecideError;
use crate::pure::decide::draft::Draft;
use crate::pure::decide::waiting::plan::plan_for;
use crate::pure::delivery::Delivery;
use crate::pure::diff::PolicyOnNode;
use crate::pure::scope::Scope;
use crate::pure::snapshot::ContentRef;

/// What is assigned of the policy scope on a node.
pub(super) fn policy_on(draft: &Draft<'_>, node: NodeId) -> Option<PolicyOnNode> {
    let digest = draft.assignment(node, &Scope::Policy)?.assigned.as_ref()?.digest;
    if let Some(bytes) = draft.act.contents.get(&digest) {
        return serde_json::from_slice(bytes).ok();
    }
    draft.known.contents.policies.get(&digest).map(|p| (**p).clone())
}

pub(super) fn module_content(draft: &Draft<'_>, digest: Digest) -> Result<Arc<ModuleContent>, DecideError> {
    if let Some(bytes) = draft.act.contents.get(&digest) {
        return Ok(Arc::new(serde_json::from_slice(bytes)?));
    }
    draft
        .known
        .contents
        .modules
        .get(&digest)
        .cloned()
        .ok_or(DecideError::NoContent(digest))
}

/// Whether windows hold an order back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pure::decide) enum Urgency {
    /// They do.
    Ordinary,
    /// They do not: a roll-back.
    Urgent,
}

/// Signs one declaration for each of these nodes, under one number: the sum of what is assigned. 0 for nobody.
pub(in crate::pure::decide) fn declare(
    draft: &mut Draft<'_>,
    delivery: &mut Delivery,
    nodes: &BTreeSet<NodeId>,
    urgency: Urgency,
) -> Result<u64, DecideError> {
    if nodes.is_empty() {
        return Ok(0);
    }
    let sequence = draft.next_sequence();
    for id in nodes {
        let declaration = declaration(draft, delivery, *id, sequence, urgency)?;
        draft.act.orders.push(Order::Declaration { declaration });
    }
    if let Some(walk) = delivery.walk.as_mut() {
        walk.sequence = sequence;
    }
    Ok(sequence)
}

fn declaration(
    draft: &Draft<'_>,
    delivery: &Delivery,
    node: NodeId,
    sequence: u64,
    urgency: Urgency,
) -> Result<Declaration, DecideError> {
    let facts = policy_on(draft, node);
    let retired = draft.retired(&delivery.commit);
    let mut modules = Vec::new();
    let mut resources = Vec::new();
    let walk = delivery.walk.as_ref();
    let mut spent = Vec::new();
    for (name, content) in draft.modules_on(node) {
        // Neither what failed nor what would need a spent value: what is there stays (DL-7, HR-7).
        if let Some(secret) = walk.and_then(|walk| walk.spent_on(name, node)) {
            let reason = format!("its former content needs a retired value of the secret `{secret}`");
            let module = name.clone();
            spent.push(LeftOut { module, reason });
            continue;
        }
        let body = module_content(draft, content.digest)?;
        modules.push(entry(draft, name, content, &body));
        let stays = retired
            .iter()
            .flat_map(BTreeMap::keys)
            .any(|name| body.secrets.contains_key(&name.0));
        resources.extend(body.resources.iter().cloned().map(|mut resource| {
            // The host does not put a spent value back either (DL-7).
            if stays && resource.sealed().is_some() {
                resource.forward_only.get_or_insert(true);
            }
            resource
        }));
    }
    // What stands already goes on standing, whatever became of its source (FR-8).
    let tree = draft.tree(&delivery.commit);
    let of_node = tree.as_ref().and_then(|tree| tree.nodes.get(&node));
    let former = delivery.left_out.get(&node);
    let left_out = (of_node
        .iter()
        .flat_map(|node| &node.left_out)
        .chain(former.into_iter().flatten())
        .chain(&spent))
    .filter(|left| {
        !modules
            .iter()
            .any(|entry: &ModuleEntry| entry.module == left.module)
    })
    .cloned()
    .collect();
    let artifacts = resources.iter().filter_map(Resource::artifact).collect();
    let timing = timing(draft, delivery);
    let changes = delivery.legs.iter().filter_map(|l| l.nodes.get(&node));
    let stays = |digest: &Digest| modules.iter().any(|entry: &ModuleEntry| entry.digest == *digest);
    // What a roll-back cannot take back is ordered although it failed there: all that it changed goes only forward.
    let again = changes
        .filter_map(|c| c.after)
        .filter(|digest| delivery.again || (urgency == Urgency::Urgent && stays(digest)))
        .collect();
    Ok(Declaration {
        schema: SCHEMA,
        fleet: draft.known.settings.fleet.clone(),
        era: draft.known.settings.era,
        issued_at: draft.now().as_second(),
        must_understand: Vec::new(),
        node,
        sequence,
        modules,
        roles: facts.as_ref().map(|f| f.roles.clone()).unwrap_or_default(),
        adopted: facts.as_ref().is_some_and(|f| f.adopted),
        take: facts.map(|f| f.take).unwrap_or_default(),
        resources,
        left_out,
        artifacts,
        sealed: Vec::new(),
        apply_secs: timing.apply_secs,
        confirm_secs: timing.confirm_secs,
        confirm_probe: timing.confirm_probe,
        on_failure: OnFailure::Revert,
        mode: Mode::Apply,
        min_host_version: None,
        urgent: urgency == Urgency::Urgent,
        again,
        membership: None,
        neighbours: Vec::new(),
        manifest: None,
    })
}

fn entry(draft: &Draft<'_>, name: &ModuleName, content: &ContentRef, body: &ModuleContent) -> ModuleEntry {
    ModuleEntry {
        module: name.clone(),
        digest: content.digest,
        commit: content.commit.clone(),
        delivery: draft.name_of(&content.commit).to_string(),
        mode: body.mode,
        after: body.after.clone(),
        on_policy_change: body.on_policy_change.clone(),
        requires: body.requires.clone(),
    }
}

/// How an order of a delivery is confirmed.
pub(super) struct Timing {
    pub(super) apply_secs: u32,
    pub(super) confirm_secs: u32,
    /// What proves the way to the machine of the reconciler, where its plan names it (EP-2).
    pub(super) confirm_probe: Option<ResourceName>,
}

pub(super) fn timing(draft: &Draft<'_>, delivery: &Delivery) -> Timing {
    // A delivery in hand has a tree; the page's defaults stand in for one whose tree is gone (FR-16).
    draft.tree(&delivery.commit).map_or(
        Timing {
            apply_secs: 1800,
            confirm_secs: 60,
            confirm_probe: None,
        },
        |tree| Timing {
            apply_secs: tree.fleet.config_mgmt.apply_secs,
            confirm_secs: delivery.config_mgmt(&tree.fleet.config_mgmt).confirm_secs,
            confirm_probe: plan_for(&tree, delivery.component(), &delivery.legs)
                .and_then(|plan| plan.confirm_probe.clone()),
        },
    )
}
