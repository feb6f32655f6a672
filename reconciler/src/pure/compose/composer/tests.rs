//! Whatever was composed before, a tree composes to what it composes to alone: random walks over trees that are good,
//! bad and good again.

use std::collections::BTreeMap;

use ed25519_dalek::SigningKey;
use proptest::prelude::*;

use super::*;
use crate::pure::compose::compose_tree;

type Files = BTreeMap<String, String>;

fn key(seed: u8) -> String {
    let public = SigningKey::from_bytes(&[seed; 32]).verifying_key().to_bytes();
    format!("ed25519:{}", data_encoding::BASE64.encode(&public))
}

fn transport(seed: u8) -> String {
    format!("x25519:{}", data_encoding::BASE64.encode(&[seed; 32]))
}

/// A record by what may vary in it.
fn record(n: u8, roles: &str, modules: &str, more: &str) -> String {
    format!(
        "id = \"00000000-0000-4000-8000-0000000000{n:02x}\"\nroles = [{roles}]\nmodules = [{modules}]\n{more}"
    )
}

fn fleet() -> Files {
    let mut files = Files::from(
        [
            (
                "fleet.toml",
                format!(
                    "schema = 1\nfleet = \"lab\"\nbranch = \"main\"\n[[authors]]\nid = \"a\"\nkey = \"{}\"\n[vars]\nsite = \"x\"\n",
                    key(200)
                ),
            ),
            (
                "plans/default.toml",
                "covers = [\"*\"]\n[[stage]]\nname = \"canary\"\nnodes = [\"n1\"]\n[[stage]]\nname = \"rest\"\nrest = true\n".to_owned(),
            ),
            ("policy/base.toml", "[scheduler]\nreconcile_secs = 60\n".to_owned()),
            ("policy/roles/edge.toml", "[scheduler]\nreconcile_secs = 30\n".to_owned()),
            (
                "modules/base/module.toml",
                "roles = [\"edge\"]\n[settings.port]\ntype = \"integer\"\ndefault = 80\nmin = 1\nmax = 9000\n[[file]]\nid = \"conf\"\npath = \"/etc/base\"\nsource = \"files/base.j2\"\n".to_owned(),
            ),
            ("modules/base/files/base.j2", "port {{ settings.port }} at {{ fleet.vars.site }}\n".to_owned()),
            (
                "modules/host/module.toml",
                "[[file]]\nid = \"name\"\npath = \"/etc/host\"\nsource = \"files/host.j2\"\n".to_owned(),
            ),
            ("modules/host/files/host.j2", "{{ node.name }} {{ node.vars.rack | default(\"none\") }}\n".to_owned()),
            (
                "modules/other/module.toml",
                "[[file]]\nid = \"name\"\npath = \"/etc/other\"\ncontent = \"one\"\n".to_owned(),
            ),
        ]
        .map(|(path, text)| (path.to_owned(), text)),
    );
    for n in 1..=5 {
        let keys = format!(
            "transport_key = \"{}\"\nsigning_key = \"{}\"\n",
            transport(n),
            key(n)
        );
        files.insert(
            format!("nodes/n{n}.toml"),
            record(n, "\"edge\"", "\"host\"", &keys),
        );
    }
    files
}

/// One commit: a path and what it holds then; none takes the file away.
type Edit = (String, Option<String>);

fn edit() -> impl Strategy<Value = Edit> {
    let roles = prop::sample::select(vec!["", "\"edge\"", "\"edge\", \"lone\""]);
    let modules = prop::sample::select(vec![
        "\"host\"",
        "\"host\", \"other\"",
        "",
        "\"hots\"",
        "\"base\", \"other\"",
    ]);
    let more = prop::sample::select(vec![
        "",
        "update_class = \"best_effort\"\n",
        "adopted = true\ntake = [\"host\"]\n",
        "take = [\"nothing\"]\n",
        "mode = \"observe\"\n",
        "lifeline = true\n",
        "address = \"ws://10.0.0.1:1/\"\n",
        "address = \"10.0.0.1\"\n",
        "pinned = true\n",
        "revoked = true\n",
        "typo = 1\n",
        "valid_to = 99\n[vars]\nport = 8080\nrack = \"r1\"\n",
        "[vars]\nport = 80\n",
        "[vars]\nport = 90000\n",
        "[vars]\nport = \"many\"\nrack = \"r2\"\n",
    ]);
    let node =
        (1u8..=6, 1u8..=7, 0u8..=7, roles, modules, more).prop_map(|(n, id, seed, roles, modules, more)| {
            let keys = match seed {
                0 => String::new(),
                7 => format!("signing_key = \"{}\"\n", key(n)),
                seed => format!(
                    "transport_key = \"{}\"\nsigning_key = \"{}\"\n",
                    transport(seed),
                    key(seed)
                ),
            };
            // Mostly the record's own uuid and keys: else every walk would end at once.
            let id = if id < 6 { n } else { id };
            (
                format!("nodes/n{n}.toml"),
                Some(record(id, roles, modules, &format!("{keys}{more}"))),
            )
        });
    let of = |path: &str, texts: Vec<&'static str>| {
        let path = path.to_owned();
        prop::sample::select(texts).prop_map(move |text| (path.clone(), Some(text.to_owned())))
    };
    prop_oneof![
        12 => node,
        1 => (1u8..=6).prop_map(|n| (format!("nodes/n{n}.toml"), None)),
        2 => of("modules/host/files/host.j2", vec![
            "{{ node.name }}\n",
            "{{ node.name }} of {{ nodes | length }} {% for n in nodes %}{{ n.vars.rack | default(\"-\") }}{% endfor %}\n",
            "{{ node.nothing }}\n",
        ]),
        2 => of("modules/base/files/base.j2", vec![
            "port {{ settings.port }}\n",
            "port {{ settings.port }} at {{ fleet.vars.site }} of {{ fleet.name }}\n",
            "{{ settings.prot }}\n",
            "{% for",
        ]),
        1 => of("modules/other/module.toml", vec![
            "[[file]]\nid = \"name\"\npath = \"/etc/other\"\ncontent = \"two\"\n",
            "[[file]]\nid = \"name\"\npath = \"/etc/host\"\ncontent = \"mine\"\n",
            "roles = [\"lone\"]\n",
        ]),
        1 => of("policy/base.toml", vec!["[scheduler]\nreconcile_secs = 61\n", "[qos]\napply_io_weight = 1\n"]),
        1 => of("plans/default.toml", vec![
            "covers = [\"*\"]\n[[stage]]\nname = \"rest\"\nrest = true\nwait = \"sent\"\n",
            "covers = [\"*\"]\n[[stage]]\nname = \"canary\"\nnodes = [\"n6\"]\n[[stage]]\nname = \"rest\"\nrest = true\n",
            "covers = [\"*\"]\n[[stage]]\nname = \"rest\"\nrest = true\n",
        ]),
        1 => (1u8..=3, prop::bool::ANY).prop_map(|(n, there)| {
            let text = format!(
                "[[rotations]]\nid = \"r\"\nkind = \"node_signing\"\nsubject = \"00000000-0000-4000-8000-0000000000{n:02x}\"\n\
                 publish_at = 1\nactivate_at = 2\n"
            );
            ("rotations.toml".to_owned(), there.then_some(text))
        }),
        1 => prop::sample::select(vec!["x", "y"]).prop_map(|site| {
            let text = fleet()["fleet.toml"].replace("site = \"x\"", &format!("site = \"{site}\"\nport = 443"));
            ("fleet.toml".to_owned(), Some(text))
        }),
    ]
}

fn tree(files: &Files) -> SourceTree {
    let entries = files.iter().map(|(path, text)| {
        let bytes: Arc<[u8]> = Arc::from(text.as_bytes());
        (path.clone().into_bytes(), EntryKind::Blob, bytes)
    });
    SourceTree::from_entries(entries.collect()).0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // holds: FR-3
    #[test]
    fn a_tree_composes_to_the_same_whatever_was_composed_before(
        walk in prop::collection::vec(prop::collection::vec(edit(), 1..3), 1..25),
    ) {
        let mut files = fleet();
        let mut composer = Composer::new(Expected::default());
        prop_assert!(composer.whole(tree(&files), Vec::new()).is_ok(), "the walk begins at a fleet that is right");
        for commit in walk {
            let before = files.clone();
            for (path, text) in commit {
                match text {
                    Some(text) => files.insert(path, text),
                    None => files.remove(&path),
                };
            }
            let composed = if files.keys().eq(before.keys()) {
                let changed = files.iter().filter(|(path, text)| before[*path] != **text);
                let changed = changed.map(|(path, text)| (path.clone(), Arc::from(text.as_bytes())));
                composer.step(changed.collect())
            } else {
                composer.whole(tree(&files), Vec::new())
            };
            let alone = compose_tree(&tree(&files), None, None);
            prop_assert_eq!(composed.map(|c| (*c).clone()), alone);
        }
    }
}

/// That the walk above goes the short way at all: what nothing has changed about is the very same value.
#[test]
fn a_change_of_one_record_makes_one_node_anew() {
    let mut files = fleet();
    let mut composer = Composer::new(Expected::default());
    let before = composer.whole(tree(&files), Vec::new()).unwrap();
    let changed = format!("{}[vars]\nrack = \"r9\"\n", files["nodes/n3.toml"]);
    files.insert("nodes/n3.toml".to_owned(), changed.clone());
    let after = composer
        .records_alone(&[("nodes/n3.toml".to_owned(), Arc::from(changed.as_bytes()))])
        .expect("nothing else has to be looked at");
    let made: Vec<&str> = (before.nodes.values().zip(after.nodes.values()))
        .filter(|(before, after)| !Arc::ptr_eq(before, after))
        .map(|(_, after)| after.name.as_str())
        .collect();
    assert_eq!(made, ["n3"]);
    let third = after.nodes.values().find(|n| n.name.as_str() == "n3").unwrap();
    assert!(
        serde_json::to_string(&third.modules["host"].1.content)
            .unwrap()
            .contains("n3 r9")
    );
    assert_eq!(*after, compose_tree(&tree(&files), None, None).unwrap());
}

/// A rotation names the keys of records, so a record that changes beside one is held against it again.
#[test]
fn a_record_beside_a_rotation_is_not_taken_by_itself_and_the_tree_stays_unsigned() {
    let mut files = fleet();
    let rotation = "[[rotations]]\nid = \"r\"\nkind = \"node_signing\"\n\
                    subject = \"00000000-0000-4000-8000-000000000003\"\npublish_at = 1\nactivate_at = 2\n";
    files.insert("rotations.toml".to_owned(), rotation.to_owned());
    let mut composer = Composer::new(Expected::default());
    let before = composer.whole(tree(&files), Vec::new()).unwrap();
    assert!(before.unsigned.is_some(), "rotations are not walked");
    assert_eq!(before.warnings, Vec::from_iter(before.unsigned.clone()));
    let mut step = |text: String| {
        let bytes: Arc<[u8]> = Arc::from(text.as_bytes());
        composer.step(vec![("nodes/n3.toml".to_owned(), bytes)])
    };
    let after = step(format!("{}lifeline = true\n", files["nodes/n3.toml"])).unwrap();
    assert_eq!(after.unsigned, before.unsigned);
    let invited = record(3, "\"edge\"", "\"host\"", "");
    let Err(TreeError::Findings(findings)) = step(invited) else {
        panic!("a node without keys has nothing to rotate");
    };
    assert!(
        findings
            .iter()
            .any(|f| f.is_error() && f.file == "rotations.toml")
    );
}

#[test]
fn a_change_of_one_module_makes_the_others_not_again() {
    let mut files = fleet();
    let mut composer = Composer::new(Expected::default());
    let before = composer.whole(tree(&files), Vec::new()).unwrap();
    files.insert(
        "modules/other/module.toml".to_owned(),
        "description = \"nothing\"\n".to_owned(),
    );
    let after = composer.whole(tree(&files), Vec::new()).unwrap();
    let same = before
        .nodes
        .values()
        .zip(after.nodes.values())
        .all(|(a, b)| Arc::ptr_eq(a, b));
    assert!(same, "no node has it");
    assert_ne!(before.sources, after.sources);
}
