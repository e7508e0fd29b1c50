//! A loaded model's plan and products: read, timed and changed between steps.
//!
//! Reports, profiles, benches, the tuner and tests use these methods; serving does not. No change alters the bits of
//! later results.

use crate::engine::Engine;
use crate::error::Error;
use graph::{
    Graph, Logits, MatrixShape, Needs, Phase, Plan, Schedule, Schedules, ShapeUse, Stage,
    TensorSquares, Variant,
};
use kernels::Kernels;
use std::time::Duration;
use threads::Pool;
use topology::{CpuId, Group, Machine};

/// The model as it is loaded.
impl Engine {
    /// The model's graph.
    pub fn graph(&self) -> &Graph {
        self.executor.graph()
    }

    /// Groups of threads, the threads of each phase, and schedules.
    pub fn plan(&self) -> &Plan {
        self.executor.plan()
    }

    /// The kernels in use.
    pub fn kernels(&self) -> &'static Kernels {
        self.executor.kernels()
    }

    /// The compiled stages of a form, for each pipeline stage (one without a pipeline). `None` if the form is not
    /// compiled.
    pub fn program(&self, variant: Variant) -> Option<&[Vec<Stage>]> {
        self.executor.program(variant)
    }

    /// The shapes of all products of a step, in the order of the first layer that has them: `[level][shape]`, with a
    /// level for each number of threads in the plan ([`Plan::levels`]).
    pub fn matrix_shapes(&self) -> Vec<Vec<ShapeUse>> {
        self.executor.matrix_shapes()
    }

    /// Minimum work of a step over all places, in any form.
    pub fn needs(&self) -> Needs {
        self.executor.needs()
    }

    /// Bytes of weights that each thread streams in a step of all threads. Every expert of a bank is counted.
    pub fn streamed_bytes(&self) -> Vec<u64> {
        self.executor.streamed_bytes()
    }

    /// The thread pool, for measurements on the model's threads.
    pub fn pool(&mut self) -> &mut Pool {
        self.executor.pool()
    }
}

/// Measurements of products.
impl Engine {
    /// Seconds that a product of this shape with `tokens` tokens takes by `schedule` on the threads of a level. Runs are
    /// repeated for about `most`, and the fastest counts ([`graph::Executor::time_matrices`]).
    ///
    /// Sequences and their pages stay as they are. Counts restart, and the last step's logits are lost.
    ///
    /// # Errors
    /// When the model has no such shape at the level, the schedule is not possible, `tokens` exceeds the limits of a
    /// step, memory does not suffice for the summands, or a worker panicked.
    ///
    /// # Panics
    /// When the plan has no such level.
    pub fn time_matrices(
        &mut self,
        shape: &MatrixShape,
        level: usize,
        tokens: usize,
        schedule: &Schedule,
        most: Duration,
    ) -> Result<f64, Error> {
        Ok(self.executor.time_matrices(shape, level, tokens, schedule, most)?)
    }

    /// Starts to sum the squares of all inputs of products, which slows steps down. A profile records nothing until
    /// [`Engine::take_squares`].
    pub fn begin_squares(&mut self) {
        self.executor.begin_squares();
    }

    /// Ends the sums of [`Engine::begin_squares`] and returns them for each tensor that was multiplied.
    pub fn take_squares(&mut self) -> Vec<TensorSquares> {
        self.executor.take_squares()
    }

    /// Logits of the last step. Tests read with it the results of [`Engine::time_matrices`].
    #[doc(hidden)]
    pub fn logits(&self) -> Logits<'_> {
        self.executor.logits()
    }
}

/// Changes between two steps. Weights, sequences and pages stay as they are.
impl Engine {
    /// Pins the threads to CPUs in another order, or changes the threads of each phase. Counts restart, and a profile
    /// ends.
    ///
    /// # Errors
    /// When groups differ from those of the present plan in more than CPUs, the phases are malformed, a schedule is not
    /// possible with the new teams, or a thread cannot be started; the engine is unchanged then.
    pub fn rearrange(
        &mut self,
        groups: Vec<Group>,
        phases: Vec<Phase>,
        machine: &Machine,
    ) -> Result<(), Error> {
        Ok(self.executor.rearrange(groups, phases, machine)?)
    }

    /// Multiplies by these schedules from the next step on. Counts restart, a profile ends, and the last step's logits
    /// are lost. A forced variant whose program is no longer compiled is forgotten.
    ///
    /// # Errors
    /// When a schedule is not possible, or a node has too little memory for its summands; the engine is unchanged then.
    pub fn set_schedules(&mut self, schedules: Schedules) -> Result<(), Error> {
        Ok(self.executor.set_schedules(schedules)?)
    }

    /// Sets the number of nodes from which sums of many rows are scattered ([`Plan::scatter_nodes`]), from the next step
    /// on. Counts restart.
    ///
    /// # Errors
    /// When a node has too little memory for the buffers of the other form; the engine is unchanged then.
    pub fn set_scatter_nodes(&mut self, nodes: usize) -> Result<(), Error> {
        Ok(self.executor.set_scatter_nodes(nodes)?)
    }

    /// Runs every following step on the threads of this level ([`Plan::levels`]); with `None`, the plan chooses again.
    ///
    /// # Panics
    /// When the plan has no such level.
    pub fn force_level(&mut self, level: Option<usize>) {
        self.executor.force_level(level);
    }

    /// Uses this form in every following step that can be run in it; with `None`, the plan chooses again.
    ///
    /// # Errors
    /// When the form is not compiled.
    pub fn force_variant(&mut self, variant: Option<Variant>) -> Result<(), Error> {
        Ok(self.executor.force_variant(variant)?)
    }

    /// Runs the following steps without these CPUs; with none, on all again. Counts go on. For tests: an engine whose
    /// cores are not fixed does so itself when other programs use them.
    ///
    /// # Errors
    /// When a group would have no thread, or a thread cannot be started; the engine is unchanged then.
    #[doc(hidden)]
    pub fn leave_out(&mut self, cpus: &[CpuId]) -> Result<(), Error> {
        Ok(self.executor.leave_out(cpus)?)
    }

    /// Sets whether threads that finish their part of a product early take over tiles of late ones. For tests: an engine
    /// decides it itself.
    #[doc(hidden)]
    pub fn share_products(&mut self, so: bool) {
        self.executor.share_products(so);
    }
}
