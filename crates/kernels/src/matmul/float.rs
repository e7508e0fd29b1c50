//! Plain floats: `[column][16 rows]`, widened to `f32` in the register; `acc = fma(w, x, acc)`,
//! column by column.

use super::{Fetch, Part, Sums, Tile, check_acts, check_parts, fetch, part};
use crate::TILE_ROWS;
use crate::simd::Dot;

pub(crate) struct F32;
pub(crate) struct F16;

macro_rules! float_tile {
    ($name:ident, $bytes:literal, $load:ident, $sums:expr) => {
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

            fn put_row(tile: &mut [u8], row: usize, blocks: &[u8], _: usize) {
                let columns = tile.as_chunks_mut::<{ TILE_ROWS * $bytes }>().0;
                for (column, x) in columns.iter_mut().zip(blocks.as_chunks::<$bytes>().0) {
                    column.as_chunks_mut::<$bytes>().0[row] = *x;
                }
            }

            fn get(tile: &[u8], b: usize, row: usize, block: &mut [u8]) {
                block.copy_from_slice(&tile[(b * TILE_ROWS + row) * $bytes..][..$bytes]);
            }

            const SUMS: Sums = $sums;
            const TWO_FROM: usize = 1;

            #[inline(always)]
            fn dot<D: Dot, const T: usize, const N: usize, const U: usize>(
                d: D,
                parts: [Part<'_>; N],
                acts: [&[f32]; T],
                next: Fetch,
            ) -> [[D::F; N]; T] {
                /// Columns of a cache line.
                const LINE: usize = 64 / (TILE_ROWS * $bytes);
                let columns = acts[0].len();
                check_acts(acts, columns);
                check_parts(parts, Self::bytes(columns));
                let mut acc = [[d.splat(0.0); N]; T];
                let mut c = 0;
                // SAFETY: all activation rows have `columns` elements, checked above.
                unsafe {
                    while c + U * LINE <= columns {
                        Self::columns::<D, T, N, LINE>(d, parts, acts, c, &mut acc, next);
                        if U == 2 {
                            Self::columns::<D, T, N, LINE>(
                                d,
                                parts,
                                acts,
                                c + LINE,
                                &mut acc,
                                next,
                            );
                        }
                        c += U * LINE;
                    }
                    while c < columns {
                        Self::columns::<D, T, N, 1>(d, parts, acts, c, &mut acc, next);
                        c += 1;
                    }
                }
                acc
            }
        }

        impl $name {
            /// Adds the products of `C` columns from column `c` on, which is the first of a cache line if they are
            /// one.
            ///
            /// # Safety
            ///
            /// Every element of `acts` has these columns.
            #[inline(always)]
            unsafe fn columns<D: Dot, const T: usize, const N: usize, const C: usize>(
                d: D,
                parts: [Part<'_>; N],
                acts: [&[f32]; T],
                c: usize,
                acc: &mut [[D::F; N]; T],
                next: Fetch,
            ) {
                const COLUMN: usize = TILE_ROWS * $bytes;
                if C * COLUMN == 64 || (c * COLUMN).is_multiple_of(64) {
                    fetch::<D, T, N>(d, parts, c * COLUMN, 1, next);
                }
                let mut w = [[d.splat(0.0); N]; C];
                for i in 0..C {
                    for n in 0..N {
                        let column = part::<COLUMN>(parts[n].tile, (c + i) * COLUMN);
                        w[i][n] = d.$load(column, parts[n].group);
                    }
                }
                for t in 0..T {
                    for i in 0..C {
                        // SAFETY: the caller's contract.
                        let x = d.splat(unsafe { *acts[t].get_unchecked(c + i) });
                        for n in 0..N {
                            acc[t][n] = d.fma(w[i][n], x, acc[t][n]);
                        }
                    }
                }
            }
        }
    };
}

float_tile!(F32, 4, load_f32, Sums::Floats);
float_tile!(F16, 2, load_f16, Sums::Pairs);
