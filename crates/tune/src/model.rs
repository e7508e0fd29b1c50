//! The shape of a dense transformer, in the numbers that decide how many bytes and products a step
//! costs.

use crate::machine::Math;
use crate::work::Work;

/// Layers that see so many tokens and no more.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// How many layers have it.
    pub layers: usize,
    /// Tokens that a token sees in them, itself included.
    pub tokens: usize,
}

/// Sizes of a dense decoder with grouped-query attention.
///
/// Matrices of different types count with the mean of their bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelShape {
    /// Layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Width of the MLP.
    pub ff: usize,
    /// Matrices from `hidden` to `ff`: 2 (gate and up) where the MLP is gated, else 1.
    pub ff_inputs: usize,
    /// Tokens of the vocabulary.
    pub vocab: usize,
    /// Layers with a sliding window.
    pub window: Option<Window>,
    /// Bytes per weight of the layers' matrices.
    pub layer_weight: f64,
    /// What the layers' matrices are multiplied as.
    pub layer_math: Math,
    /// Bytes per weight of the LM head.
    pub head_weight: f64,
    /// What the LM head is multiplied as.
    pub head_math: Math,
    /// Bytes per element of the KV cache.
    pub kv_element: f64,
}

/// A matrix, or several that are multiplied together.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Weights {
    /// Their bytes.
    pub bytes: f64,
    /// How many: as many multiply-accumulates for each token.
    pub count: f64,
}

impl ModelShape {
    /// One layer's Q, K and V matrices: `[hidden, (heads + 2 kv_heads) head_dim]`.
    pub fn qkv(&self) -> Weights {
        self.of_layer(self.hidden * (self.heads + 2 * self.kv_heads) * self.head_dim)
    }

    /// One layer's O matrix: `[heads head_dim, hidden]`.
    pub fn o(&self) -> Weights {
        self.of_layer(self.heads * self.head_dim * self.hidden)
    }

    /// One layer's matrices into the MLP: `[hidden, ff_inputs ff]`.
    pub fn gate_up(&self) -> Weights {
        self.of_layer(self.ff_inputs * self.hidden * self.ff)
    }

    /// One layer's down matrix: `[ff, hidden]`.
    pub fn down(&self) -> Weights {
        self.of_layer(self.hidden * self.ff)
    }

    fn of_layer(&self, weights: usize) -> Weights {
        Weights { bytes: weights as f64 * self.layer_weight, count: weights as f64 }
    }

    /// The LM head: `[hidden, vocab]`.
    pub fn head(&self) -> Weights {
        let weights = (self.hidden * self.vocab) as f64;
        Weights { bytes: weights * self.head_weight, count: weights }
    }

    /// Bytes of the keys and values of one layer that a step reads: the mean over the layers.
    pub fn kv(&self, work: Work) -> f64 {
        let token = (2 * self.kv_heads * self.head_dim) as f64 * self.kv_element;
        token * self.over_layers(|window| work.read(window))
    }

    /// Multiply-accumulates of one layer's attention, scores and sums of values: the mean over the
    /// layers.
    pub fn attention(&self, work: Work) -> f64 {
        let pair = 2.0 * (self.heads * self.head_dim) as f64;
        pair * self.over_layers(|window| work.pairs(window))
    }

    /// The mean over layers of something that depends on the window.
    fn over_layers(&self, of: impl Fn(usize) -> f64) -> f64 {
        let windowed = self.window.map_or(0.0, |w| w.layers as f64 * of(w.tokens));
        let full = self.layers - self.window.map_or(0, |w| w.layers.min(self.layers));
        (windowed + full as f64 * of(usize::MAX)) / self.layers as f64
    }

    /// Bytes of all matrices that a token streams. With a tied head this is the file but for norms
    /// and metadata.
    pub fn bytes(&self) -> f64 {
        self.layers as f64 * self.layer().bytes + self.head().bytes
    }

    /// All matrices of a layer.
    pub fn layer(&self) -> Weights {
        let parts = [self.qkv(), self.o(), self.gate_up(), self.down()];
        let sum = |of: fn(&Weights) -> f64| parts.iter().map(of).sum();
        Weights { bytes: sum(|m| m.bytes), count: sum(|m| m.count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known::qwen3_4b_q4_0;

    #[test]
    fn qwen3_4b_q4_0_has_the_bytes_of_its_file() {
        let model = qwen3_4b_q4_0();
        // The tied Q6_K head: 319 MB, stated to the megabyte.
        assert!((model.head().bytes / 1e6 - 319.0).abs() < 0.5, "{:?}", model.head());
        // A file of this shape has 2 366 996 576 bytes, of which norms, vocabulary and other
        // metadata are less than 0.3 %.
        let rest = 2_366_996_576.0 - model.bytes();
        assert!((0.0..0.003 * model.bytes()).contains(&rest), "{rest}");
    }

    #[test]
    fn a_token_of_context_costs_its_keys_and_values() {
        let model = qwen3_4b_q4_0();
        // 8 heads x 128, keys and values, in Q4_0: 18 bytes per 32 elements. The new token is read
        // with the others.
        assert_eq!(model.kv(Work::decode(9)), (10 * 2 * 8 * 128 / 32 * 18) as f64);
        // Scores and sums of values, 32 heads x 128: 10 pairs when decoding, 1 + 2 + 3 for a prompt.
        assert_eq!(model.attention(Work::decode(9)), (10 * 2 * 32 * 128) as f64);
        assert_eq!(model.attention(Work::prompt(3, 0)), (6 * 2 * 32 * 128) as f64);
    }

    #[test]
    fn windows_bound_what_is_read_and_multiplied() {
        let full = qwen3_4b_q4_0();
        let window = Window { layers: 27, tokens: 100 };
        let windowed = ModelShape { window: Some(window), ..full.clone() };
        // 27 of 36 layers see 100 of 1000 tokens.
        let share = (27.0 * 0.1 + 9.0) / 36.0;
        let deep = Work::decode(999);
        assert!((windowed.kv(deep) / full.kv(deep) - share).abs() < 1e-12);
        assert!((windowed.attention(deep) / full.attention(deep) - share).abs() < 1e-12);
        assert_eq!(windowed.kv(Work::decode(50)), full.kv(Work::decode(50)));
    }
}
