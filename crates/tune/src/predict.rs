//! Seconds of a step, and what they are spent on.
//!
//! A stage takes as long as its busiest resource: a node's cores (their own rate), a memory
//! controller (shared by all its readers), or the link between a node and another's memory.
//! Readers of a node are many and at different pages, so all resources are busy at once and the
//! busiest decides; this is the asymptotic bound of a closed queueing network, reached from below.

use crate::error::Error;
use crate::machine::MachineModel;
use crate::step::{Stage, StepModel};
use std::fmt;

/// What a stage, or a step, is limited by.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// The cores of a node: more threads would help.
    Cores(usize),
    /// The memory of a node.
    Memory(usize),
    /// The way from node `cpu` to memory `memory`.
    Link {
        /// The reading node.
        cpu: usize,
        /// The node that is read from.
        memory: usize,
    },
    /// Barriers.
    Waits,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resource::Cores(node) => write!(f, "cores of node {node}"),
            Resource::Memory(node) => write!(f, "memory of node {node}"),
            Resource::Link { cpu, memory } => write!(f, "link {cpu} <- {memory}"),
            Resource::Waits => write!(f, "waits"),
        }
    }
}

/// A stage of the prediction; seconds are of all its repetitions.
#[derive(Clone, Debug, PartialEq)]
pub struct StagePrediction {
    /// The stage's name.
    pub name: String,
    /// Seconds of reading.
    pub reading: f64,
    /// Seconds of waiting.
    pub waiting: f64,
    /// The busiest resource while reading; `None` when nothing is read.
    pub limit: Option<Resource>,
}

/// What a step costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Seconds of the step.
    pub seconds: f64,
    /// Its stages, in order.
    pub stages: Vec<StagePrediction>,
    /// The resource on which most of the time goes.
    pub bottleneck: Resource,
}

impl Prediction {
    /// Tokens per second: one token a step.
    pub fn tokens_per_second(&self) -> f64 {
        1.0 / self.seconds
    }

    /// Seconds in barriers.
    pub fn waiting(&self) -> f64 {
        self.stages.iter().map(|s| s.waiting).sum()
    }
}

/// Predicts a step on a machine.
///
/// # Errors
/// When the step has other nodes than the machine, no threads, more threads than cores, or a node
/// that reads without threads.
pub fn predict(machine: &MachineModel, step: &StepModel) -> Result<Prediction, Error> {
    check(machine, step)?;
    let waits = machine.waits();
    let widest = step.threads.iter().copied().max().unwrap_or(0);
    let mut spent: Vec<(Resource, f64)> = Vec::new();
    let mut stages = Vec::new();
    for stage in &step.stages {
        let times = stage.times as f64;
        let busiest = busiest(machine, &step.threads, stage);
        let reading = busiest.map_or(0.0, |(_, seconds)| times * seconds);
        let global = waits.global(stage.waits.barrier, &step.threads);
        let local = waits.local(widest);
        let once = stage.waits.local as f64 * local + stage.waits.global as f64 * global;
        let waiting = times * once;
        spent.extend(busiest.map(|(resource, _)| (resource, reading)));
        spent.push((Resource::Waits, waiting));
        let limit = busiest.map(|(resource, _)| resource);
        stages.push(StagePrediction { name: stage.name.clone(), reading, waiting, limit });
    }
    let seconds = stages.iter().map(|s| s.reading + s.waiting).sum();
    Ok(Prediction { seconds, stages, bottleneck: most(&mut spent) })
}

/// The resource that has the most seconds in all.
fn most(spent: &mut [(Resource, f64)]) -> Resource {
    spent.sort_by_key(|&(resource, _)| resource);
    spent
        .chunk_by(|a, b| a.0 == b.0)
        .map(|same| (same[0].0, same.iter().map(|s| s.1).sum::<f64>()))
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map_or(Resource::Waits, |(resource, _)| resource)
}

/// The resource that is busy longest in one repetition, and its seconds.
fn busiest(machine: &MachineModel, threads: &[usize], stage: &Stage) -> Option<(Resource, f64)> {
    let nodes = machine.nodes();
    let mut busy = Vec::new();
    for cpu in (0..nodes).filter(|&cpu| threads[cpu] > 0) {
        let reads = &stage.reads[cpu];
        let one: f64 = (0..nodes).map(|memory| reads[memory] / machine.core(cpu, memory)).sum();
        busy.push((Resource::Cores(cpu), one / threads[cpu] as f64));
        for memory in (0..nodes).filter(|&memory| memory != cpu) {
            let seconds = reads[memory] / machine.link(cpu, memory);
            busy.push((Resource::Link { cpu, memory }, seconds));
        }
    }
    for memory in 0..nodes {
        let bytes: f64 = stage.reads.iter().map(|reads| reads[memory]).sum();
        busy.push((Resource::Memory(memory), bytes / machine.memory(memory)));
    }
    busy.into_iter().filter(|b| b.1 > 0.0).max_by(|a, b| a.1.total_cmp(&b.1))
}

fn check(machine: &MachineModel, step: &StepModel) -> Result<(), Error> {
    let nodes = machine.nodes();
    if step.threads.len() != nodes {
        return Err(Error::NodeCount { what: "the step", got: step.threads.len(), nodes });
    }
    for (node, (&threads, &cores)) in step.threads.iter().zip(machine.cores()).enumerate() {
        if threads > cores {
            return Err(Error::TooManyThreads { node, threads, cores });
        }
    }
    if step.threads.iter().all(|&n| n == 0) {
        return Err(Error::NoThreads);
    }
    for stage in &step.stages {
        let square = stage.reads.len() == nodes && stage.reads.iter().all(|r| r.len() == nodes);
        if !square {
            return Err(Error::NodeCount { what: "a stage", got: stage.reads.len(), nodes });
        }
        for (node, reads) in stage.reads.iter().enumerate() {
            let bytes: f64 = reads.iter().sum();
            if bytes > 0.0 && step.threads[node] == 0 {
                return Err(Error::ReadsWithoutThreads { stage: stage.name.clone(), node, bytes });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CoreRead, WaitModel, Waits};

    /// Two nodes of 10 cores: 100 bytes/s beside, 25 across, 20 for a core.
    fn machine() -> MachineModel {
        let read = vec![vec![100.0, 25.0], vec![25.0, 100.0]];
        let core = CoreRead { local: 20.0, remote: 10.0 };
        let line = WaitModel { arrival: 1.0, remote_arrival: 1.0, line: 1.0, remote_line: 5.0 };
        MachineModel::new(vec![10, 10], read, core, line).unwrap()
    }

    fn one_stage(threads: [usize; 2], reads: [[f64; 2]; 2]) -> StepModel {
        let mut stage = Stage::new("s", 1, 2);
        stage.reads = reads.map(Vec::from).to_vec();
        StepModel { threads: threads.to_vec(), stages: vec![stage] }
    }

    fn limit(threads: [usize; 2], reads: [[f64; 2]; 2]) -> (Resource, f64) {
        let prediction = predict(&machine(), &one_stage(threads, reads)).unwrap();
        assert_eq!(prediction.stages[0].limit, Some(prediction.bottleneck));
        (prediction.bottleneck, prediction.seconds)
    }

    #[test]
    fn each_resource_can_be_the_limit() {
        // 2 threads x 20 bytes/s.
        assert_eq!(limit([2, 0], [[400.0, 0.0], [0.0; 2]]), (Resource::Cores(0), 10.0));
        // A remote byte costs a core twice the time: 10 + 10 seconds of one thread.
        assert_eq!(limit([1, 0], [[200.0, 100.0], [0.0; 2]]), (Resource::Cores(0), 20.0));
        assert_eq!(limit([10, 0], [[400.0, 0.0], [0.0; 2]]), (Resource::Memory(0), 4.0));
        let link = Resource::Link { cpu: 0, memory: 1 };
        assert_eq!(limit([10, 0], [[400.0, 200.0], [0.0; 2]]), (link, 8.0));
        // Both nodes share the controller: 300 bytes of their own and 75 of the other.
        assert_eq!(limit([10, 10], [[300.0, 0.0], [75.0, 0.0]]), (Resource::Memory(0), 3.75));
    }

    #[test]
    fn waits_are_added_and_can_be_the_bottleneck() {
        let mut step = one_stage([4, 4], [[100.0, 0.0], [0.0, 100.0]]);
        step.stages[0].times = 3;
        step.stages[0].waits = Waits { local: 2, global: 1, ..Waits::NONE };
        let prediction = predict(&machine(), &step).unwrap();
        // Reading 100/80 s; a local wait 4 x 1 + 2 x 1 s, a flat global one 8 x 1 + 2 x 5 s.
        assert_eq!(prediction.waiting(), 3.0 * (2.0 * 6.0 + 18.0));
        assert_eq!(prediction.seconds, 3.0 * (1.25 + 30.0));
        assert_eq!(prediction.bottleneck, Resource::Waits);
    }

    #[test]
    fn impossible_steps_are_refused() {
        let refused = |step: StepModel| predict(&machine(), &step).unwrap_err();
        let none = refused(one_stage([0, 0], [[0.0; 2]; 2]));
        assert_eq!(none, Error::NoThreads);
        let many = refused(one_stage([11, 0], [[1.0, 0.0], [0.0; 2]]));
        assert_eq!(many, Error::TooManyThreads { node: 0, threads: 11, cores: 10 });
        let idle = refused(one_stage([1, 0], [[1.0, 0.0], [1.0, 0.0]]));
        assert!(matches!(idle, Error::ReadsWithoutThreads { node: 1, .. }), "{idle}");
        let mut ragged = one_stage([1, 1], [[1.0; 2]; 2]);
        ragged.stages[0].reads[1].pop();
        assert!(matches!(refused(ragged), Error::NodeCount { nodes: 2, .. }));
    }
}
