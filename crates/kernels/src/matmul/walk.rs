//! The walk over tiles and tokens, in register tiles of a member of the family.

use super::family::{MicroKernel, NONE, Size, Sums};
use super::panel::{PanelKind, Unpack};
use super::parts::{Fetch, Part, rows};
use super::pieces::{Dots, Piece, Stack, tree};
use super::{Tile, Tiles};
use crate::TILE_ROWS;
use crate::acts::{Acts, elements};
use crate::bf16::WidePair;
use crate::cpu::{MATRICES_FROM, Units, cpu, usual};
use crate::isa::Isa;
use crate::q8::Q8Block;
use crate::simd::Dot;
use crate::views::{Rows, RowsMut};

/// How a matrix is walked over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    /// The micro-kernel, a member of the family; the usual one where nobody chose.
    pub(crate) kernel: Option<MicroKernel>,
    /// Bytes between the weights that are multiplied and those that are fetched from memory.
    pub(crate) ahead: usize,
}

/// Multiplies what a register tile of its size holds.
///
/// # Safety
///
/// The CPU has the instruction set that it is compiled for.
pub(crate) type RegisterTile<A> = unsafe fn(Place<'_, A>, &mut RowsMut<'_, f32>);

/// Where a register tile is.
pub(crate) struct Place<'a, A> {
    pub(super) tiles: Tiles<'a>,
    pub(super) pieces: &'a [Piece],
    pub(super) acts: Rows<'a, A>,
    /// The first tile, and the group in it.
    pub(super) tile: usize,
    pub(super) group: usize,
    /// The first token.
    pub(super) token: usize,
    pub(super) fetch: Fetch,
}

impl<'a, A> Place<'a, A> {
    fn with<B>(self, acts: Rows<'a, B>) -> Place<'a, B> {
        let Self { tiles, pieces, tile, group, token, fetch, .. } = self;
        Place { tiles, pieces, acts, tile, group, token, fetch }
    }
}

/// Bytes are the one form of bfloat16 that all instruction sets have in common.
impl<'a> From<Place<'a, u8>> for Place<'a, WidePair> {
    fn from(place: Place<'a, u8>) -> Self {
        let acts = elements(place.acts);
        place.with(acts)
    }
}

impl<'a> From<Place<'a, u8>> for Place<'a, u32> {
    fn from(place: Place<'a, u8>) -> Self {
        let acts = elements(place.acts);
        place.with(acts)
    }
}

/// Register tiles in the order of a family's sizes, where it has them.
pub(crate) type TileList<A> = &'static [Option<RegisterTile<A>>];

/// The register tiles of a family, by the form of its activations.
#[derive(Clone, Copy)]
pub(crate) enum RegisterTiles {
    F32(TileList<f32>),
    Bf16(TileList<u8>),
    Q8(TileList<Q8Block>),
}

/// The register tiles of one type with one instruction set.
#[derive(Clone, Copy)]
pub(crate) struct Family {
    /// The instruction set.
    pub(crate) isa: Isa,
    /// What there is; every combination of 1, 2 or 4 vectors and one token if any with so many vectors.
    pub(crate) sizes: &'static [Size],
    pub(crate) tiles: RegisterTiles,
    /// Vectors that make up a tile: above 1, a register tile does not span tiles.
    pub(crate) groups: usize,
    /// The member for more than a few tokens.
    pub(crate) usual: MicroKernel,
    /// The fewest tokens for which it is the usual one. One token is bound by memory, and one stream of
    /// weights is what prefetchers like; but the sums of plain floats are one chain of additions.
    pub(crate) from: usize,
    /// What products are summed in.
    pub(crate) sums: Sums,
    /// Whether members can be chosen, and not only the usual one.
    pub(crate) choice: bool,
    /// The member that works with panels, if there is one.
    pub(crate) panel: Option<Unpacks>,
}

/// What a type does for its panels.
#[derive(Clone, Copy)]
pub(crate) struct Unpacks {
    /// How sums are made.
    pub(crate) kind: PanelKind,
    /// The member's name.
    pub(crate) member: MicroKernel,
    /// The vectors that it is multiplied in.
    pub(crate) units: Units,
    /// Whether one instruction multiplies small matrices: then it is the usual member on every CPU.
    pub(crate) matrices: bool,
    /// Unpacks.
    pub(crate) entry: Unpack,
    /// Bytes of a tile's piece of so many columns.
    pub(crate) bytes: fn(usize) -> usize,
}

impl Family {
    /// That of a type, whose register tiles and panels were compiled for `isa`.
    pub(crate) const fn new<D: Dot, K: Tile>(
        isa: Isa,
        sizes: &'static [Size],
        tiles: RegisterTiles,
        unpack: Unpack,
    ) -> Self {
        let choice = D::REGISTERS > 0;
        let panel = match K::PANEL {
            Some(kind) if choice => Some(Unpacks {
                kind,
                member: kind.member::<D>(),
                units: Units::of::<D>(),
                matrices: false,
                entry: unpack,
                bytes: |cols| K::bytes(cols.div_ceil(K::BLOCK_COLS)),
            }),
            _ => None,
        };
        let from = if D::WIDE { K::TWO_FROM } else { 1 };
        let (usual, sums) = (usual::<D, K>(), K::SUMS);
        Self { isa, sizes, tiles, groups: D::GROUPS, usual, from, sums, choice, panel }
    }

    /// The place of a size.
    fn place(&self, size: Size) -> Option<usize> {
        self.sizes.iter().position(|own| *own == size)
    }

    /// Rows and tokens of the register tile for many tokens: with instructions that multiply small
    /// matrices, theirs.
    pub(crate) fn tile(&self) -> (usize, usize) {
        let usual = match self.panel {
            Some(panel) if panel.matrices => panel.member,
            _ => self.usual_for(usize::MAX),
        };
        (usize::from(usual.vectors) * TILE_ROWS / self.groups, usize::from(usual.tokens))
    }

    /// All members, the usual one first.
    pub(crate) fn members(&self) -> Vec<MicroKernel> {
        let there = self.sizes.iter().filter(|&&size| size != NONE);
        let all = there.map(|&size| MicroKernel::of(size));
        let others = all.filter(|member| *member != self.usual && self.has(*member));
        let panel = self.panel.map(|panel| panel.member);
        std::iter::once(self.usual).chain(others).chain(panel).collect()
    }

    /// Whether `kernel` is one of [`Family::members`].
    pub(crate) fn has(&self, kernel: MicroKernel) -> bool {
        match self.panel {
            _ if !kernel.panel => {
                kernel == self.usual || self.choice && self.place(kernel.size()).is_some()
            }
            panel => panel.is_some_and(|panel| panel.member == kernel),
        }
    }

    /// What works with panels, if that is the way for so many tokens.
    pub(crate) fn unpacks(&self, kernel: Option<MicroKernel>, tokens: usize) -> Option<Unpacks> {
        let panel = self.panel?;
        let from = match panel.matrices {
            true => Some(MATRICES_FROM),
            false => cpu().panels_from(panel.kind, panel.units),
        };
        let usual = from.is_some_and(|from| tokens >= from);
        let wanted = kernel.map_or(usual, |kernel| kernel.panel);
        wanted.then_some(panel)
    }

    /// What multiplies so many tokens where nobody chose.
    pub(crate) fn usual_for(&self, tokens: usize) -> MicroKernel {
        let own = cpu().tile(self.sums, tokens).filter(|_| self.groups == 1);
        if let Some(size) = own.filter(|&size| self.place(size).is_some()) {
            return MicroKernel::of(size);
        }
        let vectors = if tokens < self.from { 1 } else { self.usual.vectors };
        MicroKernel { vectors, ..self.usual }
    }

    /// Most tokens of a register tile with so many vectors, that are no more than `most`.
    fn tokens(&self, vectors: u8, most: usize) -> u8 {
        if most == 1 {
            return 1;
        }
        let fits =
            |&(n, t, u): &Size| (n == vectors && u == 1 && usize::from(t) <= most).then_some(t);
        self.sizes.iter().filter_map(fits).max().expect("there is one of one token")
    }

    /// Tokens of the next of the register tiles that cover `left` tokens, `most` at most in each: all at once,
    /// or in as few tiles as there can be of about equal size.
    fn part(&self, vectors: u8, left: usize, most: usize) -> u8 {
        let mut tiles = left.div_ceil(most);
        loop {
            let share = left.div_ceil(tiles);
            let take = self.tokens(vectors, share);
            if usize::from(take) == share || tiles >= left {
                return take;
            }
            tiles += 1;
        }
    }

    /// `out[t][16i + r] = Σ_c tiles[i][r][c] * acts[t][c]`, summed by pieces; of several roots, one after
    /// the other.
    ///
    /// # Safety
    ///
    /// The CPU has the instruction set of `self`.
    ///
    /// # Panics
    ///
    /// If the walk's kernel is none of [`Family::members`], or the activations have another form.
    pub(crate) unsafe fn multiply(
        &self,
        walk: Walk,
        tiles: Tiles<'_>,
        pieces: &[Piece],
        acts: Acts<'_>,
        out: RowsMut<'_, f32>,
    ) {
        // SAFETY: the caller's contract.
        unsafe {
            match (self.tiles, acts) {
                (RegisterTiles::F32(list), Acts::F32(acts)) => {
                    self.multiply_by(list, walk, tiles, pieces, acts, out);
                }
                (RegisterTiles::Bf16(list), Acts::Bf16(acts)) => {
                    self.multiply_by(list, walk, tiles, pieces, acts, out);
                }
                (RegisterTiles::Q8(list), Acts::Q8(acts)) => {
                    self.multiply_by(list, walk, tiles, pieces, elements(acts), out);
                }
                (_, acts) => panic!("activations in another form: {acts:?}"),
            }
        }
    }

    /// [`Family::multiply`] by the register tiles of `list`.
    ///
    /// # Safety
    ///
    /// As that.
    unsafe fn multiply_by<A>(
        &self,
        list: TileList<A>,
        walk: Walk,
        tiles: Tiles<'_>,
        pieces: &[Piece],
        acts: Rows<'_, A>,
        mut out: RowsMut<'_, f32>,
    ) {
        let kernel = walk.kernel.unwrap_or_else(|| self.usual_for(acts.rows()));
        let (mut cover, mut tile) = (Cover::new(self, list, kernel, acts.rows()), 0);
        let stream = Fetch::once(walk.ahead);
        while tile < tiles.count() {
            // Tiles that are left over go by twos and ones.
            while self.groups == 1 && usize::from(cover.vectors) > tiles.count() - tile {
                let less = MicroKernel { vectors: cover.vectors / 2, unroll: 1, ..self.usual };
                cover = Cover::new(self, list, less, acts.rows());
            }
            let mut token = 0;
            for pass in 0..cover.passes() {
                let (register_tile, vectors, tokens) = cover.register_tile(pass);
                for group in (0..self.groups).step_by(vectors) {
                    let fetch = match cover.passes() {
                        1 if group == 0 => stream,
                        step if self.groups == 1 => Fetch::Successor { first: pass, step },
                        // Only the first pass over a tile can find it in memory.
                        _ if pass == 0 && group == 0 => stream,
                        _ => Fetch::Nothing,
                    };
                    let place = Place { tiles, pieces, acts, tile, group, token, fetch };
                    // SAFETY: the caller's contract.
                    unsafe { register_tile(place, &mut out) };
                }
                token += tokens;
            }
            tile += if self.groups == 1 { usize::from(cover.vectors) } else { 1 };
        }
    }
}

/// The fewest tokens of a register tile that asks for the lines of its sums before it multiplies. Where tokens
/// are many, rows of output are kilobytes apart and come from memory, or from another core that has read them,
/// and stores that wait for them stop the multiplications after them: of 512 tokens, a Zen 5 multiplied three of
/// four matrices of a layer at 63 to 65 % of the peak, and at 70 to 73 % so (`benchmarks/notes/2026-11-23-where-sums-go.md`). Fewer tokens gain
/// nothing.
const FETCHED: usize = 4;

/// How register tiles with so many vectors cover all tokens: as many as fit of the kernel's size, then
/// smaller ones of about equal sizes.
struct Cover<A> {
    vectors: u8,
    full: (Option<RegisterTile<A>>, u8),
    /// Register tiles of the kernel's size.
    fulls: usize,
    /// Smaller ones: their vectors and tokens.
    rest: [(Option<RegisterTile<A>>, u8, u8); REST],
    rests: usize,
}

/// What is left over of a kernel's tokens takes no more register tiles (17 of 12: 6, 6, 3 and 2).
const REST: usize = 6;

impl<A> Cover<A> {
    fn new(family: &Family, list: TileList<A>, kernel: MicroKernel, tokens: usize) -> Self {
        let get = |size| list[family.place(size)?];
        let MicroKernel { vectors, tokens: most, .. } = kernel;
        let size = usize::from(most);
        let (mut fulls, mut left) = (tokens / size, tokens % size);
        // A few tokens by themselves would be slow: instead of 6 and 2 it is 4 and 4.
        if fulls > 0 && left > 0 && 2 * left < size {
            (fulls, left) = (fulls - 1, left + size);
        }
        let full = get(kernel.size());
        assert!(full.is_some() || fulls == 0, "no micro-kernel {kernel}");
        let (mut rest, mut rests) = ([(None, 0, 0); REST], 0);
        while left > 0 {
            let take = family.part(vectors, left, size);
            // One token is bound by memory: all groups go together, so that the tile is read in one pass.
            let all = if take == 1 && family.groups > 1 { family.groups as u8 } else { vectors };
            rest[rests] = (get((all, take, 1)), all, take);
            rests += 1;
            left -= usize::from(take);
        }
        Self { vectors, full: (full, most), fulls, rest, rests }
    }

    /// Register tiles.
    fn passes(&self) -> usize {
        self.fulls + self.rests
    }

    /// Register tile `pass`, its vectors and its tokens.
    fn register_tile(&self, pass: usize) -> (RegisterTile<A>, usize, usize) {
        let (tile, vectors, tokens) = match pass.checked_sub(self.fulls) {
            None => (self.full.0, self.vectors, self.full.1),
            Some(rest) => self.rest[rest],
        };
        (tile.expect("it was looked for"), usize::from(vectors), usize::from(tokens))
    }
}

/// One register tile: `T` tokens and `N` vectors of rows.
#[inline(always)]
pub(crate) fn step<D: Dot, K: Tile, const T: usize, const N: usize, const U: usize>(
    d: D,
    place: Place<'_, K::Act>,
    out: &mut RowsMut<'_, f32>,
) {
    let Place { tiles, pieces, acts, tile, group, token, fetch } = place;
    let together = if D::GROUPS == 1 { N } else { 1 };
    let (mut parts, mut at) = ([tiles.part(tile, group, together); N], [tile; N]);
    for n in 1..N {
        if D::GROUPS == 1 {
            (parts[n], at[n]) = (tiles.part(tile + n, 0, N), tile + n);
        } else {
            parts[n] = tiles.part(tile, group + n, 1);
        }
    }
    if T >= FETCHED {
        for t in 0..T {
            let row = out.row_mut(token + t).as_ptr();
            for n in 0..together {
                d.prefetch_write(row.wrapping_add(at[n] * TILE_ROWS).cast());
            }
        }
    }
    let mut stack = Stack::new();
    let dots = Dots::<D, K, U>::new(d, fetch);
    let last = tree(dots, parts, pieces, rows::<_, T>(acts, token), &mut stack);
    // Twice and not in one loop, which would put the last root into memory.
    for root in 0..stack.left() {
        store_root(d, stack.root(root), (&parts, &at, root * tiles.count()), token, out);
    }
    store_root(d, &last, (&parts, &at, stack.left() * tiles.count()), token, out);
}

/// Writes the sums of one root, which begins with tile `before` of the outputs.
#[inline(always)]
fn store_root<D: Dot, const T: usize, const N: usize>(
    d: D,
    sums: &[[D::F; N]; T],
    (parts, at, before): (&[Part<'_>; N], &[usize; N], usize),
    token: usize,
    out: &mut RowsMut<'_, f32>,
) {
    for t in 0..T {
        let row = &mut out.row_mut(token + t).as_chunks_mut::<TILE_ROWS>().0[before..];
        for n in 0..N {
            d.store(sums[t][n], &mut row[at[n]], parts[n].group);
        }
    }
}
