//! What the machine can do at best, and what a step cannot avoid doing.
//!
//! Bandwidth: every thread of the model's pool reads a buffer of its own, which it has allocated
//! and touched first, so that it lies beside the thread; together they are several times as large
//! as the caches. Peak: every thread runs the kernels' own multiply instructions on registers. All
//! threads begin and end together, and of several passes, spread over the run, the best counts.
//!
//! Work: a step reads every weight once (in the packed layout, padding included) and the keys and
//! values of all tokens before it once, and does the multiply-accumulates of its matrices and of
//! its attention. The floor of its time is the larger of bytes over bandwidth and products over
//! peak; norms, sampling and waits are not in it, nor is anything read twice.

use crate::error::Error;
use arclight_engine::Engine;
use graph::{Executor, Graph, MatrixId, Op, Scope};
use kernels::ActKind;
use models::Hparams;
use serde::Serialize;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
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

/// Buffers of at least this many bytes in all, and of four times the caches.
const LEAST_BUFFER: u64 = 256 << 20;
/// A pass of the multiply probe takes about this long.
const PEAK_PASS: Duration = Duration::from_millis(10);

/// Measures a pool's limits.
pub(crate) struct Probe {
    /// One per thread.
    buffers: Vec<Mutex<Vec<u8>>>,
    best: Limits,
    rounds: u64,
}

impl Probe {
    /// Allocates the buffers, on the threads that will read them.
    pub(crate) fn new(engine: &mut Engine, machine: &Machine) -> Result<Probe, Error> {
        let threads = engine.executor().plan().threads();
        let share = buffer_bytes(machine) as usize / threads;
        let buffers: Vec<Mutex<Vec<u8>>> = (0..threads).map(|_| Mutex::default()).collect();
        run(engine.executor(), &|thread| *lock(&buffers[thread]) = vec![1; share])?;
        Ok(Probe { buffers, best: Limits::default(), rounds: 1 << 10 })
    }

    /// One pass of every probe.
    pub(crate) fn pass(&mut self, engine: &mut Engine) -> Result<(), Error> {
        let executor = engine.executor();
        let kernels = executor.kernels();
        let bytes: usize = self.buffers.iter().map(|b| lock(b).len()).sum();
        let buffers = &self.buffers;
        let took = run(executor, &|thread| {
            keep(memory::probe::read_bytes(&lock(&buffers[thread])));
        })?;
        self.best.read = self.best.read.max(bytes as f64 / took.as_secs_f64());
        let threads = buffers.len() as f64;
        loop {
            let rounds = self.rounds;
            let int8 = run(executor, &|_| keep(kernels.peak_i8(rounds)))?;
            if int8 < PEAK_PASS {
                self.rounds *= 2;
                continue;
            }
            let float = run(executor, &|_| keep(kernels.peak_f32(rounds)))?;
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
}

/// Runs a job on all threads at the same time and gives the time from first to last.
fn run(executor: &mut Executor, job: &(dyn Fn(usize) + Sync)) -> Result<Duration, Error> {
    let took = Mutex::new(Duration::ZERO);
    let timed = executor.pool().run(&|worker| {
        worker.wait(Scope::Global);
        let start = Instant::now();
        job(worker.thread());
        worker.wait(Scope::Global);
        if worker.thread() == 0 {
            *lock(&took) = start.elapsed();
        }
    });
    timed.map_err(|e| arclight_engine::Error::from(graph::Error::from(e)))?;
    let took = *lock(&took);
    Ok(took)
}

/// Makes sure that a result is computed.
fn keep(result: u64) {
    std::hint::black_box(result);
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Four times the caches, within an eighth of the memory.
fn buffer_bytes(machine: &Machine) -> u64 {
    let caches: u64 = machine.caches().iter().map(|c| c.size_bytes).sum();
    let memory: u64 = machine.nodes().iter().map(|n| n.memory_bytes).sum();
    let most = if memory == 0 { LEAST_BUFFER } else { memory / 8 };
    (4 * caches).max(LEAST_BUFFER).min(most)
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
