//! A fleet in memory: the engine's acts are applied to a snapshot as the store would, and simulated hosts take the
//! orders and answer looks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use meshplan_schemas::declaration::Declaration;
use meshplan_schemas::digest::Digest;
use meshplan_schemas::epoch::Epoch;
use meshplan_schemas::ident::{CommitId, KeyId, NodeId};
use meshplan_schemas::lifecycle::delivery::State;
use meshplan_schemas::lifecycle::epoch::EpochState;
use meshplan_schemas::report::{Cause, DeclarationState, Report};
use meshplan_schemas::resource::{Content, Kind};

use super::host::{Behaviour, SimHost};
pub(super) use super::trees::{node, tree};
use crate::pure::act::{Act, Order};
use crate::pure::compose::Composed;
use crate::pure::compose::former::Former;
use crate::pure::decide::look::{epoch_went_aside, went_aside};
use crate::pure::decide::{Contents, Known, NewCommit, Settings, Tree, decide};
use crate::pure::delivery::{Delivery, Transition};
use crate::pure::diff::proven;
use crate::pure::events::{self, Event};
use crate::pure::forge::revert::Revert;
use crate::pure::parts::{Branch, Left};
use crate::pure::signatures::Brought;
use crate::pure::snapshot::{HeadRef, Request, Snapshot, Verb};

#[derive(Clone)]
pub(super) struct World {
    pub(super) snapshot: Snapshot,
    pub(super) trees: BTreeMap<CommitId, Tree>,
    pub(super) contents: Contents,
    pub(super) settings: Settings,
    pub(super) now: Timestamp,
    pub(super) serving_since: Timestamp,
    pub(super) hosts: BTreeMap<NodeId, SimHost>,
    pub(super) transitions: Vec<Transition>,
    pub(super) events: Vec<Event>,
    pub(super) orders: BTreeMap<(&'static str, u64, Option<NodeId>), Digest>,
    pub(super) epochs: BTreeMap<u64, Epoch>,
    pub(super) declarations: Vec<Declaration>,
    /// Every delivery that ever was, as it last stood.
    pub(super) archive: BTreeMap<CommitId, Delivery>,
    /// How commits are signed, where a test says.
    pub(super) signatures: BTreeMap<CommitId, Vec<Brought>>,
    /// Under which sequence a node was given its order once more.
    repeated: BTreeMap<NodeId, u64>,
    /// Under which epoch a node was given its policy once more.
    repeated_epochs: BTreeMap<NodeId, u64>,
    /// Commits that their branch does not have any more.
    pub(super) left: Vec<Left>,
    /// Reverts that were to be proposed.
    pub(super) reverts: Vec<Revert>,
    commits: u32,
    /// A number was used twice; it is told and not asserted where somebody looks for that.
    pub(super) reused: bool,
    pub(super) tolerant: bool,
}

/// From now on a host does as told here.
pub(super) fn set(world: &mut World, n: u128, behaviour: Behaviour) {
    world.hosts.get_mut(&node(n)).unwrap().behaviour = behaviour;
}

impl World {
    /// A fleet of so many hosts that has delivered its first commit and is at rest.
    pub(super) fn at_rest(nodes: u128) -> Self {
        let mut world = Self::empty(nodes);
        let first = world.merge(tree(nodes, "one", &[("web", "one")]));
        world.run(200);
        assert_eq!(world.state(&first), State::Delivered);
        world
    }

    pub(super) fn empty(nodes: u128) -> Self {
        let now: Timestamp = "2026-11-29T12:00:00Z".parse().unwrap();
        let mut world = Self {
            snapshot: Snapshot {
                term: 1,
                ..Snapshot::default()
            },
            trees: BTreeMap::new(),
            contents: Contents::default(),
            settings: Settings {
                fleet: "sim".parse().unwrap(),
                repo: "fleet".into(),
                branch: "main".into(),
                era: 0,
                author: KeyId("author".into()),
                reconcilers: vec![],
                asks_forge: false,
                timestamp_keys: vec![],
            },
            now,
            serving_since: now,
            hosts: (1..=nodes).map(|n| (node(n), SimHost::new())).collect(),
            transitions: Vec::new(),
            events: Vec::new(),
            orders: BTreeMap::new(),
            epochs: BTreeMap::new(),
            declarations: Vec::new(),
            archive: BTreeMap::new(),
            signatures: BTreeMap::new(),
            repeated: BTreeMap::new(),
            repeated_epochs: BTreeMap::new(),
            left: Vec::new(),
            reverts: Vec::new(),
            commits: 0,
            reused: false,
            tolerant: false,
        };
        world.report_all();
        world
    }

    /// A machine is switched on for the first time, and says hello.
    pub(super) fn join(&mut self, n: u128) {
        self.hosts.insert(node(n), SimHost::new());
        self.report(node(n), Cause::Start);
    }

    pub(super) fn merge(&mut self, tree: Composed) -> CommitId {
        self.merge_tree(Tree::Composed(Arc::new(tree)))
    }

    /// A commit of a component, with the tree that it is part of.
    pub(super) fn merge_of(&mut self, repo: &str, tree: Composed) -> CommitId {
        let (commit, mut news) = self.new_commit(Tree::Composed(Arc::new(tree)), None);
        news.component = Some(Self::branch_of(repo));
        self.pass(&[news]);
        commit
    }

    pub(super) fn branch_of(repo: &str) -> Branch {
        Branch {
            repo: repo.to_owned(),
            branch: "main".to_owned(),
        }
    }

    /// A commit whose message lets things go (FR-12).
    pub(super) fn merge_allowing(&mut self, tree: Composed, why: &str) -> CommitId {
        self.merge_with(Tree::Composed(Arc::new(tree)), Some(why.to_owned()))
    }

    pub(super) fn merge_tree(&mut self, tree: Tree) -> CommitId {
        self.merge_with(tree, None)
    }

    fn merge_with(&mut self, tree: Tree, allows_removals: Option<String>) -> CommitId {
        let (commit, news) = self.new_commit(tree, allows_removals);
        self.pass(&[news]);
        commit
    }

    /// A commit that no pass has seen yet.
    pub(super) fn new_commit(
        &mut self,
        tree: Tree,
        allows_removals: Option<String>,
    ) -> (CommitId, NewCommit) {
        self.commits += 1;
        let commit: CommitId = format!("{:040x}", self.commits).parse().unwrap();
        self.trees.insert(commit.clone(), tree);
        let news = NewCommit {
            heard: Some(false),
            component: None,
            commit: commit.clone(),
            subject: format!("change {}", self.commits),
            author: "Dana".into(),
            allows_removals,
            rewritten: false,
        };
        (commit, news)
    }

    pub(super) fn say(&mut self, verb: Verb, commit: &CommitId) -> String {
        if let Some(delivery) = self.archive.get(commit) {
            self.snapshot
                .deliveries
                .entry(commit.clone())
                .or_insert_with(|| delivery.clone());
        }
        self.ask(verb, Some(commit.clone()), None)
    }

    /// A person asks for something; the answer.
    pub(super) fn ask(&mut self, verb: Verb, commit: Option<CommitId>, until: Option<Timestamp>) -> String {
        let request = Request {
            id: "r".into(),
            at: self.now,
            actor: "dana".into(),
            verb,
            commit,
            until,
            why: String::new(),
            start: None,
            by: None,
        };
        self.request(request)
    }

    /// The answer to what somebody asks for.
    pub(super) fn request(&mut self, request: Request) -> String {
        self.snapshot.requests.push(request);
        let act = self.decide(&[]);
        let answer = act.answers[0].1.clone();
        let looks = self.apply(act);
        self.answer(&looks);
        self.settle();
        answer
    }

    /// The content of modules as they were last accepted; a tree of this world has the same for every node.
    fn formers(&self) -> BTreeMap<CommitId, Former> {
        let of = |tree: &Composed| {
            let wanted = proven::wanted(tree, &self.snapshot).into_iter();
            wanted.flat_map(|(module, wanted)| {
                let Tree::Composed(then) = &self.trees[&wanted.commit] else {
                    panic!("accepted without a tree")
                };
                let made = then.nodes.values().find_map(|n| n.modules.get(&module)).cloned();
                let made = made.ok_or("that tree has nothing for it".to_owned());
                wanted
                    .nodes
                    .into_iter()
                    .map(move |id| ((module.clone(), id), made.clone()))
            })
        };
        let composed = self.trees.iter().filter_map(|(commit, tree)| match tree {
            Tree::Composed(tree) => Some((commit.clone(), of(tree).collect())),
            Tree::Invalid(_) | Tree::Gone(_) => None,
        });
        composed.collect()
    }

    pub(super) fn decide(&self, news: &[NewCommit]) -> Act {
        let formers = self.formers();
        let known = Known {
            snapshot: &self.snapshot,
            trees: &self.trees,
            contents: &self.contents,
            formers: &formers,
            signatures: &self.signatures,
            settings: &self.settings,
            news,
            left: &self.left,
            now: self.now,
            serving_since: self.serving_since,
        };
        decide(&known).expect("the engine decides")
    }

    pub(super) fn pass(&mut self, news: &[NewCommit]) {
        let act = self.decide(news);
        let looks = self.apply(act);
        self.answer(&looks);
        self.settle();
    }

    /// Passes until nothing is left to decide at this instant.
    pub(super) fn settle(&mut self) {
        for _ in 0..50 {
            let act = self.decide(&[]);
            if act.is_empty() {
                return;
            }
            let looks = self.apply(act);
            self.answer(&looks);
        }
        panic!("the engine does not come to rest");
    }

    /// Lets so many seconds pass, second by second.
    pub(super) fn run(&mut self, secs: u32) {
        for _ in 0..secs {
            self.now = super::super::after_secs(self.now, 1);
            self.hosts_act();
            self.settle();
        }
    }

    /// Stores an act as the store would, and hands its orders out; the looks that it asks for.
    pub(super) fn apply(&mut self, act: Act) -> Vec<(NodeId, u64)> {
        assert_eq!(act.counters_before, self.snapshot.counters);
        self.events.extend(events::of(&self.snapshot, &act, self.now));
        self.snapshot.counters = act.counters;
        self.reverts.extend(act.reverts);
        self.snapshot.requests.clear();
        for (digest, bytes) in act.contents {
            if let Ok(content) = serde_json::from_slice(&bytes) {
                self.contents.modules.insert(digest, Arc::new(content));
            } else if let Ok(content) = serde_json::from_slice(&bytes) {
                self.contents.policies.insert(digest, Arc::new(content));
            } else {
                let text: String = serde_json::from_slice(&bytes).unwrap();
                self.contents.texts.insert(digest, text.into());
            }
        }
        let assignments = Arc::make_mut(&mut self.snapshot.assignments);
        for (key, assignment) in act.assignments {
            match assignment {
                Some(assignment) => assignments.insert(key, assignment),
                None => assignments.remove(&key),
            };
        }
        self.snapshot.accepted.extend(act.accepted);
        if let Some(freeze) = act.freeze {
            self.snapshot.freeze = freeze;
        }
        for (key, bad) in act.known_bad {
            match bad {
                Some(bad) => self.snapshot.known_bad.insert(key, bad),
                None => self.snapshot.known_bad.remove(&key),
            };
        }
        Arc::make_mut(&mut self.snapshot.revoked).extend(act.revoked);
        if let Some(standing) = act.standing {
            self.snapshot.epochs = standing;
        }
        self.transitions.extend(act.transitions);
        for delivery in act.deliveries {
            self.archive.insert(delivery.commit.clone(), delivery.clone());
            self.snapshot.deliveries.insert(delivery.commit.clone(), delivery);
        }
        let newest = self.snapshot.deliveries.values().map(|d| d.order).max();
        self.snapshot
            .deliveries
            .retain(|_, d| !d.state.is_final() || Some(d.order) == newest || d.owes());
        for order in act.orders {
            self.publish(order);
        }
        self.repeated.extend(act.repeated);
        self.repeated_epochs.extend(act.repeated_epochs);
        let nodes: Vec<NodeId> = self.snapshot.nodes.keys().copied().collect();
        nodes.into_iter().for_each(|id| self.note_aside(id));
        act.looks.iter().map(|l| (l.node, l.id)).collect()
    }

    fn publish(&mut self, order: Order) {
        let (key, digest) = match &order {
            Order::Epoch { epoch } => (("epoch", epoch.epoch, None), Digest::of_value(epoch).unwrap()),
            Order::Head { head, .. } => (("list", head.revision, None), Digest::of_value(head).unwrap()),
            Order::Declaration { declaration: d } => (
                ("declaration", d.sequence, Some(d.node)),
                Digest::of_value(d).unwrap(),
            ),
        };
        let before = self.orders.insert(key, digest);
        assert!(
            before.is_none() || self.tolerant,
            "a number was used twice: {key:?}"
        );
        self.reused |= before.is_some();
        match order {
            Order::Epoch { epoch } => {
                self.epochs.insert(epoch.epoch, epoch);
            }
            Order::Head { head, .. } => {
                let digest = Digest::of_value(&head).unwrap();
                self.snapshot.head = Some(HeadRef {
                    revision: head.revision,
                    digest,
                    oldest_accepted: head.oldest_accepted,
                    revoked: head.revoked,
                    authors: head.authors,
                    reconcilers: head.reconcilers,
                });
            }
            Order::Declaration { declaration } => self.declarations.push(declaration),
        }
    }

    /// Every host that is on takes what is newest for it.
    fn hosts_act(&mut self) {
        let ids: Vec<NodeId> = self.hosts.keys().copied().collect();
        for id in ids {
            if self.host_acts(id) {
                self.report(id, Cause::Change);
            }
        }
    }

    /// A host takes what is newest for it; whether it has something to report.
    pub(super) fn host_acts(&mut self, id: NodeId) -> bool {
        let own = self.declarations.iter().filter(|d| d.node == id);
        let newest = own.max_by_key(|d| d.sequence).cloned();
        let epoch = self.epochs.values().next_back().cloned();
        self.host_takes(id, newest, epoch)
    }

    /// A host takes these orders; whether it has something to report.
    pub(super) fn host_takes(
        &mut self,
        id: NodeId,
        declaration: Option<Declaration>,
        epoch: Option<Epoch>,
    ) -> bool {
        let Some(host) = self.hosts.get_mut(&id) else {
            return false;
        };
        if host.behaviour == Behaviour::Off {
            return false;
        }
        let mut changed = false;
        if let Some(declaration) = declaration.filter(|d| host.heeds(d)) {
            let before = host.taken.clone();
            host.take(declaration, self.now);
            changed = host.taken != before;
        }
        if let Some(epoch) = epoch.filter(|_| host.paused.is_none()) {
            changed |= host.take_epoch(id, &epoch, &self.epochs);
        }
        changed
    }

    fn answer(&mut self, looks: &[(NodeId, u64)]) {
        for (id, look) in looks {
            if self.hosts.get(id).is_some_and(|h| h.behaviour != Behaviour::Off) {
                self.report(*id, Cause::Look(*look));
            }
        }
    }

    pub(super) fn report_all(&mut self) {
        let ids: Vec<NodeId> = self.hosts.keys().copied().collect();
        for id in ids {
            self.report(id, Cause::Start);
        }
    }

    fn report(&mut self, id: NodeId, cause: Cause) {
        if let Some(report) = self.says(id, cause) {
            self.hear(report);
        }
    }

    /// What a host says.
    pub(super) fn says(&mut self, id: NodeId, cause: Cause) -> Option<Report> {
        let host = self.hosts.get_mut(&id)?;
        host.counter += 1;
        Some(host.report(id, cause, self.now.as_second()))
    }

    /// The store takes a report: an older one never replaces a newer one.
    pub(super) fn hear(&mut self, report: Report) {
        let now = self.now;
        self.snapshot.connected.insert(report.node);
        let state = Arc::make_mut(&mut self.snapshot.nodes)
            .entry(report.node)
            .or_default();
        let newer =
            |known: &Option<Report>| known.as_ref().is_none_or(|known| known.counter < report.counter);
        if matches!(report.cause, Cause::Look(_)) && newer(&state.look) {
            state.look = Some(report.clone());
            state.look_at = Some(now);
        }
        let node = report.node;
        if newer(&state.report) {
            state.heard_at = Some(now);
            state.report = Some(report);
        }
        self.note_aside(node);
    }

    /// As the store tells which orders went back and were not given once more.
    fn note_aside(&mut self, id: NodeId) {
        let report = self.snapshot.nodes.get(&id).and_then(|n| n.report.as_ref());
        let ordered = self
            .declarations
            .iter()
            .filter(|d| d.node == id)
            .map(|d| d.sequence)
            .max();
        let aside = report
            .and_then(went_aside)
            .filter(|sequence| Some(*sequence) == ordered);
        let repeated = self.repeated.get(&id).copied().unwrap_or_default();
        match aside.filter(|sequence| repeated < *sequence) {
            Some(sequence) => self.snapshot.aside.insert(id, sequence),
            None => self.snapshot.aside.remove(&id),
        };
        let standing = |number: &u64| self.snapshot.epochs.iter().any(|e| e.epoch == *number);
        let aside = report.and_then(epoch_went_aside).filter(standing);
        let repeated = self.repeated_epochs.get(&id).copied().unwrap_or_default();
        match aside.filter(|epoch| repeated < *epoch) {
            Some(epoch) => self.snapshot.aside_epochs.insert(id, epoch),
            None => self.snapshot.aside_epochs.remove(&id),
        };
    }

    /// Whether what a machine was given once more went back too: then nobody orders it a third time (DL-13).
    pub(super) fn went_back_twice(&self, id: NodeId) -> bool {
        let host = &self.hosts[&id];
        let given = |repeated: &BTreeMap<NodeId, u64>, number: u64| repeated.get(&id) == Some(&number);
        let declaration = host.taken.as_ref().is_some_and(|(sequence, state, _)| {
            *state == DeclarationState::Reverted && given(&self.repeated, *sequence)
        });
        let epoch = host.epoch_state.as_ref().is_some_and(|(number, state, _)| {
            *state == EpochState::Reverted && given(&self.repeated_epochs, *number)
        });
        declaration || epoch
    }

    pub(super) fn switch_off(&mut self, n: u128) {
        self.hosts.get_mut(&node(n)).unwrap().behaviour = Behaviour::Off;
        self.snapshot.connected.remove(&node(n));
    }

    pub(super) fn state(&self, commit: &CommitId) -> State {
        self.archive[commit].state
    }

    pub(super) fn codes(&self, commit: &CommitId) -> Vec<String> {
        let of = self.transitions.iter().filter(|t| t.commit == *commit);
        of.map(|t| format!("{} ({})", t.to, t.code)).collect()
    }

    /// The text that a host's confirmed declaration has for a module.
    pub(super) fn runs(&self, n: u128, module: &str) -> Option<String> {
        let declaration = self.hosts[&node(n)].confirmed.as_ref()?;
        let resource = declaration
            .resources
            .iter()
            .find(|r| r.name.module.as_str() == module)?;
        let Ok(Kind::File(file)) = resource.read() else {
            panic!("a file")
        };
        match file.content {
            Content::Text(text) => Some(text),
            Content::Base64(_) | Content::Sealed(_) => None,
        }
    }

    /// The policy that a host runs.
    pub(super) fn policy(&self, n: u128) -> Option<String> {
        self.hosts[&node(n)]
            .running
            .map(|number| self.epochs[&number].policy.clone())
    }

    pub(super) fn sequences_of(&self, n: u128) -> BTreeSet<u64> {
        self.declarations
            .iter()
            .filter(|d| d.node == node(n))
            .map(|d| d.sequence)
            .collect()
    }
}
