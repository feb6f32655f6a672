//! One node as its fleet makes it: every module, setting and value of policy with the place that it comes from.
//!
//! The answer to "why does this machine have that": composing gives what a node gets, this says from where.

use std::collections::BTreeMap;

use meshplan_schemas::document::var::{Var, Vars};
use meshplan_schemas::fleet_list::UpdateClass;
use meshplan_schemas::ident::{ModuleName, NodeName, RoleName};
use meshplan_schemas::policy::FleetPolicy;
use serde::Serialize;
use toml::{Table, Value};

use super::validate::{Record, Validated};

/// A node with its origins.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodeView {
    /// Its name.
    pub name: NodeName,
    /// The path of its record.
    pub record: String,
    /// Its uuid.
    pub id: String,
    /// The short id that goes by it.
    pub short_id: String,
    /// Whether the record carries keys.
    pub enrolled: bool,
    /// UC-1.
    pub update_class: UpdateClass,
    /// UC-1.
    pub pinned: bool,
    /// HR-8.
    pub adopted: bool,
    /// Where neighbours reach it.
    pub address: Option<String>,
    /// Its roles, in the record's order.
    pub roles: Vec<RoleName>,
    /// Its modules.
    pub modules: Vec<ModuleView>,
    /// Values of its record that no setting takes: templates may read them.
    pub vars: BTreeMap<String, Var>,
    /// Its effective policy, value by value.
    pub policy: Vec<PolicyView>,
}

/// A module of a node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModuleView {
    /// The module.
    pub module: ModuleName,
    /// Whether the record names it itself.
    pub by_record: bool,
    /// The roles that bring it.
    pub by_roles: Vec<RoleName>,
    /// Its settings.
    pub settings: Vec<SettingView>,
}

/// A setting of a module on a node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SettingView {
    /// Its name.
    pub name: String,
    /// Its value there.
    pub value: Option<Var>,
    /// The document that gives it.
    pub from: String,
}

/// A value of the effective policy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PolicyView {
    /// The keys that lead to it, as `qos.extra.dscp`.
    pub key: String,
    /// The value as TOML has it.
    pub value: Value,
    /// The document that said it last.
    pub file: String,
}

/// The node of this name; none where there is none.
#[must_use]
pub fn view(validated: &Validated, name: &NodeName) -> Option<NodeView> {
    let record = validated.nodes().iter().find(|record| record.name == *name)?;
    let file = &record.file;
    let roles: Vec<RoleName> = file.roles.iter().map(|role| role.value.clone()).collect();
    let modules: Vec<ModuleView> = record
        .modules
        .iter()
        .filter_map(|module| of_module(validated, record, &roles, module))
        .collect();
    let taken = |var: &String| {
        modules
            .iter()
            .flat_map(|module| &module.settings)
            .any(|setting| setting.name == *var)
    };
    Some(NodeView {
        name: record.name.clone(),
        record: record.source.file().to_owned(),
        id: file.id.value.to_string(),
        short_id: file.id.value.short().to_string(),
        enrolled: file.transport_key.is_some() && file.signing_key.is_some(),
        update_class: file.update_class,
        pinned: file.pinned.value,
        adopted: file.adopted,
        address: file.address.as_ref().map(|address| address.value.clone()),
        vars: (file.vars.0.iter())
            .filter(|(name, _)| !taken(name))
            .map(|(name, at)| (name.clone(), at.value.clone()))
            .collect(),
        policy: policy(validated.policy(), &roles),
        roles,
        modules,
    })
}

fn of_module(
    validated: &Validated,
    record: &Record,
    roles: &[RoleName],
    name: &ModuleName,
) -> Option<ModuleView> {
    let module = validated.modules().get(name)?;
    let settings = module.file.settings.0.iter().map(|(setting, declared)| {
        let of = |vars: &Vars| vars.0.get(setting).map(|at| at.value.clone());
        let default = declared.value.default.as_ref().map(|at| at.value.clone());
        let (value, from) = if let Some(value) = of(&record.file.vars) {
            (Some(value), record.source.file())
        } else if let Some(value) = of(validated.fleet_vars()) {
            (Some(value), "fleet.toml")
        } else {
            (default, module.source.file())
        };
        SettingView {
            name: setting.clone(),
            value,
            from: from.to_owned(),
        }
    });
    Some(ModuleView {
        module: name.clone(),
        by_record: record.file.modules.iter().any(|named| named.value == *name),
        by_roles: (roles.iter())
            .filter(|role| module.file.roles.iter().any(|named| named.value == **role))
            .cloned()
            .collect(),
        settings: settings.collect(),
    })
}

/// Every value of the effective policy of these roles, with the last document that says it (FR-6).
#[must_use]
pub fn policy(policy: &FleetPolicy, roles: &[RoleName]) -> Vec<PolicyView> {
    let overlays = roles
        .iter()
        .filter_map(|role| Some((format!("policy/roles/{role}.toml"), policy.roles.get(role)?)));
    let layers: Vec<(String, &Table)> = std::iter::once(("policy/base.toml".to_owned(), &policy.base))
        .chain(overlays)
        .collect();
    let mut found = Vec::new();
    leaves(&mut Vec::new(), &policy.effective(roles), &mut |keys, value| {
        let file = layers.iter().rev().find(|(_, table)| says(table, keys));
        found.push(PolicyView {
            key: keys.join("."),
            value: value.clone(),
            file: file.map(|(file, _)| file.clone()).unwrap_or_default(),
        });
    });
    found
}

/// Whether a layer has these keys.
fn says(layer: &Table, keys: &[&str]) -> bool {
    let Some((first, rest)) = keys.split_first() else {
        return false;
    };
    let mut value = layer.get(*first);
    for key in rest {
        value = value.and_then(|value| value.get(*key));
    }
    value.is_some()
}

/// Calls `each` for every value that is no table, with the keys that lead to it.
fn leaves<'t>(above: &mut Vec<&'t str>, table: &'t Table, each: &mut impl FnMut(&[&str], &Value)) {
    for (key, value) in table {
        above.push(key);
        match value {
            Value::Table(inner) => leaves(above, inner, each),
            value => each(above, value),
        }
        above.pop();
    }
}
