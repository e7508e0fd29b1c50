//! BERT (arXiv:1810.04805) and what followed it: attention that looks both ways, LayerNorm of the sum behind each block
//! and behind the embedding, to which the first type's is added, GELU by the error function, no head.
//!
//! Positions are embeddings (BERT, RoBERTa, XLM-R), RoPE of the half-split form (Nomic Embed, arXiv:2402.01613; Jina
//! Embeddings v3, arXiv:2409.10173) or ALiBi (Jina Embeddings v2, arXiv:2310.19923). Nomic Embed v1 has a gate with SiLU,
//! v2 experts in every second layer (arXiv:2502.07972), Jina's v2 a gate with GELU.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    const EVERY: &str = "moe_every_n_layers";
    f.only(&[CAUSAL, ALIBI, EXPERTS])?;
    let has = |b: &Builder<'_>, tensor: &str| b.has(&format!("blk.0.{tensor}"));
    let rotates = ["nomic-bert", "nomic-bert-moe", "jina-bert-v3"].contains(&&*f.arch);
    let rope = rotates.then(|| rope(b, f, RopeStyle::Neox)).transpose()?;
    let gate = has(b, "ffn_gate.weight");
    let style = Style {
        sees_all: true,
        alibi: match &*f.arch {
            "jina-bert-v2" => f.cap(ALIBI, Some(8.0))?,
            _ => f.cap(ALIBI, None)?,
        },
        bias: match (has(b, "ffn_down.bias"), has(b, "ffn_up.bias")) {
            (true, true) => Bias::All,
            (true, false) => Bias::AllButUp,
            (false, _) => Bias::None,
        },
        norms: Norms::PostSum,
        after_norms: ["attn_output_norm", "layer_output_norm"],
        fused_qkv: has(b, "attn_qkv.weight"),
        ffn: match &*f.arch {
            "nomic-bert" => Ffn::Gated(Activation::Silu),
            "jina-bert-v2" if gate => Ffn::Gated(Activation::GeluErf),
            "jina-bert-v2" => Ffn::GatedFused(Activation::GeluErf),
            _ => Ffn::Plain(Activation::GeluErf),
        },
        ..Style::plain(f, rope)
    };
    let mut layers = vec![style; f.layers];
    if let Some(every) = f.opt_size(EVERY)? {
        let moe = Moe {
            expert: Expert { activation: Activation::GeluErf, gated: false, weigh_input: false },
            ..f.experts(Router::softmax(f.size(EXPERTS)?, f.size("expert_used_count")?))?
        };
        for style in layers.iter_mut().skip(1).step_by(every) {
            style.ffn = Ffn::Experts(moe);
        }
    }
    Decoder {
        positions: b.has("position_embd.weight"),
        token_types: b.has("token_types.weight"),
        embedding_norm: Some((Norms::PreLayer, "token_embd_norm")),
        last_norm: None,
        has_head: false,
        ..Decoder::of(layers)
    }
    .build(b, f)
}
