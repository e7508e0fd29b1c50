//! Models of a server with several: how each is loaded, and the changes that a reload makes.

use super::args::ServeArgs;
use super::manifest::{self, Manifest};
use super::stored::Stored;
use crate::error::Error;
use arclight_engine::{CoreTurns, LoadOptions, ModelFile, ReplicaOptions, Replicas, Speculation};
use arclight_server::{
    Abilities, CachePublisher, ChatStyle, Info, Model, ModelChange, ModelEntry, ModelLimits,
    ModelSource, Models, Options, Recipe,
};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use topology::Machine;

/// Models in memory at once, where nobody says.
const MODELS: usize = 4;

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
        manifest::apply(&self.recipe, &mut options)?;
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
    pub(super) fn new(
        args: &ServeArgs,
        limits: ModelLimits,
        publisher: Option<CachePublisher>,
    ) -> Maker {
        Maker {
            args: args.clone(),
            now: Mutex::new(args.clone()),
            limits,
            turns: Arc::default(),
            publisher,
            kept: Mutex::default(),
        }
    }

    /// A model with arguments of its own, and what it was made of. `started` is how it is loaded, `now` how it answers.
    pub(super) fn entry(
        &self,
        started: &ServeArgs,
        now: &ServeArgs,
        stored: Arc<Stored>,
        recipe: &Recipe,
    ) -> Result<ModelEntry, Error> {
        let file = stored.open()?;
        let mut of_model = now.options(file.path())?;
        let mut loading = started.loading()?;
        of_model.adapters = started.adapters(&file, &mut loading, &of_model.names)?;
        loading.context = manifest::apply(recipe, &mut of_model)?.or(loading.context);
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
        let started = manifest::args(&self.args, manifest, file.path());
        let now = manifest::args(&self.now(), manifest, file.path());
        let entry = self.entry(&started, &now, file, &manifest.recipe)?;
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

    pub(super) fn kept(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> MutexGuard<'_, ServeArgs> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks other options of all models, and gives what takes them.
    pub(super) fn prepare(
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
pub(super) fn common(args: &ServeArgs, file: Option<&Path>) -> Result<Options, Error> {
    // Without a model the name is asked for by no client.
    args.options(file.unwrap_or(Path::new("none")))
}

/// Models in memory at once.
pub(super) fn most(args: &ServeArgs, models: usize) -> usize {
    args.several.max_models.unwrap_or(match args.several.manage_models {
        true => MODELS,
        false => MODELS.min(models),
    })
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
