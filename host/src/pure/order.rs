//! The order in which a node's modules are applied (HR-2): after what they name in `after`, else by name.

use std::collections::{BTreeMap, BTreeSet};

use meshplan_schemas::declaration::ModuleEntry;
use meshplan_schemas::ident::ModuleName;

/// The modules wait for each other in a ring.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("these modules wait for each other: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
pub struct Ring(pub Vec<ModuleName>);

/// Orders modules. A name in `after` that is no module of this node is no reason to wait.
///
/// # Errors
/// [`Ring`] with the modules that cannot be ordered.
pub fn order(modules: &[ModuleEntry]) -> Result<Vec<ModuleName>, Ring> {
    let here: BTreeSet<&ModuleName> = modules.iter().map(|m| &m.module).collect();
    let mut waits: BTreeMap<&ModuleName, BTreeSet<&ModuleName>> = BTreeMap::new();
    for entry in modules {
        let after = entry.after.iter().filter(|name| here.contains(name));
        waits.entry(&entry.module).or_default().extend(after);
    }
    let mut out = Vec::new();
    while !waits.is_empty() {
        let Some(next) = waits
            .iter()
            .find(|(_, after)| after.is_empty())
            .map(|(name, _)| *name)
        else {
            return Err(Ring(waits.keys().map(|name| (*name).clone()).collect()));
        };
        waits.remove(next);
        for after in waits.values_mut() {
            after.remove(next);
        }
        out.push(next.clone());
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use meshplan_schemas::declaration::Mode;
    use meshplan_schemas::digest::Digest;

    use super::*;

    fn entry(name: &str, after: &[&str]) -> ModuleEntry {
        ModuleEntry {
            module: name.parse().unwrap(),
            digest: Digest::of(b""),
            commit: "a".repeat(40).parse().unwrap(),
            delivery: String::new(),
            mode: Mode::Apply,
            after: after.iter().map(|n| n.parse().unwrap()).collect(),
            on_policy_change: Vec::new(),
            requires: Vec::new(),
        }
    }

    fn names(modules: &[ModuleEntry]) -> Vec<String> {
        order(modules).unwrap().iter().map(ToString::to_string).collect()
    }

    // holds: HR-2
    #[test]
    fn a_module_comes_after_what_it_names_and_else_by_name() {
        assert_eq!(
            names(&[entry("a", &["z"]), entry("m", &[]), entry("z", &["m"])]),
            ["m", "z", "a"]
        );
        assert_eq!(names(&[entry("b", &[]), entry("a", &[])]), ["a", "b"]);
        assert_eq!(names(&[entry("a", &["not-here"])]), ["a"]);
    }

    // holds: HR-2
    #[test]
    fn a_ring_is_named_with_its_members_only() {
        let ring = order(&[entry("a", &["b"]), entry("b", &["a"]), entry("c", &[])]).unwrap_err();
        assert_eq!(ring.to_string(), "these modules wait for each other: a, b");
        assert!(order(&[entry("a", &["a"])]).is_err());
    }
}
