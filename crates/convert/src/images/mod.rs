//! Image encoders of folders whose models read images, as files of their own (`mmproj`).
//!
//! Names, keys and types are those of `MmprojModel` in llama.cpp's converter. An encoder is read from the same folder as
//! its language model: by `vision_config`, the processor's configuration and the tensors that are not of text.

mod families;

use crate::about;
use crate::array::Array;
use crate::config::Config;
use crate::draft::Draft;
use crate::error::Error;
use crate::folder::Folder;
use crate::rules::{At, Rule};
use crate::stored;
use crate::tensors::{self, Made};
use families::Encoder;
use gguf::{OwnedValue, TensorType};
use serde_json::{Map, Value};

/// The key of the encoder's part of a configuration.
const VISION: &str = "vision_config";

/// The folder that a file is made from, and what it states of the processor.
pub(crate) struct Source<'a> {
    folder: &'a Folder,
    processor: Map<String, Value>,
}

/// A file in the making.
pub(crate) struct File {
    pub(crate) metadata: Vec<(String, OwnedValue)>,
    pub(crate) tensors: Vec<(Made, TensorType)>,
    /// What a person should know of it.
    pub(crate) notes: Vec<String>,
}

/// The file of a folder's image encoder; `None` if the folder has none. Its matrices are of the type `float`.
pub(crate) fn file(folder: &Folder, float: TensorType) -> Result<Option<File>, Error> {
    let Some(mut config) = folder.config.part(VISION) else { return Ok(None) };
    let stored: Vec<(String, Array)> =
        stored::arrays(folder)?.into_iter().map(|(name, array)| (plain(&name), array)).collect();
    if !stored.iter().any(|(name, _)| families::is_of_encoder(name)) {
        return Ok(None);
    }
    let encoder = families::of(&folder.config, &config)?;
    encoder.counts.iter().for_each(|(key, count)| config.or(key, *count));
    (encoder.defaults)(&mut config)?;
    let source = Source { folder, processor: processor(folder)? };
    let mut draft = Draft::new(&config, "clip");
    usual(&mut draft, &source)?;
    (encoder.keys)(&mut draft, &source)?;
    let mut made = Vec::new();
    for (name, array) in (encoder.extra)(&source, &stored)? {
        made.push(Made { name: name.to_owned(), array });
    }
    for (name, array) in stored {
        if families::is_of_encoder(&name) {
            made.extend(placed(encoder, &config, &name, array)?);
        }
    }
    about::add(&mut draft, folder, &made)?;
    draft.general("general.type", "mmproj");
    draft.general("general.file_type", float.info().file.0);
    draft.general("general.quantization_version", 2u32);
    let metadata = draft.into_pairs();
    let typed = made.into_iter().map(|made| (ty(encoder, &made, float), made));
    let tensors = typed.map(|(ty, made)| (made, ty)).collect();
    let mut notes = Vec::new();
    if folder.config.outer("audio_config").is_some() {
        notes.push("its encoder of sound is left out: the file is of images alone".to_owned());
    }
    Ok(Some(File { metadata, tensors, notes }))
}

/// What a folder states of the processor of images, the newer of two files first.
fn processor(folder: &Folder) -> Result<Map<String, Value>, Error> {
    let mut all = Map::new();
    for (file, part) in [
        ("preprocessor_config.json", "media_proc_cfg"),
        ("processor_config.json", "image_processor"),
    ] {
        let Some(Value::Object(mut said)) = folder.json(file)? else { continue };
        if let Some(Value::Object(part)) = said.get(part).cloned() {
            said.extend(part);
        }
        all.extend(said);
    }
    Ok(all)
}

impl Source<'_> {
    /// A number for each colour.
    fn colours(&self, key: &str) -> Result<Vec<f32>, Error> {
        let fault = |what: &str| Error::Config {
            file: "preprocessor_config.json",
            what: format!("{key} {what}"),
        };
        let list = self.processor.get(key).ok_or_else(|| fault("is not stated"))?;
        let numbers = list.as_array().map(|list| list.iter().map(Value::as_f64));
        let numbers: Option<Vec<f64>> = numbers.and_then(Iterator::collect);
        let numbers = numbers.filter(|numbers| numbers.len() == 3);
        let numbers = numbers.ok_or_else(|| fault("should be a number for each colour"))?;
        Ok(numbers.into_iter().map(|number| number as f32).collect())
    }
}

/// What all encoders state.
fn usual(d: &mut Draft<'_>, source: &Source<'_>) -> Result<(), Error> {
    let config = d.config;
    d.set("has_vision_encoder", true);
    d.set_size("vision.projection_dim", source.folder.config.hidden()?);
    for (key, from) in [
        ("image_size", &["image_size"][..]),
        ("patch_size", &["patch_size"]),
        ("embedding_length", &["hidden_size"]),
        ("feed_forward_length", &["intermediate_size"]),
        ("block_count", &["num_hidden_layers", "depth"]),
        ("attention.head_count", &["num_attention_heads", "num_heads"]),
    ] {
        d.set_size(&format!("vision.{key}"), config.size(from)?);
    }
    d.set("vision.image_mean", source.colours("image_mean")?);
    d.set("vision.image_std", source.colours("image_std")?);
    Ok(())
}

/// A name without what folders put before it in turns.
fn plain(name: &str) -> String {
    let name = name.strip_prefix("model.").unwrap_or(name);
    // Gemma 4's products with limits beside them.
    let name = &*name.replace(".linear.weight", ".weight");
    for tower in ["vision_tower.vision_model.", "vision_tower.", "vision_model.", "visual."] {
        if let Some(rest) = name.strip_prefix(tower) {
            return format!("vision.{rest}");
        }
    }
    name.to_owned()
}

/// The tensors of the file that one of the folder becomes; none if the family leaves it out.
fn placed(
    encoder: &Encoder,
    config: &Config,
    name: &str,
    array: Array,
) -> Result<Vec<Made>, Error> {
    let (kind, number) = tensors::numbered(name);
    let Some((rule, ending)) = find(encoder, &kind) else {
        return Err(Error::UnknownTensor { name: name.to_owned(), arch: "clip" });
    };
    if rule.to.is_empty() {
        return Ok(Vec::new());
    }
    let number = number.map(|number| (encoder.number)(config, &kind, number)).transpose()?;
    let number = number.map(|number| number.to_string()).unwrap_or_default();
    let arrays = (rule.how)(&At { config, name }, array)?;
    let names = rule.to.split(' ').map(|to| to.replace('*', &number) + ending);
    Ok(names.zip(arrays).map(|(name, array)| Made { name, array }).collect())
}

/// What a module may have: its weights, and what is added or limited.
const ENDINGS: [&str; 6] =
    [".weight", ".bias", ".input_min", ".input_max", ".output_min", ".output_max"];

/// The rule of a name with `*` for its number, and what the name in the file ends with besides.
fn find(encoder: &Encoder, kind: &str) -> Option<(&'static Rule, &'static str)> {
    let rules = || encoder.rules.iter().copied().flatten();
    if let Some(rule) = rules().find(|rule| rule.from == kind) {
        return Some((rule, ""));
    }
    let ending = ENDINGS.into_iter().find(|ending| kind.ends_with(ending))?;
    let stem = kind.strip_suffix(ending)?;
    rules().find(|rule| rule.from == stem).map(|rule| (rule, ending))
}

/// The type of a tensor in a file whose matrices are of the type `float`.
fn ty(encoder: &Encoder, made: &Made, float: TensorType) -> TensorType {
    let name = &*made.name;
    // There are no kernels for other types there.
    let of_patches = name.starts_with("v.patch_embd.weight") || name == "mm.patch_merger.weight";
    match () {
        () if made.array.shape().len() < 2 => TensorType::F32,
        () if encoder.half.contains(&name) => TensorType::F16,
        () if encoder.exact.contains(&name) => TensorType::F32,
        () if of_patches && float == TensorType::F16 => TensorType::F16,
        () if of_patches => TensorType::F32,
        () if name == "v.position_embd.weight" || !name.ends_with(".weight") => TensorType::F32,
        () => float,
    }
}
