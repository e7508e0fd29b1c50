//! Random adapters, and models into whose weights they are merged.

use crate::Rng;
use gguf::{Gguf, OwnedValue, TensorType, Writer};

/// What [`lora`] stands beside.
fn is_adapted(tensor: &gguf::Tensor<'_>) -> bool {
    let name = tensor.name();
    // By head, or in a bank with experts.
    let apart = ["attn_kv_b", "attn_k_b", "attn_v_b", "_shexp"].iter().any(|b| name.contains(b));
    let table = name.contains("token_embd") || name.contains("position_embd");
    let matrix = tensor.shape.dims().len() == 2 && !models::is_vector(name);
    matrix && !apart && !table && name.ends_with(".weight")
}

/// An adapter of this rank for all matrices of a model but tables, those by head and shared experts, as a GGUF file with matrices of type
/// `ty`. Products with it are about as large as the model's if `alpha` is the rank.
///
/// # Panics
/// When the model is malformed.
pub fn lora(model: &[u8], ty: TensorType, rank: usize, alpha: f32, seed: u64) -> Vec<u8> {
    let gguf = Gguf::parse(model).expect("a model");
    let architecture = gguf.metadata().str("general.architecture").expect("an architecture");
    let mut w = Writer::new();
    w.kv("general.type", "adapter").kv("general.architecture", architecture);
    w.kv("adapter.type", "lora").kv("adapter.lora.alpha", alpha);
    for tensor in gguf.tensors().iter().filter(|t| is_adapted(t)) {
        let (rows, cols) = (tensor.rows(), tensor.cols());
        let mut matrix = |end: &str, rows: usize, cols: usize, deviation: f32| {
            let name = format!("{}{end}", tensor.name());
            let values = Rng::named(seed, &name).normals(rows * cols, deviation);
            let mut data = Vec::new();
            ty.quantize(&values, &mut data).expect("whole blocks");
            w.tensor(name, &[cols, rows], ty, data);
        };
        matrix(".lora_a", rank, cols, (1.0 / cols as f32).sqrt());
        matrix(".lora_b", rows, rank, 0.05 / (rank as f32).sqrt());
    }
    let mut bytes = Vec::new();
    w.write_to(&mut bytes).expect("an adapter");
    bytes
}

/// A model as F32, to whose matrices adapters are added, each with a factor.
///
/// # Panics
/// When one of them is malformed.
pub fn merged(model: &[u8], adapters: &[(&[u8], f32)]) -> Vec<u8> {
    let gguf = Gguf::parse(model).expect("a model");
    let parse = |bytes| Gguf::parse(bytes).expect("an adapter");
    let adapters: Vec<(Gguf<'_>, f32)> =
        adapters.iter().map(|&(bytes, scale)| (parse(bytes), scale)).collect();
    let mut w = Writer::new();
    for (key, value) in gguf.metadata().iter() {
        w.kv(key, OwnedValue::from(value));
    }
    for tensor in gguf.tensors() {
        let mut values: Vec<f64> = floats(tensor).into_iter().map(f64::from).collect();
        for (adapter, scale) in &adapters {
            let of = |end: &str| adapter.tensor(&format!("{}{end}", tensor.name()));
            let (Some(a), Some(b)) = (of(".lora_a"), of(".lora_b")) else { continue };
            let rank = a.rows();
            let alpha = adapter.metadata().f32("adapter.lora.alpha").expect("alpha");
            let factor = f64::from(*scale) * f64::from(alpha) / rank as f64;
            let (a, b) = (floats(a), floats(b));
            for (i, value) in values.iter_mut().enumerate() {
                let (row, col) = (i / tensor.cols(), i % tensor.cols());
                let product =
                    |r: usize| f64::from(b[row * rank + r]) * f64::from(a[r * tensor.cols() + col]);
                *value += factor * (0..rank).map(product).sum::<f64>();
            }
        }
        let bytes: Vec<u8> =
            values.iter().flat_map(|value| (*value as f32).to_le_bytes()).collect();
        w.tensor(tensor.name(), tensor.shape.dims(), TensorType::F32, bytes);
    }
    let mut bytes = Vec::new();
    w.write_to(&mut bytes).expect("a model");
    bytes
}

fn floats(tensor: &gguf::Tensor<'_>) -> Vec<f32> {
    let mut values = vec![0.0; tensor.elements()];
    tensor.ty.dequantize(tensor.data, &mut values).expect("whole blocks");
    values
}
