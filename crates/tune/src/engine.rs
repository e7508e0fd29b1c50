//! Engines: where the bytes of a model lie, who reads them, and how often threads wait.
//!
//! An engine is four values, so a new one is a literal. A matrix's rows (or columns) are dealt in
//! proportion to the threads of each node; activations are read once per node and then shared
//! through its last-level cache.

use crate::error::Error;
use crate::model::ModelShape;
use crate::step::{Pages, Stage, StepModel, Waits};
use crate::waits::Barrier;

/// Bytes of an activation: f32.
const ACTIVATION: f64 = 4.0;

/// Where the weights and the KV cache of the layers lie.
#[derive(Clone, Debug, PartialEq)]
pub enum Placement {
    /// Tensor parallel: each node holds what its own threads read. Two gathers a layer.
    Split,
    /// Wherever the system put the pages. A thread's rows do not depend on where they lie.
    Spread(Pages),
    /// Whole layers per node; with one sequence one node works at a time.
    Pipeline,
}

/// How an engine places, reads and waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Engine {
    /// Of the layers, and of the LM head unless `head` says otherwise.
    pub placement: Placement,
    /// Where the LM head lies when it is not placed like the layers.
    pub head: Option<Pages>,
    /// Waits of a layer.
    pub layer_waits: Waits,
}

impl Engine {
    /// This project's placement: everything split, five waits a layer, two of them global (Sync B).
    pub fn tensor_parallel() -> Engine {
        let layer_waits = Waits { local: 3, global: 2, barrier: Barrier::Hierarchical };
        Engine { placement: Placement::Split, head: None, layer_waits }
    }

    /// The same with every wait global (Sync A).
    pub fn tensor_parallel_sync_a() -> Engine {
        let layer_waits = Waits { local: 0, global: 5, barrier: Barrier::Hierarchical };
        Engine { layer_waits, ..Engine::tensor_parallel() }
    }

    /// This project with whole layers per node and a hand-over between nodes.
    pub fn pipeline() -> Engine {
        let layer_waits = Waits { local: 5, global: 0, barrier: Barrier::Hierarchical };
        Engine { placement: Placement::Pipeline, head: None, layer_waits }
    }

    /// An engine that leaves pages to the system and waits for all threads on one counter after
    /// each of some 20 operators a layer, as llama.cpp does.
    pub fn unplaced(pages: Pages) -> Engine {
        let layer_waits = Waits { local: 0, global: 20, barrier: Barrier::Flat };
        Engine { placement: Placement::Spread(pages), head: None, layer_waits }
    }

    /// The step that decodes one token after `context` others with `threads[node]` threads.
    ///
    /// # Errors
    /// When there are no threads, or pages lie on more or fewer nodes than `threads` has.
    pub fn step(
        &self,
        model: &ModelShape,
        context: usize,
        threads: &[usize],
    ) -> Result<StepModel, Error> {
        let nodes = threads.len();
        let spread = match &self.placement {
            Placement::Spread(pages) => Some(pages),
            Placement::Split | Placement::Pipeline => None,
        };
        for pages in spread.into_iter().chain(&self.head) {
            if pages.shares().len() != nodes {
                let got = pages.shares().len();
                return Err(Error::NodeCount { what: "a list of page shares", got, nodes });
            }
        }
        let dealer = Dealer::new(threads)?;
        let mut stages = match &self.placement {
            Placement::Pipeline => self.pipelined_layers(model, context, &dealer),
            Placement::Split | Placement::Spread(_) => {
                self.parallel_layers(model, context, &dealer)
            }
        };
        let mut head = Stage::new("head", 1, nodes);
        match (&self.placement, &self.head) {
            (Placement::Pipeline, None) => head.reads[dealer.last][dealer.last] = model.head(),
            (_, pages) => dealer.deal(&mut head, model.head(), pages.as_ref().or(spread)),
        }
        head.waits = Waits { local: 0, global: 1, ..self.layer_waits };
        stages.push(head);
        Ok(StepModel { threads: threads.to_vec(), stages })
    }

    /// Layers on which all nodes work together.
    fn parallel_layers(&self, model: &ModelShape, context: usize, dealer: &Dealer) -> Vec<Stage> {
        let pages = match &self.placement {
            Placement::Spread(pages) => Some(pages),
            Placement::Split | Placement::Pipeline => None,
        };
        let heads = model.heads * model.head_dim;
        // (stage, bytes of its operand, width of its input, input is a sum of the nodes' partials)
        let parts = [
            ("qkv", model.qkv(), model.hidden, true),
            ("attention", model.kv(context), heads, false),
            ("o", model.o(), heads, false),
            ("gate-up", model.gate_up(), model.hidden, true),
            ("down", model.down(), model.ff, false),
        ];
        let mut stages = Vec::new();
        for (name, bytes, width, partial) in parts {
            let mut stage = Stage::new(name, model.layers, dealer.threads.len());
            dealer.deal(&mut stage, bytes, pages);
            match (pages.is_some(), partial) {
                // Split by heads or by rows: the input is where it was made. Only sums cross.
                (false, false) => {}
                (false, true) => dealer.exchange(&mut stage, width, |_| 1.0),
                // Every thread wants the whole input; each node made its share of it.
                (true, _) => dealer.exchange(&mut stage, width, |node| dealer.share(node)),
            }
            stages.push(stage);
        }
        let mut waits = Stage::new("waits", model.layers, dealer.threads.len());
        waits.waits = self.layer_waits;
        stages.push(waits);
        stages
    }

    /// Layers dealt over nodes, which work one after the other.
    fn pipelined_layers(&self, model: &ModelShape, context: usize, dealer: &Dealer) -> Vec<Stage> {
        let nodes = dealer.threads.len();
        let layer = model.qkv() + model.kv(context) + model.o() + model.gate_up() + model.down();
        let mut stages = Vec::new();
        let (mut done, mut share, mut before) = (0, 0.0, None);
        for node in (0..nodes).filter(|&n| dealer.threads[n] > 0) {
            share += dealer.share(node);
            let end = (model.layers as f64 * share).round() as usize;
            if let Some(before) = before {
                let mut hand_over = Stage::new("hand-over", 1, nodes);
                hand_over.reads[node][before] = model.hidden as f64 * ACTIVATION;
                hand_over.waits = Waits { local: 0, global: 1, ..self.layer_waits };
                stages.push(hand_over);
            }
            let mut stage = Stage::new(format!("layers of node {node}"), end - done, nodes);
            stage.reads[node][node] = layer;
            stage.waits = self.layer_waits;
            stages.push(stage);
            (done, before) = (end, Some(node));
        }
        stages
    }
}

/// Deals bytes over the nodes by their threads.
struct Dealer<'a> {
    threads: &'a [usize],
    all: usize,
    /// The last node that has threads.
    last: usize,
}

impl<'a> Dealer<'a> {
    fn new(threads: &'a [usize]) -> Result<Dealer<'a>, Error> {
        let last = threads.iter().rposition(|&n| n > 0).ok_or(Error::NoThreads)?;
        Ok(Dealer { threads, all: threads.iter().sum(), last })
    }

    fn share(&self, node: usize) -> f64 {
        self.threads[node] as f64 / self.all as f64
    }

    /// `bytes` of a matrix or cache; `None` puts each node's share beside it.
    fn deal(&self, stage: &mut Stage, bytes: f64, pages: Option<&Pages>) {
        for (cpu, row) in stage.reads.iter_mut().enumerate() {
            let own = bytes * self.share(cpu);
            match pages {
                None => row[cpu] += own,
                Some(pages) => {
                    for (read, share) in row.iter_mut().zip(pages.shares()) {
                        *read += own * share;
                    }
                }
            }
        }
    }

    /// Every node reads `of(other)` of an activation of `width` floats from each other node.
    fn exchange(&self, stage: &mut Stage, width: usize, of: impl Fn(usize) -> f64) {
        for (cpu, row) in stage.reads.iter_mut().enumerate() {
            for (other, read) in row.iter_mut().enumerate() {
                if cpu != other && self.threads[cpu] > 0 && self.threads[other] > 0 {
                    *read += width as f64 * ACTIVATION * of(other);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known::qwen3_4b_q4_0;

    fn weights_and_kv() -> f64 {
        let model = qwen3_4b_q4_0();
        model.bytes() + model.layers as f64 * model.kv(100)
    }

    #[test]
    fn every_placement_reads_every_weight_once() {
        let interleaved = Engine::unplaced(Pages::interleaved(3).unwrap());
        for engine in [Engine::tensor_parallel(), Engine::pipeline(), interleaved] {
            for threads in [[4, 4, 4], [1, 2, 3], [5, 0, 2], [0, 1, 0]] {
                let step = engine.step(&qwen3_4b_q4_0(), 100, &threads).unwrap();
                let (local, remote) = step.bytes();
                let over = (local + remote) / weights_and_kv() - 1.0;
                // On top come the inputs of five stages, 92 KB a layer, which each of 3 nodes reads
                // from the 2 others' shares: 0.28 %.
                assert!((-1e-9..3e-3).contains(&over), "{engine:?} {threads:?}: {over}");
            }
        }
    }

    #[test]
    fn split_weights_are_local_and_only_sums_cross() {
        let model = qwen3_4b_q4_0();
        let step = Engine::tensor_parallel().step(&model, 100, &[48; 4]).unwrap();
        let (local, remote) = step.bytes();
        assert!((local / weights_and_kv() - 1.0).abs() < 1e-9);
        // Two sums a layer of 2560 floats, which each of 4 nodes reads from 3 others.
        assert_eq!(remote, (36 * 2 * 2560 * 4 * 4 * 3) as f64);
        assert_eq!(step.waits(), (36 * 3, 36 * 2 + 1));
    }

    #[test]
    fn spread_pages_are_local_to_one_in_n() {
        let engine = Engine::unplaced(Pages::interleaved(4).unwrap());
        let (local, remote) = engine.step(&qwen3_4b_q4_0(), 100, &[16; 4]).unwrap().bytes();
        let share = local / (local + remote);
        // A quarter; 0.42 % of all bytes are activations, which are read from others only.
        assert!((share - 0.25 / 1.0042).abs() < 1e-5, "{share}");
    }

    #[test]
    fn a_pipeline_has_every_layer_once() {
        let step = Engine::pipeline().step(&qwen3_4b_q4_0(), 0, &[1, 0, 2, 4]).unwrap();
        let layers = step.stages.iter().filter(|s| s.name.starts_with("layers"));
        assert_eq!(layers.map(|s| s.times).collect::<Vec<_>>(), [5, 10, 21]);
    }

    #[test]
    fn impossible_steps_are_refused() {
        let model = qwen3_4b_q4_0();
        let none = Engine::tensor_parallel().step(&model, 0, &[0, 0]);
        assert_eq!(none, Err(Error::NoThreads));
        let pages = Engine::unplaced(Pages::interleaved(4).unwrap()).step(&model, 0, &[1, 1]);
        assert!(matches!(pages, Err(Error::NodeCount { got: 4, nodes: 2, .. })), "{pages:?}");
    }
}
