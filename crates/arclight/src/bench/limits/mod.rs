//! What the machine can do at best, and what a step cannot avoid doing.
//!
//! Without a model, [`command`] prints what the machine does at best. For a model:
//!
//! Bandwidth: what the threads of the model's pool read from buffers beside them ([`ReadProbe`]).
//! Peak: every thread runs the kernels' own multiply instructions on registers. All threads work in the same short
//! windows, and of those of several passes, spread over the run, the best counts. Work that beats its limit has no share
//! of it ([`why::share`]).
//!
//! Work: what the book of the compiled program says that a step needs ([`Needs`](graph::Needs)): every
//! weight that it multiplies by (in the packed layout, padding included) and the keys and values that it
//! sees, once, and the multiply-accumulates of its matrices and of its attention. The floor of its time is
//! the larger of bytes over bandwidth and products over peak; norms, sampling and waits are not in it.

pub(super) mod command;
mod peak;
mod table;

use crate::bench_sync::pools::pool;
use crate::error::Error;
use crate::report::reads::{ReadProbe, Reads, cache_bytes};
use arclight_engine::Engine;
use graph::Demand;
use kernels::{Kernels, Product, Products};
use peak::PeakProbe;
use topology::{Group, Machine};
use why::NoShare;

/// Passes on a quiet machine differ by less.
const MOVED: f64 = 0.1;

/// What the threads of a pool do at best.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    /// Bytes read from memory per second.
    pub(crate) read: f64,
    /// The same in the slowest pass.
    pub(crate) slowest_read: f64,
    /// Multiply-accumulates per second, but for products that [`Product::Int8`] stands for.
    pub(crate) macs: Products<Option<f64>>,
    /// Bytes of the machine's caches.
    pub(crate) caches: u64,
}

impl Limits {
    /// Multiply-accumulates per second of a product.
    pub(crate) fn rate(&self, product: Product) -> f64 {
        self.macs[self.stands_for(product)].unwrap_or(0.0)
    }

    /// The products that were measured, with their rates.
    pub(crate) fn measured(&self) -> impl Iterator<Item = (Product, f64)> {
        self.macs.iter().filter_map(|(product, rate)| Some((product, rate?)))
    }

    /// The product whose rate is that of another.
    fn stands_for(&self, product: Product) -> Product {
        if self.macs[product].is_some() { product } else { Product::Int8 }
    }

    /// Both in words, of the products that are wanted: `read 40.0 GB/s; int8 901, f32 245 GMAC/s`.
    pub(crate) fn words(&self, wanted: impl Fn(Product) -> bool) -> String {
        let wanted = |own| Product::ALL.iter().any(|&p| wanted(p) && self.stands_for(p) == own);
        let rates = self.measured().filter(|(product, _)| wanted(*product));
        let rates = rates.map(|(p, rate)| format!("{} {:.0}", p.name(), rate / 1e9));
        let rates = rates.collect::<Vec<_>>().join(", ");
        format!("read {:.1} GB/s; {rates} GMAC/s", self.read / 1e9)
    }

    /// That the limit itself moved, if it did: then others use the memory, and shares of it say less.
    pub(crate) fn moved(&self) -> Option<String> {
        let Limits { read, slowest_read, .. } = *self;
        (slowest_read < (1.0 - MOVED) * read && slowest_read > 0.0).then(|| {
            format!(
                "the limit of reading moved between {:.1} and {:.1} GB/s from repetition to repetition: others use \
                 the memory or the cores",
                slowest_read / 1e9,
                read / 1e9
            )
        })
    }

    /// The least seconds for reading, and for multiplying.
    fn least(&self, work: Demand) -> (f64, f64) {
        let some = work.macs.iter().filter(|(_, macs)| *macs > 0);
        let compute = some.map(|(product, macs)| macs as f64 / self.rate(product)).sum();
        (work.bytes as f64 / self.read, compute)
    }

    /// Some work of steps that read `step_bytes` each, as a share of what can be done in its `seconds`.
    ///
    /// # Errors
    /// The work is faster than that.
    pub(crate) fn share(
        &self,
        work: Demand,
        seconds: f64,
        step_bytes: u64,
    ) -> Result<f64, NoShare> {
        let mut floor = Floor::default();
        floor.add(work, *self);
        Floor { step_bytes, ..floor }.share(seconds, self)
    }
}

/// Measures a model's pool.
pub(crate) struct Probe {
    reads: ReadProbe,
    peaks: Vec<PeakProbe>,
    caches: u64,
}

impl Probe {
    /// Reserves what the threads will read.
    pub(crate) fn new(engine: &mut Engine, machine: &Machine) -> Result<Probe, Error> {
        let (kernels, groups) = (engine.kernels(), engine.plan().group_threads());
        let reads = ReadProbe::new(engine.pool(), groups, machine)?;
        let caches = cache_bytes(machine);
        Ok(Probe { reads, peaks: PeakProbe::all(kernels), caches })
    }

    /// One pass of every probe.
    pub(crate) fn pass(&mut self, engine: &mut Engine) -> Result<(), Error> {
        let pool = engine.pool();
        self.reads.pass(pool)?;
        self.peaks.iter_mut().try_for_each(|peak| peak.pass(pool))
    }

    /// The best so far.
    pub(crate) fn limits(&self) -> Limits {
        let reads = self.reads.reads();
        let (read, slowest_read) = (reads.all, reads.slowest);
        let mut limits = Limits { read, slowest_read, caches: self.caches, ..Limits::default() };
        for peak in &self.peaks {
            limits.macs[peak.product()] = Some(peak.best());
        }
        limits
    }

    /// The best of each node.
    pub(crate) fn reads(&self) -> &Reads {
        self.reads.reads()
    }
}

/// Multiply-accumulates per second of one thread where the group's first one runs, by the kernels that
/// a model would get: int7 (which int8 stands for where one instruction takes both), bf16, f32. The best of
/// some passes.
pub(crate) fn core_peaks(group: &Group) -> Result<[f64; 3], Error> {
    const PASSES: usize = 3;
    let one = Group { cpus: group.cpus.iter().copied().take(1).collect(), ..group.clone() };
    let mut pool = pool(&[one], false)?;
    let kernels = Kernels::detect().map_err(arclight_engine::Error::from)?;
    let mut peaks = [0.0; 3];
    for (peak, product) in peaks.iter_mut().zip([Product::Int7, Product::Bf16, Product::F32]) {
        let mut probe = PeakProbe::new(kernels, kernels.product(product));
        (0..PASSES).try_for_each(|_| probe.pass(&mut pool))?;
        *peak = probe.best();
    }
    Ok(peaks)
}

/// The least time for some work, by what it is bound.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Floor {
    /// Seconds.
    pub(crate) seconds: f64,
    /// Seconds of steps that wait for memory.
    memory: f64,
    /// Seconds that the multiplications of all steps take at the peak.
    pub(crate) compute: f64,
    /// Bytes that a step reads, at most.
    step_bytes: u64,
}

impl Floor {
    /// What bounds the larger part.
    pub(crate) fn bound(&self) -> &'static str {
        if 2.0 * self.memory > self.seconds { "memory" } else { "compute" }
    }

    /// The share of the limit that work of `seconds` reaches.
    ///
    /// # Errors
    /// The work is faster than the machine was found to be.
    pub(crate) fn share(&self, seconds: f64, limits: &Limits) -> Result<f64, NoShare> {
        let beaten = match self.bound() {
            "memory" => why::beaten_memory(self.step_bytes, limits.caches),
            _ => NoShare::Cores,
        };
        why::share(self.seconds, seconds, beaten)
    }

    /// Adds the least time of a step.
    pub(crate) fn add(&mut self, step: Demand, limits: Limits) {
        self.step_bytes = self.step_bytes.max(step.bytes);
        let (memory, compute) = limits.least(step);
        self.seconds += memory.max(compute);
        self.compute += compute;
        if memory >= compute {
            self.memory += memory;
        }
    }

    /// The least time for a test on one of several engines at the rate of all together.
    pub(crate) fn side_by_side(floors: &[Floor]) -> Floor {
        let seconds = floors.iter().map(|f| f.seconds.recip()).sum::<f64>().recip();
        let share = floors.iter().map(|f| f.memory / f.seconds).sum::<f64>();
        let compute = floors.iter().map(|f| f.compute / f.seconds).sum::<f64>();
        let of = |share: f64| seconds * share / floors.len() as f64;
        let step_bytes = floors.iter().map(|f| f.step_bytes).sum();
        Floor { seconds, memory: of(share), compute: of(compute), step_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::{Extent, Keep, Needs, Per, RowsOf};

    fn limits(read: f64) -> Limits {
        let rate = |product| match product {
            Product::Int8 => Some(1e9),
            Product::Bf16 => Some(5e8),
            Product::F16 | Product::F32 => Some(1e8),
            _ => None,
        };
        Limits { read, slowest_read: read, macs: Products::new(rate), caches: 1_000_000 }
    }

    fn floor(sequences: usize, past: usize, outputs: usize, limits: Limits) -> Floor {
        let bytes = |bytes| Demand { bytes, ..Demand::default() };
        let needs = Needs::new([
            (Per::Step(RowsOf::Tokens), bytes(5_000_000)),
            (Per::Step(RowsOf::Logits), bytes(1_000_000)),
            (Per::Row(RowsOf::Tokens), Demand::multiply(Product::Int4, 10_000_000)),
            (Per::Row(RowsOf::Logits), Demand::multiply(Product::F32, 100_000)),
            (Per::Key(0), bytes(1_000)),
            (Per::Pair(0), Demand::multiply(Product::F32, 100)),
        ]);
        let mut floor = Floor::default();
        floor.add(needs.of(&Extent::batch(&[Keep::All], sequences, (1, past), outputs)), limits);
        floor
    }

    #[test]
    fn a_step_is_bound_by_the_slower_of_memory_and_arithmetic() {
        // Compute: 10 ms of int8, 1 ms of head, 0.1 ms of attention; memory would take 6.1 ms.
        let one = floor(1, 99, 1, limits(1e9));
        assert!((one.seconds - 0.0111).abs() < 1e-9, "{one:?}");
        assert_eq!(one.bound(), "compute");
        let two = Floor::side_by_side(&[one, one]);
        assert!((two.seconds - 0.0111 / 2.0).abs() < 1e-9 && two.bound() == "compute", "{two:?}");
        // 20,000 tokens of cache: 5 + 20 ms of memory, 10 + 20 ms of arithmetic.
        let deep = floor(1, 19_999, 0, limits(1e9));
        assert!((deep.seconds - 0.030).abs() < 1e-9, "{deep:?}");
        let floor = floor(2, 0, 2, limits(1e8));
        assert!((floor.seconds - 6.002e6 / 1e8).abs() < 1e-9, "{floor:?}");
        assert_eq!(floor.bound(), "memory");
        // Work that beats its limit has no share; the reason names the limit.
        assert_eq!(deep.share(0.060, &limits(1e9)), Ok(0.5));
        assert_eq!(deep.share(0.029, &limits(1e9)), Err(NoShare::Cores));
        assert_eq!(floor.share(0.05, &limits(1e8)), Err(NoShare::Memory));
        let cached = Limits { caches: 7_000_000, ..limits(1e8) };
        assert_eq!(floor.share(0.05, &cached), Err(NoShare::Cached));
    }
}
