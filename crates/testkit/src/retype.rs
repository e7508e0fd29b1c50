//! The same model in another block type.

use gguf::{Gguf, OwnedValue, TensorType, Writer};

/// A file whose matrices were converted.
pub struct Requantized {
    /// The new file.
    pub bytes: Vec<u8>,
    /// Bits per weight of its matrices.
    pub bits: f64,
}

/// Converts all matrices of a GGUF file to `ty` through f32; vectors and routers stay as they are,
/// as converters leave them.
///
/// # Errors
/// When the file is malformed or a row is not a whole number of blocks.
pub fn requantize(file: &[u8], ty: TensorType) -> Result<Requantized, gguf::Error> {
    let gguf = Gguf::parse(file)?;
    let mut w = Writer::new();
    for (key, value) in gguf.metadata().iter() {
        w.kv(key, OwnedValue::from(value));
    }
    let (mut bits, mut weights) = (0, 0);
    for t in gguf.tensors() {
        let kept = t.rows() == 1 || models::is_vector(t.name());
        if kept || t.name().ends_with("ffn_gate_inp.weight") {
            w.tensor(t.name(), t.shape.dims(), t.ty, t.data);
            continue;
        }
        let mut values = vec![0.0; t.elements()];
        t.ty.dequantize(t.data, &mut values)?;
        let mut data = Vec::new();
        ty.quantize(&values, &mut data)?;
        bits += data.len() * 8;
        weights += values.len();
        w.tensor(t.name(), t.shape.dims(), ty, data);
    }
    let mut bytes = Vec::new();
    w.write_to(&mut bytes)?;
    Ok(Requantized { bytes, bits: bits as f64 / weights as f64 })
}
