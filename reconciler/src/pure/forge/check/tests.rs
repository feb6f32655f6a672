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

// holds: FR-11, DL-8
#[test]
fn a_former_check_that_fails_stands_in_comment_and_status() {
    use std::collections::BTreeMap;

    use crate::pure::compose::compose_tree;
    use crate::pure::example::generate;
    use crate::pure::identities::Passed;
    use crate::pure::source_tree::{EntryKind, SourceTree};

    let compose = |check: Option<&str>, without: &str| {
        let files = generate(4, 1).into_iter().map(|(path, bytes)| {
            let text = String::from_utf8(bytes).unwrap();
            (path, text.replace(without, ""))
        });
        let check = check.map(|text| ("checks/a.toml".to_owned(), text.to_owned()));
        let entries = files.chain(check).map(|(path, text)| {
            let bytes: Arc<[u8]> = Arc::from(text.as_bytes());
            (path.into_bytes(), EntryKind::Blob, bytes)
        });
        compose_tree(&SourceTree::from_entries(entries.collect()).0, None, None).unwrap()
    };
    let motd = "[[file]]\nid = \"motd\"\npath = \"/etc/motd\"\nsource = \"files/motd\"\n";
    let check = "[[check]]\nname = \"all are greeted\"\nhas = \"base.motd\"\n";
    let (before, after) = (compose(Some(check), "no such text"), compose(None, motd));
    let revoked = BTreeMap::new();
    let passed = Passed {
        tree: Some(&before),
        revoked: &revoked,
    };
    let outcome = Outcome::of("main", Ok(&before), Ok(&after), passed).unwrap();
    let (base, head) = ids();
    let said = comment(&of(&base, &head), &outcome).body;
    assert!(
        said.contains("  - `all are greeted` (checks/a.toml:2) goes\n"),
        "{said}"
    );
    assert!(
        said.contains("n00003 has no `base.motd`, and so on 3 more; the delivery waits for a go"),
        "{said}"
    );
    let status = status(&of(&base, &head), &outcome);
    assert_eq!(status.state, StatusState::Success);
    assert!(
        (status.description)
            .starts_with("it takes away or changes the check `all are greeted`, which fails then; the fleet"),
        "{}",
        status.description
    );
}
