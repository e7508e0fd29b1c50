//! What the benchmarks give to the kernels: noise, in the forms that they take.

use std::ops::{Deref, DerefMut};

use arclight_kernels::{
    ActKind, Acts, AttnTile, ByDistance, How, Isa, KV_PAGE, Kernels, KvPageMut, KvPages, KvQueries,
    KvType, Piece, Rows, RowsMut, TILE_ROWS, Tiles, act_kind, pack_tile, q8_row_bytes, tile_bytes,
};
use gguf::TensorType;

/// `len` numbers in -1..1.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

/// Bytes at a multiple of 64, as arenas give them.
pub(crate) struct Bytes {
    buffer: Vec<u8>,
    start: usize,
    len: usize,
}

impl Bytes {
    pub(crate) fn zeroed(len: usize) -> Self {
        let buffer = vec![0; len + 64];
        let start = buffer.as_ptr().align_offset(64);
        Self { buffer, start, len }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[self.start..][..self.len]
    }
}

impl DerefMut for Bytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..][..self.len]
    }
}

/// `rows` rows of noise in the file's form.
pub(crate) fn file_rows(ty: TensorType, cols: usize, rows: usize) -> Vec<Vec<u8>> {
    let row = |r: usize| {
        let mut row = Vec::new();
        ty.quantize(&noise(r as u64, cols), &mut row).expect("finite");
        row
    };
    (0..rows).map(row).collect()
}

/// A packed matrix.
pub(crate) struct Matrix {
    pub(crate) bytes: Bytes,
    pub(crate) tiles: usize,
    ty: TensorType,
    cols: usize,
}

impl Matrix {
    pub(crate) fn noise(ty: TensorType, cols: usize, tiles: usize) -> Self {
        let len = tile_bytes(ty, cols);
        let mut bytes = Bytes::zeroed(tiles * len);
        let rows = file_rows(ty, cols, tiles * TILE_ROWS);
        for (rows, tile) in rows.chunks(TILE_ROWS).zip(bytes.chunks_mut(len)) {
            let rows: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
            pack_tile(ty, &rows, cols, tile);
        }
        Self { bytes, tiles, ty, cols }
    }

    pub(crate) fn view(&self) -> Tiles<'_> {
        let len = tile_bytes(self.ty, self.cols);
        Tiles::new(&self.bytes, self.tiles, len, len)
    }
}

/// A matrix product but for the matrix: activations, and room for the result.
pub(crate) struct Product {
    kernels: &'static Kernels,
    ty: TensorType,
    cols: usize,
    tokens: usize,
    /// `[tokens, cols]`
    x: Vec<f32>,
    /// The same in the form that matrices of type `ty` are multiplied with.
    rows: Bytes,
    /// `[tokens, TILE_ROWS * tiles]`
    out: Vec<f32>,
}

impl Product {
    /// Of `tokens` tokens, with matrices of `tiles` tiles.
    pub(crate) fn noise(
        kernels: &'static Kernels,
        ty: TensorType,
        cols: usize,
        tokens: usize,
        tiles: usize,
    ) -> Self {
        let x = noise(99, tokens * cols);
        let kind = act_kind(ty);
        let width = kernels.row_bytes(kind, cols);
        let mut rows = Bytes::zeroed(tokens * width);
        for (x, row) in x.chunks(cols).zip(rows.chunks_mut(width)) {
            match kind {
                ActKind::F32 => {}
                ActKind::Bf16 => kernels.round_bf16(x, row),
                ActKind::Q8 => kernels.quantize_q8(x, row),
            }
        }
        Self { kernels, ty, cols, tokens, x, rows, out: vec![0.0; tokens * tiles * TILE_ROWS] }
    }

    pub(crate) fn run(&mut self, tiles: Tiles<'_>) {
        self.run_by(How::default(), tiles);
    }

    pub(crate) fn run_by(&mut self, how: How, tiles: Tiles<'_>) {
        let kind = act_kind(self.ty);
        let bytes = self.kernels.row_bytes(kind, self.cols);
        let rows = Rows::new(&self.rows, self.tokens, bytes, bytes);
        let acts = match kind {
            ActKind::F32 => Acts::F32(Rows::new(&self.x, self.tokens, self.cols, self.cols)),
            ActKind::Bf16 => Acts::Bf16(rows),
            ActKind::Q8 => Acts::Q8(rows),
        };
        let width = self.out.len() / self.tokens;
        let out = RowsMut::new(&mut self.out, self.tokens, width, width);
        self.kernels.matmul_by(how, self.ty, tiles, &Piece::whole(self.cols), acts, out);
    }

    /// Panics unless the result has the bits of the scalar twin's.
    pub(crate) fn check(&mut self, matrix: &Matrix) {
        self.check_by(How::default(), matrix);
    }

    /// As [`Product::check`], multiplied in another way.
    pub(crate) fn check_by(&mut self, how: How, matrix: &Matrix) {
        let scalar = Kernels::for_isa(Isa::Scalar).expect("always there");
        let mut right = Self::noise(scalar, self.ty, self.cols, self.tokens, matrix.tiles);
        right.run(matrix.view());
        self.run_by(how, matrix.view());
        let same = self.out.iter().zip(&right.out).all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(same, "{} {} is wrong", self.kernels.isa(), self.ty);
    }
}

/// Queries and the first `keys` keys and values of a chunk. All of it is leaked, so that it can be kept beside
/// views of itself: benchmarks make few and end soon.
pub(crate) fn attn_tile(
    kernels: &Kernels,
    kv: KvType,
    head_dim: usize,
    rows: usize,
    keys: usize,
) -> AttnTile<'static> {
    let q: &[f32] = noise(7, rows * head_dim).leak();
    let mut quants: &[u8] = &[];
    if kv.quantises_queries() {
        let bytes = Box::leak(Box::new(Bytes::zeroed(q8_row_bytes(q.len()))));
        kernels.quantize_q8(q, bytes);
        quants = bytes;
    }
    macro_rules! filled {
        ($kind:ident, $q:expr) => {
            (
                $q,
                KvPages::$kind(pages(kv, head_dim, keys, 0, |k, to, slot| {
                    kernels.store_k(k, KvPageMut::$kind(to), slot);
                })),
                KvPages::$kind(pages(kv, head_dim, keys, 1, |v, to, slot| {
                    kernels.store_v(v, KvPageMut::$kind(to), slot);
                })),
            )
        };
    }
    let (queries, keys_of, values_of) = match kv {
        KvType::F16 => filled!(F16, KvQueries::Floats(q)),
        KvType::Bf16 => filled!(Bf16, KvQueries::Floats(q)),
        KvType::F32 => filled!(F32, KvQueries::Floats(q)),
        KvType::Q8_0 => filled!(Q8_0, KvQueries::Quants(quants)),
        KvType::Q4_0 => filled!(Q4_0, KvQueries::Quants(quants)),
    };
    AttnTile {
        rows,
        head_dim,
        starts: vec![0; rows].leak(),
        limits: vec![keys as u32; rows].leak(),
        soft_cap: f32::INFINITY,
        added: ByDistance::Nothing,
        queries,
        keys: keys_of,
        values: values_of,
        next: &[],
    }
}

/// The pages of `keys` keys, or values, into which `store` puts each at its slot.
fn pages<T: Clone + Default>(
    kv: KvType,
    head_dim: usize,
    keys: usize,
    seed: u64,
    store: impl Fn(&[f32], &mut [T], usize),
) -> &'static [&'static [T]] {
    let page = |p: usize| -> &[T] {
        let mut page = vec![T::default(); kv.page_bytes(head_dim) / size_of::<T>()];
        for slot in 0..KV_PAGE {
            let token = (p * KV_PAGE + slot) as u64;
            store(&noise(2 * token + seed, head_dim), &mut page, slot);
        }
        page.leak()
    };
    (0..keys.div_ceil(KV_PAGE)).map(page).collect::<Vec<_>>().leak()
}
