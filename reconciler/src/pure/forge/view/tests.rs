use super::*;
use crate::pure::decide::why::Why;
use crate::pure::delivery::Delivery;
use crate::pure::page;
use crate::pure::snapshot::Nodes;

fn commit() -> CommitId {
    "d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4".parse().unwrap()
}

fn seen() -> DeliveryView {
    let mut delivery =
        Delivery::announced("acme/fleet", commit(), 1, "2026-11-29T10:00:00Z".parse().unwrap());
    delivery.reason = "ace does not answer @everybody".to_owned();
    page::delivery(&delivery, &[], &Nodes::new())
}

fn machine(name: &str, word: &str) -> MachineView {
    MachineView {
        name: name.to_owned(),
        class: "required".to_owned(),
        word: word.to_owned(),
        reason: "healthy 1 times".to_owned(),
    }
}

// holds: DL-11
#[test]
fn every_state_has_its_status_and_none_that_is_open_is_a_success() {
    for state in State::ALL {
        let said = status(&commit(), *state, Code::Announced, &"long ".repeat(100)).state;
        assert_eq!(said == StatusState::Pending, !state.is_final(), "{state}");
    }
    assert_eq!(
        status(&commit(), State::Delivered, Code::Done, "").state,
        StatusState::Success
    );
    assert_eq!(
        status(&commit(), State::RolledBack, Code::Taken, "").state,
        StatusState::Failure
    );
    assert_eq!(
        status(&commit(), State::Failed, Code::Internal, "").state,
        StatusState::Error
    );
    let long = status(&commit(), State::Held, Code::Window, &"long\n".repeat(100));
    assert_eq!(long.description.chars().count(), DESCRIPTION_CHARS);
    assert!(!long.description.contains('\n'));
}

// holds: DL-11, B51
#[test]
fn a_comment_fits_whatever_it_has_to_tell_and_tells_what_it_leaves_out() {
    let mut view = seen();
    view.stages.push(StageView {
        name: "rest".to_owned(),
        summary: "5000 open".to_owned(),
        current: true,
        machines: (0..5000)
            .map(|n| machine(&format!("node-{n}"), "failed"))
            .collect(),
    });
    view.story = (0..5000).map(|n| format!("line {n} of the story")).collect();
    view.reason = "x".repeat(500);
    let said = comment(7, &view, &[]);
    assert!(said.body.chars().count() <= COMMENT_CHARS, "{}", said.body.len());
    assert!(said.body.starts_with(VIEW_MARKER));
    assert!(said.body.contains("more lines; `meshplan deliveries show`"));
    assert!(said.body.contains("line 4999 of the story"), "the newest is kept");
}

// holds: DL-11
#[test]
fn progress_inside_a_look_is_no_news() {
    let mut view = seen();
    view.stages.push(StageView {
        name: "canary".to_owned(),
        summary: "1 open".to_owned(),
        current: true,
        machines: vec![machine("ace", "open")],
    });
    let before = comment(7, &view, &[]);
    view.stages[0].machines[0].reason = "healthy 2 times".to_owned();
    assert_eq!(comment(7, &view, &[]), before);
    view.stages[0].machines[0].word = "passed".to_owned();
    assert_ne!(comment(7, &view, &[]), before);
    assert!(
        before.body.contains("`ace does not answer @everybody`"),
        "nobody is called: {}",
        before.body
    );
}

// holds: DL-4
#[test]
fn a_word_stands_in_the_comment_with_what_came_of_it() {
    let words = [Answered {
        by: "dana".to_owned(),
        word: "/plans go".to_owned(),
        answer: Some("refused: only a held delivery waits for a go".to_owned()),
    }];
    let said = comment(7, &seen(), &words);
    assert!(
        said.body
            .contains("- `dana` said `/plans go`: `refused: only a held delivery waits for a go`"),
        "{}",
        said.body
    );
}

// holds: DL-16, DL-11
#[test]
fn a_comment_says_what_is_waited_for_and_is_no_other_for_a_look() {
    let asked = |state: State, looked: &str| {
        let mut view = seen().answering(Some(Why {
            waits_for: looked.to_owned(),
            rule: "plans/web.toml:4, stage canary".to_owned(),
            next: "the stage rest".to_owned(),
            deadline: Some("2026-11-29T11:00:00Z".parse().unwrap()),
            command: Some("meshplan deliveries stop d4d4d4d4d4d4".to_owned()),
            as_of: "2026-11-29T10:30:00Z".parse().unwrap(),
        }));
        view.state = state;
        comment(7, &view, &[]).body
    };
    let held = asked(State::Held, "a person: said so");
    for line in [
        "- Waits for: `a person: said so`",
        "- Rule: `plans/web.toml:4, stage canary`",
        "- Next: `the stage rest`",
        "- Until: 2026-11-29 11:00:00Z",
        "- Command: `meshplan deliveries stop d4d4d4d4d4d4`",
    ] {
        assert!(held.contains(line), "no {line} in {held}");
    }
    assert!(!held.contains("10:30"), "{held}");
    let once = asked(State::Delivering, "looks at ace (1 of 3 looks healthy)");
    assert_eq!(
        once,
        asked(State::Delivering, "looks at ace (2 of 3 looks healthy)")
    );
}
