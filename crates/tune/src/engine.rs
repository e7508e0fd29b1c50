//! Engines: which nodes share a model, where the bytes lie, and how often threads wait.
//!
//! This project's engine is its compiled program: what each node reads and sends, what threads do for
//! themselves and how often they wait is in it. Others are described by what is published of them, over the
//! program of the same model: they read the same bytes and multiply as much, from other places, and execute
//! an operator after the other with a wait after each. Of an input each node makes its share, and reads that of
//! the others once: its last-level cache shares it among the threads. Where no layer is split over nodes, threads share a
//! product by its results and the operators between products by rows, so a row's thread reads results of the
//! other nodes, while nothing is multiplied.

use crate::error::Error;
use crate::machine::Matrix;
use crate::model::{Instruction, Kept, ModelGraphs, Of, Program, Repeated, Term};
use crate::step::{Pages, Stage, StepModel, Waits, Work};
use crate::waits::Barrier;
use graph::{Dealt, Extent, Mode, Scope, Sync};

/// Where the weights and the KV cache of the layers lie.
#[derive(Clone, Debug, PartialEq)]
pub enum Placement {
    /// Tensor parallel: each node holds what its own threads read.
    Split,
    /// Whole layers per node; with one sequence one node works at a time.
    Pipeline,
    /// Wherever the system put the pages. A thread's rows do not depend on where they lie.
    Spread(Pages),
    /// All weights in each node; the KV cache once, page by page round the nodes.
    Mirrored,
}

/// How an engine places, reads and waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Engine {
    /// Of the layers, and of the LM head unless `head` says otherwise.
    pub placement: Placement,
    /// Where the LM head lies when it is not placed like the layers.
    pub head: Option<Pages>,
    /// Which of the compiled program's waits are for all nodes.
    pub sync: Sync,
    /// Waits of a layer in place of those of the compiled program, in engines that execute an operator
    /// after the other. These also have more passes over activations, in which a row is one thread's: two norms
    /// and their weights, five quantisations of the residual stream and two sums; function, product and
    /// quantisation in the MLP.
    pub operators: Option<Waits>,
}

impl Engine {
    /// This project's engine: everything split, global waits only where nodes exchange sums (Sync B).
    pub fn tensor_parallel() -> Engine {
        Engine { placement: Placement::Split, head: None, sync: Sync::Derived, operators: None }
    }

    /// The same with every wait global (Sync A).
    pub fn tensor_parallel_sync_a() -> Engine {
        Engine { sync: Sync::Global, ..Engine::tensor_parallel() }
    }

    /// This project with whole layers per node and a hand-over between nodes.
    pub fn pipeline() -> Engine {
        Engine { placement: Placement::Pipeline, ..Engine::tensor_parallel() }
    }

    /// An engine that leaves pages to the system and waits for all threads on one counter after
    /// each of some 20 operators a layer, as llama.cpp does.
    pub fn unplaced(pages: Pages) -> Engine {
        Engine { placement: Placement::Spread(pages), ..Engine::replicated() }
    }

    /// The same with a copy of all weights in each node.
    pub fn replicated() -> Engine {
        let waits = Waits { local: 0, global: 20, barrier: Barrier::Flat };
        Engine {
            placement: Placement::Mirrored,
            operators: Some(waits),
            ..Engine::tensor_parallel()
        }
    }

    /// The step that does some work with `threads[node]` threads.
    ///
    /// # Errors
    /// When there are no threads or no tokens, pages lie on more or fewer nodes than `threads` has, or a
    /// pipeline has more nodes than the model has layers.
    pub fn step(
        &self,
        model: &ModelGraphs<'_>,
        work: Work,
        threads: &[usize],
    ) -> Result<StepModel, Error> {
        if work.tokens == 0 || work.sequences == 0 {
            return Err(Error::NoTokens);
        }
        let spread = match &self.placement {
            Placement::Spread(pages) => Some(pages),
            _ => None,
        };
        for pages in spread.into_iter().chain(&self.head) {
            let (got, nodes) = (pages.shares().len(), threads.len());
            if got != nodes {
                return Err(Error::NodeCount { what: "a list of page shares", got, nodes });
            }
        }
        let nodes: Vec<usize> = (0..threads.len()).filter(|&node| threads[node] > 0).collect();
        let all: usize = threads.iter().sum();
        if all == 0 {
            return Err(Error::NoThreads);
        }
        let of_nodes: Vec<usize> = nodes.iter().map(|&node| threads[node]).collect();
        let (mode, groups) = match self.placement {
            Placement::Split => (Mode::TensorParallel, of_nodes),
            Placement::Pipeline => (Mode::Pipeline, of_nodes),
            Placement::Spread(_) | Placement::Mirrored => (Mode::TensorParallel, vec![all]),
        };
        let compiled = model.compile(mode, self.sync, &groups, work)?;
        let crew = Crew { engine: self, nodes: &nodes, threads, all };
        // In a pipeline, place s works on part r - s in round r.
        let places = compiled.parts[0].0.len();
        let part = |round: usize, place: usize| {
            let (programs, extent) = compiled.parts.get(round.checked_sub(place)?)?;
            Some(crew.stages(&programs[place], place, extent))
        };
        let rounds = (0..compiled.parts.len() + places - 1)
            .map(|round| (0..places).filter_map(|place| part(round, place)).collect())
            .collect();
        let (global, barrier) = match self.operators {
            None => (compiled.meetings, Barrier::Hierarchical),
            Some(waits) => (1, waits.barrier),
        };
        let meetings = Waits { local: 0, global, barrier };
        // This engine deals sequences to threads. Peers sample all of them on one thread.
        let samplers = if self.operators.is_none() { all } else { 1 };
        let sampling =
            (work.sequences.div_ceil(samplers) * compiled.vocab) as f64 / LOGITS_PER_ELEMENT;
        Ok(StepModel {
            tokens: work.tokens * work.sequences,
            threads: threads.to_vec(),
            rounds,
            meetings,
            sampling,
        })
    }
}

/// Logits that a core compares while it passes over one element of a norm: docs/cost-model.md has the origin.
const LOGITS_PER_ELEMENT: f64 = 6.0;

/// Who executes a program.
struct Crew<'a> {
    engine: &'a Engine,
    /// Those that have threads.
    nodes: &'a [usize],
    threads: &'a [usize],
    all: usize,
}

impl Crew<'_> {
    /// The stages of a program whose first place is `first`.
    fn stages(&self, program: &Program, first: usize, extent: &Extent) -> Vec<Stage> {
        let mut stages: Vec<Stage> =
            program.stages.iter().map(|stage| self.stage(stage, first, extent)).collect();
        if let Some(waits) = self.engine.operators {
            let reads = self.results(program, extent);
            stages.push(Stage {
                waits,
                reads,
                ..Stage::new("rest", program.layers, self.threads.len())
            });
        }
        stages
    }

    /// Bytes that cross in a layer where products are dealt by their results and the operators between them by rows:
    /// the thread of a row reads the results of all threads.
    fn results(&self, program: &Program, extent: &Extent) -> Matrix {
        let nodes = self.threads.len();
        let mut reads = vec![vec![0.0; nodes]; nodes];
        let alike = matches!(self.engine.placement, Placement::Split | Placement::Pipeline);
        if alike || program.layers == 0 {
            return reads;
        }
        let of = |stage: &Repeated| {
            let of = |instr: &Instruction| instr.results * instr.rows(extent);
            stage.times as f64 * stage.instrs.iter().map(of).sum::<f64>()
        };
        let elements = program.stages.iter().map(of).sum::<f64>() / program.layers as f64;
        let share = |node: usize| self.threads[node] as f64 / self.all as f64;
        for &cpu in self.nodes {
            for &other in self.nodes.iter().filter(|&&other| other != cpu) {
                reads[cpu][other] = elements * size_of::<f32>() as f64 * share(cpu) * share(other);
            }
        }
        reads
    }

    fn stage(&self, from: &Repeated, first: usize, extent: &Extent) -> Stage {
        let mut stage = Stage::new(&from.name, from.times, self.threads.len());
        if self.engine.operators.is_none() {
            stage.waits = match from.wait {
                None => Waits::NONE,
                Some(Scope::Local) => Waits { local: 1, global: 0, barrier: Barrier::Hierarchical },
                Some(Scope::Global) => {
                    Waits { local: 0, global: 1, barrier: Barrier::Hierarchical }
                }
            };
        }
        let places = from.instrs.first().map_or(0, |instr| instr.terms.len());
        for place in 0..places {
            let own = self.passes(from, place, self.nodes[first + place], extent);
            stage.alone = stage.alone.max(own);
            for instr in &from.instrs {
                for term in &instr.terms[place] {
                    let amount = term.amount * term.units(extent);
                    match self.engine.placement {
                        Placement::Split | Placement::Pipeline => {
                            self.at_home(&mut stage, term, first + place, amount);
                        }
                        Placement::Spread(_) | Placement::Mirrored => {
                            self.dealt(&mut stage, term, instr.shared, amount);
                        }
                    }
                }
            }
        }
        stage
    }

    /// Elements that the thread with most rows passes over.
    fn passes(&self, stage: &Repeated, place: usize, node: usize, extent: &Extent) -> f64 {
        let team = match self.engine.placement {
            Placement::Split | Placement::Pipeline => self.threads[node],
            Placement::Spread(_) | Placement::Mirrored => self.all,
        };
        let most = |rows: f64| (rows / team as f64).ceil();
        let own = |term: &Term| match (term.of, term.dealt) {
            (Of::Pass, Dealt::Each) => term.amount * term.units(extent),
            (Of::Pass, Dealt::Team) => term.amount * most(term.units(extent)),
            _ => 0.0,
        };
        let of = |instr: &Instruction| match self.engine.operators {
            None => instr.terms[place].iter().map(own).sum::<f64>(),
            Some(_) => instr.operators[place] * most(instr.rows(extent)),
        };
        stage.instrs.iter().map(of).sum()
    }

    /// What the team of a place does, whose weights and keys lie beside it.
    fn at_home(&self, stage: &mut Stage, term: &Term, place: usize, amount: f64) {
        let cpu = self.nodes[place];
        match (term.of, &self.engine.head) {
            (Of::Bytes { .. }, Some(pages)) if term.of_head() => {
                add(&mut stage.reads[cpu], pages, amount);
            }
            // Its own activations are in its cache.
            (Of::Bytes { kept: Kept::Rows, place: at, .. }, _) if at == place => {}
            (Of::Bytes { place: at, .. }, _) => stage.reads[cpu][self.nodes[at]] += amount,
            (Of::Multiply(kind), _) => stage.macs[cpu][kind as usize] += amount,
            (Of::Pass, _) => {}
        }
    }

    /// What all threads share, wherever it lies.
    fn dealt(&self, stage: &mut Stage, term: &Term, shared: bool, amount: f64) {
        let share = |node: usize| self.threads[node] as f64 / self.all as f64;
        let even = Pages::interleaved(self.threads.len()).expect("there are threads");
        for &cpu in self.nodes {
            let own = amount * share(cpu);
            let reads = &mut stage.reads[cpu];
            match (term.of, &self.engine.placement) {
                // Every node wants the whole input.
                (Of::Bytes { kept: Kept::Rows, write: false, .. }, _) if shared => {
                    for &other in self.nodes.iter().filter(|&&other| other != cpu) {
                        reads[other] += amount * share(other);
                    }
                }
                (Of::Bytes { kept: Kept::Rows, .. }, _) => {}
                (Of::Bytes { .. }, _) if term.of_head() && self.engine.head.is_some() => {
                    self.engine.head.iter().for_each(|pages| add(reads, pages, own));
                }
                (Of::Bytes { .. }, Placement::Spread(pages)) => add(reads, pages, own),
                (Of::Bytes { kept: Kept::State, .. }, _) => add(reads, &even, own),
                (Of::Bytes { .. }, _) => reads[cpu] += own,
                (Of::Multiply(kind), _) => stage.macs[cpu][kind as usize] += own,
                (Of::Pass, _) => {}
            }
        }
    }
}

/// Bytes, as pages are spread.
fn add(reads: &mut [f64], pages: &Pages, bytes: f64) {
    for (read, share) in reads.iter_mut().zip(pages.shares()) {
        *read += bytes * share;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known::{self, qwen3_4b_q4_0};

    const DEEP: Work = Work { tokens: 1, context: 100, sequences: 1 };
    // Qwen3-4B: widths of the residual stream, of all query heads and of the MLP.
    const LAYERS: usize = 36;
    const HIDDEN: usize = 2560;
    const HEADS: usize = 4096;
    const FF: usize = 9728;
    const VOCAB: usize = 151_936;
    // Results of a layer's products: queries, keys and values; attention's output; gate and up; down.
    const RESULTS: usize = HEADS + 2 * 1024 + HIDDEN + 2 * FF + HIDDEN;

    fn sums(step: &StepModel) -> (f64, f64) {
        let reads = step.reads();
        let all: f64 = reads.iter().flatten().sum();
        let local: f64 = (0..reads.len()).map(|node| reads[node][node]).sum();
        (local, all - local)
    }

    /// Waits of the stages, local and global.
    fn waits(step: &StepModel) -> (usize, usize) {
        let of = |of: fn(&Waits) -> usize| step.stages().map(|s| s.times * of(&s.waits)).sum();
        (of(|w| w.local), of(|w| w.global))
    }

    fn alone(step: &StepModel) -> f64 {
        step.stages().map(|s| s.times as f64 * s.alone).sum()
    }

    fn ours(work: Work, threads: &[usize]) -> StepModel {
        Engine::tensor_parallel().step(&qwen3_4b_q4_0(), work, threads).unwrap()
    }

    fn spread(nodes: usize) -> Engine {
        Engine::unplaced(Pages::interleaved(nodes).unwrap())
    }

    #[test]
    fn every_placement_reads_every_weight_once() {
        let model = qwen3_4b_q4_0();
        let (weights, kv) = model.bytes(1, DEEP.context).unwrap();
        let engines =
            [Engine::tensor_parallel(), Engine::pipeline(), Engine::replicated(), spread(3)];
        for engine in engines {
            for threads in [[4, 4, 4], [1, 2, 3], [5, 0, 2], [0, 1, 0]] {
                let (local, remote) = sums(&engine.step(&model, DEEP, &threads).unwrap());
                let over = (local + remote) / (weights + kv) - 1.0;
                // On top come the new token's keys and values, sums or inputs of stages, logits, and, most
                // of all on three nodes, the padding of pieces of columns that are summed apart.
                assert!((0.0..6e-3).contains(&over), "{engine:?} {threads:?}: {over}");
            }
        }
    }

    #[test]
    fn split_weights_are_local_and_only_sums_cross() {
        let (_, remote) = sums(&ours(DEEP, &[48; 4]));
        // Two sums a layer of 2560 floats, which each of 4 nodes sends to 3 others; a row of the embedding
        // in three of four cases for each node, and the logits of three nodes.
        let crossing = LAYERS * 2 * 4 * 3 + 3;
        let logits = VOCAB * 3 / 4;
        assert_eq!(remote, 4.0 * (crossing * HIDDEN + logits) as f64);
    }

    #[test]
    fn waits_and_passes_are_those_of_the_compiled_program() {
        for nodes in [1, 2, 4] {
            let step = ours(DEEP, &[8, 8, 8, 8][..nodes]);
            // Five a layer, two of them global; one for the embedding.
            let (local, global) = waits(&step);
            let all = match nodes {
                1 => (5 * LAYERS + 1, 0),
                _ => (3 * LAYERS + 1, 2 * LAYERS),
            };
            assert_eq!((local, global), all, "{nodes} nodes");
            // Two norms and two quantisations of the residual stream, and two sums of all nodes' summands;
            // each node joins and quantises its heads and quantises its inner vector. Norm and quantisation
            // before the head.
            let inner = (2 * HEADS + FF) / nodes;
            let passes = LAYERS * ((4 + 2 * nodes) * HIDDEN + inner) + 2 * HIDDEN;
            assert_eq!(alone(&step), passes as f64, "{nodes} nodes");
        }
        let b = waits(&ours(DEEP, &[8, 8]));
        let a = Engine::tensor_parallel_sync_a().step(&qwen3_4b_q4_0(), DEEP, &[8, 8]).unwrap();
        assert_eq!(waits(&a), (0, b.0 + b.1));
    }

    #[test]
    fn engines_of_operators_pass_more_often_and_wait_as_published() {
        let model = qwen3_4b_q4_0();
        let step = spread(2).step(&model, DEEP, &[8, 8]).unwrap();
        // Eleven passes over the residual stream, one over heads, three over the MLP; before the head a norm,
        // its weights and a quantisation.
        let passes = LAYERS * (11 * HIDDEN + HEADS + 3 * FF) + 3 * HIDDEN;
        assert_eq!((alone(&step), waits(&step)), (passes as f64, (0, 20 * LAYERS)));
        let step = known::arclight(4).step(&model, DEEP, &[8; 4]).unwrap();
        // Two sums of four summands, and a quarter of the rest.
        let passes = LAYERS * ((9 + 2 * 4) * HIDDEN + (HEADS + 3 * FF) / 4) + 3 * HIDDEN;
        assert_eq!((alone(&step), waits(&step)), (passes as f64, (24 * LAYERS, 23 * LAYERS)));
        // The head is on node 0, also for node 3.
        let head = step.stages().find(|stage| stage.name == "head").unwrap();
        assert!(head.reads[3][0] > 1e7 && head.reads[3][3] == 0.0);
    }

    #[test]
    fn sequences_are_sampled_on_all_threads_here_and_on_one_elsewhere() {
        let sixteen = Work { sequences: 16, ..DEEP };
        let logits = |engine: &Engine, threads: &[usize]| {
            let step = engine.step(&qwen3_4b_q4_0(), sixteen, threads).unwrap();
            step.sampling * LOGITS_PER_ELEMENT / VOCAB as f64
        };
        let ours = Engine::tensor_parallel();
        assert_eq!(
            [[8, 8], [4, 2], [1, 0]].map(|threads| logits(&ours, &threads)),
            [1.0, 3.0, 16.0]
        );
        assert_eq!([[8, 8], [1, 0]].map(|threads| logits(&spread(2), &threads)), [16.0, 16.0]);
    }

    #[test]
    fn every_engine_multiplies_all_tokens_with_all_weights() {
        let model = qwen3_4b_q4_0();
        let layer = HIDDEN * (HEADS + 2 * 1024) + HEADS * HIDDEN + 3 * HIDDEN * FF;
        for engine in
            [Engine::tensor_parallel(), Engine::pipeline(), Engine::replicated(), spread(3)]
        {
            for tokens in [1, 7, 100] {
                let step = engine
                    .step(&model, Work { tokens, context: 50, sequences: 1 }, &[3, 0, 4])
                    .unwrap();
                let pairs: usize = (0..tokens).map(|i| 50 + i + 1).sum();
                let macs = LAYERS * (tokens * layer + pairs * 2 * HEADS) + HIDDEN * VOCAB;
                let of = |s: &Stage| s.times as f64 * s.macs.iter().flatten().sum::<f64>();
                let seen: f64 = step.stages().map(of).sum();
                assert!((seen / macs as f64 - 1.0).abs() < 1e-9, "{engine:?} {tokens}");
            }
        }
    }

    #[test]
    fn sums_of_a_prompt_are_scattered_over_more_than_two_nodes() {
        let prompt = |threads: &[usize]| {
            let step = ours(Work { tokens: 200, context: 0, sequences: 1 }, threads);
            (sums(&step).1, waits(&step).1)
        };
        // Two sums a layer of 200 x 2560 floats over 2 links, whole; over 12 links, half of it. Rows of the
        // embedding and logits are a part in a hundred.
        let whole = (LAYERS * 2 * 200 * HIDDEN * 4) as f64;
        for (threads, sums, global) in [([4, 4, 0, 0], 2.0, 2), ([4; 4], 6.0, 4)] {
            let (bytes, waits) = prompt(&threads);
            assert!((1.0..1.02).contains(&(bytes / (sums * whole))), "{bytes}");
            assert_eq!(waits / LAYERS, global);
        }
    }

    #[test]
    fn rows_that_products_give_cross_where_no_layer_is_split() {
        let model = qwen3_4b_q4_0();
        let tokens = 300;
        let crossing = |engine: &Engine, threads: &[usize]| -> f64 {
            let work = Work { tokens, context: 0, sequences: 1 };
            let step = engine.step(&model, work, threads).unwrap();
            let rest = step.stages().filter(|s| s.name == "rest" && s.waits.global > 0);
            rest.map(|s| s.times as f64 * s.reads.iter().flatten().sum::<f64>()).sum()
        };
        // Floats. Each node makes a quarter of them and reads a quarter.
        let whole = (4 * LAYERS * RESULTS * tokens) as f64;
        let ratio = crossing(&spread(4), &[8; 4]) / whole;
        assert!((ratio - 0.75).abs() < 1e-9, "{ratio}");
        assert_eq!(crossing(&spread(4), &[8, 0, 0, 0]), 0.0);
        // With unequal shares: all pairs except those of a node with itself.
        let ratio = crossing(&spread(2), &[6, 2]) / whole;
        assert!((ratio - (1.0 - 0.75 * 0.75 - 0.25 * 0.25)).abs() < 1e-9, "{ratio}");
        // ArcLight's layers are split: its nodes only exchange sums, which the compiled program has.
        assert_eq!(crossing(&known::arclight(4), &[8; 4]), 0.0);
    }

    #[test]
    fn pages_decide_who_reads_from_where() {
        let model = qwen3_4b_q4_0();
        let (weights, kv) = model.bytes(1, DEEP.context).unwrap();
        // Weights in every node, and half of the cache.
        let (local, _) = sums(&Engine::replicated().step(&model, DEEP, &[4, 4]).unwrap());
        assert!((local / (weights + kv / 2.0) - 1.0).abs() < 1e-4);
        // A quarter; less than 0.3 % of all bytes are inputs, which are read from others only. So are results.
        let (local, remote) = sums(&spread(4).step(&model, DEEP, &[16; 4]).unwrap());
        let remote = remote - 0.75 * (4 * LAYERS * RESULTS) as f64;
        assert!((0.2492..0.25).contains(&(local / (local + remote))), "{local} {remote}");
    }

    #[test]
    fn a_pipeline_has_every_layer_once_and_parts_follow_each_other() {
        let model = qwen3_4b_q4_0();
        let step = |work| Engine::pipeline().step(&model, work, &[1, 0, 2, 4]).unwrap();
        let decode = step(DEEP);
        let layers = |programs: &[Vec<Stage>]| -> Vec<usize> {
            let of = |stages: &Vec<Stage>| {
                stages.iter().filter(|s| s.name == "gate_up").map(|s| s.times).sum()
            };
            programs.iter().map(of).collect()
        };
        let rounds: Vec<Vec<usize>> = decode.rounds.iter().map(|round| layers(round)).collect();
        assert_eq!(rounds.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1]);
        assert_eq!(rounds.iter().flatten().sum::<usize>(), LAYERS);
        assert!(rounds[0][0] < rounds[1][0] && rounds[1][0] < rounds[2][0], "{rounds:?}");
        // Four parts of 32 tokens through three nodes; all meet between rounds and in the end.
        let prompt = step(Work { tokens: 128, context: 0, sequences: 1 });
        assert_eq!(prompt.rounds.iter().map(Vec::len).collect::<Vec<_>>(), [1, 2, 3, 3, 2, 1]);
        assert_eq!((prompt.meetings.global, decode.meetings.global), (7, 4));
    }

    #[test]
    fn impossible_steps_are_refused() {
        let model = qwen3_4b_q4_0();
        let none = Engine::tensor_parallel().step(&model, DEEP, &[0, 0]);
        assert_eq!(none, Err(Error::NoThreads));
        let pages = spread(4).step(&model, DEEP, &[1, 1]);
        assert!(matches!(pages, Err(Error::NodeCount { got: 4, nodes: 2, .. })), "{pages:?}");
        let empty =
            Engine::pipeline().step(&model, Work { tokens: 0, context: 0, sequences: 1 }, &[1, 1]);
        assert_eq!(empty, Err(Error::NoTokens));
        let deep = Engine::pipeline().step(&model, DEEP, &[1; 40]).unwrap_err().to_string();
        assert!(deep.contains("36"), "{deep}");
    }
}
