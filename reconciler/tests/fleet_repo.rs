//! The commands with which a fleet's repository is made, changed, looked at and judged, as a person calls them.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says why by failing")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Parser as _;
use meshplan_reconciler::cli::Cli;
use meshplan_reconciler::cli::exit::Exit;

/// Runs a command line; gives its end and what it printed.
fn meshplan(arguments: &[&str]) -> (Exit, String) {
    let cli = match Cli::try_parse_from(std::iter::once(&"meshplan").chain(arguments)) {
        Ok(cli) => cli,
        Err(error) => panic!("{error}"),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut out = Vec::new();
    match runtime.block_on(cli.run(&mut out)) {
        Ok(exit) => (exit, String::from_utf8(out).unwrap()),
        Err(error) => panic!("{arguments:?}: {error:#}"),
    }
}

/// Runs a command line that must end well.
fn done(arguments: &[&str]) -> String {
    let (exit, said) = meshplan(arguments);
    assert_eq!(exit, Exit::Done, "{arguments:?}: {said}");
    said
}

fn git(dir: &Path, arguments: &[&str]) -> String {
    let said = Command::new("git")
        .current_dir(dir)
        .args(["-c", "user.name=a", "-c", "user.email=a@example"])
        .args(arguments)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(said.status.success(), "git {arguments:?}: {said:?}");
    String::from_utf8(said.stdout).unwrap()
}

/// A fleet as `init` makes it, committed; its folder and its name as text.
struct Fleet {
    _home: tempfile::TempDir,
    dir: PathBuf,
    text: String,
}

impl Fleet {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("fleet");
        let text = dir.to_str().unwrap().to_owned();
        done(&["init", &text, "--fleet", "home"]);
        let fleet = Self {
            _home: home,
            dir,
            text,
        };
        done(&["node", "add", "ace", "--role", "edge", "--dir", &fleet.text]);
        if !fleet.dir.join(".git").exists() {
            git(&fleet.dir, &["init", "--quiet", "--initial-branch=main"]);
        }
        fleet.commit("a node");
        fleet
    }

    fn commit(&self, subject: &str) {
        git(&self.dir, &["add", "."]);
        git(&self.dir, &["commit", "--quiet", "--message", subject]);
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.dir.join(path)).unwrap()
    }

    fn edit(&self, path: &str, from: &str, to: &str) {
        let text = self.read(path);
        assert!(text.contains(from), "{path} has no {from}:\n{text}");
        fs::write(self.dir.join(path), text.replace(from, to)).unwrap();
    }

    /// Every file with its bytes, `.git` left out.
    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut open = vec![self.dir.clone()];
        let mut files = Vec::new();
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() && !path.ends_with(".git") {
                    open.push(path);
                } else if path.is_file() {
                    files.push((path.clone(), fs::read(path).unwrap()));
                }
            }
        }
        files.sort();
        files
    }
}

// holds: FR-10
#[test]
fn what_init_makes_checks_and_is_wise_once_it_has_a_node() {
    let fleet = Fleet::new();
    let said = done(&["check", &fleet.text]);
    assert_eq!(
        said,
        "ok: the fleet home composes: 1 node, 1 module, 1 plan; 0 warnings\n"
    );
    assert_eq!(done(&["lint", "--strict", &fleet.text]), "nothing to say\n");
    for (path, bytes) in fleet
        .files()
        .iter()
        .filter(|(path, _)| path.extension().is_some_and(|e| e == "toml"))
    {
        let text = String::from_utf8_lossy(bytes);
        let schema = text
            .strip_prefix("#:schema ")
            .and_then(|rest| rest.lines().next());
        let Some(schema) = schema else {
            panic!("{} has no schema line", path.display())
        };
        assert!(
            path.parent().unwrap().join(schema).is_file(),
            "{}: {schema}",
            path.display()
        );
    }
    let identity = fleet.dir.with_file_name("fleet-state").join("age-identity");
    assert_eq!(
        fs::metadata(identity).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

// holds: FR-10
#[test]
fn a_new_module_checks_and_a_record_that_gets_it_keeps_its_comments_and_its_order() {
    let fleet = Fleet::new();
    fleet.edit("nodes/ace.toml", "modules = []", "# what it has itself\nmodules = [\n  # none yet\n]\nadopted = false # new\n\n[vars]\nsite = \"home\"");
    let before = fleet.read("nodes/ace.toml");
    let said = done(&["module", "new", "web", "--role", "edge", "--dir", &fleet.text]);
    assert!(said.starts_with("modules/web/module.toml: "), "{said}");
    done(&[
        "module",
        "new",
        "dns.local",
        "--node",
        "ace",
        "--dir",
        &fleet.text,
    ]);
    let after = fleet.read("nodes/ace.toml");
    assert_eq!(
        before.replace("\n  # none yet\n]", "\n  # none yet\n  \"dns.local\",\n]"),
        after
    );
    assert!(done(&["check", &fleet.text]).ends_with("1 node, 3 modules, 1 plan; 0 warnings\n"));
    let files = fleet.files();
    let (exit, said) = meshplan(&["module", "new", "web", "--dir", &fleet.text]);
    assert_eq!(
        (exit, said.as_str()),
        (Exit::Refused, "modules/web is there already\n")
    );
    let (exit, _) = meshplan(&["module", "new", "x", "--node", "nobody", "--dir", &fleet.text]);
    assert_eq!(exit, Exit::No);
    assert!(fleet.files() == files, "a refused command has written something");
    let mode = fs::metadata(fleet.dir.join("modules/web/module.toml"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o600, 0o600);
}

// holds: FR-10
#[test]
fn what_would_not_check_is_not_written_and_the_errors_are_shown() {
    let fleet = Fleet::new();
    let files = fleet.files();
    let (exit, said) = meshplan(&["node", "add", "bea", "--module", "bsae", "--dir", &fleet.text]);
    assert_eq!(exit, Exit::No);
    assert!(
        said.contains("there is no module `bsae`") && said.contains("did you mean `base`?"),
        "{said}"
    );
    assert!(
        said.ends_with("nothing is written: the fleet would not check with this\n"),
        "{said}"
    );
    for folder in ["../out", "revoked", "A"] {
        let (exit, said) = meshplan(&["node", "add", "bea", "--folder", folder, "--dir", &fleet.text]);
        assert_eq!(exit, Exit::Usage, "{folder}: {said}");
    }
    assert!(fleet.files() == files, "a refused command has written something");
    done(&[
        "node",
        "add",
        "bea",
        "--folder",
        "ams/rack-2",
        "--role",
        "edge",
        "--dir",
        &fleet.text,
    ]);
    assert!(
        fleet
            .read("nodes/ams/rack-2/bea.toml")
            .starts_with("#:schema ../../../.meshplan/schemas/node.json\n")
    );
    assert_eq!(
        meshplan(&["node", "add", "bea", "--dir", &fleet.text]).0,
        Exit::Refused
    );
}

// holds: FR-6
#[test]
fn nodes_are_listed_and_one_is_shown_with_where_everything_comes_from() {
    let fleet = Fleet::new();
    done(&["module", "new", "web", "--node", "ace", "--dir", &fleet.text]);
    let table = done(&["node", "list", "--dir", &fleet.text]);
    let words: Vec<&str> = table.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(words, ["ace", "edge", "base,", "web", "required", "invited"]);
    let rows: serde_json::Value =
        serde_json::from_str(&done(&["--json", "node", "list", "--dir", &fleet.text])).unwrap();
    assert_eq!(rows[0]["modules"], serde_json::json!(["base", "web"]));

    fleet.edit("fleet.toml", "[vars]", "[vars]\ngreeting = \"good morning\"");
    let said = done(&["node", "show", "ace", "--dir", &fleet.text]);
    for part in [
        "ace (nodes/ace.toml), invited\n",
        "  base, by the role edge\n    greeting = \"good morning\"  # fleet.toml\n",
        "  web, by its record\n",
        "  scheduler.reconcile_secs = 60  # policy/roles/edge.toml\n",
    ] {
        assert!(said.contains(part), "{part:?} is not in\n{said}");
    }
    let (exit, said) = meshplan(&["node", "show", "acee", "--dir", &fleet.text]);
    assert_eq!(exit, Exit::No);
    assert!(said.contains("did you mean `ace`?"), "{said}");
}

// holds: FR-9
#[test]
fn a_secret_is_sealed_to_the_reconciler_and_listed_by_name_alone() {
    let fleet = Fleet::new();
    let value = fleet.dir.with_file_name("value");
    fs::write(&value, "correct horse").unwrap();
    let file = value.to_str().unwrap();
    let said = done(&["secret", "set", "db", "--file", file, "--dir", &fleet.text]);
    assert_eq!(said, "secrets/db.age: new; only the reconciler can open it\n");
    let sealed = fleet.read("secrets/db.age");
    assert!(sealed.starts_with("-----BEGIN AGE ENCRYPTED FILE-----") && !sealed.contains("horse"));
    assert!(done(&["secret", "set", "db", "--file", file, "--dir", &fleet.text]).contains("replaced"));
    done(&["check", &fleet.text]);

    let config = fleet.dir.with_file_name("fleet-state").join("meshplan.toml");
    let config = config.to_str().unwrap();
    fs::write(fleet.dir.join("modules/base/files/db.j2"), "{{ secret(\"db\") }}").unwrap();
    let list = || {
        let (exit, said) = meshplan(&[
            "--config",
            config,
            "--json",
            "secret",
            "list",
            "--dir",
            &fleet.text,
        ]);
        (exit, serde_json::from_str::<serde_json::Value>(&said).unwrap())
    };
    let expected = serde_json::json!([
        { "name": "db", "size": "under 1 KiB", "opens": "yes", "used_by": ["base"], "retired": false }
    ]);
    assert_eq!(list(), (Exit::Done, expected));
    let said = done(&["secret", "list", "--dir", &fleet.text]);
    assert!(said.contains("cannot tell"), "{said}");

    // One that somebody sealed to somebody else, and one that is none at all.
    let recipient = fleet
        .read("fleet.toml")
        .split("recipient = \"")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap()
        .to_owned();
    let other = tempfile::tempdir().unwrap();
    let other = other.path().join("other");
    done(&["init", other.to_str().unwrap(), "--fleet", "other"]);
    let theirs = fs::read_to_string(other.join("fleet.toml")).unwrap();
    let theirs = theirs
        .split("recipient = \"")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap();
    fleet.edit("fleet.toml", &recipient, theirs);
    done(&["secret", "set", "lost", "--file", file, "--dir", &fleet.text]);
    fs::write(fleet.dir.join("secrets/plain.age"), "correct horse").unwrap();
    let (exit, rows) = list();
    assert_eq!(exit, Exit::No);
    assert_eq!(
        (&rows[1]["opens"], &rows[2]["opens"]),
        (&"no".into(), &"no age file".into())
    );

    fleet.edit("fleet.toml", theirs, "age1nonsense");
    let (exit, said) = meshplan(&["secret", "set", "x", "--file", file, "--dir", &fleet.text]);
    assert_eq!(exit, Exit::No);
    assert!(
        said.contains("`secrets.recipient` cannot be `age1nonsense`") && said.contains("fleet.toml:"),
        "{said}"
    );
}

#[test]
fn a_secret_is_never_taken_from_the_command_line() {
    for arguments in [
        ["secret", "set", "db", "hunter2"],
        ["secret", "set", "db", "--value=hunter2"],
    ] {
        assert!(Cli::try_parse_from(std::iter::once("meshplan").chain(arguments)).is_err());
    }
}

// holds: DL-8
#[test]
fn a_preview_of_the_folder_says_what_changes_where_and_how_it_is_walked() {
    let fleet = Fleet::new();
    let preview = || done(&["preview", "HEAD", "--dir", &fleet.text]);
    assert_eq!(preview(), "nothing changes in the fleet home\n");
    fleet.edit(
        "modules/base/module.toml",
        "this machine is kept by meshplan",
        "hello",
    );
    done(&["node", "add", "bea", "--role", "edge", "--dir", &fleet.text]);
    let said = preview();
    for part in [
        "the fleet home: 1 -> 2 nodes, 2 of them change\n",
        "module base comes to bea\n  + file motd /etc/motd\n",
        "module base changes on ace\n  ~ file motd /etc/motd\n",
        "      - ace (home, home): this machine is kept by meshplan\n      + ace (home, home): hello\n",
        "  bea: added, invited, not yet enrolled\n",
    ] {
        assert!(said.contains(part), "{part:?} is not in\n{said}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&done(&["--json", "preview", "HEAD", "--dir", &fleet.text])).unwrap();
    assert_eq!((&json["ok"], &json["nothing"]), (&true.into(), &false.into()));
    assert_eq!(
        json["preview"]["modules"][0]["resources"][0]["target"],
        "/etc/motd"
    );
}

// holds: DL-8
#[test]
fn a_preview_of_a_branch_is_of_its_merge_and_writes_nothing() {
    let fleet = Fleet::new();
    git(&fleet.dir, &["checkout", "--quiet", "-b", "topic"]);
    fleet.edit(
        "modules/base/module.toml",
        "this machine is kept by meshplan",
        "hello",
    );
    fleet.commit("a greeting");
    git(&fleet.dir, &["checkout", "--quiet", "main"]);
    fleet.edit("policy/base.toml", "300", "200");
    fleet.commit("meanwhile");
    let objects = git(&fleet.dir, &["count-objects"]);
    let said = done(&["preview", "main", "topic", "--dir", &fleet.text]);
    assert!(said.contains("      + ace (home, home): hello\n"), "{said}");
    assert!(
        !said.contains("Policy"),
        "what main has meanwhile is no change of the merge:\n{said}"
    );
    assert_eq!(git(&fleet.dir, &["count-objects"]), objects);

    fleet.edit(
        "modules/base/module.toml",
        "this machine is kept by meshplan",
        "good morning",
    );
    fleet.commit("the same line");
    let (exit, said) = meshplan(&["preview", "main", "topic", "--dir", &fleet.text]);
    assert_eq!(exit, Exit::No);
    assert!(
        said.starts_with(
            "topic cannot be merged into main as it is; both change:\n  modules/base/module.toml\n"
        ),
        "{said}"
    );

    fleet.edit("plans/default.toml", "rest = true", "rset = true");
    let (exit, said) = meshplan(&["preview", "main", "--dir", &fleet.text]);
    assert_eq!(exit, Exit::No);
    assert!(
        said.contains("the merge does not check") && said.contains("plans/default.toml:13:1"),
        "{said}"
    );
}

// holds: FR-1
#[test]
fn check_speaks_as_a_forge_wants_it() {
    let fleet = Fleet::new();
    fleet.edit("plans/default.toml", "count = 1 ", "count = 0 ");
    let (exit, said) = meshplan(&["check", "--format", "github", &fleet.text]);
    assert_eq!(exit, Exit::No);
    let first = said.lines().next().unwrap();
    assert!(
        first.starts_with("::error file=plans/default.toml,line=6,col=9,endColumn=10::`stage.count` must be"),
        "{said}"
    );
    assert_eq!(meshplan(&["check", "--format", "forgejo", &fleet.text]).1, said);
    let (_, said) = meshplan(&["check", "--format", "gitlab", &fleet.text]);
    let report: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report[0]["location"]["path"], "plans/default.toml");
    let (_, json) = meshplan(&["check", "--format", "json", &fleet.text]);
    assert_eq!(json, meshplan(&["--json", "check", &fleet.text]).1);
}

#[test]
fn lint_says_what_is_unwise_and_strict_makes_it_a_no() {
    let fleet = Fleet::new();
    fleet.edit(
        "modules/base/module.toml",
        "path = \"/etc/motd\"",
        "path = \"/etc/motd\"\nmode = \"0666\"",
    );
    fs::write(fleet.dir.join(".gitignore"), "hidden.toml\n").unwrap();
    fs::write(
        fleet.dir.join("nodes/hidden.toml"),
        "id = \"0192f0c1-0000-4000-8000-00000000abcd\"\nroles = [\"edge\"]\n",
    )
    .unwrap();
    let said = done(&["lint", &fleet.text]);
    for part in [
        "[world-writable]",
        "modules/base/module.toml:",
        "[ignored]",
        "nodes/hidden.toml",
        "2 to think about",
    ] {
        assert!(said.contains(part), "{part:?} is not in\n{said}");
    }
    assert_eq!(meshplan(&["lint", "--strict", &fleet.text]).0, Exit::No);
    let allowed = done(&[
        "lint",
        "--strict",
        "--allow",
        "ignored",
        "--allow",
        "world-writable",
        &fleet.text,
    ]);
    assert_eq!(allowed, "nothing to say\n");
    let said: serde_json::Value = serde_json::from_str(&done(&["--json", "lint", &fleet.text])).unwrap();
    assert_eq!(said["findings"][0]["rule"], "world-writable");
}

// holds: FR-15
#[test]
fn a_made_up_fleet_is_the_same_for_its_seed_and_checks() {
    let home = tempfile::tempdir().unwrap();
    let make = |name: &str, seed: &str| {
        let dir = home.path().join(name);
        let text = dir.to_str().unwrap().to_owned();
        done(&["example", "fleet", "--nodes", "1001", "--seed", seed, &text]);
        (dir, text)
    };
    let ((one, text), (two, _), (other, _)) = (make("one", "7"), make("two", "7"), make("other", "8"));
    let record = |dir: &Path| fs::read_to_string(dir.join("nodes/001/n01000.toml")).unwrap();
    assert_eq!(record(&one), record(&two));
    assert_ne!(record(&one), record(&other));
    assert_eq!(fs::read_dir(one.join("nodes/000")).unwrap().count(), 1000);
    let said = done(&["check", &text]);
    assert_eq!(
        said,
        "ok: the fleet generated composes: 1001 nodes, 7 modules, 1 plan; 0 warnings\n"
    );
    assert_eq!(done(&["lint", "--strict", &text]), "nothing to say\n");
    assert_eq!(meshplan(&["example", "fleet", &text]).0, Exit::Refused);
}

// holds: FR-10
#[test]
fn init_writes_the_ci_file_where_its_forge_looks_for_it() {
    let world = tempfile::tempdir().unwrap();
    for (forge, path, format) in [
        (None, Some(".forgejo/workflows/meshplan.yml"), "forgejo"),
        (
            Some("forgejo"),
            Some(".forgejo/workflows/meshplan.yml"),
            "forgejo",
        ),
        (Some("github"), Some(".github/workflows/meshplan.yml"), "github"),
        (Some("gitlab"), Some(".gitlab-ci.yml"), "gitlab"),
        (Some("bare"), None, ""),
    ] {
        let dir = world.path().join(format!("fleet-{}", forge.unwrap_or("default")));
        let mut arguments = vec!["init", dir.to_str().unwrap(), "--fleet", "home"];
        arguments.extend(forge.iter().flat_map(|forge| ["--forge", forge]));
        done(&arguments);
        let all = [
            ".forgejo/workflows/meshplan.yml",
            ".github/workflows/meshplan.yml",
            ".gitlab-ci.yml",
        ];
        let there: Vec<&str> = all.into_iter().filter(|path| dir.join(path).exists()).collect();
        assert_eq!(there, path.into_iter().collect::<Vec<_>>(), "{forge:?}");
        if let Some(path) = path {
            let text = std::fs::read_to_string(dir.join(path)).unwrap();
            assert!(
                text.contains(&format!("meshplan check --format {format}")),
                "{text}"
            );
        }
    }
}
