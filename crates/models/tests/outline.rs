//! A model without weights has the graph of its file, and says which tensors the file has.

use arclight_models::{self as models, ARCHITECTURES, Outline};
use gguf::{Gguf, TensorType};
use graph::TensorSpec;
use std::collections::HashSet;
use testkit::{TinyModel, golden, repository};

#[test]
fn an_outline_of_any_family_wants_the_tensors_of_its_file() {
    // Files that converters wrote, one at least of every family.
    let mut families = HashSet::new();
    for entry in std::fs::read_dir(repository("tests/golden")).unwrap() {
        let entry = entry.unwrap();
        // Adapters have no file of their own here.
        if !entry.path().join("header.gguf").exists() {
            continue;
        }
        let bytes = golden(entry.file_name().to_str().unwrap());
        let gguf = Gguf::parse(&bytes).unwrap();
        if models::Vision::is_encoder(gguf.metadata()) {
            continue; // it has no tokens
        }
        let arch = gguf.metadata().str("general.architecture").unwrap();
        families.insert(arch.to_owned());
        let optional = [
            "output.weight",
            "blk.0.attn_q.bias",
            "blk.0.attn_q_norm.weight",
            "exp_probs_b.bias",
            "ffn_gate_inp_shexp.weight",
            "attn_kv_b.weight",
            "output.bias",
            "ssm_conv1d.bias",
            "ssm_norm.weight",
            "ffn_norm",
            "attn_v.weight",
            "layer_output_scale.weight",
            "ffn_gate_up_exps.weight",
            "ffn_down_exps.scale",
            "shared_head_norm.weight",
            "blk.0.attn_qkv.weight",
            "blk.0.attn_qkv.bias",
            "blk.0.attn_norm.bias",
            "blk.0.attn_norm_2.weight",
            "blk.0.ffn_norm.weight",
            "blk.0.ffn_up.bias",
            "blk.0.ffn_down.bias",
            "ffn_gate.weight",
            "attn_rel_b.weight",
            "token_types.weight",
            "position_embd.weight",
        ];
        let names = gguf.tensors().iter().map(gguf::Tensor::name);
        let extras: Vec<&str> =
            names.filter(|name| optional.iter().any(|end| name.ends_with(end))).collect();
        let floats = |t: &gguf::Tensor<'_>| {
            let (values, _) = t.data.as_chunks();
            values.iter().map(|v| f32::from_le_bytes(*v)).collect()
        };
        let ropes = gguf.tensors().iter().filter(|t| t.name().starts_with("rope_"));
        let values: Vec<(&str, Vec<f32>)> = ropes.map(|t| (t.name(), floats(t))).collect();
        let outline = Outline {
            metadata: gguf.metadata(),
            vocab: gguf.tensor("token_embd.weight").unwrap().rows(),
            of_layers: &[],
            ty: &|name, _| gguf.tensor(name).unwrap().ty,
            extras: &extras,
            values: &values,
            predicts: gguf.tensors().iter().any(|t| t.name().contains(".nextn.")),
        };
        let outlined = outline.build(3).unwrap();
        let mut wanted = outlined.graph.tensors().to_vec();
        wanted.sort_by(|a, b| a.name.cmp(&b.name));
        let mut stored: Vec<TensorSpec> = (gguf.tensors().iter())
            .map(|t| TensorSpec {
                name: t.name().to_owned(),
                ty: t.ty,
                rows: t.shape.dims().get(1).copied().unwrap_or(1),
                cols: t.cols(),
                experts: t.shape.dims().get(2).copied(),
            })
            .collect();
        stored.sort_by(|a, b| a.name.cmp(&b.name));
        assert_eq!(wanted, stored, "{arch}");
        let built = match outline.predicts {
            true => models::build_predicting(&gguf, 3).unwrap(),
            false => models::build(&gguf, 3).unwrap(),
        };
        assert_eq!(outlined.hparams, built.hparams);
        assert_eq!(packed(&outlined), packed(&built), "{arch}");
    }
    for arch in ARCHITECTURES {
        assert!(families.contains(arch.name), "{} has a fixture", arch.name);
    }
}

/// Bytes of every matrix on every node.
fn packed(model: &models::Model) -> Vec<[usize; 3]> {
    model.graph.matrices().iter().map(|m| [0, 1, 2].map(|n| m.node_bytes(n))).collect()
}

#[test]
fn tensors_that_the_graph_depends_on_are_given_with_the_outline() {
    let bytes = TinyModel::llama(TensorType::F32).gguf();
    let gguf = Gguf::parse(&bytes).unwrap();
    let outline = |values| Outline {
        metadata: gguf.metadata(),
        vocab: 300,
        of_layers: &[],
        ty: &|_, _| TensorType::F32,
        extras: &[],
        values,
        predicts: false,
    };
    let values = [("rope_freqs.weight", vec![2.0; 64])];
    let graph = outline(&values).build(1).unwrap().graph;
    let name = "rope_freqs.weight".to_owned();
    let spec = TensorSpec { name, ty: TensorType::F32, rows: 1, cols: 64, experts: None };
    assert!(graph.tensors().contains(&spec), "{:?}", graph.tensors());
    let few = [("rope_freqs.weight", vec![2.0; 3])];
    let said = outline(&few).build(1).unwrap_err().to_string();
    assert!(said.contains("rope_freqs.weight is 1 x 3"), "{said}");
}
