//! Register tiles over panels by AMX.
//!
//! A tile register holds the integer sums of up to 16 tokens and 16 rows for a sub-block of 32 columns. They
//! have to pass through memory to meet their scales, so what AMX multiplies next is begun meanwhile, in steps
//! that lie a sub-block apart: while sums are added, those of the next sub-block are stored, the one after it
//! is multiplied and the third is loaded. So what an instruction waits for was begun a sub-block's instructions
//! ago. That matters most where another thread has half of the core and of its reorder buffer. With a store that
//! follows its product by half a sub-block a tile took 24 ns alone, so and with activations as below 22.5; of a
//! run of which a quarter was so disturbed the third quartiles were 36 and 28 (loops in C on a Sapphire Rapids,
//! data in the first caches, November 2026).

use std::ops::Range;

use super::signed::{Finish, Matrices, center};
use super::{MOST, Pass, State, Sub};
use crate::TILE_ROWS;
use crate::arch::amx::{Amx, Sums};
use crate::arch::avx512::Avx512;
use crate::q8::Q8Block;
use crate::simd::{Dot, Vector};
use crate::views::Rows;

/// Quads of a sub-block.
const QUADS: usize = 8;

/// Places for sums: those that are added, those that are stored, and as many again, so that no store waits
/// for a load.
const PLACES: usize = 4;

/// A sub-block of the activations of a register tile: only what is used of it, so that those of all tokens
/// that pass over a panel are nearly in the first cache.
#[repr(C, align(64))]
struct Acts<const T: usize> {
    qs: [[[i8; 4]; QUADS]; T],
    scales: [Scales; T],
}

/// [`Q8Block::d`] and [`Q8Block::dsum`].
#[repr(C)]
#[derive(Clone, Copy)]
struct Scales {
    d: f32,
    dsum: f32,
}

impl<const T: usize> Acts<T> {
    /// As [`Matrices::gather`] has written them, `subs` of them.
    #[inline(always)]
    fn of(blocks: &[Q8Block], subs: usize) -> &[Self] {
        const { assert!(size_of::<Self>() == bytes(T) && bytes(T) <= T * size_of::<Q8Block>()) };
        assert!(blocks.len() == T * subs, "{} blocks of {T} tokens", blocks.len());
        let blocks = blocks.as_ptr().cast::<Self>();
        assert!(blocks.is_aligned(), "copied activations begin a cache line");
        // SAFETY: no longer than the blocks, as asserted, and aligned; any bits are activations.
        unsafe { std::slice::from_raw_parts(blocks, subs) }
    }
}

/// Bytes of a sub-block of so many tokens.
const fn bytes(tokens: usize) -> usize {
    (tokens * (size_of::<[[i8; 4]; QUADS]>() + size_of::<Scales>())).next_multiple_of(64)
}

impl Matrices for Amx {
    type Vectors = Avx512<true>;

    const MOST: usize = MOST;

    const STATE: Option<State> = Some(State {
        // SAFETY: a table with AMX, which alone has this, is reached through its token.
        configure: |tokens| unsafe { Amx::assume() }.configure(tokens, QUADS),
        // SAFETY: as above.
        release: || unsafe { Amx::assume() }.release(),
    });

    #[inline(always)]
    fn vectors(self) -> Avx512<true> {
        self.avx512()
    }

    #[inline(always)]
    fn arrange<K: Finish>(self, panel: &mut [Sub]) {
        center::<K>(panel);
    }

    /// In the places of the first of `to`, laid out as [`Acts`] of so many tokens.
    #[inline(always)]
    fn gather(acts: Rows<'_, Q8Block>, tokens: Range<usize>, first: usize, to: &mut [Q8Block]) {
        let (start, count) = (tokens.start, tokens.len());
        let (subs, bytes) = (to.len() / count, bytes(count));
        assert!(subs * bytes <= size_of_val(to), "no room for {subs} sub-blocks of {count} tokens");
        let to = to.as_mut_ptr().cast::<u8>();
        for t in tokens {
            let from = &acts.row(t)[first..][..subs];
            let t = t - start;
            for (b, from) in from.iter().enumerate() {
                let scales = Scales { d: from.d, dsum: from.dsum };
                // SAFETY: token `t` of sub-block `b` in a layout of `bytes` bytes for each, for which there is
                // room.
                unsafe {
                    let to = to.add(b * bytes);
                    let (qs, all) = (size_of_val(&from.qs), count * size_of_val(&from.qs));
                    to.add(t * qs).cast::<[[i8; 4]; QUADS]>().write(from.qs);
                    let to = to.add(all + t * size_of::<Scales>());
                    to.cast::<Scales>().write_unaligned(scales);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn step<K: Finish, const T: usize>(self, pass: Pass<'_>, sums: &mut [[f32; TILE_ROWS]]) {
        let Pass { panel, acts, runs, at, ahead, .. } = pass;
        let (acts, v) = (Acts::<T>::of(acts, panel.len()), self.avx512());
        let mut to_come = ToCome { d: self, panel, acts, places: [const { Sums::NONE }; PLACES] };
        // SAFETY: the caller's contract; each is loaded, multiplied and stored in this order.
        unsafe {
            to_come.load_second::<0>(0);
            to_come.load_first::<0>(0);
            to_come.multiply::<0>(0);
            to_come.load_second::<1>(1);
            to_come.load_first::<1>(1);
            to_come.store::<0>(0);
            to_come.multiply::<1>(1);
            to_come.load_second::<0>(2);
            to_come.load_first::<0>(2);
        }
        let mut b = 0;
        for run in runs {
            let mut acc = run.begin::<Avx512<true>, T, 1>(v, 0, at, sums);
            for _ in 0..run.subs {
                if let Some(ahead) = ahead {
                    ahead.fetch(v, b, panel.len());
                }
                // SAFETY: as above; the registers of a set are those of even or of odd sub-blocks.
                unsafe {
                    match b % 2 {
                        0 => to_come.add::<K, 0, 1>(b, &mut acc),
                        _ => to_come.add::<K, 1, 0>(b, &mut acc),
                    }
                }
                b += 1;
            }
            run.end(v, 0, at, acc, sums);
        }
    }
}

/// Sub-blocks, and the sums of those next in turn. What is beyond the last is nothing.
struct ToCome<'a, const T: usize> {
    d: Amx,
    panel: &'a [Sub],
    acts: &'a [Acts<T>],
    places: [Sums; PLACES],
}

impl<const T: usize> ToCome<'_, T> {
    /// Loads the weights of sub-block `b`.
    ///
    /// # Safety
    ///
    /// Registers were configured.
    #[inline(always)]
    unsafe fn load_second<const SET: usize>(&self, b: usize) {
        if let Some(sub) = self.panel.get(b) {
            // SAFETY: 8 quads of each row; the caller's contract.
            unsafe { self.d.load_second::<SET>(sub.quads.as_ptr().cast()) };
        }
    }

    /// Loads the activations of sub-block `b`.
    ///
    /// # Safety
    ///
    /// Registers were configured.
    #[inline(always)]
    unsafe fn load_first<const SET: usize>(&self, b: usize) {
        if let Some(acts) = self.acts.get(b) {
            let row = size_of_val(&acts.qs[0]);
            // SAFETY: 8 quads of each token; the caller's contract.
            unsafe { self.d.load_first::<SET>(acts.qs.as_ptr().cast(), row) };
        }
    }

    /// Multiplies sub-block `b`.
    ///
    /// # Safety
    ///
    /// Registers were configured. If there is such a sub-block, the set holds it.
    #[inline(always)]
    unsafe fn multiply<const SET: usize>(&self, b: usize) {
        if b < self.panel.len() {
            // SAFETY: the caller's contract.
            unsafe { self.d.multiply::<SET>() };
        }
    }

    /// Stores the sums of sub-block `b`.
    ///
    /// # Safety
    ///
    /// Registers were configured. If there is such a sub-block, the set holds its product.
    #[inline(always)]
    unsafe fn store<const SET: usize>(&mut self, b: usize) {
        if b < self.panel.len() {
            // SAFETY: the caller's contract.
            unsafe { self.d.store::<SET>(&mut self.places[b % PLACES]) };
        }
    }

    /// Adds the sums of sub-block `b`, whose set is `OWN`, and goes on with those that follow.
    ///
    /// # Safety
    ///
    /// Registers were configured, and so much was done: sub-block `b` stored, the next multiplied, and the
    /// one after it loaded.
    #[inline(always)]
    unsafe fn add<K: Finish, const OWN: usize, const OTHER: usize>(
        &mut self,
        b: usize,
        acc: &mut [[<Avx512<true> as Vector>::F; 1]; T],
    ) {
        // SAFETY: the caller's contract.
        unsafe {
            self.store::<OTHER>(b + 1);
            self.finish::<K, 0>(b, acc);
            self.multiply::<OWN>(b + 2);
            self.finish::<K, 1>(b, acc);
            self.load_second::<OTHER>(b + 3);
            self.finish::<K, 2>(b, acc);
            self.load_first::<OTHER>(b + 3);
            self.finish::<K, 3>(b, acc);
        }
    }

    /// Adds the sums of a quarter of the tokens.
    ///
    /// # Safety
    ///
    /// Those of sub-block `b` were stored.
    #[inline(always)]
    unsafe fn finish<K: Finish, const QUARTER: usize>(
        &self,
        b: usize,
        acc: &mut [[<Avx512<true> as Vector>::F; 1]; T],
    ) {
        let (v, sub, acts) = (self.d.avx512(), &self.panel[b], &self.acts[b]);
        let (sums, scales) = (&self.places[b % PLACES], Dot::load(v, &sub.scales, 0));
        for t in QUARTER * T / 4..(QUARTER + 1) * T / 4 {
            // SAFETY: the caller's contract.
            let sum = v.to_f(v.load_i(unsafe { sums.row(t) }));
            acc[t][0] = v.fma(sum, v.mul(scales, v.splat(acts.scales[t].d)), acc[t][0]);
            if K::MINIMA {
                acc[t][0] =
                    v.fma(Dot::load(v, &sub.others, 0), v.splat(acts.scales[t].dsum), acc[t][0]);
            }
        }
    }
}
