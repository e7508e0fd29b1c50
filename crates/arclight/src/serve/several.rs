//! Several models behind one address: which there are, and how each is loaded when a request names it.

use super::args::{OwnArgs, ServeArgs};
use super::front::Front;
use super::keeper::{self, Keeper, Manifest, Origin};
use super::reload::Settings;
use super::stored::Stored;
use super::{runtime, system};
use crate::error::Error;
use crate::hub::servers::Running;
use crate::term::{self, note};
use crate::{load, model_file};
use arclight_engine::{
    Adapter, CoreTurns, LoadOptions, ModelFile, ReplicaOptions, Replicas, Speculation,
};
use arclight_server::{
    Abilities, CachePublisher, ChatStyle, Info, Model, ModelChange, ModelEntry, ModelKeeper,
    ModelLimits, ModelSource, Models, Options, Recipe,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use topology::Machine;

/// Models in memory at once, where nobody says.
const MODELS: usize = 4;

/// Runs the command.
pub(super) fn run(args: &ServeArgs) -> Result<(), Error> {
    let runtime = runtime()?;
    let publisher = runtime.block_on(args.publisher())?;
    let found = find(args)?;
    let limits = limits(args, found.len())?;
    let maker = Arc::new(Maker {
        args: args.clone(),
        now: Mutex::new(args.clone()),
        limits,
        turns: Arc::default(),
        publisher,
        kept: Mutex::default(),
    });
    let mut entries = Vec::with_capacity(found.len());
    let mut known = BTreeMap::new();
    let mut pins: Vec<&str> = args.several.pin.iter().map(String::as_str).collect();
    for Found { own, file, origin } in found {
        let recipe = match &origin {
            Origin::Made(manifest) => manifest.recipe.clone(),
            Origin::Given(_) | Origin::File(_) => Recipe::default(),
        };
        let table = args.tables.iter().any(|one| one.name == own.name).then(|| own.name.clone());
        let mut entry = maker.entry((&own.args, &own.args), file.clone(), &recipe)?;
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

/// A model that is served, for when its options change.
pub(super) struct Kept {
    /// The name of its table.
    pub(super) table: Option<String>,
    /// Its first name for clients.
    pub(super) name: String,
    pub(super) file: Arc<Stored>,
    /// What it was made of.
    pub(super) recipe: Recipe,
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
        let mut options = own.options(self.file.path())?;
        keeper::apply(&self.recipe, &mut options)?;
        Ok(Some(ModelChange {
            name: self.name.clone(),
            options,
            queue: own.queue(),
            idle: own.several.keep_alive,
        }))
    }
}

/// Makes entries of models; what holds for all of them.
pub(super) struct Maker {
    /// As the server was started.
    args: ServeArgs,
    /// As they are now, for models to come.
    now: Mutex<ServeArgs>,
    limits: ModelLimits,
    turns: Arc<CoreTurns>,
    publisher: Option<CachePublisher>,
    kept: Mutex<Vec<Kept>>,
}

impl Maker {
    /// A model with arguments of its own, and what it was made of. `started` is how it is loaded, `now` how it answers.
    fn entry(
        &self,
        (started, now): (&ServeArgs, &ServeArgs),
        stored: Arc<Stored>,
        recipe: &Recipe,
    ) -> Result<ModelEntry, Error> {
        let file = stored.open()?;
        let mut of_model = now.options(file.path())?;
        let mut loading = started.loading()?;
        of_model.adapters = started.adapters(&file, &mut loading, &of_model.names)?;
        loading.context = keeper::apply(recipe, &mut of_model)?.or(loading.context);
        // Half of the memory is for weights; the caches of as many models as there may be share the other half.
        loading.kv_bytes = Some(self.limits.bytes / 2 / self.limits.models as u64);
        let cache_events = self.publisher.as_ref().map(|publisher| {
            let name = of_model.names.first().map_or("", String::as_str);
            let adapters = of_model.adapters.iter().map(|one| one.name.clone());
            publisher.of(name, adapters.collect())
        });
        let turns = Some(self.turns.clone());
        let serving = started.serving(&file)?;
        let sees = serving.encoder.is_some();
        // Other files are opened again when the model is loaded.
        let (encoder, speculation) = (None, Speculation::default());
        let queue = now.queue();
        let serving =
            ReplicaOptions { turns, cache_events, queue, encoder, speculation, ..serving };
        let template = recipe.template.clone();
        let source = Source { serving, sees, loading, stored, args: started.clone(), template };
        Ok(ModelEntry {
            options: of_model,
            source: Arc::new(source),
            pinned: false,
            made: false,
            idle: now.several.keep_alive,
        })
    }

    /// A model that a client has made.
    pub(super) fn made(&self, manifest: &Manifest, file: Arc<Stored>) -> Result<ModelEntry, Error> {
        let started = keeper::args(&self.args, manifest, file.path());
        let now = keeper::args(&self.now(), manifest, file.path());
        let entry = self.entry((&started, &now), file, &manifest.recipe)?;
        Ok(ModelEntry { made: true, ..entry })
    }

    /// A model is served, in the place of one of the same name.
    pub(super) fn keep(&self, one: Kept) {
        let mut kept = self.kept();
        kept.retain(|other| other.name != one.name);
        kept.push(one);
    }

    /// A model is not served any more.
    pub(super) fn forget(&self, name: &str) {
        self.kept().retain(|one| one.name != name);
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> MutexGuard<'_, ServeArgs> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks other options of all models, and gives what takes them.
    fn prepare(
        self: &Arc<Maker>,
        args: &ServeArgs,
        models: &Arc<Models>,
    ) -> Result<Box<dyn FnOnce()>, Error> {
        let kept = self.kept();
        let changes = kept.iter().filter_map(|one| one.change(args).transpose());
        let changes = changes.collect::<Result<Vec<ModelChange>, Error>>()?;
        let common = common(args, kept.first().map(|one| one.file.path()))?;
        let limits = ModelLimits {
            models: most(args, kept.len()),
            // What was free at the start is not what is free now.
            bytes: args.several.models_memory.unwrap_or(self.limits.bytes),
            made: args.several.max_managed_models,
        };
        drop(kept);
        let (maker, models, args) = (self.clone(), models.clone(), args.clone());
        Ok(Box::new(move || {
            *maker.now() = args;
            models.change(&common, limits, changes);
        }))
    }
}

/// The options of the server. The names of its models are not among them.
fn common(args: &ServeArgs, file: Option<&Path>) -> Result<Options, Error> {
    // Without a model the name is asked for by no client.
    args.options(file.unwrap_or(Path::new("none")))
}

/// Models in memory at once.
fn most(args: &ServeArgs, models: usize) -> usize {
    args.several.max_models.unwrap_or(match args.several.manage_models {
        true => MODELS,
        false => MODELS.min(models),
    })
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
        for manifest in keeper::manifests(folder) {
            if found.iter().any(|other| other.own.name == manifest.name) {
                tracing::warn!("left out: there are two models with the name {}", manifest.name);
                continue;
            }
            match model_file::open(manifest.path(folder)) {
                Ok(file) => {
                    let own = keeper::args(args, &manifest, file.path());
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

/// Whether it is neither an adapter nor an image encoder.
pub(super) fn is_model(file: &ModelFile) -> Result<bool, Error> {
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
    let made = args.several.max_managed_models;
    Ok(ModelLimits { models: most(args, models), bytes, made })
}

/// A model that is loaded when it is wanted.
struct Source {
    stored: Arc<Stored>,
    loading: LoadOptions,
    /// Without image encoder and draft model.
    serving: ReplicaOptions,
    /// It has an image encoder.
    sees: bool,
    args: ServeArgs,
    /// In the place of all others.
    template: Option<String>,
}

impl Source {
    /// With the cores that were tuned for, if they were.
    fn loading(&self, file: &Arc<ModelFile>) -> Result<LoadOptions, Error> {
        let mut loading = self.loading.clone();
        self.args.cores().choose(file, &mut loading)?;
        Ok(loading)
    }

    fn bytes(&self) -> Result<u64, Error> {
        let machine = Machine::read()?;
        let file = self.stored.open()?;
        let (loading, replicas) = (self.loading(&file)?, self.serving.replicas);
        Ok(Replicas::bytes(&file, &machine, &loading, replicas)?)
    }

    /// How it talks.
    fn style(&self) -> ChatStyle {
        let mut style = self.args.style();
        if self.template.is_some() {
            (style.template, style.end) = (self.template.clone(), None);
        }
        style
    }

    fn load(&self) -> Result<Model, Error> {
        let file = self.stored.open()?;
        let ReplicaOptions { encoder, speculation, .. } = self.args.serving(&file)?;
        let serving = ReplicaOptions { encoder, speculation, ..self.serving.clone() };
        let style = self.style();
        Ok(Model::load(&file, &self.loading(&file)?, &serving, &style, &mut |_| {})?)
    }

    fn info(&self) -> Result<Info, Error> {
        let file = self.stored.open()?;
        let mut info = Info::read(&file, &file.gguf()?);
        info.template = self.style().template.or(info.template);
        Ok(info)
    }

    fn abilities(&self) -> Result<Abilities, Error> {
        let file = self.stored.open()?;
        Ok(Abilities::read(&file, &self.style(), self.sees)?)
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
        Source::info(self).map_err(|e| e.line())
    }

    fn abilities(&self) -> Result<Abilities, String> {
        Source::abilities(self).map_err(|e| e.line())
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
