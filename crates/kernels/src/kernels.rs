//! The kernels of one instruction set behind safe methods that check shapes.

use std::sync::OnceLock;

use gguf::TensorType;

use crate::TILE_ROWS;
use crate::attention::{AttnTile, KV_PAGE, KvPageMut, KvPages, attn_scratch_len, attn_state_len};
use crate::elementwise::RopeStyle;
use crate::isa::{ISA_VARIABLE, Isa, IsaError};
use crate::matmul::{PIECE_LEVELS, Piece};
use crate::pack::{tile_bytes, unpack_row};
use crate::q8::{BLOCK, Q8Block};
use crate::simd::LANES;
use crate::table::{self, Table};
use crate::views::{Rows, RowsMut};

/// What form of activations a matrix type is multiplied with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActKind {
    /// As they are.
    F32,
    /// Quantised to 8 bits in blocks of 32 by [`Kernels::quantize_q8`].
    Q8,
}

/// The activations that a matrix of type `ty` is multiplied with.
pub const fn act_kind(ty: TensorType) -> ActKind {
    match ty {
        TensorType::F32 | TensorType::F16 | TensorType::BF16 => ActKind::F32,
        TensorType::Q8_0 | TensorType::Q4_0 | TensorType::Q4_K | TensorType::Q6_K => ActKind::Q8,
    }
}

/// Bytes of a quantised row of `cols` activations: 64 for every 32. Rows must start at multiples of
/// 4 bytes, and are fastest at multiples of 64.
///
/// # Panics
///
/// If `cols` is not a multiple of 32.
pub const fn q8_row_bytes(cols: usize) -> usize {
    assert!(cols.is_multiple_of(BLOCK), "columns are not a multiple of 32");
    cols / BLOCK * size_of::<Q8Block>()
}

/// Activations, one row per token.
#[derive(Clone, Copy, Debug)]
pub enum Acts<'a> {
    /// Rows of `cols` floats.
    F32(Rows<'a, f32>),
    /// Rows of [`q8_row_bytes`] bytes.
    Q8(Rows<'a, u8>),
}

impl Acts<'_> {
    /// Number of tokens.
    pub fn rows(&self) -> usize {
        match self {
            Self::F32(rows) => rows.rows(),
            Self::Q8(rows) => rows.rows(),
        }
    }
}

/// An operation, for [`Kernels::kernel_name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A matrix tile of this type times activations.
    MatMul(TensorType),
    /// Quantisation of activations.
    QuantizeQ8,
    /// Attention over a chunk of keys.
    Attention,
    /// RMS normalisation.
    RmsNorm,
    /// Rotary position embedding.
    Rope,
    /// Gated activation.
    SwiGlu,
    /// Softmax.
    Softmax,
}

/// The kernels of one instruction set.
pub struct Kernels {
    isa: Isa,
    table: &'static Table,
}

impl std::fmt::Debug for Kernels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Kernels").field(&self.isa).finish()
    }
}

static SCALAR: Kernels = Kernels { isa: Isa::Scalar, table: &table::SCALAR };
#[cfg(target_arch = "x86_64")]
static AVX2: Kernels = Kernels { isa: Isa::Avx2, table: &table::AVX2 };
#[cfg(target_arch = "x86_64")]
static AVX512: Kernels = Kernels { isa: Isa::Avx512, table: &table::AVX512 };

/// Calls an entry point.
macro_rules! call {
    ($self:ident.$name:ident($($arg:expr),*)) => {
        // SAFETY: a reference to a table comes from `for_isa` only, which has asked the CPU.
        unsafe { ($self.table.$name)($($arg),*) }
    };
}

impl Kernels {
    /// The kernels that the environment variable `ARCLIGHT_ISA` names, or else the best that this
    /// CPU has. Decided at the first call.
    ///
    /// # Errors
    ///
    /// [`IsaError`] if the variable names no instruction set, or one that the CPU lacks.
    pub fn detect() -> Result<&'static Self, IsaError> {
        static CHOICE: OnceLock<Result<&'static Kernels, IsaError>> = OnceLock::new();
        let choose = || match std::env::var_os(ISA_VARIABLE) {
            None => Ok(Self::available().next().expect("scalar kernels are always available")),
            Some(name) => {
                let isa = Isa::from_name(&name.to_string_lossy())?;
                Ok(Self::for_isa(isa).expect("just found available"))
            }
        };
        CHOICE.get_or_init(choose).clone()
    }

    /// The kernels of `isa`, if this CPU has it.
    pub fn for_isa(isa: Isa) -> Option<&'static Self> {
        let kernels = match isa {
            Isa::Scalar => &SCALAR,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => &AVX2,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => &AVX512,
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 | Isa::Avx512 => return None,
        };
        isa.is_available().then_some(kernels)
    }

    /// All kernels that this CPU can run, the best first.
    pub fn available() -> impl Iterator<Item = &'static Self> {
        Isa::ALL.into_iter().filter_map(Self::for_isa)
    }

    /// The instruction set.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Name of the kernel that does `op`: instruction set, operation, types, and for matrices rows
    /// × tokens of a register tile, e.g. `avx512vnni_matmul_q4_0_16x8`.
    pub fn kernel_name(&self, op: Op) -> String {
        let isa = self.isa;
        match op {
            Op::MatMul(ty) => {
                let rows = if isa == Isa::Avx2 { TILE_ROWS / 2 } else { TILE_ROWS };
                let tokens = match act_kind(ty) {
                    ActKind::Q8 if isa != Isa::Avx512 => 4,
                    ActKind::Q8 | ActKind::F32 => 8,
                };
                format!("{isa}_matmul_{}_{rows}x{tokens}", ty.name().to_lowercase())
            }
            Op::QuantizeQ8 => format!("{isa}_quantize_f32_q8"),
            Op::Attention => format!("{isa}_attention_f16_{KV_PAGE}"),
            Op::RmsNorm => format!("{isa}_rms_norm_f32"),
            Op::Rope => format!("{isa}_rope_f32"),
            Op::SwiGlu => format!("{isa}_swiglu_f32"),
            Op::Softmax => format!("{isa}_softmax_f32"),
        }
    }

    /// One row of a packed tile as numbers, bit for bit as the file's type defines them.
    ///
    /// # Panics
    ///
    /// If `tile` is not [`tile_bytes`] long, there is no row `row`, or `out` is not `cols` long.
    pub fn unpack_row(
        &self,
        ty: TensorType,
        tile: &[u8],
        cols: usize,
        row: usize,
        out: &mut [f32],
    ) {
        unpack_row(ty, tile, cols, row, out);
    }

    /// Quantises activations to 8 bits. A NaN or an infinity makes its block of 32 NaN or infinite,
    /// never a number.
    ///
    /// # Panics
    ///
    /// If `x` is not a multiple of 32 long, or `row` not [`q8_row_bytes`] long and aligned to 4
    /// bytes.
    pub fn quantize_q8(&self, x: &[f32], row: &mut [u8]) {
        let bytes = q8_row_bytes(x.len());
        assert!(row.len() == bytes, "a row of {} bytes for {} activations", row.len(), x.len());
        let blocks = blocks_mut(row);
        call!(self.quantize_q8(x, blocks));
    }

    /// `out[t][r] = Σ_c tile[r][c] * acts[t][c]` for the 16 rows of a tile whose columns come in
    /// `pieces`; rows that the tile lacks give 0 for finite activations.
    ///
    /// # Panics
    ///
    /// If `tile` is not as long as the [`tile_bytes`] of all pieces, the folds of `pieces` do not
    /// leave one sum, `acts` is not of the type's [`act_kind`] or width (quantised rows: aligned to
    /// 4 bytes), or `out` has not 16 columns and as many rows.
    pub fn matmul_tile(
        &self,
        ty: TensorType,
        tile: &[u8],
        pieces: &[Piece],
        acts: Acts<'_>,
        out: RowsMut<'_, f32>,
    ) {
        let cols = check_pieces(ty, tile.len(), pieces);
        assert!(out.width() == TILE_ROWS, "output of {} columns, not {TILE_ROWS}", out.width());
        assert!(out.rows() == acts.rows(), "{} output rows for {} tokens", out.rows(), acts.rows());
        match acts {
            Acts::F32(acts) => {
                assert!(
                    acts.width() == cols,
                    "activations of {} columns, not {cols}",
                    acts.width()
                );
                match ty {
                    TensorType::F32 => call!(self.matmul_f32(tile, pieces, acts, out)),
                    TensorType::F16 => call!(self.matmul_f16(tile, pieces, acts, out)),
                    TensorType::BF16 => call!(self.matmul_bf16(tile, pieces, acts, out)),
                    _ => panic!("{ty} weights need quantised activations"),
                }
            }
            Acts::Q8(acts) => {
                let acts = q8_rows(acts, cols);
                match ty {
                    TensorType::Q8_0 => call!(self.matmul_q8_0(tile, pieces, acts, out)),
                    TensorType::Q4_0 => call!(self.matmul_q4_0(tile, pieces, acts, out)),
                    TensorType::Q4_K => call!(self.matmul_q4_k(tile, pieces, acts, out)),
                    TensorType::Q6_K => call!(self.matmul_q6_k(tile, pieces, acts, out)),
                    _ => panic!("{ty} weights need f32 activations"),
                }
            }
        }
    }

    /// `out = x * (1 / sqrt(mean(x²) + eps)) * weight`.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn rms_norm(&self, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
        same_len(&[x.len(), weight.len(), out.len()]);
        call!(self.rms_norm(x, weight, eps, out));
    }

    /// [`Kernels::rms_norm`] onto its own input.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn rms_norm_inplace(&self, x: &mut [f32], weight: &[f32], eps: f32) {
        same_len(&[x.len(), weight.len()]);
        call!(self.rms_norm_inplace(x, weight, eps));
    }

    /// `out = a + b`.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn add(&self, a: &[f32], b: &[f32], out: &mut [f32]) {
        same_len(&[a.len(), b.len(), out.len()]);
        call!(self.add(a, b, out));
    }

    /// `a += b`.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn add_assign(&self, a: &mut [f32], b: &[f32]) {
        same_len(&[a.len(), b.len()]);
        call!(self.add_assign(a, b));
    }

    /// `x *= factor`.
    pub fn scale(&self, x: &mut [f32], factor: f32) {
        call!(self.scale(x, factor));
    }

    /// `out = silu(gate) * up` with `silu(x) = x / (1 + e^-x)`.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn swiglu(&self, gate: &[f32], up: &[f32], out: &mut [f32]) {
        same_len(&[gate.len(), up.len(), out.len()]);
        call!(self.swiglu(gate, up, out));
    }

    /// `x := e^x`, within 1 ulp; overflow gives infinity, underflow goes through the subnormals to
    /// 0.
    pub fn exp(&self, x: &mut [f32]) {
        call!(self.exp(x));
    }

    /// `x := softmax(x)`.
    pub fn softmax(&self, x: &mut [f32]) {
        call!(self.softmax(x));
    }

    /// Rotates pairs of the first `cos_sin.len()` elements of `head`, the others stay. `cos_sin` is
    /// the cosines of all pairs, then their sines.
    ///
    /// # Panics
    ///
    /// If `cos_sin` is longer than `head` or of odd length.
    pub fn rope(&self, head: &mut [f32], cos_sin: &[f32], style: RopeStyle) {
        let rot = cos_sin.len();
        assert!(
            rot.is_multiple_of(2) && rot <= head.len(),
            "{rot} angles for a head of {}",
            head.len()
        );
        call!(self.rope(head, cos_sin, style));
    }

    /// Index of the greatest element, the lowest of equals; NaN never wins; 0 if there is nothing
    /// to choose from.
    pub fn argmax(&self, x: &[f32]) -> usize {
        call!(self.argmax(x))
    }

    /// Stores the key of one KV head in slot `slot` of a page. Page: `[KV_PAGE / 16, head_dim, 16
    /// keys]`.
    ///
    /// # Panics
    ///
    /// If `k` is not a multiple of 16 long, the page not of its size, or there is no such slot.
    pub fn store_k(&self, k: &[f32], page: KvPageMut<'_>, slot: usize) {
        check_slot(k.len(), page.len(), slot);
        match page {
            KvPageMut::F16(page) => call!(self.store_k_f16(k, page, slot)),
            KvPageMut::F32(page) => call!(self.store_k_f32(k, page, slot)),
        }
    }

    /// Stores the value of one KV head in slot `slot` of a page. Page: `[KV_PAGE, head_dim]`.
    ///
    /// # Panics
    ///
    /// As [`Kernels::store_k`].
    pub fn store_v(&self, v: &[f32], page: KvPageMut<'_>, slot: usize) {
        check_slot(v.len(), page.len(), slot);
        match page {
            KvPageMut::F16(page) => call!(self.store_v_f16(v, page, slot)),
            KvPageMut::F32(page) => call!(self.store_v_f32(v, page, slot)),
        }
    }

    /// Attention of all rows of a tile over its chunk of keys: `out` becomes one state of
    /// [`attn_state_len`] floats per row. Slots that no row sees are not used, whatever they hold.
    ///
    /// # Panics
    ///
    /// If the tile's shapes do not agree, `scratch` is shorter than [`attn_scratch_len`], or `out`
    /// is not `rows * attn_state_len` long.
    pub fn attend_chunk(&self, tile: &AttnTile<'_>, scratch: &mut [f32], out: &mut [f32]) {
        let (need, states) =
            (attn_scratch_len(tile.rows), tile.rows * attn_state_len(tile.head_dim));
        assert!(scratch.len() >= need, "scratch of {} floats, {need} needed", scratch.len());
        assert!(out.len() == states, "{} floats for states of {states}", out.len());
        match tile.pages {
            KvPages::F16 { k, v } => call!(self.attend_chunk_f16(&tile.over(k, v), scratch, out)),
            KvPages::F32 { k, v } => call!(self.attend_chunk_f32(&tile.over(k, v), scratch, out)),
        }
    }

    /// Joins two states of one query row: `acc` over the keys to the left, `part` over those to
    /// their right.
    ///
    /// # Panics
    ///
    /// If one is not [`attn_state_len`] long.
    pub fn attn_merge(&self, acc: &mut [f32], part: &[f32], head_dim: usize) {
        check_state(acc, head_dim);
        check_state(part, head_dim);
        call!(self.attn_merge(acc, part, head_dim));
    }

    /// The attention of a row whose chunks are all joined. `out`: `[head_dim]`.
    ///
    /// # Panics
    ///
    /// If `state` is not [`attn_state_len`] or `out` not `head_dim` long.
    pub fn attn_finish(&self, state: &[f32], head_dim: usize, out: &mut [f32]) {
        check_state(state, head_dim);
        same_len(&[out.len(), head_dim]);
        call!(self.attn_finish(state, head_dim, out));
    }

    /// Runs the instructions of the 8-bit dot products without anything around them, `iters` rounds;
    /// gives the multiply-accumulates done. Timed, it is the limit of [`Kernels::matmul_tile`] (but
    /// with AVX2, 4-bit weights take fewer instructions).
    pub fn peak_i8(&self, iters: u64) -> u64 {
        call!(self.peak_i8(iters))
    }

    /// As [`Kernels::peak_i8`] for `f32` multiply-adds.
    pub fn peak_f32(&self, iters: u64) -> u64 {
        call!(self.peak_f32(iters))
    }
}

#[track_caller]
fn same_len(lens: &[usize]) {
    assert!(lens.iter().all(|len| *len == lens[0]), "lengths differ: {lens:?}");
}

/// Columns of all pieces.
#[track_caller]
fn check_pieces(ty: TensorType, len: usize, pieces: &[Piece]) -> usize {
    let (mut cols, mut bytes, mut depth) = (0, 0, 0);
    for piece in pieces {
        cols += piece.cols;
        bytes += tile_bytes(ty, piece.cols);
        depth += 1;
        assert!(
            piece.folds < depth && depth <= PIECE_LEVELS,
            "{} additions of {depth} sums of pieces",
            piece.folds
        );
        depth -= piece.folds;
    }
    assert!(depth == 1, "the pieces leave {depth} sums");
    assert!(len == bytes, "{len} bytes for a tile of {cols} {ty} in {} pieces", pieces.len());
    cols
}

#[track_caller]
fn check_slot(head_dim: usize, page: usize, slot: usize) {
    assert!(head_dim.is_multiple_of(LANES), "head_dim {head_dim} is not a multiple of {LANES}");
    assert!(page == KV_PAGE * head_dim, "a page of {page} for head_dim {head_dim}");
    assert!(slot < KV_PAGE, "slot {slot} of {KV_PAGE}");
}

#[track_caller]
fn check_state(state: &[f32], head_dim: usize) {
    assert!(head_dim.is_multiple_of(LANES), "head_dim {head_dim} is not a multiple of {LANES}");
    let len = attn_state_len(head_dim);
    assert!(state.len() == len, "a state of {} floats, not {len}", state.len());
}

/// A row of bytes as the blocks that [`Kernels::quantize_q8`] writes.
#[expect(clippy::cast_ptr_alignment, reason = "asserted")]
fn blocks_mut(row: &mut [u8]) -> &mut [Q8Block] {
    let blocks = row.as_mut_ptr().cast::<Q8Block>();
    assert!(blocks.is_aligned(), "quantised rows must be aligned to {}", align_of::<Q8Block>());
    // SAFETY: aligned; as many whole blocks as fit; integers and floats that any bytes are valid
    // for, and no padding.
    unsafe { std::slice::from_raw_parts_mut(blocks, row.len() / size_of::<Q8Block>()) }
}

/// Rows of bytes as rows of blocks.
#[expect(clippy::cast_ptr_alignment, reason = "asserted")]
fn q8_rows(rows: Rows<'_, u8>, cols: usize) -> Rows<'_, Q8Block> {
    const SIZE: usize = size_of::<Q8Block>();
    let (bytes, stride) = (rows.width(), rows.stride());
    assert!(bytes == q8_row_bytes(cols), "quantised rows of {bytes} bytes for {cols} columns");
    if rows.rows() == 0 || bytes == 0 {
        return Rows::new(&[], rows.rows(), 0, 0);
    }
    assert!(
        stride.is_multiple_of(SIZE) || rows.rows() == 1,
        "a stride of {stride} bytes is not whole blocks"
    );
    let blocks = rows.row(0).as_ptr().cast::<Q8Block>();
    assert!(blocks.is_aligned(), "quantised rows must be aligned to {}", align_of::<Q8Block>());
    // SAFETY: the same memory for the same lifetime, in whole, aligned blocks that any bytes are
    // valid for.
    unsafe { Rows::from_raw_parts(blocks, rows.rows(), bytes / SIZE, stride / SIZE) }
}
