//! Configurations of all classes with values that they do not expect, beside tensors of names that are known and of any
//! shape: no panic.
#![no_main]

mod common;

use arclight_convert::classes;
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value, json};
use std::fs;

/// Keys of configurations, of which each input changes some.
const KEYS: [&str; 52] = [
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps", "layer_norm_eps", "rope_theta",
    "rope_scaling", "rope_parameters", "layer_types", "sliding_window", "num_experts", "num_local_experts",
    "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "first_k_dense_replace", "n_shared_experts",
    "kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "logit_scale", "n_embd",
    "n_inner", "n_head", "n_layer", "n_positions", "pad_token_id", "type_vocab_size", "local_attention",
    "global_attn_every_n_layers", "moe_every_n_layers", "activation_function", "lora_adaptations", "id2label",
    "multi_query_group_num", "seq_length", "n_shared_head", "tie_word_embeddings", "quantization_config", "scale_emb",
    "scale_depth", "dim_model_base", "text_config", "partial_rotary_factor", "rotary_pct",
];
/// Names of tensors, without what they begin with.
const NAMES: [&str; 40] = [
    "embed_tokens.weight", "norm.weight", "lm_head.weight", "layers.0.self_attn.q_proj.weight",
    "layers.0.self_attn.k_proj.weight", "layers.0.self_attn.v_proj.weight", "layers.0.self_attn.qkv_proj.weight",
    "layers.0.self_attn.o_proj.weight", "layers.0.self_attn.W_pack.weight", "layers.0.attention.wqkv.weight",
    "layers.0.attention.query_key_value.weight", "layers.0.mlp.gate_up_proj.weight", "layers.0.mlp.down_proj.weight",
    "layers.0.mlp.experts.gate_up_proj", "layers.0.mlp.experts.0.up_proj.weight", "layers.0.mlp.experts.mlp.w1",
    "layers.0.mlp.experts.mlp.w2", "layers.0.mlp.act_fn.alpha_n", "layers.0.self_attn.kv_b_proj.weight",
    "layers.0.attn.Wqkv.weight", "layers.0.attn.c_attn.weight", "layers.0.self_attention.query_key_value.weight",
    "embeddings.position_embeddings.weight", "embeddings.word_embeddings.weight", "encoder.layers.0.mlp.fc1.weight",
    "encoder.layer.0.attention.self.query.weight", "layers.0.mixer.in_proj.weight", "layers.0.mixer.conv1d.weight",
    "layers.0.mixer.A_log", "layers.0.linear_attn.in_proj_qkvz.weight", "layers.0.linear_attn.conv1d.weight",
    "layers.0.block_sparse_moe.input_linear.weight", "layers.0.feed_forward.experts.gate_up_proj",
    "layers.0.feed_forward.experts.down_proj", "layers.0.input_layernorm.weight", "layers.0.input_layernorm.bias",
    "layers.0.self_attn.q_proj.weight_scale", "layers.0.self_attn.q_proj.qweight", "layers.0.self_attn.q_proj.scales",
    "embed_tokens_per_layer.weight",
];
const BEFORE: [&str; 6] = ["model.", "", "transformer.", "model.layers.", "roberta.", "transformer.encoder."];
const DTYPES: [(&str, usize); 5] = [("F32", 4), ("BF16", 2), ("F16", 2), ("U8", 1), ("F8_E4M3", 1)];

fn value(kind: u8, number: u8) -> Value {
    let small = u64::from(number);
    match kind % 14 {
        0 => json!(small),
        1 => json!(0),
        2 => json!(1),
        3 => json!(u64::MAX),
        4 => json!(-1),
        5 => json!(1e300),
        6 => Value::Null,
        7 => json!("text"),
        8 => json!([small, 0, small]),
        9 => json!({"rope_type": "llama3", "factor": small, "type": "yarn"}),
        10 => json!({"quant_method": "bitnet", "linear_class": "autobitlinear"}),
        11 => json!({"full_attention": {"rope_theta": small}, "sliding_attention": null}),
        12 => json!(["sliding_attention", "full_attention", "conv", "mamba"]),
        _ => json!(number % 2 == 0),
    }
}

type Tensor = (u8, u8, u8, Vec<u8>);

fuzz_target!(|input: (u16, Vec<(u8, u8, u8)>, Vec<Tensor>)| {
    let (class, changes, tensors) = input;
    let folder = common::folder();
    let classes: Vec<&str> = classes().map(|(class, _)| class).collect();
    let mut config = common::config(classes[usize::from(class) % classes.len()]);
    for (key, kind, number) in changes.into_iter().take(12) {
        config[KEYS[usize::from(key) % KEYS.len()]] = value(kind, number);
    }
    let (mut head, mut bytes) = (Map::new(), 0);
    for (before, name, dtype, shape) in tensors.into_iter().take(12) {
        let name = format!(
            "{}{}",
            BEFORE[usize::from(before) % BEFORE.len()],
            NAMES[usize::from(name) % NAMES.len()]
        );
        let shape: Vec<usize> = shape.into_iter().take(4).map(|d| usize::from(d) % 33).collect();
        let (dtype, size) = DTYPES[usize::from(dtype) % DTYPES.len()];
        let end = bytes + size * shape.iter().product::<usize>();
        let known = head.insert(
            name,
            json!({"dtype": dtype, "shape": shape, "data_offsets": [bytes, end]}),
        );
        if known.is_some() {
            return;
        }
        bytes = end;
    }
    if bytes > 1 << 20 {
        return;
    }
    let head = serde_json::to_vec(&head).unwrap();
    let mut file = (head.len() as u64).to_le_bytes().to_vec();
    file.extend(head);
    file.resize(file.len() + bytes, 0x3C);
    fs::write(folder.join("config.json"), serde_json::to_vec(&config).unwrap()).unwrap();
    fs::write(folder.join("model.safetensors"), file).unwrap();
    let vocabulary = br#"{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}}"#;
    fs::write(folder.join("tokenizer.json"), vocabulary).unwrap();
    common::open(&folder);
});
