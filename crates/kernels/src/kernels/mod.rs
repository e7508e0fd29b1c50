//! The kernels of one instruction set behind safe methods that check shapes.

use std::sync::OnceLock;

use gguf::TensorType;

use crate::TILE_ROWS;
use crate::acts::{ActKind, Acts, act_kind, elements, elements_mut, most_row_bytes, q8_row_bytes};
use crate::bf16_trial::{Bf16Trial, bf16_trial};
use crate::how::{How, MatKernel};
use crate::isa::{ISA_VARIABLE, Isa, IsaError};
use crate::matmul::panel;
use crate::matmul::{Family, MicroKernel, PIECE_LEVELS, Piece, Tiles, Walk};
use crate::pack::{is_unpacked, tile_bytes, unpack_row};
use crate::q8::Q8Block;
use crate::table::{self, Table};
use crate::views::RowsMut;

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
#[cfg(target_arch = "aarch64")]
static NEON: Kernels = Kernels { isa: Isa::Neon, table: &table::NEON };
#[cfg(target_arch = "aarch64")]
static NEON_I8MM: Kernels = Kernels { isa: Isa::NeonI8mm, table: &table::NEON_I8MM };
#[cfg(target_arch = "aarch64")]
static NEON_DOT: Kernels = Kernels { isa: Isa::NeonDot, table: &table::NEON_DOT };
#[cfg(target_arch = "x86_64")]
static AVX2: Kernels = Kernels { isa: Isa::Avx2, table: &table::AVX2 };
#[cfg(target_arch = "x86_64")]
static AVX512: Kernels = Kernels { isa: Isa::Avx512, table: &table::AVX512 };
#[cfg(target_arch = "x86_64")]
static AVX512_BF16: Kernels = Kernels { isa: Isa::Avx512Bf16, table: &table::AVX512_BF16 };
#[cfg(target_arch = "x86_64")]
static AMX: Kernels = Kernels { isa: Isa::Amx, table: &table::AMX };

/// Calls an entry point.
macro_rules! call {
    ($self:ident.$name:ident($($arg:expr),*)) => {
        // SAFETY: a reference to a table comes from `for_isa` only, which has asked the CPU.
        unsafe { ($self.table.$name)($($arg),*) }
    };
}

mod attention;
mod vectors;

impl Kernels {
    /// The kernels that the environment variable `ARCLIGHT_ISA` names, or else the best that this
    /// CPU has, [`bf16_trial`] included. Decided at the first call.
    ///
    /// # Errors
    ///
    /// [`IsaError`] if the variable names no instruction set, or one that the CPU lacks.
    pub fn detect() -> Result<&'static Self, IsaError> {
        static CHOICE: OnceLock<Result<&'static Kernels, IsaError>> = OnceLock::new();
        let choose = || match std::env::var_os(ISA_VARIABLE) {
            None => {
                let wanted = |k: &&Self| {
                    k.isa != Isa::Avx512Bf16 || bf16_trial().is_some_and(Bf16Trial::pays)
                };
                Ok(Self::available().find(wanted).expect("scalar kernels are always available"))
            }
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
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => &NEON,
            #[cfg(target_arch = "aarch64")]
            Isa::NeonDot => &NEON_DOT,
            #[cfg(target_arch = "aarch64")]
            Isa::NeonI8mm => &NEON_I8MM,
            #[cfg(not(target_arch = "aarch64"))]
            Isa::Neon | Isa::NeonDot | Isa::NeonI8mm => return None,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => &AVX2,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => &AVX512,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Bf16 => &AVX512_BF16,
            #[cfg(target_arch = "x86_64")]
            Isa::Amx => &AMX,
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 | Isa::Avx512 | Isa::Avx512Bf16 | Isa::Amx => return None,
        };
        isa.is_available().then_some(kernels)
    }

    /// All kernels that this CPU can run, the best first (see [`bf16_trial`] for the first two).
    pub fn available() -> impl Iterator<Item = &'static Self> {
        Isa::ALL.into_iter().filter_map(Self::for_isa)
    }

    /// The instruction set.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// One row of a packed tile as numbers, bit for bit as the file's type defines them; but
    /// bfloat16 below 2^-56 in magnitude is 0.
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
        self.quantize_q8_before(x, row, None);
    }

    /// [`Kernels::quantize_q8`] of one of many rows: the first lines of the `next` one and of its place are asked for
    /// while the last of this one are worked on.
    ///
    /// # Panics
    ///
    /// As [`Kernels::quantize_q8`].
    pub fn quantize_q8_before(&self, x: &[f32], row: &mut [u8], next: Option<(&[f32], &[u8])>) {
        let bytes = q8_row_bytes(x.len());
        assert!(row.len() == bytes, "a row of {} bytes for {} activations", row.len(), x.len());
        let blocks = elements_mut(row);
        call!(self.quantize_q8(x, blocks, next));
    }

    /// Rounds activations to bfloat16, ties to even; magnitudes below 2^-56 become 0, which keeps
    /// subnormal numbers out of all sums. `row` takes the form that these kernels multiply.
    ///
    /// # Panics
    ///
    /// If `row` is not [`Kernels::row_bytes`] long or not aligned to 4 bytes.
    pub fn round_bf16(&self, x: &[f32], row: &mut [u8]) {
        let bytes = self.row_bytes(ActKind::Bf16, x.len());
        assert!(row.len() == bytes, "a row of {} bytes for {} activations", row.len(), x.len());
        call!(self.round_bf16(x, row));
    }

    /// Bytes of a row of `cols` activations of a kind, in the form that these kernels multiply; at
    /// most [`most_row_bytes`](crate::most_row_bytes). Column `c` of a row begins at the bytes of
    /// `c` columns, where `c` is a multiple of 32.
    ///
    /// # Panics
    ///
    /// As [`q8_row_bytes`].
    pub fn row_bytes(&self, kind: ActKind, cols: usize) -> usize {
        match kind {
            ActKind::Bf16 if self.isa == Isa::Avx512Bf16 => cols.next_multiple_of(2) * 2,
            kind => most_row_bytes(kind, cols),
        }
    }

    /// `out[t][16i + r] = Σ_c tiles[i][r][c] * acts[t][c]` for the 16 rows of each tile, whose
    /// columns come in `pieces`; rows that a tile lacks give 0 for finite activations.
    ///
    /// # Panics
    ///
    /// If tiles are not as long as the [`tile_bytes`] of all pieces, the folds of `pieces` do not
    /// leave one sum, `acts` is not of the type's [`act_kind`] or width (quantised rows: aligned to
    /// 4 bytes), or `out` has not 16 columns for each tile and as many rows as `acts`.
    pub fn matmul(
        &self,
        ty: TensorType,
        tiles: Tiles<'_>,
        pieces: &[Piece],
        acts: Acts<'_>,
        out: RowsMut<'_, f32>,
    ) {
        self.matmul_by(How::default(), ty, tiles, pieces, acts, out);
    }

    /// [`Kernels::matmul`] in another way, which gives the same bits.
    ///
    /// # Panics
    ///
    /// As that, and if the kernel is none of [`Kernels::mat_kernels`] of the type.
    pub fn matmul_by(
        &self,
        how: How,
        ty: TensorType,
        tiles: Tiles<'_>,
        pieces: &[Piece],
        acts: Acts<'_>,
        out: RowsMut<'_, f32>,
    ) {
        let cols = check_pieces(ty, tiles.tile_len(), pieces);
        let width = tiles.count() * TILE_ROWS;
        assert!(out.width() == width, "output of {} columns, not {width}", out.width());
        assert!(out.rows() == acts.rows(), "{} output rows for {} tokens", out.rows(), acts.rows());
        let kernel = match how.kernel {
            None => None,
            Some(MatKernel::Imported(kernel)) => {
                assert!(kernel.ty == ty, "{} is for {}, not {ty}", kernel.name, kernel.ty);
                self.check_acts(ty, &acts, cols);
                return (kernel.run)(tiles, pieces, acts, out);
            }
            Some(MatKernel::Family(kernel)) => {
                assert!(self.has(ty, kernel), "{} has no {ty} kernel {kernel}", self.isa);
                Some(kernel)
            }
        };
        let walk = Walk { kernel, ahead: how.ahead };
        self.check_acts(ty, &acts, cols);
        // SAFETY: a reference to a table comes from `for_isa` only, which has asked the CPU.
        unsafe {
            match acts {
                Acts::F32(acts) => self.floats(ty).multiply(walk, tiles, pieces, acts, out),
                Acts::Bf16(acts) => self.table.matmul_bf16.multiply(walk, tiles, pieces, acts, out),
                Acts::Q8(acts) => {
                    let (family, acts) = (self.quants(ty), elements(acts));
                    let Some(unpacks) = family.unpacks(kernel, acts.rows()) else {
                        return family.multiply(walk, tiles, pieces, acts, out);
                    };
                    let fetch = how.ahead > 0;
                    let work = panel::Work { unpacks, tiles, pieces, acts, fetch };
                    self.table.panels.multiply(&work, out);
                }
            }
        }
    }

    /// The family of a type that is multiplied with floats.
    fn floats(&self, ty: TensorType) -> &'static Family<f32> {
        match ty {
            TensorType::F32 => &self.table.matmul_f32,
            TensorType::F16 => &self.table.matmul_f16,
            _ => unreachable!("{ty} is not multiplied with floats"),
        }
    }

    /// The family of a type that is multiplied with quantised activations.
    fn quants(&self, ty: TensorType) -> &'static Family<Q8Block> {
        match ty {
            TensorType::Q8_0 => &self.table.matmul_q8_0,
            TensorType::Q4_0 => &self.table.matmul_q4_0,
            TensorType::Q4_K => &self.table.matmul_q4_k,
            TensorType::Q6_K => &self.table.matmul_q6_k,
            TensorType::Q4_1 => &self.table.matmul_q4_1,
            TensorType::Q5_0 => &self.table.matmul_q5_0,
            TensorType::Q5_1 => &self.table.matmul_q5_1,
            TensorType::Q2_K => &self.table.matmul_q2_k,
            TensorType::Q3_K => &self.table.matmul_q3_k,
            TensorType::Q5_K => &self.table.matmul_q5_k,
            TensorType::IQ4_NL => &self.table.matmul_iq4_nl,
            TensorType::IQ4_XS => &self.table.matmul_iq4_xs,
            TensorType::MXFP4 => &self.table.matmul_mxfp4,
            ty if is_unpacked(ty) => &self.table.matmul_wide,
            _ => unreachable!("{ty} is not multiplied with quantised activations"),
        }
    }

    #[track_caller]
    fn check_acts(&self, ty: TensorType, acts: &Acts<'_>, cols: usize) {
        let (kind, have) = match acts {
            Acts::F32(acts) => (ActKind::F32, acts.width() * size_of::<f32>()),
            Acts::Bf16(acts) => (ActKind::Bf16, acts.width()),
            Acts::Q8(acts) => (ActKind::Q8, acts.width()),
        };
        assert!(kind == act_kind(ty), "{ty} weights need {:?} activations", act_kind(ty));
        let need = self.row_bytes(kind, cols);
        assert!(have == need, "{kind:?} rows of {have} bytes for {cols} columns");
    }

    /// The members of the family that multiply matrices of type `ty`, the usual one first.
    pub fn family(&self, ty: TensorType) -> Vec<MicroKernel> {
        match act_kind(ty) {
            ActKind::F32 => self.floats(ty).members(),
            ActKind::Bf16 => self.table.matmul_bf16.members(),
            ActKind::Q8 => self.quants(ty).members(),
        }
    }

    /// Whether `kernel` is one of [`Kernels::family`], without making a list.
    fn has(&self, ty: TensorType, kernel: MicroKernel) -> bool {
        match act_kind(ty) {
            ActKind::F32 => self.floats(ty).has(kernel),
            ActKind::Bf16 => self.table.matmul_bf16.has(kernel),
            ActKind::Q8 => self.quants(ty).has(kernel),
        }
    }

    /// Whether so many tokens are multiplied by panels.
    pub(crate) fn takes_panels(
        &self,
        ty: TensorType,
        kernel: Option<MicroKernel>,
        tokens: usize,
    ) -> bool {
        act_kind(ty) == ActKind::Q8 && self.quants(ty).unpacks(kernel, tokens).is_some()
    }

    /// Whether instructions that multiply small matrices do it for many tokens.
    pub(crate) fn by_matrices(&self, ty: TensorType) -> bool {
        act_kind(ty) == ActKind::Q8 && self.quants(ty).panel.is_some_and(|panel| panel.matrices)
    }

    /// The member that multiplies so many tokens where nobody chose, and panels do not.
    pub(crate) fn usual_for(&self, ty: TensorType, tokens: usize) -> MicroKernel {
        match act_kind(ty) {
            ActKind::F32 => self.floats(ty).usual_for(tokens),
            ActKind::Bf16 => self.table.matmul_bf16.usual_for(tokens),
            ActKind::Q8 => self.quants(ty).usual_for(tokens),
        }
    }

    /// Tokens of a register tile of the usual kernel for many tokens.
    pub(crate) fn tile_tokens(&self, ty: TensorType) -> usize {
        usize::from(self.usual_for(ty, usize::MAX).tokens)
    }

    /// Runs the instructions of the 8-bit dot products without anything around them, `iters` rounds;
    /// gives the multiply-accumulates done. Timed, it is the limit of [`Kernels::matmul`] (but
    /// with AVX2, 4-bit weights take fewer instructions).
    pub fn peak_i8(&self, iters: u64) -> u64 {
        call!(self.peak_i8(iters))
    }

    /// As [`Kernels::peak_i8`] for `f32` multiply-adds.
    pub fn peak_f32(&self, iters: u64) -> u64 {
        call!(self.peak_f32(iters))
    }

    /// As [`Kernels::peak_i8`] for half floats: widened once for 8 tokens, then multiplied as `f32`.
    pub fn peak_f16(&self, iters: u64) -> u64 {
        call!(self.peak_f16(iters))
    }

    /// As [`Kernels::peak_i8`] for bfloat16: dots of pairs, or widened once for 8 tokens and
    /// multiplied as `f32`.
    pub fn peak_bf16(&self, iters: u64) -> u64 {
        call!(self.peak_bf16(iters))
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
        // Activations of bfloat16 go in pairs.
        let even = piece.cols.is_multiple_of(2) || pieces.len() == 1;
        assert!(even, "a piece of {} columns: only one alone may be odd", piece.cols);
    }
    assert!(depth == 1, "the pieces leave {depth} sums");
    assert!(len == bytes, "{len} bytes for a tile of {cols} {ty} in {} pieces", pieces.len());
    cols
}
