//! A step's input and what is derived from it before the threads start.

mod cut;

use crate::adapter::Adapted;
use crate::error::Error;
use crate::inset::{self, Inset, Spot, Together, Walk};
use crate::keep::Keep;
use kernels::{KV_CHUNK, KV_PAGE};
use std::ops::Range;

pub(crate) use cut::{cut, within};

/// Index of a KV page of a class: `KV_PAGE` token slots of every KV head in every layer of the
/// class, on every node.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageId(pub u32);

/// A page whose contents another is to have.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PageCopy {
    /// KV class of both.
    pub class: usize,
    /// The page that is read.
    pub from: PageId,
    /// The page that is written.
    pub to: PageId,
}

/// The pages that a sequence has in one KV class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageTable {
    /// Which page of the sequence is the first of them: those before it lie behind the window.
    pub first: usize,
    /// The pages in order.
    pub pages: Vec<PageId>,
}

impl PageTable {
    /// Tokens from the first of the sequence that it has room for.
    pub fn room(&self) -> usize {
        (self.first + self.pages.len()) * KV_PAGE
    }
}

/// What a step gives of a sequence: logits, or the hidden states that the head would make them from
/// (after the last norm), which costs no product with the head.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Outputs {
    /// Nothing: a chunk of a prompt that goes on.
    None,
    /// The last token's logits.
    Last,
    /// The logits of the last so many tokens.
    Tail(usize),
    /// Every token's logits.
    All,
    /// The last token's hidden state.
    LastHidden,
    /// Every token's hidden state.
    AllHidden,
    /// A hidden state for every so many tokens, the last of which end the sequence's part of the step.
    EachHidden(usize),
}

impl Outputs {
    /// Of a sequence's tokens, `all` in the step, those whose logits are wanted; with `hidden`, those
    /// whose hidden states are.
    fn of(self, all: Range<usize>, hidden: bool) -> Range<usize> {
        match self {
            Outputs::Last if !hidden => all.end - 1..all.end,
            Outputs::Tail(n) if !hidden => all.end.saturating_sub(n).max(all.start)..all.end,
            Outputs::LastHidden if hidden => all.end - 1..all.end,
            Outputs::All if !hidden => all,
            Outputs::AllHidden | Outputs::EachHidden(_) if hidden => all,
            _ => all.end..all.end,
        }
    }

    /// From one of them to the next.
    fn step(self) -> usize {
        if let Outputs::EachHidden(count) = self { count } else { 1 }
    }
}

/// The part of one sequence in a step.
#[derive(Copy, Clone, Debug)]
pub struct SeqInput<'a> {
    /// New tokens, at least one.
    pub tokens: &'a [u32],
    /// Tokens whose keys and values are in the pages already.
    pub past: usize,
    /// Its pages in every KV class ([`Graph::windows`](crate::Graph::windows)): all with keys that a
    /// new token sees, and room for `past + tokens`.
    pub tables: &'a [PageTable],
    /// What is wanted of it.
    pub outputs: Outputs,
    /// Fixed states that are to be kept on the way, in the order of their tokens.
    pub saves: &'a [Save],
    /// What of it are no tokens, in the order of its positions: also what is in the pages already.
    pub insets: &'a [Inset<'a>],
}

/// Fixed states of a sequence as they are after one of a step's tokens, which are copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Save {
    /// Tokens of the sequence then, from its beginning.
    pub len: usize,
    /// Where to, by class; none in classes of tokens.
    pub pages: Vec<Option<PageId>>,
}

impl<'a> SeqInput<'a> {
    /// Tokens, and nothing besides: no fixed states to keep on the way, no rows in the place of tokens.
    pub fn new(
        tokens: &'a [u32],
        past: usize,
        tables: &'a [PageTable],
        outputs: Outputs,
    ) -> SeqInput<'a> {
        SeqInput { tokens, past, tables, outputs, saves: &[], insets: &[] }
    }

    /// The saves that are behind one of these tokens.
    fn saves_within(&self) -> impl Iterator<Item = &'a Save> + Clone + use<'a> {
        let (past, end) = (self.past, self.past + self.tokens.len());
        self.saves.iter().filter(move |save| past < save.len && save.len <= end)
    }
}

/// The hidden state that a token of a predicting step comes with.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Recalled {
    /// None that is known: zeros.
    Nothing,
    /// That of a token of the model's last step, by number.
    Step(u32),
    /// That of a token of the last predicting step.
    Predicted(u32),
}

/// The ids that tokens of a step can have.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Ids {
    pub vocab: usize,
    pub types: usize,
    /// Elements of a row that a token has instead of an embedding.
    pub width: usize,
}

/// Rows of a step that an adapter is for, and its factor there.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Use {
    pub adapter: u32,
    pub rows: Range<u32>,
    pub scale: f32,
}

/// One token of the step.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Token {
    pub id: u32, // within the vocabulary
    pub ty: u32,
    pub position: u32,
    /// Where it stands for rotary embeddings.
    pub spot: Spot,
    /// Which row it has instead of an embedding, or [`NO_ROW`].
    pub row: u32,
}

/// Of a token that has an embedding.
pub(crate) const NO_ROW: u32 = u32::MAX;

/// What a token sees in one KV class.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Seen {
    /// The first key.
    pub first: u32,
    /// The key after the last, which is its own unless tokens see those behind them.
    pub end: u32,
    /// The first entry of its sequence's page table.
    pub table: u32,
    /// Which page of the sequence that is.
    pub page: u32,
    /// The first row of its attention states.
    pub states: u32,
}

impl Seen {
    /// KV ranges in which it sees keys, by number.
    pub(crate) fn chunks(&self) -> Range<usize> {
        self.first as usize / KV_CHUNK..(self.end as usize).div_ceil(KV_CHUNK)
    }

    /// How many they are.
    pub(crate) fn ranges(&self) -> usize {
        self.chunks().len()
    }

    /// Keys that it sees.
    pub(crate) fn keys(&self) -> u64 {
        u64::from(self.end - self.first)
    }

    /// Keys that tokens of one sequence, which follow each other, see together.
    pub(crate) fn together(tokens: &[Seen]) -> u64 {
        let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else { return 0 };
        u64::from(last.end - first.first)
    }
}

/// The tokens by which a step changes a sequence's state of fixed size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StateRun {
    pub tokens: Range<u32>,
    /// The page that holds the state before, and the one after.
    pub page: PageId,
    /// Whether there is no state yet: the page holds anything.
    pub fresh: bool,
    /// Which of the class's saves are of it.
    pub saves: Range<u32>,
}

impl StateRun {
    /// Runs of its tokens, and the page that the state is copied to behind each, if any.
    pub(crate) fn parts<'a>(
        &'a self,
        class: &'a Class,
    ) -> impl Iterator<Item = (Range<usize>, Option<PageId>)> + 'a {
        let saves = &class.saves[self.saves.start as usize..self.saves.end as usize];
        let ends = saves.iter().map(|(end, page)| (*end, Some(*page)));
        let last = saves.last().map_or(self.tokens.start, |(end, _)| *end);
        let rest = (last < self.tokens.end).then_some((self.tokens.end, None));
        let mut first = self.tokens.start as usize;
        ends.chain(rest).map(move |(end, page)| {
            let tokens = first..end as usize;
            first = tokens.end;
            (tokens, page)
        })
    }
}

/// A step in one class.
#[derive(Debug, Default)]
pub(crate) struct Class {
    /// What every token sees.
    pub seen: Vec<Seen>,
    /// Page tables of all sequences, one after the other.
    pub pages: Vec<PageId>,
    /// (token, KV range) of every row of attention states.
    pub ranges: Vec<(u32, u32)>,
    /// Sequences, in a class of fixed states.
    pub sequences: Vec<StateRun>,
    /// Tokens of the step after which a state is kept (the one behind), and the pages for it.
    pub saves: Vec<(u32, PageId)>,
    /// For every page: the last step that wrote it, and the sequence that did.
    writers: Vec<(u64, u32)>,
}

/// A step's input as a thread holds it on its own stack.
#[derive(Copy, Clone)]
pub(crate) struct Input<'a> {
    pub tokens: &'a [Token],
    pub outputs: &'a [u32],
    pub logits: usize,
    pub tiles: &'a [Range<u32>],
    pub page_runs: &'a [Range<u32>],
    pub classes: &'a [Class],
    pub recalled: &'a [Recalled],
    pub uses: [&'a [Use]; 2],
    rows: &'a [f32],
    width: usize,
}

impl<'a> Input<'a> {
    /// The row that a token has instead of an embedding.
    pub(crate) fn row(&self, token: usize) -> Option<&'a [f32]> {
        let row = self.tokens[token].row;
        (row != NO_ROW).then(|| &self.rows[row as usize * self.width..][..self.width])
    }
}

/// Everything that threads need to know of a step. Reused, so that a step allocates nothing once
/// the vectors have grown.
#[derive(Debug, Default)]
pub(crate) struct StepInput {
    pub tokens: Vec<Token>,
    /// Token index of every row of logits, then of every hidden state.
    pub outputs: Vec<u32>,
    /// How many of them are rows of logits.
    pub logits: usize,
    /// Runs of tokens of one sequence, for attention.
    pub tiles: Vec<Range<u32>>,
    /// Runs of tokens that share a page, for appending.
    pub page_runs: Vec<Range<u32>>,
    pub classes: Vec<Class>,
    /// Of every token, if the step predicts.
    pub recalled: Vec<Recalled>,
    /// What adapters are for among the tokens, and among the outputs; by adapter.
    pub uses: [Vec<Use>; 2],
    /// Rows that some tokens have instead of embeddings, and elements of each.
    rows: Vec<f32>,
    width: usize,
    pub sequences: usize,
    pub single: bool,
    stamp: u64,
}

impl StepInput {
    /// No step, but what products see of one with so many tokens, all of whose logits are wanted.
    pub(crate) fn products(tokens: usize) -> StepInput {
        let outputs = (0..tokens as u32).collect();
        let tokens = vec![Token { id: 0, ty: 0, position: 0, spot: [0; 3], row: NO_ROW }; tokens];
        StepInput { logits: tokens.len(), tokens, outputs, ..StepInput::default() }
    }

    /// For threads.
    pub(crate) fn input(&self) -> Input<'_> {
        Input {
            tokens: &self.tokens,
            outputs: &self.outputs,
            logits: self.logits,
            tiles: &self.tiles,
            page_runs: &self.page_runs,
            classes: &self.classes,
            recalled: &self.recalled,
            uses: self.uses.each_ref().map(Vec::as_slice),
            rows: &self.rows,
            width: self.width,
        }
    }

    /// States the adapters of each sequence: a number of tokens and a set in turn. A factor of zero is none.
    pub(crate) fn adapt<'s>(&mut self, sets: impl Iterator<Item = (usize, &'s [Adapted])>) {
        let mut first = 0;
        for (tokens, set) in sets {
            let own = first..first + tokens as u32;
            first = own.end;
            if own.is_empty() {
                continue;
            }
            for &Adapted { adapter, scale } in set.iter().filter(|one| one.scale != 0.0) {
                self.uses[0].push(Use { adapter, rows: own.clone(), scale });
                let (logits, hidden) = self.outputs.split_at(self.logits);
                for (before, of) in [(0, logits), (logits.len(), hidden)] {
                    let at = |token| (before + of.partition_point(|t| *t < token)) as u32;
                    let rows = at(own.start)..at(own.end);
                    if !rows.is_empty() {
                        self.uses[1].push(Use { adapter, rows, scale });
                    }
                }
            }
        }
        for uses in &mut self.uses {
            uses.sort_unstable_by_key(|one| (one.adapter, one.rows.start));
        }
    }

    /// (Token, KV range) pairs in the class that has most.
    pub(crate) fn ranges(&self) -> usize {
        self.classes.iter().map(|c| c.ranges.len()).max().unwrap_or(0)
    }

    /// Checks `sequences`, whose tokens are of `ids`, and derives the work items; `pages` are those of the classes,
    /// `tile` is the longest query tile.
    pub(crate) fn set<'s>(
        &mut self,
        sequences: impl Iterator<Item = SeqInput<'s>> + Clone,
        ids: Ids,
        classes: &[Keep],
        pages: &[usize],
        tile: usize,
    ) -> Result<(), Error> {
        self.tokens.clear();
        self.outputs.clear();
        self.tiles.clear();
        self.page_runs.clear();
        self.recalled.clear();
        self.uses.iter_mut().for_each(Vec::clear);
        self.rows.clear();
        self.width = ids.width;
        self.single = sequences.clone().all(|s| s.tokens.len() == 1);
        self.sequences = sequences.clone().count();
        self.stamp += 1;
        self.classes.resize_with(classes.len(), Class::default);
        for (at, seq) in sequences.clone().enumerate() {
            if seq.tokens.is_empty() {
                return Err(Error::BadStep(format!("sequence {at} has no tokens")));
            }
            if seq.tables.len() != classes.len() {
                return Err(Error::BadStep(format!(
                    "sequence {at} has page tables for {} KV classes of {}",
                    seq.tables.len(),
                    classes.len()
                )));
            }
            let step = seq.outputs.step();
            if step == 0 || !seq.tokens.len().is_multiple_of(step) {
                let tokens = seq.tokens.len();
                return Err(Error::BadStep(format!(
                    "sequence {at} has {tokens} tokens, of which every {step} give one output"
                )));
            }
            let new = seq.past..seq.past + seq.tokens.len();
            inset::check(seq.insets, at, new, ids.width)?;
        }
        for (c, class) in self.classes.iter_mut().enumerate() {
            class.check(sequences.clone(), c, classes[c], pages[c], self.stamp)?;
            class.set(sequences.clone(), c, classes[c]);
        }
        for seq in sequences.clone() {
            let first = self.tokens.len();
            let mut walk = Walk::new(seq.insets);
            for (i, &id) in seq.tokens.iter().enumerate() {
                let Ids { vocab, types, width } = ids;
                let (t, position) = (self.tokens.len() as u32, seq.past + i);
                let (spot, own) = walk.at(position);
                let (id, ty, row) = match own {
                    None if id as usize >= vocab * types => {
                        return Err(Error::UnknownToken { token: id, vocab });
                    }
                    None => (id as usize % vocab, id as usize / vocab, NO_ROW),
                    Some(own) => {
                        self.rows.extend_from_slice(own);
                        (0, 0, (self.rows.len() / width) as u32 - 1)
                    }
                };
                self.tokens.push(Token {
                    id: id as u32,
                    ty: ty as u32,
                    position: position as u32,
                    spot,
                    row,
                });
                extend_runs(&mut self.tiles, t, i.is_multiple_of(tile));
                extend_runs(&mut self.page_runs, t, i == 0 || position.is_multiple_of(KV_PAGE));
            }
            let wanted = seq.outputs.of(first..self.tokens.len(), false);
            self.outputs.extend(wanted.map(|t| t as u32));
        }
        self.logits = self.outputs.len();
        let mut first = 0;
        for seq in sequences {
            let all = first..first + seq.tokens.len();
            first = all.end;
            let wanted = seq.outputs.of(all, true).step_by(seq.outputs.step());
            self.outputs.extend(wanted.map(|t| t as u32));
        }
        Ok(())
    }
}

impl Class {
    /// Derives what tokens see.
    fn set<'s>(&mut self, sequences: impl Iterator<Item = SeqInput<'s>>, class: usize, keep: Keep) {
        self.seen.clear();
        self.pages.clear();
        self.ranges.clear();
        self.sequences.clear();
        self.saves.clear();
        let mut tokens = 0;
        for seq in sequences {
            if keep == Keep::Fixed {
                let first = tokens;
                tokens += seq.tokens.len() as u32;
                let (page, fresh) = (seq.tables[class].pages[0], seq.past == 0);
                let before = self.saves.len() as u32;
                let to =
                    |save: &Save| Some((first + (save.len - seq.past) as u32, save.pages[class]?));
                self.saves.extend(seq.saves_within().filter_map(to));
                let saves = before..self.saves.len() as u32;
                self.sequences.push(StateRun { tokens: first..tokens, page, fresh, saves });
                continue;
            }
            let own = &seq.tables[class];
            let (table, page) = (self.pages.len() as u32, own.first as u32);
            self.pages.extend_from_slice(&own.pages);
            let len = seq.past + seq.tokens.len();
            for position in seq.past..len {
                let (mut first, mut end) =
                    (keep.first_seen(position), keep.end_seen(position, len));
                if let Some(inset) = inset::within(seq.insets, position) {
                    match keep {
                        Keep::Runs => {
                            let run = inset.run(position);
                            (first, end) = (run.start, run.end);
                        }
                        Keep::All if inset.together == Together::Everywhere => {
                            end = inset.range().end;
                        }
                        Keep::Window(_) if inset.together != Together::No => {
                            end = inset.range().end;
                        }
                        _ => {}
                    }
                }
                let (first, end, states) = (first as u32, end as u32, self.ranges.len() as u32);
                let seen = Seen { first, end, table, page, states };
                let t = self.seen.len() as u32;
                self.ranges.extend(seen.chunks().map(|c| (t, c as u32)));
                self.seen.push(seen);
            }
        }
    }

    /// Checks the page tables of a class of `pages` pages.
    fn check<'s>(
        &mut self,
        sequences: impl Iterator<Item = SeqInput<'s>> + Clone,
        class: usize,
        keep: Keep,
        pages: usize,
        stamp: u64,
    ) -> Result<(), Error> {
        self.writers.resize(pages, (0, 0));
        for (at, seq) in sequences.clone().enumerate() {
            let table = &seq.tables[class];
            let need = seq.past + seq.tokens.len();
            let written = match keep {
                Keep::Fixed => {
                    if table.pages.len() != 1 {
                        let states = table.pages.len();
                        return Err(Error::BadStep(format!(
                            "sequence {at} has {states} states but needs one"
                        )));
                    }
                    0..1
                }
                Keep::Text { .. } | Keep::Runs if seq.past > 0 => {
                    return Err(Error::BadStep(format!(
                        "sequence {at} goes on after {} tokens, which had to see those behind them",
                        seq.past
                    )));
                }
                Keep::All | Keep::Window(_) | Keep::Chunk(_) | Keep::Text { .. } | Keep::Runs => {
                    let room = table.room();
                    if room < need {
                        return Err(Error::BadStep(format!(
                            "sequence {at} has pages for {room} tokens but needs {need}"
                        )));
                    }
                    let (from, seen) = (table.first * KV_PAGE, keep.first_seen(seq.past));
                    if from > seen {
                        return Err(Error::BadStep(format!(
                            "sequence {at} has pages from token {from} but sees token {seen}"
                        )));
                    }
                    seq.past / KV_PAGE - table.first..need.div_ceil(KV_PAGE) - table.first
                }
            };
            if let Some(page) = table.pages.iter().find(|p| p.0 as usize >= pages) {
                return Err(Error::BadStep(format!(
                    "sequence {at} names page {} of {pages}",
                    page.0
                )));
            }
            let saved = seq.saves_within().filter_map(|save| save.pages[class]);
            if let Some(page) = saved.clone().find(|p| p.0 as usize >= pages) {
                return Err(Error::BadStep(format!(
                    "sequence {at} is kept in page {} of {pages}",
                    page.0
                )));
            }
            for page in table.pages[written].iter().copied().chain(saved) {
                let writer = &mut self.writers[page.0 as usize];
                if writer.0 == stamp {
                    return Err(shared(at, page));
                }
                *writer = (stamp, at as u32);
            }
        }
        // A page that one sequence writes must be in no other's table, or threads would race.
        for (at, seq) in sequences.enumerate() {
            let foreign = |p: &&PageId| {
                let (written, writer) = self.writers[p.0 as usize];
                written == stamp && writer != at as u32
            };
            if let Some(page) = seq.tables[class].pages.iter().find(foreign) {
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
mod tests;
