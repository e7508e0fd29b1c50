//! Steps without some of the cores, for a while.
//!
//! A thread whose core is busy with something else holds up all others at the next wait. Then the step is faster
//! without it. A level of a plan has the first threads of every group, so the threads that stay are pinned to the
//! cores that stay, and the others, the last of their groups, have no part in steps and sleep. Weights, pages and
//! buffers belong to nodes and stay where they are; bits do not depend on threads. It takes some milliseconds.

use crate::Phase;
use crate::carry::Sharing;
use crate::error::Error;
use crate::executor::Executor;
use crate::plan::Plan;
use threads::CpuTime;
use topology::{CpuId, Group};

impl Executor {
    /// How long the system let each thread run, and how long it did not, by thread; `None` if it does not tell.
    pub fn cpu_times(&mut self) -> Option<Vec<CpuTime>> {
        self.pool.cpu_times()
    }

    /// Whether steps can be taken [without some cores](Executor::leave_out) now: threads are pinned, each has a
    /// core of its own, and nothing is measured that is by thread.
    pub fn can_leave_out(&self) -> bool {
        let plan = self.plan();
        let mut cpus: Vec<u32> = plan.groups.iter().flat_map(|g| &g.cpus).map(|c| c.0).collect();
        let threads = cpus.len();
        cpus.sort_unstable();
        cpus.dedup();
        let measured = self.recorder.is_some() || self.squares.is_some();
        plan.pin && cpus.len() == threads && threads > 1 && !measured && !self.levels.is_forced()
    }

    /// The CPUs that have a part in steps, but for those that are left out: `[group][thread]`.
    pub fn cpus(&self) -> Vec<Vec<CpuId>> {
        self.whole.as_ref().unwrap_or(self.plan()).groups.iter().map(|g| g.cpus.clone()).collect()
    }

    /// Takes the following steps without these CPUs, which are the loaded plan's; with none, as they were taken
    /// when the model was loaded. Counts go on.
    ///
    /// # Errors
    /// When a group would have no thread, or the system refuses a page for a group; nothing is changed then.
    pub fn leave_out(&mut self, cpus: &[CpuId]) -> Result<(), Error> {
        let whole = self.whole.clone().unwrap_or_else(|| self.plan().clone());
        let plan = if cpus.is_empty() { whole.clone() } else { self.without(&whole, cpus)? };
        self.go_on_with(plan)?;
        self.whole = (!cpus.is_empty()).then_some(whole);
        Ok(())
    }

    /// Whether threads that are through with their part of a product take over what late ones of their group have not
    /// begun, if [`Plan::tasks`] lets them. It pays while the system takes cores away, and costs a little otherwise.
    /// Bits are the same.
    pub fn share_products(&mut self, so: bool) {
        self.shares_products = so;
    }

    /// Has other threads take steps of so many tokens from the next one on. Counts go on; the last step's logits are
    /// gone. It takes some milliseconds.
    ///
    /// # Errors
    /// When the phases are malformed, or the system refuses a page for a group; nothing is changed then.
    pub fn set_phases(&mut self, phases: Vec<Phase>) -> Result<(), Error> {
        let plan = Plan { phases, ..self.plan().clone() };
        plan.check()?;
        self.go_on_with(plan)
    }

    /// Takes the following steps by another plan of the same threads. Counts go on.
    fn go_on_with(&mut self, plan: Plan) -> Result<(), Error> {
        let spec = plan.pool(&self.machine);
        let first = (*self.replicas[0]).clone();
        let (from, stats) = (self.plan().clone(), self.pool.stats());
        self.adopt_from(first, plan, Some(spec), 1)?;
        let to = self.replicas[0].plan.clone();
        self.counts.carry_on(&from, &to);
        self.pool.set_stats(&stats);
        Ok(())
    }

    /// The plan without these CPUs.
    fn without(&self, whole: &Plan, cpus: &[CpuId]) -> Result<Plan, Error> {
        let stays = |cpu: &CpuId| !cpus.contains(cpu);
        let groups: Vec<Group> = whole
            .groups
            .iter()
            .map(|group| {
                let (mut order, left): (Vec<CpuId>, Vec<CpuId>) =
                    group.cpus.iter().partition(|cpu| stays(cpu));
                order.extend(left);
                Group { node: group.node, cpus: order }
            })
            .collect();
        let most: Vec<usize> =
            groups.iter().map(|g| g.cpus.iter().filter(|cpu| stays(cpu)).count()).collect();
        if most.contains(&0) {
            return Err(Error::NobodyLeft);
        }
        let fewer = |threads: &[usize]| -> Vec<usize> {
            threads.iter().zip(&most).map(|(threads, most)| (*threads).min(*most)).collect()
        };
        let all: Vec<usize> = groups.iter().map(|group| group.cpus.len()).collect();
        let last = Phase { tokens: usize::MAX, threads: all };
        let before: Vec<Phase> = whole.phases.iter().chain([&last]).cloned().collect();
        let phase = |p: &Phase| Phase { tokens: p.tokens, threads: fewer(&p.threads) };
        let phases: Vec<Phase> = before.iter().map(phase).collect();
        let teams = |phases: &[Phase]| -> Vec<Vec<usize>> {
            let team = |phase: &Phase| match whole.places() {
                1 => vec![phase.threads.iter().sum()],
                _ => phase.threads.clone(),
            };
            phases.iter().map(team).collect()
        };
        let (was, is) = (teams(&before), teams(&phases));
        let sharing = |teams| Sharing { graph: self.graph(), teams };
        let schedules = whole.schedules.carried(sharing(&was), sharing(&is));
        let plan = Plan { groups, phases, schedules, ..whole.clone() };
        plan.check()?;
        Ok(plan)
    }
}
