//! Blocks that most families share: weights by their usual names, operators in their usual order.

use crate::decoder::{Bias, Ffn, Mixer, Moe, Norms, Parallel, QkNorm, Style};
use crate::{Error, Hparams, latent, recurrent};
use graph::{
    Activation, Attention, Builder, Bundle, Gate, Given, Heads, MatrixId, Norm, NormOver, Router,
    Tensors, VectorId,
};

/// The name of a layer's weight.
pub(crate) fn weight(layer: usize, tensor: &str) -> String {
    format!("blk.{layer}.{tensor}.weight")
}

/// A norm with the weights of `tensor`, without its ending, if it has one (Falcon-H1).
pub(crate) fn norm(
    b: &mut Builder<'_>,
    h: &Hparams,
    norms: Norms,
    tensor: &str,
) -> Result<Norm, Error> {
    let name = if b.has(tensor) { tensor.to_owned() } else { format!("{tensor}.weight") };
    let eps = h.norm_eps;
    let weight = match norms {
        Norms::PreLayerPlain => b.ones(h.hidden),
        _ => b.vector(&name, h.hidden)?,
    };
    Ok(match norms {
        Norms::PreLayer | Norms::PostSum => {
            Norm::Layer { weight, bias: b.vector(&format!("{tensor}.bias"), h.hidden)?, eps }
        }
        Norms::PreLayerUnbiased | Norms::PreLayerPlain => {
            Norm::Layer { weight, bias: b.zeros(h.hidden), eps }
        }
        Norms::Pre | Norms::Post | Norms::Both => Norm::Rms { weight, eps },
    })
}

/// `x` as a block reads it.
pub(crate) fn before(
    b: &mut Builder<'_>,
    h: &Hparams,
    style: &Style,
    tensor: &str,
    x: Bundle,
) -> Result<Bundle, Error> {
    if matches!(style.norms, Norms::Post | Norms::PostSum) {
        return Ok(x);
    }
    let norm = norm(b, h, style.norms, tensor)?;
    Ok(b.norm(x, norm))
}

/// `x` as attention reads it.
fn before_attention(
    b: &mut Builder<'_>,
    h: &Hparams,
    style: &Style,
    layer: usize,
    x: Bundle,
) -> Result<Bundle, Error> {
    let norm = |name| before(b, h, style, &format!("blk.{layer}.{name}"), x);
    style.attn_norm.map_or(Ok(x), norm)
}

/// `x` and what a block gives, `partial`.
pub(crate) fn after(
    b: &mut Builder<'_>,
    h: &Hparams,
    style: &Style,
    tensor: &str,
    (x, partial): (Bundle, Bundle),
    factor: Option<VectorId>,
) -> Result<Bundle, Error> {
    let norm = match style.norms {
        Norms::Pre | Norms::PreLayer | Norms::PreLayerUnbiased | Norms::PreLayerPlain => None,
        Norms::Post | Norms::Both => Some(norm(b, h, style.norms, tensor)?),
        Norms::PostSum => {
            let norm = norm(b, h, style.norms, tensor)?;
            let x = b.residual(x, partial, None, (style.residual_scale, factor));
            return Ok(b.norm(x, norm));
        }
    };
    Ok(b.residual(x, partial, norm, (style.residual_scale, factor)))
}

/// `x` and what its tokens take of others, with norms.
pub(crate) fn mix(
    b: &mut Builder<'_>,
    h: &Hparams,
    style: &Style,
    layer: usize,
    x: Bundle,
) -> Result<Bundle, Error> {
    let (attends, recurs) = match &style.mixer {
        Mixer::None => return Ok(x),
        Mixer::Latent(latent) => return latent::attention(b, h, (style, latent), layer, x),
        Mixer::Convolution(taps) => {
            return recurrent::convolution(b, h, (style, *taps), layer, x);
        }
        Mixer::Attention => (true, None),
        Mixer::Recurrent(of) => (false, Some(of)),
        Mixer::Both(of) => (true, Some(of)),
    };
    let attends = attends.then(|| Attends::declare(b, h, style, layer)).transpose()?;
    let recurs = recurs.map(|of| of.declare(b, h, layer)).transpose()?;
    let a = before_attention(b, h, style, layer, x)?;
    let attended = attends.map(|attends| attends.build(b, a));
    let recurred = recurs.map(|recurs| recurs.build(b, a)).transpose()?;
    let norm = format!("blk.{layer}.{}", style.after_norms[0]);
    let mut x = x;
    for partial in attended.into_iter().chain(recurred) {
        x = after(b, h, style, &norm, (x, partial), None)?;
    }
    Ok(x)
}

/// The weights of grouped-query attention (Ainslie et al., 2023).
pub(crate) struct Attends {
    qkv: MatrixId,
    output: MatrixId,
    attention: Attention,
    gated: bool,
    clamp: Option<f32>,
    sub_norm: Option<(VectorId, f32)>,
}

impl Attends {
    pub(crate) fn declare(
        b: &mut Builder<'_>,
        h: &Hparams,
        style: &Style,
        layer: usize,
    ) -> Result<Attends, Error> {
        let (q_heads, kv_heads, head_dim) = style.heads;
        let [q, k, v, o] = ["attn_q", "attn_k", "attn_v", "attn_output"].map(|t| weight(layer, t));
        let heads = b.heads(q_heads, kv_heads, head_dim, (&o, h.hidden))?;
        let heads = Heads { given: style.given, ..heads };
        let same = |of: &Heads| {
            let nodes = 0..heads.q_cut.nodes();
            of.dim == heads.dim && nodes.into_iter().all(|n| of.kv_range(n) == heads.kv_range(n))
        };
        if style.borrows.is_some_and(|of| !b.heads_of(of).is_some_and(same)) {
            let (key, value) =
                (format!("{}.attention.shared_kv_layers", h.arch), layer.to_string());
            let why = "this layer's heads are not those whose keys and values it shares";
            return Err(Error::Implausible { key, value, why });
        }
        let qkv = match style.fused_qkv {
            _ if style.given != Given::KeysAndValues => b.queries([&*q, &k], h.hidden, &heads)?,
            _ if style.gated => b.gated_qkv([&*q, &k, &v], h.hidden, &heads)?,
            true => b.qkv(Tensors::Fused(&weight(layer, "attn_qkv")), h.hidden, &heads)?,
            false => b.qkv([&*q, &k, &v], h.hidden, &heads)?,
        };
        if style.bias != Bias::None && style.fused_qkv {
            b.fused_bias(qkv, &format!("blk.{layer}.attn_qkv.bias"))?;
        } else if style.bias != Bias::None {
            let names = ["attn_q", "attn_k", "attn_v"].map(|t| format!("blk.{layer}.{t}.bias"));
            b.bias(qkv, &names.each_ref().map(String::as_str))?;
        }
        let output = b.attn_output(&o, h.hidden, &heads)?;
        if matches!(style.bias, Bias::Attention | Bias::AllButUp | Bias::All) {
            b.bias(output, &[&format!("blk.{layer}.attn_output.bias")])?;
        }
        let mut qk_norm = |tensor, heads| {
            let len = match style.qk_norms {
                None => return Ok(None),
                Some(QkNorm::Plain) => return Ok(Some(b.ones(head_dim))),
                Some(QkNorm::Layer) => {
                    return b.table(&weight(layer, tensor), heads, head_dim).map(Some);
                }
                Some(QkNorm::Over(NormOver::Head)) => head_dim,
                Some(QkNorm::Over(NormOver::Row)) => heads * head_dim,
            };
            b.vector(&weight(layer, tensor), len).map(Some)
        };
        let plain = style.attention(h, heads, layer);
        let attention = Attention {
            q_norm: qk_norm("attn_q_norm", q_heads)?,
            k_norm: match style.given {
                Given::Nothing => None,
                Given::Keys | Given::KeysAndValues => qk_norm("attn_k_norm", kv_heads)?,
            },
            v_norm: style.value_norms.then(|| b.ones(head_dim)),
            norm_over: match style.qk_norms {
                Some(QkNorm::Over(over)) => over,
                Some(QkNorm::Plain | QkNorm::Layer) | None => NormOver::Head,
            },
            sinks: style
                .sinks
                .then(|| b.vector(&weight(layer, "attn_sinks"), q_heads))
                .transpose()?,
            ..plain
        };
        let sub_norm =
            sub_norm(b, h, style, (&weight(layer, "attn_sub_norm"), q_heads * head_dim))?;
        let (gated, clamp) = (style.gated, style.clamp);
        Ok(Attends { qkv, output, attention, gated, clamp, sub_norm })
    }

    /// Gives `[tokens, hidden]`, partial.
    pub(crate) fn build(self, b: &mut Builder<'_>, x: Bundle) -> Bundle {
        let qkv = self.heads(b, x);
        self.attend(b, qkv)
    }

    /// Queries, keys and values: `[tokens, (heads + 2 kv_heads) * head_dim]`.
    fn heads(&self, b: &mut Builder<'_>, x: Bundle) -> Bundle {
        match self.clamp {
            Some(limit) => b.activated(x, self.qkv, Activation::Clamp(limit)),
            None => b.linear(x, self.qkv),
        }
    }

    /// Gives `[tokens, hidden]`, partial.
    fn attend(self, b: &mut Builder<'_>, qkv: Bundle) -> Bundle {
        const GATE: usize = 3; // behind queries, keys and values
        let a = b.attention(qkv, self.attention); // [tokens, heads * head_dim]
        let gate = self.gated.then_some((Activation::Sigmoid, qkv, self.qkv, GATE));
        let a = if gate.is_some() { b.modulated(a, None, gate) } else { a };
        let a = self.sub_norm.map_or(a, |norm| b.norm_of_all(a, norm, self.output));
        b.linear(a, self.output)
    }
}

/// `x + attention(x) + feed_forward(x)` with norms before both (as in GPT-J). Their sums come together in one exchange.
pub(crate) fn parallel(
    b: &mut Builder<'_>,
    h: &Hparams,
    (style, norms): (&Style, Parallel),
    layer: usize,
    x: Bundle,
) -> Result<Bundle, Error> {
    let attends = Attends::declare(b, h, style, layer)?;
    let dense = Dense::declare(b, h, style, layer)?;
    let a = before_attention(b, h, style, layer, x)?;
    let f = match norms {
        Parallel::OneNorm => a,
        Parallel::TwoNorms => before(b, h, style, &format!("blk.{layer}.{}", style.ffn_norm), x)?,
    };
    // What waits for the same threads stands together.
    let qkv = attends.heads(b, a);
    let f = dense.up(b, f);
    let a = attends.attend(b, qkv); // [tokens, hidden], partial
    let f = b.linear(f, dense.down); // [tokens, hidden], partial
    let scale = (style.residual_scale, None);
    let x = b.residual(x, a, None, scale);
    Ok(b.residual(x, f, None, scale))
}

/// Weights and epsilon of a norm over so many elements of all nodes, where the layer has such.
fn sub_norm(
    b: &mut Builder<'_>,
    h: &Hparams,
    style: &Style,
    (tensor, len): (&str, usize),
) -> Result<Option<(VectorId, f32)>, Error> {
    if !style.sub_norms {
        return Ok(None);
    }
    if !len.is_multiple_of(16) {
        let (key, value) = (tensor.to_owned(), len.to_string());
        let why = "norms over what all nodes have want a multiple of 16 elements";
        return Err(Error::Implausible { key, value, why });
    }
    Ok(Some((b.vector(tensor, len)?, h.norm_eps)))
}

/// The weights of a feed-forward layer.
struct Dense {
    up: MatrixId,
    down: MatrixId,
    ffn: Ffn,
    sub_norm: Option<(VectorId, f32)>,
}

impl Dense {
    fn declare(
        b: &mut Builder<'_>,
        h: &Hparams,
        style: &Style,
        layer: usize,
    ) -> Result<Dense, Error> {
        let [gate, up, down] = ["ffn_gate", "ffn_up", "ffn_down"].map(|t| weight(layer, t));
        let width = style.ffn_width;
        let (up, down) = match style.ffn {
            Ffn::None | Ffn::Experts(_) | Ffn::Beside(..) => {
                unreachable!("experts are a block of their own")
            }
            Ffn::Gated(_) => b.feed_forward([&*gate, &up], &down, h.hidden, width)?,
            Ffn::GatedFused(_) => {
                b.feed_forward::<2>(Tensors::Fused(&up), &down, h.hidden, width)?
            }
            Ffn::Plain(_) => b.feed_forward([&*up], &down, h.hidden, width)?,
        };
        if style.bias == Bias::All {
            b.bias(up, &[&format!("blk.{layer}.ffn_up.bias")])?;
        }
        if matches!(style.bias, Bias::AllButUp | Bias::All) {
            b.bias(down, &[&format!("blk.{layer}.ffn_down.bias")])?;
        }
        let sub_norm = sub_norm(b, h, style, (&weight(layer, "ffn_sub_norm"), width))?;
        Ok(Dense { up, down, ffn: style.ffn, sub_norm })
    }

    /// Gives `[tokens, ffn]`.
    fn up(&self, b: &mut Builder<'_>, x: Bundle) -> Bundle {
        let f = match self.ffn {
            Ffn::Gated(function) | Ffn::GatedFused(function) => b.gated(x, self.up, function),
            Ffn::Plain(function) => b.activated(x, self.up, function),
            Ffn::None | Ffn::Experts(_) | Ffn::Beside(..) => {
                unreachable!("experts are a block of their own")
            }
        };
        self.sub_norm.map_or(f, |norm| b.norm_of_all(f, norm, self.down))
    }
}

/// `x + feed_forward(x)` with norms.
pub(crate) fn feed_forward(
    b: &mut Builder<'_>,
    h: &Hparams,
    style: &Style,
    (layer, factor): (usize, Option<VectorId>),
    x: Bundle,
) -> Result<Bundle, Error> {
    match &style.ffn {
        Ffn::None => return Ok(x),
        Ffn::Experts(moe) => return experts(b, h, style, moe, layer, x),
        Ffn::Beside(f, moe) => return beside(b, h, (style, *f, moe), (layer, factor), x),
        Ffn::Gated(_) | Ffn::GatedFused(_) | Ffn::Plain(_) => {}
    }
    let dense = Dense::declare(b, h, style, layer)?;
    let f = before(b, h, style, &format!("blk.{layer}.{}", style.ffn_norm), x)?;
    let f = dense.up(b, f); // [tokens, ffn]
    let f = b.linear(f, dense.down); // [tokens, hidden], partial
    after(b, h, style, &format!("blk.{layer}.{}", style.after_norms[1]), (x, f), factor)
}

/// `x + Σ weight * expert(x)`, and what the shared expert gives, with norms.
fn experts(
    b: &mut Builder<'_>,
    h: &Hparams,
    style: &Style,
    moe: &Moe,
    layer: usize,
    x: Bundle,
) -> Result<Bundle, Error> {
    const SHARED_GATE: &str = "ffn_gate_inp_shexp";
    let Moe { router, width, expert, fused, biases, shared, .. } = *moe;
    let [gate, up, down] =
        ["ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"].map(|t| weight(layer, t));
    let size = (router.experts, width);
    let (gate_up, out) = match (expert.gated, fused) {
        (true, false) => b.experts([&*gate, &up], &down, h.hidden, size)?,
        (true, true) => {
            let both = weight(layer, "ffn_gate_up_exps");
            b.experts::<2>(Tensors::Fused(&both), &down, h.hidden, size)?
        }
        (false, _) => b.experts([&*up], &down, h.hidden, size)?,
    };
    let scores = b.router(&weight(layer, "ffn_gate_inp"), router.experts, h.hidden)?;
    if biases {
        b.bias(scores, &[&format!("blk.{layer}.ffn_gate_inp.bias")])?;
        let [gate, up, down] =
            ["gate", "up", "down"].map(|t| format!("blk.{layer}.ffn_{t}_exps.bias"));
        let both: &[&str] = if expert.gated { &[&gate, &up] } else { &[&up] };
        b.expert_biases(gate_up, both)?;
        b.expert_biases(out, &[&down])?;
    }
    let for_choice = format!("blk.{layer}.exp_probs_b.bias");
    let bias = b.has(&for_choice).then(|| b.vector(&for_choice, router.experts)).transpose()?;
    let f = before(b, h, style, &format!("blk.{layer}.{}", style.ffn_norm), x)?; // [tokens, hidden]
    let scores = b.scores(f, scores); // [tokens, experts]
    let [gate, up, down] =
        ["ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"].map(|t| weight(layer, t));
    // What waits for the same threads stands together: scores, up, down.
    let router = Router { bias, ..router };
    let (y, z) = match shared {
        None => {
            let chosen = b.choose(scores, router)?;
            let y = b.experts_up(f, chosen, gate_up, expert); // [tokens * chosen, width]
            (b.experts_down(y, chosen, out), None) // [tokens, hidden], partial
        }
        Some(width) if b.has(&weight(layer, SHARED_GATE)) => {
            // A mixture of one expert, whose weight is a sigmoid.
            let one = Router { gate: Gate::Sigmoid, ..Router::softmax(1, 1) };
            let gates = b.router(&weight(layer, SHARED_GATE), 1, h.hidden)?;
            let shared = b.experts([&*gate, &up], &down, h.hidden, (1, width))?;
            let gates = b.scores(f, gates);
            let (chosen, always) = (b.choose(scores, router)?, b.choose(gates, one)?);
            let y = b.experts_up(f, chosen, gate_up, expert);
            let z = b.experts_up(f, always, shared.0, expert);
            (b.experts_down(y, chosen, out), Some(b.experts_down(z, always, shared.1)))
        }
        Some(width) => {
            let f_of = expert.activation;
            let (z, down) = match expert.gated {
                true => {
                    let (up, down) = b.feed_forward([&*gate, &up], &down, h.hidden, width)?;
                    (b.gated(f, up, f_of), down)
                }
                false => {
                    let (up, down) = b.feed_forward([&*up], &down, h.hidden, width)?;
                    (b.activated(f, up, f_of), down)
                }
            };
            let chosen = b.choose(scores, router)?;
            let y = b.experts_up(f, chosen, gate_up, expert);
            (b.experts_down(y, chosen, out), Some(b.linear(z, down)))
        }
    };
    let norm = format!("blk.{layer}.{}", style.after_norms[1]);
    let x = z.map_or(Ok(x), |z| after(b, h, style, &norm, (x, z), None))?;
    after(b, h, style, &norm, (x, y), None)
}

/// `x + attention(x)`, and what experts make of that which were chosen by `x` (SmallThinker).
pub(crate) fn routed_early(
    b: &mut Builder<'_>,
    h: &Hparams,
    (style, moe): (&Style, &Moe),
    layer: usize,
    x: Bundle,
) -> Result<Bundle, Error> {
    let [gate, up, down] =
        ["ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"].map(|t| weight(layer, t));
    let Moe { router, width, expert, .. } = *moe;
    let (bank, out) = b.experts([&*gate, &up], &down, h.hidden, (router.experts, width))?;
    let scores = b.router(&weight(layer, "ffn_gate_inp"), router.experts, h.hidden)?;
    let scores = b.scores(x, scores); // [tokens, experts]
    let chosen = b.choose(scores, router)?;
    let x = mix(b, h, style, layer, x)?;
    let f = before(b, h, style, &format!("blk.{layer}.{}", style.ffn_norm), x)?;
    let y = b.experts_up(f, chosen, bank, expert); // [tokens * chosen, width]
    let y = b.experts_down(y, chosen, out); // [tokens, hidden], partial
    after(b, h, style, &format!("blk.{layer}.post_ffw_norm"), (x, y), None)
}

/// `(x + norm(norm(gated(x)) + norm(experts(x)))) * factor` (Gemma 4).
fn beside(
    b: &mut Builder<'_>,
    h: &Hparams,
    (style, f, moe): (&Style, Activation, &Moe),
    (layer, factor): (usize, Option<VectorId>),
    x: Bundle,
) -> Result<Bundle, Error> {
    let name = |tensor: &str| weight(layer, tensor);
    let [gate, up, down] = ["ffn_gate", "ffn_up", "ffn_down"].map(name);
    let (up, down) = b.feed_forward([&*gate, &up], &down, h.hidden, style.ffn_width)?;
    let Moe { router, width, expert, .. } = *moe;
    let size = (router.experts, width);
    let [gate, each_up, each_down] = ["ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"].map(name);
    let both = name("ffn_gate_up_exps");
    let (bank, out) = match b.has(&both) {
        true => b.experts::<2>(Tensors::Fused(&both), &each_down, h.hidden, size)?,
        false => b.experts([&*gate, &each_up], &each_down, h.hidden, size)?,
    };
    let scores = b.router(&name("ffn_gate_inp"), router.experts, h.hidden)?;
    let of_router = b.vector_times(
        &format!("blk.{layer}.ffn_gate_inp.scale"),
        h.hidden,
        (h.hidden as f32).sqrt().recip(),
    )?;
    let mut rms = |tensor: &str| norm(b, h, Norms::Pre, &format!("blk.{layer}.{tensor}"));
    let (before, after) = (rms(style.ffn_norm)?, rms("post_ffw_norm_1")?);
    let (before_experts, after_experts) = (rms("pre_ffw_norm_2")?, rms("post_ffw_norm_2")?);
    let last = rms("post_ffw_norm")?;
    let r = b.norm(x, Norm::Rms { weight: of_router, eps: h.norm_eps });
    let scores = b.scores(r, scores); // [tokens, experts]
    let y = b.norm(x, before);
    let y = b.gated(y, up, f); // [tokens, ffn]
    let chosen = b.choose(scores, router)?;
    let z = b.norm(x, before_experts);
    let z = b.experts_up(z, chosen, bank, expert); // [tokens * chosen, width]
    let y = b.linear(y, down); // [tokens, hidden], partial
    let z = b.experts_down(z, chosen, out); // [tokens, hidden], partial
    let y = b.sum(y, Some(after));
    let y = b.residual(y, z, Some(after_experts), (1.0, None));
    Ok(b.blend((y, last), x, (1.0, factor)))
}
