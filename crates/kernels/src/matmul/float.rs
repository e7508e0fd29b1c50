//! Plain floats: `[column][16 rows]`, widened to `f32` in the register; `acc = fma(w, x, acc)`,
//! column by column.

use super::{Tile, check_acts, fetch};
use crate::TILE_ROWS;
use crate::simd::Dot;

pub(crate) struct F32;
pub(crate) struct F16;
pub(crate) struct Bf16;

macro_rules! float_tile {
    ($name:ident, $bytes:literal, $load:ident) => {
        impl Tile for $name {
            type Act = f32;

            const ACT_COLS: usize = 1;
            const BLOCK_COLS: usize = 1;

            fn bytes(blocks: usize) -> usize {
                (blocks * TILE_ROWS * $bytes).next_multiple_of(64)
            }

            fn put(tile: &mut [u8], b: usize, row: usize, block: &[u8]) {
                tile[(b * TILE_ROWS + row) * $bytes..][..$bytes].copy_from_slice(block);
            }

            fn get(tile: &[u8], b: usize, row: usize, block: &mut [u8]) {
                block.copy_from_slice(&tile[(b * TILE_ROWS + row) * $bytes..][..$bytes]);
            }

            const NARROW_TOKENS: usize = 8;

            #[inline(always)]
            fn dot<D: Dot, const T: usize, const G: usize, const FETCH: bool>(
                d: D,
                tile: &[u8],
                acts: [&[f32]; T],
                g: usize,
            ) -> [[D::F; G]; T] {
                let columns = acts[0].len();
                check_acts(acts, columns);
                let (weights, _) = tile.as_chunks::<{ TILE_ROWS * $bytes }>();
                let mut acc = [[d.splat(0.0); G]; T];
                for (c, weights) in weights[..columns].iter().enumerate() {
                    if FETCH && c.is_multiple_of(64 / (TILE_ROWS * $bytes).min(64)) {
                        fetch::<_, { (TILE_ROWS * $bytes).div_ceil(64) }>(d, weights);
                    }
                    for i in 0..G {
                        let w = d.$load(weights, g + i);
                        for t in 0..T {
                            // SAFETY: all activation rows have `columns` elements, checked above.
                            let x = unsafe { *acts[t].get_unchecked(c) };
                            acc[t][i] = d.fma(w, d.splat(x), acc[t][i]);
                        }
                    }
                }
                acc
            }
        }
    };
}

float_tile!(F32, 4, load_f32);
float_tile!(F16, 2, load_f16);
float_tile!(Bf16, 2, load_bf16);
