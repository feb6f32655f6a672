//! Secrets of a fleet repo on their way into content: what a node gets, and what nobody is told.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says why by failing")]

use std::collections::BTreeMap;
use std::sync::Arc;

use meshplan_reconciler::edge::age_file::{AgeIdentity, AgeRecipient};
use meshplan_reconciler::edge::vault::Vault;
use meshplan_reconciler::pure::compose::former::former;
use meshplan_reconciler::pure::compose::{Composed, Composer, Expected, TreeError, compose_as, compose_tree};
use meshplan_reconciler::pure::decide::Tree as Decided;
use meshplan_reconciler::pure::preview::preview;
use meshplan_reconciler::pure::preview::text::lines;
use meshplan_reconciler::pure::secrets::OpensSecrets;
use meshplan_reconciler::pure::source_tree::{EntryKind, SourceTree};
use meshplan_schemas::digest::Digest;
use meshplan_schemas::finding::Finding;
use meshplan_schemas::resource::{Content, File, Kind};

const MODULE: &str = "[[file]]\nid = \"key\"\npath = \"/key\"\nsecret = \"db\"\n\n\
                      [[file]]\nid = \"conf\"\npath = \"/conf\"\nsource = \"files/conf.j2\"\n\n\
                      [[file]]\nid = \"plain\"\npath = \"/plain\"\ncontent = \"x\"\n";
const CONF: &str = "password = {{ secret(\"db\") }} on {{ node.name }}\n";

/// A fleet, and the reconciler's identity.
#[derive(Clone)]
struct Fleet {
    files: BTreeMap<String, Vec<u8>>,
    to: AgeRecipient,
    vault: Arc<dyn OpensSecrets>,
}

impl Fleet {
    fn new() -> Self {
        let identity = AgeIdentity::generate();
        let to = identity.recipient();
        let toml = format!(
            "schema = 1\nfleet = \"lab\"\nbranch = \"main\"\n\n[[authors]]\nid = \"example\"\n\
             key = \"ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\"\n\n[secrets]\nrecipient = \"{to}\"\n"
        );
        let record =
            |n: u32| format!("id = \"0192f0c1-0000-7000-8000-{n:012}\"\nmodules = [\"m\", \"other\"]\n");
        Self {
            files: BTreeMap::new(),
            vault: Arc::new(Vault::of(identity)),
            to,
        }
        .with("fleet.toml", toml)
        .with("modules/m/module.toml", MODULE)
        .with("modules/m/files/conf.j2", CONF)
        .with(
            "modules/other/module.toml",
            "[[file]]\nid = \"f\"\npath = \"/f\"\ncontent = \"x\"\n",
        )
        .with("nodes/ace.toml", record(1))
        .with("nodes/bea.toml", record(2))
        .secret("secrets/db.age", b"hunter2")
    }

    fn with(mut self, path: &str, bytes: impl AsRef<[u8]>) -> Self {
        self.files.insert(path.to_owned(), bytes.as_ref().to_vec());
        self
    }

    fn secret(self, path: &str, value: &[u8]) -> Self {
        let file = self.to.seal(value).unwrap();
        self.with(path, file)
    }

    fn tree(&self) -> SourceTree {
        let entries = self.files.iter().map(|(path, bytes)| {
            (
                path.clone().into_bytes(),
                EntryKind::Blob,
                Arc::from(bytes.as_slice()),
            )
        });
        SourceTree::from_entries(entries.collect()).0
    }

    fn expected(&self) -> Expected {
        Expected {
            opener: Some(Arc::clone(&self.vault)),
            ..Expected::default()
        }
    }

    fn compose(&self) -> Composed {
        compose_as(&self.tree(), &self.expected()).unwrap()
    }

    fn findings(&self) -> Vec<Finding> {
        match compose_as(&self.tree(), &self.expected()) {
            Err(TreeError::Findings(findings)) => findings,
            other => panic!("{other:?}"),
        }
    }
}

/// What a node gets of a file, with the value of its sealed content.
fn file(composed: &Composed, node: &str, id: &str) -> (File, Option<String>) {
    let node = composed.nodes.values().find(|n| n.name.as_str() == node).unwrap();
    let made = &node.modules["m"].1;
    let resource = made.resources.iter().find(|r| r.name.id.as_str() == id).unwrap();
    let value = resource.sealed().map(|digest| {
        let value = made
            .values
            .iter()
            .find(|secret| secret.digest() == digest)
            .unwrap();
        String::from_utf8(value.value().to_vec()).unwrap()
    });
    match resource.read().unwrap() {
        Kind::File(file) => (file, value),
        other => panic!("{other:?} is no file"),
    }
}

fn content(composed: &Composed, node: &str) -> Digest {
    let node = composed.nodes.values().find(|n| n.name.as_str() == node).unwrap();
    node.modules["m"].0
}

/// All that is said or kept of a tree, as text.
fn told(composed: &Composed) -> String {
    let contents = composed.nodes.values().flat_map(|node| node.modules.values());
    let contents: Vec<String> = contents
        .map(|(_, made)| serde_json::to_string(&made.content).unwrap())
        .collect();
    format!("{composed:?} {contents:?}")
}

// holds: FR-8, FR-9, HK-1
#[test]
fn a_secret_and_a_template_that_calls_one_are_sealed_whole_and_stand_in_no_content() {
    let composed = Fleet::new().compose();
    let (key, value) = file(&composed, "ace", "key");
    assert_eq!((value.as_deref(), key.mode.as_str()), (Some("hunter2"), "0600"));
    for node in ["ace", "bea"] {
        let (conf, value) = file(&composed, node, "conf");
        assert!(matches!(conf.content, Content::Sealed(_)));
        assert_eq!(value.unwrap(), format!("password = hunter2 on {node}\n"));
        assert_eq!(conf.mode, "0600");
    }
    let (plain, value) = file(&composed, "ace", "plain");
    assert_eq!(
        (plain.content, plain.mode.as_str(), value),
        (Content::Text("x".into()), "0644", None)
    );
    let told = told(&composed);
    assert!(!told.contains("hunter2") && told.contains("[secret]"), "{told}");
    assert_eq!(composed.secrets.not_opened, 0);
}

// holds: FR-9
#[test]
fn content_goes_by_the_value_and_never_by_the_ciphertext() {
    let fleet = Fleet::new();
    let before = fleet.compose();
    let anew = fleet.clone().secret("secrets/db.age", b"hunter2").compose();
    assert_eq!(content(&before, "ace"), content(&anew, "ace"));
    assert_eq!(
        before.sources, anew.sources,
        "what is known as bad stays so, encrypted anew or not"
    );
    let other = fleet.clone().secret("secrets/db.age", b"hunter3").compose();
    assert_ne!(content(&before, "ace"), content(&other, "ace"));
    assert_ne!(before.sources["m"], other.sources["m"]);
    assert_eq!(before.sources["other"], other.sources["other"]);
    // A module's own goes before the fleet's, and its ciphertext counts as little.
    let own = fleet.clone().secret("modules/m/secrets/db.age", b"own");
    let [once, again] = [
        own.compose(),
        own.secret("modules/m/secrets/db.age", b"own").compose(),
    ];
    assert_eq!(file(&once, "ace", "key").1.unwrap(), "own");
    assert_eq!(
        (content(&once, "ace"), &once.sources),
        (content(&again, "ace"), &again.sources)
    );
}

// holds: FR-3, FR-9
#[test]
fn a_tree_after_another_composes_to_what_it_composes_to_alone() {
    let fleet = Fleet::new();
    let mut composer = Composer::new(fleet.expected());
    composer.whole(fleet.tree(), Vec::new()).unwrap();
    let walk = [
        fleet.clone().secret("secrets/db.age", b"hunter3"),
        fleet.clone().secret("secrets/db.age", b"hunter2"),
        fleet.clone().secret("secrets/db.age", b"hunter2"),
        fleet.clone().with(
            "secrets/db.age",
            AgeIdentity::generate().recipient().seal(b"x").unwrap(),
        ),
        fleet.clone(),
    ];
    for tree in walk {
        let path = "secrets/db.age";
        let bytes: Arc<[u8]> = Arc::from(tree.files[path].as_slice());
        let after = composer.step(vec![(path.to_owned(), bytes)]).unwrap();
        assert_eq!(*after, tree.compose());
    }
}

// holds: FR-8
#[test]
fn a_secret_that_does_not_open_leaves_its_modules_out_with_the_reason_and_the_others_go_on() {
    let lost = AgeIdentity::generate().recipient().seal(b"hunter2").unwrap();
    for (module, path) in [
        (MODULE, "secrets/db.age"),
        (
            "[[file]]\nid = \"c\"\npath = \"/c\"\nsource = \"files/conf.j2\"\n",
            "secrets/db.age",
        ),
    ] {
        let composed = Fleet::new()
            .with("modules/m/module.toml", module)
            .with(path, &lost)
            .compose();
        let ace = composed.nodes.values().next().unwrap();
        assert_eq!(
            ace.modules.keys().map(|m| m.as_str()).collect::<Vec<_>>(),
            ["other"]
        );
        let reason = &ace.left_out[0].reason;
        assert!(
            reason.contains("cannot open the secret `db`") && reason.contains("somebody else"),
            "{reason}"
        );
        assert_eq!(composed.secrets.closed.keys().collect::<Vec<_>>(), [path]);
        assert!(
            composed.warnings.iter().any(|w| w.file == path),
            "{:?}",
            composed.warnings
        );
    }
}

// holds: FR-8, B58
#[test]
fn an_error_of_a_template_that_has_called_secret_names_the_place_and_no_value() {
    let said = |template: &str| {
        let fleet = Fleet::new().with("modules/m/files/conf.j2", template);
        let Err(TreeError::Findings(findings)) = compose_as(&fleet.tree(), &fleet.expected()) else {
            panic!("{template} was taken")
        };
        let error = findings.iter().find(|f| f.is_error()).unwrap();
        assert_eq!(error.file, "modules/m/files/conf.j2");
        format!("{error} {}", error.render(false))
    };
    for template in [
        "{{ secret(\"db\") | int }}",
        "{{ secret(\"db\") + 1 }}",
        "{% set x = secret(\"db\") %}{{ x.y.z }}",
        "{{ [][secret(\"db\")|string] }}{{ nothing }}",
        "{{ (secret(\"db\")|upper)|float }}",
        "{{ {}[secret(\"db\")~''].x }}",
        // The engine quotes the name of a template that is not there.
        "{% include secret(\"db\") ~ \"\" %}",
    ] {
        let said = said(template);
        assert!(!said.to_lowercase().contains("hunter2"), "{template}: {said}");
    }
    let unknown = said("{{ secret(\"dbb\") }}");
    assert!(unknown.contains("there is no secret `dbb`"), "{unknown}");
    let binary = Fleet::new()
        .secret("secrets/db.age", b"\xff\xfehunter2")
        .findings();
    assert!(
        binary.iter().any(|f| f.message.contains("is no text")),
        "{binary:?}"
    );
    assert!(!format!("{binary:?}").contains("hunter2"));
    // Another module's own secret is out of reach.
    let foreign = Fleet::new()
        .secret("modules/other/secrets/own.age", b"x")
        .with("modules/m/files/conf.j2", "{{ secret(\"own\") }}")
        .findings();
    assert!(
        foreign
            .iter()
            .any(|f| f.message.contains("there is no secret `own`")),
        "{foreign:?}"
    );
}

// holds: FR-8
#[test]
fn a_template_can_put_a_secret_through_filters_and_into_other_templates() {
    let rendered = |template: &str| {
        let fleet = Fleet::new()
            .with("modules/m/files/part.j2", "part {{ secret('db') }}")
            .with("modules/m/files/conf.j2", template);
        file(&fleet.compose(), "ace", "conf").1
    };
    assert_eq!(rendered("{{ secret('db') | upper }}").unwrap(), "HUNTER2");
    assert_eq!(
        rendered("{% set x = secret('db') %}{{ x ~ '!' }}").unwrap(),
        "hunter2!"
    );
    assert_eq!(rendered("{% include 'files/part.j2' %}").unwrap(), "part hunter2");
    assert_eq!(
        rendered("{% if secret('db') %}set{% endif %}").unwrap(),
        "set",
        "sealed for what it hangs on"
    );
    assert_eq!(rendered("{{ node.name }}"), None);
}

// holds: FR-9, DL-8
#[test]
fn a_preview_says_that_a_secret_changes_and_never_what() {
    let fleet = Fleet::new();
    let after = fleet.clone().secret("secrets/db.age", b"hunter3").compose();
    let preview = preview(Some(&fleet.compose()), &after).unwrap();
    let shown: Vec<String> = lines(&preview).into_iter().map(|line| line.text).collect();
    let shown = shown.join("\n");
    assert!(shown.contains("[secret], changed"), "{shown}");
    let whole = format!("{shown} {}", serde_json::to_string(&preview).unwrap());
    for word in ["hunter2", "hunter3", "password ="] {
        assert!(!whole.contains(word), "{whole}");
    }
}

// holds: FR-9
#[test]
fn without_the_identity_a_tree_composes_and_says_that_nothing_was_opened() {
    let fleet = Fleet::new();
    let composed = compose_tree(&fleet.tree(), None, None).unwrap();
    assert_eq!(
        (composed.secrets.not_opened, composed.secrets.closed.len()),
        (1, 0)
    );
    let (_, value) = file(&composed, "ace", "conf");
    assert!(value.unwrap().starts_with("password = [secret sha256:"));
}

// holds: DL-7
#[test]
fn a_node_that_lacks_a_module_is_not_given_former_content_that_needs_a_retired_value() {
    let then = Fleet::new();
    let retired = "[[retired]]\nname = \"db\"\nwhy = \"it was in a chat\"\n";
    let now = then.clone().with("secrets/retired.toml", retired);
    let ace = *then.compose().nodes.keys().next().unwrap();
    let module = "m".parse().unwrap();
    let made = |now: &Fleet| {
        let nodes = [ace].into();
        former(&now.tree(), &then.tree(), (&module, &nodes), &then.vault)
            .remove(&ace)
            .unwrap()
    };
    assert!(made(&now).is_ok(), "the value is that of today");
    let why = made(&now.secret("secrets/db.age", b"hunter3")).unwrap_err();
    assert!(why.contains("a retired value of the secret `db`"), "{why}");
}

// holds: DL-7
#[test]
fn to_retire_a_value_is_a_change_of_the_gate() {
    let fleet = Fleet::new();
    let before = fleet.compose();
    let retired = "[[retired]]\nname = \"db\"\nwhy = \"it was in a chat\"\n";
    let after = fleet.with("secrets/retired.toml", retired).compose();
    assert_ne!(before.gate_digest, after.gate_digest);
    let retired = after.secrets.retired.values().next().unwrap();
    assert_eq!(retired.why, "it was in a chat");
    assert!(matches!(Decided::of(Ok(Arc::new(after))), Decided::Composed(_)));
}

// holds: FR-8, FR-9, HK-8
#[test]
fn secrets_of_an_environment_are_sealed_whole_in_their_order_and_stand_in_no_content() {
    let module = "[[container]]\nid = \"c\"\nimage = \"web:1\"\nenv_secrets = [\"db\", \"more\"]\n\
                  prepares = [\"migrate\"]\n";
    let fleet = Fleet::new()
        .with("modules/m/module.toml", module)
        .secret("secrets/db.age", b"DB=hunter2")
        .secret("secrets/more.age", b"MORE=hunter3\n");
    let composed = fleet.compose();
    let node = composed
        .nodes
        .values()
        .find(|n| n.modules.contains_key("m"))
        .unwrap();
    let made = &node.modules["m"].1;
    for id in ["c-prepare", "c"] {
        let resource = made
            .content
            .resources
            .iter()
            .find(|r| r.name.id.as_str() == id)
            .unwrap();
        let Kind::Container(container) = resource.read().unwrap() else {
            panic!("{resource:?}");
        };
        let digest = *container.env_sealed.unwrap();
        assert_eq!(resource.sealed(), Some(digest));
        assert_eq!(resource.hides.len(), 2);
        let value = made
            .values
            .iter()
            .find(|secret| secret.digest() == digest)
            .unwrap();
        assert_eq!(value.value(), b"DB=hunter2\nMORE=hunter3\n");
    }
    assert!(!told(&composed).contains("hunter"));
    let name = node.name.as_str();
    let anew = fleet.secret("secrets/more.age", b"MORE=hunter3\n");
    assert_eq!(content(&composed, name), content(&anew.compose(), name));
    let other = anew.secret("secrets/more.age", b"MORE=hunter4\n");
    assert_ne!(content(&composed, name), content(&other.compose(), name));
}
