//! What a family does not do is refused with the name of what asks for it.

use arclight_models as models;
use gguf::{Gguf, OwnedValue, TensorType, Writer};
use testkit::TinyModel;

/// The file of `model` with other metadata.
fn with(model: &TinyModel, keys: &[(&str, OwnedValue)]) -> Vec<u8> {
    let bytes = model.gguf();
    let gguf = Gguf::parse(&bytes).unwrap();
    let full: Vec<String> = keys.iter().map(|(k, _)| format!("{}.{k}", model.arch)).collect();
    let mut w = Writer::new();
    for (key, value) in gguf.metadata().iter().filter(|(k, _)| !full.iter().any(|f| f == k)) {
        w.kv(key, OwnedValue::from(value));
    }
    for (key, (_, value)) in full.iter().zip(keys) {
        w.kv(key.as_str(), value.clone());
    }
    for t in gguf.tensors() {
        w.tensor(t.name(), t.shape.dims(), t.ty, t.data);
    }
    let mut out = Vec::new();
    w.write_to(&mut out).unwrap();
    out
}

fn refusal(bytes: &[u8]) -> String {
    models::build(&Gguf::parse(bytes).unwrap(), 1).unwrap_err().to_string()
}

#[test]
fn every_family_builds_for_any_nodes() {
    for model in [
        TinyModel::llama(TensorType::F32),
        TinyModel::qwen2(TensorType::F32),
        TinyModel::qwen3(TensorType::F32),
        TinyModel::granite(TensorType::F32),
        TinyModel::smollm3(TensorType::F32),
        TinyModel::phi3(TensorType::F32),
        TinyModel::olmo2(TensorType::F32),
        TinyModel::starcoder2(TensorType::F32),
        TinyModel::glm4(TensorType::F32),
        TinyModel::gemma2(TensorType::F32),
        TinyModel::gemma3(TensorType::F32),
        TinyModel::gemma3n(TensorType::F32),
        TinyModel::gemma4(TensorType::F32),
        TinyModel::qwen3moe(TensorType::F32, 48),
        TinyModel::qwen2moe(TensorType::F32, 48),
        TinyModel::dots1(TensorType::F32, 48),
        TinyModel::gpt_oss(TensorType::F32, 48),
        TinyModel::deepseek2(TensorType::F32, 48),
        TinyModel::llama4(TensorType::F32, 48),
    ] {
        let bytes = model.gguf();
        for nodes in [1, 2, 3, 5] {
            models::build(&Gguf::parse(&bytes).unwrap(), nodes).unwrap();
        }
    }
}

#[test]
fn what_changes_results_is_refused_by_its_key() {
    let f32 = |v: f32| OwnedValue::from(v);
    for (key, value) in [
        ("expert_count", OwnedValue::from(8u32)),
        ("logit_scale", f32(2.0)),
        ("embedding_scale", f32(2.0)),
        ("residual_scale", f32(0.5)),
        ("attention.scale", f32(0.5)),
        ("attn_logit_softcapping", f32(50.0)),
        ("final_logit_softcapping", f32(30.0)),
        ("attention.causal", OwnedValue::from(false)),
        ("use_parallel_residual", OwnedValue::from(true)),
    ] {
        for model in [TinyModel::qwen3(TensorType::F32), TinyModel::qwen2(TensorType::F32)] {
            let said = refusal(&with(&model, &[(key, value.clone())]));
            assert!(said.contains(&format!("{}.{key} = ", model.arch)), "{said}");
        }
    }
}

#[test]
fn numbers_of_experts_that_mean_nothing_are_refused_by_name() {
    let model = TinyModel::qwen3moe(TensorType::F32, 48);
    let said = |key: &str, value: u32| refusal(&with(&model, &[(key, OwnedValue::from(value))]));
    let zero = "qwen3moe.expert_count = 0 is implausible: it must be at least one";
    assert_eq!(said("expert_count", 0), zero);
    let zero = "qwen3moe.expert_used_count = 0 is implausible: it must be at least one";
    assert_eq!(said("expert_used_count", 0), zero);
    let many = "expert_used_count is 13, but it must be from 1 to expert_count, and at most 32";
    assert_eq!(said("expert_used_count", 13), many);
    let other =
        "tensor blk.0.ffn_down_exps.weight is 3072 x 48, but the metadata implies 3584 x 48";
    assert_eq!(said("expert_count", 14), other);
    assert!(said("expert_gating_func", 9).contains("expert_gating_func = 9 is not supported"));
    let groups = |count: u32, used: u32| {
        let keys = [
            ("expert_group_count", OwnedValue::from(count)),
            ("expert_group_used_count", OwnedValue::from(used)),
        ];
        refusal(&with(&model, &keys))
    };
    assert!(groups(5, 2).starts_with("expert_group_count is 5, but it must be a divisor"));
    assert!(groups(4, 5).starts_with("expert_group_used_count is 5, but it must be at most"));
    assert!(groups(6, 1).starts_with("expert_group_used_count is 1, but it must be at most"));
}

#[test]
fn sizes_of_latents_that_mean_nothing_are_refused_by_name() {
    let model = TinyModel::deepseek2(TensorType::Q4_0, 64);
    let said = |key: &str, value: u32| refusal(&with(&model, &[(key, OwnedValue::from(value))]));
    let zero = "deepseek2.attention.kv_lora_rank = 0 is implausible: it must be at least one";
    assert_eq!(said("attention.kv_lora_rank", 0), zero);
    let odd = "attention.kv_lora_rank is 72, but it must be a multiple of 16";
    assert_eq!(said("attention.kv_lora_rank", 72), odd);
    assert!(said("attention.key_length_mla", 48).starts_with("tensor blk.0.attn_q_b.weight is"));
    let mut narrow = model.clone();
    narrow.ty = TensorType::F32;
    let bytes = with(&narrow, &[("attention.key_length_mla", OwnedValue::from(32u32))]);
    assert_eq!(
        refusal(&bytes),
        "deepseek2.attention.key_length = 32 is implausible: a head has elements with RoPE and others",
    );
    // Without its tensors.
    let bytes = model.gguf();
    let gguf = Gguf::parse(&bytes).unwrap();
    for missing in ["attn_k_b", "attn_kv_a_norm", "attn_q_a"] {
        let name = format!("blk.1.{missing}.weight");
        assert_eq!(
            refusal(&without(&gguf, &name)),
            format!("tensor {name} is missing from the model file")
        );
    }
}

#[test]
fn llama4_without_chunks_is_refused() {
    let model = TinyModel::llama4(TensorType::F32, 48);
    let said = refusal(&with(&model, &[("attention.sliding_window", OwnedValue::from(0u32))]));
    assert!(said.contains("llama4.attention.sliding_window = 0"), "{said}");
}

#[test]
fn missing_biases_of_experts_are_named() {
    let bytes = TinyModel::gpt_oss(TensorType::Q4_0, 64).gguf();
    let gguf = Gguf::parse(&bytes).unwrap();
    for missing in ["ffn_gate_inp.bias", "ffn_up_exps.bias", "attn_sinks.weight"] {
        let name = format!("blk.1.{missing}");
        assert_eq!(
            refusal(&without(&gguf, &name)),
            format!("tensor {name} is missing from the model file")
        );
    }
}

/// The same file without a tensor.
fn without(gguf: &Gguf<'_>, name: &str) -> Vec<u8> {
    let mut w = Writer::new();
    for (key, value) in gguf.metadata().iter() {
        w.kv(key, OwnedValue::from(value));
    }
    for t in gguf.tensors().iter().filter(|t| t.name() != name) {
        w.tensor(t.name(), t.shape.dims(), t.ty, t.data);
    }
    let mut out = Vec::new();
    w.write_to(&mut out).unwrap();
    out
}

#[test]
fn traits_that_are_absent_by_their_value_are_none() {
    let keys = [
        ("expert_count", OwnedValue::from(0u32)),
        ("logit_scale", OwnedValue::from(1.0f32)),
        ("attention.causal", OwnedValue::from(true)),
    ];
    let bytes = with(&TinyModel::llama(TensorType::F32), &keys);
    models::build(&Gguf::parse(&bytes).unwrap(), 1).unwrap();
}

#[test]
fn ways_to_stretch_rope_that_are_unknown_or_incomplete_are_refused_by_their_key() {
    let text = |s: &str| OwnedValue::from(s);
    let ty = "rope.scaling.type";
    let model = TinyModel::qwen2(TensorType::F32);
    let said = refusal(&with(&model, &[(ty, text("dynamic"))]));
    assert!(said.contains("qwen2.rope.scaling.type = dynamic"), "{said}");
    let said = refusal(&with(&model, &[(ty, text("longrope"))]));
    assert!(said.contains("rope_factors_long.weight"), "{said}");
    let said = refusal(&with(&model, &[(ty, text("yarn"))]));
    assert!(said.contains("qwen2.rope.scaling.factor"), "{said}");
    let zero = [(ty, text("linear")), ("rope.scaling.factor", OwnedValue::from(0.0f32))];
    let said = refusal(&with(&model, &zero));
    assert!(said.contains("qwen2.rope.scaling.factor = 0"), "{said}");
    let yarn = [
        (ty, text("yarn")),
        ("rope.scaling.factor", OwnedValue::from(4.0f32)),
        ("rope.scaling.yarn_log_multiplier", OwnedValue::from(0.1f32)),
    ];
    let said = refusal(&with(&model, &yarn));
    assert!(said.contains("qwen2.rope.scaling.yarn_log_multiplier"), "{said}");
}

#[test]
fn streams_and_shared_layers_that_mean_nothing_are_refused_by_their_key() {
    let infinite = vec![f32::INFINITY; 4];
    for (key, value, why) in [
        ("altup.num_inputs", OwnedValue::from(1u32), "at least two streams"),
        ("altup.active_idx", OwnedValue::from(4u32), "work on one of them"),
        ("activation_sparsity_scale", OwnedValue::from(vec![0.5f32; 3]), "for each layer"),
        ("activation_sparsity_scale", OwnedValue::from(infinite), "or minus infinity"),
        ("embedding_length_per_layer_input", OwnedValue::from(0u32), "at least one"),
        ("attention.shared_kv_layers", OwnedValue::from(3u32), "of each kind"),
    ] {
        let said = refusal(&with(&TinyModel::gemma3n(TensorType::F32), &[(key, value)]));
        assert!(said.contains(&format!("gemma3n.{key} = ")) && said.contains(why), "{said}");
    }
    for (key, value) in [
        ("altup.num_inputs", OwnedValue::from(4u32)),
        ("activation_sparsity_scale", OwnedValue::from(vec![0.5f32; 2])),
    ] {
        let said = refusal(&with(&TinyModel::qwen3(TensorType::F32), &[(key, value)]));
        assert!(said.contains(&format!("qwen3.{key} = ")), "{said}");
    }
}

#[test]
fn minicpm_does_not_guess_its_factors() {
    let model = TinyModel { arch: "minicpm", ..TinyModel::llama(TensorType::F32) };
    let said = refusal(&model.gguf());
    assert!(said.contains("minicpm.residual_scale"), "{said}");
    let keys = ["embedding_scale", "residual_scale", "logit_scale"];
    let bytes = with(&model, &keys.map(|k| (k, OwnedValue::from(0.5f32))));
    models::build(&Gguf::parse(&bytes).unwrap(), 1).unwrap();
    let zero = [("embedding_scale", 1f32), ("residual_scale", 1.0), ("logit_scale", 0.0)];
    let said = refusal(&with(&model, &zero.map(|(k, v)| (k, OwnedValue::from(v)))));
    assert!(said.contains("minicpm.logit_scale = 0"), "{said}");
}

#[test]
fn numbers_for_each_layer_must_be_the_same() {
    // As files of Granite 4 state them.
    let model = TinyModel::granite(TensorType::F32);
    let of = |heads: &[u32]| with(&model, &[("attention.head_count_kv", OwnedValue::from(heads))]);
    let bytes = of(&[4, 4]);
    let built = models::build(&Gguf::parse(&bytes).unwrap(), 1).unwrap();
    assert_eq!(built.hparams.kv_heads, 4);
    let said = refusal(&of(&[4, 0]));
    assert!(said.contains("granite.attention.head_count_kv"), "{said}");
}

#[test]
fn layers_with_a_window_are_those_that_the_file_names() {
    let key = "attention.sliding_window_pattern";
    let model = TinyModel { layers: 4, ..TinyModel::gemma2(TensorType::F32) };
    let windows = |keys: &[(&str, OwnedValue)]| {
        let bytes = with(&model, keys);
        let mut windows =
            models::build(&Gguf::parse(&bytes).unwrap(), 1).unwrap().graph.windows().to_vec();
        windows.sort();
        windows
    };
    assert_eq!(windows(&[]), [None, Some(100)], "every other layer");
    let list = |l: &[bool]| OwnedValue::from(l);
    assert_eq!(windows(&[(key, list(&[true; 4]))]), [Some(100)]);
    assert_eq!(windows(&[(key, list(&[false; 4]))]), [None]);
    assert_eq!(windows(&[(key, OwnedValue::from(1u32))]), [None], "no layer but the last of one");
    let said = refusal(&with(&model, &[(key, list(&[true; 3]))]));
    assert!(said.contains("gemma2.attention.sliding_window_pattern = 3"), "{said}");
    // Where nobody asks for it, it is refused, as a list too.
    let said = refusal(&with(&TinyModel::llama(TensorType::F32), &[(key, list(&[false, true]))]));
    assert!(said.contains("llama.attention.sliding_window_pattern = 1"), "{said}");
    let said = refusal(&with(&TinyModel::llama(TensorType::F32), &[(key, OwnedValue::from(2u32))]));
    assert!(said.contains("llama.attention.sliding_window_pattern"), "{said}");
}

#[test]
fn caps_are_above_zero_or_none() {
    let model = TinyModel::gemma2(TensorType::F32);
    for key in ["attn_logit_softcapping", "final_logit_softcapping"] {
        let said = refusal(&with(&model, &[(key, OwnedValue::from(-1f32))]));
        assert!(said.contains(&format!("gemma2.{key} = -1")), "{said}");
        let bytes = with(&model, &[(key, OwnedValue::from(0f32))]);
        models::build(&Gguf::parse(&bytes).unwrap(), 1).unwrap();
    }
    let said = refusal(&with(
        &TinyModel::gemma3(TensorType::F32),
        &[("attn_logit_softcapping", OwnedValue::from(50f32))],
    ));
    assert!(said.contains("gemma3.attn_logit_softcapping = 50"), "{said}");
}

#[test]
fn sections_of_rope_and_layers_that_predict_more_are_refused() {
    let sections = OwnedValue::from([8u32, 12, 12, 0].as_slice());
    let model = TinyModel::glm4(TensorType::F32);
    let said = refusal(&with(&model, &[("rope.dimension_sections", sections)]));
    assert!(said.contains("glm4.rope.dimension_sections = 8"), "{said}");
    let said = refusal(&with(&model, &[("nextn_predict_layers", OwnedValue::from(1u32))]));
    assert!(said.contains("glm4.nextn_predict_layers = 1"), "{said}");
    let none = OwnedValue::from([0u32; 4].as_slice());
    let bytes = with(&model, &[("rope.dimension_sections", none)]);
    models::build(&Gguf::parse(&bytes).unwrap(), 1).unwrap();
}

#[test]
fn windows_are_obeyed_or_refused_and_are_none_when_nothing_lies_behind_them() {
    for model in [TinyModel::llama(TensorType::F32), TinyModel::phi3(TensorType::F32)] {
        for (window, windows) in [(None, None), (Some(0), None), (Some(200), Some(200))] {
            let bytes = TinyModel { window, ..model.clone() }.gguf();
            let mut built = models::build(&Gguf::parse(&bytes).unwrap(), 1).unwrap();
            assert_eq!((built.hparams.context, built.hparams.window), (1024, windows));
            assert_eq!(built.graph.windows(), [windows], "{window:?}");
            built.graph.set_context(201);
            assert_eq!(built.graph.windows(), [windows], "{window:?}");
            built.graph.set_context(200);
            assert_eq!(built.graph.windows(), [None], "{window:?}");
        }
    }
    for model in [TinyModel::qwen2(TensorType::F32), TinyModel::smollm3(TensorType::F32)] {
        let arch = model.arch;
        let said = refusal(&TinyModel { window: Some(200), ..model }.gguf());
        assert!(said.contains(&format!("{arch}.attention.sliding_window = 200")), "{said}");
    }
}

#[test]
fn every_tensor_has_a_header_with_its_type_shape_and_operation() {
    let models = [
        TinyModel::qwen3(TensorType::Q4_0),
        TinyModel::starcoder2(TensorType::F32),
        TinyModel::olmo2(TensorType::F32),
        TinyModel::gemma3n(TensorType::F32),
        TinyModel::gemma4(TensorType::F32),
        TinyModel::gpt_oss(TensorType::F32, 48),
        TinyModel::deepseek2(TensorType::F32, 48),
        TinyModel::qwen3next(TensorType::F32, 48),
        TinyModel::nemotron_h(TensorType::F32),
        TinyModel::granitehybrid(TensorType::F32, 48),
        TinyModel::lfm2(TensorType::F32),
    ];
    for model in models {
        let bytes = model.gguf();
        let file = Gguf::parse(&bytes).unwrap();
        let graph = models::build(&file, 2).unwrap().graph;
        let headers = graph.headers();
        let of = |name: &str| headers.iter().position(|header| header.name == name);
        for spec in graph.tensors() {
            let Some(at) = of(&spec.name) else {
                // Files have keys and values of layers that attend to those of others, and norms of them.
                let unread = ["attn_k.weight", "attn_v.weight", "attn_k_norm.weight"];
                assert!(unread.iter().any(|end| spec.name.ends_with(end)), "{}", spec.name);
                continue;
            };
            let stored = (spec.rows * spec.experts.unwrap_or(1), spec.cols);
            let (rows, cols) = headers[at].shape;
            assert_eq!((rows, cols), (graph::Rows::Fixed(stored.0), stored.1), "{}", spec.name);
            assert_eq!(headers[at].element, graph::Element::Stored(spec.ty));
            assert_eq!(headers[at].bytes, spec.bytes(), "{}", spec.name);
        }
        let made: Vec<_> = headers.iter().filter_map(|header| header.operation).collect();
        let ops: Vec<_> = graph.ops().iter().map(|node| node.op.name()).collect();
        assert_eq!(made, ops);
        for (at, header) in headers.iter().enumerate() {
            // Definition order is an order in which everything can be computed.
            assert!(header.sources.iter().all(|name| of(name).is_some_and(|of| of < at)));
            assert_eq!(header.sources.is_empty(), header.operation.is_none_or(|op| op == "recall"));
            let (_, width) = header.shape;
            if header.placement == graph::Placement::Split && header.operation.is_some() {
                assert_eq!(header.widths.iter().sum::<usize>(), width, "{header}");
            }
        }
    }
}

#[test]
fn headers_say_which_dimension_nodes_share_and_what_each_has() {
    use graph::{Placement, SplitBy};
    let bytes = TinyModel::qwen3(TensorType::Q4_0).gguf();
    let file = Gguf::parse(&bytes).unwrap();
    for nodes in [1, 2] {
        let graph = models::build(&file, nodes).unwrap().graph;
        let headers = graph.headers();
        let of = |name: &str| headers.iter().find(|header| header.name == name).unwrap();
        let shared = |cut| if nodes > 1 { Some(cut) } else { None };
        for (name, cut) in [
            ("blk.0.attn_q.weight", shared(SplitBy::Rows)),
            ("blk.0.ffn_up.weight", shared(SplitBy::Rows)),
            ("blk.0.attn_output.weight", shared(SplitBy::Cols)),
            ("blk.0.ffn_down.weight", shared(SplitBy::Cols)),
            ("blk.0.attn_norm.weight", None),
        ] {
            let header = of(name);
            assert_eq!(header.cut, cut, "{name}");
            assert_eq!(header.placement == Placement::Split, cut.is_some(), "{name}");
            let line = header.to_string();
            let word = cut.map_or("replicated".to_owned(), |cut| cut.to_string());
            assert!(line.split_whitespace().any(|column| column == word), "{line}");
        }
        // Whole blocks of 18 bytes for 32 weights, packed as they are.
        let (q, down) = (of("blk.0.attn_q.weight"), of("blk.0.ffn_down.weight"));
        for weight in [q, down] {
            let (rows, cols) = weight.shape;
            let graph::Rows::Fixed(rows) = rows else { panic!("{weight}") };
            assert_eq!(weight.bytes, rows * cols / 32 * 18, "{weight}");
            assert_eq!(weight.allocated.iter().sum::<usize>(), weight.bytes, "{weight}");
        }
        assert_eq!(q.widths, vec![q.shape.1; nodes]);
        assert_eq!(down.widths.iter().sum::<usize>(), down.shape.1);
        // The packed bytes of all weights are those of all matrices.
        for node in 0..nodes {
            let packed =
                |h: &&graph::Header| h.operation.is_none() && h.shape.0 != graph::Rows::Fixed(1);
            let weights = headers.iter().filter(packed).map(|header| header.allocated[node]);
            let held = graph.matrices().iter().map(|matrix| matrix.node_bytes(node));
            assert_eq!(weights.sum::<usize>(), held.sum::<usize>(), "node {node} of {nodes}");
        }
        // A norm is f32 in every node's memory.
        let norm = of("blk.0.attn_norm.weight");
        assert_eq!(norm.allocated, vec![norm.shape.1 * 4; nodes]);
        // A row of the embedding's result is f32 too.
        let embedded = of("%0");
        assert_eq!(embedded.allocated, vec![embedded.bytes; nodes]);
    }
}
