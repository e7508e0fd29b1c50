//! The kernels of one instruction set behind safe methods that check shapes.

use std::sync::OnceLock;

use gguf::TensorType;

use crate::TILE_ROWS;
use crate::acts::{ActKind, Acts, act_kind, elements, elements_mut, most_row_bytes, q8_row_bytes};
use crate::arch;
use crate::bf16_trial::{Bf16Trial, bf16_trial};
use crate::foreign::MatKernel;
use crate::how::How;
use crate::isa::{ISA_VARIABLE, Isa, IsaError, for_each_isa};
use crate::matmul::panel;
use crate::matmul::{Family, Line, MicroKernel, PIECE_LEVELS, Piece, Tiles, Walk};
use crate::pack::{tile_bytes, unpack_row};
use crate::product::Product;
use crate::table::{self, Table};
use crate::views::RowsMut;

/// The kernels of one instruction set.
pub struct Kernels {
    isa: Isa,
    pub(crate) table: &'static Table,
}

impl std::fmt::Debug for Kernels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Kernels").field(&self.isa).finish()
    }
}

/// Calls an entry point.
macro_rules! call {
    ($self:ident.$name:ident($($arg:expr),*)) => {
        // SAFETY: a reference to a table comes from `for_isa` only, which has a token of its set.
        unsafe { ($self.table.$name)($($arg),*) }
    };
}

mod attention;
mod recurrent;
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
        macro_rules! if_proved {
            ($($(#[$doc:meta])* $isa:ident = $name:literal, $arch:meta, $token:ty, $attribute:meta,
               $form:ident $(($base:ident))?;)*) => {
                $(
                    #[cfg($arch)]
                    if isa == Isa::$isa {
                        static KERNELS: Kernels = Kernels { isa: Isa::$isa, table: &table::$isa::TABLE };
                        return <$token>::new().map(|_| &KERNELS);
                    }
                )*
            };
        }
        for_each_isa!(if_proved);
        None
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
            ActKind::Bf16 => cols.next_multiple_of(2) * self.table.bf16_bytes,
            kind => most_row_bytes(kind, cols),
        }
    }

    /// What a row of activations in a form stands for: quants times the scales of their blocks, or numbers rounded to
    /// bfloat16.
    ///
    /// # Panics
    ///
    /// When the row is shorter than [`row_bytes`](Self::row_bytes) of `out`.
    pub fn unpack_acts(&self, kind: ActKind, row: &[u8], out: &mut [f32]) {
        crate::acts::unpack(kind, self.table.bf16_bytes, row, out);
    }

    /// `out[t][16i + r] = Σ_c tiles[i][r][c] * acts[t][c]` for the 16 rows of each tile, whose
    /// columns come in `pieces`; rows that a tile lacks give 0 for finite activations. Where pieces leave
    /// several sums ([`Piece::roots`]), the products of all tiles for the first are followed by those for
    /// the next.
    ///
    /// # Panics
    ///
    /// If tiles are not as long as the [`tile_bytes`] of all pieces, `pieces` fold more sums than there are,
    /// `acts` is not of the type's [`act_kind`] or width (quantised rows: aligned to 4 bytes), or `out` has
    /// not 16 columns for each tile and root, and as many rows as `acts`.
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
        let roots = Piece::roots(pieces);
        let width = roots * tiles.count() * TILE_ROWS;
        assert!(out.width() == width, "output of {} columns, not {width}", out.width());
        assert!(out.rows() == acts.rows(), "{} output rows for {} tokens", out.rows(), acts.rows());
        if let Some(kernel) = how.kernel {
            assert!(self.has_kernel(ty, kernel), "{} has no {ty} kernel {kernel}", self.isa);
        }
        self.check_acts(ty, &acts, cols);
        let kernel = match how.kernel {
            None => None,
            Some(MatKernel::Family(kernel)) => Some(kernel),
            Some(MatKernel::Foreign(kernel)) => {
                let product = kernel.product().expect("it multiplies the type");
                let Acts::Q8(acts) = acts else { unreachable!("checked when it was loaded") };
                return product.multiply(how.ahead, tiles, pieces, acts, out);
            }
        };
        let family = self.family_of(ty);
        // SAFETY: a reference to a table comes from `for_isa` only, which has a token of its set.
        unsafe {
            match (acts, family.unpacks(kernel, acts.rows())) {
                (Acts::Q8(acts), Some(unpacks)) => {
                    let (acts, fetch) = (elements(acts), how.ahead > 0);
                    let work = panel::Work { unpacks, tiles, pieces, acts, fetch };
                    self.table.panels.multiply(&work, out);
                }
                _ => {
                    let walk = Walk { kernel, ahead: how.ahead };
                    family.multiply(walk, tiles, pieces, acts, out);
                }
            }
        }
    }

    /// Vectors of rows that make up a tile.
    pub(crate) fn groups(&self) -> usize {
        self.table.panels.groups
    }

    /// The family of a type.
    pub(crate) fn family_of(&self, ty: TensorType) -> &'static Family {
        &self.table.families[Line::of(ty) as usize]
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
        self.family_of(ty).members()
    }

    /// The instruction set that multiplies matrices of a type, and rows and tokens of its register tile; with
    /// instructions for small matrices (AMX, `smmla`) that of many tokens.
    pub fn matmul_tile(&self, ty: TensorType) -> (Isa, (usize, usize)) {
        let family = self.family_of(ty);
        (family.isa, family.tile())
    }

    /// Whether so many tokens are multiplied by panels.
    pub(crate) fn takes_panels(
        &self,
        ty: TensorType,
        kernel: Option<MatKernel>,
        tokens: usize,
    ) -> bool {
        let kernel = match kernel {
            None => None,
            Some(MatKernel::Family(kernel)) => Some(kernel),
            Some(MatKernel::Foreign(_)) => return false,
        };
        self.family_of(ty).unpacks(kernel, tokens).is_some()
    }

    /// The member that multiplies so many tokens where nobody chose, and panels do not.
    pub(crate) fn usual_for(&self, ty: TensorType, tokens: usize) -> MicroKernel {
        self.family_of(ty).usual_for(tokens)
    }

    /// Tokens of a register tile of the usual kernel for many tokens.
    pub(crate) fn tile_tokens(&self, ty: TensorType) -> usize {
        usize::from(self.usual_for(ty, usize::MAX).tokens)
    }

    /// The product that stands for `product` on this instruction set: [`Product::Int8`] for all integers where
    /// one instruction multiplies them.
    pub fn product(&self, product: Product) -> Product {
        let few_bits =
            matches!(product, Product::Int4 | Product::Int5 | Product::Int6 | Product::Int7);
        if few_bits && self.table.fused { Product::Int8 } else { product }
    }

    /// Runs the instructions that products take without anything around them, `iters` rounds; gives the
    /// multiply-accumulates done. Timed, it is the limit of [`Kernels::matmul`]. Half floats, and bfloat16
    /// where no instruction takes pairs, are widened once for 8 tokens and multiplied as `f32`.
    pub fn peak(&self, product: Product, iters: u64) -> u64 {
        match product {
            Product::Bf16 => call!(self.peak_bf16(iters)),
            Product::F16 => call!(self.peak_f16(iters)),
            Product::F32 => call!(self.peak_f32(iters)),
            integers => call!(self.peak_int(integers, iters)),
        }
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
    assert!(len == bytes, "{len} bytes for a tile of {cols} {ty} in {} pieces", pieces.len());
    cols
}
