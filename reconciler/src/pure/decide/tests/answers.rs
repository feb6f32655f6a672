//! Whatever waits says for what, by which rule and where that stands, what comes next, by when, and what would change it.

use std::collections::BTreeMap;
use std::sync::Arc;

use meshplan_schemas::digest::Digest;
use meshplan_schemas::document::plan::Check;
use meshplan_schemas::ident::{CommitId, DeliveryName};
use meshplan_schemas::lifecycle::delivery::{Code, State, TABLE};

use super::host::Behaviour;
use super::world::{World, node, set, tree};
use crate::pure::compose::Composed;
use crate::pure::decide::why::{Why, why, why_node};
use crate::pure::delivery::Step;
use crate::pure::page::NodeView;
use crate::pure::snapshot::{Checked, Verb, Verdict};

fn asked(world: &World, commit: &meshplan_schemas::ident::CommitId) -> Why {
    why(&world.archive[commit], &world.snapshot.deliveries, world.now)
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
    assert!(held.next.starts_with("a go goes on where it stands"), "{held:?}");
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

/// A node as the pages have it.
fn view(world: &World, n: u128) -> NodeView {
    let tree = world.trees.values().find_map(|tree| match tree {
        crate::pure::decide::Tree::Composed(tree) => tree.nodes.get(&node(n)).cloned(),
        _ => None,
    });
    crate::pure::page::node(&tree.unwrap(), world.snapshot.nodes.get(&node(n)), true)
}

fn of_node(world: &World, n: u128) -> Why {
    why_node(&view(world, n), &world.snapshot.deliveries, world.now)
}

fn with_plan(text: &str, change: impl Fn(&mut meshplan_schemas::document::PlanDoc)) -> Composed {
    let mut tree = tree(3, "one", &[("web", text)]);
    tree.plans.values_mut().for_each(change);
    tree
}

// holds: DL-16, DL-2
#[test]
fn one_that_waits_for_a_check_names_it_with_the_line_that_asks_for_it() {
    let mut world = World::at_rest(3);
    world.settings.asks_forge = true;
    let commit = world.merge(with_plan("two", |plan| {
        plan.check = Check::Named(vec!["ci/a".into()]);
    }));
    let untold = asked(&world, &commit);
    assert_eq!(world.state(&commit), State::Proposed);
    assert_eq!(
        untold.waits_for,
        "a check: the forge has not said yet what became of ci/a"
    );
    let running = Checked {
        name: "ci/a".into(),
        verdict: Verdict::Running,
    };
    world.snapshot.checks.insert(commit.clone(), vec![running]);
    world.run(10);
    let waits = asked(&world, &commit);
    assert_eq!(waits.waits_for, "a check: ci/a still runs");
    assert_eq!(waits.rule, "plans/default.toml:2, check = [\"ci/a\"]");
    assert_eq!(waits.next, "it begins when all have passed, or is held");
    assert_eq!(
        waits.command,
        Some(format!("meshplan deliveries hold {}", commit.short()))
    );
    let node = of_node(&world, 1);
    assert!(
        node.waits_for.contains(&world.archive[&commit].name.to_string())
            && node.waits_for.ends_with("a check: ci/a still runs"),
        "{node:?}"
    );
    assert_eq!(node.rule, waits.rule);
}

// holds: DL-16, DL-15
#[test]
fn what_stood_before_decides_from_its_own_file() {
    let mut world = World::at_rest(3);
    let gated = |approvals| {
        let mut tree = with_plan("two", |plan| plan.approvals = approvals);
        tree.gate_digest = Digest::of(format!("{approvals} approvals").as_bytes());
        tree
    };
    let strict = world.merge(gated(2));
    let answer = world.say(Verb::Go, &strict);
    world.run(200);
    assert_eq!(world.state(&strict), State::Delivered, "{answer}");
    let loose = world.merge(gated(0));
    let held = asked(&world, &loose);
    let rule = format!(
        "plans/default.toml:3 of {}, approvals = 2 (approvals)",
        strict.short()
    );
    assert_eq!((world.state(&loose), held.rule), (State::Held, rule));
}

// holds: DL-16, DL-3
#[test]
fn each_answer_is_of_the_walk_that_has_to_do_with_what_is_asked() {
    // Two walks side by side, and a third that waits for one of them: the answers for each speak of their own.
    let fleet = |web: &str, db: &str| {
        let mut tree = tree(4, "one", &[("web", web), ("db", db)]);
        for n in 1..=4 {
            let keep = if n <= 2 { "web" } else { "db" };
            let mut changed = (**tree.nodes.get(&node(n)).unwrap()).clone();
            changed.modules.retain(|name, _| name.as_str() == keep);
            assert!(tree.nodes.replace(&node(n), Arc::new(changed)));
        }
        tree
    };
    let mut world = World::empty(4);
    world.merge(fleet("one", "one"));
    world.run(200);
    let web = world.merge(fleet("two", "one"));
    world.run(3);
    let db = world.merge(fleet("two", "two"));
    world.run(1);
    assert_eq!(
        (world.state(&web), world.state(&db)),
        (State::Delivering, State::Delivering)
    );
    // Commits of this world differ in digits that no name has.
    let (of_web, of_db) = ("fleet@of-web".to_owned(), "fleet@of-db".to_owned());
    for (commit, name) in [(&web, &of_web), (&db, &of_db)] {
        world.snapshot.deliveries.get_mut(commit).unwrap().name = DeliveryName(name.clone());
    }
    for n in 1..=4 {
        let said = of_node(&world, n).waits_for;
        let (own, other) = if n <= 2 {
            (&of_web, &of_db)
        } else {
            (&of_db, &of_web)
        };
        assert!(said.contains(own) && !said.contains(other), "n{n}: {said}");
    }
    for (third, walk, module) in [
        (fleet("three", "two"), &of_web, "web"),
        (fleet("two", "three"), &of_db, "db"),
    ] {
        let mut world = world.clone();
        let third = world.merge(third);
        let waits = asked(&world, &third);
        assert_eq!(world.state(&third), State::Proposed);
        assert_eq!(
            waits.waits_for,
            format!("{walk} to be over: it is delivering, and both change module:{module}")
        );
        let n = if module == "web" { 1 } else { 3 };
        let next = of_node(&world, n).next;
        let after = format!(
            "then {}, which changes it too and waits",
            world.archive[&third].name
        );
        assert!(next.ends_with(&after), "{next}");
    }
}

// holds: DL-16, DL-7
#[test]
fn a_walk_that_was_taken_back_is_said_so_on_each_machine_that_it_had_reached() {
    let mut world = World::at_rest(3);
    let commit = world.merge(tree(3, "one", &[("web", "two")]));
    world.run(3);
    world.switch_off(1);
    world.say(Verb::Withdraw, &commit);
    assert_eq!(world.state(&commit), State::RollingBack);
    let back = asked(&world, &commit);
    assert_eq!(back.waits_for, "the former content on: n1");
    assert_eq!(back.rule, "a person took it back, DL-7 (withdrawn)");
    assert!(back.deadline.is_some_and(|at| at > world.now), "{back:?}");
    let said = of_node(&world, 1);
    assert!(
        said.waits_for.starts_with("n1 to take the former content again"),
        "{said:?}"
    );
    assert_eq!(said.deadline, back.deadline);
    assert!(
        of_node(&world, 2).waits_for.starts_with("nothing: "),
        "it was not reached"
    );
}

/// A delivery in this state under this code: on its way, or not begun.
fn standing(state: State, code: Code) -> (World, CommitId) {
    let mut world = World::at_rest(3);
    let walked = !matches!(state, State::Proposed | State::Held)
        || matches!(
            code,
            Code::StageFailed | Code::Silent | Code::NoMachine | Code::Stopped | Code::Lost
        )
        || matches!(code, Code::RollBackFailed | Code::RetiredValue);
    let held_first = tree(3, "one", &[("web", "two")]);
    let held_first = if walked {
        held_first
    } else {
        with_plan("two", |plan| plan.approvals = 1)
    };
    let commit = world.merge(held_first);
    world.run(3);
    let delivery = world.snapshot.deliveries.get_mut(&commit).unwrap();
    assert_eq!(delivery.walk.is_some(), walked);
    (delivery.state, delivery.code, delivery.reason) = (state, code, "so it is".to_owned());
    delivery.awaits = None;
    if state == State::RollingBack {
        let deadline = world.now + jiff::SignedDuration::from_secs(100);
        delivery.walk.as_mut().unwrap().step = Step::Returning { deadline };
    }
    world.archive.insert(commit.clone(), delivery.clone());
    (world, commit)
}

// holds: DL-16, DL-2
#[test]
fn from_every_state_and_code_that_is_not_final_an_answer_names_a_clock_or_a_word_that_leads_out() {
    let mut tried = BTreeMap::new();
    for row in TABLE.iter().filter(|row| !row.to.is_final()) {
        for code in row.codes {
            let (mut world, commit) = standing(row.to, *code);
            let said = why(
                &world.snapshot.deliveries[&commit],
                &world.snapshot.deliveries,
                world.now,
            );
            let at = format!("{} ({code}): {said:?}", row.to);
            for sentence in [&said.waits_for, &said.rule, &said.next] {
                assert!(!sentence.trim().is_empty(), "{at}");
            }
            if row.to == State::Held {
                assert!(said.rule.ends_with(&format!("({code})")), "{at}");
            }
            // Of what moves a clock leads out; what stands is led out by just the word that is named.
            let words = said.command.as_deref().unwrap_or_default();
            let verb = words.strip_prefix("meshplan deliveries ").unwrap_or_default();
            let verb = match verb.rsplit_once(' ').map(|(verb, _)| verb) {
                Some("go") => Verb::Go,
                Some("go --again") => Verb::GoAgain,
                Some("hold") => Verb::Hold,
                Some("stop") => Verb::Stop,
                Some("withdraw") => Verb::Withdraw,
                _ => {
                    let thawed = *code == Code::Freeze && words == "meshplan freeze --lift";
                    assert!(said.deadline.is_some() || thawed, "{at}");
                    tried.insert((row.to.word(), code.word()), "a clock");
                    continue;
                }
            };
            let answer = world.say(verb, &commit);
            assert!(!answer.starts_with("refused"), "{at}: {answer}");
            assert_ne!(
                (world.state(&commit), world.archive[&commit].code),
                (row.to, *code),
                "{at}: {answer}"
            );
            tried.insert((row.to.word(), code.word()), "a word");
        }
    }
    let clocks: Vec<_> = tried
        .iter()
        .filter(|(_, out)| **out == "a clock")
        .map(|(at, _)| *at)
        .collect();
    assert_eq!(tried.len(), 31, "{tried:?}");
    assert!(
        clocks
            .iter()
            .all(|(state, code)| *state == "rolling-back" || *code == "freeze"),
        "{clocks:?}"
    );
}
