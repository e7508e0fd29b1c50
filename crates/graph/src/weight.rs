//! Weight declarations: which tensors of the file make up a matrix and how nodes share it.
//!
//! Nothing is read here beyond names, types and shapes; the loader packs the data later.

use crate::bank::{Bank, Members};
use crate::error::Error;
use crate::placement::Cut;
use crate::sum::{Leaf, Sum};
use gguf::TensorType;
use std::fmt;
use std::ops::Range;

/// One tensor of the model file.
#[derive(Copy, Clone, Debug)]
pub struct WeightView<'a> {
    /// Block type.
    pub ty: TensorType,
    /// Number of rows (1 for a vector).
    pub rows: usize,
    /// Elements of a row.
    pub cols: usize,
    /// The rows, one after the other, in whole blocks.
    pub data: &'a [u8],
}

/// What [`WeightSource::take`] hands bytes to: those of each part that was asked for.
pub type PackBytes<'a> = dyn FnMut(&[&[u8]]) -> Result<(), Error> + 'a;

/// Where a graph finds its weights by name.
///
/// What is packed together is asked for ahead with [`begin`](WeightSource::begin), and in the same order
/// [taken](WeightSource::take). Whoever asks does not look at a view's `data` itself: it says which bytes
/// of the file are meant, and a source need not have them there.
pub trait WeightSource: Sync {
    /// The tensor `name`, or `None` when the file has none.
    fn tensor(&self, name: &str) -> Option<WeightView<'_>>;

    /// Bytes of the file that are packed between two waits: enough that a wait costs nothing beside, few
    /// enough that several times as many, which are being brought, take little memory.
    fn round_bytes(&self) -> usize {
        32 << 20
    }

    /// Asked for parts of tensors' data that will be taken after those asked for before. `false` if
    /// enough is being brought already; it is asked again then when something was taken. Never `false` when
    /// everything that was asked for is taken.
    fn begin(&self, parts: &[&[u8]]) -> bool {
        let _ = parts;
        true
    }

    /// Hands the bytes of these parts to `pack`. The source may throw them away when that returns.
    ///
    /// # Errors
    /// When they cannot be read, or `pack` fails.
    fn take(&self, parts: &[&[u8]], pack: &mut PackBytes<'_>) -> Result<(), Error> {
        pack(parts)
    }
}

impl WeightSource for gguf::Gguf<'_> {
    fn tensor(&self, name: &str) -> Option<WeightView<'_>> {
        let t = gguf::Gguf::tensor(self, name)?;
        Some(WeightView { ty: t.ty, rows: t.rows(), cols: t.cols(), data: t.data })
    }
}

/// What a builder asks about a model's tensors. A file answers, or a model that has no weights yet.
pub trait Catalog {
    /// The type of the tensor `name`, which is wanted with so many rows (1 for a vector) and columns.
    ///
    /// # Errors
    /// When there is no such tensor, or it has another shape.
    fn wanted(&self, name: &str, rows: usize, cols: usize) -> Result<TensorType, Error>;

    /// The same of a tensor that holds a bank: so many matrices of that shape.
    ///
    /// # Errors
    /// As [`Catalog::wanted`], or when it holds another number of them.
    fn wanted_bank(
        &self,
        name: &str,
        experts: usize,
        rows: usize,
        cols: usize,
    ) -> Result<TensorType, Error> {
        self.wanted(name, experts * rows, cols)
    }

    /// Whether there is a tensor that a definition can do without. A catalog that says nothing has none.
    fn has(&self, name: &str) -> bool {
        let _ = name;
        false
    }

    /// The rows of a tensor, where there are weights.
    fn rows(&self, name: &str) -> Option<usize> {
        let _ = name;
        None
    }

    /// The `len` elements of a small tensor on which the definition itself depends, such as divisors
    /// of rotary angles; `None` when there is no such tensor, as in a catalog that says nothing.
    ///
    /// # Errors
    /// When the tensor has another number of elements.
    fn values(&self, name: &str, len: usize) -> Result<Option<Vec<f32>>, Error> {
        let _ = (name, len);
        Ok(None)
    }
}

impl Catalog for gguf::Gguf<'_> {
    fn wanted(&self, name: &str, rows: usize, cols: usize) -> Result<TensorType, Error> {
        let missing = || Error::MissingTensor(name.to_owned());
        let t = gguf::Gguf::tensor(self, name).ok_or_else(missing)?;
        let (got_rows, got_cols) = (t.rows(), t.cols());
        if (got_rows, got_cols) != (rows, cols) {
            let name = name.to_owned();
            return Err(Error::WrongShape { name, got_rows, got_cols, rows, cols });
        }
        Ok(t.ty)
    }

    fn wanted_bank(
        &self,
        name: &str,
        experts: usize,
        rows: usize,
        cols: usize,
    ) -> Result<TensorType, Error> {
        let ty = self.wanted(name, experts * rows, cols)?;
        let dims = gguf::Gguf::tensor(self, name).map_or(&[][..], |t| t.shape.dims());
        let got = dims.get(2).copied().unwrap_or(1);
        if got != experts {
            return Err(Error::WrongExperts { name: name.to_owned(), got, experts });
        }
        Ok(ty)
    }

    fn rows(&self, name: &str) -> Option<usize> {
        gguf::Gguf::tensor(self, name).map(|t| t.rows())
    }

    fn has(&self, name: &str) -> bool {
        gguf::Gguf::tensor(self, name).is_some()
    }

    fn values(&self, name: &str, len: usize) -> Result<Option<Vec<f32>>, Error> {
        let Some(t) = gguf::Gguf::tensor(self, name) else { return Ok(None) };
        self.wanted(name, 1, len)?;
        let mut values = vec![0.0; len];
        t.ty.dequantize(t.data, &mut values).expect("tensors of a file are whole blocks");
        Ok(Some(values))
    }
}

/// A tensor that a graph wants of its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Its name.
    pub name: String,
    /// Block type.
    pub ty: TensorType,
    /// Rows: 1 for a vector.
    pub rows: usize,
    /// Elements of a row.
    pub cols: usize,
    /// Matrices of so many rows that it holds, if it is a bank of experts.
    pub experts: Option<usize>,
}

impl TensorSpec {
    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.rows * self.cols * self.experts.unwrap_or(1)
    }

    /// Its dimensions as files state them: the length of a row first, and nothing else for a vector.
    pub fn dims(&self) -> Vec<usize> {
        match self.experts {
            Some(experts) => vec![self.cols, self.rows, experts],
            None if self.rows == 1 => vec![self.cols],
            None => vec![self.cols, self.rows],
        }
    }

    /// Bytes in the file.
    pub fn bytes(&self) -> usize {
        self.elements() / self.ty.block_len() * self.ty.block_bytes()
    }
}

/// Index of a matrix in its graph.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct MatrixId(pub(crate) u32);

/// Index of a vector in its graph.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct VectorId(pub(crate) u32);

/// Two numbers that others are kept between: what is beyond one of them becomes it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Clamp {
    /// The least, one number.
    pub least: VectorId,
    /// The largest, one number.
    pub most: VectorId,
}

/// Which dimension of a matrix the nodes share.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum SplitBy {
    /// Each node holds some rows: replicated input, split output.
    Rows,
    /// Each node holds some columns: split input, partial output.
    Cols,
}

impl fmt::Display for SplitBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            SplitBy::Rows => "rows",
            SplitBy::Cols => "columns",
        })
    }
}

/// One tensor of the file, or a run of its rows, inside a matrix.
#[derive(Clone, Debug)]
pub struct Part {
    /// Tensor name in the file.
    pub name: String,
    /// Block type.
    pub ty: TensorType,
    /// Row of the tensor where the part begins; above 0 when several parts are fused in one tensor.
    pub first: usize,
    /// Rows of the whole part.
    pub rows: usize,
    /// Columns of the whole part.
    pub cols: usize,
    /// How the split dimension is cut.
    pub cut: Cut,
    /// What products are multiplied by, before the bias: one number, or `[experts]` of a bank.
    pub scale: Option<VectorId>,
    /// What is added to each row's product, `[rows]`, or `[experts, rows]` of a bank.
    pub bias: Option<VectorId>,
    /// What products are kept between then.
    pub clamp: Option<Clamp>,
    /// The experts whose matrices these are; of one, the shape above is meant.
    pub members: Option<Members>,
    /// Where its rows are in the tensor.
    pub layout: Layout,
    /// Where its columns are, if not one after the other.
    pub columns: Option<Turns>,
}

/// Where the rows of a part are in its tensor.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// One after the other.
    #[default]
    Rows,
    /// In runs of `len` rows, of which one begins every `step` rows.
    Runs {
        /// Rows of a run.
        len: usize,
        /// Rows from the beginning of a run to that of the next.
        step: usize,
    },
    /// They are columns, `len` in all, of the part's number of columns as rows; the rows for the next `len`
    /// begin `step` rows later. They are stored as a type without blocks.
    Columns {
        /// Columns of the tensor.
        len: usize,
        /// Rows of the tensor for each.
        step: usize,
    },
    /// Heads take turns.
    Turns(Turns),
}

/// Heads of values of which several share a head of keys. In files heads of keys take turns: the first head of
/// values of each, then the second of each. In a graph `together` of them do, and then the next ones, so that
/// who has some heads of keys has all of their heads of values, in whole quantisation blocks.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Turns {
    /// Rows or columns of something else before them.
    pub first: usize,
    /// Rows or columns of a head of values.
    pub len: usize,
    /// Heads of keys.
    pub keys: usize,
    /// Heads of values of each.
    pub each: usize,
    /// Heads of keys that take turns in the graph, a divisor of all.
    pub together: usize,
}

impl Turns {
    /// Where the file has what the graph has at `at`.
    pub(crate) fn source(&self, at: usize) -> usize {
        let Some(own) = at.checked_sub(self.first) else { return at };
        let (head, within) = (own / self.len, own % self.len);
        let (unit, in_unit) =
            (head / (self.each * self.together), head % (self.each * self.together));
        let (turn, key) = (in_unit / self.together, in_unit % self.together);
        self.first + (turn * self.keys + unit * self.together + key) * self.len + within
    }

    /// Rows or columns that the file has one after the other, as the graph has them.
    pub(crate) fn run(&self) -> usize {
        self.together * self.len
    }
}

impl Layout {
    /// The rows of the tensor, from the part's first, that the rows `rows` of the part lie within.
    pub(crate) fn span(self, rows: Range<usize>) -> Range<usize> {
        let of = |row| self.row(row);
        let first = rows.clone().map(of).min().unwrap_or(0);
        let last = rows.map(of).max();
        first..last.map_or(first, |last| last + 1)
    }

    /// The row of the tensor, from the part's first, that is row `row` of the part, or where its columns
    /// begin.
    pub(crate) fn row(self, row: usize) -> usize {
        match self {
            Layout::Rows => row,
            Layout::Runs { len, step } => row / len * step + row % len,
            Layout::Columns { len, step } => row / len * step,
            Layout::Turns(turns) => turns.source(row),
        }
    }
}

/// Columns of a matrix of this type must be cut in multiples of this: whole weight blocks, and
/// whole blocks of the 8-bit activations or tiles that feed them.
pub(crate) fn block_cols(ty: TensorType) -> usize {
    match kernels::act_kind(ty) {
        kernels::ActKind::Q8 => ty.block_len().max(32),
        kernels::ActKind::F32 | kernels::ActKind::Bf16 => kernels::TILE_ROWS,
    }
}

impl Part {
    /// The first rows of a tensor, `(rows, columns)`, with nothing that comes with it.
    pub(crate) fn plain(
        name: &str,
        ty: TensorType,
        (rows, cols): (usize, usize),
        cut: Cut,
    ) -> Part {
        let name = name.to_owned();
        Part {
            name,
            ty,
            first: 0,
            rows,
            cols,
            cut,
            scale: None,
            bias: None,
            clamp: None,
            members: None,
            layout: Layout::Rows,
            columns: None,
        }
    }

    /// Matrices of the part.
    pub fn count(&self) -> usize {
        self.members.map_or(1, |members| members.count)
    }
}

/// A matrix of one or several parts that are multiplied in one go.
#[derive(Clone, Debug)]
pub struct Matrix {
    /// Short name for people (`qkv`, `gate_up`).
    pub name: String,
    /// The parts, their outputs side by side.
    pub parts: Vec<Part>,
    /// Which dimension is cut.
    pub split: SplitBy,
    /// How experts are shared, if it is a bank of them: then it has parts for each class.
    pub bank: Option<Bank>,
    /// If each head has rows of its own, which are multiplied with its own elements of the input.
    pub by_head: Option<ByHead>,
    /// What inputs are kept between before they are multiplied.
    pub clamp: Option<Clamp>,
}

/// A matrix of blocks on a diagonal: a block for each head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByHead {
    /// Rows of a block.
    pub rows: usize,
    /// Elements of a head in the input, and those that its block multiplies.
    pub input: (usize, Range<usize>),
    /// Elements of a head in the output; the block's rows are the last of them.
    pub output: usize,
    /// Elements of a head in the input that are the first ones in the output.
    pub carried: Range<usize>,
}

impl Matrix {
    /// Row range of part `p` on `node`.
    pub fn rows(&self, p: usize, node: usize) -> Range<usize> {
        match self.split {
            SplitBy::Rows => self.parts[p].cut.range(node),
            SplitBy::Cols => 0..self.parts[p].rows,
        }
    }

    /// Column range of part `p` on `node`.
    pub fn cols(&self, p: usize, node: usize) -> Range<usize> {
        match self.split {
            SplitBy::Rows => 0..self.parts[p].cols,
            SplitBy::Cols => self.parts[p].cut.range(node),
        }
    }

    /// Pieces of part `p`'s columns on `node` that are summed apart, in order.
    pub fn segments(&self, p: usize, node: usize) -> Vec<Range<usize>> {
        match self.split {
            SplitBy::Rows => std::iter::once(0..self.parts[p].cols).collect(),
            SplitBy::Cols => self.parts[p].cut.segments(node).collect(),
        }
    }

    /// How these pieces are summed on `node`, those of columns that nodes share in `splits` runs.
    pub fn leaves(&self, p: usize, node: usize, splits: usize) -> Vec<Leaf> {
        match self.split {
            SplitBy::Rows => vec![Leaf { folds: 0, root: true }],
            // Sums of experts are added leaf by leaf.
            SplitBy::Cols if self.bank.is_some() => {
                vec![Leaf { folds: 0, root: true }; self.parts[p].cut.leaves(node).len()]
            }
            SplitBy::Cols => crate::sum::leaves(&self.parts[p].cut, node, splits),
        }
    }

    /// How the segments of a column-cut matrix are summed, over all nodes, each of which has its own in
    /// `splits` runs.
    pub fn sum(&self, splits: usize) -> Option<Sum> {
        match (&self.bank, self.split) {
            (_, SplitBy::Rows) => None,
            (Some(bank), SplitBy::Cols) => Some(Sum::over(bank.positions(), 1)),
            (None, SplitBy::Cols) => Some(Sum::over(&self.parts[0].cut, splits)),
        }
    }

    /// Bytes of a packed tile of part `p` on `node`.
    pub fn tile_bytes(&self, p: usize, node: usize) -> usize {
        let ty = self.parts[p].ty;
        self.segments(p, node).iter().map(|s| kernels::tile_bytes(ty, s.len())).sum()
    }

    /// Input width on `node`; all parts read the same input. Of a bank, whose classes are cut apart, the
    /// widest.
    pub fn input_width(&self, node: usize) -> usize {
        if let Some(by_head) = &self.by_head {
            return self.rows(0, node).len() / by_head.rows * by_head.input.0;
        }
        let parts = if self.bank.is_some() { self.parts.len() } else { 1 };
        (0..parts).map(|p| self.cols(p, node).len()).max().unwrap_or(0)
    }

    /// Output width of an expert on `node`, of the class that is widest there.
    pub(crate) fn expert_width(&self, node: usize) -> usize {
        (0..self.parts.len()).map(|p| self.rows(p, node).len()).max().unwrap_or(0)
    }

    /// Bytes that `node` holds: what it streams when it multiplies once, but for banks, of which it streams
    /// what was chosen (packed size, padding included).
    pub fn node_bytes(&self, node: usize) -> usize {
        (0..self.parts.len()).map(|p| self.part_bytes(p, node)).sum()
    }

    /// The same of part `p`.
    pub(crate) fn part_bytes(&self, p: usize, node: usize) -> usize {
        let tiles = self.rows(p, node).len().div_ceil(kernels::TILE_ROWS);
        tiles * self.tile_bytes(p, node) * self.parts[p].count()
    }

    /// Whether every node holds all of part `p`.
    pub(crate) fn is_everywhere(&self, p: usize, nodes: usize) -> bool {
        let whole = (self.parts[p].rows, self.parts[p].cols);
        (0..nodes).all(|node| (self.rows(p, node).len(), self.cols(p, node).len()) == whole)
    }

    /// Whether any part multiplies activations of this kind.
    pub fn takes(&self, kind: kernels::ActKind) -> bool {
        self.parts.iter().any(|p| kernels::act_kind(p.ty) == kind)
    }
}

/// A vector that every node holds in full (norm weights, biases), as f32.
#[derive(Clone, Debug)]
pub struct Vector {
    /// Tensor name in the file.
    pub name: String,
    /// Elements.
    pub len: usize,
    /// What all elements are, if they are in no file.
    pub fill: Option<f32>,
    /// Columns of the file's matrix, if its rows and columns are exchanged.
    pub turned: Option<usize>,
    /// Factor on its elements.
    pub factor: f32,
    /// How its rows, or its elements if it is no matrix, are ordered otherwise than in the file.
    pub turns: Option<Turns>,
    /// Where it begins in its tensor, and how long that is; `None`: it is all of it.
    pub within: Option<(usize, usize)>,
    /// Buckets of distances that the file has of each head, if it is a number for each distance
    /// ([`Builder::biases`](crate::Builder::biases)).
    pub buckets: Option<usize>,
}
