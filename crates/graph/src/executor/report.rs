//! What an executor holds, where that lies, and what its steps did.

use super::Executor;
use crate::book::{Counts, Demand, Desk, Needs};
use crate::error::Error;
use crate::exec::Replica;
use crate::profile::{Profile, Recorder};
use crate::storage::NodeBytes;
use crate::variant::Variant;
use memory::{Arena, Pages};
use std::ops::Range;

impl Executor {
    /// Bytes of weights, KV pages and activations in each place (see [`Plan::places`](crate::Plan::places)); copies of
    /// weights are added up where there is one place only.
    pub fn node_bytes(&self) -> Vec<NodeBytes> {
        let mut bytes = self.storage.bytes();
        for arenas in [self.weights.arenas(), self.weights.adapters()] {
            for (copy, arena) in arenas.iter().enumerate() {
                let place = copy.min(bytes.len() - 1);
                bytes[place].weights += arena.used();
            }
        }
        bytes
    }

    /// All memory of the model, for asking the kernel where its pages are.
    pub fn arenas(&self) -> impl Iterator<Item = &Arena> {
        let weights = [self.weights.arenas(), self.weights.adapters()].into_iter().flatten();
        weights.chain(self.storage.arenas())
    }

    /// Where the weights lie that the threads of `group` stream, as the kernel says.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn streamed_pages(&self, group: usize) -> Result<Pages, Error> {
        let plan = self.plan();
        let mut ranks = plan.group_threads()[group].clone();
        if plan.places() > 1 {
            ranks = 0..ranks.len(); // its own team
        }
        let mut pages = Pages::default();
        for block in self.weights.weight_table.streamed(group, ranks) {
            let more = memory::pages_by_node(block)?;
            for (node, count) in more.by_node {
                *pages.by_node.entry(node).or_default() += count;
            }
            pages.absent += more.absent;
        }
        Ok(pages)
    }

    /// Bytes of the weights that each thread streams in a step that all take, by thread; of a bank of experts, all of
    /// its part.
    pub fn streamed_bytes(&self) -> Vec<u64> {
        let plan = self.plan();
        let groups = plan.group_threads().into_iter().enumerate();
        let of = |(group, threads): (usize, Range<usize>)| {
            // Its own team, or that of all.
            let first = if plan.places() > 1 { 0 } else { threads.start };
            let ranks = first..first + threads.len();
            ranks.map(move |rank| {
                let blocks = self.weights.weight_table.streamed(group, rank..rank + 1);
                blocks.map(|block| block.len() as u64).sum()
            })
        };
        groups.flat_map(of).collect()
    }

    /// What a step needs at least, over all places, whatever its form.
    pub fn needs(&self) -> Needs {
        let Replica { graph, plan, programs, weight_table, .. } = &*self.replicas[0];
        // With adapters its products are those of a step without, and some besides, which are counted by themselves.
        let variant = Variant { adapts: !graph.tables.lows.is_empty(), ..Variant::DECODE };
        let stages = &programs[&variant].stages;
        let home = |matrix| weight_table.home(matrix);
        let (kv, level) = (self.limits.kv, plan.levels().len() - 1);
        let mut needs = Needs::default();
        for place in 0..plan.places() {
            let desk = Desk { tables: &graph.tables, plan, kv, level, place, home: &home };
            let program = stages[place.min(stages.len() - 1)].iter();
            let lines = program.flat_map(|stage| &stage.instrs).flat_map(|i| i.lines(&desk));
            lines.for_each(|line| needs.add(line.per, Demand::of(&line)));
        }
        needs
    }

    /// What steps have done since loading or [`Executor::reset_counts`].
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Times that each expert was chosen since then: `[router][expert]`.
    pub fn chosen_experts(&self) -> Vec<Vec<u64>> {
        self.tally.chosen()
    }

    /// Begins to count anew.
    pub fn reset_counts(&mut self) {
        self.counts = Counts::new(&self.replicas[0].plan);
        self.tally.reset();
        self.pool.reset_stats();
    }

    /// Begins to record what every thread does in every step, or begins anew. Each thread has room
    /// for `room` events of 16 bytes; memory is taken as they come.
    ///
    /// # Errors
    /// When a thread panics that allocates its log.
    pub fn begin_profile(&mut self, room: usize) -> Result<(), Error> {
        let (replica, buffers) = (&self.replicas[0], &self.buffers);
        let (kernels, kv) = (self.kernels, self.limits.kv);
        let recorder = Recorder::new(room, replica, kernels, buffers, kv, &mut self.pool)?;
        self.recorder = Some(recorder);
        Ok(())
    }

    /// What was recorded since [`Executor::begin_profile`] or the last call; recording goes on.
    /// `None` if it never began.
    pub fn take_profile(&mut self) -> Option<Profile> {
        self.recorder.as_mut().map(Recorder::take)
    }

    /// As [`Executor::take_profile`], but ends the recording.
    pub fn end_profile(&mut self) -> Option<Profile> {
        self.recorder.take().map(|mut recorder| recorder.take())
    }

    /// What the system refused when threads and memory were made; the model works regardless.
    pub fn warnings(&self) -> Vec<String> {
        let pins = self.pool.warnings().iter().map(ToString::to_string);
        let mut all: Vec<String> = pins.chain(self.refused.clone()).collect();
        for warning in self.arenas().flat_map(|a| a.warnings()).map(ToString::to_string) {
            if !all.contains(&warning) {
                all.push(warning);
            }
        }
        all
    }

    /// Whether the system has moved threads off the CPUs that they were pinned to. What they read
    /// is no longer near then; they go on, and sleep while they wait.
    pub fn strayed(&self) -> bool {
        self.strayed
    }
}
