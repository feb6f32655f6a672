//! The Merkle tree of RFC 9162 (section 2.1): root, inclusion proof, verification.

use sha2::{Digest as _, Sha256};

/// A hash of the tree.
pub type Hash = [u8; 32];

/// The hash of a leaf: SHA-256(0x00, leaf).
#[must_use]
pub fn leaf_hash(leaf: &[u8]) -> Hash {
    Sha256::new()
        .chain_update([0])
        .chain_update(leaf)
        .finalize()
        .into()
}

fn node_hash(left: &Hash, right: &Hash) -> Hash {
    Sha256::new()
        .chain_update([1])
        .chain_update(left)
        .chain_update(right)
        .finalize()
        .into()
}

/// The largest power of two below `n`; `n` is at least 2.
fn split(n: usize) -> usize {
    let mut k = 1;
    while k * 2 < n {
        k *= 2;
    }
    k
}

/// The root over leaf hashes in their order; of no leaves the hash of nothing.
#[must_use]
pub fn root(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => Sha256::digest([]).into(),
        [one] => *one,
        many => {
            let (left, right) = many.split_at(split(many.len()));
            node_hash(&root(left), &root(right))
        }
    }
}

/// A tree with its inner hashes kept, so that the proofs of all leaves cost one pass.
#[derive(Debug)]
pub struct Tree {
    /// `levels[0]` are the leaf hashes; a lone last hash moves up unchanged.
    levels: Vec<Vec<Hash>>,
}

impl Tree {
    /// Builds the tree over leaf hashes in their order.
    #[must_use]
    pub fn new(leaves: Vec<Hash>) -> Self {
        let mut levels = vec![leaves];
        while let Some(last) = levels.last().filter(|l| l.len() > 1) {
            let up = last
                .chunks(2)
                .map(|pair| match pair {
                    [left, right] => node_hash(left, right),
                    [lone] => *lone,
                    _ => unreachable!("chunks of two"),
                })
                .collect();
            levels.push(up);
        }
        Self { levels }
    }

    /// The root.
    #[must_use]
    pub fn root(&self) -> Hash {
        self.levels
            .last()
            .and_then(|l| l.first().copied())
            .unwrap_or_else(|| root(&[]))
    }

    /// The inclusion path of the leaf at `index`, from its sibling up; none when there is no such leaf.
    #[must_use]
    pub fn path(&self, index: usize) -> Option<Vec<Hash>> {
        self.levels.first().filter(|l| index < l.len())?;
        let mut at = index;
        let mut path = Vec::new();
        for level in &self.levels {
            if let Some(sibling) = level.get(at ^ 1) {
                path.push(*sibling);
            }
            at /= 2;
        }
        Some(path)
    }
}

/// Whether the leaf with this hash stands at `index` of a tree of `count` leaves with this root (RFC 9162, 2.1.3.2).
#[must_use]
pub fn verify(index: u64, count: u64, leaf: Hash, path: &[Hash], root: Hash) -> bool {
    if index >= count {
        return false;
    }
    let (mut at, mut last, mut hash) = (index, count - 1, leaf);
    for sibling in path {
        if last == 0 {
            return false;
        }
        if at & 1 == 1 || at == last {
            hash = node_hash(sibling, &hash);
            while at & 1 == 0 && at != 0 {
                at >>= 1;
                last >>= 1;
            }
        } else {
            hash = node_hash(&hash, sibling);
        }
        at >>= 1;
        last >>= 1;
    }
    last == 0 && hash == root
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves(n: usize) -> Vec<Hash> {
        (0..n).map(|i| leaf_hash(&i.to_be_bytes())).collect()
    }

    // holds: SG-3
    #[test]
    fn every_leaf_of_trees_up_to_70_proves_itself_and_nothing_else() {
        for n in 1..70 {
            let leaves = leaves(n);
            let tree = Tree::new(leaves.clone());
            assert_eq!(
                tree.root(),
                root(&leaves),
                "the two ways to the root differ at {n}"
            );
            for (i, leaf) in leaves.iter().enumerate() {
                let path = tree.path(i).unwrap();
                let (i, n) = (i as u64, n as u64);
                assert!(verify(i, n, *leaf, &path, tree.root()));
                assert!(!verify(i + 1, n, *leaf, &path, tree.root()) || n == 1);
                assert!(!verify(i, n, leaf_hash(b"other"), &path, tree.root()));
                if !path.is_empty() {
                    assert!(!verify(i, n, *leaf, &path[1..], tree.root()));
                }
            }
            assert_eq!(tree.path(n), None);
        }
    }

    #[test]
    fn the_root_of_nothing_is_the_hash_of_nothing() {
        assert_eq!(Tree::new(vec![]).root(), <Hash>::from(Sha256::digest([])));
    }
}
