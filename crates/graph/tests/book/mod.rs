//! Parts of a model by the book, in f64, and the bound on what a step may differ from it.

use gguf::Gguf;

/// Epsilon of all norms.
pub(crate) const EPS: f32 = 1e-6;

/// The name of a layer's weight.
pub(crate) fn name(layer: usize, tensor: &str) -> String {
    format!("blk.{layer}.{tensor}.weight")
}

/// The elements of an F32 tensor.
pub(crate) fn floats(gguf: &Gguf<'_>, name: &str) -> Vec<f64> {
    let bytes = gguf.tensor(name).unwrap().data.as_chunks::<4>().0;
    bytes.iter().map(|b| f64::from(f32::from_le_bytes(*b))).collect()
}

/// `[rows, cols]` times a vector.
pub(crate) fn times(matrix: &[f64], x: &[f64]) -> Vec<f64> {
    matrix.chunks_exact(x.len()).map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum()).collect()
}

pub(crate) fn rms_norm(x: &[f64], weight: &[f64]) -> Vec<f64> {
    let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
    x.iter().zip(weight).map(|(x, w)| x * w / (mean + f64::from(EPS)).sqrt()).collect()
}

/// Panics unless rows of logits are those of the book, but for `bound` times each row's largest.
#[track_caller]
pub(crate) fn assert_near(got: &[Vec<f32>], want: &[Vec<f64>], bound: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let top = want.iter().fold(0f64, |top, w| top.max(w.abs()));
        let off = got.iter().zip(want).map(|(g, w)| (f64::from(*g) - w).abs());
        let off = off.fold(0f64, f64::max) / top;
        assert!(off < bound, "{what}, token {i}: off by {off:e}");
    }
}
