//! Rotations: instants in order, what retires has activated, subjects and keys that records carry, secrets that are
//! there, none over another (RT-1, RT-3, RT-5, RT-10).

use std::collections::BTreeSet;
use std::ops::Range;

use meshplan_schemas::document::NodeFile;
use meshplan_schemas::document::read::At;
use meshplan_schemas::document::rotations::{RotationEntry, RotationKind, Subject};
use meshplan_schemas::document::scalar::Instant;
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
        retiring(rotation, &mut say);
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
        findings.extend(soon(documents, source, rotation));
        seen.push(rotation);
    }
}

/// Says a message at a place, with what to do next.
type Say<'s> = dyn FnMut(&Range<usize>, String, Option<String>) + 's;

/// An instant that is set; 0 is one that nobody has set yet (RT-1).
fn set(at: &At<Instant>) -> Option<i64> {
    Some(at.value.0).filter(|secs| *secs != 0)
}

/// The instant from which the old one is refused, where it is set.
fn retire_at(rotation: &RotationEntry) -> Option<(&At<Instant>, i64)> {
    let at = rotation.retire_at.as_ref()?;
    Some((at, set(at)?))
}

/// RT-1: each instant that is set has the one before it, and is not before it.
fn instants(rotation: &RotationEntry, say: &mut Say<'_>) {
    let at = &rotation.activate_at;
    let message = match (set(&rotation.publish_at), set(at)) {
        (None, Some(_)) => Some("`activate_at` is set and `publish_at` is not"),
        (Some(publish), Some(activate)) if activate < publish => Some("`activate_at` is before `publish_at`"),
        _ => None,
    };
    if let Some(message) = message {
        let message = format!("{message}: nobody could have heard of what is used then");
        say(&at.span, message, None);
    }
    let activate = set(at);
    if let Some((at, retire)) = retire_at(rotation)
        && activate.is_some_and(|activate| retire < activate)
    {
        let message =
            "`retire_at` is before `activate_at`: the old one would be refused before the new one is used";
        say(&at.span, message.to_owned(), None);
    }
    let when_ready = rotation.retire.as_ref().map(|at| (&at.span, "retire"));
    let retires = retire_at(rotation).map(|(at, _)| (&at.span, "retire_at"));
    if let (Some((span, key)), None) = (retires.or(when_ready), activate) {
        let message = format!(
            "`{key}` is set and `activate_at` is not: the old one would be refused and the new one never used"
        );
        say(span, message, Some("set `activate_at` first".to_owned()));
    }
}

/// RT-5: one way to retire; what bends its gate belongs to a rotation that retires.
fn retiring(rotation: &RotationEntry, say: &mut Say<'_>) {
    let retires_at = retire_at(rotation);
    if let (Some(at), Some(_)) = (&rotation.retire, retires_at) {
        let message = "a rotation has `retire_at` or `retire`, this one has both";
        say(&at.span, message.to_owned(), None);
    }
    if rotation.retire.is_some() || retires_at.is_some() {
        return;
    }
    let early = rotation.early.value.then_some((&rotation.early.span, "early"));
    let force = rotation.force.as_ref().map(|at| (&at.span, "force"));
    for (span, key) in [early, force].into_iter().flatten() {
        let message = format!("`{key}` belongs to a rotation that retires");
        let help = "it goes beside `retire_at` or `retire = \"when-ready\"`".to_owned();
        say(span, message, Some(help));
    }
}

/// RT-5: a retire that comes sooner than the gate lets it waits there, so whoever wrote it hears of that now.
fn soon(documents: &Documents, source: &Source, rotation: &RotationEntry) -> Option<Finding> {
    if rotation.early.value || rotation.force.is_some() {
        return None;
    }
    let (at, retire) = retire_at(rotation)?;
    let activate = set(&rotation.activate_at)?;
    let fleet = documents.fleet.as_ref()?.read.as_ref()?;
    let secs = fleet.rotation.default_activate_to_retire_secs.0;
    // Out of order is said by itself.
    if retire < activate || retire >= activate.saturating_add(i64::from(secs)) {
        return None;
    }
    let message = format!(
        "this retires sooner than {secs} s after it activates (`default_activate_to_retire_secs`): it is held until then"
    );
    let help = "`early = true` says that it is meant";
    Some(source.error(at.span.clone(), message).help(help).warning())
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
        let near = did_you_mean(&at.value.0, documents.secrets.values().map(String::as_str));
        let help = near.unwrap_or_else(|| "`meshplan secret set NAME` makes `secrets/NAME.age`".to_owned());
        say(&at.span, format!("there is no `{}`", at.value), Some(help));
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
                    findings.push(source.error(span.clone(), nobody(documents, id)));
                }
                return;
            };
            if record.transport_key.is_none() && record.signing_key.is_none() {
                let message = format!("the record of {id} has no keys yet: there is nothing to rotate");
                let help = "it is invited: its keys come when it enrols";
                findings.push(source.error(span.clone(), message).help(help));
                return;
            }
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

/// Why a uuid is no subject.
fn nobody(documents: &Documents, id: &NodeId) -> String {
    let files = documents
        .nodes
        .iter()
        .filter_map(|node| node.document.read.as_deref());
    if files.map(|file| file.id.value).any(|of| of == *id) {
        format!("the record of {id} is revoked: it rotates nothing")
    } else {
        format!("no record has the uuid {id}")
    }
}

/// Whether two rotations of one kind are about some same node at some same time (RT-10).
fn overlap(one: &RotationEntry, other: &RotationEntry, documents: &Documents) -> bool {
    if one.kind.value != other.kind.value {
        return false;
    }
    let end = |of: &RotationEntry| retire_at(of).map(|(_, secs)| secs);
    // One that nobody has published yet comes after whatever has an end.
    let begin = |of: &RotationEntry| set(&of.publish_at).unwrap_or(i64::MAX);
    let before = |a: &RotationEntry, b: &RotationEntry| end(a).is_some_and(|end| end <= begin(b));
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
