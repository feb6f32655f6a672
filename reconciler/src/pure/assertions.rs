//! Assertions about the composed result (FR-11): what a fleet's people have written down so that no commit breaks it by
//! accident.
//!
//! Asked of what nodes are given, never of documents: an overlay, a role or a setting that breaks one is found like a line
//! that says so. A value that is not there is "no".

use std::collections::BTreeMap;

use meshplan_schemas::document::ChecksFile;
use meshplan_schemas::document::checks::{CheckFile, Comparison, Never, Operand, PolicyClaim};
use meshplan_schemas::finding::{Finding, Source};
use meshplan_schemas::ident::{NodeName, ResourceName, RoleName};
use meshplan_schemas::policy::FleetPolicy;
use serde::Serialize;
use serde_json::Value;
use toml::Table;

use super::compose::ComposedNode;

/// An assertion with the place that says it.
#[derive(Debug, Clone, PartialEq)]
pub struct Assertion {
    /// What is asserted, and of whom.
    pub says: Says,
    /// The finding of a failure, without the nodes.
    place: Finding,
}

/// What is asserted, and of whom: two with the same are the same assertion, wherever they stand.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Says {
    /// Its name, in its author's words.
    pub name: String,
    /// Only this node.
    node: Option<NodeName>,
    /// Only nodes with this role.
    role: Option<RoleName>,
    claim: Claim,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Claim {
    Has(Vec<ResourceName>),
    /// A path of the effective policy, how it compares, and with what.
    Policy(Vec<String>, String, Value),
    /// A kind, and what no resource of it may have.
    Never(String, Option<(String, Option<String>)>),
}

/// The assertions of a document that was validated.
#[must_use]
pub fn of_document(source: &Source, file: &ChecksFile) -> Vec<Assertion> {
    let checks = file.checks.iter().map(|at| &at.value);
    checks
        .filter_map(|check| {
            let says = Says {
                name: check.name.value.0.clone(),
                node: check.node.as_ref().map(|at| at.value.clone()),
                role: check.role.as_ref().map(|at| at.value.clone()),
                claim: claim(check)?,
            };
            let message = format!("the check `{}` fails", says.name);
            let place = source.error(check.name.span.clone(), message);
            Some(Assertion { says, place })
        })
        .collect()
}

/// None where it asserts nothing, which validation has refused.
fn claim(check: &CheckFile) -> Option<Claim> {
    if let Some(has) = &check.has {
        return Some(Claim::Has(
            has.value.0.iter().map(|at| at.value.clone()).collect(),
        ));
    }
    if let Some(at) = &check.policy {
        let PolicyClaim {
            path,
            comparison,
            operand,
        } = at.value.clone();
        let operand = match operand {
            Operand::Number(number) => Value::from(number),
            Operand::Flag(flag) => Value::from(flag),
            Operand::Text(text) => Value::from(text),
        };
        return Some(Claim::Policy(path, comparison.to_string(), operand));
    }
    let Never { kind, with } = check.never.as_ref()?.value.clone();
    Some(Claim::Never(kind, with))
}

impl Assertion {
    /// Where it stands, as `checks/ssh.toml:3`.
    #[must_use]
    pub fn place(&self) -> String {
        format!("{}:{}", self.place.file, self.place.line)
    }
}

/// The assertions of `of` that `others` does not have as they are there: those that are gone or another.
pub fn missing_of<'a>(of: &'a [Assertion], others: &'a [Assertion]) -> impl Iterator<Item = &'a Assertion> {
    of.iter()
        .filter(|check| !others.iter().any(|other| other.says == check.says))
}

/// Asks assertions of nodes: a finding for each that fails, with the first node and how many.
#[must_use]
pub fn failures<'n>(
    assertions: &[Assertion],
    nodes: impl Iterator<Item = &'n ComposedNode>,
    policy: &FleetPolicy,
) -> Vec<Finding> {
    if assertions.is_empty() {
        return Vec::new();
    }
    let mut effective: BTreeMap<&[RoleName], Table> = BTreeMap::new();
    let mut failed: BTreeMap<usize, (String, usize)> = BTreeMap::new();
    for node in nodes {
        let policy = effective
            .entry(&node.roles)
            .or_insert_with(|| policy.effective(&node.roles));
        for (at, assertion) in assertions.iter().enumerate() {
            if let Some(why) = assertion.says.refuses(node, policy) {
                failed
                    .entry(at)
                    .or_insert_with(|| (format!("{} {why}", node.name), 0))
                    .1 += 1;
            }
        }
    }
    let found = failed.into_iter().filter_map(|(at, (first, count))| {
        let mut finding = assertions.get(at)?.place.clone();
        let more = match count {
            0 | 1 => String::new(),
            more => format!(", and so on {} more", more - 1),
        };
        finding.message = format!("{}: {first}{more}", finding.message);
        Some(finding)
    });
    found.collect()
}

impl Says {
    /// Whether it is about effective policy.
    pub(super) fn is_of_policy(&self) -> bool {
        matches!(self.claim, Claim::Policy(..))
    }

    /// Why it does not hold on a node, as a sentence without its subject; none where it holds, or is not about the node.
    fn refuses(&self, node: &ComposedNode, policy: &Table) -> Option<String> {
        let about = self.node.as_ref().is_none_or(|name| *name == node.name)
            && self.role.as_ref().is_none_or(|role| node.roles.contains(role));
        if !about {
            return None;
        }
        match &self.claim {
            Claim::Has(wanted) => {
                let missing = wanted.iter().find(|name| !has(node, name))?;
                let left_out = node.left_out.iter().find(|left| left.module == missing.module);
                Some(match left_out {
                    Some(left) => format!(
                        "has no `{missing}`: the module `{}` is left out there, {}",
                        left.module, left.reason
                    ),
                    None => format!("has no `{missing}`"),
                })
            }
            Claim::Policy(path, comparison, operand) => {
                let value = value_at(policy, path);
                let holds = value
                    .as_ref()
                    .is_some_and(|value| compares(value, comparison, operand));
                let words = || match &value {
                    Some(value) => format!(
                        "has {} = {value}, which is not {comparison} {operand}",
                        path.join(".")
                    ),
                    None => format!("has no {}", path.join(".")),
                };
                (!holds).then(words)
            }
            Claim::Never(kind, with) => {
                let resources = node.modules.values().flat_map(|(_, content)| &content.resources);
                let mut of_kind = resources.filter(|resource| resource.kind == *kind);
                let found = of_kind
                    .find(|resource| with.as_ref().is_none_or(|with| is_with(&resource.spec, with)))?;
                let with = match with {
                    Some((key, Some(value))) => format!(" with {key} {value}"),
                    Some((key, None)) => format!(" with {key}"),
                    None => String::new(),
                };
                Some(format!("has `{}`, a {kind}{with}", found.name))
            }
        }
    }
}

fn has(node: &ComposedNode, name: &ResourceName) -> bool {
    let content = node.modules.get(&name.module);
    content.is_some_and(|(_, content)| content.resources.iter().any(|resource| resource.name == *name))
}

fn value_at(policy: &Table, path: &[String]) -> Option<Value> {
    let (first, rest) = path.split_first()?;
    let found = rest.iter().try_fold(policy.get(first)?, |at, key| at.get(key))?;
    serde_json::to_value(found).ok()
}

fn compares(value: &Value, comparison: &str, operand: &Value) -> bool {
    if let (Some(left), Some(right)) = (value.as_i64(), operand.as_i64()) {
        let comparison = Comparison::ALL.into_iter().find(|c| c.to_string() == comparison);
        return comparison.is_some_and(|c| c.holds(left, right));
    }
    match comparison {
        "==" => value == operand,
        "!=" => value != operand,
        _ => false,
    }
}

/// Whether a resource has a key that says something, or just this value under it; `capability` means `capabilities` too.
fn is_with(spec: &Value, (key, value): &(String, Option<String>)) -> bool {
    let plural = key
        .strip_suffix('y')
        .map_or_else(|| format!("{key}s"), |stem| format!("{stem}ies"));
    let Some(there) = spec.get(key).or_else(|| spec.get(plural)) else {
        return false;
    };
    let Some(wanted) = value else {
        return match there {
            Value::Null | Value::Bool(false) => false,
            Value::Array(list) => !list.is_empty(),
            Value::Object(table) => !table.is_empty(),
            Value::String(text) => !text.is_empty(),
            Value::Bool(true) | Value::Number(_) => true,
        };
    };
    let is = |value: &Value| match value {
        Value::String(text) => text == wanted,
        Value::Bool(flag) => wanted.parse() == Ok(*flag),
        Value::Number(number) => wanted.parse().ok().as_ref() == Some(number),
        _ => false,
    };
    match there {
        Value::Array(list) => list.iter().any(is),
        Value::Object(table) => table.contains_key(wanted) || table.values().any(is),
        single => is(single),
    }
}

#[cfg(test)]
mod tests;
