//! What people see: view models of deliveries and nodes, for the status page, the API and the command line alike.

use jiff::Timestamp;
use meshplan_schemas::fleet_list::UpdateClass;
use meshplan_schemas::ident::NodeId;
use meshplan_schemas::lifecycle::delivery::State;
use meshplan_schemas::lifecycle::epoch::EpochState;
use meshplan_schemas::report::{CONTESTED, DeclarationState, Health, Report, ResourceLine};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::compose::ComposedNode;
use super::decide::classes;
use super::decide::look::{self, Seen};
use super::decide::walk::{follows, not_confirmed, standing, summary};
use super::decide::why::Why;
use super::delivery::{Delivery, LeftBehind, MachineRun, Transition, Walk};
use super::note::{trailer_line, transition_line};
use super::roll_call::{Page, Standing};
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
    /// After the database was lost: that nothing is signed yet, and for whom it waits, in a sentence.
    #[serde(default)]
    pub recovering: Option<String>,
    /// What keeps the reconciler from its work, one sentence each; empty is well.
    pub troubles: Vec<String>,
    /// The deliveries, newest first.
    pub deliveries: Vec<DeliveryView>,
    /// The first page of the nodes, worst first.
    #[serde(flatten)]
    pub page: Page,
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
    /// Machines that are left behind it.
    #[serde(default)]
    pub left_behind: Vec<MachineView>,
    /// What is worth saying of its walk.
    #[serde(default)]
    pub remarks: Vec<String>,
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
    /// What it waits for, where it is not over (DL-16).
    #[serde(default)]
    pub why: Option<Why>,
}

impl DeliveryView {
    /// With what it waits for.
    #[must_use]
    pub fn answering(self, why: Option<Why>) -> Self {
        Self { why, ..self }
    }
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
    /// `required`, `best_effort`, `left_behind`: as it counts in this delivery (UC-1).
    #[serde(default = "required")]
    pub class: String,
    /// `passed`, `failed`, `silent`, `sent`, or `open`; `told` for one that is not awaited, `applied` once that one has it
    /// all the same, `left-behind`.
    pub word: String,
    /// In words.
    pub reason: String,
}

impl MachineView {
    /// One line: its class beside its name where it is not required, where it stands, and why.
    #[must_use]
    pub fn line(&self) -> String {
        let class = match self.class.as_str() {
            "required" => String::new(),
            class => format!(" ({class})"),
        };
        format!("{}{class} {}: {}", self.name, self.word, self.reason)
    }
}

/// One node.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// Its uuid.
    pub id: String,
    /// Its short id.
    pub short_id: String,
    /// Its roles.
    pub roles: Vec<String>,
    /// `required`, `best_effort`, `left_behind`, `left_behind, pinned`.
    #[serde(default = "required")]
    pub class: String,
    /// How it stands.
    pub standing: Standing,
    /// `invited`, `expected`, `connected`, `away`.
    pub presence: String,
    /// When it was last heard from.
    #[schemars(with = "Option<String>")]
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
    /// A person paused it on the machine: until when and why, in words (HR-17).
    #[serde(default)]
    pub paused: Option<String>,
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

fn required() -> String {
    classes::word(UpdateClass::Required).to_owned()
}

/// A machine of a stage. One that nobody waited for is looked at when somebody asks: what it has by now is no transition.
fn machine(
    delivery: &Delivery,
    walk: &Walk,
    (id, machine): (&NodeId, &MachineRun),
    heard: &Nodes,
) -> MachineView {
    let class = classes::of(walk, id);
    let awaited = class == UpdateClass::Required || machine.verdict.is_some();
    // What was taken back is confirmed under a newer number too: only of what stays a later report says something.
    let late = heard
        .get(id)
        .filter(|_| !awaited && delivery.state == State::Delivered)
        .and_then(|node| node.report.as_ref())
        .map(|report| look::judge(report, machine));
    let (word, reason) = match (late, &machine.verdict) {
        (Some(Seen::Healthy), _) => (APPLIED, "it has it, and nobody waited for it".to_owned()),
        (Some(Seen::Broken(why)), _) => ("failed", why),
        (_, Some(verdict)) => (standing(walk, id, machine), verdict.reason.clone()),
        (_, None) if awaited => (standing(walk, id, machine), machine.last.clone()),
        (_, None) => (standing(walk, id, machine), not_confirmed(machine).to_owned()),
    };
    MachineView {
        name: machine.name.to_string(),
        class: classes::word(class).to_owned(),
        word: word.to_owned(),
        reason,
    }
}

/// The word for a machine that has it although it was not awaited.
const APPLIED: &str = "applied";

fn left(id: &NodeId, left: &LeftBehind, heard: &Nodes) -> MachineView {
    let report = heard.get(id).and_then(|node| node.report.as_ref());
    let confirmed = report
        .and_then(|r| r.declaration.as_ref())
        .map_or(0, |d| d.confirmed_sequence);
    let running = report.and_then(|r| r.epoch.as_ref()).map_or(0, |e| e.running);
    let word = match left.sequence {
        0 => "left-behind",
        sequence if confirmed >= sequence => APPLIED,
        _ => "told",
    };
    MachineView {
        name: left.name.to_string(),
        class: classes::word(UpdateClass::LeftBehind).to_owned(),
        word: word.to_owned(),
        reason: format!("{}; runs sequence {confirmed} and epoch {running}", follows(left)),
    }
}

/// Whether what was heard of nodes says more of a delivery than it does itself: it told machines that nobody awaits.
#[must_use]
pub fn asks_nodes(delivery: &Delivery) -> bool {
    let walk = delivery.walk.as_ref();
    !delivery.left_behind.is_empty() || walk.is_some_and(|walk| !classes::stragglers(walk).is_empty())
}

/// A delivery as people see it, with what was heard of nodes where [`asks_nodes`] says so.
#[must_use]
pub fn delivery(delivery: &Delivery, transitions: &[Transition], heard: &Nodes) -> DeliveryView {
    let walk = delivery.walk.as_ref();
    let stages = walk.map(|w| {
        let current = matches!(delivery.state, State::Delivering | State::Held).then_some(w.current);
        w.stages
            .iter()
            .enumerate()
            .map(|(i, stage)| StageView {
                name: stage.name.clone(),
                summary: summary(w, stage),
                current: current == Some(i),
                machines: stage
                    .machines
                    .iter()
                    .map(|m| machine(delivery, w, m, heard))
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
        left_behind: (delivery.left_behind.iter())
            // Nobody is behind what was not accepted.
            .filter(|_| !delivery.state.is_final() || delivery.state == State::Delivered)
            .map(|(id, entry)| left(id, entry, heard))
            .collect(),
        remarks: walk.map_or_else(Vec::new, |w| w.lines.clone()),
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
        why: None,
    }
}

/// How a node stands.
#[must_use]
pub fn stands(of: &ComposedNode, state: Option<&NodeState>, connected: bool) -> Standing {
    let report = state.and_then(|s| s.report.as_ref());
    if report.is_some_and(|report| !troubles(report).is_empty()) {
        return Standing::Troubled;
    }
    match presence(of, state, connected) {
        "away" => Standing::Away,
        "connected" if state.is_some_and(|state| state.paused().is_some()) => Standing::Paused,
        "connected" => Standing::Connected,
        _ => Standing::Awaited,
    }
}

fn presence(of: &ComposedNode, state: Option<&NodeState>, connected: bool) -> &'static str {
    match state {
        _ if !of.enrolled => "invited",
        _ if connected => "connected",
        None => "expected",
        Some(_) => "away",
    }
}

/// A node as people see it.
#[must_use]
pub fn node(of: &ComposedNode, state: Option<&NodeState>, connected: bool) -> NodeView {
    let report = state.and_then(|s| s.report.as_ref());
    let declaration = report.and_then(|r| r.declaration.as_ref());
    let epoch = report.and_then(|r| r.epoch.as_ref());
    NodeView {
        name: of.name.to_string(),
        id: of.id.to_string(),
        short_id: of.id.short().to_string(),
        roles: of.roles.iter().map(ToString::to_string).collect(),
        class: match classes::word(of.update_class) {
            class if of.pinned => format!("{class}, pinned"),
            class => class.to_owned(),
        },
        standing: stands(of, state, connected),
        presence: presence(of, state, connected).to_owned(),
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
            |e| format!("{} {}", epoch_word(e.state), e.state_epoch),
        ),
        running_epoch: epoch.map_or(0, |e| e.running),
        paused: state
            .and_then(NodeState::paused)
            .map(|paused| format!("paused {}", look::pause(paused))),
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

/// The word for where an epoch stands.
#[must_use]
pub fn epoch_word(state: EpochState) -> &'static str {
    match state {
        EpochState::Received => "received",
        EpochState::Staged => "staged",
        EpochState::AwaitingConfirm => "awaiting confirm",
        EpochState::Applied => "applied",
        EpochState::Rejected => "rejected",
        EpochState::Reverted => "reverted",
        EpochState::LeftBehind => "left behind",
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
    let contested = |line: &&ResourceLine| line.reason.starts_with(CONTESTED);
    let contested = report.resources.iter().filter(contested);
    out.extend(contested.map(|line| format!("{} is {}", line.name, look::cut(&line.reason))));
    if report.stale {
        out.push("its timestamp has run out".to_owned());
    }
    out
}
