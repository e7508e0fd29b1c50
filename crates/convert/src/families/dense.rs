//! Dense families with little of their own.

use super::{Family, PLAIN, SILU, llama, unless_tied};
use crate::array::Array;
use crate::draft::Draft;
use crate::error::Error;
use crate::keys::{self, GELU_TANH, Is, is};
use crate::rules::{At, made, same};
use crate::vocab::Kind;

pub(super) const FAMILIES: &[Family] = &[
    Family {
        classes: &["Olmo2ForCausalLM", "Olmo3ForCausalLM"],
        arch: "olmo2",
        fixed: &[SILU],
        keys: |d| {
            d.usual()?;
            if let Some(window) = d.config.meant_size("sliding_window")? {
                let windows = d.config.windowed(4)?;
                d.windows(window, Some(windows));
            }
            Ok(())
        },
        rules: &[&[
            same("post_attention_layernorm", "post_attention_norm"),
            same("post_feedforward_layernorm", "post_ffw_norm"),
        ]],
        pre: &["dbrx", "gpt-2"],
        ..PLAIN
    },
    Family {
        classes: &["Starcoder2ForCausalLM"],
        arch: "starcoder2",
        fixed: &[
            is("hidden_act", GELU_TANH),
            is("mlp_type", &[Is::Text("default")]),
            is("norm_type", &[Is::Text("layer_norm")]),
        ],
        keys: |d| {
            d.usual()?;
            d.copy_size("attention.sliding_window", &["sliding_window"])
        },
        rules: &[&[same("mlp.c_fc", "ffn_up"), same("mlp.c_proj", "ffn_down")]],
        pre: &["starcoder"],
        ..PLAIN
    },
    Family {
        classes: &["SeedOssForCausalLM"],
        arch: "seed_oss",
        fixed: &[SILU],
        rules: &[&[same("post_attention_layernorm", "post_attention_norm")]],
        pre: &["seed-coder"],
        ..PLAIN
    },
    Family {
        classes: &["Cohere2ForCausalLM"],
        arch: "cohere2",
        fixed: &[SILU],
        keys: cohere,
        rules: &[&[
            made("input_layernorm.bias", "attn_norm.bias", nothing),
            made("norm.bias", "output_norm.bias", nothing),
            made("self_attn.q_proj.bias", "attn_q.bias", nothing),
            made("self_attn.k_proj.bias", "attn_k.bias", nothing),
            made("self_attn.v_proj.bias", "attn_v.bias", nothing),
            made("self_attn.o_proj.bias", "attn_output.bias", nothing),
            made("mlp.gate_proj.bias", "ffn_gate.bias", nothing),
            made("mlp.up_proj.bias", "ffn_up.bias", nothing),
            made("mlp.down_proj.bias", "ffn_down.bias", nothing),
        ]],
        rename: Some(unless_tied),
        pre: &["command-r"],
        ..PLAIN
    },
    Family {
        classes: &["ExaoneForCausalLM"],
        arch: "exaone",
        fixed: &[is("activation_function", keys::SILU)],
        keys: |d| {
            d.usual()?;
            // It is RMSNorm, though the key has the other's name.
            d.copy_number("attention.layer_norm_rms_epsilon", &["layer_norm_epsilon"])?;
            d.turned(d.config.hidden_per_head()?, d.rope.part(1.0)?);
            Ok(())
        },
        rules: &[&[
            same("wte", "token_embd"),
            same("ln_f", "output_norm"),
            same("ln_1", "attn_norm"),
            same("attn.attention.q_proj", "attn_q"),
            same("attn.attention.k_proj", "attn_k"),
            same("attn.attention.v_proj", "attn_v"),
            same("attn.attention.out_proj", "attn_output"),
            same("ln_2", "ffn_norm"),
            same("mlp.c_fc_0", "ffn_gate"),
            same("mlp.c_fc_1", "ffn_up"),
            same("mlp.c_proj", "ffn_down"),
        ]],
        pre: &["exaone"],
        ..PLAIN
    },
    Family {
        classes: &["HunYuanDenseV1ForCausalLM"],
        arch: "hunyuan-dense",
        fixed: &[SILU],
        keys: hunyuan,
        rules: &[&[
            same("self_attn.query_layernorm", "attn_q_norm"),
            same("self_attn.key_layernorm", "attn_k_norm"),
        ]],
        rename: Some(unless_tied),
        vocab: Kind::Hunyuan,
        pre: &["hunyuan-dense", "hunyuan"],
        ..PLAIN
    },
    Family {
        classes: &["ApertusForCausalLM"],
        arch: "apertus",
        fixed: &[is("hidden_act", &[Is::Text("xielu")])],
        defaults: llama::with_heads,
        keys: llama::llama,
        learnt: Some(activations),
        rules: &[&[
            same("attention_layernorm", "attn_norm"),
            same("feedforward_layernorm", "ffn_norm"),
        ]],
        rename: Some(|_, name| (!name.contains(".act_fn.")).then(|| name.to_owned())),
        vocab: Kind::Llama,
        pre: &["tekken"],
        ..PLAIN
    },
    Family {
        classes: &["BitNetForCausalLM", "BitnetForCausalLM"],
        arch: "bitnet",
        // Files say no function: the page knows the squared one by fewer heads of keys, or by this name.
        variant: Some(|config| {
            let heads = config.heads().ok()? == config.kv_heads().ok()?;
            (config.text(&["hidden_act"]) == Some("relu2") && heads).then_some("bitnet-b1.58")
        }),
        defaults: |config| {
            if config.get("rope_parameters").is_none() {
                config.or("rope_theta", 5e5);
            }
            Ok(())
        },
        fixed: &[is("hidden_act", &[Is::Text("relu2"), Is::Text("silu")])],
        keys: |d| {
            d.usual()?;
            let function = d.config.meant("hidden_act");
            if d.config.kv_heads()? < d.config.heads()? && function.is_none_or(|f| f != "relu2") {
                let what =
                    "hidden_act is not \"relu2\", which files with fewer heads of keys stand for";
                return Err(Error::config(what));
            }
            if d.rope.kind() == "default" {
                d.set("rope.scaling.type", "linear");
                d.set_number("rope.scaling.factor", 1.0);
            }
            Ok(())
        },
        rules: &[&[
            made("self_attn.q_proj", "attn_q", ternary),
            made("self_attn.k_proj", "attn_k", ternary),
            made("self_attn.v_proj", "attn_v", ternary),
            made("self_attn.o_proj", "attn_output", ternary),
            made("mlp.gate_proj", "ffn_gate", ternary),
            made("mlp.up_proj", "ffn_up", ternary),
            made("mlp.down_proj", "ffn_down", ternary),
            same("self_attn.attn_sub_norm", "attn_sub_norm"),
            same("self_attn.inner_attn_ln", "attn_sub_norm"),
            same("mlp.ffn_sub_norm", "ffn_sub_norm"),
            same("mlp.ffn_layernorm", "ffn_sub_norm"),
        ]],
        rename: Some(unless_tied),
        vocab: Kind::SentencePieceOrBpe,
        pre: &["llama-bpe"],
        ..PLAIN
    },
];

fn cohere(d: &mut Draft<'_>) -> Result<(), Error> {
    d.usual()?;
    let config = d.config;
    d.set_number("logit_scale", config.number(&["logit_scale"])?);
    let window = config.size(&["sliding_window"])?;
    d.set_size("vocab_size", config.vocab_size()?);
    // The page takes every fourth layer as one that sees everything.
    d.windows_by(window, 4)?;
    d.turned(config.hidden_per_head()?, d.rope.part(1.0)?);
    if d.rope.kind() == "default" {
        d.set("rope.scaling.type", "none");
    }
    Ok(())
}

/// A bias that some folders have, of zeros, and files have not.
fn nothing(at: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    match of.all().iter().all(|&x| x == 0.0) {
        true => Ok(Vec::new()),
        false => {
            let what = format!("tensor `{}` is not zero, and files have no place for it", at.name);
            Err(Error::config(what))
        }
    }
}

fn hunyuan(d: &mut Draft<'_>) -> Result<(), Error> {
    d.usual()?;
    let config = d.config;
    // One expert is none.
    if config.experts()?.is_some_and(|experts| experts <= 1) {
        d.unset("expert_count");
    }
    let kind = d.rope.kind().to_owned();
    // A base so large that positions of long contexts can be told apart.
    if let Some(alpha) = d.rope.opt("alpha")?
        && matches!(&*kind, "dynamic" | "xdrope")
    {
        let dim = config.head_dim()? as f64;
        let base = d.rope.theta()?.unwrap_or(10000.0) * alpha.powf(dim / (dim - 2.0));
        d.set_number("rope.freq_base", base);
        d.set("rope.scaling.type", "none");
        d.set_number("rope.scaling.factor", 1.0);
    }
    if kind == "dynamic" && d.rope.opt("alpha")?.is_some() {
        d.set_size("rope.scaling.original_context_length", 256 * 1024);
        d.set_size("context_length", 256 * 1024);
    }
    Ok(())
}

/// Numbers of xIELU, of which every layer has its own.
fn activations(d: &mut Draft<'_>, stored: &[(String, Array)]) -> Result<(), Error> {
    for kind in ["alpha_n", "alpha_p", "beta", "eps"] {
        let of_layer = |layer: usize| {
            let name = format!("model.layers.{layer}.mlp.act_fn.{kind}");
            let found = stored.iter().find(|(known, _)| *known == name);
            let wanted = format!("xielu.{kind}");
            let (_, array) =
                found.ok_or_else(|| Error::MissingTensor { name: name.clone(), wanted })?;
            match array.elements() {
                1 => Ok(array.all()[0]),
                _ => Err(Error::Shape {
                    name,
                    shape: array.shape().to_vec(),
                    want: "and should be one number".to_owned(),
                }),
            }
        };
        let all: Vec<f32> = (0..d.config.layers()?).map(of_layer).collect::<Result<_, _>>()?;
        d.general(format!("xielu.{kind}"), all);
    }
    Ok(())
}

/// Matrices that the model rounds as it runs; packed ones are rounded already.
fn ternary(at: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    let said = at.config.get("quantization_config");
    let packed = said.is_some_and(|said| said["quantization_mode"] != "online");
    let matrix = of.shape().len() == 2 && of.elements() > 0;
    Ok(vec![if packed || !matrix { of } else { of.ternary() }])
}
