//! Columns in pieces, whose sums are added up as a tree that does not depend on who has which.

use super::Tile;
use super::parts::{Fetch, Part};
use crate::simd::Dot;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// Some columns of a tile, whose products are summed apart.
///
/// A tile whose columns come in several pieces holds one packed piece after the other. The sums of
/// the pieces are added up as binary trees: a stack takes each sum as it is made, and after piece
/// `i` the topmost two sums are added `folds` times. What is left in the end are the roots of the trees,
/// mostly one; each is a product of its own ([`Piece::roots`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Number of columns, whole blocks.
    pub cols: usize,
    /// Additions after this piece.
    pub folds: usize,
}

impl Piece {
    /// All of a tile's columns in one piece.
    pub const fn whole(cols: usize) -> [Piece; 1] {
        [Piece { cols, folds: 0 }]
    }

    /// Sums that are left of all pieces.
    pub fn roots(pieces: &[Piece]) -> usize {
        pieces.len() - pieces.iter().map(|piece| piece.folds).sum::<usize>()
    }
}

/// Most sums on the stack: enough for a balanced tree of 2^7 pieces.
pub const PIECE_LEVELS: usize = 8;

/// What the sum over pieces needs to know of the products of one piece. A trait, because closures are
/// not always inlined, and alone they lack the entry point's instruction set.
pub(super) trait Products<A>: Copy {
    type F: Copy;

    /// Columns of an element of the activations.
    const ACT_COLS: usize;

    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    /// Bytes of a tile of `cols` columns.
    fn bytes(cols: usize) -> usize;
    fn dot<const T: usize, const N: usize>(
        self,
        parts: [Part<'_>; N],
        acts: [&[A]; T],
    ) -> [[Self::F; N]; T];
}

/// The products of a [`Tile`], with `U` steps in a turn of its loop.
pub(super) struct Dots<D, K, const U: usize>(D, Fetch, PhantomData<K>);

impl<D: Dot, K: Tile, const U: usize> Dots<D, K, U> {
    #[inline(always)]
    pub(super) fn new(d: D, fetch: Fetch) -> Self {
        Self(d, fetch, PhantomData)
    }
}

impl<D: Copy, K, const U: usize> Clone for Dots<D, K, U> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<D: Copy, K, const U: usize> Copy for Dots<D, K, U> {}

impl<D: Dot, K: Tile, const U: usize> Products<K::Act> for Dots<D, K, U> {
    type F = D::F;

    const ACT_COLS: usize = K::ACT_COLS;

    #[inline(always)]
    fn add(self, a: D::F, b: D::F) -> D::F {
        self.0.add(a, b)
    }
    #[inline(always)]
    fn bytes(cols: usize) -> usize {
        K::bytes(cols / K::BLOCK_COLS)
    }
    #[inline(always)]
    fn dot<const T: usize, const N: usize>(
        self,
        parts: [Part<'_>; N],
        acts: [&[K::Act]; T],
    ) -> [[D::F; N]; T] {
        K::dot::<D, T, N, U>(self.0, parts, acts, self.1)
    }
}

/// Sums of pieces that are yet to be added, or roots, of `T` tokens and `N` vectors. Not cleared: that would
/// cost more than a short piece's sums.
pub(super) struct Stack<F, const T: usize, const N: usize> {
    levels: [MaybeUninit<[[F; N]; T]>; PIECE_LEVELS],
    depth: usize,
}

impl<F: Copy, const T: usize, const N: usize> Stack<F, T, N> {
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self { levels: [const { MaybeUninit::uninit() }; PIECE_LEVELS], depth: 0 }
    }

    #[inline(always)]
    fn push(&mut self, sums: [[F; N]; T]) {
        self.levels[self.depth].write(sums);
        self.depth += 1;
    }

    #[inline(always)]
    fn pop(&mut self) -> &[[F; N]; T] {
        self.depth -= 1;
        // SAFETY: every level below `depth` was written.
        unsafe { self.levels[self.depth].assume_init_ref() }
    }

    /// What is left after [`tree`]: the roots before the last.
    #[inline(always)]
    pub(super) fn left(&self) -> usize {
        self.depth
    }

    /// Root `root`.
    #[inline(always)]
    pub(super) fn root(&self, root: usize) -> &[[F; N]; T] {
        assert!(root < self.depth);
        // SAFETY: as in `pop`.
        unsafe { self.levels[root].assume_init_ref() }
    }
}

/// The sums of all pieces, added up: the last root. Roots before it are left on the `stack`.
///
/// The last one never lies there: it is mostly the only one, and stays in registers.
#[inline(always)]
pub(super) fn tree<A, P: Products<A>, const T: usize, const N: usize>(
    products: P,
    mut parts: [Part<'_>; N],
    pieces: &[Piece],
    mut acts: [&[A]; T],
    stack: &mut Stack<P::F, T, N>,
) -> [[P::F; N]; T] {
    let mut pieces = pieces.iter();
    loop {
        let piece = pieces.next().expect("a tile has columns");
        // One alone may be odd, where elements are pairs.
        let (len, cols) = (P::bytes(piece.cols), piece.cols.div_ceil(P::ACT_COLS));
        let (mut own, mut own_acts) = (parts, acts);
        for n in 0..N {
            (own[n].tile, parts[n].tile) = parts[n].tile.split_at(len);
            parts[n].left -= len;
        }
        for t in 0..T {
            (own_acts[t], acts[t]) = acts[t].split_at(cols);
        }
        // The only call: every one is compiled anew.
        let mut sums = products.dot(own, own_acts);
        for _ in 0..piece.folds {
            let below = stack.pop();
            for t in 0..T {
                for n in 0..N {
                    sums[t][n] = products.add(below[t][n], sums[t][n]);
                }
            }
        }
        if pieces.len() == 0 {
            return sums;
        }
        stack.push(sums);
    }
}
