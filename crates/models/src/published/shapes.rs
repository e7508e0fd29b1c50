//! The shapes of published models.
//!
//! Source: the models' `config.json` as published.

use crate::Error;

/// Hyper-parameters of a published model.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The name to ask for it by.
    pub name: &'static str,
    /// As its makers write it.
    pub title: &'static str,
    /// `general.architecture`.
    pub arch: &'static str,
    /// Layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width of the feed-forward layer.
    pub ffn: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Tokens of the vocabulary.
    pub vocab: usize,
    /// Longest context.
    pub context: u32,
    /// Base of the RoPE frequencies.
    pub rope_theta: f32,
    /// How RoPE is stretched to that context.
    pub stretch: Stretch,
    /// Epsilon of norms.
    pub norm_eps: f32,
    /// The output head is the embedding matrix.
    pub tied: bool,
    /// Keys that a token sees in layers with a sliding window.
    pub window: Option<u32>,
    /// Experts, in families that have them.
    pub experts: Option<Experts>,
}

/// The experts of a published model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    /// In all.
    pub count: usize,
    /// Those that a token goes to.
    pub used: usize,
    /// Width of each.
    pub width: usize,
}

impl Shape {
    /// The first `layers` of its layers, for machines with little memory.
    ///
    /// # Errors
    /// When it has no so many.
    pub(crate) fn first_layers(self, layers: usize) -> Result<Shape, Error> {
        if layers == 0 || layers > self.layers {
            let (name, of) = (self.name, self.layers);
            return Err(Error::NoSuchLayers { name, layers, of });
        }
        Ok(Shape { layers, ..self })
    }
}

/// Ways to stretch RoPE.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stretch {
    /// Not at all.
    None,
    /// All angles divided.
    Linear(f32),
    /// From a context of 8192 as Llama 3.1 does, by this factor.
    Llama3(f32),
}

impl Shape {
    /// Small tensors whose numbers are part of the shape. Here these are Llama 3.1's divisors of the
    /// RoPE frequencies: the whole factor for long waves, 1 for short ones, a blend between.
    pub fn values(&self) -> Vec<(&'static str, Vec<f32>)> {
        const TRAINED: f32 = 8192.0;
        const LOW: f32 = 1.0;
        const HIGH: f32 = 4.0;
        let Stretch::Llama3(factor) = self.stretch else { return Vec::new() };
        let divisor = |i: usize| {
            let wave =
                std::f32::consts::TAU * self.rope_theta.powf(2.0 * i as f32 / self.head_dim as f32);
            let blend = ((TRAINED / wave - LOW) / (HIGH - LOW)).clamp(0.0, 1.0);
            ((1.0 - blend) / factor + blend).recip()
        };
        vec![(crate::rope::FREQS, (0..self.head_dim / 2).map(divisor).collect())]
    }
}

const QWEN3: Shape = Shape {
    name: "",
    title: "",
    arch: "qwen3",
    layers: 28,
    hidden: 0,
    ffn: 0,
    heads: 16,
    kv_heads: 8,
    head_dim: 128,
    vocab: 151_936,
    context: 40_960,
    rope_theta: 1e6,
    stretch: Stretch::None,
    norm_eps: 1e-6,
    tied: true,
    window: None,
    experts: None,
};

const QWEN3_MOE: Shape = Shape {
    arch: "qwen3moe",
    hidden: 2048,
    ffn: 6144,
    heads: 32,
    kv_heads: 4,
    layers: 48,
    rope_theta: 1e6,
    tied: false,
    experts: Some(Experts { count: 128, used: 8, width: 768 }),
    ..QWEN3
};

const LLAMA3: Shape = Shape {
    arch: "llama",
    heads: 32,
    vocab: 128_256,
    context: 131_072,
    rope_theta: 5e5,
    norm_eps: 1e-5,
    ..QWEN3
};

const OLMO2: Shape =
    Shape { arch: "olmo2", vocab: 100_352, context: 4096, rope_theta: 5e5, tied: false, ..QWEN3 };

const GEMMA3: Shape = Shape {
    arch: "gemma3",
    head_dim: 256,
    vocab: 262_144,
    context: 131_072,
    stretch: Stretch::Linear(8.0),
    window: Some(1024),
    ..QWEN3
};

/// All shapes, smallest first in each family.
#[rustfmt::skip]
pub const SHAPES: [Shape; 15] = [
    Shape { name: "qwen3-0.6b",  title: "Qwen3 0.6B",   hidden: 1024, ffn: 3072, ..QWEN3 },
    Shape { name: "qwen3-1.7b",  title: "Qwen3 1.7B",   hidden: 2048, ffn: 6144, ..QWEN3 },
    Shape { name: "qwen3-4b",    title: "Qwen3 4B",     hidden: 2560, ffn: 9728, layers: 36, heads: 32, ..QWEN3 },
    Shape { name: "qwen3-8b",    title: "Qwen3 8B",     hidden: 4096, ffn: 12288, layers: 36, heads: 32, tied: false, ..QWEN3 },
    Shape { name: "qwen3-14b",   title: "Qwen3 14B",    hidden: 5120, ffn: 17408, layers: 40, heads: 40, tied: false, ..QWEN3 },
    Shape { name: "qwen3-32b",   title: "Qwen3 32B",    hidden: 5120, ffn: 25600, layers: 64, heads: 64, tied: false, ..QWEN3 },
    Shape { name: "qwen3-30b-a3b", title: "Qwen3 30B A3B", ..QWEN3_MOE },
    Shape { name: "qwen3-235b-a22b", title: "Qwen3 235B A22B", hidden: 4096, ffn: 12288, heads: 64, layers: 94, experts: Some(Experts { count: 128, used: 8, width: 1536 }), ..QWEN3_MOE },
    Shape { name: "llama3.2-1b", title: "Llama 3.2 1B", hidden: 2048, ffn: 8192, layers: 16, head_dim: 64, stretch: Stretch::Llama3(32.0), ..LLAMA3 },
    Shape { name: "llama3.2-3b", title: "Llama 3.2 3B", hidden: 3072, ffn: 8192, heads: 24, stretch: Stretch::Llama3(32.0), ..LLAMA3 },
    Shape { name: "llama3-8b",   title: "Llama 3 8B",   hidden: 4096, ffn: 14336, layers: 32, context: 8192, tied: false, ..LLAMA3 },
    Shape { name: "llama3.3-70b", title: "Llama 3.3 70B", hidden: 8192, ffn: 28672, layers: 80, heads: 64, stretch: Stretch::Llama3(8.0), tied: false, ..LLAMA3 },
    Shape { name: "olmo2-1b",    title: "OLMo 2 1B",    hidden: 2048, ffn: 8192, layers: 16, kv_heads: 16, ..OLMO2 },
    Shape { name: "gemma3-4b",   title: "Gemma 3 4B",   hidden: 2560, ffn: 10240, layers: 34, heads: 8, kv_heads: 4, ..GEMMA3 },
    // No published model: small enough to try things out in an instant.
    Shape { name: "tiny",        title: "Tiny Qwen3",   hidden: 256, ffn: 512, layers: 2, heads: 8, kv_heads: 2, head_dim: 64, vocab: 512, context: 512, ..QWEN3 },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rope_is_stretched_from_none_to_all() {
        let shape = SHAPES.iter().find(|s| s.name == "llama3.2-1b").unwrap();
        let [(name, factors)] = &shape.values()[..] else { panic!("one tensor") };
        assert_eq!(*name, "rope_freqs.weight");
        assert_eq!((factors.len(), factors[0], factors[31]), (32, 1.0, 32.0));
        assert!(factors.is_sorted());
    }
}
