use super::*;
use crate::pure::forge::approving;

const HEAD: &str = "c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2";
const BASE: &str = "b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0";
const TRIAL: &str = "efefefefefefefefefefefefefefefefefefefef";

fn repo() -> Repo {
    Repo::parse("acme/fleet").unwrap()
}

fn pull(state: &str, merged_at: &str, head_repo: &str) -> String {
    format!(
        r#"{{"id":902,"number":7,"state":"{state}","user":{{"login":"dana","id":41,"type":"User"}},"merged_at":{merged_at},
        "merge_commit_sha":"{TRIAL}","head":{{"label":"dana:edge","ref":"edge","sha":"{HEAD}","repo":{head_repo}}},
        "base":{{"label":"acme:main","ref":"main","sha":"{BASE}","repo":{{"id":12,"full_name":"acme/fleet"}}}}}}"#
    )
}

// holds: FG-1, B06
#[test]
fn the_test_merge_of_one_that_is_not_merged_is_no_merge() {
    for state in ["open", "closed"] {
        let read = repo()
            .read_pull(pull(state, "null", r#"{"id":12}"#).as_bytes())
            .unwrap();
        assert!(read.merged.is_none() && !read.fork, "{state}");
        assert_eq!(read.open, state == "open");
        assert_eq!(read.base.unwrap().as_str(), BASE);
    }
    let merged = pull("closed", r#""2026-11-29T10:00:00Z""#, "null");
    let read = repo().read_pulls(format!("[{merged}]").as_bytes()).unwrap();
    let read = read.items.first().unwrap();
    assert_eq!(read.merged.as_ref().unwrap().commit.as_str(), TRIAL);
    assert!(read.fork, "a fork that is gone is a fork");
}

// holds: B06
#[test]
fn a_short_id_is_refused_and_hides_no_other_pull_request() {
    let good = pull("open", "null", r#"{"id":55}"#);
    let short = good.replace(HEAD, "c2c2c2c2c2c2");
    assert!(repo().read_pull(short.as_bytes()).is_err());
    let page = repo().read_pulls(format!("[{short},{good}]").as_bytes()).unwrap();
    assert_eq!((page.count, page.items.len()), (2, 1));
}

// holds: DL-15
#[test]
fn the_last_word_of_a_reviewer_that_is_no_comment_counts() {
    let review = |by: u64, state: &str, commit: &str| {
        format!(
            r#"{{"id":1,"user":{{"id":{by},"login":"u{by}"}},"state":"{state}","commit_id":{commit},"submitted_at":"2026-11-29T09:40:00Z"}}"#
        )
    };
    let names = |bodies: &[String]| -> Vec<String> {
        let page = repo()
            .read_reviews(format!("[{}]", bodies.join(",")).as_bytes())
            .unwrap();
        let author = User {
            id: 41,
            login: "dana".to_owned(),
        };
        let yes = approving(&page.items, &HEAD.parse().unwrap(), &author);
        yes.into_iter().map(|(user, _)| user.login).collect()
    };
    let head = format!("\"{HEAD}\"");
    let yes = review(42, "APPROVED", &head);
    assert_eq!(names(&[yes.clone(), review(42, "COMMENTED", &head)]), ["u42"]);
    for no in ["CHANGES_REQUESTED", "DISMISSED"] {
        assert!(names(&[yes.clone(), review(42, no, &head)]).is_empty(), "{no}");
    }
    assert!(names(&[review(42, "DISMISSED", &head)]).is_empty());
    assert!(names(&[review(42, "PENDING", "null")]).is_empty());
    assert!(names(&[review(41, "APPROVED", &head)]).is_empty(), "his own");
    assert!(
        names(&[review(42, "APPROVED", &format!("\"{BASE}\""))]).is_empty(),
        "of another head"
    );
    assert!(
        names(&[review(42, "APPROVED", "null")]).is_empty(),
        "of no known head"
    );
}

// holds: DL-2
#[test]
fn a_check_is_a_status_or_a_run() {
    let verdicts =
        |page: Page<Checked>| -> Vec<Verdict> { page.items.iter().map(|check| check.verdict).collect() };
    let statuses = read_statuses(
        br#"{"state":"failure","total_count":4,"sha":"x","statuses":[{"state":"success","context":"a"},
        {"state":"pending","context":"b"},{"state":"error","context":"c"},{"state":"failure","context":"d"}]}"#,
    )
    .unwrap();
    assert_eq!(statuses.total, Some(4));
    assert_eq!(
        verdicts(statuses),
        [
            Verdict::Passed,
            Verdict::Running,
            Verdict::Failed,
            Verdict::Failed
        ]
    );
    let run = |status: &str, conclusion: &str| {
        format!(r#"{{"id":1,"name":"test","status":"{status}","conclusion":{conclusion}}}"#)
    };
    let all = [
        run("queued", "null"),
        run("in_progress", "null"),
        run("completed", "\"success\""),
        run("completed", "\"skipped\""),
        run("completed", "\"cancelled\""),
        run("completed", "\"action_required\""),
    ];
    let body = format!(r#"{{"total_count":6,"check_runs":[{}]}}"#, all.join(","));
    assert_eq!(
        verdicts(read_runs(body.as_bytes()).unwrap()),
        [
            Verdict::Running,
            Verdict::Running,
            Verdict::Passed,
            Verdict::Passed,
            Verdict::Failed,
            Verdict::Failed
        ]
    );
}

// holds: FG-1
#[test]
fn lists_are_asked_for_by_the_hundred() {
    assert_eq!(
        repo().open_pulls().path,
        "repos/acme/fleet/pulls?state=open&sort=created&direction=asc&per_page=100&page=1"
    );
    assert_eq!(
        repo().comments(7, None).path,
        "repos/acme/fleet/issues/7/comments?per_page=30&page=1",
        "of comments, which may be long, by less"
    );
    let since = "2026-11-29T10:00:00.7Z".parse().unwrap();
    assert_eq!(
        repo().comments(7, Some(since)).path,
        "repos/acme/fleet/issues/7/comments?since=2026-11-29T10:00:00Z&per_page=30&page=1"
    );
}

// holds: DL-4, B57
#[test]
fn a_team_is_asked_for_by_its_address_and_its_members_are_known_by_number() {
    assert_eq!(
        repo().members("edge ops").path,
        "orgs/acme/teams/edge%20ops/members?per_page=100&page=1"
    );
    let page = repo().read_members(br#"[{"id":41,"login":"dana"},{"login":"nobody"}]"#);
    let page = page.unwrap();
    assert_eq!((page.count, page.unread), (2, 1));
    assert_eq!(page.items[0].id, 41);
}
