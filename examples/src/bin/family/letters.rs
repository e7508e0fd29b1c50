//! A family of models that know the alphabet: its definition, and a file with the weights of one.

use gguf::{TensorType, Writer};
use graph::{Activation, Builder, Catalog, Error, Graph, Norm};

/// The vocabulary: a token is a letter.
pub(crate) const LETTERS: &[u8; N] = b"abcdefghijklmnopqrstuvwxyz .,!?-";
/// How many there are, and the width of all matrices.
pub(crate) const N: usize = 32;
/// Layers of the model.
pub(crate) const LAYERS: usize = 2;
/// Added to mean squares.
pub(crate) const EPS: f32 = 1e-6;

/// The definition: layers of a norm, two matrices and a sum. A row of the stream has a number for each letter.
pub(crate) fn build(nodes: usize, catalog: &dyn Catalog) -> Result<Graph, Error> {
    let mut b = Builder::new(nodes, catalog);
    let table = b.vocab("token_embd.weight", N, N)?;
    let mut x = b.embed(table, 1.0); // [tokens, N]
    for layer in 0..LAYERS {
        b.layer(Some(layer));
        let [norm, up, down] = ["norm", "up", "down"].map(|t| format!("blk.{layer}.{t}.weight"));
        let weight = b.vector(&norm, N)?;
        let (up, down) = b.feed_forward([&*up], &down, N, N)?;
        let n = b.norm(x, Norm::Rms { weight, eps: EPS });
        let h = b.activated(n, up, Activation::Relu);
        let y = b.linear(h, down);
        x = b.residual(x, y, None, (1.0, None));
    }
    b.layer(None);
    let x = b.select(x); // [outputs, N]
    b.logits(x, table, 1.0, None);
    Ok(b.finish())
}

/// A file that is not there yet: it has every tensor, as f32.
struct Sketch;

impl Catalog for Sketch {
    fn wanted(&self, _: &str, _: usize, _: usize) -> Result<TensorType, Error> {
        Ok(TensorType::F32)
    }
}

/// An element of a tensor: `down` takes a letter away and puts the next one there.
fn element(tensor: &str, row: usize, col: usize) -> f32 {
    let (same, next) = (f32::from(row == col), f32::from(row == (col + 1) % N));
    match tensor.rsplit('.').nth(1) {
        Some("norm") => 1.0,
        Some("down") => next - same,
        _ => same,
    }
}

/// A file with the tensors that the definition asks for.
pub(crate) fn write() -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let (sketch, mut writer, mut file) = (build(1, &Sketch)?, Writer::new(), Vec::new());
    for t in sketch.tensors() {
        println!("{}: {} x {}", t.name, t.rows, t.cols);
        let places = (0..t.rows).flat_map(|row| (0..t.cols).map(move |col| (row, col)));
        let bytes = places.flat_map(|(row, col)| element(&t.name, row, col).to_le_bytes());
        let dims = if t.rows == 1 { vec![t.cols] } else { vec![t.cols, t.rows] };
        writer.tensor(&t.name, &dims, t.ty, bytes.collect::<Vec<u8>>());
    }
    writer.write_to(&mut file)?;
    Ok(file)
}
