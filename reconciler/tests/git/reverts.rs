//! The branch that proposes the revert of a commit: what it brings, once, and where there is nothing to propose.

use meshplan_reconciler::edge::mirror::{MergeError, Mirror, Person, Reversal};
use meshplan_schemas::ident::CommitId;

use super::world::{World, at};

const BRANCH: &str = "meshplan/revert/x";

fn propose(mirror: &mut Mirror, commit: &CommitId, former: &CommitId) -> Result<bool, MergeError> {
    mirror.propose_revert(&Reversal {
        branch: BRANCH,
        commit,
        former,
        message: "Revert \"x\"\n",
        author: &Person::us(),
        at: at(),
    })
}

/// A branch's tip at the forge, and a file there.
fn at_forge(world: &World, file: &str) -> (String, String) {
    let branch = format!("refs/heads/{BRANCH}");
    let tip = world.git(&world.bare(), &["rev-parse", &branch]);
    let text = world.git(&world.bare(), &["show", &format!("{branch}:{file}")]);
    (tip.trim().to_owned(), text)
}

// holds: DL-7, FG-4
#[test]
fn what_came_since_is_kept_and_a_second_proposal_changes_nothing() {
    let world = World::new();
    let former = world.merge("a", "one\n");
    world.merge("b", "with it\n");
    let commit = world.merge("a", "two\n");
    let tip = world.merge("c", "after it\n");
    let mut mirror = world.mirror();
    mirror.fetch().unwrap();
    assert!(propose(&mut mirror, &commit, &former).unwrap());
    let (first, text) = at_forge(&world, "a");
    assert_eq!(text.trim(), "one");
    assert_eq!(at_forge(&world, "c").1.trim(), "after it");
    let files = world.git(&world.bare(), &["ls-tree", "--name-only", &first]);
    assert!(!files.contains('b'), "all since the former one goes: {files}");
    let parents = world.git(&world.bare(), &["rev-list", "--parents", "-1", &first]);
    assert_eq!(parents.trim(), format!("{first} {tip}"));
    assert!(propose(&mut mirror, &commit, &former).unwrap());
    assert_eq!(at_forge(&world, "a").0, first, "made again");
    // Somebody merges it.
    world.git(&world.bare(), &["update-ref", "refs/heads/main", &first]);
    assert!(!propose(&mut mirror, &commit, &former).unwrap(), "it is merged");
}

// holds: DL-7
#[test]
fn what_somebody_has_reverted_by_hand_needs_no_proposal() {
    let world = World::new();
    let former = world.merge("a", "one\n");
    let commit = world.merge("a", "two\n");
    world.merge("a", "one\n");
    let mut mirror = world.mirror();
    mirror.fetch().unwrap();
    assert!(!propose(&mut mirror, &commit, &former).unwrap());
    let branches = world.git(&world.bare(), &["for-each-ref", "refs/heads/meshplan"]);
    assert!(branches.is_empty(), "{branches}");
}

// holds: DL-7
#[test]
fn where_the_branch_went_on_changing_the_same_the_files_are_named() {
    let world = World::new();
    let former = world.merge("a", "one\n");
    let commit = world.merge("a", "two\n");
    world.merge("a", "three\n");
    let mut mirror = world.mirror();
    mirror.fetch().unwrap();
    let conflict = propose(&mut mirror, &commit, &former).unwrap_err();
    assert!(
        matches!(&conflict, MergeError::Conflict { paths, .. } if *paths == ["a"]),
        "{conflict}"
    );
}
