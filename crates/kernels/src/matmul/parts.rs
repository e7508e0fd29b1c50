//! Where packed weights lie, how they are brought near, and safe ways to their bytes.

use crate::cpu::cpu;
use crate::simd::Dot;
use crate::views::Rows;

/// Which weights to come are fetched while others are multiplied.
#[derive(Clone, Copy)]
pub(crate) enum Fetch {
    /// Those `ahead` bytes further: a tile that is passed once comes from memory as fast as it is multiplied.
    /// In two stages they come to the second cache, and to the first from half as far.
    ///
    /// Not two cases: with four in all the compiler jumps by a table, and a Zen 5 reads 0.95 times as fast
    /// (`--bench families -- avx512vnni q4_0`, 1 by 1, 4 KiB ahead, 2026-11).
    Stream { ahead: usize, stages: bool },
    /// Every `step`th line of the tile that follows, from line `first` on, into the second cache: a
    /// tile that is passed `step` times has that much time for its successor.
    Successor { first: usize, step: usize },
    /// None: another pass does it.
    Nothing,
}

impl Fetch {
    /// What a tile that is passed once fetches on this CPU; nothing where `ahead` is 0.
    pub(super) fn once(ahead: usize) -> Self {
        match ahead {
            0 => Fetch::Nothing,
            _ => Fetch::Stream { ahead, stages: cpu().stages },
        }
    }
}

/// Packed tiles of one matrix that lie `stride` bytes apart.
#[derive(Clone, Copy, Debug)]
pub struct Tiles<'a> {
    bytes: &'a [u8],
    count: usize,
    len: usize,
    stride: usize,
}

impl<'a> Tiles<'a> {
    /// The tiles of `len` bytes at `bytes[0]`, `bytes[stride]`, ...
    ///
    /// # Panics
    ///
    /// If they do not fit in `bytes`, or overlap.
    pub fn new(bytes: &'a [u8], count: usize, len: usize, stride: usize) -> Self {
        let fits = count == 0
            || len <= bytes.len() && len <= stride && (bytes.len() - len) / stride >= count - 1;
        assert!(fits, "{count} tiles of {len} at a stride of {stride} in {}", bytes.len());
        Self { bytes, count, len, stride }
    }

    /// One tile.
    pub fn one(tile: &'a [u8]) -> Self {
        Self { bytes: tile, count: 1, len: tile.len(), stride: tile.len() }
    }

    /// Number of tiles.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of a tile.
    pub(crate) fn tile_len(&self) -> usize {
        self.len
    }

    /// Tile `i`.
    ///
    /// # Panics
    ///
    /// If it lies beyond the bytes.
    pub fn tile(&self, i: usize) -> &'a [u8] {
        &self.bytes[i * self.stride..][..self.len]
    }

    /// Byte `at` of tile `i`; it may lie beyond both.
    pub(super) fn place(&self, i: usize, at: usize) -> *const u8 {
        self.bytes.as_ptr().wrapping_add(i * self.stride + at)
    }

    /// Group `group` of tile `i`, where `together` tiles are multiplied at once.
    pub(super) fn part(&self, i: usize, group: usize, together: usize) -> Part<'a> {
        let tile = self.tile(i);
        let skip = (together - 1) * self.stride;
        Part { tile, group, left: self.stride, skip, next: together * self.stride }
    }
}

/// As many rows of a tile as a register has lanes: group `group` of the 16.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(super) tile: &'a [u8],
    pub(super) group: usize,
    /// Bytes from the start of `tile` to that of the next tile.
    pub(super) left: usize,
    /// Bytes from there to the tile that will be multiplied in this one's place.
    skip: usize,
    /// Bytes from any place in this tile to the same place in that one.
    next: usize,
}

/// Asks for what is to come while `lines` cache lines at `at` of each part are multiplied. It may lie
/// beyond the last tile, which nobody will mind.
///
/// Where a tile goes by several register tiles, two cases are left out for `T` tokens, as every case costs
/// registers and instructions of the loop that it is in: a successor, which [`Family::multiply`] does not ask
/// for there, and the two stages of several tokens, which then are one.
///
/// [`Family::multiply`]: super::walk::Family::multiply
#[inline(always)]
pub(super) fn fetch<D: Dot, const T: usize, const N: usize>(
    d: D,
    parts: [Part<'_>; N],
    at: usize,
    lines: usize,
    what: Fetch,
) {
    for n in 0..N {
        let Part { tile, left, skip, next, .. } = parts[n];
        let place = |ahead: usize| {
            let ahead = at + ahead;
            tile.as_ptr().wrapping_add(if ahead >= left { ahead + skip } else { ahead })
        };
        match what {
            Fetch::Stream { ahead, stages } => {
                let stages = stages && (D::GROUPS == 1 || T == 1);
                let (far, near) = (place(ahead), place(if stages { ahead / 2 } else { ahead }));
                // Line by line: all lines of one stage and then all of the other cost 4 % of what a core of a Xeon
                // with AMX reads. So written, the compiler keeps the order but in register tiles of four vectors.
                for line in 0..lines {
                    if stages {
                        d.prefetch_second(far.wrapping_add(64 * line));
                    }
                    d.prefetch(near.wrapping_add(64 * line));
                }
            }
            Fetch::Successor { first, step } if D::GROUPS == 1 => {
                let mut line = first;
                while line < lines {
                    d.prefetch_second(tile.as_ptr().wrapping_add(at + next + 64 * line));
                    line += step;
                }
            }
            Fetch::Successor { .. } | Fetch::Nothing => {}
        }
    }
}

/// Rows `t..t + T`. Here and below, arrays are filled by loops: what takes a closure is not always
/// inlined, and then arrays and sums go through memory.
#[inline(always)]
pub(super) fn rows<'a, A, const T: usize>(acts: Rows<'a, A>, t: usize) -> [&'a [A]; T] {
    let mut rows = [acts.row(t); T];
    for i in 1..T {
        rows[i] = acts.row(t + i);
    }
    rows
}

/// The group of each part.
#[inline(always)]
pub(super) fn groups<const N: usize>(parts: [Part<'_>; N]) -> [usize; N] {
    let mut groups = [0; N];
    for n in 0..N {
        groups[n] = parts[n].group;
    }
    groups
}

/// The `len` bytes at `at` of each part's tile.
#[inline(always)]
pub(super) fn slices<'a, const N: usize>(
    parts: [Part<'a>; N],
    at: usize,
    len: usize,
) -> [&'a [u8]; N] {
    let mut slices = [&parts[0].tile[at..][..len]; N];
    for n in 1..N {
        slices[n] = &parts[n].tile[at..][..len];
    }
    slices
}

/// The `LEN` bytes at `at` of each.
#[inline(always)]
pub(super) fn within<B: AsRef<[u8]> + ?Sized, const LEN: usize, const N: usize>(
    of: [&B; N],
    at: usize,
) -> [&[u8; LEN]; N] {
    let mut all = [part(of[0].as_ref(), at); N];
    for n in 1..N {
        all[n] = part(of[n].as_ref(), at);
    }
    all
}

/// The `N` bytes at `at`; with constants this costs nothing.
#[inline(always)]
pub(super) fn part<const N: usize>(bytes: &[u8], at: usize) -> &[u8; N] {
    bytes[at..].first_chunk().expect("parts lie within their block")
}

/// Panics unless `acts` all have `blocks` elements: what makes [`block`] sound.
#[inline(always)]
pub(super) fn check_acts<A, const T: usize>(acts: [&[A]; T], blocks: usize) {
    for act in acts {
        assert!(act.len() == blocks, "activations of {} blocks, weights of {blocks}", act.len());
    }
}

/// Panics unless the tiles of all `parts` have `bytes`.
#[inline(always)]
pub(super) fn check_parts<const N: usize>(parts: [Part<'_>; N], bytes: usize) {
    for part in parts {
        assert!(part.tile.len() == bytes, "{} bytes for a tile of {bytes}", part.tile.len());
    }
}
