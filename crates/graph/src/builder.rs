//! The graph builder: what a model's definition is written with.
//!
//! Each method appends one operator to the static list and returns its result as a [`Bundle`].
//! Methods that declare weights check names and shapes against the file at once, so a model that
//! builds will load.

mod experts;
mod latent;
mod predict;
mod recurrent;
mod streams;

pub use latent::{LatentSizes, UpProjection};
pub use recurrent::{ConvolutionOf, RecurrenceOf, RecurrentRows, RecurrentSizes, TensorRows};

use crate::error::Error;
use crate::list::Append;
use crate::op::{Activation, Attention, Given, Heads, Norm, NormOver, Op, Rope, RopeId, Told};
use crate::placement::{Cut, Placement, Shares};
use crate::state::{KV_CLASSES, Keep, Shape, State};
use crate::tensor::{Bundle, BundleInfo, Domain};
use crate::weight::{
    Catalog, Layout, Matrix, MatrixId, Part, SplitBy, TensorSpec, Vector, VectorId,
};
use gguf::TensorType;
use kernels::KV_PAGE;
use std::collections::HashSet;
use std::ops::Range;

/// An operator in its place.
#[derive(Clone, Debug)]
pub struct Node {
    /// What it does.
    pub op: Op,
    /// What it gives.
    pub out: Bundle,
    /// The layer it belongs to; `None` before the first and after the last.
    pub layer: Option<usize>,
    /// How it follows the operator before it.
    pub append: Append,
}

/// A model's graph: operators in the order of execution, weights, states.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub(crate) nodes: usize,
    pub(crate) ops: Vec<Node>,
    pub(crate) bundles: Vec<BundleInfo>,
    pub(crate) matrices: Vec<Matrix>,
    pub(crate) vectors: Vec<Vector>,
    pub(crate) ropes: Vec<Rope>,
    pub(crate) states: Vec<State>, // by operator
    pub(crate) classes: Vec<Keep>,
    pub(crate) vocab: usize,
    /// Operators of the model; those behind them predict further tokens.
    pub(crate) model_ops: Option<usize>,
    pub(crate) tensors: Vec<TensorSpec>, // as they were first asked for
}

impl Graph {
    /// Number of memory nodes that the graph was built for.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Vocabulary size: width of a row of logits.
    pub fn vocab(&self) -> usize {
        self.vocab
    }

    /// Bundle metadata.
    pub fn bundle(&self, b: Bundle) -> &BundleInfo {
        &self.bundles[b.0 as usize]
    }

    /// Matrix metadata.
    pub fn matrix(&self, m: MatrixId) -> &Matrix {
        &self.matrices[m.0 as usize]
    }

    /// All matrices.
    pub fn matrices(&self) -> &[Matrix] {
        &self.matrices
    }

    /// The operators in the order of execution: the static list.
    pub fn ops(&self) -> &[Node] {
        &self.ops
    }

    /// The operators that make logits of tokens.
    pub fn model_ops(&self) -> Range<usize> {
        0..self.model_ops.unwrap_or(self.ops.len())
    }

    /// The operators that predict further tokens, if there are such.
    pub fn predicting_ops(&self) -> Option<Range<usize>> {
        self.model_ops.map(|first| first..self.ops.len())
    }

    /// The tensors of the file that this graph is made of, each once.
    pub fn tensors(&self) -> &[TensorSpec] {
        &self.tensors
    }

    /// Elements of all tensors that a token has to do with: of experts, of those that it goes to.
    pub fn active_elements(&self) -> usize {
        let used = |tensor: &str| {
            self.ops.iter().find_map(|node| match &node.op {
                Op::ExpertsUp { bank, count, .. } | Op::ExpertsDown { bank, count, .. } => self
                    .matrix(*bank)
                    .parts
                    .iter()
                    .any(|part| part.name == tensor)
                    .then_some(*count),
                _ => None,
            })
        };
        let of = |tensor: &TensorSpec| match tensor.experts {
            Some(experts) => tensor.elements() / experts * used(&tensor.name).unwrap_or(experts),
            None => tensor.elements(),
        };
        self.tensors.iter().map(of).sum()
    }

    /// Settles on sequences of up to `context` tokens. Rotary embeddings are for all of their positions:
    /// keys that are in the cache already could not change with the length. A window in which all of
    /// them fit is none.
    pub fn set_context(&mut self, context: usize) {
        for rope in &mut self.ropes {
            if let Some((_, inv_freq)) = rope.long.take_if(|(above, _)| context > *above) {
                rope.inv_freq = inv_freq;
            }
        }
        for state in &mut self.states {
            if state.keep.window().is_some_and(|held| held >= context) {
                state.keep = Keep::All;
            }
        }
        self.classify();
    }

    /// Sorts the states into classes: one for each way to keep, in the order of the operators.
    fn classify(&mut self) {
        self.classes.clear();
        for state in &mut self.states {
            let known = self.classes.iter().position(|keep| *keep == state.keep);
            state.class = known.unwrap_or_else(|| {
                self.classes.push(state.keep);
                self.classes.len() - 1
            });
        }
        assert!(self.classes.len() <= KV_CLASSES, "classes of {:?}", self.classes);
    }

    /// What is kept in the pages of each class. Layers of a class share its pages.
    pub fn classes(&self) -> &[Keep] {
        &self.classes
    }

    /// The windows of the classes that keep something of tokens; a sequence holds no more pages of them
    /// than its window spans.
    pub fn windows(&self) -> Vec<Option<usize>> {
        let paged = self.classes.iter().filter(|keep| keep.is_paged());
        paged.map(|keep| keep.window()).collect()
    }

    /// Number of states in a class.
    pub fn class_layers(&self, class: usize) -> usize {
        self.states.iter().filter(|state| state.class == class).count()
    }

    /// Bytes of a page of a class on `node`.
    pub fn page_bytes(&self, node: usize, kv: crate::KvType, class: usize) -> usize {
        let layers = self.states.iter().filter(|state| state.class == class);
        layers.map(|state| state.page_bytes(node, kv)).sum()
    }

    /// Bytes of one token's keys and values on `node`, in the layers of a class.
    pub fn kv_bytes_per_token(&self, node: usize, kv: crate::KvType, class: usize) -> usize {
        if self.classes[class].is_paged() { self.page_bytes(node, kv, class) / KV_PAGE } else { 0 }
    }
}

/// Where the parts of a matrix are in the file.
#[derive(Copy, Clone, Debug)]
pub enum Tensors<'n, const N: usize> {
    /// Each in a tensor of its own.
    Apart([&'n str; N]),
    /// Rows below each other in one tensor.
    Fused(&'n str),
}

impl<'n, const N: usize> From<[&'n str; N]> for Tensors<'n, N> {
    fn from(names: [&'n str; N]) -> Self {
        Tensors::Apart(names)
    }
}

/// Builds a [`Graph`] for a number of nodes over a file's weights.
pub struct Builder<'a> {
    graph: Graph,
    shares: Shares,
    catalog: &'a dyn Catalog,
    /// Names of tensors.
    asked: HashSet<String>,
    layer: Option<usize>,
}

impl<'a> Builder<'a> {
    /// Starts a graph for the memory nodes of `shares`: a number of equal ones, or their weights.
    pub fn new(shares: impl Into<Shares>, catalog: &'a dyn Catalog) -> Builder<'a> {
        let shares = shares.into();
        let graph = Graph { nodes: shares.nodes(), ..Graph::default() };
        Builder { graph, shares, catalog, asked: HashSet::new(), layer: None }
    }

    /// Ends the definition.
    pub fn finish(self) -> Graph {
        self.graph
    }

    /// States which layer the following operators belong to.
    pub fn layer(&mut self, layer: Option<usize>) {
        self.layer = layer;
    }

    /// Whether the model has a tensor that the definition can do without.
    pub fn has(&self, name: &str) -> bool {
        self.catalog.has(name)
    }

    /// The `len` elements of a small tensor on which the definition depends, if there is such a tensor.
    pub fn values(&mut self, name: &str, len: usize) -> Result<Option<Vec<f32>>, Error> {
        let values = self.catalog.values(name, len)?;
        if values.is_some() {
            self.wanted(name, 1, len)?;
        }
        Ok(values)
    }

    /// The rows of a tensor, for what no key says; `None` where the model has no weights, or no such tensor.
    pub fn tensor_rows(&self, name: &str) -> Option<usize> {
        self.catalog.rows(name)
    }

    /// Declares a tensor that some files have and nobody uses.
    ///
    /// # Errors
    /// When it has another shape.
    pub fn idle(&mut self, name: &str, rows: usize, cols: usize) -> Result<(), Error> {
        if self.has(name) {
            self.wanted(name, rows, cols)?;
        }
        Ok(())
    }

    /// The type of a tensor that the graph wants.
    fn wanted(&mut self, name: &str, rows: usize, cols: usize) -> Result<TensorType, Error> {
        let ty = self.catalog.wanted(name, rows, cols)?;
        self.note(TensorSpec { name: name.to_owned(), ty, rows, cols, experts: None });
        Ok(ty)
    }

    /// The same of a tensor with a matrix for each of `experts` experts.
    fn wanted_bank(
        &mut self,
        name: &str,
        experts: usize,
        rows: usize,
        cols: usize,
    ) -> Result<TensorType, Error> {
        let ty = self.catalog.wanted_bank(name, experts, rows, cols)?;
        let banked = (experts > 1).then_some(experts);
        self.note(TensorSpec { name: name.to_owned(), ty, rows, cols, experts: banked });
        Ok(ty)
    }

    fn note(&mut self, tensor: TensorSpec) {
        if self.asked.insert(tensor.name.clone()) {
            self.graph.tensors.push(tensor);
        }
    }

    fn add_matrix(&mut self, name: &str, split: SplitBy, parts: Vec<Part>) -> MatrixId {
        self.add(Matrix { name: name.to_owned(), parts, split, bank: None, by_head: None })
    }

    fn add(&mut self, matrix: Matrix) -> MatrixId {
        self.graph.matrices.push(matrix);
        MatrixId(self.graph.matrices.len() as u32 - 1)
    }

    /// Declares a vector of f32 weights that every node holds.
    pub fn vector(&mut self, name: &str, len: usize) -> Result<VectorId, Error> {
        self.wanted(name, 1, len)?;
        Ok(self.add_vector(name, len, None))
    }

    /// The same times `factor`.
    pub fn vector_times(&mut self, name: &str, len: usize, factor: f32) -> Result<VectorId, Error> {
        let vector = self.vector(name, len)?;
        self.graph.vectors[vector.0 as usize].factor = factor;
        Ok(vector)
    }

    fn add_vector(&mut self, name: &str, len: usize, turned: Option<usize>) -> VectorId {
        self.graph.vectors.push(Vector {
            name: name.to_owned(),
            len,
            fill: None,
            turned,
            factor: 1.0,
            turns: None,
        });
        VectorId(self.graph.vectors.len() as u32 - 1)
    }

    /// What a matrix's products are multiplied by, where the file says so: a number beside a tensor, `X.scale` for
    /// `X.weight`, or one for each of `count` experts. Files of NVFP4 have it, whose scales end at 448, and experts
    /// of Gemma 4.
    ///
    /// `X.input_scale` is for multiplying with inputs of that type, which nobody does here.
    fn scale(
        &mut self,
        tensor: &str,
        ty: TensorType,
        count: usize,
    ) -> Result<Option<VectorId>, Error> {
        let known = ty == TensorType::NVFP4 || count > 1;
        let stem = tensor.strip_suffix(".weight").filter(|_| known);
        let Some(stem) = stem else { return Ok(None) };
        let [own, input] = ["scale", "input_scale"].map(|what| format!("{stem}.{what}"));
        if ty == TensorType::NVFP4 && self.has(&input) {
            self.wanted(&input, 1, count)?;
        }
        let known = self.graph.vectors.iter().position(|vector| vector.name == own);
        match known {
            Some(at) => Ok(Some(VectorId(at as u32))),
            None if self.has(&own) => self.vector(&own, count).map(Some),
            None => Ok(None),
        }
    }

    /// Declares a vector of ones, which no file has: the weights of a norm without any.
    pub fn ones(&mut self, len: usize) -> VectorId {
        let is = |v: &Vector| v.fill == Some(1.0) && v.len == len;
        let at = self.graph.vectors.iter().position(is).unwrap_or_else(|| {
            self.graph.vectors.push(Vector {
                name: String::new(),
                len,
                fill: Some(1.0),
                turned: None,
                factor: 1.0,
                turns: None,
            });
            self.graph.vectors.len() - 1
        });
        VectorId(at as u32)
    }

    /// Declares a rotary embedding; equal ones are shared.
    pub fn rope(&mut self, rope: Rope) -> RopeId {
        let ropes = &mut self.graph.ropes;
        let at = ropes.iter().position(|r| *r == rope).unwrap_or_else(|| {
            ropes.push(rope);
            ropes.len() - 1
        });
        RopeId(at as u32)
    }

    /// Shares `q` query and `kv` key/value heads of `dim` elements between the nodes, so that the
    /// columns of the output projection, `(name, rows)`, are cut in whole quantisation blocks.
    pub fn heads(
        &self,
        q: usize,
        kv: usize,
        dim: usize,
        output: (&str, usize),
    ) -> Result<Heads, Error> {
        let bad = |what, value, need| Err(Error::BadDimension { what, value, need });
        if kv == 0 || q == 0 || !q.is_multiple_of(kv) {
            return bad("attention.head_count", q, "a multiple of attention.head_count_kv");
        }
        if dim == 0 {
            return bad("attention.key_length", dim, "at least 1");
        }
        let block = block_cols(self.catalog.wanted(output.0, output.1, q * dim)?);
        // The smallest number of query heads that fills whole blocks of the output projection.
        let unit = (1..=q).find(|u| (u * dim).is_multiple_of(block)).unwrap_or(q);
        let q_cut = Cut::heads(q, q / kv, unit, dim, &self.shares);
        Ok(Heads { q, kv, dim, q_cut, shared: false, given: Given::KeysAndValues })
    }

    /// Parts of a row-split matrix: `rows` and their cut over the nodes for each.
    fn stack<const N: usize>(
        &mut self,
        tensors: Tensors<'_, N>,
        rows: [(usize, Cut); N],
        cols: usize,
    ) -> Result<Vec<Part>, Error> {
        let all = rows.iter().map(|(rows, _)| rows).sum();
        let (mut parts, mut before) = (Vec::with_capacity(N), 0);
        for (at, (rows, cut)) in rows.into_iter().enumerate() {
            let (name, first, of) = match tensors {
                Tensors::Apart(names) => (names[at], 0, rows),
                Tensors::Fused(name) => (name, before, all),
            };
            let ty = self.wanted(name, of, cols)?;
            let scale = self.scale(name, ty, 1)?;
            parts.push(Part { first, scale, ..Part::plain(name, ty, (rows, cols), cut) });
            before += rows;
        }
        Ok(parts)
    }

    /// Declares `q | k`, or `q` alone, as [`Heads::given`] says.
    pub fn queries(
        &mut self,
        [q, k]: [&str; 2],
        hidden: usize,
        h: &Heads,
    ) -> Result<MatrixId, Error> {
        let queries = (h.q * h.dim, h.q_cut.scaled(h.dim));
        let keys = (h.kv * h.dim, h.kv_cut().scaled(h.dim));
        let parts = match h.given {
            Given::Nothing => self.stack(Tensors::Apart([q]), [queries], hidden)?,
            _ => self.stack(Tensors::Apart([q, k]), [queries, keys], hidden)?,
        };
        Ok(self.add_matrix("qkv", SplitBy::Rows, parts))
    }

    /// Declares `q | k | v` as one matrix, rows cut by heads.
    pub fn qkv<'n>(
        &mut self,
        tensors: impl Into<Tensors<'n, 3>>,
        hidden: usize,
        h: &Heads,
    ) -> Result<MatrixId, Error> {
        let part = |heads: usize, cut: &Cut| (heads * h.dim, cut.scaled(h.dim));
        let kv = part(h.kv, &h.kv_cut());
        let rows = [part(h.q, &h.q_cut), kv.clone(), kv];
        let parts = self.stack(tensors.into(), rows, hidden)?;
        Ok(self.add_matrix("qkv", SplitBy::Rows, parts))
    }

    /// The same with a gate for each element of what heads give, whose rows are with the queries': in turns
    /// those of a head and those of its gates. The gates are the last part.
    pub fn gated_qkv(
        &mut self,
        [q, k, v]: [&str; 3],
        hidden: usize,
        h: &Heads,
    ) -> Result<MatrixId, Error> {
        let layout = Layout::Runs { len: h.dim, step: 2 * h.dim };
        let queries = (h.q * h.dim, h.q_cut.scaled(h.dim));
        let kv = (h.kv * h.dim, h.kv_cut().scaled(h.dim));
        let rows = [
            (q, 2 * h.q * h.dim, 0, layout, queries.clone()),
            (k, kv.0, 0, Layout::Rows, kv.clone()),
            (v, kv.0, 0, Layout::Rows, kv),
            (q, 2 * h.q * h.dim, h.dim, layout, queries),
        ];
        let mut parts = Vec::with_capacity(rows.len());
        for (tensor, of, first, layout, (rows, cut)) in rows {
            parts.push(self.part((tensor, of), (first, layout), (rows, hidden), cut)?);
        }
        Ok(self.add_matrix("qkv+gate", SplitBy::Rows, parts))
    }

    /// Rows of a tensor of so many rows that are a part of a matrix.
    fn part(
        &mut self,
        (name, of): (&str, usize),
        (first, layout): (usize, Layout),
        (rows, cols): (usize, usize),
        cut: Cut,
    ) -> Result<Part, Error> {
        let ty = self.wanted(name, of, cols)?;
        let scale = self.scale(name, ty, 1)?;
        let (name, bias, members) = (name.to_owned(), None, None);
        Ok(Part { name, ty, first, rows, cols, cut, scale, bias, members, layout, columns: None })
    }

    /// Declares vectors that are added to the products with a matrix, one for each of its parts. Those
    /// of a row-split matrix are cut like its rows; that of a column-split one is added to the sum.
    pub fn bias(&mut self, matrix: MatrixId, names: &[&str]) -> Result<(), Error> {
        let at = matrix.0 as usize;
        let rows: Vec<usize> = self.graph.matrices[at].parts.iter().map(|p| p.rows).collect();
        assert_eq!(names.len(), rows.len(), "a bias for each part");
        for (part, (name, rows)) in names.iter().zip(rows).enumerate() {
            let bias = self.vector(name, rows)?;
            self.graph.matrices[at].parts[part].bias = Some(bias);
        }
        self.graph.matrices[at].name.push_str("+bias");
        Ok(())
    }

    /// Declares the output projection of attention: columns cut by heads.
    pub fn attn_output(&mut self, name: &str, hidden: usize, h: &Heads) -> Result<MatrixId, Error> {
        self.output("attn_output", name, hidden, h)
    }

    fn output(
        &mut self,
        label: &str,
        name: &str,
        hidden: usize,
        h: &Heads,
    ) -> Result<MatrixId, Error> {
        let cols = h.q * h.dim;
        let ty = self.wanted(name, hidden, cols)?;
        let cut = h.q_cut.scaled(h.dim);
        let scale = self.scale(name, ty, 1)?;
        let part = Part { scale, ..Part::plain(name, ty, (hidden, cols), cut) };
        Ok(self.add_matrix(label, SplitBy::Cols, vec![part]))
    }

    /// Declares a feed-forward layer, the matrix `up` or the pair `[gate, up]` and the down
    /// projection, cut alike in whole blocks.
    pub fn feed_forward<'n, const N: usize>(
        &mut self,
        up: impl Into<Tensors<'n, N>>,
        down: &str,
        hidden: usize,
        width: usize,
    ) -> Result<(MatrixId, MatrixId), Error> {
        let block = block_cols(self.catalog.wanted(down, hidden, width)?);
        let cut = Cut::summed(width, block, 1, &self.shares);
        let rows = std::array::from_fn(|_| (width, cut.clone()));
        let parts = self.stack::<N>(up.into(), rows, hidden)?;
        let name = if N == 1 { "up" } else { "gate_up" };
        let up = self.add_matrix(name, SplitBy::Rows, parts);
        let ty = self.wanted(down, hidden, width)?;
        let scale = self.scale(down, ty, 1)?;
        let part = Part { scale, ..Part::plain(down, ty, (hidden, width), cut) };
        Ok((up, self.add_matrix("down", SplitBy::Cols, vec![part])))
    }

    /// The same with names of their own. Products of a layer's matrices of one name lie in one buffer, so they wait
    /// for each other.
    pub fn named_feed_forward(
        &mut self,
        [what, up, down]: [&str; 3],
        hidden: usize,
        width: usize,
    ) -> Result<(MatrixId, MatrixId), Error> {
        let pair = self.feed_forward([up], down, hidden, width)?;
        for (matrix, side) in [(pair.0, "up"), (pair.1, "down")] {
            self.graph.matrices[matrix.0 as usize].name = format!("{what}_{side}");
        }
        Ok(pair)
    }

    /// Declares a vocabulary matrix (embedding or head): rows cut in whole tiles.
    pub fn vocab(&mut self, name: &str, vocab: usize, hidden: usize) -> Result<MatrixId, Error> {
        let cut = Cut::rows(vocab, kernels::TILE_ROWS, &self.shares);
        self.graph.vocab = vocab;
        let parts = self.stack(Tensors::Apart([name]), [(vocab, cut)], hidden)?;
        Ok(self.add_matrix("vocab", SplitBy::Rows, parts))
    }

    fn push(&mut self, op: Op, placement: Placement, domain: Domain, widths: &[usize]) -> Bundle {
        let g = &mut self.graph;
        let append = Append::of(g.bundles.last().map_or(0, |b| b.widths.len()), widths.len());
        let width = match placement {
            Placement::Split => widths.iter().sum(),
            _ => widths[0],
        };
        g.bundles.push(BundleInfo { widths: widths.to_vec(), placement, width, domain });
        let out = Bundle(g.bundles.len() as u32 - 1);
        g.ops.push(Node { op, out, layer: self.layer, append });
        out
    }

    fn expect(&self, b: Bundle, placement: Placement, op: &str) -> (usize, Domain) {
        let info = self.graph.bundle(b);
        assert_eq!(info.placement, placement, "operand of {op}");
        (info.width, info.domain)
    }

    fn everywhere(&self, width: usize) -> Vec<usize> {
        vec![width; self.graph.nodes]
    }

    /// Rows of the embedding matrix for the step's tokens, times `scale`.
    pub fn embed(&mut self, table: MatrixId, scale: f32) -> Bundle {
        let widths = self.everywhere(self.graph.matrix(table).parts[0].cols);
        self.push(Op::Embed { table, scale }, Placement::Replicated, Domain::Tokens, &widths)
    }

    /// Norm of each row.
    pub fn norm(&mut self, x: Bundle, norm: Norm) -> Bundle {
        let (width, domain) = self.expect(x, Placement::Replicated, norm.name());
        let widths = self.everywhere(width);
        self.push(Op::Norm { x, norm }, Placement::Replicated, domain, &widths)
    }

    /// Product with `matrix`: row-split gives split, with the bias; column-split gives partial.
    pub fn linear(&mut self, x: Bundle, matrix: MatrixId) -> Bundle {
        self.product(x, matrix, None)
    }

    /// `f(matrix·x + bias)` of a row-split matrix.
    pub fn activated(&mut self, x: Bundle, matrix: MatrixId, f: Activation) -> Bundle {
        let split = self.graph.matrix(matrix).split;
        assert_eq!(split, SplitBy::Rows, "a summand is not what the function is of");
        self.product(x, matrix, Some(f))
    }

    fn product(&mut self, x: Bundle, matrix: MatrixId, activation: Option<Activation>) -> Bundle {
        let nodes = self.graph.nodes;
        let m = self.graph.matrix(matrix);
        let (takes, gives) = match m.split {
            // By head, each node has the heads of its rows.
            SplitBy::Rows if m.by_head.is_some() => (Placement::Split, Placement::Split),
            SplitBy::Rows => (Placement::Replicated, Placement::Split),
            SplitBy::Cols => (Placement::Split, Placement::Partial),
        };
        // The product of each part begins at a whole tile.
        let part = |p: usize, n: usize| m.rows(p, n).len().next_multiple_of(kernels::TILE_ROWS);
        let widths: Vec<usize> = match (m.parts.len(), &m.by_head) {
            (_, Some(of)) => (0..nodes).map(|n| m.rows(0, n).len() / of.rows * of.output).collect(),
            (1, _) => (0..nodes).map(|n| m.rows(0, n).len()).collect(),
            (parts, _) => (0..nodes).map(|n| (0..parts).map(|p| part(p, n)).sum()).collect(),
        };
        let (_, domain) = self.expect(x, takes, "linear");
        let op = Op::Linear { x, matrix, activation, told: None };
        self.push(op, gives, domain, &widths)
    }

    /// `f(gate·x) * (up·x)` of a paired matrix.
    pub fn gated(&mut self, x: Bundle, matrix: MatrixId, activation: Activation) -> Bundle {
        let (_, domain) = self.expect(x, Placement::Replicated, "gated");
        let m = self.graph.matrix(matrix);
        assert!(m.parts.iter().all(|p| p.bias.is_none()), "gate and up have no biases");
        let widths: Vec<usize> = (0..self.graph.nodes).map(|n| m.rows(0, n).len()).collect();
        self.push(Op::Gated { x, matrix, activation }, Placement::Split, domain, &widths)
    }

    /// The product with a matrix that every node has, which gives replicated.
    fn everywhere_product(&mut self, x: Bundle, router: MatrixId) -> Bundle {
        let (_, domain) = self.expect(x, Placement::Replicated, "a product on every node");
        let parts = self.graph.matrix(router).parts.iter();
        let widths = self.everywhere(parts.map(|part| part.rows).sum());
        let op = Op::Linear { x, matrix: router, activation: None, told: None };
        self.push(op, Placement::Replicated, domain, &widths)
    }

    /// Attention over the layer's paged KV cache, which is made here.
    ///
    /// # Panics
    /// When there are more than [`KV_CLASSES`] ways in which layers keep something.
    pub fn attention(&mut self, qkv: Bundle, spec: Attention) -> Bundle {
        self.attend(qkv, None, spec)
    }

    fn attend(&mut self, qkv: Bundle, latents: Option<Bundle>, mut spec: Attention) -> Bundle {
        let (_, domain) = self.expect(qkv, Placement::Split, "attention");
        assert!(
            !spec.norm_last || spec.norm_over == NormOver::Head,
            "sums of squares of all heads are of raw ones"
        );
        if spec.norm_over == NormOver::Row {
            let heads = self.graph.ops.iter_mut().find(|n| n.out == qkv);
            let Some(Node { op: Op::Linear { told, .. }, .. }) = heads else {
                panic!("queries and keys come from a product")
            };
            *told = Some(Told::Squares);
        }
        spec.cache = match spec.borrows {
            None => self.state(spec.keep, Shape::Heads(spec.heads.clone())),
            Some(layer) => self.cache_of(layer),
        };
        let widths: Vec<usize> =
            (0..self.graph.nodes).map(|n| spec.heads.q_len(n) * spec.heads.dim).collect();
        let op = Op::Attention { qkv, latents, spec: Box::new(spec) };
        self.push(op, Placement::Split, domain, &widths)
    }

    /// The heads of a layer's attention.
    pub fn heads_of(&self, layer: usize) -> Option<&Heads> {
        self.graph.ops.iter().find_map(|node| match &node.op {
            Op::Attention { spec, .. } if node.layer == Some(layer) => Some(&spec.heads),
            _ => None,
        })
    }

    /// The state of a layer's attention.
    fn cache_of(&self, layer: usize) -> usize {
        let own = self.graph.ops.iter().find_map(|node| match &node.op {
            Op::Attention { spec, .. } if node.layer == Some(layer) => Some(spec.cache),
            _ => None,
        });
        own.expect("a layer before this one with attention")
    }

    /// Declares something that an operator keeps of every sequence: its number. One operator may have
    /// several, of any shapes.
    ///
    /// # Panics
    /// When there are more than [`KV_CLASSES`] ways in which layers keep something.
    pub fn state(&mut self, keep: Keep, shape: Shape) -> usize {
        self.graph.states.push(State { keep, shape, class: 0 });
        self.graph.classify();
        self.graph.states.len() - 1
    }

    /// `(x + scale * norm(Σ partials + bias)) * factor`, on every node; the bias is that of the matrix which
    /// gave the partials.
    pub fn residual(
        &mut self,
        x: Bundle,
        partial: Bundle,
        norm: Option<Norm>,
        (scale, factor): (f32, Option<VectorId>),
    ) -> Bundle {
        let (width, domain) = self.expect(x, Placement::Replicated, "residual");
        self.expect(partial, Placement::Partial, "residual");
        let (x, widths) = (Some(x), self.everywhere(width));
        let op = Op::Residual { x, partial, norm, scale, factor };
        self.push(op, Placement::Replicated, domain, &widths)
    }

    /// `norm(Σ partials + bias)`, on every node. It is to be used before the next one of the layer.
    pub fn sum(&mut self, partial: Bundle, norm: Option<Norm>) -> Bundle {
        let (width, domain) = self.expect(partial, Placement::Partial, "a sum");
        let widths = self.everywhere(width);
        let op = Op::Residual { x: None, partial, norm, scale: 1.0, factor: None };
        self.push(op, Placement::Replicated, domain, &widths)
    }

    /// `(norm(x) + y) * scale * factor`, the norm being of each run of as many elements as it has weights.
    pub fn blend(
        &mut self,
        (x, norm): (Bundle, Norm),
        y: Bundle,
        (scale, factor): (f32, Option<VectorId>),
    ) -> Bundle {
        let (width, domain) = self.expect(x, Placement::Replicated, "blend");
        assert_eq!(self.expect(y, Placement::Replicated, "blend").0, width, "as wide");
        let widths = self.everywhere(width);
        let op = Op::Blend { x, y, norm, scale, factor };
        self.push(op, Placement::Replicated, domain, &widths)
    }

    /// Keeps the rows whose logits are asked for.
    pub fn select(&mut self, x: Bundle) -> Bundle {
        let (width, _) = self.expect(x, Placement::Replicated, "select");
        let widths = self.everywhere(width);
        self.push(Op::Select { x }, Placement::Replicated, Domain::Outputs, &widths)
    }

    /// Logits over the whole vocabulary, times `scale` and then bent to stay within `cap`, gathered
    /// for the caller.
    pub fn logits(&mut self, x: Bundle, head: MatrixId, scale: f32, cap: Option<f32>) -> Bundle {
        let (_, domain) = self.expect(x, Placement::Replicated, "logits");
        let width = self.graph.matrix(head).parts[0].rows;
        self.push(Op::Logits { x, head, scale, cap }, Placement::Whole(0), domain, &[width])
    }
}

/// Columns of a matrix of this type must be cut in multiples of this: whole weight blocks, and
/// whole blocks of the 8-bit activations or tiles that feed them.
fn block_cols(ty: TensorType) -> usize {
    match kernels::act_kind(ty) {
        kernels::ActKind::Q8 => ty.block_len().max(32),
        kernels::ActKind::F32 | kernels::ActKind::Bf16 => kernels::TILE_ROWS,
    }
}
