//! A residual stream of several streams side by side (AltUp; Baykal et al., 2023).
//!
//! A row is `[streams, width]`. A layer works on one of them, the active one. Before it, every stream is predicted
//! of all, by factors that a router's scores of the token give; behind it, all are corrected by what the layer
//! changed. All of this is row by row and on every node, so it costs no wait of its own.

use super::prelude::*;
use crate::op::Norm;
use kernels::Kernels;

/// What is done with streams.
#[derive(Clone, Debug)]
pub enum Streams {
    /// `x` `[width]` is the first stream; runs of `y` `[(count - 1) * width]` are the others, brought to the length
    /// of `x`.
    Begin {
        /// Mean squares of `y` that are smaller count as this.
        least: f32,
    },
    /// `x_i + Σ_j c_ij x_j` of the streams `x`; `c = table · tanh(scores z)`, `[count, count]`.
    Predict {
        /// `[count * count, count]`
        table: VectorId,
    },
    /// Stream `at` of `x`, times `factor`.
    Take {
        /// Which.
        at: usize,
        /// `[width]`
        factor: Option<VectorId>,
    },
    /// `(x + norm(x)) * scale` of stream `at`.
    TakeTwice {
        /// Which.
        at: usize,
        /// An RMSNorm.
        norm: Norm,
        /// Factor on the sum.
        scale: f32,
    },
    /// `x_i + (1 + c_i) * (y - x_active)` of the streams `x`; `c = table · tanh(scores z)`, `[count]`.
    Correct {
        /// The stream that the layer worked on.
        active: usize,
        /// `[count, count]`
        table: VectorId,
    },
    /// `y` `[width]` is added to all streams of `x` but the first.
    Spread,
    /// `(x + y) * scale`, `y` brought to the length of `z` before. All: `[width]`.
    Merge {
        /// Mean squares of `y` that are smaller count as this.
        least: f32,
        /// Factor on the sum.
        scale: f32,
    },
}

impl Streams {
    /// Its name in listings, and of the buffer that it writes.
    pub fn name(&self) -> &'static str {
        match self {
            Streams::Begin { .. } | Streams::Spread => "streams",
            Streams::Predict { .. } => "predicted",
            Streams::Take { factor: None, .. } => "active",
            Streams::Take { factor: Some(_), .. } => "scaled",
            Streams::TakeTwice { .. } => "active+norm",
            Streams::Correct { .. } => "corrected",
            Streams::Merge { .. } => "merged",
        }
    }

    /// Whether `y` is dealt otherwise than by rows.
    pub(crate) fn takes_product(&self) -> bool {
        matches!(self, Streams::Begin { .. } | Streams::Merge { .. })
    }
}

/// A step of several residual streams. Takes and gives replicated.
#[derive(Clone, Debug)]
pub(crate) struct StreamsOp {
    /// Operands, as the step names them.
    pub x: Bundle,
    pub y: Option<Bundle>,
    pub z: Option<Bundle>,
    /// How many streams there are.
    pub count: usize,
    /// The step.
    pub what: Streams,
}

impl Operator for StreamsOp {
    fn name(&self) -> &'static str {
        self.what.name()
    }

    fn inputs(&self) -> Vec<Bundle> {
        [self.x].into_iter().chain(self.y).chain(self.z).collect()
    }

    fn vectors(&self) -> Vec<VectorId> {
        match &self.what {
            Streams::Predict { table } | Streams::Correct { table, .. } => vec![*table],
            Streams::Take { factor, .. } => factor.iter().copied().collect(),
            Streams::TakeTwice { norm, .. } => norm.vectors(),
            Streams::Begin { .. } | Streams::Spread | Streams::Merge { .. } => Vec::new(),
        }
    }

    fn lower(&self, node: &Node, to: &mut Lowering<'_>) -> BufId {
        let (what, count) = (self.what.clone(), self.count);
        // In a layer, the content of a buffer of this name has been read when the next step writes it.
        let role = match (node.layer, &what) {
            (Some(_), _) | (None, Streams::Begin { .. }) => what.name().to_owned(),
            (None, _) => format!("{}.{}", what.name(), node.out.0),
        };
        let out = to.own_buffer(&role, node);
        let value = |b: Option<Bundle>| b.map(|b| to.value(b));
        let (x, y, z) = (to.value(self.x), value(self.y), value(self.z));
        assert!(![Some(x), y, z].contains(&Some(out)), "{role} is an operand of its own step");
        let all = to.width(node.out);
        let width = match what {
            Streams::Begin { .. }
            | Streams::Predict { .. }
            | Streams::Correct { .. }
            | Streams::Spread => all / count,
            Streams::Take { .. } | Streams::TakeTwice { .. } | Streams::Merge { .. } => all,
        };
        to.emit_rows(node, to.work(node), StreamsInstr { x, y, z, count, width, what, out });
        out
    }
}

/// A step of `count` residual streams of `width`.
#[derive(Clone, Debug)]
struct StreamsInstr {
    x: BufId,
    y: Option<BufId>,
    z: Option<BufId>,
    count: usize,
    width: usize,
    what: Streams,
    out: BufId,
}

impl Instruction for StreamsInstr {
    fn name(&self) -> &'static str {
        self.what.name()
    }

    fn claims(&self, claims: &mut Claims) {
        let rows = claims.rows();
        claims.read([self.x], rows);
        // Products and scores are dealt by tiles.
        claims.read(self.y, if self.what.takes_product() { Reach::Group } else { rows });
        claims.read(self.z, Reach::Group);
        claims.write([self.out], rows);
    }

    fn work(&self, entry: &mut Entry<'_>) {
        let (count, width) = (self.count, self.width);
        let all = count * width;
        // Elements of the operands and the result, and those that pass by.
        let (of, passes) = match self.what {
            Streams::Begin { .. } => ([width, all - width, 0, all], 2 * all),
            Streams::Predict { .. } => ([all, 0, count, all], count * all),
            Streams::Take { .. } => ([width, 0, 0, width], width),
            Streams::TakeTwice { .. } => ([width, 0, 0, width], 2 * width),
            Streams::Correct { .. } => ([all, width, count, all], all + width),
            Streams::Spread => ([all, width, 0, all], all),
            Streams::Merge { .. } => ([width; 4], 3 * width),
        };
        for (from, elements) in [(Some(self.x), of[0]), (self.y, of[1]), (self.z, of[2])] {
            if let Some(from) = from {
                entry.read(from, elements * FLOAT);
            }
        }
        entry.write(self.out, of[3] * FLOAT);
        entry.pass(passes);
    }

    fn scratch(&self, _tables: &Tables, _tokens: usize) -> Scratch {
        let floats = self.count + self.count * self.count + self.width;
        Scratch { floats, ..Scratch::default() }
    }

    fn run(&self, run: Run<'_>) {
        let StreamsInstr { count, width, .. } = *self;
        let (kernels, thread) = (run.kernels(), run.thread);
        let [y, z] = [self.y, self.z].map(|buf| buf.map(|buf| run.source(buf)));
        let (x, mut out) = (run.source(self.x), run.target(self.out));
        let vector = |id| thread.step.weights.vector(id, thread.group);
        let second = |row, width| y.expect("an operand of this step").row(row, width);
        let third = |row, width| z.expect("an operand of this step").row(row, width);
        let (scores, scratch) = run.scratch.split_at_mut(count);
        let (factors, spare) = scratch.split_at_mut(count * count);
        let spare = &mut spare[..width];
        // Factors by the table and what the router said of the token.
        let mut by_scores = |row: usize, table: &[f32], factors: &mut [f32]| {
            scores.copy_from_slice(third(row, count));
            kernels.soft_cap(scores, 1.0); // tanh
            for (factor, weights) in factors.iter_mut().zip(table.chunks_exact(count)) {
                *factor = weights.iter().zip(&*scores).map(|(w, s)| w * s).sum();
            }
        };
        let (all, one) = (count * width, |i: usize| i * width..(i + 1) * width);
        for row in run.rows {
            match self.what {
                Streams::Begin { least } => {
                    let (x, y) = (x.row(row, width), second(row, all - width));
                    let (first, others) = out.row(row, all).split_at_mut(width);
                    first.copy_from_slice(x);
                    for (to, y) in others.chunks_exact_mut(width).zip(y.chunks_exact(width)) {
                        to.copy_from_slice(y);
                        kernels.scale(to, to_length(kernels, x, y, least));
                    }
                }
                Streams::Predict { table } => {
                    by_scores(row, vector(table), factors);
                    let (x, to) = (x.row(row, all), out.row(row, all));
                    to.copy_from_slice(x);
                    for (to, factors) in to.chunks_exact_mut(width).zip(factors.chunks(count)) {
                        for (x, &factor) in x.chunks_exact(width).zip(factors) {
                            kernels.add_scaled(to, factor, x);
                        }
                    }
                }
                Streams::Take { at, factor } => {
                    let to = out.row(row, width);
                    to.copy_from_slice(&x.row(row, all)[one(at)]);
                    if let Some(factor) = factor {
                        kernels.scale_by(to, 1.0, vector(factor));
                    }
                }
                Streams::TakeTwice { at, norm, scale } => {
                    let (x, to) = (&x.row(row, all)[one(at)], out.row(row, width));
                    thread.norm_of(&norm, x, to);
                    kernels.add_assign(to, x);
                    kernels.scale(to, scale);
                }
                Streams::Correct { active, table } => {
                    by_scores(row, vector(table), &mut factors[..count]);
                    let (x, to) = (x.row(row, all), out.row(row, all));
                    spare.copy_from_slice(second(row, width));
                    kernels.add_scaled(spare, -1.0, &x[one(active)]);
                    to.copy_from_slice(x);
                    for (to, factor) in to.chunks_exact_mut(width).zip(&*factors) {
                        kernels.add_scaled(to, 1.0 + factor, spare);
                    }
                }
                Streams::Spread => {
                    let to = out.row(row, all);
                    to.copy_from_slice(x.row(row, all));
                    for to in to.chunks_exact_mut(width).skip(1) {
                        kernels.add_assign(to, second(row, width));
                    }
                }
                Streams::Merge { least, scale } => {
                    let (y, like) = (second(row, width), third(row, width));
                    let to = out.row(row, width);
                    to.copy_from_slice(x.row(row, width));
                    kernels.add_scaled(to, to_length(kernels, like, y, least), y);
                    kernels.scale(to, scale);
                }
            }
        }
    }
}

/// The factor that brings `y` to the length of `like`; mean squares of `y` below `least` count as this.
fn to_length(kernels: &Kernels, like: &[f32], y: &[f32], least: f32) -> f32 {
    let mean = |x: &[f32]| kernels.square_sum(x) / x.len() as f32;
    mean(like).sqrt() / mean(y).max(least).sqrt()
}
