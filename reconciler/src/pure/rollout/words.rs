//! What a person may say of a rollout: start, release, abort are `go`, `go` and `withdraw` of its delivery (RO-1, RO-2).
//!
//! It stands alone because the refusals are the rule: one rollout at a time, no release past a failed canary unless it is
//! forced, and what may be other for one rollout alone.

use meshplan_schemas::document::fleet::ConfigMgmt;
use meshplan_schemas::document::plan::Select;
use meshplan_schemas::ident::{NodeName, RoleName};
use meshplan_schemas::lifecycle::delivery::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::pure::compose::Composed;
use crate::pure::delivery::{Delivery, Verdict, VerdictWord, Walk};
use crate::pure::scope::Scope;
use crate::pure::snapshot::Verb;

/// The longest time that may be given for one rollout, in seconds: as fleet.toml's.
const LONGEST_SECS: u32 = 86_400;

/// What may be other for one rollout.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Overrides {
    /// The canaries by name; with roles: those that carry one of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub canary_nodes: Vec<NodeName>,
    /// The canaries by role.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub canary_roles: Vec<RoleName>,
    /// The commit-confirm window in seconds, from 1 to 86400.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm_secs: Option<u32>,
    /// For how long each wave of the release is watched, in seconds, up to 86400; 0 is 3 x confirm_secs + 120.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_watch_secs: Option<u32>,
}

impl Overrides {
    fn names_canaries(&self) -> bool {
        !self.canary_nodes.is_empty() || !self.canary_roles.is_empty()
    }

    /// The fleet's times with what is other for this rollout.
    #[must_use]
    pub fn over(&self, fleet: &ConfigMgmt) -> ConfigMgmt {
        ConfigMgmt {
            confirm_secs: self.confirm_secs.unwrap_or(fleet.confirm_secs),
            release_watch_secs: self.release_watch_secs.unwrap_or(fleet.release_watch_secs),
            ..fleet.clone()
        }
    }

    /// Why these cannot be taken for a rollout of this tree over this walk; none where they can.
    #[must_use]
    pub fn fault(&self, tree: &Composed, walk: &Walk) -> Option<String> {
        if let Some(name) =
            (self.canary_nodes.iter()).find(|name| !tree.nodes.values().any(|n| n.name == **name))
        {
            return Some(format!(
                "canary_nodes names {name}, and no record has that name; `meshplan fleet status` lists the nodes"
            ));
        }
        if let Some(role) =
            (self.canary_roles.iter()).find(|role| !tree.nodes.values().any(|n| n.roles.contains(role)))
        {
            return Some(format!(
                "canary_roles names {role}, and no node carries that role; see `roles` in the records under nodes/"
            ));
        }
        if self.names_canaries() && walk.stages.len() < 2 {
            return Some(
                "canaries are named, and the plan has no stage before the rest (or the fleet one machine); \
                 start without them, or give the plan a first stage"
                    .to_owned(),
            );
        }
        let bad = |secs: &u32, least: u32| !(least..=LONGEST_SECS).contains(secs);
        if let Some(secs) = self.confirm_secs.filter(|secs| bad(secs, 1)) {
            return Some(format!("confirm_secs is from 1 to {LONGEST_SECS}, not {secs}"));
        }
        if let Some(secs) = self.release_watch_secs.filter(|secs| bad(secs, 0)) {
            return Some(format!(
                "release_watch_secs is from 0 to {LONGEST_SECS}, not {secs}"
            ));
        }
        None
    }

    /// What is other, in words; none where nothing is.
    fn said(&self) -> Option<String> {
        let names = |names: Vec<&str>| (!names.is_empty()).then(|| names.join(", "));
        let nodes = names(self.canary_nodes.iter().map(NodeName::as_str).collect());
        let roles = names(self.canary_roles.iter().map(RoleName::as_str).collect());
        let parts = [
            nodes.map(|n| format!("canary_nodes {n}")),
            roles.map(|r| format!("canary_roles {r}")),
            self.confirm_secs.map(|s| format!("confirm_secs {s}")),
            self.release_watch_secs.map(|s| format!("release_watch_secs {s}")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| format!("started with {}", parts.join("; ")))
    }

    /// Puts them into a walk that has not begun, which says so in the record.
    pub fn enter(&self, walk: &mut Walk, fleet: &ConfigMgmt) {
        walk.lines.extend(self.said());
        if self.names_canaries()
            && walk.stages.len() > 1
            && let Some(first) = walk.stages.first_mut()
        {
            first.select = Select {
                nodes: self.canary_nodes.clone(),
                roles: self.canary_roles.clone(),
                count: None,
                rest: false,
            };
        }
        if self.release_watch_secs.is_some() {
            let watch = self.over(fleet).watch_secs();
            let last = walk.stages.len().saturating_sub(1);
            for (at, stage) in walk.stages.iter_mut().enumerate() {
                if stage.select.rest || at == last {
                    stage.within_secs = watch;
                }
            }
        }
    }
}

/// Whether a delivery walks epochs now: the rollout in hand (RO-2).
#[must_use]
pub fn is_in_hand(delivery: &Delivery) -> bool {
    !delivery.state.is_final() && delivery.walk.is_some() && changes_policy(delivery)
}

/// Whether a delivery changes the policy.
#[must_use]
pub fn changes_policy(delivery: &Delivery) -> bool {
    delivery.legs.iter().any(|leg| leg.scope == Scope::Policy)
}

/// Why a rollout cannot be started from this delivery beside the one in hand; none where it can be asked.
#[must_use]
pub fn start_refused(delivery: &Delivery, in_hand: Option<&Delivery>) -> Option<String> {
    let name = &delivery.name;
    if in_hand.is_some_and(|other| other.commit == delivery.commit) {
        return Some(format!(
            "{name} has begun already and is {}; `meshplan fleet rollout status` says what it waits for",
            delivery.state
        ));
    }
    if let Some(other) = in_hand {
        return Some(format!(
            "a rollout is in hand: {} is {}; one at a time, so wait for its end or say `meshplan fleet rollout abort`",
            other.name, other.state
        ));
    }
    if !delivery.legs.is_empty() && !changes_policy(delivery) {
        return Some(format!(
            "{name} changes no policy, so it is no rollout; `meshplan deliveries go {}` lets it go on",
            delivery.commit.short()
        ));
    }
    match delivery.state {
        State::Held => None,
        State::Proposed => Some(format!(
            "{name} begins by itself; to choose its canaries say `meshplan deliveries hold {}` first",
            delivery.commit.short()
        )),
        state => Some(format!(
            "{name} is {state}; a rollout is started from a delivery that is held, see `meshplan deliveries list`"
        )),
    }
}

/// What releases the rollout in hand.
///
/// # Errors
/// Why nothing does, in a sentence.
pub fn release(in_hand: Option<&Delivery>, force: bool) -> Result<Verb, String> {
    let delivery = in_hand.ok_or_else(nothing_in_hand)?;
    if delivery.state != State::Held {
        return Err(format!(
            "{} is {}, and goes on by itself once its canaries have passed; a release is for one that is held",
            delivery.name, delivery.state
        ));
    }
    let stages = delivery.walk.iter().flat_map(|w| &w.stages);
    let mut machines = stages.flat_map(|s| s.machines.values());
    let failed = machines.find(|m| {
        let bad = |v: &Verdict| matches!(v.word, VerdictWord::Failed | VerdictWord::Silent);
        !m.forced && m.verdict.as_ref().is_some_and(bad)
    });
    match failed {
        Some(machine) if !force => Err(format!(
            "{} did not pass ({}); nothing is released past it unless somebody says `--force`, which the record keeps",
            machine.name,
            machine.verdict.as_ref().map_or("", |v| v.reason.as_str())
        )),
        _ => Ok(Verb::Go),
    }
}

/// What aborts the rollout in hand.
///
/// # Errors
/// Why nothing does, in a sentence.
pub fn abort(in_hand: Option<&Delivery>) -> Result<Verb, String> {
    let delivery = in_hand.ok_or_else(nothing_in_hand)?;
    match delivery.state {
        State::RollingBack => Err(format!("{} is on its way back already", delivery.name)),
        _ => Ok(Verb::Abort),
    }
}

fn nothing_in_hand() -> String {
    "no rollout is in hand; `meshplan fleet rollout list` shows the former ones".to_owned()
}
