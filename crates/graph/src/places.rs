//! The places of buffers, pages and scratch, which threads look up.

use crate::buffer::BufId;
use crate::exec::Shadow;
use crate::state::StateLayout;
use memory::Block;
use std::sync::Arc;

/// Elements of a thread's scratch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scratch {
    /// f32.
    pub floats: usize,
    /// u32.
    pub words: usize,
    /// Bytes.
    pub bytes: usize,
}

impl Scratch {
    /// Room for one or the other.
    pub(crate) fn max(self, other: Scratch) -> Scratch {
        Scratch {
            floats: self.floats.max(other.floats),
            words: self.words.max(other.words),
            bytes: self.bytes.max(other.bytes),
        }
    }

    /// Bytes of each.
    pub(crate) fn sizes(self) -> [usize; 3] {
        [self.floats * size_of::<f32>(), self.words * size_of::<u32>(), self.bytes]
    }
}

/// Buffers, pages and scratch in the arenas. Every group of threads has a copy near.
#[derive(Clone)]
pub(crate) struct Places {
    pub shared: Vec<Vec<Option<Block>>>,       // [buffer][place]
    pub private: Vec<Vec<Option<Block>>>,      // [buffer][thread]
    pub states: Vec<Vec<Option<StateLayout>>>, // [place][state]
    pub scratch: Vec<[Block; 3]>,              // [thread]
    pub strides: Vec<Vec<usize>>,              // [buffer][place], bytes
    pub host: Vec<bool>,                       // [buffer]
    /// Who touched what last, where that is kept.
    pub shadow: Option<Arc<Shadow>>,
}

impl Places {
    /// The copy of a buffer that `thread` of the team of `place` works on.
    pub(crate) fn of(&self, buf: BufId, place: usize, thread: usize) -> Block {
        let id = buf.0 as usize;
        self.private[id][thread]
            .or(self.shared[id][place])
            .or(self.shared[id][0])
            .expect("a buffer of this graph")
    }

    /// Whether every thread has a copy of a buffer to itself.
    pub(crate) fn is_private(&self, buf: BufId) -> bool {
        self.private[buf.0 as usize].first().is_some_and(Option::is_some)
    }

    /// The copy of a shared buffer in `place`.
    pub(crate) fn on(&self, buf: BufId, place: usize) -> Block {
        self.shared[buf.0 as usize][place].expect("a shared buffer")
    }

    /// Bytes from one row of a buffer to the next in `place`.
    pub(crate) fn stride(&self, buf: BufId, place: usize) -> usize {
        self.strides[buf.0 as usize][place]
    }

    /// Whether a buffer is the caller's.
    pub(crate) fn is_host(&self, buf: BufId) -> bool {
        self.host[buf.0 as usize]
    }

    /// Pages of a state in a place that holds it.
    pub(crate) fn state(&self, state: usize, place: usize) -> &StateLayout {
        self.states[place][state].as_ref().expect("a state of this place")
    }

    /// Pages of all states in each place, as far as it holds them.
    pub(crate) fn states(&self) -> &[Vec<Option<StateLayout>>] {
        &self.states
    }

    /// Scratch of a thread: f32, u32, bytes.
    pub(crate) fn scratch(&self, thread: usize) -> [Block; 3] {
        self.scratch[thread]
    }
}
