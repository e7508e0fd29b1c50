//! The graph builder: what a model's definition is written with.
//!
//! Each method appends one operator to the static list and returns its result as a [`Bundle`]. Those of
//! `declare.rs` ask for weights.

mod declare;
mod experts;
mod latent;
mod predict;
mod recurrent;
mod rows;
mod streams;

pub use declare::Tensors;
use declare::block_cols;
pub use latent::{LatentSizes, UpProjection};
pub use recurrent::{ConvolutionOf, RecurrenceOf, RecurrentRows, RecurrentSizes, TensorRows};

use crate::adapter::Lows;
use crate::keep::{KV_CLASSES, Keep};
use crate::list::Append;
use crate::op::{Activation, Added, Attention, Heads, Norm, NormOver, Rope, TileSums};
use crate::operator::{Op, Operator};
use crate::operators::{
    AttentionOp, BlendOp, EmbedOp, ExpertsDownOp, ExpertsUpOp, GatedOp, HiddenOp, LinearOp,
    LogitsOp, NormOp, ResidualOp, SelectOp,
};
use crate::placement::{Placement, Shares};
use crate::state::{State, StateShape};
use crate::step::Ids;
use crate::tensor::{Bundle, BundleInfo, Domain};
use crate::weight::{Catalog, Matrix, MatrixId, SplitBy, TensorSpec, Vector, VectorId};
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

impl Node {
    /// Its parameters, if it is attention.
    pub fn attention(&self) -> Option<&Attention> {
        self.op.get().map(|of: &AttentionOp| &*of.spec)
    }
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
    pub(crate) types: usize, // of tokens; 0 if they have none
    /// Operators of the model; those behind them predict further tokens.
    pub(crate) model_ops: Option<usize>,
    pub(crate) tensors: Vec<TensorSpec>, // as they were first asked for
    pub(crate) lows: Vec<Option<Lows>>,  // [matrix], or nothing
    pub(crate) most_rank: usize,         // of adapters, in whole tiles
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

    /// Ids that a step's tokens may have: the vocabulary, once for each type of tokens. Token `id` of type `t` is
    /// `t * vocab + id`.
    pub fn ids(&self) -> usize {
        self.vocab * self.types.max(1)
    }

    pub(crate) fn token_ids(&self) -> Ids {
        Ids { vocab: self.vocab, types: self.types.max(1), width: 0 }
    }

    /// Whether it gives logits, and not hidden states alone.
    pub fn has_head(&self) -> bool {
        self.ops.iter().any(|node| node.op.get::<LogitsOp>().is_some())
    }

    /// Elements of a row of logits: none without a head.
    pub(crate) fn logits_width(&self) -> usize {
        if self.has_head() { self.vocab } else { 0 }
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
            self.ops.iter().find_map(|node| {
                let up = node.op.get().map(|of: &ExpertsUpOp| (of.bank, of.count));
                let down = node.op.get().map(|of: &ExpertsDownOp| (of.bank, of.count));
                let (bank, count) = up.or(down)?;
                let mut parts = self.matrix(bank).parts.iter();
                parts.any(|part| part.name == tensor).then_some(count)
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
            match state.keep {
                Keep::Window(held) | Keep::Chunk(held) if held >= context => state.keep = Keep::All,
                Keep::Text { near } if near >= Some(context - 1) => {
                    state.keep = Keep::Text { near: None };
                }
                _ => {}
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

    /// Whether tokens see those behind them, so that a step has whole texts.
    pub fn reads_texts(&self) -> bool {
        self.classes.iter().any(|keep| keep.is_text())
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
    pub fn page_bytes(&self, node: usize, kv: impl Into<crate::KvTypes>, class: usize) -> usize {
        let (layers, kv) = (self.states.iter().filter(|state| state.class == class), kv.into());
        layers.map(|state| state.page_bytes(node, kv)).sum()
    }

    /// Bytes of one token's keys and values on `node`, in the layers of a class.
    pub fn kv_bytes_per_token(
        &self,
        node: usize,
        kv: impl Into<crate::KvTypes>,
        class: usize,
    ) -> usize {
        if self.classes[class].is_paged() { self.page_bytes(node, kv, class) / KV_PAGE } else { 0 }
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

    fn push(
        &mut self,
        op: impl Operator,
        placement: Placement,
        domain: Domain,
        widths: &[usize],
    ) -> Bundle {
        let g = &mut self.graph;
        let append = Append::of(g.bundles.last().map_or(0, |b| b.widths.len()), widths.len());
        let width = match placement {
            Placement::Split => widths.iter().sum(),
            _ => widths[0],
        };
        g.bundles.push(BundleInfo { widths: widths.to_vec(), placement, width, domain });
        let out = Bundle(g.bundles.len() as u32 - 1);
        g.ops.push(Node { op: Op::new(op), out, layer: self.layer, append });
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
        self.embed_and(table, scale, Added::default())
    }

    /// The same plus something.
    pub fn embed_and(&mut self, table: MatrixId, scale: f32, added: Added) -> Bundle {
        let widths = self.everywhere(self.graph.matrix(table).parts[0].cols);
        let op = EmbedOp { table, scale, added, insets: true };
        self.push(op, Placement::Replicated, Domain::Tokens, &widths)
    }

    /// Norm of each row.
    pub fn norm(&mut self, x: Bundle, norm: Norm) -> Bundle {
        let (width, domain) = self.expect(x, Placement::Replicated, norm.name());
        let widths = self.everywhere(width);
        self.push(NormOp { x, norm }, Placement::Replicated, domain, &widths)
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
        let op = LinearOp { x, matrix, activation, told: None };
        self.push(op, gives, domain, &widths)
    }

    /// `f(gate·x) * (up·x)` of a paired matrix.
    pub fn gated(&mut self, x: Bundle, matrix: MatrixId, activation: Activation) -> Bundle {
        let (_, domain) = self.expect(x, Placement::Replicated, "gated");
        let m = self.graph.matrix(matrix);
        let widths: Vec<usize> = (0..self.graph.nodes).map(|n| m.rows(0, n).len()).collect();
        self.push(GatedOp { x, matrix, activation }, Placement::Split, domain, &widths)
    }

    /// The product with a matrix that every node has, which gives replicated.
    fn everywhere_product(&mut self, x: Bundle, router: MatrixId) -> Bundle {
        let (_, domain) = self.expect(x, Placement::Replicated, "a product on every node");
        let parts = self.graph.matrix(router).parts.iter();
        let widths = self.everywhere(parts.map(|part| part.rows).sum());
        let op = LinearOp { x, matrix: router, activation: None, told: None };
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
        assert!(
            !spec.norm_centres || spec.norm_over == NormOver::Head,
            "nobody tells of the mean of all heads"
        );
        if spec.norm_over == NormOver::Row && !spec.tells_heads() {
            self.product_mut(qkv).told = Some(TileSums::Squares);
        }
        spec.cache = match spec.borrows {
            None => self.state(spec.keep, StateShape::Heads(spec.heads.clone())),
            Some(layer) => self.cache_of(layer),
        };
        let widths: Vec<usize> =
            (0..self.graph.nodes).map(|n| spec.heads.q_len(n) * spec.heads.dim).collect();
        let op = AttentionOp { qkv, latents, spec: Box::new(spec) };
        self.push(op, Placement::Split, domain, &widths)
    }

    /// The product that gave a bundle.
    fn product_mut(&mut self, of: Bundle) -> &mut LinearOp {
        let made = self.graph.ops.iter_mut().find(|node| node.out == of);
        made.and_then(|node| node.op.get_mut()).expect("the result of a product")
    }

    /// A layer's attention.
    fn attention_of(&self, layer: usize) -> Option<&Attention> {
        let mut ops = self.graph.ops.iter().filter(|node| node.layer == Some(layer));
        ops.find_map(Node::attention)
    }

    /// The heads of a layer's attention.
    pub fn heads_of(&self, layer: usize) -> Option<&Heads> {
        self.attention_of(layer).map(|spec| &spec.heads)
    }

    /// The state of a layer's attention.
    fn cache_of(&self, layer: usize) -> usize {
        self.attention_of(layer).expect("a layer before this one with attention").cache
    }

    /// Declares something that an operator keeps of every sequence: its number. One operator may have
    /// several, of any shapes.
    ///
    /// # Panics
    /// When there are more than [`KV_CLASSES`] ways in which layers keep something.
    pub fn state(&mut self, keep: Keep, shape: StateShape) -> usize {
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
        let op = ResidualOp { x, partial, norm, scale, factor };
        self.push(op, Placement::Replicated, domain, &widths)
    }

    /// `norm(Σ partials + bias)`, on every node. It is to be used before the next one of the layer.
    pub fn sum(&mut self, partial: Bundle, norm: Option<Norm>) -> Bundle {
        let (width, domain) = self.expect(partial, Placement::Partial, "a sum");
        let widths = self.everywhere(width);
        let op = ResidualOp { x: None, partial, norm, scale: 1.0, factor: None };
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
        let op = BlendOp { x, y, norm, scale, factor };
        self.push(op, Placement::Replicated, domain, &widths)
    }

    /// Keeps the rows whose logits are asked for.
    pub fn select(&mut self, x: Bundle) -> Bundle {
        let (width, _) = self.expect(x, Placement::Replicated, "select");
        let widths = self.everywhere(width);
        self.push(SelectOp { x }, Placement::Replicated, Domain::Outputs, &widths)
    }

    /// Hands hidden states to the caller and ends a model without a head.
    pub fn hidden(&mut self, x: Bundle) -> Bundle {
        let (width, domain) = self.expect(x, Placement::Replicated, "hidden states");
        self.push(HiddenOp { x, at: 0 }, Placement::Whole(0), domain, &[width])
    }

    /// Logits over the whole vocabulary, times `scale` and then bent to stay within `cap`, gathered
    /// for the caller.
    pub fn logits(&mut self, x: Bundle, head: MatrixId, scale: f32, cap: Option<f32>) -> Bundle {
        let (_, domain) = self.expect(x, Placement::Replicated, "logits");
        let width = self.graph.matrix(head).parts[0].rows;
        self.push(LogitsOp { x, head, scale, cap }, Placement::Whole(0), domain, &[width])
    }
}
