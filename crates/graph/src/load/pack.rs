//! Loading: tensors of the file become packed tiles in the nodes' arenas.
//!
//! Every thread packs the tiles that it will multiply, so pages are first touched on their node
//! and nothing moves afterwards. It goes on in [rounds](super::rounds): while the pool packs one, the
//! source brings those that follow. Progress is told between rounds.

use super::rounds::{Round, Span, Step, Views, What, rounds, row_bytes, total};
use super::turned::{pack_floats, turned};
use super::{WeightTable, Weights};
use crate::error::Error;
use crate::graph::Graph;
use crate::relative;
use crate::weight::{Layout, Matrix, Turns, WeightSource, WeightView};
use kernels::TILE_ROWS;
use std::collections::VecDeque;
use std::ops::Range;
use threads::{Pool, View, Worker};

/// How far loading has come.
#[derive(Copy, Clone, Debug)]
pub struct PackProgress {
    /// Bytes of the file that are packed.
    pub done: usize,
    /// Bytes of the file that are to be packed. A tensor that two matrices are made of counts twice.
    pub total: usize,
}

impl Weights {
    /// Packs everything, on the pool's own threads.
    pub(crate) fn pack_all(
        &mut self,
        graph: &Graph,
        pool: &mut Pool,
        source: &dyn WeightSource,
        progress: &mut dyn FnMut(PackProgress),
    ) -> Result<(), Error> {
        let weight_table = &self.weight_table;
        let views = Views::new(graph, source)?;
        let total = total(graph, &views);
        let mut to_come = rounds(graph, weight_table, &views, source.round_bytes()).peekable();
        let mut begun: VecDeque<Round<'_>> = VecDeque::new();
        loop {
            while let Some(round) = to_come.peek()
                && (source.begin(&round.bytes) || begun.is_empty())
            {
                begun.extend(to_come.next());
            }
            let Some(round) = begun.pop_front() else { break };
            source.take(&round.bytes, &mut |bytes| {
                weight_table.pack_round(graph, &views, &round, bytes, pool)
            })?;
            progress(PackProgress { done: round.done, total });
        }
        Ok(())
    }
}

/// A thread that packs: the copy of the weights, and its number among the threads that pack it.
#[derive(Copy, Clone)]
pub(super) struct Packer {
    pub copy: usize,
    pub rank: usize,
}

impl WeightTable {
    fn pack_round(
        &self,
        graph: &Graph,
        views: &Views<'_>,
        round: &Round<'_>,
        bytes: &[&[u8]],
        pool: &mut Pool,
    ) -> Result<(), Error> {
        match &round.what {
            What::Matrix(m, step) => {
                let file = Staged { spans: &round.spans, bytes };
                let (matrix, views) = (&graph.tables.matrices[*m], &views.matrices[*m]);
                pool.run(&|worker| {
                    let packer = self.packer(worker);
                    self.pack(*m, matrix, views, *step, packer, file);
                })?;
            }
            What::Vectors(all) => {
                let mut bytes = bytes.iter();
                let of = |v: usize| {
                    let vector = &graph.tables.vectors[v];
                    let (first, all) = match vector.buckets {
                        Some(buckets) => (0, vector.len / relative::LEN * buckets),
                        None => vector.within.unwrap_or((0, vector.len)),
                    };
                    let mut values = vec![vector.fill.unwrap_or(0.0); all];
                    if let Some(view) = &views.vectors[v] {
                        let bytes = bytes.next().expect("a round has the bytes of its vectors");
                        dequantize(view, bytes, &mut values);
                    }
                    if vector.within.is_some() {
                        values = values[first..first + vector.len].to_vec();
                    }
                    if vector.factor != 1.0 {
                        values.iter_mut().for_each(|value| *value *= vector.factor);
                    }
                    if let Some(buckets) = vector.buckets {
                        values = relative::spread(&values, buckets);
                    }
                    if let Some(turns) = vector.turns {
                        let cols = vector.turned.unwrap_or(1);
                        let from = |i: usize| turns.source(i / cols) * cols + i % cols;
                        values = (0..values.len()).map(|i| values[from(i)]).collect();
                    }
                    if let Some(cols) = vector.turned {
                        let rows = values.len() / cols;
                        values =
                            (0..values.len()).map(|i| values[i % rows * cols + i / rows]).collect();
                    }
                    values
                };
                let values: Vec<Vec<f32>> = all.clone().map(of).collect();
                pool.run(&|worker| {
                    let Packer { copy, rank } = self.packer(worker);
                    for (v, values) in all.clone().zip(&values).filter(|_| rank == 0) {
                        // SAFETY: the first thread of those that pack a copy is alone in writing this.
                        let to = unsafe { self.vectors[v][copy].as_mut_slice::<f32>() };
                        to[..values.len()].copy_from_slice(values);
                    }
                })?;
            }
        }
        Ok(())
    }

    /// Returns the part of a thread in packing: it packs the copy that it will read.
    pub(super) fn packer(&self, worker: &mut Worker) -> Packer {
        if self.copies > 1 {
            worker.switch(View::Groups);
        }
        Packer { copy: worker.group(), rank: worker.rank() }
    }

    /// Packs the tiles of one thread in one step.
    fn pack(
        &self,
        m: usize,
        matrix: &Matrix,
        views: &[WeightView<'_>],
        step: Step,
        packer: Packer,
        file: Staged<'_>,
    ) {
        let Packer { copy, rank } = packer;
        let Some(shard) = &self.matrices[m][copy] else { return };
        let node = self.node_of(copy);
        for (p, (packed, view)) in shard.parts.iter().zip(views).enumerate() {
            let (rows, cols) = (matrix.rows(p, node), matrix.cols(p, node));
            let bytes = |cols: usize| cols / view.ty.block_len() * view.ty.block_bytes();
            let (row_bytes, layout) = (row_bytes(view), matrix.parts[p].layout);
            for t in step.of(&shard.packed_by(rank, p)) {
                let (before, t_of_member) = packed.member(&matrix.parts[p], t);
                let row = rows.start + t_of_member * TILE_ROWS;
                let count = TILE_ROWS.min(rows.end - row);
                let lowest = match layout {
                    Layout::Columns { .. } => layout.row(row),
                    _ => layout.span(row..row + count).start,
                };
                let first = before + lowest;
                let data = file.rows(p, matrix.parts[p].first + first, row_bytes);
                if let Layout::Columns { len, .. } = layout {
                    let tile = turned(data, view, row % len, cols.len());
                    // SAFETY: as below.
                    let to = unsafe { packed.root_block(t, packed.whole()).as_mut_slice::<u8>() };
                    pack_floats(packed.ty, &tile, cols.len(), to);
                    continue;
                }
                for root in &packed.summed(1).roots {
                    // SAFETY: `packed_by` gives every tile to exactly one thread, and nobody reads
                    // tiles before `pack_all` returns.
                    let mut to = unsafe { packed.root_block(t, root).as_mut_slice::<u8>() };
                    let mut col = cols.start + root.cols.start;
                    for piece in &root.pieces {
                        let slice = bytes(col)..bytes(col + piece.cols);
                        col += piece.cols;
                        let mut sources: [&[u8]; TILE_ROWS] = [&[]; TILE_ROWS];
                        for (r, source) in sources[..count].iter_mut().enumerate() {
                            let from = layout.row(row + r) - lowest;
                            *source = &data[from * row_bytes..][..row_bytes];
                        }
                        // Columns that lie otherwise in the file are brought together first.
                        let gathered;
                        let sources = match matrix.parts[p].columns {
                            None => sources.map(|row| row.get(slice.clone()).unwrap_or(row)),
                            Some(turns) => {
                                let of = col - piece.cols..col;
                                gathered = sources.map(|row| gather(row, turns, of.clone(), bytes));
                                gathered.each_ref().map(Vec::as_slice)
                            }
                        };
                        let (own, rest) = to.split_at_mut(kernels::tile_bytes(view.ty, piece.cols));
                        kernels::pack_tile(view.ty, &sources[..count], piece.cols, own);
                        to = rest;
                    }
                }
            }
        }
    }
}

/// Columns `cols` of a row of blocks, as the graph has them.
fn gather(row: &[u8], turns: Turns, cols: Range<usize>, bytes: impl Fn(usize) -> usize) -> Vec<u8> {
    let run = |col: usize| {
        let from = turns.source(col);
        row.get(bytes(from)..bytes(from + turns.run())).unwrap_or_default()
    };
    cols.step_by(turns.run()).flat_map(run).copied().collect()
}

/// What the source has brought for a round.
#[derive(Copy, Clone)]
struct Staged<'a> {
    spans: &'a [Span],
    bytes: &'a [&'a [u8]],
}

impl<'a> Staged<'a> {
    /// The row `row` of the tensor of part `part`, and those that follow it in its span.
    fn rows(&self, part: usize, row: usize, row_bytes: usize) -> &'a [u8] {
        let after = self.spans.partition_point(|s| (s.part, s.rows.start) <= (part, row));
        let at = after.checked_sub(1).expect("a round has the rows of its tiles");
        &self.bytes[at][(row - self.spans[at].rows.start) * row_bytes..]
    }
}

fn dequantize(view: &WeightView<'_>, bytes: &[u8], to: &mut [f32]) {
    view.ty.dequantize(bytes, to).expect("sizes were checked when the file was parsed");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where files have each head of values, in the order of a graph.
    fn order(keys: usize, each: usize, together: usize) -> Vec<usize> {
        let turns = Turns { first: 0, len: 1, keys, each, together };
        (0..keys * each).map(|head| turns.source(head)).collect()
    }

    #[test]
    fn heads_that_take_turns_are_sorted_by_their_keys() {
        assert_eq!(order(4, 2, 1), [0, 4, 1, 5, 2, 6, 3, 7], "those of a head of keys together");
        assert_eq!(order(4, 2, 2), [0, 1, 4, 5, 2, 3, 6, 7], "two heads stay together");
        assert_eq!(order(4, 2, 4), [0, 1, 2, 3, 4, 5, 6, 7], "as in the file");
        // Rows of heads, behind others.
        let turns = Turns { first: 3, len: 2, keys: 2, each: 2, together: 1 };
        let rows: Vec<usize> = (0..11).map(|row| turns.source(row)).collect();
        assert_eq!(rows, [0, 1, 2, 3, 4, 7, 8, 5, 6, 9, 10]);
    }

    #[test]
    fn columns_are_brought_together_in_whole_blocks() {
        // Four heads of 64 columns, two of them in a block of 128 bytes of which a column takes one.
        let turns = Turns { first: 0, len: 64, keys: 4, each: 2, together: 2 };
        let row: Vec<u8> = (0..512).map(|col| (col / 64) as u8).collect();
        let got = gather(&row, turns, 128..384, |cols| cols);
        let heads: Vec<u8> = got.chunks(64).map(|head| head[0]).collect();
        assert_eq!(heads, [4, 5, 2, 3]);
        assert!(got.chunks(64).all(|head| head.iter().all(|col| *col == head[0])));
    }
}
