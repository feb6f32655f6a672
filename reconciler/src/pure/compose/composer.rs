//! Composes one tree after another: what a commit has not changed is neither read nor made again.
//!
//! Invariant: a tree composes to the same, with the same findings, whatever was composed before it. Where only records
//! change, and nothing that another document's rules look at, one record is read, checked and made; else the whole tree
//! is held against itself again, and still only what is new is read and made.

use std::collections::BTreeMap;
use std::sync::Arc;

use meshplan_schemas::digest::Digest;
use meshplan_schemas::finding::Finding;
use meshplan_schemas::ident::ModuleName;
use meshplan_schemas::maintenance::FleetWindows;

use super::contents::Contents;
use super::expected::Expected;
use super::{Composed, OfSecrets, TreeError, lists};
use crate::pure::assertions;
use crate::pure::by_node::ByNode;
use crate::pure::parse::{ReadRecords, is_record, parse_after};
use crate::pure::secrets::Secrets;
use crate::pure::source_tree::{Entry, EntryKind, SourceTree};
use crate::pure::validate::{Refused, Validated, validate_after};

/// Composes one tree after another.
#[derive(Debug, Default)]
pub struct Composer {
    expected: Expected,
    records: ReadRecords,
    tree: SourceTree,
    /// What is wrong with the tree's paths.
    of_paths: Vec<Finding>,
    /// None where the last tree did not compose.
    last: Option<(Good, Arc<Composed>)>,
}

/// A tree that composes, with what the next is made from.
#[derive(Debug)]
pub(super) struct Good {
    validated: Validated,
    secrets: Secrets,
    contents: Contents,
}

impl Composer {
    /// A composer that has seen no tree.
    #[must_use]
    pub fn new(expected: Expected) -> Self {
        Self {
            expected,
            ..Self::default()
        }
    }

    /// Composes a tree; `of_paths` is what is wrong with its paths.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn whole(&mut self, tree: SourceTree, of_paths: Vec<Finding>) -> Result<Arc<Composed>, TreeError> {
        self.tree = tree;
        self.of_paths = of_paths;
        self.compose()
    }

    /// Composes the tree that the last one becomes when these files have other bytes: the same paths, of the same kinds.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn step(&mut self, changed: Vec<(String, Arc<[u8]>)>) -> Result<Arc<Composed>, TreeError> {
        let records = changed.iter().all(|(path, _)| is_record(path));
        for (path, bytes) in &changed {
            self.tree.replace(path, Arc::clone(bytes));
        }
        if records && let Some(composed) = self.records_alone(&changed) {
            return Ok(composed);
        }
        self.compose()
    }

    fn compose(&mut self) -> Result<Arc<Composed>, TreeError> {
        let before = self.last.take().map(|(good, _)| good);
        let remembered = before.is_some();
        let mut composed = Good::of(&self.tree, &self.expected, &mut self.records, before);
        if remembered && matches!(composed, Err(TreeError::Findings(_))) {
            // What is wrong is said as if nothing had been composed before: bounds count in the order of the nodes.
            composed = Good::of(&self.tree, &self.expected, &mut self.records, None);
        }
        if self.of_paths.is_empty() {
            let (good, composed) = composed?;
            self.last = Some((good, Arc::clone(&composed)));
            return Ok(composed);
        }
        let mut findings = self.of_paths.clone();
        match composed {
            Ok(_) => {}
            Err(TreeError::Findings(more)) => findings.extend(more),
            Err(no_fleet @ TreeError::NoFleet(_)) => return Err(no_fleet),
        }
        findings.sort();
        Err(TreeError::Findings(findings))
    }

    /// Composes by these records alone; none, and nothing is kept of the last tree, where that cannot be.
    fn records_alone(&mut self, changed: &[(String, Arc<[u8]>)]) -> Option<Arc<Composed>> {
        let (mut good, before) = self.last.take()?;
        let mut composed = (*before).clone();
        let mut fed_anew = Vec::new();
        for (path, bytes) in changed {
            let entry = Entry {
                kind: EntryKind::Blob,
                bytes: Arc::clone(bytes),
            };
            let document = self.records.renew(path, &entry)?;
            let at = good.validated.replace(&document)?;
            let record = good.validated.nodes().get(at)?;
            let (node, modules) = good.contents.renew((&good.validated, &good.secrets), record)?;
            let nodes = std::iter::once(&*node);
            if !assertions::failures(good.validated.checks(), nodes, good.validated.policy()).is_empty() {
                return None;
            }
            let id = node.id;
            if !composed.nodes.replace(&id, node) {
                return None;
            }
            fed_anew.extend(modules);
            let leaf = lists::listed(record).ok()?.map(Arc::new);
            if leaf.as_deref() == composed.leaves.get(&id).map(AsRef::as_ref) {
                continue;
            }
            let replaced = leaf
                .clone()
                .is_some_and(|leaf| composed.leaves.replace(&id, leaf));
            if !replaced {
                let others = composed.leaves.iter().filter(|(of, _)| **of != id);
                let others = others.map(|(of, leaf)| (*of, Arc::clone(leaf)));
                composed.leaves = others.chain(leaf.map(|leaf| (id, leaf))).collect();
            }
            composed.list_digest = lists::list_digest(&good.validated, &composed.leaves).ok()?;
        }
        for module in fed_anew {
            if let Some(source) = good
                .contents
                .source((&good.validated, &good.secrets), &module)
                .ok()?
            {
                composed.sources.insert(module, source);
            }
        }
        let composed = Arc::new(composed);
        self.last = Some((good, Arc::clone(&composed)));
        Some(composed)
    }
}

impl Good {
    /// Reads, validates and composes a tree. `before` is what came of another.
    pub(super) fn of(
        tree: &SourceTree,
        expected: &Expected,
        records: &mut ReadRecords,
        before: Option<Self>,
    ) -> Result<(Self, Arc<Composed>), TreeError> {
        if tree.get("fleet.toml").is_none() {
            return Err(TreeError::NoFleet(
                "the tree has no fleet.toml: this is no fleet's repository".to_owned(),
            ));
        }
        let (documents, mut findings) = parse_after(tree, records);
        findings.extend(expected.held_against(&documents));
        let refused = findings.iter().any(Finding::is_error);
        let composed = match validate_after(documents, &findings) {
            Ok(validated) => match Self::compose(validated, expected.secrets(tree), before) {
                Ok((_, composed)) if refused => Err(composed.warnings),
                composed => composed,
            },
            Err(Refused { findings, sound }) => {
                let secrets = expected.secrets(tree);
                let more = sound.map(|sound| Contents::errors((&sound, &secrets)));
                Err(findings.into_iter().chain(more.unwrap_or_default()).collect())
            }
        };
        match composed {
            Ok((good, mut composed)) => {
                composed.warnings.append(&mut findings);
                composed.warnings.sort();
                Ok((good, Arc::new(composed)))
            }
            Err(more) => {
                findings.extend(more);
                findings.sort();
                findings.dedup();
                Err(TreeError::Findings(findings))
            }
        }
    }

    /// Composes a validated tree; the errors are what only rendering can find.
    fn compose(
        validated: Validated,
        secrets: Secrets,
        before: Option<Self>,
    ) -> Result<(Self, Composed), Vec<Finding>> {
        let of_tree = (&validated, &secrets);
        let (contents, warnings) = match before {
            Some(good) => Contents::of(of_tree, Some(((&good.validated, &good.secrets), good.contents)))?,
            None => Contents::of(of_tree, None)?,
        };
        let told = |e: serde_json::Error| {
            vec![Finding::of_file(
                "",
                format!("the tree cannot be written as JSON: {e}"),
            )]
        };
        let nodes = validated.nodes().iter().filter_map(|record| {
            let id = record.file.id.value;
            Some((id, Arc::clone(contents.composed(id)?)))
        });
        let nodes: ByNode<_> = nodes.collect();
        let leaves = lists::leaves(&validated).map_err(told)?;
        let policy = validated.policy().text();
        let mut sources: BTreeMap<ModuleName, Digest> = BTreeMap::new();
        for name in validated.modules().keys() {
            sources.extend(
                contents
                    .source(of_tree, name)
                    .map_err(told)?
                    .map(|d| (name.clone(), d)),
            );
        }
        let composed = Composed {
            fleet: validated.fleet().clone(),
            policy_digest: Digest::of(policy.as_bytes()),
            policy,
            windows: FleetWindows::of(validated.policy()),
            nodes,
            list_digest: lists::list_digest(&validated, &leaves).map_err(told)?,
            leaves,
            revoked: validated.revoked().to_vec(),
            gate_digest: lists::gate_digest(&validated).map_err(told)?,
            sources,
            plans: validated.plans().clone(),
            checks: validated.checks().to_vec(),
            warnings,
            secrets: OfSecrets {
                closed: secrets.failed(),
                retired: lists::retired(&validated, &secrets),
                not_opened: secrets.not_opened(),
            },
            unsigned: validated.unsigned().cloned(),
        };
        let mut failed = assertions::failures(
            validated.checks(),
            composed.nodes.values().map(AsRef::as_ref),
            validated.policy(),
        );
        if !failed.is_empty() {
            failed.extend(composed.warnings);
            failed.sort();
            return Err(failed);
        }
        let good = Self {
            validated,
            secrets,
            contents,
        };
        Ok((good, composed))
    }
}

#[cfg(test)]
mod tests;
