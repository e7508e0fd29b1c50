//! Real models' shapes, and the mixes of types that their published files have.
//!
//! Source: the models' `config.json` as published; the choice of types per tensor is that of
//! llama.cpp's `llama-quantize` (`src/llama-quant.cpp`), so that files have the usual sizes.

use gguf::TensorType;
use std::fmt;

/// Families differ in norms, in RoPE and in their vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Qwen3,
    Llama3,
    Olmo2,
    Gemma3,
}

/// Hyper-parameters of a published model.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) family: Family,
    pub(crate) layers: usize,
    pub(crate) hidden: usize,
    pub(crate) ffn: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) vocab: usize,
    pub(crate) context: u32,
    pub(crate) rope_theta: f32,
    pub(crate) norm_eps: f32,
    /// The output head is the embedding matrix.
    pub(crate) tied: bool,
    /// Stretches RoPE from a context of 8192 as Llama 3.1 does, by this factor.
    pub(crate) rope_factor: Option<f32>,
    /// Keys that a token sees in layers with a sliding window.
    pub(crate) window: Option<u32>,
}

const QWEN3: Shape = Shape {
    name: "",
    title: "",
    family: Family::Qwen3,
    layers: 28,
    hidden: 0,
    ffn: 0,
    heads: 16,
    kv_heads: 8,
    head_dim: 128,
    vocab: 151_936,
    context: 40_960,
    rope_theta: 1e6,
    norm_eps: 1e-6,
    tied: true,
    rope_factor: None,
    window: None,
};

const LLAMA3: Shape = Shape {
    family: Family::Llama3,
    heads: 32,
    vocab: 128_256,
    context: 131_072,
    rope_theta: 5e5,
    norm_eps: 1e-5,
    ..QWEN3
};

const OLMO2: Shape = Shape {
    family: Family::Olmo2,
    vocab: 100_352,
    context: 4096,
    rope_theta: 5e5,
    tied: false,
    ..QWEN3
};

const GEMMA3: Shape = Shape {
    family: Family::Gemma3,
    head_dim: 256,
    vocab: 262_144,
    context: 131_072,
    window: Some(1024),
    ..QWEN3
};

/// All shapes, smallest first in each family.
#[rustfmt::skip]
pub(crate) const SHAPES: [Shape; 10] = [
    Shape { name: "qwen3-0.6b",  title: "Qwen3 0.6B",   hidden: 1024, ffn: 3072, ..QWEN3 },
    Shape { name: "qwen3-1.7b",  title: "Qwen3 1.7B",   hidden: 2048, ffn: 6144, ..QWEN3 },
    Shape { name: "qwen3-4b",    title: "Qwen3 4B",     hidden: 2560, ffn: 9728, layers: 36, heads: 32, ..QWEN3 },
    Shape { name: "qwen3-8b",    title: "Qwen3 8B",     hidden: 4096, ffn: 12288, layers: 36, heads: 32, tied: false, ..QWEN3 },
    Shape { name: "llama3.2-1b", title: "Llama 3.2 1B", hidden: 2048, ffn: 8192, layers: 16, head_dim: 64, rope_factor: Some(32.0), ..LLAMA3 },
    Shape { name: "llama3.2-3b", title: "Llama 3.2 3B", hidden: 3072, ffn: 8192, heads: 24, rope_factor: Some(32.0), ..LLAMA3 },
    Shape { name: "llama3-8b",   title: "Llama 3 8B",   hidden: 4096, ffn: 14336, layers: 32, context: 8192, tied: false, ..LLAMA3 },
    Shape { name: "olmo2-1b",    title: "OLMo 2 1B",    hidden: 2048, ffn: 8192, layers: 16, kv_heads: 16, ..OLMO2 },
    Shape { name: "gemma3-4b",   title: "Gemma 3 4B",   hidden: 2560, ffn: 10240, layers: 34, heads: 8, kv_heads: 4, ..GEMMA3 },
    // No published model: small enough to try things out in an instant.
    Shape { name: "tiny",        title: "Tiny Qwen3",   hidden: 256, ffn: 512, layers: 2, heads: 8, kv_heads: 2, head_dim: 64, vocab: 512, context: 512, ..QWEN3 },
];

/// A type for the whole file, which for some of its tensors means another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mix {
    pub(crate) name: &'static str,
    /// As files and tools write it.
    pub(crate) title: &'static str,
    /// `general.file_type`.
    pub(crate) file_type: u32,
    base: TensorType,
    head: TensorType,
    /// Half of the layers have this for the attention's values and the feed-forward's output.
    better: TensorType,
}

/// All mixes.
#[rustfmt::skip]
pub(crate) const MIXES: [Mix; 27] = {
    use TensorType::*;
    const fn all(name: &'static str, title: &'static str, file_type: u32, ty: TensorType) -> Mix {
        Mix { name, title, file_type, base: ty, head: ty, better: ty }
    }
    const fn headed(name: &'static str, title: &'static str, file_type: u32, ty: TensorType) -> Mix {
        Mix { head: Q6_K, ..all(name, title, file_type, ty) }
    }
    [
        all("f32", "F32", 0, F32),
        all("f16", "F16", 1, F16),
        all("bf16", "BF16", 32, BF16),
        all("q8_0", "Q8_0", 7, Q8_0),
        all("q6_k", "Q6_K", 18, Q6_K),
        Mix { better: Q6_K, ..headed("q5_k_m", "Q5_K_M", 17, Q5_K) },
        headed("q5_k", "Q5_K", 16, Q5_K),
        headed("q5_1", "Q5_1", 9, Q5_1),
        headed("q5_0", "Q5_0", 8, Q5_0),
        Mix { better: Q6_K, ..headed("q4_k_m", "Q4_K_M", 15, Q4_K) },
        headed("q4_k", "Q4_K", 14, Q4_K),
        headed("q4_1", "Q4_1", 3, Q4_1),
        headed("iq4_nl", "IQ4_NL", 25, IQ4_NL),
        headed("iq4_xs", "IQ4_XS", 30, IQ4_XS),
        headed("mxfp4", "MXFP4", 38, MXFP4),
        headed("q3_k", "Q3_K", 11, Q3_K),
        headed("iq3_s", "IQ3_S", 26, IQ3_S),
        headed("iq3_xxs", "IQ3_XXS", 23, IQ3_XXS),
        headed("q2_k", "Q2_K", 10, Q2_K),
        headed("iq2_s", "IQ2_S", 28, IQ2_S),
        headed("iq2_xs", "IQ2_XS", 20, IQ2_XS),
        headed("iq2_xxs", "IQ2_XXS", 19, IQ2_XXS),
        headed("tq2_0", "TQ2_0", 37, TQ2_0),
        headed("tq1_0", "TQ1_0", 36, TQ1_0),
        headed("iq1_m", "IQ1_M", 31, IQ1_M),
        headed("iq1_s", "IQ1_S", 24, IQ1_S),
        headed("q4_0", "Q4_0", 2, Q4_0),
    ]
};

/// What a tensor is, as far as its type and its random values depend on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Role {
    /// A norm's weights: about 1.
    Norm,
    /// Divisors of RoPE frequencies.
    RopeFactors,
    /// A matrix that reads `fan_in` values; `damped` if its output is added to the residual
    /// stream.
    Matrix { damped: bool },
}

/// One tensor of a model.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) name: String,
    /// Contiguous one first.
    pub(crate) dims: Vec<usize>,
    pub(crate) ty: TensorType,
    pub(crate) role: Role,
}

impl Spec {
    pub(crate) fn elements(&self) -> usize {
        self.dims.iter().product()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.ty.bytes_for(self.elements()).expect("all widths are whole blocks")
    }
}

/// A shape in a type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Model {
    pub(crate) shape: &'static Shape,
    pub(crate) mix: Mix,
}

impl Model {
    /// The tensors in the usual order.
    pub(crate) fn tensors(&self) -> Vec<Spec> {
        let Model { shape: s, mix } = self;
        let matrix = |name: &str, cols, rows, ty| {
            let damped = name.ends_with("attn_output.weight") || name.ends_with("ffn_down.weight");
            Spec {
                name: name.to_owned(),
                dims: vec![cols, rows],
                ty,
                role: Role::Matrix { damped },
            }
        };
        let vector = |name: &str, len, role| Spec {
            name: name.to_owned(),
            dims: vec![len],
            ty: TensorType::F32,
            role,
        };
        let embedding = if s.tied { mix.head } else { mix.base };
        let mut all = vec![matrix("token_embd.weight", s.hidden, s.vocab, embedding)];
        if s.rope_factor.is_some() {
            all.push(vector("rope_freqs.weight", s.head_dim / 2, Role::RopeFactors));
        }
        let (q, kv) = (s.heads * s.head_dim, s.kv_heads * s.head_dim);
        for layer in 0..s.layers {
            let name = |tensor: &str| format!("blk.{layer}.{tensor}.weight");
            let more = if more_bits(layer, s.layers) { mix.better } else { mix.base };
            let norm = |tensor: &str, len| vector(&name(tensor), len, Role::Norm);
            let (before, after) = match s.family {
                Family::Qwen3 | Family::Llama3 => (true, false),
                Family::Olmo2 => (false, true),
                Family::Gemma3 => (true, true),
            };
            if before {
                all.push(norm("attn_norm", s.hidden));
            }
            all.push(matrix(&name("attn_q"), s.hidden, q, mix.base));
            all.push(matrix(&name("attn_k"), s.hidden, kv, mix.base));
            all.push(matrix(&name("attn_v"), s.hidden, kv, more));
            let qk_norms = match s.family {
                Family::Qwen3 | Family::Gemma3 => Some((s.head_dim, s.head_dim)),
                Family::Olmo2 => Some((q, kv)),
                Family::Llama3 => None,
            };
            if let Some((q, k)) = qk_norms {
                all.extend([norm("attn_q_norm", q), norm("attn_k_norm", k)]);
            }
            all.push(matrix(&name("attn_output"), q, s.hidden, mix.base));
            if after {
                all.push(norm("post_attention_norm", s.hidden));
            }
            if before {
                all.push(norm("ffn_norm", s.hidden));
            }
            all.push(matrix(&name("ffn_gate"), s.hidden, s.ffn, mix.base));
            all.push(matrix(&name("ffn_up"), s.hidden, s.ffn, mix.base));
            all.push(matrix(&name("ffn_down"), s.ffn, s.hidden, more));
            if after {
                all.push(norm("post_ffw_norm", s.hidden));
            }
        }
        all.push(vector("output_norm.weight", s.hidden, Role::Norm));
        if !s.tied {
            all.push(matrix("output.weight", s.hidden, s.vocab, mix.head));
        }
        all
    }

    /// Bytes of all tensors.
    pub(crate) fn bytes(&self) -> usize {
        self.tensors().iter().map(Spec::bytes).sum()
    }
}

/// llama-quantize's rule for the layers that get more bits: the first eighth, the last, and every
/// third of those between.
fn more_bits(layer: usize, layers: usize) -> bool {
    let eighth = layers / 8;
    layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.shape.name, self.mix.name)
    }
}

impl std::str::FromStr for Model {
    type Err = String;

    fn from_str(text: &str) -> Result<Model, String> {
        let names = |of: &[&str]| of.join(", ");
        let shapes = SHAPES.each_ref().map(|s| s.name);
        let mixes = MIXES.each_ref().map(|m| m.name);
        let (shape, mix) = text.split_once(':').ok_or_else(|| {
            "give a shape and a type with a colon between them, such as qwen3-0.6b:q4_0".to_owned()
        })?;
        let shape = SHAPES
            .iter()
            .find(|s| s.name.eq_ignore_ascii_case(shape))
            .ok_or_else(|| format!("there is no shape {shape:?}: use one of {}", names(&shapes)))?;
        let mix = MIXES
            .iter()
            .find(|m| m.name.eq_ignore_ascii_case(mix))
            .ok_or_else(|| format!("there is no type {mix:?}: use one of {}", names(&mixes)))?;
        Ok(Model { shape, mix: *mix })
    }
}

/// The table of shapes and types for `--help`.
pub(crate) fn help() -> String {
    let mut text = "Shapes (size as q4_0, in GB):\n".to_owned();
    let q4_0 = MIXES[MIXES.len() - 1];
    for shape in &SHAPES {
        let gb = Model { shape, mix: q4_0 }.bytes() as f64 / 1e9;
        text += &match gb < 0.01 {
            false => format!("  {:<12} {gb:>6.2}  {}\n", shape.name, shape.title),
            true => {
                format!("  {:<12} {gb:>6.3}  no published model: to try things out\n", shape.name)
            }
        };
    }
    let mixes = MIXES.each_ref().map(|m| m.name).join(", ");
    text + &format!(
        "\nTypes:\n  {mixes}\n  (files of 5 bits and fewer have a Q6_K head, as published ones do)\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(text: &str) -> Model {
        text.parse().unwrap()
    }

    #[test]
    fn sizes_and_counts_are_those_of_the_published_models() {
        let params = |text| model(text).tensors().iter().map(Spec::elements).sum::<usize>();
        // From the models' cards, or the sum of their safetensors.
        assert_eq!(params("qwen3-0.6b:f32"), 596_049_920);
        assert_eq!(params("qwen3-8b:f32"), 8_190_735_360);
        assert_eq!(params("llama3.2-1b:f32") - 32, 1_235_814_400);
        assert_eq!(params("llama3-8b:f32"), 8_030_261_248);
        assert_eq!(params("olmo2-1b:f32"), 1_484_916_736);
        // Of 4.3 billion, without the 420 million that see images.
        assert_eq!(params("gemma3-4b:f32"), 3_880_099_328);
        // Files of 2.37 GB, 6 MB of it metadata and 319 MB the head.
        let tensors = model("qwen3-4b:q4_0").tensors();
        assert_eq!(tensors[0].bytes() / 1_000_000, 319);
        assert_eq!(model("qwen3-4b:q4_0").bytes() / 1_000_000, 2363);
    }

    #[test]
    fn half_of_the_layers_of_q4_k_m_have_more_bits() {
        let tensors = model("qwen3-4b:q4_k_m").tensors();
        let of = |tensor: &str, ty| {
            tensors.iter().filter(|t| t.name.ends_with(tensor) && t.ty == ty).count()
        };
        assert_eq!(of("attn_v.weight", TensorType::Q6_K), 18);
        assert_eq!(of("ffn_down.weight", TensorType::Q6_K), 18);
        assert_eq!(of("ffn_up.weight", TensorType::Q6_K), 0);
    }

    #[test]
    fn unknown_names_are_told_with_the_known_ones() {
        let error = |text: &str| text.parse::<Model>().unwrap_err();
        assert!(error("qwen9:q4_0").contains("\"qwen9\"") && error("qwen9:q4_0").contains("tiny"));
        assert!(error("tiny:q9").contains("\"q9\"") && error("tiny:q9").contains("q4_k_m"));
        assert!(error("tiny").contains("colon"));
        assert_eq!(model("Qwen3-4B:Q4_K_M").to_string(), "qwen3-4b:q4_k_m");
    }
}
