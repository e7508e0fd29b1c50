//! A model without weights has the graph of its file, and says which tensors the file has.

use arclight_models::{self as models, ARCHITECTURES, Outline};
use gguf::{Gguf, OwnedValue, TensorType, Writer};
use graph::TensorSpec;
use testkit::TinyModel;

#[test]
fn an_outline_of_any_family_wants_the_tensors_of_its_file() {
    for arch in ARCHITECTURES {
        for tied in [true, false] {
            let model = TinyModel { arch: arch.name, tied, ..TinyModel::qwen3(TensorType::Q4_0) };
            let bytes = model.gguf();
            let tiny = Gguf::parse(&bytes).unwrap();
            let (mut w, mut bytes) = (Writer::new(), Vec::new());
            // MiniCPM wants factors, which for all others mean nothing.
            for key in ["embedding_scale", "residual_scale", "logit_scale"] {
                let key = format!("{}.{key}", arch.name);
                if tiny.metadata().get(&key).is_none() {
                    w.kv(key, 1f32);
                }
            }
            for (key, value) in tiny.metadata().iter() {
                w.kv(key, OwnedValue::from(value));
            }
            for t in tiny.tensors() {
                w.tensor(t.name(), t.shape.dims(), t.ty, t.data);
            }
            w.write_to(&mut bytes).unwrap();
            let file = Gguf::parse(&bytes).unwrap();
            let outline = Outline {
                metadata: file.metadata(),
                vocab: model.vocab,
                ty: &|_| TensorType::Q4_0,
                extras: if tied { &[] } else { &["output.weight"] },
                values: &[],
            };
            let (built, outlined) = (models::build(&file, 3).unwrap(), outline.build(3).unwrap());
            assert_eq!(outlined.hparams, built.hparams);
            assert_eq!(outlined.graph.tensors(), built.graph.tensors(), "{}", arch.name);
            let bytes = |model: &models::Model| {
                let matrices = model.graph.matrices().iter();
                matrices.map(|m| [0, 1, 2].map(|n| m.node_bytes(n))).collect::<Vec<_>>()
            };
            assert_eq!(bytes(&outlined), bytes(&built), "{}", arch.name);
        }
    }
}

#[test]
fn tensors_that_the_graph_depends_on_are_given_with_the_outline() {
    let bytes = TinyModel::llama(TensorType::F32).gguf();
    let gguf = Gguf::parse(&bytes).unwrap();
    let outline = |values| Outline {
        metadata: gguf.metadata(),
        vocab: 300,
        ty: &|_| TensorType::F32,
        extras: &[],
        values,
    };
    let values = [("rope_freqs.weight", vec![2.0; 64])];
    let graph = outline(&values).build(1).unwrap().graph;
    let name = "rope_freqs.weight".to_owned();
    let spec = TensorSpec { name, ty: TensorType::F32, rows: 1, cols: 64 };
    assert!(graph.tensors().contains(&spec), "{:?}", graph.tensors());
    let few = [("rope_freqs.weight", vec![2.0; 3])];
    let said = outline(&few).build(1).unwrap_err().to_string();
    assert!(said.contains("rope_freqs.weight is 1 x 3"), "{said}");
}
