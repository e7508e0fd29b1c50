//! The state of the queue: replicas, requests that wait, and the replica that each is routed to.

use super::job::{Job, Task};
use super::prefixes::Beginnings;
use super::route::{Lane, Work, choose, may_take};
use super::status::{Experts, GroupStatus};
use super::turns::Turns;
use crate::company::Company;
use crate::decode::{Counters, Left, Standing, Waits};
use crate::error::Error;
use crate::kv::PageCounts;
use crate::stages::LostStage;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;
use topology::NodeList;

/// Sessions whose replica is remembered: at 24 bytes each and some, 2 MiB.
const MOST_SESSIONS: usize = 1 << 16;

/// How the replicas are to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    /// When all requests are served.
    Draining,
    /// After the step that they are in.
    Closed,
}

/// A replica as the queue sees it.
pub(crate) struct Seat {
    pub nodes: NodeList,
    pub threads: usize,
    /// Answers that it can give at once.
    pub slots: usize,
    pub pages: PageCounts,
    pub groups: Vec<GroupStatus>,
    pub experts: Arc<Experts>,
    pub company: Company,
}

/// The state that the lock of the queue protects.
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) lanes: Vec<LaneState>,
    /// In the order in which they are to be begun.
    pub(super) waiting: VecDeque<Job>,
    pub(super) turns: Turns,
    /// How many may wait beside those for which there are slots.
    pub(super) bound: Option<usize>,
    sessions: Sessions,
    pub(super) beginnings: Beginnings,
    pub(super) next_id: u64,
}

/// A replica and its work.
pub(super) struct LaneState {
    pub(super) seat: Seat,
    pub(super) alive: bool,
    pub(super) failure: Option<String>,
    /// The host of the model that is gone, which is looked for.
    pub(super) lost: Option<LostStage>,
    /// It has failed, and is being loaded again.
    pub(super) restarting: bool,
    pub(super) running: Vec<Left>,
    /// Of the same requests.
    pub(super) standings: Vec<Standing>,
    pub(super) tasks: Vec<Task>,
    /// For idle time.
    pub(super) idle_tasks: VecDeque<Task>,
    /// When it had something to do last.
    pub(super) busy: Instant,
    pub(super) counters: Counters,
    pub(super) wake_ups: u64,
}

impl LaneState {
    /// Whoever waits for a task is told by its end.
    pub(super) fn end(&mut self) {
        self.alive = false;
        self.standings.clear();
        self.tasks.clear();
        self.idle_tasks.clear();
    }
}

impl State {
    pub(super) fn new(seats: Vec<Seat>, bound: Option<usize>) -> State {
        let lane = |seat| LaneState {
            seat,
            alive: true,
            failure: None,
            lost: None,
            restarting: false,
            running: Vec::new(),
            standings: Vec::new(),
            tasks: Vec::new(),
            idle_tasks: VecDeque::new(),
            busy: Instant::now(),
            counters: Counters::default(),
            wake_ups: 0,
        };
        State {
            phase: Phase::Open,
            lanes: seats.into_iter().map(lane).collect(),
            waiting: VecDeque::new(),
            turns: Turns::default(),
            bound,
            sessions: Sessions::default(),
            beginnings: Beginnings::default(),
            next_id: 0,
        }
    }

    /// Answers that wait for replica `at`.
    pub(super) fn answers(&self, at: usize) -> usize {
        let waiting = self.waiting.iter().filter(|job| job.lane == at);
        waiting.map(|job| job.asked.answers.len()).sum()
    }

    pub(super) fn answers_waiting(&self) -> usize {
        self.waiting.iter().map(|job| job.asked.answers.len()).sum()
    }

    /// Takes out what has waited for too long.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<Job> {
        let late = |job: &Job| job.asked.deadline.is_some_and(|deadline| deadline <= now);
        if !self.waiting.iter().any(late) {
            return Vec::new();
        }
        let (late, waiting) = std::mem::take(&mut self.waiting).into_iter().partition(late);
        self.waiting = waiting;
        Vec::from(late)
    }

    /// Chooses a replica for a request; `None` if none is in service.
    pub(super) fn route(&mut self, job: &mut Job) -> Option<usize> {
        let home = job.affinity.and_then(|key| self.sessions.home(key));
        let wait = home.map_or(0, |home| {
            let mut slots = self.slots(home);
            self.waiting.iter().filter(|j| j.lane == home).for_each(|j| slots.serve(j));
            slots.wait()
        });
        let work = Work { home, wait, ..job.work() };
        let near = |nodes: &NodeList| job.near.is_some_and(|node| nodes.contains(node));
        let computed = self.beginnings.computed(&job.pages, self.lanes.len());
        let lane = |(at, computed): (usize, u64)| Lane {
            near: near(&self.lanes[at].seat.nodes),
            computed,
            ..self.lane(at)
        };
        let lanes: Vec<Lane> = computed.into_iter().enumerate().map(lane).collect();
        let chosen = choose(&lanes, &work)?;
        job.lane = chosen;
        job.at_home = home == Some(chosen);
        // Already now: a session's next request may come before this one runs.
        self.note(job, chosen);
        Some(chosen)
    }

    /// Remembers who gets a request, for those that are like it.
    fn note(&mut self, job: &Job, lane: usize) {
        if let Some(key) = job.affinity {
            self.sessions.remember(key, lane);
        }
        self.beginnings.note(&job.pages, lane);
    }

    /// Takes out of the queue what replica `me` has slots for, in order.
    pub(super) fn take(&mut self, me: usize) -> Vec<Job> {
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
            let free = self.lanes[me].seat.slots - self.lanes[me].running.len();
            if self.waiting[at].asked.answers.len() > free {
                break;
            }
            let Some(mut job) = self.waiting.remove(at) else { break };
            self.turns.begun(&job.turn);
            if job.lane != me {
                job.lane = me;
                self.note(&job, me);
            }
            let lane = &mut self.lanes[me];
            lane.running.extend(job.lefts());
            lane.standings.push(Standing { id: job.id, progress: 0, waits: Waits::Step });
            lane.busy = Instant::now();
            taken.push(job);
        }
        taken
    }

    /// A replica in numbers.
    fn lane(&self, at: usize) -> Lane {
        let lane = &self.lanes[at];
        let waiting = self.answers(at);
        Lane {
            alive: lane.alive,
            threads: lane.seat.threads as u64,
            free: lane.seat.slots.saturating_sub(lane.running.len() + waiting),
            tokens: self.tokens(at),
            near: false,
            computed: 0,
        }
    }

    /// Tokens that a replica has yet to compute, of what runs and what waits.
    pub(super) fn tokens(&self, at: usize) -> u64 {
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
    pub(super) fn nobody(&self) -> Error {
        if let Some(lost) = self.lanes.iter().find_map(|lane| lane.lost.as_ref()) {
            return lost.error();
        }
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
        for left in job.lefts() {
            if let Some(first) = self.0.iter_mut().min() {
                *first += left.steps();
            }
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
mod tests {
    use super::*;

    #[test]
    fn old_sessions_are_forgotten_first() {
        let mut sessions = Sessions::default();
        let most = MOST_SESSIONS as u64;
        for key in 0..most {
            sessions.remember(key, 1);
        }
        sessions.remember(0, 2);
        sessions.remember(most, 1);
        assert_eq!((sessions.home(0), sessions.home(1)), (Some(2), None));
        assert_eq!(sessions.home(most), Some(1));
        assert!(sessions.of.len() <= MOST_SESSIONS / 2);
    }
}
