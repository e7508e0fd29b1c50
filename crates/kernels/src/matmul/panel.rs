//! Panels: weights and activations laid out anew for many tokens.
//!
//! A register tile over packed weights unpacks them for the few tokens that it has sums for, which with four
//! tokens costs as much as their scales, and follows a pointer for each token. For many tokens, some columns
//! of a tile are unpacked once, bytes and scales as the sums want them, into a panel that stays in the first
//! cache; activations of the same columns are copied so that those of a register tile lie one behind the
//! other. Then every dot product is a single instruction, which takes its activation from memory by one
//! pointer. Tokens pass over the panel, and their sums wait in memory for the next columns (packing, as in
//! Goto and van de Geijn, *Anatomy of high-performance matrix multiplication*, 2008, section 4). Sums are
//! those of the type, step by step, so the bits are the same.

#[cfg(target_arch = "aarch64")]
pub(crate) mod pairs;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod signed;
#[cfg(target_arch = "x86_64")]
pub(crate) mod tiles;
mod walk;

use std::ops::Range;

use super::family::MicroKernel;
use super::quants::{Head, Packed};
use super::steps::start_doubled;
use super::{Q8Blocks, accumulate, add_mins, dot_pair, start};
use crate::TILE_ROWS;
use crate::q8::Q8Block;
use crate::simd::Dot;
use crate::views::{Rows, RowsMut};

pub(crate) use walk::{KindTiles, Panels, State, TILES, Work};

/// What a sub-block of 32 columns of a tile is multiplied by.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(crate) struct Sub {
    /// The scale of every row; of the first half, where halves have their own.
    pub(super) scales: [f32; TILE_ROWS],
    /// The minima, or the scales of the second half.
    pub(super) others: [f32; TILE_ROWS],
    /// Weights with their offset, four of each row together.
    pub(super) quads: [[u8; 4 * TILE_ROWS]; 8],
}

impl Sub {
    const EMPTY: Self =
        Self { scales: [0.0; TILE_ROWS], others: [0.0; TILE_ROWS], quads: [[0; 64]; 8] };

    /// Puts the scales of a group of rows.
    #[inline(always)]
    pub(super) fn set_scales<D: Dot>(&mut self, of: Head<'_, D, 1>, [scales]: [D::F; 1]) {
        of.d.store(scales, &mut self.scales, of.groups[0]);
    }

    /// Likewise, into the other place.
    #[inline(always)]
    pub(super) fn set_others<D: Dot>(&mut self, of: Head<'_, D, 1>, [others]: [D::F; 1]) {
        of.d.store(others, &mut self.others, of.groups[0]);
    }
}

/// Sub-blocks in a panel: 512 columns, 10 KiB.
const SUBS: usize = 16;

/// Most tokens that pass over a panel before it is made anew.
pub(crate) const TOKENS: usize = 96;

/// Most tokens of a register tile: a register of AMX has so many rows.
pub(crate) const MOST: usize = 16;

/// The same where sums are in vectors.
pub(crate) const MOST_VECTORS: usize = 12;

/// Tokens of a register tile of two vectors: as many sums of a block as 16 registers hold beside the weights.
const NARROW_TOKENS: usize = 4;

/// The same where a dot is one instruction, which needs no register besides. Zen 5, AVX-VNNI, 2026-11 (`--bench
/// families -- avxvnni`), 6 tokens over 4, in shares of the peak: from 24 tokens on Q4_0 and Q8_0 1.01 to 1.04, up to 16
/// 0.98 to 1.01.
const FUSED_TOKENS: usize = 6;

/// Most tokens of a register tile of weights of five bits where four products are added first: with 8, the compiler
/// spills sums even of 32 registers. Zen 5, AVX-512 without VNNI, 2026-11 (`--bench families -- avx512bw`), 96 tokens by
/// 6 over by 8: MXFP4 286 over 186 G/s, Q5_K 288 over 187.
const FOURS_TOKENS: usize = 6;

/// Puts sub-blocks of a packed piece into a panel.
///
/// # Safety
///
/// The CPU has the instruction set that it is compiled for.
pub(crate) type Unpack = unsafe fn(&[u8], Range<usize>, &mut [Sub]);

/// How a type's sums are made from a panel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PanelKind {
    /// Nibbles with an offset of 8, one scale.
    Eight,
    /// Nibbles, one scale and a minimum.
    Minimum,
    /// Six bits with an offset of 32, a scale for each half.
    Halves,
    /// Bytes with an offset of 128, one scale.
    Biased,
    /// The same, of which a file has the place in a table.
    Uneven,
    /// Five bits with an offset of 16, one scale.
    Sixteen,
    /// Five bits, one scale and a minimum.
    FiveMinimum,
}

impl PanelKind {
    pub(super) const ALL: [Self; 7] = [
        Self::Eight,
        Self::Minimum,
        Self::Halves,
        Self::Biased,
        Self::Uneven,
        Self::Sixteen,
        Self::FiveMinimum,
    ];

    /// Whether weights have five bits, of which fewer products fit 16 than of four.
    const fn five(self) -> bool {
        matches!(self, Self::Sixteen | Self::FiveMinimum)
    }

    /// Registers of a register tile: sums of the block and of all, and those of a first half; weights, of four
    /// quads where their products are added together; their scales, and what is at hand.
    const fn registers<D: Dot>(self, tokens: usize) -> usize {
        let sums = if matches!(self, Self::Halves) { 3 } else { 2 };
        let weights = if self.five() && !D::FUSED { 4 } else { 1 };
        sums * tokens + 3 + weights
    }

    /// Vectors of rows in a register tile: where registers are few and sums need no more than one for a block,
    /// both of a tile, so that an activation is loaded once for both. Their sums of all columns are then in
    /// memory.
    pub(crate) const fn vectors<D: Dot>(self) -> usize {
        match self {
            Self::Eight | Self::Minimum | Self::Biased | Self::Uneven if D::GROUPS == 2 => 2,
            Self::Sixteen | Self::FiveMinimum if D::GROUPS == 2 && D::FUSED => 2,
            _ => 1,
        }
    }

    /// The most tokens of a register tile.
    pub(crate) const fn most<D: Dot>(self) -> usize {
        if self.vectors::<D>() > 1 {
            return if D::FUSED { FUSED_TOKENS } else { NARROW_TOKENS };
        }
        let fours = self.five() && !D::FUSED;
        let mut tokens = if fours { FOURS_TOKENS } else { MOST_VECTORS };
        while tokens > 1 && self.registers::<D>(tokens) > D::REGISTERS {
            tokens -= 1;
        }
        tokens
    }

    /// The member of the family that works with panels.
    pub(crate) const fn member<D: Dot>(self) -> MicroKernel {
        let (vectors, tokens) = (self.vectors::<D>() as u8, self.most::<D>() as u8);
        MicroKernel { vectors, tokens, unroll: 1, panel: true }
    }
}

/// How sums are made: a [`PanelKind`] as a type.
pub(crate) trait Kind {
    /// Adds the products of a sub-block.
    fn add<D: Dot, const T: usize, const N: usize>(
        sub: Unpacked<'_, D, N>,
        acts: Q8Blocks<'_, T>,
        acc: &mut [[D::F; N]; T],
    );
}

pub(crate) struct Eight;
pub(crate) struct Minimum;
pub(crate) struct Halves;
pub(crate) struct Biased;
pub(crate) type Uneven = Biased;
/// Five bits, with a minimum or with an offset.
pub(crate) struct Five<const MINIMUM: bool>;
pub(crate) type Sixteen = Five<false>;
pub(crate) type FiveMinimum = Five<true>;

/// The rows of some groups in a sub-block.
#[derive(Clone, Copy)]
pub(crate) struct Unpacked<'a, D, const N: usize> {
    d: D,
    sub: &'a Sub,
    group: usize,
}

impl<D: Dot, const N: usize> Unpacked<'_, D, N> {
    #[inline(always)]
    fn scales(&self) -> [D::F; N] {
        self.floats(&self.sub.scales)
    }

    #[inline(always)]
    fn others(&self) -> [D::F; N] {
        self.floats(&self.sub.others)
    }

    #[inline(always)]
    fn floats(&self, of: &[f32; TILE_ROWS]) -> [D::F; N] {
        let mut floats = [self.d.splat(0.0); N];
        for n in 0..N {
            floats[n] = self.d.load(of, self.group + n);
        }
        floats
    }

    #[inline(always)]
    fn quad(&self, j: usize) -> [D::W; N] {
        let mut quads = [self.d.splat_w(0); N];
        for n in 0..N {
            quads[n] = self.d.load_w(&self.sub.quads[j], self.group + n);
        }
        quads
    }

    /// The integer sums of nibbles.
    #[inline(always)]
    fn nibbles<const T: usize>(
        self,
        acts: Q8Blocks<'_, T>,
        start: impl Fn(&Q8Block) -> i32,
    ) -> [[D::I; N]; T] {
        let d = self.d;
        let mut acc = [[d.start_nibbles(0); N]; T];
        for t in 0..T {
            acc[t] = [d.start_nibbles(start(&acts[t])); N];
        }
        for j in 0..8 {
            let w = self.quad(j);
            for t in 0..T {
                for n in 0..N {
                    acc[t][n] = d.dot_nibbles(acc[t][n], w[n], acts[t].quad(j));
                }
            }
        }
        let mut sums = [[d.splat_i(0); N]; T];
        for t in 0..T {
            for n in 0..N {
                sums[t][n] = d.end_nibbles(acc[t][n], start(&acts[t]));
            }
        }
        sums
    }
}

impl Kind for Eight {
    #[inline(always)]
    fn add<D: Dot, const T: usize, const N: usize>(
        sub: Unpacked<'_, D, N>,
        acts: Q8Blocks<'_, T>,
        acc: &mut [[D::F; N]; T],
    ) {
        accumulate(sub.d, sub.nibbles(acts, |act| act.neg8), sub.scales(), acts, acc);
    }
}

impl Kind for Minimum {
    #[inline(always)]
    fn add<D: Dot, const T: usize, const N: usize>(
        sub: Unpacked<'_, D, N>,
        acts: Q8Blocks<'_, T>,
        acc: &mut [[D::F; N]; T],
    ) {
        accumulate(sub.d, sub.nibbles(acts, |_| 0), sub.scales(), acts, acc);
        add_mins(sub.d, sub.others(), acts, acc);
    }
}

impl Kind for Biased {
    #[inline(always)]
    fn add<D: Dot, const T: usize, const N: usize>(
        sub: Unpacked<'_, D, N>,
        acts: Q8Blocks<'_, T>,
        acc: &mut [[D::F; N]; T],
    ) {
        let d = sub.d;
        let mut sums = [[d.splat_i(0); N]; T];
        for t in 0..T {
            sums[t] = [d.start_biased(acts[t].neg128); N];
        }
        for j in 0..8 {
            let w = sub.quad(j);
            for t in 0..T {
                for n in 0..N {
                    sums[t][n] = d.dot_biased(sums[t][n], w[n], acts[t].quad(j));
                }
            }
        }
        accumulate(d, sums, sub.scales(), acts, acc);
    }
}

impl<const MINIMUM: bool> Kind for Five<MINIMUM> {
    #[inline(always)]
    fn add<D: Dot, const T: usize, const N: usize>(
        sub: Unpacked<'_, D, N>,
        acts: Q8Blocks<'_, T>,
        acc: &mut [[D::F; N]; T],
    ) {
        let d = sub.d;
        let mut sums = match MINIMUM {
            true => [[d.splat_i(0); N]; T],
            false => start_doubled::<D, T, N, 3>(d, acts, |act| act.neg128),
        };
        if D::FUSED {
            for j in 0..8 {
                let w = sub.quad(j);
                for t in 0..T {
                    for n in 0..N {
                        sums[t][n] = d.dot(sums[t][n], w[n], acts[t].quad(j));
                    }
                }
            }
        } else {
            for q in [0, 4] {
                let four = [sub.quad(q), sub.quad(q + 1), sub.quad(q + 2), sub.quad(q + 3)];
                for t in 0..T {
                    let act = &acts[t];
                    let quads = [act.quad(q), act.quad(q + 1), act.quad(q + 2), act.quad(q + 3)];
                    for n in 0..N {
                        let w = [four[0][n], four[1][n], four[2][n], four[3][n]];
                        sums[t][n] = d.dot_four(sums[t][n], w, quads);
                    }
                }
            }
        }
        accumulate(d, sums, sub.scales(), acts, acc);
        if MINIMUM {
            add_mins(d, sub.others(), acts, acc);
        }
    }
}

impl Halves {
    /// The integer sums of half `SIDE`.
    #[inline(always)]
    fn half<D: Dot, const T: usize, const N: usize, const SIDE: usize>(
        sub: Unpacked<'_, D, N>,
        acts: Q8Blocks<'_, T>,
    ) -> [[D::I; N]; T] {
        let mut sums = start(sub.d, acts, |act| act.neg32[SIDE]);
        for two in 0..2 {
            let q = 4 * SIDE + 2 * two;
            let (first, second) = (sub.quad(q), sub.quad(q + 1));
            let mut w = [[first[0]; 2]; N];
            for n in 0..N {
                w[n] = [first[n], second[n]];
            }
            dot_pair(sub.d, &w, acts, [q, q + 1], &mut sums);
        }
        sums
    }
}

impl Kind for Halves {
    #[inline(always)]
    fn add<D: Dot, const T: usize, const N: usize>(
        sub: Unpacked<'_, D, N>,
        acts: Q8Blocks<'_, T>,
        acc: &mut [[D::F; N]; T],
    ) {
        let d = sub.d;
        let (sums, scales) = (Self::half::<D, T, N, 0>(sub, acts), sub.scales());
        let mut low = [[d.splat(0.0); N]; T];
        for t in 0..T {
            for n in 0..N {
                low[t][n] = d.mul(d.to_f(sums[t][n]), scales[n]);
            }
        }
        let (high, scales) = (Self::half::<D, T, N, 1>(sub, acts), sub.others());
        for t in 0..T {
            let act = d.splat(acts[t].d);
            for n in 0..N {
                let both = d.fma(d.to_f(high[t][n]), scales[n], low[t][n]);
                acc[t][n] = d.fma(both, act, acc[t][n]);
            }
        }
    }
}

/// Copies some blocks of the tokens of a register tile, `to` for the first block of each, then for the next.
#[inline(always)]
pub(crate) fn gather(
    acts: Rows<'_, Q8Block>,
    tokens: Range<usize>,
    first: usize,
    to: &mut [Q8Block],
) {
    let (start, count) = (tokens.start, tokens.len());
    let len = to.len() / count;
    for t in tokens {
        let from = &acts.row(t)[first..][..len];
        for (to, from) in to[t - start..].iter_mut().step_by(count).zip(from) {
            *to = *from;
        }
    }
}

/// [`gather`] with an instruction set.
///
/// # Safety
///
/// The CPU has it.
pub(crate) type Gather = unsafe fn(Rows<'_, Q8Block>, Range<usize>, usize, &mut [Q8Block]);

/// Copies the sums of some tiles, for each those of all tokens, to the tokens' rows.
///
/// Some tiles of some tokens at a time: sums of a token alone are kilobytes apart, which no prefetcher follows.
#[inline(always)]
pub(crate) fn spread<D: Dot>(
    d: D,
    sums: &[[f32; TILE_ROWS]],
    mut out: RowsMut<'_, f32>,
    tiles: Range<usize>,
) {
    const SIDE: usize = 8;
    let tokens = out.rows();
    for token in (0..tokens).step_by(SIDE) {
        for first in tiles.clone().step_by(SIDE) {
            let some = first..tiles.end.min(first + SIDE);
            let sums = &sums[(first - tiles.start) * tokens..];
            for t in token..tokens.min(token + SIDE) {
                let row = &mut out.row_mut(t).as_chunks_mut::<TILE_ROWS>().0[some.clone()];
                for (to, from) in row.iter_mut().zip(sums[t..].iter().step_by(tokens)) {
                    for group in 0..D::GROUPS {
                        d.store(d.load(from, group), to, group);
                    }
                }
            }
        }
    }
}

/// [`spread`] with an instruction set.
///
/// # Safety
///
/// The CPU has it.
pub(crate) type Spread = unsafe fn(&[[f32; TILE_ROWS]], RowsMut<'_, f32>, Range<usize>);

/// What asks for the weights that will be unpacked next: a part of their lines with every sub-block.
#[derive(Clone, Copy)]
pub(crate) struct Ahead {
    /// Where they begin.
    pub(super) at: *const u8,
    /// Their lines.
    pub(super) lines: usize,
    /// The pass over the panel and how many there are: each asks for its share.
    pub(super) pass: usize,
    pub(super) passes: usize,
}

impl Ahead {
    /// Asks for what goes with sub-block `b` of `len`. It may lie beyond the last tile, which nobody will
    /// mind.
    #[inline(always)]
    fn fetch<D: Dot>(self, d: D, b: usize, len: usize) {
        let mut line = self.pass * len + b;
        while line < self.lines {
            d.prefetch_second(self.at.wrapping_add(64 * line));
            line += self.passes * len;
        }
    }
}

/// A register tile over a panel.
#[derive(Clone, Copy)]
pub(crate) struct Pass<'a> {
    /// The sub-blocks.
    pub(super) panel: &'a [Sub],
    /// The first group of rows.
    pub(super) group: usize,
    /// The blocks of all its tokens for the first sub-block, then those for the next.
    pub(super) acts: &'a [Q8Block],
    /// The pieces that the sub-blocks are of.
    pub(super) runs: &'a [Run],
    /// Where the sums of its tokens are in their level.
    pub(super) at: usize,
    pub(super) ahead: Option<Ahead>,
}

/// Sub-blocks of a panel that are of the same piece.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    /// How many.
    pub(super) subs: usize,
    /// The level that the piece is on.
    pub(super) level: usize,
    /// Whether the piece begins here.
    pub(super) begin: bool,
    /// Additions of the sums on the levels below, where the piece ends here.
    pub(super) folds: usize,
}

impl Run {
    const NONE: Self = Self { subs: 0, level: 0, begin: true, folds: 0 };

    /// The sums that the piece has yet.
    #[inline(always)]
    fn begin<D: Dot, const T: usize, const N: usize>(
        self,
        d: D,
        group: usize,
        at: usize,
        sums: &mut [[f32; TILE_ROWS]],
    ) -> [[D::F; N]; T] {
        let mut acc = [[d.splat(0.0); N]; T];
        if !self.begin {
            let own = tokens_of::<T>(sums, self.level, at);
            for t in 0..T {
                for n in 0..N {
                    acc[t][n] = d.load(&own[t], group + n);
                }
            }
        }
        acc
    }

    /// Adds what the levels below have where the piece ends, and keeps the sums.
    #[inline(always)]
    fn end<D: Dot, const T: usize, const N: usize>(
        self,
        d: D,
        group: usize,
        at: usize,
        mut acc: [[D::F; N]; T],
        sums: &mut [[f32; TILE_ROWS]],
    ) {
        for fold in 1..=self.folds {
            let below = tokens_of::<T>(sums, self.level - fold, at);
            for t in 0..T {
                for n in 0..N {
                    acc[t][n] = d.add(d.load(&below[t], group + n), acc[t][n]);
                }
            }
        }
        let own = tokens_of::<T>(sums, self.level - self.folds, at);
        for t in 0..T {
            for n in 0..N {
                d.store(acc[t][n], &mut own[t], group + n);
            }
        }
    }
}

/// Sums of tiles and tokens on a level: those of the pieces at hand wait on ever higher ones.
const LEVEL: usize = TILES * TOKENS;

/// Adds a register tile's products to the sums of its tokens, which come level after level.
///
/// # Safety
///
/// The CPU has the instruction set that it is compiled for.
pub(crate) type RegisterTile = unsafe fn(Pass<'_>, &mut [[f32; TILE_ROWS]]);

/// A register tile of `T` tokens and `N` vectors of rows.
#[inline(always)]
pub(crate) fn step<D: Dot, K: Kind, const T: usize, const N: usize>(
    d: D,
    pass: Pass<'_>,
    sums: &mut [[f32; TILE_ROWS]],
) {
    let Pass { panel, group, acts, runs, at, ahead } = pass;
    let acts = acts.as_chunks::<T>().0;
    assert!(acts.len() == panel.len(), "activations of {} sub-blocks", acts.len());
    let mut blocks = panel.iter().zip(acts).enumerate();
    for run in runs {
        let mut acc = run.begin::<D, T, N>(d, group, at, sums);
        for (b, (sub, acts)) in blocks.by_ref().take(run.subs) {
            if let Some(ahead) = ahead {
                ahead.fetch(d, b, panel.len());
            }
            K::add::<D, T, N>(Unpacked { d, sub, group }, Q8Blocks::of(acts), &mut acc);
        }
        run.end(d, group, at, acc, sums);
    }
}

/// The sums of `T` tokens, from `at` on, on a level.
#[inline(always)]
fn tokens_of<const T: usize>(
    sums: &mut [[f32; TILE_ROWS]],
    level: usize,
    at: usize,
) -> &mut [[f32; TILE_ROWS]; T] {
    sums[level * LEVEL + at..].first_chunk_mut().expect("sums of every token")
}

/// Nibbles as [`super::dot_nibbles`] has them.
#[inline(always)]
pub(super) fn unpack_nibbles<D: Dot>(packed: Packed<'_, D, 1>, to: &mut Sub) {
    let Head { d, groups: [group], .. } = packed.head;
    let mask = d.splat_w(0x0f);
    for j in 0..4 {
        let both = packed.vector(0, j);
        d.store_w(d.and(both, mask), &mut to.quads[j], group);
        d.store_w(d.and(d.shr4(both), mask), &mut to.quads[4 + j], group);
    }
}
