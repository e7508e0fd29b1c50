//! The shapes of published models.
//!
//! Source: the models' `config.json` as published.

use super::dense;
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
    /// More of the family's metadata, without the architecture.
    pub more: &'static [(&'static str, Stated)],
    /// Tensors of layers that the family can do without.
    pub optional: &'static [&'static str],
}

/// A value in the metadata.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stated {
    /// A whole number.
    Size(u32),
    /// Any number.
    Number(f32),
    /// A truth value.
    Bool(bool),
    /// Numbers.
    List(&'static [u32]),
    /// A number in the layers that are listed, and zero in the others. Where a shape is cut short before the
    /// first of them, in its last layer.
    Of(u32, &'static [u32]),
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
    /// Layers before those with experts.
    pub(crate) fn leading_dense(&self) -> usize {
        let of = |(name, value): &(&str, Stated)| match value {
            Stated::Size(layers) if *name == crate::facts::LEADING_DENSE => Some(*layers as usize),
            _ => None,
        };
        self.more.iter().find_map(of).unwrap_or(0)
    }

    /// Layers with keys and values: of hybrid models those that are listed, or every fourth.
    pub(crate) fn attention_layers(&self) -> usize {
        let of = |(name, value): &(&str, Stated)| match value {
            Stated::Of(_, list) if *name == crate::facts::KV_HEADS => {
                Some(list.iter().filter(|layer| (**layer as usize) < self.layers).count().max(1))
            }
            Stated::Size(_) if *name == "ssm.state_size" => Some(self.layers / 4),
            _ => None,
        };
        self.more.iter().find_map(of).unwrap_or(self.layers)
    }

    /// Whether layers differ in more than having experts.
    pub(crate) fn is_hybrid(&self) -> bool {
        self.attention_layers() < self.layers
    }

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
    /// By YaRN with this factor, from a context of so many tokens.
    Yarn(f32, u32),
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

pub(super) const QWEN3: Shape = Shape {
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
    more: &[],
    optional: &[],
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

const OLMOE: Shape = Shape {
    arch: "olmoe",
    hidden: 2048,
    ffn: 1024,
    layers: 16,
    kv_heads: 16,
    vocab: 50_304,
    context: 4096,
    rope_theta: 1e4,
    norm_eps: 1e-5,
    tied: false,
    experts: Some(Experts { count: 64, used: 8, width: 1024 }),
    ..QWEN3
};

const GPT_OSS: Shape = Shape {
    arch: "gpt-oss",
    hidden: 2880,
    ffn: 2880,
    heads: 64,
    head_dim: 64,
    vocab: 201_088,
    context: 131_072,
    rope_theta: 1.5e5,
    stretch: Stretch::Yarn(32.0, 4096),
    norm_eps: 1e-5,
    tied: false,
    window: Some(128),
    ..QWEN3
};

const GLM45: Shape = Shape {
    arch: "glm4moe",
    hidden: 4096,
    ffn: 10_944,
    layers: 46,
    heads: 96,
    vocab: 151_552,
    context: 131_072,
    norm_eps: 1e-5,
    tied: false,
    experts: Some(Experts { count: 128, used: 8, width: 1408 }),
    more: &[
        ("rope.dimension_count", Stated::Size(64)),
        ("expert_shared_count", Stated::Size(1)),
        ("leading_dense_block_count", Stated::Size(1)),
        ("expert_gating_func", Stated::Size(2)),
        ("expert_weights_norm", Stated::Bool(true)),
        ("expert_weights_scale", Stated::Number(1.0)),
    ],
    optional: &["attn_q.bias", "exp_probs_b.bias"],
    ..QWEN3
};

/// Latent attention as DeepSeek-V2 and V3 have it.
macro_rules! latent {
    ($($more:expr),* $(,)?) => {
        &[
            ("attention.kv_lora_rank", Stated::Size(512)),
            ("attention.key_length", Stated::Size(576)),
            ("attention.value_length", Stated::Size(512)),
            ("attention.key_length_mla", Stated::Size(192)),
            ("attention.value_length_mla", Stated::Size(128)),
            ("rope.dimension_count", Stated::Size(64)),
            $($more),*
        ]
    };
}

const DEEPSEEK_V2_LITE: Shape = Shape {
    arch: "deepseek2",
    hidden: 2048,
    ffn: 10_944,
    layers: 27,
    kv_heads: 1,
    head_dim: 576,
    vocab: 102_400,
    context: 163_840,
    rope_theta: 1e4,
    stretch: Stretch::Yarn(40.0, 4096),
    tied: false,
    experts: Some(Experts { count: 64, used: 6, width: 1408 }),
    more: latent![
        ("rope.scaling.yarn_log_multiplier", Stated::Number(0.0707)),
        ("expert_shared_count", Stated::Size(2)),
        ("leading_dense_block_count", Stated::Size(1)),
        ("expert_weights_scale", Stated::Number(1.0)),
    ],
    ..QWEN3
};

const DEEPSEEK_V3: Shape = Shape {
    hidden: 7168,
    ffn: 18_432,
    layers: 61,
    heads: 128,
    vocab: 129_280,
    experts: Some(Experts { count: 256, used: 8, width: 2048 }),
    more: latent![
        ("attention.q_lora_rank", Stated::Size(1536)),
        ("rope.scaling.yarn_log_multiplier", Stated::Number(0.1)),
        ("expert_shared_count", Stated::Size(1)),
        ("leading_dense_block_count", Stated::Size(3)),
        ("expert_weights_scale", Stated::Number(2.5)),
        ("expert_weights_norm", Stated::Bool(true)),
        ("expert_gating_func", Stated::Size(2)),
        ("expert_group_count", Stated::Size(8)),
        ("expert_group_used_count", Stated::Size(4)),
    ],
    optional: &["exp_probs_b.bias"],
    ..DEEPSEEK_V2_LITE
};

/// Delta nets of so many heads of keys and of values, all of 128 elements, and RoPE on a quarter of a head.
macro_rules! delta_nets {
    ($keys:literal, $values:literal $(, $more:expr)* $(,)?) => {
        &[
            ("ssm.state_size", Stated::Size(128)),
            ("ssm.group_count", Stated::Size($keys)),
            ("ssm.time_step_rank", Stated::Size($values)),
            ("ssm.inner_size", Stated::Size(128 * $values)),
            ("ssm.conv_kernel", Stated::Size(4)),
            ("rope.dimension_count", Stated::Size(64)),
            $($more),*
        ]
    };
}

const QWEN35: Shape = Shape {
    arch: "qwen35",
    layers: 32,
    kv_heads: 4,
    head_dim: 256,
    vocab: 248_320,
    context: 262_144,
    rope_theta: 1e7,
    more: delta_nets![16, 32, ("rope.dimension_sections", Stated::List(&[11, 11, 10, 0]))],
    ..QWEN3
};

const QWEN35_SMALL: Shape = Shape {
    layers: 24,
    heads: 8,
    kv_heads: 2,
    more: delta_nets![16, 16, ("rope.dimension_sections", Stated::List(&[11, 11, 10, 0]))],
    ..QWEN35
};

const QWEN35_MOE: Shape = Shape {
    arch: "qwen35moe",
    layers: 40,
    hidden: 2048,
    ffn: 512,
    kv_heads: 2,
    tied: false,
    experts: Some(Experts { count: 256, used: 8, width: 512 }),
    more: delta_nets![
        16,
        32,
        ("rope.dimension_sections", Stated::List(&[11, 11, 10, 0])),
        ("expert_shared_feed_forward_length", Stated::Size(512))
    ],
    optional: &["ffn_gate_inp_shexp.weight"],
    ..QWEN35
};

const QWEN3_NEXT: Shape = Shape {
    arch: "qwen3next",
    layers: 48,
    vocab: 151_936,
    experts: Some(Experts { count: 512, used: 10, width: 512 }),
    more: delta_nets![16, 32, ("expert_shared_feed_forward_length", Stated::Size(512))],
    ..QWEN35_MOE
};

const LFM2: Shape = Shape {
    arch: "lfm2",
    layers: 16,
    hidden: 2048,
    ffn: 8192,
    heads: 32,
    head_dim: 64,
    vocab: 65_536,
    context: 128_000,
    norm_eps: 1e-5,
    more: &[
        ("attention.head_count_kv", Stated::Of(8, &[2, 5, 8, 10, 12, 14])),
        ("shortconv.l_cache", Stated::Size(3)),
    ],
    ..QWEN3
};

const LFM2_MOE: Shape = Shape {
    arch: "lfm2moe",
    layers: 24,
    ffn: 7168,
    experts: Some(Experts { count: 32, used: 4, width: 1792 }),
    more: &[
        ("attention.head_count_kv", Stated::Of(8, &[2, 6, 10, 14, 18, 21])),
        ("shortconv.l_cache", Stated::Size(3)),
        ("leading_dense_block_count", Stated::Size(2)),
        ("expert_gating_func", Stated::Size(2)),
    ],
    optional: &["exp_probs_b.bias"],
    ..LFM2
};

const GRANITE4_TINY: Shape = Shape {
    arch: "granitehybrid",
    layers: 40,
    hidden: 1536,
    ffn: 512,
    heads: 12,
    kv_heads: 4,
    vocab: 100_352,
    context: 131_072,
    rope_theta: 1e4,
    norm_eps: 1e-5,
    experts: Some(Experts { count: 64, used: 6, width: 512 }),
    more: &[
        ("attention.head_count_kv", Stated::Of(4, &[5, 15, 25, 35])),
        ("ssm.state_size", Stated::Size(128)),
        ("ssm.group_count", Stated::Size(1)),
        ("ssm.time_step_rank", Stated::Size(48)),
        ("ssm.inner_size", Stated::Size(3072)),
        ("ssm.conv_kernel", Stated::Size(4)),
        ("rope.scaling.finetuned", Stated::Bool(false)),
        ("expert_shared_feed_forward_length", Stated::Size(1024)),
        ("embedding_scale", Stated::Number(12.0)),
        ("residual_scale", Stated::Number(0.22)),
        ("attention.scale", Stated::Number(0.007_812_5)),
        ("logit_scale", Stated::Number(6.0)),
    ],
    optional: &["ssm_norm.weight", "ssm_conv1d.bias"],
    ..QWEN3
};

/// All shapes, smallest first in each family.
#[rustfmt::skip]
pub const SHAPES: [Shape; 51] = [
    Shape { name: "qwen3-0.6b",  title: "Qwen3 0.6B",   hidden: 1024, ffn: 3072, ..QWEN3 },
    Shape { name: "qwen3-1.7b",  title: "Qwen3 1.7B",   hidden: 2048, ffn: 6144, ..QWEN3 },
    Shape { name: "qwen3-4b",    title: "Qwen3 4B",     hidden: 2560, ffn: 9728, layers: 36, heads: 32, ..QWEN3 },
    Shape { name: "qwen3-8b",    title: "Qwen3 8B",     hidden: 4096, ffn: 12288, layers: 36, heads: 32, tied: false, ..QWEN3 },
    Shape { name: "qwen3-14b",   title: "Qwen3 14B",    hidden: 5120, ffn: 17408, layers: 40, heads: 40, tied: false, ..QWEN3 },
    Shape { name: "qwen3-32b",   title: "Qwen3 32B",    hidden: 5120, ffn: 25600, layers: 64, heads: 64, tied: false, ..QWEN3 },
    Shape { name: "qwen3-30b-a3b", title: "Qwen3 30B A3B", ..QWEN3_MOE },
    Shape { name: "qwen3-235b-a22b", title: "Qwen3 235B A22B", hidden: 4096, ffn: 12288, heads: 64, layers: 94, experts: Some(Experts { count: 128, used: 8, width: 1536 }), ..QWEN3_MOE },
    Shape { name: "llama-160m",  title: "Llama 160M",   ..dense::LLAMA_160M },
    Shape { name: "sheared-llama-1.3b", title: "Sheared LLaMA 1.3B", ..dense::SHEARED_LLAMA },
    Shape { name: "llama3.2-1b", title: "Llama 3.2 1B", hidden: 2048, ffn: 8192, layers: 16, head_dim: 64, stretch: Stretch::Llama3(32.0), ..LLAMA3 },
    Shape { name: "llama3.2-3b", title: "Llama 3.2 3B", hidden: 3072, ffn: 8192, heads: 24, stretch: Stretch::Llama3(32.0), ..LLAMA3 },
    Shape { name: "llama3-8b",   title: "Llama 3 8B",   hidden: 4096, ffn: 14336, layers: 32, context: 8192, tied: false, ..LLAMA3 },
    Shape { name: "llama3.3-70b", title: "Llama 3.3 70B", hidden: 8192, ffn: 28672, layers: 80, heads: 64, stretch: Stretch::Llama3(8.0), tied: false, ..LLAMA3 },
    Shape { name: "olmo2-1b",    title: "OLMo 2 1B",    hidden: 2048, ffn: 8192, layers: 16, kv_heads: 16, ..OLMO2 },
    Shape { name: "gemma3-270m", title: "Gemma 3 270M", hidden: 640, ffn: 2048, layers: 18, heads: 4, kv_heads: 1, context: 32_768, stretch: Stretch::None, window: Some(512), ..GEMMA3 },
    Shape { name: "gemma3-4b",   title: "Gemma 3 4B",   hidden: 2560, ffn: 10240, layers: 34, heads: 8, kv_heads: 4, ..GEMMA3 },
    Shape { name: "olmoe-1b-7b", title: "OLMoE 1B 7B",  ..OLMOE },
    Shape { name: "gpt-oss-20b", title: "gpt-oss 20B",  layers: 24, experts: Some(Experts { count: 32, used: 4, width: 2880 }), ..GPT_OSS },
    Shape { name: "gpt-oss-120b", title: "gpt-oss 120B", layers: 36, experts: Some(Experts { count: 128, used: 4, width: 2880 }), ..GPT_OSS },
    Shape { name: "glm-4.5-air", title: "GLM-4.5-Air",  ..GLM45 },
    Shape { name: "deepseek-v2-lite", title: "DeepSeek-V2-Lite", ..DEEPSEEK_V2_LITE },
    Shape { name: "deepseek-v3", title: "DeepSeek-V3",  ..DEEPSEEK_V3 },
    Shape { name: "qwen3.5-0.8b", title: "Qwen3.5 0.8B", hidden: 1024, ffn: 3584, ..QWEN35_SMALL },
    Shape { name: "qwen3.5-2b",  title: "Qwen3.5 2B",   hidden: 2048, ffn: 6144, ..QWEN35_SMALL },
    Shape { name: "qwen3.5-4b",  title: "Qwen3.5 4B",   hidden: 2560, ffn: 9216, ..QWEN35 },
    Shape { name: "qwen3.5-9b",  title: "Qwen3.5 9B",   hidden: 4096, ffn: 12288, tied: false, ..QWEN35 },
    Shape { name: "qwen3.5-35b-a3b", title: "Qwen3.5 35B A3B", ..QWEN35_MOE },
    Shape { name: "qwen3-next-80b-a3b", title: "Qwen3-Next 80B A3B", ..QWEN3_NEXT },
    Shape { name: "lfm2-1.2b",   title: "LFM2 1.2B",    ..LFM2 },
    Shape { name: "lfm2-8b-a1b", title: "LFM2 8B A1B",  ..LFM2_MOE },
    Shape { name: "granite4-h-tiny", title: "Granite 4.0 H-Tiny", ..GRANITE4_TINY },
    Shape { name: "gpt2",        title: "GPT-2",        ..dense::GPT2 },
    Shape { name: "gpt2-xl",     title: "GPT-2 XL",     layers: 48, hidden: 1600, ffn: 6400, heads: 25, kv_heads: 25, ..dense::GPT2 },
    Shape { name: "pythia-6.9b", title: "Pythia 6.9B",  ..dense::PYTHIA },
    Shape { name: "phi-2",       title: "Phi-2",        ..dense::PHI2 },
    Shape { name: "falcon-7b",   title: "Falcon 7B",    ..dense::FALCON },
    Shape { name: "mpt-7b",      title: "MPT 7B",       ..dense::MPT },
    Shape { name: "bloom-7b1",   title: "BLOOM 7B1",    ..dense::BLOOM },
    Shape { name: "gemma-2b",    title: "Gemma 2B",     layers: 18, hidden: 2048, ffn: 16_384, heads: 8, kv_heads: 1, ..dense::GEMMA },
    Shape { name: "gemma-7b",    title: "Gemma 7B",     layers: 28, hidden: 3072, ffn: 24_576, heads: 16, kv_heads: 16, ..dense::GEMMA },
    Shape { name: "internlm2.5-7b", title: "InternLM2.5 7B", ..dense::INTERNLM2 },
    Shape { name: "command-r7b", title: "Command R7B",  ..dense::COMMAND_R7B },
    Shape { name: "exaone4-1.2b", title: "EXAONE 4.0 1.2B", layers: 30, hidden: 2048, ffn: 4096, heads: 32, head_dim: 64, context: 65_536, tied: true, window: None, ..dense::EXAONE4 },
    Shape { name: "exaone4-32b", title: "EXAONE 4.0 32B", ..dense::EXAONE4 },
    Shape { name: "seed-oss-36b", title: "Seed-OSS 36B", ..dense::SEED_OSS },
    Shape { name: "bitnet-2b4t", title: "BitNet b1.58 2B4T", ..dense::BITNET },
    // No published models: small enough to try things out in an instant.
    Shape { name: "tiny",        title: "Tiny Qwen3",   hidden: 256, ffn: 512, layers: 2, heads: 8, kv_heads: 2, head_dim: 64, vocab: 512, context: 512, ..QWEN3 },
    Shape { name: "tiny-moe",    title: "Tiny Qwen3 with experts", hidden: 256, ffn: 512, layers: 2, heads: 8, kv_heads: 2, head_dim: 64, vocab: 512, context: 512, experts: Some(Experts { count: 16, used: 4, width: 512 }), ..QWEN3_MOE },
    Shape { name: "tiny-mla",    title: "Tiny DeepSeek-V2", hidden: 256, ffn: 512, layers: 3, vocab: 512, context: 512, stretch: Stretch::None, experts: Some(Experts { count: 16, used: 4, width: 256 }), ..DEEPSEEK_V2_LITE },
    Shape { name: "tiny-hybrid", title: "Tiny Qwen3.5", hidden: 256, ffn: 512, layers: 4, heads: 4, kv_heads: 2, head_dim: 64, vocab: 512, context: 512, more: &[("ssm.state_size", Stated::Size(64)), ("ssm.group_count", Stated::Size(8)), ("ssm.time_step_rank", Stated::Size(16)), ("ssm.inner_size", Stated::Size(512)), ("ssm.conv_kernel", Stated::Size(4)), ("rope.dimension_sections", Stated::List(&[11, 11, 10, 0]))], ..QWEN35 },
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
