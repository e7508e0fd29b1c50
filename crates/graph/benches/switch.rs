//! What it costs to switch plans: decode steps on one thread of each group and larger steps on all, one
//! after the other, against as many of each in a row.
//!
//! `cargo bench -p arclight-graph --bench switch`
//!
//! In each round five series are timed, in turning order: decode steps on one thread of each group and on
//! all, larger steps on all, and decode and larger steps in turn, with the switch and without it. What
//! taking turns costs beyond the two alone is the price of caches without the switch, and with it that of
//! the switch as well: the difference is the switch. Figures are medians over rounds, with quartiles, of
//! microseconds for one way there and back. The logits must be equal to the bit.

use std::time::Instant;

use arclight_graph::{Executor, KvType, Limits, Outputs, PageId, PageTable, Phase, Plan, SeqInput};
use gguf::{Gguf, TensorType};
use kernels::Kernels;
use testkit::TinyModel;
use topology::{CpuId, Machine};

const ROUNDS: usize = 101;
/// Pairs of steps in a series.
const PAIRS: usize = 50;
/// Tokens of a step on all threads: few, so that what its own time varies by does not hide a switch.
const PROMPT: usize = 4;

struct Side {
    executor: Executor,
    tables: [PageTable; 1],
    tokens: Vec<u32>,
    bits: Vec<u32>,
}

impl Side {
    /// One step of so many tokens at a level; remembers what came out and demands the same ever after.
    fn step(&mut self, tokens: usize, level: usize) {
        self.executor.force_level(Some(level));
        let tokens = &self.tokens[..tokens];
        let input = SeqInput {
            tokens,
            past: 64,
            tables: &self.tables,
            outputs: Outputs::Last,
            saves: &[],
            insets: &[],
        };
        let logits = self.executor.step(std::iter::once(input)).expect("a step");
        let first = logits.row(0)[0].to_bits();
        let known = &mut self.bits[tokens.len()];
        assert!(*known == 0 || *known == first, "a level must not change a bit");
        *known = first;
    }

    /// Microseconds of a series, per pair of steps.
    fn series(&mut self, steps: &[(usize, usize)]) -> f64 {
        let start = Instant::now();
        for _ in 0..PAIRS {
            steps.iter().for_each(|&(tokens, level)| self.step(tokens, level));
        }
        start.elapsed().as_secs_f64() * 1e6 / PAIRS as f64
    }
}

fn main() {
    let model = TinyModel { hidden: 512, ffn: 1024, ..TinyModel::qwen3(TensorType::Q4_0) };
    let bytes = model.gguf();
    let gguf = Gguf::parse(&bytes).expect("a model");
    let machine = Machine::read().expect("the machine's description");
    let layout = topology::layout(&machine, None, None).expect("groups");
    let groups = layout.groups.clone();
    let all: Vec<&CpuId> = groups.iter().flat_map(|g| &g.cpus).collect();
    println!("{} threads in {} groups; decoding on one of each", all.len(), groups.len());
    let phases = vec![Phase { tokens: 1, threads: vec![1; groups.len()] }];
    let plan = Plan { phases, ..Plan::new(groups) };
    let graph = models::build(&gguf, plan.graph_nodes()).expect("a graph").graph;
    let pages = [8, 0, 0, 0];
    let limits = Limits { kv: KvType::F16.into(), tokens: PROMPT, outputs: 1, pages, ranges: 8 };
    let kernels = Kernels::detect().expect("kernels");
    let executor = Executor::new(graph, plan, limits, kernels, &machine, &gguf, &mut |_| {});
    let mut side = Side {
        executor: executor.expect("an executor"),
        tables: [PageTable { first: 0, pages: (0..8).map(PageId).collect() }],
        tokens: (0..PROMPT as u32).map(|i| i * 7 % 300).collect(),
        bits: vec![0; PROMPT + 1],
    };
    let (few, all) = (0, 1);
    let series: [&[(usize, usize)]; 5] = [
        &[(1, few)],
        &[(1, all)],
        &[(PROMPT, all)],
        &[(1, all), (PROMPT, all)],
        &[(1, few), (PROMPT, all)],
    ];
    let names = [
        "a decode step, one thread of each group",
        "a decode step, all threads",
        "a step of 4 tokens, all threads",
        "taking turns, beyond the two (all threads)",
        "taking turns, beyond the two (with the switch)",
        "the switch, there and back",
    ];
    let mut figures: [Vec<f64>; 6] = Default::default();
    for round in 0..ROUNDS {
        let mut took = [0.0; 5];
        for at in 0..series.len() {
            let at = (at + round) % series.len();
            took[at] = side.series(series[at]);
        }
        let turns = took[3] - took[1] - took[2];
        let switched = took[4] - took[0] - took[2];
        let of_round = [took[0], took[1], took[2], turns, switched, switched - turns];
        figures.iter_mut().zip(of_round).for_each(|(all, new)| all.push(new));
    }
    for (name, values) in names.iter().zip(&mut figures) {
        values.sort_unstable_by(f64::total_cmp);
        let [low, median, high] =
            [0.25, 0.5, 0.75].map(|share| values[(share * (ROUNDS - 1) as f64) as usize]);
        println!("  {name:<48} {median:8.1} µs ({low:.1} to {high:.1})");
    }
}
