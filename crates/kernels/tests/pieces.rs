//! Products whose columns are summed in pieces.

mod common;

use arclight_kernels::{
    Isa, Kernels, Piece, Rows, RowsMut, TILE_ROWS, Tiles, pack_tile, tile_bytes,
};
use common::{Aligned, Matrix, Rng, TYPES, TestActs, matmul, same_bits};
use gguf::TensorType;

/// The sums of `pieces`, each a tile of its own, added up by hand: `[tokens, roots, 16]`.
fn by_hand(ty: TensorType, rows: &[Vec<u8>], pieces: &[Piece], x: &[f32], cols: usize) -> Vec<f32> {
    let kernels = Kernels::for_isa(Isa::Scalar).unwrap();
    let bytes = |cols: usize| cols / ty.block_len() * ty.block_bytes();
    let (mut stack, mut col): (Vec<Vec<f32>>, usize) = (Vec::new(), 0);
    for piece in pieces {
        let range = col..col + piece.cols;
        let own = rows.iter().map(|r| r[bytes(range.start)..bytes(range.end)].to_vec());
        let own_x: Vec<f32> = x.chunks(cols).flat_map(|x| &x[range.clone()]).copied().collect();
        let m = Matrix::new(ty, own.collect(), piece.cols);
        let acts = TestActs::new(kernels, ty, &own_x, piece.cols);
        stack.push(matmul(kernels, &m, acts.view(0..x.len() / cols)));
        for _ in 0..piece.folds {
            let top = stack.pop().unwrap();
            stack.last_mut().unwrap().iter_mut().zip(top).for_each(|(below, top)| *below += top);
        }
        col = range.end;
    }
    let rows = |t: usize| stack.iter().flat_map(move |root| &root[t * 16..][..16]);
    (0..x.len() / cols).flat_map(rows).copied().collect()
}

#[test]
fn pieces_are_summed_apart_and_added_as_a_tree() {
    let mut rng = Rng(21);
    // ((1 + 2) + (3 + 4)) + 5, and three roots, in runs of odd and even lengths.
    for (ty, folds) in TYPES.iter().flat_map(|&ty| [(ty, [0, 1, 0, 2, 1]), (ty, [0, 1, 0, 0, 1])]) {
        let block = ty.block_len();
        let pieces: Vec<Piece> = [3, 1, 2, 5, 4]
            .into_iter()
            .zip(folds)
            .map(|(blocks, folds)| Piece { cols: blocks * block.max(32), folds })
            .collect();
        let cols: usize = pieces.iter().map(|p| p.cols).sum();
        let rows = Matrix::arbitrary(ty, 16, cols, &mut rng).rows;
        let bytes = |cols: usize| cols / block * ty.block_bytes();
        let mut tile = Aligned::new(pieces.iter().map(|p| tile_bytes(ty, p.cols)).sum());
        let (mut rest, mut col) = (tile.bytes_mut(), 0);
        for piece in &pieces {
            let (own, after) = rest.split_at_mut(tile_bytes(ty, piece.cols));
            let own_rows: Vec<&[u8]> =
                rows.iter().map(|r| &r[bytes(col)..bytes(col + piece.cols)]).collect();
            pack_tile(ty, &own_rows, piece.cols, own);
            (rest, col) = (after, col + piece.cols);
        }
        let x = rng.vec(19 * cols);
        let expected = by_hand(ty, &rows, &pieces, &x, cols);
        for kernels in Kernels::available() {
            for tokens in 1..=19 {
                let acts = TestActs::new(kernels, ty, &x[..tokens * cols], cols);
                let width = Piece::roots(&pieces) * TILE_ROWS;
                let mut out = vec![f32::NAN; tokens * width];
                let view = RowsMut::new(&mut out, tokens, width, width);
                kernels.matmul(ty, Tiles::one(tile.bytes()), &pieces, acts.view(0..tokens), view);
                let what = format!("{} {ty}, {tokens} tokens", kernels.isa());
                same_bits(&out, &expected[..tokens * width], what);
            }
        }
    }
}

fn product_of(pieces: &[Piece], tile: usize) {
    let (tile, x) = (Aligned::new(tile), [0.0; 64]);
    let acts = arclight_kernels::Acts::F32(Rows::new(&x, 1, 64, 64));
    let mut out = [0.0; 16];
    let out = RowsMut::new(&mut out, 1, 16, 16);
    let kernels = Kernels::for_isa(Isa::Scalar).unwrap();
    kernels.matmul(TensorType::F32, Tiles::one(tile.bytes()), pieces, acts, out);
}

#[test]
#[should_panic(expected = "output of 16 columns, not 32")]
fn every_root_wants_its_place() {
    product_of(&[Piece { cols: 32, folds: 0 }; 2], 4096);
}

#[test]
#[should_panic(expected = "1 additions of 1 sums")]
fn additions_of_nothing_are_refused() {
    product_of(&[Piece { cols: 32, folds: 1 }; 2], 4096);
}

#[test]
#[should_panic(expected = "4032 bytes for a tile of 64 F32 in 1 pieces")]
fn a_tile_of_another_size_is_refused() {
    product_of(&Piece::whole(64), 4032);
}

#[test]
fn tiles_that_go_together_have_the_bits_of_tiles_alone() {
    let mut rng = Rng(22);
    for ty in TYPES {
        let cols = 3 * ty.block_len().max(32);
        let (len, stride) = (tile_bytes(ty, cols), tile_bytes(ty, cols) + 64);
        let mut bytes = Aligned::new(5 * stride);
        let all: Vec<Matrix> = (0..5).map(|_| Matrix::arbitrary(ty, 16, cols, &mut rng)).collect();
        for (m, to) in all.iter().zip(bytes.bytes_mut().chunks_mut(stride)) {
            to[..len].copy_from_slice(m.tile.bytes());
        }
        let x = rng.vec(19 * cols);
        for kernels in Kernels::available() {
            for (tokens, count) in (1..=19).flat_map(|t| (0..=5).map(move |c| (t, c))) {
                let acts = TestActs::new(kernels, ty, &x[..tokens * cols], cols);
                let width = count * TILE_ROWS;
                let mut out = vec![f32::NAN; tokens * width];
                let view = RowsMut::new(&mut out, tokens, width, width);
                let tiles = Tiles::new(bytes.bytes(), count, len, stride);
                kernels.matmul(ty, tiles, &Piece::whole(cols), acts.view(0..tokens), view);
                for (i, m) in all[..count].iter().enumerate() {
                    let alone = matmul(kernels, m, acts.view(0..tokens));
                    for (t, alone) in alone.chunks(TILE_ROWS).enumerate() {
                        let what = format!("{} {ty}, token {t}, tile {i}", kernels.isa());
                        same_bits(&out[t * width + i * TILE_ROWS..][..TILE_ROWS], alone, what);
                    }
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "3 tiles of 64 at a stride of 128 in 319")]
fn tiles_beyond_their_bytes_are_refused() {
    Tiles::new(&[0; 319], 3, 64, 128);
}
