//! Products of any size by a kernel that takes some tiles and tokens at once.

use gguf::TensorType;
use kernels::{ForeignProduct, PIECE_LEVELS, Piece, Rows, RowsMut, TILE_ROWS, Tiles, tile_bytes};

use crate::interface::{Acts, MOST_RESULTS, MOST_ROWS, Multiply, RawProduct};

/// Columns of a block of activations, and its bytes.
pub(crate) const COLS: usize = 32;
const ACT_BYTES: usize = size_of::<Acts>();
/// Most tiles and tokens at once.
const MOST_TILES: usize = MOST_ROWS as usize / TILE_ROWS;
const MOST_TOKENS: usize = MOST_RESULTS / TILE_ROWS;

/// The results of a call: `[tokens][tiles * 16]`.
type Results = [f32; MOST_RESULTS];

/// A kernel, and what it says of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loaded {
    pub(crate) ty: TensorType,
    pub(crate) tiles: usize,
    pub(crate) tokens: usize,
    pub(crate) multiply: Multiply,
}

impl Loaded {
    /// One call: all rows of `weights` times all of `acts`, into the first places of `results`.
    ///
    /// # Panics
    ///
    /// If the kernel does not take as many, or lengths do not fit.
    pub(crate) fn call(
        &self,
        ahead: usize,
        weights: &[&[u8]],
        acts: &[&[u8]],
        cols: usize,
        results: &mut [f32],
    ) {
        let (tiles, tokens) = (weights.len(), acts.len());
        assert!((1..=self.tiles).contains(&tiles) && (1..=self.tokens).contains(&tokens));
        assert!(results.len() >= tiles * tokens * TILE_ROWS);
        let bytes = tile_bytes(self.ty, cols);
        let mut weight_starts = [std::ptr::null(); MOST_TILES];
        for (start, tile) in weight_starts.iter_mut().zip(weights) {
            assert!(tile.len() == bytes && tile.as_ptr().addr().is_multiple_of(2));
            *start = tile.as_ptr().cast();
        }
        let mut act_starts = [std::ptr::null(); MOST_TOKENS];
        for (start, row) in act_starts.iter_mut().zip(acts) {
            assert!(row.len() == cols / COLS * ACT_BYTES);
            assert!(row.as_ptr().addr().is_multiple_of(align_of::<Acts>()));
            *start = row.as_ptr().cast();
        }
        let product = RawProduct {
            weights: weight_starts.as_ptr(),
            acts: act_starts.as_ptr(),
            results: results.as_mut_ptr(),
            tiles,
            tokens,
            blocks: cols / COLS,
            ahead,
        };
        // SAFETY: the CPU has the instructions that the kernel names, which was asked when it was loaded. All that
        // the product points to is as long as the header says, by the checks above, and lives until the call
        // returns. That the kernel keeps to it is what the user vouches for by naming the file.
        unsafe { (self.multiply)(&raw const product) }
    }

    /// As many rows and tokens as a call takes, summed over all pieces in `sums`, of which there is one for every
    /// level; each root's sums are handed to `root`.
    fn register_tile(
        &self,
        ahead: usize,
        (weights, acts): (&[&[u8]], &[&[u8]]),
        pieces: &[Piece],
        sums: &mut [Results],
        mut root: impl FnMut(usize, &Results),
    ) {
        if let [piece] = pieces {
            self.call(ahead, weights, acts, piece.cols, &mut sums[0]);
            return root(0, &sums[0]);
        }
        let len = weights.len() * acts.len() * TILE_ROWS;
        let (mut depth, mut column, mut byte) = (0, 0, 0);
        for piece in pieces {
            let bytes = tile_bytes(self.ty, piece.cols);
            let mut tiles = [&[][..]; MOST_TILES];
            for (own, tile) in tiles.iter_mut().zip(weights) {
                *own = &tile[byte..byte + bytes];
            }
            let mut rows = [&[][..]; MOST_TOKENS];
            for (own, row) in rows.iter_mut().zip(acts) {
                let at = column / COLS * ACT_BYTES;
                *own = &row[at..at + piece.cols / COLS * ACT_BYTES];
            }
            let (tiles, rows) = (&tiles[..weights.len()], &rows[..acts.len()]);
            self.call(ahead, tiles, rows, piece.cols, &mut sums[depth]);
            (byte, column) = (byte + bytes, column + piece.cols);
            for _ in 0..piece.folds {
                let [below, sum] = sums.get_disjoint_mut([depth - 1, depth]).expect("two levels");
                for (below, sum) in below[..len].iter_mut().zip(&sum[..len]) {
                    *below += sum;
                }
                depth -= 1;
            }
            depth += 1;
        }
        for (at, sums) in sums[..depth].iter().enumerate() {
            root(at, sums);
        }
    }

    /// All tiles and tokens, in register tiles.
    fn walk(
        &self,
        ahead: usize,
        tiles: Tiles<'_>,
        pieces: &[Piece],
        acts: Rows<'_, u8>,
        mut out: RowsMut<'_, f32>,
        sums: &mut [Results],
    ) {
        let (all, tokens) = (tiles.count(), acts.rows());
        let passes = tokens.div_ceil(self.tokens);
        let (mut weights, mut rows) = ([&[][..]; MOST_TILES], [&[][..]; MOST_TOKENS]);
        let mut rows_of = None;
        for tile in (0..all).step_by(self.tiles) {
            let count = self.tiles.min(all - tile);
            for (i, weights) in weights[..count].iter_mut().enumerate() {
                *weights = tiles.tile(tile + i);
            }
            // In about equal parts.
            for pass in 0..passes {
                let (first, end) = (tokens * pass / passes, tokens * (pass + 1) / passes);
                if rows_of != Some(pass) {
                    for (token, row) in (first..end).zip(&mut rows) {
                        *row = acts.row(token);
                    }
                    rows_of = Some(pass);
                }
                let of = (&weights[..count], &rows[..end - first]);
                // Only the first pass over a tile can find it in memory.
                let ahead = if pass == 0 { ahead } else { 0 };
                self.register_tile(ahead, of, pieces, sums, |root, sums| {
                    let place = TILE_ROWS * (root * all + tile);
                    let width = TILE_ROWS * count;
                    for (token, sums) in (first..end).zip(sums.chunks_exact(width)) {
                        out.row_mut(token)[place..place + width].copy_from_slice(sums);
                    }
                });
            }
        }
    }
}

impl ForeignProduct for Loaded {
    fn ty(&self) -> TensorType {
        self.ty
    }

    fn size(&self) -> (usize, usize) {
        (self.tiles, self.tokens)
    }

    fn multiply(
        &self,
        ahead: usize,
        tiles: Tiles<'_>,
        pieces: &[Piece],
        acts: Rows<'_, u8>,
        out: RowsMut<'_, f32>,
    ) {
        // One of all columns is what most matrices have: nothing else needs room.
        match pieces {
            [_] => self.walk(ahead, tiles, pieces, acts, out, &mut [[0.0; MOST_RESULTS]; 1]),
            _ => {
                self.walk(
                    ahead,
                    tiles,
                    pieces,
                    acts,
                    out,
                    &mut [[0.0; MOST_RESULTS]; PIECE_LEVELS],
                );
            }
        }
    }
}
