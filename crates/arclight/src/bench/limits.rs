//! What the machine can do at best, and what a step cannot avoid doing.
//!
//! Bandwidth: what the threads of the model's pool read from buffers beside them ([`ReadProbe`]).
//! Peak: every thread runs the kernels' own multiply instructions on registers. All threads begin
//! together, and of several passes, spread over the run, the best counts.
//!
//! Work: a step reads every weight once (in the packed layout, padding included) and the keys and
//! values of all tokens before it once, and does the multiply-accumulates of its matrices and of
//! its attention. The floor of its time is the larger of bytes over bandwidth and products over
//! peak; norms, sampling and waits are not in it, nor is anything read twice.

use crate::error::Error;
use crate::report::reads::{ReadProbe, Reads, keep, run};
use arclight_engine::Engine;
use graph::{Executor, Graph, MatrixId, Op};
use kernels::ActKind;
use models::Hparams;
use serde::Serialize;
use std::time::Duration;
use topology::Machine;

/// What the threads of a pool do at best.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Limits {
    /// Bytes read from memory per second.
    pub(crate) read: f64,
    /// 8-bit multiply-accumulates per second.
    pub(crate) int8: f64,
    /// 32-bit floating-point multiply-accumulates per second.
    pub(crate) float: f64,
}

/// A pass of the multiply probe takes about this long.
const PEAK_PASS: Duration = Duration::from_millis(10);

/// Measures a pool's limits.
pub(crate) struct Probe {
    reads: ReadProbe,
    best: Limits,
    rounds: u64,
}

impl Probe {
    /// Allocates what the threads will read.
    pub(crate) fn new(engine: &mut Engine, machine: &Machine) -> Result<Probe, Error> {
        let reads = ReadProbe::new(engine, machine)?;
        Ok(Probe { reads, best: Limits::default(), rounds: 1 << 10 })
    }

    /// One pass of every probe.
    pub(crate) fn pass(&mut self, engine: &mut Engine) -> Result<(), Error> {
        self.reads.pass(engine)?;
        self.best.read = self.reads.reads().all;
        let executor = engine.executor();
        let kernels = executor.kernels();
        let threads = executor.plan().threads() as f64;
        loop {
            let rounds = self.rounds;
            let int8 = run(executor, &|_| keep(kernels.peak_i8(rounds)))?.all();
            if int8 < PEAK_PASS {
                self.rounds *= 2;
                continue;
            }
            let float = run(executor, &|_| keep(kernels.peak_f32(rounds)))?.all();
            // What one round does, without timing it.
            let done = |per_round: u64, took: Duration| {
                threads * (per_round * rounds) as f64 / took.as_secs_f64()
            };
            self.best.int8 = self.best.int8.max(done(kernels.peak_i8(1), int8));
            self.best.float = self.best.float.max(done(kernels.peak_f32(1), float));
            return Ok(());
        }
    }

    /// The best so far.
    pub(crate) fn limits(&self) -> Limits {
        self.best
    }

    /// The best of each node.
    pub(crate) fn reads(&self) -> &Reads {
        self.reads.reads()
    }
}

/// What a step of a model costs at least.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    body: Matmul,
    head: Matmul,
    /// Bytes of one token's keys and values.
    kv_token: f64,
    /// Multiply-accumulates for each token that a token sees.
    attention: f64,
}

/// Matrices that are multiplied with one vector.
#[derive(Clone, Copy, Debug, Default)]
struct Matmul {
    bytes: f64,
    int8: f64,
    float: f64,
}

/// The least time for some work, by what it is bound.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Floor {
    /// Seconds.
    pub(crate) seconds: f64,
    /// Seconds of steps that wait for memory.
    memory: f64,
}

impl Floor {
    /// What bounds the larger part.
    pub(crate) fn bound(&self) -> &'static str {
        if 2.0 * self.memory > self.seconds { "memory" } else { "compute" }
    }
}

impl Floor {
    /// The least time for a test on one of several engines at the rate of all together.
    pub(crate) fn side_by_side(floors: &[Floor]) -> Floor {
        let seconds = floors.iter().map(|f| f.seconds.recip()).sum::<f64>().recip();
        let share = floors.iter().map(|f| f.memory / f.seconds).sum::<f64>();
        Floor { seconds, memory: seconds * share / floors.len() as f64 }
    }
}

/// The shape of a step: `sequences` with `tokens` new ones each after `past`, and `outputs` rows
/// of logits in all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepWork {
    pub(crate) sequences: usize,
    pub(crate) tokens: usize,
    pub(crate) past: usize,
    pub(crate) outputs: usize,
}

impl Cost {
    pub(crate) fn of(executor: &Executor, hparams: &Hparams) -> Cost {
        let (graph, kv) = (executor.graph(), executor.limits().kv);
        let kv_token = |node| graph.kv_bytes_per_token(node, kv);
        let mut cost = Cost {
            kv_token: (0..graph.nodes()).map(kv_token).sum::<usize>() as f64,
            // Scores, and the sum of values.
            attention: 2.0 * (hparams.layers * hparams.heads * hparams.head_dim) as f64,
            ..Cost::default()
        };
        for (node, _) in graph.walk(0) {
            match &node.op {
                Op::Linear { matrix, .. } | Op::Gated { matrix, .. } => {
                    cost.body.add(graph, *matrix);
                }
                Op::Logits { head, .. } => cost.head.add(graph, *head),
                _ => {}
            }
        }
        cost
    }

    /// Adds the least time of a step.
    pub(crate) fn add(&self, step: StepWork, limits: Limits, floor: &mut Floor) {
        let StepWork { sequences, tokens, past, outputs } = step;
        let (rows, outputs) = ((sequences * tokens) as f64, outputs as f64);
        let head = if outputs > 0.0 { self.head.bytes } else { 0.0 };
        let kv = (sequences * (past + tokens)) as f64 * self.kv_token;
        // Token i sees past + i + 1 others.
        let seen = rows * (past as f64 + (tokens as f64 + 1.0) / 2.0);
        let int8 = rows * self.body.int8 + outputs * self.head.int8;
        let float = rows * self.body.float + outputs * self.head.float + seen * self.attention;
        let memory = (self.body.bytes + head + kv) / limits.read;
        let compute = int8 / limits.int8 + float / limits.float;
        floor.seconds += memory.max(compute);
        if memory >= compute {
            floor.memory += memory;
        }
    }
}

impl Matmul {
    fn add(&mut self, graph: &Graph, id: MatrixId) {
        let matrix = graph.matrix(id);
        self.bytes += (0..graph.nodes()).map(|n| matrix.node_bytes(n)).sum::<usize>() as f64;
        for part in &matrix.parts {
            let macs = (part.rows * part.cols) as f64;
            match kernels::act_kind(part.ty) {
                ActKind::Q8 => self.int8 += macs,
                ActKind::F32 => self.float += macs,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { read: 1e9, int8: 1e9, float: 1e8 };
    const COST: Cost = Cost {
        body: Matmul { bytes: 5e6, int8: 1e7, float: 0.0 },
        head: Matmul { bytes: 1e6, int8: 0.0, float: 1e5 },
        kv_token: 1e3,
        attention: 1e2,
    };

    fn floor(step: StepWork) -> Floor {
        let mut floor = Floor::default();
        COST.add(step, LIMITS, &mut floor);
        floor
    }

    #[test]
    fn a_step_is_bound_by_the_slower_of_memory_and_arithmetic() {
        // Compute: 10 ms of int8, 1 ms of head, 0.1 ms of attention; memory would take 6.1 ms.
        let one = floor(StepWork { sequences: 1, tokens: 1, past: 99, outputs: 1 });
        assert!((one.seconds - 0.0111).abs() < 1e-9, "{one:?}");
        assert_eq!(one.bound(), "compute");
        let two = Floor::side_by_side(&[one, one]);
        assert!((two.seconds - 0.0111 / 2.0).abs() < 1e-9 && two.bound() == "compute", "{two:?}");
        // 20,000 tokens of cache: 5 + 20 ms of memory, 10 + 20 ms of arithmetic.
        let deep = floor(StepWork { sequences: 1, tokens: 1, past: 19_999, outputs: 0 });
        assert!((deep.seconds - 0.030).abs() < 1e-9, "{deep:?}");
        let slow = Limits { read: 1e8, ..LIMITS };
        let mut floor = Floor::default();
        COST.add(StepWork { sequences: 2, tokens: 1, past: 0, outputs: 2 }, slow, &mut floor);
        assert!((floor.seconds - 6.002e6 / 1e8).abs() < 1e-9, "{floor:?}");
        assert_eq!(floor.bound(), "memory");
    }
}
