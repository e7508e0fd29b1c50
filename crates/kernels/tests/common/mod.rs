//! What the tests share: random numbers, matrices of every type, and references that know no
//! vectors.
#![allow(dead_code, reason = "every test binary uses its part")]

use arclight_kernels::{
    ActKind, Acts, Kernels, Piece, Rows, RowsMut, TILE_ROWS, Tiles, act_kind, pack_tile, tile_bytes,
};
use gguf::TensorType;

/// All types.
pub(crate) const TYPES: [TensorType; TensorType::ALL.len()] = TensorType::ALL;

/// Where half-precision scales stand in a block.
pub(crate) fn halves(ty: TensorType) -> &'static [usize] {
    match ty {
        TensorType::Q4_1 | TensorType::Q5_1 | TensorType::Q4_K | TensorType::Q5_K => &[0, 2],
        TensorType::Q2_K => &[80, 82],
        TensorType::Q3_K => &[108],
        TensorType::Q6_K => &[208],
        TensorType::TQ1_0 => &[52],
        TensorType::TQ2_0 => &[64],
        // Floats, and scales of another form: see `moderate`.
        TensorType::F32
        | TensorType::BF16
        | TensorType::MXFP4
        | TensorType::NVFP4
        | TensorType::IQ1_M => &[],
        _ => &[0],
    }
}

/// Makes the scales of a block finite and moderate, given random bits.
pub(crate) fn moderate(ty: TensorType, block: &mut [u8], rng: &mut Rng) {
    // A sign and an exponent of at most 2^1.
    let mut half = || (rng.next() as u16 & 0x8fff) | (rng.next() as u16 & 0x3000);
    for &at in halves(ty) {
        block[at..at + 2].copy_from_slice(&half().to_le_bytes());
    }
    match ty {
        TensorType::MXFP4 => block[0] = 120 + block[0] % 16,
        // Its scale is the upper nibble of four words.
        TensorType::IQ1_M => {
            let bits = half();
            for (j, byte) in [49, 51, 53, 55].into_iter().enumerate() {
                block[byte] = block[byte] & 15 | ((bits >> (4 * j) & 15) as u8) << 4;
            }
        }
        _ => {}
    }
}

/// SplitMix64.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Uniform in -1..1.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    pub(crate) fn vec(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.unit()).collect()
    }
}

#[track_caller]
pub(crate) fn same_bits(a: &[f32], b: &[f32], what: impl std::fmt::Display) {
    assert_eq!(a.len(), b.len(), "{what}");
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        assert_eq!(a.to_bits(), b.to_bits(), "{what}: element {i} is {a:e} and {b:e}");
    }
}

/// Bytes at multiples of 64, as the arenas give them.
pub(crate) struct Aligned(Vec<[u64; 8]>, usize);

impl Aligned {
    pub(crate) fn new(len: usize) -> Self {
        Self(vec![[0; 8]; len.div_ceil(64) + 1], len)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        let at = self.0.as_ptr().addr().wrapping_neg() % 64;
        // SAFETY: initialised integers seen as bytes; there is one spare line for the alignment.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast::<u8>().add(at), self.1) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let at = self.0.as_ptr().addr().wrapping_neg() % 64;
        // SAFETY: as in `bytes`, borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast::<u8>().add(at), self.1) }
    }
}

/// Up to 16 matrix rows in the file's form, what they mean, and their tile.
pub(crate) struct Matrix {
    pub(crate) ty: TensorType,
    pub(crate) cols: usize,
    pub(crate) rows: Vec<Vec<u8>>,
    pub(crate) values: Vec<Vec<f32>>,
    pub(crate) tile: Aligned,
}

impl Matrix {
    pub(crate) fn new(ty: TensorType, rows: Vec<Vec<u8>>, cols: usize) -> Self {
        let values = rows
            .iter()
            .map(|row| {
                let mut out = vec![0.0; cols];
                ty.dequantize(row, &mut out).unwrap();
                out
            })
            .collect();
        let mut tile = Aligned::new(tile_bytes(ty, cols));
        let slices: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
        pack_tile(ty, &slices, cols, tile.bytes_mut());
        Self { ty, cols, rows, values, tile }
    }

    /// Rows as a quantiser makes them from uniform numbers, if the type has one.
    pub(crate) fn quantised(ty: TensorType, rows: usize, cols: usize, rng: &mut Rng) -> Self {
        if !ty.can_quantize() {
            return Self::arbitrary(ty, rows, cols, rng);
        }
        let rows = (0..rows).map(|_| {
            let mut bytes = Vec::new();
            ty.quantize(&rng.vec(cols), &mut bytes).unwrap();
            bytes
        });
        Self::new(ty, rows.collect(), cols)
    }

    /// Rows of random bytes, so that every quant, scale and minimum occurs; scales are kept finite
    /// and moderate.
    pub(crate) fn arbitrary(ty: TensorType, rows: usize, cols: usize, rng: &mut Rng) -> Self {
        if matches!(ty, TensorType::F32 | TensorType::BF16) {
            return Self::quantised(ty, rows, cols, rng);
        }
        let make = |rng: &mut Rng| {
            let len = cols / ty.block_len() * ty.block_bytes();
            let mut row: Vec<u8> = (0..len).map(|_| rng.next() as u8).collect();
            for block in row.chunks_exact_mut(ty.block_bytes()) {
                moderate(ty, block, rng);
            }
            row
        };
        Self::new(ty, (0..rows).map(|_| make(rng)).collect(), cols)
    }
}

/// Activations in the form that a type wants.
pub(crate) enum TestActs {
    F32(Vec<f32>, usize),
    Bf16(Aligned, usize),
    Q8(Aligned, usize),
}

impl TestActs {
    /// `x`: `[tokens, cols]`.
    pub(crate) fn new(kernels: &Kernels, ty: TensorType, x: &[f32], cols: usize) -> Self {
        match act_kind(ty) {
            ActKind::F32 => Self::F32(x.to_vec(), cols),
            kind => {
                let bytes = kernels.row_bytes(kind, cols);
                let mut rows = Aligned::new(x.len() / cols * bytes);
                for (x, row) in x.chunks(cols).zip(rows.bytes_mut().chunks_mut(bytes)) {
                    match kind {
                        ActKind::Q8 => kernels.quantize_q8(x, row),
                        _ => kernels.round_bf16(x, row),
                    }
                }
                if kind == ActKind::Q8 { Self::Q8(rows, bytes) } else { Self::Bf16(rows, bytes) }
            }
        }
    }

    pub(crate) fn view(&self, tokens: std::ops::Range<usize>) -> Acts<'_> {
        match self {
            Self::F32(x, cols) => Acts::F32(Rows::new(x, x.len() / cols, *cols, *cols).sub(tokens)),
            Self::Bf16(x, bytes) => Acts::Bf16(rows(x, *bytes).sub(tokens)),
            Self::Q8(x, bytes) => Acts::Q8(rows(x, *bytes).sub(tokens)),
        }
    }
}

fn rows(x: &Aligned, bytes: usize) -> Rows<'_, u8> {
    Rows::new(x.bytes(), x.bytes().len() / bytes, bytes, bytes)
}

/// `[tokens, 16]`
pub(crate) fn matmul(kernels: &Kernels, m: &Matrix, acts: Acts<'_>) -> Vec<f32> {
    let tokens = acts.rows();
    let mut out = vec![f32::NAN; tokens * TILE_ROWS];
    kernels.matmul(
        m.ty,
        Tiles::one(m.tile.bytes()),
        &Piece::whole(m.cols),
        acts,
        RowsMut::new(&mut out, tokens, TILE_ROWS, TILE_ROWS),
    );
    out
}

/// Activations in blocks of 32, by the book: quants and scales.
pub(crate) fn reference_q8(x: &[f32]) -> (Vec<i32>, Vec<f32>) {
    let (mut qs, mut ds) = (Vec::new(), Vec::new());
    for x in x.chunks(32) {
        let top = x.iter().fold(0f32, |m, v| m.max(v.abs()));
        let top = top.max(1e-30);
        let (d, inverse) = (top / 127.0, 127.0 / top);
        // The product is not rounded before it is rounded to an integer: in f64 it is exact.
        qs.extend(x.iter().map(|&v| (f64::from(v) * f64::from(inverse)).round_ties_even() as i32));
        ds.push(d);
    }
    (qs, ds)
}
