//! A moment of the model: what the store has, what the hosts have, what is on its way between them, and what was seen
//! broken on the way here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};

use jiff::Timestamp;
use meshplan_schemas::digest::Digest;
use meshplan_schemas::fleet_list::UpdateClass;
use meshplan_schemas::ident::{CommitId, NodeId};
use meshplan_schemas::lifecycle::delivery::{Code, State as Of};
use meshplan_schemas::report::{Cause, Report};

use super::NODES;
use crate::pure::decide::NewCommit;
use crate::pure::decide::tests::host::{Behaviour, SimHost};
use crate::pure::decide::tests::world::{World, node, set};
use crate::pure::delivery::{Delivery, VerdictWord};
use crate::pure::guard::Guard;
use crate::pure::guard::removed::without;
use crate::pure::scope::Scope;

/// How many of each fault there were.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Faults {
    pub(super) lost: u8,
    pub(super) doubled: u8,
    pub(super) reordered: u8,
    pub(super) links: u8,
    pub(super) restarts: u8,
}

#[derive(Clone)]
pub(super) struct Moment {
    pub(super) world: World,
    /// The newest look that each host was asked for and has not answered.
    pub(super) looks: BTreeMap<NodeId, u64>,
    /// What each host said and nobody heard yet.
    pub(super) spool: BTreeMap<NodeId, VecDeque<Report>>,
    pub(super) faults: Faults,
    pub(super) merged: Vec<CommitId>,
    pub(super) due: Option<Timestamp>,
    /// Content that failed, as machines have it, and was taken back.
    pub(super) taken_back: BTreeSet<(Scope, Digest)>,
    /// Invariants that were seen broken on the way here.
    pub(super) broken: BTreeSet<&'static str>,
    /// Which story it is, and whether a guard is away.
    pub(super) story: usize,
    pub(super) without: Option<Guard>,
}

impl std::fmt::Debug for Moment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let states: Vec<String> = self
            .world
            .archive
            .values()
            .map(|d| format!("{}: {}", d.commit.short(), d.state))
            .collect();
        write!(
            f,
            "story {} at {}: {states:?}, broken {:?}",
            self.story, self.world.now, self.broken
        )
    }
}

/// Two moments are one when store, hosts and wire are the same: what was told of the way does not count.
impl Hash for Moment {
    fn hash<H: Hasher>(&self, to: &mut H) {
        let snapshot = &self.world.snapshot;
        let hosts: Vec<_> = (self.world.hosts.values())
            .map(|h| {
                (
                    &h.taken,
                    h.confirmed.as_ref().map(|d| d.sequence),
                    h.running,
                    &h.epoch_state,
                    h.lost_link,
                )
            })
            .collect();
        let heard: Vec<_> = (snapshot.nodes.values())
            .map(|n| {
                (
                    n.report.as_ref().map(|r| (r.counter, &r.declaration, &r.epoch)),
                    n.look.as_ref().map(|r| (r.counter, &r.cause)),
                )
            })
            .collect();
        let spool: Vec<_> = self
            .spool
            .values()
            .map(|q| q.iter().map(|r| (r.counter, &r.declaration)).collect::<Vec<_>>())
            .collect();
        let text = format!(
            "{:?} {:?} {:?} {:?} {:?} {:?} {hosts:?} {heard:?} {spool:?} {:?} {:?} {:?}",
            snapshot.deliveries,
            snapshot.assignments,
            snapshot.epochs,
            snapshot.known_bad,
            snapshot.accepted,
            (&snapshot.aside, &snapshot.aside_epochs),
            self.looks,
            self.due,
            self.world.serving_since
        );
        text.hash(to);
        (
            self.world.now,
            &self.faults,
            &self.merged,
            &self.broken,
            self.story,
        )
            .hash(to);
    }
}

impl PartialEq for Moment {
    fn eq(&self, other: &Self) -> bool {
        let of = |moment: &Self| {
            let mut hasher = std::hash::DefaultHasher::new();
            moment.hash(&mut hasher);
            hasher.finish()
        };
        of(self) == of(other)
    }
}

impl Moment {
    /// Passes until nothing is left to decide; looks go on the wire.
    pub(super) fn pass(&mut self, news: &[NewCommit]) {
        let mut news = news;
        for _ in 0..30 {
            let act = without(self.without, || self.world.decide(news));
            self.due = act.next_at;
            if act.is_empty() {
                self.check_deliveries();
                return;
            }
            self.see(&act.orders);
            let looks = self.world.apply(act);
            self.looks.extend(looks);
            news = &[];
        }
        self.broken.insert("the engine comes to rest");
    }

    /// Aborted content goes out again only on a word (RO-9).
    fn see(&mut self, orders: &[crate::pure::act::Order]) {
        use crate::pure::act::Order;
        for order in orders {
            let bad = match order {
                Order::Declaration { declaration } => (declaration.modules.iter()).any(|m| {
                    self.taken_back
                        .contains(&(Scope::Module(m.module.clone()), m.digest))
                }),
                Order::Epoch { epoch } => self
                    .taken_back
                    .contains(&(Scope::Policy, Digest::of(epoch.policy.as_bytes()))),
                Order::Head { .. } => false,
            };
            if bad {
                self.broken.insert(AGAIN);
            }
        }
    }

    /// What deliveries promise, beside what the hosts really have.
    fn check_deliveries(&mut self) {
        let deliveries: Vec<Delivery> = self.world.archive.values().cloned().collect();
        for delivery in &deliveries {
            let Some(walk) = &delivery.walk else { continue };
            let failed = matches!(delivery.state, Of::RollingBack | Of::RolledBack)
                && delivery.code == Code::StageFailed;
            if failed {
                for leg in &delivery.legs {
                    let new = leg.before != Some(leg.digest);
                    match leg.scope {
                        Scope::Module(_) => {
                            let after = leg
                                .nodes
                                .values()
                                .filter(|c| c.before != c.after)
                                .filter_map(|c| c.after);
                            self.taken_back
                                .extend(after.map(|digest| (leg.scope.clone(), digest)));
                        }
                        Scope::Policy if new => {
                            self.taken_back.insert((Scope::Policy, leg.digest));
                        }
                        _ => {}
                    }
                }
            }
            let behind = |id: &NodeId| walk.classes.get(id) == Some(&UpdateClass::LeftBehind);
            if !delivery.state.is_final() && walk.reached.keys().any(behind) {
                self.broken.insert(BEHIND);
            }
            if delivery.state == Of::Delivered {
                for (id, machine) in walk.stages.iter().flat_map(|s| &s.machines) {
                    let host = &self.world.hosts[id];
                    let has = host.confirmed.as_ref().map_or(0, |d| d.sequence) >= machine.sequence
                        && host.running.unwrap_or(0) >= machine.epoch;
                    let passed = machine
                        .verdict
                        .as_ref()
                        .is_some_and(|v| v.word == VerdictWord::Passed);
                    let awaited = !walk.classes.contains_key(id);
                    if (awaited && !passed) || (passed && !has) {
                        self.broken.insert(CONFIRMED);
                    }
                }
            }
        }
        let open = deliveries.iter().filter(|d| d.has_begun() && !d.state.is_final());
        let mut carried = BTreeSet::new();
        for id in open.flat_map(|d| d.walk.iter().flat_map(|w| w.reached.keys())) {
            if !carried.insert(*id) {
                self.broken.insert(ONE);
            }
        }
    }

    pub(super) fn takes(&mut self, n: u128, behaviour: Behaviour) -> Option<Report> {
        let id = node(n);
        let before = self.world.hosts[&id].clone();
        set(&mut self.world, n, behaviour);
        let news = self.world.host_acts(id);
        self.world.hosts.get_mut(&id).unwrap().behaviour = before.behaviour;
        let after = &self.world.hosts[&id];
        let sequence = |host: &SimHost| host.confirmed.as_ref().map_or(0, |d| d.sequence);
        if sequence(after) < sequence(&before) {
            self.broken.insert(OLDER);
        }
        news.then(|| self.world.says(id, Cause::Change)).flatten()
    }

    pub(super) fn unheard(&mut self, report: Report) {
        self.spool.entry(report.node).or_default().push_back(report);
    }

    pub(super) fn hears(&mut self, report: Report) {
        // What a host said before is heard before, unless a fault says otherwise.
        self.unheard(report.clone());
        while let Some(next) = self.spool.get_mut(&report.node).and_then(VecDeque::pop_front) {
            self.world.hear(next);
        }
        self.pass(&[]);
    }

    /// Whether everything comes to a good end from here when nothing goes wrong any more: time passes, everyone answers
    /// and takes what it is given.
    pub(super) fn comes_to_an_end(&self) -> Result<(), &'static str> {
        let mut then = self.clone();
        for _ in 0..200 {
            let mut news = false;
            for n in 1..=NODES {
                if let Some(report) = then.takes(n, Behaviour::Good) {
                    then.unheard(report);
                    news = true;
                }
                if let Some(look) = then.looks.remove(&node(n)) {
                    let report = then.world.says(node(n), Cause::Look(look)).unwrap();
                    then.unheard(report);
                    news = true;
                }
                while let Some(report) = then.spool.get_mut(&node(n)).and_then(VecDeque::pop_front) {
                    then.world.hear(report);
                    news = true;
                }
            }
            then.pass(&[]);
            if news {
                continue;
            }
            match then.due {
                Some(due) => then.world.now = due.max(then.world.now),
                None => break,
            }
            then.pass(&[]);
        }
        let ends = |d: &Delivery| d.state.is_final() || d.state == Of::Held;
        if !then.world.archive.values().all(ends) {
            return Err(ENDS);
        }
        let stopped = then.world.archive.values().any(|d| d.state == Of::Held);
        for (id, host) in &then.world.hosts {
            if then.world.went_back_twice(*id) {
                continue;
            }
            let its = then
                .world
                .snapshot
                .epochs
                .iter()
                .find(|e| e.targeting.addresses(*id, &[]));
            let policy = host.running.map(|number| &then.world.epochs[&number].policy);
            let runs = policy.map(|policy| Digest::of(policy.as_bytes()));
            if !stopped && its.map(|e| e.policy) != runs {
                return Err(FORMER);
            }
            let assigned = then
                .world
                .snapshot
                .assignments
                .iter()
                .filter(|((of, _), _)| of == id);
            let assigned: BTreeSet<Digest> = assigned
                .filter(|((_, scope), _)| matches!(scope, Scope::Module(_)))
                .filter_map(|(_, a)| Some(a.assigned.as_ref()?.digest))
                .collect();
            let has = host
                .confirmed
                .iter()
                .flat_map(|d| d.modules.iter().map(|m| m.digest));
            if !stopped && has.collect::<BTreeSet<_>>() != assigned {
                return Err(FORMER);
            }
            let policies = then.world.snapshot.assignments.get(&(*id, Scope::Policy));
            let proven = policies.is_some_and(|a| a.assigned == a.proven);
            if !stopped && !proven {
                return Err(FORMER);
            }
        }
        then.broken.iter().next().map_or(Ok(()), |broken| Err(*broken))
    }
}

pub(super) const TWICE: &str = "nothing is signed twice under a number";
pub(super) const OLDER: &str = "no node confirms content older than what it confirmed";
pub(super) const AGAIN: &str = "aborted content goes out again only on a word";
pub(super) const CONFIRMED: &str = "a complete walk has every machine confirmed";
pub(super) const ONE: &str = "a machine carries at most one unproven delivery";
pub(super) const BEHIND: &str = "a machine that is left behind is in no walk";
pub(super) const ENDS: &str = "every walk ends or is held with a person named";
pub(super) const FORMER: &str = "every reached machine comes to what is assigned to it";
