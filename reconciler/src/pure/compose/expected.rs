//! What the reconciler's own configuration says, and a tree must fit (DL-1).

use std::sync::Arc;

use meshplan_schemas::finding::Finding;
use meshplan_schemas::ident::FleetName;

use crate::config::ForgeKind;
use crate::pure::parse::Documents;
use crate::pure::secrets::{OpensSecrets, Secrets, Unopened};
use crate::pure::source_tree::SourceTree;

/// What a tree is held against; none: whatever it says.
#[derive(Debug, Clone, Default)]
pub struct Expected {
    /// The fleet.
    pub fleet: Option<FleetName>,
    /// The branch.
    pub branch: Option<String>,
    /// What the repository is at.
    pub forge: Option<ForgeKind>,
    /// Who opens secrets; none: nobody does ([`Unopened`]).
    pub opener: Option<Arc<dyn OpensSecrets>>,
}

impl Expected {
    pub(super) fn secrets(&self, tree: &SourceTree) -> Secrets {
        let opener = self.opener.clone();
        Secrets::of(tree, &opener.unwrap_or_else(|| Arc::new(Unopened)))
    }

    /// What of a tree does not fit.
    pub(super) fn held_against(&self, documents: &Documents) -> Vec<Finding> {
        let mut findings = Vec::new();
        if let Some(document) = &documents.fleet
            && let Some(file) = &document.read
        {
            let (fleet, branch) = (&file.fleet, &file.branch);
            if let Some(expected) = self.fleet.as_ref().filter(|expected| **expected != fleet.value) {
                let message = format!(
                    "this tree is the fleet `{}`, this reconciler serves `{expected}`",
                    fleet.value
                );
                findings.push(document.source.error(fleet.span.clone(), message));
            }
            if let Some(expected) = self
                .branch
                .as_ref()
                .filter(|expected| **expected != *branch.value)
            {
                let message = format!(
                    "this tree names the branch `{}`, this reconciler follows `{expected}`",
                    branch.value
                );
                findings.push(document.source.error(branch.span.clone(), message));
            }
        }
        if self.forge == Some(ForgeKind::Bare) {
            findings.extend(teams_of_nobody(documents));
        }
        findings
    }
}

/// Teams that nobody can be asked about (DL-4).
fn teams_of_nobody(documents: &Documents) -> Vec<Finding> {
    let mut findings = Vec::new();
    for document in documents.plans.values() {
        for actor in document.read.iter().flat_map(|file| &file.actors) {
            let Some(team) = actor.value.team() else { continue };
            let message =
                format!("the repository is at no forge that could tell who is in the team `{team}`");
            let help = "name people by their login, or leave `actors` out: at a bare repository words come from whoever \
                        works at the reconciler itself";
            findings.push(document.source.error(actor.span.clone(), message).help(help));
        }
    }
    findings
}
