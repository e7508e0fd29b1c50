//! The name of a sequence.

use std::fmt;

/// A sequence of tokens of which layers keep something.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct SeqId {
    slot: u32,
    generation: u32, // so that a freed id is not mistaken for its successor
}

impl SeqId {
    pub(crate) fn new(slot: usize, generation: u32) -> SeqId {
        SeqId { slot: slot as u32, generation }
    }

    /// Its slot, one of as many as sequences can exist at once.
    pub(crate) fn slot(self) -> usize {
        self.slot as usize
    }

    /// The number of sequences that its slot has had, this one included.
    pub(crate) fn generation(self) -> u32 {
        self.generation
    }
}

impl fmt::Display for SeqId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sequence {}.{}", self.slot, self.generation)
    }
}
