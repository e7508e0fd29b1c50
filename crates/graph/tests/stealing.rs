//! Who runs a tile of attention makes no difference: the bits of a step with tiles stolen are those of
//! a step with tiles dealt, in every way that nodes share a model. Every tile is run once, and is in the
//! statistics once.

#[expect(dead_code, reason = "its steps are of one sequence")]
mod run;

use arclight_graph::{
    Attention, Graph, KvType, Limits, Mode, Node, Outputs, PageId, PageTable, Plan, SeqInput,
};
use gguf::{Gguf, TensorType};
use testkit::TinyModel;
use threads::{Policy, TaskReport};

/// Tokens of each sequence in each step: a prompt alone, prompts of mixed lengths, and tokens behind
/// them.
const STEPS: [[usize; 3]; 4] = [[300, 0, 0], [40, 90, 3], [1, 1, 1], [1, 0, 60]];

/// Tiles of all steps: of each sequence's tokens, for each KV head, in each layer.
fn tiles(graph: &Graph) -> u64 {
    let of = |spec: &Attention| {
        let heads = &spec.heads;
        let rows = 16 / heads.group(); // tokens of a tile
        let sequences = STEPS.as_flattened().iter().map(|tokens| tokens.div_ceil(rows));
        sequences.sum::<usize>() * heads.kv
    };
    graph.ops().iter().filter_map(Node::attention).map(of).sum::<usize>() as u64
}

#[test]
fn stolen_tiles_give_the_same_bits() {
    let model = TinyModel { hidden: 256, ffn: 256, ..TinyModel::qwen3(TensorType::Q8_0) };
    let bytes = model.gguf();
    let gguf = Gguf::parse(&bytes).unwrap();
    let mut all = Vec::new();
    for (groups, mode) in [
        (1, Mode::TensorParallel),
        (2, Mode::TensorParallel),
        (2, Mode::Interleave),
        (2, Mode::Pipeline),
    ] {
        for tasks in [None].into_iter().chain(Policy::ALL.map(Some)) {
            let plan = Plan { mode, tasks, stats: true, ..run::plan(groups) };
            let graph = models::build(&gguf, plan.graph_nodes()).unwrap().graph;
            // No room for states of ranges: attention is fused.
            let pages = [48, 0, 0, 0];
            let limits =
                Limits { kv: KvType::F16.into(), tokens: 320, outputs: 3, pages, ranges: 0 };
            let mut executor = run::executor(&gguf, graph, plan, limits);
            let tables: Vec<[PageTable; 1]> = (0..3)
                .map(|s| {
                    [PageTable { first: 0, pages: (s * 16..s * 16 + 16).map(PageId).collect() }]
                })
                .collect();
            let mut past = [0; 3];
            let mut bits = Vec::new();
            for step in STEPS {
                let tokens: Vec<u32> = (0..320).map(|i| (i * 31 + 7) % 300).collect();
                let inputs = (0..3).filter(|&s| step[s] > 0).map(|s| SeqInput {
                    tokens: &tokens[s..][..step[s]],
                    past: past[s],
                    tables: &tables[s],
                    outputs: Outputs::Last,
                    saves: &[],
                    insets: &[],
                });
                let logits = executor.step(inputs).unwrap();
                bits.extend((0..logits.len()).flat_map(|i| logits.row(i)).map(|x| x.to_bits()));
                past.iter_mut().zip(step).for_each(|(past, tokens)| *past += tokens);
            }
            let name = format!("{groups} groups, {mode}");
            let report = TaskReport::of(&executor.pool().stats());
            let counts = report.counts;
            // A pipeline cuts long steps into parts, which may have more tiles.
            let steals = tasks.is_some_and(Policy::steals);
            let expected = if tasks.is_some() { tiles(executor.graph()) } else { 0 };
            let more = mode == Mode::Pipeline && counts.count > expected && tasks.is_some();
            assert!(
                counts.count == expected || more,
                "{name}: {} of {expected} tiles",
                counts.count
            );
            // All could have been stolen or none, and nobody has stolen more than there is.
            assert_eq!(counts.stealable, if steals { counts.count } else { 0 }, "{name}");
            let far = matches!(tasks, Some(Policy::Interleave | Policy::Balanced));
            assert!(far || counts.far == 0, "{name}: {counts:?}");
            assert!(counts.near + counts.far <= counts.count, "{name}: {counts:?}");
            assert_eq!(report.utilisation().is_some(), tasks.is_some(), "{name}: {counts:?}");
            all.push((format!("{groups} groups, {mode}, {tasks:?}"), bits));
        }
    }
    assert!(all[0].1.iter().any(|&bits| f32::from_bits(bits) != 0.0));
    for (name, bits) in &all[1..] {
        assert!(*bits == all[0].1, "{name} differs from {}", all[0].0);
    }
}
