//! What is wrong with contents: renderings that failed, checks that fail, templates that are dear.

use meshplan_schemas::finding::Finding;

use super::{Contents, Failed, OfTree};
use crate::pure::assertions;
use crate::pure::validate::Validated;

/// Above this many nodes a template that reads all of them is worth a warning (FR-8).
const MANY_NODES: usize = 200;

impl Contents {
    /// The errors that only composing finds, in what is sound of a tree that is refused (FR-1).
    pub(in crate::pure::compose) fn errors(tree: OfTree<'_>) -> Vec<Finding> {
        let found = match Self::of(tree, None) {
            Ok((contents, _)) => contents.failing_checks(tree.0),
            Err(found) => found,
        };
        found.into_iter().filter(Finding::is_error).collect()
    }

    /// The checks that fail, asked of the nodes that are whole: what another lacks may be what is wrong with it already.
    pub(super) fn failing_checks(&self, validated: &Validated) -> Vec<Finding> {
        let nodes = validated.nodes().iter();
        let nodes = nodes.filter_map(|record| self.nodes.get(&record.file.id.value));
        let whole = nodes.filter(|node| node.whole).map(|node| &*node.composed);
        assertions::failures(validated.checks(), whole, validated.policy())
    }

    /// What could not be rendered, each with the first node and how many.
    pub(super) fn said(&self, failed: &Failed) -> Vec<Finding> {
        let said = failed.iter().filter_map(|((name, error), (node, nodes))| {
            let templates = &self.modules.get(name)?.templates;
            Some(templates.finding(error, node.as_str(), *nodes))
        });
        said.collect()
    }

    /// Warns of templates that read all nodes of a large fleet (FR-8).
    pub(super) fn dear(&self, validated: &Validated) -> Vec<Finding> {
        let count = validated.nodes().len();
        if count <= MANY_NODES {
            return Vec::new();
        }
        let readers = self.modules.iter().filter(|(_, m)| m.templates.read("nodes"));
        readers
            .filter_map(|(name, of_module)| {
                let module = validated.modules().get(name)?;
                let having = validated
                    .nodes()
                    .iter()
                    .filter(|r| r.modules.contains(name))
                    .count();
                let reader = module.files.keys().find(|path| {
                    let source = of_module.templates.source(path);
                    source.is_some_and(|source| source.text().contains("nodes"))
                });
                let message = format!(
                    "{} reads all {count} nodes: a change of any record makes {having} new declarations",
                    reader.map_or("a template", String::as_str)
                );
                Some(Finding::of_file(module.source.file(), message).warning())
            })
            .collect()
    }
}
