//! NVFP4 models with a scale beside every matrix.

use crate::Rng;
use gguf::{Gguf, OwnedValue, TensorType, Writer};

/// A model with scales of its matrices, and the same one without.
pub struct Scaled {
    /// Every NVFP4 matrix `X.weight` has an `X.scale` from 1/8 to 1/2, a bank one for each expert, and an
    /// `X.input_scale` that means nothing.
    pub beside: Vec<u8>,
    /// These matrices as F32, multiplied.
    pub within: Vec<u8>,
}

/// Gives a model's NVFP4 matrices scales. Those of latent attention that are multiplied by head get none.
///
/// # Errors
/// When the file is malformed.
pub fn with_scales(file: &[u8]) -> Result<Scaled, gguf::Error> {
    let gguf = Gguf::parse(file)?;
    let [mut beside, mut within] = [Writer::new(), Writer::new()];
    for (key, value) in gguf.metadata().iter() {
        beside.kv(key, OwnedValue::from(value));
        within.kv(key, OwnedValue::from(value));
    }
    for t in gguf.tensors() {
        beside.tensor(t.name(), t.shape.dims(), t.ty, t.data);
        if t.ty != TensorType::NVFP4 {
            within.tensor(t.name(), t.shape.dims(), t.ty, t.data);
            continue;
        }
        let by_head = ["attn_kv_b", "attn_k_b", "attn_v_b"].iter().any(|b| t.name().contains(b));
        let count = t.shape.dims().get(2).copied().unwrap_or(1);
        let mut rng = Rng::named(7, t.name());
        let mut scale = || if by_head { 1.0 } else { (rng.normal().clamp(-1.0, 1.0) - 2.0).exp2() };
        let scales: Vec<f32> = (0..count).map(|_| scale()).collect();
        if !by_head {
            let stem = t.name().strip_suffix(".weight").unwrap_or(t.name());
            let bytes = |x: f32| scales.iter().flat_map(move |s| (s * x).to_le_bytes()).collect();
            let (own, input): (Vec<u8>, Vec<u8>) = (bytes(1.0), bytes(100.0));
            beside.tensor(format!("{stem}.scale"), &[count], TensorType::F32, own);
            beside.tensor(format!("{stem}.input_scale"), &[count], TensorType::F32, input);
        }
        let mut values = vec![0.0; t.elements()];
        t.ty.dequantize(t.data, &mut values)?;
        for (values, scale) in values.chunks_exact_mut(t.elements() / count).zip(&scales) {
            values.iter_mut().for_each(|value| *value *= scale);
        }
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        within.tensor(t.name(), t.shape.dims(), TensorType::F32, bytes);
    }
    let bytes = |mut w: Writer<'_>| {
        let mut bytes = Vec::new();
        w.write_to(&mut bytes).map(|_| bytes)
    };
    Ok(Scaled { beside: bytes(beside)?, within: bytes(within)? })
}
