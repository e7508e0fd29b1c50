//! Multiply peaks: the kernels' own multiply instructions without anything around them.

use crate::error::Error;
use crate::report::reads::{keep, run};
use kernels::Kernels;
use serde::Serialize;
use std::time::Duration;
use threads::Pool;

/// A pass takes at least this long.
const PASS: Duration = Duration::from_millis(10);

/// A way to multiply that has a limit of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Product {
    /// Integer dots, of all quantised types.
    Int8,
    /// Pairs of bfloat16, or widened once for 8 tokens and multiplied as f32.
    Bf16,
    /// Widened once for 8 tokens and multiplied as f32.
    F16,
    F32,
}

impl Product {
    pub(super) const ALL: [Product; 4] = [Product::Int8, Product::Bf16, Product::F16, Product::F32];

    /// Does `rounds` rounds and gives the multiply-accumulates done.
    fn run(self, kernels: &Kernels, rounds: u64) -> u64 {
        match self {
            Product::Int8 => kernels.peak_i8(rounds),
            Product::Bf16 => kernels.peak_bf16(rounds),
            Product::F16 => kernels.peak_f16(rounds),
            Product::F32 => kernels.peak_f32(rounds),
        }
    }
}

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

    /// Has all threads of a pool multiply at the same time.
    pub(super) fn pass(&mut self, pool: &mut Pool) -> Result<(), Error> {
        let PeakProbe { kernels, product, .. } = *self;
        let took = loop {
            let rounds = self.rounds;
            let took = run(pool, &|_| keep(product.run(kernels, rounds)))?.all();
            if took >= PASS {
                break took;
            }
            self.rounds *= 2;
        };
        // What one round does, without timing it.
        let done = pool.threads() as f64 * (product.run(kernels, 1) * self.rounds) as f64;
        self.best = self.best.max(done / took.as_secs_f64());
        Ok(())
    }

    /// Multiply-accumulates per second in the best pass.
    pub(super) fn best(&self) -> f64 {
        self.best
    }
}
