//! What becomes of the files of a module on their way to a node.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says why by failing")]

use std::collections::BTreeMap;
use std::sync::Arc;

use meshplan_reconciler::pure::compose::{Composed, TreeError, compose_tree};
use meshplan_reconciler::pure::source_tree::{EntryKind, SourceTree};
use meshplan_schemas::declaration::Mode;
use meshplan_schemas::finding::Finding;
use meshplan_schemas::resource::{Content, Kind};

const FLEET: &str = "schema = 1\nfleet = \"lab\"\nbranch = \"main\"\n\n[[authors]]\nid = \"example\"\n\
                     key = \"ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\"\n\n[vars]\nsite = \"lab\"\n";
const MODULE: &str = "[settings.text]\ntype = \"string\"\ndefault = \"plain\"\n\n\
                      [[file]]\nid = \"f\"\npath = \"/f\"\nsource = \"files/f\"\n\n\
                      [[file]]\nid = \"t\"\npath = \"/t\"\nsource = \"files/t.j2\"\nmode = \"4755\"\n";

struct Tree(BTreeMap<String, Vec<u8>>);

impl Tree {
    fn new() -> Self {
        let record = |n: u32| format!("id = \"0192f0c1-0000-7000-8000-{n:012}\"\nmodules = [\"m\"]\n");
        Self(BTreeMap::new())
            .with("fleet.toml", FLEET)
            .with("modules/m/module.toml", MODULE)
            .with("modules/m/files/f", "")
            .with("modules/m/files/t.j2", "")
            .with("nodes/ace.toml", record(1))
            .with("nodes/bea.toml", record(2))
    }
    fn with(mut self, path: &str, bytes: impl AsRef<[u8]>) -> Self {
        self.0.insert(path.to_owned(), bytes.as_ref().to_vec());
        self
    }
    fn tree(&self) -> SourceTree {
        let entries = self.0.iter().map(|(path, bytes)| {
            (
                path.clone().into_bytes(),
                EntryKind::Blob,
                Arc::from(bytes.as_slice()),
            )
        });
        SourceTree::from_entries(entries.collect()).0
    }
    fn compose(&self) -> Result<Composed, TreeError> {
        compose_tree(&self.tree(), None, None)
    }
    fn findings(&self) -> Vec<Finding> {
        match self.compose() {
            Err(TreeError::Findings(findings)) => findings,
            other => panic!("{other:?}"),
        }
    }
    /// The bytes of a file of a node.
    fn file(&self, node: &str, id: &str) -> Vec<u8> {
        let composed = self.compose().unwrap();
        let node = composed.nodes.values().find(|n| n.name.as_str() == node).unwrap();
        let resource = node.modules["m"]
            .1
            .resources
            .iter()
            .find(|r| r.name.id.as_str() == id)
            .unwrap();
        match resource.read().unwrap() {
            Kind::File(file) => file.content.bytes().unwrap(),
            other => panic!("{other:?} is no file"),
        }
    }
    fn rendered(&self, template: &str) -> String {
        let tree = Self(self.0.clone()).with("modules/m/files/t.j2", template);
        String::from_utf8(tree.file("ace", "t")).unwrap()
    }
}

// holds: FR-3, B21
#[test]
fn a_node_gets_the_bytes_of_the_blob() {
    for bytes in [
        &b"#!/bin/sh\r\necho\r\n"[..],
        b"\xef\xbb\xbfmark",
        b"\xff\x00\xfe",
        b"no end",
        b"{{ not.rendered }}",
    ] {
        assert_eq!(
            Tree::new().with("modules/m/files/f", bytes).file("ace", "f"),
            bytes
        );
    }
    // The digest that is ordered is that of the blob, line ends and mark included.
    let digest = |bytes: &[u8]| {
        let composed = Tree::new().with("modules/m/files/f", bytes).compose().unwrap();
        composed.sources["m"]
    };
    assert_ne!(digest(b"echo\r\n"), digest(b"echo\n"));
    assert_ne!(digest(b"\xef\xbb\xbfecho\n"), digest(b"echo\n"));
    let binary = Content::of(b"\xff\x00");
    assert!(matches!(binary, Content::Base64(_)));
}

// holds: FR-8
#[test]
fn a_template_sees_node_fleet_settings_and_nodes() {
    let tree = Tree::new();
    assert_eq!(
        tree.rendered("{{ node.name }} {{ fleet.name }} {{ fleet.vars.site }} {{ settings.text }}\n"),
        "ace lab lab plain\n"
    );
    assert_eq!(
        tree.rendered("{%- for n in nodes %}\n{{ n.name }} {{ n.id }}\n{%- endfor %}\n")
            .trim()
            .lines()
            .count(),
        2
    );
    assert_eq!(tree.rendered("{{ node.short_id }}").len(), 8);
    assert_eq!(tree.rendered("{% if true %}a{% endif %}\nb\n"), "a\nb\n");
    assert_eq!(tree.rendered("{{ node.address is none }} {{ 1 }}"), "true 1");
    let none = tree.with("modules/m/files/t.j2", "{{ node.address }}").findings();
    assert!(none[0].message.contains("not there"), "{none:?}");
    let tree = Tree::new();
    let included = tree.with("modules/m/files/part.j2", "part of {{ node.name }}");
    assert_eq!(
        included.rendered("{% include 'files/part.j2' %}\r\n"),
        "part of ace\r\n"
    );
}

/// What somebody may write into a value in the hope that it is read as something else.
const HOSTILE: [&str; 12] = [
    "{{ node.id }}",
    "{{ secret('db') }}",
    "{% include 'files/f' %}",
    "{% raw %}",
    "{# comment",
    "}} {{ fleet.name }}",
    "{% endfor %}{{ node.id }}",
    "$(rm -rf /) `id` ; | & > < \\ \" ' *",
    "one\nport = 1\n[more]\r\nx",
    "<b>&amp;</b>",
    "%s %n {} ${HOME}",
    "\u{202e}\u{feff}caf\u{e9}",
];

// holds: FR-8, B58
#[test]
fn a_value_with_template_syntax_stays_data_wherever_it_is_put() {
    for value in HOSTILE {
        let quoted = toml::Value::from(value).to_string();
        let record = |node: &str, label: &str| {
            let record = String::from_utf8(Tree::new().0[node].clone()).unwrap();
            format!("{record}\n[vars]\nlabel = {label}\nlabels = [{label}, {label}]\n")
        };
        let tree = Tree::new()
            .with("fleet.toml", format!("{FLEET}text = {quoted}\n"))
            .with("nodes/ace.toml", record("nodes/ace.toml", &quoted))
            .with("nodes/bea.toml", record("nodes/bea.toml", "\"of bea\""))
            .with("modules/m/files/f", "{{ never.rendered }}")
            .with(
                "modules/m/files/part.j2",
                "{{ settings.text }}{{ node.vars.label }}",
            )
            .with("modules/m/files/one.j2", "{{ x }}")
            .with("modules/m/files/base.j2", "{% block a %}{% endblock %}")
            .with(
                "modules/m/files/macro.j2",
                "{% macro say(x) %}{{ x }}{% endmacro %}",
            );
        let twice = format!("{value}{value}");
        for (template, expected) in [
            ("{{ settings.text }}", value),
            ("{{ node.vars.label }}", value),
            ("{{ fleet.vars.text }}", value),
            ("{% for x in [settings.text] %}{{ x }}{% endfor %}", value),
            ("{% for x in node.vars.labels %}{{ x }}{% endfor %}", &twice),
            ("{{ node.vars.labels | join('') }}", &twice),
            (
                "{% for n in nodes if n.name == 'ace' %}{{ n.vars.label }}{% endfor %}",
                value,
            ),
            ("{% set x = settings.text %}{{ x }}", value),
            ("{% set x %}{{ settings.text }}{% endset %}{{ x }}", value),
            ("{{ settings.text ~ node.vars.label }}", &twice),
            ("{% include 'files/part.j2' %}", &twice),
            (
                "{% for x in node.vars.labels %}{% include 'files/one.j2' %}{% endfor %}",
                &twice,
            ),
            (
                "{% extends 'files/base.j2' %}{% block a %}{{ settings.text }}{% endblock %}",
                value,
            ),
            (
                "{% from 'files/macro.j2' import say %}{{ say(settings.text) }}",
                value,
            ),
        ] {
            assert_eq!(tree.rendered(template), expected, "{template} with {value:?}");
        }
        // What stands on one node changes nothing on another.
        let of_bea = tree.with("modules/m/files/t.j2", "{{ node.name }} {{ node.vars.label }}");
        assert_eq!(of_bea.file("bea", "t"), b"bea of bea", "{value:?}");
    }
}

// holds: FR-8, B58
#[test]
fn a_value_names_no_template_and_an_unknown_name_is_an_error_wherever_it_stands() {
    let tree = Tree::new().with(
        "fleet.toml",
        format!("{FLEET}text = \"files/../../../etc/passwd\"\n"),
    );
    for template in [
        "{% include settings.text %}",
        "{{ settings.txet }}",
        "{% for x in settings.texts %}{{ x }}{% endfor %}",
        "{% for x in [1] %}{{ y }}{% endfor %}",
        "{% include 'files/part.j2' %}",
    ] {
        let tree = Tree(tree.0.clone())
            .with("modules/m/files/part.j2", "{{ nowhere }}")
            .with("modules/m/files/t.j2", template);
        let Err(TreeError::Findings(findings)) = tree.compose() else {
            panic!("{template} was taken")
        };
        assert!(findings.iter().any(Finding::is_error), "{template}: {findings:?}");
        assert!(
            findings.iter().all(|f| f.file.starts_with("modules/m/")),
            "{findings:?}"
        );
    }
    // A template that asks for a secret by a value is given none that nobody has.
    let asked = tree
        .with("modules/m/files/t.j2", "{{ secret(settings.text) }}")
        .findings();
    assert!(asked[0].message.contains("there is no secret `"), "{asked:?}");
}

// holds: FR-8
#[test]
fn output_and_work_of_a_template_are_bounded() {
    for template in [
        "{{ 'x' * 2000000 }}",
        "{% for a in range(9999) %}{% for b in range(9999) %}{{ 'xxxxxxxxxxxxxxxx' * 100 }}{% endfor %}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% include 'files/t.j2' %}",
    ] {
        let findings = Tree::new().with("modules/m/files/t.j2", template).findings();
        assert_eq!(
            findings[0].file, "modules/m/files/t.j2",
            "{template}: {findings:?}"
        );
        assert!(
            findings[0].message.contains("(on ace and 1 more)"),
            "{findings:?}"
        );
    }
}

// holds: FR-8
#[test]
fn the_value_of_a_node_beats_the_fleet_and_that_beats_the_default() {
    let tree = Tree::new();
    assert_eq!(tree.rendered("{{ settings.text }}"), "plain");
    let tree = tree.with("fleet.toml", format!("{FLEET}text = \"fleet\"\n"));
    assert_eq!(tree.rendered("{{ settings.text }}"), "fleet");
    let record = format!(
        "{}\n[vars]\ntext = \"node\"\n",
        String::from_utf8(tree.0["nodes/ace.toml"].clone()).unwrap()
    );
    let tree = tree.with("nodes/ace.toml", record);
    assert_eq!(tree.rendered("{{ settings.text }}"), "node");
    assert_eq!(
        tree.with("modules/m/files/t.j2", "{{ settings.text }}")
            .file("bea", "t"),
        b"fleet"
    );
}

// holds: DL-1
#[test]
fn a_tree_of_another_fleet_or_branch_is_refused_at_its_line() {
    let tree = Tree::new().tree();
    let (lab, home) = ("lab".parse().unwrap(), "home".parse().unwrap());
    assert!(compose_tree(&tree, Some(&lab), Some("main")).is_ok());
    let Err(TreeError::Findings(findings)) = compose_tree(&tree, Some(&home), Some("trunk")) else {
        panic!("taken");
    };
    let places: Vec<_> = findings
        .iter()
        .map(|f| (f.file.as_str(), f.line, f.column))
        .collect();
    assert_eq!(places, [("fleet.toml", 2, 9), ("fleet.toml", 3, 10)]);
}

#[test]
fn a_tree_without_fleet_toml_is_another_kind_of_no() {
    let mut tree = Tree::new();
    tree.0.remove("fleet.toml");
    assert!(matches!(tree.compose(), Err(TreeError::NoFleet(_))));
    assert!(matches!(
        Tree(BTreeMap::new()).compose(),
        Err(TreeError::NoFleet(_))
    ));
}

// holds: HR-2
#[test]
fn a_node_that_only_observes_has_every_module_observe() {
    let record = format!(
        "mode = \"observe\"\n{}",
        String::from_utf8(Tree::new().0["nodes/ace.toml"].clone()).unwrap()
    );
    let composed = Tree::new().with("nodes/ace.toml", record).compose().unwrap();
    let modes: Vec<_> = composed.nodes.values().map(|n| n.modules["m"].1.mode).collect();
    assert_eq!(modes, [Mode::Observe, Mode::Apply]);
}

// holds: FR-8
#[test]
fn reading_all_nodes_of_a_large_fleet_is_priced() {
    let mut tree = Tree::new().with("modules/m/files/t.j2", "{{ nodes | length }}");
    for n in 3..=201 {
        let record = format!("id = \"0192f0c1-0000-7000-8000-{n:012}\"\n");
        tree = tree.with(&format!("nodes/n{n}.toml"), record);
    }
    let warnings = tree.compose().unwrap().warnings;
    let said: Vec<_> = warnings.iter().map(|w| w.message.as_str()).collect();
    assert_eq!(
        said,
        ["files/t.j2 reads all 201 nodes: a change of any record makes 2 new declarations"]
    );
}

// holds: FR-3
#[test]
fn a_giant_document_is_refused_by_its_size() {
    let giant = format!("{FLEET}#{}", "x".repeat(1024 * 1024));
    let findings = Tree::new().with("fleet.toml", giant).findings();
    assert_eq!(findings.len(), 1);
    assert!(findings[0].message.contains("bytes"));
}

// holds: FR-8
#[test]
fn a_node_is_by_itself_what_it_is_among_all() {
    let tree = Tree::new();
    let same = "{{ node == nodes[0] }} {{ node == nodes[1] }} {{ node | string == nodes[0] | string }} \
                {{ node | list == nodes[0] | list }} {{ node | length }} {{ node.nothing is defined }} \
                {{ node.short_id == nodes[0]['short_id'] }}";
    assert_eq!(tree.rendered(same), "true false true true 7 false true");
}
