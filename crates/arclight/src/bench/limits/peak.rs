//! Multiply peaks: the kernels' own multiply instructions without anything around them.

use crate::error::Error;
use crate::report::reads::{keep, run};
use kernels::{Kernels, Product};
use std::time::Duration;
use threads::Pool;

/// A pass takes at least this long.
const PASS: Duration = Duration::from_millis(10);

/// Finds the peak of one product on one instruction set.
#[derive(Debug)]
pub(super) struct PeakProbe {
    kernels: &'static Kernels,
    product: Product,
    rounds: u64,
    best: f64,
}

impl PeakProbe {
    pub(super) fn new(kernels: &'static Kernels, product: Product) -> PeakProbe {
        PeakProbe { kernels, product, rounds: 1 << 10, best: 0.0 }
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
        let took = loop {
            let rounds = self.rounds;
            let took = run(pool, &|_| keep(kernels.peak(product, rounds)))?.all();
            if took >= PASS {
                break took;
            }
            self.rounds *= 2;
        };
        // What one round does, without timing it.
        let done = pool.threads() as f64 * (kernels.peak(product, 1) * self.rounds) as f64;
        self.best = self.best.max(done / took.as_secs_f64());
        Ok(())
    }

    /// Multiply-accumulates per second in the best pass.
    pub(super) fn best(&self) -> f64 {
        self.best
    }
}
