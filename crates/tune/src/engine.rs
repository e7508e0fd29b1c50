//! Engines: where the bytes of a model lie, who reads them, and how often threads wait.
//!
//! An engine is a few values, so a new one is a literal. A matrix's rows (or columns) are dealt in
//! proportion to the threads of each node; activations are read once per node and then shared
//! through its last-level cache.

use crate::error::Error;
use crate::machine::Math;
use crate::model::{ModelShape, Weights};
use crate::step::{Pages, Stage, StepModel, Waits};
use crate::waits::Barrier;
use crate::work::Work;

/// Bytes of an activation: f32.
const ACTIVATION: f64 = 4.0;

/// Tokens of a step that follow each other through a pipeline together, at least
/// (`Plan::pipeline_tokens`).
const PIPELINE_TOKENS: usize = 32;

/// Where the weights and the KV cache of the layers lie.
#[derive(Clone, Debug, PartialEq)]
pub enum Placement {
    /// Tensor parallel: each node holds what its own threads read. Two gathers a layer.
    Split,
    /// Wherever the system put the pages. A thread's rows do not depend on where they lie.
    Spread(Pages),
    /// All weights in each node; the KV cache once, page by page round the nodes.
    Mirrored,
    /// Whole layers per node; with one sequence one node works at a time.
    Pipeline,
}

/// Passes over the vectors of a token, in each layer, that no other thread shares: Amdahl's serial
/// part. Rows of several tokens are dealt over the threads, those of a single one are not.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Alone {
    /// Over the residual stream: norms, scaling, quantisation for the matrices that read it. Adding
    /// to it counts by itself: once for each summand.
    pub hidden: f64,
    /// Over the attention's result: quantisation.
    pub heads: f64,
    /// Over the MLP's inner vector: function, product, quantisation.
    pub ff: f64,
}

/// How an engine places, reads and waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Engine {
    /// Of the layers, and of the LM head unless `head` says otherwise.
    pub placement: Placement,
    /// Where the LM head lies when it is not placed like the layers.
    pub head: Option<Pages>,
    /// Waits of a layer when a step has one token.
    pub layer_waits: Waits,
    /// Waits of a layer when a step has many.
    pub prompt_waits: Waits,
    /// What threads do for themselves while others wait or do the same.
    pub alone: Alone,
}

/// This project: the thread that multiplies norms and quantises its input for itself, and the
/// function of the MLP is taken where its product is.
const OURS: Alone = Alone { hidden: 4.0, heads: 1.0, ff: 1.0 };

/// An operator for each: two norms and their weights, five quantisations of the residual stream;
/// function, product and quantisation in the MLP.
const OPERATORS: Alone = Alone { hidden: 9.0, heads: 1.0, ff: 3.0 };

/// Local waits of a layer with many tokens, where norms and quantisations are stages of their own
/// (`models/tests/waits.rs`: ten waits, two of them global).
const LOCAL_PROMPT_WAITS: usize = 8;

impl Engine {
    /// This project's placement: everything split, five waits a layer, two of them global (Sync B).
    /// With many tokens what is norm and quantisation for each thread becomes stages of their own.
    pub fn tensor_parallel() -> Engine {
        let layer_waits = Waits { local: 3, global: 2, barrier: Barrier::Hierarchical };
        let prompt_waits = Waits { local: LOCAL_PROMPT_WAITS, ..layer_waits };
        Engine { placement: Placement::Split, head: None, layer_waits, prompt_waits, alone: OURS }
    }

    /// The same with every wait global (Sync A).
    pub fn tensor_parallel_sync_a() -> Engine {
        let all = |w: Waits| Waits { local: 0, global: w.local + w.global, ..w };
        let b = Engine::tensor_parallel();
        let (layer_waits, prompt_waits) = (all(b.layer_waits), all(b.prompt_waits));
        Engine { layer_waits, prompt_waits, ..b }
    }

    /// This project with whole layers per node and a hand-over between nodes.
    pub fn pipeline() -> Engine {
        let all = |w: Waits| Waits { local: w.local + w.global, global: 0, ..w };
        let b = Engine::tensor_parallel();
        let (layer_waits, prompt_waits) = (all(b.layer_waits), all(b.prompt_waits));
        Engine { placement: Placement::Pipeline, layer_waits, prompt_waits, ..b }
    }

    /// An engine that leaves pages to the system and waits for all threads on one counter after
    /// each of some 20 operators a layer, as llama.cpp does.
    pub fn unplaced(pages: Pages) -> Engine {
        Engine::one_team(Placement::Spread(pages))
    }

    /// The same with a copy of all weights in each node.
    pub fn replicated() -> Engine {
        Engine::one_team(Placement::Mirrored)
    }

    fn one_team(placement: Placement) -> Engine {
        let waits = Waits { local: 0, global: 20, barrier: Barrier::Flat };
        let (layer_waits, prompt_waits) = (waits, waits);
        Engine { placement, head: None, layer_waits, prompt_waits, alone: OPERATORS }
    }

    /// The step that does some work with `threads[node]` threads.
    ///
    /// # Errors
    /// When there are no threads or no tokens, or pages lie on more or fewer nodes than `threads` has.
    pub fn step(
        &self,
        model: &ModelShape,
        work: Work,
        threads: &[usize],
    ) -> Result<StepModel, Error> {
        let nodes = threads.len();
        if work.tokens == 0 {
            return Err(Error::NoTokens);
        }
        let spread = match &self.placement {
            Placement::Spread(pages) => Some(pages),
            Placement::Split | Placement::Mirrored | Placement::Pipeline => None,
        };
        for pages in spread.into_iter().chain(&self.head) {
            if pages.shares().len() != nodes {
                let got = pages.shares().len();
                return Err(Error::NodeCount { what: "a list of page shares", got, nodes });
            }
        }
        let dealer = Dealer::new(threads)?;
        let (mut stages, parts) = match &self.placement {
            Placement::Pipeline => self.pipelined_layers(model, work, &dealer),
            Placement::Split | Placement::Mirrored | Placement::Spread(_) => {
                (self.parallel_layers(model, work, &dealer)?, 1)
            }
        };
        // Logits are wanted of the last token only.
        let mut head = Stage::new("head", 1, nodes);
        head.math = model.head_math;
        match (&self.placement, &self.head) {
            (Placement::Pipeline, None) => {
                head.reads[dealer.last][dealer.last] = model.head().bytes;
                head.macs[dealer.last] = model.head().count;
            }
            (_, pages) => {
                dealer.deal(&mut head, model.head().bytes, pages.as_ref().or(spread));
                dealer.multiply(&mut head, model.head().count);
            }
        }
        head.waits = Waits { local: 0, global: 1, ..self.layer_waits };
        stages.push(head);
        Ok(StepModel { tokens: work.tokens, parts, threads: threads.to_vec(), stages })
    }

    fn waits(&self, work: Work) -> Waits {
        if work.tokens > 1 { self.prompt_waits } else { self.layer_waits }
    }

    /// Elements that the thread with most rows passes over in a layer; rows are dealt over `threads`.
    fn alone(&self, model: &ModelShape, work: Work, threads: usize, nodes: usize) -> f64 {
        let Alone { hidden, heads, ff } = self.alone;
        // Tensor parallel: each node sums what all have, and has its slice of the rest.
        let (summands, share) = match self.placement {
            Placement::Split => (nodes as f64, 1.0 / nodes as f64),
            Placement::Spread(_) | Placement::Mirrored | Placement::Pipeline => (1.0, 1.0),
        };
        let rows = work.tokens.div_ceil(threads) as f64;
        let inner = heads * (model.heads * model.head_dim) as f64 + ff * model.ff as f64;
        rows * ((hidden + 2.0 * summands) * model.hidden as f64 + inner * share)
    }

    /// Layers on which all nodes work together.
    fn parallel_layers(
        &self,
        model: &ModelShape,
        work: Work,
        dealer: &Dealer,
    ) -> Result<Vec<Stage>, Error> {
        let nodes = dealer.threads.len();
        let interleaved = Pages::interleaved(nodes)?;
        let (weights, kv) = match &self.placement {
            Placement::Spread(pages) => (Some(pages), Some(pages)),
            Placement::Mirrored => (None, Some(&interleaved)),
            Placement::Split | Placement::Pipeline => (None, None),
        };
        let split = self.placement == Placement::Split;
        let heads = model.heads * model.head_dim;
        let seen = Weights { bytes: model.kv(work), count: model.attention(work) };
        // (stage, operand, width of its input, input is a sum of the nodes' partials)
        let parts = [
            ("qkv", model.qkv(), model.hidden, true),
            ("attention", seen, heads, false),
            ("o", model.o(), heads, false),
            ("gate-up", model.gate_up(), model.hidden, true),
            ("down", model.down(), model.ff, false),
        ];
        let tokens = work.tokens as f64;
        let mut stages = Vec::new();
        for (name, operand, width, partial) in parts {
            let mut stage = Stage::new(name, model.layers, nodes);
            if name == "attention" {
                stage.math = Math::F32;
                dealer.deal(&mut stage, operand.bytes, kv);
                dealer.multiply(&mut stage, operand.count);
            } else {
                stage.math = model.layer_math;
                dealer.deal(&mut stage, operand.bytes, weights);
                dealer.multiply(&mut stage, tokens * operand.count);
            }
            let bytes = tokens * width as f64 * ACTIVATION;
            match (split, partial) {
                // Split by heads or by rows: the input is where it was made. Only sums cross.
                (true, false) => {}
                (true, true) => dealer.gather(&mut stage, bytes, work.tokens > 1),
                // Every thread wants the whole input; each node made its share of it.
                (false, _) => dealer.exchange(&mut stage, bytes, |node| dealer.share(node)),
            }
            stages.push(stage);
        }
        let mut rest = Stage::new("rows and waits", model.layers, nodes);
        let rows = if split { dealer.widest() } else { dealer.all };
        rest.alone = self.alone(model, work, rows, dealer.working());
        rest.waits = self.waits(work);
        if split && work.tokens > 1 && dealer.working() > 2 {
            // Reduce-scatter and all-gather: another wait for each of the two sums.
            rest.waits.global += 2;
        }
        stages.push(rest);
        Ok(stages)
    }

    /// Layers dealt over nodes, which work one after the other, or on parts that follow each other.
    fn pipelined_layers(
        &self,
        model: &ModelShape,
        work: Work,
        dealer: &Dealer,
    ) -> (Vec<Stage>, usize) {
        let nodes = dealer.threads.len();
        let parts = (work.tokens / PIPELINE_TOKENS).max(1);
        // The mean part: rows and pairs are dealt evenly, weights are read for each.
        let tokens = work.tokens as f64 / parts as f64;
        let part = Work { tokens: work.tokens.div_ceil(parts), context: work.context };
        let layer = model.layer();
        let bytes = layer.bytes + model.kv(work);
        let attention = model.attention(work) / parts as f64;
        let mut stages = Vec::new();
        let (mut done, mut share, mut before) = (0, 0.0, None);
        for node in (0..nodes).filter(|&n| dealer.threads[n] > 0) {
            share += dealer.share(node);
            let end = (model.layers as f64 * share).round() as usize;
            if let Some(before) = before {
                let mut hand_over = Stage::new("hand-over", 1, nodes);
                hand_over.reads[node][before] = tokens * model.hidden as f64 * ACTIVATION;
                hand_over.waits = Waits { local: 0, global: 1, ..self.layer_waits };
                hand_over.piped = true;
                stages.push(hand_over);
            }
            let mut stage = Stage::new(format!("layers of node {node}"), end - done, nodes);
            stage.reads[node][node] = bytes;
            stage.math = model.layer_math;
            stage.macs[node] = tokens * layer.count;
            stage.alone = self.alone(model, part, dealer.threads[node], 1);
            stage.waits = self.waits(work);
            stage.piped = true;
            let mut attend = Stage::new(format!("attention of node {node}"), end - done, nodes);
            attend.math = Math::F32;
            attend.macs[node] = attention;
            attend.piped = true;
            stages.extend([stage, attend]);
            (done, before) = (end, Some(node));
        }
        (stages, parts)
    }
}

/// Deals bytes and products over the nodes by their threads.
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

    /// Nodes that have threads.
    fn working(&self) -> usize {
        self.threads.iter().filter(|&&n| n > 0).count()
    }

    /// Threads of the node that has most.
    fn widest(&self) -> usize {
        self.threads.iter().copied().max().unwrap_or(1)
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

    /// Multiply-accumulates, to each node its share.
    fn multiply(&self, stage: &mut Stage, macs: f64) {
        for (node, own) in stage.macs.iter_mut().enumerate() {
            *own += macs * self.share(node);
        }
    }

    /// A sum of `bytes` over the nodes, wanted by all. One shot: each reads every other's summand.
    /// In large, on more than two nodes, each sums its part (reduce-scatter) and gives it to all.
    fn gather(&self, stage: &mut Stage, bytes: f64, large: bool) {
        let nodes = self.working() as f64;
        let of = if large { (2.0 / nodes).min(1.0) } else { 1.0 };
        self.exchange(stage, bytes, |_| of);
    }

    /// Every node reads `of(other)` of the bytes of an activation from each other node.
    fn exchange(&self, stage: &mut Stage, bytes: f64, of: impl Fn(usize) -> f64) {
        for (cpu, row) in stage.reads.iter_mut().enumerate() {
            for (other, read) in row.iter_mut().enumerate() {
                if cpu != other && self.threads[cpu] > 0 && self.threads[other] > 0 {
                    *read += bytes * of(other);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known::qwen3_4b_q4_0;

    const DEEP: Work = Work { tokens: 1, context: 100 };

    fn weights_and_kv() -> f64 {
        let model = qwen3_4b_q4_0();
        model.bytes() + model.layers as f64 * model.kv(DEEP)
    }

    #[test]
    fn every_placement_reads_every_weight_once() {
        let interleaved = Engine::unplaced(Pages::interleaved(3).unwrap());
        let engines =
            [Engine::tensor_parallel(), Engine::pipeline(), Engine::replicated(), interleaved];
        for engine in engines {
            for threads in [[4, 4, 4], [1, 2, 3], [5, 0, 2], [0, 1, 0]] {
                let step = engine.step(&qwen3_4b_q4_0(), DEEP, &threads).unwrap();
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
        let step = Engine::tensor_parallel().step(&model, DEEP, &[48; 4]).unwrap();
        let (local, remote) = step.bytes();
        assert!((local / weights_and_kv() - 1.0).abs() < 1e-9);
        // Two sums a layer of 2560 floats, which each of 4 nodes reads from 3 others.
        assert_eq!(remote, (36 * 2 * 2560 * 4 * 4 * 3) as f64);
        assert_eq!(step.waits(), (36 * 3, 36 * 2 + 1));
    }

    #[test]
    fn every_engine_multiplies_all_tokens_with_all_weights() {
        let model = qwen3_4b_q4_0();
        let spread = Engine::unplaced(Pages::interleaved(3).unwrap());
        for engine in [Engine::tensor_parallel(), Engine::pipeline(), Engine::replicated(), spread]
        {
            for tokens in [1, 7, 100] {
                let work = Work::prompt(tokens, 50);
                let step = engine.step(&model, work, &[3, 0, 4]).unwrap();
                let layer = tokens as f64 * model.layer().count + model.attention(work);
                let macs = model.layers as f64 * layer + model.head().count;
                assert!((step.macs() / macs - 1.0).abs() < 1e-9, "{engine:?} {tokens}");
                assert_eq!(step.tokens, tokens);
            }
        }
    }

    #[test]
    fn sums_of_a_prompt_are_scattered_over_more_than_two_nodes() {
        let model = qwen3_4b_q4_0();
        let prompt = |threads: &[usize]| {
            let step = Engine::tensor_parallel().step(&model, Work::prompt(10, 0), threads);
            let step = step.unwrap();
            (step.bytes().1, step.waits())
        };
        // Two sums a layer of 10 x 2560 floats over 2 links, whole; over 12 links, half of it.
        let sums = (36 * 2 * 10 * 2560 * 4) as f64;
        assert_eq!(prompt(&[4, 4, 0, 0]), (2.0 * sums, (36 * 8, 36 * 2 + 1)));
        assert_eq!(prompt(&[4; 4]), (6.0 * sums, (36 * 8, 36 * 4 + 1)));
    }

    #[test]
    fn replicated_weights_are_local_and_the_cache_is_not() {
        let model = qwen3_4b_q4_0();
        let step = Engine::replicated().step(&model, DEEP, &[4, 4]).unwrap();
        let (local, remote) = step.bytes();
        let kv = model.layers as f64 * model.kv(DEEP);
        assert!((local / (model.bytes() + kv / 2.0) - 1.0).abs() < 1e-9);
        // Half of the cache, and of each input its half from the other node: 92 KB a layer in all.
        let inputs = (36 * 4 * (2 * 2560 + 2 * 4096 + 9728)) as f64;
        assert!((remote / (kv / 2.0 + inputs) - 1.0).abs() < 1e-9, "{remote} {kv} {inputs}");
    }

    #[test]
    fn spread_pages_are_local_to_one_in_n() {
        let engine = Engine::unplaced(Pages::interleaved(4).unwrap());
        let (local, remote) = engine.step(&qwen3_4b_q4_0(), DEEP, &[16; 4]).unwrap().bytes();
        let share = local / (local + remote);
        // A quarter; 0.42 % of all bytes are activations, which are read from others only.
        assert!((share - 0.25 / 1.0042).abs() < 1e-5, "{share}");
    }

    #[test]
    fn a_pipeline_has_every_layer_once() {
        let step =
            Engine::pipeline().step(&qwen3_4b_q4_0(), Work::decode(0), &[1, 0, 2, 4]).unwrap();
        let layers = step.stages.iter().filter(|s| s.name.starts_with("layers"));
        assert_eq!(layers.map(|s| s.times).collect::<Vec<_>>(), [5, 10, 21]);
    }

    #[test]
    fn impossible_steps_are_refused() {
        let model = qwen3_4b_q4_0();
        let none = Engine::tensor_parallel().step(&model, Work::decode(0), &[0, 0]);
        assert_eq!(none, Err(Error::NoThreads));
        let pages =
            Engine::unplaced(Pages::interleaved(4).unwrap()).step(&model, Work::decode(0), &[1, 1]);
        assert!(matches!(pages, Err(Error::NodeCount { got: 4, nodes: 2, .. })), "{pages:?}");
    }
}
