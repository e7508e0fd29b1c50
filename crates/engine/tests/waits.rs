//! Threads wait as often as the compiled program says, and no more.

use arclight_engine::{BatchEntry, Engine, LoadOptions, ModelFile, Numa, Outputs, Sync};
use gguf::TensorType;
use testkit::TinyModel;

fn load(options: LoadOptions) -> Engine {
    let model = TinyModel { layers: 3, ..TinyModel::qwen3(TensorType::Q4_0) };
    let file = ModelFile::from_bytes("tiny", model.gguf());
    let options = LoadOptions { no_pin: true, stats: true, ..options };
    Engine::load(&file, &options, &mut |_| {}).unwrap()
}

/// Takes `steps` steps of `tokens` tokens each.
fn take(engine: &mut Engine, steps: usize, tokens: usize) {
    let sequence = engine.new_sequence().unwrap();
    for _ in 0..steps {
        let tokens = &vec![7; tokens];
        engine.step(&[BatchEntry { sequence, tokens, outputs: Outputs::Last }]).unwrap();
    }
    engine.free(sequence).unwrap();
}

#[test]
fn measured_waits_are_the_compiled_ones() {
    let cases = [
        (Numa::TensorParallel, 1, 2),
        (Numa::TensorParallel, 2, 3),
        (Numa::TensorParallel, 3, 5),
        (Numa::TensorParallel, 4, 4),
        (Numa::Pipeline, 3, 4),
        (Numa::Mirror, 2, 3),
        (Numa::Interleave, 2, 2),
        (Numa::Off, 2, 2),
    ];
    for (numa, nodes, threads) in cases {
        let mut engine = load(LoadOptions {
            numa,
            nodes: Some(nodes),
            threads: Some(threads),
            ..LoadOptions::default()
        });
        // Decoding, a prompt in shared form, and one that is long enough for reduce-scatter and for
        // several parts in a pipeline.
        for (steps, tokens) in [(5, 1), (1, 70), (1, 300)] {
            engine.reset_activity();
            take(&mut engine, steps, tokens);
            let activity = engine.activity();
            assert_eq!(activity.counts.steps, steps as u64);
            assert_eq!(activity.counts.tokens, (steps * tokens) as u64);
            assert!(
                activity.waits_as_compiled(),
                "{numa:?}, {nodes} nodes, {tokens} tokens: {activity:?}"
            );
        }
    }
}

#[test]
fn a_decoded_token_costs_five_waits_a_layer_two_of_them_global() {
    let per_token = |sync| {
        let options = LoadOptions { nodes: Some(2), threads: Some(2), sync, ..Default::default() };
        let mut engine = load(options);
        engine.reset_activity();
        take(&mut engine, 1, 1);
        let book = engine.activity().waits[0];
        (book.local, book.global)
    };
    // Three layers; the embedding and the head add what is not the layers'.
    let (local, global) = per_token(Sync::Derived);
    assert!((3 * 3..3 * 3 + 3).contains(&local), "{local} local waits");
    assert!((3 * 2..3 * 2 + 3).contains(&global), "{global} global waits");
    // Sync A: the same waits, all global.
    let (local_a, global_a) = per_token(Sync::Global);
    assert_eq!((local_a, global_a), (0, local + global));
}

#[test]
fn rows_of_the_embedding_are_in_the_book() {
    let options = LoadOptions { nodes: Some(2), threads: Some(2), ..Default::default() };
    let mut engine = load(options);
    // A vocabulary of 300 is cut at 144 or 160: token 7 is node 0's, 290 node 1's.
    let mut exchanged = |token: u32| {
        engine.reset_activity();
        let sequence = engine.new_sequence().unwrap();
        let batch = BatchEntry { sequence, tokens: &[token], outputs: Outputs::None };
        engine.step(&[batch]).unwrap();
        engine.free(sequence).unwrap();
        engine.activity().counts.places.iter().map(|p| p.exchanged).collect::<Vec<_>>()
    };
    let (low, high) = (exchanged(7), exchanged(290));
    let row = 256 * 4;
    assert_eq!((low[1] - high[1], high[0] - low[0]), (row, row), "{low:?} {high:?}");
}
