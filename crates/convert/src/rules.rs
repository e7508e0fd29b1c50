//! From the names of a folder's tensors to those of a file's.
//!
//! A family lists what it calls otherwise than most do, or has in another form; what is not in its lists is
//! looked for in [`USUAL`]. In names, `*` stands for a number: tensors that differ in it alone are stacked.

use crate::array::Array;
use crate::config::Config;
use crate::error::Error;

/// What becomes of a tensor.
pub(crate) struct Rule {
    /// Its name without `model.` and `layers.N.`; without `.weight` or `.bias`, which then stay as they are.
    pub(crate) from: &'static str,
    /// Names in the file, without `blk.N.`; none, if it is left out.
    pub(crate) to: &'static str,
    pub(crate) how: How,
}

/// Makes the tensors of the file, as many as the rule names.
pub(crate) type How = fn(&At<'_>, Array) -> Result<Vec<Array>, Error>;

/// Which tensor it is.
pub(crate) struct At<'a> {
    pub(crate) config: &'a Config,
    /// Its whole name in the folder.
    pub(crate) name: &'a str,
}

/// A tensor that stays as it is.
pub(crate) const fn same(from: &'static str, to: &'static str) -> Rule {
    Rule { from, to, how: as_it_is }
}

/// A tensor in another form.
pub(crate) const fn made(from: &'static str, to: &'static str, how: How) -> Rule {
    Rule { from, to, how }
}

/// A tensor that files do not have.
pub(crate) const fn without(from: &'static str) -> Rule {
    Rule { from, to: "", how: as_it_is }
}

/// What most families call their tensors.
pub(crate) const USUAL: &[Rule] = &[
    same("embed_tokens", "token_embd"),
    same("norm", "output_norm"),
    same("lm_head", "output"),
    same("input_layernorm", "attn_norm"),
    same("self_attn.q_proj", "attn_q"),
    same("self_attn.k_proj", "attn_k"),
    same("self_attn.v_proj", "attn_v"),
    same("self_attn.qkv_proj", "attn_qkv"),
    same("self_attn.o_proj", "attn_output"),
    same("self_attn.q_norm", "attn_q_norm"),
    same("self_attn.k_norm", "attn_k_norm"),
    same("post_attention_layernorm", "ffn_norm"),
    same("mlp.gate_proj", "ffn_gate"),
    same("mlp.up_proj", "ffn_up"),
    same("mlp.down_proj", "ffn_down"),
    same("mlp.gate_up_proj", "ffn_up"),
    // Experts.
    same("mlp.gate", "ffn_gate_inp"),
    same("mlp.experts.*.gate_proj", "ffn_gate_exps"),
    same("mlp.experts.*.up_proj", "ffn_up_exps"),
    same("mlp.experts.*.down_proj", "ffn_down_exps"),
    made("mlp.experts.gate_up_proj", "ffn_gate_exps.weight ffn_up_exps.weight", halves),
    same("mlp.experts.down_proj", "ffn_down_exps.weight"),
    same("mlp.shared_expert.gate_proj", "ffn_gate_shexp"),
    same("mlp.shared_expert.up_proj", "ffn_up_shexp"),
    same("mlp.shared_expert.down_proj", "ffn_down_shexp"),
    same("mlp.shared_experts.gate_proj", "ffn_gate_shexp"),
    same("mlp.shared_experts.up_proj", "ffn_up_shexp"),
    same("mlp.shared_experts.down_proj", "ffn_down_shexp"),
    same("mlp.gate.e_score_correction_bias", "exp_probs_b.bias"),
    same("block_sparse_moe.gate", "ffn_gate_inp"),
    same("block_sparse_moe.experts.*.w1", "ffn_gate_exps"),
    same("block_sparse_moe.experts.*.w2", "ffn_down_exps"),
    same("block_sparse_moe.experts.*.w3", "ffn_up_exps"),
    // Layers that predict further tokens.
    same("eh_proj", "nextn.eh_proj"),
    same("embed_tokens", "nextn.embed_tokens"),
    same("enorm", "nextn.enorm"),
    same("hnorm", "nextn.hnorm"),
    same("shared_head.head", "nextn.shared_head_head"),
    same("shared_head.norm", "nextn.shared_head_norm"),
    // What can be computed.
    without("rotary_emb.inv_freq"),
    without("self_attn.rotary_emb.inv_freq"),
];

pub(crate) fn as_it_is(_: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    Ok(vec![of])
}

/// Rows of queries for RoPE that pairs neighbours.
pub(crate) fn queries(at: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    heads(at, of, at.config.heads()?)
}

/// Rows of keys for RoPE that pairs neighbours.
pub(crate) fn keys(at: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    heads(at, of, at.config.kv_heads()?)
}

fn heads(at: &At<'_>, of: Array, heads: usize) -> Result<Vec<Array>, Error> {
    if heads == 0 || !of.rows().is_multiple_of(2 * heads) {
        return Err(at.shape(&of, format!("and not rows of {heads} heads, halved")));
    }
    Ok(vec![of.interleaved(heads)])
}

/// Weights that the model adds one to.
pub(crate) fn plus_one(_: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    Ok(vec![of.each(|x| x + 1.0)])
}

/// Gates and ups one behind the other.
pub(crate) fn halves(at: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    let rows = of.shape()[of.shape().len().saturating_sub(2)];
    if !rows.is_multiple_of(2) {
        return Err(at.shape(&of, "and cannot be halved".to_owned()));
    }
    Ok(of.split(2))
}

/// A convolution's taps, which have a dimension of one.
pub(crate) fn squeezed(_: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    Ok(vec![of.squeezed()])
}

/// Decays, of which the model stores the logarithm of the negative.
pub(crate) fn decays(_: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    Ok(vec![of.each(|x| -x.exp())])
}

impl At<'_> {
    /// That a tensor cannot have its shape.
    pub(crate) fn shape(&self, of: &Array, want: String) -> Error {
        Error::Shape { name: self.name.to_owned(), shape: of.shape().to_vec(), want }
    }
}
