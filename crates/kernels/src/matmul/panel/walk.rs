//! The walk over tiles and tokens by panels.

use std::cell::RefCell;
use std::ops::Range;

use super::super::parts::Tiles;
use super::super::pieces::Piece;
use super::super::walk::Unpacks;
use super::{
    Ahead, Gather, LEVEL, MOST, PanelKind, Pass, RegisterTile, Run, SUBS, Spread, Sub, TOKENS,
};
use crate::TILE_ROWS;
use crate::q8::{self, Q8Block};
use crate::views::{Rows, RowsMut};

/// Of each kind, for 1, 2, ... tokens, as many as registers hold.
pub(crate) type KindTiles = [[Option<RegisterTile>; MOST]; PanelKind::ALL.len()];

/// The register tiles over panels of one instruction set.
#[derive(Clone, Copy)]
pub(crate) struct Panels {
    pub(crate) tiles: KindTiles,
    /// Vectors that make up a tile.
    pub(crate) groups: usize,
    pub(crate) gather: Gather,
    /// The same for instructions that multiply small matrices.
    pub(crate) gather_matrices: Gather,
    pub(crate) spread: Spread,
    /// What registers need before and after, where they are not the usual ones.
    pub(crate) state: Option<State>,
}

/// Registers that a thread has to ask for.
#[derive(Clone, Copy)]
pub(crate) struct State {
    /// Makes them ready for register tiles of so many tokens.
    pub(crate) configure: unsafe fn(usize),
    /// Gives them back.
    pub(crate) release: unsafe fn(),
}

/// A product by panels.
pub(crate) struct Work<'a> {
    pub(crate) unpacks: Unpacks,
    pub(crate) tiles: Tiles<'a>,
    pub(crate) pieces: &'a [Piece],
    pub(crate) acts: Rows<'a, Q8Block>,
    /// Whether weights to come are asked for.
    pub(crate) fetch: bool,
}

/// Most tiles that multiply the same copy of activations: what copying costs is shared by them, and their
/// sums have to stay in the second cache.
pub(crate) const TILES: usize = 32;

/// A thread's panel, activations, and sums of the pieces at hand: on every level, tile after tile, those of
/// all tokens. They go to the product's place in the end, row by row: its rows are pages apart.
struct Scratch {
    panel: [Sub; SUBS],
    acts: Lines<Q8Block>,
    sums: Lines<[f32; TILE_ROWS]>,
}

/// Elements of 64 bytes, each in a cache line of its own, so that no load or store of a vector touches two.
struct Lines<T>(Vec<Line<T>>);

#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line<T>(T);

impl<T: Copy> Lines<T> {
    const fn new() -> Self {
        Self(Vec::new())
    }

    /// Makes room for so many.
    fn reserve(&mut self, len: usize, empty: T) {
        if self.0.len() < len {
            self.0.resize(len, Line(empty));
        }
    }

    fn as_mut_slice(&mut self) -> &mut [T] {
        const { assert!(size_of::<T>() == 64 && size_of::<Line<T>>() == 64) };
        // SAFETY: a line is its element and nothing else.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len()) }
    }
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = const {
        RefCell::new(Scratch { panel: [Sub::EMPTY; SUBS], acts: Lines::new(), sums: Lines::new() })
    };
}

/// Tokens in register tiles: as few as there can be, of about equal size.
fn passes(tokens: usize, most: usize) -> impl Iterator<Item = (usize, usize)> + Clone {
    let count = tokens.div_ceil(most);
    (0..count).map(move |i| (i * tokens / count, (i + 1) * tokens / count - i * tokens / count))
}

/// Columns of a panel: the last of a piece and the first of the next may be in the same.
struct Part {
    /// The first sub-block among all, and how many.
    first: usize,
    subs: usize,
    /// Bytes in every tile.
    begin: usize,
    end: usize,
    runs: [Run; SUBS],
    of: [Source; SUBS],
    count: usize,
}

impl Part {
    fn runs(&self) -> &[Run] {
        &self.runs[..self.count]
    }
}

/// What a run is unpacked from.
#[derive(Clone, Copy)]
struct Source {
    /// The bytes of the piece in every tile.
    at: usize,
    len: usize,
    /// The first sub-block in it.
    first: usize,
}

impl Source {
    const NONE: Self = Self { at: 0, len: 0, first: 0 };

    fn bytes(self) -> Range<usize> {
        self.at..self.at + self.len
    }

    fn subs(self, count: usize) -> Range<usize> {
        self.first..self.first + count
    }
}

/// Cuts the columns of all pieces into panels.
struct Cut<'a> {
    pieces: &'a [Piece],
    bytes: fn(usize) -> usize,
    /// Where in the first of `pieces`.
    sub: usize,
    /// Sub-blocks, bytes and levels of those before.
    first: usize,
    at: usize,
    level: usize,
}

impl<'a> Cut<'a> {
    fn new(pieces: &'a [Piece], bytes: fn(usize) -> usize) -> Self {
        Self { pieces, bytes, sub: 0, first: 0, at: 0, level: 0 }
    }

    fn next(&mut self) -> Option<Part> {
        let mut part = Part {
            first: self.first + self.sub,
            subs: 0,
            begin: self.at + (self.bytes)(self.sub * q8::BLOCK),
            end: 0,
            runs: [Run::NONE; SUBS],
            of: [Source::NONE; SUBS],
            count: 0,
        };
        while part.subs < SUBS
            && part.count < SUBS
            && let [piece, rest @ ..] = self.pieces
        {
            let (len, all) = ((self.bytes)(piece.cols), piece.cols / q8::BLOCK);
            let subs = (all - self.sub).min(SUBS - part.subs);
            let ends = self.sub + subs == all;
            part.of[part.count] = Source { at: self.at, len, first: self.sub };
            part.runs[part.count] = Run {
                subs,
                level: self.level,
                begin: self.sub == 0,
                folds: if ends { piece.folds } else { 0 },
            };
            part.count += 1;
            part.subs += subs;
            self.sub += subs;
            part.end = self.at + (self.bytes)(self.sub * q8::BLOCK);
            if ends {
                self.level = self.level + 1 - piece.folds;
                (self.pieces, self.sub) = (rest, 0);
                self.first += all;
                self.at += len;
            }
        }
        (part.count > 0).then_some(part)
    }
}

/// Levels of sums that pieces need.
fn levels(pieces: &[Piece]) -> usize {
    let (mut level, mut most) = (0, 0);
    for piece in pieces {
        most = most.max(level + 1);
        level = level + 1 - piece.folds;
    }
    most
}

/// Some tiles and tokens.
#[derive(Clone, Copy)]
struct Rect {
    tile: usize,
    tiles: usize,
    token: usize,
    tokens: usize,
}

impl Panels {
    /// As [`super::super::Family::multiply`].
    ///
    /// # Safety
    ///
    /// The CPU has the instruction set of `self` and of `work`.
    pub(crate) unsafe fn multiply(&self, work: &Work<'_>, mut out: RowsMut<'_, f32>) {
        SCRATCH.with_borrow_mut(|scratch| {
            for tile in (0..work.tiles.count()).step_by(TILES) {
                let tiles = TILES.min(work.tiles.count() - tile);
                for token in (0..work.acts.rows()).step_by(TOKENS) {
                    let tokens = TOKENS.min(work.acts.rows() - token);
                    let rect = Rect { tile, tiles, token, tokens };
                    // SAFETY: the caller's contract.
                    unsafe { self.sum(work, rect, scratch) };
                    let sums = scratch.sums.as_mut_slice();
                    for root in 0..Piece::roots(work.pieces) {
                        let rows = out.sub(token..token + tokens);
                        let first = root * work.tiles.count() + tile;
                        // SAFETY: the caller's contract.
                        unsafe { (self.spread)(&sums[root * LEVEL..], rows, first..first + tiles) };
                    }
                }
            }
        });
    }

    /// Multiplies some tiles and tokens.
    ///
    /// # Safety
    ///
    /// As [`Panels::multiply`].
    unsafe fn sum(
        &self,
        work: &Work<'_>,
        Rect { tile, tiles, token, tokens }: Rect,
        Scratch { panel, acts, sums }: &mut Scratch,
    ) {
        let Unpacks { kind, member, entry, bytes, matrices, .. } = work.unpacks;
        let state = self.state.filter(|_| matrices);
        let gather = if matrices { self.gather_matrices } else { self.gather };
        let vectors = member.vectors;
        let passes = passes(tokens, usize::from(member.tokens));
        acts.reserve(TOKENS * SUBS, Q8Block::ZERO);
        sums.reserve(levels(work.pieces) * LEVEL, [0.0; TILE_ROWS]);
        let (acts, sums) = (acts.as_mut_slice(), sums.as_mut_slice());
        let mut configured = 0;
        let mut cut = Cut::new(work.pieces, bytes);
        while let Some(part) = cut.next() {
            let mut own = &mut *acts;
            for (t, count) in passes.clone() {
                let (acts, rest) = own.split_at_mut(count * part.subs);
                own = rest;
                let tokens = token + t..token + t + count;
                // SAFETY: the caller's contract.
                unsafe { gather(work.acts, tokens, part.first, acts) };
            }
            let lines = (part.end - part.begin).div_ceil(64);
            for i in 0..tiles {
                let tile_bytes = work.tiles.tile(tile + i);
                let panel = &mut panel[..part.subs];
                let mut rest = &mut *panel;
                for (of, run) in part.of.iter().zip(part.runs()) {
                    let (own, after) = rest.split_at_mut(run.subs);
                    rest = after;
                    // SAFETY: the caller's contract.
                    unsafe { entry(&tile_bytes[of.bytes()], of.subs(run.subs), own) };
                }
                // The same columns of the next tile, or the next columns of the first.
                let next = if i + 1 < tiles { (i + 1, part.begin) } else { (0, part.end) };
                let next = work.tiles.place(tile + next.0, next.1);
                let mut own = &*acts;
                for (pass, (t, count)) in passes.clone().enumerate() {
                    let (acts, rest) = own.split_at(count * part.subs);
                    own = rest;
                    let step = self.tiles[kind as usize][count - 1].expect("of so many tokens");
                    let ahead = Ahead { at: next, lines, pass, passes: passes.clone().count() };
                    if let Some(state) = state.filter(|_| configured != count) {
                        // SAFETY: the caller's contract.
                        unsafe { (state.configure)(count) };
                        configured = count;
                    }
                    for group in (0..self.groups).step_by(usize::from(vectors)) {
                        let pass = Pass {
                            panel,
                            group,
                            acts,
                            runs: part.runs(),
                            at: i * tokens + t,
                            ahead: (work.fetch && group == 0).then_some(ahead),
                        };
                        // SAFETY: the caller's contract.
                        unsafe { step(pass, sums) };
                    }
                }
            }
        }
        if let Some(state) = state {
            // SAFETY: the caller's contract.
            unsafe { (state.release)() };
        }
        debug_assert_eq!(cut.level, Piece::roots(work.pieces));
    }
}
