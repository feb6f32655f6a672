//! Stories of a node, told to the agent without a socket or a disk.

mod artifacts;
mod left_behind;
mod node;
mod pausing;
mod policy;
mod starts;
mod windows;

use meshplan_schemas::declaration::{Declaration, Mode, OnFailure};
use meshplan_schemas::epoch::{InForce, Targeting};
use meshplan_schemas::lifecycle::epoch::EpochState;
use meshplan_schemas::report::{DeclarationState, Health, Outcome, ProbeLine, ResourceLine};
use meshplan_schemas::resource::{Ask, Probe, Resource};
use proptest::prelude::*;

use super::*;
use crate::pure::duties::RECONCILE_SECS;
use crate::pure::sample;
use node::{Node, applied, given, line, policy, with_probe};

// holds: SG-5, HR-2
#[test]
fn the_number_is_on_disk_before_the_order_is_kept_and_the_order_before_the_first_act() {
    let mut node = Node::new();
    let text = sample::text(&sample::declaration(1, &[("web", "web-1")]));
    let effects = node.on(Event::Order(text));
    let place = |wanted: fn(&Effect) -> bool| effects.iter().position(wanted).unwrap();
    let marks = place(|e| matches!(e, Effect::SaveMarks(_)));
    let kept = place(|e| matches!(e, Effect::Keep(Slot::Declaration, _)));
    let trying = place(|e| matches!(e, Effect::Keep(Slot::Trying, _)));
    let intent = place(|e| matches!(e, Effect::SaveStanding));
    let act = place(|e| matches!(e, Effect::Machine(Job::Apply(_))));
    assert!(marks < kept && kept < trying && trying < intent && intent < act);
}

// holds: HR-5, EP-2
#[test]
fn a_declaration_stays_once_a_session_that_came_up_after_it_stands() {
    let mut node = Node::new();
    node.on(Event::LinkUp(Way::Far));
    node.declare(&sample::declaration(1, &[("web", "web-1")]));
    assert_eq!(node.state(), (1, DeclarationState::AwaitingConfirm));
    assert_eq!(node.renewed, 1);
    node.tick(1);
    assert_eq!(
        node.state().1,
        DeclarationState::AwaitingConfirm,
        "the session from before does not count"
    );
    node.link();
    assert_eq!(node.state(), (1, DeclarationState::Confirmed));
    let status = node.agent.standing.declaration.clone().unwrap();
    assert_eq!(status.confirmed_sequence, 1);
    assert_eq!(status.confirmed_digest, Some(status.digest));
}

// holds: HR-5, HR-13
#[test]
fn without_a_session_it_goes_back_at_the_deadline_and_the_content_is_not_blamed() {
    let mut node = Node::new();
    node.declare(&sample::declaration(1, &[("web", "web-1")]));
    node.tick(59);
    assert_eq!(node.state().1, DeclarationState::AwaitingConfirm);
    node.tick(1);
    assert_eq!(node.state(), (1, DeclarationState::Reverted));
    assert_eq!(node.reason(), "no-link");
    assert!(node.agent.known_bad.is_empty());
    node.declare(&sample::declaration(2, &[("web", "web-1")]));
    assert_eq!(
        node.state().1,
        DeclarationState::AwaitingConfirm,
        "ordered again, it is tried again"
    );
}

// holds: DL-14, HR-11
#[test]
fn content_that_a_probe_refused_is_not_tried_again_by_itself_not_even_after_a_restart() {
    let mut node = Node::new();
    node.declare(&sample::declaration(1, &[("base", "base-1"), ("web", "web-1")]));
    node.link();
    node.declare(&with_probe(sample::declaration(
        2,
        &[("base", "base-1"), ("web", "web-2")],
    )));
    node.link();
    node.now += 60;
    node.probes_say(Health::Unhealthy, "HTTP 500, expected 200");
    assert_eq!(node.state(), (2, DeclarationState::Reverted));
    assert_eq!(node.reason(), "web.front: HTTP 500, expected 200");
    let verdict = node.agent.standing.rollbacks[0].clone();
    assert_eq!(
        (verdict.component.as_str(), verdict.from, verdict.to),
        (
            "web",
            sample::digest("web-2").to_string(),
            sample::digest("web-1").to_string()
        )
    );

    // The reconciler has forgotten it and orders the same content under a newer number.
    let confirmed = node.agent.orders.confirmed.as_ref().map(|c| c.digest);
    let mut node = node.restarted(StartedWindow::Clean, confirmed);
    node.tick(100);
    assert_eq!(
        node.state(),
        (2, DeclarationState::Reverted),
        "nothing is tried again by a restart"
    );
    node.declare(&with_probe(sample::declaration(
        3,
        &[("base", "base-1"), ("web", "web-2")],
    )));
    assert_eq!(node.state(), (3, DeclarationState::KnownBad));
    assert!(node.reason().contains("HTTP 500"), "{}", node.reason());
    assert!(!node.events().contains(&"declaration.applying"));

    // The way back is never known bad, and a person may have it tried once more.
    node.declare(&sample::declaration(4, &[("base", "base-1"), ("web", "web-1")]));
    node.link();
    assert_eq!(node.state(), (4, DeclarationState::Confirmed));
    assert!(node.agent.standing.rollbacks.is_empty());
    let mut again = with_probe(sample::declaration(5, &[("base", "base-1"), ("web", "web-2")]));
    again.again = vec![sample::digest("web-2")];
    node.declare(&again);
    assert_eq!(node.state(), (5, DeclarationState::AwaitingConfirm));
}

// holds: HR-5
#[test]
fn a_failed_resource_takes_all_back_and_its_module_alone_is_remembered() {
    let mut node = Node::new();
    node.ends = vec![Applied {
        lines: vec![line("web.conf", Outcome::Failed, "no such user")],
        failed: true,
        ..applied(ApplyEnd::Reverted(confirm::Reason::Resource(
            "web.conf: no such user".into(),
        )))
    }];
    node.declare(&sample::declaration(1, &[("db", "db-1"), ("web", "web-1")]));
    assert_eq!(node.state(), (1, DeclarationState::Reverted));
    assert_eq!(node.reason(), "web.conf: no such user");
    assert!(node.agent.known_bad.get(&sample::digest("web-1")).is_some());
    assert!(node.agent.known_bad.get(&sample::digest("db-1")).is_none());
}

// holds: HR-5
#[test]
fn with_keep_what_was_done_stays_and_the_failure_is_said_until_a_repair_mends_it() {
    let mut node = Node::new();
    let mut keep = sample::declaration(1, &[("web", "web-1")]);
    keep.on_failure = OnFailure::Keep;
    node.ends = vec![Applied {
        lines: vec![line("web.conf", Outcome::Failed, "no such user")],
        failed: true,
        ..applied(ApplyEnd::WindowOpen)
    }];
    node.declare(&keep);
    node.link();
    assert_eq!(node.state(), (1, DeclarationState::Failed));
    assert_eq!(node.reason(), "web.conf: no such user");
    assert_eq!(
        node.agent
            .standing
            .declaration
            .as_ref()
            .unwrap()
            .confirmed_sequence,
        1
    );
    node.tick(i64::from(RECONCILE_SECS));
    assert_eq!(node.state(), (1, DeclarationState::Confirmed));
}

// holds: HR-1
#[test]
fn while_a_window_is_open_orders_wait_and_the_highest_sequence_is_taken_next() {
    let mut node = Node::new();
    node.declare(&sample::declaration(1, &[("web", "web-1")]));
    node.declare(&sample::declaration(2, &[("web", "web-2")]));
    node.declare(&sample::declaration(4, &[("web", "web-4")]));
    node.declare(&sample::declaration(3, &[("web", "web-3")]));
    assert_eq!(node.state(), (1, DeclarationState::AwaitingConfirm));
    let refused = &node.agent.standing.refused;
    assert_eq!(refused.len(), 1);
    assert_eq!(
        (refused[0].code.as_str(), refused[0].number),
        ("replayed", Some(3))
    );
    node.link();
    assert_eq!(node.state(), (4, DeclarationState::AwaitingConfirm));
    assert_eq!(
        node.journal
            .iter()
            .filter(|e| e.event == "declaration.set-aside")
            .count(),
        1
    );
    node.link();
    assert_eq!(node.state(), (4, DeclarationState::Confirmed));
}

// holds: HR-2
#[test]
fn a_declaration_that_changes_nothing_is_confirmed_at_once_and_says_converged() {
    let mut node = Node::new();
    node.ends = vec![applied(ApplyEnd::Converged)];
    node.declare(&sample::declaration(1, &[("web", "web-1")]));
    assert_eq!(node.state(), (1, DeclarationState::Confirmed));
    assert!(node.agent.standing.declaration.as_ref().unwrap().converged);
    assert_eq!(node.renewed, 0);
}

// holds: HR-1
#[test]
fn the_same_order_again_does_nothing() {
    let mut node = Node::new();
    let order = sample::declaration(1, &[("web", "web-1")]);
    node.declare(&order);
    node.link();
    let reports = node.reports.len();
    let effects = node.order(sample::text(&order));
    assert_eq!(effects, []);
    assert_eq!(node.reports.len(), reports);
}

// holds: SG-5
#[test]
fn a_refused_order_causes_a_line_of_the_journal_and_a_report_and_nothing_else() {
    let mut node = Node::new();
    let forged = sample::text_by(&sample::declaration(9, &[("web", "evil")]), 2);
    let effects = node.order(forged);
    let others: Vec<_> = effects
        .iter()
        .filter(|e| !matches!(e, Effect::Journal(_) | Effect::SaveStanding | Effect::Report(_)))
        .collect();
    assert!(others.is_empty(), "{others:?}");
    assert_eq!(node.agent.standing.refused[0].code, "unknown_author");
    assert_eq!(node.agent.marks.sequence, None);
}

// holds: SG-11, HR-11
#[test]
fn an_order_of_the_day_after_tomorrow_is_refused_once_the_clock_is_known_to_be_right() {
    let mut node = Node::new();
    let mut ahead = sample::declaration(1, &[("web", "web-1")]);
    ahead.issued_at = node.now + 2 * 86_400;
    node.agent.trust_clock(Some(false));
    node.declare(&ahead);
    assert_eq!(node.state().0, 1, "a clock that may be wrong refuses nothing");

    let mut node = Node::new();
    node.agent.trust_clock(Some(true));
    assert_eq!(node.agent.clock_trusted(node.now), Some(true));
    node.on(Event::Order(sample::text(&ahead)));
    assert_eq!(node.agent.standing.declaration, None);
    let refused = node.agent.standing.refused.clone();
    assert!(refused[0].reason.contains("ahead"), "{refused:?}");
    assert_eq!(node.agent.marks().sequence, None, "no number was taken from it");

    // A clock that is behind what was signed is wrong, whoever keeps it: it refuses nothing any more.
    let mut node = Node::new();
    node.on(Event::Order(sample::text(&sample::timestamp(
        node.now + 3600,
        node.now + 90_000,
    ))));
    node.agent.trust_clock(Some(true));
    assert_eq!(node.agent.clock_trusted(node.now), Some(false));
    node.declare(&ahead);
    assert_eq!(node.state().0, 1);
}

// holds: B40
#[test]
fn an_order_for_which_there_is_no_room_is_refused_in_words_and_taken_when_there_is() {
    let mut node = Node::new();
    let order = sample::declaration(1, &[("web", "web-1")]);
    node.agent.lacks_room(Some("no space is left on the disk".into()));
    let effects = node.order(sample::text(&order));
    let kept = |e: &Effect| matches!(e, Effect::Keep(..) | Effect::SaveMarks(_) | Effect::Machine(_));
    assert!(!effects.iter().any(kept), "{effects:?}");
    let refused = node.agent.standing.refused.first().unwrap();
    assert_eq!(
        (refused.order.as_str(), refused.number, refused.code.as_str()),
        ("declaration", Some(1), "disk_full")
    );
    assert!(refused.reason.contains("no space"));
    assert_eq!(node.reports.last(), Some(&Cause::Change));
    // A forgery is told as one, room or not.
    node.agent.lacks_room(Some("no space is left on the disk".into()));
    node.order(sample::text_by(&order, 2));
    assert_eq!(node.agent.standing.refused.last().unwrap().code, "unknown_author");
    node.declare(&order);
    assert_eq!(node.state(), (1, DeclarationState::AwaitingConfirm));
}

// holds: SG-5
#[test]
fn the_words_of_a_hostile_order_do_not_fill_a_report() {
    let mut node = Node::new();
    let mut order = sample::declaration(1, &[("web", "web-1")]);
    order.must_understand = vec!["\u{e4}".repeat(100_000)];
    node.declare(&order);
    let refused = node.agent.standing.refused.first().unwrap();
    assert!(refused.reason.len() <= 500 && refused.reason.contains('\u{e4}'));
}

// holds: DL-14
#[test]
fn a_module_that_is_only_looked_at_is_never_blamed() {
    let mut node = Node::new();
    let mut order = with_probe(sample::declaration(1, &[("db", "db-1"), ("web", "web-1")]));
    for entry in &mut order.modules {
        if entry.module.to_string() == "web" {
            entry.mode = Mode::Observe;
        }
    }
    node.declare(&order);
    node.probes_say(Health::Unhealthy, "HTTP 500");
    node.tick(60);
    assert_eq!(node.state(), (1, DeclarationState::Reverted));
    assert!(node.agent.known_bad.get(&sample::digest("db-1")).is_some());
    assert!(node.agent.known_bad.get(&sample::digest("web-1")).is_none());
}

// holds: HK-13
#[test]
fn slow_probes_are_not_asked_again_while_they_have_not_answered() {
    let mut node = Node::new();
    node.declare(&with_probe(sample::declaration(1, &[("web", "web-1")])));
    let windows = |node: &Node| {
        node.asked
            .iter()
            .filter(|p| matches!(p, Purpose::Window(_)))
            .count()
    };
    for _ in 0..10 {
        node.tick(2);
    }
    assert_eq!(windows(&node), 1);
    node.probes_say(Health::Unhealthy, "no");
    node.tick(2);
    assert_eq!(windows(&node), 2);
}

// holds: DL-5
#[test]
fn a_look_asks_the_probes_afresh_and_then_reports_under_its_id() {
    let mut node = Node::new();
    node.declare(&with_probe(sample::declaration(1, &[("web", "web-1")])));
    node.on(Event::Look(42));
    assert_eq!(node.asked.last(), Some(&Purpose::Look(42)));
    assert!(!node.reports.contains(&Cause::Look(42)));
    node.on(Event::Probed {
        purpose: Purpose::Look(42),
        lines: vec![],
    });
    assert_eq!(node.reports.last(), Some(&Cause::Look(42)));
}

// holds: DL-5
#[test]
fn a_flood_of_looks_asks_the_probes_once_and_then_for_the_newest() {
    let mut node = Node::new();
    for id in 1..100 {
        node.on(Event::Look(id));
    }
    let looks = |node: &Node| {
        let asked = node.asked.iter().filter(|p| matches!(p, Purpose::Look(_)));
        asked.copied().collect::<Vec<_>>()
    };
    assert_eq!(looks(&node), [Purpose::Look(1)]);
    let answer = |id| Event::Probed {
        purpose: Purpose::Look(id),
        lines: vec![],
    };
    node.on(answer(1));
    assert_eq!(looks(&node), [Purpose::Look(1), Purpose::Look(99)]);
    node.on(answer(99));
    assert_eq!(node.reports.last(), Some(&Cause::Look(99)));
    node.on(Event::Look(100));
    assert_eq!(looks(&node).len(), 3);
}

// holds: HR-13
#[test]
fn an_answer_of_probes_that_were_asked_for_a_former_window_is_not_counted() {
    let mut node = Node::new();
    node.declare(&with_probe(sample::declaration(1, &[("web", "web-1")])));
    node.link();
    node.on(Event::Probed {
        purpose: Purpose::Window(node.agent.serial - 1),
        lines: vec![],
    });
    node.work();
    assert_eq!(node.state().1, DeclarationState::AwaitingConfirm);
    node.probes_say(Health::Healthy, "");
    assert_eq!(node.state().1, DeclarationState::Confirmed);
}

// holds: HR-2
#[test]
fn drift_is_put_right_at_the_reconcile_and_reported() {
    let mut node = Node::new();
    node.declare(&sample::declaration(1, &[("web", "web-1")]));
    node.link();
    node.now += i64::from(RECONCILE_SECS);
    node.on(Event::Tick);
    assert!(matches!(node.jobs[..], [Job::Repair(_)]));
    node.jobs.clear();
    let reports = node.reports.len();
    node.on(Event::Done(Box::new(Done::Repaired(Applied {
        lines: vec![line("web.conf", Outcome::DriftRepaired, "somebody edited it")],
        ..applied(ApplyEnd::Converged)
    }))));
    assert_eq!(node.reports.get(reports..), Some(&[Cause::Change][..]));
    node.tick(i64::from(RECONCILE_SECS));
    assert!(
        node.agent.standing.lines.is_empty(),
        "nothing was left to put right"
    );
}

// holds: SG-3
#[test]
fn the_former_head_is_kept_until_a_session_under_the_new_one_has_worked() {
    let mut node = Node::new();
    node.on(Event::LinkUp(Way::Far));
    node.order(sample::text(&sample::head(2, &[1, 3]).0));
    assert_eq!(
        node.agent.orders.former_head.as_ref().map(|h| h.payload.revision),
        Some(1)
    );
    node.order(sample::text(&sample::head(3, &[1, 3]).0));
    assert_eq!(
        node.agent.orders.former_head.as_ref().map(|h| h.payload.revision),
        Some(1)
    );
    node.on(Event::LinkDown);
    let effects = node.on(Event::LinkUp(Way::Far));
    assert!(effects.contains(&Effect::Drop(Slot::FormerHead)));
    assert_eq!(node.agent.orders.former_head, None);
}

// holds: EP-2
#[test]
fn a_verdict_that_the_machine_could_not_carry_out_is_tried_again() {
    let mut node = Node::new();
    node.declare(&sample::declaration(1, &[("web", "web-1")]));
    node.now += 60;
    node.on(Event::Tick);
    assert!(matches!(node.jobs.pop(), Some(Job::Revert(_))));
    node.on(Event::Done(Box::new(Done::Failed(
        "revert: the disk is full".into(),
    ))));
    assert_eq!(node.state().1, DeclarationState::AwaitingConfirm);
    node.tick(1);
    assert_eq!(node.state().1, DeclarationState::Reverted);
}

fn any_event() -> impl Strategy<Value = u8> {
    0u8..9
}

proptest! {
    // holds: HR-5, EP-2
    #[test]
    fn whatever_happens_one_thing_at_a_time_touches_the_machine_and_every_window_ends(
        events in proptest::collection::vec((any_event(), 0i64..40), 1..60)
    ) {
        let mut node = Node::new();
        let (mut sequence, mut epoch) = (0, 0);
        for (event, later) in events {
            node.now += later;
            match event {
                0 => { node.on(Event::LinkUp(Way::Far)); }
                1 => { node.on(Event::LinkDown); }
                2 => {
                    sequence += 1;
                    let order = sample::declaration(sequence, &[("web", &format!("web-{sequence}"))]);
                    node.on(Event::Order(sample::text(&order)));
                }
                3 => {
                    epoch += 1;
                    let value = u32::try_from(epoch).unwrap();
                    node.on(Event::Order(sample::text(&policy(epoch, value, Targeting::everyone(), vec![]))));
                }
                4 => { node.on(Event::Restarting { secs: 60 }); }
                5 => { node.on(Event::Look(1)); }
                6 => { node.on(Event::Tick); }
                7 => {
                    node.ends = vec![applied(ApplyEnd::Reverted(confirm::Reason::Resource("no".into())))];
                    node.work();
                }
                _ => node.work(),
            }
            // Arming, rebuilding and listing ride along; of what the agent waits for there is at most one.
            let waited = node.jobs.iter().filter(|j| !matches!(j, Job::Arm(_) | Job::Rebuild(..) | Job::Strays(_))).count();
            prop_assert!(waited <= 1, "{:?}", node.jobs);
        }
        for _ in 0..20 {
            node.work();
            node.tick(200);
        }
        prop_assert!(node.agent.standing.window.is_none());
        if sequence > 0 {
            let (number, state) = node.state();
            prop_assert_eq!(number, sequence);
            prop_assert!(matches!(state, DeclarationState::Confirmed | DeclarationState::Reverted));
        }
    }
}

// holds: HR-9, HR-11
#[test]
fn strays_are_listed_after_each_apply_and_look_and_a_change_of_them_alone_makes_no_report() {
    let mut node = Node::new();
    node.declare(&sample::declaration(1, &[("web", "web-1")]));
    node.strays = vec!["container a".to_owned()];
    node.link();
    assert_eq!(node.agent.standing.strays, ["container a"]);
    node.now += i64::from(RECONCILE_SECS);
    node.on(Event::Tick);
    node.reports.clear();
    node.on(Event::Done(Box::new(Done::Repaired(applied(
        ApplyEnd::Converged,
    )))));
    let effects = node.on(Event::Done(Box::new(Done::Strays(vec!["container b".into()]))));
    assert!(effects.contains(&Effect::SaveStanding), "`status` reads the file");
    assert!(node.reports.is_empty(), "{:?}", node.reports);
    let report = crate::pure::report::compose(&node.agent, Cause::Heartbeat, sample::facts(1), node.now);
    assert_eq!(report.strays, ["container b"]);
}

// holds: HR-9, HR-13
#[test]
fn nothing_is_listed_before_a_window_is_armed_and_has_its_verdict() {
    for confirmed in [true, false] {
        let mut node = Node::new();
        node.strays = vec!["container a".to_owned()];
        node.on(Event::Order(sample::text(&sample::declaration(
            1,
            &[("web", "web-1")],
        ))));
        node.jobs.clear();
        node.on(Event::Done(Box::new(Done::Applied(applied(
            ApplyEnd::WindowOpen,
        )))));
        assert!(matches!(node.jobs[..], [Job::Arm(_)]), "{:?}", node.jobs);
        node.jobs.clear();
        let done = if confirmed {
            node.on(Event::LinkDown);
            node.on(Event::LinkUp(Way::Far));
            assert_eq!(node.jobs, [Job::Confirm]);
            Done::Confirmed
        } else {
            node.now += 60;
            node.on(Event::Tick);
            assert!(matches!(node.jobs[..], [Job::Revert(_)]), "{:?}", node.jobs);
            Done::Reverted(vec![])
        };
        node.jobs.clear();
        node.on(Event::Done(Box::new(done)));
        assert!(
            matches!(node.jobs.first(), Some(Job::Strays(_))),
            "{:?}",
            node.jobs
        );
        node.work();
        assert_eq!(node.agent.standing.strays, ["container a"]);
    }
    // Where no window was opened, that is the end.
    let mut node = Node::new();
    node.strays = vec!["container a".to_owned()];
    node.ends = vec![applied(ApplyEnd::Converged)];
    node.declare(&sample::declaration(1, &[("web", "web-1")]));
    assert_eq!(node.agent.standing.strays, ["container a"]);
}
