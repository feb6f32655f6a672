//! What is restarted, reloaded or run because something that it stands on changes (HK-1).
//!
//! At the end of its module, once, whatever changed; not where it is started afresh after the last of the changes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Ask, ResourceId, ResourceName, Step, Target};

/// How something follows a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Follow {
    /// It reads its settings anew.
    Reload,
    /// It is restarted.
    Restart,
    /// It runs.
    Run,
}

impl Follow {
    /// In words, as "it is ...".
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Reload => "reloaded",
            Self::Restart => "restarted",
            Self::Run => "run",
        }
    }
}

/// What follows a change of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Follower {
    /// How.
    pub how: Follow,
    /// A resource of the same module.
    pub id: ResourceId,
}

/// Something that follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Following {
    /// Which.
    pub name: ResourceName,
    /// What it has.
    pub target: Option<Target>,
    /// How.
    pub how: Follow,
    /// What changes.
    pub because: Vec<ResourceName>,
}

impl Following {
    /// In words.
    #[must_use]
    pub fn words(&self) -> String {
        let because: Vec<String> = self.because.iter().map(ToString::to_string).collect();
        match because.as_slice() {
            [] => format!("{}, as a former change still asks for", self.how.word()),
            because => format!("{} after {}", self.how.word(), because.join(", ")),
        }
    }
}

/// What follows the steps of a module, in the order of its resources.
/// What is held is not touched for it (HR-8); what a former apply owes follows now.
pub(super) fn following(
    asks: &[Ask],
    steps: &[Step],
    is_held: impl Fn(&ResourceName) -> bool,
    due: &BTreeMap<ResourceName, Follow>,
) -> Vec<Following> {
    let own = asks.iter().filter(|ask| !is_held(&ask.name));
    own.filter_map(|ask| one(ask, steps, due.get(&ask.name).copied()))
        .collect()
}

fn one(ask: &Ask, steps: &[Step], due: Option<Follow>) -> Option<Following> {
    let (mut how, mut because, mut last) = (due, Vec::new(), None);
    let mut started = None;
    for (at, step) in steps.iter().enumerate() {
        match step {
            // What fails has its own line.
            Step::Fail { name, .. } if *name == ask.name => return None,
            Step::Write(write) => {
                if write.record.name == ask.name && write.nature.starts {
                    started = Some(at);
                }
                let strongest = (write.followers.iter())
                    .filter(|follower| follower.id == ask.name.id)
                    .map(|follower| follower.how)
                    .max();
                if strongest.is_some() {
                    how = how.max(strongest);
                    because.push(write.record.name.clone());
                    last = Some(at);
                }
            }
            _ => {}
        }
    }
    if started.is_some_and(|started| Some(started) > last) {
        return None;
    }
    Some(Following {
        name: ask.name.clone(),
        target: ask.target.clone(),
        how: how?,
        because,
    })
}
