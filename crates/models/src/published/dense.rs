//! Shapes of dense families that have no other ones in the table than these.

use super::shapes::{QWEN3, Shape, Stated, Stretch};

/// What models of 2019 to 2023 have in common.
const OLD: Shape = Shape { rope_theta: 1e4, norm_eps: 1e-5, context: 2048, ..QWEN3 };

/// JackFram's model of a draft's size, which papers on serving call "Llama 160M".
#[rustfmt::skip]
pub(super) const LLAMA_160M: Shape = Shape { arch: "llama", layers: 12, hidden: 768, ffn: 3072, heads: 12, kv_heads: 12, head_dim: 64, vocab: 32_000, norm_eps: 1e-6, tied: false, ..OLD };

/// The published Llama of 1.3 billion parameters.
#[rustfmt::skip]
pub(super) const SHEARED_LLAMA: Shape = Shape { arch: "llama", layers: 24, hidden: 2048, ffn: 5504, kv_heads: 16, vocab: 32_000, context: 4096, tied: false, ..OLD };

#[rustfmt::skip]
pub(super) const GPT2: Shape = Shape { arch: "gpt2", layers: 12, hidden: 768, ffn: 3072, heads: 12, kv_heads: 12, head_dim: 64, vocab: 50_257, context: 1024, ..OLD };

#[rustfmt::skip]
pub(super) const PYTHIA: Shape = Shape { arch: "gptneox", layers: 32, hidden: 4096, ffn: 16_384, heads: 32, kv_heads: 32, vocab: 50_432, tied: false, more: &[("rope.dimension_count", Stated::Size(32))], ..OLD };

#[rustfmt::skip]
pub(super) const PHI2: Shape = Shape { arch: "phi2", layers: 32, hidden: 2560, ffn: 10_240, heads: 32, kv_heads: 32, head_dim: 80, vocab: 51_200, tied: false, more: &[("rope.dimension_count", Stated::Size(32))], ..OLD };

#[rustfmt::skip]
pub(super) const FALCON: Shape = Shape { arch: "falcon", layers: 32, hidden: 4544, ffn: 18_176, heads: 71, kv_heads: 1, head_dim: 64, vocab: 65_024, ..OLD };

#[rustfmt::skip]
pub(super) const MPT: Shape = Shape { arch: "mpt", layers: 32, hidden: 4096, ffn: 16_384, heads: 32, kv_heads: 32, vocab: 50_432, more: &[("attention.max_alibi_bias", Stated::Number(8.0))], ..OLD };

#[rustfmt::skip]
pub(super) const BLOOM: Shape = Shape { arch: "bloom", layers: 30, hidden: 4096, ffn: 16_384, heads: 32, kv_heads: 32, vocab: 250_880, ..OLD };

pub(super) const GEMMA: Shape =
    Shape { arch: "gemma", head_dim: 256, vocab: 256_000, context: 8192, rope_theta: 1e4, ..QWEN3 };

#[rustfmt::skip]
pub(super) const INTERNLM2: Shape = Shape { arch: "internlm2", layers: 32, hidden: 4096, ffn: 14_336, heads: 32, vocab: 92_544, context: 32_768, norm_eps: 1e-5, tied: false, ..QWEN3 };

#[rustfmt::skip]
pub(super) const COMMAND_R7B: Shape = Shape { arch: "cohere2", layers: 32, hidden: 4096, ffn: 14_336, heads: 32, vocab: 256_000, context: 131_072, rope_theta: 5e4, norm_eps: 1e-5, window: Some(4096), more: &[("logit_scale", Stated::Number(0.25))], ..QWEN3 };

#[rustfmt::skip]
pub(super) const EXAONE4: Shape = Shape { arch: "exaone4", layers: 64, hidden: 5120, ffn: 27_392, heads: 40, vocab: 102_400, context: 131_072, stretch: Stretch::Llama3(16.0), norm_eps: 1e-5, tied: false, window: Some(4096), ..QWEN3 };

#[rustfmt::skip]
pub(super) const SEED_OSS: Shape = Shape { arch: "seed_oss", layers: 64, hidden: 5120, ffn: 27_648, heads: 80, vocab: 155_136, context: 524_288, rope_theta: 1e7, tied: false, optional: &["attn_q.bias", "attn_k.bias", "attn_v.bias"], ..QWEN3 };

#[rustfmt::skip]
pub(super) const BITNET: Shape = Shape { arch: "bitnet", layers: 30, hidden: 2560, ffn: 6912, heads: 20, kv_heads: 5, vocab: 128_256, context: 4096, rope_theta: 5e5, norm_eps: 1e-5, ..QWEN3 };
