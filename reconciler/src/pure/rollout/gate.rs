//! The release gate as people see it (RO-4): the nodes that count, and what each of them comes to.
//!
//! It stands alone because its numbers must add up whatever the walk does: each required node is confirmed, failed, or
//! held for, and only those that are held for can be silent.

use jiff::Timestamp;
use meshplan_schemas::fleet_list::UpdateClass;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::push::PushState;
use crate::pure::delivery::VerdictWord;

/// The gate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReleaseGate {
    /// Required nodes in it: `required_confirmed + required_failed + holding`.
    pub required_total: u32,
    /// Of those: the epoch is applied there and nothing speaks against it.
    pub required_confirmed: u32,
    /// Of those: silent. They are among `holding`.
    pub required_silent: u32,
    /// Of those: failed, or below the minimum version.
    pub required_failed: u32,
    /// Until when the stage in hand is watched; null while none is ordered.
    #[schemars(with = "Option<String>")]
    pub deadline: Option<Timestamp>,
    /// Names of required nodes that are still to confirm.
    pub holding: Vec<String>,
    /// Names of best-effort nodes that have not confirmed: nobody waits for them.
    pub stragglers: Vec<String>,
    /// The nodes in it.
    pub nodes: Vec<GateNode>,
}

/// A node in the gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GateNode {
    /// Its short id.
    pub node_id_short: String,
    /// Its name.
    pub name: String,
    /// Its class.
    pub class: UpdateClass,
    /// How it stands.
    pub state: PushState,
    /// How far what it runs is behind the newest epoch of the rollout; null before its first report of an epoch.
    pub epochs_behind: Option<u64>,
    /// What the walk says of it: `passed`, `failed`, `silent`, `sent`; null while it looks.
    pub verdict: Option<String>,
    /// Why, in words.
    pub reason: String,
}

/// What a node comes to in the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comes {
    Confirmed,
    Failed,
    Silent,
    Open,
}

/// A node that counts, as it is before the gate is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    /// The node, as the gate shows it.
    pub node: GateNode,
    /// The walk's verdict on it, none while it looks or where a person went on without it.
    pub verdict: Option<VerdictWord>,
}

fn comes_to(counted: &Counted) -> Comes {
    match (counted.node.state, counted.verdict) {
        (PushState::Failed | PushState::OldVersion, _) | (_, Some(VerdictWord::Failed)) => Comes::Failed,
        (PushState::Silent, _) | (_, Some(VerdictWord::Silent)) => Comes::Silent,
        (PushState::Applied, _) => Comes::Confirmed,
        _ => Comes::Open,
    }
}

/// The gate over these nodes.
#[must_use]
pub fn gate(counted: Vec<Counted>, deadline: Option<Timestamp>) -> ReleaseGate {
    let mut gate = ReleaseGate {
        deadline,
        ..ReleaseGate::default()
    };
    for counted in counted {
        let comes = comes_to(&counted);
        let name = counted.node.name.clone();
        match counted.node.class {
            // Outside of every gate, whoever put it here.
            UpdateClass::LeftBehind => continue,
            UpdateClass::BestEffort => {
                if comes != Comes::Confirmed {
                    gate.stragglers.push(name);
                }
            }
            UpdateClass::Required => {
                gate.required_total += 1;
                match comes {
                    Comes::Confirmed => gate.required_confirmed += 1,
                    Comes::Failed => gate.required_failed += 1,
                    Comes::Silent => {
                        gate.required_silent += 1;
                        gate.holding.push(name);
                    }
                    Comes::Open => gate.holding.push(name),
                }
            }
        }
        gate.nodes.push(counted.node);
    }
    gate
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    fn counted(at: usize, class: UpdateClass, state: PushState, verdict: Option<VerdictWord>) -> Counted {
        Counted {
            node: GateNode {
                node_id_short: format!("{at:08x}"),
                name: format!("n{at}"),
                class,
                state,
                epochs_behind: None,
                verdict: None,
                reason: String::new(),
            },
            verdict,
        }
    }

    fn verdicts() -> Vec<Option<VerdictWord>> {
        use VerdictWord::{Failed, Passed, Sent, Silent};
        vec![None, Some(Passed), Some(Sent), Some(Failed), Some(Silent)]
    }

    proptest! {
        // holds: RO-4
        #[test]
        fn the_counts_of_a_gate_always_add_up(
            nodes in proptest::collection::vec(
                (
                    select(vec![UpdateClass::Required, UpdateClass::BestEffort, UpdateClass::LeftBehind]),
                    select(PushState::ALL.to_vec()),
                    select(verdicts()),
                ),
                0..40,
            )
        ) {
            let of = |class| nodes.iter().filter(|(c, ..)| *c == class).count();
            let (required, best_effort) = (of(UpdateClass::Required), of(UpdateClass::BestEffort));
            let confirmed = nodes.iter().filter(|(class, state, verdict)| {
                let against = matches!(verdict, Some(VerdictWord::Failed | VerdictWord::Silent));
                *class == UpdateClass::BestEffort && *state == PushState::Applied && !against
            });
            let confirmed = confirmed.count();
            let all = nodes.iter().enumerate();
            let gate = gate(all.map(|(at, (c, s, v))| counted(at, *c, *s, *v)).collect(), None);
            prop_assert_eq!(gate.required_total as usize, required);
            prop_assert_eq!(
                gate.required_confirmed as usize + gate.required_failed as usize + gate.holding.len(),
                required
            );
            prop_assert!(gate.required_silent as usize <= gate.holding.len());
            prop_assert_eq!(gate.stragglers.len() + confirmed, best_effort);
            prop_assert_eq!(gate.nodes.len(), required + best_effort);
        }
    }

    // holds: RO-4
    #[test]
    fn one_below_the_minimum_version_is_failed_and_what_the_walk_saw_counts_over_what_is_applied() {
        use UpdateClass::{BestEffort, LeftBehind, Required};
        let gate = gate(
            vec![
                counted(1, Required, PushState::Applied, None),
                counted(2, Required, PushState::OldVersion, None),
                counted(3, Required, PushState::Applied, Some(VerdictWord::Failed)),
                counted(4, Required, PushState::Applied, Some(VerdictWord::Silent)),
                counted(5, Required, PushState::Silent, None),
                counted(6, Required, PushState::Staged, None),
                counted(7, BestEffort, PushState::Received, None),
                counted(8, BestEffort, PushState::Applied, Some(VerdictWord::Passed)),
                counted(9, LeftBehind, PushState::LeftBehind, None),
            ],
            None,
        );
        assert_eq!(
            (
                gate.required_total,
                gate.required_confirmed,
                gate.required_failed,
                gate.required_silent
            ),
            (6, 1, 2, 2)
        );
        assert_eq!(gate.holding, ["n4", "n5", "n6"]);
        assert_eq!(gate.stragglers, ["n7"]);
    }
}
