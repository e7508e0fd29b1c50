//! `general.*`: what a model is called, who made it, of what, and how it is best sampled from.

mod card;
mod name;

use crate::draft::Draft;
use crate::error::Error;
use crate::folder::Folder;
use crate::tensors::Made;
use card::Card;
use gguf::OwnedValue;
use name::{Parts, title};
use serde_json::Value;

/// Adds all of it to the metadata.
pub(crate) fn add(draft: &mut Draft<'_>, folder: &Folder, made: &[Made]) -> Result<(), Error> {
    draft.general("general.type", "model");
    let sizes = Sizes::of(made);
    let card = match folder.text("README.md") {
        Ok(text) => Card::of(text.as_deref().unwrap_or("")),
        // A card that is no text says nothing.
        Err(Error::Vocabulary { .. }) => Card::default(),
        Err(e) => return Err(e),
    };
    sampling(draft, folder)?;
    names(draft, folder, &card, &sizes);
    origin(draft, &card, sizes.all);
    Ok(())
}

/// Numbers of parameters.
struct Sizes {
    all: u64,
    /// Of what every token goes through, and one expert of each layer.
    of_one: u64,
    experts: u64,
}

impl Sizes {
    fn of(made: &[Made]) -> Sizes {
        let (mut all, mut of_one, mut sum, mut tensors) = (0, 0, 0, 0);
        for tensor in made {
            let (shape, size) = (tensor.array.shape(), tensor.array.elements() as u64);
            all += size;
            let experts = match shape {
                [.., experts, _, _] if tensor.name.contains("_exps.") => {
                    Some(match tensor.name.contains(".bias") {
                        true => shape[shape.len() - 2] as u64,
                        false => *experts as u64,
                    })
                }
                _ => None,
            };
            match experts {
                Some(experts) => {
                    of_one += size.checked_div(experts).unwrap_or(0);
                    sum += experts;
                    tensors += 1;
                }
                None => of_one += size,
            }
        }
        Sizes { all, of_one, experts: sum.checked_div(tensors).unwrap_or(0) }
    }

    /// As in `8x7B`.
    fn label(&self) -> String {
        match self.experts {
            0 => rounded(self.all),
            experts => format!("{experts}x{}", rounded(self.of_one)),
        }
    }
}

/// A count with two digits at least and a unit.
fn rounded(count: u64) -> String {
    let count = count as f64;
    let (scaled, unit) = match count {
        c if c > 1e12 => (c * 1e-12, "T"),
        c if c > 1e9 => (c * 1e-9, "B"),
        c if c > 1e6 => (c * 1e-6, "M"),
        c => (c * 1e-3, "K"),
    };
    let whole = scaled.round_ties_even() as u64;
    let digits = if whole == 0 { 0 } else { whole.ilog10() as usize + 1 };
    format!("{scaled:.*}{unit}", 2_usize.saturating_sub(digits))
}

/// What `generation_config.json` recommends.
fn sampling(draft: &mut Draft<'_>, folder: &Folder) -> Result<(), Error> {
    let said = match folder.json("generation_config.json") {
        Ok(said) => said.unwrap_or(Value::Null),
        // Some are none; nothing else depends on them.
        Err(Error::Json { .. }) => Value::Null,
        Err(e) => return Err(e),
    };
    if let Some(sequence) = said["sequence"].as_str() {
        draft.general("general.sampling.sequence", sequence);
    }
    for (key, from) in
        [("top_k", "top_k"), ("penalty_last_n", "penalty_last_n"), ("mirostat", "mirostat")]
    {
        if let Some(number) = said[from].as_i64().and_then(|n| i32::try_from(n).ok()) {
            draft.general(format!("general.sampling.{key}"), number);
        }
    }
    for (key, from) in [
        ("top_p", "top_p"),
        ("min_p", "min_p"),
        ("xtc_probability", "xtc_probability"),
        ("xtc_threshold", "xtc_threshold"),
        ("temp", "temperature"),
        ("penalty_repeat", "repetition_penalty"),
        ("penalty_repeat", "penalty_repeat"),
        ("mirostat_tau", "mirostat_tau"),
        ("mirostat_eta", "mirostat_eta"),
    ] {
        if let Some(number) = said[from].as_f64() {
            draft.general(format!("general.sampling.{key}"), number as f32);
        }
    }
    Ok(())
}

/// Name, version, organisation and size: as the card says, or as the names of model and folder let guess.
fn names(draft: &mut Draft<'_>, folder: &Folder, card: &Card, sizes: &Sizes) {
    let path = folder.config.outer("_name_or_path").and_then(Value::as_str);
    // A name on the Hub has one slash.
    let path = path.filter(|path| !path.is_empty() && path.matches('/').count() <= 1);
    let folder = std::path::absolute(&folder.path).unwrap_or_else(|_| folder.path.clone());
    let folder = folder.file_name().map(|name| name.to_string_lossy().into_owned());
    let guesses: Vec<Parts> = path
        .into_iter()
        .map(str::to_owned)
        .chain(folder.clone())
        .map(|id| Parts::of(&id, sizes.all))
        .collect();
    let guess = |part: fn(&Parts) -> Option<String>| guesses.iter().find_map(part);
    let from_card = |keys: &[&str]| keys.iter().find_map(|key| card.text(key));
    let name = from_card(&["name", "model_name"]);
    let name = name.or_else(|| guess(|parts| parts.name.as_deref().map(title)));
    draft.general("general.name", name.or(folder).unwrap_or_default());
    let pairs: [(&str, Option<String>); 7] = [
        ("author", from_card(&["author", "model_author", "model_creator"])),
        (
            "version",
            from_card(&["version", "model_version"]).or_else(|| guess(|p| p.version.clone())),
        ),
        (
            "organization",
            from_card(&["organization", "model_organization"])
                .or_else(|| guess(|p| p.organization.as_deref().map(title))),
        ),
        (
            "finetune",
            from_card(&["finetune", "model_finetune"]).or_else(|| guess(|p| p.finetune.clone())),
        ),
        (
            "basename",
            from_card(&["basename", "model_basename", "model_type"])
                .or_else(|| guess(|p| p.basename.clone())),
        ),
        ("description", from_card(&["description", "model_description"])),
        (
            "size_label",
            from_card(&["size_label", "model_size_label"])
                .or_else(|| guess(|p| p.size.clone()))
                .or_else(|| (sizes.all > 0).then(|| sizes.label())),
        ),
    ];
    for (key, value) in pairs {
        if let Some(value) = value {
            draft.general(format!("general.{key}"), value);
        }
    }
}

/// Licence, origin, languages.
fn origin(draft: &mut Draft<'_>, card: &Card, parameters: u64) {
    if let Some(licences) = card.list("license") {
        draft.general("general.license", licences.join(","));
    }
    for (key, from) in [
        ("license.name", ["license_name", "license_name"]),
        ("license.link", ["license_link", "license_link"]),
        ("source.url", ["url", "model_url"]),
        ("source.doi", ["doi", "model_doi"]),
        ("source.uuid", ["uuid", "model_uuid"]),
        ("source.repo_url", ["repo_url", "model_repo_url"]),
    ] {
        if let Some(text) = from.iter().find_map(|key| card.text(key)) {
            draft.general(format!("general.{key}"), text);
        }
    }
    let all = |keys: &[&str]| keys.iter().find_map(|key| card.list(key));
    for (what, ids) in [
        ("base_model", all(&["base_model", "base_models", "base_model_sources"])),
        ("dataset", all(&["datasets", "dataset", "dataset_sources"])),
    ] {
        let Some(ids) = ids else { continue };
        draft.general(format!("general.{what}.count"), ids.len() as u32);
        for (n, id) in ids.iter().enumerate() {
            for (key, value) in of_model(id, parameters) {
                draft.general(format!("general.{what}.{n}.{key}"), value);
            }
        }
    }
    for (key, from) in
        [("tags", ["tags", "pipeline_tag"]), ("languages", ["languages", "language"])]
    {
        let lists: Vec<Vec<String>> = from.iter().filter_map(|key| card.list(key)).collect();
        if !lists.is_empty() {
            draft.general(format!("general.{key}"), OwnedValue::strings(lists.concat()));
        }
    }
}

/// What the name of another model, or its address, says of it.
fn of_model(id: &str, parameters: u64) -> Vec<(&'static str, String)> {
    let mut said = Vec::new();
    let url = ["http://", "https://", "ssh://"].iter().any(|scheme| id.starts_with(scheme));
    let on_hub = id.split_once("://huggingface.co/").map(|(_, path)| path);
    let on_hub = on_hub.filter(|path| path.split('/').filter(|part| !part.is_empty()).count() == 2);
    if url {
        said.push(("repo_url", id.to_owned()));
    }
    let id = match (url, on_hub) {
        (true, None) => return said,
        (true, Some(path)) => path,
        (false, _) => id,
    };
    let parts = Parts::of(id, parameters);
    let name = parts.name.as_deref();
    said.extend(name.map(|name| ("name", title(name))));
    said.extend(parts.organization.as_deref().map(|org| ("organization", title(org))));
    said.extend(parts.version.map(|version| ("version", version)));
    if let (Some(org), Some(name), false) = (&parts.organization, name, url) {
        said.push(("repo_url", format!("https://huggingface.co/{org}/{name}")));
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_two_digits() {
        assert_eq!(rounded(7_240_000_000), "7.2B");
        assert_eq!(rounded(596_049_920), "596M");
        assert_eq!(rounded(99_000_000_000), "99B");
        assert_eq!(rounded(420), "0.42K");
        assert_eq!(rounded(1_500_000_000_000), "1.5T");
    }

    #[test]
    fn a_model_is_told_by_its_name_or_address() {
        let said = of_model("Some-Org/Tiny-1B-v2", 0);
        assert!(said.contains(&("name", "Tiny 1B v2".into())), "{said:?}");
        assert!(said.contains(&("repo_url", "https://huggingface.co/Some-Org/Tiny-1B-v2".into())));
        let said = of_model("https://example.org/a/b", 0);
        assert_eq!(said, [("repo_url", "https://example.org/a/b".to_owned())]);
    }
}
