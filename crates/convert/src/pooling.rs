//! How hidden states become the vector of a text, as folders for `sentence-transformers` say it.

use crate::draft::Draft;
use crate::error::Error;
use crate::folder::Folder;
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
