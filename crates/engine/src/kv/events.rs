//! What the prefix cache gains and loses, for who routes requests by it.
//!
//! A block is a full page. Its number is a hash of its tokens and of the block before it, so equal beginnings have
//! equal numbers, in every server of this version.

use graph::Adapted;

/// A change of the prefix cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheEvent {
    /// A block is there.
    Stored {
        /// Its number.
        block: u64,
        /// The number of the block before it; `None` at the beginning.
        parent: Option<u64>,
        /// Its tokens.
        tokens: Vec<u32>,
        /// The adapter that it was computed with, if there is one.
        adapter: Option<u32>,
    },
    /// A block is there no more.
    Removed {
        /// Its number.
        block: u64,
    },
    /// Nothing is there any more.
    Cleared,
}

/// The number of a block, from that of the block before it; of beginnings with adapters from these.
pub(super) fn number(parent: u64, tokens: &[u32]) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&parent.to_le_bytes());
    for token in tokens {
        hasher.update(&token.to_le_bytes());
    }
    let mut reader = hasher.finalize_xof();
    let mut first = [0; 8];
    reader.fill(&mut first);
    u64::from_le_bytes(first)
}

/// The number of the empty beginning with adapters. Whether their factors differ counts, too.
pub(super) fn beginning(set: &[Adapted]) -> u64 {
    let words = |one: &Adapted| [u32::MAX, one.adapter, one.scale.to_bits()];
    match set {
        [] => 0,
        set => number(0, &set.iter().flat_map(words).collect::<Vec<u32>>()),
    }
}
