//! The tensors of a file, by the rules of its family.

use crate::array::Array;
use crate::config::Config;
use crate::error::Error;
use crate::families::{Family, Predicting};
use crate::rules::{At, Rule, USUAL};
use gguf::TensorType;
use std::collections::HashMap;

/// A tensor of the file.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) name: String,
    pub(crate) array: Array,
}

impl Made {
    /// Its type in a file of floats: small ones and those that decide much are F32.
    pub(crate) fn ty(&self, float: TensorType) -> TensorType {
        if let Some(kept) = self.array.kept() {
            return kept;
        }
        const EXACT: [&str; 6] = [
            "ffn_gate_inp",
            "ffn_gate_inp_shexp",
            "ssm_conv1d",
            "shortconv.conv",
            "altup_correct_coef",
            "altup_predict_coef",
        ];
        let kind = of_layer(&self.name).map_or(&*self.name, |(_, kind)| kind);
        let exact = match kind.strip_suffix(".weight") {
            None => true,
            Some(kind) => {
                kind.ends_with("_norm")
                    || EXACT.contains(&kind)
                    || matches!(kind, "position_embd" | "token_types")
            }
        };
        if exact || self.array.shape().len() < 2 { TensorType::F32 } else { float }
    }
}

/// The layer of a tensor of a file, and its name there.
pub(crate) fn of_layer(name: &str) -> Option<(usize, &str)> {
    let (layer, kind) = name.strip_prefix("blk.")?.split_once('.')?;
    Some((layer.parse().ok()?, kind))
}

/// What names begin with, before `layers` or their own.
const BEFORE: [&str; 9] = [
    "model.",
    "language_model.",
    "model.",
    "transformer.",
    "backbone.",
    "text_model.",
    "ernie.",
    "lfm.",
    "gpt_neox.",
];

/// Parts of models that see or hear.
fn is_of_another_sense(name: &str) -> bool {
    const BEGIN: [&str; 10] = [
        "vit.",
        "vpm.",
        "siglip2.",
        "conformer.",
        "merger.",
        "resampler.",
        "sound_encoder.",
        "sound_projection.",
        "speech_embeddings.",
        "mlp1.",
    ];
    const HAVE: [&str; 16] = [
        "visual.",
        "vision.",
        "audio.",
        "talker.",
        "vision_",
        "audio_",
        "token2wav.",
        "code2wav.",
        "projector.",
        "pre_mm_projector_norm",
        "image_newline",
        "view_seperator",
        "patch_embed",
        "patch_merger.",
        "patch_merge_mlp.",
        "model.connector.",
    ];
    BEGIN.iter().any(|begin| name.starts_with(begin)) || HAVE.iter().any(|have| name.contains(have))
}

/// Where a tensor of the folder belongs in the file.
pub(crate) struct Place {
    pub(crate) rule: &'static Rule,
    /// What the name in the file ends with besides.
    pub(crate) ending: &'static str,
    pub(crate) layer: Option<usize>,
    /// Which of several that are stacked.
    pub(crate) number: Option<usize>,
}

/// What becomes of a name.
pub(crate) enum Placed {
    There(Place),
    LeftOut,
    Nowhere,
}

/// Where the tensor `name` belongs by the rules of a family.
pub(crate) fn placed(family: &Family, config: &Config, name: &str) -> Placed {
    let renamed = match family.rename {
        Some(rename) => rename(config, name),
        None => Some(name.to_owned()),
    };
    let Some(renamed) = renamed else { return Placed::LeftOut };
    let mut short = &*renamed;
    for before in BEFORE {
        short = short.strip_prefix(before).unwrap_or(short);
    }
    let layer = ["layers.", "h.", "blocks."].iter().find_map(|list| short.strip_prefix(list));
    let layer = layer.and_then(|rest| rest.split_once('.'));
    let layer = layer.and_then(|(n, rest)| Some((n.parse::<usize>().ok()?, rest)));
    let layers = config.layers().unwrap_or(usize::MAX);
    if layer.is_some_and(|(n, _)| n >= layers) && family.predicting != Predicting::Kept {
        return Placed::LeftOut;
    }
    let (kind, number) = numbered(layer.map_or(short, |(_, rest)| rest));
    match find(family, layer.is_some(), &kind) {
        None => Placed::Nowhere,
        Some(Found { rule, .. }) if rule.to.is_empty() => Placed::LeftOut,
        Some(Found { rule, ending }) => {
            Placed::There(Place { rule, ending, layer: layer.map(|(n, _)| n), number })
        }
    }
}

/// Makes the file's tensors of the folder's.
pub(crate) fn tensors(
    family: &Family,
    arch: &'static str,
    config: &Config,
    stored: Vec<(String, Array)>,
) -> Result<Vec<Made>, Error> {
    config.layers()?;
    let mut order: Vec<String> = Vec::new();
    let mut parts: HashMap<String, Vec<(Option<usize>, Array)>> = HashMap::new();
    for (name, array) in stored {
        if is_of_another_sense(&name) {
            continue;
        }
        let Place { rule, ending, layer, number } = match placed(family, config, &name) {
            Placed::There(place) => place,
            Placed::LeftOut => continue,
            Placed::Nowhere => return Err(Error::UnknownTensor { name, arch }),
        };
        let at = At { config, name: &name };
        let made = (rule.how)(&at, array)?;
        for (to, array) in rule.to.split(' ').zip(made) {
            let to = match layer {
                Some(n) => format!("{}.{n}.{to}{ending}", family.blocks),
                None => format!("{to}{ending}"),
            };
            let of = parts.entry(to.clone()).or_default();
            if of.is_empty() {
                order.push(to.clone());
            } else if number.is_none() || of.iter().any(|(n, _)| *n == number) {
                return Err(Error::config(format!("tensor `{name}` is a second one for `{to}`")));
            }
            of.push((number, array));
        }
    }
    let mut all = Vec::with_capacity(order.len());
    for name in order {
        let of = parts.remove(&name).expect("it was put there with its name");
        all.push(whole(config, name, of)?);
    }
    Ok(all)
}

/// One tensor of its members.
fn whole(
    config: &Config,
    name: String,
    mut of: Vec<(Option<usize>, Array)>,
) -> Result<Made, Error> {
    if of[0].0.is_none() {
        return Ok(Made { array: of.swap_remove(0).1, name });
    }
    of.sort_by_key(|(number, _)| *number);
    let wanted = if name.contains("_exps.") { config.experts()? } else { None };
    let wanted = wanted.unwrap_or(of.len());
    if let Some(missing) = (0..wanted).find(|&n| of.get(n).is_none_or(|(m, _)| *m != Some(n))) {
        return Err(Error::MissingTensor { name: format!("expert {missing}"), wanted: name });
    }
    if of.len() > wanted {
        return Err(Error::config(format!(
            "`{name}` has {} members, and there should be {wanted}",
            of.len()
        )));
    }
    let first = of[0].1.shape().to_vec();
    if let Some((n, other)) = of.iter().find(|(_, array)| array.shape() != first) {
        return Err(Error::Shape {
            name: format!("{name}, member {}", n.unwrap_or(0)),
            shape: other.shape().to_vec(),
            want: format!("and the first is {first:?}"),
        });
    }
    Ok(Made { name, array: Array::stacked(of.into_iter().map(|(_, array)| array).collect()) })
}

/// A name with `*` for its number, and the number.
pub(crate) fn numbered(name: &str) -> (String, Option<usize>) {
    let mut number = None;
    let parts: Vec<&str> = name
        .split('.')
        .map(|part| match part.parse() {
            Ok(n) if number.is_none() => {
                number = Some(n);
                "*"
            }
            _ => part,
        })
        .collect();
    (parts.join("."), number)
}

struct Found {
    rule: &'static Rule,
    /// What the name in the file ends with besides.
    ending: &'static str,
}

fn find(family: &Family, in_layer: bool, name: &str) -> Option<Found> {
    let lists = family.rules.iter().copied().chain([USUAL]);
    let ending = [".weight", ".bias"].into_iter().find(|ending| name.ends_with(ending));
    let stem = ending.map_or(name, |ending| &name[..name.len() - ending.len()]);
    let belongs = |rule: &&Rule| in_layer || !rule.to.starts_with("nextn.");
    let top =
        |rule: &&Rule| !in_layer || !matches!(rule.to, "token_embd" | "output_norm" | "output");
    for list in lists {
        if let Some(rule) = list.iter().filter(belongs).filter(top).find(|rule| rule.from == name) {
            return Some(Found { rule, ending: "" });
        }
        if let Some(ending) = ending
            && let Some(rule) =
                list.iter().filter(belongs).filter(top).find(|rule| rule.from == stem)
        {
            return Some(Found { rule, ending });
        }
    }
    None
}
