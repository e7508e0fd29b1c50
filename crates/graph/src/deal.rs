//! Who multiplies what: the tiles of a matrix in one place, dealt over the threads that use it.
//!
//! Tiles are packed once, and who multiplies them is a table beside them. It depends on the level (which
//! threads take part) and, through its schedule, on the number of tokens; it is made when the model is
//! loaded or rearranged, so that a step only looks up which rule its number of tokens has.

use crate::error::{Error, ScheduleFault};
use crate::load::Packed;
use crate::schedule::{Schedule, Schedules};
use crate::shape::MatrixShape;
use kernels::{Block, How, Kernels};
use std::ops::Range;

/// A matrix in one place.
#[derive(Clone)]
pub(crate) struct Shard {
    pub parts: Vec<Packed>,
    paired: bool,
    levels: Vec<Vec<Rule>>, // by tokens; the last, which is no schedule's, is for all that are left
    deals: Vec<Vec<usize>>, // bounds in tiles (of the pair, when paired), one for each number of shares
    pack: Vec<usize>,       // the same for those who pack
}

/// How products of up to so many tokens are multiplied.
#[derive(Clone)]
struct Rule {
    tokens: usize,
    schedule: Schedule,
    deal: usize, // index
}

/// How one product is multiplied.
#[derive(Copy, Clone)]
pub(crate) struct Dealt<'a> {
    pub schedule: Schedule,
    /// Where the shares of the tiles end, one for each part of the rows: `[parts + 1]`.
    pub bounds: &'a [usize],
}

impl Shard {
    /// A matrix of these parts, to be packed by `packers` threads.
    pub(crate) fn new(parts: Vec<Packed>, paired: bool, packers: usize) -> Shard {
        let pack = deal(&parts, paired, packers);
        Shard { parts, paired, levels: Vec::new(), deals: Vec::new(), pack }
    }

    /// Makes the tables for teams of as many threads at each level as `shape` says, and of `segments`
    /// segments of columns.
    pub(crate) fn arrange(
        &mut self,
        shapes: impl Iterator<Item = Option<MatrixShape>>,
        teams: &[usize],
        segments: usize,
        schedules: &Schedules,
        kernels: &Kernels,
    ) -> Result<(), Error> {
        (self.levels, self.deals) = (Vec::new(), Vec::new());
        for (shape, &threads) in shapes.zip(teams) {
            let mut rules = Vec::new();
            let listed = shape.as_ref().map_or(&[][..], |shape| schedules.of(shape));
            let usual = Schedule { how: schedules.usual, ..Schedule::default() };
            let usual = (usize::MAX, usual);
            for &(tokens, schedule) in listed.iter().chain([&usual]) {
                let splits = schedule.grid.splits;
                if let Some(shape) = &shape {
                    let bad = |fault| Error::BadSchedule { shape: shape.clone(), tokens, fault };
                    schedule.check_kernel(shape, kernels).map_err(bad)?;
                    if splits > segments {
                        return Err(bad(ScheduleFault::TooFewSegments { splits, segments }));
                    }
                }
                let bounds = self.deal_over(schedule.grid.rows(threads));
                let known = self.deals.iter().position(|own| own.len() == bounds.len());
                let deal = known.unwrap_or_else(|| {
                    self.deals.push(bounds);
                    self.deals.len() - 1
                });
                rules.push(Rule { tokens, schedule, deal });
            }
            self.levels.push(rules);
        }
        Ok(())
    }

    /// Bounds of `shares` shares.
    pub(crate) fn deal_over(&self, shares: usize) -> Vec<usize> {
        deal(&self.parts, self.paired, shares)
    }

    /// How a product of `tokens` tokens is multiplied by the threads of a level ([`crate::Plan::level`]).
    pub(crate) fn dealt(&self, level: usize, tokens: usize) -> Dealt<'_> {
        let rule = self.levels[level].iter().find(|rule| tokens <= rule.tokens);
        let rule = rule.expect("the last is for any number");
        Dealt { schedule: rule.schedule, bounds: &self.deals[rule.deal] }
    }

    /// The shares of the threads of a level where no schedule says otherwise.
    pub(crate) fn evenly(&self, level: usize) -> &[usize] {
        let rule = self.levels[level].last().expect("never empty");
        &self.deals[rule.deal]
    }

    /// The same for all numbers of tokens: each is for up to so many, ascending.
    pub(crate) fn rules(&self, level: usize) -> impl Iterator<Item = (usize, Dealt<'_>)> {
        self.levels[level].iter().map(|Rule { tokens, schedule, deal }| {
            (*tokens, Dealt { schedule: *schedule, bounds: &self.deals[*deal] })
        })
    }

    /// The tiles of part `part` in share `share` of the bounds `bounds`.
    pub(crate) fn tiles(&self, bounds: &[usize], share: usize, part: usize) -> Range<usize> {
        self.tiles_of(bounds[share]..bounds[share + 1], part)
    }

    /// The tiles of part `part` among `all`, which are numbered as bounds are: through all parts of the matrix, or, for
    /// a pair, alike in both.
    pub(crate) fn tiles_of(&self, all: Range<usize>, part: usize) -> Range<usize> {
        if self.paired {
            return all;
        }
        let before: usize = self.parts[..part].iter().map(|p| p.tiles).sum();
        let clamp = |t: usize| t.saturating_sub(before).min(self.parts[part].tiles);
        clamp(all.start)..clamp(all.end)
    }

    /// What goes together in a product of `tokens` tokens: good for the kernels of all parts.
    pub(crate) fn block(
        &self,
        how: How,
        schedules: &Schedules,
        kernels: &Kernels,
        tokens: usize,
    ) -> Block {
        let block = |part: &Packed| kernels.block(schedules.resolve(how, part.ty), part.ty, tokens);
        let parts = self.parts.iter().map(block);
        parts.reduce(Block::max).expect("a matrix has parts")
    }

    /// How many threads pack it.
    pub(crate) fn packers(&self) -> usize {
        self.pack.len() - 1
    }

    /// The tiles of a part that the packer `rank` packs.
    pub(crate) fn packed_by(&self, rank: usize, part: usize) -> Range<usize> {
        self.tiles(&self.pack, rank, part)
    }
}

/// Contiguous shares of tiles with about equal bytes: bounds, `[shares + 1]`.
fn deal(parts: &[Packed], paired: bool, shares: usize) -> Vec<usize> {
    let sizes: Vec<usize> = if paired {
        let pair: usize = parts.iter().map(Packed::tile_bytes).sum();
        vec![pair; parts[0].tiles]
    } else {
        parts.iter().flat_map(|p| std::iter::repeat_n(p.tile_bytes(), p.tiles)).collect()
    };
    let total: usize = sizes.iter().sum();
    let mut bounds = vec![0];
    let (mut at, mut sum) = (0, 0);
    for share in 1..shares {
        // A tile goes to the share in which its middle lies.
        while at < sizes.len() && (sum + sizes[at] / 2) * shares < total * share {
            sum += sizes[at];
            at += 1;
        }
        bounds.push(at);
    }
    bounds.push(sizes.len());
    bounds
}
