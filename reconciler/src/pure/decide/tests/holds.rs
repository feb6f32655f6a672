//! A person says hold of what is held by something that goes by itself (DL-4).

use meshplan_schemas::lifecycle::delivery::State;

use super::world::{World, tree};
use crate::pure::decide::after_secs;
use crate::pure::snapshot::Verb;

// holds: DL-4, DL-2
#[test]
fn what_a_person_held_while_it_waited_does_not_open_by_itself() {
    let mut world = World::at_rest(3);
    world.ask(Verb::Freeze, None, Some(after_secs(world.now, 100)));
    let commit = world.merge(tree(3, "one", &[("web", "two")]));
    assert_eq!(world.codes(&commit).last().unwrap(), "held (freeze)");
    let answer = world.say(Verb::Hold, &commit);
    assert!(answer.ends_with("stays held until a person says go"), "{answer}");
    assert_eq!(world.codes(&commit).last().unwrap(), "held (person-hold)");
    world.run(500);
    assert_eq!(world.state(&commit), State::Held);
    let answer = world.say(Verb::Hold, &commit);
    assert!(answer.starts_with("refused: "), "{answer}");
    assert!(world.say(Verb::Go, &commit).ends_with("is delivering"));
    world.run(200);
    assert_eq!(world.state(&commit), State::Delivered);
}

// holds: DL-4
#[test]
fn a_walk_that_is_held_has_nothing_to_hold() {
    let mut world = World::at_rest(3);
    let commit = world.merge(tree(3, "one", &[("web", "two")]));
    world.say(Verb::Stop, &commit);
    assert_eq!(
        world.say(Verb::Hold, &commit).split_once(" (").unwrap().1,
        "stopped), there is nothing to stop"
    );
}
