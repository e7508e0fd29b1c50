//! Several models behind one address, loaded when a request names them.
//!
//! Each model is an [`App`] with routes of its own, which knows nothing of the others. What stands before them reads
//! the name in a request, has the model loaded (`lifecycle`), and hands the request on (`dispatch`). Clients may be
//! allowed to add and remove models (`change`, with their progress in `progress`). Lists, health and figures are of all
//! together (`list`). The states of the models and all decisions about them are in `machine`, without futures.
//!
//! Models on the same cores take turns step by step ([`CoreTurns`](arclight_engine::CoreTurns)), which their sources
//! see to.

mod change;
mod dispatch;
mod lifecycle;
mod list;
mod machine;
mod progress;
mod shapes;

pub use change::{ModelKeeper, PullStep};
pub(crate) use dispatch::{router, worker};
pub(crate) use shapes::{Changed, CopyBody, CreateBody, DeleteBody, Named, Progress, PullBody};

use crate::error::Error;
use crate::model::{Abilities, Info, Model};
use crate::options::Options;
use crate::state::App;
use change::Changes;
use lifecycle::{Entry, Shared};
use machine::{Event, Machine};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

/// How a model that is not loaded is loaded.
pub trait ModelSource: Send + Sync {
    /// Bytes that its weights and KV pages would take.
    ///
    /// # Errors
    /// What is wrong with the file, the machine or the options.
    fn bytes(&self) -> Result<u64, String>;

    /// Loads it.
    ///
    /// # Errors
    /// As [`ModelSource::bytes`], and when there is no memory or no thread for it.
    fn load(&self) -> Result<Model, String>;

    /// What its file says, without loading it.
    ///
    /// # Errors
    /// When it cannot be read.
    fn info(&self) -> Result<Info, String>;

    /// What its file says that it can do, without loading it.
    ///
    /// # Errors
    /// When it cannot be read.
    fn abilities(&self) -> Result<Abilities, String>;
}

/// A model that can be loaded.
pub struct ModelEntry {
    /// How it is called and how it answers. What concerns the server as a whole is that of [`Models`].
    pub options: Options,
    /// How it is loaded.
    pub source: Arc<dyn ModelSource>,
    /// It is loaded at once and stays.
    pub pinned: bool,
    /// A client has made it: it counts towards [`ModelLimits::made`].
    pub made: bool,
    /// Time without requests after which it is unloaded; `None`: never, unless another needs its room.
    pub idle: Option<Duration>,
}

/// What changes of a model while the server runs.
pub struct ModelChange {
    /// Its first name.
    pub name: String,
    /// How it answers from now on.
    pub options: Options,
    /// Requests that may wait.
    pub queue: Option<usize>,
    /// As in [`ModelEntry`].
    pub idle: Option<Duration>,
}

/// How many models are loaded at once, and how many clients may make.
#[derive(Clone, Copy, Debug)]
pub struct ModelLimits {
    /// Models that are loaded at once.
    pub models: usize,
    /// Bytes of weights and KV pages of all together.
    pub bytes: u64,
    /// Models that clients may have made at any time, by pulling, creating or copying them.
    pub made: usize,
}

/// Models that one server has, loaded or not.
pub struct Models {
    entries: RwLock<Vec<Arc<Entry>>>,
    shared: Mutex<Shared>,
    /// Makes and removes models, if clients may.
    keeper: Option<Arc<dyn ModelKeeper>>,
    /// Models that are being made or removed.
    changes: Changes,
    /// What concerns no model; it never has one.
    common: Arc<App>,
}

impl Models {
    /// Models of a server with these options, none of them loaded yet.
    ///
    /// # Errors
    /// When there are none, and none can be added, or two have the same name.
    pub fn new(
        options: &Options,
        limits: ModelLimits,
        models: Vec<ModelEntry>,
        keeper: Option<Arc<dyn ModelKeeper>>,
    ) -> Result<Models, Error> {
        let common = Arc::new(App::new(Options { names: Vec::new(), ..options.clone() }));
        let mut shared = Shared::new(Machine::new(limits, common.options.reload_wait));
        let entries: Vec<Arc<Entry>> =
            models.into_iter().map(|one| shared.add(&common, one)).collect();
        if entries.is_empty() && keeper.is_none() {
            return Err(Error::NoModels);
        }
        let names: Vec<&str> = entries.iter().flat_map(|entry| entry.app.all_names()).collect();
        let twice = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name));
        if let Some((_, name)) = twice {
            return Err(Error::TwoModels { name: (*name).to_owned() });
        }
        let (entries, shared) = (RwLock::new(entries), Mutex::new(shared));
        Ok(Models { entries, shared, keeper, changes: Changes::default(), common })
    }

    /// The names of all models.
    pub fn names(&self) -> Vec<String> {
        self.entries().iter().map(|entry| entry.app.name().to_owned()).collect()
    }

    /// The models that there are now.
    fn entries(&self) -> Vec<Arc<Entry>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Connections that it has at once.
    pub fn connections(&self) -> usize {
        self.common.options.connections
    }

    /// Takes other options for requests to come: those of the server, how many models are loaded at once, and of
    /// models, by their names, what [`App::change`] takes and the time without requests. A model that has to go for
    /// that does so when another is loaded.
    pub fn change(
        self: &Arc<Models>,
        options: &Options,
        limits: ModelLimits,
        models: Vec<ModelChange>,
    ) {
        let (connections, drain) = (options.connections, options.drain);
        let read_write = (options.read_timeout, options.write_timeout);
        self.common.change(options.clone(), None);
        self.step(Event::Limits(limits));
        let entries = self.entries();
        for ModelChange { name, options: own, queue, idle } in models {
            let Some(entry) = entries.iter().find(|entry| entry.app.name() == name) else {
                continue;
            };
            let (read_timeout, write_timeout) = read_write;
            let body_limit = options.body_limit;
            let own =
                Options { connections, drain, read_timeout, write_timeout, body_limit, ..own };
            entry.app.change(own, queue);
            self.configure(entry, idle);
        }
    }

    /// What concerns no model.
    pub(crate) fn common(&self) -> &Arc<App> {
        &self.common
    }

    /// The model that has a name, or whose adapter has it.
    fn find(&self, name: &str) -> Option<Arc<Entry>> {
        let entries = self.entries();
        let has = |name: &str| {
            entries.iter().find(|entry| entry.app.all_names().any(|known| known == name)).cloned()
        };
        // Ollama's clients give every name a tag.
        has(name).or_else(|| has(name.strip_suffix(":latest")?))
    }
}
