//! Loading the replicas: a thread each, all at once.
//!
//! Loading is packing, work for a replica's own cores on its own nodes, so one after the other
//! would leave all but one part of the machine idle. They are at about the same place of the file,
//! and what one has brought from the disk the others find in the page cache. Each has a mapping of
//! its own, because loading releases pages. Two replicas of a model of 0.8 GB in the page cache, a
//! core each, 5 runs (2026-11-21): one after the other 2.1 to 4.2 s, at once 1.0 to 2.4 s, at once
//! through one mapping 1.6 to 3.5 s.
//!
//! Whether there is room for all is known before anything is allocated. A replica on nodes of its
//! own checks them itself; what several bring to one node is added up here, since memory that a
//! cache has not used yet looks free. All get the same context, which is that of the narrowest.

use super::queue::{Seat, Shared};
use super::restart::Threads;
use super::runner::{Crew, serve};
use super::watch::Watch;
use super::watchdog::Watchdog;
use super::{Adapters, ReplicaInfo, ReplicaOptions, Replicas};
use crate::control::Control;
use crate::cores::Cores;
use crate::decode::{Bounds, Ids};
use crate::disk::{Store, fingerprint};
use crate::encoder::Encoder;
use crate::engine::{Engine, hosts};
use crate::error::{Error, message};
use crate::file::ModelFile;
use crate::load::{self, LoadProgress, Size};
use crate::options::{KvSize, LoadOptions};
use crate::room::{self, Room};
use crate::source;
use crate::speculate::{Speculation, Speculator};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use topology::{CpuList, Machine, NodeId};

/// Rows of logits that a step has room for at least: memory is taken as they are used.
const OUTPUTS: usize = 64;

/// What a thread that loads tells.
enum News {
    Progress(LoadProgress),
    Loaded(Box<(ReplicaInfo, Seat)>),
    Failed(Error),
}

/// A replica that is being loaded.
struct Starting {
    loader: Loader,
    thread: JoinHandle<()>,
    /// Gives it the queue; dropped, it sends it home.
    go: Sender<Arc<Shared>>,
}

pub(crate) fn start(
    file: &Arc<ModelFile>,
    machine: &Machine,
    options: &LoadOptions,
    serving: &ReplicaOptions,
    progress: &mut dyn FnMut(LoadProgress),
) -> Result<Replicas, Error> {
    let replicas = serving.replicas;
    let predicting = options.predicting || serving.speculation.predicts();
    let options = &LoadOptions { predicting, ..options.clone() };
    let agreed = match options.stage {
        Some(_) => agree_with_hosts(file, machine, options, serving)?,
        None => None,
    };
    let options = agreed.as_ref().unwrap_or(options);
    let Agreed { parts, options, bounds, .. } = agree(file, machine, options, replicas)?;
    let disk = serving.disk.as_ref().filter(|_| serving.prefix_cache);
    let disk = disk.map(|disk| Store::open(disk).map(Arc::new)).transpose()?;
    let stop = Arc::new(AtomicBool::new(false));
    let (told, news) = channel();
    let mut starting = Vec::with_capacity(replicas);
    let spawned = parts.iter().enumerate().try_for_each(|(me, part)| {
        let options = of_part(&options, &parts[0], part)?;
        let (go, shared) = channel();
        let loader = Loader {
            me,
            file: file.clone(),
            part: part.clone(),
            options,
            serving: serving.clone(),
            disk: disk.clone(),
            control: Control {
                stop: stop.clone(),
                cores: serving
                    .turns
                    .as_ref()
                    .map(|turns| Cores::new(turns, part.cpus().iter().map(|cpu| cpu.id))),
            },
        };
        let (own, told) = (loader.clone(), told.clone());
        let thread = thread::Builder::new().name(format!("replica-{me}"));
        let thread = thread.spawn(move || own.run(told, &shared)).map_err(|source| {
            graph::Error::from(threads::Error::Spawn { thread: me, threads: replicas, source })
        })?;
        starting.push(Starting { loader, thread, go });
        Ok(())
    });
    drop(told);
    match spawned.and_then(|()| collect(&news, replicas, progress)) {
        Ok(loaded) => {
            let (infos, seats): (Vec<ReplicaInfo>, Vec<Seat>) = loaded.into_iter().unzip();
            let shared = Arc::new(Shared::new(seats, serving.queue));
            let begin = |starting: Starting| {
                // It waits for this.
                let _ = starting.go.send(shared.clone());
                (starting.loader, starting.thread)
            };
            let started = starting.into_iter().map(begin).collect();
            let threads = Threads::new(started, stop);
            let watchdog = Watchdog::new(shared.clone());
            let bounds = Bounds { sees: serving.encoder.is_some(), ..bounds };
            let adapters = Adapters::new(options.adapters);
            Ok(Replicas { shared, threads, _watchdog: watchdog, infos, bounds, adapters })
        }
        Err(error) => {
            stop.store(true, Relaxed);
            for Starting { thread, go, .. } in starting {
                drop(go);
                let _ = thread.join();
            }
            Err(error)
        }
    }
}

/// Hears the threads until all are loaded or one has failed.
fn collect(
    news: &Receiver<(usize, News)>,
    replicas: usize,
    progress: &mut dyn FnMut(LoadProgress),
) -> Result<Vec<(ReplicaInfo, Seat)>, Error> {
    let mut loaded: Vec<Option<(ReplicaInfo, Seat)>> = (0..replicas).map(|_| None).collect();
    let mut parts = vec![LoadProgress { done: 0, total: 0 }; replicas];
    for (me, news) in news {
        match news {
            News::Failed(error) => return Err(error),
            News::Loaded(one) => loaded[me] = Some(*one),
            News::Progress(part) => {
                parts[me] = part;
                // Those that have not begun will have as much to do.
                let most = parts.iter().map(|p| p.total).max().unwrap_or(0);
                let total = parts.iter().map(|p| if p.total == 0 { most } else { p.total }).sum();
                progress(LoadProgress { done: parts.iter().map(|p| p.done).sum(), total });
            }
        }
    }
    // The threads are through: whoever was not heard has ended without a word.
    loaded.into_iter().collect::<Option<_>>().ok_or(Error::ReplicasClosed)
}

/// Options of all replicas for one of them: groups of the first are on its own CPUs in the same places.
pub(crate) fn of_part(
    options: &LoadOptions,
    first: &Machine,
    part: &Machine,
) -> Result<LoadOptions, Error> {
    let Some(groups) = &options.groups else { return Ok(options.clone()) };
    let groups = first.groups_on(groups, part).ok_or(Error::UnlikeParts)?;
    Ok(LoadOptions { groups: Some(groups), ..options.clone() })
}

/// What all replicas have alike.
pub(crate) struct Agreed {
    /// The machines that they run on.
    pub parts: Vec<Machine>,
    pub options: LoadOptions,
    /// Bytes of weights and KV pages.
    pub bytes: u64,
    bounds: Bounds,
}

/// Finds what all replicas can have, and whether the nodes have room for them.
pub(crate) fn agree(
    file: &ModelFile,
    machine: &Machine,
    options: &LoadOptions,
    replicas: usize,
) -> Result<Agreed, Error> {
    let parts = load::restrict(machine, options)?.divide(replicas)?;
    // Each part is restricted to them already.
    let mut options = LoadOptions { on_nodes: None, on_cpus: None, ..options.clone() };
    // Rows for guesses, and for prompts whose log-probabilities are wanted.
    let sequences = options.sequences.unwrap_or(1);
    options.step_outputs = options.step_outputs.or(Some(sequences.max(OUTPUTS)));
    let mut sizes: Vec<Size> = Vec::with_capacity(parts.len());
    for part in &parts {
        let size = load::size(file, part, &parts, &of_part(&options, &parts[0], part)?)?;
        // Measured once.
        options.huge_pages = Some(size.huge_pages);
        sizes.push(size);
    }
    let context = sizes.iter().map(|s| s.room.context).min().unwrap_or(0);
    let tokens = sizes.iter().map(|s| s.room.tokens).min().unwrap_or(0);
    let room = Room { context, tokens };
    options.context = Some(context);
    if options.kv_size == KvSize::Fit {
        options.kv_size = KvSize::Tokens(tokens);
    }
    // The file is in the page cache once, whoever reads it.
    let weights = sizes.iter().map(|s| s.weights).sum();
    let cache = options.page_cache;
    options.page_cache = cache.or_else(|| Some(source::page_cache(&parts, file.bytes(), weights)));

    let shared = |node: NodeId| room::sharing(&parts, node) > 1;
    let bytes = |size: &Size| size.weights + size.kv(room, &options);
    let needs = parts.iter().zip(&sizes).filter_map(|(part, size)| {
        // A part that shares a node has no other.
        let node = part.nodes().iter().find(|n| n.memory_allowed && shared(n.id))?;
        Some((node.id, bytes(size)))
    });
    memory::check_room(&parts[0], needs).map_err(|source| match source {
        memory::Error::NoRoom { node, .. } => {
            Error::ReplicasRoom { replicas: room::sharing(&parts, node), source }
        }
        source => source.into(),
    })?;
    let bytes = sizes.iter().map(bytes).sum();
    let (step, outputs) = sizes.first().map_or((0, 0), |s| s.step);
    let bounds = Bounds {
        context,
        step,
        outputs,
        ids: sizes.first().map_or(Ids::default(), |s| s.ids),
        writes: sizes.first().is_some_and(|s| s.writes),
        sees: false,
    };
    Ok(Agreed { parts, options, bytes, bounds })
}

/// Refuses what cannot be where several hosts share a model, and finds a cache that fits on all of them.
fn agree_with_hosts(
    file: &ModelFile,
    machine: &Machine,
    options: &LoadOptions,
    serving: &ReplicaOptions,
) -> Result<Option<LoadOptions>, Error> {
    let guesses = matches!(serving.speculation, Speculation::Draft(..) | Speculation::Predict(_));
    let not = [
        ("several replicas (--replicas)", serving.replicas > 1),
        ("a prefix cache on disk (--cache-dir)", serving.disk.is_some()),
        ("saved slots (--slot-save-path)", serving.saves),
        ("images (--mmproj)", serving.encoder.is_some()),
        ("models that share cores", serving.turns.is_some()),
        ("guesses of a draft model or of a layer that predicts", guesses),
    ];
    if let Some((what, _)) = not.into_iter().find(|(_, asked)| *asked) {
        return Err(Error::NotInStages(what));
    }
    let machine = load::restrict(machine, options)?;
    hosts::agree(file, &machine, options, &Control::default())
}

/// Loads one replica, on its own thread.
#[derive(Clone)]
pub(super) struct Loader {
    pub(super) me: usize,
    file: Arc<ModelFile>,
    part: Machine,
    options: LoadOptions,
    serving: ReplicaOptions,
    disk: Option<Arc<Store>>,
    control: Control,
}

/// A replica that is loaded.
pub(super) struct Loaded {
    pub(super) crew: Crew,
    pub(super) seat: Seat,
    info: ReplicaInfo,
}

impl Loader {
    fn run(self, news: Sender<(usize, News)>, shared: &Receiver<Arc<Shared>>) {
        let me = self.me;
        // Nobody listens any more when another has failed.
        let tell = |what| _ = news.send((me, what));
        let Loaded { crew, seat, info } = match self.load(&mut |now| tell(News::Progress(now))) {
            Ok(loaded) => loaded,
            Err(error) => return tell(News::Failed(error)),
        };
        tell(News::Loaded(Box::new((info, seat))));
        let serving = self.serving.clone();
        drop((self, news));
        if let Ok(shared) = shared.recv() {
            serve(me, crew, &serving, shared);
        }
    }

    /// How its requests are served.
    pub(super) fn serving(&self) -> ReplicaOptions {
        self.serving.clone()
    }

    /// Loads it; a panic is an error, too.
    pub(super) fn load(&self, told: &mut dyn FnMut(LoadProgress)) -> Result<Loaded, Error> {
        let replica = self.me;
        let fault = |source| Error::Replica { replica, cpus: self.cpus(), source };
        match catch_unwind(AssertUnwindSafe(|| self.load_now(told))) {
            Ok(loaded) => loaded.map_err(|error| fault(Box::new(error))),
            Err(panic) => {
                let reason = format!("it panicked: {}", message(&*panic));
                Err(fault(Box::new(Error::ReplicaFailed { replica, reason })))
            }
        }
    }

    fn load_now(&self, told: &mut dyn FnMut(LoadProgress)) -> Result<Loaded, Error> {
        let (part, options) = (&self.part, &self.options);
        let file = self.file.for_another()?;
        let mut engine = Engine::load_part(&file, part, options, &self.control, told)?;
        if self.serving.cache_events.is_some() {
            engine.tell_cache_events();
        }
        if self.disk.is_some() || self.serving.saves {
            let context = engine.context();
            let root = fingerprint(&file, &engine.executor, context)?;
            engine.name_pages(root);
            self.disk.iter().for_each(|disk| engine.keep_on_disk(disk.clone()));
        }
        let ReplicaOptions { speculation, always_speculate, encoder, .. } = &self.serving;
        let speculator = Speculator::load(&engine, speculation, options)?;
        let speculator = match always_speculate {
            true => speculator.map(Speculator::always),
            false => speculator,
        };
        let encoder = encoder
            .as_ref()
            .map(|file| Encoder::load(&*file.for_another()?, &engine, options, &mut |_| {}));
        let encoder = encoder.transpose()?;
        let mut watch = Watch::new(&mut engine);
        let groups = watch.look(&mut engine);
        let limits = engine.limits();
        let plan = engine.plan();
        let info = ReplicaInfo {
            nodes: plan.groups.iter().filter_map(|g| g.node).collect(),
            cpus: self.cpus(),
            threads: plan.threads(),
            // Each is to have a token and a row of logits in every step.
            sequences: options.sequences.unwrap_or(1).min(limits.tokens).min(limits.outputs),
            report: engine.report().clone(),
        };
        let seat = Seat {
            nodes: info.nodes.clone(),
            threads: info.threads,
            slots: info.sequences,
            pages: engine.pages(),
            groups,
            experts: watch.experts(),
            company: engine.company().cloned().unwrap_or_default(),
        };
        let cores = self.control.cores.clone();
        Ok(Loaded { crew: Crew { engine, speculator, encoder, watch, cores }, seat, info })
    }

    fn cpus(&self) -> CpuList {
        self.part.cpus().iter().map(|c| c.id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gguf::TensorType;
    use testkit::TinyModel;
    use topology::fake::FakeMachine;

    #[test]
    fn a_load_can_be_stopped() {
        let file = ModelFile::from_bytes("tiny", TinyModel::qwen3(TensorType::Q4_0).gguf());
        let machine = FakeMachine::uniform(1, 2).machine().unwrap();
        let options = LoadOptions { no_pin: true, context: Some(64), ..LoadOptions::default() };
        let control = Control::default();
        let mut matrices = 0;
        let mut load = |after| {
            let mut told = |_| {
                matrices += 1;
                control.stop.store(matrices == after, Relaxed);
            };
            let loaded = Engine::load_part(&file, &machine, &options, &control, &mut told).is_ok();
            (loaded, std::mem::take(&mut matrices))
        };
        assert!(load(usize::MAX).1 > 3);
        assert_eq!(load(2), (false, 2));
    }
}
