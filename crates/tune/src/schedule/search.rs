//! The search for one matrix and one number of tokens: fast start, fine-tuning, prefetch.
//!
//! 1. *Fast start*, for each micro-kernel under the default's grid: the slice begins as the register tile
//!    and doubles along each dimension as long as that pays.
//! 2. *Fine-tuning*, for each micro-kernel, those of the fastest starts first, under every grid: the slice
//!    of the fast start, as far as the grid has room for it, grows along the dimension that gains most,
//!    until nothing gains. It may double or become a part's even share: of 30 tiles in 6 parts, slices
//!    of 5 are the best and those of 4 are worse than those of 2, so doubling alone would not get there.
//! 3. *Prefetch* distances for the best, whose slice then grows once more: until here all was timed with
//!    the distance that was best with fewer tokens, or the default's.
//! 4. Where there is noise, those that seem about as fast as the best meet it again.
//!
//! A step pays when it gains more than repetitions of the same differ. Nothing here is a claim: what is
//! found meets the default in the finals. Source: Zhao, Li, Wu, *Sandwich* (2026), section 5.

use super::session::{Bench, Session, Stop};
use super::shape::{Kernel, Problem, grids};
use crate::tuner::noise::{FEWEST, faster, median};
use graph::{Grid, Schedule, Slice};
use kernels::How;
use std::collections::BTreeMap;

/// Under a grid whose first time is so many times that of the best, slices are not grown: they bring
/// less.
const HOPELESS: f64 = 1.5;

/// Those that meet the best again, with it, and how often.
const CONTENDERS: usize = 3;
const AGAIN: usize = 3;

/// Why a count's search ends early.
pub(super) enum Halt<E> {
    /// Its share of the time is used up; what was found is used.
    Enough,
    Stopped(Stop<E>),
}

impl<E> From<Stop<E>> for Halt<E> {
    fn from(stop: Stop<E>) -> Self {
        Halt::Stopped(stop)
    }
}

type Timed<B> = Result<f64, Halt<<B as Bench>::Error>>;

/// What is searched at one count.
pub(super) struct At<'s, 'a, B: Bench> {
    session: &'s mut Session<'a, B>,
    problem: &'a Problem,
    tokens: usize,
    default: Schedule,
    /// The default's times.
    pub(super) plain: [f64; 2],
    /// Prefetch distances to try, and that of what is timed before.
    distances: &'s [usize],
    ahead: usize,
    /// Evaluations that the finals need.
    reserve: usize,
    /// The time of each schedule, so that none is timed twice.
    known: BTreeMap<Schedule, f64>,
}

impl<'s, 'a, B: Bench> At<'s, 'a, B> {
    /// Begins with the default.
    pub(super) fn new(
        session: &'s mut Session<'a, B>,
        distances: &'s [usize],
        reserve: usize,
    ) -> Result<Self, Stop<B::Error>> {
        let (problem, tokens) = (session.progress.problem, session.progress.tokens);
        let default = session.bench.default(problem, tokens);
        let plain = session.default(&default)?;
        #[allow(
            clippy::mutable_key_type,
            reason = "kernels are ordered by names, which do not change"
        )]
        let known = BTreeMap::from([(default, median(&plain))]);
        let ahead = default.how.ahead;
        Ok(At { session, problem, tokens, default, plain, distances, ahead, reserve, known })
    }

    pub(super) fn into_default(self) -> Schedule {
        self.default
    }

    fn time(&mut self, schedule: &Schedule) -> Timed<B> {
        if let Some(&seconds) = self.known.get(schedule) {
            return Ok(seconds);
        }
        if self.session.enough(self.reserve) {
            return Err(Halt::Enough);
        }
        let seconds = self.session.time(schedule)?;
        self.known.insert(*schedule, seconds);
        Ok(seconds)
    }

    /// The fastest; the default unless something is faster.
    fn best(&self) -> (&Schedule, f64) {
        let default = (&self.default, self.known[&self.default]);
        self.known.iter().fold(
            default,
            |best, (schedule, &seconds)| {
                if seconds < best.1 { (schedule, seconds) } else { best }
            },
        )
    }

    /// Whether `seconds` is less than `than` by more than noise.
    fn pays(&self, seconds: f64, than: f64) -> bool {
        seconds < than * (1.0 - self.session.noise())
    }

    /// The whole search among these micro-kernels. `like` was the best with fewer tokens,
    /// and can be run with these.
    pub(super) fn search(
        &mut self,
        kernels: &[Kernel],
        like: Option<&Schedule>,
    ) -> Result<(), Halt<B::Error>> {
        let grids = grids(self.problem, self.tokens);
        if let Some(like) = like {
            self.time(like)?;
            self.ahead = like.how.ahead;
        }
        self.session.progress.doing = "fast start";
        let first = match grids.iter().find(|&grid| *grid == self.default.grid) {
            Some(&grid) => grid,
            // The default leaves threads out, or splits as the problem does not allow.
            None => grids[grids.len() - 1],
        };
        let mut starts = vec![];
        for kernel in kernels {
            let start = self.fast_start(kernel, first)?;
            // Doubling ends where noise hides what a step gains, so that the default's slice may be far.
            let usual = self.holding(kernel, self.default.slice.unwrap_or(kernel.tile), first);
            let usual = (self.time(&self.of(kernel, usual, first))?, usual);
            let (seconds, slice) = if usual.0 < start.0 { usual } else { start };
            starts.push((seconds, kernel, slice));
        }
        starts.sort_by(|a, b| a.0.total_cmp(&b.0));
        self.session.progress.doing = "grids";
        for (_, kernel, slice) in starts {
            for &grid in &grids {
                // The default's grid may have had no room for a register tile.
                let slice = self.holding(kernel, slice, grid);
                self.grow(self.of(kernel, slice, grid))?;
            }
        }
        self.session.progress.doing = "prefetch";
        let Problem { shape, splits, .. } = self.problem;
        let best = *self.best().0;
        // The default, if that is it, may be one that the search cannot vary.
        if kernels.iter().any(|kernel| kernel.kernel == best.how.kernel)
            && splits.contains(&best.grid.splits)
            && best.fits(shape, self.tokens).is_ok()
        {
            for &ahead in self.distances {
                self.time(&Schedule { how: How { ahead, ..best.how }, ..best })?;
            }
            self.grow(*self.best().0)?;
        }
        self.again()
    }

    fn room(&self, grid: Grid) -> Slice {
        self.problem.shape.share(grid, self.tokens)
    }

    /// A slice that holds a register tile of the kernel at least, as far as there is room.
    fn holding(&self, kernel: &Kernel, slice: Slice, grid: Grid) -> Slice {
        let (Slice { tiles, tokens }, tile) = (slice, kernel.tile);
        Slice { tiles: tiles.max(tile.tiles), tokens: tokens.max(tile.tokens) }
            .within(self.room(grid))
    }

    fn of(&self, kernel: &Kernel, slice: Slice, grid: Grid) -> Schedule {
        let how = How { kernel: kernel.kernel, ahead: self.ahead };
        Schedule { how, slice: Some(slice), grid }
    }

    /// The slice to which a register tile grows by doubling each dimension, and its time.
    fn fast_start(&mut self, kernel: &Kernel, grid: Grid) -> Result<(f64, Slice), Halt<B::Error>> {
        let most = self.room(grid);
        let mut slice = kernel.tile.within(most);
        let mut seconds = self.time(&self.of(kernel, slice, grid))?;
        let mut growing = [true; 2];
        while growing != [false; 2] {
            for (dimension, grows) in growing.iter_mut().enumerate().filter(|(_, grows)| **grows) {
                let larger = doubled(slice, dimension, most);
                let then = self.time(&self.of(kernel, larger, grid))?;
                *grows = larger != slice && self.pays(then, seconds);
                if *grows {
                    (slice, seconds) = (larger, then);
                }
            }
        }
        Ok((seconds, slice))
    }

    /// Grows a schedule's slice along the dimension that gains most.
    fn grow(&mut self, mut schedule: Schedule) -> Result<(), Halt<B::Error>> {
        let most = self.room(schedule.grid);
        let mut seconds = self.time(&schedule)?;
        while seconds <= HOPELESS * self.best().1 {
            let mut gained = None;
            let Some(slice) = schedule.slice else { break };
            let doubled = [0, 1].map(|dimension| doubled(slice, dimension, most));
            let even =
                [Slice { tiles: most.tiles, ..slice }, Slice { tokens: most.tokens, ..slice }];
            let larger = |to: &Slice| to.tiles * to.tokens > slice.tiles * slice.tokens;
            for larger in doubled.into_iter().chain(even).filter(larger) {
                let then = self.time(&Schedule { slice: Some(larger), ..schedule })?;
                let least = gained.map_or(seconds, |(least, _)| least);
                if self.pays(then, seconds) && then < least {
                    gained = Some((then, larger));
                }
            }
            match gained {
                Some((then, larger)) => (seconds, schedule.slice) = (then, Some(larger)),
                None => break,
            }
        }
        Ok(())
    }

    /// Whether the schedule of fewer tokens is still the best among its neighbours: other grids, slices
    /// half and twice as large, other micro-kernels. It is unless one is surely faster when both are
    /// timed again in turns: of so many neighbours noise always makes one look faster.
    pub(super) fn holds(
        &mut self,
        fixed: &Schedule,
        kernels: &[Kernel],
    ) -> Result<bool, Halt<B::Error>> {
        self.session.progress.doing = "check";
        let seconds = self.time(fixed)?;
        let mut others = vec![];
        for grid in grids(self.problem, self.tokens) {
            let slice = fixed.slice.map(|slice| slice.within(self.room(grid)));
            others.push(Schedule { grid, slice, ..*fixed });
        }
        if let Some(slice) = fixed.slice {
            let Slice { tiles, tokens } = slice;
            let half = [
                Slice { tiles: tiles.div_ceil(2), tokens },
                Slice { tiles, tokens: tokens.div_ceil(2) },
            ];
            let twice = [0, 1].map(|dimension| doubled(slice, dimension, self.room(fixed.grid)));
            let slices = half.into_iter().chain(twice);
            others.extend(slices.map(|slice| Schedule { slice: Some(slice), ..*fixed }));
        }
        for kernel in kernels {
            let slice = fixed.slice.map(|slice| self.holding(kernel, slice, fixed.grid));
            let how = How { kernel: kernel.kernel, ..fixed.how };
            others.push(Schedule { how, slice, ..*fixed });
        }
        let mut best: Option<(f64, Schedule)> = None;
        for other in others {
            let then = self.time(&other)?;
            let least = best.as_ref().map_or(seconds, |(least, _)| *least);
            if self.pays(then, seconds) && then < least {
                best = Some((then, other));
            }
        }
        let Some((_, best)) = best else { return Ok(true) };
        if self.session.enough(self.reserve + 2 * FEWEST) {
            return Err(Halt::Enough);
        }
        let series = self.session.series(&[&best, fixed], FEWEST)?;
        Ok(!faster(&series[0], &series[1]))
    }

    /// Times those again that noise may have made look worse than the best.
    fn again(&mut self) -> Result<(), Halt<B::Error>> {
        let (_, least) = self.best();
        let close = |seconds: f64| seconds <= least * (1.0 + 2.0 * self.session.noise());
        let mut close: Vec<_> = self
            .known
            .iter()
            .filter(|&(schedule, &seconds)| *schedule != self.default && close(seconds))
            .map(|(schedule, &seconds)| (seconds, *schedule))
            .collect();
        close.sort_by(|a, b| a.0.total_cmp(&b.0));
        close.truncate(CONTENDERS);
        if self.session.noise() == 0.0 || close.len() < 2 {
            return Ok(());
        }
        self.session.progress.doing = "contenders";
        if self.session.enough(self.reserve + AGAIN * close.len()) {
            return Err(Halt::Enough);
        }
        let schedules: Vec<_> = close.iter().map(|(_, schedule)| schedule).collect();
        let series = self.session.series(&schedules, AGAIN)?;
        for (schedule, times) in schedules.into_iter().zip(series) {
            self.known.insert(*schedule, median(&times));
        }
        // What was left out was slower by the first look, and is not to win by having but that.
        let worst = close.iter().map(|(_, s)| self.known[s]).fold(0.0, f64::max);
        let met = |schedule: &Schedule| close.iter().any(|(_, s)| s == schedule);
        for (schedule, seconds) in &mut self.known {
            if !met(schedule) && *schedule != self.default {
                *seconds = seconds.max(worst);
            }
        }
        Ok(())
    }

    /// The best that was found. What was the best with fewer tokens remains so unless something gains
    /// more than noise, so that a table has few rows and schedules settle.
    pub(super) fn winner(&self, like: Option<&Schedule>) -> Schedule {
        let (best, seconds) = self.best();
        let like = like
            .filter(|&like| self.known.get(like).is_some_and(|&then| !self.pays(seconds, then)));
        match like {
            Some(like) if *best != self.default => *like,
            _ => *best,
        }
    }
}

/// A slice that is twice as large along one dimension, as far as there is room.
fn doubled(slice: Slice, dimension: usize, most: Slice) -> Slice {
    let Slice { tiles, tokens } = slice;
    match dimension {
        0 => Slice { tiles: (2 * tiles).min(most.tiles).max(tiles), tokens },
        _ => Slice { tiles, tokens: (2 * tokens).min(most.tokens).max(tokens) },
    }
}
