//! The walk over tiles and tokens by panels.

use std::cell::RefCell;

use super::super::parts::Tiles;
use super::super::pieces::Piece;
use super::super::walk::Unpacks;
use super::{Ahead, Gather, LEVEL, MOST, PanelKind, Pass, RegisterTile, SUBS, Sub, TOKENS};
use crate::TILE_ROWS;
use crate::q8::{self, Q8Block};
use crate::views::{Rows, RowsMut};

/// The register tiles over panels of one instruction set.
#[derive(Clone, Copy)]
pub(crate) struct Panels {
    /// Of each kind, for 1, 2, ... tokens, as many as its registers hold.
    pub(crate) tiles: [[Option<RegisterTile>; MOST]; PanelKind::ALL.len()],
    /// Vectors that make up a tile.
    pub(crate) groups: usize,
    pub(crate) gather: Gather,
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
    acts: Vec<Q8Block>,
    sums: Vec<[f32; TILE_ROWS]>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = const {
        RefCell::new(Scratch { panel: [Sub::EMPTY; SUBS], acts: Vec::new(), sums: Vec::new() })
    };
}

/// Tokens in register tiles: as few as there can be, of about equal size.
fn passes(tokens: usize, most: usize) -> impl Iterator<Item = (usize, usize)> + Clone {
    let count = tokens.div_ceil(most);
    (0..count).map(move |i| (i * tokens / count, (i + 1) * tokens / count - i * tokens / count))
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
                    for t in 0..tokens {
                        let row = out.row_mut(token + t).as_chunks_mut::<TILE_ROWS>().0;
                        for (i, to) in row[tile..][..tiles].iter_mut().enumerate() {
                            *to = scratch.sums[i * tokens + t];
                        }
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
        let Unpacks { kind, member, entry, bytes } = work.unpacks;
        let passes = passes(tokens, usize::from(member.tokens));
        acts.resize(TOKENS * SUBS, Q8Block::ZERO);
        sums.resize(sums.len().max(levels(work.pieces) * LEVEL), [0.0; TILE_ROWS]);
        let (mut level, mut block, mut at) = (0, 0, 0);
        for piece in work.pieces {
            let (len, subs) = (bytes(piece.cols), piece.cols / q8::BLOCK);
            for first in (0..subs).step_by(SUBS) {
                let run = first..subs.min(first + SUBS);
                let mut own = acts.as_mut_slice();
                for (t, count) in passes.clone() {
                    let (acts, rest) = own.split_at_mut(count * run.len());
                    own = rest;
                    let tokens = token + t..token + t + count;
                    // SAFETY: the caller's contract.
                    unsafe { (self.gather)(work.acts, tokens, block + run.start, acts) };
                }
                let begin = at + bytes(run.start * q8::BLOCK);
                let lines = bytes(run.len() * q8::BLOCK).div_ceil(64);
                for i in 0..tiles {
                    let packed = &work.tiles.tile(tile + i)[at..][..len];
                    let panel = &mut panel[..run.len()];
                    // SAFETY: the caller's contract.
                    unsafe { entry(packed, run.clone(), panel) };
                    // The same columns of the next tile, or the next columns of the first.
                    let next = if i + 1 < tiles { (i + 1, begin) } else { (0, begin + lines * 64) };
                    let next = work.tiles.place(tile + next.0, next.1);
                    let mut own = acts.as_slice();
                    for (pass, (t, count)) in passes.clone().enumerate() {
                        let (acts, rest) = own.split_at(count * run.len());
                        own = rest;
                        let step = self.tiles[kind as usize][count - 1].expect("of so many tokens");
                        let ahead = Ahead { at: next, lines, pass, passes: passes.clone().count() };
                        for group in 0..self.groups {
                            let pass = Pass {
                                panel,
                                group,
                                acts,
                                at: i * tokens + t,
                                level,
                                begin: first == 0,
                                folds: if run.end == subs { piece.folds } else { 0 },
                                ahead: (work.fetch && group == 0).then_some(ahead),
                            };
                            // SAFETY: the caller's contract.
                            unsafe { step(pass, sums) };
                        }
                    }
                }
            }
            (block, at) = (block + subs, at + len);
            level = level + 1 - piece.folds;
        }
        assert!(level == 1, "pieces fold to one sum");
    }
}
