//! The model check of RO-9: the engine with both payloads, three nodes, two deliveries, and at most two of each fault,
//! in every order in which they can happen.
//!
//! The engine is the one that the daemon runs; a state is all that the store has, all that the hosts have, and what is on
//! its way between them. [`stateright`] walks the states breadth first up to a depth, and at random beyond. Depth and
//! walks are set by `MESHPLAN_MODEL_DEPTH` and `MESHPLAN_MODEL_WALKS`; `docs/model.md` has the count of a deep run.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use meshplan_schemas::fleet_list::UpdateClass;
use meshplan_schemas::lifecycle::delivery::State as Of;
use meshplan_schemas::report::Cause;
use stateright::{Checker, HasDiscoveries, Model, Property, UniformChooser};

use super::host::Behaviour;
use super::world::{World, node, set, tree};
use crate::pure::compose::Composed;
use crate::pure::decide::Tree;
use crate::pure::guard::Guard;
use crate::pure::guard::removed::without;
use moment::{AGAIN, BEHIND, CONFIRMED, ENDS, FORMER, Faults, Moment, OLDER, ONE, TWICE};

mod moment;

const NODES: u128 = 3;
/// The story in which the third machine is left behind.
const LEFT_BEHIND_STORY: usize = 3;
/// The story of two policies in which nobody waits for the third machine.
const BEST_EFFORT_STORY: usize = 4;
/// How often each fault may happen.
const FAULTS: u8 = 2;

/// What can happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Happens {
    /// The next commit is merged.
    Merge,
    /// A host takes what is newest for it, and its report is heard.
    Take(u128),
    /// It takes what another machine may fail, and it stays.
    TakeWell(u128),
    /// It takes it, and what it says of that is not heard yet.
    TakeUnheard(u128),
    /// It takes it, and goes back because of its link.
    TakeLosingLink(u128),
    /// A host is handed an order that it had before, or an older one.
    Old(u128),
    /// A host answers a look, and is heard.
    Answer(u128),
    /// It answers, and is not heard yet.
    AnswerUnheard(u128),
    /// A look is lost.
    LoseLook(u128),
    /// What a host said longest ago is heard.
    Hear(u128),
    /// It is heard twice.
    HearTwice(u128),
    /// What it said last is heard before what it said first.
    HearLast(u128),
    /// A host's process dies and starts.
    RestartHost(u128),
    /// The reconciler's process dies and starts.
    RestartReconciler,
    /// Time passes until the engine is due.
    Tick,
}

/// A tree whose stages want one healthy look, so that a walk has few steps.
fn fleet(policy: &str, web: &str, third: UpdateClass) -> Tree {
    let mut tree: Composed = tree(NODES, policy, &[("web", web)]);
    for plan in tree.plans.values_mut() {
        for stage in &mut plan.stages {
            stage.healthy.as_mut().unwrap().times = 1;
        }
    }
    let mut nodes: BTreeMap<_, _> = tree.nodes.iter().map(|(id, of)| (*id, of.clone())).collect();
    let mut classed = (*nodes[&node(3)]).clone();
    classed.update_class = third;
    nodes.insert(node(3), Arc::new(classed));
    tree.nodes = nodes.into_iter().collect();
    Tree::Composed(Arc::new(tree))
}

/// The class of the third machine in a story.
fn third(story: usize) -> UpdateClass {
    match story {
        LEFT_BEHIND_STORY => UpdateClass::LeftBehind,
        BEST_EFFORT_STORY => UpdateClass::BestEffort,
        _ => UpdateClass::Required,
    }
}

/// What is merged in each story: a module that may fail and one that mends it, the same content once more, both payloads
/// of which one may fail, a fleet with a machine that is left behind, and two policies over one that nobody waits for.
fn stories() -> Vec<[Tree; 2]> {
    let texts = [
        [("one", "bad"), ("one", "three")],
        [("one", "bad"), ("one", "bad")],
        [("bad", "two"), ("two", "two")],
        [("two", "two"), ("two", "three")],
        [("two", "one"), ("three", "one")],
    ];
    let stories = texts.into_iter().enumerate();
    stories
        .map(|(story, commits)| commits.map(|(policy, web)| fleet(policy, web, third(story))))
        .collect()
}

struct Engine {
    stories: Vec<[Tree; 2]>,
    at_rest: Vec<World>,
    only: Option<usize>,
    without: Option<Guard>,
}

impl Engine {
    fn new(only: Option<usize>, without: Option<Guard>) -> Self {
        let stories = stories();
        let at_rest = (0..stories.len())
            .map(|story| {
                if only.is_some_and(|only| only != story) {
                    return World::empty(NODES);
                }
                let mut world = World::empty(NODES);
                let first = world.merge_tree(fleet("one", "one", third(story)));
                world.run(900);
                assert_eq!(world.state(&first), Of::Delivered);
                // Every machine may fail what is bad: whether it does is one of the things that can happen.
                (1..=NODES).for_each(|n| set(&mut world, n, Behaviour::Fails));
                world.tolerant = true;
                world
            })
            .collect();
        Self {
            stories,
            at_rest,
            only,
            without,
        }
    }
}

impl Engine {
    /// Where this way leads.
    fn goes(&self, way: impl IntoIterator<Item = Happens>) -> Moment {
        let start = self.init_states().remove(0);
        way.into_iter().fold(start, |now, happens| {
            let next = self.next_state(&now, happens);
            next.unwrap_or_else(|| panic!("{happens:?} cannot happen"))
        })
    }
}

impl Model for Engine {
    type State = Moment;
    type Action = Happens;

    fn init_states(&self) -> Vec<Moment> {
        let stories = (0..self.stories.len()).filter(|story| self.only.is_none_or(|only| only == *story));
        stories
            .map(|story| Moment {
                world: self.at_rest[story].clone(),
                looks: BTreeMap::new(),
                spool: BTreeMap::new(),
                faults: Faults::default(),
                merged: Vec::new(),
                due: None,
                taken_back: BTreeSet::new(),
                broken: BTreeSet::new(),
                story,
                without: self.without,
            })
            .collect()
    }

    fn actions(&self, now: &Moment, actions: &mut Vec<Happens>) {
        let left = |spent: u8| spent < FAULTS;
        let faults = &now.faults;
        if now.merged.len() < 2 {
            actions.push(Happens::Merge);
        }
        for n in 1..=NODES {
            let id = node(n);
            let own = now.world.declarations.iter().filter(|d| d.node == id);
            let newest = own.max_by_key(|d| d.sequence);
            let host = &now.world.hosts[&id];
            let epochs = now.world.epochs.keys().next_back();
            if newest.is_some_and(|d| host.wants(d)) || epochs > host.epochs.keys().next_back() {
                actions.push(Happens::Take(n));
                let bad = newest.is_some_and(|d| format!("{:?}", d.resources).contains("bad"));
                if bad || now.story == 2 {
                    actions.push(Happens::TakeWell(n));
                }
                actions.push(Happens::TakeUnheard(n));
                if left(faults.links) {
                    actions.push(Happens::TakeLosingLink(n));
                }
            } else if left(faults.doubled) {
                actions.push(Happens::Old(n));
            }
            if now.looks.contains_key(&id) {
                actions.push(Happens::Answer(n));
                actions.push(Happens::AnswerUnheard(n));
                if left(faults.lost) {
                    actions.push(Happens::LoseLook(n));
                }
            }
            let waiting = now.spool.get(&id).map_or(0, VecDeque::len);
            if waiting > 0 {
                actions.push(Happens::Hear(n));
                if left(faults.doubled) {
                    actions.push(Happens::HearTwice(n));
                }
            }
            if waiting > 1 && left(faults.reordered) {
                actions.push(Happens::HearLast(n));
            }
            if left(faults.restarts) {
                actions.push(Happens::RestartHost(n));
            }
        }
        if left(faults.restarts) {
            actions.push(Happens::RestartReconciler);
        }
        if now.due.is_some_and(|due| due > now.world.now) {
            actions.push(Happens::Tick);
        }
    }

    fn next_state(&self, last: &Moment, action: Happens) -> Option<Moment> {
        let mut now = last.clone();
        match action {
            Happens::Merge => {
                let tree = self.stories[now.story][now.merged.len()].clone();
                let (commit, news) = now.world.new_commit(tree, None);
                now.merged.push(commit);
                now.pass(&[news]);
            }
            Happens::Take(n) => {
                let report = now.takes(n, Behaviour::Fails)?;
                now.hears(report);
            }
            Happens::TakeWell(n) => {
                let report = now.takes(n, Behaviour::Good)?;
                now.hears(report);
            }
            Happens::TakeUnheard(n) => {
                let report = now.takes(n, Behaviour::Fails)?;
                now.unheard(report);
            }
            Happens::TakeLosingLink(n) => {
                now.faults.links += 1;
                now.world.hosts.get_mut(&node(n))?.lost_link = false;
                let report = now.takes(n, Behaviour::LosesLinkOnce)?;
                now.hears(report);
            }
            Happens::Old(n) => {
                now.faults.doubled += 1;
                let own = now.world.declarations.iter().filter(|d| d.node == node(n));
                let old = own.min_by_key(|d| d.sequence).cloned();
                let epoch = now.world.epochs.values().next().cloned();
                let before = now.world.hosts[&node(n)]
                    .confirmed
                    .as_ref()
                    .map_or(0, |d| d.sequence);
                let news = without(now.without, || now.world.host_takes(node(n), old, epoch));
                let after = now.world.hosts[&node(n)]
                    .confirmed
                    .as_ref()
                    .map_or(0, |d| d.sequence);
                if news || after < before {
                    now.broken.insert(OLDER);
                }
            }
            Happens::Answer(n) | Happens::AnswerUnheard(n) => {
                let look = now.looks.remove(&node(n))?;
                let report = now.world.says(node(n), Cause::Look(look))?;
                if matches!(action, Happens::Answer(_)) {
                    now.hears(report);
                } else {
                    now.unheard(report);
                }
            }
            Happens::LoseLook(n) => {
                now.faults.lost += 1;
                now.looks.remove(&node(n));
            }
            Happens::Hear(n) => {
                let report = now.spool.get_mut(&node(n))?.pop_front()?;
                now.world.hear(report);
                now.pass(&[]);
            }
            Happens::HearTwice(n) => {
                now.faults.doubled += 1;
                let report = now.spool.get_mut(&node(n))?.front()?.clone();
                now.world.hear(report.clone());
                now.pass(&[]);
                now.world.hear(report);
                now.pass(&[]);
            }
            Happens::HearLast(n) => {
                now.faults.reordered += 1;
                let report = now.spool.get_mut(&node(n))?.pop_back()?;
                now.world.hear(report);
                now.pass(&[]);
            }
            Happens::RestartHost(n) => {
                now.faults.restarts += 1;
                now.looks.remove(&node(n));
                let report = now.world.says(node(n), Cause::Start)?;
                now.hears(report);
            }
            Happens::RestartReconciler => {
                now.faults.restarts += 1;
                now.looks.clear();
                now.world.serving_since = now.world.now;
                now.pass(&[]);
            }
            Happens::Tick => {
                now.world.now = now.due?;
                now.pass(&[]);
            }
        }
        if now.world.reused {
            now.broken.insert(TWICE);
        }
        Some(now)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        fn unbroken<const N: usize>(_: &Engine, now: &Moment) -> bool {
            const ALL: [&str; 6] = [TWICE, OLDER, AGAIN, CONFIRMED, ONE, BEHIND];
            !now.broken.contains(ALL[N])
        }
        /// A part of the states, so that looking ahead from them costs no more than getting there.
        fn looked_ahead(now: &Moment) -> bool {
            let mut hasher = std::hash::DefaultHasher::new();
            now.hash(&mut hasher);
            hasher.finish().is_multiple_of(16)
        }
        fn ends(_: &Engine, now: &Moment) -> bool {
            !looked_ahead(now) || now.comes_to_an_end() != Err(ENDS)
        }
        fn former(_: &Engine, now: &Moment) -> bool {
            !looked_ahead(now) || matches!(now.comes_to_an_end(), Ok(()) | Err(ENDS))
        }
        vec![
            Property::always(TWICE, unbroken::<0>),
            Property::always(OLDER, unbroken::<1>),
            Property::always(AGAIN, unbroken::<2>),
            Property::always(CONFIRMED, unbroken::<3>),
            Property::always(ONE, unbroken::<4>),
            Property::always(BEHIND, unbroken::<5>),
            Property::always(ENDS, ends),
            Property::always(FORMER, former),
        ]
    }
}

fn number(name: &str, otherwise: usize) -> usize {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

// holds: RO-9
#[test]
fn in_every_order_of_events_up_to_a_depth_the_invariants_hold() {
    let depth = number("MESHPLAN_MODEL_DEPTH", 5);
    let checked = Engine::new(None, None)
        .checker()
        .threads(2)
        .target_max_depth(depth)
        .spawn_bfs()
        .join();
    println!(
        "depth {depth}: {} states, {} of them unlike",
        checked.state_count(),
        checked.unique_state_count()
    );
    checked.assert_properties();
}

// holds: RO-9
#[test]
fn random_walks_far_beyond_that_depth_break_nothing() {
    let states = number("MESHPLAN_MODEL_WALKS", 4_000);
    let walked = Engine::new(None, None)
        .checker()
        .threads(2)
        .target_max_depth(70)
        .target_state_count(states)
        .spawn_simulation(7, UniformChooser)
        .join();
    println!(
        "{} states of random walks up to depth {}",
        walked.state_count(),
        walked.max_depth()
    );
    walked.assert_properties();
}

/// Without the guard this invariant is found broken.
fn is_missed(guard: Guard, story: usize, invariant: &'static str) {
    let checked = Engine::new(Some(story), Some(guard))
        .checker()
        .threads(2)
        .target_max_depth(70)
        .target_state_count(60_000)
        .finish_when(HasDiscoveries::AnyOf(BTreeSet::from([invariant])))
        .spawn_simulation(11, UniformChooser)
        .join();
    let found: Vec<&str> = checked.discoveries().into_keys().collect();
    assert!(
        found.contains(&invariant),
        "without {guard:?} only {found:?} of {} states",
        checked.state_count()
    );
}

// holds: RO-9, SG-8
#[test]
fn without_new_numbers_something_is_signed_twice() {
    is_missed(Guard::NewNumbers, 0, TWICE);
}

// holds: RO-9, EP-3
#[test]
fn without_its_heed_of_numbers_a_machine_confirms_what_is_older() {
    is_missed(Guard::HigherNumbers, 0, OLDER);
}

// holds: RO-9, DL-5
#[test]
fn without_asking_for_its_own_order_a_walk_is_complete_and_a_machine_is_not() {
    is_missed(Guard::OwnOrder, 3, CONFIRMED);
}

// holds: RO-9, RO-1
#[test]
fn without_waiting_for_verdicts_a_walk_is_complete_and_a_machine_is_not() {
    is_missed(Guard::Verdicts, 3, CONFIRMED);
}

// holds: RO-9, DL-14
#[test]
fn without_remembering_what_failed_it_goes_out_again() {
    is_missed(Guard::Remembered, 1, AGAIN);
}

// holds: RO-9, DL-3
#[test]
fn without_waiting_for_the_other_delivery_a_machine_carries_two() {
    is_missed(Guard::OneAtATime, 0, ONE);
}

// holds: RO-9, DL-7
#[test]
fn without_what_was_addressed_a_reached_machine_keeps_what_was_taken_back() {
    is_missed(Guard::Addressed, 0, FORMER);
}

// Random walks seldom find it: the link of the canary must go twice, and must not be what its order did.
// holds: RO-9, RO-4
#[test]
fn without_a_deadline_a_walk_does_not_end() {
    let way = [
        Happens::Merge,
        Happens::Tick,
        Happens::RestartReconciler,
        Happens::TakeLosingLink(1),
        Happens::TakeLosingLink(1),
    ];
    for (guard, comes) in [(None, Ok(())), (Some(Guard::Deadline), Err(ENDS))] {
        let engine = Engine::new(Some(0), guard);
        let now = engine.goes(way);
        assert_eq!(now.comes_to_an_end(), comes, "without {guard:?}");
    }
}

// holds: RO-9, UC-1
#[test]
fn without_their_exception_machines_that_are_left_behind_are_walked() {
    is_missed(Guard::LeftBehind, LEFT_BEHIND_STORY, BEHIND);
}

// holds: RO-9, DL-13
#[test]
fn without_an_order_once_more_a_machine_that_nobody_waits_for_keeps_the_former_policy() {
    is_missed(Guard::OnceMore, BEST_EFFORT_STORY, FORMER);
}

// A way that random walks found: the canary is outstanding with its declaration when a newer delivery walks its policy
// alone, and loses its link while it goes back. It must be ordered once more all the same.
// holds: RO-9, DL-7
#[test]
fn a_machine_that_is_outstanding_with_one_payload_is_served_while_a_newer_delivery_walks_the_other() {
    let engine = Engine::new(Some(2), None);
    let way = [
        Happens::Merge,
        Happens::Tick,
        Happens::LoseLook(1),
        Happens::Merge,
        Happens::TakeWell(2),
        Happens::TakeUnheard(1),
        Happens::TakeUnheard(3),
        Happens::Hear(1),
        Happens::Hear(3),
        Happens::Tick,
        Happens::Tick,
        Happens::Tick,
        Happens::Answer(1),
        Happens::TakeLosingLink(2),
        Happens::TakeLosingLink(1),
        Happens::TakeUnheard(3),
        Happens::Tick,
        Happens::Hear(3),
    ];
    let restart = [Happens::RestartReconciler];
    let now = engine.goes(restart.into_iter().chain(way));
    assert_eq!(now.comes_to_an_end(), Ok(()));
}
