//! Several models behind one address: the list of them, and the server.

use super::args::{OwnArgs, ServeArgs};
use super::front::{Front, runtime};
use super::keeper::Keeper;
use super::maker::{Kept, Maker, common, most};
use super::manifest::{self, Origin};
use super::reload::Settings;
use super::stored::{Stored, is_model};
use super::system;
use crate::error::Error;
use crate::hub::servers::Running;
use crate::term::{self, note};
use crate::{load, model_file};
use arclight_server::{ModelKeeper, ModelLimits, Models, Options, Recipe};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use topology::Machine;

/// Runs the command.
pub(super) fn run(args: &ServeArgs) -> Result<(), Error> {
    let runtime = runtime()?;
    let publisher = runtime.block_on(args.gateway.publisher())?;
    let found = find(args)?;
    let limits = limits(args, found.len())?;
    let maker = Arc::new(Maker::new(args, limits, publisher));
    let mut entries = Vec::with_capacity(found.len());
    let mut known = BTreeMap::new();
    let mut pins: Vec<&str> = args.several.pin.iter().map(String::as_str).collect();
    for Found { own, file, origin } in found {
        let recipe = match &origin {
            Origin::Made(manifest) => manifest.recipe.clone(),
            Origin::Given(_) | Origin::File(_) => Recipe::default(),
        };
        let table = args.tables.iter().any(|one| one.name == own.name).then(|| own.name.clone());
        let mut entry = maker.entry(&own.args, &own.args, file.clone(), &recipe)?;
        entry.made = matches!(origin, Origin::Made(_));
        let names = &entry.options.names;
        let before = pins.len();
        pins.retain(|name| !names.iter().any(|own| own == name));
        entry.pinned = own.pin || pins.len() < before;
        maker.keep(Kept { table, name: names[0].clone(), file, recipe });
        known.insert(names[0].clone(), origin);
        entries.push(entry);
    }
    if let Some(name) = pins.first() {
        return Err(Error::Usage(format!("--pin {name}: there is no such model")));
    }
    // Keys, limits and addresses are those of the command.
    let options = common(args, maker.kept().first().map(|one| one.file.path()))?;
    let options =
        Options { files: args.files.open()?, page_tools: args.tools.connect()?, ..options };
    let keys = options.keys.clone();
    let keeper = match (&args.several.models_dir, args.several.manage_models) {
        (Some(folder), true) => {
            Some(Arc::new(Keeper::open(maker.clone(), folder, known)?) as Arc<dyn ModelKeeper>)
        }
        _ => None,
    };
    let models = Arc::new(Models::new(&options, limits, entries, keeper)?);
    let changing = models.clone();
    let prepare = move |args: &ServeArgs| maker.prepare(args, &changing);
    let settings = Settings::new(keys, args, Box::new(prepare));
    let served = runtime.block_on(async {
        let front = Front::open(models.clone(), settings, args).await?;
        let names = models.names();
        note!(
            "serving {} on {}: {}; {} at once, in {}",
            term::plural(names.len(), "model"),
            front.base(),
            names.join(", "),
            limits.models,
            term::size(limits.bytes as usize),
        );
        let place = args.several.models_dir.clone().unwrap_or_default();
        let running = Running::announce(front.listed(), &names.join(" "), &place);
        let _running = running
            .inspect_err(|e| tracing::warn!("arclight ps does not list this server: {}", e.line()))
            .ok();
        let failed = async {
            match models.run(system::serving).await {
                Err(fault) => Error::Refused(fault.message),
                Ok(never) => match never {},
            }
        };
        front.run(failed).await
    });
    runtime.shutdown_background();
    served
}

/// A model that can be served.
struct Found {
    own: OwnArgs,
    file: Arc<Stored>,
    origin: Origin,
}

/// The models of the file's tables, of the command line, and of the folder.
fn find(args: &ServeArgs) -> Result<Vec<Found>, Error> {
    let mut found: Vec<Found> = Vec::new();
    let open = |own: &ServeArgs| load::open(&own.model).map(Stored::new);
    for table in &args.tables {
        let own = table.args.for_own_model().named(&table.name);
        let file = open(&own)?;
        let origin = Origin::Given(file.path().to_owned());
        found.push(Found { own: OwnArgs { args: Box::new(own), ..table.clone() }, file, origin });
    }
    let named = args.model.named().map(Path::to_owned);
    for path in named.into_iter().chain(args.more.iter().cloned()) {
        let own = args.for_model(path.clone());
        let file = open(&own)?;
        // What was asked for is what clients ask for, unless it is a path.
        let name =
            if path.exists() { own.name_of(file.path()) } else { path.display().to_string() };
        let origin = Origin::Given(file.path().to_owned());
        found.push(Found { own: of_all(own, name), file, origin });
    }
    let in_folder = args.several.models_dir.as_deref().map_or(Ok(Vec::new()), in_folder)?;
    for path in in_folder {
        let own = args.for_model(path.clone());
        let opened =
            model_file::open(&path).and_then(|file| is_model(&file).map(|yes| (file, yes)));
        match opened {
            Ok((file, true)) => {
                let name = own.name_of(file.path());
                // What names it says more of it.
                let is_here =
                    |other: &Found| other.own.name == name || same(other.file.path(), file.path());
                if !found.iter().any(is_here) {
                    let origin = Origin::File(file.path().to_owned());
                    found.push(Found { own: of_all(own, name), file: Stored::new(file), origin });
                }
            }
            Ok((_, false)) => {}
            Err(e) => tracing::warn!("left out: {}", e.line()),
        }
    }
    if let Some(folder) = args.several.models_dir.as_deref().filter(|_| args.several.manage_models)
    {
        for manifest in manifest::manifests(folder) {
            if found.iter().any(|other| other.own.name == manifest.name) {
                tracing::warn!("left out: there are two models with the name {}", manifest.name);
                continue;
            }
            match model_file::open(manifest.path(folder)) {
                Ok(file) => {
                    let own = manifest::args(args, &manifest, file.path());
                    let own = of_all(own, manifest.name.clone());
                    let file = Stored::new(file);
                    found.push(Found { own, file, origin: Origin::Made(Box::new(manifest)) });
                }
                Err(e) => tracing::warn!("left out: {}: {}", manifest.name, e.line()),
            }
        }
    }
    if found.is_empty() && !args.several.manage_models {
        let folder = args.several.models_dir.clone().unwrap_or_default();
        return Err(Error::Refused(format!("{} has no models", folder.display())));
    }
    Ok(found)
}

/// Whether two models are one file.
fn same(one: &Path, other: &Path) -> bool {
    one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

/// A model with the options that hold for all.
fn of_all(own: ServeArgs, name: String) -> OwnArgs {
    OwnArgs { args: Box::new(own.named(&name)), name, pin: false }
}

/// Files of a folder, and of the folders in it, that may be models, by their names.
fn in_folder(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = |folder: &Path| -> Result<Vec<PathBuf>, Error> {
        let read = std::fs::read_dir(folder).map_err(|e| Error::read(folder, e))?;
        Ok(read.filter_map(|entry| Some(entry.ok()?.path())).collect())
    };
    // A folder as the Hugging Face Hub has them is one model.
    let is_model = |path: &Path| path.join("config.json").is_file();
    let mut found = Vec::new();
    for path in entries(folder)? {
        match path.is_dir() && !is_model(&path) {
            true => found.extend(entries(&path)?),
            false => found.push(path),
        }
    }
    found.retain(|path| if path.is_dir() { is_model(path) } else { is_first_part(path) });
    found.sort();
    Ok(found)
}

/// Whether a file is called as a model's is, or as the first part of one.
fn is_first_part(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let Some(name) = name.strip_suffix(".gguf") else { return false };
    match name.rsplit_once("-of-") {
        Some((before, parts)) if parts.bytes().all(|b| b.is_ascii_digit()) => {
            before.ends_with("-00001")
        }
        _ => true,
    }
}

/// How many at once, and in how much memory.
fn limits(args: &ServeArgs, models: usize) -> Result<ModelLimits, Error> {
    let machine = Machine::read()?;
    let bytes = args.several.models_memory.unwrap_or_else(|| {
        let nodes = machine.usable_nodes().map(|node| machine.available(node.id));
        // A machine that does not tell is not one without memory.
        let free = nodes.sum::<Option<u64>>().unwrap_or(u64::MAX);
        machine.memory_limit().map_or(free, |limit| limit.min(free)) / 5 * 4
    });
    let made = args.several.max_managed_models;
    Ok(ModelLimits { models: most(args, models), bytes, made })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_part_stands_for_all() {
        let first = |name: &str| is_first_part(Path::new(name));
        assert!(first("a.gguf") && first("A.GGUF") && first("dir/state-of-art.gguf"));
        assert!(first("a-00001-of-00003.gguf") && !first("a-00002-of-00003.gguf"));
        assert!(!first("a.bin") && !first(".gguf-not"));
    }
}
