//! The two ways to add up over nodes, everything at one place or a share of the columns (of the rows, where
//! a norm follows the sum) at each, give the bits that one node gives.

mod run;

use arclight_graph::{KvType, Limits, Outputs, PageId, PageTable, Plan};
use gguf::{Gguf, TensorType};
use testkit::TinyModel;

/// Miri takes a thousand times as long.
const TOKENS: usize = if cfg!(miri) { 3 } else { 37 };

/// Logits of all tokens of one step, as bits. Sums of at least `scatter` elements are shared.
fn logits(gguf: &Gguf<'_>, nodes: usize, scatter: usize) -> Vec<u32> {
    let built = models::build(gguf, nodes).unwrap();
    let plan = Plan {
        scatter_elements: scatter,
        scatter_nodes: 2,
        private_elements: 0,
        ..run::plan(nodes)
    };
    let limits = Limits {
        kv: KvType::F32.into(),
        tokens: TOKENS,
        outputs: TOKENS,
        pages: [2, 0, 0, 0],
        ranges: 1,
    };
    let mut executor = run::executor(gguf, built.graph, plan, limits);
    let tokens: Vec<u32> = (0..TOKENS as u32).map(|i| (i * 7919 + 13) % 300).collect();
    let tables = [PageTable { first: 0, pages: vec![PageId(0), PageId(1)] }];
    let logits = run::step(&mut executor, &tokens, 0, &tables, Outputs::All);
    logits.flatten().map(|x| x.to_bits()).collect()
}

#[test]
fn shared_sums_give_the_same_bits() {
    for model in [TinyModel::llama, TinyModel::granite, TinyModel::olmo2, TinyModel::starcoder2] {
        // A row of the sums is one piece of work and a quarter of another.
        let model = TinyModel { hidden: 320, ffn: 192, ..model(TensorType::F32) };
        let bytes = model.gguf();
        let gguf = Gguf::parse(&bytes).unwrap();
        let alone = logits(&gguf, 1, usize::MAX);
        assert!(alone.iter().all(|&x| f32::from_bits(x).is_finite()), "{}", model.arch);
        for nodes in [2, 3, 4] {
            for scatter in [0, usize::MAX] {
                let got = logits(&gguf, nodes, scatter);
                assert!(got == alone, "{}: {nodes} nodes, scatter {scatter}", model.arch);
            }
        }
    }
}
