//! Qwen2 to Qwen3.6.

use super::{Family, PLAIN, Predicting, SILU};
use crate::array::Array;
use crate::config::Config;
use crate::draft::Draft;
use crate::error::Error;
use crate::keys::{Fixed, Is, is, on};
use crate::rules::{At, Rule, decays, made, plus_one, same};
use crate::vocab::Kind;

pub(super) const FAMILIES: &[Family] = &[
    Family {
        classes: &["Qwen2ForCausalLM", "KORMoForCausalLM"],
        arch: "qwen2",
        vocab: Kind::SentencePieceOrBpe,
        ..QWEN
    },
    Family {
        classes: &["Qwen3ForCausalLM"],
        arch: "qwen3",
        vocab: Kind::SentencePieceOrBpe,
        ..QWEN
    },
    Family {
        classes: &[
            "Qwen2VLForConditionalGeneration",
            "Qwen2VLModel",
            "Qwen2_5_VLForConditionalGeneration",
        ],
        arch: "qwen2vl",
        vocab: Kind::SentencePieceOrBpe,
        ..QWEN
    },
    Family {
        classes: &["Qwen3VLForConditionalGeneration"],
        arch: "qwen3vl",
        keys: |d| {
            d.usual()?;
            deep(d);
            Ok(())
        },
        vocab: Kind::SentencePieceOrBpe,
        ..QWEN
    },
    Family {
        classes: &["Qwen3VLMoeForConditionalGeneration"],
        arch: "qwen3vlmoe",
        fixed: EXPERTS_FIXED,
        keys: |d| {
            experts(d)?;
            d.weights_norm(true);
            deep(d);
            Ok(())
        },
        rules: &[TURNED],
        ..QWEN
    },
    Family {
        classes: &["Qwen2MoeForCausalLM"],
        arch: "qwen2moe",
        keys: |d| {
            experts(d)?;
            d.weights_norm(false);
            d.no_windows()
        },
        rules: &[SHARED],
        ..EXPERTS
    },
    Family { classes: &["Qwen3MoeForCausalLM"], arch: "qwen3moe", ..EXPERTS },
    Family {
        classes: &["Qwen3NextForCausalLM"],
        arch: "qwen3next",
        defaults: |config| {
            let every = config.opt_size(&["full_attention_interval"])?.unwrap_or(4).max(1);
            let layers = 1..=config.layers()?;
            let kind = |n| if n % every == 0 { "full_attention" } else { "linear_attention" };
            config.or("layer_types", layers.map(kind).collect::<Vec<_>>());
            Ok(())
        },
        keys: |d| delta_nets(d, false),
        rules: &[DELTA, SHIFTED, SHARED],
        rename: Some(predicting),
        predicting: Predicting::Kept,
        ..EXPERTS
    },
    Family {
        classes: &["Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"],
        arch: "qwen35",
        ..QWEN35
    },
    Family {
        classes: &["Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"],
        arch: "qwen35moe",
        ..QWEN35
    },
];

const QWEN: Family = Family {
    fixed: &[SILU, on("attn_output_gate")],
    keys: |d| {
        d.usual()?;
        d.no_windows()
    },
    pre: &["qwen2"],
    ..PLAIN
};
const EXPERTS: Family = Family {
    fixed: EXPERTS_FIXED,
    keys: |d| {
        experts(d)?;
        d.weights_norm(true);
        d.no_windows()
    },
    ..QWEN
};

/// All layers have experts.
const EXPERTS_FIXED: &[Fixed] = &[
    SILU,
    is("decoder_sparse_step", &[Is::Number(1.0)]),
    is("mlp_only_layers", &[Is::Empty]),
    on("attn_output_gate"),
];
const QWEN35: Family = Family {
    fixed: EXPERTS_FIXED,
    keys: |d| delta_nets(d, true),
    rules: &[DELTA35, SHIFTED, SHARED],
    rename: Some(predicting),
    predicting: Predicting::Kept,
    pre: &["qwen35"],
    ..PLAIN
};

const SHARED: &[Rule] = &[same("mlp.shared_expert_gate", "ffn_gate_inp_shexp")];

/// Experts whose matrices lie with rows and columns exchanged in published folders, and not in those that newer versions
/// of `transformers` save.
const TURNED: &[Rule] = &[
    made("mlp.experts.gate_up_proj", "ffn_gate_exps.weight ffn_up_exps.weight", |at, of| {
        let width = at.config.hidden()?;
        crate::rules::halves(at, with_columns(at, of, width)?)
    }),
    made("mlp.experts.down_proj", "ffn_down_exps.weight", |at, of| {
        let width = at.config.size(&["moe_intermediate_size"])?;
        Ok(vec![with_columns(at, of, width)?])
    }),
];

/// The matrix of each expert with so many columns.
fn with_columns(at: &At<'_>, of: Array, columns: usize) -> Result<Array, Error> {
    match *of.shape() {
        // As published where both would do.
        [_, rows, _] if rows == columns => Ok(of.turned()),
        [.., own] if of.shape().len() == 3 && own == columns => Ok(of),
        _ => Err(at.shape(&of, format!("and not matrices of {columns} columns"))),
    }
}

/// Norms whose weights the model adds one to.
const SHIFTED: &[Rule] = &[
    made("norm", "output_norm", plus_one),
    made("input_layernorm", "attn_norm", plus_one),
    made("post_attention_layernorm", "post_attention_norm", plus_one),
    made("self_attn.q_norm", "attn_q_norm", plus_one),
    made("self_attn.k_norm", "attn_k_norm", plus_one),
    made("enorm", "nextn.enorm", plus_one),
    made("hnorm", "nextn.hnorm", plus_one),
    made("shared_head.norm", "nextn.shared_head_norm", plus_one),
];

const DELTA: &[Rule] = &[
    made("linear_attn.in_proj_qkvz", "attn_qkv attn_gate", by_kind),
    same("linear_attn.in_proj_ba", "ssm_ba"),
    made("linear_attn.conv1d", "ssm_conv1d", crate::rules::squeezed),
    same("linear_attn.norm", "ssm_norm"),
    same("linear_attn.out_proj", "ssm_out"),
    made("linear_attn.A_log", "ssm_a", decays),
    same("linear_attn.dt_bias", "ssm_dt.bias"),
];

/// The same with heads of values in turns, as heads of keys are repeated.
const DELTA35: &[Rule] = &[
    made("linear_attn.in_proj_qkv", "attn_qkv", values_in_turns),
    made("linear_attn.in_proj_z", "attn_gate", heads_in_turns),
    made("linear_attn.in_proj_a", "ssm_alpha", numbers_in_turns),
    made("linear_attn.in_proj_b", "ssm_beta", numbers_in_turns),
    made("linear_attn.conv1d", "ssm_conv1d", |at, of| values_in_turns(at, of.squeezed())),
    same("linear_attn.norm", "ssm_norm"),
    made("linear_attn.out_proj", "ssm_out", columns_in_turns),
    made("linear_attn.A_log", "ssm_a", |at, of| {
        decays(at, numbers_in_turns(at, of)?.swap_remove(0))
    }),
    made("linear_attn.dt_bias", "ssm_dt.bias", numbers_in_turns),
];

pub(super) fn experts(d: &mut Draft<'_>) -> Result<(), Error> {
    d.usual()?;
    d.copy_size("expert_feed_forward_length", &["moe_intermediate_size"])?;
    d.copy_size("expert_shared_feed_forward_length", &["shared_expert_intermediate_size"])
}

/// Layers that add parts of an image.
fn deep(d: &mut Draft<'_>) {
    let vision = d.config.outer("vision_config");
    let deep = vision.and_then(|vision| vision["deepstack_visual_indexes"].as_array());
    d.set_size("n_deepstack_layers", deep.map_or(0, Vec::len));
}

/// Layers that predict further tokens: as many as the folder has.
fn predicting_layers(config: &Config) -> Result<usize, Error> {
    let stated = config.opt_size(&["mtp_num_hidden_layers"])?.filter(|&layers| layers > 0);
    Ok(stated.or(config.opt_size(&[FOUND])?).unwrap_or(0))
}

/// Where the number of layers that a folder's tensors have is noted.
pub(crate) const FOUND: &str = "arclight_mtp_layers_found";

fn delta_nets(d: &mut Draft<'_>, sections: bool) -> Result<(), Error> {
    experts(d)?;
    let config = d.config;
    let (layers, more) = (config.layers()?, predicting_layers(config)?);
    d.set_size("block_count", layers + more);
    d.copy_size("ssm.conv_kernel", &["linear_conv_kernel_dim"])?;
    d.copy_size("ssm.state_size", &["linear_key_head_dim"])?;
    d.copy_size("ssm.group_count", &["linear_num_key_heads"])?;
    let heads = config.size(&["linear_num_value_heads"])?;
    d.set_size("ssm.time_step_rank", heads);
    d.set_size("ssm.inner_size", heads * config.size(&["linear_value_head_dim"])?);
    if let Some(mut recurrent) = config.layers_that_are(&["linear_attention"])? {
        if recurrent.len() != layers {
            return Err(Error::config(format!(
                "layer_types has {} entries for {layers} layers",
                recurrent.len()
            )));
        }
        recurrent.resize(layers + more, false);
        d.set("attention.recurrent_layers", recurrent);
    }
    d.set_size(
        "full_attention_interval",
        config.opt_size(&["full_attention_interval"])?.unwrap_or(4),
    );
    d.weights_norm(true);
    d.turned(config.head_dim()?, d.rope.part(0.25)?);
    if sections && d.rope.numbers("mrope_section")?.is_none() {
        d.set("rope.dimension_sections", vec![11_i32, 11, 10, 0]);
    }
    if more > 0 {
        d.set_size("nextn_predict_layers", more);
    }
    Ok(())
}

/// Layers that predict further tokens have names of their own.
fn predicting(config: &Config, name: &str) -> Option<String> {
    let mtp = name.strip_prefix("model.").unwrap_or(name).strip_prefix("mtp.");
    let Some(mtp) = mtp else { return Some(name.to_owned()) };
    let first = config.layers().ok()?;
    if let Some((n, rest)) = mtp.strip_prefix("layers.").and_then(|rest| rest.split_once('.')) {
        let n: usize = n.parse().ok()?;
        return Some(format!("model.layers.{}.{rest}", first + n));
    }
    let (stem, ending) = mtp.rsplit_once('.')?;
    let stem = match stem {
        "fc" => "eh_proj",
        "pre_fc_norm_embedding" => "enorm",
        "pre_fc_norm_hidden" => "hnorm",
        "norm" => "shared_head.norm",
        other => other,
    };
    Some(format!("model.layers.{first}.{stem}.{ending}"))
}

/// Sizes of delta nets.
struct Heads {
    keys: usize,
    /// Elements of a head of keys.
    key: usize,
    /// Heads of values for each of keys.
    each: usize,
    /// Elements of a head of values.
    value: usize,
}

impl Heads {
    fn of(config: &Config) -> Result<Heads, Error> {
        let keys = config.size(&["linear_num_key_heads"])?;
        let values = config.size(&["linear_num_value_heads"])?;
        if keys == 0 || !values.is_multiple_of(keys) {
            return Err(Error::config(format!(
                "linear_num_value_heads is {values}, no multiple of linear_num_key_heads, {keys}"
            )));
        }
        Ok(Heads {
            keys,
            key: config.size(&["linear_key_head_dim"])?,
            each: values / keys,
            value: config.size(&["linear_value_head_dim"])?,
        })
    }

    /// Where row `row` of values comes from: files have the first of each group, then the second of each.
    fn source(&self, row: usize, dim: usize) -> usize {
        let (head, i) = (row / dim, row % dim);
        let (turn, group) = (head / self.keys, head % self.keys);
        (group * self.each + turn) * dim + i
    }
}

fn check(at: &At<'_>, of: &Array, rows: usize) -> Result<(), Error> {
    match of.rows() == rows {
        true => Ok(()),
        false => Err(at.shape(of, format!("and should have {rows} rows"))),
    }
}

/// Queries, keys, values and gates of each head of keys become those of all heads.
fn by_kind(at: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    let h = Heads::of(at.config)?;
    let values = h.each * h.value;
    let group = 2 * h.key + 2 * values;
    check(at, &of, h.keys * group)?;
    let kind = |start: usize, len: usize| {
        (0..h.keys).map(move |g| g * group + start..g * group + start + len)
    };
    let qkv = kind(0, h.key).chain(kind(h.key, h.key)).chain(kind(2 * h.key, values));
    Ok(vec![of.runs(qkv.collect()), of.runs(kind(2 * h.key + values, values).collect())])
}

fn values_in_turns(at: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    let h = Heads::of(at.config)?;
    let before = 2 * h.keys * h.key;
    check(at, &of, before + h.keys * h.each * h.value)?;
    Ok(vec![of.reordered(|row| match row.checked_sub(before) {
        None => row,
        Some(row) => before + h.source(row, h.value),
    })])
}

fn heads_in_turns(at: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    let h = Heads::of(at.config)?;
    check(at, &of, h.keys * h.each * h.value)?;
    Ok(vec![of.reordered(|row| h.source(row, h.value))])
}

fn numbers_in_turns(at: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    let h = Heads::of(at.config)?;
    check(at, &of, h.keys * h.each)?;
    Ok(vec![of.reordered(|row| h.source(row, 1))])
}

fn columns_in_turns(at: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    let h = Heads::of(at.config)?;
    let cols = h.keys * h.each * h.value;
    if of.cols() != cols {
        return Err(at.shape(&of, format!("and should have {cols} columns")));
    }
    Ok(vec![of.columns((0..cols).map(|col| h.source(col, h.value)).collect())])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn experts_are_turned_where_they_lie_so() {
        let config = Config::new(json!({})).unwrap();
        let at = At { config: &config, name: "experts" };
        let of = |shape: &[usize]| {
            let count = shape.iter().product::<usize>();
            Array::of_values((0..count).map(|x| x as f32).collect()).reshaped(shape)
        };
        let turned = with_columns(&at, of(&[1, 3, 2]), 3).unwrap();
        assert_eq!((turned.shape(), turned.all()), (&[1, 2, 3][..], vec![0., 2., 4., 1., 3., 5.]));
        assert_eq!(with_columns(&at, of(&[1, 2, 3]), 3).unwrap().all(), of(&[6]).all());
        assert!(with_columns(&at, of(&[1, 2, 3]), 4).is_err());
    }
}
