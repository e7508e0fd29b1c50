//! A dense layer compiles to the waits that the design promises, for any number of nodes.

use arclight_models as models;
use gguf::{Gguf, TensorType};
use graph::{AttnForm, LayerListing, Plan, PlanGroup, Sync, Variant};
use testkit::TinyModel;
use topology::CpuId;

const DECODE: Variant = Variant {
    private_tokens: true,
    private_outputs: true,
    attention: AttnForm::SplitJoinPrivate,
    append_in_attention: true,
};
const PREFILL: Variant = Variant {
    private_tokens: false,
    private_outputs: true,
    attention: AttnForm::Fused,
    append_in_attention: false,
};

fn plan(nodes: usize) -> Plan {
    Plan::new(vec![PlanGroup { node: None, cpus: vec![CpuId(0), CpuId(0)] }; nodes])
}

/// `(all, global)` waits of every layer of a model in the middle of a list.
fn waits(model: &TinyModel, nodes: usize, variant: Variant, plan: &Plan) -> (usize, usize) {
    let bytes = TinyModel { layers: 4, ..model.clone() }.gguf();
    let built = models::build(&Gguf::parse(&bytes).unwrap(), nodes).unwrap();
    let of = |layer| LayerListing::new(&built.graph, plan, variant, layer).waits();
    assert_eq!(of(1), of(2), "layers of both parities compile alike");
    of(1)
}

#[test]
fn a_dense_layer_at_batch_one_has_five_waits_two_of_them_global() {
    for model in [TinyModel::qwen3(TensorType::Q4_0), TinyModel::llama(TensorType::F32)] {
        for nodes in [2, 3, 4] {
            assert_eq!(waits(&model, nodes, DECODE, &plan(nodes)), (5, 2), "{nodes} nodes");
        }
        assert_eq!(waits(&model, 1, DECODE, &plan(1)), (5, 0), "nothing is global on one node");
    }
}

#[test]
fn prefill_pays_local_waits_for_sharing_row_wise_work() {
    let model = TinyModel::qwen3(TensorType::Q4_K);
    assert_eq!(waits(&model, 2, PREFILL, &plan(2)), (10, 2));
}

#[test]
fn sync_a_makes_every_wait_global() {
    let model = TinyModel::qwen3(TensorType::Q4_0);
    let plan = Plan { sync: Sync::Global, ..plan(2) };
    assert_eq!(waits(&model, 2, DECODE, &plan), (5, 5));
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
fn more_nodes_than_heads_is_an_error_with_advice() {
    let bytes = TinyModel::qwen3(TensorType::F32).gguf();
    let err = models::build(&Gguf::parse(&bytes).unwrap(), 5).unwrap_err().to_string();
    assert!(err.contains("over 5 nodes") && err.contains("--nodes 4"), "{err}");
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
