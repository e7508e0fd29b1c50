//! The queue before the replicas, and what it knows of them.
//!
//! One lock over everything, held for some hundred nanoseconds: by a caller to put a request in, and
//! by each replica once between two steps. Each replica sleeps on a condition of its own, so that
//! work for one wakes no other.
//!
//! No wake-up is lost. A replica that sleeps has free slots and found nothing that it may take. That
//! changes when a request is put in, which wakes the replica that it is routed to, and when one
//! fails, which wakes all. It does not change by time: a request that waits for the replica of its
//! session waits less and less, as those before it are served in order.

use super::ReplicaStatus;
use super::route::{Lane, PROMPT_TOKENS_PER_STEP, Work, choose, may_take};
use super::ticket::{Event, StopHook};
use crate::error::Error;
use crate::sampler::Sampler;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use topology::{NodeId, NodeList};

/// Sessions whose replica is remembered: at 24 bytes each and some, 2 MiB.
const MOST_SESSIONS: usize = 1 << 16;

/// A request on its way.
pub(crate) struct Job {
    pub id: u64,
    pub prompt: Vec<u32>,
    pub sampler: Sampler,
    pub end_tokens: Vec<u32>,
    pub stop: Option<StopHook>,
    /// Tokens of the answer that may still come: what was asked for, or what there is room for.
    pub left: usize,
    /// Whether that is what was asked for.
    pub limited: bool,
    pub affinity: Option<u64>,
    pub near: Option<NodeId>,
    /// Whether it was routed to the replica of its session.
    pub at_home: bool,
    /// The replica that it is routed to.
    pub lane: usize,
    pub submitted: Instant,
    pub events: Sender<Event>,
    pub cancelled: Arc<AtomicBool>,
}

impl Job {
    /// What is left of it before it runs.
    fn left(&self) -> Left {
        Left { prompt: self.prompt.len(), answer: self.left }
    }

    /// In numbers, but for its session.
    fn work(&self) -> Work {
        Work { prompt: self.prompt.len() as u64, answer: self.left as u64, home: None, wait: 0 }
    }
}

/// What is left of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Left {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Tokens of the answer, at most.
    pub answer: usize,
}

impl Left {
    fn tokens(self) -> u64 {
        self.prompt as u64 + self.answer as u64
    }

    /// Steps that this takes, at most and about.
    fn steps(self) -> u64 {
        (self.prompt as u64).div_ceil(PROMPT_TOKENS_PER_STEP) + self.answer as u64
    }
}

/// How the replicas are to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    /// When all requests are served.
    Draining,
    /// After the step that they are in.
    Closed,
}

/// What a replica is to do next.
pub(crate) enum Next {
    /// Begin these, and take a step.
    Begin(Vec<Job>),
    End,
}

/// A replica as the queue sees it.
pub(crate) struct Seat {
    pub nodes: NodeList,
    pub threads: usize,
    /// Requests that it can serve at once.
    pub slots: usize,
    pub free_pages: usize,
}

struct State {
    phase: Phase,
    lanes: Vec<LaneState>,
    /// By arrival.
    waiting: VecDeque<Job>,
    sessions: Sessions,
    next_id: u64,
}

struct LaneState {
    seat: Seat,
    alive: bool,
    failure: Option<String>,
    running: Vec<Left>,
    served: u64,
    steps: u64,
    wake_ups: u64,
}

/// The queue; replicas are told apart by their index.
pub(crate) struct Shared {
    state: Mutex<State>,
    work: Vec<Condvar>, // [replica]
}

impl Shared {
    pub(crate) fn new(seats: Vec<Seat>) -> Shared {
        let work = seats.iter().map(|_| Condvar::new()).collect();
        let lane = |seat| LaneState {
            seat,
            alive: true,
            failure: None,
            running: Vec::new(),
            served: 0,
            steps: 0,
            wake_ups: 0,
        };
        let state = State {
            phase: Phase::Open,
            lanes: seats.into_iter().map(lane).collect(),
            waiting: VecDeque::new(),
            sessions: Sessions::default(),
            next_id: 0,
        };
        Shared { state: Mutex::new(state), work }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock, short of memory running out.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Routes a request and puts it into the queue; its number.
    pub(crate) fn submit(&self, mut job: Job) -> Result<u64, Error> {
        let mut state = self.lock();
        let Some(lane) = state.route(&mut job) else { return Err(state.nobody()) };
        state.next_id += 1;
        let id = state.next_id;
        job.id = id;
        state.waiting.push_back(job);
        drop(state);
        self.work[lane].notify_one();
        Ok(id)
    }

    /// Takes a request out of the queue, if it still waits there.
    pub(crate) fn forget(&self, id: u64) {
        let mut state = self.lock();
        let at = state.waiting.iter().position(|job| job.id == id);
        let job = at.and_then(|at| state.waiting.remove(at));
        // What a caller's hook owns is dropped without the lock.
        drop(state);
        drop(job);
    }

    /// What replica `me` does next. Waits as long as it has neither requests that run nor any to
    /// begin.
    pub(crate) fn next(&self, me: usize) -> Next {
        let mut state = self.lock();
        loop {
            if state.phase == Phase::Closed {
                return Next::End;
            }
            let jobs = state.take(me);
            if !jobs.is_empty() || !state.lanes[me].running.is_empty() {
                return Next::Begin(jobs);
            }
            if state.phase == Phase::Draining {
                // Whatever still waits is another's.
                state.lanes[me].alive = false;
                return Next::End;
            }
            state = self.work[me].wait(state).unwrap_or_else(PoisonError::into_inner);
            state.lanes[me].wake_ups += 1;
        }
    }

    /// Replica `me` took `steps` more steps and ended `served` requests; what it has left.
    pub(crate) fn report(
        &self,
        me: usize,
        running: impl Iterator<Item = Left>,
        free_pages: usize,
        (steps, served): (u64, u64),
    ) {
        let mut state = self.lock();
        let lane = &mut state.lanes[me];
        lane.running.clear();
        lane.running.extend(running);
        lane.seat.free_pages = free_pages;
        lane.steps += steps;
        lane.served += served;
    }

    /// Takes a replica out of service. What waits for it goes to others; without any, it fails.
    pub(crate) fn fail(&self, me: usize, reason: &str) {
        let mut state = self.lock();
        let lane = &mut state.lanes[me];
        lane.alive = false;
        lane.failure = Some(reason.to_owned());
        lane.running.clear();
        let mut lost = Vec::new();
        for mut job in std::mem::take(&mut state.waiting) {
            if job.lane == me && state.route(&mut job).is_none() {
                lost.push((job, state.nobody()));
            } else {
                state.waiting.push_back(job);
            }
        }
        drop(state);
        self.work.iter().for_each(Condvar::notify_one);
        for (job, error) in lost {
            let _ = job.events.send(Event::Failed(error));
        }
    }

    /// Tells the replicas to end. When closed, no request waits any more.
    pub(crate) fn close(&self, phase: Phase) {
        let mut state = self.lock();
        state.phase = phase;
        let waiting = match phase {
            Phase::Closed => std::mem::take(&mut state.waiting),
            Phase::Open | Phase::Draining => VecDeque::new(),
        };
        drop(state);
        self.work.iter().for_each(Condvar::notify_one);
        for job in waiting {
            let _ = job.events.send(Event::Failed(Error::ReplicasClosed));
        }
    }

    pub(crate) fn status(&self) -> Vec<ReplicaStatus> {
        let state = self.lock();
        let lanes = state.lanes.iter().enumerate();
        let status = lanes.map(|(at, lane)| ReplicaStatus {
            running: lane.running.len(),
            waiting: state.waiting.iter().filter(|job| job.lane == at).count(),
            outstanding: state.tokens(at),
            served: lane.served,
            steps: lane.steps,
            wake_ups: lane.wake_ups,
            free_pages: lane.seat.free_pages,
            failure: lane.failure.clone(),
        });
        status.collect()
    }
}

impl State {
    /// Chooses a replica for a request; `None` if none is in service.
    fn route(&mut self, job: &mut Job) -> Option<usize> {
        let home = job.affinity.and_then(|key| self.sessions.home(key));
        let wait = home.map_or(0, |home| {
            let mut slots = self.slots(home);
            self.waiting.iter().filter(|j| j.lane == home).for_each(|j| slots.serve(j));
            slots.wait()
        });
        let work = Work { home, wait, ..job.work() };
        let near = |nodes: &NodeList| job.near.is_some_and(|node| nodes.contains(node));
        let lanes: Vec<Lane> = (0..self.lanes.len())
            .map(|at| Lane { near: near(&self.lanes[at].seat.nodes), ..self.lane(at) })
            .collect();
        let chosen = choose(&lanes, &work)?;
        job.lane = chosen;
        job.at_home = home == Some(chosen);
        // Already now: a session's next request may come before this one runs.
        if let Some(key) = job.affinity {
            self.sessions.remember(key, chosen);
        }
        Some(chosen)
    }

    /// Takes out of the queue what replica `me` has slots for, oldest first.
    fn take(&mut self, me: usize) -> Vec<Job> {
        let mut taken = Vec::new();
        while self.lanes[me].running.len() < self.lanes[me].seat.slots {
            let mut slots: Vec<Slots> = (0..self.lanes.len()).map(|at| self.slots(at)).collect();
            let may = |job: &Job| {
                let owner = job.lane;
                let work = Work { home: Some(owner), wait: slots[owner].wait(), ..job.work() };
                slots[owner].serve(job);
                owner == me || may_take(self.lanes[owner].alive, &work, job.at_home)
            };
            let Some(at) = self.waiting.iter().position(may) else { break };
            let Some(mut job) = self.waiting.remove(at) else { break };
            job.lane = me;
            if let Some(key) = job.affinity {
                self.sessions.remember(key, me);
            }
            self.lanes[me].running.push(job.left());
            taken.push(job);
        }
        taken
    }

    /// A replica in numbers.
    fn lane(&self, at: usize) -> Lane {
        let lane = &self.lanes[at];
        let waiting = self.waiting.iter().filter(|job| job.lane == at).count();
        Lane {
            alive: lane.alive,
            threads: lane.seat.threads as u64,
            free: lane.seat.slots.saturating_sub(lane.running.len() + waiting),
            tokens: self.tokens(at),
            near: false,
        }
    }

    /// Tokens that a replica has yet to compute, of what runs and what waits.
    fn tokens(&self, at: usize) -> u64 {
        let running = self.lanes[at].running.iter().map(|left| left.tokens());
        let waiting = self.waiting.iter().filter(|job| job.lane == at);
        running.chain(waiting.map(|job| job.left().tokens())).sum()
    }

    fn slots(&self, at: usize) -> Slots {
        let lane = &self.lanes[at];
        let mut slots: Vec<u64> = lane.running.iter().map(|left| left.steps()).collect();
        slots.resize(lane.seat.slots.max(slots.len()), 0);
        Slots(slots)
    }

    /// Why there is no replica left.
    fn nobody(&self) -> Error {
        let failed = self.lanes.iter().enumerate();
        let last = failed.filter_map(|(at, lane)| Some((at, lane.failure.clone()?))).next_back();
        match last {
            Some((replica, reason)) => Error::ReplicaFailed { replica, reason },
            None => Error::ReplicasClosed,
        }
    }
}

/// Steps until each slot of a replica is free.
struct Slots(Vec<u64>);

impl Slots {
    /// Steps until one is.
    fn wait(&self) -> u64 {
        self.0.iter().copied().min().unwrap_or(u64::MAX)
    }

    /// Gives the first that is free to a request.
    fn serve(&mut self, job: &Job) {
        if let Some(first) = self.0.iter_mut().min() {
            *first += job.left().steps();
        }
    }
}

/// The replica of each session; the oldest are forgotten.
#[derive(Default)]
struct Sessions {
    of: HashMap<u64, (usize, u64)>, // replica, and when it was last used
    now: u64,
}

impl Sessions {
    fn home(&self, key: u64) -> Option<usize> {
        self.of.get(&key).map(|&(lane, _)| lane)
    }

    fn remember(&mut self, key: u64, lane: usize) {
        self.now += 1;
        self.of.insert(key, (lane, self.now));
        if self.of.len() > MOST_SESSIONS {
            let old = self.now - MOST_SESSIONS as u64 / 2;
            self.of.retain(|_, &mut (_, used)| used > old);
        }
    }
}

#[cfg(test)]
mod tests;
