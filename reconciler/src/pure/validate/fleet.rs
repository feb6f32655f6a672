//! `fleet.toml` by itself: who signs, the defaults resolved.

use std::collections::BTreeMap;

use meshplan_schemas::document::fleet::{
    CommitSigners, ConfigMgmt, FleetDoc, FleetFile, RotationDefaults, SignedCommits,
};
use meshplan_schemas::finding::{Finding, Source};
use meshplan_schemas::fleet_list::Author;

use crate::pure::parse::Documents;

pub(super) fn check(documents: &Documents, findings: &mut Vec<Finding>) -> Option<FleetDoc> {
    let Some(document) = &documents.fleet else {
        findings.push(
            Finding::of_file("fleet.toml", "the tree has no fleet.toml").help("`meshplan init` makes one"),
        );
        return None;
    };
    let file = document.read.as_ref()?;
    check_authors(file, &document.source, findings);
    let mgmt = &file.config_mgmt;
    let rotation = &file.rotation;
    Some(FleetDoc {
        fleet: file.fleet.value.clone(),
        branch: file.branch.value.clone(),
        authors: (file.authors.iter())
            .map(|a| Author {
                id: a.value.id.clone(),
                key: a.value.key,
            })
            .collect(),
        threshold: file.trust.threshold.as_ref().map_or(1, |t| t.value.0),
        config_mgmt: ConfigMgmt {
            confirm_secs: mgmt.confirm_secs.0,
            apply_secs: mgmt.apply_secs.0,
            canary_deadline_secs: mgmt.canary_deadline_secs.0,
            release_watch_secs: mgmt.release_watch_secs.0,
            left_behind_grace_secs: mgmt.left_behind_grace_secs.0,
            archives_kept: mgmt.archives_kept.0,
            min_daemon_version: (mgmt.min_daemon_version.as_ref()).and_then(|at| at.value.0.parse().ok()),
        },
        heartbeat_secs: file.heartbeat_secs.0,
        present_secs: file.present_secs.0,
        rotation: RotationDefaults {
            default_publish_to_activate_secs: rotation.default_publish_to_activate_secs.0,
            default_activate_to_retire_secs: rotation.default_activate_to_retire_secs.0,
            lifeline_secs: rotation.lifeline_secs.0,
            require_trusted_clock_for_scheduled_activation: rotation
                .require_trusted_clock_for_scheduled_activation,
        },
        timestamp_valid_secs: file.trust.timestamp_valid_secs.0,
        recipient: file.secrets.recipient.as_ref().map(|at| at.value.0.clone()),
        commit_signers: commit_signers(documents),
        bundle_mib: file.limits.bundle_mib.map(|mib| mib.0),
        components: file.component_docs(),
    })
}

/// Whose signatures the commits after this tree need; none where it asks for none.
fn commit_signers(documents: &Documents) -> Option<CommitSigners> {
    let document = documents.fleet.as_ref()?;
    let asks = document.read.as_ref()?.trust.signed_commits.as_ref()?;
    let signers = documents.allowed_signers.as_ref()?.read.clone()?;
    let line = document.source.error(asks.span.clone(), "").line;
    let asks = asks.value;
    (asks != SignedCommits::Off).then_some(CommitSigners { asks, signers, line })
}

fn check_authors(file: &FleetFile, source: &Source, findings: &mut Vec<Finding>) {
    if file.authors.is_empty() {
        findings.push(
            Finding::of_file(
                source.file(),
                "the fleet has no `[[authors]]`: nobody could sign for it",
            )
            .help("`meshplan init` writes the first author"),
        );
    }
    // One key under two names would meet a threshold of two (B32).
    let (mut ids, mut keys) = (BTreeMap::new(), BTreeMap::new());
    for author in &file.authors {
        if ids.insert(&author.value.id, ()).is_some() {
            let message = format!("there are two authors with the id `{}`", author.value.id);
            findings.push(source.error(author.span.clone(), message));
        }
        if let Some(other) = keys.insert(author.value.key, &author.value.id) {
            let message = format!(
                "the author `{}` has the key of the author `{other}`",
                author.value.id
            );
            findings.push(source.error(author.span.clone(), message));
        }
    }
}
