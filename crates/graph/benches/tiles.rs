//! Fused attention with its tiles dealt in turn, and with tiles stolen (`Plan::tasks`), in whole
//! steps of a small model whose attention is as that of Qwen3-0.6B: 16 query heads, 8 of keys, 128 long.
//!
//! `cargo bench -p arclight-graph --bench tiles`
//!
//! Two executors take the same steps in turn, and which of them goes first changes with every round.
//! A figure is the median of the step's time with stealing over the time without it in the same round,
//! with quartiles. The logits must be equal to the bit. In a second pass another thread keeps the last
//! CPU busy half of the time, as other programs do.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use arclight_graph::{Executor, KvType, Limits, Outputs, PageId, PageTable, Plan, SeqInput};
use gguf::{Gguf, TensorType};
use kernels::{KV_PAGE, Kernels};
use testkit::TinyModel;
use threads::Policy;
use topology::{CpuId, Group, Machine};

const ROUNDS: usize = 101;
/// Tokens of a step at most.
const STEP: usize = 256;
/// Tokens that each sequence has seen.
const DEPTHS: [usize; 16] =
    [130, 7400, 260, 1900, 90, 520, 3700, 700, 170, 5200, 110, 1100, 350, 2600, 230, 1500];

/// One step: tokens and what was seen before, of each sequence.
type Shape = Vec<(usize, usize)>;

struct Side {
    executor: Executor,
    tables: Vec<[PageTable; 1]>,
}

impl Side {
    fn new(gguf: &Gguf<'_>, machine: &Machine, steal: bool) -> Side {
        let graph = models::build(gguf, 1).expect("a graph").graph;
        let cpus: Vec<CpuId> = machine.cpus().iter().take(2).map(|cpu| cpu.id).collect();
        let tasks = steal.then_some(Policy::Interleave);
        let plan = Plan { tasks, ..Plan::new(vec![Group::unbound(cpus)]) };
        let mut next = 0;
        let mut table = |tokens: usize| {
            let first = next;
            next += (tokens + STEP).div_ceil(KV_PAGE) as u32;
            [PageTable { first: 0, pages: (first..next).map(PageId).collect() }]
        };
        let tables: Vec<_> = DEPTHS.iter().map(|&depth| table(depth)).collect();
        let pages = [next as usize, 0, 0, 0];
        // No room for states of ranges: every step takes the fused form.
        let limits = Limits {
            kv: KvType::F16.into(),
            tokens: STEP,
            outputs: DEPTHS.len(),
            pages,
            ranges: 0,
        };
        let kernels = Kernels::detect().expect("kernels");
        let new = Executor::new(graph, plan, limits, kernels, machine, gguf, &mut |_| {});
        Side { executor: new.expect("an executor"), tables }
    }

    /// Time and logits of a step.
    fn step(&mut self, shape: &Shape) -> (f64, Vec<u32>) {
        let tokens: Vec<u32> = (0..STEP as u32).map(|i| i * 7 % 300).collect();
        let with_tokens = shape.iter().zip(&self.tables).filter(|((tokens, _), _)| *tokens > 0);
        let inputs = with_tokens.map(|(&(count, past), tables)| {
            let tokens = &tokens[past % 8..][..count];
            SeqInput { tokens, past, tables, outputs: Outputs::Last, saves: &[], insets: &[] }
        });
        let start = Instant::now();
        let logits = self.executor.step(inputs).expect("a step");
        let time = start.elapsed().as_secs_f64();
        let bits = (0..logits.len()).flat_map(|i| logits.row(i)).map(|x| x.to_bits()).collect();
        (time, bits)
    }
}

fn main() {
    let model = TinyModel {
        context: 8192,
        hidden: 512,
        ffn: 512,
        heads: 16,
        kv_heads: 8,
        ..TinyModel::qwen3(TensorType::Q4_0)
    };
    let bytes = model.gguf();
    let gguf = Gguf::parse(&bytes).expect("a model");
    let machine = Machine::read().expect("the machine's description");
    let mut sides = [false, true].map(|steal| Side::new(&gguf, &machine, steal));
    for (seq, &depth) in DEPTHS.iter().enumerate() {
        for past in (0..depth).step_by(STEP - 8) {
            let mut shape = vec![(0, 0); DEPTHS.len()];
            shape[seq] = ((depth - past).min(STEP - 8), past);
            sides.iter_mut().for_each(|side| _ = side.step(&shape));
        }
    }

    let decode: Shape = DEPTHS.iter().map(|&depth| (1, depth)).collect();
    let even: Shape = DEPTHS.iter().map(|_| (1, 90)).collect();
    let prompt = |seq: usize, tokens, past| {
        let mut shape = vec![(0, 0); DEPTHS.len()];
        shape[seq] = (tokens, past);
        shape
    };
    let mut mixed = decode.clone();
    mixed[9] = (128, 5000);
    let shapes = [
        ("16 sequences of 90 to 7400 tokens, one token each", decode),
        ("16 sequences of 90 tokens, one token each", even),
        ("a prompt's first 240 tokens", prompt(1, 240, 0)),
        ("240 tokens of a prompt behind 7000", prompt(1, 240, 7000)),
        ("15 tokens of sequences and 128 of a prompt behind 5000", mixed),
    ];
    let stop = AtomicBool::new(false);
    for busy in [false, true] {
        println!("{}", if busy { "with another busy thread" } else { "alone" });
        std::thread::scope(|scope| {
            let pest = scope.spawn(|| pest(busy.then_some(&stop), &machine));
            shapes.iter().for_each(|(name, shape)| compare(name, shape, &mut sides));
            stop.store(true, Relaxed);
            pest.join().expect("no panic");
        });
    }
}

/// Works for 2 ms and sleeps for 2 ms on the second CPU, until it is told to stop.
fn pest(stop: Option<&AtomicBool>, machine: &Machine) {
    let (Some(stop), Some(cpu)) = (stop, machine.cpus().get(1)) else { return };
    stop.store(false, Relaxed);
    let groups = vec![Group::unbound(vec![cpu.id])];
    let spec = threads::PoolSpec { groups, ..threads::PoolSpec::default() };
    let mut pool = threads::Pool::new(&spec).expect("a pool of one");
    while !stop.load(Relaxed) {
        let work = |_: &mut threads::Worker| {
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(2) {
                std::hint::spin_loop();
            }
        };
        pool.run(&work).expect("no panic");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn compare(name: &str, shape: &Shape, sides: &mut [Side; 2]) {
    let mut ratios = Vec::new();
    let mut millis = [Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        let first = round % 2;
        let (a, a_bits) = sides[first].step(shape);
        let (b, b_bits) = sides[1 - first].step(shape);
        assert!(a_bits == b_bits, "{name}: who runs a tile must not matter");
        let (dealt, stolen) = if first == 0 { (a, b) } else { (b, a) };
        ratios.push(stolen / dealt);
        millis[0].push(dealt * 1e3);
        millis[1].push(stolen * 1e3);
    }
    let quartiles = |values: &mut Vec<f64>| {
        values.sort_unstable_by(f64::total_cmp);
        [0.25, 0.5, 0.75].map(|share| values[(share * (values.len() - 1) as f64) as usize])
    };
    let [low, ratio, high] = quartiles(&mut ratios);
    let [dealt, stolen] = millis.each_mut().map(|values| quartiles(values)[1]);
    println!("  {name:<56} {ratio:.3} ({low:.3} to {high:.3}), {dealt:.2} to {stolen:.2} ms");
}
