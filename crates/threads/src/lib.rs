//! A pinned pool of workers in groups, with hierarchical barriers.
//!
//! One group stands for one memory node: its threads have consecutive ids, so a static split of
//! rows over thread ids keeps every thread on rows of its own node. A job is broadcast to all
//! threads; inside it they wait for their group ([`Scope::Local`]) or for everybody
//! ([`Scope::Global`]), and [`Worker::switch`] changes between one view of all threads and one
//! view per group.
//!
//! ```
//! use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
//! use arclight_threads::{Pool, PoolSpec, Scope, View};
//! use topology::{CpuId, Group};
//!
//! let cpus = vec![CpuId(0), CpuId(0)];
//! let groups = vec![Group::unbound(cpus.clone()), Group::unbound(cpus)];
//! let mut pool = Pool::new(&PoolSpec { groups, pin: false, ..PoolSpec::default() })?;
//! let sums = [AtomicU32::new(0), AtomicU32::new(0)];
//! pool.run(&|worker| {
//!     worker.switch(View::Groups);
//!     sums[worker.group()].fetch_add(1, Relaxed);
//!     worker.wait(Scope::Local); // this group's sum is complete
//!     assert_eq!(sums[worker.group()].load(Relaxed), worker.size() as u32);
//!     worker.switch(View::One); // both sums are
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A job may also be run on fewer threads, the first ones of each group ([`PoolSpec::levels`],
//! [`Pool::run_on`]); the others sleep and are not woken.
//!
//! Between jobs a pool can be [regrouped](Pool::regroup): the same threads go to other groups, CPUs and levels by way
//! of a last job in the groups that they leave.
//!
//! Limits: on other systems than Linux threads are not pinned, and sleep by a lock and a condition.
//! All threads of a group must make the same sequence of waits, and all threads of the job the same
//! sequence of global waits and switches; a job that breaks this deadlocks, as with any barrier.
//!
//! Sources: thread groups, views, local and global barriers are §2.4 and §3.4 of the ArcLight
//! paper; meeting inside the node first is Arm's divide-and-conquer barrier for Neoverse N2.

mod affinity;
mod clock;
mod delay;
mod gate;
mod hub;
mod leader;
mod levels;
mod page;
mod pool;
mod probe;
mod spec;
mod stats;
mod sync;
mod tasks;
mod worker;

pub use clock::{Clock, Moment, thread_time};
pub use delay::CpuTime;
pub use leader::unpinned;
pub use pool::{Grouping, Pool};
pub use spec::{Error, LEAST_STACK, MOST_STACK, Panicked, PoolSpec, STACK, Spin, Warning};
pub use stats::{Jobs, TaskCounts, ThreadStats, Waits};
pub use tasks::report::{HEALTH, Health, TaskReport, TaskWarning, Trouble};
pub use tasks::{Homes, Policy};
pub use worker::{Scope, View, Worker};

/// The parts that the loom models in `tests/loom.rs` drive directly.
#[cfg(loom)]
#[doc(hidden)]
pub mod model {
    pub use crate::gate::{Gate, Seen};
    pub use crate::hub::{Hub, Lines, Member, Poisoned};
    pub use crate::levels::Levels;
    pub use crate::page::OwnPage;
    pub use crate::tasks::deal::Deal;
    pub use crate::tasks::queue::{End, Queue};
    pub use crate::tasks::round::{Desk, Desks, From, Place, Task};
    pub use crate::worker::View;
}
