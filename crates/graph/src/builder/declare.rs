//! Weights that a definition asks for. Names and shapes are checked against the file at once, so a model that builds
//! will load.

use super::Builder;
use crate::error::Error;
use crate::op::{Given, Heads, Rope, RopeId};
use crate::placement::Cut;
use crate::relative;
use crate::weight::{
    Clamp, Layout, Matrix, MatrixId, Part, SplitBy, TensorSpec, Vector, VectorId, block_cols,
};
use gguf::TensorType;

/// Query heads that can read one key/value head: their rows are attended together.
const MOST_QUERIES: usize = 128;

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

impl Builder<'_> {
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
    pub(super) fn wanted(
        &mut self,
        name: &str,
        rows: usize,
        cols: usize,
    ) -> Result<TensorType, Error> {
        let ty = self.catalog.wanted(name, rows, cols)?;
        self.note(TensorSpec { name: name.to_owned(), ty, rows, cols, experts: None });
        Ok(ty)
    }

    /// The same of a tensor with a matrix for each of `experts` experts.
    pub(super) fn wanted_bank(
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

    pub(super) fn note(&mut self, tensor: TensorSpec) {
        if self.asked.insert(tensor.name.clone()) {
            self.graph.tensors.push(tensor);
        }
    }

    pub(super) fn add_matrix(&mut self, name: &str, split: SplitBy, parts: Vec<Part>) -> MatrixId {
        self.add(Matrix {
            name: name.to_owned(),
            parts,
            split,
            bank: None,
            by_head: None,
            clamp: None,
        })
    }

    pub(super) fn add(&mut self, matrix: Matrix) -> MatrixId {
        self.graph.tables.matrices.push(matrix);
        MatrixId(self.graph.tables.matrices.len() as u32 - 1)
    }

    /// Declares a vector of f32 weights that every node holds.
    pub fn vector(&mut self, name: &str, len: usize) -> Result<VectorId, Error> {
        self.wanted(name, 1, len)?;
        Ok(self.add_vector(name, len, None))
    }

    /// The same times `factor`.
    pub fn vector_times(&mut self, name: &str, len: usize, factor: f32) -> Result<VectorId, Error> {
        let vector = self.vector(name, len)?;
        self.graph.tables.vectors[vector.0 as usize].factor = factor;
        Ok(vector)
    }

    pub(super) fn add_vector(&mut self, name: &str, len: usize, turned: Option<usize>) -> VectorId {
        self.graph.tables.vectors.push(Vector {
            name: name.to_owned(),
            len,
            fill: None,
            turned,
            factor: 1.0,
            turns: None,
            within: None,
            buckets: None,
        });
        VectorId(self.graph.tables.vectors.len() as u32 - 1)
    }

    /// Declares the embeddings of token types, `[types, hidden]`. Token `id` of type `t` is then `t * vocab + id`
    /// in a step ([`Graph::ids`](crate::Graph::ids)).
    pub fn token_types(
        &mut self,
        name: &str,
        types: usize,
        hidden: usize,
    ) -> Result<VectorId, Error> {
        self.graph.types = types;
        self.table(name, types, hidden)
    }

    /// Declares a small table, `[rows, cols]`, that every node holds: weights of heads, or embeddings of positions.
    pub fn table(&mut self, name: &str, rows: usize, cols: usize) -> Result<VectorId, Error> {
        self.wanted(name, rows, cols)?;
        Ok(self.add_vector(name, rows * cols, None))
    }

    /// Declares what attention adds to scores by the distance of their key, of tensors `[buckets, heads]` (T5): a number
    /// for each head and distance.
    ///
    /// # Errors
    /// When the file has no such tensor, or the number of buckets is odd or less than four.
    pub fn biases(&mut self, name: &str, buckets: usize, heads: usize) -> Result<VectorId, Error> {
        self.wanted(name, buckets, heads)?;
        let biases = self.add_vector(name, heads * relative::LEN, None);
        self.graph.tables.vectors[biases.0 as usize].buckets = Some(buckets);
        Ok(biases)
    }

    /// What a matrix's products are multiplied by, where the file says so: a number beside a tensor, `X.scale` for
    /// `X.weight`, or one for each of `count` experts. Files of NVFP4 have it, whose scales end at 448, and experts
    /// of Gemma 4.
    ///
    /// `X.input_scale` is for multiplying with inputs of that type, which nobody does here.
    pub(super) fn scale(
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
        let known = self.graph.tables.vectors.iter().position(|vector| vector.name == own);
        match known {
            Some(at) => Ok(Some(VectorId(at as u32))),
            None if self.has(&own) => self.vector(&own, count).map(Some),
            None => Ok(None),
        }
    }

    /// Declares a vector of ones, which no file has: the weights of a norm without any.
    pub fn ones(&mut self, len: usize) -> VectorId {
        self.filled(len, 1.0)
    }

    /// Declares a vector of zeros, which no file has: the bias of a norm without one.
    pub fn zeros(&mut self, len: usize) -> VectorId {
        self.filled(len, 0.0)
    }

    fn filled(&mut self, len: usize, with: f32) -> VectorId {
        let is = |v: &Vector| v.fill == Some(with) && v.len == len;
        let at = self.graph.tables.vectors.iter().position(is).unwrap_or_else(|| {
            self.graph.tables.vectors.push(Vector {
                name: String::new(),
                len,
                fill: Some(with),
                turned: None,
                factor: 1.0,
                turns: None,
                within: None,
                buckets: None,
            });
            self.graph.tables.vectors.len() - 1
        });
        VectorId(at as u32)
    }

    /// Declares a rotary embedding; equal ones are shared.
    pub fn rope(&mut self, rope: Rope) -> RopeId {
        let ropes = &mut self.graph.tables.ropes;
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
        if q / kv > MOST_QUERIES {
            return bad(
                "attention.head_count",
                q,
                "at most 128 for each of attention.head_count_kv",
            );
        }
        let block = block_cols(self.catalog.wanted(output.0, output.1, q * dim)?);
        // The smallest number of query heads that fills whole blocks of the output projection.
        let unit = (1..=q).find(|u| (u * dim).is_multiple_of(block)).unwrap_or(q);
        let q_cut = Cut::heads(q, q / kv, unit, dim, &self.shares);
        Ok(Heads { q, kv, dim, q_cut, shared: false, given: Given::KeysAndValues })
    }

    /// Parts of a row-split matrix: `rows` and their cut over the nodes for each.
    pub(super) fn stack<const N: usize>(
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
            parts.push(self.part(tensor, of, first, layout, (rows, hidden), cut)?);
        }
        Ok(self.add_matrix("qkv+gate", SplitBy::Rows, parts))
    }

    /// Rows of a tensor of so many rows that are a part of a matrix.
    pub(super) fn part(
        &mut self,
        name: &str,
        of: usize,
        first: usize,
        layout: Layout,
        (rows, cols): (usize, usize),
        cut: Cut,
    ) -> Result<Part, Error> {
        let ty = self.wanted(name, of, cols)?;
        let scale = self.scale(name, ty, 1)?;
        Ok(Part { first, scale, layout, ..Part::plain(name, ty, (rows, cols), cut) })
    }

    /// Declares vectors that are added to the products with a matrix, one for each of its parts. Those
    /// of a row-split matrix are cut like its rows; that of a column-split one is added to the sum.
    pub fn bias(&mut self, matrix: MatrixId, names: &[&str]) -> Result<(), Error> {
        let at = matrix.0 as usize;
        let rows: Vec<usize> =
            self.graph.tables.matrices[at].parts.iter().map(|p| p.rows).collect();
        assert_eq!(names.len(), rows.len(), "a bias for each part");
        for (part, (name, rows)) in names.iter().zip(rows).enumerate() {
            let bias = self.vector(name, rows)?;
            self.graph.tables.matrices[at].parts[part].bias = Some(bias);
        }
        self.graph.tables.matrices[at].name.push_str("+bias");
        Ok(())
    }

    /// The same of a tensor that has the vectors of all parts, one behind the other.
    pub fn fused_bias(&mut self, matrix: MatrixId, name: &str) -> Result<(), Error> {
        let at = matrix.0 as usize;
        let rows: Vec<usize> =
            self.graph.tables.matrices[at].parts.iter().map(|p| p.rows).collect();
        let all = rows.iter().sum();
        self.wanted(name, 1, all)?;
        let mut first = 0;
        for (part, rows) in rows.into_iter().enumerate() {
            let bias = self.add_vector(name, rows, None);
            self.graph.tables.vectors[bias.0 as usize].within = Some((first, all));
            self.graph.tables.matrices[at].parts[part].bias = Some(bias);
            first += rows;
        }
        self.graph.tables.matrices[at].name.push_str("+bias");
        Ok(())
    }

    /// Declares what inputs and products of a matrix are kept between, if the file says so: beside `X.weight` a number
    /// each in `X.input_min`, `X.input_max`, `X.output_min` and `X.output_max`. The limits of inputs are those of the
    /// first part: the file is to have the same for all, which are products of one input.
    ///
    /// # Errors
    /// When the file has some of them and not all.
    pub fn clamp(&mut self, matrix: MatrixId) -> Result<(), Error> {
        let at = matrix.0 as usize;
        for part in 0..self.graph.tables.matrices[at].parts.len() {
            let tensor = self.graph.tables.matrices[at].parts[part].name.clone();
            let stem = tensor.strip_suffix(".weight").unwrap_or(&tensor);
            let names = ["input_min", "input_max", "output_min", "output_max"];
            let names = names.map(|what| format!("{stem}.{what}"));
            if !names.iter().any(|name| self.has(name)) {
                continue;
            }
            let mut both = |[least, most]: [&String; 2]| -> Result<Clamp, Error> {
                Ok(Clamp { least: self.vector(least, 1)?, most: self.vector(most, 1)? })
            };
            let (inputs, products) = (both([&names[0], &names[1]])?, both([&names[2], &names[3]])?);
            let matrix = &mut self.graph.tables.matrices[at];
            matrix.parts[part].clamp = Some(products);
            matrix.clamp.get_or_insert(inputs);
        }
        Ok(())
    }

    /// Declares the output projection of attention: columns cut by heads.
    pub fn attn_output(&mut self, name: &str, hidden: usize, h: &Heads) -> Result<MatrixId, Error> {
        self.output("attn_output", name, hidden, h)
    }

    pub(super) fn output(
        &mut self,
        label: &str,
        name: &str,
        hidden: usize,
        h: &Heads,
    ) -> Result<MatrixId, Error> {
        let cols = h.q * h.dim;
        let cut = h.q_cut.scaled(h.dim);
        let part = self.part(name, hidden, 0, Layout::Rows, (hidden, cols), cut)?;
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
        let part = self.part(down, hidden, 0, Layout::Rows, (hidden, width), cut)?;
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
            self.graph.tables.matrices[matrix.0 as usize].name = format!("{what}_{side}");
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
}
