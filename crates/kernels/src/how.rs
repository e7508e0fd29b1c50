//! How a matrix is multiplied where several ways give the same bits, and ways that come from outside.

use std::fmt;
use std::sync::Mutex;

use gguf::TensorType;

use crate::acts::{Acts, act_kind};
use crate::cpu::{AHEAD, cpu};
use crate::isa::Isa;
use crate::kernels::Kernels;
use crate::matmul::panel;
use crate::matmul::{MicroKernel, Piece, Tiles};
use crate::views::RowsMut;

mod trial;

/// How a matrix is multiplied. Every way gives the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct How {
    /// What multiplies; `None` leaves the choice to the kernels.
    pub kernel: Option<MatKernel>,
    /// Bytes between the weights that are multiplied and those that are asked for meanwhile, where a pass
    /// reads them from memory; 0 asks for none.
    pub ahead: usize,
}

impl Default for How {
    fn default() -> Self {
        Self { kernel: None, ahead: AHEAD }
    }
}

/// What multiplies a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatKernel {
    /// A member of the family that is compiled for every instruction set.
    Family(MicroKernel),
    /// A kernel that was written elsewhere.
    Imported(&'static Imported),
}

impl fmt::Display for MatKernel {
    /// A name that [`Kernels::mat_kernel`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Family(kernel) => kernel.fmt(f),
            Self::Imported(imported) => f.write_str(imported.name),
        }
    }
}

/// Tiles times activations, as [`Kernels::matmul`] promises it.
pub type MatMul = fn(Tiles<'_>, &[Piece], Acts<'_>, RowsMut<'_, f32>);

/// A kernel that was written elsewhere: by hand, for one type and one CPU. It competes with the family's
/// members in whatever search chooses among them (the low-level form of Sandwich, section 6.1).
#[derive(Debug)]
pub struct Imported {
    /// Its name, which no other has; not one of [`MicroKernel`]'s.
    pub name: &'static str,
    /// The type of matrices that it multiplies.
    pub ty: TensorType,
    /// The instruction set whose activations it takes: bfloat16 has a form of its own in
    /// [`Isa::Avx512Bf16`]. Who registers it has asked the CPU for whatever else it needs.
    pub isa: Isa,
    /// Tiles and tokens that it takes at once: slices of work are multiples of them.
    pub size: (usize, usize),
    /// The kernel.
    pub run: MatMul,
}

impl PartialEq for Imported {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Imported {}

/// Why a kernel is not taken.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ImportError {
    /// Another has the name, or it is one of the family's.
    #[error("kernel {0:?}: the name is taken")]
    Name(&'static str),
    /// It takes no tiles or no tokens at once.
    #[error("kernel {0:?}: it takes at least one tile and one token at once")]
    Size(&'static str),
    /// There is no way to make matrices of this type, to try it with.
    #[error("kernel {name:?}: {ty} matrices cannot be made here, so it cannot be tried")]
    Type {
        /// The kernel's.
        name: &'static str,
        /// What it multiplies.
        ty: TensorType,
    },
    /// This CPU lacks its instruction set.
    #[error("kernel {name:?}: this CPU does not have {isa}")]
    Isa {
        /// The kernel's.
        name: &'static str,
        /// What it asks for.
        isa: Isa,
    },
    /// Its results are not those of the scalar kernel, to the last bit.
    #[error(
        "kernel {name:?}: {tiles} tiles of {cols} columns times {tokens} tokens: \
         {got:e} where the scalar kernel has {want:e}"
    )]
    Bits {
        /// The kernel's.
        name: &'static str,
        /// Tiles of the product.
        tiles: usize,
        /// Columns.
        cols: usize,
        /// Tokens.
        tokens: usize,
        /// An element of its result.
        got: f32,
        /// What it should be.
        want: f32,
    },
}

static REGISTERED: Mutex<Vec<&'static Imported>> = Mutex::new(Vec::new());

/// All that are registered, in their order.
pub fn imported() -> Vec<&'static Imported> {
    REGISTERED.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
}

/// Takes a kernel from elsewhere beside the family. It is tried first: its bits must be the scalar
/// kernel's, for one tile and several, one token and several, columns in one piece and in many.
///
/// # Errors
///
/// [`ImportError`] says what is wrong with it.
pub fn register(kernel: &'static Imported) -> Result<(), ImportError> {
    let name = kernel.name;
    if kernel.size.0 == 0 || kernel.size.1 == 0 {
        return Err(ImportError::Size(name));
    }
    if !kernel.ty.can_quantize() {
        return Err(ImportError::Type { name, ty: kernel.ty });
    }
    let kernels = Kernels::for_isa(kernel.isa).ok_or(ImportError::Isa { name, isa: kernel.isa })?;
    trial::try_out(kernel, kernels)?;
    let mut all = REGISTERED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if name.parse::<MicroKernel>().is_ok() || all.iter().any(|other| other.name == name) {
        return Err(ImportError::Name(name));
    }
    all.push(kernel);
    Ok(())
}

impl Kernels {
    /// What can multiply matrices of type `ty`: the usual member of the family first, its others, then
    /// what was registered.
    pub fn mat_kernels(&self, ty: TensorType) -> Vec<MatKernel> {
        let family = self.family(ty).into_iter().map(MatKernel::Family);
        // Activations have the same form with both instruction sets.
        let bytes = |kernels: &Kernels| kernels.row_bytes(act_kind(ty), 32);
        let alike = |own| bytes(own) == bytes(self);
        let fits = |k: &&Imported| k.ty == ty && Self::for_isa(k.isa).is_some_and(alike);
        family.chain(imported().into_iter().filter(fits).map(MatKernel::Imported)).collect()
    }

    /// The one with this name, if it can multiply matrices of type `ty` here.
    pub fn mat_kernel(&self, ty: TensorType, name: &str) -> Option<MatKernel> {
        self.mat_kernels(ty).into_iter().find(|kernel| kernel.to_string() == name)
    }

    /// How a product of so many tokens is multiplied, for who gives it some tokens at a time: where nobody chose a
    /// kernel it is the usual one, but for panels, which take as many tokens as they get. `threads` read the same
    /// memory at the same time.
    /// If nobody chose how far ahead weights are fetched, the CPU's traits say that, too.
    #[must_use]
    pub fn usual(&self, how: How, ty: TensorType, tokens: usize, threads: usize) -> How {
        if how.kernel.is_some() || self.takes_panels(ty, None, tokens) {
            return how;
        }
        let kernel = self.usual_for(ty, tokens);
        let ahead = match how.ahead {
            AHEAD => cpu().ahead(kernel.vectors, tokens, threads),
            chosen => chosen,
        };
        How { kernel: Some(MatKernel::Family(kernel)), ahead }
    }

    /// Tiles and tokens of a kernel's register tile: the least that is worth giving it.
    pub fn mat_kernel_size(&self, kernel: MatKernel) -> (usize, usize) {
        match kernel {
            MatKernel::Imported(imported) => imported.size,
            MatKernel::Family(kernel) => {
                let tiles = if self.groups() == 1 { kernel.vectors } else { 1 };
                (usize::from(tiles), usize::from(kernel.tokens))
            }
        }
    }

    /// How many tiles and tokens of a product of `tokens` tokens should go together with matrices of type
    /// `ty`: what is copied for them, or unpacked, serves all.
    pub fn block(&self, how: How, ty: TensorType, tokens: usize) -> Block {
        let (kernel, (tiles, most)) = match how.kernel {
            Some(MatKernel::Family(kernel)) => {
                (Some(kernel), self.mat_kernel_size(MatKernel::Family(kernel)))
            }
            Some(other) => {
                let (tiles, tokens) = self.mat_kernel_size(other);
                return Block { tiles, tokens, register: tokens, panel: false };
            }
            None => (None, (2, self.tile_tokens(ty))),
        };
        let panel = self.takes_panels(ty, kernel, tokens);
        let (tiles, tokens) = if panel { (panel::TILES, panel::TOKENS) } else { (tiles, most) };
        Block { tiles, tokens, register: most, panel }
    }
}

/// What goes together in a product ([`Kernels::block`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Tiles.
    pub tiles: usize,
    /// Tokens.
    pub tokens: usize,
    /// Tokens of a register tile.
    pub register: usize,
    /// Whether weights and activations are laid out anew, so that neither needs to be in the first cache.
    pub panel: bool,
}

impl Block {
    /// One that is good for both.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            tiles: self.tiles.max(other.tiles),
            tokens: self.tokens.max(other.tokens),
            register: self.register.max(other.register),
            panel: self.panel || other.panel,
        }
    }
}
