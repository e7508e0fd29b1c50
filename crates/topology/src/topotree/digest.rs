//! Merkle digests: of a leaf from its CPU and node, of a vertex from what it is and the digests of
//! its children in any order. Equal trees have equal digests; the converse fails with the odds of
//! two of 2¹²⁸ numbers being the same, so a search keeps digests and not trees.

use super::{LevelKind, TopoTree, Vertex};
use std::fmt;

/// A fingerprint of a tree or configuration. The same on every machine and in every version that
/// has the same [`LevelKind`]s, so it may be stored.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(u128);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The first 128 bits of BLAKE3, which is the same everywhere.
pub(super) struct Hasher(blake3::Hasher);

impl Hasher {
    /// `tag` keeps apart what is made of the same numbers.
    pub(super) fn new(tag: u8) -> Self {
        let mut hasher = Self(blake3::Hasher::new());
        hasher.bytes(&[tag]);
        hasher
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(super) fn number(&mut self, number: u32) {
        self.bytes(&number.to_le_bytes());
    }

    /// A list: its length, then its digests, sorted.
    pub(super) fn unordered(&mut self, mut digests: Vec<Digest>) {
        digests.sort_unstable();
        self.number(digests.len() as u32);
        digests.iter().for_each(|digest| self.bytes(&digest.0.to_le_bytes()));
    }

    pub(super) fn finish(self) -> Digest {
        let hash = self.0.finalize();
        let (halves, _) = hash.as_bytes().as_chunks::<16>();
        Digest(u128::from_be_bytes(halves[0]))
    }
}

impl TopoTree {
    /// The digest of the tree. It is equal for two trees exactly when one can be made the other by
    /// reordering children: same kinds of levels, same CPUs with the same nodes, shared alike.
    pub fn digest(&self) -> Digest {
        digest(&self.root, &self.levels)
    }
}

fn digest(vertex: &Vertex, levels: &[Vec<LevelKind>]) -> Digest {
    let Vertex::Inner(children) = vertex else {
        let mut hasher = Hasher::new(0);
        vertex.leaves(&mut |leaf| {
            hasher.number(leaf.cpu.0);
            hasher.number(leaf.node.map_or(u32::MAX, |node| node.0));
        });
        return hasher.finish();
    };
    let mut hasher = Hasher::new(1);
    levels.iter().take(1).flatten().for_each(|&kind| hasher.number(kind as u32));
    let below = levels.get(1..).unwrap_or_default();
    hasher.unordered(children.iter().map(|child| digest(child, below)).collect());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Machine;

    fn reversed(vertex: &Vertex) -> Vertex {
        match vertex {
            Vertex::Leaf(leaf) => Vertex::Leaf(*leaf),
            Vertex::Inner(children) => Vertex::Inner(children.iter().rev().map(reversed).collect()),
        }
    }

    #[test]
    fn the_order_of_children_makes_no_difference() {
        let machine = Machine::from_synthetic("numa:2 l3:3 core:4").unwrap();
        let tree = TopoTree::of(&machine);
        let turned = TopoTree { root: reversed(&tree.root), ..tree.clone() };
        assert_ne!(turned, tree);
        assert_eq!(turned.digest(), tree.digest());
        // What a vertex is does.
        let mut named = tree.clone();
        named.levels[2] = vec![LevelKind::Cluster];
        assert_ne!(named.digest(), tree.digest());
    }
}
