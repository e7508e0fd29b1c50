//! A step as every stage takes it: tokens, and the pages of their sequences.
//!
//! The front keeps the books of pages for all stages, since pages of one number hold the same tokens everywhere. So
//! the other stages know nothing of sequences, sharing or snapshots: an order names the pages. Of a table only what is
//! new since the last order with its slot goes over the link ([`Tables`]).

use super::ledger::Limits;
use super::tables::{News, Tables};
use super::wire::{Put, Take, WireError};
use graph::{Executor, Inset, Outputs, PageCopy, PageId, PageTable, Save, SeqInput, Together};

/// A step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// They count from 0 on.
    pub number: u64,
    /// Pages that are copied first.
    pub copies: Vec<PageCopy>,
    pub sequences: Vec<Part>,
}

/// What a sequence has in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Which of the sequences that there can be.
    pub slot: usize,
    pub tokens: Vec<u32>,
    /// Tokens before these.
    pub past: usize,
    /// By class of the whole model.
    pub tables: Vec<PageTable>,
    pub saves: Vec<Save>,
}

/// An order as it goes over a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    number: u64,
    copies: Vec<PageCopy>,
    sequences: Vec<ToldPart>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ToldPart {
    slot: usize,
    tokens: Vec<u32>,
    past: usize,
    tables: Vec<News>,
    saves: Vec<Save>,
}

/// Of a class that has no page for a snapshot.
const NO_PAGE: u32 = u32::MAX;

impl Told {
    /// What is to be told of an order to who knows `tables`, which it knows then.
    pub(super) fn of(order: &Order, tables: &mut Tables) -> Told {
        let part = |part: &Part| ToldPart {
            slot: part.slot,
            tokens: part.tokens.clone(),
            past: part.past,
            tables: tables.tell(part.slot, &part.tables),
            saves: part.saves.clone(),
        };
        let sequences = order.sequences.iter().map(part).collect();
        Told { number: order.number, copies: order.copies.clone(), sequences }
    }

    /// The order, for the reader of `tables`, if it is within the limits.
    pub(super) fn order(self, tables: &mut Tables, limits: &Limits) -> Result<Order, &'static str> {
        if self.sequences.len() > limits.sequences {
            return Err("more sequences than there may be");
        }
        let mut sequences: Vec<Part> = Vec::with_capacity(self.sequences.len());
        let mut seen = vec![false; limits.sequences];
        for ToldPart { slot, tokens, past, tables: news, saves } in self.sequences {
            match seen.get_mut(slot) {
                None => return Err("a sequence that there cannot be"),
                Some(true) => return Err("a sequence twice"),
                Some(seen) => *seen = true,
            }
            if past + tokens.len() > limits.context {
                return Err("a sequence that is longer than the context");
            }
            if news.len() != limits.classes {
                return Err("pages of more or fewer classes than there are");
            }
            let tables = tables.hear(slot, news, limits.pages)?;
            sequences.push(Part { slot, tokens, past, tables, saves });
        }
        Ok(Order { number: self.number, copies: self.copies, sequences })
    }

    pub(super) fn put(&self, put: &mut Put) {
        put.u64(self.number).u32(self.copies.len() as u32);
        for copy in &self.copies {
            put.u32(copy.class as u32).u32(copy.from.0).u32(copy.to.0);
        }
        put.u32(self.sequences.len() as u32);
        for part in &self.sequences {
            put.u32(part.slot as u32).list(part.tokens.iter().copied()).u32(part.past as u32);
            put.u32(part.tables.len() as u32);
            for News { first, kept, pages } in &part.tables {
                put.u32(*first as u32).u32(*kept as u32).list(pages.iter().map(|page| page.0));
            }
            put.u32(part.saves.len() as u32);
            for save in &part.saves {
                let pages = save.pages.iter().map(|page| page.map_or(NO_PAGE, |page| page.0));
                put.u32(save.len as u32).list(pages);
            }
        }
    }

    pub(super) fn take(take: &mut Take<'_>) -> Result<Told, WireError> {
        let number = take.u64()?;
        let mut copies = Vec::new();
        for _ in 0..take.count(12)? {
            let (class, from, to) = (take.u32()? as usize, take.u32()?, take.u32()?);
            copies.push(PageCopy { class, from: PageId(from), to: PageId(to) });
        }
        let mut sequences = Vec::new();
        for _ in 0..take.count(20)? {
            let slot = take.u32()? as usize;
            let (tokens, past) = (take.list()?, take.u32()? as usize);
            let (mut tables, mut saves) = (Vec::new(), Vec::new());
            for _ in 0..take.count(12)? {
                let (first, kept) = (take.u32()? as usize, take.u32()? as usize);
                let pages = take.list()?.into_iter().map(PageId).collect();
                tables.push(News { first, kept, pages });
            }
            for _ in 0..take.count(8)? {
                let len = take.u32()? as usize;
                let page = |page| Some(PageId(page)).filter(|page| page.0 != NO_PAGE);
                saves.push(Save { len, pages: take.list()?.into_iter().map(page).collect() });
            }
            sequences.push(ToldPart { slot, tokens, past, tables, saves });
        }
        Ok(Told { number, copies, sequences })
    }

    #[cfg(test)]
    pub(super) fn of_test() -> Told {
        let table = News { first: 2, kept: 7, pages: vec![PageId(3), PageId(9)] };
        let save = Save { len: 96, pages: vec![None, Some(PageId(4))] };
        let (tokens, tables) = (vec![1, 2, 3], vec![table]);
        let part = ToldPart { slot: 1, tokens, past: 64, tables, saves: vec![save] };
        let copies = vec![PageCopy { class: 0, from: PageId(1), to: PageId(2) }];
        let none = ToldPart { slot: 0, saves: vec![], ..part.clone() };
        Told { number: 12, copies, sequences: vec![part, none] }
    }
}

/// Rows of the residual stream that the stage before has given for a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GivenRows<'r> {
    /// `[tokens, width]`; none at the first stage.
    pub rows: Option<&'r [f32]>,
    /// Elements of a row.
    pub width: usize,
}

impl Order {
    /// Rows that go from stage to stage.
    pub(crate) fn tokens(&self) -> usize {
        self.sequences.iter().map(|part| part.tokens.len()).sum()
    }

    /// Bytes that it takes in memory, about.
    pub(super) fn bytes(&self) -> usize {
        let part = |part: &Part| {
            let pages = part.tables.iter().map(|table| table.pages.len() * size_of::<PageId>());
            let tables = part.tables.len() * size_of::<PageTable>() + pages.sum::<usize>();
            let save = |save: &Save| size_of_val(save) + size_of_val(&*save.pages);
            let saves: usize = part.saves.iter().map(save).sum();
            size_of_val(part) + size_of_val(&*part.tokens) + tables + saves
        };
        size_of_val(&*self.copies) + self.sequences.iter().map(part).sum::<usize>()
    }

    /// Takes the step: with the rows of the stage before in the places of tokens, if there is one. `classes` are those of
    /// the whole model that this part has, and `outputs` what is wanted of each sequence.
    ///
    /// # Errors
    /// When the order contradicts itself or names pages that are not there.
    pub(crate) fn run(
        &self,
        executor: &mut Executor,
        classes: &[usize],
        given: GivenRows<'_>,
        outputs: impl Fn(usize) -> Outputs,
    ) -> Result<(), graph::Error> {
        let GivenRows { rows, width } = given;
        let bad = |what: &str| graph::Error::BadStep(what.to_owned());
        if rows.is_some_and(|rows| rows.len() != self.tokens() * width) {
            return Err(bad("rows of the stage before are not those of the step"));
        }
        let local = |copy: &PageCopy| {
            let class = classes.iter().position(|of| *of == copy.class)?;
            Some(PageCopy { class, ..*copy })
        };
        let copies: Vec<PageCopy> = self.copies.iter().filter_map(local).collect();
        if !copies.is_empty() {
            executor.copy_pages(&copies)?;
        }
        let mut own: Vec<(Vec<PageTable>, Vec<Save>, Option<Inset<'_>>)> = Vec::new();
        let mut first = 0;
        for part in &self.sequences {
            let of = |class: &usize| part.tables.get(*class).cloned();
            let tables = classes.iter().map(of).collect::<Option<Vec<_>>>();
            let tables = tables.ok_or_else(|| bad("a sequence lacks pages of a class"))?;
            let save = |save: &Save| {
                let pages = classes.iter().map(|class| save.pages.get(*class).copied().flatten());
                Save { len: save.len, pages: pages.collect() }
            };
            let len = part.tokens.len();
            let inset = rows.filter(|_| len > 0).map(|rows| Inset {
                at: part.past,
                len,
                rows: &rows[first * width..(first + len) * width],
                spots: &[],
                span: len,
                together: Together::No,
                runs: &[],
            });
            first += len;
            own.push((tables, part.saves.iter().map(save).collect(), inset));
        }
        let inputs = self.sequences.iter().zip(&own).enumerate();
        let inputs = inputs.map(|(at, (part, (tables, saves, inset)))| SeqInput {
            tokens: &part.tokens,
            past: part.past,
            tables,
            outputs: outputs(at),
            saves,
            insets: inset.as_slice(),
        });
        let inputs: Vec<SeqInput<'_>> = inputs.collect();
        executor.step(inputs.iter().copied())?;
        Ok(())
    }
}
