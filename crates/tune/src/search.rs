//! How many threads on how many nodes are fastest.
//!
//! Every number of nodes is tried, counted from node 0, with every number of threads on each, the same
//! on all that have as many cores. Of choices that are equally fast to within a hundredth the one with
//! the fewest threads is taken: cores that do not help would only heat and wait.
//!
//! Limits: nodes in their order, not the nearest; no unequal numbers of threads but for unequal nodes.

use crate::engine::Engine;
use crate::error::Error;
use crate::machine::MachineModel;
use crate::model::ModelGraphs;
use crate::predict::{Prediction, predict_all};
use crate::step::Work;

/// What is as fast as this share of the best is fast enough for fewer threads.
const ENOUGH: f64 = 0.99;

/// What is to be fast: `tokens` tokens after `context` others, at most `chunk` of them in a step.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// New tokens.
    pub tokens: usize,
    /// Tokens before them.
    pub context: usize,
    /// Tokens in a step.
    pub chunk: usize,
    /// As many sequences at once do the same.
    pub sequences: usize,
}

impl Job {
    /// The token after `context` others.
    pub const fn decode(context: usize) -> Job {
        Job { tokens: 1, context, chunk: 1, sequences: 1 }
    }

    /// What it takes with `threads[node]` threads.
    ///
    /// # Errors
    /// As [`predict`](crate::predict()) and [`Engine::step`].
    pub fn predict(
        self,
        machine: &MachineModel,
        engine: &Engine,
        model: &ModelGraphs<'_>,
        threads: &[usize],
    ) -> Result<Prediction, Error> {
        let chunk = self.chunk.max(1);
        let step = |done: usize| {
            let tokens = (self.tokens - done).min(chunk);
            let work = Work { tokens, context: self.context + done, sequences: self.sequences };
            engine.step(model, work, threads)
        };
        // Of no tokens there is a step, too, which is refused.
        let steps = (0..self.tokens.max(1)).step_by(chunk).map(step);
        predict_all(machine, &steps.collect::<Result<Vec<_>, _>>()?)
    }
}

/// A choice of threads and what it takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Best {
    /// On each node.
    pub threads: Vec<usize>,
    /// With them.
    pub prediction: Prediction,
}

/// Threads for `per_node` on each of the first `nodes` nodes, fewer where a node has fewer cores.
pub fn threads_on(machine: &MachineModel, nodes: usize, per_node: usize) -> Vec<usize> {
    let of = |(node, &cores): (usize, &usize)| if node < nodes { per_node.min(cores) } else { 0 };
    machine.cores().iter().enumerate().map(of).collect()
}

/// The fastest choice of threads, on any number of nodes.
///
/// # Errors
/// As [`Job::predict`]; when no node has a core.
pub fn best(
    machine: &MachineModel,
    engine: &Engine,
    model: &ModelGraphs<'_>,
    job: Job,
) -> Result<Best, Error> {
    let widest = machine.cores().iter().copied().max().unwrap_or(0);
    let mut tried: Vec<Best> = Vec::new();
    for nodes in 1..=machine.nodes() {
        for per_node in 1..=widest {
            let threads = threads_on(machine, nodes, per_node);
            if threads.iter().any(|&n| n > 0) {
                let prediction = job.predict(machine, engine, model, &threads)?;
                tried.push(Best { threads, prediction });
            }
        }
    }
    let fastest = tried.iter().map(|t| t.prediction.seconds).fold(f64::INFINITY, f64::min);
    let enough = tried.into_iter().filter(|t| t.prediction.seconds * ENOUGH <= fastest);
    enough.min_by_key(|t| t.threads.iter().sum::<usize>()).ok_or(Error::NoThreads)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known::{kunpeng_920, qwen3_4b_q4_0};
    use crate::step::Pages;
    use crate::{CoreMath, CoreRead, WaitModel};

    const DECODE: Job = Job::decode(128);
    const PROMPT: Job = Job { tokens: 512, context: 0, chunk: 512, sequences: 1 };

    /// Two nodes of 32 cores, of which 8 read all that a node's memory gives.
    fn machine() -> MachineModel {
        let core = CoreRead { local: 13e9, remote: 6e9 };
        let math = CoreMath { int8: 100e9, bf16: 50e9, f32: 30e9, elements: 2e9 };
        let waits =
            WaitModel { arrival: 2e-8, remote_arrival: 1e-7, line: 6e-8, remote_line: 2e-7 };
        let read = vec![vec![100e9, 30e9], vec![30e9, 100e9]];
        MachineModel::new(vec![32, 32], read, core, math, waits).unwrap()
    }

    #[test]
    fn decoding_needs_the_cores_that_fill_the_memory_and_a_prompt_needs_all() {
        let (machine, model, engine) = (machine(), qwen3_4b_q4_0(), Engine::tensor_parallel());
        let decode = best(&machine, &engine, &model, DECODE).unwrap();
        assert_eq!(decode.threads, [8, 8]);
        let prompt = best(&machine, &engine, &model, PROMPT).unwrap();
        assert_eq!(prompt.threads, [32, 32]);
        // Nothing that was tried is more than a hundredth faster.
        let fast = decode.prediction.seconds * ENOUGH;
        for nodes in 1..=2 {
            for n in 1..=32 {
                let threads = threads_on(&machine, nodes, n);
                let other = DECODE.predict(&machine, &engine, &model, &threads).unwrap();
                assert!(other.seconds >= fast, "{threads:?}");
            }
        }
    }

    #[test]
    fn a_prompt_is_the_sum_of_its_chunks() {
        let (machine, model) = (kunpeng_920(), qwen3_4b_q4_0());
        let (engine, threads) = (Engine::tensor_parallel(), [48; 4]);
        let step = |tokens, context| {
            let step =
                engine.step(&model, Work { tokens, context, sequences: 1 }, &threads).unwrap();
            crate::predict(&machine, &step).unwrap().seconds
        };
        let prompt = |tokens, context, chunk| {
            Job { tokens, context, chunk, sequences: 1 }
                .predict(&machine, &engine, &model, &threads)
        };
        let whole = prompt(700, 100, 512).unwrap();
        assert!((whole.seconds / (step(512, 100) + step(188, 612)) - 1.0).abs() < 1e-12);
        assert_eq!((whole.tokens, prompt(5, 0, 512).unwrap().seconds), (700, step(5, 0)));
        assert_eq!(prompt(0, 0, 512), Err(Error::NoTokens));
    }

    #[test]
    fn pages_on_one_node_are_best_read_from_there() {
        let home = Engine::unplaced(Pages::first_touch(0, 1.0, 4).unwrap());
        let best = best(&kunpeng_920(), &home, &qwen3_4b_q4_0(), DECODE).unwrap();
        assert_eq!(best.threads[1..], [0, 0, 0]);
    }

    #[test]
    fn small_nodes_have_fewer_threads() {
        let big = kunpeng_920();
        let read = (0..4).map(|a| (0..4).map(|b| big.link(a, b)).collect()).collect();
        let core = CoreRead { local: big.core(0, 0), remote: big.core(0, 1) };
        let uneven =
            MachineModel::new(vec![48, 8, 0, 48], read, core, *big.math(), *big.waits()).unwrap();
        assert_eq!(threads_on(&uneven, 4, 20), [20, 8, 0, 20]);
        assert_eq!(threads_on(&uneven, 2, 60), [48, 8, 0, 0]);
    }
}
