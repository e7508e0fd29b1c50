//! Several engines behind one queue: a loaded model on every node, or group of nodes.
//!
//! An engine on many nodes answers one request as fast as can be, and pays for it with waits that
//! cross nodes. Replicas never wait for each other: for many requests at once they give more tokens
//! in all, for as many copies of the weights. Inside its part of the machine a replica shares the
//! model over nodes as any engine does.
//!
//! Requests go to the replica that has the least left to do, what it has computed of their beginnings
//! for others taken off; sessions go to the one that served them before, and a replica with room takes
//! what waits for another ([`route`] has the rules). Since a sequence's logits depend on its tokens
//! only, a request has the same answer wherever it runs.
//!
//! An engine belongs to the thread that loads it, so every replica is a thread, which owns an
//! [`Engine`](crate::Engine) and runs a small loop ([`runner`]). An idle one sleeps.
//!
//! Requests are begun by priority, and clients of one priority take turns ([`turns`]). A step has a
//! token of every running answer and as much of prompts as lets those wait not much longer.
//! Prompts that begin alike share what was computed for the first. When KV pages run out, the request
//! that would be begun last gives up its own and is computed anew when there is room.
//!
//! A request that no step can take ends with an error that states the limit. Requests of a thread that hangs, and others
//! that make no progress, are named in the log by a [`watchdog`].
//!
//! A replica whose step fails or panics is out of service until it is loaded again ([`Replicas::restart`]), or
//! everything is.

mod idle;
mod job;
mod prefixes;
mod queue;
mod restart;
mod route;
mod runner;
mod start;
mod ticket;
mod turns;
mod watch;
mod watchdog;

use crate::ModelFile;
use crate::adapter::{AdapterUse, check_set, normal};
use crate::company::Company;
use crate::cores::CoreTurns;
use crate::decode::{Bounds, Counters, Ids, Request};
use crate::disk::DiskCache;
use crate::engine::Engine;
use crate::error::Error;
use crate::kv::{CacheEvent, PageCounts};
use crate::load::{LoadProgress, LoadReport};
use crate::options::LoadOptions;
use crate::speculate::Speculation;
use graph::Adapted;
use job::Job;
use prefixes::page_names;
use queue::{Phase, Shared};
use restart::Threads;
use start::Agreed;
use std::sync::mpsc::channel;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use topology::{CpuList, Machine, NodeList};
use turns::Turn;
use watchdog::Watchdog;

pub use idle::IdleTime;
pub use models::{Pooling, Score};
pub use ticket::Ticket;
pub use watch::{Experts, GroupStatus, ThreadStatus};

/// Loaded replicas of a model and the queue before them.
///
/// Dropping it ends what runs and waits with [`Error::ReplicasClosed`]; [`Replicas::drain`] lets it
/// finish.
///
/// ```
/// use arclight_engine::{LoadOptions, ModelFile, ReplicaOptions, Replicas, Request, SamplerParams};
/// # use std::sync::Arc;
/// # let name = format!("arclight-replicas-{}.gguf", std::process::id());
/// # let path = std::env::temp_dir().join(name);
/// # std::fs::write(&path, testkit::golden("qwen3_tied")).unwrap();
/// # let copies = 1;
/// let file = Arc::new(ModelFile::open(&path)?);
/// // Four requests at once on each of the copies, and ten more that wait.
/// let options = LoadOptions { sequences: Some(4), ..LoadOptions::default() };
/// let serving = ReplicaOptions { replicas: copies, queue: Some(10), ..ReplicaOptions::default() };
/// let replicas = Replicas::load(&file, &options, &serving, &mut |_| {})?;
///
/// let request = Request::new(vec![1, 2, 3]);
/// let request = Request { limit: Some(8), sampler: SamplerParams::greedy(), ..request };
/// let (tokens, outcome) = replicas.submit(request)?.wait()?;
/// assert_eq!((tokens.len(), outcome.timings.prompt_tokens), (8, 3));
/// # std::fs::remove_file(path).unwrap();
/// # Ok::<(), arclight_engine::Error>(())
/// ```
pub struct Replicas {
    shared: Arc<Shared>,
    threads: Threads,
    /// Ends with them.
    _watchdog: Watchdog,
    infos: Vec<ReplicaInfo>,
    bounds: Bounds,
    adapters: Adapters,
}

/// The adapters that are loaded, and the factors that they have in requests which say nothing.
struct Adapters {
    all: Vec<AdapterUse>,
    scales: RwLock<Vec<f32>>,
}

impl Adapters {
    fn new(all: Vec<AdapterUse>) -> Adapters {
        let scales = RwLock::new(all.iter().map(|one| one.scale).collect());
        Adapters { all, scales }
    }

    /// The set of a request.
    fn of(&self, request: &Request) -> Result<Vec<Adapted>, Error> {
        let usual = || {
            let scales = self.scales.read().unwrap_or_else(PoisonError::into_inner);
            scales.iter().zip(0..).map(|(&scale, adapter)| Adapted { adapter, scale }).collect()
        };
        let set = request.adapters.clone().unwrap_or_else(usual);
        check_set(&set, self.all.len())?;
        Ok(normal(&set))
    }
}

/// How requests are served, beside what [`LoadOptions`] say of each replica.
#[derive(Clone, Debug)]
pub struct ReplicaOptions {
    /// Copies of the model.
    pub replicas: usize,
    /// Requests that may wait beside those for which there is a sequence; `None`: as many as come.
    pub queue: Option<usize>,
    /// How long a step may last that has a part of a prompt. `None`: somewhat longer than without.
    pub max_step: Option<Duration>,
    /// Whether keys and values of ended requests are kept for those that begin alike.
    pub prefix_cache: bool,
    /// Where they are kept on disk as well, to be found again when memory had no room for them, or by another
    /// server.
    pub disk: Option<DiskCache>,
    /// Whether what a slot's last request has left can be [saved](Replicas::save_slot) and restored.
    pub saves: bool,
    /// Whether tokens are guessed ahead. Answers are the same in any case.
    pub speculation: Speculation,
    /// Whether they are also where that takes more time than it saves: for measurements.
    pub always_speculate: bool,
    /// The file of the image encoder (mmproj), which each replica loads.
    pub encoder: Option<Arc<ModelFile>>,
    /// Where other models of this process compute on the same cores: all that share them have the same here.
    pub turns: Option<Arc<CoreTurns>>,
    /// Who hears of changes of the prefix caches.
    pub cache_events: Option<CacheEvents>,
}

impl Default for ReplicaOptions {
    fn default() -> ReplicaOptions {
        ReplicaOptions {
            replicas: 1,
            queue: None,
            max_step: None,
            prefix_cache: true,
            disk: None,
            saves: false,
            speculation: Speculation::Off,
            always_speculate: false,
            encoder: None,
            turns: None,
            cache_events: None,
        }
    }
}

/// Who hears of changes of the replicas' prefix caches: after each step, those of a replica in their order. It must not
/// wait for anything.
#[derive(Clone)]
pub struct CacheEvents(Arc<dyn Fn(usize, Vec<CacheEvent>) + Send + Sync>);

impl CacheEvents {
    /// `told` gets the number of the replica and what has changed.
    pub fn new(told: impl Fn(usize, Vec<CacheEvent>) + Send + Sync + 'static) -> CacheEvents {
        CacheEvents(Arc::new(told))
    }

    fn tell(&self, replica: usize, events: Vec<CacheEvent>) {
        (self.0)(replica, events);
    }
}

impl std::fmt::Debug for CacheEvents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CacheEvents")
    }
}

/// Where a replica is and how it was loaded.
#[derive(Clone, Debug)]
pub struct ReplicaInfo {
    /// Its memory nodes.
    pub nodes: NodeList,
    /// The CPUs that it chose its threads' from.
    pub cpus: CpuList,
    /// Its threads.
    pub threads: usize,
    /// Requests that it can serve at once.
    pub sequences: usize,
    /// What loading did.
    pub report: LoadReport,
}

/// Number of answers of all replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Answers that are being given.
    pub running: usize,
    /// Answers in the queue.
    pub waiting: usize,
}

/// What a replica does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// Answers that are being given.
    pub running: usize,
    /// Answers that wait and were routed here.
    pub waiting: usize,
    /// Tokens left to compute for both: prompts, and as many as the answers may have.
    pub outstanding: u64,
    /// What it has done.
    pub counters: Counters,
    /// How often it was woken up for work.
    pub wake_ups: u64,
    /// Its KV pages.
    pub pages: PageCounts,
    /// What its groups of threads have done.
    pub groups: Vec<GroupStatus>,
    /// How often tokens went to each expert.
    pub experts: Arc<Experts>,
    /// What it has seen of other programs on its cores.
    pub company: Company,
    /// Why it is out of service; `None` while it serves.
    pub failure: Option<String>,
    /// Whether it serves again by itself: it looks for a host of the model that is gone.
    pub comes_back: bool,
    /// Whether it has failed and [is being loaded again](Replicas::restart).
    pub restarting: bool,
}

impl Replicas {
    /// Loads copies of a model, each on its [part](Machine::divide) of the machine, or of
    /// the nodes and CPUs in `options`. The other options hold for each replica: `threads`, `nodes`
    /// and `sequences` are numbers per replica.
    ///
    /// All load at once, each with its own cores, and each reads the file: from a disk it comes once if it
    /// stays in the page cache. Of one copy it is not needed any more afterwards; with several it stays open, for
    /// [`Replicas::restart`]. `progress` tells of all together.
    ///
    /// # Errors
    /// When there are too few cores or too little memory for so many copies, and whatever
    /// [`Engine::load`](crate::Engine::load) finds wrong. Of several replicas' errors the first; the
    /// others are stopped.
    pub fn load(
        file: &Arc<ModelFile>,
        options: &LoadOptions,
        serving: &ReplicaOptions,
        progress: &mut dyn FnMut(LoadProgress),
    ) -> Result<Replicas, Error> {
        Replicas::load_on(file, &Machine::read()?, options, serving, progress)
    }

    /// The same on a machine that has been described already.
    ///
    /// # Errors
    /// As [`Replicas::load`].
    pub fn load_on(
        file: &Arc<ModelFile>,
        machine: &Machine,
        options: &LoadOptions,
        serving: &ReplicaOptions,
        progress: &mut dyn FnMut(LoadProgress),
    ) -> Result<Replicas, Error> {
        start::start(file, machine, options, serving, progress)
    }

    /// What [`Replicas::load_on`] would load on which parts of a machine, and how: for programs that run the
    /// engines themselves, with [`Engine::load_on`](crate::Engine::load_on).
    ///
    /// # Errors
    /// When there are too few cores or too little memory for so many copies.
    pub fn divide(
        file: &ModelFile,
        machine: &Machine,
        options: &LoadOptions,
        replicas: usize,
    ) -> Result<Vec<(Machine, LoadOptions)>, Error> {
        let Agreed { parts, options, .. } = start::agree(file, machine, options, replicas)?;
        let of = |part: &Machine| {
            let options = start::of_part(&options, &parts[0], part)?;
            Ok((part.clone(), options))
        };
        parts.iter().map(of).collect()
    }

    /// Bytes that [`Replicas::load`] would take for weights and KV pages, of all replicas together.
    ///
    /// # Errors
    /// When there are too few cores or too little memory for so many copies.
    pub fn bytes(
        file: &ModelFile,
        machine: &Machine,
        options: &LoadOptions,
        replicas: usize,
    ) -> Result<u64, Error> {
        start::agree(file, machine, options, replicas).map(|all| all.bytes)
    }

    /// Puts a request into the queue. It runs even if nobody reads the answer, until the ticket is
    /// dropped.
    ///
    /// # Errors
    /// When the prompt is empty, too long or has unknown tokens, a sampler parameter is out of
    /// range, the queue is full, or no replica is in service any more.
    pub fn submit(&self, request: Request) -> Result<Ticket, Error> {
        let mut tickets = self.submit_all(vec![request])?;
        tickets.pop().ok_or(Error::ReplicasClosed)
    }

    /// Puts requests into the queue, all of them or none. Those with the same prompt are begun
    /// together, and it is computed once.
    ///
    /// # Errors
    /// As [`Replicas::submit`].
    pub fn submit_all(&self, requests: Vec<Request>) -> Result<Vec<Ticket>, Error> {
        let together = self.infos.iter().map(|info| info.sequences).min().unwrap_or(1);
        let mut jobs: Vec<Job> = Vec::new();
        let mut places = Vec::with_capacity(requests.len());
        for request in requests {
            let adapters = self.adapters.of(&request)?;
            let Request { affinity, near, client, .. } = request;
            let (mut asked, events) = self.bounds.accept(request, adapters)?;
            let cancelled = asked.answers[0].cancelled.clone();
            let alike = jobs
                .iter()
                .position(|job| job.asked.answers.len() < together && job.asked.is_like(&asked));
            places.push((alike.unwrap_or(jobs.len()), events, cancelled));
            match alike {
                Some(at) => jobs[at].asked.answers.append(&mut asked.answers),
                None => jobs.push(Job {
                    id: 0, // these three are given by the queue
                    turn: Turn::default(),
                    lane: 0,
                    pages: match self.infos.len() {
                        1 => Vec::new(),
                        _ => page_names(&asked.prompt, &asked.adapters),
                    },
                    asked,
                    affinity,
                    near,
                    client,
                    at_home: false,
                }),
            }
        }
        let ids = self.shared.submit(jobs)?;
        let ticket = |(at, events, cancelled): (usize, _, _)| {
            Ticket::new(ids[at], events, cancelled, self.shared.clone())
        };
        Ok(places.into_iter().map(ticket).collect())
    }

    /// Requests that may wait beside those for which there is a sequence; `None`: as many as come.
    pub fn queue(&self) -> Option<usize> {
        self.shared.bound()
    }

    /// Lets so many wait from now on. Those that wait already stay.
    pub fn set_queue(&self, queue: Option<usize>) {
        self.shared.set_bound(queue);
    }

    /// What tokens there are.
    pub fn ids(&self) -> Ids {
        self.bounds.ids
    }

    /// The adapters that are loaded, in the order of their numbers, each with the factor that it has in requests of
    /// which nothing is said.
    pub fn adapters(&self) -> Vec<AdapterUse> {
        let scales = self.adapters.scales.read().unwrap_or_else(PoisonError::into_inner);
        let all = self.adapters.all.iter().zip(&*scales);
        all.map(|(one, &scale)| AdapterUse { scale, ..one.clone() }).collect()
    }

    /// Gives adapters these factors in requests to come of which nothing is said; those that are not among them
    /// are off there.
    ///
    /// # Errors
    /// When there is no such adapter, one stands there twice, or a factor is no number. Nothing is changed then.
    pub fn set_adapter_scales(&self, set: &[Adapted]) -> Result<(), Error> {
        check_set(set, self.adapters.all.len())?;
        let mut scales = self.adapters.scales.write().unwrap_or_else(PoisonError::into_inner);
        scales.fill(0.0);
        set.iter().for_each(|one| scales[one.adapter as usize] = one.scale);
        Ok(())
    }

    /// Whether prompts may have images.
    pub fn sees(&self) -> bool {
        self.bounds.sees
    }

    /// Whether the model writes texts, and does not only read them.
    pub fn writes(&self) -> bool {
        self.bounds.writes
    }

    /// Where the replicas are.
    pub fn replicas(&self) -> &[ReplicaInfo] {
        &self.infos
    }

    /// What each replica does at this moment.
    pub fn status(&self) -> Vec<ReplicaStatus> {
        self.shared.status()
    }

    /// Number of answers of all replicas at this moment. It is cheaper than [`status`](Replicas::status).
    pub fn occupancy(&self) -> Occupancy {
        self.shared.occupancy()
    }

    /// Has `hook` called whenever answers have ended or left the queue, on the thread that noticed it: a replica's,
    /// between two steps, or that of a caller. It must not wait for anything. The first hook stays.
    pub fn on_release(&self, hook: impl Fn() + Send + Sync + 'static) {
        self.shared.on_release(Box::new(hook));
    }

    /// Begins to load a replica again that has failed, from the file as it was opened, while the others go on. It
    /// serves when [`ReplicaStatus::failure`] is gone; if it cannot be loaded, that says why. False when it has not
    /// failed, is being loaded already, or is the only one: then the model as a whole can be loaded again.
    pub fn restart(&self, replica: usize) -> bool {
        self.threads.restart(replica, &self.shared)
    }

    /// What all replicas have done.
    pub fn counters(&self) -> Counters {
        let mut all = Counters::default();
        self.status().iter().for_each(|status| all += status.counters);
        all
    }

    /// Tokens that one sequence can hold.
    pub fn context(&self) -> usize {
        self.bounds.context
    }

    /// Requests that all replicas serve at once: each is in a slot, those of the first replica come first.
    pub fn slots(&self) -> usize {
        self.infos.iter().map(|info| info.sequences).sum()
    }

    /// What the prefix cache still has of the last request that ended in a slot, as a file, and how many tokens that
    /// is. Waits for the step that is under way.
    ///
    /// # Errors
    /// When there is no such slot, or the model was not loaded with [`ReplicaOptions::saves`].
    pub fn save_slot(&self, slot: usize) -> Result<(Vec<u8>, usize), Error> {
        self.in_slot(slot, Engine::save_slot)?
    }

    /// Puts what [`save_slot`](Replicas::save_slot) gave into the prefix cache of a slot's replica, for requests that
    /// begin alike; how many tokens that is.
    ///
    /// # Errors
    /// As above, and when the file is damaged or of another model, or there is no room for it now.
    pub fn restore_slot(&self, slot: usize, file: Vec<u8>) -> Result<usize, Error> {
        self.in_slot(slot, move |engine, slot| engine.restore_slot(slot, &file))?
    }

    /// Forgets what the last request that ended in a slot has left, as far as nobody else needs it; how many tokens
    /// that was.
    ///
    /// # Errors
    /// When there is no such slot.
    pub fn erase_slot(&self, slot: usize) -> Result<usize, Error> {
        self.in_slot(slot, Engine::erase_slot)
    }

    fn in_slot<T: Send + 'static>(
        &self,
        slot: usize,
        what: impl FnOnce(&mut Engine, usize) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let mut own = slot;
        for (me, info) in self.infos.iter().enumerate() {
            if own < info.sequences {
                let (told, heard) = channel();
                let task = move |engine: &mut Engine| _ = told.send(what(engine, own));
                self.shared.ask(me, Box::new(task))?;
                return heard.recv().map_err(|_| Error::ReplicasClosed);
            }
            own -= info.sequences;
        }
        Err(Error::NoSlot { slot, slots: self.slots() })
    }

    /// Takes no more requests, finishes those it has, and unloads the model.
    pub fn drain(mut self) {
        self.shared.close(Phase::Draining);
        self.threads.join();
    }
}

impl Drop for Replicas {
    fn drop(&mut self) {
        self.shared.close(Phase::Closed);
        self.threads.join();
    }
}
