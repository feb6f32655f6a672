//! What stands in an envelope, in rows for a person. Pure; believes nothing.

use std::collections::BTreeMap;

use jiff::Timestamp as Instant;
use meshplan_schemas::declaration::{Declaration, Mode, OnFailure};
use meshplan_schemas::envelope::{Envelope, Payload as _};
use meshplan_schemas::epoch::{Epoch, Phase, Targeting};
use meshplan_schemas::fleet_list::{Author, FleetHead};
use meshplan_schemas::policy;
use meshplan_schemas::report::Report;
use meshplan_schemas::timestamp::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Row {
    pub(super) what: &'static str,
    pub(super) says: String,
}

fn row(what: &'static str, says: impl Into<String>) -> Row {
    Row {
        what,
        says: says.into(),
    }
}

/// Text of strangers for a terminal: nothing in it moves the cursor.
pub(super) fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// Everything that the envelope says. `known` are keys whose signatures are looked for.
pub(super) fn rows(envelope: &Envelope, known: &[Author]) -> Vec<Row> {
    let mut rows = match envelope.payload_type.as_str() {
        Epoch::TYPE => read(envelope, epoch),
        Declaration::TYPE => read(envelope, declaration),
        FleetHead::TYPE => read(envelope, head),
        Timestamp::TYPE => read(envelope, timestamp),
        Report::TYPE => read(envelope, report),
        other => vec![row("type", format!("`{other}`, which this build does not know"))],
    };
    for signature in &envelope.signatures {
        let alone = Envelope {
            signatures: vec![signature.clone()],
            ..envelope.clone()
        };
        let verified = known.iter().find(|author| alone.signed_by(&author.key));
        let says = match verified {
            Some(author) => format!("in the name of {}, by the key of {}", signature.key_id, author.id),
            None if known.is_empty() => format!("in the name of {}, not checked", signature.key_id),
            None => format!("in the name of {}, by no key that is known", signature.key_id),
        };
        rows.push(row("signed", says));
    }
    rows.push(row("digest", envelope.payload_digest().to_string()));
    rows
}

fn read<P: DeserializeOwned>(envelope: &Envelope, explain: fn(&P) -> Vec<Row>) -> Vec<Row> {
    match serde_json::from_slice(&envelope.payload) {
        Ok(payload) => explain(&payload),
        Err(why) => vec![
            row("type", format!("`{}`", envelope.payload_type)),
            row("unreadable", why.to_string()),
        ],
    }
}

fn at(secs: i64) -> String {
    Instant::from_second(secs).map_or_else(|_| secs.to_string(), |at| at.to_string())
}

fn header(what: String, fleet: &impl std::fmt::Display, era: u64, issued_at: i64) -> Vec<Row> {
    vec![
        row("type", what),
        row("fleet", format!("{fleet}, era {era}")),
        row("issued", at(issued_at)),
    ]
}

fn list<T: std::fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    if items.is_empty() {
        "none".to_owned()
    } else {
        items.join(", ")
    }
}

fn targets(targeting: &Targeting) -> String {
    let mut parts = Vec::new();
    if let Some(roles) = &targeting.roles {
        parts.push(format!("nodes with one of the roles {}", list(roles)));
    }
    if let Some(nodes) = &targeting.nodes {
        parts.push(format!("the nodes {}", list(nodes)));
    }
    if let Some(share) = &targeting.share {
        // Only for people: the share as a part of 2^64, in hundredths of a percent.
        let part = (u128::from(share.upto) * 10_000) >> 64;
        parts.push(format!("{}.{:02} % of the fleet by hash", part / 100, part % 100));
    }
    if parts.is_empty() {
        "everyone".to_owned()
    } else {
        parts.join(", of these ")
    }
}

fn urgent(rows: &mut Vec<Row>, urgent: bool) {
    if urgent {
        rows.push(row("urgent", "no maintenance window holds it back"));
    }
}

fn epoch(epoch: &Epoch) -> Vec<Row> {
    let mut rows = header(
        format!("epoch {}, an order of policy", epoch.epoch),
        &epoch.fleet,
        epoch.era,
        epoch.issued_at,
    );
    let phase = match epoch.phase {
        Phase::Canary => "canary",
        Phase::Release => "release",
        Phase::Abort => "abort",
    };
    rows.push(row("author", epoch.author.to_string()));
    rows.push(row(
        "asked by",
        format!(
            "commit {}, rollout {}, {phase}",
            epoch.commit.short(),
            epoch.rollout_id
        ),
    ));
    rows.push(row("addresses", targets(&epoch.targeting)));
    let policy = match policy::parse(&epoch.policy) {
        Ok(policy) => {
            let roles = policy
                .roles
                .iter()
                .map(|(role, overlay)| format!("{} for the role {role}", list(overlay.keys())));
            list(std::iter::once(format!("{} for all", list(policy.base.keys()))).chain(roles))
        }
        Err(why) => format!("refused: {why}"),
    };
    rows.push(row("would set", policy));
    rows.push(row(
        "confirm",
        format!("each node within {} s, or it goes back", epoch.confirm_secs),
    ));
    if !epoch.in_force.is_empty() {
        let older = epoch
            .in_force
            .iter()
            .map(|e| format!("epoch {} for {}", e.epoch, targets(&e.targeting)));
        rows.push(row("still stand", list(older)));
    }
    urgent(&mut rows, epoch.urgent);
    rows
}

fn declaration(declaration: &Declaration) -> Vec<Row> {
    let mut rows = header(
        format!("declaration, sequence {}", declaration.sequence),
        &declaration.fleet,
        declaration.era,
        declaration.issued_at,
    );
    let short = declaration.node.short();
    rows.push(row("for", format!("the node {} ({short})", declaration.node)));
    rows.push(row("roles", list(&declaration.roles)));
    for entry in &declaration.modules {
        let observed = if entry.mode == Mode::Observe {
            ", observed only"
        } else {
            ""
        };
        rows.push(row(
            "module",
            format!(
                "{} at commit {} ({}){observed}",
                entry.module,
                entry.commit.short(),
                entry.delivery
            ),
        ));
    }
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for resource in &declaration.resources {
        *kinds.entry(resource.kind.as_str()).or_default() += 1;
    }
    let kinds = kinds.iter().map(|(kind, count)| format!("{count} {kind}"));
    rows.push(row("would have", list(kinds)));
    for left in &declaration.left_out {
        rows.push(row("left out", format!("{}: {}", left.module, left.reason)));
    }
    let failure = match declaration.on_failure {
        OnFailure::Revert => "back to the last confirmed one",
        OnFailure::Keep => "what was done stays",
    };
    rows.push(row(
        "confirm",
        format!(
            "apply within {} s, confirm within {} s; on failure {failure}",
            declaration.apply_secs, declaration.confirm_secs
        ),
    ));
    if declaration.mode == Mode::Observe {
        rows.push(row(
            "mode",
            "observe: nothing is changed, what would change is reported",
        ));
    }
    urgent(&mut rows, declaration.urgent);
    rows
}

fn head(head: &FleetHead) -> Vec<Row> {
    let mut rows = header(
        format!("head of the fleet list, revision {}", head.revision),
        &head.fleet,
        head.era,
        head.issued_at,
    );
    rows.push(row("asked by", format!("commit {}", head.commit.short())));
    rows.push(row(
        "authors",
        format!(
            "{}; {} must sign the next one",
            list(head.authors.iter().map(|a| &a.id)),
            head.threshold
        ),
    ));
    rows.push(row(
        "timestamps",
        format!("by {}", list(head.timestamp_keys.iter().map(|a| &a.id))),
    ));
    let reconcilers = head
        .reconcilers
        .iter()
        .map(|r| format!("{} at {}", r.id, list(&r.addresses)));
    rows.push(row("reconcilers", list(reconcilers)));
    rows.push(row(
        "members",
        format!(
            "{} records; {} revoked or retired",
            head.records_count,
            head.revoked.len()
        ),
    ));
    rows.push(row(
        "accepts",
        format!("proofs from revision {} on", head.oldest_accepted),
    ));
    rows
}

fn timestamp(timestamp: &Timestamp) -> Vec<Row> {
    let mut rows = header(
        "timestamp: what is the newest".to_owned(),
        &timestamp.fleet,
        timestamp.era,
        timestamp.issued_at,
    );
    rows.push(row(
        "newest",
        format!(
            "revision {} of the fleet list, {}",
            timestamp.revision, timestamp.head
        ),
    ));
    if let Some(block) = &timestamp.block {
        rows.push(row(
            "record",
            format!("journal block {}, {}", block.number, block.digest),
        ));
    }
    rows.push(row("until", at(timestamp.valid_to)));
    rows
}

fn report(report: &Report) -> Vec<Row> {
    let mut rows = header(
        format!("report {} of a node", report.counter),
        &report.fleet,
        report.era,
        report.issued_at,
    );
    let short = report.node.short();
    rows.push(row("from", format!("the node {} ({short})", report.node)));
    rows.push(row("host", format!("version {}", report.host_version)));
    if let Some(status) = &report.declaration {
        rows.push(row(
            "declaration",
            format!(
                "sequence {}: {:?} {}",
                status.sequence, status.state, status.reason
            ),
        ));
    }
    if let Some(status) = &report.epoch {
        rows.push(row(
            "epoch",
            format!(
                "{}: {:?}; runs {}",
                status.state_epoch, status.state, status.running
            ),
        ));
    }
    for refused in &report.refused {
        rows.push(row("refused", format!("{}: {}", refused.order, refused.reason)));
    }
    rows
}

#[cfg(test)]
mod tests {
    use meshplan_schemas::epoch::Share;

    use super::*;

    #[test]
    fn what_strangers_write_does_not_move_the_cursor() {
        assert_eq!(plain("a\u{1b}[2Jb\nc"), "a\u{fffd}[2Jb\u{fffd}c");
    }

    #[test]
    fn targeting_reads_as_an_intersection() {
        let targeting = Targeting {
            roles: Some(vec!["edge".parse().unwrap()]),
            nodes: None,
            share: Some(Share {
                salt: String::new(),
                upto: u64::MAX / 4,
            }),
        };
        assert_eq!(
            targets(&targeting),
            "nodes with one of the roles edge, of these 24.99 % of the fleet by hash"
        );
        assert_eq!(targets(&Targeting::everyone()), "everyone");
    }
}
