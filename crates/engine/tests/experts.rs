//! What steps read of experts: those that tokens went to and no others.

use arclight_engine::{BatchEntry, Engine, LoadOptions, ModelFile, Outputs};
use gguf::TensorType;
use testkit::TinyModel;

const EXPERTS: usize = 12;
const CHOSEN: usize = 6;

fn load(nodes: usize) -> Engine {
    let bytes = TinyModel::qwen3moe(TensorType::Q4_0, 192).gguf();
    let file = ModelFile::from_bytes("experts", bytes);
    let options = LoadOptions { no_pin: true, nodes: Some(nodes), ..LoadOptions::default() };
    Engine::load(&file, &options, &mut |_| {}).unwrap()
}

fn step(engine: &mut Engine, tokens: &[u32]) {
    let sequence = engine.new_sequence().unwrap();
    engine.step(&[BatchEntry { sequence, tokens, outputs: Outputs::Last }]).unwrap();
    engine.free(sequence).unwrap();
}

#[test]
fn one_token_reads_the_experts_that_it_goes_to() {
    for nodes in [1, 2, 3] {
        let mut engine = load(nodes);
        engine.reset_activity();
        step(&mut engine, &[7]);
        let graph = engine.graph();
        // The embedding is looked up in. Leaves of all experts are cut alike, so each has a twelfth of a bank.
        let matrices = graph.matrices().iter().skip(1);
        let expected: usize = matrices
            .flat_map(|m| (0..nodes).map(move |node| (m, m.node_bytes(node))))
            .map(|(m, bytes)| if m.bank.is_some() { bytes / EXPERTS * CHOSEN } else { bytes })
            .sum();
        let activity = engine.take_activity();
        let got: u64 = activity.counts.places.iter().map(|place| place.weights).sum();
        assert_eq!(got, expected as u64, "{nodes} nodes");
    }
}

#[test]
fn the_choice_is_counted_once_whatever_the_nodes() {
    let tokens: Vec<u32> = (0..50).collect();
    let chosen = |nodes| {
        let mut engine = load(nodes);
        engine.reset_activity();
        step(&mut engine, &tokens);
        engine.take_activity().experts
    };
    let one = chosen(1);
    assert_eq!(one.len(), 2, "layers");
    for layer in &one {
        assert_eq!(layer.len(), EXPERTS);
        assert_eq!(layer.iter().sum::<u64>(), (CHOSEN * tokens.len()) as u64);
    }
    assert_eq!(one, chosen(2));
    assert_eq!(one, chosen(5));
}

#[test]
fn many_tokens_read_each_expert_once() {
    let mut engine = load(1);
    engine.reset_activity();
    step(&mut engine, &(0..200).collect::<Vec<u32>>());
    let activity = engine.take_activity();
    let used: usize = activity.experts.iter().flatten().filter(|&&count| count > 0).count();
    let graph = engine.graph();
    let (banks, dense): (Vec<_>, Vec<_>) =
        graph.matrices().iter().skip(1).partition(|m| m.bank.is_some());
    let bytes = |of: &[&graph::Matrix]| of.iter().map(|m| m.node_bytes(0)).sum::<usize>();
    let of_one = bytes(&banks) / EXPERTS / 2;
    assert_eq!(activity.counts.places[0].weights, (bytes(&dense) + used * of_one) as u64);
}
