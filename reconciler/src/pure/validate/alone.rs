//! One record that replaces its former self in a tree that is valid, without any other document being looked at again.
//!
//! Invariant: what this takes, [`super::validate`] takes of the whole tree, with the same outcome; what it does not take
//! may still be valid. It holds back wherever a rule could look from another document at what changed in this one.

use std::collections::BTreeSet;
use std::sync::Arc;

use meshplan_schemas::document::NodeFile;

use super::nodes::{Identity, check_record, keys};
use super::{Record, Validated, settings};
use crate::pure::parse::NodeDocument;

impl Validated {
    /// Puts a record that was read without a finding in the place of the one at the same path, and says where it stands
    /// among [`Validated::nodes`]; none, and nothing is changed, where the whole tree must be validated.
    pub(in crate::pure) fn replace(&mut self, document: &NodeDocument) -> Option<usize> {
        let new = document.document.read.as_ref()?;
        let source = &document.document.source;
        let at = (self.nodes)
            .binary_search_by(|record| record.name.cmp(&document.name))
            .ok()?;
        let old = self.nodes.get(at)?;
        // Rotations name next keys of records.
        if self.unsigned.is_some() {
            return None;
        }
        let same_place = old.source.file() == source.file() && !document.in_revoked && !new.revoked;
        if !same_place || !same_to_others(&old.file, new) {
            return None;
        }
        // A warning in the record may have been about what it was.
        if self.warnings.iter().any(|warning| warning.file == source.file()) {
            return None;
        }
        let taken = |(key, _): (Identity, _)| {
            let holder = self.identities.get(&key);
            holder.is_some_and(|(holder, _)| holder.file() != source.file())
        };
        let own: BTreeSet<Identity> = keys(new).map(|(key, _)| key).collect();
        if own.len() != keys(new).count() || keys(new).any(taken) {
            return None;
        }
        let mut findings = Vec::new();
        check_record(source, new, &mut findings);
        let known = |name| self.modules.contains_key(name);
        if !new.take.iter().all(|module| known(&module.value)) {
            return None;
        }
        for name in old.modules.iter() {
            let module = &self.modules.get(name)?.file;
            settings::check_given(source, &new.vars, name, module, &mut findings);
            if settings::resolve(module, &self.fleet_vars, &new.vars).any(|(_, value)| value.is_none()) {
                return None;
            }
        }
        if !findings.is_empty() {
            return None;
        }
        for (key, _) in keys(&old.file) {
            self.identities.remove(&key);
        }
        for (key, _) in keys(new) {
            self.identities.insert(key, (source.clone(), false));
        }
        self.nodes[at] = Record {
            name: document.name.clone(),
            file: Arc::clone(new),
            source: source.clone(),
            modules: Arc::clone(&old.modules),
        };
        Some(at)
    }
}

/// Whether two records are alike in all that rules of other documents ask about a record: who it is, what it gates, which
/// roles and modules it has.
fn same_to_others(old: &NodeFile, new: &NodeFile) -> bool {
    let roles = |file: &NodeFile| {
        file.roles
            .iter()
            .map(|role| role.value.clone())
            .collect::<Vec<_>>()
    };
    let modules = |file: &NodeFile| file.modules.iter().map(|m| m.value.clone()).collect::<Vec<_>>();
    old.id.value == new.id.value
        && old.update_class == new.update_class
        && roles(old) == roles(new)
        && modules(old) == modules(new)
}
