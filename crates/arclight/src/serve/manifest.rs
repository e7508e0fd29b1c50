//! Descriptions of models that clients have made, in the folder of models.

use super::args::ServeArgs;
use crate::error::Error;
use crate::replace;
use arclight_server::{Options, Recipe};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// The folder's own part of the folder of models.
pub(super) const OWN: &str = ".arclight";

/// A model that was fetched, or made of another.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Manifest {
    pub(super) name: String,
    /// Its file; below the folder of models if it is no whole path.
    pub(super) file: PathBuf,
    #[serde(flatten)]
    pub(super) recipe: Recipe,
}

/// Where a model comes from.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    /// The command line, or a table of the configuration.
    Given(PathBuf),
    /// A file of the folder.
    File(PathBuf),
    Made(Box<Manifest>),
}

/// What clients have made in a folder. A description that cannot be read is told and left alone.
pub(super) fn manifests(folder: &Path) -> Vec<Manifest> {
    let entries = fs::read_dir(folder.join(OWN).join("models")).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "json"));
    paths.sort();
    let read = |path: &PathBuf| {
        let read = fs::read(path).map_err(|e| e.to_string());
        let manifest = read
            .and_then(|text| serde_json::from_slice::<Manifest>(&text).map_err(|e| e.to_string()));
        manifest.inspect_err(|e| tracing::warn!("left out: {}: {e}", path.display())).ok()
    };
    paths.iter().filter_map(read).collect()
}

impl Manifest {
    /// Its file, of a folder of models.
    pub(super) fn path(&self, folder: &Path) -> PathBuf {
        folder.join(&self.file)
    }

    /// Where it is described.
    pub(super) fn place(name: &str, folder: &Path) -> PathBuf {
        // Other letters than these do not come in names.
        let file = name.replace('/', "%2F").replace(':', "%3A");
        folder.join(OWN).join("models").join(format!("{file}.json"))
    }

    pub(super) fn save(&self, folder: &Path) -> Result<(), Error> {
        let place = Manifest::place(&self.name, folder);
        let text = serde_json::to_vec_pretty(self).map_err(std::io::Error::from);
        let written = text.and_then(|text| replace::bytes(&place, &text));
        written.map_err(|e| Error::write(&place, e))
    }
}

/// The options of a model that was made, and the context that it asks for.
pub(super) fn apply(recipe: &Recipe, options: &mut Options) -> Result<Option<usize>, Error> {
    let context = recipe.apply(options).map_err(|fault| Error::Refused(fault.message))?;
    options.recipe = recipe.clone();
    Ok(context)
}

/// The arguments of a model that was made.
pub(super) fn args(all: &ServeArgs, manifest: &Manifest, file: &Path) -> ServeArgs {
    all.for_model(file.to_owned()).named(&manifest.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_names_of_files() {
        let place = Manifest::place("hf.co/a/b:Q4_0", Path::new("/m"));
        assert_eq!(place, Path::new("/m/.arclight/models/hf.co%2Fa%2Fb%3AQ4_0.json"));
    }
}
