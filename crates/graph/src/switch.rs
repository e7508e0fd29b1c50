//! Which threads take which step, and how other threads come to a model that is loaded.
//!
//! A *level* is a set of threads ([`Plan::levels`]); all that depends on it is made when the model is
//! loaded, once for each level: how matrices are cut into shares, what a step costs by the book. So a
//! step of another level differs in nothing but its number. [`Executor::rearrange`] makes it anew for
//! another order of the CPUs or other phases, which takes some milliseconds: weights, pages and buffers
//! stay, because they belong to a node and not to a thread. So does [`Executor::set_schedules`], for other ways
//! to share each product.

use crate::error::Error;
use crate::exec::{LocalReplica, Replica, replicate};
use crate::executor::Executor;
use crate::levels::Levels;
use crate::plan::{Phase, Plan};
use crate::programs::Compiled;
use crate::schedule::Schedules;
use crate::stages::Spans;
use crate::storage::{Room, Sizes};
use threads::PoolSpec;
use topology::{Group, Machine};

impl Executor {
    /// Goes on by another plan with the same groups, except their CPUs and levels, to which the pool's threads go if
    /// there is a specification. Sums in up to `splits` runs are made ready, or in as many as schedules ask for.
    /// Counts begin anew, a recording ends, and the last step's logits are gone.
    ///
    /// # Errors
    /// When the plan is malformed or a node has too little memory; nothing is changed then.
    pub(crate) fn adopt(
        &mut self,
        plan: Plan,
        regroup: Option<PoolSpec>,
        splits: usize,
    ) -> Result<(), Error> {
        let first = (*self.replicas[0]).clone();
        self.adopt_from(first, plan, regroup, splits)?;
        self.whole = None;
        self.reset_counts(); // Replicas were made by the threads.
        Ok(())
    }

    /// The same with another graph or other weights in `first`; counts go on, and are to be made to fit.
    pub(crate) fn adopt_from(
        &mut self,
        mut first: Replica,
        plan: Plan,
        regroup: Option<PoolSpec>,
        splits: usize,
    ) -> Result<(), Error> {
        let spans = Spans::new(self.graph(), &plan)?;
        first.weight_table.arrange(&first.graph, &plan, self.kernels, splits)?;
        let mut asked = first.weight_table.splits_asked();
        asked.retain(|&own| own > splits);
        asked.splice(0..0, 1..=splits);
        let limits = self.limits();
        let compiled = Compiled::new(&first.graph, &plan, &spans, limits, &asked);
        let Compiled { programs, mut buffers, scratch } = compiled;
        // Declared before there is room: a model without a head has no operator that makes logits.
        let (logits, hidden) = (buffers.logits(), buffers.hidden(self.form.hidden));
        let sizes = Sizes { limits, private_rows: self.form.private_rows, scratch };
        // What has room already stays where it is.
        let fits = scratch == self.scratch && buffers.iter().eq(self.buffers.iter());
        let room = match fits {
            true => None,
            false => {
                let states = self.storage.places.states().to_vec();
                let room = Room::new(&first.graph, &buffers, &plan, sizes, states)?;
                let room = room.shadowed(&self.storage);
                let needs = room.arenas().filter_map(|a| Some((a.node()?, a.used() as u64)));
                memory::check_room(&self.machine, needs)?;
                Some(room)
            }
        };
        let places = room.as_ref().map_or_else(|| first.places.clone(), |room| room.places.clone());
        let mut levels = Levels::of(&plan, &first.weight_table);
        let replica = Replica { plan, programs, places, ..first };
        let before = regroup.map(|spec| self.pool.regroup(&spec)).transpose()?;
        let replicas: Vec<LocalReplica> = match (replicate(replica, &mut self.pool), before) {
            (Ok(replicas), None) => {
                levels.keep_forced(&self.levels);
                replicas
            }
            (Ok(replicas), Some(_)) => {
                self.strayed = false;
                replicas
            }
            (Err(error), before) => {
                before.into_iter().for_each(|groups| self.pool.restore(groups));
                return Err(error);
            }
        };
        // From here on nothing fails.
        (self.replicas, self.levels) = (replicas, levels);
        if let Some(room) = room {
            self.storage.move_to(room);
        }
        (self.logits, self.hidden) = (logits, hidden);
        (self.buffers, self.scratch) = (buffers, scratch);
        self.forced = self.forced.filter(|v| self.replicas[0].programs.contains_key(v));
        self.recorder = None;
        Ok(())
    }

    /// Makes every following step be taken by the threads of this level ([`Plan::levels`]); `None`
    /// leaves the choice to the plan again. For searches and tests: all levels give the same bits.
    ///
    /// # Panics
    /// When the plan has no such level.
    pub fn force_level(&mut self, level: Option<usize>) {
        let levels = self.levels.team_threads.len();
        assert!(level.is_none_or(|level| level < levels), "level {level:?} of {levels}");
        self.levels.forced = level;
    }

    /// Pins the threads to CPUs in another order, or changes which of them take which steps. The model
    /// stays as it is; counts begin anew and a recording ends.
    ///
    /// # Errors
    /// When the groups are not those of the present plan but for the CPUs, the phases are malformed, a
    /// schedule cannot be with the new teams, or the system refuses a page for a group; nothing is changed then.
    pub fn rearrange(
        &mut self,
        groups: Vec<Group>,
        phases: Vec<Phase>,
        machine: &Machine,
    ) -> Result<(), Error> {
        let old = self.plan();
        let alike = |(a, b): (&Group, &Group)| a.node == b.node && a.cpus.len() == b.cpus.len();
        if old.groups.len() != groups.len() || !old.groups.iter().zip(&groups).all(alike) {
            return Err(Error::OtherGroups);
        }
        let plan = Plan { groups, phases, ..old.clone() };
        plan.check()?;
        let spec = plan.pool(machine);
        self.adopt(plan, Some(spec), 1)?;
        self.machine = machine.clone();
        Ok(())
    }

    /// Multiplies by other schedules from the next step on. Counts begin anew, a recording ends, and the
    /// last step's logits are gone; nothing else changes. (A variant that was forced and is of no use any more,
    /// because nobody asks for its splits, is forgotten.)
    ///
    /// # Errors
    /// When a schedule cannot be, or a node has too little memory for the summands that it makes; nothing
    /// is changed then.
    pub fn set_schedules(&mut self, schedules: Schedules) -> Result<(), Error> {
        let plan = Plan { schedules, ..self.plan().clone() };
        plan.check()?;
        self.adopt(plan, None, 1)
    }

    /// From how many nodes on sums over nodes of many rows are scattered ([`Plan::scatter_nodes`]), from the
    /// next step on. Counts begin anew, as by [`Executor::set_schedules`]; results are the same bits.
    ///
    /// # Errors
    /// When a node has too little memory for the buffers of another form; nothing is changed then.
    pub fn set_scatter_nodes(&mut self, nodes: usize) -> Result<(), Error> {
        let plan = Plan { scatter_nodes: nodes, ..self.plan().clone() };
        self.adopt(plan, None, 1)
    }
}
