//! A report as a value: how the node stands and what the shell has gathered, brought into the form of HR-11.
//!
//! It stands alone because what a report says is a promise to the reconciler, and how it is signed, kept and sent is
//! not. No secret passes here: output of commands is cut before it comes.

use meshplan_schemas::ident::ModuleName;
use meshplan_schemas::limits::SCHEMA;
use meshplan_schemas::report::{Cause, FilterLine, FirewallLine, Report};

use super::agent::Agent;

/// The version of page 07's witness that this host speaks.
const WITNESS: u32 = 1;

/// What only the shell can know.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// Strictly increasing.
    pub counter: u64,
    /// The kernel's boot id.
    pub boot_id: String,
    /// Random per start.
    pub instance: String,
    /// When this instance started, unix seconds.
    pub started_at: i64,
    /// This host's version.
    pub host_version: String,
    /// The launcher's, when one started this host.
    pub launcher_version: Option<String>,
    /// See HR-10.
    pub capabilities: Vec<String>,
    /// What refuses traffic (HK-11).
    pub filters: Vec<FilterLine>,
    /// The firewalls that were found (HK-11).
    pub firewalls: Vec<FirewallLine>,
    /// Modules that somebody asked to take on this machine (HR-12).
    pub take_requests: Vec<ModuleName>,
    /// Free bytes where the state folder is.
    pub disk_free_bytes: Option<u64>,
    /// Load over a minute, in hundredths.
    pub load_hundredths: Option<u64>,
}

/// Brings a report together.
#[must_use]
pub fn compose(agent: &Agent, cause: Cause, facts: Facts, now: i64) -> Report {
    let standing = agent.standing();
    Report {
        schema: SCHEMA,
        fleet: agent.fleet().clone(),
        era: agent.marks().era,
        issued_at: now,
        must_understand: Vec::new(),
        node: agent.node(),
        counter: facts.counter,
        boot_id: facts.boot_id,
        instance: facts.instance,
        started_at: facts.started_at,
        host_version: facts.host_version,
        launcher_version: facts.launcher_version,
        cause,
        declaration: standing.declaration.clone(),
        resources: standing.lines.clone(),
        held: standing.held.clone(),
        strays: standing.strays.clone(),
        left_out: standing.left_out.clone(),
        capabilities: facts.capabilities,
        probes: standing.probes.clone(),
        restarts: 0,
        links: Vec::new(),
        filters: facts.filters,
        firewalls: facts.firewalls,
        rollbacks: standing.rollbacks.clone(),
        witness: WITNESS,
        marks: agent.marks().clone(),
        stale: agent.orders().stale(now),
        paused: agent.paused().cloned(),
        epoch: standing.epoch.clone(),
        rotations: Vec::new(),
        policy_digest: standing.policy,
        clock_trusted: agent.clock_trusted(now),
        disk_free_bytes: facts.disk_free_bytes,
        load_hundredths: facts.load_hundredths,
        refused: standing.refused.clone(),
        take_requests: facts.take_requests,
    }
}
