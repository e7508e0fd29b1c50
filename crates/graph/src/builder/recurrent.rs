//! Layers with a state of fixed size: their matrices, convolutions, recurrences.

use super::Builder;
use crate::error::Error;
use crate::keep::Keep;
use crate::op::{Given, Heads};
use crate::operators::{ConvolutionOp, ModulationOp, RecurrenceOp};
use crate::placement::{Cut, Placement};
use crate::recurrent::{
    CHANNELS, ChannelRun, Convolution, HeadNorm, Modulation, Recurrence, RecurrentColumns,
    RecurrentHeads, Rule, columns,
};
use crate::state::StateShape;
use crate::tensor::Bundle;
use crate::weight::{Layout, MatrixId, SplitBy, Turns, VectorId, block_cols};
use kernels::{Activation, TILE_ROWS, scan_state_len};

/// Sizes of a layer with a recurrence.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RecurrentSizes {
    /// Heads of values, and elements of each.
    pub heads: usize,
    /// See there.
    pub dim: usize,
    /// Heads of keys and queries, and elements of each.
    pub key_heads: usize,
    /// See there.
    pub key_dim: usize,
    /// Whether heads of keys take turns in files.
    pub turns: bool,
}

/// Rows of a tensor that are a part of a matrix.
#[derive(Copy, Clone, Debug)]
pub struct TensorRows<'n> {
    /// The tensor, and how many rows it has.
    pub tensor: (&'n str, usize),
    /// Where they begin, and how they lie.
    pub first: usize,
    /// See there.
    pub layout: Layout,
    /// What they are.
    pub what: RecurrentRows,
}

/// What rows of a matrix give.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum RecurrentRows {
    /// Values, or gates of values.
    Values,
    /// Keys, or queries.
    Keys,
    /// A number for each head of values.
    Numbers,
}

impl<'n> TensorRows<'n> {
    /// All rows of a tensor.
    pub fn all(tensor: &'n str, sizes: &RecurrentSizes, what: RecurrentRows) -> TensorRows<'n> {
        TensorRows { tensor: (tensor, sizes.rows(what)), first: 0, layout: Layout::Rows, what }
    }
}

impl RecurrentSizes {
    /// Rows of a kind.
    pub fn rows(&self, what: RecurrentRows) -> usize {
        match what {
            RecurrentRows::Values => self.heads * self.dim,
            RecurrentRows::Keys => self.key_heads * self.key_dim,
            RecurrentRows::Numbers => self.heads,
        }
    }
}

/// What a convolution is of.
#[derive(Copy, Clone, Debug)]
pub struct ConvolutionOf<'n> {
    /// Which parts of the input's matrix, one after the other.
    pub parts: (usize, usize),
    /// Parts with factors before it and after it.
    pub gates: Option<[usize; 2]>,
    /// Factors of the taps, `[channels, taps]`.
    pub weight: &'n str,
    /// Taps.
    pub taps: usize,
    /// What is added.
    pub bias: Option<&'n str>,
    /// Whether SiLU is taken of it.
    pub silu: bool,
}

/// A recurrence, by the parts of the input's matrix.
#[derive(Copy, Clone, Debug)]
pub struct RecurrenceOf {
    /// What a token does.
    pub rule: Rule,
    /// Parts with queries, keys and values; all were convolved.
    pub qkv: [usize; 3],
    /// The part with time steps.
    pub step: usize,
    /// That with gains.
    pub gain: Option<usize>,
    /// That with gates of results.
    pub gate: Option<usize>,
    /// Rates of decay, `[heads]`.
    pub decay: VectorId,
    /// Added to the time step, `[heads]`.
    pub step_bias: VectorId,
    /// Whether a norm over several heads follows.
    pub squares: bool,
}

impl Builder<'_> {
    /// Declares a vector of f32 weights that files have as a matrix, which every node holds: `[rows, cols]`.
    pub fn vector_of(&mut self, name: &str, rows: usize, cols: usize) -> Result<VectorId, Error> {
        self.wanted(name, rows, cols)?;
        Ok(self.add_vector(name, rows * cols, None))
    }

    /// The same with rows and columns exchanged: `[cols, rows]`.
    pub fn vector_turned(
        &mut self,
        name: &str,
        rows: usize,
        cols: usize,
    ) -> Result<VectorId, Error> {
        self.wanted(name, rows, cols)?;
        Ok(self.add_vector(name, rows * cols, Some(cols)))
    }

    /// Shares the heads of a recurrence between the nodes, so that the columns of the output projection,
    /// `(name, rows)`, are cut in whole quantisation blocks.
    pub fn recurrent_heads(
        &self,
        sizes: &RecurrentSizes,
        output: (&str, usize),
    ) -> Result<RecurrentHeads, Error> {
        let bad = |what, value, need| Err(Error::BadDimension { what, value, need });
        let RecurrentSizes { heads, dim, key_heads, key_dim, turns } = *sizes;
        if key_heads == 0 || heads == 0 || !heads.is_multiple_of(key_heads) {
            return bad("ssm.time_step_rank", heads, "a multiple of ssm.group_count");
        }
        if dim == 0 || key_dim == 0 {
            return bad("ssm.state_size", dim.min(key_dim), "at least 1");
        }
        let block = block_cols(self.catalog.wanted(output.0, output.1, heads * dim)?);
        let each = heads / key_heads;
        let whole = |heads: &usize| (heads * dim).is_multiple_of(block);
        // Heads that follow each other in files are in one block, and stay together.
        let divides = |count: &usize| key_heads.is_multiple_of(*count);
        let together = match turns && each > 1 {
            true => (1..=key_heads).filter(divides).find(whole).unwrap_or(key_heads),
            false => 1,
        };
        let order = Turns { first: 0, len: 1, keys: key_heads, each, together };
        let turns = (turns && each > 1).then_some(order);
        let (unit, group) = match turns {
            Some(_) => (each * together, each * together),
            None => ((1..=heads).find(whole).unwrap_or(heads), each),
        };
        let q_cut = Cut::heads(heads, group, unit, dim, &self.shares);
        let given = Given::KeysAndValues;
        let values = Heads { q: heads, kv: key_heads, dim, q_cut, shared: false, given };
        Ok(RecurrentHeads { values, key_dim, together, turns })
    }

    /// Says of a vector with `len` elements for each head of values, behind `first` others, that files have
    /// heads in their own order.
    pub fn by_heads(
        &mut self,
        vector: VectorId,
        heads: &RecurrentHeads,
        (first, len): (usize, usize),
    ) -> VectorId {
        let turns = heads.turns.map(|turns| Turns { first, len, ..turns });
        self.graph.tables.vectors[vector.0 as usize].turns = turns;
        vector
    }

    /// Declares the matrix of these parts, rows cut by heads.
    pub fn recurrent_input(
        &mut self,
        parts: &[TensorRows<'_>],
        hidden: usize,
        heads: &RecurrentHeads,
    ) -> Result<MatrixId, Error> {
        let mut declared = Vec::with_capacity(parts.len());
        for part in parts {
            let (rows, cut) = match part.what {
                RecurrentRows::Values => {
                    let Heads { q, dim, q_cut, .. } = &heads.values;
                    (q * dim, q_cut.scaled(*dim))
                }
                RecurrentRows::Keys => heads.key_rows(),
                RecurrentRows::Numbers => (heads.values.q, heads.values.q_cut.clone()),
            };
            let len = match part.what {
                RecurrentRows::Values => Some(heads.values.dim),
                RecurrentRows::Numbers => Some(1),
                RecurrentRows::Keys => None,
            };
            let layout = match (heads.turns, len) {
                (Some(turns), Some(len)) => Layout::Turns(Turns { len, ..turns }),
                _ => part.layout,
            };
            let (name, of) = part.tensor;
            declared.push(self.part(name, of, part.first, layout, (rows, hidden), cut)?);
        }
        Ok(self.add_matrix("in", SplitBy::Rows, declared))
    }

    /// Declares the output projection of a recurrence: columns cut by heads.
    pub fn recurrent_output(
        &mut self,
        name: &str,
        hidden: usize,
        heads: &RecurrentHeads,
    ) -> Result<MatrixId, Error> {
        let out = self.output("out", name, hidden, &heads.values)?;
        let columns = heads.turns.map(|turns| Turns { len: heads.values.dim, ..turns });
        self.graph.tables.matrices[out.0 as usize].parts[0].columns = columns;
        Ok(out)
    }

    /// Declares the input and output matrices of a gated convolution of `width` channels, whose three
    /// parts, factors before, factors after and channels, are one tensor.
    pub fn gated_convolution(
        &mut self,
        input: &str,
        output: &str,
        (hidden, width): (usize, usize),
    ) -> Result<(MatrixId, MatrixId), Error> {
        let block = block_cols(self.catalog.wanted(output, hidden, width)?);
        let cut = Cut::summed(width, block, 1, &self.shares);
        let rows = std::array::from_fn(|_| (width, cut.clone()));
        let parts = self.stack::<3>(super::Tensors::Fused(input), rows, hidden)?;
        let into = self.add_matrix("in", SplitBy::Rows, parts);
        let part = self.part(output, hidden, 0, Layout::Rows, (hidden, width), cut)?;
        Ok((into, self.add_matrix("out", SplitBy::Cols, vec![part])))
    }

    /// A causal convolution of what a matrix gave, of whose parts the last may be values of `heads`.
    ///
    /// # Errors
    /// When a tensor is missing or has another shape.
    pub fn convolution(
        &mut self,
        x: Bundle,
        matrix: MatrixId,
        of: &ConvolutionOf<'_>,
        heads: Option<&RecurrentHeads>,
    ) -> Result<Bundle, Error> {
        let (_, domain) = self.expect(x, Placement::Split, "convolution");
        let nodes = self.graph.nodes();
        let parts = of.parts.0..of.parts.1;
        let m = self.graph.matrix(matrix);
        let channels = parts.clone().map(|p| m.parts[p].rows).sum();
        let from = |node: usize| columns((0..m.parts.len()).map(|p| m.rows(p, node).len()));
        let run = |node: usize| -> Vec<ChannelRun> {
            let to = columns(parts.clone().map(|p| m.rows(p, node).len()));
            let mut before = 0;
            let of_part = |(p, to): (usize, usize)| {
                let own = m.rows(p, node);
                let channels = before + own.start..before + own.end;
                before += m.parts[p].rows;
                ChannelRun { from: from(node)[p], to, channels }
            };
            parts.clone().zip(to).map(of_part).filter(|run| !run.channels.is_empty()).collect()
        };
        let runs: Vec<Vec<ChannelRun>> = (0..nodes).map(run).collect();
        let gates = of.gates.map(|gates| {
            assert!(parts.len() == 1, "factors are on one part");
            gates.map(|p| (0..nodes).map(|node| from(node)[p]).collect())
        });
        let width = |node: usize| {
            parts.clone().map(|p| m.rows(p, node).len().next_multiple_of(kernels::TILE_ROWS)).sum()
        };
        let widths: Vec<usize> = (0..nodes).map(width).collect();
        let weight = self.vector_turned(of.weight, channels, of.taps)?;
        let bias = of.bias.map(|bias| self.vector(bias, channels)).transpose()?;
        if let Some(heads) = heads.filter(|heads| heads.turns.is_some()) {
            let own = (channels - heads.values.q * heads.values.dim, heads.values.dim);
            self.by_heads(weight, heads, own);
            bias.map(|bias| self.by_heads(bias, heads, own));
        }
        let pieces = runs.iter().map(|runs| Convolution::pieces(runs)).collect();
        let shape = StateShape::Floats { pieces, len: (of.taps - 1) * CHANNELS };
        let state = self.state(Keep::Fixed, shape);
        let (taps, silu) = (of.taps, of.silu);
        let spec = Convolution { runs, channels, taps, weight, bias, silu, gates, state };
        let op = ConvolutionOp { x, spec: Box::new(spec) };
        Ok(self.push(op, Placement::Split, domain, &widths))
    }

    /// A recurrence over what `matrix` gave, `raw`, and of its first parts, convolved, `x`.
    pub fn recurrence(
        &mut self,
        (x, raw): (Bundle, Bundle),
        matrix: MatrixId,
        heads: &RecurrentHeads,
        of: &RecurrenceOf,
    ) -> Bundle {
        let (_, domain) = self.expect(x, Placement::Split, "recurrence");
        self.expect(raw, Placement::Split, "recurrence");
        let nodes = self.graph.nodes();
        let m = self.graph.matrix(matrix);
        let at = |node: usize| {
            let at = columns((0..m.parts.len()).map(|p| m.rows(p, node).len()));
            let [q, k, v] = of.qkv.map(|p| at[p]);
            let some = |part: Option<usize>| part.map_or(0, |p| at[p]);
            RecurrentColumns {
                q,
                k,
                v,
                step: at[of.step],
                gain: some(of.gain),
                gate: some(of.gate),
            }
        };
        let columns = (0..nodes).map(at).collect();
        let pieces = (0..nodes).map(|node| heads.len(node) * heads.slices()).collect();
        let len = scan_state_len(heads.key_dim, kernels::SLICE);
        let state = self.state(Keep::Fixed, StateShape::Floats { pieces, len });
        let spec = Recurrence {
            heads: heads.clone(),
            rule: of.rule,
            decay: of.decay,
            step_bias: of.step_bias,
            columns,
            gated: of.gate.is_some(),
            squares: of.squares,
            state,
        };
        let widths: Vec<usize> =
            (0..nodes).map(|node| heads.len(node) * heads.values.dim).collect();
        let op = RecurrenceOp { x, raw, spec: Box::new(spec) };
        self.push(op, Placement::Split, domain, &widths)
    }

    /// `f(gate)` times as many elements of `x`, which every node has, from `first` on; nodes share the rows of
    /// `matrix`, which gave the gate.
    pub fn gated_columns(
        &mut self,
        x: Bundle,
        first: usize,
        (f, gate, matrix): (Activation, Bundle, MatrixId),
    ) -> Bundle {
        let (_, domain) = self.expect(x, Placement::Replicated, "gate");
        self.expect(gate, Placement::Split, "gate");
        let widths = self.graph.bundle(gate).widths.clone();
        let nodes = 0..self.graph.nodes();
        let m = self.graph.matrix(matrix);
        let from = nodes.clone().map(|node| first + m.rows(0, node).start).collect();
        let gate_at = Some((f, vec![0; nodes.len()]));
        let spec = Modulation { norm: None, gate: gate_at, above: None, from };
        let op = ModulationOp { x, gate: Some(gate), spec: Box::new(spec) };
        self.push(op, Placement::Split, domain, &widths)
    }

    /// RMSNorm over the elements of all nodes, which `next` reads.
    ///
    /// # Panics
    /// When they are no whole tiles.
    pub fn norm_of_all(
        &mut self,
        x: Bundle,
        (weight, eps): (VectorId, f32),
        next: MatrixId,
    ) -> Bundle {
        let m = self.graph.matrix(next);
        let width = m.parts[0].cols;
        let starts: Vec<usize> =
            (0..self.graph.nodes()).map(|node| m.cols(0, node).start).collect();
        let whole = |at: &usize| at.is_multiple_of(TILE_ROWS);
        assert!(starts.iter().chain([&width]).all(whole), "norms go over whole tiles");
        self.modulated(x, Some(HeadNorm::All { weight, eps, width, starts }), None)
    }

    /// Heads by a norm and then by the function of a part of what `matrix` gave, `gate`.
    pub fn modulated(
        &mut self,
        x: Bundle,
        norm: Option<HeadNorm>,
        gate: Option<(Activation, Bundle, MatrixId, usize)>,
    ) -> Bundle {
        let (_, domain) = self.expect(x, Placement::Split, "modulation");
        let widths = self.graph.bundle(x).widths.clone();
        let begins = |(f, _, matrix, part): (Activation, Bundle, MatrixId, usize)| {
            let m = self.graph.matrix(matrix);
            let at = |node| columns((0..=part).map(|p| m.rows(p, node).len()))[part];
            (f, (0..self.graph.nodes()).map(at).collect())
        };
        let from = vec![0; self.graph.nodes()];
        let spec = Modulation { norm, gate: gate.map(begins), above: None, from };
        let gate = gate.map(|(_, gate, ..)| gate);
        let op = ModulationOp { x, gate, spec: Box::new(spec) };
        self.push(op, Placement::Split, domain, &widths)
    }
}
