//! The states of the models of a server, and the decisions between them.
//!
//! [`Machine::step`] takes an [`Event`] and returns the [`Effect`]s that the caller carries out. There are no futures,
//! threads or clocks here, so a client that hangs up cannot stop a transition halfway. Long work (reading how large a
//! model is, loading it, giving its memory back) is an effect, whose end is another event.
//!
//! Loads take turns in the order in which they were asked for. The first of them waits until there is room, and no
//! load passes it; unloading, recovery and requests for loaded models do not wait for it.

use super::ModelLimits;
use crate::recover::Backoff;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Number of a model in the machine.
pub(super) type Id = u64;

/// Number of a request that waits for an [`Answer`].
pub(super) type Waiter = u64;

/// Time after which a load, or the end of a model's requests, is reported as slow.
pub(super) const SLOW: Duration = Duration::from_secs(120);

/// Time for which a load that needs room waits for the requests of a leaving model before an idle one leaves as well.
const PATIENCE: Duration = Duration::from_secs(5);

/// The state of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Not in memory; why the last attempt to load it has failed, if it has.
    Unloaded(Option<String>),
    /// It waits for its turn or for room, or is being loaded.
    Loading,
    Loaded,
    /// It takes no more requests; it is unloaded when the last of them has ended.
    Leaving,
    /// It is being taken out of memory.
    Unloading,
}

impl Phase {
    /// As clients see it, with the words of llama-server.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Phase::Unloaded(None) => "unloaded",
            Phase::Unloaded(Some(_)) => "failed",
            Phase::Loading => "loading",
            Phase::Loaded => "loaded",
            Phase::Leaving | Phase::Unloading => "unloading",
        }
    }

    /// Whether it is in memory.
    pub(super) fn is_loaded(&self) -> bool {
        matches!(self, Phase::Loaded | Phase::Leaving | Phase::Unloading)
    }
}

/// What has happened.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// A request needs a model.
    Lease(Id, Waiter),
    /// A request that had a model has ended.
    Left(Id),
    /// A client no longer waits for its answer.
    GaveUp(Id, Waiter),
    /// A model is to be unloaded when its requests have ended.
    Unload(Id, Waiter),
    /// The bytes that a model needs were read.
    Measured(Id, Result<u64, String>),
    /// A load has ended.
    Loaded(Id, Result<(), String>),
    /// A model is out of memory.
    Unloaded(Id),
    /// All replicas of a model have failed.
    Failed(Id, String),
    /// A model is no longer served: it takes no more requests, and leaves memory.
    Remove(Id),
    /// A removed model is served again.
    Restore(Id),
    /// Other limits hold.
    Limits(ModelLimits),
    /// Time has passed: idle models leave, and failed ones are loaded again.
    Look,
}

/// What the caller has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Read how many bytes a model needs; ends with [`Event::Measured`].
    Measure(Id),
    /// Load it; ends with [`Event::Loaded`].
    Load(Id),
    /// Take it out of memory; ends with [`Event::Unloaded`].
    Unload(Id),
    /// Answer a request.
    Answer(Waiter, Answer),
    /// Log that a failed model is loaded again after a time.
    Again(Id, String, Duration),
    /// Count that a failed model was loaded again.
    Reloaded(Id),
    /// Log that a model is slow.
    Slow(Slow),
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The model is loaded, and stays so until [`Event::Left`].
    Leased,
    /// The model was taken out of memory, or was not there.
    Unloaded,
    /// It cannot be loaded, and why.
    CannotLoad(String),
    /// It has failed, and is loaded again at a time.
    Later(String, Instant),
    /// It is no longer served.
    Removed,
}

/// A model whose transition takes longer than [`SLOW`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slow {
    pub(super) id: Id,
    /// The transition.
    pub(super) what: Transition,
    /// Its duration so far.
    pub(super) time: Duration,
    /// Requests that wait for the load, or that still run on a leaving model.
    pub(super) requests: usize,
}

/// A transition that can be slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transition {
    /// The file is read and loaded.
    Loading,
    /// Other models have to leave first.
    WaitingForRoom,
    /// The requests of a leaving model have not ended.
    EndingRequests,
    /// The memory is being given back.
    Unloading,
}

impl Transition {
    pub(super) fn word(self) -> &'static str {
        match self {
            Transition::Loading => "loading",
            Transition::WaitingForRoom => "waiting_for_room",
            Transition::EndingRequests => "ending_requests",
            Transition::Unloading => "unloading",
        }
    }
}

/// A model.
#[derive(Debug)]
pub(super) struct State {
    pub(super) name: String,
    pub(super) pinned: bool,
    pub(super) phase: Phase,
    /// Since when it is in this phase.
    since: Instant,
    /// Requests that have it.
    pub(super) leases: usize,
    /// Requests that wait for it to be loaded.
    waiting: Vec<Waiter>,
    /// Requests that wait for it to be unloaded.
    releasing: Vec<Waiter>,
    /// It leaves as soon as it is loaded.
    leaves: bool,
    /// It is no longer served.
    removed: bool,
    /// When it was asked for last.
    pub(super) asked: Instant,
    /// When its last request ended.
    left: Instant,
    /// When it was loaded last.
    loaded: Instant,
    /// Bytes while it is loaded.
    pub(super) bytes: u64,
    /// Time without requests after which it is unloaded.
    idle: Option<Duration>,
    /// The same by the configuration; a request may have changed it.
    configured: Option<Duration>,
    backoff: Backoff,
    /// Why it has failed, until it is loaded again.
    pub(super) failed: Option<String>,
    /// When a failed model is loaded again.
    again: Option<Instant>,
    /// Its slow transition was logged.
    reported: bool,
}

impl State {
    fn enter(&mut self, phase: Phase, now: Instant) {
        (self.phase, self.since, self.reported) = (phase, now, false);
    }

    /// Time without requests.
    pub(super) fn idle_time(&self, now: Instant) -> Duration {
        if self.leases > 0 { Duration::ZERO } else { now.saturating_duration_since(self.left) }
    }

    /// When it is unloaded if it gets no request; `None` if it is not.
    pub(super) fn expires(&self, now: Instant) -> Option<Instant> {
        let idle = self.idle.filter(|_| !self.pinned)?;
        let from = if self.leases > 0 { now } else { self.left };
        from.checked_add(idle)
    }
}

/// A load that has its turn.
#[derive(Clone, Copy, Debug)]
struct Load {
    id: Id,
    stage: Stage,
    /// Since when it is in this stage.
    since: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Measuring,
    /// It waits for room for these bytes.
    Room(u64),
    Loading(u64),
}

/// Whether there is room for a model.
enum Room {
    Free,
    /// A model has to leave, or leaves already.
    After(Id),
    Never(String),
}

/// The models of a server.
#[derive(Debug)]
pub(super) struct Machine {
    limits: ModelLimits,
    /// The first wait before a failed model is loaded again.
    reload_wait: Duration,
    models: BTreeMap<Id, State>,
    next: Id,
    /// The load that has its turn.
    load: Option<Load>,
    /// Loads that wait for their turn.
    queue: VecDeque<Id>,
}

impl Machine {
    pub(super) fn new(limits: ModelLimits, reload_wait: Duration) -> Machine {
        let (models, queue) = (BTreeMap::new(), VecDeque::new());
        Machine { limits, reload_wait, models, next: 0, load: None, queue }
    }

    pub(super) fn limits(&self) -> ModelLimits {
        self.limits
    }

    /// Adds a model, which is not loaded.
    pub(super) fn add(
        &mut self,
        name: String,
        pinned: bool,
        idle: Option<Duration>,
        now: Instant,
    ) -> Id {
        let id = self.next;
        self.next += 1;
        self.models.insert(
            id,
            State {
                name,
                pinned,
                phase: Phase::Unloaded(None),
                since: now,
                leases: 0,
                waiting: Vec::new(),
                releasing: Vec::new(),
                leaves: false,
                removed: false,
                asked: now,
                left: now,
                loaded: now,
                bytes: 0,
                idle,
                configured: idle,
                backoff: Backoff::new(self.reload_wait),
                failed: None,
                again: None,
                reported: false,
            },
        );
        id
    }

    /// Drops a removed model. It has to be out of memory.
    pub(super) fn forget(&mut self, id: Id) {
        self.models.remove(&id);
    }

    /// A model, until it is forgotten.
    pub(super) fn get(&self, id: Id) -> Option<&State> {
        self.models.get(&id)
    }

    /// Sets the time without requests after which a model is unloaded; `None`: never.
    pub(super) fn stay(&mut self, id: Id, idle: Option<Duration>) {
        if let Some(model) = self.models.get_mut(&id) {
            model.idle = idle;
        }
    }

    /// Sets the same if the configuration has changed.
    pub(super) fn configure(&mut self, id: Id, idle: Option<Duration>) {
        if let Some(model) = self.models.get_mut(&id).filter(|model| model.configured != idle) {
            (model.configured, model.idle) = (idle, idle);
        }
    }

    /// Transitions that take longer than [`SLOW`].
    pub(super) fn slow(&self, now: Instant) -> Vec<Slow> {
        let load = self.load.into_iter().filter_map(|load| {
            let what = match load.stage {
                Stage::Room(_) => Transition::WaitingForRoom,
                Stage::Measuring | Stage::Loading(_) => Transition::Loading,
            };
            let requests = self.models.get(&load.id)?.waiting.len();
            Some((load.id, what, load.since, requests))
        });
        let leaving = self.models.iter().filter_map(|(id, model)| {
            let what = match model.phase {
                Phase::Leaving => Transition::EndingRequests,
                Phase::Unloading => Transition::Unloading,
                _ => return None,
            };
            Some((*id, what, model.since, model.leases))
        });
        let all = load.chain(leaving).map(|(id, what, since, requests)| {
            let time = now.saturating_duration_since(since);
            Slow { id, what, time, requests }
        });
        all.filter(|slow| slow.time >= SLOW).collect()
    }

    /// Takes an event. Events of models that were forgotten change nothing.
    pub(super) fn step(&mut self, event: Event, now: Instant) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.take(event, now, &mut effects);
        self.advance(now, &mut effects);
        effects
    }

    fn take(&mut self, event: Event, now: Instant, effects: &mut Vec<Effect>) {
        match event {
            Event::Lease(id, waiter) => self.lease(id, waiter, now, effects),
            Event::Left(id) => {
                let Some(model) = self.models.get_mut(&id) else { return };
                model.leases -= 1;
                model.left = now;
                if model.leases == 0 && model.phase == Phase::Leaving {
                    model.enter(Phase::Unloading, now);
                    effects.push(Effect::Unload(id));
                }
            }
            Event::GaveUp(id, waiter) => {
                if let Some(model) = self.models.get_mut(&id) {
                    model.waiting.retain(|one| *one != waiter);
                    model.releasing.retain(|one| *one != waiter);
                }
            }
            Event::Unload(id, waiter) => match self.models.get_mut(&id) {
                Some(model) if !matches!(model.phase, Phase::Unloaded(_)) => {
                    model.releasing.push(waiter);
                    model.leaves = true;
                    self.leave(id, now, effects);
                }
                _ => effects.push(Effect::Answer(waiter, Answer::Unloaded)),
            },
            Event::Measured(id, bytes) => {
                let Some(load) = self.load.as_mut().filter(|load| load.id == id) else { return };
                match bytes {
                    Ok(bytes) => (load.stage, load.since) = (Stage::Room(bytes), now),
                    Err(why) => self.load_failed(id, why, now, effects),
                }
            }
            Event::Loaded(id, Ok(())) => self.loaded(id, now, effects),
            Event::Loaded(id, Err(why)) => self.load_failed(id, why, now, effects),
            Event::Unloaded(id) => self.unloaded(id, now, effects),
            Event::Failed(id, why) => {
                let Some(model) = self.models.get_mut(&id) else { return };
                if model.phase == Phase::Loaded {
                    model.failed = Some(why);
                    self.leave(id, now, effects);
                }
            }
            Event::Remove(id) => {
                let Some(model) = self.models.get_mut(&id) else { return };
                model.removed = true;
                if let Some(at) = self.queue.iter().position(|one| *one == id) {
                    // Its load has not begun.
                    self.queue.remove(at);
                    model.enter(Phase::Unloaded(model.failed.clone()), now);
                    model.leaves = false;
                    answer(&mut model.waiting, &Answer::Removed, effects);
                    answer(&mut model.releasing, &Answer::Unloaded, effects);
                }
                self.leave(id, now, effects);
            }
            Event::Restore(id) => {
                if let Some(model) = self.models.get_mut(&id) {
                    model.removed = false;
                }
            }
            Event::Limits(limits) => self.limits = limits,
            Event::Look => self.look(now, effects),
        }
    }

    fn lease(&mut self, id: Id, waiter: Waiter, now: Instant, effects: &mut Vec<Effect>) {
        let Some(model) = self.models.get_mut(&id).filter(|model| !model.removed) else {
            return effects.push(Effect::Answer(waiter, Answer::Removed));
        };
        match &model.phase {
            Phase::Loaded => {
                model.leases += 1;
                model.asked = now;
                effects.push(Effect::Answer(waiter, Answer::Leased));
            }
            Phase::Unloaded(_) => match (&model.failed, model.again.filter(|at| *at > now)) {
                (Some(why), Some(again)) => {
                    effects.push(Effect::Answer(waiter, Answer::Later(why.clone(), again)));
                }
                _ => {
                    model.waiting.push(waiter);
                    model.asked = now;
                    self.enqueue(id, now);
                }
            },
            Phase::Loading | Phase::Leaving | Phase::Unloading => model.waiting.push(waiter),
        }
    }

    fn enqueue(&mut self, id: Id, now: Instant) {
        if let Some(model) = self.models.get_mut(&id) {
            model.enter(Phase::Loading, now);
            self.queue.push_back(id);
        }
    }

    /// A loaded model takes no more requests, and is unloaded when it has none.
    fn leave(&mut self, id: Id, now: Instant, effects: &mut Vec<Effect>) {
        let Some(model) = self.models.get_mut(&id).filter(|m| m.phase == Phase::Loaded) else {
            return;
        };
        if model.leases > 0 {
            model.enter(Phase::Leaving, now);
        } else {
            model.enter(Phase::Unloading, now);
            effects.push(Effect::Unload(id));
        }
    }

    /// Goes on with loading as far as that is possible.
    fn advance(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        loop {
            let Some(load) = self.load else {
                let Some(id) = self.queue.pop_front() else { return };
                self.load = Some(Load { id, stage: Stage::Measuring, since: now });
                return effects.push(Effect::Measure(id));
            };
            let Stage::Room(bytes) = load.stage else { return };
            if self.models.get(&load.id).is_none_or(|model| model.removed) {
                self.load_failed(load.id, "it was deleted".to_owned(), now, effects);
                continue;
            }
            match self.room(bytes, now) {
                Room::Free => {
                    self.load = Some(Load { stage: Stage::Loading(bytes), since: now, ..load });
                    return effects.push(Effect::Load(load.id));
                }
                Room::After(id) => return self.leave(id, now, effects),
                Room::Never(why) => self.load_failed(load.id, why, now, effects),
            }
        }
    }

    /// Whether there is room for one more model of these bytes, and which one leaves otherwise.
    fn room(&self, bytes: u64, now: Instant) -> Room {
        let loaded = || self.models.iter().filter(|(_, model)| model.phase.is_loaded());
        let held: u64 = loaded().map(|(_, model)| model.bytes).sum();
        let fits = held.saturating_add(bytes) <= self.limits.bytes;
        if loaded().count() < self.limits.models && fits {
            return Room::Free;
        }
        if loaded().next().is_none() {
            return Room::Never(format!(
                "it needs {} of memory, and all models together may have {}",
                gib(bytes),
                gib(self.limits.bytes)
            ));
        }
        let can_leave = loaded().filter(|(_, model)| !model.pinned || model.removed);
        let first = can_leave.min_by_key(|(_, model)| {
            // Of models in the same state the one that was asked for longest ago leaves.
            let patient = now.saturating_duration_since(model.since) < PATIENCE;
            let order = match (&model.phase, model.leases > 0) {
                (Phase::Unloading, _) => 0,
                (Phase::Leaving, _) if patient => 1,
                (Phase::Loaded, false) => 2,
                (Phase::Leaving, _) => 3,
                _ => 4,
            };
            (order, model.asked)
        });
        match first {
            Some((id, _)) => Room::After(*id),
            None => {
                let names: Vec<&str> = loaded().map(|(_, model)| &*model.name).collect();
                Room::Never(format!(
                    "there is no room for it beside models that are pinned: {}",
                    names.join(", ")
                ))
            }
        }
    }

    fn loaded(&mut self, id: Id, now: Instant, effects: &mut Vec<Effect>) {
        let Some(Load { stage: Stage::Loading(bytes), .. }) = self.load.filter(|l| l.id == id)
        else {
            return;
        };
        self.load = None;
        let Some(model) = self.models.get_mut(&id) else { return };
        model.enter(Phase::Loaded, now);
        (model.bytes, model.asked, model.left, model.loaded) = (bytes, now, now, now);
        if model.failed.take().is_some() {
            effects.push(Effect::Reloaded(id));
        }
        model.again = None;
        model.leases += model.waiting.len();
        answer(&mut model.waiting, &Answer::Leased, effects);
        if model.leaves || model.removed {
            self.leave(id, now, effects);
        }
    }

    fn load_failed(&mut self, id: Id, why: String, now: Instant, effects: &mut Vec<Effect>) {
        if self.load.is_some_and(|load| load.id == id) {
            self.load = None;
        }
        let Some(model) = self.models.get_mut(&id) else { return };
        if model.failed.is_some() {
            again(id, model, &why, Duration::ZERO, now, effects);
        }
        let given = match model.removed {
            true => Answer::Removed,
            false => Answer::CannotLoad(why.clone()),
        };
        model.enter(Phase::Unloaded(Some(why)), now);
        model.leaves = false;
        answer(&mut model.waiting, &given, effects);
        answer(&mut model.releasing, &Answer::Unloaded, effects);
    }

    fn unloaded(&mut self, id: Id, now: Instant, effects: &mut Vec<Effect>) {
        let Some(model) = self.models.get_mut(&id).filter(|m| m.phase == Phase::Unloading) else {
            return;
        };
        model.bytes = 0;
        model.leaves = false;
        let why = model.failed.clone();
        if let Some(why) = &why {
            let worked = model.since.saturating_duration_since(model.loaded);
            again(id, model, why, worked, now, effects);
        }
        model.enter(Phase::Unloaded(why.clone()), now);
        answer(&mut model.releasing, &Answer::Unloaded, effects);
        match (model.removed, why, model.again) {
            (true, ..) => answer(&mut model.waiting, &Answer::Removed, effects),
            (false, Some(why), Some(at)) => {
                answer(&mut model.waiting, &Answer::Later(why, at), effects);
            }
            _ if model.waiting.is_empty() => {}
            _ => {
                model.asked = now;
                self.enqueue(id, now);
            }
        }
    }

    fn look(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let (mut idle, mut retried) = (Vec::new(), Vec::new());
        for (id, model) in &self.models {
            let waited = model.idle.is_some_and(|idle| model.idle_time(now) >= idle);
            match &model.phase {
                Phase::Loaded if waited && model.leases == 0 && !model.pinned => idle.push(*id),
                Phase::Unloaded(_)
                    if model.failed.is_some()
                        && !model.removed
                        && model.again.is_none_or(|at| at <= now) =>
                {
                    retried.push(*id);
                }
                _ => {}
            }
        }
        idle.into_iter().for_each(|id| self.leave(id, now, effects));
        retried.into_iter().for_each(|id| self.enqueue(id, now));
        for slow in self.slow(now) {
            let model = self.models.get_mut(&slow.id).filter(|model| !model.reported);
            if let Some(model) = model {
                model.reported = true;
                effects.push(Effect::Slow(slow));
            }
        }
    }
}

fn answer(waiters: &mut Vec<Waiter>, with: &Answer, effects: &mut Vec<Effect>) {
    effects.extend(waiters.drain(..).map(|waiter| Effect::Answer(waiter, with.clone())));
}

/// A failed model is to be loaded again, after a time that grows.
fn again(
    id: Id,
    model: &mut State,
    why: &str,
    worked: Duration,
    now: Instant,
    effects: &mut Vec<Effect>,
) {
    let wait = model.backoff.failed(worked);
    (model.failed, model.again) = (Some(why.to_owned()), Some(now + wait));
    effects.push(Effect::Again(id, why.to_owned(), wait));
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

#[cfg(test)]
mod tests;
