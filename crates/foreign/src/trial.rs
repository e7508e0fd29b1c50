//! Whether a kernel has the bits of the scalar kernel: products of random and of extreme blocks, of every number of
//! tiles and tokens that it takes at once, compared bit by bit.

use std::thread;

use fastrand::Rng;
use gguf::TensorType;
use half::f16;
use kernels::{
    Acts, Isa, Kernels, Piece, Rows, RowsMut, TILE_ROWS, Tiles, pack_tile, q8_row_bytes, tile_bytes,
};

use crate::error::Difference;
use crate::product::{COLS, Loaded};

/// Blocks of 32 columns: one alone, pairs, odd numbers, more than a loop is unrolled for.
const BLOCKS: [usize; 5] = [1, 2, 3, 8, 37];
/// Threads that call it at the same time: a kernel that keeps something between calls would be seen.
const THREADS: u64 = 2;
/// Floats beyond the results that nobody may write.
const GUARD: usize = 64;
/// What they hold: the bits of no result.
const UNTOUCHED: u32 = 0x7fa0_5eed;

/// Compares all products.
///
/// # Errors
///
/// The first one that differs.
pub(crate) fn run(kernel: &Loaded) -> Result<(), Difference> {
    thread::scope(|scope| {
        let start = |seed| scope.spawn(move || products(kernel, Rng::with_seed(seed)));
        let threads: Vec<_> = (1..=THREADS).map(start).collect();
        let ended = threads.into_iter().map(|thread| thread.join().expect("it does not panic"));
        ended.collect()
    })
}

fn products(kernel: &Loaded, mut noise: Rng) -> Result<(), Difference> {
    let scalar = Kernels::for_isa(Isa::Scalar).expect("always there");
    for blocks in BLOCKS {
        let cols = blocks * COLS;
        let weights: Vec<_> =
            (0..kernel.tiles).map(|_| tile(kernel.ty, blocks, &mut noise)).collect();
        let acts: Vec<_> =
            (0..kernel.tokens).map(|_| quantised(scalar, blocks, &mut noise)).collect();
        for tiles in 1..=kernel.tiles {
            for tokens in 1..=kernel.tokens {
                let weights: Vec<&[u8]> = weights[..tiles].iter().map(Bytes::bytes).collect();
                // The last ones, so that the extreme ones at the front are not alone.
                let acts = &acts[acts.len() - tokens..];
                let acts: Vec<&[u8]> = acts.iter().map(Bytes::bytes).collect();
                let ahead = [0, 4096][tokens % 2];
                compare(kernel, scalar, (&weights, &acts), cols, ahead)?;
            }
        }
    }
    Ok(())
}

/// One call, and the same by the scalar kernel.
fn compare(
    kernel: &Loaded,
    scalar: &Kernels,
    (weights, acts): (&[&[u8]], &[&[u8]]),
    cols: usize,
    ahead: usize,
) -> Result<(), Difference> {
    let (tiles, tokens) = (weights.len(), acts.len());
    let (rows, len) = (tiles * TILE_ROWS, tiles * TILE_ROWS * tokens);
    let mut got = vec![f32::from_bits(UNTOUCHED); GUARD + len + GUARD];
    kernel.call(ahead, weights, acts, cols, &mut got[GUARD..]);
    let differs = |wrong| Err(Difference { rows, cols, tokens, wrong });
    let (before, rest) = got.split_at(GUARD);
    let (got, after) = rest.split_at(len);
    if before.iter().chain(after).any(|x| x.to_bits() != UNTOUCHED) {
        return differs(None);
    }
    let mut want = vec![0.0; len];
    for (t, acts) in acts.iter().enumerate() {
        for (i, tile) in weights.iter().enumerate() {
            let acts = Acts::Q8(Rows::new(acts, 1, acts.len(), acts.len()));
            let to = &mut want[(t * tiles + i) * TILE_ROWS..][..TILE_ROWS];
            let to = RowsMut::new(to, 1, TILE_ROWS, TILE_ROWS);
            scalar.matmul(kernel.ty, Tiles::one(tile), &Piece::whole(cols), acts, to);
        }
    }
    // A NaN has a sign and a payload that no kernel promises; left untouched is no result.
    let same = |(got, want): (&f32, &f32)| {
        got.to_bits() == want.to_bits()
            || got.is_nan() && want.is_nan() && got.to_bits() != UNTOUCHED
    };
    let pairs = || got.iter().zip(&want);
    match pairs().position(|pair| !same(pair)) {
        None => Ok(()),
        Some(at) => {
            let count = pairs().filter(|pair| !same(*pair)).count();
            differs(Some((count, [at % rows, at / rows], [got[at], want[at]])))
        }
    }
}

/// Rows of random blocks, in the file's form, packed.
fn tile(ty: TensorType, blocks: usize, noise: &mut Rng) -> Bytes {
    let rows: Vec<Vec<u8>> = (0..TILE_ROWS)
        .map(|row| {
            let mut bytes = Vec::new();
            for b in 0..blocks {
                bytes.extend(block(ty, row + b, noise));
            }
            bytes
        })
        .collect();
    let rows: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
    let mut tile = Bytes::new(tile_bytes(ty, blocks * COLS));
    pack_tile(ty, &rows, blocks * COLS, tile.bytes_mut());
    tile
}

/// A block of Q8_0 or Q4_0: a half float, then quants. Random ones, and in turn the least and the greatest quants
/// alone, scales of zero and those below the smallest normal number.
fn block(ty: TensorType, turn: usize, noise: &mut Rng) -> Vec<u8> {
    let scale = match turn % 7 {
        3 => f16::from_bits(noise.u16(..) & 0x83ff),
        5 => f16::ZERO,
        _ => f16::from_f32(unit(noise) * [1.0, 1e-3, 100.0][turn % 3]),
    };
    let mut block = scale.to_le_bytes().to_vec();
    let quants = ty.block_bytes() - 2;
    block.extend((0..quants).map(|_| match (turn % 5, ty) {
        (1, TensorType::Q8_0) => 0x80,
        (2, TensorType::Q8_0) => 0x7f,
        (1, _) => 0x00,
        (2, _) => 0xff,
        _ => noise.u8(..),
    }));
    block
}

/// A token's activations: random blocks of many sizes, blocks of one value, of zeros, and one that is not finite.
fn quantised(scalar: &Kernels, blocks: usize, noise: &mut Rng) -> Bytes {
    let token = noise.usize(..1 << 20);
    let x = (0..blocks * COLS).map(|c| {
        let b = token + c / COLS;
        match b % 11 {
            2 => 1.5,
            4 => -3.25,
            6 => 0.0,
            7 if c.is_multiple_of(COLS) && token.is_multiple_of(3) => f32::INFINITY,
            _ => unit(noise) * [1.0, 1e-4, 1e4][b % 3],
        }
    });
    let x: Vec<f32> = x.collect();
    let mut row = Bytes::new(q8_row_bytes(x.len()));
    scalar.quantize_q8(&x, row.bytes_mut());
    row
}

/// Bytes at a multiple of 4.
struct Bytes {
    words: Vec<[u8; 64]>,
    len: usize,
    skip: usize,
}

impl Bytes {
    fn new(len: usize) -> Self {
        let words = vec![[0; 64]; len.div_ceil(64) + 1];
        let skip = words.as_ptr().addr().next_multiple_of(64) - words.as_ptr().addr();
        Self { words, len, skip }
    }

    fn bytes(&self) -> &[u8] {
        &self.words.as_flattened()[self.skip..][..self.len]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.words.as_flattened_mut()[self.skip..][..self.len]
    }
}

/// From -1 to 1.
fn unit(noise: &mut Rng) -> f32 {
    2.0 * noise.f32() - 1.0
}
