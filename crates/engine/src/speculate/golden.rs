//! Layers that predict further tokens against `transformers`: `tests/golden/README.md`.

use crate::engine::{BatchEntry, Engine, Prediction};
use crate::file::ModelFile;
use crate::options::LoadOptions;
use crate::sequence::SeqId;
use graph::{KvType, Outputs, Recalled};
use serde_json::Value;
use testkit::repository;

const MODELS: [&str; 4] = ["qwen35_mtp", "qwen3next_mtp", "glm4moe_mtp", "deepseek_v3_mtp"];

/// Relative to the largest logit, with keys and values in f32: as for the models' own logits
/// (`engine/tests/golden.rs`), whose last hidden states these are made of.
const TOLERANCE: f32 = 1e-4;

fn load(model: &str, nodes: usize) -> Engine {
    let file = ModelFile::from_bytes(model, testkit::golden(model));
    let options = LoadOptions {
        nodes: Some(nodes),
        no_pin: true,
        kv: KvType::F32.into(),
        step_outputs: Some(300),
        predicting: true,
        ..LoadOptions::default()
    };
    Engine::load(&file, &options, &mut |_| {}).unwrap()
}

/// What the layer says of a prompt that the model takes in chunks, as it does while a text goes on: `[tokens, vocab]`.
fn predicted(engine: &mut Engine, tokens: &[u32], chunk: usize) -> Vec<Vec<f32>> {
    let sequence = engine.new_sequence().unwrap();
    let mut rows = Vec::new();
    let mut take = |engine: &mut Engine, sequence: SeqId, at: usize, recalled: &[Recalled]| {
        engine.reserve_up_to(sequence, at + recalled.len()).unwrap();
        let tokens = &tokens[at..at + recalled.len()];
        let entry = Prediction { sequence, position: at, tokens, recalled, outputs: Outputs::All };
        let logits = engine.predict(&[entry]).unwrap();
        rows.extend((0..tokens.len()).map(|row| logits.row(row).to_vec()));
    };
    take(engine, sequence, 0, &[Recalled::Nothing]);
    for at in (0..tokens.len()).step_by(chunk) {
        let some = &tokens[at..tokens.len().min(at + chunk)];
        engine.step(&[BatchEntry { sequence, tokens: some, outputs: Outputs::None }]).unwrap();
        // The token behind the last is not known at the end.
        let known = some.len().min(tokens.len() - at - 1);
        let recalled: Vec<_> = (0..known).map(|row| Recalled::Step(row as u32)).collect();
        if known > 0 {
            take(engine, sequence, at + 1, &recalled);
        }
    }
    engine.free(sequence).unwrap();
    rows
}

#[test]
fn predictions_agree_with_transformers() {
    for model in MODELS {
        let path = repository(&format!("tests/golden/{model}/expected.json"));
        let expected: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let mut engine = load(model, 1);
        let mut two = load(model, 2);
        for prompt in expected["prompts"].as_array().unwrap() {
            let tokens: Vec<u32> = serde_json::from_value(prompt["tokens"].clone()).unwrap();
            let want: Vec<Vec<f32>> = serde_json::from_value(prompt["predicted"].clone()).unwrap();
            let got = predicted(&mut engine, &tokens, 512);
            for (got, want) in got[tokens.len() - want.len()..].iter().zip(&want) {
                let most = want.iter().fold(0f32, |most, x| most.max(x.abs()));
                let off = got.iter().zip(want).fold(0f32, |off, (a, b)| off.max((a - b).abs()));
                assert!(off <= TOLERANCE * most, "{model}, {}: {}", tokens.len(), off / most);
            }
            // The same bits, however it comes and wherever.
            for chunk in [1, 13] {
                assert!(predicted(&mut engine, &tokens, chunk) == got, "{model} by {chunk}");
            }
            assert!(predicted(&mut two, &tokens, 64) == got, "{model} on two nodes");
        }
    }
}
