//! What does not go back: a roll-back restores the former content but for what goes only forward (DL-7).

use std::sync::Arc;

use meshplan_schemas::declaration::ModuleContent;
use meshplan_schemas::digest::Digest;
use meshplan_schemas::document::plan::{Legs, Trouble};
use meshplan_schemas::ident::{CommitId, ModuleName};
use meshplan_schemas::lifecycle::delivery::{Code, State};
use meshplan_schemas::report::{Outcome, ResourceLine};
use meshplan_schemas::resource::Resource;
use serde_json::json;

use super::host::Behaviour;
use super::world::{World, node, set, tree};
use crate::pure::compose::Composed;
use crate::pure::scope::Scope;
use crate::pure::snapshot::{Assignment, Verb};

/// A file with its text, and what its module says about going back.
fn file(name: &str, text: &str, forward_only: Option<bool>) -> Resource {
    Resource {
        name: name.parse().unwrap(),
        kind: "file".to_owned(),
        spec: json!({ "path": format!("/etc/{name}"), "content": { "text": text }, "mode": "0644" }),
        forward_only,
        not_reversible: None,
        hides: Vec::new(),
    }
}

/// An ordinary file.
fn conf(text: &str) -> Resource {
    file("web.conf", text, None)
}

/// A file that goes only forward.
fn schema(text: &str) -> Resource {
    file("web.schema", text, Some(true))
}

fn user(keys: Option<&[&str]>) -> Vec<Resource> {
    let user = keys.map(|keys| Resource {
        name: "web.eve".parse().unwrap(),
        kind: "user".to_owned(),
        spec: json!({ "name": "eve", "authorized_keys": keys }),
        forward_only: None,
        not_reversible: None,
        hides: Vec::new(),
    });
    user.into_iter().collect()
}

/// Three machines with the module `web`, which has these resources; none where there are none, and a `db` beside it.
fn web_and(resources: Vec<Resource>, others: &[(&str, &str)]) -> Composed {
    let mut tree = tree(3, "one", others);
    if resources.is_empty() {
        return tree;
    }
    let module: ModuleName = "web".parse().unwrap();
    let content = ModuleContent {
        module: module.clone(),
        mode: meshplan_schemas::declaration::Mode::Apply,
        after: Vec::new(),
        on_policy_change: Vec::new(),
        requires: Vec::new(),
        secrets: Default::default(),
        resources,
    };
    let digest = Digest::of_value(&content).unwrap();
    let made = (digest, Arc::new(content.into()));
    let with = tree.nodes.values().map(|of| {
        let mut of = (**of).clone();
        of.modules.insert(module.clone(), made.clone());
        (of.id, Arc::new(of))
    });
    tree.nodes = with.collect();
    tree.sources.insert(module.clone(), digest);
    tree
}

fn web(resources: Vec<Resource>) -> Composed {
    web_and(resources, &[])
}

/// A fleet that has delivered this and is at rest; its canary fails what is bad.
fn at_rest(first: Composed) -> World {
    let mut world = World::empty(3);
    let first = world.merge(first);
    world.run(200);
    assert_eq!(world.state(&first), State::Delivered);
    set(&mut world, 1, Behaviour::Fails);
    world
}

/// What a machine's confirmed declaration has of a resource.
fn spec(world: &World, n: u128, name: &str) -> Option<serde_json::Value> {
    let declaration = world.hosts[&node(n)].confirmed.as_ref()?;
    let mut resources = declaration.resources.iter();
    let resource = resources.find(|resource| resource.name.to_string() == name);
    resource.map(|resource| resource.spec.clone())
}

/// The texts of `web.conf` and `web.schema` on a machine.
fn has(world: &World, n: u128) -> (Option<String>, Option<String>) {
    let text = |name| {
        let spec = spec(world, n, name)?;
        Some(spec["content"]["text"].as_str().unwrap().to_owned())
    };
    (text("web.conf"), text("web.schema"))
}

fn both(conf: &str, schema: &str) -> (Option<String>, Option<String>) {
    (Some(conf.to_owned()), Some(schema.to_owned()))
}

fn assignment(world: &World, n: u128) -> Assignment {
    let scope: Scope = "module:web".parse().unwrap();
    world.snapshot.assignments[&(node(n), scope)].clone()
}

fn facts(world: &World, commit: &CommitId, key: &str) -> Vec<String> {
    let of = world.transitions.iter().filter(|t| t.commit == *commit);
    let facts = of.flat_map(|t| &t.facts);
    facts
        .filter(|(name, _)| name == key)
        .map(|(_, value)| value.clone())
        .collect()
}

// holds: DL-7
#[test]
fn a_forward_only_file_stays_new_while_the_ordinary_one_beside_it_comes_back() {
    let mut world = at_rest(web(vec![conf("one"), schema("one")]));
    let commit = world.merge(web(vec![conf("bad"), schema("two")]));
    world.run(30);
    assert_eq!(
        world.state(&commit),
        State::RolledBack,
        "{:?}",
        world.codes(&commit)
    );
    assert_eq!(has(&world, 1), both("one", "two"));
    assert_eq!(has(&world, 2), both("one", "one"), "it was never reached");
    let reason = &world.archive[&commit].reason;
    assert_eq!(
        reason,
        "every reached machine has the former content again: 1; forward-only, left as it is: web.schema"
    );
    assert_eq!(
        facts(&world, &commit, "Stays"),
        ["web.schema on 1 machine: it goes only forward and is left as it is"]
    );
    assert_eq!(
        facts(&world, &commit, "Not-Reversible"),
        ["web.schema on 3 machines: it goes only forward, a roll-back leaves it"]
    );

    // Nothing leads behind what is there now, and the same content in a later commit is left alone.
    let of = assignment(&world, 1);
    assert_eq!(of.assigned, of.proven);
    let same = world.merge(web(vec![conf("bad"), schema("two")]));
    world.run(30);
    assert_eq!(world.codes(&same).last().unwrap(), "delivered (nothing-to-do)");
    assert_eq!(has(&world, 1), both("one", "two"));

    // The next commit is compared with what is there, and delivered everywhere.
    let next = world.merge(web(vec![conf("three"), schema("two")]));
    world.run(200);
    assert_eq!(world.state(&next), State::Delivered);
    for n in 1..=3 {
        assert_eq!(has(&world, n), both("three", "two"), "n{n}");
    }
}

// holds: DL-7
#[test]
fn what_was_added_or_removed_forward_only_stays_so() {
    let mut world = at_rest(web(vec![schema("one"), conf("one")]));
    let removed = world.merge(web(vec![conf("bad")]));
    world.run(30);
    assert_eq!(world.state(&removed), State::RolledBack);
    assert_eq!(has(&world, 1), (Some("one".to_owned()), None));
    assert_eq!(has(&world, 2), both("one", "one"));

    let mut world = at_rest(web(vec![conf("one")]));
    let added = world.merge(web(vec![schema("two"), conf("bad")]));
    world.run(30);
    assert_eq!(world.state(&added), State::RolledBack);
    assert_eq!(has(&world, 1), both("one", "two"));

    // A module that comes and goes as a whole.
    let mut world = at_rest(web_and(Vec::new(), &[("db", "one")]));
    let added = world.merge(web_and(vec![conf("bad"), schema("two")], &[("db", "one")]));
    world.run(30);
    assert_eq!(world.state(&added), State::RolledBack);
    assert_eq!(has(&world, 1), (None, Some("two".to_owned())));
    assert_eq!(world.runs(1, "db").as_deref(), Some("one"));
    assert_eq!(has(&world, 2), (None, None));
}

// holds: DL-7
#[test]
fn a_delivery_that_is_withdrawn_after_it_passed_leaves_what_goes_only_forward() {
    let mut world = at_rest(web(vec![conf("one"), schema("one")]));
    let commit = world.merge(web(vec![conf("two"), schema("two")]));
    world.run(20);
    assert_eq!(world.state(&commit), State::Delivering);
    world.say(Verb::Withdraw, &commit);
    world.run(60);
    assert_eq!(world.state(&commit), State::RolledBack);
    assert_eq!(has(&world, 1), both("one", "two"));

    // The mark goes with the next commit, which fails: what went forward under it does not go back for that.
    let next = world.merge(web(vec![conf("bad"), file("web.schema", "two", None)]));
    world.run(30);
    assert_eq!(world.state(&next), State::RolledBack);
    assert_eq!(has(&world, 1), both("one", "two"));
}

// holds: DL-3, DL-7
#[test]
fn a_leg_that_is_taken_back_alone_leaves_what_goes_only_forward() {
    let apart = |resources, db| {
        let mut tree = web_and(resources, &[("db", db)]);
        tree.plans.values_mut().for_each(|plan| plan.legs = Legs::Apart);
        tree
    };
    let mut world = at_rest(apart(vec![conf("one"), schema("one")], "one"));
    let commit = world.merge(apart(vec![conf("bad"), schema("two")], "two"));
    world.run(200);
    assert_eq!(
        world.state(&commit),
        State::RolledBack,
        "{:?}",
        world.codes(&commit)
    );
    assert_eq!(has(&world, 1), both("one", "two"));
    for n in 1..=3 {
        assert_eq!(world.runs(n, "db").as_deref(), Some("two"), "n{n}");
    }
    assert_eq!(facts(&world, &commit, "Stays").len(), 1);
}

// holds: DL-7
#[test]
fn a_machine_that_was_off_gets_what_the_others_have() {
    let mut world = at_rest(web(vec![conf("one"), schema("one")]));
    let commit = world.merge(web(vec![conf("two"), schema("two")]));
    world.run(12);
    world.switch_off(2);
    world.run(300);
    assert_eq!(
        (world.state(&commit), world.archive[&commit].code),
        (State::RolledBack, Code::Partly)
    );
    assert_eq!(has(&world, 1), both("one", "two"));
    assert_eq!(has(&world, 2), both("one", "one"));
    set(&mut world, 2, Behaviour::Good);
    world.run(30);
    // Whether it had begun nobody can tell: what goes only forward is new there too.
    assert_eq!(has(&world, 2), both("one", "two"));
    assert!(!world.archive[&commit].is_outstanding());
}

// holds: DL-7
#[test]
fn what_a_machine_says_it_never_did_is_as_before_there() {
    for (outcome, runs) in [
        (Outcome::Reverted, "one"),
        (Outcome::Failed, "one"),
        (Outcome::Skipped, "one"),
        (Outcome::Kept, "two"),
        (Outcome::Updated, "two"),
    ] {
        let mut world = at_rest(web(vec![conf("one"), schema("one")]));
        world.hosts.get_mut(&node(1)).unwrap().lines = vec![ResourceLine {
            name: "web.schema".parse().unwrap(),
            outcome,
            reason: String::new(),
            digest: None,
        }];
        let commit = world.merge(web(vec![conf("bad"), schema("two")]));
        world.run(30);
        assert_eq!(world.state(&commit), State::RolledBack, "{outcome:?}");
        assert_eq!(has(&world, 1), both("one", runs), "{outcome:?}");
    }
}

// holds: DL-7, DL-14
#[test]
fn what_fails_and_cannot_be_taken_back_is_held_loudly() {
    let mut world = at_rest(web(vec![conf("one"), schema("one")]));
    let commit = world.merge(web(vec![conf("one"), schema("bad")]));
    world.run(30);
    assert_eq!(
        (world.state(&commit), world.archive[&commit].code),
        (State::Held, Code::RollBackFailed)
    );
    let newest = world.declarations.iter().rfind(|d| d.node == node(1));
    let newest = newest.unwrap();
    assert_eq!(
        newest.again,
        [newest.modules[0].digest],
        "the machine is told that it is meant"
    );
    // A commit that mends it goes on from there.
    let next = world.merge(web(vec![conf("one"), schema("three")]));
    world.run(200);
    assert_eq!(world.state(&next), State::Delivered);
    assert_eq!(has(&world, 1), both("one", "three"));
}

// holds: DL-7
#[test]
fn a_removed_user_and_a_removed_key_stay_removed() {
    let with = |text: &str, keys: Option<&[&str]>| {
        let mut resources = user(keys);
        resources.push(conf(text));
        web(resources)
    };
    let mut world = at_rest(with("one", Some(&["ssh-ed25519 AAAAa", "ssh-ed25519 AAAAb"])));
    let commit = world.merge(with("bad", Some(&["ssh-ed25519 AAAAb", "ssh-ed25519 AAAAc"])));
    world.run(30);
    assert_eq!(world.state(&commit), State::RolledBack);
    let eve = spec(&world, 1, "web.eve").unwrap();
    assert_eq!(eve["authorized_keys"], json!(["ssh-ed25519 AAAAb"]));

    let mut world = at_rest(with("one", Some(&[])));
    let commit = world.merge(with("bad", None));
    world.run(30);
    assert_eq!(world.state(&commit), State::RolledBack);
    assert_eq!(spec(&world, 1, "web.eve"), None);
    assert!(spec(&world, 2, "web.eve").is_some());
    assert_eq!(has(&world, 1).0.as_deref(), Some("one"));
}

// holds: DL-2, DL-7
#[test]
fn a_newer_commit_over_a_held_one_does_not_lead_behind_what_went_forward() {
    let holding = |resources| {
        let mut tree = web(resources);
        let stages = tree.plans.values_mut().flat_map(|plan| &mut plan.stages);
        stages.for_each(|stage| stage.failed = Some(Trouble::Hold));
        tree
    };
    let plain = |text| file("web.schema", text, None);
    let mut world = at_rest(holding(vec![conf("one"), plain("one")]));
    let held = world.merge(holding(vec![conf("bad"), schema("two")]));
    world.run(30);
    assert_eq!(world.state(&held), State::Held);
    let next = world.merge(web(vec![conf("also bad"), plain("two")]));
    world.run(60);
    assert_eq!(world.state(&held), State::Superseded);
    assert_eq!(world.state(&next), State::RolledBack, "{:?}", world.codes(&next));
    assert_eq!(has(&world, 1), both("one", "two"));
}
