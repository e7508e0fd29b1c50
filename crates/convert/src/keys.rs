//! No key of a configuration is ignored: each that has a value was read, or is on the list of keys that never matter,
//! or fails the conversion if its class knows it. What the class does not know is named in a note.

use crate::config::Config;
use crate::draft::Draft;
use crate::error::Error;
use serde_json::Value;

/// A key with the values that files of an architecture stand for. Of a folder without it, the value that its class takes
/// is compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fixed {
    key: &'static str,
    values: &'static [Is],
}

/// A value that a key may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Is {
    Text(&'static str),
    Flag(bool),
    Number(f64),
    /// A list without entries.
    Empty,
    /// Limits from zero or less to infinity, which the reader of JSON has made null.
    Unlimited,
}

/// A key that must have one of these values.
pub(crate) const fn is(key: &'static str, values: &'static [Is]) -> Fixed {
    Fixed { key, values }
}

/// A key that must be absent or null.
pub(crate) const fn none(key: &'static str) -> Fixed {
    is(key, &[])
}

/// A switch that must be off.
pub(crate) const fn off(key: &'static str) -> Fixed {
    is(key, &[Is::Flag(false)])
}

/// A switch that must be on.
pub(crate) const fn on(key: &'static str) -> Fixed {
    is(key, &[Is::Flag(true)])
}

/// SiLU by its names.
pub(crate) const SILU: &[Is] = &[Is::Text("silu"), Is::Text("swish")];
/// The approximation of GELU by the hyperbolic tangent.
pub(crate) const GELU_TANH: &[Is] =
    &[Is::Text("gelu_pytorch_tanh"), Is::Text("gelu_new"), Is::Text("gelu_fast")];
/// GELU by the error function.
pub(crate) const GELU: &[Is] = &[Is::Text("gelu"), Is::Text("gelu_python")];
pub(crate) const SQUARED_RELU: &[Is] = &[Is::Text("relu2")];

impl Is {
    fn matches(&self, value: &Value) -> bool {
        match *self {
            Is::Text(text) => value.as_str() == Some(text),
            Is::Flag(flag) => value.as_bool() == Some(flag),
            Is::Number(number) => value.as_f64() == Some(number),
            Is::Empty => value.as_array().is_some_and(Vec::is_empty),
            Is::Unlimited => matches!(value.as_array().map(|list| &list[..]),
                Some([low, high]) if low.as_f64().is_some_and(|low| low <= 0.0)
                    && high.as_f64().is_none_or(|high| high > 1e30)),
        }
    }
}

impl std::fmt::Display for Is {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Is::Text(text) => write!(f, "{text:?}"),
            Is::Flag(flag) => write!(f, "{flag}"),
            Is::Number(number) => write!(f, "{number}"),
            Is::Empty => f.write_str("[]"),
            Is::Unlimited => f.write_str("none"),
        }
    }
}

/// Refuses a configuration whose keys have other values than files stand for.
pub(crate) fn compare(config: &Config, fixed: &[Fixed], arch: &str) -> Result<(), Error> {
    for Fixed { key, values } in fixed {
        let stated = config.get(key).is_some();
        // A null is what the class has where it has nothing.
        let Some(value) = config.meant(key) else { continue };
        if values.iter().any(|known| known.matches(&value)) {
            continue;
        }
        let known: Vec<String> = values.iter().map(Is::to_string).collect();
        let said = match stated {
            true => format!("{key} is {value}"),
            false => format!("it does not say {key}, which then is {value}"),
        };
        let what = match &known[..] {
            [] => format!("{said}, which no file of {arch} can say"),
            known => format!("{said}; files of {arch} stand for {}", known.join(" or ")),
        };
        return Err(Error::config(what));
    }
    Ok(())
}

/// Keys that no number of a forward pass depends on, with the reason; `*` stands for any letters.
const NEVER: &[(&str, &str)] = &[
    (
        "names and versions",
        "architectures model_type _name_or_path name_or_path transformers_version auto_map *_version version \
         custom_pipelines license language model_name _commit_hash tokenizer_class processor_class unsloth_* \
         _unsloth_* quantization_config _pre_quantization_dtype compression_config",
    ),
    (
        "types of numbers, how it runs",
        "dtype torch_dtype *_attn_implementation* attn_implementation use_cache use_flash_attn* flash_attn* \
         use_cache_* gradient_checkpointing is_decoder pretraining_tp _flash_attn_2_enabled torchscript \
         chunk_size_feed_forward pruned_heads use_bfloat16 tf_legacy_loss attention_softmax_in_fp32 \
         scale_attention_softmax_in_fp32 softmax_in_fp32 fp32_* reorder_and_upcast_attn residual_in_fp32 \
         use_mamba_kernels mamba_ssm_cache_dtype mamba_chunk_size chunk_size router_dtype \
         deterministic_flash_attn reference_compile repad_logits_with_grad num_logits_to_keep slow_but_exact \
         fuse_* use_kernel* moe_shared_expert_overlap inference_* cache_implementation max_batch_size \
         tensor_parallel* ep_size device_map base_model_*_plan init_device low_precision_* memory_efficient_* \
         triton_* use_xformers apply_query_key_layer_scaling pad_vocab_size_multiple kv_cache_* onnx_* \
         openvino_*",
    ),
    (
        "training",
        "*dropout* *_pdrop *_dropout_prob drop_path_rate initializer_* init_* *_init_std *_loss_* *_loss \
         router_jitter_noise input_jitter_noise z_loss_* *_z_loss* *label_smoothing* problem_type \
         finetuning_task task_specific_params sparse_prediction sparse_pred_ignore_index time_step_min \
         time_step_max time_step_floor mamba_dt_min mamba_dt_max mamba_dt_init_floor rescale_prenorm_residual \
         rescale_layer emb_initializer* seq_aux ln_f_dropout hidden_dropout mask_time_* mask_feature_* \
         apply_spec_augment moe_router_bias_update_rate bias_update_rate router_bias_update* \
         expert_bias_update* finetuning_* altup_coef_clip embedding_grad_* freeze_* use_recompute \
         multi_token_pred_depth",
    ),
    (
        "outputs beside logits, and what texts are generated with",
        "output_* return_dict* is_encoder_decoder generation_config do_sample early_stopping num_beams \
         num_beam_groups diversity_penalty temperature top_k top_p typical_p repetition_penalty \
         length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids num_return_sequences \
         forced_*_token_id remove_invalid_values exponential_decay_length_penalty suppress_tokens \
         begin_suppress_tokens max_new_tokens min_length max_length prefix max_window_size interactive",
    ),
    // The vocabulary part reads what it needs; these are also there for code that files have no use for.
    (
        "ids of tokens, labels",
        "*_token_id *_token_ids *_token_index *_tokens_id tie_encoder_decoder id2label label2id num_labels \
         sep_token summary_* type_vocab_size vocab_size_per_layer_input boi_* eoi_* image_token video_token \
         multi_modal_*",
    ),
    // How many tensors there are shows whether there are biases, norms or a head, and no file is made that misses one.
    (
        "what the folder's tensors show",
        "attention_bias attention_qkv_bias attention_out_bias mlp_bias use_bias use_qkv_bias bias qkv_bias \
         add_bias_linear add_qkv_bias mamba_conv_bias mamba_proj_bias conv_bias use_conv_bias norm_bias \
         no_bias lm_head_bias classifier_bias decoder_bias use_qk_norm qk_layernorm tie_word_embeddings \
         tie_embedding use_expert_bias laurel_rank moe_router_enable_expert_bias num_ln_in_parallel_attn \
         mlp_fc1_bias mlp_fc2_bias qkv_proj_bias attn_bias use_embedding_layer_norm num_decoder_layers \
         num_mtp_layers num_nextn_predict_layers mtp_* enable_moe_block learned_pos_emb padded_vocab_size \
         vocab_size",
    ),
    // The longest context is not a number that changes results.
    (
        "lengths of contexts",
        "max_position_embeddings n_ctx n_positions seq_length max_sequence_length max_seq_len max_seq_length \
         model_max_length max_sequence_len seq_len max_trained_positions context_length max_model_len",
    ),
    // Encoders of images and sound have a conversion of their own, or none.
    (
        "other senses",
        "text_config llm_config language_config lm_config lfm vision_config vision_* audio_config audio_* \
         image_* video_* projector_* projectors_bias multimodal_* mm_* spatial_merge_size pixel_* \
         downsample_* scale_factor encoder_patch_size tile_size use_image_* do_image_splitting \
         min_image_tokens max_image_tokens min_tiles max_tiles max_pixels_* use_thumbnail max_num_patches \
         perceiver_config qformer_* speech_* sound_* talker_config thinker_config is_multimodal",
    ),
    // What `transformers` derives when it reads a folder, and writes again.
    ("derived from other keys", "_* qk_head_dim dense_act_fn is_gated_act scale_decoder_outputs"),
];

/// Whether no number of a forward pass depends on a key.
pub(crate) fn never_matters(key: &str) -> bool {
    NEVER.iter().flat_map(|(_, keys)| keys.split(' ')).any(|pattern| matches(pattern, key))
}

/// Whether a key is of a pattern, in which `*` stands for any letters, or none.
fn matches(pattern: &str, key: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == key,
        Some((start, rest)) => key.strip_prefix(start).is_some_and(|key| {
            let ends = key.char_indices().map(|(at, _)| at).chain([key.len()]);
            ends.into_iter().any(|at| matches(rest, &key[at..]))
        }),
    }
}

/// Refuses a configuration with a key that its class knows and that nobody has read, and names those that the class
/// does not know.
pub(crate) fn check(draft: &Draft<'_>, notes: &mut Vec<String>) -> Result<(), Error> {
    let config = draft.config;
    let refused = |key: &str, value: &Value| {
        let what = "and the conversion of this class does not take it into account";
        Err(Error::config(format!("{key} is {}, {what} ({})", shown(value), draft.arch)))
    };
    let told = draft.has(&format!("{}.rope.scaling.type", draft.arch));
    if draft.rope.kind() == "dynamic" && !told {
        let what =
            "it changes results beyond max_position_embeddings alone, and files cannot say it";
        notes.push(format!("config.json: rope_type is \"dynamic\": {what}"));
    }
    // What a class without such positions does not know is no statement.
    let rotates = config.class().is_none_or(|class| class.has("rope_scaling"));
    // A part of one is the whole head.
    let whole = |key: &str, value: &Value| {
        key.ends_with("partial_rotary_factor") && value.as_f64() == Some(1.0)
    };
    let inside = draft.rope.unread();
    let inside = inside.iter().find(|(key, value)| !whole(key, value));
    if let Some((key, value)) = inside.filter(|_| rotates) {
        return refused(key, value);
    }
    let mut unknown = Vec::new();
    for (key, value) in config.unread().filter(|(key, _)| !never_matters(key)) {
        match config.class() {
            _ if whole(key, value) => {}
            Some(class) if !class.has(key) => unknown.push(key),
            _ => return refused(key, value),
        }
    }
    if !unknown.is_empty() {
        let class = config.architectures().first().copied().unwrap_or_default().to_owned();
        notes.push(format!(
            "config.json has keys that {class} does not have: {}",
            unknown.join(", ")
        ));
    }
    Ok(())
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn patterns_match_as_they_read() {
        assert!(matches("*dropout*", "attention_dropout") && matches("*dropout*", "dropout"));
        assert!(matches("base_model_*_plan", "base_model_tp_plan"));
        assert!(!matches("*_pdrop", "pdrop_") && !matches("bias", "biases"));
        assert!(never_matters("router_aux_loss_coef") && !never_matters("hidden_act"));
    }

    #[test]
    fn values_are_compared_with_what_the_class_takes() {
        let compared = |config: Value| {
            let config = Config::new(config).unwrap();
            compare(&config, &[is("hidden_act", SILU), off("alibi")], "llama")
                .map_err(|e| e.to_string())
        };
        let llama = json!(["LlamaForCausalLM"]);
        assert_eq!(compared(json!({"architectures": llama})), Ok(()));
        assert_eq!(compared(json!({"architectures": llama, "hidden_act": "swish"})), Ok(()));
        let fault = compared(json!({"architectures": llama, "hidden_act": "gelu"})).unwrap_err();
        assert!(
            fault.contains("hidden_act is \"gelu\"; files of llama stand for \"silu\" or"),
            "{fault}"
        );
        // What BERT takes where its folders are silent.
        let fault = compared(json!({"architectures": ["BertModel"]})).unwrap_err();
        assert!(fault.contains("does not say hidden_act, which then is \"gelu\""), "{fault}");
        assert!(compared(json!({"hidden_act": null, "alibi": true})).is_err());
    }
}
