//! Approvals: of just this change, by others than its author, under the stricter plan (DL-15).

use meshplan_schemas::ident::CommitId;
use meshplan_schemas::lifecycle::delivery::State;

use super::world::{World, tree};
use crate::pure::compose::Composed;
use crate::pure::snapshot::{Review, Verb};

fn wants(approvals: u32, web: &str) -> Composed {
    let mut tree = tree(3, "one", &[("web", web)]);
    tree.plans
        .values_mut()
        .for_each(|plan| plan.approvals = approvals);
    tree
}

fn approve(world: &mut World, commit: &CommitId, by: &str) {
    let binds = world.archive[commit].binds.unwrap();
    let review = Review {
        by: by.into(),
        at: world.now,
        binds,
    };
    world
        .snapshot
        .reviews
        .entry(commit.clone())
        .or_default()
        .push(review);
    world.settle();
}

// holds: DL-15, DL-2
#[test]
fn it_begins_with_as_many_approvals_as_its_plan_wants_and_not_with_its_authors() {
    let mut world = World::at_rest(3);
    let commit = world.merge(wants(2, "two"));
    assert_eq!(world.codes(&commit).last().unwrap(), "held (approvals)");
    approve(&mut world, &commit, "Dana");
    approve(&mut world, &commit, "bob");
    approve(&mut world, &commit, "bob");
    world.run(10);
    assert_eq!(
        world.state(&commit),
        State::Held,
        "one person's, and the author's own"
    );
    approve(&mut world, &commit, "carol");
    world.run(100);
    assert_eq!(
        world.codes(&commit),
        [
            "proposed (announced)",
            "held (approvals)",
            "delivering (opened)",
            "delivered (done)"
        ]
    );
    let began = world
        .transitions
        .iter()
        .find(|t| t.to == State::Delivering && t.commit == commit)
        .unwrap();
    let by: Vec<&str> = (began.facts.iter())
        .filter(|(key, _)| key == "Approved-By")
        .map(|(_, v)| v.as_str())
        .collect();
    assert_eq!(by, ["bob", "carol"]);
    assert!(began.facts.iter().any(|(key, _)| key == "Binds"));
}

// holds: DL-15
#[test]
fn what_changes_the_change_asks_again() {
    let mut world = World::at_rest(3);
    let first = world.merge(wants(1, "two"));
    approve(&mut world, &first, "bob");
    world.run(100);
    assert_eq!(world.state(&first), State::Delivered);
    // Approved while it would have taken three back to four; what came between makes it another change.
    let held = world.merge(wants(1, "four"));
    let seen = world.archive[&held].binds.unwrap();
    let other = world.merge(wants(1, "five"));
    let review = Review {
        by: "bob".into(),
        at: world.now,
        binds: seen,
    };
    world.snapshot.reviews.insert(other.clone(), vec![review]);
    world.run(10);
    assert_eq!(world.state(&other), State::Held);
    let reason = &world.archive[&other].reason;
    assert!(reason.contains("there are 0"), "{reason}");
    approve(&mut world, &other, "bob");
    world.run(100);
    assert_eq!(world.state(&other), State::Delivered);
}

// holds: DL-15
#[test]
fn a_commit_cannot_take_away_the_approvals_that_it_needs() {
    let mut world = World::at_rest(3);
    let mut strict = wants(1, "one");
    strict.gate_digest = meshplan_schemas::digest::Digest::of(b"strict");
    let first = world.merge(strict);
    world.say(Verb::Go, &first);
    world.run(10);
    assert_eq!(world.state(&first), State::Delivered);
    let loose = world.merge(wants(0, "two"));
    world.run(10);
    assert_eq!(world.codes(&loose).last().unwrap(), "held (approvals)");
}
