//! Layers with a state of fixed size, as files describe them: gated delta nets, Mamba-2, short convolutions.

use crate::blocks::{after, before, weight};
use crate::decoder::Style;
use crate::facts::Facts;
use crate::{Error, Hparams};
use graph::{
    Activation, Builder, Bundle, ConvolutionOf, HeadNorm, Layout, MatrixId, RecurrenceOf,
    RecurrentHeads, RecurrentRows, RecurrentSizes, Rule, TensorRows, VectorId,
};

/// What a file says of a recurrence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Recurrent {
    /// Sizes of its parts.
    pub sizes: RecurrentSizes,
    /// Taps of the convolution before it.
    pub taps: usize,
    /// Which one it is.
    pub kind: Kind,
}

/// Recurrences, and how files have their weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// A gated delta net (arXiv:2412.06464). Gains and time steps are one tensor, by heads of keys, or two.
    Delta {
        /// See there.
        fused: bool,
    },
    /// Mamba-2 (arXiv:2405.21060). All its inputs are one tensor.
    StateSpace,
}

/// Added to the squares of the lengths of keys and queries, as in the reference.
const LENGTH_EPS: f32 = 1e-6;

impl Recurrent {
    /// As the metadata say.
    ///
    /// # Errors
    /// When something is missing or means nothing.
    pub(crate) fn read(f: &Facts<'_>, kind: Kind, turns: bool) -> Result<Recurrent, Error> {
        let size = |name: &str| {
            let value = f.metadata.u32(&f.key(name))? as usize;
            let why = "it must be at least one";
            let zero = || Error::Implausible { key: f.key(name), value: "0".to_owned(), why };
            if value == 0 { Err(zero()) } else { Ok(value) }
        };
        let (heads, inner) = (size("ssm.time_step_rank")?, size("ssm.inner_size")?);
        if !inner.is_multiple_of(heads) {
            return Err(Error::Implausible {
                key: f.key("ssm.inner_size"),
                value: inner.to_string(),
                why: "it must be a multiple of ssm.time_step_rank",
            });
        }
        let (key_heads, key_dim) = (size("ssm.group_count")?, size("ssm.state_size")?);
        let sizes = RecurrentSizes { heads, dim: inner / heads, key_heads, key_dim, turns };
        Ok(Recurrent { sizes, taps: size("ssm.conv_kernel")?, kind })
    }

    /// Declares the weights of a layer.
    pub(crate) fn declare(
        &self,
        b: &mut Builder<'_>,
        h: &Hparams,
        layer: usize,
    ) -> Result<Recurs, Error> {
        let (sizes, name) = (&self.sizes, |tensor: &str| weight(layer, tensor));
        let output = name("ssm_out");
        let heads = b.recurrent_heads(sizes, (&output, h.hidden))?;
        let input = match self.kind {
            Kind::Delta { fused } => delta_input(b, h, (sizes, fused), layer, &heads)?,
            Kind::StateSpace => space_input(b, h, sizes, layer, &heads)?,
        };
        let out = b.recurrent_output(&output, h.hidden, &heads)?;
        let plain = |tensor: &str| format!("blk.{layer}.{tensor}");
        let step_bias = b.vector(&plain("ssm_dt.bias"), sizes.heads)?;
        let step_bias = b.by_heads(step_bias, &heads, (0, 1));
        let bias = plain("ssm_conv1d.bias");
        let (norm, decay, rule) = match self.kind {
            Kind::Delta { .. } => {
                let weight = b.vector(&name("ssm_norm"), sizes.dim)?;
                let norm = HeadNorm::Each { weight, eps: h.norm_eps };
                let decay = b.vector(&plain("ssm_a"), sizes.heads)?;
                let decay = b.by_heads(decay, &heads, (0, 1));
                (Some(norm), decay, Rule::Delta { eps: LENGTH_EPS })
            }
            Kind::StateSpace => {
                let norm = name("ssm_norm");
                let groups = sizes.key_heads;
                let all = sizes.heads * sizes.dim;
                let norm = match b.has(&norm) {
                    false => None,
                    true => Some(HeadNorm::Groups {
                        heads: heads.clone(),
                        each: sizes.heads / groups,
                        weight: b.vector_of(&norm, groups, all / groups)?,
                        eps: h.norm_eps,
                    }),
                };
                let decay = b.vector_of(&plain("ssm_a"), sizes.heads, 1)?;
                let skip = b.vector_of(&plain("ssm_d"), sizes.heads, 1)?;
                (norm, decay, Rule::StateSpace { skip })
            }
        };
        let bias = b.has(&bias).then_some(bias);
        let taps = (name("ssm_conv1d"), self.taps, bias);
        Ok(Recurs { input, out, heads, taps, rule, decay, step_bias, norm })
    }
}

/// `q | k | v | gate | gains | time steps`.
fn delta_input(
    b: &mut Builder<'_>,
    h: &Hparams,
    (sizes, fused): (&RecurrentSizes, bool),
    layer: usize,
    heads: &RecurrentHeads,
) -> Result<MatrixId, Error> {
    use RecurrentRows::{Keys, Numbers, Values};
    let [qkv, gate, both] = ["attn_qkv", "attn_gate", "ssm_ba"].map(|t| weight(layer, t));
    let [gains, steps] = ["ssm_beta", "ssm_alpha"].map(|t| weight(layer, t));
    let (keys, values) = (sizes.rows(Keys), sizes.rows(Values));
    let of_qkv = |first, what| TensorRows {
        tensor: (&qkv, 2 * keys + values),
        first,
        layout: Layout::Rows,
        what,
    };
    // Of each head of keys first the gains of its heads of values, then their time steps.
    let len = sizes.heads / sizes.key_heads.max(1);
    let of_both = |first| TensorRows {
        tensor: (&both, 2 * sizes.heads),
        first,
        layout: Layout::Runs { len, step: 2 * len },
        what: Numbers,
    };
    let [gains, steps] = match fused {
        true => [of_both(0), of_both(len)],
        false => [&gains, &steps].map(|tensor| TensorRows::all(tensor, sizes, Numbers)),
    };
    let parts = [
        of_qkv(0, Keys),
        of_qkv(keys, Keys),
        of_qkv(2 * keys, Values),
        TensorRows::all(&gate, sizes, Values),
        gains,
        steps,
    ];
    Ok(b.recurrent_input(&parts, h.hidden, heads)?)
}

/// `values | keys | queries | gate | time steps`, of which files have the gate first.
fn space_input(
    b: &mut Builder<'_>,
    h: &Hparams,
    sizes: &RecurrentSizes,
    layer: usize,
    heads: &RecurrentHeads,
) -> Result<MatrixId, Error> {
    use RecurrentRows::{Keys, Numbers, Values};
    let tensor = weight(layer, "ssm_in");
    let (keys, values) = (sizes.rows(Keys), sizes.rows(Values));
    let all = 2 * (values + keys) + sizes.heads;
    let rows =
        |first, what| TensorRows { tensor: (&tensor, all), first, layout: Layout::Rows, what };
    let parts = [
        rows(values, Values),
        rows(2 * values, Keys),
        rows(2 * values + keys, Keys),
        rows(0, Values),
        rows(2 * (values + keys), Numbers),
    ];
    Ok(b.recurrent_input(&parts, h.hidden, heads)?)
}

/// The weights of a recurrence in a layer.
pub(crate) struct Recurs {
    input: MatrixId,
    out: MatrixId,
    heads: RecurrentHeads,
    /// Name and number of taps, and the bias of their sum.
    taps: (String, usize, Option<String>),
    rule: Rule,
    decay: VectorId,
    step_bias: VectorId,
    norm: Option<HeadNorm>,
}

impl Recurs {
    /// Gives `[tokens, hidden]`, partial.
    pub(crate) fn build(self, b: &mut Builder<'_>, x: Bundle) -> Result<Bundle, Error> {
        const GATE: usize = 3; // behind what is convolved
        let raw = b.linear(x, self.input);
        let (weight, taps, bias) = &self.taps;
        let convolution = ConvolutionOf {
            parts: (0, GATE),
            gates: None,
            weight,
            taps: *taps,
            bias: bias.as_deref(),
            silu: true,
        };
        let x = b.convolution(raw, self.input, &convolution, Some(&self.heads))?;
        let delta = matches!(self.rule, Rule::Delta { .. });
        let of = RecurrenceOf {
            rule: self.rule,
            qkv: if delta { [0, 1, 2] } else { [2, 1, 0] },
            step: if delta { 5 } else { 4 },
            gain: delta.then_some(4),
            gate: (!delta).then_some(GATE),
            decay: self.decay,
            step_bias: self.step_bias,
            squares: matches!(self.norm, Some(HeadNorm::Groups { .. })),
        };
        let y = b.recurrence((x, raw), self.input, &self.heads, &of); // [tokens, heads * dim]
        // The delta rule's heads have their norm before their gate, Mamba's the gate before the norm.
        let gate = delta.then_some((Activation::Silu, raw, self.input, GATE));
        let y = match (&self.norm, &gate) {
            (None, None) => y,
            _ => b.modulated(y, self.norm, gate),
        };
        Ok(b.linear(y, self.out))
    }
}

/// `x + out(c * convolution(b * x'))` of the three parts of `in(x)` (LFM2).
pub(crate) fn convolution(
    b: &mut Builder<'_>,
    h: &Hparams,
    (style, taps): (&Style, usize),
    layer: usize,
    x: Bundle,
) -> Result<Bundle, Error> {
    let [input, taps_of, output] = ["shortconv.in_proj", "shortconv.conv", "shortconv.out_proj"]
        .map(|tensor| weight(layer, tensor));
    let (input, output) = b.gated_convolution(&input, &output, (h.hidden, h.hidden))?;
    let a = before(b, h, style, &format!("blk.{layer}.attn_norm"), x)?;
    let a = b.linear(a, input); // [tokens, 3 hidden]
    let of = ConvolutionOf {
        parts: (2, 3),
        gates: Some([0, 1]),
        weight: &taps_of,
        taps,
        bias: None,
        silu: false,
    };
    let a = b.convolution(a, input, &of, None)?; // [tokens, hidden]
    let a = b.linear(a, output); // [tokens, hidden], partial
    after(b, h, style, &format!("blk.{layer}.post_attention_norm"), (x, a), None)
}
