//! Which type each tensor gets.
//!
//! Files are called after mixes: most matrices have the mix's base type, those whose errors hurt most
//! have a better one. The choice is llama.cpp's (`src/llama-quant.cpp`), so that files have the usual
//! sizes.

use gguf::TYPES;
use gguf::TensorType::{self, *};
use models::published::{fit, more_bits};
use std::cmp::Reverse;
use std::str::FromStr;

/// A kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mix {
    pub(crate) name: &'static str,
    /// `general.file_type`.
    pub(crate) file_type: u32,
    /// The type of most matrices.
    pub(crate) base: TensorType,
}

/// Mixes that are not of one plain type, but for their exceptions.
const MIXED: [Mix; 9] = {
    const fn mix(name: &'static str, file_type: u32, base: TensorType) -> Mix {
        Mix { name, file_type, base }
    }
    [
        mix("Q5_K_M", 17, Q5_K),
        mix("Q4_K_M", 15, Q4_K),
        mix("Q3_K_L", 13, Q3_K),
        mix("Q3_K_M", 12, Q3_K),
        mix("Q2_K_S", 21, Q2_K),
        mix("IQ3_M", 27, IQ3_S),
        mix("IQ3_XS", 22, IQ3_S),
        mix("IQ2_M", 29, IQ2_S),
        mix("IQ2_S", 28, IQ2_XS),
    ]
};

/// All mixes, by the bits of most matrices.
pub(crate) fn mixes() -> Vec<Mix> {
    let plain = TYPES.iter().map(|info| {
        let (file_type, name) = info.file;
        Mix { name, file_type, base: info.ty }
    });
    let plain = plain.filter(|mix| MIXED.iter().all(|mixed| mixed.name != mix.name));
    let mut all: Vec<Mix> = MIXED.into_iter().chain(plain).collect();
    all.sort_by_key(|mix| Reverse(256 / mix.base.block_len() * mix.base.block_bytes()));
    all
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(name: &str) -> Result<Mix, String> {
        let names = || mixes().iter().map(|mix| mix.name).collect::<Vec<_>>().join(", ");
        let found = mixes().into_iter().find(|mix| mix.name.eq_ignore_ascii_case(name));
        found.ok_or_else(|| format!("no such type; there are {}", names()))
    }
}

/// What the choice depends on, of the whole model.
#[derive(Clone, Copy, Debug)]
pub(super) struct About {
    pub(super) layers: usize,
    /// Query heads to a KV head.
    pub(super) group: usize,
    /// Experts of a layer; 0 if there are none.
    pub(super) experts: usize,
    /// The head is the embedding matrix.
    pub(super) tied: bool,
    /// There is an importance matrix.
    pub(super) importance: bool,
}

/// The layer of a tensor and what it is there: `(3, "attn_q")` of `blk.3.attn_q.weight`. Matrices of
/// experts are as those of a dense layer.
fn in_layer(name: &str) -> Option<(usize, &str)> {
    let name = name.strip_prefix("enc.").unwrap_or(name);
    let (layer, rest) = name.strip_prefix("blk.")?.split_once('.')?;
    let tensor = rest.strip_suffix(".weight")?;
    let dense = tensor.strip_suffix("_exps").or(tensor.strip_suffix("_shexp"));
    Some((layer.parse().ok()?, dense.unwrap_or(tensor)))
}

/// Models of so many experts have little attention beside them, which may cost more bits: Mixtral.
const FEW_EXPERTS: usize = 8;

impl Mix {
    /// The type of a matrix with rows of `cols`.
    pub(super) fn choose(&self, name: &str, cols: usize, of: &About) -> TensorType {
        if self.base.block_len() == 1 {
            return self.base;
        }
        fit(self.wish(name, cols, of), cols)
    }

    fn wish(&self, name: &str, cols: usize, of: &About) -> TensorType {
        let low = matches!(self.base, IQ3_XXS | IQ2_XXS | IQ2_XS | IQ2_S | IQ1_S | IQ1_M);
        let head = name == "output.weight" || of.tied && name == "token_embd.weight";
        match (self.name, name) {
            ("MXFP4", "output.weight" | "token_embd.weight") => return Q8_0,
            ("MXFP4", _) if of.experts > 0 && !name.ends_with("_exps.weight") => return Q8_0,
            _ if head && !cols.is_multiple_of(self.base.block_len()) => return Q8_0,
            _ if head && low => return Q5_K,
            _ if head && self.base != Q8_0 => return Q6_K,
            ("TQ1_0" | "TQ2_0", "token_embd.weight") => return Q4_K,
            ("IQ2_XXS" | "IQ2_XS" | "IQ1_S" | "IQ1_M", "token_embd.weight") => return Q2_K,
            ("IQ2_S" | "IQ2_M" | "IQ3_XXS", "token_embd.weight") => return IQ3_S,
            _ => {}
        }
        let Some((layer, tensor)) = in_layer(name) else { return self.base };
        let first_eighth = layer < of.layers / 8;
        // Few bits for V cost much, and V is small where many query heads share it.
        match (tensor, self.name) {
            ("attn_v" | "attn_k", _) if of.experts == FEW_EXPERTS => {
                if low && self.base != IQ3_XXS { Q4_K } else { Q8_0 }
            }
            ("attn_output", name) if of.experts == FEW_EXPERTS => {
                let better = [
                    "Q2_K", "IQ3_XS", "IQ3_S", "IQ3_M", "Q3_K_S", "Q3_K_M", "IQ4_NL", "IQ4_XS",
                    "Q4_K_S", "Q4_K_M",
                ];
                if low || better.contains(&name) { Q5_K } else { self.base }
            }
            ("attn_v" | "attn_qkv", _) => self.values(layer, of),
            ("ffn_down", "Q2_K") => Q3_K,
            ("ffn_down", "Q2_K_S") if first_eighth => Q4_K,
            ("ffn_down", "Q3_K_M") if layer < of.layers / 16 => Q5_K,
            ("ffn_down", "Q3_K_M") => Q4_K,
            ("ffn_down", "Q3_K_L") => Q5_K,
            ("ffn_down", "Q4_K_M" | "Q5_K_M") if more_bits(layer, of.layers) => Q6_K,
            ("ffn_down", "Q4_K_S") if first_eighth => Q5_K,
            ("ffn_down", "IQ4_NL" | "IQ4_XS") if first_eighth && !of.importance => Q5_K,
            ("ffn_down", "Q4_0") if first_eighth && of.importance => Q4_1,
            ("ffn_down", "Q5_0") if first_eighth && of.importance => Q5_1,
            ("ffn_down", "IQ3_M") if first_eighth => Q4_K,
            ("ffn_down", "IQ3_M") if of.experts == FEW_EXPERTS && more_bits(layer, of.layers) => {
                Q4_K
            }
            ("ffn_down", "IQ3_XXS") if first_eighth && !of.importance => Q4_K,
            ("ffn_down", "IQ3_XXS") if !of.importance => Q3_K,
            ("ffn_down", "IQ2_S" | "IQ2_M") if first_eighth => IQ3_S,
            ("ffn_down", "IQ2_XXS" | "IQ2_XS" | "IQ1_S" | "IQ1_M") if first_eighth => Q2_K,
            ("ffn_gate" | "ffn_up", "IQ3_XS") if !first_eighth && layer < 7 * of.layers / 8 => {
                IQ3_XXS
            }
            ("attn_q" | "attn_k", "IQ3_XS") => IQ3_XXS,
            ("attn_q" | "attn_k", "IQ3_XXS") => IQ2_S,
            ("attn_output", "Q2_K") => Q3_K,
            ("attn_output", "Q3_K_M" | "IQ3_M") => Q4_K,
            ("attn_output", "Q3_K_L") => Q5_K,
            ("attn_output", "IQ3_XXS" | "IQ2_S" | "IQ2_M") => IQ3_S,
            ("attn_output", "IQ1_S" | "IQ1_M") => IQ2_XXS,
            _ => self.base,
        }
    }

    /// The type of V, alone or with Q and K.
    fn values(&self, layer: usize, of: &About) -> TensorType {
        let shared = of.group >= 4;
        match self.name {
            "Q2_K" if !shared => Q3_K,
            "Q2_K" | "Q2_K_S" | "IQ3_XXS" | "IQ3_XS" | "IQ3_S" if shared => Q4_K,
            "IQ2_XXS" | "IQ2_XS" | "IQ2_S" | "IQ2_M" | "IQ1_S" | "IQ1_M"
                if shared || of.experts >= 4 =>
            {
                Q4_K
            }
            "IQ2_S" | "IQ2_M" => IQ3_S,
            "IQ2_XXS" | "IQ2_XS" | "IQ1_S" | "IQ1_M" => Q2_K,
            "IQ3_XXS" if !of.importance => IQ3_S,
            "IQ3_M" => Q4_K,
            "Q3_K_M" if layer < 2 => Q5_K,
            "Q3_K_M" => Q4_K,
            "Q3_K_L" => Q5_K,
            "IQ4_NL" | "IQ4_XS" if shared => Q5_K,
            "Q4_K_M" | "Q5_K_M" if more_bits(layer, of.layers) => Q6_K,
            "Q4_K_S" if layer < 4 => Q5_K,
            _ => self.base,
        }
    }

    /// Whether a tensor of the type would be of no use without importances. Vocabularies have none.
    pub(super) fn needs_importance(&self, name: &str, ty: TensorType) -> bool {
        let vocabulary = matches!(name, "token_embd.weight" | "output.weight");
        !vocabulary && (!ty.can_quantize() || self.name == "Q2_K_S" && ty == Q2_K)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QWEN3: About = About { layers: 28, group: 2, experts: 0, tied: true, importance: false };

    fn layers_with(mix: &str, tensor: &str, ty: TensorType, of: &About) -> Vec<usize> {
        let mix: Mix = mix.parse().unwrap();
        let ty_of = |layer| mix.choose(&format!("blk.{layer}.{tensor}.weight"), 1024, of);
        (0..of.layers).filter(|&layer| ty_of(layer) == ty).collect()
    }

    #[test]
    fn half_of_the_layers_are_better_in_a_medium_mix() {
        let better = [0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 24, 25, 26, 27];
        for tensor in ["attn_v", "ffn_down"] {
            assert_eq!(layers_with("q4_k_m", tensor, Q6_K, &QWEN3), better);
            assert_eq!(layers_with("q5_k_m", tensor, Q6_K, &QWEN3), better);
        }
        assert_eq!(layers_with("q4_k_m", "attn_q", Q4_K, &QWEN3).len(), 28);
        assert_eq!(layers_with("q4_k_s", "attn_v", Q5_K, &QWEN3), [0, 1, 2, 3]);
        assert_eq!(layers_with("q4_k_s", "ffn_down", Q5_K, &QWEN3), [0, 1, 2]);
        assert_eq!(layers_with("q3_k_m", "ffn_down", Q5_K, &QWEN3), [0]);
    }

    #[test]
    fn values_that_many_queries_share_are_better() {
        let four = About { group: 4, ..QWEN3 };
        assert_eq!(layers_with("q2_k", "attn_v", Q3_K, &QWEN3).len(), 28);
        assert_eq!(layers_with("q2_k", "attn_v", Q4_K, &four).len(), 28);
        assert_eq!(layers_with("iq4_xs", "attn_v", Q5_K, &four).len(), 28);
    }

    #[test]
    fn importances_make_exceptions_unneeded() {
        let knowing = About { importance: true, ..QWEN3 };
        for (mix, tensor, better) in [
            ("iq4_xs", "ffn_down", Q5_K),
            ("iq3_xxs", "ffn_down", Q4_K),
            ("iq3_xxs", "attn_v", IQ3_S),
        ] {
            assert!(layers_with(mix, tensor, better, &QWEN3).len() >= 3, "{mix}");
            assert_eq!(layers_with(mix, tensor, better, &knowing), [0; 0], "{mix}");
        }
        // But for these, whose importances are misleading there.
        assert_eq!(layers_with("q4_0", "ffn_down", Q4_1, &knowing), [0, 1, 2]);
        assert_eq!(layers_with("q4_0", "ffn_down", Q4_1, &QWEN3), [0; 0]);
    }

    #[test]
    fn only_matrices_of_few_bits_need_importances() {
        let needs = |mix: &str, name, ty| mix.parse::<Mix>().unwrap().needs_importance(name, ty);
        assert!(needs("iq2_m", "blk.0.attn_q.weight", IQ2_S));
        assert!(!needs("iq2_m", "blk.0.attn_v.weight", IQ3_S));
        assert!(!needs("iq2_xxs", "token_embd.weight", IQ2_XXS));
        assert!(needs("q2_k_s", "blk.0.attn_q.weight", Q2_K));
        assert!(!needs("q2_k", "blk.0.attn_q.weight", Q2_K));
    }

    #[test]
    fn q_k_and_v_in_one_are_as_v() {
        let better = [0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 24, 25, 26, 27];
        assert_eq!(layers_with("q4_k_m", "attn_qkv", Q6_K, &QWEN3), better);
        assert_eq!(layers_with("iq2_xs", "attn_qkv", Q2_K, &QWEN3).len(), 28);
    }

    #[test]
    fn experts_are_as_dense_layers_and_few_of_them_have_better_attention() {
        let better = layers_with("q4_k_m", "ffn_down", Q6_K, &QWEN3);
        let many = About { experts: 128, ..QWEN3 };
        assert_eq!(layers_with("q4_k_m", "ffn_down_exps", Q6_K, &many), better);
        assert_eq!(layers_with("q4_k_m", "ffn_down_shexp", Q6_K, &many), better);
        assert_eq!(layers_with("q4_k_m", "ffn_up_exps", Q4_K, &many).len(), 28);
        let eight = About { experts: 8, ..QWEN3 };
        for (mix, tensor, ty) in [
            ("q4_k_m", "attn_v", Q8_0),
            ("q4_k_m", "attn_k", Q8_0),
            ("q4_k_m", "attn_output", Q5_K),
            ("q5_k_m", "attn_output", Q5_K),
            ("q4_0", "attn_output", Q4_0),
            ("iq2_xs", "attn_k", Q4_K),
            ("iq2_xs", "attn_output", Q5_K),
        ] {
            assert_eq!(layers_with(mix, tensor, ty, &eight).len(), 28, "{mix} {tensor}");
        }
        assert_eq!(layers_with("iq2_xs", "attn_v", Q4_K, &many).len(), 28);
        // Experts alone are of this type.
        assert_eq!(layers_with("mxfp4", "ffn_up_exps", MXFP4, &many).len(), 28);
        assert_eq!(layers_with("mxfp4", "ffn_up_shexp", Q8_0, &many).len(), 28);
        assert_eq!(layers_with("mxfp4", "ffn_up", MXFP4, &QWEN3).len(), 28);
    }

    #[test]
    fn the_head_has_six_bits_wherever_it_is() {
        let (mix, untied) = ("q4_0".parse::<Mix>().unwrap(), About { tied: false, ..QWEN3 });
        assert_eq!(mix.choose("token_embd.weight", 1024, &QWEN3), Q6_K);
        assert_eq!(mix.choose("token_embd.weight", 1024, &untied), Q4_0);
        assert_eq!(mix.choose("output.weight", 1024, &untied), Q6_K);
        assert_eq!("f16".parse::<Mix>().unwrap().choose("output.weight", 1024, &untied), F16);
    }

    #[test]
    fn rows_that_do_not_fill_blocks_get_smaller_blocks() {
        assert_eq!([fit(Q4_K, 512), fit(Q4_K, 96), fit(Q4_K, 80)], [Q4_K, Q5_0, F16]);
        assert_eq!([fit(Q6_K, 96), fit(Q3_K, 96), fit(IQ4_XS, 96)], [Q8_0, Q4_0, IQ4_NL]);
        assert_eq!([fit(IQ1_S, 96), fit(IQ3_S, 96)], [IQ4_NL, IQ4_NL]);
        assert_eq!([fit(Q8_0, 80), fit(MXFP4, 80)], [F16, F16]);
    }
}
