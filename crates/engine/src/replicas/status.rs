//! Reports of replicas: how they were loaded, their present state, and counts of their work.

use crate::company::Company;
use crate::decode::{Counters, Standing};
use crate::kv::PageCounts;
use crate::load::LoadReport;
use std::sync::Arc;
use std::time::{Duration, Instant};
use topology::{CpuId, CpuList, NodeId, NodeList};

/// Where a replica is and how it was loaded.
#[derive(Clone, Debug)]
pub struct ReplicaInfo {
    /// Its memory nodes.
    pub nodes: NodeList,
    /// Groups of its threads: nodes, virtual ones among them.
    pub groups: usize,
    /// The CPUs that it chose its threads' from.
    pub cpus: CpuList,
    /// Its threads.
    pub threads: usize,
    /// Requests that it can serve at once.
    pub sequences: usize,
    /// What loading did.
    pub report: LoadReport,
}

/// Number of answers of all replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Answers that are being given.
    pub running: usize,
    /// Answers in the queue.
    pub waiting: usize,
}

/// What a replica does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// Answers that are being given.
    pub running: usize,
    /// Answers that wait and were routed here.
    pub waiting: usize,
    /// Tokens left to compute for both: prompts, and as many as the answers may have.
    pub outstanding: u64,
    /// What it has done.
    pub counters: Counters,
    /// How often it was woken up for work.
    pub wake_ups: u64,
    /// Its KV pages.
    pub pages: PageCounts,
    /// What its groups of threads have done.
    pub groups: Vec<GroupStatus>,
    /// How often tokens went to each expert.
    pub experts: Arc<Experts>,
    /// What it has seen of other programs on its cores.
    pub company: Company,
    /// Why it is out of service; `None` while it serves.
    pub failure: Option<String>,
    /// Whether it serves again by itself: it looks for a host of the model that is gone.
    pub comes_back: bool,
    /// Whether it has failed and [is being loaded again](super::Replicas::restart).
    pub restarting: bool,
}

/// What the threads of a replica's group have done since the model was loaded; [`Activity`] has
/// more of it. As of the last step, or a tenth of a second before.
///
/// [`Activity`]: crate::Activity
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupStatus {
    /// Their memory node; `None` on a machine without.
    pub node: Option<NodeId>,
    /// How many they are.
    pub threads: usize,
    /// Bytes of weights, keys and values that they read.
    pub read: u64,
    /// Of what they moved, bytes in the memory of other nodes; `None` if the kernel does not tell where
    /// pages are.
    pub remote: Option<u64>,
    /// Time that they worked, all together. Zero, as are the waits, unless the model was loaded with
    /// [`stats`](crate::LoadOptions::stats).
    pub busy: Duration,
    /// Time that they waited for each other, all together.
    pub local_waits: Duration,
    /// Time that they waited for other groups, all together.
    pub global_waits: Duration,
    /// Tasks that they ran ([`threads::Worker::tasks`]): attention's tiles, where threads share them.
    pub tasks: u64,
    /// Of these, tasks that were dealt to another thread, and stolen from it.
    pub stolen_tasks: u64,
    /// Tasks that were left in a queue when one was taken from it, added up over all that were taken.
    pub left_tasks: u64,
    /// Pages that lay on another node than they were meant for when the model was loaded, and all that had memory;
    /// `None` if the kernel does not tell, or they belong to no group.
    pub misplaced: Option<(u64, u64)>,
    /// Each of them.
    pub each: Vec<ThreadStatus>,
}

/// What a thread has done since the model was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadStatus {
    /// Where it runs.
    pub cpu: CpuId,
    /// Steps that it had a part in.
    pub steps: u64,
    /// Time that it worked.
    pub busy: Duration,
    /// Time for which others waited for it alone ([`ThreadStats::last`](threads::ThreadStats::last)).
    pub held: Duration,
    /// Bytes of the weights that it multiplies in a step of all threads.
    pub weights: u64,
}

impl GroupStatus {
    /// With what was done before.
    pub(super) fn after(self, before: &GroupStatus) -> GroupStatus {
        GroupStatus {
            read: self.read + before.read,
            remote: self.remote.zip(before.remote).map(|(now, before)| now + before),
            busy: self.busy + before.busy,
            local_waits: self.local_waits + before.local_waits,
            global_waits: self.global_waits + before.global_waits,
            tasks: self.tasks + before.tasks,
            stolen_tasks: self.stolen_tasks + before.stolen_tasks,
            left_tasks: self.left_tasks + before.left_tasks,
            each: self.each.iter().map(|thread| thread.after(&before.each)).collect(),
            ..self
        }
    }
}

impl ThreadStatus {
    /// With what was done on its CPU before.
    fn after(self, before: &[ThreadStatus]) -> ThreadStatus {
        let before = before.iter().find(|before| before.cpu == self.cpu);
        match before {
            Some(b) => {
                let (steps, busy) = (self.steps + b.steps, self.busy + b.busy);
                ThreadStatus { steps, busy, held: self.held + b.held, ..self }
            }
            None => self,
        }
    }
}

/// Times that tokens went to each expert: `[router][expert]`. Empty for a model without experts.
pub type Experts = Vec<Vec<u64>>;

/// Choices, with those that were made before.
pub(super) fn chosen_after(mut experts: Experts, before: &Experts) -> Experts {
    for (now, before) in experts.iter_mut().zip(before) {
        now.iter_mut().zip(before).for_each(|(now, before)| *now += before);
    }
    experts
}

/// A replica as it has reported last.
pub(super) struct Seen {
    pub standings: Vec<Standing>,
    pub reported: Instant,
    pub pages: PageCounts,
}
