//! A dense layer compiles to the waits that the design promises, for any nodes and any shapes.

use arclight_models as models;
use gguf::{Gguf, TensorType};
use graph::{Gather, LayerListing, Plan, Shares, Sync, Variant};
use testkit::{Predicts, TinyModel};
use topology::{CpuId, Group};

fn plan(nodes: usize) -> Plan {
    Plan::new(vec![Group::unbound(vec![CpuId(0), CpuId(0)]); nodes])
}

/// `(all, global)` waits of every layer of a model in the middle of a list.
fn waits(model: &TinyModel, nodes: usize, variant: Variant, plan: &Plan) -> (usize, usize) {
    let bytes = TinyModel { layers: 4, ..model.clone() }.gguf();
    let built = models::build(&Gguf::parse(&bytes).unwrap(), nodes).unwrap();
    let of = |layer| LayerListing::new(&built.graph, plan, variant, layer).waits();
    assert_eq!(of(1), of(2), "layers of both parities compile alike");
    of(1)
}

/// The static list begins with one tensor, has one for each node in the layers, and ends with one.
#[test]
fn the_listing_says_how_operators_were_appended() {
    let bytes = TinyModel::qwen3(TensorType::Q4_0).gguf();
    let appended = |nodes| {
        let built = models::build(&Gguf::parse(&bytes).unwrap(), nodes).unwrap();
        let text = LayerListing::new(&built.graph, &plan(nodes), Variant::DECODE, 1).to_string();
        text.lines().last().unwrap().to_owned()
    };
    let list = "all operators, as appended to the list: ";
    assert_eq!(appended(1), format!("{list}serial (22 operators)"));
    assert_eq!(
        appended(2),
        format!("{list}scatter (embed), parallel (20 operators), gather (logits)")
    );
}

/// The modes of the list decide how the pool is seen: one scatter where it splits, one gather where it joins, and
/// neither where there is one node. Neither adds a stage, and so a wait.
#[test]
fn programs_for_several_nodes_begin_with_a_scatter_and_end_with_a_gather() {
    let bytes = TinyModel::qwen3(TensorType::Q4_0).gguf();
    for (nodes, variant) in [(1, Variant::DECODE), (2, Variant::DECODE), (4, Variant::PREFILL)] {
        let built = models::build(&Gguf::parse(&bytes).unwrap(), nodes).unwrap();
        let listing = LayerListing::new(&built.graph, &plan(nodes), variant, 1).to_string();
        let views: Vec<&str> = listing.lines().filter(|line| line.contains("one graph")).collect();
        if nodes == 1 {
            assert!(views.is_empty(), "{views:?}");
            continue;
        }
        let [scatter, gather] = views[..] else { panic!("{views:?}") };
        assert!(scatter.starts_with("scatter after the beginning, stage 1 of "), "{scatter}");
        assert!(scatter.ends_with(&format!(": one graph → {nodes} subgraphs")), "{scatter}");
        let last = gather.strip_prefix("gather after logits, stage ").unwrap();
        let (stages, change) = last.split_once(": ").unwrap();
        let (at, of) = stages.split_once(" of ").unwrap();
        assert_eq!(at, of, "{gather}");
        assert_eq!(change, format!("{nodes} subgraphs → one graph"));
    }
}

#[test]
fn a_dense_layer_at_batch_one_has_five_waits_two_of_them_global() {
    for model in [
        TinyModel::qwen3(TensorType::Q4_0),
        TinyModel::llama(TensorType::F32),
        TinyModel::qwen2(TensorType::Q4_0),
        TinyModel::granite(TensorType::Q4_0),
        TinyModel::phi3(TensorType::Q4_0),
        TinyModel::starcoder2(TensorType::Q4_0),
        TinyModel::glm4(TensorType::Q4_0),
        TinyModel::gemma2(TensorType::Q4_0),
        TinyModel::gemma3(TensorType::Q4_0),
        TinyModel { arch: "gpt2", ..TinyModel::llama(TensorType::Q4_0) },
        TinyModel { arch: "bloom", ..TinyModel::llama(TensorType::Q4_0) },
        TinyModel { arch: "mpt", ..TinyModel::llama(TensorType::Q4_0) },
        TinyModel { arch: "olmo", ..TinyModel::llama(TensorType::Q4_0) },
        TinyModel { arch: "apertus", ..TinyModel::llama(TensorType::Q4_0) },
    ] {
        for nodes in [2, 3, 4, 6, 8] {
            assert_eq!(
                waits(&model, nodes, Variant::DECODE, &plan(nodes)),
                (5, 2),
                "{nodes} nodes"
            );
        }
        assert_eq!(
            waits(&model, 1, Variant::DECODE, &plan(1)),
            (5, 0),
            "nothing is global on one node"
        );
    }
}

/// Both products of the residual stream wait for nobody, and both sums come together in one exchange.
#[test]
fn a_layer_of_parallel_blocks_has_three_waits_one_of_them_global() {
    for arch in ["gptneox", "phi2", "falcon", "command-r", "plamo"] {
        let model = TinyModel { arch, ..TinyModel::llama(TensorType::Q4_0) };
        for nodes in [2, 3, 4, 8] {
            let got = waits(&model, nodes, Variant::DECODE, &plan(nodes));
            assert_eq!(got, (3, 1), "{arch} on {nodes} nodes");
        }
        assert_eq!(waits(&model, 1, Variant::DECODE, &plan(1)), (3, 0), "{arch}");
        // One for the summands of both, and one for their sum.
        let scatter = Variant { gather: Gather::Scatter, ..Variant::PREFILL };
        assert_eq!(waits(&model, 4, scatter, &plan(4)).1, 2, "{arch}");
    }
}

#[test]
fn a_layer_with_experts_at_batch_one_has_six_waits_two_of_them_global() {
    for model in [
        TinyModel::qwen3moe(TensorType::Q4_0, 192),
        TinyModel::qwen3moe(TensorType::F32, 48),
        TinyModel::qwen2moe(TensorType::Q4_0, 192),
        TinyModel::dots1(TensorType::Q4_0, 192),
    ] {
        for nodes in [2, 3, 4, 6, 8] {
            let got = waits(&model, nodes, Variant::DECODE, &plan(nodes));
            assert_eq!(got, (6, 2), "{} on {nodes} nodes", model.arch);
        }
        assert_eq!(waits(&model, 1, Variant::DECODE, &plan(1)), (6, 0), "{}", model.arch);
    }
}

#[test]
fn a_recurrence_costs_a_local_wait_and_a_norm_over_nodes_makes_one_global() {
    let recurrences = [
        (TinyModel::qwen35(TensorType::Q4_0), (6, 2)),
        (TinyModel::qwen3next(TensorType::Q4_0, 192), (7, 2)),
        (TinyModel::granitehybrid(TensorType::Q4_0, 192), (7, 3)),
        // The convolution stands where attention stands elsewhere.
        (TinyModel::lfm2(TensorType::Q4_0), (5, 2)),
    ];
    for (model, wanted) in recurrences {
        let bytes = TinyModel { layers: 6, ..model.clone() }.gguf();
        let gguf = Gguf::parse(&bytes).unwrap();
        for nodes in [1, 2, 3, 8] {
            let built = models::build(&gguf, nodes).unwrap();
            let listing =
                |layer| LayerListing::new(&built.graph, &plan(nodes), Variant::DECODE, layer);
            let (all, global) = listing(2).waits();
            let wanted = if nodes == 1 { (wanted.0, 0) } else { wanted };
            assert_eq!((all, global), wanted, "{} on {nodes} nodes", model.arch);
        }
    }
}

#[test]
fn a_layer_that_predicts_has_a_local_wait_and_a_global_one_more_than_others() {
    for (model, others) in [
        (TinyModel::qwen35(TensorType::Q4_0), (5, 2)),
        (TinyModel { arch: "glm4moe", ..TinyModel::dots1(TensorType::Q4_0, 192) }, (6, 2)),
    ] {
        let model = TinyModel { predicts: Some(Predicts::Noise), layers: 4, ..model };
        let bytes = model.gguf();
        for nodes in [1, 2, 3, 8] {
            let gguf = Gguf::parse(&bytes).unwrap();
            let built = models::build_predicting(&gguf, nodes).unwrap();
            let predicting = Variant { predicts: true, ..Variant::DECODE };
            let of = |variant, layer| {
                LayerListing::new(&built.graph, &plan(nodes), variant, layer).waits()
            };
            let (all, global) = of(predicting, 4);
            // The embedding, whose rows threads share, and the sum of both halves.
            let wanted = (others.0 + 2, if nodes == 1 { 0 } else { others.1 + 1 });
            assert_eq!((all, global), wanted, "{} on {nodes} nodes", model.arch);
            // What the model does is the same with it and without.
            let without = models::build(&gguf, nodes).unwrap().graph;
            let model = LayerListing::new(&without, &plan(nodes), Variant::DECODE, 3).waits();
            assert_eq!(of(Variant::DECODE, 3), model);
        }
    }
}

#[test]
fn streams_cost_local_waits_and_a_bound_of_gates_makes_one_global() {
    let bytes = TinyModel::gemma3n(TensorType::Q4_0).gguf();
    let built = models::build(&Gguf::parse(&bytes).unwrap(), 2).unwrap();
    let plan = plan(2);
    let of = |layer| LayerListing::new(&built.graph, &plan, Variant::DECODE, layer).waits();
    // Attention with the product of low rank, the feed-forward layer, the layer's own inputs, each two; scores of
    // streams twice. In the first layer all nodes wait for the bound of gates.
    assert_eq!([of(0), of(1)], [(9, 4), (9, 3)]);
}

#[test]
fn latent_attention_waits_within_the_node() {
    let model = TinyModel::deepseek2(TensorType::Q4_0, 192);
    for nodes in [2, 3, 8] {
        assert_eq!(waits(&model, nodes, Variant::DECODE, &plan(nodes)), (9, 2), "{nodes} nodes");
    }
}

#[test]
fn norms_over_the_heads_of_all_nodes_make_a_wait_global() {
    let model = TinyModel::olmo2(TensorType::Q4_0);
    for nodes in [2, 3, 8] {
        assert_eq!(waits(&model, nodes, Variant::DECODE, &plan(nodes)), (5, 3), "{nodes} nodes");
    }
    assert_eq!(waits(&model, 1, Variant::DECODE, &plan(1)), (5, 0));
}

#[test]
fn prefill_pays_local_waits_for_sharing_row_wise_work() {
    let model = TinyModel::qwen3(TensorType::Q4_K);
    assert_eq!(waits(&model, 2, Variant::PREFILL, &plan(2)), (10, 2));
}

#[test]
fn sync_a_makes_every_wait_global() {
    let model = TinyModel::qwen3(TensorType::Q4_0);
    let plan = Plan { sync: Sync::Global, ..plan(2) };
    assert_eq!(waits(&model, 2, Variant::DECODE, &plan), (5, 5));
}

#[test]
fn weights_are_cut_evenly_and_completely() {
    let bytes = TinyModel::qwen3(TensorType::Q4_0).gguf();
    let gguf = Gguf::parse(&bytes).unwrap();
    let one = models::build(&gguf, 1).unwrap().graph;
    let four = models::build(&gguf, 4).unwrap().graph;
    for (whole, cut) in one.matrices().iter().zip(four.matrices()) {
        let parts: Vec<usize> = (0..4).map(|n| cut.node_bytes(n)).collect();
        // A cut in the middle of a tile pads the tile on both sides: up to 16 rows more per node.
        assert!(parts.iter().sum::<usize>() >= whole.node_bytes(0), "{}", whole.name);
        if whole.name != "vocab" {
            assert_eq!(parts.iter().sum::<usize>(), whole.node_bytes(0), "{}", whole.name);
            assert!(parts.iter().all(|p| *p == parts[0]), "{}: {parts:?}", whole.name);
        }
    }
}

#[test]
fn uneven_splits_wait_no_more_than_even_ones() {
    // Three nodes of unequal threads, heads and columns that do not divide, and a node with none.
    let odd = TinyModel {
        heads: 14,
        kv_heads: 2,
        head_dim: 32,
        ffn: 1056,
        layers: 4,
        ..TinyModel::qwen3(TensorType::Q4_0)
    };
    let bytes = odd.gguf();
    let gguf = Gguf::parse(&bytes).unwrap();
    for shares in [vec![1, 2, 3], vec![3, 0, 1], vec![1; 9]] {
        let nodes = shares.len();
        let built = models::build(&gguf, Shares::new(shares)).unwrap();
        let waits = LayerListing::new(&built.graph, &plan(nodes), Variant::DECODE, 1).waits();
        assert_eq!(waits, (5, 2), "{nodes} nodes");
    }
}

#[test]
fn reduce_scatter_costs_a_global_wait_more_per_sum() {
    let model = TinyModel::qwen3(TensorType::Q4_K);
    let scatter = Variant { gather: Gather::Scatter, ..Variant::PREFILL };
    assert_eq!(waits(&model, 4, scatter, &plan(4)), (12, 4));
}

#[test]
fn more_nodes_than_key_heads_hold_copies_of_them() {
    use graph::KvType::{Bf16, F16, F32, Q4_0, Q8_0};
    let bytes = TinyModel::qwen3(TensorType::Q4_0).gguf(); // 8 query heads on 4 of keys
    let graph = models::build(&Gguf::parse(&bytes).unwrap(), 8).unwrap().graph;
    // A head of 128 elements in each type.
    for (kv, head) in [(F16, 256), (Bf16, 256), (F32, 512), (Q8_0, 136), (Q4_0, 72)] {
        let bytes: Vec<usize> = (0..8).map(|n| graph.kv_bytes_per_token(n, kv, 0)).collect();
        assert!(bytes.iter().all(|&b| b == 2 * 2 * head), "a head on every node: {kv} {bytes:?}");
    }
}

#[test]
fn scales_of_matrices_are_used_or_refused() {
    let bytes = TinyModel::llama(TensorType::NVFP4).gguf();
    let build = |ty: TensorType, name: &str, len: usize| {
        let gguf = Gguf::parse(&bytes).unwrap();
        let mut w = gguf::Writer::new();
        for (key, value) in gguf.metadata().iter() {
            w.kv(key, gguf::OwnedValue::from(value));
        }
        for t in gguf.tensors() {
            let data = vec![0u8; ty.bytes_for(t.elements()).unwrap()];
            match t.rows() {
                1 => w.tensor(t.name(), t.shape.dims(), t.ty, t.data),
                _ => w.tensor(t.name(), t.shape.dims(), ty, data),
            };
        }
        w.tensor(name, &[len], TensorType::F32, vec![0u8; 4 * len]);
        let mut bytes = Vec::new();
        w.write_to(&mut bytes).unwrap();
        models::build(&Gguf::parse(&bytes).unwrap(), 1).map_err(|e| e.to_string())
    };
    for name in ["blk.1.ffn_down.scale", "blk.0.attn_k.input_scale", "output.scale"] {
        build(TensorType::NVFP4, name, 1).unwrap();
        // Other types' scales have no end, and nobody knows what such a tensor would mean.
        let refused = build(TensorType::Q8_0, name, 1).unwrap_err();
        assert!(refused.contains(name), "{refused}");
        let refused = build(TensorType::NVFP4, name, 2).unwrap_err();
        assert!(refused.contains(name), "{refused}");
    }
    // No matrix is called so.
    for name in ["blk.0.attn_norm.scale", "blk.0.attn_qkv.scale", "scale"] {
        let refused = build(TensorType::NVFP4, name, 1).unwrap_err();
        assert!(refused.contains(name), "{refused}");
    }
}

#[test]
fn more_queries_than_are_attended_together_are_refused() {
    let of =
        |heads| TinyModel { heads, kv_heads: 1, head_dim: 16, ..TinyModel::llama(TensorType::F32) };
    let bytes = of(128).gguf();
    assert!(models::build(&Gguf::parse(&bytes).unwrap(), 2).is_ok());
    let made = std::panic::catch_unwind(|| of(129).gguf()); // asks the page what it wants
    let said = made.unwrap_err().downcast_ref::<String>().unwrap().clone();
    assert!(said.contains("attention.head_count") && said.contains("128"), "{said}");
}

#[test]
fn tensors_that_nobody_uses_are_refused() {
    let bytes = TinyModel::llama(TensorType::F32).gguf();
    let gguf = Gguf::parse(&bytes).unwrap();
    let mut w = gguf::Writer::new();
    for (key, value) in gguf.metadata().iter() {
        w.kv(key, gguf::OwnedValue::from(value));
    }
    for t in gguf.tensors() {
        w.tensor(t.name(), t.shape.dims(), t.ty, t.data);
    }
    w.tensor("blk.0.attn_q.bias", &[1024], TensorType::F32, vec![0u8; 4096]);
    let mut with_bias = Vec::new();
    w.write_to(&mut with_bias).unwrap();
    let err = models::build(&Gguf::parse(&with_bias).unwrap(), 1).unwrap_err().to_string();
    assert!(err.contains("blk.0.attn_q.bias"), "{err}");
}
