//! Every block type from file to logits.

use arclight_engine::{BatchEntry, Engine, LoadOptions, ModelFile, Outputs};
use gguf::{TYPES, TensorType};
use testkit::{TinyModel, requantize};

/// Largest difference of logits from those of the same weights as F32, relative to the largest
/// logit. The activations are rounded to 8 bits, which alone makes 1.4 to 2.3 % in this model of
/// random weights, whatever the type. Weights at the wrong place make about 1.
const TOLERANCE: f32 = 0.04;

fn load(bytes: Vec<u8>, nodes: usize) -> Engine {
    let file = ModelFile::from_bytes("tiny", bytes);
    let options = LoadOptions {
        no_pin: true,
        nodes: Some(nodes),
        step_outputs: Some(16),
        ..Default::default()
    };
    Engine::load(&file, &options, &mut |_| {}).unwrap()
}

/// Logits of 9 tokens, one row after the other.
fn logits(engine: &mut Engine) -> Vec<f32> {
    let tokens: Vec<u32> = (0..9).map(|i| 31 * i + 5).collect();
    let sequence = engine.new_sequence().unwrap();
    let entry = BatchEntry { sequence, tokens: &tokens, outputs: Outputs::All };
    let logits = engine.step(&[entry]).unwrap();
    (0..9).flat_map(|i| logits.row(i).to_vec()).collect()
}

#[test]
fn every_type_gives_the_logits_of_its_weights() {
    for ty in TYPES.map(|info| info.ty) {
        let bytes = TinyModel::qwen3(ty).gguf();
        let exact = requantize(&bytes, TensorType::F32).unwrap().bytes;
        let want = logits(&mut load(exact, 1));
        let got = logits(&mut load(bytes.clone(), 1));
        let top = want.iter().fold(0f32, |top, w| top.max(w.abs()));
        let off = want.iter().zip(&got).map(|(w, g)| (w - g).abs()).fold(0f32, f32::max) / top;
        println!("{ty}: {off:e}");
        assert!(off < TOLERANCE, "{ty}: off by {off:e}");
        // Cut at blocks, and with the same bits.
        assert_eq!(logits(&mut load(bytes, 2)), got, "{ty} on two nodes");
    }
}

#[test]
fn the_report_says_what_unpacking_costs() {
    let model = TinyModel { second: Some(TensorType::Q6_K), ..TinyModel::llama(TensorType::TQ2_0) };
    let engine = load(model.gguf(), 1);
    let [unpacked] = engine.report().unpacked.as_slice() else { panic!("one type is unpacked") };
    assert_eq!(unpacked.ty, TensorType::TQ2_0);
    // Embedding, head, and five of seven matrices of two layers; rows of 256, and of 1024 for the
    // attention's output. The vocabulary of 300 rows is padded to 304.
    let rows = [300, 300, 1024, 512, 4 * 256, 1024, 1024, 1024, 512, 4 * 256, 1024, 1024];
    assert_eq!(unpacked.tensors, rows.len());
    assert_eq!(unpacked.file, rows.iter().sum::<usize>() * 66);
    assert_eq!(unpacked.memory, (rows.iter().sum::<usize>() + 8) * 276);
    assert!(load(TinyModel::llama(TensorType::Q2_K).gguf(), 1).report().unpacked.is_empty());
}
