//! How a matrix is multiplied where several ways give the same bits.

use gguf::TensorType;

use crate::cpu::{AHEAD, cpu};
use crate::foreign::MatKernel;
use crate::kernels::Kernels;
use crate::matmul::panel;

/// How a matrix is multiplied. Every way gives the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

impl Kernels {
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
        How { kernel: Some(kernel.into()), ahead }
    }

    /// Tiles and tokens of a kernel's register tile: the least that is worth giving it.
    pub fn kernel_size(&self, kernel: MatKernel) -> (usize, usize) {
        match kernel {
            MatKernel::Family(kernel) => {
                let tiles = if self.groups() == 1 { kernel.vectors } else { 1 };
                (usize::from(tiles), usize::from(kernel.tokens))
            }
            MatKernel::Foreign(kernel) => kernel.product().map_or((1, 1), |product| product.size()),
        }
    }

    /// How many tiles and tokens of a product of `tokens` tokens should go together with matrices of type
    /// `ty`: what is copied for them, or unpacked, serves all.
    pub fn block(&self, how: How, ty: TensorType, tokens: usize) -> Block {
        let kernel = how.kernel;
        let (tiles, most) =
            kernel.map_or((2, self.tile_tokens(ty)), |kernel| self.kernel_size(kernel));
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
