//! Several models behind one address: which there are, and how each is loaded when a request names it.

use super::args::{OwnArgs, ServeArgs};
use super::front::{self, Front};
use super::reload::Settings;
use super::runtime;
use crate::error::Error;
use crate::term::{self, note};
use crate::{hub, load, model_file};
use arclight_engine::{Adapter, CoreTurns, LoadOptions, ModelFile, ReplicaOptions, Replicas};
use arclight_server::{
    Abilities, Info, Model, ModelChange, ModelEntry, ModelLimits, ModelSource, Models, Options,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use topology::Machine;

/// Models in memory at once, where nobody says.
const MODELS: usize = 4;

/// Runs the command.
pub(super) fn run(args: &ServeArgs) -> Result<(), Error> {
    let runtime = runtime()?;
    let publisher = runtime.block_on(args.publisher())?;
    let found = find(args)?;
    let limits = limits(args, found.len())?;
    let turns = Arc::<CoreTurns>::default();
    let mut entries = Vec::with_capacity(found.len());
    let mut options: Option<Options> = None;
    let mut kept: Vec<Kept> = Vec::with_capacity(found.len());
    let mut pins: Vec<&str> = args.several.pin.iter().map(String::as_str).collect();
    for Found { own, file } in found {
        let (own, pin, table) = (*own.args, own.pin, own.name);
        let mut of_model = own.options(&file)?;
        let mut loading = own.loading()?;
        of_model.adapters = own.adapters(&file, &mut loading, &of_model.names)?;
        // Half of the memory is for weights; the caches of as many models as there may be share the other half.
        loading.kv_bytes = Some(limits.bytes / 2 / limits.models as u64);
        let known = |name: &&str| !of_model.names.iter().any(|own| own == name);
        let before = pins.len();
        pins.retain(known);
        let pinned = pin || pins.len() < before;
        let source = Source {
            serving: ReplicaOptions {
                turns: Some(turns.clone()),
                cache_events: publisher.as_ref().map(|publisher| {
                    let name = of_model.names.first().map_or("", String::as_str);
                    let adapters = of_model.adapters.iter().map(|one| one.name.clone());
                    publisher.of(name, adapters.collect())
                }),
                ..own.serving(&file)?
            },
            loading,
            file: file.clone(),
            args: own.clone(),
        };
        let table = args.tables.iter().any(|one| one.name == table).then_some(table);
        kept.push(Kept { table, name: of_model.names[0].clone(), file: file.clone() });
        // Keys, limits and addresses are those of the command.
        options.get_or_insert(args.options(&file)?);
        entries.push(ModelEntry {
            options: of_model,
            source: Arc::new(source),
            pinned,
            idle: own.several.keep_alive,
        });
    }
    if let Some(name) = pins.first() {
        return Err(Error::Usage(format!("--pin {name}: there is no such model")));
    }
    let options = Options { files: args.files.open()?, ..options.unwrap_or_default() };
    let keys = options.keys.clone();
    let models = Arc::new(Models::new(&options, limits, entries)?);
    let changing = models.clone();
    let prepare = move |args: &ServeArgs| {
        let changes = kept.iter().filter_map(|one| one.change(args).transpose());
        let changes = changes.collect::<Result<Vec<ModelChange>, Error>>()?;
        let common = args.options(&kept[0].file)?;
        let several = &args.several;
        let limits = ModelLimits {
            models: several.max_models.unwrap_or(MODELS.min(kept.len())),
            // What was free at the start is not what is free now.
            bytes: several.models_memory.unwrap_or(limits.bytes),
        };
        let models = changing.clone();
        Ok(Box::new(move || models.change(&common, limits, changes)) as Box<dyn FnOnce()>)
    };
    let settings = Settings::new(keys, args, Box::new(prepare));
    let served = runtime.block_on(async {
        let front = Front::open(models.clone(), settings, args).await?;
        let names: Vec<&str> = models.names().collect();
        note!(
            "serving {} on {}: {}; {} at once, in {}",
            term::plural(names.len(), "model"),
            front.base(),
            names.join(", "),
            limits.models,
            term::size(limits.bytes as usize),
        );
        let place = args.several.models_dir.clone().unwrap_or_default();
        let running = hub::Running::announce(front.listed(), &names.join(" "), &place);
        let _running = running
            .inspect_err(|e| tracing::warn!("arclight ps does not list this server: {}", e.line()))
            .ok();
        let failed = async {
            match models.run(front::ready).await {
                Err(fault) => Error::Refused(fault.message),
                Ok(never) => match never {},
            }
        };
        front.run(failed).await
    });
    runtime.shutdown_background();
    served
}

/// A model that is served, for when its options change.
struct Kept {
    /// The name of its table.
    table: Option<String>,
    /// Its first name for clients.
    name: String,
    file: Arc<ModelFile>,
}

impl Kept {
    /// What other options change of it; nothing if they have no table of it any more.
    fn change(&self, args: &ServeArgs) -> Result<Option<ModelChange>, Error> {
        let own = match &self.table {
            None => args.for_model(self.file.path().to_owned()).named(&self.name),
            Some(name) => match args.tables.iter().find(|table| table.name == *name) {
                Some(table) => table.args.for_own_model().named(name),
                None => return Ok(None),
            },
        };
        Ok(Some(ModelChange {
            name: self.name.clone(),
            options: own.options(&self.file)?,
            queue: own.queue(),
            idle: own.several.keep_alive,
        }))
    }
}

/// A model that can be served.
struct Found {
    own: OwnArgs,
    file: Arc<ModelFile>,
}

/// The models of the file's tables, of the command line, and of the folder.
fn find(args: &ServeArgs) -> Result<Vec<Found>, Error> {
    let mut found: Vec<Found> = Vec::new();
    let open = |own: &ServeArgs| load::open(&own.model).map(Arc::new);
    for table in &args.tables {
        let own = table.args.for_own_model().named(&table.name);
        let file = open(&own)?;
        found.push(Found { own: OwnArgs { args: Box::new(own), ..table.clone() }, file });
    }
    let named = args.model.named().map(Path::to_owned);
    for path in named.into_iter().chain(args.more.iter().cloned()) {
        let own = args.for_model(path.clone());
        let file = open(&own)?;
        // What was asked for is what clients ask for, unless it is a path.
        let name = if path.exists() { own.name_of(&file) } else { path.display().to_string() };
        found.push(Found { own: of_all(own, name), file });
    }
    let in_folder = args.several.models_dir.as_deref().map_or(Ok(Vec::new()), in_folder)?;
    for path in in_folder {
        let own = args.for_model(path.clone());
        let opened =
            model_file::open(&path).and_then(|file| is_model(&file).map(|yes| (file, yes)));
        match opened {
            Ok((file, true)) => {
                let name = own.name_of(&file);
                // What names it says more of it.
                let is_here = |other: &Found| other.own.name == name || same(&other.file, &file);
                if !found.iter().any(is_here) {
                    found.push(Found { own: of_all(own, name), file: Arc::new(file) });
                }
            }
            Ok((_, false)) => {}
            Err(e) => tracing::warn!("left out: {}", e.line()),
        }
    }
    if found.is_empty() {
        let folder = args.several.models_dir.clone().unwrap_or_default();
        return Err(Error::Refused(format!("{} has no models", folder.display())));
    }
    Ok(found)
}

/// Whether two models are one file.
fn same(one: &ModelFile, other: &ModelFile) -> bool {
    let whole = |file: &ModelFile| file.path().canonicalize();
    whole(one).is_ok_and(|one| whole(other).is_ok_and(|other| one == other))
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

/// Whether it is neither an adapter nor an image encoder.
fn is_model(file: &ModelFile) -> Result<bool, Error> {
    let gguf = file.gguf()?;
    let is_encoder = gguf.metadata().opt_str("general.architecture").ok().flatten() == Some("clip");
    Ok(!Adapter::is_adapter(&gguf) && !is_encoder)
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
    Ok(ModelLimits { models: args.several.max_models.unwrap_or(MODELS.min(models)), bytes })
}

/// A model that is loaded when it is wanted.
struct Source {
    file: Arc<ModelFile>,
    loading: LoadOptions,
    serving: ReplicaOptions,
    args: ServeArgs,
}

impl Source {
    /// With the cores that were tuned for, if they were.
    fn loading(&self) -> Result<LoadOptions, Error> {
        let mut loading = self.loading.clone();
        self.args.cores().choose(&self.file, &mut loading)?;
        Ok(loading)
    }

    fn bytes(&self) -> Result<u64, Error> {
        let machine = Machine::read()?;
        let (loading, replicas) = (self.loading()?, self.serving.replicas);
        Ok(Replicas::bytes(&self.file, &machine, &loading, replicas)?)
    }

    fn load(&self) -> Result<Model, Error> {
        let style = self.args.style();
        Ok(Model::load(&self.file, &self.loading()?, &self.serving, &style, &mut |_| {})?)
    }
}

impl ModelSource for Source {
    fn bytes(&self) -> Result<u64, String> {
        Source::bytes(self).map_err(|e| e.line())
    }

    fn load(&self) -> Result<Model, String> {
        Source::load(self).map_err(|e| e.line())
    }

    fn info(&self) -> Result<Info, String> {
        let gguf = self.file.gguf().map_err(|e| e.to_string())?;
        Ok(Info::read(&self.file, &gguf))
    }

    fn abilities(&self) -> Result<Abilities, String> {
        let sees = self.serving.encoder.is_some();
        let read = Abilities::read(&self.file, &self.args.style(), sees);
        read.map_err(|e| Error::from(e).line())
    }
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
