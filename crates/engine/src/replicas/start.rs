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

use super::Replicas;
use super::adapters::Adapters;
use super::lanes::Seat;
use super::loader::{Loader, News};
use super::options::ReplicaOptions;
use super::queue::Shared;
use super::restart::Threads;
use super::status::ReplicaInfo;
use super::watchdog::Watchdog;
use crate::control::Control;
use crate::cores::Cores;
use crate::decode::{Bounds, Ids};
use crate::disk::Store;
use crate::engine::hosts;
use crate::error::Error;
use crate::file::ModelFile;
use crate::load::{self, LoadProgress, Size};
use crate::options::{KvSize, LoadOptions};
use crate::room::{self, Room};
use crate::source;
use crate::speculate::Speculation;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use topology::{Machine, NodeId};

/// Rows of logits that a step has room for at least: memory is taken as they are used.
const OUTPUTS: usize = 64;

/// A replica that is being loaded.
struct Starting {
    loader: Loader,
    thread: JoinHandle<()>,
    /// Gives it the queue; dropped, it sends it home.
    go: Sender<Arc<Shared>>,
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
        let Agreed { parts, options, .. } = agree(file, machine, options, replicas)?;
        let of = |part: &Machine| {
            let options = of_part(&options, &parts[0], part)?;
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
        agree(file, machine, options, replicas).map(|all| all.bytes)
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
fn of_part(options: &LoadOptions, first: &Machine, part: &Machine) -> Result<LoadOptions, Error> {
    let Some(groups) = &options.groups else { return Ok(options.clone()) };
    let groups = first.groups_on(groups, part).ok_or(Error::UnlikeParts)?;
    Ok(LoadOptions { groups: Some(groups), ..options.clone() })
}

/// What all replicas have alike.
struct Agreed {
    /// The machines that they run on.
    parts: Vec<Machine>,
    options: LoadOptions,
    /// Bytes of weights and KV pages.
    bytes: u64,
    bounds: Bounds,
}

/// Finds what all replicas can have, and whether the nodes have room for them.
fn agree(
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
    let (step, outputs) = sizes.first().map_or((0, 0), |s| (s.step, s.outputs));
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
