//! Former content that a roll-back does not restore, for it needs a value that is retired (DL-7).

use std::collections::{BTreeMap, BTreeSet};

use meshplan_schemas::document::texts::SecretName;
use meshplan_schemas::ident::{ModuleName, NodeId};
use serde::{Deserialize, Serialize};

use super::Walk;

/// Former content that needs a retired value, and stays away for it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SpentValue {
    /// Why the value is spent, in the words of the tree.
    pub why: String,
    /// By module the machines that keep what they have.
    pub kept: BTreeMap<ModuleName, BTreeSet<NodeId>>,
}

impl Walk {
    /// The highest sequence that takes a machine back, 0 without one.
    #[must_use]
    pub fn return_sequence(&self) -> u64 {
        let returns = self.reached.values().map(|reached| reached.return_sequence);
        returns.max().unwrap_or(0)
    }

    /// The secret for whose retired value a module is not restored on a machine; none as a rule.
    #[must_use]
    pub fn spent_on(&self, module: &ModuleName, node: NodeId) -> Option<&SecretName> {
        let keeps = |spent: &SpentValue| spent.kept.get(module).is_some_and(|nodes| nodes.contains(&node));
        self.spent
            .iter()
            .find(|(_, spent)| keeps(spent))
            .map(|(name, _)| name)
    }
}
