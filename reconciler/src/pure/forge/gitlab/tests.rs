use super::*;
use crate::pure::forge::{approving, placed};

const HEAD: &str = "c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2";
const FORMER: &str = "c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1";
const MERGE: &str = "d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4";
const SQUASH: &str = "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";

fn project() -> Project {
    Project::parse("acme/fleet").unwrap()
}

fn pull(state: &str, merged_at: &str, (merge, squash): (&str, &str)) -> String {
    let id = |id: &str| {
        if id.is_empty() {
            "null".to_owned()
        } else {
            format!("\"{id}\"")
        }
    };
    format!(
        r#"{{"id":902,"iid":7,"author":{{"id":41,"username":"dana"}},"state":"{state}","sha":"{HEAD}","target_branch":"main",
        "source_project_id":55,"target_project_id":12,"merged_at":{merged_at},"merge_commit_sha":{},"squash_commit_sha":{},
        "diff_refs":{{"base_sha":"{FORMER}","head_sha":"{HEAD}","start_sha":"{FORMER}"}}}}"#,
        id(merge),
        id(squash)
    )
}

// holds: FG-1, B06
#[test]
fn a_merge_is_found_by_its_commit_its_squash_or_its_head() {
    let at = r#""2026-11-29T10:00:00Z""#;
    let commit = |of: (&str, &str)| {
        let read = project().read_pull(pull("merged", at, of).as_bytes()).unwrap();
        read.merged.unwrap().commit.to_string()
    };
    assert_eq!(commit((MERGE, "")), MERGE);
    assert_eq!(commit((MERGE, SQUASH)), MERGE);
    assert_eq!(commit(("", SQUASH)), SQUASH);
    assert_eq!(commit(("", "")), HEAD, "fast-forwarded");
    for state in ["opened", "closed", "locked"] {
        let read = project()
            .read_pull(pull(state, "null", (MERGE, "")).as_bytes())
            .unwrap();
        assert!(read.merged.is_none(), "{state}");
        assert_eq!(read.open, state != "closed");
        assert!(read.fork);
        assert_eq!(read.fork_point.unwrap().as_str(), FORMER);
    }
}

// holds: B54
#[test]
fn a_project_is_one_segment_of_a_path_however_deep_its_group() {
    let deep = Project::parse("acme/edge/fleet").unwrap();
    assert_eq!(deep.pull(7).path, "projects/acme%2Fedge%2Ffleet/merge_requests/7");
    for no in ["fleet", "acme/", "/fleet", "acme//fleet", ""] {
        assert!(Project::parse(no).is_none(), "{no}");
    }
    assert_eq!(project().head_ref(7), "refs/merge-requests/7/head");
}

// holds: DL-4
#[test]
fn what_the_forge_notes_down_by_itself_is_no_word_of_anybody() {
    let note = |id: u64, system: bool| {
        format!(
            r#"{{"id":{id},"body":"/plans go","author":{{"id":42,"username":"ravi"}},"system":{system},
            "created_at":"2026-11-29T10:00:00Z","updated_at":"2026-11-29T10:00:00Z"}}"#
        )
    };
    let body = format!("[{},{}]", note(2, true), note(1, false));
    let page = project().read_comments(body.as_bytes()).unwrap();
    assert_eq!((page.count, page.unread, page.items.len()), (2, 0, 1));
    assert_eq!(page.items.first().map(|comment| comment.id), Some(1));
}

// holds: DL-15
#[test]
fn an_approval_counts_for_the_head_that_stood_there_when_it_was_given() {
    let versions = format!(
        r#"[{{"id":2,"head_commit_sha":"{HEAD}","created_at":"2026-11-29T10:00:00.500Z"}},
        {{"id":1,"head_commit_sha":"{FORMER}","created_at":"2026-11-29T09:00:00Z"}}]"#
    );
    let versions = project().read_versions(versions.as_bytes()).unwrap().items;
    let approved = |at: &str| {
        let body =
            format!(r#"{{"approved_by":[{{"user":{{"id":42,"username":"ravi"}},"approved_at":{at}}}]}}"#);
        let reviews = project().read_reviews(body.as_bytes()).unwrap().items;
        let author = User {
            id: 41,
            login: "dana".to_owned(),
        };
        approving(&placed(reviews, &versions), &HEAD.parse().unwrap(), &author).len()
    };
    assert_eq!(approved("\"2026-11-29T10:00:00.501Z\""), 1);
    assert_eq!(
        approved("\"2026-11-29T10:00:00.500Z\""),
        0,
        "nobody can tell which came first"
    );
    assert_eq!(approved("\"2026-11-29T09:30:00Z\""), 0, "of the head before");
    assert_eq!(approved("null"), 0, "of no known head");
}

// holds: B57
#[test]
fn a_developer_may_write_and_a_reporter_or_one_who_is_gone_may_not() {
    let dana = User {
        id: 41,
        login: "dana".to_owned(),
    };
    assert!(project().permission(&dana).path.ends_with("/members/all/41"));
    let may = |id: u64, state: &str, level: u32| {
        let body = format!(r#"{{"id":{id},"username":"dana","state":"{state}","access_level":{level}}}"#);
        project().read_may_write(&dana, body.as_bytes()).unwrap()
    };
    assert!(may(41, "active", 30) && may(41, "active", 50));
    assert!(!may(41, "active", 20));
    assert!(!may(41, "blocked", 40));
    assert!(!may(42, "active", 40));
}

// holds: DL-2, FG-1
#[test]
fn statuses_are_said_and_read_in_the_words_of_pipelines() {
    let page = read_statuses(
        br#"[{"name":"a","status":"success"},{"name":"b","status":"running"},{"name":"c","status":"failed"},
        {"name":"d","status":"skipped"},{"name":"e","status":"manual"}]"#,
    )
    .unwrap();
    let verdicts: Vec<Verdict> = page.items.iter().map(|check| check.verdict).collect();
    assert_eq!(
        verdicts,
        [
            Verdict::Passed,
            Verdict::Running,
            Verdict::Failed,
            Verdict::Failed,
            Verdict::Running
        ]
    );
    for (state, said) in [
        (StatusState::Pending, "running"),
        (StatusState::Success, "success"),
        (StatusState::Failure, "failed"),
        (StatusState::Error, "failed"),
    ] {
        let call = project().set_status(&CommitStatus {
            repo: None,
            commit: HEAD.parse().unwrap(),
            context: "meshplan/check".to_owned(),
            state,
            description: "x".to_owned(),
        });
        assert_eq!(call.body.unwrap()["state"], said);
    }
}

// holds: DL-4, B57
#[test]
fn a_team_is_a_group_by_its_whole_path_and_who_is_blocked_is_not_in_it() {
    assert_eq!(
        project().members("acme/ops").path,
        "groups/acme%2Fops/members?per_page=100&page=1"
    );
    let page = project().read_members(
        br#"[{"id":41,"username":"dana","state":"active","access_level":30},
        {"id":42,"username":"ravi","state":"blocked","access_level":30}]"#,
    );
    let page = page.unwrap();
    assert_eq!(page.count, 2);
    let ids: Vec<u64> = page.items.iter().map(|user| user.id).collect();
    assert_eq!(ids, [41]);
}
