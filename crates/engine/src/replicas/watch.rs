//! What the threads of a replica have done.

use super::job::Task;
use super::status::{Experts, GroupStatus, ThreadStatus, chosen_after};
use crate::engine::Engine;
use crate::placement::Elsewhere;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use threads::ThreadStats;
use topology::CpuId;

/// How old what is known of the threads may become while there is work: asking each takes cache lines
/// from all.
const AGE: Duration = Duration::from_millis(100);

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
        self.experts = Arc::new(chosen_after(experts, &self.experts_before));
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
                left_tasks: team.iter().map(|t| t.tasks.depths).sum(),
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
