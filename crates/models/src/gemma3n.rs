//! Gemma 3n, text: attention as in Gemma 4, with heads of one length. The residual stream is several streams (AltUp;
//! Baykal et al., 2023), of which a layer works on one. Beside attention a layer has a product of low rank (LAuReL;
//! Menghani et al., 2024); of the gates of the first layers only the largest count; every layer has inputs of its own.

use crate::blocks::{Attends, norm, weight};
use crate::page::*;
use crate::per_layer::{self, PerLayer};
use graph::{Bundle, Given, MatrixId, Norm, VectorId};

/// Mean squares that streams are divided by are at least this.
const LEAST: f32 = 1e-5;
/// The rank of LAuReL's products, which files state nowhere but in shapes.
const RANK: usize = 64;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    const LOGITS: &str = "final_logit_softcapping";
    let mine = [LOGITS, WINDOW, WINDOW_PATTERN, FFN, SHARED_KV, PER_LAYER];
    f.only(&[&mine[..], &[STREAMS, ACTIVE_STREAM, SPARSITY]].concat())?;
    let streams = AltUp::of(f)?;
    let deviations = deviations(f)?;
    let own = f.size(PER_LAYER)?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let local = local_rope(b, f, RopeStyle::Neox, 10_000.0)?;
    let global = Style {
        attention_scale: 1.0,
        qk_norms: Some(QkNorm::Over(NormOver::Head)),
        value_norms: true,
        norms: Norms::Both,
        ..Style::plain(f, rope)
    };
    let windowed = f.windowed(5)?;
    let borrowed = f.borrowed(&windowed)?;

    let embedding = b.vocab("token_embd.weight", f.vocab, f.hidden)?;
    let head = match b.has("output.weight") {
        true => b.vocab("output.weight", f.vocab, f.hidden)?,
        false => embedding,
    };
    let x = b.embed(embedding, (f.hidden as f32).sqrt()); // [tokens, hidden]
    let own = per_layer::inputs(b, f, own, x)?;
    let others = (streams.count - 1, f.hidden);
    let projections = b.stacked("altup_proj", "altup_proj.weight", others)?;
    let back = b.each_stacked("altup_unembd_proj", "altup_unembd_proj.weight", others)?;
    let y = b.linear_everywhere(x, projections); // [tokens, (streams - 1) * hidden]
    let mut x = b.begin_streams(x, y, LEAST); // [tokens, streams * hidden]
    for layer in 0..f.layers {
        b.layer(Some(layer));
        let borrows = borrowed[layer];
        let given = if borrows.is_some() { Given::Nothing } else { Given::KeysAndValues };
        let style = match windowed[layer] {
            true => Style { rope: Some(local), window: f.window, ..global },
            false => global,
        };
        let style = Style { given, borrows, ffn_width: f.by_layer.ffn[layer], ..style };
        x = one(b, f, &style, (layer, deviations[layer]), (streams, own), x)?;
    }
    b.layer(None);
    let last = norm(b, f, Norms::Pre, "output_norm")?;
    let x = b.select(x); // [outputs, streams * hidden]
    let first = b.take_stream(x, (0, streams.count), None);
    let mut sum = first; // [outputs, hidden]
    for (before, matrix) in back.into_iter().enumerate() {
        let stream = b.take_stream(x, (before + 1, streams.count), None);
        let y = b.linear_everywhere(stream, matrix);
        let mean = if before + 2 == streams.count { streams.count as f32 } else { 1.0 };
        sum = b.merge_stream(sum, (y, first), (LEAST, mean.recip()));
    }
    let x = b.norm(sum, last);
    b.logits(x, head, 1.0, f.cap(LOGITS, None)?); // [outputs, vocab]
    Ok(())
}

/// A layer.
fn one(
    b: &mut Builder<'_>,
    f: &Facts<'_>,
    style: &Style,
    (layer, deviations): (usize, Option<f32>),
    (streams, own): (AltUp, PerLayer),
    x: Bundle,
) -> Result<Bundle, Error> {
    let name = |tensor: &str| weight(layer, tensor);
    let half = std::f32::consts::FRAC_1_SQRT_2;
    let attends = Attends::declare(b, f, style, layer)?;
    if style.borrows.is_some() {
        // Files have these of all layers.
        let keys = f.kv_heads * f.head_dim;
        b.idle(&name("attn_k"), keys, f.hidden)?;
        b.idle(&name("attn_v"), keys, f.hidden)?;
        b.idle(&name("attn_k_norm"), 1, f.head_dim)?;
    }
    let [left, right] = ["laurel_l", "laurel_r"].map(name);
    let rank = b.tensor_rows(&left).unwrap_or(RANK);
    let (left, right) = b.named_feed_forward(["laurel", &left, &right], f.hidden, rank)?;
    let [gate, up, down] = ["ffn_gate", "ffn_up", "ffn_down"].map(name);
    let (up, down) = b.feed_forward([&*gate, &up], &down, f.hidden, style.ffn_width)?;
    let routes = streams.declare(b, f, layer)?;
    let mut rms = |tensor: &str| norm(b, f, Norms::Pre, &format!("blk.{layer}.{tensor}"));
    let (before, after_laurel) = (rms("attn_norm")?, rms("laurel_post_norm")?);
    let after_attention = rms("post_attention_norm")?;
    let (before_ffn, after_ffn) = (rms("ffn_norm")?, rms("post_ffw_norm")?);

    let active = (streams.active, streams.count);
    let now = b.take_stream(x, active, None);
    let scores = routes.scores(b, now);
    let x = b.predict(x, scores, routes.predict); // [tokens, streams * hidden]
    let now = b.take_stream(x, active, None); // [tokens, hidden]
    let n = b.norm(now, before);
    // What waits for the same threads stands together.
    let l = b.linear(n, left); // [tokens, rank]
    let a = attends.build(b, n); // [tokens, hidden], partial
    let l = b.linear(l, right); // [tokens, hidden], partial
    // (now + norm(attended)) + (n + norm(low rank)), over the root of two
    let y = b.take_stream_twice(x, active, (before, half));
    let y = b.residual(y, a, Some(after_attention), (half, None));
    let y = b.residual(y, l, Some(after_laurel), (half, None));

    let n = b.norm(y, before_ffn);
    let g = match deviations {
        Some(deviations) => b.gated_above(n, up, (Activation::Gelu, deviations)),
        None => b.gated(n, up, Activation::Gelu),
    }; // [tokens, ffn]
    let g = b.linear(g, down); // [tokens, hidden], partial
    let y = b.residual(y, g, Some(after_ffn), (1.0, None));

    let scores = routes.scores(b, y);
    let x = b.correct(x, (y, scores), (streams.active, routes.correct));
    let now = b.take_stream(x, active, Some(routes.scale));
    let (partial, norm) = own.gated(b, f, layer, now)?;
    let z = b.sum(partial, Some(norm));
    Ok(b.spread(x, z))
}

/// Several streams, of which layers work on one.
#[derive(Clone, Copy)]
struct AltUp {
    count: usize,
    active: usize,
}

impl AltUp {
    fn of(f: &Facts<'_>) -> Result<AltUp, Error> {
        let count = f.size(STREAMS)?;
        let active = f.opt_size(ACTIVE_STREAM)?.unwrap_or(0);
        if count < 2 || active >= count {
            let (key, value) = match count < 2 {
                true => (f.key(STREAMS), count.to_string()),
                false => (f.key(ACTIVE_STREAM), active.to_string()),
            };
            let why = "there are at least two streams, and layers work on one of them";
            return Err(Error::Implausible { key, value, why });
        }
        Ok(AltUp { count, active })
    }

    fn declare(self, b: &mut Builder<'_>, f: &Facts<'_>, layer: usize) -> Result<Routes, Error> {
        let name = |tensor: &str| weight(layer, tensor);
        let (count, mean) = (self.count, (f.hidden as f32).recip());
        let of_router = b.vector_times(&name("altup_router_norm"), f.hidden, mean)?;
        Ok(Routes {
            norm: Norm::Rms { weight: of_router, eps: f.norm_eps },
            router: b.router(&name("altup_router"), count, f.hidden)?,
            predict: b.rows_of(&name("altup_predict_coef"), count * count, count)?,
            correct: b.rows_of(&name("altup_correct_coef"), count, count)?,
            scale: b.vector(&name("altup_correct_scale"), f.hidden)?,
        })
    }
}

/// What a layer does with streams.
struct Routes {
    norm: Norm,
    router: MatrixId,
    /// `[streams * streams, streams]`
    predict: VectorId,
    /// `[streams, streams]`
    correct: VectorId,
    /// Factor on the active stream where the layer's own inputs meet it, `[hidden]`.
    scale: VectorId,
}

impl Routes {
    /// A number for each stream.
    fn scores(&self, b: &mut Builder<'_>, x: Bundle) -> Bundle {
        let r = b.norm(x, self.norm);
        b.scores(r, self.router)
    }
}

/// How many standard deviations above their mean gates begin to count; minus infinity where all do.
fn deviations(f: &Facts<'_>) -> Result<Vec<Option<f32>>, Error> {
    let key = f.key(SPARSITY);
    let stated = f.metadata.f32s(&key)?;
    let wrong = |value: String, why| Error::Implausible { key: key.clone(), value, why };
    if stated.len() != f.layers {
        let why = "it must have a number for each layer";
        return Err(wrong(stated.len().to_string(), why));
    }
    let of = |(number, width): (f32, &usize)| match number {
        f32::NEG_INFINITY => Ok(None),
        n if !n.is_finite() => Err(wrong(n.to_string(), "it must be a number or minus infinity")),
        _ if !width.is_multiple_of(16) => {
            let why = "gates of which only the largest count must be a multiple of 16";
            Err(Error::Implausible { key: f.key(FFN), value: width.to_string(), why })
        }
        n => Ok(Some(n)),
    };
    stated.into_iter().zip(&f.by_layer.ffn).map(of).collect()
}
