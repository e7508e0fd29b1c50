//! Multiply peaks: the kernels' own multiply instructions without anything around them, in short windows.

use crate::error::Error;
use crate::report::reads::windows;
use kernels::{Kernels, Product};
use threads::Pool;

/// Rounds between two looks at the clock: 5 to 50 µs.
const ROUNDS: u64 = 1 << 12;

/// Finds the peak of one product on one instruction set.
#[derive(Debug)]
pub(super) struct PeakProbe {
    kernels: &'static Kernels,
    product: Product,
    best: f64,
}

impl PeakProbe {
    pub(super) fn new(kernels: &'static Kernels, product: Product) -> PeakProbe {
        PeakProbe { kernels, product, best: 0.0 }
    }

    /// Those of all products that the kernels do differently.
    pub(super) fn all(kernels: &'static Kernels) -> Vec<PeakProbe> {
        let own = Product::ALL.into_iter().filter(|&product| kernels.product(product) == product);
        own.map(|product| PeakProbe::new(kernels, product)).collect()
    }

    pub(super) fn product(&self) -> Product {
        self.product
    }

    /// Has all threads of a pool multiply at the same time.
    pub(super) fn pass(&mut self, pool: &mut Pool) -> Result<(), Error> {
        let PeakProbe { kernels, product, .. } = *self;
        let windows = windows(pool, &|_| std::hint::black_box(kernels.peak(product, ROUNDS)))?;
        let best = windows.iter().map(|window| window.iter().sum::<f64>());
        self.best = best.fold(self.best, f64::max);
        Ok(())
    }

    /// Multiply-accumulates per second in the best window.
    pub(super) fn best(&self) -> f64 {
        self.best
    }
}
