//! Replicas that work beside the one whose steps are timed, each on its part of the machine.
//!
//! While a step of the first replica is timed, the others take the same kind of step again and again, with their
//! threads on the cores in the same places: what replicas share (memory, links, power) is shared as when all serve.

use super::lab::{self, Lab, Task};
use super::measure::Steps;
use crate::error::Error;
use arclight_engine::{LoadOptions, ModelFile};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use topology::Machine;
use tune::schedule::TunedSchedules;
use tune::tuner::{Candidate, Level, Measure, Scheme, StepKind};

/// What a neighbour is to do until it is told to stop.
struct Order {
    scheme: Scheme,
    level: Level,
    choices: Vec<(String, String)>,
    schedules: Option<TunedSchedules>,
    kind: StepKind,
}

/// A replica on a thread of its own.
pub(super) struct Neighbour {
    part: Machine,
    /// Gone when it is to end.
    orders: Option<Sender<Order>>,
    /// That it has begun, and that it has ended.
    heard: Receiver<Result<(), String>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Neighbour {
    /// A replica on a part of the machine.
    pub(super) fn start(
        file: Arc<ModelFile>,
        part: Machine,
        options: LoadOptions,
        kinds: Vec<StepKind>,
        together: usize,
    ) -> Result<Neighbour, Error> {
        let (orders, ordered) = channel::<Order>();
        let (tell, heard) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let (own, stopped) = (part.clone(), stop.clone());
        let work = move || {
            let mut steps = Steps::new(&file, &own, &options, &kinds, together).quietly();
            while let Ok(Order { scheme, level, choices, schedules, kind }) = ordered.recv() {
                let candidate = Candidate {
                    scheme: &scheme,
                    level: &level,
                    choices: &choices,
                    schedules: schedules.as_ref(),
                };
                let mut step =
                    || steps.time(&candidate, &kind).map(drop).map_err(|e| e.to_string());
                // The first loads the model.
                let begun = step();
                let failed = begun.is_err();
                if tell.send(begun).is_err() {
                    return;
                }
                while !failed && !stopped.load(Relaxed) && step().is_ok() {}
                if !failed && tell.send(Ok(())).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("tune-replica".to_owned()).spawn(work);
        let thread = thread.map_err(|e| Error::Refused(format!("no thread for a replica: {e}")))?;
        Ok(Neighbour { part, orders: Some(orders), heard, stop, thread: Some(thread) })
    }

    /// Has it do what the replica on `first` is about to do.
    fn order(
        &self,
        first: &Machine,
        candidate: &Candidate<'_>,
        kind: &StepKind,
    ) -> Result<(), Error> {
        let unlike =
            || Error::Refused("the replicas' parts of the machine are not alike".to_owned());
        let groups = first.groups_on(candidate.scheme.groups(), &self.part).ok_or_else(unlike)?;
        let scheme = Scheme::new(groups).map_err(Error::refused)?;
        let level = scheme.level(candidate.level.cpus().to_vec()).map_err(Error::refused)?;
        let (choices, schedules) = (candidate.choices.to_vec(), candidate.schedules.cloned());
        self.stop.store(false, Relaxed);
        let order = Order { scheme, level, choices, schedules, kind: *kind };
        let sent = self.orders.as_ref().is_some_and(|orders| orders.send(order).is_ok());
        if sent { Ok(()) } else { Err(gone()) }
    }

    fn hear(&self) -> Result<(), Error> {
        self.heard.recv().map_err(|_| gone())?.map_err(Error::Refused)
    }
}

fn gone() -> Error {
    Error::Refused("a replica has ended".to_owned())
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// While this is there, neighbours work.
struct Busy<'a> {
    /// Those that have begun.
    working: Vec<&'a Neighbour>,
}

impl<'a> Busy<'a> {
    /// Has neighbours work as the replica on `first` is about to.
    ///
    /// # Errors
    /// When one of them cannot.
    fn begin(
        neighbours: &'a [Neighbour],
        first: &Machine,
        candidate: &Candidate<'_>,
        kind: &StepKind,
    ) -> Result<Busy<'a>, Error> {
        let mut ordered = vec![];
        let mut fault = Ok(());
        for neighbour in neighbours {
            fault = neighbour.order(first, candidate, kind);
            if fault.is_err() {
                break;
            }
            ordered.push(neighbour);
        }
        let mut busy = Busy { working: vec![] };
        for neighbour in ordered {
            match neighbour.hear() {
                Ok(()) => busy.working.push(neighbour),
                Err(e) => fault = fault.and(Err(e)),
            }
        }
        fault.map(|()| busy)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.working.iter().for_each(|neighbour| neighbour.stop.store(true, Relaxed));
        for neighbour in &self.working {
            // What has failed meanwhile is found by the next order.
            let _ = neighbour.hear();
        }
    }
}

/// Steps of a replica, timed while others work beside it.
pub(super) struct Among<'a> {
    /// The replica itself.
    pub(super) own: Steps<'a>,
    pub(super) neighbours: Vec<Neighbour>,
}

impl Lab for Among<'_> {
    fn time(&mut self, candidate: &Candidate<'_>, kind: &StepKind) -> Result<f64, Error> {
        // It is loaded before the others begin.
        self.own.prepare(candidate)?;
        let _busy = Busy::begin(&self.neighbours, self.own.machine, candidate, kind)?;
        self.own.time(candidate, kind)
    }

    fn run(&mut self, candidate: &Candidate<'_>, task: Task) -> Result<(), Error> {
        self.own.run(candidate, task)
    }

    fn fault(&mut self, fault: String) {
        self.own.fault(fault);
    }
}

impl Measure for Among<'_> {
    fn seconds(&mut self, candidate: &Candidate<'_>, kind: &StepKind) -> Option<f64> {
        let timed = self.time(candidate, kind);
        lab::told(self, timed)
    }

    fn load_seconds(&self) -> f64 {
        self.own.load_seconds()
    }
}
