//! Settings of modules: each value fits, and each has one on every node that has the module.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use meshplan_schemas::document::ModuleFile;
use meshplan_schemas::document::var::{Var, Vars};
use meshplan_schemas::finding::{Finding, Source};
use meshplan_schemas::ident::{ModuleName, NodeName};

use crate::pure::parse::Documents;

/// The value of each setting: the node's `[vars]`, else the fleet's, else the default; none where nobody gives one.
pub(in crate::pure) fn resolve<'v>(
    module: &'v ModuleFile,
    fleet: &'v Vars,
    node: &'v Vars,
) -> impl Iterator<Item = (&'v str, Option<&'v Var>)> {
    module.settings.0.iter().map(|(name, setting)| {
        let given = node.0.get(name).or_else(|| fleet.0.get(name)).map(|at| &at.value);
        let default = setting.value.default.as_ref().map(|at| &at.value);
        (name.as_str(), given.or(default))
    })
}

pub(super) fn check(
    documents: &Documents,
    memberships: &[Arc<BTreeSet<ModuleName>>],
    findings: &mut Vec<Finding>,
) {
    let none = Vars::default();
    let fleet = documents
        .fleet
        .as_ref()
        .and_then(|d| Some((&d.source, &d.read.as_ref()?.vars)));
    let fleet_vars = fleet.map_or(&none, |(_, vars)| vars);
    let modules: BTreeMap<&ModuleName, (&Source, &ModuleFile)> = (documents.modules.iter())
        .filter_map(|(name, folder)| {
            let document = folder.document.as_ref()?;
            Some((name, (&document.source, document.read.as_ref()?)))
        })
        .collect();
    for (name, (source, module)) in &modules {
        check_declared(source, module, findings);
        if let Some((source, vars)) = fleet {
            check_given(source, vars, name, module, findings);
        }
    }
    // Module and setting without a value: the first node, and how many.
    let mut unset: BTreeMap<(&ModuleName, &str), (&NodeName, usize)> = BTreeMap::new();
    for (node, of_node) in documents.nodes.iter().zip(memberships) {
        let Some(file) = &node.document.read else {
            continue;
        };
        if node.in_revoked || file.revoked {
            continue;
        }
        for name in of_node.iter() {
            let Some((name, (_, module))) = modules.get_key_value(name) else {
                continue;
            };
            if module.settings.0.is_empty() {
                continue;
            }
            check_given(&node.document.source, &file.vars, name, module, findings);
            for (setting, _) in resolve(module, fleet_vars, &file.vars).filter(|(_, value)| value.is_none()) {
                unset.entry((name, setting)).or_insert((&node.name, 0)).1 += 1;
            }
        }
    }
    for ((name, setting), (node, count)) in unset {
        let (source, module) = modules[name];
        let more = if count > 1 {
            format!(" and {} more", count - 1)
        } else {
            String::new()
        };
        let message = format!("the setting `{setting}` of `{name}` has no value on {node}{more}");
        let help = format!("give it a default, or a value under `[vars]` of nodes/{node}.toml or fleet.toml");
        findings.push(
            source
                .error(module.settings.0[setting].span.clone(), message)
                .help(help),
        );
    }
}

/// A setting against itself.
fn check_declared(source: &Source, module: &ModuleFile, findings: &mut Vec<Finding>) {
    for (name, setting) in &module.settings.0 {
        let setting = &setting.value;
        if let Some(default) = &setting.default
            && let Some(why) = setting.refuses(&default.value)
        {
            findings.push(source.error(default.span.clone(), format!("the default of `{name}` {why}")));
        }
        let integer = setting.kind == meshplan_schemas::document::module::SettingKind::Integer;
        for bound in [&setting.min, &setting.max]
            .into_iter()
            .flatten()
            .filter(|_| !integer)
        {
            findings.push(source.error(bound.span.clone(), "only an integer has `min` and `max`"));
        }
        if let (Some(min), Some(max)) = (&setting.min, &setting.max)
            && min.value.0 > max.value.0
        {
            findings.push(source.error(min.span.clone(), format!("`min` of `{name}` is above its `max`")));
        }
    }
}

/// The values that one `[vars]` gives to the settings of one module.
pub(super) fn check_given(
    source: &Source,
    vars: &Vars,
    name: &ModuleName,
    module: &ModuleFile,
    findings: &mut Vec<Finding>,
) {
    for (setting, declared) in &module.settings.0 {
        if let Some(given) = vars.0.get(setting)
            && let Some(why) = declared.value.refuses(&given.value)
        {
            let message = format!("`{setting}` is a setting of the module `{name}` and {why}");
            findings.push(source.error(given.span.clone(), message));
        }
    }
}
