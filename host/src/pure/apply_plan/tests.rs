use super::*;

fn name(text: &str) -> ResourceName {
    text.parse().unwrap()
}
fn path(text: &str) -> TargetPath {
    TargetPath::parse(text).unwrap()
}
fn file(bytes: &[u8]) -> Thing {
    Thing::File {
        content: Digest::of(bytes),
        mode: 0o644,
        uid: 0,
        gid: 0,
    }
}
fn ask(resource: &str, target: &str, decision: Decision, found: Option<Thing>) -> Ask {
    Ask {
        name: name(resource),
        kind: "file".to_owned(),
        target: Some(path(target).into()),
        asked: Digest::of(b"asked"),
        content: Some(Digest::of(b"content")),
        followers: Vec::new(),
        decision,
        found,
        nature: Nature::default(),
    }
}
fn record(resource: &str, target: &str, found: Found) -> Record {
    Record {
        name: name(resource),
        kind: "file".to_owned(),
        target: Some(path(target).into()),
        asked: Digest::of(b"asked"),
        content: Some(Digest::of(b"content")),
        is_absence: false,
        found,
    }
}
fn ledger(records: Vec<Record>) -> Ledger {
    Ledger {
        records: records.into_iter().map(|r| (r.name.clone(), r)).collect(),
        ..Ledger::default()
    }
}
fn there() -> Observed {
    Observed::File {
        bytes: b"x".to_vec(),
        mode: 0o644,
        uid: 0,
        gid: 0,
    }
}
fn inputs(ledger: &Ledger, asks: Vec<Ask>) -> Inputs<'_> {
    let mut parts: BTreeMap<ModuleName, Vec<Ask>> = BTreeMap::new();
    for ask in asks {
        parts.entry(ask.name.module.clone()).or_default().push(ask);
    }
    let asks = || parts.values().flatten();
    Inputs {
        ledger,
        ledger_lost: false,
        declared: asks().filter_map(|a| a.target.clone()).collect(),
        names: asks().map(|a| a.name.clone()).collect(),
        replaced: BTreeMap::new(),
        left_out: BTreeMap::new(),
        adopted: false,
        take: BTreeSet::new(),
        there: ledger
            .records
            .values()
            .filter_map(|r| r.target.clone())
            .map(|t| (t, there()))
            .collect(),
        parts: parts
            .into_iter()
            .map(|(m, asks)| (m, Part::Apply(asks)))
            .collect(),
    }
}
fn sweeps(plan: &Plan) -> Vec<(String, &SweepHow)> {
    let sweeps = plan.steps.iter().filter_map(|step| match step {
        Step::Sweep(sweep) => Some((sweep.name.to_string(), &sweep.how)),
        _ => None,
    });
    sweeps.collect()
}

// holds: HR-2
#[test]
fn what_stands_as_asked_and_recorded_is_no_step_at_all() {
    let ledger = ledger(vec![record("web.a", "/a", Found::Nothing)]);
    let plan = plan(&inputs(
        &ledger,
        vec![ask("web.a", "/a", Decision::Unchanged, Some(file(b"x")))],
    ));
    assert_eq!(plan, Plan::default());
}

// holds: HR-2, HR-3
#[test]
fn the_same_change_is_drift_when_it_was_asked_before_and_an_update_when_not() {
    let had = ledger(vec![record("web.a", "/a", Found::Nothing)]);
    let change = || ask("web.a", "/a", Decision::Update("x".to_owned()), Some(file(b"x")));
    let mut other = change();
    other.asked = Digest::of(b"other");
    for (asked, outcome) in [(change(), Outcome::DriftRepaired), (other, Outcome::Updated)] {
        let plan = plan(&inputs(&had, vec![asked]));
        assert!(
            matches!(plan.steps.as_slice(), [Step::Write(w)] if w.outcome == outcome),
            "{plan:?}"
        );
    }
}

// holds: HK-11
#[test]
fn other_content_of_what_was_asked_is_no_drift_where_it_waits_for_a_window() {
    let had = ledger(vec![record("web.a", "/a", Found::Nothing)]);
    let outcome = |content: &[u8], is_behind_window| {
        let mut ask = ask("web.a", "/a", Decision::Update("x".to_owned()), Some(file(b"x")));
        ask.content = Some(Digest::of(content));
        ask.nature.is_behind_window = is_behind_window;
        match plan(&inputs(&had, vec![ask])).steps.as_slice() {
            [Step::Write(write)] => write.outcome,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(outcome(b"other", true), Outcome::Updated);
    assert_eq!(outcome(b"content", true), Outcome::DriftRepaired);
    assert_eq!(outcome(b"other", false), Outcome::DriftRepaired);
}

// holds: HR-6
#[test]
fn what_nothing_declares_goes_and_what_the_host_did_not_write_stays() {
    let ledger = ledger(vec![
        record("web.a", "/a", Found::Nothing),
        record("web.b", "/b", Found::Thing(file(b"theirs"))),
        record("web.c", "/c", Found::Unknown),
    ]);
    let plan = plan(&inputs(&ledger, Vec::new()));
    let hows = sweeps(&plan);
    assert_eq!(hows.len(), 3);
    assert!(matches!(hows.first(), Some((_, SweepHow::Remove))));
    assert!(matches!(hows.get(1), Some((_, SweepHow::Restore(_)))));
    assert!(matches!(hows.get(2), Some((_, SweepHow::Forget(_)))));
}

// holds: HR-16
#[test]
fn a_target_that_another_resource_declares_is_handed_over_and_not_removed() {
    let ledger = ledger(vec![record("old.a", "/a", Found::Thing(file(b"theirs")))]);
    let plan = plan(&inputs(
        &ledger,
        vec![ask("new.a", "/a", Decision::Unchanged, Some(file(b"x")))],
    ));
    let [Step::Record(record)] = plan.steps.as_slice() else {
        panic!("not one record: {plan:?}");
    };
    assert_eq!(record.name, name("new.a"));
    assert_eq!(record.found, Found::Thing(file(b"theirs")));
}

// holds: HR-6
#[test]
fn a_moved_target_goes_after_its_successor_stands_unless_it_is_in_the_way() {
    let ledger = ledger(vec![record("web.a", "/a", Found::Nothing)]);
    let create = || Decision::Create("x".to_owned());
    let late = plan(&inputs(&ledger, vec![ask("web.a", "/b", create(), None)]));
    assert!(
        matches!(late.steps.as_slice(), [Step::Write(_), Step::Sweep(s)] if s.moved),
        "{late:?}"
    );
    let early = plan(&inputs(&ledger, vec![ask("web.a", "/a/b", create(), None)]));
    assert!(
        matches!(early.steps.as_slice(), [Step::Sweep(_), Step::Write(_)]),
        "{early:?}"
    );
}

// holds: HR-7
#[test]
fn of_a_left_out_module_nothing_is_removed() {
    let ledger = ledger(vec![record("web.a", "/a", Found::Nothing)]);
    let mut inputs = inputs(&ledger, Vec::new());
    inputs
        .left_out
        .insert("web".parse().unwrap(), "no template".to_owned());
    let plan = plan(&inputs);
    assert!(plan.steps.is_empty());
    assert!(matches!(plan.lines.as_slice(), [l] if l.outcome == Outcome::LeftOut));
}

// holds: HR-8
#[test]
fn on_an_adopted_node_what_was_found_is_held_until_its_module_is_taken() {
    let empty = Ledger::default();
    let asks = || {
        vec![ask(
            "web.a",
            "/a",
            Decision::Update("1 line lost".to_owned()),
            Some(file(b"theirs")),
        )]
    };
    let mut adopted = inputs(&empty, asks());
    adopted.adopted = true;
    let held = plan(&adopted);
    assert!(held.steps.is_empty());
    assert_eq!(
        held.held.first().unwrap().reason,
        "web is assigned and not taken: 1 line lost"
    );
    let ledger = Ledger {
        held: held.holds,
        ..Ledger::default()
    };
    let mut taken = inputs(&ledger, asks());
    taken.adopted = true;
    taken.take.insert("web".parse().unwrap());
    let plan = plan(&taken);
    let [Step::Write(write)] = plan.steps.as_slice() else {
        panic!("not one write: {plan:?}");
    };
    assert_eq!(write.record.found, Found::Thing(file(b"theirs")));
}

// holds: HR-2
#[test]
fn an_observed_module_only_says_what_would_change_and_keeps_its_records() {
    let ledger = ledger(vec![record("web.gone", "/gone", Found::Nothing)]);
    let mut inputs = inputs(&ledger, Vec::new());
    let asks = vec![ask("web.a", "/a", Decision::Create("new".to_owned()), None)];
    inputs.parts.push(("web".parse().unwrap(), Part::Observe(asks)));
    let plan = plan(&inputs);
    assert!(plan.steps.is_empty(), "{plan:?}");
    assert!(plan.lines.first().unwrap().reason.contains("would change"));
}

fn takes_over<'a>(ledger: &'a Ledger, asks: Vec<Ask>) -> Inputs<'a> {
    let mut inputs = inputs(ledger, asks);
    inputs.replaced.insert(name("old.c"), name("web.app"));
    inputs
}

// holds: HK-7
#[test]
fn what_a_process_takes_over_from_goes_last_and_only_after_it_and_nothing_counts_it_as_gone() {
    let mut ledger = ledger(vec![
        record("old.c", "/made/c", Found::Nothing),
        record("old.d", "/d", Found::Nothing),
    ]);
    ledger.made.insert(path("/made"));
    let app = ask("web.app", "/app", Decision::Create("x".to_owned()), None);
    let mut inputs = takes_over(&ledger, vec![app]);
    let folder = Observed::Directory {
        names: vec!["c".to_owned()],
        mode: 0o755,
        uid: 0,
        gid: 0,
    };
    inputs.there.insert(path("/made").into(), folder);
    let plan = plan(&inputs);
    let [Step::Sweep(other), Step::Write(_), Step::Sweep(handed)] = plan.steps.as_slice() else {
        panic!("{plan:?}");
    };
    assert_eq!(
        (other.name.to_string(), &other.after),
        ("old.d".to_owned(), &None)
    );
    assert_eq!(
        (handed.name.to_string(), &handed.after),
        ("old.c".to_owned(), &Some(name("web.app")))
    );
    assert!(
        handed.acts() && handed.line().reason.ends_with("web.app has taken over from it"),
        "{handed:?}"
    );
}

// holds: HK-7
#[test]
fn an_orphan_of_a_former_order_is_handed_over_and_one_that_is_gone_needs_nobody() {
    let old = record("old.c", "/c", Found::Nothing);
    let mut ledger = Ledger::default();
    ledger.orphans.insert(path("/c").into(), old);
    let app = || ask("web.app", "/app", Decision::Unchanged, Some(file(b"x")));
    let mut inputs = takes_over(&ledger, vec![app()]);
    inputs.there.insert(path("/c").into(), there());
    let waits = plan(&inputs);
    let handed = |plan: &Plan| {
        plan.steps
            .iter()
            .any(|step| matches!(step, Step::Sweep(s) if s.after.is_some()))
    };
    assert!(handed(&waits) && waits.changes_something(&ledger), "{waits:?}");
    inputs.there.insert(path("/c").into(), Observed::Absent);
    let gone = plan(&inputs);
    assert!(!handed(&gone), "{gone:?}");
    assert_eq!(sweeps(&gone), [("old.c".to_owned(), &SweepHow::Gone)]);
}

// holds: HK-7
#[test]
fn while_the_process_is_not_applied_what_it_takes_over_from_is_kept() {
    let ledger = ledger(vec![record("old.c", "/c", Found::Nothing)]);
    let app = ask(
        "web.app",
        "/app",
        Decision::Create("x".to_owned()),
        Some(file(b"theirs")),
    );
    let parts = [
        Part::Observe(vec![app.clone()]),
        Part::Refused {
            names: vec![name("web.app")],
            why: "no such kind".to_owned(),
        },
        // Held: what was there is not the host's (HR-8).
        Part::Apply(vec![app]),
    ];
    for part in parts {
        let mut inputs = takes_over(&ledger, Vec::new());
        inputs.adopted = true;
        inputs.parts.push(("web".parse().unwrap(), part));
        let plan = plan(&inputs);
        let [Step::Sweep(sweep)] = plan.steps.as_slice() else {
            panic!("{plan:?}");
        };
        assert_eq!(sweep.line().outcome, Outcome::Kept);
        assert!(!plan.changes_something(&ledger), "{plan:?}");
    }
}
