//! A causal convolution of channels.

use super::prelude::*;
use crate::exec::deal_pieces;
use crate::recurrent::{CHANNELS, Convolution};
use kernels::{Conv, Product, Rows};

/// A causal convolution of each channel along its sequence. Takes and gives split.
#[derive(Clone, Debug)]
pub(crate) struct ConvolutionOp {
    pub x: Bundle,
    pub spec: Box<Convolution>,
}

impl Operator for ConvolutionOp {
    fn name(&self) -> &'static str {
        "convolution"
    }

    fn inputs(&self) -> Vec<Bundle> {
        vec![self.x]
    }

    fn vectors(&self) -> Vec<VectorId> {
        [self.spec.weight].into_iter().chain(self.spec.bias).collect()
    }

    fn states(&self) -> Range<usize> {
        self.spec.state..self.spec.state + 1
    }

    fn lower(&self, node: &Node, to: &mut Lowering<'_>) -> BufId {
        let out = to.buffer("convolved", node.out, node.layer, Work::Rows);
        let (x, state) = (to.value(self.x), to.buffers.state(self.spec.state));
        to.emit(node, ConvolutionInstr { x, state, spec: self.spec.clone(), out });
        out
    }
}

/// A convolution of channels; the inputs before are the state.
#[derive(Clone, Debug)]
struct ConvolutionInstr {
    x: BufId,
    state: BufId,
    spec: Box<Convolution>,
    out: BufId,
}

impl Instruction for ConvolutionInstr {
    fn name(&self) -> &'static str {
        "convolution"
    }

    // A sequence's state is read and written by the thread that has the channels.
    fn claims(&self, claims: &mut Claims) {
        claims.read([self.x], Reach::Group);
        claims.write([self.state, self.out], ITEMS);
    }

    fn work(&self, entry: &mut Entry<'_>) {
        let (spec, channels) = (&self.spec, self.spec.len(entry.desk.node()));
        let inputs = if spec.gates.is_some() { 3 } else { 1 };
        entry.read(self.x, inputs * channels * FLOAT);
        entry.state(spec.state, channels * (spec.taps - 1) * FLOAT);
        let kind = What::Multiply(Product::F32);
        entry.per(Per::Row(entry.rows), kind, channels * spec.taps);
        entry.write(self.out, channels * FLOAT);
        entry.pass(channels);
    }

    fn is_split(&self, _tables: &Tables) -> bool {
        true
    }

    fn run(&self, run: Run<'_>) {
        let (spec, thread, kernels) = (&self.spec, run.thread, run.kernels());
        let (x, mut pages) = (run.source(self.x), run.pages(self.state, spec.state));
        let mut out = run.target(self.out);
        let vector = |id| run.vector(id);
        let (all, taps) = (vector(spec.weight), spec.taps);
        let (class, runs) = (thread.class_of(spec.state), &spec.runs[thread.node]);
        let pieces = Convolution::pieces(runs);
        for (sequence, own) in deal_pieces(&class.sequences, pieces, thread.rank, thread.size) {
            let mut before = 0;
            for run in runs {
                let (len, count) = (run.channels.len(), run.channels.len().div_ceil(CHANNELS));
                let here = before..before + count;
                for piece in own.start.max(here.start)..own.end.min(here.end) {
                    let first = (piece - before) * CHANNELS;
                    let channels = first..(first + CHANNELS).min(len);
                    let at = |column: usize| column + channels.start..column + channels.end;
                    let global = at(run.channels.start);
                    let factors = &all[global.start..];
                    let factors = Rows::new(factors, taps, channels.len(), spec.channels);
                    let bias = spec.bias.map(|bias| &vector(bias)[global.clone()]);
                    if sequence.fresh {
                        pages.fixed_mut(sequence.page, piece..piece + 1).fill(0.0);
                    }
                    for (tokens, save) in sequence.parts(class) {
                        let gate = |which: usize| {
                            let gates = spec.gates.as_ref()?;
                            Some(x.columns(tokens.clone(), at(gates[which][thread.node])))
                        };
                        let conv = Conv {
                            x: x.columns(tokens.clone(), at(run.from)),
                            before: gate(0),
                            after: gate(1),
                            taps: factors,
                            bias,
                            silu: spec.silu,
                        };
                        let state = pages.fixed_mut(sequence.page, piece..piece + 1);
                        let state = &mut state[..(taps - 1) * channels.len()];
                        out.claim(tokens.clone(), at(run.to));
                        let to = out.columns(tokens, at(run.to));
                        kernels.conv(&conv, state, to);
                        if let Some(page) = save {
                            pages.copy_fixed(sequence.page, page, piece..piece + 1);
                        }
                    }
                }
                before += count;
            }
        }
    }
}
