use super::*;

fn of<'p>(base: &'p CommitId, head: &'p CommitId) -> Of<'p> {
    Of {
        number: 7,
        branch: "main",
        base,
        head,
        absent: &[],
    }
}

fn ids() -> (CommitId, CommitId) {
    ("a".repeat(40).parse().unwrap(), "b".repeat(40).parse().unwrap())
}

fn finding(line: u32) -> Finding {
    let mut finding = Finding::of_file("nodes/ace.toml", "no such role");
    finding.line = line;
    finding
}

// holds: DL-8
#[test]
fn errors_stand_in_comment_and_status_with_their_lines() {
    let (base, head) = ids();
    let outcome = Outcome::Refused {
        what: "the merge does not check".to_owned(),
        findings: vec![finding(3), finding(9), finding(12).warning()],
    };
    let status = status(&of(&base, &head), &outcome);
    assert_eq!(status.state, StatusState::Failure);
    assert_eq!(status.commit, head);
    assert_eq!(
        status.description,
        "the merge does not check: 2 errors, the first nodes/ace.toml:3: no such role"
    );
    let said = comment(&of(&base, &head), &outcome);
    assert!(said.body.starts_with(PREVIEW_MARKER));
    for line in [":3", ":9", ":12"] {
        assert!(
            said.body.contains(&format!("nodes/ace.toml{line}")),
            "{}",
            said.body
        );
    }
}

// holds: DL-8, B51
#[test]
fn ten_thousand_errors_or_conflicts_fit_and_the_rest_is_counted() {
    let (base, head) = ids();
    let refused = Outcome::Refused {
        what: "the merge does not check".to_owned(),
        findings: (1..10_000).map(finding).collect(),
    };
    let conflicts = Outcome::Conflicts((0..10_000).map(|n| format!("modules/web/files/{n}")).collect());
    for outcome in [refused, conflicts] {
        let said = comment(&of(&base, &head), &outcome);
        assert!(
            said.body.chars().count() <= COMMENT_CHARS,
            "{}",
            said.body.chars().count()
        );
        assert!(said.body.contains(" more"));
        assert!(status(&of(&base, &head), &outcome).description.chars().count() <= DESCRIPTION_CHARS);
    }
}
