//! How the node stands: what reports are made of and what must outlive a restart.
//!
//! It stands alone because it is the one thing that both the decisions and `meshplan-host status` read. It is saved
//! whole after each change. Lost or broken it means unknown: it is made anew from the orders and the ledger.

use std::collections::BTreeMap;

use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::ModuleName;
use meshplan_schemas::report::{
    DeclarationState, DeclarationStatus, EpochStatus, Mark, ProbeLine, RefusedOrder, ResourceLine,
    RollbackVerdict,
};
use serde::{Deserialize, Serialize};

use super::confirm::Window;
use super::pause;

/// The version of the file.
pub const STANDING_VERSION: u32 = 1;
/// The most refused orders that are kept for the next report; a flood of forgeries says nothing new.
const REFUSED: usize = 50;
/// The most standing verdicts.
const VERDICTS: usize = 200;

/// How the node stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Standing {
    /// [`STANDING_VERSION`].
    pub version: u32,
    /// The declaration, none before the first.
    pub declaration: Option<DeclarationStatus>,
    /// The epoch that the state speaks for.
    pub epoch: Option<EpochStatus>,
    /// Its digest.
    pub epoch_digest: Option<Digest>,
    /// The epoch that was tried last and did not stay: not tried again by itself, whatever was refused since.
    #[serde(default)]
    pub settled_epoch: Option<Digest>,
    /// The epoch that runs.
    pub running: Option<Mark>,
    /// The digest of the effective policy on the machine.
    pub policy: Option<Digest>,
    /// The epoch that it is left behind, and how long it has waited for it (UC-1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_behind: Option<Waited>,
    /// Of each epoch that is held: by whom and when it was delivered.
    pub received: BTreeMap<Digest, Received>,
    /// The open confirm window.
    pub window: Option<Window>,
    /// Standing verdicts.
    pub rollbacks: Vec<RollbackVerdict>,
    /// The lines of the last apply or repair that are not `unchanged`.
    pub lines: Vec<ResourceLine>,
    /// What is held.
    pub held: Vec<ResourceLine>,
    /// What is nobody's here (HR-9).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub strays: Vec<String>,
    /// What the probes said last.
    pub probes: Vec<ProbeLine>,
    /// Modules that the confirmed declaration leaves out.
    pub left_out: Vec<ModuleName>,
    /// Orders refused since the last report.
    pub refused: Vec<RefusedOrder>,
    /// The pause that was last seen here (HR-17).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<pause::Known>,
}

/// How long a node that is left behind has waited for an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waited {
    /// The epoch.
    pub epoch: Digest,
    /// Seconds since its first sight in which this host ran: no clock that is set, and no start, adds to them.
    pub secs: i64,
}

/// By whom and when an epoch came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// `reconciler`, `self`, or a neighbour's short id (EP-1).
    pub via: String,
    /// Unix seconds.
    pub at: i64,
}

impl Default for Standing {
    fn default() -> Self {
        Self {
            version: STANDING_VERSION,
            declaration: None,
            epoch: None,
            epoch_digest: None,
            settled_epoch: None,
            running: None,
            policy: None,
            left_behind: None,
            received: BTreeMap::new(),
            window: None,
            rollbacks: Vec::new(),
            lines: Vec::new(),
            held: Vec::new(),
            strays: Vec::new(),
            probes: Vec::new(),
            left_out: Vec::new(),
            refused: Vec::new(),
            pause: None,
        }
    }
}

impl Standing {
    /// Whether this declaration has come to its end here, so that it is not taken up again by itself.
    #[must_use]
    pub fn settled(&self, digest: &Digest) -> bool {
        self.declaration.as_ref().is_some_and(|d| {
            let ended = match d.state {
                DeclarationState::Confirmed
                | DeclarationState::Reverted
                | DeclarationState::Failed
                | DeclarationState::KnownBad => true,
                DeclarationState::Queued | DeclarationState::Applying | DeclarationState::AwaitingConfirm => {
                    false
                }
            };
            d.digest == *digest && ended
        })
    }

    /// Notes a refused order for the next report.
    pub fn refuse(&mut self, line: RefusedOrder) {
        if self.refused.len() < REFUSED && !self.refused.contains(&line) {
            self.refused.push(line);
        }
    }

    /// Adds a verdict, in the place of an earlier one about the same component.
    pub fn verdict(&mut self, verdict: RollbackVerdict) {
        self.rollbacks.retain(|v| v.component != verdict.component);
        self.rollbacks.push(verdict);
        let over = self.rollbacks.len().saturating_sub(VERDICTS);
        self.rollbacks.drain(..over);
    }

    /// Ends the verdicts about modules: something newer stands.
    pub fn end_module_verdicts(&mut self) {
        self.rollbacks.retain(|v| v.component == POLICY);
    }

    /// Ends the verdict about the policy.
    pub fn end_policy_verdict(&mut self) {
        self.rollbacks.retain(|v| v.component != POLICY);
    }
}

/// The component under which a policy stands in verdicts and in the memory of what failed.
pub const POLICY: &str = "policy";
