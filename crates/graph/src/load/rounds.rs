//! What is packed together, in order, and which parts of the file that takes.
//!
//! A *round* is what all threads pack between two waits: of a matrix, every thread's next tiles, or
//! several vectors. Threads are through the same share of their tiles after each round, so nodes that
//! need other columns of the same rows, or copies of the same tiles, need them in the same round, and
//! they are read once. (Nodes with unlike numbers of threads are at other rows; then what both need may
//! be read twice.)

use super::{Packed, WeightTable};
use crate::error::Error;
use crate::graph::Graph;
use crate::plan::Mode;
use crate::weight::{Layout, Part, Vector, WeightSource, WeightView};
use kernels::TILE_ROWS;
use std::ops::Range;

/// What a graph wants of its file.
pub(super) struct Views<'a> {
    pub matrices: Vec<Vec<WeightView<'a>>>,   // [matrix][part]
    pub vectors: Vec<Option<WeightView<'a>>>, // those that files have
}

impl<'a> Views<'a> {
    pub(super) fn new(graph: &Graph, source: &'a dyn WeightSource) -> Result<Views<'a>, Error> {
        let view =
            |name: &String| source.tensor(name).ok_or_else(|| Error::MissingTensor(name.clone()));
        let vector = |v: &Vector| v.fill.is_none().then(|| view(&v.name)).transpose();
        let parts = |parts: &[Part]| parts.iter().map(|p| view(&p.name)).collect();
        Ok(Views {
            matrices: graph
                .tables
                .matrices
                .iter()
                .map(|m| parts(&m.parts))
                .collect::<Result<_, _>>()?,
            vectors: graph.tables.vectors.iter().map(vector).collect::<Result<_, _>>()?,
        })
    }
}

/// See the module.
pub(super) struct Round<'a> {
    pub what: What,
    /// Of a matrix, what lies in each of `bytes`; sorted, and apart from each other.
    pub spans: Vec<Span>,
    /// Parts of the file's tensors.
    pub bytes: Vec<&'a [u8]>,
    /// Bytes of the file that are packed after this round.
    pub done: usize,
}

/// What a round packs.
#[derive(Clone, Debug)]
pub(super) enum What {
    /// Tiles of the matrix with this number.
    Matrix(usize, Step),
    /// Vectors.
    Vectors(Range<usize>),
}

/// One of equal steps through a range.
#[derive(Copy, Clone, Debug)]
pub(super) struct Step {
    number: usize,
    of: usize,
}

impl Step {
    /// Its part of a thread's tiles.
    pub(super) fn of(self, tiles: &Range<usize>) -> Range<usize> {
        let at = |number| tiles.start + tiles.len() * number / self.of;
        at(self.number)..at(self.number + 1)
    }
}

/// Whole rows of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// The part of the matrix that they are for.
    pub part: usize,
    /// Of the tensor.
    pub rows: Range<usize>,
}

/// Bytes of the file that all rounds pack.
pub(super) fn total(graph: &Graph, views: &Views<'_>) -> usize {
    let matrices = (0..graph.tables.matrices.len()).map(|m| matrix_bytes(graph, views, m));
    matrices.sum::<usize>() + vector_bytes(views)
}

/// All rounds of about `size` bytes of the file, made as they are asked for. Vectors are first: they lie
/// between matrices, and what is around them in the file is done with earlier.
pub(super) fn rounds<'a>(
    graph: &'a Graph,
    weight_table: &'a WeightTable,
    views: &'a Views<'a>,
    size: usize,
) -> impl Iterator<Item = Round<'a>> {
    let mut before = vector_bytes(views);
    let matrices = (0..graph.tables.matrices.len()).flat_map(move |m| {
        let (bytes, done) = (matrix_bytes(graph, views, m), before);
        before += bytes;
        let of = bytes.div_ceil(size.max(1)).min(weight_table.most_tiles(m)).max(1);
        (0..of).map(move |number| {
            let step = Step { number, of };
            let spans = spans(graph, weight_table, m, step);
            let bytes_of = |span: &Span| {
                let view = &views.matrices[m][span.part];
                let row = row_bytes(view);
                &view.data[span.rows.start * row..span.rows.end * row]
            };
            Round {
                what: What::Matrix(m, step),
                bytes: spans.iter().map(bytes_of).collect(),
                spans,
                done: done + bytes * (number + 1) / of,
            }
        })
    });
    vectors(views, size).chain(matrices)
}

fn vectors<'a>(views: &'a Views<'a>, size: usize) -> impl Iterator<Item = Round<'a>> {
    let (mut done, mut next) = (0, 0);
    std::iter::from_fn(move || {
        let first = next;
        let bytes = |v: &Option<WeightView<'_>>| v.map_or(0, |v| v.data.len());
        let mut sum = 0;
        while let Some(view) = views.vectors.get(next)
            && (next == first || sum + bytes(view) <= size)
        {
            sum += bytes(view);
            next += 1;
        }
        done += sum;
        let all = first..next;
        (!all.is_empty()).then(|| Round {
            what: What::Vectors(all.clone()),
            spans: Vec::new(),
            bytes: views.vectors[all].iter().flatten().map(|v| v.data).collect(),
            done,
        })
    })
}

/// Bytes of a row in the file.
pub(super) fn row_bytes(view: &WeightView<'_>) -> usize {
    view.cols / view.ty.block_len() * view.ty.block_bytes()
}

fn vector_bytes(views: &Views<'_>) -> usize {
    views.vectors.iter().flatten().map(|v| v.data.len()).sum()
}

fn matrix_bytes(graph: &Graph, views: &Views<'_>, m: usize) -> usize {
    let parts = graph.tables.matrices[m].parts.iter().zip(&views.matrices[m]);
    let rows = |part: &Part| match part.layout {
        Layout::Rows | Layout::Runs { .. } | Layout::Turns(_) => part.rows * part.count(),
        Layout::Columns { len, .. } => part.rows / len * part.cols,
    };
    parts.map(|(part, view)| rows(part) * row_bytes(view)).sum()
}

/// The rows that all threads together need for a step, those that lie together in one span.
fn spans(graph: &Graph, weight_table: &WeightTable, m: usize, step: Step) -> Vec<Span> {
    let matrix = &graph.tables.matrices[m];
    let mut spans: Vec<Span> = Vec::new();
    for (copy, shard) in weight_table.matrices[m].iter().enumerate() {
        let Some(shard) = shard else { continue };
        let node = weight_table.node_of(copy);
        for (p, packed) in shard.parts.iter().enumerate() {
            let rows = matrix.rows(p, node);
            for rank in 0..shard.packers() {
                let tiles = step.of(&shard.packed_by(rank, p));
                let runs = runs(packed, &matrix.parts[p], &rows, tiles);
                spans.extend(runs.map(|rows| Span { part: p, rows }));
            }
        }
    }
    spans.sort_unstable_by_key(|span| (span.part, span.rows.start));
    spans.dedup_by(|next, last| {
        let joins = next.part == last.part && next.rows.start <= last.rows.end;
        if joins {
            last.rows.end = last.rows.end.max(next.rows.end);
        }
        joins
    });
    spans
}

/// Rows of the tensor that `tiles` of a part are made of, of which a node has `rows`: one run, or one for each
/// expert, or for each tile where rows lie otherwise.
fn runs(
    packed: &Packed,
    part: &Part,
    rows: &Range<usize>,
    tiles: Range<usize>,
) -> impl Iterator<Item = Range<usize>> {
    let per = packed.per_member.max(1);
    let members = if tiles.is_empty() { 0..0 } else { tiles.start / per..tiles.end.div_ceil(per) };
    let apart = part.layout != Layout::Rows;
    let (of_members, of_tiles) = if apart { (0..0, tiles.clone()) } else { (members, 0..0) };
    let of_tiles = of_tiles.map(move |t| {
        let row = rows.start + t * TILE_ROWS;
        let first = part.first + part.layout.row(row);
        let count = match part.layout {
            Layout::Columns { .. } => part.cols,
            // A tile may have rows of several runs, and what lies between them comes along.
            Layout::Rows | Layout::Runs { .. } | Layout::Turns(_) => {
                let span = part.layout.span(row..(row + TILE_ROWS).min(rows.end));
                return part.first + span.start..part.first + span.end;
            }
        };
        first..first + count
    });
    let of_members = of_members.map(move |member| {
        let of_member = member * per;
        let (before, _) = packed.member(part, of_member);
        let first = tiles.start.saturating_sub(of_member) * TILE_ROWS;
        let last = (tiles.end - of_member).min(per) * TILE_ROWS;
        let end = rows.end.min(rows.start + last);
        part.first + before + rows.start + first..part.first + before + end
    });
    of_members.chain(of_tiles)
}

impl WeightTable {
    /// The node of the graph whose share a copy is.
    pub(super) fn node_of(&self, copy: usize) -> usize {
        if self.mode == Mode::TensorParallel { copy } else { 0 }
    }

    /// Tiles of a matrix that the thread with most packs in one part.
    fn most_tiles(&self, m: usize) -> usize {
        let shards = self.matrices[m].iter().flatten();
        let tiles = shards.flat_map(|shard| {
            let parts = 0..shard.parts.len();
            parts.flat_map(move |p| (0..shard.packers()).map(move |r| shard.packed_by(r, p).len()))
        });
        tiles.max().unwrap_or(0)
    }
}
