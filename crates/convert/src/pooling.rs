//! How hidden states become the vector of a text, as folders for `sentence-transformers` say it: pooling, and dense layers
//! behind it.

use crate::draft::Draft;
use crate::error::Error;
use crate::folder::Folder;
use crate::tensors::Made;
use serde_json::Value;

/// Adds `pooling_type`, if the folder has modules and one of them pools.
pub(crate) fn add(draft: &mut Draft<'_>, folder: &Folder) -> Result<(), Error> {
    let Some(modules) = folder.json("modules.json")? else { return Ok(()) };
    let pools = |module: &&Value| module["type"].as_str().is_some_and(|ty| ty.ends_with("Pooling"));
    let Some(module) = modules.as_array().into_iter().flatten().find(pools) else { return Ok(()) };
    let path = module["path"].as_str().unwrap_or_default();
    let name = format!("{path}/config.json");
    let Some(pooling) = folder.json(&name)? else {
        return Err(Error::config(format!("modules.json names {name}, which is not there")));
    };
    let is = |key: &str| pooling[key].as_bool() == Some(true);
    let mode = pooling["pooling_mode"].as_str();
    let kind: u32 = match () {
        () if is("pooling_mode_mean_tokens") || mode == Some("mean") => 1,
        () if is("pooling_mode_cls_token") || mode == Some("cls") => 2,
        () if is("pooling_mode_lasttoken") || mode == Some("lasttoken") => 3,
        () => {
            let what = format!("{name} asks for a kind of pooling that no file can say");
            return Err(Error::config(what));
        }
    };
    draft.set("pooling_type", kind);
    Ok(())
}

/// Files can say of a dense layer neither what is done to its product nor that something is added to it.
fn identity(folder: &Folder, path: &str) -> Result<(), Error> {
    let config = folder.json(&format!("{path}/config.json"))?.unwrap_or_default();
    let function = config["activation_function"].as_str().unwrap_or("Identity");
    if !function.ends_with("Identity") {
        let what = format!("{path} has the function {function}, which no file can say");
        return Err(Error::config(what));
    }
    if config["bias"].as_bool() == Some(true) {
        return Err(Error::config(format!("{path} has a bias, which no file can have")));
    }
    Ok(())
}

/// The dense layers that stand behind pooling, with their sizes in the metadata: of the architecture that has them.
/// Those of others are told.
pub(crate) fn dense(
    draft: &mut Draft<'_>,
    folder: &Folder,
    notes: &mut Vec<String>,
) -> Result<Vec<Made>, Error> {
    let modules = folder.json("modules.json")?;
    let modules = modules.as_ref().and_then(Value::as_array).into_iter().flatten();
    let dense = modules.filter(|m| m["type"].as_str().is_some_and(|ty| ty.ends_with("Dense")));
    let mut made = Vec::new();
    for module in dense {
        let path = module["path"].as_str().unwrap_or_default();
        if !["gemma-embedding", "t5encoder"].contains(&draft.arch) {
            notes.push(format!("{path}: files have no place for a dense layer; it is left out"));
            continue;
        }
        identity(folder, path)?;
        let name = if path == "2_Dense" { "dense_2" } else { "dense_3" };
        let tensors = folder.of_module(path)?.unwrap_or_default();
        let weight = tensors.into_iter().find(|(name, _)| name == "linear.weight");
        let (_, array) = weight.ok_or_else(|| Error::MissingTensor {
            name: format!("{path}/linear.weight"),
            wanted: format!("{name}.weight"),
        })?;
        let [outputs, inputs] = array.shape()[..] else {
            return Err(Error::Shape {
                name: format!("{path}/linear.weight"),
                shape: array.shape().to_vec(),
                want: "and should be a matrix".to_owned(),
            });
        };
        draft.set_size(&format!("{name}_feat_in"), inputs);
        draft.set_size(&format!("{name}_feat_out"), outputs);
        made.push(Made { name: format!("{name}.weight"), array });
    }
    Ok(made)
}
