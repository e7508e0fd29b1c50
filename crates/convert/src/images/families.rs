//! The families of image encoders: keys, and what becomes of tensors.

use super::Source;
use crate::array::Array;
use crate::config::{self, Config};
use crate::draft::Draft;
use crate::error::Error;
use crate::rules::{At, Rule, made, plus_one, queries, same, without};
use serde_json::{Value, json};

/// How the image encoders of some classes are converted.
pub(super) struct Encoder {
    /// Classes of the whole model, as `architectures` in `config.json` names them.
    classes: &'static [&'static str],
    /// `model_type` of the encoder's part, of classes that come with several kinds.
    kind: Option<&'static str>,
    /// Counts that the model's own code takes where the configuration has none.
    pub(super) counts: &'static [(&'static str, usize)],
    /// What else the configuration says in another way, or not at all.
    pub(super) defaults: fn(&mut Config) -> Result<(), Error>,
    pub(super) keys: fn(&mut Draft<'_>, &Source<'_>) -> Result<(), Error>,
    /// Names with `*` for the number in them, in the file too.
    pub(super) rules: &'static [&'static [Rule]],
    /// The number in the file, by name and number in the folder.
    pub(super) number: fn(&Config, &str, usize) -> Result<usize, Error>,
    /// Tensors that are of the language model as well.
    pub(super) extra: MakeExtra,
    /// Matrices that are F32 in every file.
    pub(super) exact: &'static [&'static str],
    /// Matrices that are F16 in every file.
    pub(super) half: &'static [&'static str],
}

/// Tensors by their names in the file.
type Extra = Vec<(&'static str, Array)>;

/// Makes such tensors of those of the folder, by their names.
type MakeExtra = fn(&Source<'_>, &[(String, Array)]) -> Result<Extra, Error>;

const PLAIN: Encoder = Encoder {
    classes: &[],
    kind: None,
    counts: &[],
    defaults: |_| Ok(()),
    keys: |_, _| Ok(()),
    rules: &[],
    number: |_, _, number| Ok(number),
    extra: |_, _| Ok(Vec::new()),
    exact: &[],
    half: &[],
};

const ALL: &[Encoder] = &[
    Encoder {
        classes: &["Idefics3ForConditionalGeneration", "SmolVLMForConditionalGeneration"],
        counts: &[
            ("hidden_size", 1152),
            ("intermediate_size", 3072),
            ("num_hidden_layers", 12),
            ("num_attention_heads", 16),
            ("patch_size", 32),
            ("image_size", 224),
        ],
        keys: idefics3,
        rules: &[SIGLIP, &[same("connector.modality_projection.proj", "mm.model.fc")]],
        exact: &["v.patch_embd.weight"],
        ..PLAIN
    },
    Encoder {
        classes: &["Gemma3ForConditionalGeneration"],
        counts: SIGLIP_COUNTS,
        keys: gemma3,
        rules: &[
            SIGLIP,
            &[
                same(
                    "multi_modal_projector.mm_input_projection_weight",
                    "mm.input_projection.weight",
                ),
                made("multi_modal_projector.mm_soft_emb_norm", "mm.soft_emb_norm", plus_one),
            ],
        ],
        exact: &["v.patch_embd.weight"],
        half: &["mm.input_projection.weight"],
        ..PLAIN
    },
    Encoder {
        classes: &["Gemma4ForConditionalGeneration"],
        counts: &[
            ("hidden_size", 768),
            ("intermediate_size", 3072),
            ("num_hidden_layers", 16),
            ("num_attention_heads", 12),
            ("patch_size", 16),
        ],
        defaults: |config| {
            // Images have any size; the key is needed all the same.
            config.set("image_size", 224);
            Ok(())
        },
        keys: gemma4,
        rules: &[GEMMA4],
        ..PLAIN
    },
    Encoder {
        classes: &["Qwen2VLForConditionalGeneration", "Qwen2VLModel"],
        counts: &[
            ("depth", 32),
            ("embed_dim", 1280),
            ("hidden_size", 3584),
            ("num_heads", 16),
            ("patch_size", 14),
            ("image_size", 560),
        ],
        defaults: |config| {
            // What the language model takes is called the width; files state it for feed-forward layers.
            let width = config.size(&["hidden_size"])?;
            config.set("intermediate_size", width);
            config.set("hidden_size", config.size(&["embed_dim"])?);
            Ok(())
        },
        keys: |d, _| {
            d.set("projector_type", "qwen2vl_merger");
            epsilon(d, outer_number(d.config, "rms_norm_eps")?.unwrap_or(1e-6))
        },
        rules: &[QWEN, QWEN2],
        ..PLAIN
    },
    Encoder {
        classes: &["Qwen2_5_VLForConditionalGeneration"],
        counts: &[
            ("depth", 32),
            ("hidden_size", 3584),
            ("intermediate_size", 3420),
            ("num_heads", 16),
            ("patch_size", 14),
            ("image_size", 560),
        ],
        defaults: |config| {
            config.or("fullatt_block_indexes", json!([7, 15, 23, 31]));
            Ok(())
        },
        keys: qwen25,
        rules: &[QWEN, QWEN2],
        ..PLAIN
    },
    Encoder {
        classes: &[
            "Qwen3VLForConditionalGeneration",
            "Qwen3VLMoeForConditionalGeneration",
            "Qwen3_5ForConditionalGeneration",
            "Qwen3_5MoeForConditionalGeneration",
        ],
        counts: &[
            ("depth", 27),
            ("hidden_size", 1152),
            ("intermediate_size", 4304),
            ("num_heads", 16),
            ("patch_size", 16),
            ("num_position_embeddings", 2304),
        ],
        defaults: |config| {
            let positions = config.size(&["num_position_embeddings"])? as f64;
            let size = positions.sqrt() * config.size(&["patch_size"])? as f64;
            config.or("image_size", size as usize);
            Ok(())
        },
        keys: qwen3,
        rules: &[QWEN, QWEN3],
        number: |config, kind, number| match kind.starts_with("vision.deepstack_merger_list.") {
            true => deep(config)?.get(number).copied().ok_or_else(|| {
                let what = "deepstack_visual_indexes has fewer layers than there are tensors for";
                Error::config(what)
            }),
            false => Ok(number),
        },
        ..PLAIN
    },
    Encoder {
        keys: |d, _| pixtral(d, None),
        classes: &["LlavaForConditionalGeneration"],
        ..PIXTRAL
    },
    Encoder {
        keys: |d, _| pixtral(d, Some(2)),
        classes: &["Mistral3ForConditionalGeneration"],
        ..PIXTRAL
    },
    Encoder {
        classes: &["Lfm2VlForConditionalGeneration"],
        counts: SIGLIP_COUNTS,
        defaults: |config| {
            config.set("image_size", 256);
            Ok(())
        },
        keys: lfm2,
        rules: &[
            &[made(
                "vision.embeddings.patch_embedding.weight",
                "v.patch_embd.weight",
                colours_last,
            )],
            SIGLIP,
            &[
                same("multi_modal_projector.layer_norm", "mm.input_norm"),
                same("multi_modal_projector.linear_1", "mm.1"),
                same("multi_modal_projector.linear_2", "mm.2"),
            ],
        ],
        ..PLAIN
    },
];

const PIXTRAL: Encoder = Encoder {
    kind: Some("pixtral"),
    counts: &[
        ("hidden_size", 1024),
        ("intermediate_size", 4096),
        ("num_hidden_layers", 24),
        ("num_attention_heads", 16),
        ("image_size", 1024),
        ("patch_size", 16),
    ],
    rules: &[PIXTRAL_RULES],
    extra: breaks,
    ..PLAIN
};

const SIGLIP_COUNTS: &[(&str, usize)] = &[
    ("hidden_size", 768),
    ("intermediate_size", 3072),
    ("num_hidden_layers", 12),
    ("num_attention_heads", 12),
    ("image_size", 224),
    ("patch_size", 16),
];

const SIGLIP: &[Rule] = &[
    same("vision.embeddings.patch_embedding", "v.patch_embd"),
    same("vision.embeddings.position_embedding", "v.position_embd"),
    same("vision.post_layernorm", "v.post_ln"),
    same("vision.encoder.layers.*.layer_norm1", "v.blk.*.ln1"),
    same("vision.encoder.layers.*.layer_norm2", "v.blk.*.ln2"),
    same("vision.encoder.layers.*.self_attn.q_proj", "v.blk.*.attn_q"),
    same("vision.encoder.layers.*.self_attn.k_proj", "v.blk.*.attn_k"),
    same("vision.encoder.layers.*.self_attn.v_proj", "v.blk.*.attn_v"),
    same("vision.encoder.layers.*.self_attn.out_proj", "v.blk.*.attn_out"),
    same("vision.encoder.layers.*.mlp.fc1", "v.blk.*.ffn_up"),
    same("vision.encoder.layers.*.mlp.fc2", "v.blk.*.ffn_down"),
    // Pools all patches to one vector, which a language model does not take.
    without("vision.head.probe"),
    without("vision.head.attention.in_proj_weight"),
    without("vision.head.attention.in_proj_bias"),
    without("vision.head.attention.out_proj"),
    without("vision.head.layernorm"),
    without("vision.head.mlp.fc1"),
    without("vision.head.mlp.fc2"),
];

const QWEN: &[Rule] = &[
    made(
        "vision.patch_embed.proj.weight",
        "v.patch_embd.weight v.patch_embd.weight.1",
        two_pictures,
    ),
    same("vision.patch_embed.proj", "v.patch_embd"),
    same("vision.blocks.*.norm1", "v.blk.*.ln1"),
    same("vision.blocks.*.norm2", "v.blk.*.ln2"),
    same("vision.blocks.*.attn.proj", "v.blk.*.attn_out"),
];

const QWEN2: &[Rule] = &[
    made("vision.blocks.*.attn.qkv", "v.blk.*.attn_q v.blk.*.attn_k v.blk.*.attn_v", thirds),
    same("vision.blocks.*.mlp.fc1", "v.blk.*.ffn_up"),
    same("vision.blocks.*.mlp.fc2", "v.blk.*.ffn_down"),
    same("vision.blocks.*.mlp.gate_proj", "v.blk.*.ffn_gate"),
    same("vision.blocks.*.mlp.up_proj", "v.blk.*.ffn_up"),
    same("vision.blocks.*.mlp.down_proj", "v.blk.*.ffn_down"),
    same("vision.merger.ln_q", "v.post_ln"),
    same("vision.merger.mlp.*", "mm.*"),
];

const QWEN3: &[Rule] = &[
    same("vision.pos_embed", "v.position_embd"),
    same("vision.blocks.*.attn.qkv", "v.blk.*.attn_qkv"),
    same("vision.blocks.*.mlp.linear_fc1", "v.blk.*.ffn_up"),
    same("vision.blocks.*.mlp.linear_fc2", "v.blk.*.ffn_down"),
    same("vision.merger.norm", "v.post_ln"),
    same("vision.merger.linear_fc1", "mm.0"),
    same("vision.merger.linear_fc2", "mm.2"),
    same("vision.deepstack_merger_list.*.norm", "v.deepstack.*.norm"),
    same("vision.deepstack_merger_list.*.linear_fc1", "v.deepstack.*.fc1"),
    same("vision.deepstack_merger_list.*.linear_fc2", "v.deepstack.*.fc2"),
];

const PIXTRAL_RULES: &[Rule] = &[
    same("vision.patch_conv", "v.patch_embd"),
    same("vision.ln_pre", "v.pre_ln"),
    same("vision.transformer.layers.*.attention_norm", "v.blk.*.ln1"),
    same("vision.transformer.layers.*.ffn_norm", "v.blk.*.ln2"),
    made("vision.transformer.layers.*.attention.q_proj", "v.blk.*.attn_q", queries),
    made("vision.transformer.layers.*.attention.k_proj", "v.blk.*.attn_k", queries),
    same("vision.transformer.layers.*.attention.v_proj", "v.blk.*.attn_v"),
    same("vision.transformer.layers.*.attention.o_proj", "v.blk.*.attn_out"),
    same("vision.transformer.layers.*.feed_forward.gate_proj", "v.blk.*.ffn_gate"),
    same("vision.transformer.layers.*.feed_forward.up_proj", "v.blk.*.ffn_up"),
    same("vision.transformer.layers.*.feed_forward.down_proj", "v.blk.*.ffn_down"),
    same("multi_modal_projector.norm", "mm.input_norm"),
    same("multi_modal_projector.patch_merger.merging_layer", "mm.patch_merger"),
    same("multi_modal_projector.linear_1", "mm.1"),
    same("multi_modal_projector.linear_2", "mm.2"),
];

const GEMMA4: &[Rule] = &[
    made("vision.patch_embedder.input_proj.weight", "v.patch_embd.weight", colours_last),
    same("vision.patch_embedder.position_embedding_table", "v.position_embd.weight"),
    same("vision.std_bias", "v.std_bias"),
    same("vision.std_scale", "v.std_scale"),
    same("vision.encoder.layers.*.input_layernorm", "v.blk.*.ln1"),
    same("vision.encoder.layers.*.post_attention_layernorm", "v.blk.*.attn_post_norm"),
    same("vision.encoder.layers.*.pre_feedforward_layernorm", "v.blk.*.ln2"),
    same("vision.encoder.layers.*.post_feedforward_layernorm", "v.blk.*.ffn_post_norm"),
    same("vision.encoder.layers.*.self_attn.q_norm", "v.blk.*.attn_q_norm"),
    same("vision.encoder.layers.*.self_attn.k_norm", "v.blk.*.attn_k_norm"),
    same("vision.encoder.layers.*.self_attn.q_proj", "v.blk.*.attn_q"),
    same("vision.encoder.layers.*.self_attn.k_proj", "v.blk.*.attn_k"),
    same("vision.encoder.layers.*.self_attn.v_proj", "v.blk.*.attn_v"),
    same("vision.encoder.layers.*.self_attn.o_proj", "v.blk.*.attn_out"),
    same("vision.encoder.layers.*.mlp.gate_proj", "v.blk.*.ffn_gate"),
    same("vision.encoder.layers.*.mlp.up_proj", "v.blk.*.ffn_up"),
    same("vision.encoder.layers.*.mlp.down_proj", "v.blk.*.ffn_down"),
    same("vision.encoder.layers.*.layer_scalar", "v.blk.*.out_scale.weight"),
    same("embed_vision.embedding_projection", "mm.input_projection"),
];

/// Whether a tensor is of an image encoder, or of what stands between it and the language model.
pub(super) fn is_of_encoder(name: &str) -> bool {
    ["vision.", "connector.", "multi_modal_projector.", "embed_vision."]
        .iter()
        .any(|begin| name.starts_with(begin))
}

/// The family of a folder's encoder.
pub(super) fn of(whole: &Config, vision: &Config) -> Result<&'static Encoder, Error> {
    let classes = whole.architectures();
    let kind = vision.text(&["model_type"]);
    let found = ALL.iter().find(|encoder| {
        let of_kind = encoder.kind.is_none_or(|wanted| kind == Some(wanted));
        of_kind && classes.iter().any(|class| encoder.classes.contains(class))
    });
    found.ok_or_else(|| {
        let class = classes.first().copied().unwrap_or("no class");
        let kind = kind.map(|kind| format!(" ({kind})")).unwrap_or_default();
        Error::config(format!("the image encoder{kind} of {class} is not converted"))
    })
}

fn epsilon(d: &mut Draft<'_>, eps: f64) -> Result<(), Error> {
    d.set_number("vision.attention.layer_norm_epsilon", eps);
    Ok(())
}

/// Of SigLIP, which stands in many models.
fn siglip(d: &mut Draft<'_>, projector: &str) -> Result<(), Error> {
    d.set("projector_type", projector);
    d.set("use_gelu", true);
    epsilon(d, d.config.opt_number(&["layer_norm_eps"])?.unwrap_or(1e-6))
}

fn outer_size(config: &Config, key: &str) -> Result<Option<usize>, Error> {
    config.outer(key).map(|value| config::size(key, value)).transpose()
}

fn outer_number(config: &Config, key: &str) -> Result<Option<f64>, Error> {
    config.outer(key).map(|value| config::number(key, value)).transpose()
}

fn idefics3(d: &mut Draft<'_>, source: &Source<'_>) -> Result<(), Error> {
    siglip(d, "idefics3")?;
    let config = d.config;
    let scale = outer_size(config, "scale_factor")?.unwrap_or(2);
    d.set_size("vision.projector.scale_factor", scale);
    let longest = source.processor.get("size").and_then(|size| size.get("longest_edge"));
    let longest = longest.map(|value| config::size("longest_edge", value)).transpose()?;
    let longest = longest.map_or_else(|| config.size(&["image_size"]), Ok)?;
    d.set_size("vision.preproc_image_size", longest);
    Ok(())
}

fn gemma3(d: &mut Draft<'_>, source: &Source<'_>) -> Result<(), Error> {
    siglip(d, "gemma3")?;
    let outputs = source.processor.get("image_seq_length").and_then(Value::as_u64).unwrap_or(256);
    let patches = d.config.size(&["image_size"])? / d.config.size(&["patch_size"])?.max(1);
    let scale = patches.checked_div(outputs.isqrt() as usize).unwrap_or(0);
    // Readers take 4 where nothing is said.
    if scale > 0 && scale != 4 {
        d.set_size("vision.projector.scale_factor", scale);
    }
    Ok(())
}

fn gemma4(d: &mut Draft<'_>, _: &Source<'_>) -> Result<(), Error> {
    d.set("vision.projector_type", "gemma4v");
    epsilon(d, d.config.opt_number(&["layer_norm_eps"])?.unwrap_or(1e-6))
}

fn qwen25(d: &mut Draft<'_>, _: &Source<'_>) -> Result<(), Error> {
    d.set("projector_type", "qwen2.5vl_merger");
    d.set("use_silu", true);
    periods(d)?;
    epsilon(d, outer_number(d.config, "rms_norm_eps")?.unwrap_or(1e-6))
}

/// Of so many layers the last one sees everything, the others a window.
fn periods(d: &mut Draft<'_>) -> Result<(), Error> {
    let whole = d.config.numbers("fullatt_block_indexes")?.unwrap_or_default();
    let period = whole.first().map_or(0.0, |first| first + 1.0);
    let regular = whole.windows(2).all(|pair| pair[1] - pair[0] == period);
    if period <= 0.0 || !regular {
        let what = format!(
            "fullatt_block_indexes is {whole:?}, and files know one in every so many layers"
        );
        return Err(Error::config(what));
    }
    d.set_size("vision.n_wa_pattern", period as usize);
    Ok(())
}

/// Layers whose outputs the first layers of the language model add.
fn deep(config: &Config) -> Result<Vec<usize>, Error> {
    let list = config.opt_list("deepstack_visual_indexes")?.into_iter().flatten();
    list.map(|value| config::size("deepstack_visual_indexes", value)).collect()
}

fn qwen3(d: &mut Draft<'_>, _: &Source<'_>) -> Result<(), Error> {
    let config = d.config;
    d.set("projector_type", "qwen3vl_merger");
    d.set("use_gelu", true);
    d.copy_size("vision.spatial_merge_size", &["spatial_merge_size"])?;
    let of_text = config.outer("text_config").and_then(|text| text.get("rms_norm_eps"));
    epsilon(d, of_text.and_then(Value::as_f64).unwrap_or(1e-6))?;
    let mut layers = vec![false; config.size(&["depth"])?];
    for layer in deep(config)? {
        let count = layers.len();
        *layers.get_mut(layer).ok_or_else(|| {
            let what =
                format!("deepstack_visual_indexes has {layer}, and the encoder {count} layers");
            Error::config(what)
        })? = true;
    }
    if !layers.is_empty() {
        d.set("vision.is_deepstack_layers", layers);
    }
    Ok(())
}

fn pixtral(d: &mut Draft<'_>, merge: Option<usize>) -> Result<(), Error> {
    let config = d.config;
    d.set("projector_type", "pixtral");
    epsilon(d, config.opt_number(&["layer_norm_eps"])?.unwrap_or(1e-5))?;
    match config.text(&["hidden_act"]).unwrap_or("gelu") {
        "silu" => d.set("use_silu", true),
        "gelu" => d.set("use_gelu", true),
        other => {
            return Err(Error::config(format!("hidden_act is {other:?}, which no file can say")));
        }
    }
    if let Some(merge) = outer_size(config, "spatial_merge_size")?.or(merge) {
        d.set_size("vision.spatial_merge_size", merge);
    }
    Ok(())
}

fn lfm2(d: &mut Draft<'_>, _: &Source<'_>) -> Result<(), Error> {
    siglip(d, "lfm2")?;
    let config = d.config;
    let scale = outer_size(config, "downsample_factor")?.unwrap_or(2);
    d.set_size("vision.projector.scale_factor", scale);
    // Counted from the end as Python does: -1 is the last layer.
    let last = outer_number(config, "vision_feature_layer")?.unwrap_or(-1.0);
    let layers = config.size(&["num_hidden_layers"])?;
    let left_out = (-(last + 1.0)).max(0.0) as usize;
    d.set_size("vision.block_count", layers.saturating_sub(left_out));
    Ok(())
}

/// The embedding of the token at the end of each row of an image.
fn breaks(source: &Source<'_>, stored: &[(String, Array)]) -> Result<Extra, Error> {
    const TOKEN: &str = "[IMG_BREAK]";
    let from_config = source.folder.json("tokenizer_config.json")?.and_then(|config| {
        let tokens = config.get("added_tokens_decoder")?.as_object()?.clone();
        let found = tokens.into_iter().find(|(_, about)| about["content"] == TOKEN);
        found.and_then(|(id, _)| id.parse::<usize>().ok())
    });
    let from_tokens = || -> Result<Option<usize>, Error> {
        let Some(tokenizer) = source.folder.json("tokenizer.json")? else { return Ok(None) };
        let mut tokens = tokenizer["added_tokens"].as_array().into_iter().flatten();
        let id = tokens.find(|token| token["content"] == TOKEN).map(|token| &token["id"]);
        Ok(id.and_then(Value::as_u64).map(|id| id as usize))
    };
    let id = match from_config {
        Some(id) => id,
        None => from_tokens()?.ok_or_else(|| {
            Error::vocabulary(
                "tokenizer.json",
                "it has no token [IMG_BREAK], which its images need",
            )
        })?,
    };
    let table = stored.iter().find(|(name, _)| name.ends_with("embed_tokens.weight"));
    let Some((name, table)) = table else {
        let [name, wanted] = ["embed_tokens.weight", "v.token_embd.img_break"].map(str::to_owned);
        return Err(Error::MissingTensor { name, wanted });
    };
    if id >= table.shape()[0] {
        let (name, shape) = (name.clone(), table.shape().to_vec());
        return Err(Error::Shape { name, shape, want: format!("and token {id} is beyond it") });
    }
    let row = table.part(id..id + 1);
    Ok(vec![("v.token_embd.img_break", row.reshaped(&[row.elements()]))])
}

/// A convolution over two pictures of a film as one for each.
fn two_pictures(at: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    let [rows, colours, 2, height, width] = *of.shape() else {
        let want = "and not rows, colours, 2 pictures, height and width".to_owned();
        return Err(at.shape(&of, want));
    };
    let film = of.reshaped(&[rows * colours, 2, height * width]);
    let one = |n| film.every(2, n).reshaped(&[rows, colours, height, width]);
    Ok(vec![one(0), one(1)])
}

/// Weights of patches whose pixels have their colours side by side as a convolution, colour by colour.
fn colours_last(at: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    let side = of.shape().last().map_or(0, |all| (all / 3).isqrt());
    match *of.shape() {
        [rows, all] if all == 3 * side * side && side > 0 => {
            let by_colour = of.reshaped(&[rows, side * side, 3]).turned();
            Ok(vec![by_colour.reshaped(&[rows, 3, side, side])])
        }
        _ => Err(at.shape(&of, "and its rows are no squares of three colours".to_owned())),
    }
}

/// Queries, keys and values one behind the other.
fn thirds(at: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    match of.shape().first() {
        Some(rows) if rows.is_multiple_of(3) => Ok(of.split(3)),
        _ => Err(at.shape(&of, "and cannot be cut into three".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(shape: &[usize]) -> Array {
        let count = shape.iter().product::<usize>();
        Array::of_values((0..count).map(|x| x as f32).collect()).reshaped(shape)
    }

    #[test]
    fn weights_of_patches_become_a_convolution() {
        let config = Config::new(json!({})).unwrap();
        let at = At { config: &config, name: "patches" };
        let film = two_pictures(&at, array(&[1, 2, 2, 1, 2])).unwrap();
        assert_eq!(film[0].all(), [0.0, 1.0, 4.0, 5.0]);
        assert_eq!((film[1].all(), film[1].shape()), (vec![2.0, 3.0, 6.0, 7.0], &[1, 2, 1, 2][..]));
        assert!(two_pictures(&at, array(&[1, 2, 3, 1, 2])).is_err());
        let patch = &colours_last(&at, array(&[1, 12])).unwrap()[0];
        assert_eq!(patch.shape(), [1, 3, 2, 2]);
        assert_eq!(patch.all(), [0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11].map(|x| x as f32));
        assert!(colours_last(&at, array(&[1, 10])).is_err());
    }

    #[test]
    fn a_class_with_several_encoders_is_known_by_its_kind() {
        let whole =
            Config::new(json!({"architectures": ["LlavaForConditionalGeneration"]})).unwrap();
        let known = |kind: &str| of(&whole, &Config::new(json!({"model_type": kind})).unwrap());
        assert!(known("pixtral").is_ok());
        let why = known("clip_vision_model").err().unwrap().to_string();
        assert!(why.contains("(clip_vision_model) of LlavaForConditionalGeneration"), "{why}");
    }

    #[test]
    fn layers_with_windows_are_stated_by_their_period() {
        let stated = |layers: Value| {
            let whole =
                Config::new(json!({"vision_config": {"fullatt_block_indexes": layers}})).unwrap();
            let config = whole.part("vision_config").unwrap();
            let mut draft = Draft::new(&config, "clip");
            periods(&mut draft).map(|()| draft.has("clip.vision.n_wa_pattern"))
        };
        assert!(stated(json!([7, 15, 23, 31])).unwrap());
        for irregular in [json!([]), json!([7, 16]), json!([3, 6])] {
            assert!(stated(irregular.clone()).is_err(), "{irregular}");
        }
    }
}
