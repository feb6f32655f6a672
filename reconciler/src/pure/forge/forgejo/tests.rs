use super::*;

const HEAD: &str = "c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2";
const MERGE: &str = "d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4";

fn pull(extra: &str) -> String {
    format!(
        r#"{{"id":902,"number":7,"user":{{"id":41,"login":"dana","username":"dana"}},"title":"WIP: x","body":"","draft":true,
        "base":{{"label":"main","ref":"main","sha":"{MERGE}","repo_id":12}},
        "head":{{"label":"edge","ref":"edge","sha":"{HEAD}","repo_id":55,"repo":null}},{extra}}}"#
    )
}

// holds: FG-1, B06
#[test]
fn only_a_merge_that_the_forge_calls_merged_has_a_commit() {
    let open = pull(&format!(
        r#""state":"open","merged":false,"merged_at":null,"merge_commit_sha":"{MERGE}""#
    ));
    let open = read_pull(open.as_bytes()).unwrap();
    assert!(open.open && open.fork && open.merged.is_none());
    assert_eq!(
        (open.number, open.into.as_str(), open.head.as_str()),
        (7, "main", HEAD)
    );
    let merged = pull(&format!(
        r#""state":"closed","merged":true,"merged_at":"2026-11-29T10:00:00Z","merge_commit_sha":"{MERGE}""#
    ));
    let merged = read_pull(merged.as_bytes()).unwrap();
    assert_eq!(merged.merged.unwrap().commit.as_str(), MERGE);
}

// holds: B06
#[test]
fn a_short_id_is_refused_and_hides_no_other_pull_request() {
    let rest = r#""state":"open","merged":false,"merged_at":null,"merge_commit_sha":null"#;
    let short = pull(rest).replace(HEAD, "c2c2c2c2c2c2");
    assert!(read_pull(short.as_bytes()).is_err());
    let page = read_pulls(format!("[{short},{}]", pull(rest)).as_bytes()).unwrap();
    assert_eq!((page.count, page.items.len()), (2, 1));
}

// holds: B57
#[test]
fn who_took_over_a_login_is_not_its_former_owner() {
    let dana = User {
        id: 41,
        login: "dana".to_owned(),
    };
    let says = |permission: &str, id: u64| {
        let body =
            format!(r#"{{"permission":"{permission}","role_name":"x","user":{{"id":{id},"login":"dana"}}}}"#);
        read_may_write(&dana, body.as_bytes()).unwrap()
    };
    for may in ["write", "admin", "owner"] {
        assert!(says(may, 41));
        assert!(!says(may, 42));
    }
    for may_not in ["read", "none", "", "Owner"] {
        assert!(!says(may_not, 41));
    }
    assert!(!read_may_write(&dana, br#"{"permission":"admin","user":null}"#).unwrap());
}

// holds: B54
#[test]
fn names_are_encoded_into_paths() {
    assert_eq!(
        Repo::parse("acme/fleet").unwrap().pull(7).path,
        "repos/acme/fleet/pulls/7"
    );
    let odd = Repo::parse("ac me/../x");
    assert!(odd.is_none());
    let repo = Repo::parse("../fl?eet").unwrap();
    let odd = User {
        id: 1,
        login: "a/b#c".to_owned(),
    };
    assert_eq!(
        repo.permission(&odd).path,
        "repos/%2E%2E/fl%3Feet/collaborators/a%2Fb%23c/permission"
    );
    assert!(Repo::parse("fleet").is_none());
}

// holds: DL-15
#[test]
fn an_approval_counts_of_just_the_head_and_as_the_last_word_of_its_reviewer() {
    let review = |by: u64, state: &str, more: &str| {
        format!(
            r#"{{"user":{{"id":{by},"login":"u{by}"}},"state":"{state}","commit_id":"{HEAD}","submitted_at":"2026-11-29T09:40:00Z",{more}}}"#
        )
    };
    let counts = r#""official":true,"stale":false,"dismissed":false"#;
    let names = |bodies: &[String]| -> Vec<String> {
        let page = read_reviews(format!("[{}]", bodies.join(",")).as_bytes()).unwrap();
        assert_eq!(page.count, bodies.len());
        let author = User {
            id: 41,
            login: "dana".to_owned(),
        };
        let yes = super::super::approving(&page.items, &HEAD.parse().unwrap(), &author);
        yes.into_iter().map(|(user, _)| user.login).collect()
    };
    let yes = review(42, "APPROVED", counts);
    assert_eq!(names(std::slice::from_ref(&yes)), ["u42"]);
    assert_eq!(names(&[yes.clone(), review(42, "COMMENT", counts)]), ["u42"]);
    assert!(names(&[yes.clone(), review(42, "REQUEST_CHANGES", counts)]).is_empty());
    assert!(names(&[review(41, "APPROVED", counts)]).is_empty(), "his own");
    assert!(names(&[yes.replace(HEAD, MERGE)]).is_empty(), "of another head");
    let team = format!(r#"{{"user":null,"team":{{"id":1}},"state":"REQUEST_REVIEW",{counts}}}"#);
    assert_eq!(names(&[team, yes]), ["u42"]);
    for not in ["official", "stale", "dismissed"] {
        let flag = |name: &str, usual: bool| format!(r#""{name}":{}"#, usual != (name == not));
        let more = [
            flag("official", true),
            flag("stale", false),
            flag("dismissed", false),
        ]
        .join(",");
        assert!(names(&[review(42, "APPROVED", &more)]).is_empty(), "{not}");
    }
}

// holds: DL-2
#[test]
fn a_status_says_its_state_in_the_field_status() {
    let item = |context: &str, status: &str| {
        format!(r#"{{"context":"{context}","status":"{status}","state":"success"}}"#)
    };
    let body = format!(
        r#"{{"state":"failure","total_count":7,"statuses":[{},{},{},{}]}}"#,
        item("a", "success"),
        item("b", "pending"),
        item("c", "error"),
        item("d", "warning")
    );
    let page = read_statuses(body.as_bytes()).unwrap();
    assert_eq!(page.total, Some(7));
    let verdicts: Vec<Verdict> = page.items.iter().map(|check| check.verdict).collect();
    assert_eq!(
        verdicts,
        [
            Verdict::Passed,
            Verdict::Running,
            Verdict::Failed,
            Verdict::Failed
        ]
    );
    let none = read_statuses(br#"{"state":"","total_count":0,"statuses":null}"#).unwrap();
    assert_eq!((none.total, none.count), (Some(0), 0));
}

// holds: DL-4, B57
#[test]
fn a_team_is_found_in_the_organisation_and_its_members_are_known_by_number() {
    let repo = Repo::parse("acme/fleet").unwrap();
    assert_eq!(repo.teams().unwrap().path, "orgs/acme/teams?page=1&limit=50");
    let teams = repo.read_teams(br#"[{"id":31,"name":"ops","permission":"write"}]"#);
    assert_eq!(
        teams.unwrap().items,
        [Team {
            id: 31,
            name: "ops".to_owned()
        }]
    );
    assert_eq!(repo.members("31").path, "teams/31/members?page=1&limit=50");
    let members = repo.read_members(br#"[{"id":41,"login":"dana"},{"id":-1,"login":"Ghost"}]"#);
    let members = members.unwrap();
    assert_eq!(
        (members.count, members.items.len()),
        (2, 1),
        "who is gone is in no team"
    );
}

// holds: DL-4
#[test]
fn of_comments_those_are_asked_for_that_may_be_new() {
    let repo = Repo::parse("acme/fleet").unwrap();
    assert_eq!(repo.comments(7, None).path, "repos/acme/fleet/issues/7/comments");
    let since = "2026-11-29T10:00:00.7Z".parse().unwrap();
    assert_eq!(
        repo.comments(7, Some(since)).path,
        "repos/acme/fleet/issues/7/comments?since=2026-11-29T10:00:00Z"
    );
}
