//! Commands that edit a fleet's files in place: whatever a person has written there, only the lines that had to change are
//! others (FR-10); and what `fleet rotate plan` writes (RT-2).
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says why by failing")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser as _;
use meshplan_reconciler::cli::Cli;
use meshplan_reconciler::cli::exit::Exit;
use proptest::prelude::*;

const FLEET: &str = "schema = 1\nfleet = \"lab\"\nbranch = \"main\"\n\n[[authors]]\nid = \"example\"\n\
                     key = \"ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\"\n\n[rotation]\n\
                     default_publish_to_activate_secs = 7200\n\n[secrets]\n\
                     recipient = \"age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p\"\n";
const KEYS: &str = "transport_key = \"x25519:0Hq8sHfVm2bTvf+E2vz7zZdeu+cVaVqnxvCmgSIsbmE=\"\n\
                    signing_key = \"ed25519:JOy1CHk+iId33P9OCudfmAXUns9SdEkspSaUhk+3S3g=\"\n";
const NEXT: &str = "next_transport_key = \"x25519:8hFJW4/r7mxE1ow9feN9XwDJN3azXccps9Dlg7Dtvzg=\"\n";
const ACE: &str = "0192f0c1-0000-7000-8000-000000000001";
const BEA: &str = "0192f0c1-0000-7000-8000-000000000002";

/// A folder of a small fleet.
struct Fleet(tempfile::TempDir);

impl Fleet {
    fn new() -> Self {
        let fleet = Self(tempfile::tempdir().unwrap());
        fleet.write("fleet.toml", FLEET);
        fleet.write("policy/roles/edge.toml", "[scheduler]\nreconcile_secs = 60\n");
        fleet.write("modules/old/module.toml", "description = \"it is there\"\n");
        fleet.write("secrets/mesh-2.age", "age-encryption.org/v1\n");
        fleet.write(
            "nodes/ace.toml",
            &format!("id = \"{ACE}\"\nroles = [\"edge\"]\n{KEYS}{NEXT}"),
        );
        fleet.write("nodes/bea.toml", &format!("id = \"{BEA}\"\nroles = [\"edge\"]\n"));
        fleet
    }

    fn dir(&self) -> &str {
        self.0.path().to_str().unwrap()
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.0.path().join(path)).unwrap()
    }

    /// Every file with its bytes.
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut open = vec![self.0.path().to_owned()];
        let mut files = BTreeMap::new();
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    open.push(path);
                } else {
                    let bytes = fs::read(&path).unwrap();
                    files.insert(path, bytes);
                }
            }
        }
        files
    }

    /// Runs a command line in it; gives its end and what it printed.
    fn meshplan(&self, arguments: &str) -> (Exit, String) {
        let words = ["meshplan"]
            .into_iter()
            .chain(arguments.split(' '))
            .chain(["--dir", self.dir()]);
        let cli = match Cli::try_parse_from(words) {
            Ok(cli) => cli,
            Err(error) => panic!("{error}"),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut out = Vec::new();
        match runtime.block_on(cli.run(&mut out)) {
            Ok(exit) => (exit, String::from_utf8(out).unwrap()),
            Err(error) => panic!("{arguments}: {error:#}"),
        }
    }

    /// Runs one that must end well.
    fn done(&self, arguments: &str) -> String {
        let (exit, said) = self.meshplan(arguments);
        assert_eq!(exit, Exit::Done, "{arguments}: {said}");
        said
    }

    /// What of the files a command has changed or added.
    fn changed_by(&self, arguments: &str) -> Vec<String> {
        let before = self.files();
        self.done(arguments);
        let after = self.files();
        assert!(
            before.keys().all(|path| after.contains_key(path)),
            "{arguments}: a file is gone"
        );
        let others = after
            .iter()
            .filter(|(path, bytes)| before.get(*path) != Some(*bytes));
        let name = |path: &Path| {
            path.strip_prefix(self.0.path())
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned()
        };
        others.map(|(path, _)| name(path)).collect()
    }
}

/// The lines in which two texts differ, with their ends: those between what they have in common above and below.
fn differing<'t>(before: &'t str, after: &'t str) -> (Vec<&'t str>, Vec<&'t str>) {
    let (mut old, mut new): (Vec<&str>, Vec<&str>) = (
        before.split_inclusive('\n').collect(),
        after.split_inclusive('\n').collect(),
    );
    while !old.is_empty() && old.last() == new.last() {
        old.pop();
        new.pop();
    }
    let same = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    (old.split_off(same), new.split_off(same))
}

/// How a person, or an editor, leaves a file.
#[derive(Debug, Clone)]
struct Hand {
    crlf: bool,
    mark: bool,
    order: Vec<usize>,
    comments: Vec<usize>,
}

fn hand() -> impl Strategy<Value = Hand> {
    let order = Just((0..5).collect::<Vec<usize>>()).prop_shuffle();
    (
        any::<bool>(),
        any::<bool>(),
        order,
        prop::collection::vec(0usize..4, 6),
    )
        .prop_map(|(crlf, mark, order, comments)| Hand {
            crlf,
            mark,
            order,
            comments,
        })
}

impl Hand {
    /// Parts in this hand's order, with its comments above them.
    fn lays(&self, parts: &[&str]) -> String {
        let above = ["", "# a comment\n", "\n# one\n\n# two\n", "\n\n"];
        let order = self.order.iter().filter_map(|at| parts.get(*at));
        let text: String = order
            .zip(&self.comments)
            .flat_map(|(part, above_it)| [above[*above_it], part])
            .collect();
        self.writes(&format!("{text}{}", above[self.comments[5]]))
    }

    fn writes(&self, text: &str) -> String {
        let text = if self.crlf {
            text.replace('\n', "\r\n")
        } else {
            text.to_owned()
        };
        if self.mark {
            format!("\u{feff}{text}")
        } else {
            text
        }
    }
}

const MODULES: [&str; 6] = [
    "modules = [\"old\"] # why\n",
    "modules   =   [ ]\n",
    "modules = [\n    # none yet\n]\n",
    "modules = [\n  \"old\", # the first\n]\n",
    "modules = [\n\t\"old\" # no comma\n\t]\n",
    "",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    // holds: FR-10
    #[test]
    fn a_record_that_gets_a_module_differs_in_that_line_alone(hand in hand(), modules in 0..MODULES.len(), vars in 0..3usize) {
        let fleet = Fleet::new();
        let id = format!("id     = \"{ACE}\"   # never again\n");
        let parts = ["roles = [\"edge\",]\n", &id, MODULES[modules], "lifeline=false\n", "\"adopted\" = false\n"];
        let vars = ["", "\n# of the place\n[vars]\nsite = \"x\" # here\n", "[vars] # all\n"][vars];
        let before = hand.lays(&parts) + &hand.writes(vars).replace('\u{feff}', "");
        fleet.write("nodes/ace.toml", &before);
        fleet.done("module new web --node ace");
        let after = fleet.read("nodes/ace.toml");
        let (old, new) = differing(&before, &after);
        prop_assert!(old.len() <= 1 && new.len() <= old.len() + 1, "{old:?} -> {new:?}");
        prop_assert!(new.iter().any(|line| line.contains("\"web\"")), "{new:?}");
        prop_assert!(new.iter().all(|line| line.ends_with("\r\n") == hand.crlf), "{new:?}");
        // What a line had beside the array it still has.
        for old in old {
            let kept = old.split_once('#').map(|(_, comment)| comment);
            prop_assert!(kept.is_none_or(|kept| new.iter().any(|line| line.ends_with(kept))), "{old:?} -> {new:?}");
        }
    }

    // holds: FR-10
    #[test]
    fn a_rotation_that_is_planned_comes_behind_all_that_is_there(hand in hand(), entries in 0..3usize) {
        let fleet = Fleet::new();
        let one = "[[rotations]] # of the reconciler\n  publish_at = 1\nkind= \"reconciler_transport\"\n\n\
                   activate_at = 2 # soon\nid = \"a\"\nretire_at = 2000000\n";
        let two = "[[rotations]]\nid = \"b\"\nkind = \"node_signing\"\n# whose\nsubject = \"all\"\npublish_at = 1\n\
                   activate_at = 2\n";
        let before = hand.lays(&[one, two][..entries]);
        fleet.write("rotations.toml", &before);
        fleet.done("fleet rotate plan reconciler_transport --publish 2000000");
        let after = fleet.read("rotations.toml");
        let added = after.strip_prefix(&before);
        prop_assert!(added.is_some(), "{before:?} -> {after:?}");
        let lines: Vec<&str> = added.unwrap_or_default().lines().filter(|line| !line.is_empty()).collect();
        prop_assert_eq!(lines, [
            "[[rotations]]",
            "id = \"rot-2000000-reconciler_transport\"",
            "kind = \"reconciler_transport\"",
            "publish_at = 2000000  # 1970-01-24T03:33:20Z",
            "activate_at = 2007200  # 1970-01-24T05:33:20Z",
            "retire_at = 0  # not yet",
        ]);
        let crlf = before.contains("\r\n");
        prop_assert!(added.unwrap_or_default().split_inclusive('\n').all(|line| line.ends_with("\r\n") == crlf));
    }
}

// holds: FR-10
#[test]
fn a_command_touches_the_files_that_it_names_and_no_other() {
    let fleet = Fleet::new();
    fleet.write("value", "correct horse");
    fleet.write("rotations.toml", "rotations = [\n  # none yet\n]\n");
    let value = fleet.0.path().join("value");
    assert_eq!(fleet.changed_by("node add cid --role edge"), ["nodes/cid.toml"]);
    assert_eq!(
        fleet.changed_by("module new web --node bea"),
        [
            "modules/web/files/web.conf.j2",
            "modules/web/module.toml",
            "nodes/bea.toml"
        ]
    );
    let set = format!("secret set db --file {}", value.to_str().unwrap());
    assert_eq!(fleet.changed_by(&set), ["secrets/db.age"]);
    assert_eq!(fleet.changed_by(&set), ["secrets/db.age"]);
    assert_eq!(
        fleet.changed_by("fleet rotate plan mesh_secret --secret db --publish 1791900000"),
        ["rotations.toml"]
    );
    let after = fleet.read("rotations.toml");
    let (old, new) = differing("rotations = [\n  # none yet\n]\n", &after);
    assert!(old.is_empty() && new.len() == 1, "{new:?}");
    assert!(
        new[0].starts_with("  { id = ") && new[0].ends_with("retire_at = 0 },\n"),
        "{new:?}"
    );
}

#[test]
fn a_rotation_is_planned_from_the_fleets_defaults_and_says_that_nobody_walks_it_yet() {
    let fleet = Fleet::new();
    let said = fleet.done("fleet rotate plan node_transport ace --publish 2026-10-13T02:00:00+02:00");
    assert_eq!(
        said,
        "rotations.toml: rot-1791849600-node_transport-ace, published 2026-10-13T00:00:00Z, activated \
         2026-10-13T02:00:00Z; it retires when a later commit says so\n\
         this version checks rotations and does not walk them: the reconciler refuses a commit that has any\n"
    );
    assert_eq!(
        fleet.read("rotations.toml"),
        format!(
            "#:schema .meshplan/schemas/rotations.json\n\n[[rotations]]\nid = \"rot-1791849600-node_transport-ace\"\n\
             kind = \"node_transport\"\nsubject = \"{ACE}\"\nnext_key_id = \"50d9872c72fd2fe4\"\n\
             publish_at = 1791849600  # 2026-10-13T00:00:00Z\nactivate_at = 1791856800  # 2026-10-13T02:00:00Z\n\
             retire_at = 0  # not yet\n"
        )
    );
    assert!(
        fleet
            .done("fleet rotate plan node_signing ace --activate 0 --publish 5")
            .contains("no `next_signing_key` yet")
    );
    assert!(
        fleet
            .done("--json fleet rotate plan mesh_secret --secret mesh-2")
            .contains("\"walked\": false")
    );
}

#[test]
fn a_rotation_that_would_not_check_is_not_written_and_the_next_step_is_said() {
    let fleet = Fleet::new();
    fleet.done("fleet rotate plan node_signing --role edge");
    let files = fleet.files();
    for (arguments, exit, said) in [
        ("node_transport", Exit::Usage, "whose node_transport? Name a node"),
        (
            "mesh_secret --all --secret mesh-2",
            Exit::Usage,
            "leave out the node, --role and --all",
        ),
        ("mesh_secret", Exit::Usage, "`meshplan secret set NAME` makes one"),
        (
            "node_signing --all --secret mesh-2",
            Exit::Usage,
            "leave out --secret",
        ),
        (
            "mesh_secret --secret mesh-3",
            Exit::No,
            "there is no secrets/mesh-3.age: did you mean `mesh-2`?",
        ),
        (
            "node_transport aec",
            Exit::No,
            "there is no node `aec`: did you mean `ace`?",
        ),
        (
            "node_transport nobody",
            Exit::No,
            "`meshplan node add nobody` makes its record",
        ),
        (
            "node_transport bea",
            Exit::No,
            "has no keys yet: there is nothing to rotate",
        ),
        ("node_transport --role edeg", Exit::No, "did you mean `edge`?"),
        (
            "node_signing ace",
            Exit::No,
            "publish after the other has retired, or take the other out",
        ),
        (
            "node_transport ace --publish 9 --activate 8",
            Exit::No,
            "`activate_at` is before `publish_at`",
        ),
    ] {
        let (end, told) = fleet.meshplan(&format!("fleet rotate plan {arguments}"));
        assert_eq!(end, exit, "{arguments}: {told}");
        assert!(told.contains(said), "{arguments}: {told}");
    }
    assert!(fleet.files() == files, "a refused command has written something");
    for arguments in [
        "node_transport ace --publish 2026-10-13T02:00:00",
        "ssh ace",
        "node_transport ace --all",
    ] {
        let words = format!("meshplan fleet rotate plan {arguments}");
        assert!(Cli::try_parse_from(words.split(' ')).is_err(), "{arguments}");
    }
}
