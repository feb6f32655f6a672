//! A map by node that shares with its copies what they have in common: a commit changes few of ten thousand nodes, and
//! the tree before it and the tree after it are in memory together.
//!
//! Invariant: the chunks are sorted, none is empty, and no node stands in two.

use std::collections::HashSet;
use std::sync::Arc;

use meshplan_schemas::ident::NodeId;

/// Nodes in a chunk: a copy with one value replaced copies one chunk, and one pointer a chunk.
const CHUNK: usize = 256;

/// Values by node, in the order of the uuids.
#[derive(Debug, Clone, PartialEq)]
pub struct ByNode<T> {
    chunks: Arc<Vec<Arc<Chunk<T>>>>,
    len: usize,
}

type Chunk<T> = Vec<(NodeId, T)>;

impl<T> Default for ByNode<T> {
    fn default() -> Self {
        Self {
            chunks: Arc::default(),
            len: 0,
        }
    }
}

impl<T> ByNode<T> {
    /// How many nodes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value of a node.
    #[must_use]
    pub fn get(&self, id: &NodeId) -> Option<&T> {
        let (chunk, at) = self.place(id)?;
        self.chunks.get(chunk)?.get(at).map(|(_, value)| value)
    }

    /// Whether the node is there.
    #[must_use]
    pub fn contains_key(&self, id: &NodeId) -> bool {
        self.place(id).is_some()
    }

    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&NodeId, &T)> {
        self.chunks
            .iter()
            .flat_map(|chunk| chunk.iter())
            .map(|(id, value)| (id, value))
    }

    /// The nodes, in order.
    pub fn keys(&self) -> impl Iterator<Item = &NodeId> {
        self.iter().map(|(id, _)| id)
    }

    /// The values, in the order of their nodes.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.iter().map(|(_, value)| value)
    }

    /// The nodes that are not the same in another: `same` says so of two values, and who is in one alone is not. What the
    /// two share is passed over.
    #[must_use]
    pub fn differing(&self, other: &Self, same: impl Fn(&T, &T) -> bool) -> Vec<NodeId> {
        let pointers = |of: &Self| of.chunks.iter().map(Arc::as_ptr).collect::<HashSet<_>>();
        let (ours, theirs) = (pointers(self), pointers(other));
        let own = |of: &'_ Self, shared: &HashSet<*const Chunk<T>>| {
            let chunks = of
                .chunks
                .iter()
                .filter(|chunk| !shared.contains(&Arc::as_ptr(chunk)));
            chunks.cloned().collect::<Vec<_>>()
        };
        let new = own(self, &theirs);
        let changed = new.iter().flat_map(|chunk| chunk.iter());
        let changed = changed.filter(|(id, value)| !other.get(id).is_some_and(|old| same(value, old)));
        let old = own(other, &ours);
        let gone = old.iter().flat_map(|chunk| chunk.iter());
        let gone = gone.filter(|(id, _)| !self.contains_key(id));
        changed.chain(gone).map(|(id, _)| *id).collect()
    }

    fn place(&self, id: &NodeId) -> Option<(usize, usize)> {
        let after = self
            .chunks
            .partition_point(|chunk| chunk.first().is_some_and(|(first, _)| first <= id));
        let chunk = after.checked_sub(1)?;
        let at = self
            .chunks
            .get(chunk)?
            .binary_search_by(|(of, _)| of.cmp(id))
            .ok()?;
        Some((chunk, at))
    }
}

impl<T: Clone> ByNode<T> {
    /// Replaces the value of a node that is there, in this copy alone; whether it is there.
    pub fn replace(&mut self, id: &NodeId, value: T) -> bool {
        let Some((chunk, at)) = self.place(id) else {
            return false;
        };
        let chunk = Arc::make_mut(&mut self.chunks).get_mut(chunk);
        let entry = chunk.and_then(|chunk| Arc::make_mut(chunk).get_mut(at));
        entry.map(|entry| entry.1 = value).is_some()
    }
}

/// Of two values for one node the last stays.
impl<T> FromIterator<(NodeId, T)> for ByNode<T> {
    fn from_iter<I: IntoIterator<Item = (NodeId, T)>>(values: I) -> Self {
        let sorted: std::collections::BTreeMap<NodeId, T> = values.into_iter().collect();
        let len = sorted.len();
        let mut chunks = Vec::with_capacity(len.div_ceil(CHUNK));
        let mut rest = sorted.into_iter().peekable();
        while rest.peek().is_some() {
            chunks.push(Arc::new(rest.by_ref().take(CHUNK).collect()));
        }
        Self {
            chunks: Arc::new(chunks),
            len,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn id(n: u16) -> NodeId {
        // Spread and alike, as random uuids and those by time are.
        NodeId(Uuid::from_u128(u128::from(n) << (16 * (n % 8))))
    }

    proptest! {
        #[test]
        fn it_is_the_map_that_a_sorted_one_would_be(
            values in prop::collection::vec((any::<u16>(), any::<u8>()), 0..2_000),
            replaced in prop::collection::vec((any::<u16>(), any::<u8>()), 0..50),
        ) {
            let mut expected: BTreeMap<NodeId, u8> = values.iter().map(|(n, v)| (id(*n), *v)).collect();
            let before: ByNode<u8> = values.iter().map(|(n, v)| (id(*n), *v)).collect();
            let former = expected.clone();
            let mut after = before.clone();
            for (n, value) in replaced.iter().chain(values.first()) {
                let there = expected.get_mut(&id(*n)).map(|v| *v = *value).is_some();
                prop_assert_eq!(after.replace(&id(*n), *value), there);
                prop_assert_eq!(after.contains_key(&id(*n)), there);
            }
            prop_assert_eq!(after.len(), expected.len());
            prop_assert!(after.iter().eq(expected.iter()));
            prop_assert!(before.iter().eq(former.iter()), "a copy is its own");
            prop_assert!(expected.iter().all(|(id, value)| after.get(id) == Some(value)));
        }
    }

    #[test]
    fn what_differs_is_found_whatever_is_shared() {
        let of = |n: u16| NodeId(Uuid::from_u128(u128::from(n)));
        let before: ByNode<u16> = (0..2_000).map(|n| (of(n), n)).collect();
        let mut after = before.clone();
        assert!(after.replace(&of(700), 0) && after.replace(&of(701), 701));
        assert_eq!(after.differing(&before, u16::eq), [of(700)]);
        let others: ByNode<u16> = (1..2_001).map(|n| (of(n), n)).collect();
        assert_eq!(others.differing(&before, u16::eq), [of(2_000), of(0)]);
        assert_eq!(before.differing(&before, |_, _| false), []);
    }

    #[test]
    fn copies_share_what_they_have_in_common() {
        let before: ByNode<u16> = (0..2_000)
            .map(|n| (NodeId(Uuid::from_u128(u128::from(n))), n))
            .collect();
        let mut after = before.clone();
        assert!(after.replace(&NodeId(Uuid::from_u128(700)), 0));
        let shared = before
            .chunks
            .iter()
            .zip(after.chunks.iter())
            .filter(|(a, b)| Arc::ptr_eq(a, b));
        assert_eq!((shared.count(), before.chunks.len()), (7, 8));
    }
}
