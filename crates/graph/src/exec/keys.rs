//! The keys that an item of attention reads: of which sequence, in which pages, and what each query
//! row sees of them.

use crate::step::{Class, PageId, Seen};
use kernels::{KV_CHUNK, KV_PAGE};
use std::ops::Range;

/// Keys of one range that some row sees.
#[derive(Clone)]
pub(crate) struct Keys<'a> {
    /// A token of their sequence.
    pub(crate) token: &'a Seen,
    pub(crate) kv: usize,
    /// By position.
    span: Range<usize>,
}

impl<'a> Keys<'a> {
    /// What the tokens from `first` to `last` see of the range `chunk`.
    pub(crate) fn new(first: &Seen, last: &'a Seen, kv: usize, chunk: usize) -> Keys<'a> {
        let (start, end) = (chunk * KV_CHUNK, (chunk + 1) * KV_CHUNK);
        Keys { token: last, kv, span: start.max(first.first as usize)..end.min(last.end as usize) }
    }

    /// Pages of the sequence that they lie in.
    pub(crate) fn pages(&self) -> Range<usize> {
        self.span.start / KV_PAGE..self.span.end.div_ceil(KV_PAGE)
    }
}

/// The most query rows of one item: groups larger than a tile go one token at a time.
pub(crate) const TILE_ROWS_MAX: usize = 128;

/// The keys that each query row sees, counted from the first slot of the pages that are given.
#[derive(Clone, Copy)]
pub(crate) struct Spans<'b> {
    pub(crate) starts: &'b [u32], // [rows]
    pub(crate) limits: &'b [u32], // [rows]
}

impl<'b> Spans<'b> {
    /// Those of the heads of a group, token by token.
    pub(crate) fn fill(
        to: &'b mut [[u32; TILE_ROWS_MAX]; 2],
        tokens: &[Seen],
        group: usize,
        keys: &Keys<'_>,
    ) -> Spans<'b> {
        let rows = tokens.len() * group;
        let base = (keys.pages().start * KV_PAGE) as u32;
        let (start, end) = (keys.span.start as u32, keys.span.end as u32);
        let [starts, limits] = to.each_mut().map(|rows_of| &mut rows_of[..rows]);
        let each = starts.chunks_exact_mut(group).zip(limits.chunks_exact_mut(group));
        for ((starts, limits), t) in each.zip(tokens) {
            starts.fill(t.first.max(start) - base);
            limits.fill(t.end.min(end) - base);
        }
        Spans { starts, limits }
    }
}

/// A page of the sequence of `token`.
pub(crate) fn page(class: &Class, token: &Seen, at: usize) -> PageId {
    class.pages[token.table as usize + at - token.page as usize]
}
