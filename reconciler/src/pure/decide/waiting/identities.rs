//! A commit that gives a record another id or other keys, or brings back who left the fleet, is no order (FR-5).
//!
//! It is compared with the newest commit that was let through, never with one that was refused: what that had brought is
//! no excuse for the next. Who leaves is taken down when a commit is let through, and stays so for good.

use std::collections::BTreeMap;

use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::NodeName;

use super::signed::base_of;
use crate::pure::compose::Composed;
use crate::pure::decide::Tree;
use crate::pure::decide::draft::Draft;
use crate::pure::decide::said;
use crate::pure::delivery::Delivery;
use crate::pure::identities::{Left, faults, leaving};
use crate::pure::recover::REVOKED;

/// What is known of the identities in a commit.
pub(super) enum Identities {
    /// What it is compared with is not read yet.
    Unread,
    /// They are whose they were.
    Kept,
    /// They are not; why.
    Broken(String),
}

/// Whose the records of a commit are.
pub(super) fn judge(draft: &Draft<'_>, delivery: &Delivery, tree: &Composed) -> Identities {
    let before = match base_of(&draft.deliveries, delivery) {
        None => None,
        Some(base) => match draft.known.trees.get(&base) {
            None => return Identities::Unread,
            Some(Tree::Composed(before)) => Some(before),
            // It was let through and this build cannot read it: what left the fleet is known all the same.
            Some(Tree::Invalid(_) | Tree::Gone(_)) => None,
        },
    };
    let found = faults(before.map(AsRef::as_ref), tree, &draft.known.snapshot.revoked);
    if found.is_empty() {
        Identities::Kept
    } else {
        Identities::Broken(said(&found))
    }
}

/// The most names of nodes in the facts of one delivery.
const NAMED: usize = 64;

/// For the note, from which a lost database is rebuilt: who left, a line a node.
pub(super) fn facts(draft: &Draft<'_>) -> Vec<(String, String)> {
    // What stands in `nodes/revoked/` is found there again.
    let mut by_node: BTreeMap<&NodeName, Vec<String>> = BTreeMap::new();
    for (digest, left) in &draft.act.revoked {
        if let Some(node) = &left.node {
            by_node.entry(node).or_default().push(digest.to_string());
        }
    }
    let lines = by_node.iter().take(NAMED);
    lines
        .map(|(node, digests)| (REVOKED.to_owned(), format!("{node} {}", digests.join(" "))))
        .collect()
}

/// Takes down who leaves with a commit that is let through.
pub(super) fn take_down(draft: &mut Draft<'_>, delivery: &Delivery, tree: &Composed) {
    let before = base_of(&draft.deliveries, delivery).and_then(|base| draft.tree(&base));
    let leaving = before.map(|before| leaving(&before, tree)).unwrap_or_default();
    let revoked = tree.revoked.iter().map(|digest| (*digest, None));
    let all: Vec<(Digest, Option<NodeName>)> = revoked
        .chain(leaving.into_iter().map(|(digest, node)| (digest, Some(node))))
        .collect();
    for (digest, node) in all {
        if !draft.known.snapshot.revoked.contains_key(&digest) {
            let commit = delivery.commit.clone();
            draft.act.revoked.insert(digest, Left { node, commit });
        }
    }
}
