//! Tasks of unequal length, shared by the threads of a running job.
//!
//! A static split is right for rows of a matrix, which all take equally long. It is wrong for work
//! whose pieces differ and cannot be told apart beforehand, or can, but not by threads that the system
//! takes away: experts with unequal numbers of tokens, attention over sequences of mixed lengths. Here
//! such pieces are *tasks*: a [`Policy`] deals them to threads, and who is through with its own takes
//! over what others have not begun ([`Worker::tasks`](crate::Worker::tasks)).
//!
//! The policies are ZigLlama's by name (its threading chapter, §4.2 and §3.1). There they say where
//! memory is to come from, and stealing goes round all workers whatever they say. Here the memory has
//! its place already, so they say which thread is to go to it:
//!
//! | policy | ZigLlama | here: dealt to | taken over by |
//! |---|---|---|---|
//! | `Local` | prefer the local node, for latency | the task's home group | that group |
//! | `Interleave` | pages round all nodes, for bandwidth | all threads in turn | own group first, then the nearest others |
//! | `Balanced` | by topology, in general | the task's home group | own group first, then the nearest others |
//! | `Disabled` | no awareness of nodes | all threads, in equal runs | nobody |
//!
//! In [`View::Groups`](crate::View) a group has a set of its own, which nobody else takes from:
//! `Local` and `Balanced` are the same then, `Interleave` deals in turn, `Disabled` is the static split.
//!
//! Limits: a task is at home in a group, not on a thread; at most 2^24 - 1 at once; who ran a task is
//! not known afterwards, so its result must not depend on that.
//!
//! Sources: stealing as in Blumofe and Leiserson (1999), by ZigLlama's protocol in §3.1 with the
//! group before the machine; statistics and their healthy ranges from its §8 ([`report`]).

pub(crate) mod deal;
pub(crate) mod queue;
pub(crate) mod report;
pub(crate) mod round;

/// How tasks are dealt, and who may take them over; see the table in `docs/threads.md`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// To the home group, which keeps them: nothing is read over the link between nodes.
    Local,
    /// In turn over all groups, wherever their home is; then whoever is free. For tasks whose memory
    /// is spread over the nodes.
    Interleave,
    /// To the home group; what it has not begun when another is through goes to that.
    #[default]
    Balanced,
    /// In equal runs by thread, and nobody takes anything over.
    Disabled,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Local, Self::Interleave, Self::Balanced, Self::Disabled];

    /// A task may be run by another thread than the one it was dealt to.
    pub fn steals(self) -> bool {
        self != Self::Disabled
    }

    /// And by a thread of another group.
    pub(crate) fn reaches_far(self) -> bool {
        matches!(self, Self::Interleave | Self::Balanced)
    }
}

/// How many tasks there are, and where their memory is.
#[derive(Clone, Copy, Debug)]
pub enum Homes<'a> {
    /// Tasks `0..n` that are at home nowhere: of the pool in [`View::One`](crate::View), and in
    /// [`View::Groups`](crate::View) of the thread's group, which may have another number than others.
    None(usize),
    /// As many tasks as stated for each group of the pool, numbered through: those of group 0 come
    /// first. In [`View::Groups`](crate::View) every group runs its own.
    Counts(&'a [usize]),
}
