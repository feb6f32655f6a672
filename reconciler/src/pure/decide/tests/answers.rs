//! Whatever waits says for what, by which rule and where that stands, what comes next, by when, and what would change it.

use meshplan_schemas::lifecycle::delivery::State;

use super::host::Behaviour;
use super::world::{World, set, tree};
use crate::pure::decide::why::{Why, why};
use crate::pure::snapshot::Verb;

fn asked(world: &World, commit: &meshplan_schemas::ident::CommitId) -> Why {
    why(&world.archive[commit], None, world.now)
}

// holds: DL-16
#[test]
fn a_delivery_that_waits_answers_why_at_every_step_of_its_way() {
    let mut world = World::at_rest(3);
    set(&mut world, 1, Behaviour::Fails);
    let commit = world.merge(tree(3, "one", &[("web", "bad")]));
    let looking = asked(&world, &commit);
    assert_eq!(world.state(&commit), State::Delivering);
    assert!(looking.waits_for.contains("n1 (0 of"), "{looking:?}");
    assert!(
        looking.rule.starts_with("plans/default.toml") && looking.rule.ends_with("stage canary"),
        "{looking:?}"
    );
    assert_eq!(looking.next, "the stage rest");
    assert!(looking.deadline.is_some_and(|at| at > world.now));
    assert_eq!(looking.as_of, world.now);
    assert_eq!(
        looking.command,
        Some(format!("meshplan deliveries stop {}", commit.short()))
    );

    world.run(30);
    let over = asked(&world, &commit);
    assert_eq!(world.state(&commit), State::RolledBack);
    assert!(over.waits_for.contains("because of n1 in canary"), "{over:?}");
    assert_eq!(
        over.command,
        Some(format!("meshplan deliveries go --again {}", commit.short()))
    );

    set(&mut world, 1, Behaviour::Good);
    let again = world.merge(tree(3, "two", &[("web", "three")]));
    world.say(Verb::Stop, &again);
    let held = asked(&world, &again);
    assert_eq!(world.state(&again), State::Held);
    assert!(held.waits_for.starts_with("a person: "), "{held:?}");
    assert!(held.rule.ends_with("(stopped)"), "{held:?}");
    assert_eq!(
        held.command,
        Some(format!("meshplan deliveries go {}", again.short()))
    );

    let next = world.merge(tree(3, "two", &[("web", "three"), ("db", "one")]));
    world.run(300);
    assert_eq!(world.state(&next), State::Delivered);
    let done = asked(&world, &next);
    assert!(done.waits_for.starts_with("nothing: delivered since"), "{done:?}");
    assert_eq!((done.command, done.deadline), (None, None));
}
