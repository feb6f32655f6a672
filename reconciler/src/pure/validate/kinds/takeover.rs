//! `replaces` between modules (HK-7): what is taken over is declared no more, and by one process only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use meshplan_schemas::finding::Finding;
use meshplan_schemas::ident::{ModuleName, ResourceName};

use crate::pure::parse::Documents;

pub(in crate::pure::validate) fn check(
    documents: &Documents,
    memberships: &[Arc<BTreeSet<ModuleName>>],
    findings: &mut Vec<Finding>,
) {
    let mut declared: BTreeSet<ResourceName> = BTreeSet::new();
    let read = |module: &ModuleName| {
        let document = documents.modules.get(module)?.document.as_ref()?;
        Some((&document.source, document.read.as_ref()?))
    };
    for module in documents.modules.keys() {
        let Some((_, file)) = read(module) else { continue };
        declared.extend((file.entries().iter()).map(|entry| ResourceName {
            module: module.clone(),
            id: entry.common().id().value.clone(),
        }));
    }
    // By what is taken over: who takes it.
    let mut takers: BTreeMap<ResourceName, ResourceName> = BTreeMap::new();
    for module in documents.modules.keys() {
        let Some((source, file)) = read(module) else {
            continue;
        };
        for process in &file.processes {
            let own = ResourceName {
                module: module.clone(),
                id: process.id.value.clone(),
            };
            for at in &process.replaces {
                let name = at.value.within(module);
                let together = || {
                    name.module == *module
                        || memberships
                            .iter()
                            .any(|of| of.contains(module) && of.contains(&name.module))
                };
                let message = if name == own {
                    Some("a process cannot take over from itself".to_owned())
                } else if declared.contains(&name) && together() {
                    Some(format!(
                        "`{name}` is still declared: what is taken over is taken out of the tree first"
                    ))
                } else {
                    (takers.get(&name)).map(|other| format!("`{name}` is taken over by `{other}` already"))
                };
                if let Some(message) = message {
                    findings.push(source.error(at.span.clone(), message));
                }
                takers.entry(name).or_insert_with(|| own.clone());
            }
        }
    }
}
