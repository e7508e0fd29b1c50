//! The shape of a dense transformer, in the numbers that decide how many bytes a token costs.

/// Sizes of a dense decoder with grouped-query attention and a gated MLP.
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
    /// Tokens of the vocabulary.
    pub vocab: usize,
    /// Bytes per weight of the layers' matrices.
    pub layer_weight: f64,
    /// Bytes per weight of the LM head.
    pub head_weight: f64,
    /// Bytes per element of the KV cache.
    pub kv_element: f64,
}

impl ModelShape {
    /// Bytes of one layer's Q, K and V matrices: `[hidden, (heads + 2 kv_heads) head_dim]`.
    pub fn qkv(&self) -> f64 {
        let rows = (self.heads + 2 * self.kv_heads) * self.head_dim;
        (self.hidden * rows) as f64 * self.layer_weight
    }

    /// Bytes of one layer's O matrix: `[heads head_dim, hidden]`.
    pub fn o(&self) -> f64 {
        (self.heads * self.head_dim * self.hidden) as f64 * self.layer_weight
    }

    /// Bytes of one layer's gate and up matrices: `[hidden, 2 ff]`.
    pub fn gate_up(&self) -> f64 {
        2.0 * self.down()
    }

    /// Bytes of one layer's down matrix: `[ff, hidden]`.
    pub fn down(&self) -> f64 {
        (self.hidden * self.ff) as f64 * self.layer_weight
    }

    /// Bytes of the LM head: `[hidden, vocab]`.
    pub fn head(&self) -> f64 {
        (self.hidden * self.vocab) as f64 * self.head_weight
    }

    /// Bytes of one layer's keys and values of `context` tokens.
    pub fn kv(&self, context: usize) -> f64 {
        (context * 2 * self.kv_heads * self.head_dim) as f64 * self.kv_element
    }

    /// Bytes of all matrices that a token streams. With a tied head this is the file but for norms
    /// and metadata.
    pub fn bytes(&self) -> f64 {
        let layer = self.qkv() + self.o() + self.gate_up() + self.down();
        self.layers as f64 * layer + self.head()
    }
}

#[cfg(test)]
mod tests {
    use crate::known::qwen3_4b_q4_0;

    #[test]
    fn qwen3_4b_q4_0_has_the_bytes_of_its_file() {
        let model = qwen3_4b_q4_0();
        // The tied Q6_K head: 319 MB, stated to the megabyte.
        assert!((model.head() / 1e6 - 319.0).abs() < 0.5, "{}", model.head());
        // A file of this shape has 2 366 996 576 bytes, of which norms, vocabulary and other
        // metadata are less than 0.3 %.
        let rest = 2_366_996_576.0 - model.bytes();
        assert!((0.0..0.003 * model.bytes()).contains(&rest), "{rest}");
    }

    #[test]
    fn a_token_of_context_costs_its_keys_and_values() {
        let model = qwen3_4b_q4_0();
        // 8 heads x 128, keys and values, in Q4_0: 18 bytes per 32 elements.
        assert_eq!(model.kv(1), (2 * 8 * 128 / 32 * 18) as f64);
    }
}
