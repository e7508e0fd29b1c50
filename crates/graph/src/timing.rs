//! How long products take: what a search for schedules asks of a loaded model.

use crate::deal::Dealt;
use crate::error::{Error, ScheduleFault};
use crate::exec::{self, Trial};
use crate::executor::Executor;
use crate::instr::{Instr, Multiplies};
use crate::plan::{FormLimits, Mode, Plan, StepShape};
use crate::schedule::Schedule;
use crate::shape::{MatrixShape, Product, Slice};
use crate::step::StepInput;
use crate::tensor::Domain;
use crate::variant::Variant;
use crate::weight::MatrixId;
use gguf::TensorType;
use kernels::{Block, How, Kernels};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use topology::Group;

/// A run of products that is timed together takes about so long: a thousand times what it costs to begin
/// one, and short enough that a disturbance spoils one of many.
const RUN: Duration = Duration::from_millis(10);

/// Between two products by the same weights so many times what the caches hold is read. On a virtual EPYC 9005
/// whose last cache has 32 MiB, products of 1.1 MiB, of which there were 28, took 17 us each in turn, 18 with one
/// and two times the cache read between, and 26 with four times: 45 GB/s, as with larger matrices (November 2026).
const TIMES_CACHES: u64 = 4;

/// A shape that products of a step have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeUse {
    /// The shape.
    pub shape: MatrixShape,
    /// The name of the matrices, that of the first if they have several.
    pub name: String,
    /// Matrices of this shape that a step multiplies by, in the place that has most.
    pub matrices: usize,
}

/// What a thread walks at a time of a shape's product of `tokens` tokens where no schedule says it.
pub fn usual_slice(plan: &Plan, kernels: &Kernels, shape: &MatrixShape, tokens: usize) -> Slice {
    let tile = |&(ty, _): &(TensorType, usize)| kernels::tile_bytes(ty, shape.cols);
    let bytes = match shape.product {
        Product::Paired => shape.parts.iter().map(tile).sum(),
        Product::Plain | Product::Summed => tile(&shape.parts[0]),
    };
    let row = kernels.row_bytes(kernels::act_kind(shape.parts[0].0), shape.cols);
    let how = |ty| plan.schedules.resolve(How::default(), ty);
    let blocks = shape.parts.iter().map(|part| kernels.block(how(part.0), part.0, tokens));
    let block = blocks.reduce(Block::max).expect("a shape has parts");
    Slice {
        tiles: exec::tiles_that_fit(plan, block, bytes),
        tokens: exec::tokens_that_fit(plan, block, row),
    }
}

impl Executor {
    /// The shapes of all products of a step, in the order of the first layer that has them, for each level
    /// of threads ([`Plan::levels`](crate::Plan::levels)).
    pub fn matrix_shapes(&self) -> Vec<Vec<ShapeUse>> {
        let levels = 0..self.plan().levels().len();
        levels.map(|level| self.shapes_at(level)).collect()
    }

    fn shapes_at(&self, level: usize) -> Vec<ShapeUse> {
        let mut all: Vec<ShapeUse> = Vec::new();
        for place in 0..self.plan().places() {
            let mut here = vec![0; all.len()];
            for (_, instr) in self.products(Variant::PREFILL, place) {
                let Some(shape) = self.shape(instr, level, place) else { continue };
                let at = all.iter().position(|known| known.shape == shape).unwrap_or_else(|| {
                    let matrix = instr.matrix().expect("a product");
                    let name = self.graph().matrix(matrix).name.clone();
                    all.push(ShapeUse { shape, name, matrices: 0 });
                    here.push(0);
                    all.len() - 1
                });
                here[at] += 1;
            }
            for (known, here) in all.iter_mut().zip(here) {
                known.matrices = known.matrices.max(here);
            }
        }
        all
    }

    /// The products that the team of a place computes in a step, and where they stand in its program.
    fn products(
        &self,
        variant: Variant,
        place: usize,
    ) -> impl Iterator<Item = ((usize, usize), &Instr)> {
        let stage = if self.plan().mode == Mode::Pipeline { place } else { 0 };
        let program = &self.replicas[0].programs[&variant].stages[stage];
        let all = program.iter().enumerate().flat_map(|(at, stage)| {
            stage.instrs.iter().enumerate().map(move |(i, instr)| ((at, i), instr))
        });
        all.filter(|(_, instr)| instr.matrix().is_some())
    }

    /// What a place multiplies in `instr` at a level.
    fn shape(&self, instr: &Instr, level: usize, place: usize) -> Option<MatrixShape> {
        let graph = self.graph();
        let node = if graph.nodes() == 1 { 0 } else { place };
        let threads = self.plan().teams_at(level)[place].len();
        let Multiplies { matrix, paired, .. } = instr.does.multiplies()?;
        MatrixShape::of(graph.matrix(matrix), node, paired, threads)
    }

    /// Seconds that a product of this shape with `tokens` tokens takes by `schedule`, computed by the
    /// threads of a level in all places at once that have such matrices.
    ///
    /// Timed is the instruction of a step: the product with what belongs to it (bias, activation, sums of
    /// squares, summands' way to other nodes), not the wait for the threads of the place that follows.
    /// Nothing is computed of what comes before and after, activations are made up, and nobody reads the
    /// result. Products with all matrices of the shape follow each other, and where those are not much more
    /// than the caches hold, threads read other weights between them, which is not timed: so weights come from
    /// memory as in a step. Products of about 10 ms are timed together, the next run goes on where it ended,
    /// and runs follow each other for about `most`, at least one. The result is that of the fastest: what
    /// disturbs a run only adds time. A product takes as long as the thread with most
    /// work is at it, on a CPU: what other programs and a virtual machine's host take meanwhile is not the
    /// schedule's fault ([`thread_time`](threads::thread_time)).
    ///
    /// Sequences and their pages stay as they are. Counts begin anew, and the last step's logits are gone.
    ///
    /// # Errors
    /// When the model has no such shape at the level, the schedule cannot be, there are more tokens than a
    /// step may have (or rows of logits, for their matrix), there is too little memory for the summands,
    /// or a worker panicked.
    ///
    /// # Panics
    /// When the plan has no such level.
    pub fn time_matrices(
        &mut self,
        shape: &MatrixShape,
        level: usize,
        tokens: usize,
        schedule: &Schedule,
        most: Duration,
    ) -> Result<f64, Error> {
        let (place, matrix) = self.check_trial(shape, level, tokens, schedule)?;
        let splits = schedule.grid.splits;
        let input = StepInput::products(tokens);
        // Attention's form makes no difference to products.
        let step =
            StepShape { tokens, outputs: tokens, ranges: usize::MAX, tiles: tokens, single: false };
        let limits = FormLimits { splits, ..self.form_at(level, &input) };
        let variant = self.plan().variant(step, limits);
        if !self.replicas[0].programs.contains_key(&variant) {
            self.adopt(self.plan().clone(), None, splits)?;
        }
        let here = |place| {
            let own = self.products(variant, place).filter(|(_, i)| tokens <= self.room(i.domain));
            let own = own.filter(|(_, i)| self.shape(i, level, place).as_ref() == Some(shape));
            own.map(|(at, _)| at).collect::<Vec<_>>()
        };
        let instrs = (0..self.plan().places()).map(here).collect();
        // All matrices of the shape have as many tiles.
        let node = if self.graph().nodes() == 1 { 0 } else { place };
        let shard = self.replicas[0].weight_table.shard(matrix, node, place);
        let bounds = shard.deal_over(schedule.grid.rows(shape.threads));
        let dealt = Dealt { schedule: *schedule, bounds: &bounds };
        let (first, longest, apart) = (0, Vec::new(), self.apart(level));
        let trial = Trial {
            level,
            input: &input,
            variant,
            dealt,
            instrs,
            first,
            fill: true,
            apart,
            longest,
        };
        let fastest = self.fastest(trial, most);
        self.reset_counts();
        fastest
    }

    /// Whether products of this shape can be timed; the place and the name of one.
    fn check_trial(
        &self,
        shape: &MatrixShape,
        level: usize,
        tokens: usize,
        schedule: &Schedule,
    ) -> Result<(usize, MatrixId), Error> {
        if tokens == 0 {
            return Err(Error::BadStep("products of no tokens cannot be timed".to_owned()));
        }
        let bad = |fault| Error::BadSchedule { shape: shape.clone(), tokens, fault };
        schedule.check(shape).map_err(bad)?;
        schedule.check_kernel(shape, self.kernels).map_err(bad)?;
        let splits = schedule.grid.splits;
        let alike = |place| {
            let all = self.products(Variant::PREFILL, place);
            let own = all.filter(move |(_, i)| self.shape(i, level, place).as_ref() == Some(shape));
            own.filter_map(move |(_, instr)| Some((place, instr.matrix()?, instr.domain)))
        };
        let all: Vec<(usize, MatrixId, Domain)> =
            (0..self.plan().places()).flat_map(alike).collect();
        let Some(&(place, matrix, domain)) = all.first() else {
            return Err(Error::NoSuchShape { shape: shape.clone(), level });
        };
        for &(place, matrix, _) in &all {
            let node = if self.graph().nodes() == 1 { 0 } else { place };
            let segments = self.graph().matrix(matrix).segments(0, node).len();
            if segments < splits {
                return Err(bad(ScheduleFault::TooFewSegments { splits, segments }));
            }
        }
        if all.iter().all(|(.., domain)| tokens > self.room(*domain)) {
            let what = if domain == Domain::Tokens { "tokens" } else { "outputs" };
            return Err(Error::StepTooLarge { what, got: tokens, max: self.room(domain) });
        }
        Ok((place, matrix))
    }

    /// Rows that products of a domain may have.
    fn room(&self, domain: Domain) -> usize {
        match domain {
            Domain::Tokens => self.limits().tokens,
            Domain::Outputs => self.limits().outputs,
            Domain::Slots(each) => each * self.limits().tokens,
        }
    }

    /// What each thread of a level has to read until no cache holds what it read before.
    fn apart(&self, level: usize) -> usize {
        let plan = self.plan();
        let of = |(group, threads): (&Group, usize)| {
            let cpus = group.cpus[..threads].iter().filter_map(|&id| self.machine.cpu(id));
            let caches: BTreeSet<_> = cpus.filter_map(|cpu| cpu.l3.or(cpu.l2)).collect();
            let caches = caches.into_iter().filter_map(|id| self.machine.cache(id));
            let bytes: u64 = caches.map(|cache| cache.size_bytes).sum();
            (TIMES_CACHES * bytes) as usize / threads
        };
        plan.groups.iter().zip(plan.levels().swap_remove(level)).map(of).max().unwrap_or(0)
    }

    /// Repeats runs of a trial for about `most`: seconds per product of the fastest.
    fn fastest(&mut self, mut trial: Trial<'_>, most: Duration) -> Result<f64, Error> {
        let begin = Instant::now();
        let all = trial.instrs.iter().map(Vec::len).max().unwrap_or(1);
        // The first product makes the activations and is not counted.
        self.run_trial(&mut trial, 1)?;
        let (mut fastest, mut count, mut took) = (f64::INFINITY, 1, begin.elapsed());
        trial.fill = false;
        loop {
            // By the clock on the wall: that is what `most` is of.
            let fit = RUN.as_secs_f64() * f64::from(count as u32) / took.as_secs_f64().max(1e-9);
            (trial.first, count) = (trial.first + count, (fit as usize).clamp(1, all));
            let before = begin.elapsed();
            fastest = fastest.min(self.run_trial(&mut trial, count)?);
            let after = begin.elapsed();
            took = after - before;
            if after + took > most {
                return Ok(fastest);
            }
        }
    }

    /// Runs so many products of a trial: seconds of one, in the place where they take longest.
    fn run_trial(&mut self, trial: &mut Trial<'_>, count: usize) -> Result<f64, Error> {
        let none = || (0..count).map(|_| AtomicU64::new(0)).collect();
        trial.longest = (0..self.plan().places()).map(|_| none()).collect();
        let (trial, replicas, kernels) = (&*trial, &self.replicas, self.kernels);
        self.pool.run_on(trial.level, &|worker| exec::time(replicas, kernels, trial, worker))?;
        let of = |place: &Vec<AtomicU64>| place.iter().map(|at| at.load(Relaxed)).sum::<u64>();
        let longest = trial.longest.iter().map(of).max().unwrap_or(0);
        Ok(longest as f64 / 1e9 / count as f64)
    }
}
