//! Kernels that were written elsewhere, beside the family of micro-kernels.
//!
//! They are known by a name and the digest of the file that they came from, so that a plan can name one that
//! is not here. How such a file is loaded and tried is the caller's matter (the crate `foreign`).

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::{Mutex, OnceLock, PoisonError};

use gguf::TensorType;

use crate::acts::{ActKind, act_kind};
use crate::kernels::Kernels;
use crate::matmul::{MicroKernel, MicroKernelError, Piece, Tiles};
use crate::views::{Rows, RowsMut};

/// What multiplies a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MatKernel {
    /// A member of the family that is compiled for every instruction set.
    Family(MicroKernel),
    /// One that was written elsewhere.
    Foreign(&'static Foreign),
}

impl fmt::Display for MatKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Family(kernel) => kernel.fmt(f),
            Self::Foreign(kernel) => f.write_str(kernel.name()),
        }
    }
}

impl From<MicroKernel> for MatKernel {
    fn from(kernel: MicroKernel) -> Self {
        Self::Family(kernel)
    }
}

impl FromStr for MatKernel {
    type Err = MicroKernelError;

    /// A member of the family: names of others say nothing without a digest.
    fn from_str(name: &str) -> Result<Self, MicroKernelError> {
        name.parse().map(Self::Family)
    }
}

/// A product that was written elsewhere.
pub trait ForeignProduct: Send + Sync {
    /// The type of the matrices, one whose activations are quantised ([`ActKind::Q8`]).
    fn ty(&self) -> TensorType;

    /// Tiles and tokens that it takes at once, at least one of each.
    fn size(&self) -> (usize, usize);

    /// [`Kernels::matmul`] with rows of quantised activations, and the same bits. `ahead` bytes further lie the
    /// weights that are worth asking for meanwhile; 0: none.
    ///
    /// What it may take for granted is checked before: lengths of tiles, activations and results.
    fn multiply(
        &self,
        ahead: usize,
        tiles: Tiles<'_>,
        pieces: &[Piece],
        acts: Rows<'_, u8>,
        out: RowsMut<'_, f32>,
    );
}

/// A kernel that was written elsewhere. There is one value for a name and a digest.
pub struct Foreign {
    name: String,
    digest: String,
    product: OnceLock<Box<dyn ForeignProduct>>,
}

/// All that were named, in that order.
static KNOWN: Mutex<Vec<&'static Foreign>> = Mutex::new(Vec::new());

impl Foreign {
    /// The one with a name, of the file with a digest; it may not be loaded (yet).
    pub fn named(name: &str, digest: &str) -> &'static Self {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |other: &&&Self| other.name == name && other.digest == digest;
        if let Some(known) = known.iter().find(same) {
            return known;
        }
        let (name, digest) = (name.to_owned(), digest.to_owned());
        let new = Box::leak(Box::new(Self { name, digest, product: OnceLock::new() }));
        known.push(new);
        new
    }

    /// Makes it one that can be used. Where it is that already, nothing changes.
    ///
    /// # Panics
    ///
    /// If its activations are not quantised, or it takes nothing at once.
    pub fn load(&self, product: Box<dyn ForeignProduct>) {
        assert!(act_kind(product.ty()) == ActKind::Q8, "{}: {}", self.name, product.ty());
        assert!(product.size().0 > 0 && product.size().1 > 0, "{} takes nothing", self.name);
        // As good as this one.
        let _ = self.product.set(product);
    }

    /// All that can be used.
    pub fn loaded() -> Vec<&'static Self> {
        let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().copied().filter(|kernel| kernel.product().is_some()).collect()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The digest of its file.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// What multiplies, once it is loaded.
    pub fn product(&self) -> Option<&dyn ForeignProduct> {
        self.product.get().map(Box::as_ref)
    }

    /// Whether it multiplies matrices of a type.
    pub fn multiplies(&self, ty: TensorType) -> bool {
        self.product().is_some_and(|product| product.ty() == ty)
    }

    fn key(&self) -> (&str, &str) {
        (&self.name, &self.digest)
    }
}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Foreign").field(&self.name).field(&self.digest).finish()
    }
}

impl PartialEq for Foreign {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Foreign {}

impl PartialOrd for Foreign {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Foreign {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl Hash for Foreign {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl Kernels {
    /// What can multiply matrices of type `ty`: the members of the family, the usual one first, then what was
    /// loaded from elsewhere.
    pub fn mat_kernels(&self, ty: TensorType) -> Vec<MatKernel> {
        let foreign = Foreign::loaded().into_iter().filter(|kernel| kernel.multiplies(ty));
        let family = self.family(ty).into_iter().map(MatKernel::Family);
        family.chain(foreign.map(MatKernel::Foreign)).collect()
    }

    /// Whether that is one of [`Kernels::mat_kernels`].
    pub fn has_kernel(&self, ty: TensorType, kernel: MatKernel) -> bool {
        match kernel {
            MatKernel::Family(kernel) => self.family_of(ty).has(kernel),
            MatKernel::Foreign(kernel) => kernel.multiplies(ty),
        }
    }
}
