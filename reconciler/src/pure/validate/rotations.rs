//! Rotations: instants in order, subjects and keys that records carry, secrets that are there, none over another
//! (RT-1, RT-3, RT-10).

use std::collections::BTreeSet;
use std::ops::Range;

use meshplan_schemas::document::NodeFile;
use meshplan_schemas::document::read::At;
use meshplan_schemas::document::rotations::{RotationEntry, RotationKind, Subject};
use meshplan_schemas::finding::{Finding, Source, did_you_mean};
use meshplan_schemas::ident::NodeId;

use super::Names;
use crate::pure::parse::Documents;

pub(super) fn check(documents: &Documents, names: &Names, findings: &mut Vec<Finding>) {
    let Some(document) = &documents.rotations else {
        return;
    };
    let Some(file) = &document.read else {
        return;
    };
    let source = &document.source;
    let mut seen: Vec<&RotationEntry> = Vec::new();
    for At { value: rotation, .. } in &file.rotations {
        let mut say = |span: &Range<usize>, message: String, help: Option<String>| {
            findings.push(source.error(span.clone(), message).maybe_help(help));
        };
        if seen.iter().any(|other| other.id.value == rotation.id.value) {
            say(
                &rotation.id.span,
                format!("there are two rotations `{}`", rotation.id.value),
                None,
            );
        }
        instants(rotation, &mut say);
        of_kind(rotation, &mut say);
        secret(documents, rotation, &mut say);
        if let Some(other) = seen.iter().find(|other| overlap(other, rotation, documents)) {
            let message = format!(
                "this overlaps with the rotation `{}` of the same kind and subject",
                other.id.value
            );
            let help = "publish after the other has retired, or take the other out".to_owned();
            say(&rotation.publish_at.span, message, Some(help));
        }
        subject(documents, names, source, rotation, findings);
        seen.push(rotation);
    }
}

/// Says a message at a place, with what to do next.
type Say<'s> = dyn FnMut(&Range<usize>, String, Option<String>) + 's;

fn instants(rotation: &RotationEntry, say: &mut Say<'_>) {
    if rotation.activate_at.value < rotation.publish_at.value {
        let message = "`activate_at` is before `publish_at`: nobody could have heard of what is used then";
        say(&rotation.activate_at.span, message.to_owned(), None);
    }
    let retire = rotation.retire_at.as_ref().filter(|at| at.value.0 != 0);
    if let Some(at) = retire.filter(|at| at.value < rotation.activate_at.value) {
        let message =
            "`retire_at` is before `activate_at`: the old one would be refused before the new one is used";
        say(&at.span, message.to_owned(), None);
    }
    if let (Some(at), Some(_)) = (&rotation.retire, retire) {
        say(
            &at.span,
            "a rotation has `retire_at` or `retire`, this one has both".to_owned(),
            None,
        );
    }
    let retires = rotation.retire.is_some() || retire.is_some();
    if let Some(at) = rotation.force.as_ref().filter(|_| !retires) {
        say(
            &at.span,
            "`force` belongs to a rotation that retires".to_owned(),
            None,
        );
    }
    if rotation.early.value && !retires {
        say(
            &rotation.early.span,
            "`early` belongs to a rotation that retires".to_owned(),
            None,
        );
    }
}

fn of_kind(rotation: &RotationEntry, say: &mut Say<'_>) {
    let kind = rotation.kind.value;
    let of_nodes = matches!(kind, RotationKind::NodeTransport | RotationKind::NodeSigning);
    let misplaced = |span: &Range<usize>, key: &str, say: &mut Say<'_>| {
        say(
            span,
            format!("`{key}` does not belong to the kind `{kind}`"),
            None,
        );
    };
    match (&rotation.subject, of_nodes) {
        (None, true) => {
            let help = "a record's uuid, `role:<name>` or `all`".to_owned();
            say(
                &rotation.kind.span,
                format!("the kind `{kind}` needs a `subject`"),
                Some(help),
            );
        }
        (Some(at), false) => misplaced(&at.span, "subject", say),
        _ => {}
    }
    if let Some(at) = &rotation.next_key_id {
        let one = matches!(
            rotation.subject.as_ref().map(|s| &s.value),
            Some(Subject::Node(_))
        );
        if !of_nodes {
            misplaced(&at.span, "next_key_id", say);
        } else if !one {
            let message = "`next_key_id` belongs to a subject that is one node's uuid".to_owned();
            say(&at.span, message, None);
        }
    }
    match (&rotation.secret, kind == RotationKind::MeshSecret) {
        (None, true) => say(
            &rotation.kind.span,
            format!("the kind `{kind}` needs a `secret`"),
            None,
        ),
        (Some(at), false) => misplaced(&at.span, "secret", say),
        _ => {}
    }
}

fn secret(documents: &Documents, rotation: &RotationEntry, say: &mut Say<'_>) {
    let Some(at) = &rotation.secret else {
        return;
    };
    if !documents.secrets.values().any(|path| *path == at.value.0) {
        let help = did_you_mean(&at.value.0, documents.secrets.values().map(String::as_str));
        say(&at.span, format!("there is no `{}`", at.value), help);
    }
}

fn records(documents: &Documents) -> impl Iterator<Item = &NodeFile> {
    (documents.nodes.iter().filter(|node| !node.in_revoked))
        .filter_map(|node| node.document.read.as_deref())
        .filter(|file| !file.revoked)
}

fn subject(
    documents: &Documents,
    names: &Names,
    source: &Source,
    rotation: &RotationEntry,
    findings: &mut Vec<Finding>,
) {
    let Some(At { value: subject, span }) = &rotation.subject else {
        return;
    };
    match subject {
        Subject::All => {}
        Subject::Role(role) => findings.extend(names.role(source, role, span)),
        Subject::Node(id) => {
            let Some(record) = records(documents).find(|file| file.id.value == *id) else {
                if !documents.broken {
                    let message = format!("no record has the uuid {id}");
                    findings.push(source.error(span.clone(), message));
                }
                return;
            };
            let Some(next) = &rotation.next_key_id else {
                return;
            };
            let key = match rotation.kind.value {
                RotationKind::NodeTransport => record.next_transport_key.as_ref().map(|k| k.value.id()),
                _ => record.next_signing_key.as_ref().map(|k| k.value.id()),
            };
            if key.as_ref() != Some(&next.value) {
                let message = format!("the record of {id} does not carry the next key `{}`", next.value);
                let help = match key {
                    Some(key) => format!("its next key of this kind is `{key}`"),
                    None => "it has no next key of this kind yet".to_owned(),
                };
                findings.push(source.error(next.span.clone(), message).help(help));
            }
        }
    }
}

/// Whether two rotations of one kind are about some same node at some same time (RT-10).
fn overlap(one: &RotationEntry, other: &RotationEntry, documents: &Documents) -> bool {
    if one.kind.value != other.kind.value {
        return false;
    }
    let end = |of: &RotationEntry| of.retire_at.as_ref().map(|at| at.value.0).filter(|at| *at != 0);
    let before = |a: &RotationEntry, b: &RotationEntry| end(a).is_some_and(|end| end <= b.publish_at.value.0);
    if before(one, other) || before(other, one) {
        return false;
    }
    let of = |rotation: &RotationEntry| -> BTreeSet<NodeId> {
        let subject = rotation.subject.as_ref().map(|at| &at.value);
        let meant = |file: &&NodeFile| match subject {
            Some(Subject::Node(id)) => file.id.value == *id,
            Some(Subject::Role(role)) => file.roles.iter().any(|r| r.value == *role),
            Some(Subject::All) | None => true,
        };
        records(documents)
            .filter(meant)
            .map(|file| file.id.value)
            .collect()
    };
    let same = one.subject.as_ref().map(|at| &at.value) == other.subject.as_ref().map(|at| &at.value);
    same || !of(one).is_disjoint(&of(other))
}
