//! Seconds of a step, and what they are spent on.
//!
//! A stage takes as long as its busiest resource: a node's cores, which read at a rate of their own
//! and multiply at another, a memory controller (shared by all its readers), or the link between a
//! node and another's memory. Readers of a node are many and at different pages, so all resources are
//! busy at once and the busiest decides; this is the asymptotic bound of a closed queueing network,
//! reached from below. What threads do not share, and waits, come on top.

use crate::error::Error;
use crate::machine::MachineModel;
use crate::step::{Stage, StepModel};
use kernels::ActKind;
use std::fmt;

/// What a stage, or a step, is limited by.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// How fast the cores of a node read: more threads would help.
    Cores(usize),
    /// How fast the cores of a node multiply: more threads would help.
    Multiply(usize),
    /// The memory of a node.
    Memory(usize),
    /// The way from node `cpu` to memory `memory`.
    Link {
        /// The reading node.
        cpu: usize,
        /// The node that is read from.
        memory: usize,
    },
    /// Work that threads do not share: Amdahl's serial part.
    Alone,
    /// Barriers.
    Waits,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resource::Cores(node) => write!(f, "cores of node {node}"),
            Resource::Multiply(node) => write!(f, "multipliers of node {node}"),
            Resource::Memory(node) => write!(f, "memory of node {node}"),
            Resource::Link { cpu, memory } => write!(f, "link {cpu} <- {memory}"),
            Resource::Alone => write!(f, "serial part"),
            Resource::Waits => write!(f, "waits"),
        }
    }
}

/// A stage of the prediction; seconds are of all its repetitions.
#[derive(Clone, Debug, PartialEq)]
pub struct StagePrediction {
    /// The stage's name.
    pub name: String,
    /// Seconds of reading and multiplying, at the same time.
    pub working: f64,
    /// Seconds of what threads do not share.
    pub alone: f64,
    /// Seconds of waiting.
    pub waiting: f64,
    /// The busiest resource while working; `None` when there is nothing to do.
    pub limit: Option<Resource>,
}

impl StagePrediction {
    /// Seconds in all.
    pub fn seconds(&self) -> f64 {
        self.working + self.alone + self.waiting
    }
}

/// What a step costs, or several steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// New tokens.
    pub tokens: usize,
    /// Seconds.
    pub seconds: f64,
    /// Its stages by name, those of all layers together, in the order in which each comes first.
    pub stages: Vec<StagePrediction>,
    /// The resource on which most of the time goes.
    pub bottleneck: Resource,
}

impl Prediction {
    /// New tokens per second.
    pub fn tokens_per_second(&self) -> f64 {
        self.tokens as f64 / self.seconds
    }

    /// Seconds of what threads do not share.
    pub fn alone(&self) -> f64 {
        self.stages.iter().map(|s| s.alone).sum()
    }

    /// Seconds in barriers.
    pub fn waiting(&self) -> f64 {
        self.stages.iter().map(|s| s.waiting).sum()
    }

    fn of(tokens: usize, all: Vec<StagePrediction>) -> Prediction {
        let seconds = all.iter().map(StagePrediction::seconds).sum();
        let bottleneck = most(&all);
        let mut stages: Vec<StagePrediction> = Vec::new();
        let mut longest: Vec<f64> = Vec::new();
        for stage in all {
            let Some(at) = stages.iter().position(|s| s.name == stage.name) else {
                longest.push(stage.working);
                stages.push(stage);
                continue;
            };
            let sum = &mut stages[at];
            sum.working += stage.working;
            sum.alone += stage.alone;
            sum.waiting += stage.waiting;
            if stage.working > longest[at] {
                (longest[at], sum.limit) = (stage.working, stage.limit);
            }
        }
        Prediction { tokens, seconds, stages, bottleneck }
    }
}

/// Predicts a step on a machine.
///
/// # Errors
/// When the step has other nodes than the machine, or more threads than cores.
pub fn predict(machine: &MachineModel, step: &StepModel) -> Result<Prediction, Error> {
    predict_all(machine, std::slice::from_ref(step))
}

/// Predicts steps that follow each other.
pub(crate) fn predict_all(
    machine: &MachineModel,
    steps: &[StepModel],
) -> Result<Prediction, Error> {
    let mut all = Vec::new();
    for step in steps {
        all.extend(stages(machine, step)?);
    }
    Ok(Prediction::of(steps.iter().map(|step| step.tokens).sum(), all))
}

/// The stages of a step that its time is made of. Of what goes on beside each other in a round of a pipeline,
/// that is what takes longest: all meet before the next round.
fn stages(machine: &MachineModel, step: &StepModel) -> Result<Vec<StagePrediction>, Error> {
    check(machine, &step.threads)?;
    let time =
        |stages: &[StagePrediction]| stages.iter().map(StagePrediction::seconds).sum::<f64>();
    let mut all = Vec::new();
    for round in &step.rounds {
        let programs = round.iter().map(|program| -> Vec<StagePrediction> {
            program.iter().map(|stage| predict_stage(machine, &step.threads, stage)).collect()
        });
        all.extend(programs.max_by(|a, b| time(a).total_cmp(&time(b))).into_iter().flatten());
    }
    let meetings = Stage { waits: step.meetings, ..Stage::new("rest", 1, machine.nodes()) };
    let sampling = Stage { alone: step.sampling, ..Stage::new("sampling", 1, machine.nodes()) };
    all.extend([meetings, sampling].map(|stage| predict_stage(machine, &step.threads, &stage)));
    Ok(all)
}

fn predict_stage(machine: &MachineModel, threads: &[usize], stage: &Stage) -> StagePrediction {
    let (waits, times) = (machine.waits(), stage.times as f64);
    let busiest = busiest(machine, threads, stage);
    let global = waits.global(stage.waits.barrier, threads);
    let local = waits.local(threads.iter().copied().max().unwrap_or(0));
    let once = stage.waits.local as f64 * local + stage.waits.global as f64 * global;
    StagePrediction {
        name: stage.name.clone(),
        working: busiest.map_or(0.0, |(_, seconds)| times * seconds),
        alone: times * stage.alone / machine.math().elements,
        waiting: times * once,
        limit: busiest.map(|(resource, _)| resource),
    }
}

/// The resource that has the most seconds in all.
fn most(stages: &[StagePrediction]) -> Resource {
    let spent = |s: &StagePrediction| {
        let working = s.limit.map(|resource| (resource, s.working));
        working.into_iter().chain([(Resource::Alone, s.alone), (Resource::Waits, s.waiting)])
    };
    let mut spent: Vec<(Resource, f64)> = stages.iter().flat_map(spent).collect();
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
    let rates = [ActKind::F32, ActKind::Bf16, ActKind::Q8].map(|kind| machine.math().rate(kind));
    let mut busy = Vec::new();
    for cpu in (0..nodes).filter(|&cpu| threads[cpu] > 0) {
        let (reads, threads) = (&stage.reads[cpu], threads[cpu] as f64);
        let one: f64 = (0..nodes).map(|memory| reads[memory] / machine.core(cpu, memory)).sum();
        busy.push((Resource::Cores(cpu), one / threads));
        let one: f64 = stage.macs[cpu].iter().zip(rates).map(|(macs, rate)| macs / rate).sum();
        busy.push((Resource::Multiply(cpu), one / threads));
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

fn check(machine: &MachineModel, threads: &[usize]) -> Result<(), Error> {
    if threads.len() != machine.nodes() {
        let (got, nodes) = (threads.len(), machine.nodes());
        return Err(Error::NodeCount { what: "the step", got, nodes });
    }
    let mut nodes = threads.iter().zip(machine.cores()).enumerate();
    match nodes.find(|(_, (threads, cores))| threads > cores) {
        Some((node, (&threads, &cores))) => Err(Error::TooManyThreads { node, threads, cores }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CoreMath, CoreRead, WaitModel, Waits};

    /// Two nodes of 10 cores: 100 bytes/s beside, 25 across, 20 for a core; 50 products/s a core.
    fn machine() -> MachineModel {
        let read = vec![vec![100.0, 25.0], vec![25.0, 100.0]];
        let core = CoreRead { local: 20.0, remote: 10.0 };
        let line = WaitModel { arrival: 1.0, remote_arrival: 1.0, line: 1.0, remote_line: 5.0 };
        let math = CoreMath { int8: 50.0, bf16: 25.0, f32: 10.0, elements: 4.0 };
        MachineModel::new(vec![10, 10], read, core, math, line).unwrap()
    }

    fn stage(reads: [[f64; 2]; 2]) -> Stage {
        Stage { reads: reads.map(Vec::from).to_vec(), ..Stage::new("s", 1, 2) }
    }

    fn step(threads: [usize; 2], stage: Stage) -> StepModel {
        let rounds = vec![vec![vec![stage]]];
        StepModel {
            tokens: 1,
            threads: threads.to_vec(),
            rounds,
            meetings: Waits::NONE,
            sampling: 0.0,
        }
    }

    fn one_stage(threads: [usize; 2], reads: [[f64; 2]; 2]) -> StepModel {
        step(threads, stage(reads))
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
        let mut stage = stage([[100.0, 0.0], [0.0, 100.0]]);
        stage.times = 3;
        stage.waits = Waits { local: 2, global: 1, ..Waits::NONE };
        let mut step = step([4, 4], stage);
        step.meetings = Waits { global: 2, ..Waits::NONE };
        let prediction = predict(&machine(), &step).unwrap();
        // Reading 100/80 s; a local wait 4 x 1 + 2 x 1 s, a flat global one 8 x 1 + 2 x 5 s.
        assert_eq!(prediction.waiting(), 3.0 * (2.0 * 6.0 + 18.0) + 2.0 * 18.0);
        assert_eq!(prediction.seconds, 3.0 * 1.25 + prediction.waiting());
        assert_eq!(prediction.bottleneck, Resource::Waits);
    }

    #[test]
    fn products_and_bytes_go_on_together_and_the_serial_part_alone() {
        let mut stage = stage([[100.0, 0.0], [0.0, 10.0]]);
        // Reading 100 / 80 s; 1000 products on 4 x 50/s are 5 s.
        stage.macs = vec![[0.0, 0.0, 1000.0], [0.0, 0.0, 100.0]];
        let with = |stage: &Stage| predict(&machine(), &step([4, 2], stage.clone())).unwrap();
        let prediction = with(&stage);
        assert_eq!((prediction.seconds, prediction.bottleneck), (5.0, Resource::Multiply(0)));
        // In floats, of which a core has 10/s, and some in both.
        stage.macs[0] = [1000.0, 0.0, 0.0];
        assert_eq!(with(&stage).seconds, 25.0);
        stage.macs[0] = [800.0, 0.0, 1000.0];
        assert_eq!(with(&stage).seconds, 25.0);
        // 200 elements at 4/s are not divided by the threads.
        stage.alone = 200.0;
        let prediction = with(&stage);
        assert_eq!((prediction.seconds, prediction.bottleneck), (75.0, Resource::Alone));
        assert_eq!((prediction.stages[0].working, prediction.alone()), (25.0, 50.0));
        let many = StepModel { tokens: 150, ..step([4, 2], stage) };
        assert_eq!(predict(&machine(), &many).unwrap().tokens_per_second(), 2.0);
    }

    #[test]
    fn a_round_of_a_pipeline_takes_as_long_as_its_slowest_place() {
        let (first, second) = (stage([[80.0, 0.0], [0.0; 2]]), stage([[0.0; 2], [0.0, 160.0]]));
        let rounds = vec![
            vec![vec![first.clone()]],
            vec![vec![first], vec![second.clone()]],
            vec![vec![second]],
        ];
        let meetings = Waits { global: 3, ..Waits::NONE };
        let step = StepModel { tokens: 1, threads: vec![4, 4], rounds, meetings, sampling: 0.0 };
        // 1 s, 2 s and 2 s, and a flat wait of 18 s after each.
        let prediction = predict(&machine(), &step).unwrap();
        assert_eq!(prediction.seconds, 5.0 + 3.0 * 18.0);
        assert_eq!(step.reads(), [[160.0, 0.0], [0.0, 320.0]]);
        // All that have a name are one, limited by what limits the longest.
        let sum = &prediction.stages[0];
        assert_eq!((sum.working, sum.limit), (5.0, Some(Resource::Cores(1))));
    }

    #[test]
    fn impossible_steps_are_refused() {
        let refused = |step: StepModel| predict(&machine(), &step).unwrap_err();
        let many = refused(one_stage([11, 0], [[1.0, 0.0], [0.0; 2]]));
        assert_eq!(many, Error::TooManyThreads { node: 0, threads: 11, cores: 10 });
        let narrow = StepModel { threads: vec![1], ..one_stage([1, 0], [[0.0; 2]; 2]) };
        assert!(matches!(refused(narrow), Error::NodeCount { got: 1, nodes: 2, .. }));
    }
}
