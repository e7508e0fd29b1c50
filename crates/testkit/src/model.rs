//! Tiny models with random weights, as GGUF bytes.
//!
//! Which tensors a family has is not written here: its page says so when its graph is built.

use crate::{Rng, random_blocks};
use gguf::{Gguf, TensorType, Writer};
use graph::TensorSpec;
use models::Outline;

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
    /// Experts of families that have them.
    pub experts: Option<TinyExperts>,
    /// A layer that predicts further tokens.
    pub predicts: Option<Predicts>,
    pub seed: u64,
}

/// What the layer of a [`TinyModel`] is worth that predicts further tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predicts {
    /// Random weights: nothing.
    Noise,
    /// It is often right: what layers add to the residual stream is small, so the next token follows from the last
    /// one alone, and the predicting layer takes the token's embedding as it is.
    Often,
}

/// Experts of a [`TinyModel`].
#[derive(Clone, Copy, Debug)]
pub struct TinyExperts {
    /// How many.
    pub count: usize,
    /// Those that a token goes to.
    pub used: usize,
    /// Width of each.
    pub width: usize,
    /// Width of one more for all tokens.
    pub shared: Option<usize>,
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
            experts: None,
            predicts: None,
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

    /// As above with experts of this width, six of twelve for each token.
    pub fn qwen3moe(ty: TensorType, width: usize) -> TinyModel {
        let experts = Some(TinyExperts { count: 12, used: 6, width, shared: None });
        TinyModel { arch: "qwen3moe", experts, head_dim: 64, ..TinyModel::llama(ty) }
    }

    /// As above with one more expert for all tokens, times a sigmoid.
    pub fn qwen2moe(ty: TensorType, width: usize) -> TinyModel {
        let moe = TinyModel::qwen3moe(ty, width);
        let experts = moe.experts.map(|of| TinyExperts { shared: Some(2 * width), ..of });
        TinyModel { arch: "qwen2moe", experts, ..moe }
    }

    /// As above with the expert for all tokens as it is.
    pub fn dots1(ty: TensorType, width: usize) -> TinyModel {
        TinyModel { arch: "dots1", ..TinyModel::qwen2moe(ty, width) }
    }

    /// As above with biases, attention sinks, and a window in the first of the two layers.
    pub fn gpt_oss(ty: TensorType, width: usize) -> TinyModel {
        TinyModel { arch: "gpt-oss", window: Some(100), ..TinyModel::qwen3moe(ty, width) }
    }

    /// As above with four layers, of which three see chunks of 100 tokens.
    pub fn llama4(ty: TensorType, width: usize) -> TinyModel {
        TinyModel { arch: "llama4", layers: 4, ..TinyModel::gpt_oss(ty, width) }
    }

    /// As above with latent attention: 24 heads of 32 elements and 32 with RoPE, latents of 64.
    pub fn deepseek2(ty: TensorType, width: usize) -> TinyModel {
        TinyModel { arch: "deepseek2", heads: 24, kv_heads: 1, ..TinyModel::dots1(ty, width) }
    }

    /// As above with Qwen3.5's delta nets: 8 heads of 64 values, 4 of 32 keys, in all layers but every
    /// second, which has attention with gates.
    pub fn qwen35(ty: TensorType) -> TinyModel {
        TinyModel { arch: "qwen35", head_dim: 64, ..TinyModel::llama(ty) }
    }

    /// The same with experts, and heads of values that follow each other.
    pub fn qwen3next(ty: TensorType, width: usize) -> TinyModel {
        TinyModel { arch: "qwen3next", ..TinyModel::qwen2moe(ty, width) }
    }

    /// As above with Mamba-2 instead of delta nets, and a norm over all of its heads.
    pub fn granitehybrid(ty: TensorType, width: usize) -> TinyModel {
        TinyModel { arch: "granitehybrid", ..TinyModel::qwen2moe(ty, width) }
    }

    /// As above with short convolutions, of three taps.
    pub fn lfm2(ty: TensorType) -> TinyModel {
        TinyModel { arch: "lfm2", ..TinyModel::qwen35(ty) }
    }

    /// As above with four layers, each of which is a recurrence, attention or a feed-forward layer.
    pub fn nemotron_h(ty: TensorType) -> TinyModel {
        TinyModel { arch: "nemotron_h", layers: 4, ..TinyModel::qwen35(ty) }
    }

    /// As above with a recurrence beside attention in every layer.
    pub fn falcon_h1(ty: TensorType) -> TinyModel {
        TinyModel { arch: "falcon-h1", ..TinyModel::qwen35(ty) }
    }

    /// As above with heads of two lengths, a window in every second layer, inputs for every layer, and the last two
    /// of four layers without keys and values of their own.
    pub fn gemma4(ty: TensorType) -> TinyModel {
        let window = Some(100);
        TinyModel { arch: "gemma4", layers: 4, head_dim: 64, window, ..TinyModel::qwen3(ty) }
    }

    /// As above with heads of one length and four streams; in two of the layers the largest gates count.
    pub fn gemma3n(ty: TensorType) -> TinyModel {
        TinyModel { arch: "gemma3n", ..TinyModel::gemma4(ty) }
    }

    /// Whether layers have states of fixed size.
    pub fn is_hybrid(&self) -> bool {
        let mine = ["qwen35", "qwen3next", "granitehybrid", "lfm2", "nemotron_h", "falcon-h1"];
        mine.contains(&self.arch)
    }

    /// The file's bytes.
    ///
    /// # Panics
    /// When the family is not supported or cannot have these sizes.
    pub fn gguf(&self) -> Vec<u8> {
        let mut w = Writer::new();
        self.write_sizes(&mut w);
        let key = |k: &str| format!("{}.{k}", self.arch);
        if let Some(window) = self.window {
            w.kv(key("attention.sliding_window"), window as u32);
        }
        if self.arch == "gemma2" {
            w.kv(key("attn_logit_softcapping"), 2f32).kv(key("final_logit_softcapping"), 3f32);
        }
        if self.arch == "gemma3" {
            w.kv(key("attention.sliding_window_pattern"), 2u32);
            w.kv(key("rope.scaling.type"), "linear").kv(key("rope.scaling.factor"), 8f32);
        }
        if ["gemma3n", "gemma4"].contains(&self.arch) {
            w.kv(key("final_logit_softcapping"), 8f32);
        }
        if self.arch == "mpt" {
            w.kv(key("attention.clamp_kqv"), 1.5f32).kv(key("attention.max_alibi_bias"), 8f32);
        }
        if self.arch == "granite" {
            w.kv(key("embedding_scale"), 2.5f32).kv(key("residual_scale"), 0.3f32);
            w.kv(key("attention.scale"), 0.11f32).kv(key("logit_scale"), 3f32);
        }
        for spec in self.tensors() {
            let TensorSpec { ref name, ty, rows, cols, .. } = spec;
            let mut rng = Rng::named(self.seed, name);
            // Rows of unit-variance input keep unit variance; weights of norms and biases are about 1.
            let vector = rows == 1 || models::is_vector(name);
            let mut deviation = if vector { 0.1 } else { (cols as f32).sqrt().recip() };
            if name.contains("altup_router.") {
                deviation *= cols as f32; // its input is divided by that
            }
            let mut data = Vec::new();
            if ty.can_quantize() {
                let mut values = rng.normals(spec.elements(), deviation);
                if vector {
                    // Rates of decay: a state is to last for some tokens.
                    let about = match name {
                        _ if name.ends_with("ssm_a") => -0.3,
                        _ if name.ends_with("_coef.weight") => 0.0,
                        _ => 1.0,
                    };
                    values.iter_mut().for_each(|v| *v += about);
                }
                if self.predicts == Some(Predicts::Often) {
                    follow_the_token(&spec, &mut values);
                }
                ty.quantize(&values, &mut data).expect("whole blocks");
            } else {
                data = random_blocks(ty, spec.elements(), deviation, &mut rng);
            }
            w.tensor(name, &spec.dims(), ty, data);
        }
        bytes_of(&mut w)
    }

    /// The tensors that the family wants.
    fn tensors(&self) -> Vec<TensorSpec> {
        let mut w = Writer::new();
        self.write_sizes(&mut w);
        // Traits change no tensors. MiniCPM wants these factors stated; to all others 1 means none.
        for factor in ["embedding_scale", "residual_scale", "logit_scale"] {
            w.kv(format!("{}.{factor}", self.arch), 1f32);
        }
        let bytes = bytes_of(&mut w);
        let gguf = Gguf::parse(&bytes).expect("what was just written can be read");
        let second = self.second.unwrap_or(self.ty);
        let is_second = |name: &str| ["attn_v", "ffn_down"].iter().any(|part| name.contains(part));
        let gates = (0..self.layers).map(|layer| format!("blk.{layer}.ffn_gate_inp_shexp.weight"));
        let gated = ["qwen2moe", "qwen3next"].contains(&self.arch);
        let gates: Vec<String> = gates.filter(|_| gated).collect();
        let mut extras: Vec<&str> = gates.iter().map(String::as_str).collect();
        extras.extend((!self.tied).then_some("output.weight"));
        if self.arch == "command-r" {
            extras.extend(["blk.0.attn_q_norm.weight", "blk.0.attn_k_norm.weight"]);
        }
        let outline = Outline {
            metadata: gguf.metadata(),
            vocab: self.vocab,
            of_layers: &[
                "ssm_conv1d.bias",
                "ssm_norm.weight",
                "attn_v.weight",
                "layer_output_scale.weight",
                // Files of Gemma 3n have these of all layers.
                "attn_k.weight",
                "attn_k_norm.weight",
            ],
            ty: &|name, cols| match name {
                // Converters leave routers alone.
                _ if name.contains("ffn_gate_inp") || name.contains("altup_router") => {
                    TensorType::F32
                }
                _ if !cols.is_multiple_of(self.ty.block_len()) => TensorType::Q8_0,
                _ if is_second(name) => second,
                _ => self.ty,
            },
            extras: &extras,
            values: &[],
            predicts: self.predicts.is_some(),
        };
        let model = outline.build(1).expect("a family that can have these sizes");
        model.graph.tensors().to_vec()
    }

    /// Metadata that all families have.
    fn write_sizes(&self, w: &mut Writer<'_>) {
        w.kv("general.architecture", self.arch).kv("general.name", "tiny");
        let key_of = |k: &str| format!("{}.{k}", self.arch);
        let latent = self.arch == "deepseek2";
        let (key, value) = if latent { (96, 64) } else { (self.head_dim, self.head_dim) };
        for (name, size) in [
            ("attention.kv_lora_rank", 64),
            ("attention.q_lora_rank", 96),
            ("attention.key_length_mla", 64),
            ("attention.value_length_mla", 32),
            ("rope.dimension_count", 32),
        ] {
            if latent {
                w.kv(key_of(name), size as u32);
            }
        }
        for (name, size) in [
            ("context_length", self.context),
            ("embedding_length", self.hidden),
            ("block_count", self.layers + usize::from(self.predicts.is_some())),
            ("attention.head_count", self.heads),
            ("attention.key_length", key),
            ("attention.value_length", value),
        ] {
            w.kv(key_of(name), size as u32);
        }
        if self.predicts.is_some() {
            w.kv(key_of("nextn_predict_layers"), 1u32);
        }
        self.write_layers(w);
        if let Some(experts) = self.experts {
            w.kv(key_of("expert_count"), experts.count as u32);
            w.kv(key_of("expert_used_count"), experts.used as u32);
            w.kv(key_of("expert_feed_forward_length"), experts.width as u32);
            if let Some(shared) = experts.shared {
                w.kv(key_of("expert_shared_feed_forward_length"), shared as u32);
            }
        }
        // Models with LayerNorm state the one, the others the other.
        for eps in ["layer_norm_rms_epsilon", "layer_norm_epsilon"] {
            w.kv(key_of(&format!("attention.{eps}")), 1e-6f32);
        }
        w.kv(key_of("rope.freq_base"), 10_000f32);
        if self.arch == "apertus" {
            for (name, number) in
                [("alpha_p", 0.3), ("alpha_n", 0.2), ("beta", 0.5), ("eps", -1e-6)]
            {
                w.kv(format!("xielu.{name}"), number as f32);
            }
        }
    }
}

impl TinyModel {
    /// What may differ from layer to layer, and sizes of recurrences.
    fn write_layers(&self, w: &mut Writer<'_>) {
        let key = |k: &str| format!("{}.{k}", self.arch);
        let numbers = |of: &dyn Fn(usize) -> usize| -> Vec<u32> {
            (0..self.layers).map(|layer| of(layer) as u32).collect()
        };
        // Every second layer has attention; of those that are one thing each, every fourth.
        let kv_heads: &dyn Fn(usize) -> usize = match self.arch {
            "lfm2" | "granitehybrid" => &|layer| layer % 2 * self.kv_heads,
            "nemotron_h" => &|layer| if layer % 4 == 2 { self.kv_heads } else { 0 },
            _ => &|_| self.kv_heads,
        };
        let ffn: &dyn Fn(usize) -> usize = match self.arch {
            "nemotron_h" => &|layer| layer % 2 * self.ffn,
            _ => &|_| self.ffn,
        };
        if ["gemma3n", "gemma4"].contains(&self.arch) {
            let windowed: Vec<bool> = (0..self.layers).map(|layer| layer % 2 == 0).collect();
            w.kv(key("attention.sliding_window_pattern"), windowed);
            w.kv(key("attention.shared_kv_layers"), 2u32);
            w.kv(key("embedding_length_per_layer_input"), 256u32);
        }
        if self.arch == "gemma4" {
            w.kv(key("attention.key_length_swa"), 32u32).kv(key("rope.dimension_count_swa"), 32u32);
        }
        if self.arch == "gemma3n" {
            w.kv(key("altup.num_inputs"), 4u32).kv(key("altup.active_idx"), 0u32);
            let deviations = |layer| if layer % 3 == 0 { 0.7 } else { f32::NEG_INFINITY };
            let deviations: Vec<f32> = (0..self.layers).map(deviations).collect();
            w.kv(key("activation_sparsity_scale"), deviations);
        }
        w.kv(key("attention.head_count_kv"), numbers(kv_heads));
        w.kv(key("feed_forward_length"), numbers(ffn));
        if self.arch == "lfm2" {
            w.kv(key("shortconv.l_cache"), 3u32);
        } else if self.is_hybrid() {
            let groups = if self.arch == "granitehybrid" { 1 } else { 4u32 };
            w.kv(key("ssm.conv_kernel"), 4u32).kv(key("ssm.state_size"), 32u32);
            w.kv(key("ssm.group_count"), groups).kv(key("ssm.time_step_rank"), 8u32);
            w.kv(key("ssm.inner_size"), 512u32).kv(key("full_attention_interval"), 2u32);
        }
    }
}

/// See [`Predicts::Often`].
fn follow_the_token(spec: &TensorSpec, values: &mut [f32]) {
    let adds = ["attn_output", "ffn_down", "ssm_out"];
    if adds.iter().any(|tensor| spec.name.contains(tensor)) {
        values.iter_mut().for_each(|value| *value *= 0.001);
    }
    if spec.name.ends_with("nextn.enorm.weight") {
        values.fill(1.0);
    }
    if spec.name.ends_with("nextn.eh_proj.weight") {
        for (row, values) in values.chunks_exact_mut(spec.cols).enumerate() {
            values.fill(0.0);
            values[row] = 1.0;
        }
    }
}

fn bytes_of(w: &mut Writer<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    w.write_to(&mut bytes).expect("a vector takes everything");
    bytes
}
