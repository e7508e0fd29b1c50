//! The queue before the replicas.
//!
//! One lock over everything, held for some hundred nanoseconds: by a caller to put a request in, and
//! by each replica once between two steps. Each replica sleeps on a condition of its own, so that
//! work for one wakes no other.
//!
//! No wake-up is lost. A replica that sleeps has free slots and found nothing that it may take. That
//! changes when a request is put in, which wakes the replica that it is routed to, and when one
//! fails, which wakes all. It does not change by time: a request that waits for the replica of its
//! session waits less and less, as those before it are served in order. Only what is left for [idle
//! time](super::IdleTime) waits for a time, so a replica that has some sleeps no longer than until then.

use super::job::{Job, Task};
use super::lanes::{LaneState, Phase, Seat, State};
use super::status::{Experts, GroupStatus, Occupancy, ReplicaStatus, Seen};
use crate::company::Company;
use crate::decode::{Answer, Counters, Left, Standing};
use crate::error::Error;
use crate::kv::PageCounts;
use crate::stages::LostStage;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long a replica has nothing to do before that counts as idle time: requests that follow one another find it
/// as it is.
const REST: Duration = Duration::from_secs(1);

/// What a replica is to do next.
pub(crate) enum Next {
    /// Do these, begin those, and take a step.
    Begin(Vec<Task>, Vec<Job>),
    /// Do this: nothing else is to be done.
    Idle(Task),
    End,
}

/// The queue; replicas are told apart by their index.
pub(crate) struct Shared {
    state: Mutex<State>,
    work: Vec<Condvar>, // [replica]
    /// Is called, without the lock, when answers have ended or left the queue.
    release: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Shared {
    pub(crate) fn new(seats: Vec<Seat>, bound: Option<usize>) -> Shared {
        let work = seats.iter().map(|_| Condvar::new()).collect();
        Shared { state: Mutex::new(State::new(seats, bound)), work, release: OnceLock::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock, short of memory running out.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `hook` called whenever answers have ended or left the queue. The first hook stays.
    pub(crate) fn on_release(&self, hook: Box<dyn Fn() + Send + Sync>) {
        let _ = self.release.set(hook);
    }

    fn released(&self) {
        if let Some(hook) = self.release.get() {
            hook();
        }
    }

    /// How many may wait beside those for which there are slots.
    pub(crate) fn bound(&self) -> Option<usize> {
        self.lock().bound
    }

    /// Lets so many wait from now on; those that wait stay.
    pub(crate) fn set_bound(&self, bound: Option<usize>) {
        self.lock().bound = bound;
    }

    /// Routes requests and puts them into the queue, all or none; their numbers.
    pub(crate) fn submit(&self, jobs: Vec<Job>) -> Result<Vec<u64>, Error> {
        let mut state = self.lock();
        let room = state.bound.map(|bound| {
            let free = |lane: &LaneState| lane.seat.slots.saturating_sub(lane.running.len());
            let free = state.lanes.iter().filter(|l| l.alive).map(free).sum::<usize>();
            (bound + free).saturating_sub(state.answers_waiting())
        });
        if room.is_some_and(|room| {
            jobs.iter().map(|job| job.asked.answers.len()).sum::<usize>() > room
        }) {
            return Err(Error::QueueFull { waiting: state.answers_waiting() });
        }
        if !state.lanes.iter().any(|lane| lane.alive) {
            return Err(state.nobody());
        }
        let (mut ids, mut lanes) = (Vec::with_capacity(jobs.len()), Vec::with_capacity(jobs.len()));
        for mut job in jobs {
            lanes.extend(state.route(&mut job));
            state.next_id += 1;
            job.id = state.next_id;
            ids.push(job.id);
            job.turn = state.turns.next(job.asked.priority, job.client, job.left().tokens());
            let at = state.waiting.partition_point(|other| other.turn <= job.turn);
            state.waiting.insert(at, job);
        }
        drop(state);
        lanes.into_iter().for_each(|lane| self.work[lane].notify_one());
        Ok(ids)
    }

    /// Takes a request out of the queue, if it still waits there and nobody wants an answer.
    pub(crate) fn forget(&self, id: u64) {
        let mut state = self.lock();
        let unwanted =
            |job: &Job| job.id == id && job.asked.answers.iter().all(Answer::is_cancelled);
        let at = state.waiting.iter().position(unwanted);
        let job = at.and_then(|at| state.waiting.remove(at));
        // What a caller's hook owns is dropped without the lock.
        drop(state);
        if job.is_some() {
            self.released();
        }
    }

    /// Has replica `me` do something between two steps.
    pub(crate) fn ask(&self, me: usize, task: Task) -> Result<(), Error> {
        self.put(me, |lane| lane.tasks.push(task))
    }

    /// Has replica `me` do something in idle time.
    pub(crate) fn ask_idle(&self, me: usize, task: Task) -> Result<(), Error> {
        self.put(me, |lane| lane.idle_tasks.push_back(task))
    }

    fn put(&self, me: usize, what: impl FnOnce(&mut LaneState)) -> Result<(), Error> {
        let mut state = self.lock();
        let open = state.phase == Phase::Open && state.lanes[me].alive;
        if !open {
            return Err(Error::ReplicasClosed);
        }
        what(&mut state.lanes[me]);
        drop(state);
        self.work[me].notify_one();
        Ok(())
    }

    /// Whether replica `me` has nothing to do and is not told to end.
    pub(crate) fn is_idle(&self, me: usize) -> bool {
        let state = self.lock();
        let lane = &state.lanes[me];
        let idle = state.waiting.is_empty() && lane.running.is_empty() && lane.tasks.is_empty();
        idle && state.phase == Phase::Open
    }

    /// What replica `me` does next. Waits as long as it has neither requests that run nor any to
    /// begin.
    pub(crate) fn next(&self, me: usize) -> Next {
        let mut state = self.lock();
        loop {
            if state.phase == Phase::Closed {
                state.lanes[me].end();
                return Next::End;
            }
            let late = state.expire(Instant::now());
            if !late.is_empty() {
                drop(state);
                late.iter().for_each(|job| job.asked.fail(|| Error::Deadline));
                drop(late);
                self.released();
                state = self.lock();
            }
            let jobs = state.take(me);
            let lane = &mut state.lanes[me];
            if !jobs.is_empty() || !lane.running.is_empty() || !lane.tasks.is_empty() {
                let tasks = std::mem::take(&mut lane.tasks);
                drop(state);
                if !jobs.is_empty() {
                    self.released();
                }
                return Next::Begin(tasks, jobs);
            }
            if state.phase == Phase::Draining {
                // Whatever still waits is another's.
                state.lanes[me].end();
                return Next::End;
            }
            let rest = match state.waiting.is_empty() {
                true => REST.saturating_sub(state.lanes[me].busy.elapsed()),
                // Another's, who may not get to it.
                false => REST,
            };
            let work = &self.work[me];
            if state.lanes[me].idle_tasks.is_empty() {
                state = work.wait(state).unwrap_or_else(PoisonError::into_inner);
            } else if rest > Duration::ZERO {
                let woken = work.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner);
                state = woken.0;
            } else if let Some(task) = state.lanes[me].idle_tasks.pop_front() {
                return Next::Idle(task);
            }
            state.lanes[me].wake_ups += 1;
        }
    }

    /// What replica `me` has left, its pages, and what it has done since it told last.
    pub(crate) fn report(
        &self,
        me: usize,
        running: impl Iterator<Item = Left>,
        standings: impl Iterator<Item = Standing>,
        pages: PageCounts,
        done: Counters,
    ) {
        let mut state = self.lock();
        let lane = &mut state.lanes[me];
        lane.busy = Instant::now();
        let before = lane.running.len();
        lane.running.clear();
        lane.running.extend(running);
        let fewer = lane.running.len() < before;
        lane.standings.clear();
        lane.standings.extend(standings);
        lane.seat.pages = pages;
        lane.counters += done;
        drop(state);
        if fewer {
            self.released();
        }
    }

    /// What the replicas have reported last of the requests that run.
    pub(super) fn seen(&self) -> Vec<Seen> {
        let state = self.lock();
        let seen = |lane: &LaneState| Seen {
            standings: lane.standings.clone(),
            reported: lane.busy,
            pages: lane.seat.pages,
        };
        state.lanes.iter().map(seen).collect()
    }

    /// What the groups of replica `me` have done so far, which experts were chosen, and who else was on its cores.
    pub(crate) fn report_groups(
        &self,
        me: usize,
        groups: Vec<GroupStatus>,
        experts: Arc<Experts>,
        company: Option<&Company>,
    ) {
        let mut state = self.lock();
        let seat = &mut state.lanes[me].seat;
        (seat.groups, seat.experts) = (groups, experts);
        if let Some(company) = company {
            seat.company.clone_from(company);
        }
    }

    /// Takes a replica out of service. What waits for it goes to others; without any, it fails.
    pub(crate) fn fail(&self, me: usize, reason: &str) {
        let mut state = self.lock();
        let lane = &mut state.lanes[me];
        lane.end();
        lane.failure = Some(reason.to_owned());
        lane.running.clear();
        state.beginnings.forget(me);
        let mut lost = Vec::new();
        for mut job in std::mem::take(&mut state.waiting) {
            if job.lane == me && state.route(&mut job).is_none() {
                lost.push(job);
            } else {
                state.waiting.push_back(job);
            }
        }
        let (replica, reason) = (me, reason.to_owned());
        let stage = state.lanes[me].lost.clone();
        drop(state);
        self.work.iter().for_each(Condvar::notify_one);
        let error = || match &stage {
            Some(stage) => stage.error(),
            None => Error::ReplicaFailed { replica, reason: reason.clone() },
        };
        lost.iter().for_each(|job| job.asked.fail(error));
        self.released();
    }

    /// Takes a replica out of service until the hosts of its model are there again. What waits for it fails.
    pub(crate) fn lose(&self, me: usize, lost: &LostStage) {
        self.lock().lanes[me].lost = Some(lost.clone());
        self.fail(me, &lost.error().to_string());
    }

    /// Puts such a replica into service again.
    pub(crate) fn come_back(&self, me: usize) {
        let mut state = self.lock();
        let lane = &mut state.lanes[me];
        (lane.alive, lane.failure, lane.lost) = (true, None, None);
        lane.busy = Instant::now();
    }

    /// Notes that a replica is being loaded again; false if it has not failed, or is being loaded already.
    pub(crate) fn begin_restart(&self, me: usize) -> bool {
        let mut state = self.lock();
        let open = state.phase == Phase::Open;
        let lane = &mut state.lanes[me];
        let begins = open && lane.failure.is_some() && lane.lost.is_none() && !lane.restarting;
        lane.restarting |= begins;
        begins
    }

    /// Puts such a replica into service.
    pub(crate) fn restarted(&self, me: usize, seat: Seat) {
        let mut state = self.lock();
        let lane = &mut state.lanes[me];
        (lane.alive, lane.failure, lane.restarting) = (true, None, false);
        lane.seat = seat;
        lane.busy = Instant::now();
    }

    /// It could not be loaded.
    pub(crate) fn restarted_not(&self, me: usize, reason: &str) {
        let mut state = self.lock();
        let lane = &mut state.lanes[me];
        (lane.failure, lane.restarting) = (Some(reason.to_owned()), false);
    }

    /// What the groups of replica `me` have done so far, and which experts were chosen.
    pub(crate) fn done(&self, me: usize) -> (Vec<GroupStatus>, Arc<Experts>) {
        let state = self.lock();
        let seat = &state.lanes[me].seat;
        (seat.groups.clone(), seat.experts.clone())
    }

    /// Whether no more requests are to be served.
    pub(crate) fn is_closing(&self) -> bool {
        self.lock().phase != Phase::Open
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
        waiting.iter().for_each(|job| job.asked.fail(|| Error::ReplicasClosed));
        self.released();
    }

    pub(crate) fn occupancy(&self) -> Occupancy {
        let state = self.lock();
        let running = state.lanes.iter().map(|lane| lane.running.len()).sum();
        Occupancy { running, waiting: state.answers_waiting() }
    }

    pub(crate) fn status(&self) -> Vec<ReplicaStatus> {
        let state = self.lock();
        let lanes = state.lanes.iter().enumerate();
        let status = lanes.map(|(at, lane)| ReplicaStatus {
            running: lane.running.len(),
            waiting: state.answers(at),
            outstanding: state.tokens(at),
            counters: lane.counters,
            wake_ups: lane.wake_ups,
            pages: lane.seat.pages,
            groups: lane.seat.groups.clone(),
            experts: lane.seat.experts.clone(),
            company: lane.seat.company.clone(),
            failure: lane.failure.clone(),
            comes_back: lane.lost.is_some(),
            restarting: lane.restarting,
        });
        status.collect()
    }
}

#[cfg(test)]
mod tests;
