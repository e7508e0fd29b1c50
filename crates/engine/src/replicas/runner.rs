//! A replica's thread: an engine and the requests that it serves, a step at a time.
//!
//! Before each step it drops what was cancelled or is late and takes new requests for its free slots.
//! [`Batch`] says what a step has of each.

use super::options::{CacheEvents, ReplicaOptions};
use super::queue::{Next, Shared};
use super::watch::Watch;
use crate::cores::Cores;
use crate::decode::{Batch, Helpers, Pace, Running};
use crate::encoder::Encoder;
use crate::engine::Engine;
use crate::error::{Error, message};
use crate::kv::CacheEvent;
use crate::speculate::Speculator;
use crate::stages::LostStage;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// How long an idle replica writes to the disk before it looks whether there is something to do.
const SLICE: Duration = Duration::from_millis(10);

/// The part of a step's time for which pages are copied for the disk after it.
const SPILL: u32 = 20;

/// The first and the longest wait before hosts that are gone are looked for again.
const HOSTS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// An engine, and what works for it beside it.
pub(crate) struct Crew {
    pub engine: Engine,
    pub speculator: Option<Speculator>,
    pub encoder: Option<Encoder>,
    pub watch: Watch,
    /// Where other models compute on its cores.
    pub cores: Option<Cores>,
}

/// Serves until told to end; a failure ends it, too, and only this replica's requests.
pub(crate) fn serve(me: usize, crew: Crew, options: &ReplicaOptions, shared: Arc<Shared>) {
    let pace = Pace::new(crew.engine.limits().outputs, options.max_step);
    let vocab = crew.engine.bounds(false).ids.tokens;
    let batch = Batch::new(Some(pace), options.prefix_cache, vocab);
    let events = options.cache_events.clone();
    let mut runner = Runner { me, crew, shared, batch, events };
    let reason = match catch_unwind(AssertUnwindSafe(|| runner.run())) {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(panic) => Some(format!("it panicked: {}", message(&*panic))),
    };
    if let Some(reason) = &reason {
        tracing::error!("replica {me} is out of service: {reason}");
        runner.shared.fail(me, reason);
    }
    if let Some(events) = &runner.events {
        events.tell(me, vec![CacheEvent::Cleared]);
    }
    for request in runner.batch.running {
        request.fail(|| match &reason {
            Some(reason) => Error::ReplicaFailed { replica: me, reason: reason.clone() },
            None => Error::ReplicasClosed,
        });
    }
}

struct Runner {
    me: usize,
    crew: Crew,
    shared: Arc<Shared>,
    batch: Batch,
    events: Option<CacheEvents>,
}

impl Runner {
    /// Serves; where a host of the model is lost, it begins anew with those that are found again.
    fn run(&mut self) -> Result<(), Error> {
        if self.crew.engine.is_staged() {
            let (shared, me) = (self.shared.clone(), self.me);
            // It looks at its hosts when it has something to do.
            let wake = move || _ = shared.ask(me, Box::new(|_| {}));
            self.crew.engine.tell_of_hosts(wake);
        }
        loop {
            match self.serve() {
                Ok(()) => return Ok(()),
                Err(error) => {
                    let Some(lost) = LostStage::of(&error) else { return Err(error) };
                    if !self.find_hosts(lost) {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Ends all requests, and looks for the hosts of the model until they are there; false when the replica is to end.
    fn find_hosts(&mut self, mut lost: LostStage) -> bool {
        tracing::error!("{}; looking for it", lost.error());
        self.crew.engine.forget_all();
        self.shared.lose(self.me, &lost);
        for request in self.batch.take_all() {
            request.fail(|| lost.error());
        }
        if let Some(events) = &self.events {
            events.tell(self.me, vec![CacheEvent::Cleared]);
        }
        let mut wait = HOSTS.0;
        while !self.shared.is_closing() {
            let shared = &self.shared;
            match self.crew.engine.find_hosts(&|| shared.is_closing()) {
                Ok(()) => {
                    tracing::info!(target: "arclight_engine::stages", "all stages are there again");
                    self.report();
                    self.shared.come_back(self.me);
                    return true;
                }
                Err(error) => {
                    let now = LostStage::of(&error).unwrap_or_else(|| lost.clone());
                    if now != lost {
                        tracing::warn!("{error}");
                        self.shared.lose(self.me, &now);
                        lost = now;
                    }
                }
            }
            thread::sleep(wait);
            wait = (wait * 2).min(HOSTS.1);
        }
        false
    }

    fn serve(&mut self) -> Result<(), Error> {
        loop {
            let (tasks, jobs) = match self.next()? {
                Next::Begin(tasks, jobs) => (tasks, jobs),
                Next::Idle(task) => {
                    self.crew.watch.apart(&mut self.crew.engine, task);
                    continue;
                }
                Next::End => break,
            };
            tasks.into_iter().for_each(|task| task(&mut self.crew.engine));
            // First, so that whoever was taken from the queue hears of what fails next.
            self.batch.add(jobs.into_iter().map(|job| (job.id, job.asked)));
            self.crew.engine.check_hosts()?;
            let Crew { engine, speculator, encoder, cores, .. } = &mut self.crew;
            let mut helpers =
                Helpers { speculator: speculator.as_mut(), encoder: encoder.as_mut() };
            self.batch.drop_cancelled(engine, &mut helpers)?;
            let asked = Instant::now();
            let turn = cores.as_ref().map(Cores::turn);
            // Others have a step between two tiles.
            self.batch.encode(&mut helpers);
            self.batch.exclude(asked.elapsed());
            let took = self.batch.step(engine, &mut helpers)?;
            drop(turn);
            let ended = self.batch.take_ended(engine, &mut helpers)?;
            self.report();
            self.tell_events();
            // They find everything as it is now.
            ended.into_iter().for_each(|request| request.finish(self.me));
            self.crew.engine.spill(took / SPILL)?;
        }
        self.crew.engine.spill_all()
    }

    /// What to do next; until there is something, what ended requests have left goes to the disk.
    fn next(&mut self) -> Result<Next, Error> {
        while self.batch.running.is_empty()
            && self.shared.is_idle(self.me)
            && self.crew.engine.spill(SLICE)?
        {
            thread::sleep(Duration::from_millis(1));
        }
        Ok(self.shared.next(self.me))
    }

    /// Tells who routes by it what has changed in the prefix cache.
    fn tell_events(&mut self) {
        let Some(told) = &self.events else { return };
        let new = self.crew.engine.take_cache_events();
        if !new.is_empty() {
            told.tell(self.me, new);
        }
    }

    /// Tells the queue what there is and what was done.
    fn report(&mut self) {
        let Crew { engine, watch, .. } = &mut self.crew;
        let running = self.batch.running.iter();
        let lefts = running.clone().flat_map(Running::lefts);
        let standings = running.map(Running::standing);
        let done = std::mem::take(&mut self.batch.done);
        self.shared.report(self.me, lefts, standings, engine.pages(), done);
        if self.batch.running.is_empty() || watch.is_old() {
            let groups = watch.look(engine);
            self.shared.report_groups(self.me, groups, watch.experts(), engine.company());
        }
    }
}
