//! The models of `tests/golden`, whose weights are a rule and not in the repository.
//!
//! A fixture has the file up to its data: metadata and tensor directory. What the data is, metadata
//! under `golden.` say; `tools/golden/weights.py` is the same rule.

use crate::{Rng, repository};
use gguf::{Gguf, Tensor};

/// More than the data of any of them.
const ROOM: usize = 4 << 20;

/// The file of the golden model `name`.
///
/// Element `i` of a tensor is `offset + amplitude * u`, with `u` the upper 24 bits of the `i`-th
/// output of SplitMix64 as a number in -1..1; the generator starts at the tensor's FNV-1a hash plus
/// the model's seed. Tensors whose numbers mean something state them instead.
///
/// # Panics
/// When there is no such fixture or it is not as described.
pub fn golden(name: &str) -> Vec<u8> {
    let path = repository(&format!("tests/golden/{name}/header.gguf"));
    let mut bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    bytes.resize(bytes.len() + ROOM, 0);
    let gguf = Gguf::parse(&bytes).expect("a header that was cut at its data");
    let m = gguf.metadata();
    let seed = m.u64("golden.seed").expect("a seed");
    let numbers = |key: &str| m.f32s(key).expect("one number for each tensor");
    let spread = numbers("golden.amplitude").into_iter().zip(numbers("golden.offset"));
    let data: Vec<(usize, Vec<f32>)> = gguf
        .tensors()
        .iter()
        .zip(spread)
        .map(|(t, spread)| {
            let stated = m.opt_f32s(&format!("golden.values.{}", t.name())).expect("numbers");
            (t.offset as usize, stated.unwrap_or_else(|| random(t, seed, spread)))
        })
        .collect();
    let end = gguf.tensors().iter().map(|t| t.offset as usize + t.data.len()).max();
    bytes.truncate(end.expect("a tensor"));
    for (offset, values) in data {
        let to = bytes[offset..].as_chunks_mut().0;
        to.iter_mut().zip(values).for_each(|(to, v)| *to = v.to_le_bytes());
    }
    bytes
}

fn random(t: &Tensor<'_>, seed: u64, (amplitude, offset): (f32, f32)) -> Vec<f32> {
    let mut rng = Rng::named(seed, t.name());
    let unit = |bits: u64| ((bits >> 40) as i32 - (1 << 23)) as f32 / (1 << 23) as f32;
    (0..t.elements()).map(|_| amplitude * unit(rng.bits()) + offset).collect()
}

/// The picture of `tools/golden/images.py` of this size: rows of pixels, three colours each.
pub fn picture(width: usize, height: usize) -> Vec<u8> {
    let colour = |y: usize, x: usize, c: usize| {
        let slope = 3 * x + 2 * y * (c + 1) + x * y / 16;
        let edge = (x / 9 + y / 7 + c) % 3 * 40;
        ((slope + edge) % 256) as u8
    };
    let pixels = (0..height).flat_map(|y| (0..width).map(move |x| (y, x)));
    pixels.flat_map(|(y, x)| (0..3).map(move |c| colour(y, x, c))).collect()
}
