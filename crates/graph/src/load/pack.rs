//! Loading: tensors of the file become packed tiles in the nodes' arenas.
//!
//! Every thread packs the tiles that it will multiply, so pages are first touched on their node
//! and nothing moves afterwards. It goes on in [rounds](super::rounds): while the pool packs one, the
//! source brings those that follow. Progress is told between rounds.

use super::rounds::{Round, Span, Step, Views, What, rounds, row_bytes, total};
use super::turned::{pack_floats, turned};
use super::{Shelves, Weights};
use crate::builder::Graph;
use crate::error::Error;
use crate::weight::{Layout, Matrix, WeightSource, WeightView};
use kernels::TILE_ROWS;
use std::collections::VecDeque;
use threads::{Pool, View, Worker};

/// How far loading has come.
#[derive(Copy, Clone, Debug)]
pub struct Progress {
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
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), Error> {
        let shelves = &self.shelves;
        let views = Views::new(graph, source)?;
        let total = total(graph, &views);
        let mut to_come = rounds(graph, shelves, &views, source.round_bytes()).peekable();
        let mut begun: VecDeque<Round<'_>> = VecDeque::new();
        loop {
            while let Some(round) = to_come.peek()
                && (source.begin(&round.bytes) || begun.is_empty())
            {
                begun.extend(to_come.next());
            }
            let Some(round) = begun.pop_front() else { break };
            source.take(&round.bytes, &mut |bytes| {
                shelves.pack_round(graph, &views, &round, bytes, pool)
            })?;
            progress(Progress { done: round.done, total });
        }
        Ok(())
    }
}

impl Shelves {
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
                let (matrix, views) = (&graph.matrices[*m], &views.matrices[*m]);
                pool.run(&|worker| {
                    let packer = self.packer(worker);
                    self.pack((*m, matrix), views, *step, packer, file);
                })?;
            }
            What::Vectors(all) => {
                let mut bytes = bytes.iter();
                let of = |v: usize| {
                    let vector = &graph.vectors[v];
                    let mut values = vec![vector.fill.unwrap_or(0.0); vector.len];
                    if let Some(view) = &views.vectors[v] {
                        let bytes = bytes.next().expect("a round has the bytes of its vectors");
                        dequantize(view, bytes, &mut values);
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
                    let (copy, rank) = self.packer(worker);
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

    /// Which copy a thread helps to pack, and as which of its packers: those who will read it.
    fn packer(&self, worker: &mut Worker) -> (usize, usize) {
        if self.copies > 1 {
            worker.switch(View::Groups);
        }
        (worker.group(), worker.rank())
    }

    /// Packs the tiles of one thread in one step.
    fn pack(
        &self,
        (m, matrix): (usize, &Matrix),
        views: &[WeightView<'_>],
        step: Step,
        (copy, rank): (usize, usize),
        file: Staged<'_>,
    ) {
        let Some(shard) = &self.matrices[m][copy] else { return };
        let node = self.node_of(copy);
        for (p, (packed, view)) in shard.parts.iter().zip(views).enumerate() {
            let (rows, cols) = (matrix.rows(p, node), matrix.cols(p, node));
            let bytes = |cols: usize| cols / view.ty.block_len() * view.ty.block_bytes();
            let (row_bytes, layout) = (row_bytes(view), matrix.parts[p].layout);
            for t in step.of(&shard.packed_by(rank, p)) {
                let (before, t_of_member) = packed.member(&matrix.parts[p], t);
                let row = rows.start + t_of_member * TILE_ROWS;
                let first = before + layout.row(row);
                let count = TILE_ROWS.min(rows.end - row);
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
                            let from = layout.row(row + r) - layout.row(row);
                            *source = &data[from * row_bytes..][slice.clone()];
                        }
                        let (own, rest) = to.split_at_mut(kernels::tile_bytes(view.ty, piece.cols));
                        kernels::pack_tile(view.ty, &sources[..count], piece.cols, own);
                        to = rest;
                    }
                }
            }
        }
    }
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
