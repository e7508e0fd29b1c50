//! A decoder as data, and the one program that makes a graph of it.
//!
//! Families differ in a few choices for each layer and in what happens before the first and after the
//! last. A page states these. One that does not fit is a program of its own over the builder.

use crate::blocks::{feed_forward, mix, norm, parallel, routed_early};
use crate::facts::{Facts, LEADING_DENSE, SHARED_EXPERTS};
use crate::latent::Latent;
use crate::recurrent::Recurrent;
use crate::{Error, Hparams, per_layer, predict};
use graph::{
    Activation, Added, Attention, Builder, Bundle, Expert, Given, Heads, Keep, MatrixId, NormOver,
    RopeId, Router, Temperature, VectorId,
};
use std::ops::Range;

/// What files call the embedding.
const EMBEDDING: &str = "token_embd.weight";

/// A decoder: embedding, layers, last norm, head.
#[derive(Clone, Debug)]
pub(crate) struct Decoder {
    /// Factor on rows of the embedding matrix.
    pub embedding_scale: f32,
    /// Whether tokens get an embedding of their position too.
    pub positions: bool,
    /// A norm behind the embedding, and what files call it.
    pub embedding_norm: Option<(Norms, &'static str)>,
    /// The layers, each with attention and a feed-forward layer.
    pub layers: Vec<Style>,
    /// Whether tokens get the embedding of their type: that of the first or second text of a pair.
    pub token_types: bool,
    /// What files call the norm behind the last layer.
    pub last_norm: Option<&'static str>,
    /// Whether there are logits; otherwise it gives hidden states.
    pub has_head: bool,
    /// Elements that every layer has of each token for itself, of which it makes something beside its blocks (Gemma 3n
    /// and 4).
    pub per_layer: Option<usize>,
    /// Whether files may have a factor on the residual stream behind each layer.
    pub layer_factors: bool,
    /// The first so many layers, behind which tokens with rows of numbers have a part of these added.
    pub deep: usize,
    /// Whether something is added to logits.
    pub head_bias: bool,
    /// Factor on logits.
    pub logit_scale: f32,
    /// Cap on logits.
    pub logit_cap: Option<f32>,
    /// The layer that predicts further tokens, if it is wanted.
    pub predicting: Option<Style>,
}

impl Decoder {
    /// These layers with nothing special before and behind them.
    pub(crate) fn of(layers: Vec<Style>) -> Decoder {
        Decoder {
            embedding_scale: 1.0,
            positions: false,
            embedding_norm: None,
            layers,
            token_types: false,
            last_norm: Some("output_norm"),
            has_head: true,
            per_layer: None,
            layer_factors: false,
            deep: 0,
            head_bias: false,
            logit_scale: 1.0,
            logit_cap: None,
            predicting: None,
        }
    }

    /// The same with a layer that predicts further tokens, like the last one, if it is wanted.
    pub(crate) fn predicting(self, f: &Facts<'_>) -> Decoder {
        let like = self.layers.last().filter(|_| f.predicts).copied();
        Decoder { predicting: like, ..self }
    }

    /// All layers alike.
    pub(crate) fn uniform(h: &Hparams, style: Style) -> Decoder {
        Decoder::of(vec![style; h.layers])
    }

    /// The first layers, as many as the file says, as `dense` has them, and the others with experts.
    pub(crate) fn sparse(f: &Facts<'_>, dense: Style, moe: Moe) -> Result<Decoder, Error> {
        let leading = f.opt_size(LEADING_DENSE)?.unwrap_or(0);
        let sparse = Style { ffn: Ffn::Experts(moe), ..dense };
        let style = |layer| if layer < leading { dense } else { sparse };
        Ok(Decoder::of((0..f.layers).map(style).collect()))
    }

    /// Layers with a sliding window and layers without. The file names those with one, or they are all
    /// but the last of every `period`. A `local` style without a window means that no layer has one.
    pub(crate) fn windowed(
        f: &Facts<'_>,
        period: usize,
        local: Style,
        global: Style,
    ) -> Result<Decoder, Error> {
        let windowed = f.windowed(period)?.into_iter();
        let style = |windowed| if windowed && local.window.is_some() { local } else { global };
        Ok(Decoder::of(windowed.map(style).collect()))
    }

    /// Appends the whole model, or the layers of one host with what stands before the first and behind the last. The
    /// embedding serves as the head when the file has none.
    pub(crate) fn build(self, b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
        match &f.part {
            None => self.build_whole(b, f),
            Some(part) => self.build_part(b, f, part.clone()),
        }
    }

    fn build_whole(self, b: &mut Builder<'_>, h: &Hparams) -> Result<(), Error> {
        let embedding = b.vocab(EMBEDDING, h.vocab, h.hidden)?;
        let head = self.head(b, h, Some(embedding))?;
        let mut x = self.embed(b, h, embedding)?; // [tokens, hidden]
        let own = self.per_layer.map(|width| per_layer::inputs(b, h, width, x)).transpose()?;
        for layer in 0..self.layers.len() {
            x = self.layer(b, h, (layer, own), x)?;
        }
        b.layer(None);
        self.end(b, h, (embedding, head), x)
    }

    /// Appends a run of layers. What goes from a part to the next is the residual stream: the first begins with the
    /// embedding, the others with rows that the step brings; those before the last give the stream of all tokens.
    fn build_part(self, b: &mut Builder<'_>, h: &Hparams, part: Range<usize>) -> Result<(), Error> {
        self.check_cut(h, &part)?;
        let (first, last) = (part.start == 0, part.end == self.layers.len());
        let embedding = first.then(|| b.vocab(EMBEDDING, h.vocab, h.hidden)).transpose()?;
        let head = if last { Some(self.head(b, h, embedding)?) } else { None };
        let mut x = match embedding {
            Some(embedding) => self.embed(b, h, embedding)?,
            None => b.rows(0, h.hidden),
        }; // [tokens, hidden]
        // Images, which alone have rows for these, are not for models in parts.
        let decoder = Decoder { deep: 0, ..self };
        for layer in part {
            x = decoder.layer(b, h, (layer, None), x)?;
        }
        b.layer(None);
        match head {
            Some(head) => decoder.end(b, h, (head, head), x),
            None => {
                let x = b.select(x);
                b.hidden(x);
                Ok(())
            }
        }
    }

    /// Whether nothing but the residual stream goes from a part's layers to others.
    fn check_cut(&self, h: &Hparams, part: &Range<usize>) -> Result<(), Error> {
        let refused = |why: String| Err(Error::NotCut { arch: h.arch.clone(), why });
        if self.per_layer.is_some() {
            return refused("its layers have inputs of their own beside the stream".to_owned());
        }
        if !self.has_head || self.layers.iter().any(|style| style.sees_all) {
            return refused("it reads whole texts and writes none".to_owned());
        }
        for layer in part.clone() {
            if let Some(of) = self.layers[layer].borrows.filter(|of| !part.contains(of)) {
                return refused(format!(
                    "layer {layer} attends keys and values of layer {of}, which is in another part"
                ));
            }
        }
        Ok(())
    }

    fn head(
        &self,
        b: &mut Builder<'_>,
        h: &Hparams,
        embedding: Option<MatrixId>,
    ) -> Result<MatrixId, Error> {
        const HEAD: &str = "output.weight";
        let head = match (self.has_head && b.has(HEAD), embedding) {
            (true, _) => b.vocab(HEAD, h.vocab, h.hidden)?,
            (false, Some(embedding)) => embedding,
            (false, None) => b.vocab(EMBEDDING, h.vocab, h.hidden)?,
        };
        if self.head_bias {
            b.bias(head, &["output.bias"])?;
        }
        Ok(head)
    }

    /// What stands before the first layer.
    fn embed(
        &self,
        b: &mut Builder<'_>,
        h: &Hparams,
        embedding: MatrixId,
    ) -> Result<Bundle, Error> {
        let positions = "position_embd.weight";
        let positions =
            self.positions.then(|| b.table(positions, h.context, h.hidden)).transpose()?;
        let embedding_norm =
            self.embedding_norm.map(|(norms, name)| norm(b, h, norms, name)).transpose()?;
        let types = self.token_types.then(|| token_types(b, h)).transpose()?;
        let added = Added { positions, types };
        let x = b.embed_and(embedding, self.embedding_scale, added); // [tokens, hidden]
        Ok(embedding_norm.map_or(x, |norm| b.norm(x, norm)))
    }

    /// A layer.
    fn layer(
        &self,
        b: &mut Builder<'_>,
        h: &Hparams,
        (layer, own): (usize, Option<per_layer::PerLayer>),
        x: Bundle,
    ) -> Result<Bundle, Error> {
        let style = &self.layers[layer];
        b.layer(Some(layer));
        if let Some(norms) = style.parallel {
            return parallel(b, h, (style, norms), layer, x);
        }
        if let Ffn::Experts(moe) = &style.ffn
            && moe.early
        {
            return routed_early(b, h, (style, moe), layer, x);
        }
        let x = mix(b, h, style, layer, x)?;
        // A layer's last sum may have a factor.
        let factor = match self.layer_factors {
            true => per_layer::factor(b, layer)?,
            false => None,
        };
        let x = match own {
            None => feed_forward(b, h, style, (layer, factor), x)?,
            Some(own) => {
                let x = feed_forward(b, h, style, (layer, None), x)?;
                own.add(b, h, (layer, factor), x)?
            }
        };
        Ok(if layer < self.deep { b.add_rows(x, (layer + 1) * h.hidden) } else { x })
    }

    /// What stands behind the last layer.
    fn end(
        &self,
        b: &mut Builder<'_>,
        h: &Hparams,
        (embedding, head): (MatrixId, MatrixId),
        x: Bundle,
    ) -> Result<(), Error> {
        let last = self.layers.last().expect("a model has at least one layer").norms;
        let norm = match self.last_norm {
            Some(name) => norm(b, h, last, name)?,
            None => {
                let x = b.select(x);
                b.hidden(x);
                return Ok(());
            }
        };
        let x = match &self.predicting {
            None => {
                let x = b.select(x); // [outputs, hidden]
                b.norm(x, norm)
            }
            Some(_) => {
                let x = b.norm(x, norm); // [tokens, hidden]
                b.remember(x);
                b.select(x) // [outputs, hidden]
            }
        };
        match self.has_head {
            true => b.logits(x, head, self.logit_scale, self.logit_cap), // [outputs, vocab]
            false => b.hidden(x),
        };
        match &self.predicting {
            None => Ok(()),
            Some(style) => {
                let shared = predict::Shared { embedding, head, last_norm: norm };
                predict::append(b, h, (self, style), shared)
            }
        }
    }
}

/// What families vary in a decoder layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    /// Rotary embedding; `None` where positions do not count.
    pub rope: Option<RopeId>,
    /// Factor on `q·k`.
    pub attention_scale: f32,
    /// What tokens take of others.
    pub mixer: Mixer,
    /// Query heads, key/value heads, and elements of each.
    pub heads: (usize, usize, usize),
    /// What comes with queries.
    pub given: Given,
    /// Whether values have a norm, which has no weights.
    pub value_norms: bool,
    /// The layer whose keys and values it attends, if not its own.
    pub borrows: Option<usize>,
    /// Whether what heads give is multiplied by sigmoids of gates, which are in one tensor with queries.
    pub gated: bool,
    /// Whether heads have attention sinks.
    pub sinks: bool,
    /// Growth of queries with their position.
    pub temperature: Option<Temperature>,
    /// Keys that a token sees; `None`: all before it.
    pub window: Option<usize>,
    /// Whether the window is a chunk: the keys from the last multiple of so many on.
    pub chunked: bool,
    /// Whether tokens see those behind them too. A window is then as many keys on either side, the own one not counted.
    pub sees_all: bool,
    /// Whether scores fall with the distance of their key (ALiBi), and the steepness that the slopes end with: the last
    /// of a power of two of heads loses `2^-so much` for each key.
    pub alibi: Option<f32>,
    /// Cap on attention scores.
    pub soft_cap: Option<f32>,
    /// Factor on what a block adds to the residual stream.
    pub residual_scale: f32,
    /// Which matrices have biases.
    pub bias: Bias,
    /// What queries, keys and values are held within.
    pub clamp: Option<f32>,
    /// Norms of queries and keys, where there are such.
    pub qk_norms: Option<QkNorm>,
    /// Whether these norms come after RoPE.
    pub norms_after_rope: bool,
    /// Where a block's norms are.
    pub norms: Norms,
    /// Whether what heads give, and what the down projection reads, go through a norm over all of it.
    pub sub_norms: bool,
    /// What files call the norm before attention; none in a layer that follows a norm of the embedding.
    pub attn_norm: Option<&'static str>,
    /// What files call the norms after both blocks.
    pub after_norms: [&'static str; 2],
    /// Whether attention and feed-forward layer read the same stream, and what each reads of it.
    pub parallel: Option<Parallel>,
    /// Whether Q, K and V are one tensor.
    pub fused_qkv: bool,
    /// The feed-forward layer, and its width where it has no experts.
    pub ffn: Ffn,
    /// See there.
    pub ffn_width: usize,
    /// What files call the norm before it.
    pub ffn_norm: &'static str,
}

/// What blocks in parallel read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parallel {
    /// The stream behind one norm, attention's.
    OneNorm,
    /// Each behind a norm of its own.
    TwoNorms,
}

/// How tokens of a layer take something of those before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mixer {
    /// Not at all.
    None,
    /// Attention.
    Attention,
    /// Attention whose keys and values are made of latents.
    Latent(Latent),
    /// A recurrence.
    Recurrent(Recurrent),
    /// A gated convolution of so many taps.
    Convolution(usize),
    /// Attention and a recurrence, both of the same input (Falcon-H1).
    Both(Recurrent),
}

/// Norms of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QkNorm {
    /// With weights of the file.
    Over(NormOver),
    /// Of each head, without weights. RoPE changes no length, so it does not matter which comes first.
    Plain,
    /// Of each head, with mean and variance, and weights of its own.
    Layer,
}

/// Which matrices of a layer have biases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bias {
    None,
    Qkv,
    /// Q, K, V and the output projection.
    Attention,
    /// These and the last of the feed-forward layer.
    AllButUp,
    All,
}

/// Where the norms of a block are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Norms {
    /// Before it, with the mean square.
    Pre,
    /// Before it, with mean and variance.
    PreLayer,
    /// The same without a bias.
    PreLayerUnbiased,
    /// The same without weights.
    PreLayerPlain,
    /// After it, before the residual sum.
    Post,
    /// After it, of the residual sum, with mean and variance (Vaswani et al., 2017).
    PostSum,
    /// Before it and after it.
    Both,
}

/// Feed-forward layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Ffn {
    /// None.
    None,
    /// `down(f(gate(x)) * up(x))` (Shazeer, 2020).
    Gated(Activation),
    /// The same with gate and up in one tensor.
    GatedFused(Activation),
    /// `down(f(up(x)))`.
    Plain(Activation),
    /// A mixture of experts.
    Experts(Moe),
    /// `Gated` beside a mixture of experts, each with norms of its own (Gemma 4).
    Beside(Activation, Moe),
}

/// A mixture of experts (Shazeer et al., 2017), each a feed-forward layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Moe {
    /// How tokens choose. Its bias, if files have one, is found where it is declared.
    pub router: Router,
    /// Width of an expert.
    pub width: usize,
    /// What an expert does.
    pub expert: Expert,
    /// Whether gate and up are one tensor.
    pub fused: bool,
    /// Whether router and experts have biases.
    pub biases: bool,
    /// Whether tokens choose by the stream before attention.
    pub early: bool,
    /// Width of the expert that all tokens go to.
    pub shared: Option<usize>,
}

impl Moe {
    /// The same with experts for all tokens, of which files state how many, or their width together.
    ///
    /// # Errors
    /// When the file states something that is no size.
    pub(crate) fn with_shared(self, f: &Facts<'_>) -> Result<Moe, Error> {
        let count = f.opt_size(SHARED_EXPERTS)?.map(|count| count * self.width);
        let shared = f.opt_size("expert_shared_feed_forward_length")?.or(count);
        Ok(Moe { shared, ..self })
    }
}

impl Style {
    /// Attention of these heads, without norms and sinks, over the state of `layer`.
    pub(crate) fn attention(&self, h: &Hparams, heads: Heads, layer: usize) -> Attention {
        Attention {
            heads,
            q_norm: None,
            k_norm: None,
            v_norm: None,
            borrows: self.borrows,
            norm_over: NormOver::Head,
            norm_last: self.norms_after_rope,
            norm_centres: self.qk_norms == Some(QkNorm::Layer),
            norm_eps: h.norm_eps,
            rope: self.rope,
            latent_norm: None,
            sinks: None,
            scale: self.attention_scale,
            temperature: self.temperature,
            soft_cap: self.soft_cap,
            slopes: self.alibi.map_or_else(Vec::new, |most| slopes(self.heads.0, most)),
            biases: None,
            keep: self.keep(),
            cache: layer,
        }
    }

    /// Which keys a token sees.
    pub(crate) fn keep(&self) -> Keep {
        match self.window {
            near if self.sees_all => Keep::Text { near },
            Some(chunk) if self.chunked => Keep::Chunk(chunk),
            window => window.into(),
        }
    }

    /// The plainest layer: Llama's.
    pub(crate) fn plain(h: &Hparams, rope: impl Into<Option<RopeId>>) -> Style {
        Style {
            rope: rope.into(),
            attention_scale: (h.head_dim as f32).sqrt().recip(),
            mixer: Mixer::Attention,
            heads: (h.heads, h.kv_heads, h.head_dim),
            given: Given::KeysAndValues,
            value_norms: false,
            borrows: None,
            gated: false,
            sinks: false,
            temperature: None,
            window: None,
            chunked: false,
            sees_all: false,
            alibi: None,
            soft_cap: None,
            residual_scale: 1.0,
            bias: Bias::None,
            clamp: None,
            qk_norms: None,
            norms_after_rope: false,
            norms: Norms::Pre,
            sub_norms: false,
            attn_norm: Some("attn_norm"),
            after_norms: ["post_attention_norm", "post_ffw_norm"],
            parallel: None,
            fused_qkv: false,
            ffn: Ffn::Gated(Activation::Silu),
            ffn_width: h.ffn,
            ffn_norm: "ffn_norm",
        }
    }
}

/// Slopes of `heads` heads (ALiBi, arXiv:2108.12409): powers of `2^(-most / n)`, of the greatest power of two `n` of
/// heads; the others have those between, every second of twice as many heads.
fn slopes(heads: usize, most: f32) -> Vec<f32> {
    let n = 1 << heads.ilog2();
    let power = |of: usize, i: usize| (-f64::from(most) * i as f64 / of as f64).exp2() as f32;
    let first = (1..=n).map(|i| power(n, i));
    first.chain((0..heads - n).map(|i| power(2 * n, 2 * i + 1))).collect()
}

/// The embeddings of token types.
fn token_types(b: &mut Builder<'_>, h: &Hparams) -> Result<VectorId, Error> {
    const TYPES: &str = "token_types.weight";
    Ok(b.token_types(TYPES, h.token_types, h.hidden)?)
}
