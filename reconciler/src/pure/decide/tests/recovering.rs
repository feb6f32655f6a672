//! After the database was lost: who is asked, what is answered, and that nothing is ordered before (SG-8).

use std::collections::BTreeMap;

use meshplan_schemas::lifecycle::delivery::State;
use meshplan_schemas::report::{Cause, Mark};

use super::world::{World, node, tree};
use crate::pure::act::{Act, Order};
use crate::pure::recover::waiting::{Begun, Numbers, Recovering};
use crate::pure::snapshot::{Request, Verb};

const LOOK: u64 = 9_000;

/// A fleet of three at rest that has lost its database: nobody was heard since.
fn lost() -> World {
    let mut world = World::at_rest(3);
    world.snapshot.epochs.clear();
    world.snapshot.recovering = Some(Recovering {
        since: world.now,
        look: LOOK,
        blocks: 4,
        numbers: Numbers {
            epoch: 2,
            revision: 2,
            sequence: 2,
        },
        forced: None,
        partial: Default::default(),
        walks: BTreeMap::new(),
    });
    world
}

fn ask(world: &mut World, verb: Verb) {
    let id = format!("request {}", world.snapshot.requests.len());
    world.snapshot.requests.push(Request {
        id,
        at: world.now,
        actor: "dana".into(),
        verb,
        commit: None,
        until: None,
        why: String::new(),
        start: None,
        by: None,
    });
}

/// A machine answers the look of the recovery, with this mark.
fn answers(world: &mut World, n: u128, sequence: u64) {
    let mut report = world.says(node(n), Cause::Look(LOOK)).unwrap();
    report.marks.sequence = Some(Mark {
        number: sequence,
        digest: meshplan_schemas::digest::Digest::of(b""),
    });
    world.hear(report);
}

fn signs_nothing(act: &Act) {
    assert!(
        !act.recovered && act.orders.is_empty() && act.transitions.is_empty() && act.deliveries.is_empty()
    );
    assert_eq!(act.counters, act.counters_before);
}

// holds: SG-8
#[test]
fn nothing_is_signed_whatever_anybody_says_before_every_required_machine_was_heard() {
    let mut world = lost();
    for verb in [Verb::Go, Verb::Withdraw, Verb::Freeze, Verb::Lift, Verb::Abort] {
        ask(&mut world, verb);
    }
    for n in 1..=2 {
        let act = world.decide(&[]);
        signs_nothing(&act);
        assert_eq!(
            act.looks.len(),
            usize::try_from(4 - n).unwrap(),
            "who was heard is not asked"
        );
        assert!(act.looks.iter().all(|look| look.id == LOOK));
        assert!(
            act.answers
                .iter()
                .all(|(_, answer)| answer.starts_with("refused: "))
        );
        assert!(act.next_at.is_some());
        answers(&mut world, n, 40);
    }
    // One that says what no host would follow is not believed, and is named.
    answers(&mut world, 3, 5_000_000);
    let act = world.decide(&[]);
    signs_nothing(&act);
    assert!(act.answers[0].1.contains("not believed"), "{}", act.answers[0].1);
}

// holds: SG-8, DL-12
#[test]
fn with_the_last_answer_what_stands_is_signed_anew_above_every_mark() {
    let mut world = lost();
    for (n, sequence) in [(1, 40), (2, 77), (3, 41)] {
        answers(&mut world, n, sequence);
    }
    let act = world.decide(&[]);
    assert!(act.recovered);
    let (mut heads, mut epochs, mut nodes) = (0, 0, 0);
    for order in &act.orders {
        match order {
            Order::Head { head, .. } => {
                assert_eq!(head.revision, 1_003);
                heads += 1;
            }
            Order::Epoch { epoch } => {
                assert!(epoch.epoch > 1_000 && epoch.in_force.is_empty());
                epochs += 1;
            }
            Order::Declaration { declaration } => {
                assert_eq!(declaration.sequence, 1_078, "77 is the highest mark");
                nodes += 1;
            }
        }
    }
    assert_eq!((heads, epochs, nodes), (1, 1, 3));
    assert!(act.assignments.is_empty(), "what is proven stays as it is");
}

// holds: DL-2
#[test]
fn who_is_not_waited_for_holds_the_walk_that_it_is_part_of() {
    let mut world = World::at_rest(3);
    let walking = world.merge(tree(3, "one", &[("web", "two")]));
    assert_eq!(world.state(&walking), State::Delivering);
    let recovering = lost().snapshot.recovering.unwrap();
    world.snapshot.recovering = Some(Recovering {
        forced: Some("dana".into()),
        walks: BTreeMap::from([(walking.clone(), Begun::default())]),
        ..recovering
    });
    world.snapshot.epochs.clear();
    // What is assigned is what was accepted: the record does not say what the walk had assigned.
    let assignments = std::sync::Arc::make_mut(&mut world.snapshot.assignments);
    for assignment in assignments.values_mut() {
        assignment.assigned.clone_from(&assignment.proven);
    }
    let state = std::sync::Arc::make_mut(&mut world.snapshot.nodes);
    state.remove(&node(3));
    world.snapshot.deliveries.get_mut(&walking).unwrap().walk = None;
    let act = world.decide(&[]);
    let held = act.deliveries.iter().find(|d| d.commit == walking).unwrap();
    assert_eq!((held.state, held.code.word()), (State::Held, "lost"));
    assert_eq!(
        held.walk.as_ref().unwrap().reached.len(),
        3,
        "all that it changes may have it"
    );
    assert!(
        !act.orders
            .iter()
            .any(|order| matches!(order, Order::Declaration { .. })),
        "no machine of the walk is ordered anything"
    );
}
