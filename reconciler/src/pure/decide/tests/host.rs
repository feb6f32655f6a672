//! A simulated host: takes the orders that are newest for it, and answers looks.

use std::collections::BTreeMap;

use jiff::Timestamp;
use meshplan_schemas::declaration::Declaration;
use meshplan_schemas::digest::Digest;
use meshplan_schemas::epoch::{Epoch, epoch_to_run};
use meshplan_schemas::fleet_list::UpdateClass;
use meshplan_schemas::ident::{ModuleName, NodeId};
use meshplan_schemas::lifecycle::epoch::EpochState;
use meshplan_schemas::maintenance::{Openness, Window};
use meshplan_schemas::report::{
    Cause, DeclarationState, DeclarationStatus, EpochStatus, Paused, Report, ResourceLine, RollbackVerdict,
};
use semver::Version;

use crate::pure::guard::{Guard, stands};

/// What a simulated host does with an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Behaviour {
    /// Takes it and confirms.
    Good,
    /// Reverts whatever contains the word `bad`.
    Fails,
    /// Reverts it once because of the link, then takes it.
    LosesLinkOnce,
    /// Reverts whatever has a resource in it.
    TakesNothing,
    /// Is switched off.
    Off,
}

#[derive(Debug, Clone)]
pub(super) struct SimHost {
    pub(super) behaviour: Behaviour,
    pub(super) confirmed: Option<Declaration>,
    pub(super) taken: Option<(u64, DeclarationState, String)>,
    pub(super) epochs: BTreeMap<u64, Epoch>,
    pub(super) running: Option<u64>,
    pub(super) epoch_state: Option<(u64, EpochState, String)>,
    pub(super) lost_link: bool,
    pub(super) counter: u64,
    /// How often a unit of it died and was started again.
    pub(super) restarts: u64,
    /// What went back, and from what.
    pub(super) rollbacks: Vec<(ModuleName, Digest)>,
    pub(super) version: Version,
    /// Its own maintenance windows.
    pub(super) windows: Vec<Window>,
    /// What it says of single resources.
    pub(super) lines: Vec<ResourceLine>,
    /// A person paused it.
    pub(super) paused: Option<Paused>,
}

impl SimHost {
    pub(super) fn new() -> Self {
        Self {
            behaviour: Behaviour::Good,
            confirmed: None,
            taken: None,
            epochs: BTreeMap::new(),
            running: None,
            epoch_state: None,
            lost_link: false,
            counter: 0,
            restarts: 0,
            rollbacks: Vec::new(),
            version: Version::new(0, 1, 0),
            windows: Vec::new(),
            lines: Vec::new(),
            paused: None,
        }
    }

    /// Whether this is newer than what it has, or waits for its window.
    pub(super) fn wants(&self, declaration: &Declaration) -> bool {
        self.taken.as_ref().is_none_or(|(sequence, state, _)| {
            declaration.sequence > *sequence || *state == DeclarationState::Queued
        })
    }

    /// Whether it takes this when it is handed to it.
    pub(super) fn heeds(&self, declaration: &Declaration) -> bool {
        self.wants(declaration) || !stands(Guard::HigherNumbers)
    }

    pub(super) fn take(&mut self, declaration: Declaration, now: Timestamp) {
        if !declaration.urgent && Openness::at(&self.windows, now).opens().is_some() {
            let waits = "waits for the maintenance window".to_owned();
            self.taken = Some((declaration.sequence, DeclarationState::Queued, waits));
            return;
        }
        if self.paused.is_some() {
            let waits = "waits for the end of a pause".to_owned();
            self.taken = Some((declaration.sequence, DeclarationState::Queued, waits));
            return;
        }
        let bad = serde_json::to_string(&declaration.resources)
            .unwrap()
            .contains("bad");
        let sequence = declaration.sequence;
        let fails = match self.behaviour {
            Behaviour::Fails => bad,
            Behaviour::TakesNothing => !declaration.resources.is_empty(),
            Behaviour::Good | Behaviour::LosesLinkOnce | Behaviour::Off => false,
        };
        if fails {
            let to_blame = |module: &ModuleName| {
                let of = declaration.resources.iter().filter(|r| r.name.module == *module);
                of.into_iter()
                    .any(|r| serde_json::to_string(r).unwrap().contains("bad"))
            };
            let blamed = declaration.modules.iter().filter(|m| to_blame(&m.module));
            self.rollbacks = blamed.map(|m| (m.module.clone(), m.digest)).collect();
            self.taken = Some((sequence, DeclarationState::Reverted, "a probe said no".into()));
            return;
        }
        if self.behaviour == Behaviour::LosesLinkOnce && !self.lost_link {
            self.lost_link = true;
            self.taken = Some((
                sequence,
                DeclarationState::Reverted,
                "no-link: not heard in the window".into(),
            ));
            return;
        }
        self.taken = Some((sequence, DeclarationState::Confirmed, String::new()));
        self.confirmed = Some(declaration);
    }

    pub(super) fn take_epoch(&mut self, id: NodeId, newest: &Epoch, all: &BTreeMap<u64, Epoch>) -> bool {
        // The highest number that it has seen decides; what is older was overtaken (EP-3).
        if self
            .epochs
            .keys()
            .next_back()
            .is_some_and(|seen| *seen >= newest.epoch)
            && stands(Guard::HigherNumbers)
        {
            return false;
        }
        self.epochs.insert(newest.epoch, newest.clone());
        if newest
            .min_daemon_version
            .as_ref()
            .is_some_and(|v| *v > self.version)
        {
            self.epoch_state = Some((newest.epoch, EpochState::Rejected, "needs a newer host".into()));
            return true;
        }
        let digest = Digest::of_value(newest).unwrap();
        let Some((number, _)) = epoch_to_run(newest, digest, id, &[]) else {
            return false;
        };
        // One that did not stay is not tried again by itself.
        let settled = |(tried, state, _): &(u64, EpochState, String)| {
            *tried == number && *state == EpochState::Reverted
        };
        if self.epoch_state.as_ref().is_some_and(settled) {
            return false;
        }
        let policy = &all[&number].policy;
        let runs = self.running.and_then(|number| all.get(&number));
        let is_news = runs.is_none_or(|runs| runs.policy != *policy);
        if is_news && self.behaviour == Behaviour::LosesLinkOnce && !self.lost_link {
            self.lost_link = true;
            let reason = "no-link: not heard in the window".into();
            self.epoch_state = Some((number, EpochState::Reverted, reason));
            return true;
        }
        if policy.contains("bad") && self.behaviour == Behaviour::Fails {
            self.epoch_state = Some((number, EpochState::Reverted, "a probe said no".into()));
            return true;
        }
        self.running = Some(number);
        self.epoch_state = Some((number, EpochState::Applied, String::new()));
        true
    }

    pub(super) fn report(&self, id: NodeId, cause: Cause, at: i64) -> Report {
        let declaration = self
            .taken
            .as_ref()
            .map(|(sequence, state, reason)| DeclarationStatus {
                sequence: *sequence,
                digest: Digest::of(b""),
                state: *state,
                since: at,
                reason: reason.clone(),
                confirmed_sequence: self.confirmed.as_ref().map_or(0, |d| d.sequence),
                confirmed_digest: None,
                converged: false,
            });
        let epoch = self
            .epoch_state
            .as_ref()
            .map(|(number, state, reason)| EpochStatus {
                state_epoch: *number,
                state: *state,
                reason: reason.clone(),
                received_via: "reconciler".into(),
                received_at: at,
                update_class: UpdateClass::Required,
                running: self.running.unwrap_or(0),
            });
        Report {
            schema: 1,
            fleet: "sim".parse().unwrap(),
            era: 0,
            issued_at: at,
            must_understand: vec![],
            node: id,
            counter: self.counter,
            boot_id: "boot".into(),
            instance: "instance".into(),
            started_at: 0,
            host_version: self.version.to_string(),
            launcher_version: None,
            cause,
            declaration,
            resources: self.lines.clone(),
            held: vec![],
            strays: vec![],
            left_out: vec![],
            capabilities: vec![],
            probes: vec![],
            restarts: self.restarts,
            links: vec![],
            filters: vec![],
            firewalls: vec![],
            rollbacks: (self.rollbacks.iter())
                .map(|(module, digest)| RollbackVerdict {
                    component: module.to_string(),
                    from: digest.to_string(),
                    to: "nothing".into(),
                    outcome: "rolled-back".into(),
                    why: "a probe said no".into(),
                    at,
                })
                .collect(),
            witness: 1,
            marks: meshplan_schemas::report::Marks::default(),
            stale: false,
            paused: self.paused.clone(),
            epoch,
            rotations: vec![],
            policy_digest: None,
            clock_trusted: None,
            disk_free_bytes: None,
            load_hundredths: None,
            refused: vec![],
            take_requests: vec![],
        }
    }
}
