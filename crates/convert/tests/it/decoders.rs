//! Decoders whose tensors take another form, or say what files have as metadata.

use crate::folder::{Folder, HIDDEN, made, written};
use gguf::Gguf;
use serde_json::json;

/// A Llama under another class.
fn of(class: &str) -> Folder {
    let mut folder = Folder::llama();
    folder.set("architectures", json!([class]));
    folder
}

#[test]
fn a_bias_of_zeros_is_dropped_and_another_refused() {
    let mut folder = of("Cohere2ForCausalLM");
    folder.set("logit_scale", 0.25).set("sliding_window", 8).set("tie_word_embeddings", true);
    for layer in 0..2 {
        folder.without(&format!("model.layers.{layer}.post_attention_layernorm.weight"));
    }
    folder.put("model.layers.0.self_attn.q_proj.bias", "F32", &[16], vec![0; 64]);
    let file = written(&folder.open().unwrap());
    let gguf = Gguf::parse(&file).unwrap();
    models::build(&gguf, 1).unwrap();
    assert!(gguf.tensor("blk.0.attn_q.bias").is_none() && gguf.tensor("output.weight").is_none());
    folder.add("model.layers.0.self_attn.q_proj.bias", &[16]);
    let fault = folder.fault();
    assert!(fault.contains("self_attn.q_proj.bias` is not zero"), "{fault}");
}

#[test]
fn windows_are_said_where_they_are_not_those_that_are_taken() {
    let mut folder = of("Cohere2ForCausalLM");
    folder.set("logit_scale", 0.25).set("sliding_window", 8);
    let key = "cohere2.attention.sliding_window_pattern";
    let said = |folder: &Folder| folder.open().unwrap().metadata().iter().any(|(k, _)| k == key);
    folder.set("layer_types", json!(["sliding_attention", "sliding_attention"]));
    assert!(!said(&folder));
    folder.set("layer_types", json!(["full_attention", "sliding_attention"]));
    assert!(said(&folder));
}

fn bitnet() -> Folder {
    let mut folder = of("BitNetForCausalLM");
    folder.set("hidden_act", "relu2").set("tie_word_embeddings", true);
    folder.set("rms_norm_eps", 1e-5);
    for layer in 0..2 {
        folder.add(&format!("model.layers.{layer}.self_attn.attn_sub_norm.weight"), &[HIDDEN]);
        folder.add(&format!("model.layers.{layer}.mlp.ffn_sub_norm.weight"), &[32]);
    }
    folder
}

#[test]
fn weights_become_three_numbers() {
    let folder = bitnet();
    let conversion = folder.open().unwrap();
    models::build(&Gguf::parse(&written(&conversion)).unwrap(), 1).unwrap();
    let stored = folder.values("model.layers.1.mlp.up_proj.weight");
    let mean = stored.iter().map(|x| x.abs()).sum::<f32>() / stored.len() as f32;
    for (made, x) in made(&conversion, "blk.1.ffn_up.weight").iter().zip(&stored) {
        let want = match x / mean {
            x if x.abs() <= 0.5 => 0.0,
            x => mean.copysign(x),
        };
        assert!((made - want).abs() < 1e-5 * mean, "{x}: {made} {want}");
    }
    // Norms and the embedding stay.
    assert_eq!(made(&conversion, "token_embd.weight"), folder.values("model.embed_tokens.weight"));
}

#[test]
fn packed_weights_are_four_rows_in_one() {
    let mut folder = bitnet();
    folder.set(
        "quantization_config",
        json!({"quant_method": "bitnet", "linear_class": "autobitlinear"}),
    );
    let bytes: Vec<u8> = (0..4 * HIDDEN).map(|i| [0x00, 0x55, 0xAA, 0x24][i % 4]).collect();
    let (name, half) = ("model.layers.0.self_attn.q_proj.weight", half(1.5));
    folder.put(name, "U8", &[4, HIDDEN], bytes);
    folder.put(&format!("{name}_scale"), "BF16", &[1], half.clone());
    let conversion = folder.open().unwrap();
    let values = made(&conversion, "blk.0.attn_q.weight");
    assert_eq!(values.len(), 16 * HIDDEN);
    // Column 3 has the bits 00 01 10 00 from the lowest on: the row, and those 4, 8 and 12 below it.
    let column = |row: usize| values[row * HIDDEN + 3];
    assert_eq!([column(0), column(4), column(8), column(12)], [-1.5, 0.0, 1.5, -1.5]);
    assert_eq!(values[1], 0.0);
    // The older layers are divided by it.
    folder.set("quantization_config", json!({"quant_method": "bitnet"}));
    assert_eq!(made(&folder.open().unwrap(), "blk.0.attn_q.weight")[0], -1.0 / 1.5);
    folder.put(&format!("{name}_scale"), "BF16", &[2], [&half[..], &half[..]].concat());
    assert!(folder.fault().contains("should be one number"), "{}", folder.fault());
}

/// A number in bfloat16.
fn half(x: f32) -> Vec<u8> {
    x.to_le_bytes()[2..].to_vec()
}

#[test]
fn functions_of_layers_become_metadata() {
    let mut folder = of("ApertusForCausalLM");
    for layer in 0..2 {
        let stem = format!("model.layers.{layer}");
        for (old, new) in [
            ("input_layernorm", "attention_layernorm"),
            ("post_attention_layernorm", "feedforward_layernorm"),
        ] {
            folder.without(&format!("{stem}.{old}.weight"));
            folder.add(&format!("{stem}.{new}.weight"), &[HIDDEN]);
        }
        folder.without(&format!("{stem}.mlp.gate_proj.weight"));
        folder.add(&format!("{stem}.self_attn.q_norm.weight"), &[4]);
        folder.add(&format!("{stem}.self_attn.k_norm.weight"), &[4]);
        for (n, name) in ["alpha_p", "alpha_n", "beta", "eps"].into_iter().enumerate() {
            let value = (layer + 2 * n) as f32 / 8.0;
            let name = format!("{stem}.mlp.act_fn.{name}");
            folder.put(&name, "F32", &[1], value.to_le_bytes().to_vec());
        }
    }
    let file = written(&folder.open().unwrap());
    let gguf = Gguf::parse(&file).unwrap();
    models::build(&gguf, 1).unwrap();
    assert_eq!(gguf.metadata().f32s("xielu.alpha_n").unwrap(), [0.25, 0.375]);
    folder.without("model.layers.1.mlp.act_fn.beta");
    let fault = folder.fault();
    assert!(fault.contains("model.layers.1.mlp.act_fn.beta"), "{fault}");
}
