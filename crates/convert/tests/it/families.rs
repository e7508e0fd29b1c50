//! Names, forms and metadata.

use crate::folder::{Folder, HIDDEN, made, written};
use arclight_convert::{Float, Options};
use gguf::{Gguf, TensorType};
use serde_json::json;

#[test]
fn a_folder_becomes_a_file_that_the_page_of_its_family_takes() {
    let mut folder = Folder::llama();
    folder.set("head_dim", 4);
    let conversion = folder.open().unwrap();
    let file = written(&conversion);
    let gguf = Gguf::parse(&file).unwrap();
    models::build(&gguf, 1).unwrap();
    let m = gguf.metadata();
    assert_eq!(m.str("general.architecture").unwrap(), "llama");
    assert_eq!(m.u32("llama.attention.head_count_kv").unwrap(), 2);
    assert_eq!(m.u32("llama.rope.dimension_count").unwrap(), 4);
    assert_eq!(m.f32("llama.attention.layer_norm_rms_epsilon").unwrap(), 1e-5);
    // The folder has neither half, so the file is F16, as it says.
    assert_eq!(m.u32("general.file_type").unwrap(), 1);
    let ty = |name: &str| gguf.tensor(name).unwrap().ty;
    assert_eq!(ty("blk.0.attn_q.weight"), TensorType::F16);
    assert_eq!(ty("blk.0.attn_norm.weight"), TensorType::F32);
    assert_eq!(
        made(&conversion, "blk.1.attn_v.weight"),
        folder.values("model.layers.1.self_attn.v_proj.weight")
    );
}

#[test]
fn rows_of_queries_and_keys_are_in_the_order_of_their_pairs() {
    let folder = Folder::llama();
    let conversion = folder.open().unwrap();
    for (ours, theirs, heads) in [("attn_q", "q_proj", 4), ("attn_k", "k_proj", 2)] {
        let stored = folder.values(&format!("model.layers.0.self_attn.{theirs}.weight"));
        let got = made(&conversion, &format!("blk.0.{ours}.weight"));
        for (row, line) in got.chunks(HIDDEN).enumerate() {
            let (head, i) = (row / 4, row % 4);
            let from = head * 4 + [0, 2, 1, 3][i];
            assert!(head < heads);
            assert_eq!(line, &stored[from * HIDDEN..][..HIDDEN], "{ours} {row}");
        }
    }
}

#[test]
fn every_type_of_floats_is_as_asked() {
    let folder = Folder::llama();
    for ty in [TensorType::F32, TensorType::F16, TensorType::BF16] {
        let options = Options { float: Float::Of(ty), pre: None };
        let file = written(&folder.open_with(&options).unwrap());
        let gguf = Gguf::parse(&file).unwrap();
        assert_eq!(gguf.tensor("output.weight").unwrap().ty, ty);
        assert_eq!(gguf.metadata().u32("general.file_type").unwrap(), ty.info().file.0);
    }
}

#[test]
fn llama_3_stretches_by_a_tensor() {
    let mut folder = Folder::llama();
    folder.set(
        "rope_scaling",
        json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 32}),
    );
    let conversion = folder.open().unwrap();
    let divisors = made(&conversion, "rope_freqs.weight");
    assert_eq!(divisors.len(), 2);
    assert!(divisors[0] >= 1.0 && divisors[1] == 8.0, "{divisors:?}");
}

#[test]
fn experts_are_stacked_in_the_order_of_their_numbers() {
    let mut folder = Folder::llama();
    folder
        .set("architectures", json!(["MixtralForCausalLM"]))
        .set("num_local_experts", 11)
        .set("num_experts_per_tok", 2);
    for layer in 0..2 {
        for part in ["gate", "up", "down"] {
            folder.without(&format!("model.layers.{layer}.mlp.{part}_proj.weight"));
        }
        folder.add(&format!("model.layers.{layer}.block_sparse_moe.gate.weight"), &[11, HIDDEN]);
        // Not in order, as text sorts them.
        for expert in [0, 1, 10, 2, 3, 4, 5, 6, 7, 8, 9] {
            let stem = format!("model.layers.{layer}.block_sparse_moe.experts.{expert}");
            folder.add(&format!("{stem}.w1.weight"), &[32, HIDDEN]);
            folder.add(&format!("{stem}.w2.weight"), &[HIDDEN, 32]);
            folder.add(&format!("{stem}.w3.weight"), &[32, HIDDEN]);
        }
    }
    let conversion = folder.open().unwrap();
    let gates = made(&conversion, "blk.1.ffn_gate_exps.weight");
    for expert in [0, 2, 10] {
        let stored =
            folder.values(&format!("model.layers.1.block_sparse_moe.experts.{expert}.w1.weight"));
        assert_eq!(gates[expert * 32 * HIDDEN..][..32 * HIDDEN], stored, "{expert}");
    }
    models::build(&Gguf::parse(&written(&conversion)).unwrap(), 1).unwrap();
    folder.without("model.layers.1.block_sparse_moe.experts.7.w2.weight");
    let fault = folder.fault();
    assert!(fault.contains("expert 7") && fault.contains("blk.1.ffn_down_exps.weight"), "{fault}");
}

#[test]
fn a_card_and_recommended_sampling_are_taken_over() {
    let folder = Folder::llama();
    folder.file("README.md", "---\nlicense: mit\nlanguage:\n- en\n- no\n---\n# Text\n");
    folder.file("generation_config.json", r#"{"temperature": 0.6, "top_k": 20}"#);
    let file = written(&folder.open().unwrap());
    let gguf = Gguf::parse(&file).unwrap();
    let m = gguf.metadata();
    assert_eq!(m.str("general.license").unwrap(), "mit");
    assert_eq!(m.strings("general.languages").unwrap().collect::<Vec<_>>(), [b"en", b"no"]);
    assert_eq!(m.f32("general.sampling.temp").unwrap(), 0.6);
    assert_eq!(m.i64("general.sampling.top_k").unwrap(), 20);
    // Two vocabularies of 4224, two layers of 2336, a norm.
    assert_eq!(m.str("general.size_label").unwrap(), "13K");
}

#[test]
fn what_configurations_leave_out_is_as_the_models_code_has_it() {
    let mut folder = Folder::llama();
    folder.config.as_object_mut().unwrap().remove("rope_theta");
    let file = written(&folder.open().unwrap());
    let gguf = Gguf::parse(&file).unwrap();
    let m = gguf.metadata();
    // Sizes of heads follow from the others, and the base of frequencies is Llama's first.
    assert_eq!(m.u32("llama.attention.key_length").unwrap(), 4);
    assert_eq!(m.f32("llama.rope.freq_base").unwrap(), 10000.0);
}
