//! Which things processes take over from, and what of that is refused (HK-7).
//!
//! It stands alone because it is read from the fields as they came, whatever kinds this build knows: what a process that
//! cannot be applied takes over from is kept all the same. The reconciler refuses the same at `check`; an order is another
//! author's word, so the host asks again.

use std::collections::{BTreeMap, BTreeSet};

use meshplan_schemas::declaration::Declaration;
use meshplan_schemas::ident::{ModuleName, ResourceName};
use meshplan_schemas::resource::Resource;

/// What a process names in `replaces`, as it stands there.
fn named(resource: &Resource) -> impl Iterator<Item = &str> {
    let names = (resource.kind == "process").then(|| resource.spec.get("replaces")?.as_array());
    names
        .flatten()
        .into_iter()
        .flatten()
        .filter_map(|name| name.as_str())
}

/// What processes of a declaration take over from: each thing, and the first process that names it.
#[must_use]
pub fn replaced(declaration: &Declaration) -> BTreeMap<ResourceName, ResourceName> {
    let mut takers = BTreeMap::new();
    for resource in &declaration.resources {
        for thing in named(resource).filter_map(|name| name.parse().ok()) {
            takers.entry(thing).or_insert_with(|| resource.name.clone());
        }
    }
    takers
}

/// The modules whose processes take over from what they cannot, and why: nothing of those is touched.
#[must_use]
pub fn refused(declaration: &Declaration) -> BTreeMap<ModuleName, String> {
    let declared: BTreeSet<&ResourceName> = declaration.resources.iter().map(|r| &r.name).collect();
    let takers = replaced(declaration);
    let mut refused = BTreeMap::new();
    for resource in &declaration.resources {
        let own = &resource.name;
        let why = named(resource).find_map(|text| {
            let Ok(thing) = text.parse::<ResourceName>() else {
                return Some(format!("`{text}` is the name of no resource"));
            };
            if thing == *own {
                return Some("a process cannot take over from itself".to_owned());
            }
            if declared.contains(&thing) {
                return Some(format!("{thing} is still declared"));
            }
            if resource.spec.get("run").and_then(|run| run.as_str()) != Some("daemon") {
                return Some("what does not run for ever is not up long enough to take over".to_owned());
            }
            let first = takers.get(&thing).filter(|first| *first != own);
            first.map(|first| format!("{first} takes over from {thing} already"))
        });
        if let Some(why) = why {
            refused
                .entry(own.module.clone())
                .or_insert_with(|| format!("{own}: `replaces`: {why}"));
        }
    }
    refused
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::pure::sample;

    fn declaration(resources: &[(&str, &str, Value)]) -> Declaration {
        let mut declaration = sample::declaration(1, &[]);
        declaration.resources = resources
            .iter()
            .map(|(name, kind, spec)| Resource {
                name: name.parse().unwrap(),
                kind: (*kind).to_owned(),
                spec: spec.clone(),
                forward_only: None,
                not_reversible: None,
                hides: Vec::new(),
            })
            .collect();
        declaration
    }

    fn process(run: &str, replaces: &[&str]) -> Value {
        json!({ "run": run, "replaces": replaces })
    }

    // holds: HK-7
    #[test]
    fn what_a_process_takes_over_from_is_known_by_name() {
        let given = declaration(&[
            ("web.app", "process", process("daemon", &["old.c", "web.d"])),
            ("web.f", "file", json!({ "replaces": ["old.f"] })),
        ]);
        let app: ResourceName = "web.app".parse().unwrap();
        let names: Vec<String> = replaced(&given)
            .into_iter()
            .map(|(thing, by)| format!("{thing} {by}"))
            .collect();
        assert_eq!(names, ["old.c web.app", "web.d web.app"]);
        assert_eq!(app.module.to_string(), "web");
        assert!(refused(&given).is_empty());
    }

    // holds: HK-7
    #[test]
    fn what_cannot_be_taken_over_refuses_the_module_and_says_why() {
        for (resources, words) in [
            (
                vec![("web.app", "process", process("daemon", &["web.app"]))],
                "itself",
            ),
            (
                vec![("web.app", "process", process("daemon", &[""]))],
                "no resource",
            ),
            (
                vec![("web.app", "process", process("daemon", &["web."]))],
                "no resource",
            ),
            (
                vec![
                    ("web.app", "process", process("daemon", &["old.c"])),
                    ("old.c", "container", json!({})),
                ],
                "old.c is still declared",
            ),
            (
                vec![("web.app", "process", process("once", &["old.c"]))],
                "not up long enough",
            ),
            (
                vec![("web.app", "process", process("scheduled", &["old.c"]))],
                "not up long enough",
            ),
            (
                vec![
                    ("db.app", "process", process("daemon", &["old.c"])),
                    ("web.app", "process", process("daemon", &["old.c"])),
                ],
                "db.app takes over from old.c already",
            ),
        ] {
            let refused = refused(&declaration(&resources));
            let web: ModuleName = "web".parse().unwrap();
            assert!(
                refused.get(&web).is_some_and(|why| why.contains(words)),
                "{words}: {refused:?}"
            );
            assert_eq!(refused.len(), 1, "{refused:?}");
        }
    }
}
