//! How long a sum over nodes takes: steps of a program of nothing but sums, by the executor that models run on.
//!
//! A layer is two products, as small as they can be, the second of which gives every node a summand, the waits
//! between them, and the sum of the summands and the residual stream. Time for one is that of a step over its
//! layers.

use super::pools::batch;
use super::summary::Summary;
use crate::error::Error;
use gguf::TensorType;
use graph::{
    AttnForm, Builder, Catalog, Executor, Gather, Graph, KvType, Limits, Outputs, Plan, SeqInput,
    Variant, WeightSource, WeightView,
};
use kernels::{Kernels, TILE_ROWS};
use std::time::{Duration, Instant};
use topology::{Layout, Machine};

/// Elements of a row.
const WIDTH: usize = 1024;
/// Bytes of a row: a message has whole rows.
pub(super) const ROW: usize = WIDTH * size_of::<f32>();
/// Sums of a step.
const LAYERS: usize = 16;
/// Tokens of the vocabulary.
const VOCAB: usize = TILE_ROWS;

/// The ways in which summands come together, for tables.
pub(super) const METHODS: [(Gather, &str); 3] =
    [(Gather::Pull, "pull"), (Gather::Push, "push"), (Gather::Scatter, "scatter")];

/// A loaded program.
pub(super) struct Sums(Executor);

impl Sums {
    /// For messages of up to `bytes` between the nodes of a layout.
    pub(super) fn load(machine: &Machine, layout: &Layout, bytes: usize) -> Result<Sums, Error> {
        let weights = Weights::new(layout.groups.len());
        let graph = weights.graph()?;
        let limits = Limits {
            kv: KvType::F16.into(),
            tokens: bytes / ROW,
            outputs: 1,
            pages: [0; 4],
            ranges: 0,
        };
        let plan = Plan::new(layout.groups.clone());
        let kernels = Kernels::detect().map_err(arclight_engine::Error::from)?;
        let new = Executor::new(graph, plan, limits, kernels, machine, &weights, &mut |_| {});
        new.map(Sums).map_err(|e| match e {
            graph::Error::Memory(full @ memory::Error::NoRoom { .. }) => {
                Error::Refused(format!("{full}; here: use smaller --sizes"))
            }
            e => Error::refused(e),
        })
    }

    /// What the kernel did not do as asked.
    pub(super) fn warnings(&self) -> Vec<String> {
        self.0.warnings()
    }

    /// Pages that were written, and those of them on other nodes than their group's; `None` where groups have no
    /// node or the kernel does not tell.
    pub(super) fn placement(&self) -> Option<(usize, usize)> {
        let (mut total, mut elsewhere) = (0, 0);
        for arena in self.0.arenas() {
            let (node, pages) = (arena.node()?, memory::pages_by_node(arena.given_out()).ok()?);
            total += pages.present();
            elsewhere += pages.elsewhere(node);
        }
        Some((total, elsewhere))
    }

    /// Times every way that there is for messages of a size, in turns.
    pub(super) fn measure(
        &mut self,
        bytes: usize,
        rounds: usize,
        done: &mut dyn FnMut(),
    ) -> Result<Vec<(&'static str, Summary)>, Error> {
        let rows = bytes / ROW;
        let few = rows <= self.0.plan().private_rows(WIDTH);
        let mut tests = Vec::new();
        for (gather, name) in METHODS.into_iter().filter(|(g, _)| few || *g != Gather::Push) {
            let steps = batch(|steps| self.run(gather, rows, steps))?;
            tests.push((gather, name, steps, Vec::with_capacity(rounds)));
        }
        for _ in 0..rounds {
            for (gather, _, steps, samples) in &mut tests {
                let took = self.run(*gather, rows, *steps)?;
                samples.push(took.as_secs_f64() * 1e6 / (*steps * LAYERS) as f64);
            }
            done();
        }
        Ok(tests.into_iter().map(|(_, name, _, of)| (name, Summary::new(of))).collect())
    }

    /// Takes steps of so many rows.
    fn run(&mut self, gather: Gather, rows: usize, steps: usize) -> Result<Duration, Error> {
        let form = Variant {
            private_tokens: gather == Gather::Push,
            attention: AttnForm::Fused,
            append_in_attention: false,
            gather,
            ..Variant::PREFILL
        };
        self.0.force_variant(Some(form)).map_err(Error::refused)?;
        let tokens: Vec<u32> = (0..rows as u32).map(|row| row % VOCAB as u32).collect();
        let (tables, outputs) = (&[], Outputs::None);
        let start = Instant::now();
        for _ in 0..steps {
            let input =
                SeqInput { tokens: &tokens, past: 0, tables, outputs, saves: &[], insets: &[] };
            self.0.step([input].into_iter()).map_err(Error::refused)?;
        }
        Ok(start.elapsed())
    }
}

/// The weights: all are zero, so the residual stream stays as it is.
struct Weights {
    /// Columns of the second product, as few as nodes can share.
    inner: usize,
    zeros: Vec<u8>,
}

impl Weights {
    fn new(nodes: usize) -> Weights {
        let inner = nodes * TILE_ROWS;
        Weights { inner, zeros: vec![0; inner * ROW] }
    }

    fn graph(&self) -> Result<Graph, Error> {
        let mut b = Builder::new(self.inner / TILE_ROWS, self);
        let table = b.vocab("table", VOCAB, WIDTH).map_err(Error::refused)?;
        let layer = b.feed_forward(["up"], "down", WIDTH, self.inner).map_err(Error::refused)?;
        let mut x = b.embed(table, 1.0);
        for at in 0..LAYERS {
            b.layer(Some(at));
            let up = b.linear(x, layer.0);
            let summands = b.linear(up, layer.1);
            x = b.residual(x, summands, None, (1.0, None));
        }
        b.layer(None);
        let x = b.select(x);
        b.hidden(x);
        Ok(b.finish())
    }
}

impl Catalog for Weights {
    fn wanted(&self, _: &str, _: usize, _: usize) -> Result<TensorType, graph::Error> {
        Ok(TensorType::F32)
    }

    fn has(&self, _: &str) -> bool {
        false
    }

    fn values(&self, _: &str, _: usize) -> Result<Option<Vec<f32>>, graph::Error> {
        Ok(None)
    }
}

impl WeightSource for Weights {
    fn tensor(&self, name: &str) -> Option<WeightView<'_>> {
        let (rows, cols) = match name {
            "table" => (VOCAB, WIDTH),
            "up" => (self.inner, WIDTH),
            "down" => (WIDTH, self.inner),
            _ => return None,
        };
        let data = &self.zeros[..rows * cols * size_of::<f32>()];
        Some(WeightView { ty: TensorType::F32, rows, cols, data })
    }
}
