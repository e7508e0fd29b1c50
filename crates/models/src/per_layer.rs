//! Inputs of layers beside the residual stream (Gemma 3n and 4): of each token a few elements for every layer, which
//! a matrix makes of its embedding and a table looks up.

use crate::blocks::{norm, weight};
use crate::decoder::Norms;
use crate::{Error, Hparams};
use graph::{Activation, Builder, Bundle, Norm, VectorId};

/// The inputs of all layers: `[tokens, layers * width]`.
#[derive(Clone, Copy)]
pub(crate) struct PerLayer {
    all: Bundle,
    width: usize,
}

/// `(norm(projection(x) / sqrt(hidden)) + table * sqrt(width)) / sqrt(2)`, `x` being the embedding.
pub(crate) fn inputs(
    b: &mut Builder<'_>,
    h: &Hparams,
    width: usize,
    x: Bundle,
) -> Result<PerLayer, Error> {
    let (all, hidden) = (h.layers * width, h.hidden as f32);
    let table = b.vocab("per_layer_token_embd.weight", h.vocab, all)?;
    let projection =
        b.on_every_node("per_layer", "per_layer_model_proj.weight", (all, h.hidden))?;
    let weight = b.vector("per_layer_proj_norm.weight", width)?;
    let looked_up = b.embed_ids(table, (width as f32).sqrt());
    let projected = b.linear_everywhere(x, projection);
    // A norm undoes a factor but for what is added to the mean square.
    let norm = Norm::Rms { weight, eps: h.norm_eps * hidden };
    let scale = std::f32::consts::FRAC_1_SQRT_2;
    Ok(PerLayer { all: b.blend((projected, norm), looked_up, (scale, None)), width })
}

/// The factor on the residual stream behind a layer, if the file has one.
pub(crate) fn factor(b: &mut Builder<'_>, layer: usize) -> Result<Option<VectorId>, Error> {
    let name = weight(layer, "layer_output_scale");
    Ok(b.has(&name).then(|| b.vector(&name, 1)).transpose()?)
}

impl PerLayer {
    /// `(x + norm(projection(gelu(gate(x)) * input))) * factor`.
    pub(crate) fn add(
        self,
        b: &mut Builder<'_>,
        h: &Hparams,
        (layer, factor): (usize, Option<VectorId>),
        x: Bundle,
    ) -> Result<Bundle, Error> {
        let (y, norm) = self.gated(b, h, layer, x)?;
        Ok(b.residual(x, y, Some(norm), (1.0, factor)))
    }

    /// `projection(gelu(gate(x)) * input)`, partial, and the norm of its sum.
    pub(crate) fn gated(
        self,
        b: &mut Builder<'_>,
        h: &Hparams,
        layer: usize,
        x: Bundle,
    ) -> Result<(Bundle, Norm), Error> {
        let [gate, projection] = ["inp_gate", "proj"].map(|tensor| weight(layer, tensor));
        let (gate, projection) =
            b.named_feed_forward(["inputs", &gate, &projection], h.hidden, self.width)?;
        let norm = norm(b, h, Norms::Pre, &format!("blk.{layer}.post_norm"))?;
        let g = b.linear(x, gate); // [tokens, width]
        let first = layer * self.width;
        let y = b.gated_columns(self.all, first, (Activation::Gelu, g, gate));
        Ok((b.linear(y, projection), norm)) // [tokens, hidden], partial
    }
}
