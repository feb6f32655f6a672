//! A module as it was in an earlier commit, on records of today: what nodes get that lack a module whose newest
//! content failed (DL-3, DL-14).
//!
//! Sources and settings of the fleet are those of the commit in which the module was last accepted, for that is what
//! is proven; who the node is (its record, its own `[vars]`) and who the others are is of today.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use meshplan_schemas::finding::Finding;
use meshplan_schemas::ident::{ModuleName, NodeId};

use super::contents::Contents;
use super::{Made, lists, spent};
use crate::pure::parse::parse;
use crate::pure::secrets::{OpensSecrets, Secrets};
use crate::pure::source_tree::SourceTree;
use crate::pure::validate::settings::resolve;
use crate::pure::validate::{Record, Validated, validate};

/// The former content of modules on nodes, or why there is none, in a sentence.
pub type Former = BTreeMap<(ModuleName, NodeId), Result<Made, String>>;

/// Composes a module as `then` has it on these nodes of `now`. Every node is in the answer.
#[must_use]
pub fn former(
    now: &SourceTree,
    then: &SourceTree,
    (module, nodes): (&ModuleName, &BTreeSet<NodeId>),
    opener: &Arc<dyn OpensSecrets>,
) -> BTreeMap<NodeId, Result<Made, String>> {
    let all = |why: String| nodes.iter().map(|id| (*id, Err(why.clone()))).collect();
    let read = |tree| {
        let (documents, findings) = parse(tree);
        validate(documents).map_err(|more| findings.into_iter().chain(more).collect::<Vec<_>>())
    };
    let (secrets_now, secrets) = (Secrets::of(now, opener), Secrets::of(then, opener));
    let (now, then) = match (read(now), read(then)) {
        (Ok(now), Ok(then)) => (now, then),
        (Err(findings), _) => return all(said("the tree", &findings)),
        (_, Err(findings)) => return all(said("the tree in which it was accepted", &findings)),
    };
    let retired = lists::retired(&now, &secrets_now);
    let Some(mixed) = now.with_module_of(then, module) else {
        return all("the commit in which it was accepted has no such module".to_owned());
    };
    let mut out: BTreeMap<_, _> = all("the tree has no such record".to_owned());
    let mut fitting = Vec::new();
    for record in mixed.nodes().iter().filter(|r| nodes.contains(&r.file.id.value)) {
        match unset(&mixed, record, module) {
            Some(why) => {
                out.insert(record.file.id.value, Err(why));
            }
            None => fitting.push(record),
        }
    }
    let composed = match Contents::of_records((&mixed, &secrets), fitting.iter().copied()) {
        Ok(composed) => composed,
        Err(findings) => return all(said("its former content", &findings)),
    };
    for (record, composed) in fitting.into_iter().zip(composed) {
        let made = match composed {
            Ok(mut node) => node.modules.remove(module).ok_or_else(|| {
                let left_out = node.left_out.iter().find(|left| left.module == *module);
                left_out.map_or_else(
                    || "the record does not have it".to_owned(),
                    |left| left.reason.clone(),
                )
            }),
            Err(findings) => Err(said("its former content", &findings)),
        };
        let made = made.and_then(|made| match spent(&made.1, &retired) {
            Some((name, _)) => Err(format!(
                "its former content needs a retired value of the secret `{name}`"
            )),
            None => Ok(made),
        });
        out.insert(record.file.id.value, made);
    }
    out
}

/// A setting of the former module without a value that fits, which validation of one tree alone cannot see.
fn unset(mixed: &Validated, record: &Record, name: &ModuleName) -> Option<String> {
    let module = &mixed.modules().get(name)?.file;
    resolve(module, mixed.fleet_vars(), &record.file.vars).find_map(|(setting, value)| match value {
        None => Some(format!(
            "its former content asks for the setting `{setting}`, and neither the record nor the fleet.toml of that \
             commit gives it"
        )),
        Some(value) => module.settings.0[setting]
            .value
            .refuses(value)
            .map(|why| format!("`{setting}` is a setting of its former content and {why}")),
    })
}

fn said(what: &str, findings: &[Finding]) -> String {
    match findings.iter().find(|f| f.is_error()) {
        Some(finding) => format!("{what} does not compose: {finding}"),
        None => format!("{what} does not compose"),
    }
}

#[cfg(test)]
mod tests {
    use meshplan_schemas::resource::Kind;

    use super::*;
    use crate::pure::secrets::Unopened;
    use crate::pure::source_tree::EntryKind;

    const WEB: &str = "[settings.port]\ntype = \"integer\"\n\n[settings.site]\ntype = \"string\"\n\n\
                       [[file]]\nid = \"conf\"\npath = \"/etc/web\"\nsource = \"files/conf.j2\"\n";
    const CONF: &str = "{{ node.name }} {{ settings.site }} {{ settings.port }} of {{ nodes | length }}";

    fn id(n: u32) -> NodeId {
        format!("0192f0c1-0000-7000-8000-{n:012}").parse().unwrap()
    }

    fn record(n: u32, vars: &str) -> String {
        format!("id = \"{}\"\nmodules = [\"web\"]\n\n[vars]\n{vars}", id(n))
    }

    fn tree(site: &str, files: &[(&str, &str)]) -> SourceTree {
        let fleet = format!(
            "schema = 1\nfleet = \"lab\"\nbranch = \"main\"\n\n[[authors]]\nid = \"example\"\n\
             key = \"ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\"\n\n[vars]\nsite = \"{site}\"\n"
        );
        let fleet = ("fleet.toml", fleet.as_str());
        let raw = files.iter().chain([&fleet]).map(|(path, text)| {
            let bytes = Arc::from(text.as_bytes());
            (path.as_bytes().to_vec(), EntryKind::Blob, bytes)
        });
        SourceTree::from_entries(raw.collect()).0
    }

    fn web(now: &SourceTree, then: &SourceTree, nodes: &[u32]) -> BTreeMap<NodeId, Result<String, String>> {
        let text = |(_, content): Made| match content.resources[0].read().unwrap() {
            Kind::File(file) => String::from_utf8(file.content.bytes().unwrap()).unwrap(),
            other => panic!("{other:?}"),
        };
        let nodes = nodes.iter().map(|n| id(*n)).collect();
        let opener: Arc<dyn OpensSecrets> = Arc::new(Unopened);
        former(now, then, (&"web".parse().unwrap(), &nodes), &opener)
            .into_iter()
            .map(|(node, made)| (node, made.map(text)))
            .collect()
    }

    // holds: DL-3
    #[test]
    fn a_new_record_gets_the_sources_and_settings_that_were_accepted_and_stands_among_the_nodes_of_today() {
        let then = tree(
            "lab",
            &[
                ("modules/web/module.toml", WEB),
                ("modules/web/files/conf.j2", CONF),
                ("nodes/ace.toml", &record(1, "port = 80")),
            ],
        );
        let now = tree(
            "elsewhere",
            &[
                ("modules/web/module.toml", WEB),
                ("modules/web/files/conf.j2", "what failed"),
                ("nodes/ace.toml", &record(1, "port = 80")),
                ("nodes/bea.toml", &record(2, "port = 81")),
            ],
        );
        let made = web(&now, &then, &[2]);
        assert_eq!(made, BTreeMap::from([(id(2), Ok("bea lab 81 of 2".to_owned()))]));
    }

    // holds: DL-3, FR-8
    #[test]
    fn a_record_that_the_former_module_does_not_fit_is_told_why_and_the_others_get_it() {
        let then = tree(
            "lab",
            &[
                ("modules/web/module.toml", WEB),
                (
                    "modules/web/files/conf.j2",
                    "{{ settings.port + node.vars.shift }}",
                ),
                ("nodes/ace.toml", &record(1, "port = 80\nshift = 1")),
            ],
        );
        let now = tree(
            "lab",
            &[
                ("modules/web/module.toml", ""),
                ("nodes/ace.toml", &record(1, "port = 80\nshift = 1")),
                ("nodes/bea.toml", &record(2, "port = 81\nshift = 2")),
                ("nodes/cal.toml", &record(3, "")),
                ("nodes/dan.toml", &record(4, "port = \"eighty\"")),
                ("nodes/eve.toml", &record(5, "port = 82")),
            ],
        );
        let made = web(&now, &then, &[2, 3, 4, 5, 6]);
        assert_eq!(made[&id(2)], Ok("83".to_owned()));
        let why = |n| made[&id(n)].clone().unwrap_err();
        assert!(why(3).contains("asks for the setting `port`"), "{}", why(3));
        assert!(why(4).contains("`port` is a setting"), "{}", why(4));
        assert!(
            why(5).contains("modules/web/files/conf.j2:1") && why(5).contains("eve"),
            "{}",
            why(5)
        );
        assert_eq!(why(6), "the tree has no such record");
    }

    // holds: DL-3, FR-8
    #[test]
    fn a_tree_that_has_no_such_module_or_reads_no_more_gives_nothing_and_says_so() {
        let record = record(1, "port = 80");
        let now = tree(
            "lab",
            &[("modules/web/module.toml", ""), ("nodes/ace.toml", &record)],
        );
        let none = web(&now, &tree("lab", &[]), &[1]);
        assert!(none[&id(1)].clone().unwrap_err().contains("has no such module"));
        let broken = web(&now, &tree("lab", &[("modules/web/module.toml", "words")]), &[1]);
        let why = broken[&id(1)].clone().unwrap_err();
        assert!(
            why.starts_with("the tree in which it was accepted does not compose"),
            "{why}"
        );
    }
}
