//! A thread as the job that runs on it sees it: who it is, and how it waits for others.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Instant;

use crate::hub::Poisoned;
use crate::pool::Shared;

/// How the threads of the pool are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// As one group of all threads. Every job begins so.
    One,
    /// As the groups of the pool's specification.
    Groups,
}

/// For whom a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// For its group in the present view.
    Local,
    /// For all threads of the pool.
    Global,
}

/// One thread of the pool while it runs a job.
pub struct Worker {
    shared: Arc<Shared>,
    thread: usize,
    /// The group of the specification, and the place in it.
    home: usize,
    home_rank: usize,
    view: View,
    /// A worker is its thread: it cannot be sent to another one.
    not_send: PhantomData<*const ()>,
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, thread: usize) -> Self {
        let (home, home_rank) = shared.place(thread);
        Self { shared, thread, home, home_rank, view: View::One, not_send: PhantomData }
    }

    /// A new job begins.
    pub(crate) fn begin(&mut self) {
        self.view = View::One;
    }

    /// The thread's id in the pool, `0..threads`; consecutive within a group.
    pub fn thread(&self) -> usize {
        self.thread
    }

    /// The number of threads in the pool.
    pub fn threads(&self) -> usize {
        self.shared.threads()
    }

    /// The group of the pool's specification that this thread belongs to, whatever the view.
    pub fn home(&self) -> usize {
        self.home
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

    /// The thread's place in its group of the present view, `0..size`.
    pub fn rank(&self) -> usize {
        match self.view {
            View::One => self.thread,
            View::Groups => self.home_rank,
        }
    }

    /// The number of threads in its group of the present view.
    pub fn size(&self) -> usize {
        match self.view {
            View::One => self.shared.threads(),
            View::Groups => self.shared.group_size(self.home),
        }
    }

    /// The number of groups in the present view.
    pub fn groups(&self) -> usize {
        match self.view {
            View::One => 1,
            View::Groups => self.shared.hub.groups(),
        }
    }

    /// Waits until all threads of the scope are here. What they wrote before is visible after.
    ///
    /// If a thread of the pool panics, this does not return: it unwinds the job on this thread
    /// too, and [`Pool::run`](crate::Pool::run) reports the panic.
    #[inline]
    pub fn wait(&mut self, scope: Scope) {
        let several = self.shared.hub.groups() > 1;
        self.meet(several && (scope == Scope::Global || self.view == View::One));
    }

    /// Waits for all threads of the pool and then sees them as `view`. All threads must call it.
    pub fn switch(&mut self, view: View) {
        self.wait(Scope::Global);
        self.view = view;
    }

    fn meet(&self, global: bool) {
        let hub = &self.shared.hub;
        let start = self.shared.stats.get(self.thread).map(|slot| (slot, Instant::now()));
        let met = match global {
            true => hub.wait_global(self.home),
            false => hub.wait_local(self.home).map(|()| false),
        };
        if let Some((slot, start)) = start {
            slot.waited(global, met == Ok(true), start.elapsed());
        }
        if met.is_err() {
            // Not a panic of this thread: no message, no hook.
            std::panic::resume_unwind(Box::new(Poisoned));
        }
    }
}
