//! The commands that make and show a fleet's repository.
#![expect(clippy::unwrap_used, reason = "a test says why by failing")]

use std::path::Path;

use meshplan_reconciler::cli::exit::Exit;
use meshplan_reconciler::cli::{check, init, node, policy, schema};
use meshplan_reconciler::config::ForgeKind;

fn text(out: Vec<u8>) -> String {
    String::from_utf8(out).unwrap()
}

fn init_in(dir: &Path) -> Exit {
    let args = init::Args {
        dir: dir.to_owned(),
        fleet: "home".parse().unwrap(),
        branch: "main".to_owned(),
        state: Some(dir.with_extension("state")),
        addr: "127.0.0.1:7946".parse().unwrap(),
        forge_url: "http://127.0.0.1:7980/fleet.git".to_owned(),
        repo: "fleet".to_owned(),
        forge: ForgeKind::Forgejo,
    };
    init::run(&args, false, &mut Vec::new()).unwrap()
}

fn checked(dir: &Path) -> (Exit, String) {
    checked_at(dir, None)
}

fn checked_at(dir: &Path, forge: Option<ForgeKind>) -> (Exit, String) {
    let mut out = Vec::new();
    let args = check::Args {
        identity: None,
        dir: dir.to_owned(),
        commit: None,
        forge,
        format: check::Format::Human,
        json: false,
        color: false,
    };
    (check::run(&args, &mut out).unwrap(), text(out))
}

fn add(dir: &Path, name: &str) -> (Exit, String) {
    let mut out = Vec::new();
    let verb = node::Verb::Add {
        name: name.parse().unwrap(),
        roles: vec!["edge".parse().unwrap()],
        modules: Vec::new(),
        folder: None,
        dir: dir.to_owned(),
    };
    (
        node::run(&node::Args { verb }, false, &mut out).unwrap(),
        text(out),
    )
}

// holds: FR-10
#[test]
fn a_fresh_repository_checks_with_a_warning_and_with_a_node_without_a_word() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(init_in(dir.path()), Exit::Done);
    let (exit, said) = checked(dir.path());
    assert_eq!(exit, Exit::Done, "{said}");
    assert!(said.contains("warning: the fleet has no nodes"), "{said}");
    assert!(said.ends_with("0 nodes, 1 module, 1 plan; 1 warning\n"), "{said}");
    assert_eq!(add(dir.path(), "ace").0, Exit::Done);
    let (exit, said) = checked(dir.path());
    assert_eq!(exit, Exit::Done);
    assert_eq!(
        said,
        "ok: the fleet home composes: 1 node, 1 module, 1 plan; 0 warnings\n"
    );
}

// holds: DL-4
#[test]
fn a_team_that_no_forge_can_tell_of_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    init_in(dir.path());
    add(dir.path(), "ace");
    let path = dir.path().join("plans/default.toml");
    let plan = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("actors = [\"alice\", \"team:ops\"]\n{plan}")).unwrap();
    for at in [None, Some(ForgeKind::Forgejo), Some(ForgeKind::Gitlab)] {
        let (exit, said) = checked_at(dir.path(), at);
        assert_eq!(exit, Exit::Done, "{said}");
    }
    let (exit, said) = checked_at(dir.path(), Some(ForgeKind::Bare));
    assert_eq!(exit, Exit::No, "{said}");
    assert!(
        said.contains("plans/default.toml:1") && said.contains("team `ops`"),
        "{said}"
    );
    assert!(said.contains("name people by their login"), "{said}");
}

#[test]
fn what_is_there_is_not_written_over() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("README.md"), "mine").unwrap();
    init_in(dir.path());
    assert_eq!(init_in(dir.path()), Exit::Refused);
    assert_eq!(
        std::fs::read_to_string(dir.path().join("README.md")).unwrap(),
        "mine"
    );
    let (_, first) = add(dir.path(), "ace");
    let record = std::fs::read(dir.path().join("nodes/ace.toml")).unwrap();
    let (exit, said) = add(dir.path(), "ace");
    assert_eq!(exit, Exit::Refused, "{first}{said}");
    assert_eq!(std::fs::read(dir.path().join("nodes/ace.toml")).unwrap(), record);
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(add(empty.path(), "ace").0, Exit::Usage);
}

// holds: FR-12
#[test]
fn a_folder_without_fleet_toml_is_no_fleet() {
    let dir = tempfile::tempdir().unwrap();
    let (exit, said) = checked(dir.path());
    assert_eq!(exit, Exit::No);
    assert!(said.contains("no fleet.toml"), "{said}");
}

// holds: FR-6
#[test]
fn policy_show_says_which_file_each_value_came_from() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/quickstart");
    let show = |node: &str| {
        let verb = policy::Verb::Show {
            node: node.parse().unwrap(),
            dir: dir.clone(),
            commit: None,
            json: false,
        };
        let mut out = Vec::new();
        (policy::run(&policy::Args { verb }, &mut out).unwrap(), text(out))
    };
    let (exit, said) = show("ace");
    assert_eq!(exit, Exit::Done);
    let lines: Vec<Vec<&str>> = said
        .lines()
        .map(|l| l.split("  # ").map(str::trim).collect())
        .collect();
    assert_eq!(
        lines,
        [
            ["qos.artifact_kib_per_sec = 500", "policy/roles/edge.toml"],
            ["qos.extra.dscp = 10", "policy/base.toml"],
            ["scheduler.reconcile_secs = 5", "policy/base.toml"],
        ]
    );
    let (exit, said) = show("acee");
    assert_eq!(exit, Exit::No);
    assert!(said.contains("did you mean `ace`?"), "{said}");
}

// holds: RO-6
#[test]
fn the_openapi_page_is_the_one_of_the_types() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/openapi.json");
    let made = meshplan_reconciler::pure::api::openapi_text();
    if std::env::var_os("MESHPLAN_BLESS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let published = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        published == made,
        "{} is not what the types say: MESHPLAN_BLESS=1 writes it anew",
        path.display()
    );
}

// holds: FR-2
#[test]
fn the_published_schemas_are_those_of_the_types() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas/json");
    for name in meshplan_schemas::document::published::NAMES {
        let mut out = Vec::new();
        let args = schema::Args {
            name: Some(name.to_owned()),
        };
        assert_eq!(schema::run(&args, &mut out).unwrap(), Exit::Done);
        let path = folder.join(format!("{name}.json"));
        if std::env::var_os("MESHPLAN_BLESS").is_some() {
            std::fs::write(&path, &out).unwrap();
        }
        let published = std::fs::read(&path).unwrap_or_default();
        assert!(
            published == out,
            "{} is not what `meshplan schema {name}` prints",
            path.display()
        );
    }
    let args = schema::Args {
        name: Some("nodes".to_owned()),
    };
    let mut out = Vec::new();
    assert_eq!(schema::run(&args, &mut out).unwrap(), Exit::Usage);
    assert!(text(out).contains("did you mean `node`?"));
}

// holds: FR-3
#[test]
fn a_commit_is_read_from_its_objects_and_not_from_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    init_in(dir.path());
    add(dir.path(), "ace");
    std::fs::remove_dir_all(dir.path().join(".git")).unwrap();
    let repository = git2::Repository::init(dir.path()).unwrap();
    let mut index = repository.index().unwrap();
    index.add_all(["*"], git2::IndexAddOption::DEFAULT, None).unwrap();
    // A submodule is an entry of its own kind; no folder can hold one without being a repository.
    let tree = repository.find_tree(index.write_tree().unwrap()).unwrap();
    let who = git2::Signature::new("a", "a@example", &git2::Time::new(0, 0)).unwrap();
    let good = repository
        .commit(Some("HEAD"), &who, &who, "good", &tree, &[])
        .unwrap();
    index
        .add(&git2::IndexEntry {
            ctime: git2::IndexTime::new(0, 0),
            mtime: git2::IndexTime::new(0, 0),
            dev: 0,
            ino: 0,
            mode: 0o160_000,
            uid: 0,
            gid: 0,
            file_size: 0,
            id: good,
            flags: 0,
            flags_extended: 0,
            path: b"modules/base/files/sub".to_vec(),
        })
        .unwrap();
    let tree = repository.find_tree(index.write_tree().unwrap()).unwrap();
    let parent = repository.find_commit(good).unwrap();
    repository
        .commit(Some("HEAD"), &who, &who, "bad", &tree, &[&parent])
        .unwrap();
    std::fs::remove_file(dir.path().join("fleet.toml")).unwrap();
    let check = |commit: &str| {
        let mut out = Vec::new();
        let args = check::Args {
            identity: None,
            forge: None,
            dir: dir.path().to_owned(),
            commit: Some(commit.to_owned()),
            format: check::Format::Human,
            json: true,
            color: false,
        };
        let exit = check::run(&args, &mut out).unwrap();
        let said: serde_json::Value = serde_json::from_slice(&out).unwrap();
        (exit, said)
    };
    let (exit, said) = check("HEAD~1");
    assert_eq!(exit, Exit::Done, "{said}");
    assert_eq!(said["composed"]["nodes"], 1);
    let (exit, said) = check("HEAD");
    assert_eq!(exit, Exit::No);
    assert_eq!(
        said["findings"][0]["message"],
        "this is a submodule where files are expected"
    );
    let missing = check::Args {
        identity: None,
        forge: None,
        dir: dir.path().to_owned(),
        commit: Some("nowhere".to_owned()),
        format: check::Format::Human,
        json: false,
        color: false,
    };
    match check::run(&missing, &mut Vec::new()) {
        Err(e) => assert!(format!("{e:#}").contains("nowhere"), "{e:#}"),
        Ok(exit) => panic!("{exit:?}"),
    }
}
