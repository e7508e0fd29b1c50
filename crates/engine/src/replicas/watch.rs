//! What the threads of a replica have done.

use super::queue::Task;
use crate::engine::Engine;
use crate::placement::Elsewhere;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use threads::ThreadStats;
use topology::{CpuId, NodeId};

/// How old what is known of the threads may become while there is work: asking each takes cache lines
/// from all.
const AGE: Duration = Duration::from_millis(100);

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
    /// Time for which others waited for it alone ([`ThreadStats::last`]).
    pub held: Duration,
    /// Bytes of the weights that it multiplies in a step of all threads.
    pub weights: u64,
}

impl GroupStatus {
    /// With what was done before.
    fn after(self, before: &GroupStatus) -> GroupStatus {
        GroupStatus {
            read: self.read + before.read,
            remote: self.remote.zip(before.remote).map(|(now, before)| now + before),
            busy: self.busy + before.busy,
            local_waits: self.local_waits + before.local_waits,
            global_waits: self.global_waits + before.global_waits,
            tasks: self.tasks + before.tasks,
            stolen_tasks: self.stolen_tasks + before.stolen_tasks,
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
fn after(mut experts: Experts, before: &Experts) -> Experts {
    for (now, before) in experts.iter_mut().zip(before) {
        now.iter_mut().zip(before).for_each(|(now, before)| *now += before);
    }
    experts
}

/// Keeps what is known of the threads of an engine up to date.
pub(crate) struct Watch {
    elsewhere: Vec<Option<Elsewhere>>,  // [group]
    misplaced: Vec<Option<(u64, u64)>>, // [group]
    /// Bytes of weights, by CPU.
    weights: BTreeMap<CpuId, u64>,
    /// What they had done when the engine began to count anew.
    before: Vec<GroupStatus>,
    /// Times that tokens went to each expert: as it was seen last, and when the engine began to count anew.
    experts: Arc<Experts>,
    experts_before: Arc<Experts>,
    looked: Instant,
}

impl Watch {
    /// Asks where the model's pages are. It does not change any more: of the pages that are still to be
    /// touched, policies say as much.
    pub(super) fn new(engine: &mut Engine) -> Watch {
        let groups = engine.plan().groups.len();
        let placement = engine.placement().ok();
        let elsewhere = |group| placement.as_ref().and_then(|p| p.elsewhere(group));
        let elsewhere = (0..groups).map(elsewhere).collect();
        let misplaced = |group| placement.as_ref().and_then(|p| p.misplaced_of(group));
        let misplaced = (0..groups).map(misplaced).collect();
        let cpus = engine.plan().groups.iter().flat_map(|group| group.cpus.iter().copied());
        let weights = cpus.zip(engine.streamed_bytes()).collect();
        Watch {
            elsewhere,
            misplaced,
            weights,
            before: Vec::new(),
            experts: Arc::default(),
            experts_before: Arc::default(),
            looked: Instant::now(),
        }
    }

    /// Has the engine do something that counts for nothing.
    pub(super) fn apart(&mut self, engine: &mut Engine, task: Task) {
        self.before = self.look(engine);
        self.experts_before = self.experts.clone();
        task(engine);
        engine.reset_activity();
    }

    /// Has counts begin with what an engine before this one has done.
    pub(super) fn go_on(&mut self, groups: Vec<GroupStatus>, experts: Arc<Experts>) {
        (self.before, self.experts_before) = (groups, experts);
    }

    /// Whether what was seen is to be seen anew.
    pub(super) fn is_old(&self) -> bool {
        self.looked.elapsed() > AGE
    }

    /// Times that tokens went to each expert, when it was looked at last.
    pub(super) fn experts(&self) -> Arc<Experts> {
        self.experts.clone()
    }

    /// What the groups have done so far.
    pub(super) fn look(&mut self, engine: &mut Engine) -> Vec<GroupStatus> {
        self.looked = Instant::now();
        let mut activity = engine.activity();
        let experts = std::mem::take(&mut activity.experts);
        self.experts = Arc::new(after(experts, &self.experts_before));
        let plan = engine.plan();
        let of = |(at, team): (usize, Range<usize>)| {
            let moved = activity.moved(plan, at);
            // Nothing if it was not measured.
            let team = activity.threads.get(team).unwrap_or_default();
            let time =
                |nanos: fn(&ThreadStats) -> u64| Duration::from_nanos(team.iter().map(nanos).sum());
            GroupStatus {
                node: plan.groups[at].node,
                threads: plan.groups[at].cpus.len(),
                read: (moved.weights + moved.kv) as u64,
                remote: self.elsewhere[at].map(|elsewhere| moved.remote(elsewhere) as u64),
                busy: time(ThreadStats::busy_nanos),
                local_waits: time(|t| t.local.nanos),
                global_waits: time(|t| t.global.nanos),
                tasks: team.iter().map(|t| t.tasks.count).sum(),
                stolen_tasks: team.iter().map(|t| t.tasks.near + t.tasks.far).sum(),
                misplaced: self.misplaced[at],
                each: std::iter::zip(&plan.groups[at].cpus, team)
                    .map(|(cpu, stats)| ThreadStatus {
                        cpu: *cpu,
                        steps: stats.jobs.count,
                        busy: Duration::from_nanos(stats.busy_nanos()),
                        held: Duration::from_nanos(stats.last.nanos),
                        weights: self.weights.get(cpu).copied().unwrap_or(0),
                    })
                    .collect(),
            }
        };
        let now = plan.group_threads().into_iter().enumerate().map(of);
        let with_before = |(at, now): (usize, GroupStatus)| match self.before.get(at) {
            Some(before) => now.after(before),
            None => now,
        };
        now.enumerate().map(with_before).collect()
    }
}
