//! MiniCPM3: latent attention with LongRoPE of the half-split form; factors on the embedding, on what blocks add to the
//! residual stream and on the logits, which files do not state: there is one model.

use crate::latent::Latent;
use crate::page::*;

const EMBEDDING: f32 = 12.0;
const DEPTH: f32 = 1.4;
/// The width of the model whose logits have no factor.
const WIDTH: f32 = 256.0;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[])?;
    let latent = Latent::read(f)?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let style = Style {
        attention_scale: (latent.head() as f32).sqrt().recip(),
        mixer: Mixer::Latent(latent),
        residual_scale: DEPTH / (f.layers as f32).sqrt(),
        ..Style::plain(f, rope)
    };
    Decoder {
        embedding_scale: EMBEDDING,
        logit_scale: WIDTH / f.hidden as f32,
        ..Decoder::uniform(f, style)
    }
    .build(b, f)
}
