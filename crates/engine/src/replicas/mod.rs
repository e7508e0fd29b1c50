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

mod adapters;
mod idle;
mod job;
mod lanes;
mod loader;
mod options;
mod prefixes;
mod queue;
mod restart;
mod route;
mod runner;
mod start;
mod status;
mod ticket;
mod turns;
mod watch;
mod watchdog;

use crate::adapter::AdapterUse;
use crate::decode::{Bounds, Counters, Ids, Request};
use crate::engine::Engine;
use crate::error::Error;
use adapters::Adapters;
use graph::Adapted;
use job::Job;
use lanes::Phase;
use prefixes::page_names;
use queue::Shared;
use restart::Threads;
use std::sync::Arc;
use std::sync::mpsc::channel;
use turns::Turn;
use watchdog::Watchdog;

pub use idle::IdleTime;
pub use models::{Pooling, Score};
pub use options::{CacheEvents, ReplicaOptions};
pub use status::{Experts, GroupStatus, Occupancy, ReplicaInfo, ReplicaStatus, ThreadStatus};
pub use ticket::Ticket;

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

impl Replicas {
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
        self.adapters.all()
    }

    /// Gives adapters these factors in requests to come of which nothing is said; those that are not among them
    /// are off there.
    ///
    /// # Errors
    /// When there is no such adapter, one stands there twice, or a factor is no number. Nothing is changed then.
    pub fn set_adapter_scales(&self, set: &[Adapted]) -> Result<(), Error> {
        self.adapters.set_scales(set)
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

    /// The idle time of a replica.
    ///
    /// # Panics
    /// When there is no such replica.
    pub fn idle_time(&self, replica: usize) -> IdleTime {
        assert!(replica < self.infos.len(), "replica {replica} of {}", self.infos.len());
        IdleTime::new(self.shared.clone(), replica)
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
