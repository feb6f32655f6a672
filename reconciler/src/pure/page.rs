//! What people see: view models of deliveries and nodes, for the status page, the API and the command line alike.

use std::collections::BTreeSet;

use jiff::Timestamp;
use meshplan_schemas::ident::NodeId;
use meshplan_schemas::lifecycle::delivery::State;
use meshplan_schemas::report::{DeclarationState, Health, Report};
use serde::{Deserialize, Serialize};

use super::compose::{Composed, ComposedNode};
use super::decide::walk::{summary, word};
use super::delivery::{Delivery, Transition};
use super::note::{trailer_line, transition_line};
use super::snapshot::{NodeState, Nodes};

/// The fleet at a glance.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StatusView {
    /// The fleet.
    pub fleet: String,
    /// The branch whose merges are orders.
    pub branch: String,
    /// As of when all of it is true (DL-16).
    pub as_of: Timestamp,
    /// That no new delivery begins, in a sentence; none where they do.
    pub frozen: Option<String>,
    /// What keeps the reconciler from its work, one sentence each; empty is well.
    pub troubles: Vec<String>,
    /// The deliveries, newest first.
    pub deliveries: Vec<DeliveryView>,
    /// The nodes, worst first.
    pub nodes: Vec<NodeView>,
}

/// One delivery.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeliveryView {
    /// `<repo>@<12 hex>`.
    pub name: String,
    /// The whole commit id.
    pub commit: String,
    /// The commit's first line.
    pub subject: String,
    /// The commit's author.
    pub author: String,
    /// Where it stands.
    pub state: State,
    /// Why, as a word.
    pub code: String,
    /// Since when.
    pub since: Timestamp,
    /// Why, in a sentence.
    pub reason: String,
    /// The scopes that it changes.
    pub scopes: Vec<String>,
    /// Scopes left alone, and why.
    pub skipped: Vec<String>,
    /// Its stages.
    pub stages: Vec<StageView>,
    /// The newest epoch, 0 without one.
    pub epoch: u64,
    /// The revision of the list, 0 without one.
    pub revision: u64,
    /// The newest sequence, 0 without one.
    pub sequence: u64,
    /// Which machine caused a roll-back, and why.
    pub abort_cause: Option<String>,
    /// Machines that do not have the former content yet.
    pub outstanding: Vec<String>,
    /// The story: each transition as the note keeps it, without the chain.
    pub story: Vec<String>,
}

/// One stage.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StageView {
    /// Its name.
    pub name: String,
    /// `2 passed, 1 open`.
    pub summary: String,
    /// Whether it is the one in hand.
    pub current: bool,
    /// Its machines.
    pub machines: Vec<MachineView>,
}

/// One machine of a stage.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MachineView {
    /// Its name.
    pub name: String,
    /// `passed`, `failed`, `silent`, `sent`, or `open`.
    pub word: String,
    /// In words.
    pub reason: String,
}

/// One node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// Its uuid.
    pub id: String,
    /// Its short id.
    pub short_id: String,
    /// Its roles.
    pub roles: Vec<String>,
    /// `invited`, `expected`, `connected`, `away`.
    pub presence: String,
    /// When it was last heard from.
    pub heard_at: Option<Timestamp>,
    /// The host's version.
    pub host_version: Option<String>,
    /// Where its newest declaration stands.
    pub declaration: String,
    /// The last confirmed sequence, 0 before the first.
    pub confirmed_sequence: u64,
    /// Where its epoch stands.
    pub epoch: String,
    /// The epoch that it runs, 0 before the first.
    pub running_epoch: u64,
    /// What is not well there, one sentence each.
    pub troubles: Vec<String>,
}

/// A transition as the note keeps it: its line, then its trailers.
#[must_use]
pub fn story_of(transition: &Transition) -> String {
    let mut text = transition_line(
        transition.at,
        transition.from,
        transition.to,
        transition.code,
        &transition.actor,
        &transition.reason,
    );
    for (key, value) in &transition.facts {
        text.push('\n');
        text.push_str(trailer_line(key, value).trim_end());
    }
    text
}

/// A delivery as people see it.
#[must_use]
pub fn delivery(delivery: &Delivery, transitions: &[Transition]) -> DeliveryView {
    let walk = delivery.walk.as_ref();
    let stages = walk.map(|w| {
        let current = matches!(delivery.state, State::Delivering | State::Held).then_some(w.current);
        w.stages
            .iter()
            .enumerate()
            .map(|(i, stage)| StageView {
                name: stage.name.clone(),
                summary: summary(stage),
                current: current == Some(i),
                machines: stage
                    .machines
                    .values()
                    .map(|m| MachineView {
                        name: m.name.to_string(),
                        word: m.verdict.as_ref().map_or("open", |v| word(v.word)).to_owned(),
                        reason: m
                            .verdict
                            .as_ref()
                            .map_or_else(|| m.last.clone(), |v| v.reason.clone()),
                    })
                    .collect(),
            })
            .collect()
    });
    DeliveryView {
        name: delivery.name.to_string(),
        commit: delivery.commit.to_string(),
        subject: delivery.subject.clone(),
        author: delivery.author.clone(),
        state: delivery.state,
        code: delivery.code.to_string(),
        since: delivery.since,
        reason: delivery.reason.clone(),
        scopes: delivery.legs.iter().map(|l| l.scope.to_string()).collect(),
        skipped: delivery
            .skipped
            .iter()
            .map(|(s, why)| format!("{s} skipped ({why})"))
            .collect(),
        stages: stages.unwrap_or_default(),
        epoch: walk.map_or(0, |w| w.epoch),
        revision: walk.map_or(0, |w| w.revision),
        sequence: walk.map_or(0, |w| w.sequence),
        abort_cause: walk
            .and_then(|w| w.abort_cause.as_ref())
            .map(|c| format!("{} ({}) in {}: {}", c.name, c.node_id_short, c.phase, c.reason)),
        outstanding: walk
            .iter()
            .flat_map(|w| &w.outstanding)
            .map(ToString::to_string)
            .collect(),
        story: transitions.iter().map(story_of).collect(),
    }
}

/// The nodes of the newest tree as people see them, worst first.
#[must_use]
pub fn nodes(tree: &Composed, heard: &Nodes, connected: &BTreeSet<NodeId>) -> Vec<NodeView> {
    let mut views: Vec<NodeView> = tree
        .nodes
        .values()
        .map(|n| node(n, heard.get(&n.id), connected.contains(&n.id)))
        .collect();
    views.sort_by(|a, b| (rank(a), &a.name).cmp(&(rank(b), &b.name)));
    views
}

fn rank(node: &NodeView) -> u8 {
    match (node.troubles.is_empty(), node.presence.as_str()) {
        (false, _) => 0,
        (true, "away") => 1,
        (true, "connected") => 2,
        (true, _) => 3,
    }
}

fn node(of: &ComposedNode, state: Option<&NodeState>, connected: bool) -> NodeView {
    let presence = match state {
        _ if !of.enrolled => "invited",
        _ if connected => "connected",
        None => "expected",
        Some(_) => "away",
    };
    let report = state.and_then(|s| s.report.as_ref());
    let declaration = report.and_then(|r| r.declaration.as_ref());
    let epoch = report.and_then(|r| r.epoch.as_ref());
    NodeView {
        name: of.name.to_string(),
        id: of.id.to_string(),
        short_id: of.id.short().to_string(),
        roles: of.roles.iter().map(ToString::to_string).collect(),
        presence: presence.to_owned(),
        heard_at: state.and_then(|s| s.heard_at),
        host_version: report.map(|r| r.host_version.clone()),
        declaration: declaration.map_or_else(
            || "none yet".to_owned(),
            |d| match d.state {
                // The one state that a person asks about and that is no trouble.
                DeclarationState::Queued => format!("queued at {}: {}", d.sequence, d.reason),
                state => format!("{} at {}", declaration_word(state), d.sequence),
            },
        ),
        confirmed_sequence: declaration.map_or(0, |d| d.confirmed_sequence),
        epoch: epoch.map_or_else(
            || "none yet".to_owned(),
            |e| format!("{:?} {}", e.state, e.state_epoch).to_lowercase(),
        ),
        running_epoch: epoch.map_or(0, |e| e.running),
        troubles: report.map(troubles).unwrap_or_default(),
    }
}

/// The word for where a declaration stands.
#[must_use]
pub fn declaration_word(state: DeclarationState) -> &'static str {
    match state {
        DeclarationState::Queued => "queued",
        DeclarationState::Applying => "applying",
        DeclarationState::AwaitingConfirm => "awaiting confirm",
        DeclarationState::Confirmed => "confirmed",
        DeclarationState::Reverted => "reverted",
        DeclarationState::Failed => "failed",
        DeclarationState::KnownBad => "known-bad",
    }
}

fn troubles(report: &Report) -> Vec<String> {
    let mut out = Vec::new();
    if let Some(status) = &report.declaration
        && matches!(
            status.state,
            DeclarationState::Reverted | DeclarationState::Failed | DeclarationState::KnownBad
        )
    {
        out.push(format!(
            "sequence {} {}: {}",
            status.sequence,
            declaration_word(status.state),
            status.reason
        ));
    }
    let probes = report.probes.iter().filter(|p| p.health == Health::Unhealthy);
    out.extend(probes.map(|p| format!("the probe {} says no: {}", p.name, p.reason)));
    out.extend(
        report
            .rollbacks
            .iter()
            .map(|v| format!("{} went back to {}: {}", v.component, v.to, v.why)),
    );
    out.extend(
        report
            .refused
            .iter()
            .map(|r| format!("refused a {}: {}", r.order, r.reason)),
    );
    if report.stale {
        out.push("its timestamp has run out".to_owned());
    }
    out
}
