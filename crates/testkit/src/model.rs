//! Tiny models with random weights, as GGUF bytes.

use crate::{Rng, random_blocks};
use gguf::{TensorType, Writer};

/// A model to make. Start from [`TinyModel::qwen3`] or another family and change fields.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the names are those of the GGUF keys")]
pub struct TinyModel {
    pub arch: &'static str,
    pub vocab: usize,
    pub context: usize,
    pub hidden: usize,
    pub ffn: usize,
    pub layers: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub tied: bool,
    /// Type of all matrices.
    pub ty: TensorType,
    /// Type of `attn_v` and `ffn_down`, as the mixed types of K-quants have it.
    pub second: Option<TensorType>,
    /// `attention.sliding_window`.
    pub window: Option<usize>,
    pub seed: u64,
}

impl TinyModel {
    /// Two layers; every matrix dimension is a multiple of 256, so that every type applies.
    pub fn qwen3(ty: TensorType) -> TinyModel {
        TinyModel {
            arch: "qwen3",
            vocab: 300,
            context: 1024,
            hidden: 256,
            ffn: 1024,
            layers: 2,
            heads: 8,
            kv_heads: 4,
            head_dim: 128,
            tied: true,
            ty,
            second: None,
            window: None,
            seed: 1,
        }
    }

    /// As above for the llama architecture, untied.
    pub fn llama(ty: TensorType) -> TinyModel {
        TinyModel { arch: "llama", tied: false, ..TinyModel::qwen3(ty) }
    }

    /// As above with biases on queries, keys and values.
    pub fn qwen2(ty: TensorType) -> TinyModel {
        TinyModel { arch: "qwen2", ..TinyModel::qwen3(ty) }
    }

    /// As above with factors on the embedding, the residual sums, attention and the logits.
    pub fn granite(ty: TensorType) -> TinyModel {
        TinyModel { arch: "granite", ..TinyModel::qwen3(ty) }
    }

    /// As above with Q, K and V in one tensor, and gate and up in one.
    pub fn phi3(ty: TensorType) -> TinyModel {
        TinyModel { arch: "phi3", ..TinyModel::llama(ty) }
    }

    /// As above with norms after the blocks, and norms over all queries and all keys.
    pub fn olmo2(ty: TensorType) -> TinyModel {
        TinyModel { arch: "olmo2", ..TinyModel::llama(ty) }
    }

    /// As above with LayerNorm, biases everywhere and a feed-forward layer without a gate.
    pub fn starcoder2(ty: TensorType) -> TinyModel {
        TinyModel { arch: "starcoder2", ..TinyModel::qwen3(ty) }
    }

    /// As above with norms before and after the blocks, and gate and up in one tensor.
    pub fn glm4(ty: TensorType) -> TinyModel {
        TinyModel { arch: "glm4", ..TinyModel::llama(ty) }
    }

    /// As above with GELU, caps on scores and logits, and a window in the first of the two layers.
    pub fn gemma2(ty: TensorType) -> TinyModel {
        TinyModel { arch: "gemma2", window: Some(100), ..TinyModel::qwen3(ty) }
    }

    /// As above with norms on query and key heads instead of a cap on scores, and RoPE of its own in
    /// the layer with a window.
    pub fn gemma3(ty: TensorType) -> TinyModel {
        TinyModel { arch: "gemma3", ..TinyModel::gemma2(ty) }
    }

    /// As above with four layers, the last of them without RoPE.
    pub fn smollm3(ty: TensorType) -> TinyModel {
        TinyModel { arch: "smollm3", layers: 4, ..TinyModel::qwen3(ty) }
    }

    /// The file's bytes.
    pub fn gguf(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.kv("general.architecture", self.arch).kv("general.name", "tiny");
        let key = |k: &str| format!("{}.{k}", self.arch);
        let sizes = [
            ("context_length", self.context),
            ("embedding_length", self.hidden),
            ("block_count", self.layers),
            ("feed_forward_length", self.ffn),
            ("attention.head_count", self.heads),
            ("attention.head_count_kv", self.kv_heads),
            ("attention.key_length", self.head_dim),
            ("attention.value_length", self.head_dim),
        ];
        for (name, size) in sizes {
            w.kv(key(name), size as u32);
        }
        if let Some(window) = self.window {
            w.kv(key("attention.sliding_window"), window as u32);
        }
        let layer_norm = self.arch == "starcoder2";
        let eps = if layer_norm { "layer_norm_epsilon" } else { "layer_norm_rms_epsilon" };
        w.kv(key(&format!("attention.{eps}")), 1e-6f32);
        w.kv(key("rope.freq_base"), 10_000f32);
        if self.arch == "gemma2" {
            w.kv(key("attn_logit_softcapping"), 2f32).kv(key("final_logit_softcapping"), 3f32);
        }
        if self.arch == "gemma3" {
            w.kv(key("attention.sliding_window_pattern"), 2u32);
            w.kv(key("rope.scaling.type"), "linear").kv(key("rope.scaling.factor"), 8f32);
        }
        if self.arch == "granite" {
            w.kv(key("embedding_scale"), 2.5f32).kv(key("residual_scale"), 0.3f32);
            w.kv(key("attention.scale"), 0.11f32).kv(key("logit_scale"), 3f32);
        }

        let mut rng = Rng::new(self.seed);
        let mut matrix = |w: &mut Writer<'_>, name: String, rows: usize, cols: usize, ty| {
            // Rows of unit-variance input keep unit variance.
            let deviation = (cols as f32).sqrt().recip();
            let mut data = Vec::new();
            if TensorType::can_quantize(ty) {
                let values = rng.normals(rows * cols, deviation);
                TensorType::quantize(ty, &values, &mut data).expect("whole blocks");
            } else {
                data = random_blocks(ty, rows * cols, deviation, &mut rng);
            }
            w.tensor(name, &[cols, rows], ty, data);
        };
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let second = self.second.unwrap_or(self.ty);
        matrix(&mut w, "token_embd.weight".into(), self.vocab, self.hidden, self.ty);
        if !self.tied {
            matrix(&mut w, "output.weight".into(), self.vocab, self.hidden, self.ty);
        }
        for l in 0..self.layers {
            let name = |t: &str| format!("blk.{l}.{t}.weight");
            if self.arch == "phi3" {
                matrix(&mut w, name("attn_qkv"), q + 2 * kv, self.hidden, self.ty);
            } else {
                matrix(&mut w, name("attn_q"), q, self.hidden, self.ty);
                matrix(&mut w, name("attn_k"), kv, self.hidden, self.ty);
                matrix(&mut w, name("attn_v"), kv, self.hidden, second);
            }
            let (gate, up) = match self.arch {
                "phi3" | "glm4" => (false, 2 * self.ffn),
                "starcoder2" => (false, self.ffn),
                _ => (true, self.ffn),
            };
            if gate {
                matrix(&mut w, name("ffn_gate"), self.ffn, self.hidden, self.ty);
            }
            matrix(&mut w, name("ffn_up"), up, self.hidden, self.ty);
            matrix(&mut w, name("attn_output"), self.hidden, q, self.ty);
            matrix(&mut w, name("ffn_down"), self.hidden, self.ffn, second);
        }
        let mut rng = Rng::new(!self.seed);
        let mut vector = |w: &mut Writer<'_>, name: String, len: usize| {
            let values = rng.normals(len, 0.1);
            let data: Vec<u8> = values.iter().flat_map(|v| (1.0 + v).to_le_bytes()).collect();
            w.tensor(name, &[len], TensorType::F32, data);
        };
        for l in 0..self.layers {
            for (tensor, len) in self.layer_vectors() {
                vector(&mut w, format!("blk.{l}.{tensor}"), len);
            }
        }
        vector(&mut w, "output_norm.weight".into(), self.hidden);
        if layer_norm {
            vector(&mut w, "output_norm.bias".into(), self.hidden);
        }
        let mut bytes = Vec::new();
        w.write_to(&mut bytes).expect("a vector takes everything");
        bytes
    }

    /// Names and lengths of a layer's norms and biases.
    fn layer_vectors(&self) -> Vec<(&'static str, usize)> {
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let before = [("attn_norm.weight", self.hidden), ("ffn_norm.weight", self.hidden)];
        let after =
            [("post_attention_norm.weight", self.hidden), ("post_ffw_norm.weight", self.hidden)];
        let biases = [("attn_q.bias", q), ("attn_k.bias", kv), ("attn_v.bias", kv)];
        let qk_norms = |q, k| [("attn_q_norm.weight", q), ("attn_k_norm.weight", k)];
        match self.arch {
            "qwen2" => [before.as_slice(), &biases].concat(),
            "qwen3" => [before, qk_norms(self.head_dim, self.head_dim)].concat(),
            "olmo2" => [after, qk_norms(q, kv)].concat(),
            "glm4" | "gemma2" => [before, after].concat(),
            "gemma3" => {
                let heads = qk_norms(self.head_dim, self.head_dim);
                [before.as_slice(), &after, &heads].concat()
            }
            "starcoder2" => {
                let norms = [("attn_norm.bias", self.hidden), ("ffn_norm.bias", self.hidden)];
                let others = [
                    ("attn_output.bias", self.hidden),
                    ("ffn_up.bias", self.ffn),
                    ("ffn_down.bias", self.hidden),
                ];
                [before.as_slice(), &norms, &biases, &others].concat()
            }
            _ => before.to_vec(),
        }
    }
}
