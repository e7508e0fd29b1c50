//! Packing of matrix rows into tiles, and back.

use gguf::TensorType;

use crate::TILE_ROWS;
use crate::matmul::tq2_0::Tq2_0;
use crate::matmul::wide::Wide;
use crate::matmul::{self, Tile, for_each_type};

/// Numbers of the widest block of any type.
const MAX_BLOCK_LEN: usize = 256;

/// Evaluates an expression with `$tile` standing for the type's [`Tile`].
macro_rules! with_tile {
    ($ty:expr, $tile:ident => $e:expr) => {
        for_each_type!(with_tile @ $ty, $tile => $e,)
    };
    (@ $of:expr, $name:ident => $e:expr,
     [$($file:ident::$tile:ident: $acts:ident, [$($ty:ident)*];)*]) => {
        match $of {
            $($(TensorType::$ty)|* => {
                type $name = matmul::$file::$tile;
                $e
            })*
        }
    };
}

/// Whether matrices of this type are unpacked to 8 bits when they are packed into tiles, exactly: they
/// take 8.6 bits for each value then, whatever they take in the file.
pub fn is_unpacked(ty: TensorType) -> bool {
    ty.has_integers() && !matches!(ty, TensorType::TQ1_0 | TensorType::TQ2_0)
}

/// Blocks of a row.
///
/// # Panics
///
/// If `cols` is not a whole number of blocks.
fn blocks(ty: TensorType, cols: usize) -> usize {
    let len = ty.block_len();
    assert!(cols.is_multiple_of(len), "{cols} columns are not whole {ty} blocks of {len}");
    cols / len
}

/// Bytes of a packed tile of 16 rows of `cols` columns: a multiple of 64, at most 3 % more than 16
/// rows in the file (6 % for Q3_K, 22 % for TQ1_0), and up to 48 bytes of padding for an odd number of blocks; more
/// for types that [are unpacked](is_unpacked).
///
/// # Panics
///
/// If `cols` is not a whole number of blocks.
pub fn tile_bytes(ty: TensorType, cols: usize) -> usize {
    let blocks = blocks(ty, cols);
    with_tile!(ty, T => T::bytes(blocks))
}

/// Packs 1 to 16 rows, in the file's form, into a tile; rows that are missing become zero rows.
///
/// # Panics
///
/// If there are no rows or more than 16, a row is not `cols` wide, or `dst` is not [`tile_bytes`]
/// long.
pub fn pack_tile(ty: TensorType, rows: &[&[u8]], cols: usize, dst: &mut [u8]) {
    let blocks = blocks(ty, cols);
    let bytes = ty.block_bytes();
    assert!((1..=TILE_ROWS).contains(&rows.len()), "{} rows for a tile of {TILE_ROWS}", rows.len());
    for row in rows {
        assert!(
            row.len() == blocks * bytes,
            "a row of {} bytes for {cols} columns of {ty}",
            row.len()
        );
    }
    assert!(dst.len() == tile_bytes(ty, cols), "{} bytes for a tile of {cols} {ty}", dst.len());
    let zero = if rows.len() < TILE_ROWS { vec![0; blocks * bytes] } else { Vec::new() };
    // Padding is zero too: packed tiles of equal rows are equal.
    dst.fill(0);
    with_tile!(ty, T => {
        for row in 0..TILE_ROWS {
            let blocks = *rows.get(row).unwrap_or(&&zero[..]);
            if ty == TensorType::TQ1_0 {
                for (b, block) in blocks.chunks_exact(bytes).enumerate() {
                    T::put(dst, b, row, &Tq2_0::form(block));
                }
                continue;
            }
            if !is_unpacked(ty) {
                T::put_row(dst, row, blocks, bytes);
                continue;
            }
            for (b, block) in blocks.chunks_exact(bytes).enumerate() {
                let integers = ty.integers(block).expect("whole blocks");
                let integers = integers.expect("unpacked types are integers and scales");
                Wide::put(dst, b, row, &Wide::form(&integers));
            }
        }
    });
}

/// One row of a tile as numbers, bit for bit as the file's type defines them.
///
/// # Panics
///
/// If `tile` is not [`tile_bytes`] long, there is no row `row`, or `out` is not `cols` long.
pub(crate) fn unpack_row(ty: TensorType, tile: &[u8], cols: usize, row: usize, out: &mut [f32]) {
    assert!(tile.len() == tile_bytes(ty, cols), "{} bytes for a tile of {cols} {ty}", tile.len());
    assert!(row < TILE_ROWS, "row {row} of {TILE_ROWS}");
    assert!(out.len() == cols, "{} floats for {cols} columns", out.len());
    if is_unpacked(ty) {
        for (b, out) in out.as_chunks_mut().0.iter_mut().enumerate() {
            let mut form = [0; Wide::FORM];
            Wide::get(tile, b, row, &mut form);
            Wide::integers(&form).values(out);
        }
        return;
    }
    let ty = if ty == TensorType::TQ1_0 { TensorType::TQ2_0 } else { ty };
    // The file's block is put together again, so that its type's one definition serves here too.
    // Plain floats go by the 256, or each would pay for the checks of a conversion.
    let per_step = if ty.block_len() == 1 { MAX_BLOCK_LEN } else { ty.block_len() };
    let bytes = ty.block_bytes();
    let mut blocks = [0; 4 * MAX_BLOCK_LEN];
    for (i, out) in out.chunks_mut(per_step).enumerate() {
        let count = out.len() / ty.block_len();
        let blocks = &mut blocks[..count * bytes];
        with_tile!(ty, T => {
            for (b, block) in blocks.chunks_exact_mut(bytes).enumerate() {
                T::get(tile, i * per_step / ty.block_len() + b, row, block);
            }
        });
        ty.dequantize(blocks, out).expect("whole blocks");
    }
}
