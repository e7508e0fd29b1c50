//! Every block type from file to logits.

use arclight_engine::{BatchEntry, Engine, LoadOptions, ModelFile, Outputs};
use gguf::{TYPES, TensorType};
use testkit::{TinyModel, requantize, with_scales};

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
fn matrices_are_multiplied_by_the_scales_beside_them() {
    let ty = TensorType::NVFP4;
    for model in [
        // Embedding and head in one, gate and up apart.
        TinyModel { arch: "llama", ..TinyModel::qwen3(ty) },
        TinyModel::llama(ty),
        // Q, K and V in one, gate and up in one.
        TinyModel::phi3(ty),
        // Biases behind the scales, of sums too; no gate.
        TinyModel::starcoder2(ty),
        // Norms of queries and keys by sums of squares of their products.
        TinyModel::olmo2(ty),
        TinyModel::qwen3moe(ty, 768),
        // One more expert for all tokens: as a bank of one, and dense.
        TinyModel::qwen2moe(ty, 192),
        TinyModel::dots1(ty, 192),
        TinyModel::gpt_oss(ty, 192),
        TinyModel::deepseek2(ty, 192),
    ] {
        let files = with_scales(&model.gguf()).unwrap();
        let want = logits(&mut load(files.within, 1));
        let got = logits(&mut load(files.beside.clone(), 1));
        let top = want.iter().fold(0f32, |top, w| top.max(w.abs()));
        let off = want.iter().zip(&got).map(|(w, g)| (w - g).abs()).fold(0f32, f32::max) / top;
        println!("{}: {off:e}", model.arch);
        assert!(off < TOLERANCE, "{}: off by {off:e}", model.arch);
        for nodes in [2, 3] {
            assert_eq!(logits(&mut load(files.beside.clone(), nodes)), got, "{nodes} nodes");
        }
    }
}

#[test]
fn the_report_says_what_unpacking_costs() {
    let model =
        TinyModel { second: Some(TensorType::Q6_K), ..TinyModel::llama(TensorType::IQ2_XXS) };
    let engine = load(model.gguf(), 1);
    let [unpacked] = engine.report().unpacked.as_slice() else { panic!("one type is unpacked") };
    assert_eq!(unpacked.ty, TensorType::IQ2_XXS);
    // Embedding, head, and five of seven matrices of two layers; rows of 256, and of 1024 for the
    // attention's output. The vocabulary of 300 rows is padded to 304.
    let rows = [300, 300, 1024, 512, 4 * 256, 1024, 1024, 1024, 512, 4 * 256, 1024, 1024];
    assert_eq!(unpacked.tensors, rows.len());
    assert_eq!(unpacked.file, rows.iter().sum::<usize>() * 66);
    assert_eq!(unpacked.memory, (rows.iter().sum::<usize>() + 8) * 276);
    assert!(load(TinyModel::llama(TensorType::Q2_K).gguf(), 1).report().unpacked.is_empty());
}
