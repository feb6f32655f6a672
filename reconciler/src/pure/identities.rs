//! Who a record is, from one commit to the next (FR-5): its id stays for ever, its keys come by enrolment and change only by
//! rotation, and what was revoked, or deleted, does not come back.
//!
//! Inside one tree [`super::validate`] sees to it; here two trees are compared, and what once left the fleet. Only records
//! that differ are looked at: of ten thousand a commit changes few.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use meshplan_schemas::digest::Digest;
use meshplan_schemas::document::NodeFile;
use meshplan_schemas::document::read;
use meshplan_schemas::finding::Finding;
use meshplan_schemas::fleet_list::Leaf;
use meshplan_schemas::ident::{CommitId, NodeId, NodeName};
use serde::{Deserialize, Serialize};

use super::compose::{Composed, ComposedNode};

/// When a uuid or key left the fleet, and whose it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// The node; none where it was revoked before anybody took that down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// The commit with which it left.
    pub commit: CommitId,
}

/// Every uuid and key that was ever revoked, deleted or retired, by the digest of its text as records write it (SG-3).
pub type Revoked = BTreeMap<Digest, Left>;

/// What the identities of a tree are held against.
#[derive(Debug, Clone, Copy)]
pub struct Passed<'p> {
    /// The newest tree that was let through; none where there is none, or it cannot be read.
    pub tree: Option<&'p Composed>,
    /// All that ever left the fleet, as far as it is known here.
    pub revoked: &'p Revoked,
}

/// What a tree does to the identities of the one before it that records may not do, at its line. `revoked` is all that ever
/// left the fleet; what `before` itself has among its revoked is added.
#[must_use]
pub fn faults(before: Option<&Composed>, after: &Composed, revoked: &Revoked) -> Vec<Finding> {
    let mut findings = Vec::new();
    let ids = match before {
        Some(before) => after.nodes.differing(&before.nodes, Arc::ptr_eq),
        None => after.nodes.keys().copied().collect(),
    };
    let leaving = before.map(|before| leaving(before, after)).unwrap_or_default();
    let gone: BTreeMap<&NodeName, NodeId> = (ids.iter())
        .filter(|id| !after.nodes.contains_key(id))
        .filter_map(|id| Some((&before?.nodes.get(id)?.name, *id)))
        .collect();
    let why_not = |text: &str| {
        let digest = Digest::of(text.as_bytes());
        if let Some(left) = revoked.get(&digest) {
            let whose = match &left.node {
                Some(node) => format!("was `{node}`'s, which"),
                None => "was revoked: it".to_owned(),
            };
            return Some(format!("{whose} left the fleet with {}", left.commit.short()));
        }
        if let Some(node) = leaving.get(&digest) {
            return Some(format!("was `{node}`'s, which leaves the fleet here"));
        }
        let is_revoked = before.is_some_and(|before| before.revoked.binary_search(&digest).is_ok());
        is_revoked.then(|| "was revoked".to_owned())
    };
    for id in ids {
        let Some(node) = after.nodes.get(&id) else {
            continue;
        };
        let old = before.and_then(|before| before.nodes.get(&id));
        let old_leaf = before.and_then(|before| Some(&before.leaves.get(&id)?.leaf));
        let leaf = after.leaves.get(&id).map(|listed| &listed.leaf);
        if old.is_none() {
            if let Some(was) = gone.get(&node.name)
                && after.revoked.binary_search(&digest(was)).is_err()
            {
                let message = format!("the id of `{}` is another, it was {was}", node.name);
                let help = "a record keeps its id: put it back; for another machine move the old record to \
                            `nodes/revoked/` with `revoked = true`, its name is free then";
                findings.push(at(node, |file| Some(file.id.span.clone()), message).help(help));
            }
            if let Some(why) = why_not(&id.to_string()) {
                let message = format!("the uuid {id} {why}, and may not come back");
                let help = "a uuid is never reused: `meshplan node add` makes another";
                findings.push(at(node, |file| Some(file.id.span.clone()), message).help(help));
            }
        }
        if let Some(old) = old_leaf {
            findings.extend(moved(node, old, leaf));
        }
        for (what, key, span) in keys(leaf) {
            if keys(old_leaf).any(|(_, old, _)| old == key) {
                continue;
            }
            if let Some(why) = why_not(&key) {
                let message = format!("the {what} {key} {why}, and may not come back");
                let help = "a machine that enrols anew makes keys of its own: remove its state folder and enrol it again";
                findings.push(at(node, span, message).help(help));
            }
        }
    }
    findings.sort();
    findings
}

/// Uuids and keys of `before` that `after` has no more, by the digests of their texts, with whose they were: a deleted record
/// counts as revoked, and a key that a rotation has replaced is retired.
#[must_use]
pub fn leaving(before: &Composed, after: &Composed) -> BTreeMap<Digest, NodeName> {
    let mut found = BTreeMap::new();
    for id in after.nodes.differing(&before.nodes, Arc::ptr_eq) {
        let Some(old) = before.nodes.get(&id) else {
            continue;
        };
        if !after.nodes.contains_key(&id) {
            found.insert(digest(&id), old.name.clone());
        }
        let leaf_in = |tree: &'_ Composed| tree.leaves.get(&id).map(|listed| listed.leaf.clone());
        let (was, is) = (leaf_in(before), leaf_in(after));
        let stays = after.nodes.contains_key(&id);
        for (what, key, _) in keys(was.as_ref()) {
            // A next key that a rotation gave up was never anybody's: it may be tried again.
            if stays && what.starts_with("next ") {
                continue;
            }
            if !keys(is.as_ref()).any(|(_, now, _)| now == key) {
                found.insert(Digest::of(key.as_bytes()), old.name.clone());
            }
        }
    }
    found
}

/// Keys that are others by no rotation, or taken away.
fn moved(node: &ComposedNode, old: &Leaf, new: Option<&Leaf>) -> Vec<Finding> {
    let Some(new) = new else {
        let message = format!("the keys of `{}` are taken away", node.name);
        let help = "put them back; a machine that enrols anew gets a new record, and the old one is revoked";
        return vec![at(node, |file| Some(file.id.span.clone()), message).help(help)];
    };
    let mut findings = Vec::new();
    let mut another = |what: &str, span: SpanOf| {
        let message = format!(
            "the {what} of `{}` is another, and no rotation has told of it",
            node.name
        );
        let help = "put it back: keys come by enrolment and change only by rotation, the new one is the record's next \
                    key first; a machine that enrols anew gets a new record";
        findings.push(at(node, span, message).help(help));
    };
    if new.transport_key != old.transport_key && Some(new.transport_key) != old.next_transport_key {
        another("transport key", |file| {
            Some(file.transport_key.as_ref()?.span.clone())
        });
    }
    if new.signing_key != old.signing_key && Some(new.signing_key) != old.next_signing_key {
        another("signing key", |file| {
            Some(file.signing_key.as_ref()?.span.clone())
        });
    }
    findings
}

/// Where a value stands in a record.
type SpanOf = fn(&NodeFile) -> Option<Range<usize>>;

/// The keys of a leaf: what each is called, its text, and where the record says it.
fn keys(leaf: Option<&Leaf>) -> impl Iterator<Item = (&'static str, String, SpanOf)> {
    let of: [(&'static str, Option<String>, SpanOf); 4] = match leaf {
        None => return Vec::new().into_iter(),
        Some(leaf) => [
            ("transport key", Some(leaf.transport_key.to_string()), |file| {
                Some(file.transport_key.as_ref()?.span.clone())
            }),
            ("signing key", Some(leaf.signing_key.to_string()), |file| {
                Some(file.signing_key.as_ref()?.span.clone())
            }),
            (
                "next transport key",
                leaf.next_transport_key.as_ref().map(ToString::to_string),
                |file| Some(file.next_transport_key.as_ref()?.span.clone()),
            ),
            (
                "next signing key",
                leaf.next_signing_key.as_ref().map(ToString::to_string),
                |file| Some(file.next_signing_key.as_ref()?.span.clone()),
            ),
        ],
    };
    let there: Vec<_> = of
        .into_iter()
        .filter_map(|(what, key, span)| Some((what, key?, span)))
        .collect();
    there.into_iter()
}

fn digest(id: &NodeId) -> Digest {
    Digest::of(id.to_string().as_bytes())
}

/// An error at a place of a node's record. The record is read once more for it: errors are rare, places would be kept of
/// every record.
fn at(node: &ComposedNode, span: SpanOf, message: String) -> Finding {
    let file: Option<NodeFile> = read::document(&node.source, &mut Vec::new());
    match file.as_ref().and_then(span) {
        Some(span) => node.source.error(span, message),
        None => Finding::of_file(node.source.file(), message),
    }
}

#[cfg(test)]
mod tests;
