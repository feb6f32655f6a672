//! Commits that wait and are not on their branch any more (DL-2).

use std::collections::BTreeSet;

use meshplan_schemas::document::fleet::ComponentDoc;
use meshplan_schemas::ident::CommitId;
use meshplan_schemas::lifecycle::delivery::State;

use super::world::{World, tree};
use crate::pure::compose::Composed;
use crate::pure::decide::{NewCommit, Tree};
use crate::pure::parts::{Branch, Left};
use crate::pure::snapshot::Verb;

fn fleet(text: &str) -> Composed {
    let mut tree = tree(3, "one", &[("web", text)]);
    let Branch { repo, branch } = component();
    tree.fleet.components = vec![ComponentDoc {
        repo,
        branch,
        module: "web".parse().unwrap(),
    }];
    tree
}

/// The branch is at `head`, and does not have these any more; what was pushed with that.
fn force_push(
    world: &mut World,
    of: Option<Branch>,
    head: &CommitId,
    gone: &[&CommitId],
    news: &[NewCommit],
) {
    world.left = vec![Left {
        of,
        head: head.clone(),
        commits: gone.iter().map(|commit| (*commit).clone()).collect(),
    }];
    world.pass(news);
    world.left.clear();
}

fn last(world: &World, commit: &CommitId) -> String {
    world.codes(commit).last().unwrap().clone()
}

fn component() -> Branch {
    Branch {
        repo: "acme/web".to_owned(),
        branch: "stable".to_owned(),
    }
}

// holds: DL-2
#[test]
fn what_waits_for_its_window_and_left_the_branch_does_not_open_with_it() {
    let mut world = World::at_rest(3);
    let head = world.archive.keys().next().unwrap().clone();
    world.ask(
        Verb::Freeze,
        None,
        Some(crate::pure::decide::after_secs(world.now, 100)),
    );
    let commit = world.merge(fleet("two"));
    assert_eq!(last(&world, &commit), "held (freeze)");
    force_push(&mut world, None, &head, &[&commit], &[]);
    world.run(300);
    assert_eq!(last(&world, &commit), "withdrawn (withdrawn)");
    assert_eq!(
        world.archive[&commit].reason,
        format!(
            "the commit is not on its branch any more: main was set back or rewritten, and is at {}",
            head.short()
        )
    );
    assert_eq!(world.runs(1, "web").as_deref(), Some("one"));
    let next = world.merge(fleet("three"));
    world.run(200);
    assert_eq!(world.state(&next), State::Delivered);
}

// holds: DL-2
#[test]
fn what_has_reached_a_machine_is_a_walk_and_stays_one() {
    let mut world = World::at_rest(3);
    let head = world.archive.keys().next().unwrap().clone();
    let commit = world.merge(fleet("two"));
    world.run(3);
    force_push(&mut world, None, &head, &[&commit], &[]);
    world.run(200);
    assert_eq!(world.state(&commit), State::Delivered);
}

// holds: DL-2, DL-15
#[test]
fn a_hold_goes_on_to_what_is_pushed_in_the_place_of_what_a_person_held() {
    let mut world = World::at_rest(3);
    world.ask(Verb::Freeze, None, None);
    let commit = world.merge(fleet("two"));
    world.say(Verb::Hold, &commit);
    world.ask(Verb::Lift, None, None);
    let (head, mut new) = world.new_commit(Tree::Composed(fleet("three").into()), None);
    new.rewritten = true;
    force_push(&mut world, None, &head, &[&commit], &[new]);
    world.run(200);
    assert_eq!(world.state(&commit), State::Withdrawn);
    assert_eq!(last(&world, &head), "held (person-hold)");
}

// holds: DL-1, DL-2
#[test]
fn a_commit_of_a_component_has_nothing_in_it_that_left_the_fleets_branch() {
    let mut world = World::at_rest(3);
    let head = world.archive.keys().next().unwrap().clone();
    world.ask(Verb::Freeze, None, None);
    let commit = world.merge(fleet("two"));
    let of_component = |world: &mut World, text: &str| {
        let (id, mut new) = world.new_commit(Tree::Composed(fleet(text).into()), None);
        new.component = Some(component());
        (id, new)
    };
    let (first, new) = of_component(&mut world, "four");
    world.pass(&[new]);
    assert_eq!(world.state(&commit), State::Superseded);
    assert_eq!(world.archive[&first].parts().fleet, commit);
    force_push(&mut world, None, &head, &[&commit], &[]);
    assert_eq!(world.state(&first), State::Withdrawn);
    assert!(
        world.archive[&first]
            .reason
            .contains("which is not on its branch any more"),
        "{}",
        world.archive[&first].reason
    );
    let (second, new) = of_component(&mut world, "five");
    world.pass(&[new]);
    assert_eq!(world.archive[&second].parts().fleet, head);
    // The same look may bring both.
    let (third, new) = of_component(&mut world, "six");
    let other: BTreeSet<CommitId> = [second.clone()].into();
    world.left = vec![Left {
        of: Some(component()),
        head: first.clone(),
        commits: other,
    }];
    world.pass(&[new]);
    assert_eq!(world.state(&second), State::Withdrawn);
    let parts = world.archive[&third].parts();
    assert_eq!((parts.of(&component()), &parts.fleet), (Some(&third), &head));
}
