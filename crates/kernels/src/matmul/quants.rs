//! What all types of quantised weights share: groups of blocks, the walk over them.
//!
//! A packed tile is a row of groups. A group covers 32 columns or several times as many, and holds its
//! scales (and minima) first, so many together that every vector is aligned, then the values of each 32
//! columns. The last group of a tile may be cut short; it keeps the place of all scales.

use super::panel::{PanelKind, Sub};
use super::parts::{Fetch, Part, check_acts, check_parts, fetch, groups, part, slices};
use super::{ACT_BLOCK, Q8Blocks, Sums, Tile};
use crate::q8::Q8Block;
use crate::simd::Dot;
use std::ops::Range;

/// A type of quantised weights. Its file has blocks of [`BLOCK_COLS`](Quants::BLOCK_COLS) columns, of
/// which one group holds a whole number or a whole part.
pub(super) trait Quants {
    /// Columns of a block in the file.
    const BLOCK_COLS: usize;
    /// Sub-blocks of 32 columns of a group: at least those of a block of the file.
    const SUBS: usize;
    /// Bytes of a group's scales, of 16 rows.
    const HEAD: usize;
    /// Bytes of the values of a sub-block, of 16 rows.
    const SUB: usize;
    /// As [`Tile::FAMILY`].
    const FAMILY: bool = false;
    /// Whether a group is summed by itself, without its scale, which is multiplied by last.
    const SCALE_LAST: bool = false;

    /// Puts a block of row `row`, in the file's form, into its places: it begins with sub-block `sub` of
    /// `group`.
    fn put(group: &mut [u8], sub: usize, row: usize, block: &[u8]);

    /// Gives it back.
    fn get(group: &[u8], sub: usize, row: usize, block: &mut [u8]);

    /// A scale and a minimum that hold for a whole group, where a type has them: [`Packed::units`].
    #[inline(always)]
    fn units<D: Dot, const N: usize>(head: Head<'_, D, N>) -> [[D::F; N]; 2] {
        [[head.d.splat(0.0); N]; 2]
    }

    /// Adds what the minima of a whole group give, where that is not [`Quants::add`]'s work: those of
    /// activation blocks `range`.
    ///
    /// # Safety
    ///
    /// `range` is of blocks of every element of `acts`.
    #[inline(always)]
    unsafe fn add_minima<D: Dot, const T: usize, const N: usize>(
        _head: Head<'_, D, N>,
        _minimum: [D::F; N],
        _acts: [&[Q8Block]; T],
        _range: Range<usize>,
        _acc: &mut [[D::F; N]; T],
    ) {
    }

    /// As [`Tile::PANEL`].
    const PANEL: Option<PanelKind> = None;

    /// Puts a sub-block into its place in a panel.
    fn unpack<D: Dot>(_packed: Packed<'_, D, 1>, _to: &mut Sub) {
        unreachable!("the type has no panels")
    }

    /// Adds the products of a sub-block and the activations of the same columns.
    fn add<D: Dot, const T: usize, const N: usize>(
        packed: Packed<'_, D, N>,
        acts: Q8Blocks<'_, T>,
        acc: &mut [[D::F; N]; T],
    );
}

/// All scales of a group, of each part.
#[derive(Clone, Copy)]
pub(super) struct Head<'a, D, const N: usize> {
    pub(super) d: D,
    pub(super) bytes: [&'a [u8]; N],
    /// Which rows of the 16: [`Part::group`].
    pub(super) groups: [usize; N],
}

impl<D: Dot, const N: usize> Head<'_, D, N> {
    /// The half floats of 16 rows at `at`, widened.
    #[inline(always)]
    pub(super) fn half_floats(&self, at: usize) -> [D::F; N] {
        let mut wide = [self.d.splat(0.0); N];
        for n in 0..N {
            wide[n] = self.d.load_f16(part(self.bytes[n], at), self.groups[n]);
        }
        wide
    }
}

/// One sub-block of a group, of each part.
#[derive(Clone, Copy)]
pub(super) struct Packed<'a, D: Dot, const N: usize> {
    pub(super) head: Head<'a, D, N>,
    /// What [`Quants::units`] made of it.
    pub(super) units: [[D::F; N]; 2],
    /// The place of the sub-block in the group.
    pub(super) sub: usize,
    /// Its values.
    pub(super) quants: [&'a [u8]; N],
}

impl<D: Dot, const N: usize> Packed<'_, D, N> {
    /// Vector `v` of the values of part `n`.
    #[inline(always)]
    pub(super) fn vector(&self, n: usize, v: usize) -> D::W {
        self.head.d.load_w(part(self.quants[n], 64 * v), self.head.groups[n])
    }
}

/// Sub-blocks of a block of the file.
const fn subs<K: Quants>() -> usize {
    K::BLOCK_COLS / ACT_BLOCK
}

const fn group_bytes<K: Quants>() -> usize {
    K::HEAD + K::SUBS * K::SUB
}

/// The group that block `b` is in, with what follows it, and the sub-block that it begins with.
const fn place<K: Quants>(b: usize) -> (usize, usize) {
    let sub = b * subs::<K>();
    (sub / K::SUBS * group_bytes::<K>(), sub % K::SUBS)
}

impl<K: Quants> Tile for K {
    type Act = Q8Block;

    const ACT_COLS: usize = ACT_BLOCK;
    const BLOCK_COLS: usize = K::BLOCK_COLS;
    const SUMS: Sums = Sums::Integers;
    const FAMILY: bool = <K as Quants>::FAMILY;
    const PANEL: Option<PanelKind> = <K as Quants>::PANEL;

    fn bytes(blocks: usize) -> usize {
        let subs = blocks * subs::<K>();
        subs.div_ceil(K::SUBS) * K::HEAD + subs * K::SUB
    }

    fn put(tile: &mut [u8], b: usize, row: usize, block: &[u8]) {
        let (at, sub) = place::<K>(b);
        K::put(&mut tile[at..], sub, row, block);
    }

    fn get(tile: &[u8], b: usize, row: usize, block: &mut [u8]) {
        let (at, sub) = place::<K>(b);
        K::get(&tile[at..], sub, row, block);
    }

    #[inline(always)]
    fn dot<D: Dot, const T: usize, const N: usize, const U: usize>(
        d: D,
        parts: [Part<'_>; N],
        acts: [&[Q8Block]; T],
        next: Fetch,
    ) -> [[D::F; N]; T] {
        let blocks = acts[0].len();
        check_acts(acts, blocks);
        check_parts(parts, <Self as Tile>::bytes(blocks / subs::<K>()));
        let groups = groups(parts);
        let mut acc = [[d.splat(0.0); N]; T];
        let (all, mut group) = (blocks.div_ceil(K::SUBS), 0);
        // SAFETY: groups below `all` begin below `blocks`, the length of all activations.
        unsafe {
            if U == 2 && K::SUBS <= 2 {
                while group + 2 <= all {
                    Group::new::<K>(parts, groups, group)
                        .dot::<D, K, T, 1>(d, acts, &mut acc, next);
                    group += 1;
                    Group::new::<K>(parts, groups, group)
                        .dot::<D, K, T, 1>(d, acts, &mut acc, next);
                    group += 1;
                }
            }
            while group < all {
                Group::new::<K>(parts, groups, group).dot::<D, K, T, U>(d, acts, &mut acc, next);
                group += 1;
            }
        }
        acc
    }

    #[inline(always)]
    fn unpack<D: Dot>(d: D, tile: &[u8], subs: Range<usize>, panel: &mut [Sub]) {
        for (i, to) in subs.zip(panel) {
            let (at, sub) = (i / K::SUBS * group_bytes::<K>(), i % K::SUBS);
            let bytes = [&tile[at..][..K::HEAD]];
            let quants = [&tile[at + K::HEAD + sub * K::SUB..][..K::SUB]];
            for group in 0..D::GROUPS {
                let head = Head { d, bytes, groups: [group] };
                let units = K::units(head);
                <K as Quants>::unpack(Packed { head, units, sub, quants }, to);
            }
        }
    }
}

/// The same group of each part.
#[derive(Clone, Copy)]
struct Group<'a, const N: usize> {
    parts: [Part<'a>; N],
    groups: [usize; N],
    /// Where it begins in its tile.
    at: usize,
    /// Its first activation block.
    first: usize,
}

impl<'a, const N: usize> Group<'a, N> {
    #[inline(always)]
    fn new<K: Quants>(parts: [Part<'a>; N], groups: [usize; N], group: usize) -> Self {
        Self { parts, groups, at: group * group_bytes::<K>(), first: group * K::SUBS }
    }

    /// Adds the products of the group; `U` sub-blocks in a turn of the loop, where it is one.
    ///
    /// # Safety
    ///
    /// All of `acts` are equally long, and longer than `first`.
    #[inline(always)]
    unsafe fn dot<D: Dot, K: Quants, const T: usize, const U: usize>(
        self,
        d: D,
        acts: [&[Q8Block]; T],
        acc: &mut [[D::F; N]; T],
        next: Fetch,
    ) {
        let units = K::units(self.head::<D, K>(d));
        let subs = K::SUBS.min(acts[0].len() - self.first);
        let mut sums = if K::SCALE_LAST { [[d.splat(0.0); N]; T] } else { *acc };
        // SAFETY: `first + subs` is at most the length of all activations.
        unsafe {
            if K::SUBS <= 4 {
                // Not as a loop: the compiler would leave it one.
                self.fetch::<D, K, T>(d, 0..K::SUBS, next);
                self.add::<D, K, T>(d, 0, units, acts, &mut sums);
                if subs > 1 {
                    self.add::<D, K, T>(d, 1, units, acts, &mut sums);
                }
                if K::SUBS > 2 && subs > 2 {
                    self.add::<D, K, T>(d, 2, units, acts, &mut sums);
                }
                if K::SUBS > 3 && subs > 3 {
                    self.add::<D, K, T>(d, 3, units, acts, &mut sums);
                }
            } else {
                let mut sub = 0;
                if U == 2 {
                    while sub + 2 <= subs {
                        self.fetch::<D, K, T>(d, sub..sub + 2, next);
                        self.add::<D, K, T>(d, sub, units, acts, &mut sums);
                        self.add::<D, K, T>(d, sub + 1, units, acts, &mut sums);
                        sub += 2;
                    }
                }
                while sub < subs {
                    self.fetch::<D, K, T>(d, sub..sub + 1, next);
                    self.add::<D, K, T>(d, sub, units, acts, &mut sums);
                    sub += 1;
                }
            }
        }
        if K::SCALE_LAST {
            for t in 0..T {
                for n in 0..N {
                    acc[t][n] = d.fma(sums[t][n], units[0][n], acc[t][n]);
                }
            }
        } else {
            *acc = sums;
        }
        let minima = self.first..self.first + subs;
        // SAFETY: as above.
        unsafe {
            K::add_minima(self.head::<D, K>(d), units[1], acts, minima, acc);
        }
    }

    #[inline(always)]
    fn head<D: Dot, K: Quants>(&self, d: D) -> Head<'a, D, N> {
        Head { d, bytes: slices(self.parts, self.at, K::HEAD), groups: self.groups }
    }

    /// Asks for what is to come while sub-blocks `subs` are multiplied.
    #[inline(always)]
    fn fetch<D: Dot, K: Quants, const T: usize>(&self, d: D, subs: Range<usize>, next: Fetch) {
        let lines = group_bytes::<K>().div_ceil(64 * K::SUBS);
        let at = self.at + subs.start * lines * 64;
        fetch::<D, T, N>(d, self.parts, at, subs.len() * lines, next);
    }

    /// Adds the products of a sub-block.
    ///
    /// # Safety
    ///
    /// `first + sub` is below the length of every element of `acts`.
    #[inline(always)]
    unsafe fn add<D: Dot, K: Quants, const T: usize>(
        self,
        d: D,
        sub: usize,
        units: [[D::F; N]; 2],
        acts: [&[Q8Block]; T],
        acc: &mut [[D::F; N]; T],
    ) {
        // Anew, as registers are few: handed on from group to sub-block, it cost Q6_K 8 % more instructions
        // (four tokens, AVX2, callgrind, November 2026).
        let head = self.head::<D, K>(d);
        let quants = slices(self.parts, self.at + K::HEAD + sub * K::SUB, K::SUB);
        // SAFETY: the caller's contract.
        let acts = unsafe { Q8Blocks::new(acts, self.first + sub) };
        K::add(Packed { head, units, sub, quants }, acts, acc);
    }
}

/// Puts runs of four bytes of row `row` into vectors of four bytes of each row, one run after the other.
pub(super) fn put_quads(packed: &mut [u8], row: usize, bytes: &[u8]) {
    for (vector, quad) in packed.as_chunks_mut::<64>().0.iter_mut().zip(bytes.as_chunks::<4>().0) {
        vector.as_chunks_mut::<4>().0[row] = *quad;
    }
}

/// The reverse.
pub(super) fn get_quads(packed: &[u8], row: usize, bytes: &mut [u8]) {
    for (vector, quad) in packed.as_chunks::<64>().0.iter().zip(bytes.as_chunks_mut::<4>().0) {
        *quad = vector.as_chunks::<4>().0[row];
    }
}

/// Puts a half float of row `row` at `at`, among those of 16 rows.
pub(super) fn put_half(packed: &mut [u8], at: usize, row: usize, half: &[u8]) {
    packed[at + 2 * row..][..2].copy_from_slice(&half[..2]);
}

/// The reverse.
pub(super) fn get_half(packed: &[u8], at: usize, row: usize, half: &mut [u8]) {
    half[..2].copy_from_slice(part::<2>(packed, at + 2 * row));
}
