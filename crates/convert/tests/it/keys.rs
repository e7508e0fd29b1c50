//! No key of a configuration is ignored, and what it says is in the file.

use crate::folder::{Folder, HIDDEN, VOCAB, made, written};
use gguf::{Gguf, Value};
use serde_json::{Value as Json, json};

/// A folder of a class with its configuration and little else: metadata need no more.
fn of(class: &str, embedding: &str, more: Json) -> Folder {
    let mut folder = Folder::llama();
    folder.tensors.clear();
    folder.add(&format!("{embedding}.weight"), &[VOCAB, HIDDEN]);
    folder.set("architectures", json!([class]));
    let config = folder.config.as_object_mut().unwrap();
    config.remove("rope_theta");
    config.remove("model_type");
    config.remove("num_key_value_heads");
    for (key, value) in more.as_object().unwrap() {
        folder.set(key, value.clone());
    }
    folder
}

fn llama(more: Json) -> Folder {
    of("LlamaForCausalLM", "model.embed_tokens", more)
}

/// Numbers of a file's metadata, by keys without the architecture; none where a key is not there.
fn numbers<const N: usize>(folder: &Folder, keys: [&str; N]) -> [Option<f64>; N] {
    let file = written(&folder.open().unwrap());
    let gguf = Gguf::parse(&file).unwrap();
    let m = gguf.metadata();
    let arch = m.str("general.architecture").unwrap();
    keys.map(|key| {
        let value = m.get(&format!("{arch}.{key}"))?;
        match value {
            Value::Bool(flag) => Some(f64::from(u8::from(*flag))),
            value => value.as_float().or(value.as_int().map(|n| n as f64)),
        }
    })
}

#[test]
fn a_key_that_nobody_reads_fails_by_its_name() {
    let fault = llama(json!({"partial_rotary_factor": 0.5})).fault();
    assert!(fault.contains("partial_rotary_factor is 0.5") && fault.contains("llama"), "{fault}");
    let inside = json!({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}});
    let fault = llama(inside).fault();
    assert!(fault.contains("rope_parameters.partial_rotary_factor is 0.5"), "{fault}");
    let fault = of("OlmoeForCausalLM", "model.embed_tokens", json!({"clip_qkv": 8.0})).fault();
    assert!(fault.contains("clip_qkv is 8.0, which no file of olmoe can say"), "{fault}");
    // A whole head is turned by its part of one, and null is no statement.
    for whole in [json!({"partial_rotary_factor": 1.0}), json!({"partial_rotary_factor": null})] {
        assert!(llama(whole).open().unwrap().notes().is_empty());
    }
}

#[test]
fn a_key_that_the_class_does_not_have_is_a_note() {
    let folder =
        llama(json!({"novel_key": 1, "another": "x", "my_dropout": 0.1, "use_cache": true}));
    let notes = folder.open().unwrap().notes().join("\n");
    assert!(notes.contains("LlamaForCausalLM does not have: novel_key, another"), "{notes}");
    assert!(!notes.contains("dropout") && !notes.contains("use_cache"), "{notes}");
}

#[test]
fn functions_are_compared_in_every_family() {
    for (class, embedding, key) in [
        ("LlamaForCausalLM", "model.embed_tokens", "hidden_act"),
        ("Qwen3ForCausalLM", "model.embed_tokens", "hidden_act"),
        ("FalconForCausalLM", "transformer.word_embeddings", "activation"),
        ("GPTNeoXForCausalLM", "gpt_neox.embed_in", "hidden_act"),
        ("NemotronHForCausalLM", "backbone.embeddings", "mlp_hidden_act"),
    ] {
        let fault = of(class, embedding, json!({key: "tanh"})).fault();
        assert!(fault.contains(&format!("{key} is \"tanh\"; files of")), "{class}: {fault}");
    }
}

#[test]
fn parts_of_heads_are_turned_by_any_name_and_form() {
    let keys = ["rope.dimension_count", "rope.freq_base"];
    for more in [
        json!({"rotary_pct": 0.5, "rotary_emb_base": 20000}),
        json!({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5, "rope_theta": 2e4}}),
    ] {
        let folder = of("GPTNeoXForCausalLM", "gpt_neox.embed_in", more);
        assert_eq!(numbers(&folder, keys), [Some(2.0), Some(2e4)]);
    }
    // A quarter where nothing is said, and no base where it is the usual one.
    let folder = of("GPTNeoXForCausalLM", "gpt_neox.embed_in", json!({"rope_theta": 10000}));
    assert_eq!(numbers(&folder, keys), [Some(1.0), None]);
    let folder = of("StableLmForCausalLM", "model.embed_tokens", json!({"rope_theta": 5e5}));
    assert_eq!(numbers(&folder, keys), [Some(1.0), Some(5e5)]);
}

#[test]
fn windows_are_written_or_refused() {
    let key = ["attention.sliding_window"];
    let mistral = |more| of("MistralForCausalLM", "model.embed_tokens", more);
    assert_eq!(numbers(&mistral(json!({"sliding_window": 16})), key), [Some(16.0)]);
    assert_eq!(numbers(&mistral(json!({"sliding_window": null})), key), [None]);
    // What the class has where the folder is silent.
    assert_eq!(numbers(&mistral(json!({})), key), [Some(4096.0)]);
    let qwen = |more| of("Qwen2ForCausalLM", "model.embed_tokens", more);
    let off = json!({"sliding_window": 16, "use_sliding_window": false, "num_key_value_heads": 2});
    assert_eq!(numbers(&qwen(off), key), [None]);
    let on = json!({"sliding_window": 16, "use_sliding_window": true, "max_window_layers": 1,
        "num_key_value_heads": 2});
    let fault = qwen(on).fault();
    assert!(fault.contains("sliding_window is 16, and no file of qwen2"), "{fault}");
    let fault = qwen(json!({"layer_types": ["full_attention", "sliding_attention"]})).fault();
    assert!(fault.contains("layer_types has \"sliding_attention\""), "{fault}");
}

#[test]
fn sigmoids_and_norms_of_experts_are_those_of_the_class() {
    let experts = |more: Json| {
        let mut all = json!({"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
            "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 4, "q_lora_rank": null,
            "kv_lora_rank": 8});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    let keys = ["expert_gating_func", "expert_weights_norm", "leading_dense_block_count"];
    let third = |more| of("DeepseekV3ForCausalLM", "model.embed_tokens", experts(more));
    assert_eq!(
        numbers(&third(json!({"first_k_dense_replace": 1})), keys),
        [Some(2.0), Some(1.0), Some(1.0)]
    );
    let softmax =
        json!({"first_k_dense_replace": 1, "scoring_func": "softmax", "norm_topk_prob": false});
    assert_eq!(numbers(&third(softmax), keys), [Some(1.0), None, Some(1.0)]);
    let lite = |more| of("Glm4MoeLiteForCausalLM", "model.embed_tokens", experts(more));
    let fault = lite(json!({"mlp_layer_types": ["sparse", "dense"]})).fault();
    assert!(fault.contains("mlp_layer_types has \"dense\" behind"), "{fault}");
    let fault = third(json!({"rope_interleave": false})).fault();
    assert!(fault.contains("rope_interleave is false"), "{fault}");
    let qwen = |norm: bool| {
        let more = json!({"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
            "norm_topk_prob": norm, "head_dim": 4, "num_key_value_heads": 2});
        of("Qwen3MoeForCausalLM", "model.embed_tokens", more)
    };
    let key = ["expert_weights_norm"];
    assert_eq!((numbers(&qwen(true), key), numbers(&qwen(false), key)), ([None], [Some(0.0)]));
}

#[test]
fn yarn_is_written_as_it_is_meant() {
    let yarn = |more: Json| {
        let mut rope =
            json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16});
        rope.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        of(
            "Qwen3ForCausalLM",
            "model.embed_tokens",
            json!({"rope_parameters": rope, "head_dim": 4, "num_key_value_heads": 2}),
        )
    };
    let keys = ["rope.scaling.factor", "rope.scaling.yarn_attn_factor"];
    // Readers derive the gain themselves.
    assert_eq!(numbers(&yarn(json!({})), keys), [Some(4.0), None]);
    let [_, gain] = numbers(&yarn(json!({"mscale": 1.0, "mscale_all_dim": 0.5})), keys);
    let want = (1.0 + 0.1 * 4_f64.ln()) / (1.0 + 0.05 * 4_f64.ln());
    assert!((gain.unwrap() - want).abs() < 1e-6, "{gain:?} {want}");
    let fault = yarn(json!({"truncate": false})).fault();
    assert!(fault.contains("truncate of YaRN is false"), "{fault}");
}

#[test]
fn divisors_are_written_in_every_family() {
    let more = json!({"head_dim": 4, "num_key_value_heads": 2, "rope_scaling": {"rope_type": "llama3",
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32}});
    let folder = of("Qwen3ForCausalLM", "model.embed_tokens", more);
    assert_eq!(made(&folder.open().unwrap(), "rope_freqs.weight")[1], 8.0);
}

#[test]
fn layers_without_rope_are_every_fourth() {
    let smol = |more| of("SmolLM3ForCausalLM", "model.embed_tokens", more);
    assert!(smol(json!({"no_rope_layers": [1, 1]})).open().is_ok());
    assert!(smol(json!({"no_rope_layers": [1, 0]})).fault().contains("no_rope_layers is other"));
    assert!(smol(json!({"no_rope_layer_interval": 2})).fault().contains("no_rope_layer_interval"));
}

#[test]
fn an_ernie_without_layers_is_an_error() {
    for end in [0, i64::MAX, i64::MIN] {
        let more = json!({"num_hidden_layers": 0, "moe_num_experts": 4, "moe_k": 2, "moe_layer_end_index": end});
        let folder = of("Ernie4_5_MoeForCausalLM", "model.embed_tokens", more);
        let fault = folder.open().unwrap_err().to_string();
        assert!(fault.contains("moe_layer_end_index"), "{fault}");
    }
}
