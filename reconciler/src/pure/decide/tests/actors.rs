//! Actors of plans: who of a forge has a say in a delivery, by name or by a team (DL-4).

use std::collections::BTreeMap;

use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::CommitId;
use meshplan_schemas::lifecycle::delivery::State;

use super::world::{World, tree};
use crate::pure::compose::Composed;
use crate::pure::snapshot::{InTeam, Person, Request, Verb};

fn named(actors: &[&str], web: &str) -> Composed {
    let mut tree = tree(3, "one", &[("web", web)]);
    for plan in tree.plans.values_mut() {
        plan.actors = actors.iter().map(|actor| actor.parse().unwrap()).collect();
        plan.approvals = 1;
    }
    tree
}

/// A delivery that waits for an approval nobody gives.
fn held(actors: &[&str]) -> (World, CommitId) {
    let mut world = World::at_rest(3);
    let commit = world.merge(named(actors, "two"));
    assert_eq!(world.state(&commit), State::Held);
    (world, commit)
}

/// What a go of somebody is answered, of whom the forge said this.
fn go(world: &mut World, commit: &CommitId, login: &str, teams: &[(&str, InTeam)]) -> String {
    let teams: BTreeMap<String, InTeam> = (teams.iter())
        .map(|(team, said)| ((*team).to_owned(), said.clone()))
        .collect();
    let login = login.to_owned();
    let request = Request {
        id: "comment".into(),
        at: world.now,
        actor: login.clone(),
        verb: Verb::Go,
        commit: Some(commit.clone()),
        until: None,
        why: String::new(),
        start: None,
        by: Some(Person { login, teams }),
    };
    world.request(request)
}

// holds: DL-4
#[test]
fn a_plan_takes_the_word_of_whom_it_names_and_of_whom_the_forge_says_is_in_its_team() {
    let actors = ["alice", "team:ops"];
    for (login, teams) in [
        ("alice", vec![("ops", InTeam::No)]),
        ("alice", vec![]),
        ("dana", vec![("ops", InTeam::Yes)]),
    ] {
        let (mut world, commit) = held(&actors);
        assert_eq!(
            world.archive[&commit].teams,
            ["ops"],
            "the forge is asked about it"
        );
        let answer = go(&mut world, &commit, login, &teams);
        assert!(answer.ends_with("is delivering"), "{answer}");
    }
}

// holds: DL-4
#[test]
fn who_is_in_no_team_or_of_whom_the_forge_does_not_tell_has_no_say_and_is_told_why() {
    let actors = ["alice", "team:ops"];
    let down = || InTeam::Untold("the forge has no team `ops`".to_owned());
    for (teams, words) in [
        (vec![("ops", InTeam::No)], "dana is none of them"),
        (
            vec![("dev", InTeam::Yes), ("ops", InTeam::No)],
            "dana is none of them",
        ),
        (vec![("ops", down())], "is not known: the forge has no team `ops`"),
        (vec![], "was not asked yet who is in team:ops: say it again"),
        (vec![("dev", InTeam::Yes)], "was not asked yet"),
    ] {
        let (mut world, commit) = held(&actors);
        let answer = go(&mut world, &commit, "dana", &teams);
        assert!(answer.starts_with("refused: "), "{answer}");
        assert!(answer.contains("alice, team:ops"), "{answer}");
        assert!(answer.contains(words), "{answer}");
        assert_eq!(world.state(&commit), State::Held);
    }
    let (mut world, commit) = held(&actors);
    let answer = go(&mut world, &commit, "team:ops", &[]);
    assert!(
        answer.starts_with("refused: "),
        "a login that looks like a team: {answer}"
    );
}

// holds: DL-4, DL-15
#[test]
fn the_plans_before_and_after_must_both_mean_whoever_says_something() {
    let mut world = World::at_rest(3);
    let mut gate = named(&["team:ops"], "one");
    gate.gate_digest = Digest::of(b"ops");
    let first = world.merge(gate);
    let yes = [("ops", InTeam::Yes)];
    assert!(go(&mut world, &first, "dana", &yes).ends_with("is delivering"));
    world.run(200);
    assert_eq!(world.state(&first), State::Delivered);
    let mut gate = named(&["team:dev"], "one");
    gate.gate_digest = Digest::of(b"dev");
    let second = world.merge(gate);
    assert_eq!(world.archive[&second].teams, ["dev", "ops"]);
    let answer = go(
        &mut world,
        &second,
        "dana",
        &[("dev", InTeam::Yes), ("ops", InTeam::No)],
    );
    assert!(answer.starts_with("refused: "), "{answer}");
    let both = [("dev", InTeam::Yes), ("ops", InTeam::Yes)];
    let answer = go(&mut world, &second, "dana", &both);
    assert!(answer.ends_with("is delivering"), "{answer}");
}
