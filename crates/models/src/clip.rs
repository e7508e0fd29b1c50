//! Image encoders: transformers over patches (arXiv:2010.11929) that see each other, and what brings their outputs to the
//! width of a language model.
//!
//! A patch is a row of its pixels, and of the embedding of its position where there are such (SigLIP, arXiv:2303.15343).
//! Patches that become one output stand behind each other. Qwen2-VL (arXiv:2409.12191) and Pixtral (arXiv:2410.07073)
//! have RoPE whose pairs follow a patch's row or its column, Qwen2.5-VL (arXiv:2502.13923) windows besides.

use crate::page::*;
use crate::vision::{Vision, VisionFamily};
use graph::{Attention, Bundle, Keep, MatrixId, Merging, Norm, Rope, RopeId};

/// Of the norm before the projection of LFM2-VL, which no key states.
const LFM2_EPS: f32 = 1e-5;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    let v = Vision::read(f.metadata)?;
    let encoder = Encoder { rope: rope(b, &v), v };
    let v = &encoder.v;
    let mut x = encoder.patches(b)?; // [tokens, hidden]
    for layer in 0..v.layers {
        b.layer(Some(layer));
        x = encoder.layer(b, layer, x)?;
        if let Some(nth) = v.deep.iter().position(|&deep| deep == layer) {
            encoder.deep(b, (layer, nth), x)?;
        }
    }
    b.layer(None);
    let post = "v.post_ln";
    if b.has(&format!("{post}.weight")) {
        let norm = encoder.norm(b, post, v.hidden)?;
        x = b.norm(x, norm);
    }
    encoder.project(b, x)
}

/// Whether a tensor is of an encoder of sound, which some files have besides.
pub(crate) fn is_of_sound(name: &str) -> bool {
    name.starts_with("a.") || name.starts_with("mm.a.")
}

struct Encoder {
    v: Vision,
    rope: Option<RopeId>,
}

/// RoPE of which half of the pairs follow the row of a patch and half its column.
fn rope(b: &mut Builder<'_>, v: &Vision) -> Option<RopeId> {
    let pairs = v.hidden / v.heads / 2;
    let theta = f64::from(v.rope_theta);
    // Axis 0 is time.
    let axes = (0..pairs).map(|pair| if pair < pairs / 2 { 1 } else { 2 }).collect();
    let power = |of: usize| theta.powf(-(of as f64) / pairs as f64) as f32;
    let (style, inv_freq): (_, Vec<f32>) = match v.family {
        VisionFamily::Qwen2 | VisionFamily::Qwen25 | VisionFamily::Qwen3 => {
            (RopeStyle::Neox, (0..pairs).map(|pair| power(2 * (pair % (pairs / 2)))).collect())
        }
        // Rows have the even frequencies and columns the odd ones.
        VisionFamily::Pixtral => {
            let of = |pair| 2 * (pair % (pairs / 2)) + pair / (pairs / 2);
            (RopeStyle::Normal, (0..pairs).map(|pair| power(of(pair))).collect())
        }
        // Each half of a head by itself: the first follows the column.
        VisionFamily::Gemma4 => {
            let inv_freq = (0..pairs).map(|pair| power(2 * (pair % (pairs / 2)))).collect();
            let axes = (0..pairs).map(|pair| if pair < pairs / 2 { 2 } else { 1 }).collect();
            let rope = Rope { axes, halves: true, ..Rope::new(RopeStyle::Neox, inv_freq) };
            return Some(b.rope(rope));
        }
        VisionFamily::Idefics3 | VisionFamily::Gemma3 | VisionFamily::Lfm2 => return None,
    };
    Some(b.rope(Rope { axes, ..Rope::new(style, inv_freq) }))
}

impl Encoder {
    fn norm(&self, b: &mut Builder<'_>, name: &str, width: usize) -> Result<Norm, Error> {
        let weight = b.vector(&format!("{name}.weight"), width)?;
        let eps = self.v.norm_eps;
        Ok(match self.v.family {
            VisionFamily::Qwen25 | VisionFamily::Pixtral | VisionFamily::Gemma4 => {
                Norm::Rms { weight, eps }
            }
            _ => Norm::Layer { weight, bias: b.vector(&format!("{name}.bias"), width)?, eps },
        })
    }

    /// Patches as the first layer reads them.
    fn patches(&self, b: &mut Builder<'_>) -> Result<Bundle, Error> {
        let (v, pixels) = (&self.v, self.v.pixels_of_patch());
        let product = |b: &mut Builder<'_>, what: &str, tensor: &str| -> Result<_, Error> {
            let matrix = b.by_columns(what, tensor, (v.hidden, pixels))?;
            let rows = b.rows_for(0, matrix);
            Ok((matrix, b.linear(rows, matrix)))
        };
        let (matrix, y) = product(b, "patches", "v.patch_embd.weight")?;
        let bias = "v.patch_embd.bias";
        if b.has(bias) {
            b.bias(matrix, &[bias])?;
        }
        let mut x = match v.has_positions() {
            true => {
                // They are read where the patches are made.
                b.idle("v.position_embd.weight", self.positions(b), v.hidden)?;
                let positions = b.rows(pixels, v.hidden);
                b.residual(positions, y, None, (1.0, None))
            }
            false => b.sum(y, None),
        };
        // A film has two pictures in a patch; an image is the same one twice.
        let second = "v.patch_embd.weight.1";
        if b.has(second) {
            let (_, y) = product(b, "patches_again", second)?;
            x = b.residual(x, y, None, (1.0, None));
        }
        // The embedding of a token that the language model has too.
        b.idle("v.token_embd.img_break", 1, v.output)?;
        if b.has("v.pre_ln.weight") {
            let norm = self.norm(b, "v.pre_ln", v.hidden)?;
            x = b.norm(x, norm);
        }
        Ok(x)
    }

    /// Rows of the table of positions.
    fn positions(&self, b: &Builder<'_>) -> usize {
        let side = self.v.image_size / self.v.patch;
        b.tensor_rows("v.position_embd.weight").unwrap_or(side * side)
    }

    /// A layer: attention and a feed-forward layer, each behind a norm.
    fn layer(&self, b: &mut Builder<'_>, layer: usize, x: Bundle) -> Result<Bundle, Error> {
        let v = &self.v;
        let name = |tensor: &str| format!("v.blk.{layer}.{tensor}");
        let [q, k, o] = ["attn_q", "attn_k", "attn_out"].map(|t| name(&format!("{t}.weight")));
        let [value, fused] = ["attn_v", "attn_qkv"].map(|t| name(&format!("{t}.weight")));
        let dim = v.hidden / v.heads;
        let heads = b.heads(v.heads, v.heads, dim, (&o, v.hidden))?;
        let qkv = match b.has(&fused) {
            true => {
                let qkv = b.qkv(graph::Tensors::Fused(&fused), v.hidden, &heads)?;
                if b.has(&name("attn_qkv.bias")) {
                    b.fused_bias(qkv, &name("attn_qkv.bias"))?;
                }
                qkv
            }
            false => {
                let qkv = b.qkv([&*q, &k, &value], v.hidden, &heads)?;
                let biases = ["attn_q.bias", "attn_k.bias", "attn_v.bias"].map(name);
                if b.has(&biases[0]) {
                    b.bias(qkv, &biases.each_ref().map(String::as_str))?;
                }
                qkv
            }
        };
        let output = b.attn_output(&o, v.hidden, &heads)?;
        self.own_bias(b, output, &name("attn_out"))?;
        b.clamp(qkv)?;
        b.clamp(output)?;
        let sees_all = v.window_period.is_none_or(|period| (layer + 1).is_multiple_of(period));
        let gemma4 = v.family == VisionFamily::Gemma4;
        let mut of_heads = |tensor: &str| b.vector(&name(&format!("{tensor}.weight")), dim);
        let q_norm = gemma4.then(|| of_heads("attn_q_norm")).transpose()?;
        let k_norm = gemma4.then(|| of_heads("attn_k_norm")).transpose()?;
        let attention = Attention {
            heads,
            q_norm,
            k_norm,
            v_norm: gemma4.then(|| b.ones(dim)),
            borrows: None,
            norm_over: NormOver::Head,
            norm_last: false,
            norm_centres: false,
            norm_eps: v.norm_eps,
            rope: self.rope,
            latent_norm: None,
            sinks: None,
            scale: if gemma4 { 1.0 } else { (dim as f32).sqrt().recip() },
            temperature: None,
            soft_cap: None,
            slopes: Vec::new(),
            biases: None,
            keep: if sees_all { Keep::Text { near: None } } else { Keep::Runs },
            cache: layer,
        };
        let norm = self.norm(b, &name("ln1"), v.hidden)?;
        let a = b.norm(x, norm);
        let a = b.linear(a, qkv);
        let a = b.attention(a, attention); // [tokens, hidden]
        let a = b.linear(a, output); // [tokens, hidden], partial
        let behind = |b: &mut Builder<'_>, tensor: &str| {
            gemma4.then(|| self.norm(b, &name(tensor), v.hidden)).transpose()
        };
        let norm = behind(b, "attn_post_norm")?;
        let x = b.residual(x, a, norm, (1.0, None));

        let norm = self.norm(b, &name("ln2"), v.hidden)?;
        let [gate, mut up, mut down] = ["ffn_gate", "ffn_up", "ffn_down"].map(name);
        let weight = |tensor: &str| format!("{tensor}.weight");
        // Files of before May 2025 call each by the other's name.
        let rows = [&up, &down].map(|tensor| b.tensor_rows(&weight(tensor)));
        if v.ffn != v.hidden && rows[0] == Some(v.hidden) && rows[1] != Some(v.hidden) {
            (up, down) = (down, up);
        }
        let ffn = match v.family {
            // Files state another width.
            VisionFamily::Qwen2 => b.tensor_rows(&weight(&up)).unwrap_or(v.ffn),
            _ => v.ffn,
        };
        let (matrix, out) = match b.has(&weight(&gate)) {
            true => {
                let pair = [&*weight(&gate), &weight(&up)];
                let pair = b.feed_forward(pair, &weight(&down), v.hidden, ffn)?;
                let biases = [&gate, &up].map(|tensor| format!("{tensor}.bias"));
                if b.has(&biases[0]) {
                    b.bias(pair.0, &biases.each_ref().map(String::as_str))?;
                }
                pair
            }
            false => {
                let pair = b.feed_forward([&*weight(&up)], &weight(&down), v.hidden, ffn)?;
                self.own_bias(b, pair.0, &up)?;
                pair
            }
        };
        self.own_bias(b, out, &down)?;
        b.clamp(matrix)?;
        b.clamp(out)?;
        let y = b.norm(x, norm);
        let y = match (b.has(&weight(&gate)), v.family) {
            (true, VisionFamily::Gemma4) => b.gated(y, matrix, Activation::Gelu),
            (true, _) => b.gated(y, matrix, Activation::Silu),
            (false, VisionFamily::Qwen2) => b.activated(y, matrix, Activation::QuickGelu),
            (false, _) => b.activated(y, matrix, Activation::Gelu),
        }; // [tokens, ffn]
        let y = b.linear(y, out); // [tokens, hidden], partial
        let norm = behind(b, "ffn_post_norm")?;
        Ok(b.residual(x, y, norm, (1.0, None)))
    }

    fn own_bias(&self, b: &mut Builder<'_>, matrix: MatrixId, tensor: &str) -> Result<(), Error> {
        let bias = format!("{tensor}.bias");
        match b.has(&bias) {
            true => Ok(b.bias(matrix, &[&bias])?),
            false => Ok(()),
        }
    }

    /// Outputs for one of the first layers of the language model.
    fn deep(
        &self,
        b: &mut Builder<'_>,
        (layer, nth): (usize, usize),
        x: Bundle,
    ) -> Result<(), Error> {
        let name = |tensor: &str| format!("v.deepstack.{layer}.{tensor}");
        let wide = self.v.hidden * self.v.merge.pow(2);
        let y = b.merge(x, self.v.merge.pow(2), Merging::Beside); // [outputs, 4 * hidden]
        let norm = self.norm(b, &name("norm"), wide)?;
        let y = b.norm(y, norm);
        let y = self.two(b, [&name("fc1"), &name("fc2")], (wide, wide), y)?;
        b.hidden_at(y, (nth + 1) * self.v.output);
        Ok(())
    }

    /// Two products with GELU between.
    fn two(
        &self,
        b: &mut Builder<'_>,
        [first, second]: [&str; 2],
        (width, between): (usize, usize),
        x: Bundle,
    ) -> Result<Bundle, Error> {
        let [up, down] = [first, second].map(|name| format!("{name}.weight"));
        let between = b.tensor_rows(&up).unwrap_or(between);
        // What goes in is as wide as rows of the first, what comes out as the second has rows.
        let (up, down) =
            b.projection(["projection", &up, &down], (width, between, self.v.output))?;
        self.own_bias(b, up, first)?;
        self.own_bias(b, down, second)?;
        let y = b.activated(x, up, Activation::GeluErf);
        let y = b.linear(y, down); // partial
        Ok(b.sum(y, None))
    }

    /// Outputs, `[outputs, width of the language model]`.
    fn project(&self, b: &mut Builder<'_>, x: Bundle) -> Result<(), Error> {
        let v = &self.v;
        let square = v.merge.pow(2);
        let wide = v.hidden * square;
        let y = match v.family {
            VisionFamily::Idefics3 => {
                let y = b.merge(x, square, Merging::Beside);
                let matrix =
                    b.on_every_node("projection", "mm.model.fc.weight", (v.output, wide))?;
                b.linear_everywhere(y, matrix)
            }
            VisionFamily::Gemma3 => {
                let y = b.merge(x, square, Merging::Mean);
                let weight = b.vector("mm.soft_emb_norm.weight", v.hidden)?;
                let y = b.norm(y, Norm::Rms { weight, eps: v.norm_eps });
                let matrix =
                    b.turned("projection", "mm.input_projection.weight", (v.output, v.hidden))?;
                b.linear_everywhere(y, matrix)
            }
            VisionFamily::Gemma4 => {
                // Means times the root of the width, less one vector and times another, if the file has these.
                let (root, weight) = ((v.hidden as f32).sqrt(), b.ones(v.hidden));
                let standard = b.has("v.std_bias");
                let how = match standard {
                    true => Merging::Standardised {
                        less: b.vector_times("v.std_bias", v.hidden, root.recip())?,
                        times: b.vector_times("v.std_scale", v.hidden, root)?,
                    },
                    false => Merging::Mean,
                };
                let y = b.merge(x, square, how);
                // The norm undoes the factor but for what is added to the mean square.
                let eps = if standard { v.norm_eps } else { v.norm_eps / v.hidden as f32 };
                let y = b.norm(y, Norm::Rms { weight, eps });
                let matrix = b.on_every_node(
                    "projection",
                    "mm.input_projection.weight",
                    (v.output, v.hidden),
                )?;
                b.linear_everywhere(y, matrix)
            }
            VisionFamily::Qwen2 | VisionFamily::Qwen25 | VisionFamily::Qwen3 => {
                let y = b.merge(x, square, Merging::Beside);
                self.two(b, ["mm.0", "mm.2"], (wide, wide), y)?
            }
            VisionFamily::Lfm2 => {
                let mut y = b.merge(x, square, Merging::Beside);
                let norm = "mm.input_norm.weight";
                if b.has(norm) {
                    let weight = b.vector(norm, wide)?;
                    let bias = b.vector("mm.input_norm.bias", wide)?;
                    y = b.norm(y, Norm::Layer { weight, bias, eps: LFM2_EPS });
                }
                self.two(b, ["mm.1", "mm.2"], (wide, v.output), y)?
            }
            VisionFamily::Pixtral if b.has("mm.patch_merger.weight") => {
                let weight = b.vector("mm.input_norm.weight", v.hidden)?;
                let y = b.norm(x, Norm::Rms { weight, eps: v.norm_eps });
                let y = b.merge(y, square, Merging::InTurns);
                let merger =
                    b.on_every_node("merger", "mm.patch_merger.weight", (v.hidden, wide))?;
                let y = b.linear_everywhere(y, merger);
                self.two(b, ["mm.1", "mm.2"], (v.hidden, v.output), y)?
            }
            VisionFamily::Pixtral => {
                let y = b.merge(x, 1, Merging::Beside);
                self.two(b, ["mm.1", "mm.2"], (v.hidden, v.output), y)?
            }
        };
        b.hidden(y);
        Ok(())
    }
}
