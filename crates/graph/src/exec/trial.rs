//! Products alone, as a step has them: how long one way to multiply takes.
//!
//! Instructions of the compiled programs are executed on the buffers that steps use, by the threads that
//! would, one after the other with a wait between, as other instructions would stand between them in a
//! step. Activations are made up: any step writes its own before it reads them.

use super::{LocalReplica, Replica, Step, StepPart, Thread};
use crate::buffer::BufId;
use crate::compile::Stage;
use crate::deal::Dealt;
use crate::instr::{Instr, Multiplies};
use crate::placement::share;
use crate::plan::Mode;
use crate::step::StepInput;
use crate::variant::Variant;
use crate::weight::MatrixId;
use kernels::{ActKind, Kernels};
use measure::probe::read_bytes;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use threads::{Scope, View, Worker, thread_time};

/// What is tried.
pub(crate) struct Trial<'a> {
    pub level: usize,
    /// Tokens and outputs, as many as rows are multiplied.
    pub input: &'a StepInput,
    pub variant: Variant,
    pub dealt: Dealt<'a>,
    /// The instructions of each place, as (stage, index) of its program.
    pub instrs: Vec<Vec<(usize, usize)>>,
    /// The first of them to be executed, going round; `longest` says how many.
    pub first: usize,
    /// Whether the activations are to be made first.
    pub fill: bool,
    /// Bytes that a thread reads between two products by the same weights, at least, as far as it has so
    /// many: no cache holds the weights then.
    pub apart: usize,
    /// For each place, what of each product of the run took its thread with most work, in nanoseconds.
    pub longest: Vec<Vec<AtomicU64>>,
}

/// Executes a trial as one thread of those of its level.
pub(crate) fn time(
    replicas: &[LocalReplica],
    kernels: &'static Kernels,
    trial: &Trial<'_>,
    worker: &mut Worker,
) {
    let (level, among) = (trial.level, (worker.rank(), worker.size()));
    let Replica { graph, plan, programs, places, weight_table } = &*replicas[worker.home()];
    let (storage, weights) = (places, weight_table);
    let low_scratch = super::low::scratch_len(&graph.tables);
    let step = Step {
        tables: &graph.tables,
        kernels,
        plan,
        storage,
        weights,
        level,
        among,
        trial: Some(trial.dealt),
        shares: false,
        low_scratch,
    };
    if plan.places() > 1 {
        worker.switch(View::Groups);
    }
    let stage = if plan.mode == Mode::Pipeline { worker.group() } else { 0 };
    let program = &programs[&trial.variant].stages[stage];
    let instrs = &trial.instrs[worker.group()];
    if instrs.is_empty() {
        return; // Nobody waits for this place: all waits below are local.
    }
    let (variant, input) = (trial.variant, trial.input);
    let part = StepPart { input, variant, logits_before: 0, hidden_before: 0, at: 0, tally: None };
    let thread = Thread::new(&step, part, 0, worker);
    if trial.fill {
        let mut filled = Vec::new();
        for &(stage, at) in instrs {
            thread.fill(&program[stage].instrs[at], &mut filled);
        }
    }
    let between = Between::new(&thread, trial.apart, program, instrs);
    worker.wait(Scope::Local);
    for (i, longest) in (trial.first..).zip(&trial.longest[worker.group()]) {
        let (stage, at) = instrs[i % instrs.len()];
        if trial.apart > 0 {
            between.before(i).for_each(|part| _ = black_box(read_bytes(part)));
            worker.wait(Scope::Local);
        }
        let begin = thread_time();
        thread.execute(&program[stage].instrs[at], worker, false, None, &());
        longest.fetch_max((thread_time() - begin).as_nanos() as u64, Relaxed);
        worker.wait(Scope::Local);
    }
}

/// What a thread reads between products: weights of other matrices, as in a step.
struct Between<'a> {
    others: Vec<&'a [u8]>,
    /// Bytes before each product.
    bytes: usize,
}

impl<'a> Between<'a> {
    fn new(
        thread: &'a Thread<'_>,
        apart: usize,
        program: &[Stage],
        instrs: &[(usize, usize)],
    ) -> Between<'a> {
        let matrices = instrs.iter().filter_map(|&(stage, at)| program[stage].instrs[at].matrix());
        let own: Vec<MatrixId> = matrices.collect();
        let streamed =
            |but: &[MatrixId]| thread.step.weights.others(thread.group, thread.rank, but);
        let len = |blocks: &[&[u8]]| blocks.iter().map(|block| block.len()).sum::<usize>();
        let others = streamed(&own);
        let most = len(&others);
        let wanted = apart.saturating_sub(len(&streamed(&[])) - most);
        Between { bytes: wanted.min(most) / instrs.len(), others }
    }

    /// What is to be read before product `i`: it begins where that of the one before ended.
    fn before(&self, i: usize) -> impl Iterator<Item = &'a [u8]> {
        let all: usize = self.others.iter().map(|block| block.len()).sum();
        let (mut skip, mut left) = (i * self.bytes % all.max(1), self.bytes);
        self.others.iter().cycle().map_while(move |block| {
            if left == 0 {
                return None;
            }
            let part = &block[skip.min(block.len())..];
            let part = &part[..left.min(part.len())];
            (skip, left) = (skip.saturating_sub(block.len()), left - part.len());
            Some(part)
        })
    }
}

impl Thread<'_> {
    /// Makes up activations for a product, but for those in buffers that are filled already.
    fn fill(&self, instr: &Instr, filled: &mut Vec<BufId>) {
        let Some(Multiplies { acts, matrix, .. }) = instr.does.multiplies() else {
            unreachable!("only products are tried")
        };
        let cols = self.step.tables.matrix(matrix).input_width(self.node);
        // From -1 to 1, so that 8 bits hold it well and no product is near the ends of f32.
        let row: Vec<f32> = (0..cols).map(|i| (i * 37 % 64) as f32 / 31.5 - 1.0).collect();
        let (kernels, storage) = (self.step.kernels, self.step.storage);
        for kind in [ActKind::F32, ActKind::Bf16, ActKind::Q8] {
            if !self.step.tables.matrix(matrix).takes(kind) || filled.contains(&acts.of(kind)) {
                continue;
            }
            let to = acts.of(kind);
            filled.push(to);
            let (size, rank) = if storage.is_private(to) { (1, 0) } else { (self.size, self.rank) };
            let (bytes, stride) = (kernels.row_bytes(kind, cols), storage.stride(to, self.place));
            for at in share(self.count(instr.domain), size, rank) {
                let block = storage.of(to, self.place, self.id).sub(at * stride, bytes);
                // SAFETY: the row is this thread's share, or the buffer its own, and nobody reads it
                // before the local wait that follows.
                unsafe {
                    match kind {
                        ActKind::F32 => block.as_mut_slice().copy_from_slice(&row),
                        ActKind::Bf16 => kernels.round_bf16(&row, block.as_mut_slice()),
                        ActKind::Q8 => kernels.quantize_q8(&row, block.as_mut_slice()),
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Between;

    #[test]
    fn what_is_read_between_products_goes_round_the_other_weights() {
        let bytes: Vec<u8> = (0..10).collect();
        let others = vec![&bytes[..3], &bytes[3..3], &bytes[3..]];
        for each in 1..=10 {
            let between = Between { others: others.clone(), bytes: each };
            let read: Vec<u8> =
                (0..20).flat_map(|i| between.before(i).flatten().copied()).collect();
            let round: Vec<u8> = bytes.iter().copied().cycle().take(20 * each).collect();
            assert_eq!(read, round, "{each} bytes before each product");
        }
        // A model of nothing else.
        assert_eq!(Between { others: Vec::new(), bytes: 0 }.before(3).count(), 0);
    }
}
