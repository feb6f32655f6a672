//! Modules that are left out of the declarations of a tree, in words (FR-8): what a walk does not bring is said where people
//! look at it.

use std::collections::BTreeMap;

use meshplan_schemas::ident::ModuleName;

use crate::pure::compose::Composed;

/// A line for each module and reason, with how many machines go without.
pub(super) fn lines(tree: &Composed) -> Vec<String> {
    let mut all: BTreeMap<(&ModuleName, &str), usize> = BTreeMap::new();
    for left in tree.nodes.values().flat_map(|node| &node.left_out) {
        *all.entry((&left.module, left.reason.as_str())).or_default() += 1;
    }
    let line = |((module, reason), machines): (&(&ModuleName, &str), &usize)| {
        let machines = match machines {
            1 => "1 machine".to_owned(),
            machines => format!("{machines} machines"),
        };
        format!("the module {module} is left out on {machines}: {reason}")
    };
    all.iter().map(line).collect()
}
