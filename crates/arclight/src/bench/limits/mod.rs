//! What the machine can do at best, and what a step cannot avoid doing.
//!
//! Without a model, [`run`] prints what the machine does at best. For a model:
//!
//! Bandwidth: what the threads of the model's pool read from buffers beside them ([`ReadProbe`]).
//! Peak: every thread runs the kernels' own multiply instructions on registers. All threads begin
//! together, and of several passes, spread over the run, the best counts.
//!
//! Work: a step reads every weight once (in the packed layout, padding included) and the keys and
//! values of all tokens before it once, and does the multiply-accumulates of its matrices and of
//! its attention. The floor of its time is the larger of bytes over bandwidth and products over
//! peak; norms, sampling and waits are not in it, nor is anything read twice.

mod command;
mod peak;
mod table;

use crate::bench_sync::pool;
use crate::error::Error;
use crate::report::reads::{ReadProbe, Reads};
use arclight_engine::Engine;
pub(super) use command::run;
use graph::{Executor, Graph, KV_CLASSES, MatrixId, Op};
use kernels::{ActKind, Kernels};
use models::Hparams;
use peak::{PeakProbe, Product};
use serde::Serialize;
use topology::{Group, Machine};

/// What the threads of a pool do at best.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Limits {
    /// Bytes read from memory per second.
    pub(crate) read: f64,
    /// 8-bit multiply-accumulates per second.
    pub(crate) int8: f64,
    /// Multiply-accumulates of bfloat16 per second.
    pub(crate) bf16: f64,
    /// 32-bit floating-point multiply-accumulates per second: of matrices of type F32 and F16, and of
    /// attention.
    pub(crate) float: f64,
}

/// Measures a model's pool.
pub(crate) struct Probe {
    reads: ReadProbe,
    peaks: [PeakProbe; 3],
}

impl Probe {
    /// Reserves what the threads will read.
    pub(crate) fn new(engine: &mut Engine, machine: &Machine) -> Result<Probe, Error> {
        let executor = engine.executor();
        let (kernels, groups) = (executor.kernels(), executor.plan().group_threads());
        let reads = ReadProbe::new(executor.pool(), groups, machine)?;
        let peaks = [Product::Int8, Product::Bf16, Product::F32];
        Ok(Probe { reads, peaks: peaks.map(|product| PeakProbe::new(kernels, product)) })
    }

    /// One pass of every probe.
    pub(crate) fn pass(&mut self, engine: &mut Engine) -> Result<(), Error> {
        let pool = engine.executor().pool();
        self.reads.pass(pool)?;
        self.peaks.iter_mut().try_for_each(|peak| peak.pass(pool))
    }

    /// The best so far.
    pub(crate) fn limits(&self) -> Limits {
        let [int8, bf16, float] = self.peaks.each_ref().map(PeakProbe::best);
        Limits { read: self.reads.reads().all, int8, bf16, float }
    }

    /// The best of each node.
    pub(crate) fn reads(&self) -> &Reads {
        self.reads.reads()
    }
}

/// Multiply-accumulates per second of one thread where the group's first one runs, by the kernels that
/// a model would get: int8, bf16, f32. The best of some passes.
pub(crate) fn core_peaks(group: &Group) -> Result<[f64; 3], Error> {
    const PASSES: usize = 3;
    let one = Group { cpus: group.cpus.iter().copied().take(1).collect(), ..group.clone() };
    let mut pool = pool(&[one], false)?;
    let kernels = Kernels::detect().map_err(arclight_engine::Error::from)?;
    let mut peaks = [0.0; 3];
    for (peak, product) in peaks.iter_mut().zip([Product::Int8, Product::Bf16, Product::F32]) {
        let mut probe = PeakProbe::new(kernels, product);
        (0..PASSES).try_for_each(|_| probe.pass(&mut pool))?;
        *peak = probe.best();
    }
    Ok(peaks)
}

/// What a step of a model costs at least.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    body: Matmul,
    head: Matmul,
    attention: [Attention; KV_CLASSES],
}

/// What layers that see equally far cost.
#[derive(Clone, Copy, Debug, Default)]
struct Attention {
    /// How many tokens a token sees at most.
    window: Option<usize>,
    /// Bytes of one token's keys and values.
    kv_token: f64,
    /// Multiply-accumulates for each token that a token sees.
    macs: f64,
}

impl Attention {
    /// Tokens that `tokens` new ones after `past` see, together and each for itself.
    fn seen(&self, tokens: usize, past: usize) -> (f64, f64) {
        let window = self.window.unwrap_or(usize::MAX);
        // The new token i sees past + i + 1 or as many as the window has.
        let growing = tokens.min(window.saturating_sub(past));
        let (all, grown) = (past + tokens, tokens - growing);
        let each = growing as f64 * (past as f64 + (growing as f64 + 1.0) / 2.0);
        let together = all.min(window.saturating_add(tokens) - 1);
        (together as f64, if grown > 0 { each + (grown * window) as f64 } else { each })
    }
}

/// Matrices that are multiplied with one vector.
#[derive(Clone, Copy, Debug, Default)]
struct Matmul {
    bytes: f64,
    int8: f64,
    bf16: f64,
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
        let mut cost = Cost::default();
        for (class, &window) in graph.windows().iter().enumerate() {
            let kv_token = |node| graph.kv_bytes_per_token(node, kv, class);
            let layers = graph.class_layers(class);
            cost.attention[class] = Attention {
                window,
                kv_token: (0..graph.nodes()).map(kv_token).sum::<usize>() as f64,
                // Scores, and the sum of values.
                macs: 2.0 * (layers * hparams.heads * hparams.head_dim) as f64,
            };
        }
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
        let (mut kv, mut attention) = (0.0, 0.0);
        for class in &self.attention {
            let (together, each) = class.seen(tokens, past);
            kv += sequences as f64 * together * class.kv_token;
            attention += sequences as f64 * each * class.macs;
        }
        let int8 = rows * self.body.int8 + outputs * self.head.int8;
        let bf16 = rows * self.body.bf16 + outputs * self.head.bf16;
        let float = rows * self.body.float + outputs * self.head.float + attention;
        let memory = (self.body.bytes + head + kv) / limits.read;
        let compute = int8 / limits.int8 + bf16 / limits.bf16 + float / limits.float;
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
                ActKind::Bf16 => self.bf16 += macs,
                ActKind::F32 => self.float += macs,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { read: 1e9, int8: 1e9, bf16: 5e8, float: 1e8 };
    const COST: Cost = Cost {
        body: Matmul { bytes: 5e6, int8: 1e7, bf16: 0.0, float: 0.0 },
        head: Matmul { bytes: 1e6, int8: 0.0, bf16: 0.0, float: 1e5 },
        attention: [
            Attention { window: None, kv_token: 1e3, macs: 1e2 },
            NO_LAYERS,
            NO_LAYERS,
            NO_LAYERS,
        ],
    };
    const NO_LAYERS: Attention = Attention { window: None, kv_token: 0.0, macs: 0.0 };

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

    #[test]
    fn a_window_bounds_what_is_seen() {
        let each = |window, tokens: usize, past: usize| -> (usize, usize) {
            let sees = |i: usize| (past + i + 1).min(window);
            let first = (past + 1).saturating_sub(window);
            (past + tokens - first, (0..tokens).map(sees).sum())
        };
        for (window, tokens, past) in [(8, 1, 0), (8, 1, 7), (8, 1, 100), (8, 20, 0), (8, 6, 5)] {
            let of = Attention { window: Some(window), ..NO_LAYERS };
            let (together, all) = each(window, tokens, past);
            assert_eq!(of.seen(tokens, past), (together as f64, all as f64), "{tokens} @ {past}");
        }
        assert_eq!(NO_LAYERS.seen(3, 4), (7.0, 5.0 + 6.0 + 7.0));
    }
}
