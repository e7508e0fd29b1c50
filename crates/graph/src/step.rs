//! A step's input and what is derived from it before the threads start.

use crate::error::Error;
use kernels::{KV_CHUNK, KV_PAGE};
use std::ops::Range;

/// Index of a KV page: `KV_PAGE` token slots of every KV head and layer, on every node.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageId(pub u32);

/// Whose logits are wanted.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Outputs {
    /// Nobody's: a chunk of a prompt that goes on.
    None,
    /// The last token's.
    Last,
    /// Every token's.
    All,
}

/// The part of one sequence in a step.
#[derive(Copy, Clone, Debug)]
pub struct SeqInput<'a> {
    /// New tokens, at least one.
    pub tokens: &'a [u32],
    /// Tokens whose keys and values are in the pages already.
    pub past: usize,
    /// Pages of the sequence in order; must have room for `past + tokens`.
    pub pages: &'a [PageId],
    /// Whose logits are wanted.
    pub outputs: Outputs,
}

/// One token of the step.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Token {
    pub id: u32,
    pub position: u32,
    /// First entry of its sequence's page table.
    pub table: u32,
    /// First row of its attention states.
    pub states: u32,
}

impl Token {
    /// Keys that it sees.
    pub(crate) fn visible(&self) -> usize {
        self.position as usize + 1
    }

    /// KV ranges that it sees.
    pub(crate) fn ranges(&self) -> usize {
        self.visible().div_ceil(KV_CHUNK)
    }
}

/// A step's input as a thread holds it on its own stack.
#[derive(Copy, Clone)]
pub(crate) struct Input<'a> {
    pub tokens: &'a [Token],
    pub outputs: &'a [u32],
    pub tables: &'a [PageId],
    pub tiles: &'a [Range<u32>],
    pub page_runs: &'a [Range<u32>],
    pub ranges: &'a [(u32, u32)],
}

/// Everything that threads need to know of a step. Reused, so that a step allocates nothing once
/// the vectors have grown.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    pub tokens: Vec<Token>,
    /// Token index of every row of logits.
    pub outputs: Vec<u32>,
    /// Page tables of all sequences, one after the other.
    pub tables: Vec<PageId>,
    /// Runs of tokens of one sequence, for attention.
    pub tiles: Vec<Range<u32>>,
    /// Runs of tokens that share a page, for appending.
    pub page_runs: Vec<Range<u32>>,
    /// (token, KV range) of every row of attention states.
    pub ranges: Vec<(u32, u32)>,
    pub single: bool,
    /// For every page: the last step that wrote it, and the sequence that did.
    writers: Vec<(u64, u32)>,
    stamp: u64,
}

impl Prepared {
    /// For threads.
    pub(crate) fn input(&self) -> Input<'_> {
        Input {
            tokens: &self.tokens,
            outputs: &self.outputs,
            tables: &self.tables,
            tiles: &self.tiles,
            page_runs: &self.page_runs,
            ranges: &self.ranges,
        }
    }

    /// Checks `sequences` and derives the work items; `tile` is the longest query tile.
    pub(crate) fn set<'s>(
        &mut self,
        sequences: impl Iterator<Item = SeqInput<'s>> + Clone,
        vocab: usize,
        pages: usize,
        tile: usize,
    ) -> Result<(), Error> {
        self.tokens.clear();
        self.outputs.clear();
        self.tables.clear();
        self.tiles.clear();
        self.page_runs.clear();
        self.ranges.clear();
        self.single = sequences.clone().all(|s| s.tokens.len() == 1);
        self.check(sequences.clone(), pages)?;
        for seq in sequences {
            let table = self.tables.len() as u32;
            self.tables.extend_from_slice(seq.pages);
            let first = self.tokens.len();
            for (i, &id) in seq.tokens.iter().enumerate() {
                if id as usize >= vocab {
                    return Err(Error::UnknownToken { token: id, vocab });
                }
                let (t, position) = (self.tokens.len() as u32, seq.past + i);
                let states = self.ranges.len() as u32;
                let token = Token { id, position: position as u32, table, states };
                self.ranges.extend((0..token.ranges() as u32).map(|c| (t, c)));
                self.tokens.push(token);
                extend_runs(&mut self.tiles, t, i.is_multiple_of(tile));
                extend_runs(&mut self.page_runs, t, i == 0 || position.is_multiple_of(KV_PAGE));
            }
            let end = self.tokens.len();
            let wanted = match seq.outputs {
                Outputs::None => end..end,
                Outputs::Last => end - 1..end,
                Outputs::All => first..end,
            };
            self.outputs.extend(wanted.map(|t| t as u32));
        }
        Ok(())
    }

    fn check<'s>(
        &mut self,
        sequences: impl Iterator<Item = SeqInput<'s>> + Clone,
        pages: usize,
    ) -> Result<(), Error> {
        self.stamp += 1;
        self.writers.resize(pages, (0, 0));
        for (at, seq) in sequences.clone().enumerate() {
            if seq.tokens.is_empty() {
                return Err(Error::BadStep(format!("sequence {at} has no tokens")));
            }
            let (room, need) = (seq.pages.len() * KV_PAGE, seq.past + seq.tokens.len());
            if room < need {
                return Err(Error::BadStep(format!(
                    "sequence {at} has pages for {room} tokens but needs {need}"
                )));
            }
            if let Some(page) = seq.pages.iter().find(|p| p.0 as usize >= pages) {
                return Err(Error::BadStep(format!(
                    "sequence {at} names page {} of {pages}",
                    page.0
                )));
            }
            for page in &seq.pages[seq.past / KV_PAGE..need.div_ceil(KV_PAGE)] {
                let writer = &mut self.writers[page.0 as usize];
                if writer.0 == self.stamp {
                    return Err(shared(at, *page));
                }
                *writer = (self.stamp, at as u32);
            }
        }
        // A page that one sequence writes must be in no other's table, or threads would race.
        for (at, seq) in sequences.enumerate() {
            let foreign = |p: &&PageId| {
                let (stamp, writer) = self.writers[p.0 as usize];
                stamp == self.stamp && writer != at as u32
            };
            if let Some(page) = seq.pages.iter().find(foreign) {
                return Err(shared(at, *page));
            }
        }
        Ok(())
    }
}

fn shared(at: usize, page: PageId) -> Error {
    let page = page.0;
    Error::BadStep(format!("sequence {at} shares page {page}, which is written in this step"))
}

fn extend_runs(runs: &mut Vec<Range<u32>>, t: u32, new: bool) {
    match runs.last_mut() {
        Some(run) if !new => run.end = t + 1,
        _ => runs.push(t..t + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(range: Range<u32>) -> Vec<PageId> {
        range.map(PageId).collect()
    }

    #[test]
    fn items_follow_sequences_pages_and_ranges() {
        let (a, b) = (pages(0..9), pages(9..11));
        let long: Vec<u32> = vec![1; 10];
        let seqs = [
            SeqInput { tokens: &long, past: 250, pages: &a, outputs: Outputs::Last },
            SeqInput { tokens: &[2], past: 40, pages: &b, outputs: Outputs::All },
        ];
        let mut p = Prepared::default();
        p.set(seqs.iter().copied(), 10, 11, 4).unwrap();
        assert_eq!(p.tiles, [0..4, 4..8, 8..10, 10..11]);
        assert_eq!(p.page_runs, [0..6, 6..10, 10..11], "position 256 begins a page");
        assert_eq!(p.outputs, [9, 10]);
        assert_eq!(p.ranges.len(), 6 + 4 * 2 + 1, "tokens from position 256 see two ranges");
        assert!(!p.single);
        assert_eq!(p.tokens[10].table, 9);
    }

    #[test]
    fn contradictions_are_refused() {
        let one = pages(0..1);
        let seq = |tokens, past, outputs| SeqInput { tokens, past, pages: &one, outputs };
        let mut p = Prepared::default();
        let mut set = |seqs: &[SeqInput<'_>]| p.set(seqs.iter().copied(), 10, 4, 4);
        let err = set(&[seq(&[], 0, Outputs::None)]).unwrap_err();
        assert!(err.to_string().contains("no tokens"));
        let err = set(&[seq(&[1], 32, Outputs::None)]).unwrap_err();
        assert!(err.to_string().contains("pages for 32 tokens but needs 33"));
        let err = set(&[seq(&[10], 0, Outputs::None)]).unwrap_err();
        assert!(matches!(err, Error::UnknownToken { token: 10, vocab: 10 }));
        let err = set(&[seq(&[1], 0, Outputs::Last), seq(&[1], 0, Outputs::Last)]).unwrap_err();
        assert!(err.to_string().contains("shares page 0"));
    }
}
