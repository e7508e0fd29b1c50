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
pub use latent::{LatentSizes, UpProjection};
pub use recurrent::{ConvolutionOf, RecurrenceOf, RecurrentRows, RecurrentSizes, TensorRows};

use crate::graph::Graph;
use crate::keep::Keep;
use crate::list::Append;
use crate::op::{Activation, Added, Attention, Heads, Norm, NormOver, TileSums};
use crate::operator::{Node, Op, Operator};
use crate::operators::{
    AttentionOp, BlendOp, EmbedOp, GatedOp, HiddenOp, LinearOp, LogitsOp, NormOp, ResidualOp,
    SelectOp,
};
use crate::placement::{Placement, Shares};
use crate::state::{State, StateShape};
use crate::tables::Tables;
use crate::tensor::{Bundle, BundleInfo, Domain};
use crate::weight::{Catalog, MatrixId, SplitBy, VectorId};
use std::collections::HashSet;

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
        let graph = Graph {
            tables: Tables { nodes: shares.nodes(), ..Tables::default() },
            ..Graph::default()
        };
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
        let tensors = |bundle: &BundleInfo| bundle.widths.len();
        let operands = op.inputs().into_iter().map(|bundle| tensors(g.bundle(bundle))).max();
        let before = operands.or(g.tables.bundles.last().map(tensors)).unwrap_or(0);
        let append = Append::of(before, widths.len());
        let width = match placement {
            Placement::Split => widths.iter().sum(),
            _ => widths[0],
        };
        g.tables.bundles.push(BundleInfo { widths: widths.to_vec(), placement, width, domain });
        let out = Bundle(g.tables.bundles.len() as u32 - 1);
        g.ops.push(Node { op: Op::new(op), out, layer: self.layer, append });
        out
    }

    fn expect(&self, b: Bundle, placement: Placement, op: &str) -> (usize, Domain) {
        let info = self.graph.bundle(b);
        assert_eq!(info.placement, placement, "operand of {op}");
        (info.width, info.domain)
    }

    fn everywhere(&self, width: usize) -> Vec<usize> {
        vec![width; self.graph.nodes()]
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
        let nodes = self.graph.nodes();
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
        let widths: Vec<usize> = (0..self.graph.nodes()).map(|n| m.rows(0, n).len()).collect();
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
    /// When there are more than [`KV_CLASSES`](crate::KV_CLASSES) ways in which layers keep something.
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
            (0..self.graph.nodes()).map(|n| spec.heads.q_len(n) * spec.heads.dim).collect();
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
    /// When there are more than [`KV_CLASSES`](crate::KV_CLASSES) ways in which layers keep something.
    pub fn state(&mut self, keep: Keep, shape: StateShape) -> usize {
        self.graph.tables.states.push(State { keep, shape, class: 0 });
        self.graph.classify();
        self.graph.tables.states.len() - 1
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
