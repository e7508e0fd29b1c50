//! Memory to be measured: an arena of one block, with a safe face.

use memory::{
    Arena, ArenaOptions, Block, Error, HugePages, Pages, Policy, Warning, huge_bytes, pages_by_node,
};

/// A buffer whose place is known. Its pages come into being when they are first written.
#[derive(Debug)]
pub struct Buffer {
    arena: Arena,
    block: Block,
}

impl Buffer {
    /// Reserves at least `bytes`, rounded up to a multiple of 64.
    ///
    /// # Errors
    /// As [`Arena::new`].
    pub fn new(bytes: usize, policy: Policy, huge: HugePages) -> Result<Self, Error> {
        let mut arena = Arena::new(bytes, &ArenaOptions { policy, huge, name: "probe" })?;
        let block = arena.alloc(bytes.next_multiple_of(64).min(arena.capacity()), 64)?;
        Ok(Self { arena, block })
    }

    /// What the kernel did not do as asked.
    pub fn warnings(&self) -> &[Warning] {
        self.arena.warnings()
    }

    /// Takes the warnings out.
    pub fn take_warnings(&mut self) -> Vec<Warning> {
        self.arena.take_warnings()
    }

    /// Length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "an arena has a page at least")]
    pub fn len(&self) -> usize {
        self.block.len()
    }

    /// All bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the arena lives as long as the slice, and writers need `&mut self`.
        unsafe { self.block.as_slice() }
    }

    /// All bytes as words.
    pub fn words(&self) -> &[u64] {
        // SAFETY: as in `bytes`.
        unsafe { self.block.as_slice() }
    }

    /// All bytes as words to write.
    pub fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: the arena lives as long as the slice; `&mut self` is the only way to it.
        unsafe { self.block.as_mut_slice() }
    }

    /// Where the pages are.
    ///
    /// # Errors
    /// As [`pages_by_node`].
    pub fn pages(&self) -> Result<Pages, Error> {
        pages_by_node(self.block)
    }

    /// How much is on huge pages.
    ///
    /// # Errors
    /// As [`huge_bytes`].
    pub fn huge_bytes(&self) -> Result<u64, Error> {
        huge_bytes(self.block)
    }
}
