//! Why a file with kernels is not taken.

use std::fmt;
use std::path::PathBuf;

use gguf::TensorType;
use kernels::Isa;

use crate::interface::{MOST_KERNELS, MOST_NAME, MOST_RESULTS, MOST_ROWS, SYMBOL, VERSION};

/// A file that is not taken.
#[derive(Debug, thiserror::Error)]
#[error("{}: {fault}", .path.display())]
pub struct Error {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What is wrong with a file of kernels.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// It cannot be read.
    #[error("{0}")]
    Read(std::io::Error),
    /// It is no shared object for this machine, or lacks something itself.
    #[error("not a shared object that can be loaded: {0}")]
    Open(String),
    /// It is one, for something else.
    #[error("no kernels for Arclight: the shared object has no symbol {SYMBOL}")]
    NoList,
    /// It is for another version of the interface.
    #[error(
        "kernels for version {0} of the interface, and this program has version {VERSION}: build them again \
             with its arclight_kernel.h"
    )]
    Version(u32),
    /// No kernels, or implausibly many.
    #[error("a list of {0} kernels: 1 to {MOST_KERNELS} are possible")]
    Count(u32),
    /// A pointer that is null, or a text that is not.
    #[error("kernel {number} has no {what}")]
    Missing {
        /// Which kernel, from 1 on.
        number: usize,
        /// What is missing.
        what: &'static str,
    },
    /// A name that a profile cannot have.
    #[error(
        "kernel {0:?}: a name has up to {MOST_NAME} letters, digits, dots, dashes and underscores, and is none of \
         Arclight's own, such as 2x4 or usual"
    )]
    Name(String),
    /// Another loaded kernel is called so.
    #[error("kernel {0:?}: another one that is loaded has this name")]
    Taken(String),
    /// Matrices of a type that no foreign kernel multiplies.
    #[error("kernel {name:?} is for {ty:?}: {} are taken", types())]
    Type {
        /// The kernel.
        name: String,
        /// What it says.
        ty: String,
    },
    /// No instruction set.
    #[error(
        "kernel {name:?} needs {instructions:?}, which is no instruction set: use one of {}",
        Isa::names()
    )]
    NoIsa {
        /// The kernel.
        name: String,
        /// What it says.
        instructions: String,
    },
    /// One that the CPU lacks.
    #[error("kernel {name:?} needs {isa}, which this CPU does not have")]
    Isa {
        /// The kernel.
        name: String,
        /// The instruction set.
        isa: Isa,
    },
    /// A tile that it cannot have.
    #[error(
        "kernel {name:?} takes {rows} rows by {tokens} tokens at once: rows must be 16 or a multiple up to \
         {MOST_ROWS}, tokens 1 or more, and their product {MOST_RESULTS} at most"
    )]
    Size {
        /// The kernel.
        name: String,
        /// Rows that it takes.
        rows: u32,
        /// Tokens that it takes.
        tokens: u32,
    },
    /// Other results than the scalar kernel's.
    #[error("kernel {name:?} is not used: {difference}")]
    Differs {
        /// The kernel.
        name: String,
        /// Where, and how much.
        difference: Box<Difference>,
    },
}

fn types() -> String {
    crate::types().map(TensorType::name).join(" and ")
}

/// The first product of a trial whose results are not the scalar kernel's.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Rows of the product.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
    /// Tokens.
    pub tokens: usize,
    /// How many results are wrong, and the first: its row and token, what it is and what it should be. None where
    /// it wrote beyond them.
    pub wrong: Option<(usize, [usize; 2], [f32; 2])>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, cols, tokens, wrong } = self;
        write!(f, "of {rows} rows x {cols} columns times {tokens} tokens ")?;
        match wrong {
            None => f.write_str("it writes beyond the results"),
            Some((count, [row, token], [got, want])) => {
                let all = rows * tokens;
                write!(f, "{count} of {all} results differ from the scalar kernel's, ")?;
                write!(f, "first row {row}, token {token}: {got:e} instead of {want:e}")
            }
        }
    }
}
