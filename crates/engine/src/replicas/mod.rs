//! Several engines behind one queue: a loaded model on every node, or group of nodes.
//!
//! An engine on many nodes answers one request as fast as can be, and pays for it with waits that
//! cross nodes. Replicas never wait for each other: for many requests at once they give more tokens
//! in all, for as many copies of the weights. Inside its part of the machine a replica shares the
//! model over nodes as any engine does.
//!
//! Requests go to the replica that has the least left to do, sessions to the one that served them
//! before, and a replica with room takes what waits for another ([`route`] has the rules). Since a
//! sequence's logits depend on its tokens only, a request has the same answer wherever it runs.
//!
//! An engine belongs to the thread that loads it, so every replica is a thread, which owns an
//! [`Engine`](crate::Engine) and runs a small loop ([`runner`]). An idle one sleeps.
//!
//! Limits: the batch is filled in order of arrival, and prompts are taken in as large pieces as fit
//! a step. A replica whose step fails or panics is out of service until everything is loaded anew.

mod queue;
mod route;
mod runner;
mod start;
mod ticket;

use crate::error::Error;
use crate::load::{LoadProgress, LoadReport};
use crate::options::LoadOptions;
use crate::{ModelFile, Sampler};
use queue::{Job, Phase, Shared};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Instant;
use topology::{CpuList, Machine, NodeList};

pub use ticket::{Outcome, Request, StopHook, Ticket};

/// Loaded replicas of a model and the queue before them.
///
/// Dropping it ends what runs and waits with [`Error::ReplicasClosed`]; [`Replicas::drain`] lets it
/// finish.
///
/// ```
/// use arclight_engine::{LoadOptions, ModelFile, Replicas, Request, SamplerParams};
/// # use std::sync::Arc;
/// # let name = format!("arclight-replicas-{}.gguf", std::process::id());
/// # let path = std::env::temp_dir().join(name);
/// # std::fs::write(&path, testkit::golden("qwen3_tied")).unwrap();
/// # let copies = 1;
/// let file = Arc::new(ModelFile::open(&path)?);
/// // Four requests at once on each of the copies.
/// let options = LoadOptions { sequences: Some(4), ..LoadOptions::default() };
/// let replicas = Replicas::load(&file, &options, copies, &mut |_| {})?;
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
    threads: Vec<JoinHandle<()>>,
    infos: Vec<ReplicaInfo>,
    context: usize,
    vocab: usize,
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

/// What a replica does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// Requests that are being served.
    pub running: usize,
    /// Requests that wait and were routed here.
    pub waiting: usize,
    /// Tokens left to compute for both: prompts, and as many as the answers may have.
    pub outstanding: u64,
    /// Requests that were served to their end.
    pub served: u64,
    /// Steps taken.
    pub steps: u64,
    /// How often it was woken up for work.
    pub wake_ups: u64,
    /// KV pages that are not in use.
    pub free_pages: usize,
    /// Why it is out of service; `None` while it serves.
    pub failure: Option<String>,
}

impl Replicas {
    /// Loads `replicas` copies of a model, each on its [part](Machine::divide) of the machine, or of
    /// the nodes and CPUs in `options`. The other options hold for each replica: `threads`, `nodes`
    /// and `sequences` are numbers per replica.
    ///
    /// All load at once, each with its own cores; they read the file in step, so from a disk it
    /// comes once. It is not needed any more afterwards. `progress` tells of all together.
    ///
    /// # Errors
    /// When there are too few cores or too little memory for so many copies, and whatever
    /// [`Engine::load`](crate::Engine::load) finds wrong. Of several replicas' errors the first; the
    /// others are stopped.
    pub fn load(
        file: &Arc<ModelFile>,
        options: &LoadOptions,
        replicas: usize,
        progress: &mut dyn FnMut(LoadProgress),
    ) -> Result<Replicas, Error> {
        Replicas::load_on(file, &Machine::read()?, options, replicas, progress)
    }

    /// The same on a machine that has been described already.
    ///
    /// # Errors
    /// As [`Replicas::load`].
    pub fn load_on(
        file: &Arc<ModelFile>,
        machine: &Machine,
        options: &LoadOptions,
        replicas: usize,
        progress: &mut dyn FnMut(LoadProgress),
    ) -> Result<Replicas, Error> {
        start::start(file, machine, options, replicas, progress)
    }

    /// What [`Replicas::load_on`] would load on which parts of a machine: for programs that run the
    /// engines themselves, with [`Engine::load_on`](crate::Engine::load_on).
    ///
    /// # Errors
    /// When there are too few cores or too little memory for so many copies.
    pub fn divide(
        file: &ModelFile,
        machine: &Machine,
        options: &LoadOptions,
        replicas: usize,
    ) -> Result<(Vec<Machine>, LoadOptions), Error> {
        start::agree(file, machine, options, replicas).map(|all| (all.parts, all.options))
    }

    /// Puts a request into the queue. It runs even if nobody reads the answer, until the ticket is
    /// dropped.
    ///
    /// # Errors
    /// When the prompt is empty, too long or has unknown tokens, a sampler parameter is out of
    /// range, or no replica is in service any more.
    pub fn submit(&self, request: Request) -> Result<Ticket, Error> {
        let Request { prompt, sampler, limit, end_tokens, stop, affinity, near } = request;
        let (tokens, context, vocab) = (prompt.len(), self.context, self.vocab);
        let mut sampler = Sampler::new(sampler)?;
        if prompt.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        if tokens > context {
            return Err(Error::PromptTooLong { tokens, context });
        }
        if let Some(&token) = prompt.iter().find(|&&t| t as usize >= vocab) {
            return Err(graph::Error::UnknownToken { token, vocab }.into());
        }
        sampler.observe_prompt(&prompt);
        // The last token of an answer is not computed any more, so it needs no room.
        let room = context + 1 - tokens;
        let (events, received) = mpsc::channel();
        let cancelled = Arc::new(AtomicBool::new(false));
        let job = Job {
            id: 0, // given by the queue
            prompt,
            sampler,
            end_tokens,
            stop,
            left: limit.map_or(room, |limit| limit.min(room)),
            limited: limit.is_some_and(|limit| limit <= room),
            affinity,
            near,
            at_home: false,
            lane: 0,
            submitted: Instant::now(),
            events,
            cancelled: cancelled.clone(),
        };
        let id = self.shared.submit(job)?;
        Ok(Ticket::new(id, received, cancelled, self.shared.clone()))
    }

    /// Where the replicas are.
    pub fn replicas(&self) -> &[ReplicaInfo] {
        &self.infos
    }

    /// What each replica does at this moment.
    pub fn status(&self) -> Vec<ReplicaStatus> {
        self.shared.status()
    }

    /// Tokens that one sequence can hold.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Takes no more requests, finishes those it has, and unloads the model.
    pub fn drain(mut self) {
        self.shared.close(Phase::Draining);
        self.join();
    }

    fn join(&mut self) {
        for thread in self.threads.drain(..) {
            // A panic was told to the requests that it concerned.
            let _ = thread.join();
        }
    }
}

impl Drop for Replicas {
    fn drop(&mut self) {
        self.shared.close(Phase::Closed);
        self.join();
    }
}
