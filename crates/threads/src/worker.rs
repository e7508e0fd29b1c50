//! A thread as the job that runs on it sees it: who it is, and how it waits for others.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Instant;

use crate::gate::Seen;
use crate::hub::{Member, Poisoned};
use crate::pool::Shared;
use crate::probe;
use crate::stats::TaskCounts;
use crate::tasks::deal::Deal;
use crate::tasks::round::{From, Place, Task};
use crate::tasks::{Homes, Policy};

/// How the threads of a job are seen: those of its level, which are all threads of the pool unless it
/// is run on fewer ([`Pool::run_on`](crate::Pool::run_on)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// As one group. Every job begins so.
    One,
    /// As the groups of the pool's specification.
    Groups,
}

/// For whom a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// For its group in the present view.
    Local,
    /// For all threads of the job.
    Global,
}

/// One thread of the pool while it runs a job.
///
/// [`thread`](Self::thread) and [`home`](Self::home) say which thread of the pool it is, the same in
/// every job. All else speaks of the threads that take part in the present one, as if there were no
/// others.
pub struct Worker {
    shared: Arc<Shared>,
    thread: usize,
    /// The level of the job.
    level: usize,
    /// The group of the specification, and the place in it.
    home: usize,
    home_rank: usize,
    view: View,
    /// What it did after its last wait.
    since: Since,
    /// Groups of the next job, if they change after this one.
    next: Option<Next>,
    /// A worker is its thread: it cannot be sent to another one.
    not_send: PhantomData<*const ()>,
}

/// Shared state of the groups from the next job on, and the state of the gate at which the thread waits for that job.
pub(crate) type Next = (Arc<Shared>, Seen);

/// What a thread did since it last waited.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Since {
    /// No tasks.
    Nothing,
    /// Tasks that nobody else could take.
    Tasks,
    /// Tasks that others could take: who has left them may meet one who still looks for some.
    Stealing,
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, thread: usize) -> Self {
        let (home, home_rank) = shared.place(thread);
        let (level, view, since) = (shared.hub.levels().all(), View::One, Since::Nothing);
        let (next, not_send) = (None, PhantomData);
        Self { shared, thread, level, home, home_rank, view, since, next, not_send }
    }

    /// Takes jobs in these groups after this one.
    pub(crate) fn go_to(&mut self, groups: Arc<Shared>) {
        let (group, rank) = groups.place(self.thread);
        let hub = &groups.hub;
        let seen = hub.seen(group, hub.levels().class(group, rank));
        self.next = Some((groups, seen));
    }

    /// The argument of [`Self::go_to`] in this job, if there was such a call.
    pub(crate) fn take_next(&mut self) -> Option<Next> {
        self.next.take()
    }

    /// The lowest level whose jobs this thread has a part in.
    pub(crate) fn class(&self) -> usize {
        self.shared.hub.levels().class(self.home, self.home_rank)
    }

    /// A new job begins.
    pub(crate) fn begin(&mut self, level: usize) {
        self.level = level;
        self.view = View::One;
        self.since = Since::Nothing;
    }

    /// The thread's id in the pool, `0..`[`Pool::threads`](crate::Pool::threads); consecutive within a
    /// group. In a job on fewer threads some ids are missing.
    pub fn thread(&self) -> usize {
        self.thread
    }

    /// The group of the pool's specification that this thread belongs to, whatever the view.
    pub fn home(&self) -> usize {
        self.home
    }

    /// The number of threads that take part in the job.
    pub fn threads(&self) -> usize {
        self.shared.hub.levels().threads(self.level)
    }

    /// The thread's place among those that take part in the job, `0..threads`, in the order of their
    /// ids and without gaps, whatever the view. In a job on all threads it is the id.
    pub fn index(&self) -> usize {
        self.first()[self.home] + self.home_rank
    }

    /// The present view.
    pub fn view(&self) -> View {
        self.view
    }

    /// The thread's group in the present view; 0 in [`View::One`].
    pub fn group(&self) -> usize {
        match self.view {
            View::One => 0,
            View::Groups => self.home,
        }
    }

    /// The thread's place in its group of the present view, `0..size`. In [`View::One`] it is the
    /// [`index`](Self::index); in [`View::Groups`] it is the same in every job, because those that
    /// take part are the first of the group.
    pub fn rank(&self) -> usize {
        match self.view {
            View::One => self.index(),
            View::Groups => self.home_rank,
        }
    }

    /// The number of threads in its group of the present view that take part in the job.
    pub fn size(&self) -> usize {
        match self.view {
            View::One => self.threads(),
            View::Groups => self.home_size(),
        }
    }

    /// The number of groups in the present view; every group has a thread in every job.
    pub fn groups(&self) -> usize {
        match self.view {
            View::One => 1,
            View::Groups => self.shared.hub.groups(),
        }
    }

    /// Where the threads of each group begin among those of the job.
    fn first(&self) -> &[usize] {
        self.shared.hub.levels().first(self.level)
    }

    fn home_size(&self) -> usize {
        self.shared.hub.levels().size(self.level, self.home)
    }

    /// Waits until all threads of the scope are here. What they wrote before is visible after.
    ///
    /// If a thread of the job panics, this does not return: it unwinds the job on this thread
    /// too, and [`Pool::run`](crate::Pool::run) reports the panic.
    #[inline]
    pub fn wait(&mut self, scope: Scope) {
        let several = self.shared.hub.groups() > 1;
        self.meet(several && (scope == Scope::Global || self.view == View::One));
    }

    /// Waits for all threads of the job and then sees them as `view`. All of them must call it.
    pub fn switch(&mut self, view: View) {
        self.wait(Scope::Global);
        self.view = view;
    }

    /// Sees the threads of the job as one group again, without a wait: nothing that groups wrote since their last one
    /// may be read before the next, which is for all.
    pub fn join(&mut self) {
        self.view = View::One;
    }

    /// Runs a set of tasks together with the other threads of the group in the present view: all of
    /// them must call this, in the same order as their waits and with the same policy and homes.
    /// `task` gets the number of each task that this thread is to run; every task is run by exactly
    /// one thread. When this returns, all tasks have been taken, but others may still be at theirs:
    /// what tasks write may be read after the next [wait](Self::wait). If a set follows another
    /// without a wait between them, this waits first.
    ///
    /// A task should take some microseconds: taking one costs some ten nanoseconds, and a few
    /// hundred when it is another thread's. Long ones should have low numbers, because a thread
    /// begins with the lowest of its own, and what is begun last should be short.
    ///
    /// If a task panics, the others are still run, and the job ends as after any panic.
    ///
    /// # Panics
    /// When there are more than 2^24 - 1 tasks, or homes that are not as many as the pool's groups.
    pub fn tasks(&mut self, policy: Policy, homes: Homes<'_>, mut task: impl FnMut(usize)) {
        if self.since == Since::Stealing {
            self.wait(Scope::Local);
        }
        self.since = if policy.steals() { Since::Stealing } else { Since::Tasks };
        let stats = self.shared.stats.get(self.thread);
        let came = stats.map(|_| Instant::now());
        let (mut set, mut busy_until) = (TaskCounts::default(), came);
        let deal = Deal::new(policy, homes, self.view, self.first());
        let run = |Task { number, from, left }: Task| {
            task(number);
            set.count += 1;
            set.depths += left as u64;
            set.deepest = set.deepest.max(left as u64);
            match from {
                From::Own => {}
                From::Near => set.near += 1,
                From::Far => set.far += 1,
            }
            // Any may be its last: others take from its queue too.
            busy_until = stats.map(|_| Instant::now());
        };
        let me = Place { group: self.home, rank: self.home_rank, view: self.view };
        match policy.steals() {
            true => self.shared.desks[self.level].round(me, &deal, policy.reaches_far(), run),
            false => deal.alone(me.group, me.rank, run),
        }
        if let (Some(slot), Some(came), Some(until)) = (stats, came, busy_until) {
            let far = policy.reaches_far() && self.view == View::One;
            let takers = if far { self.threads() } else { self.home_size() };
            set.stealable = if policy.steals() && takers > 1 { set.count } else { 0 };
            set.busy_nanos = (until - came).as_nanos() as u64;
            set.idle_nanos = until.elapsed().as_nanos() as u64;
            slot.did(&set);
        }
    }

    fn meet(&mut self, global: bool) {
        let since = std::mem::replace(&mut self.since, Since::Nothing);
        let hub = &self.shared.hub;
        let me = Member { level: self.level, group: self.home };
        let start = self.shared.stats.get(self.thread).map(|slot| (slot, Instant::now()));
        let now = start.map(|(_, start)| (start - self.shared.epoch).as_nanos() as u64);
        probe::comes(global);
        let met = if global { hub.wait_global(me, now) } else { hub.wait_local(me, now) };
        probe::leaves();
        if let Some((slot, start)) = start {
            let took = start.elapsed();
            slot.waited(global, met.as_ref().copied().unwrap_or_default(), took);
            if since != Since::Nothing {
                slot.idled(took);
            }
        }
        if met.is_err() {
            // Not a panic of this thread: no message, no hook.
            std::panic::resume_unwind(Box::new(Poisoned));
        }
    }
}
