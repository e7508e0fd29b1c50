//! How blocks are read of what is gathered, joined, folded or turned.

use super::Blocks;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// Numbers that are known.
pub(super) struct Values(pub(super) Vec<f32>);

impl Blocks for Values {
    fn block(&self, rows: Range<usize>, _: Range<usize>, out: &mut [f32]) {
        out.copy_from_slice(&self.0[rows]);
    }
}

/// Nothing but zeros.
pub(super) struct Zeros;

impl Blocks for Zeros {
    fn block(&self, _: Range<usize>, _: Range<usize>, out: &mut [f32]) {
        out.fill(0.0);
    }
}

/// Runs of rows.
pub(super) struct Gather {
    pub(super) from: Arc<dyn Blocks>,
    pub(super) runs: Vec<Range<usize>>,
    /// Row at which each run begins.
    pub(super) starts: Vec<usize>,
}

impl Gather {
    /// Runs of rows of what is below, in order.
    fn runs(&self, rows: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let mut row = rows.start;
        // Of equal starts the last: runs may be empty.
        let mut run = self.starts.partition_point(|&start| start <= row).saturating_sub(1);
        std::iter::from_fn(move || {
            if row >= rows.end {
                return None;
            }
            let of = &self.runs[run];
            let first = of.start + (row - self.starts[run]);
            let count = (of.end - first).min(rows.end - row);
            row += count;
            run += 1;
            Some(first..first + count)
        })
    }
}

impl Blocks for Gather {
    fn block(&self, rows: Range<usize>, cols: Range<usize>, mut out: &mut [f32]) {
        for run in self.runs(rows) {
            let (now, rest) = out.split_at_mut(run.len() * cols.len());
            self.from.block(run, cols.clone(), now);
            out = rest;
        }
    }

    fn packed(&self, rows: Range<usize>, out: &mut Vec<u8>) {
        self.runs(rows).for_each(|run| self.from.packed(run, out));
    }
}

/// One behind the other.
pub(super) struct Behind {
    pub(super) parts: Vec<Arc<dyn Blocks>>,
    /// Row behind each.
    pub(super) ends: Vec<usize>,
}

impl Behind {
    /// Parts with their rows, in order.
    fn parts(&self, rows: Range<usize>) -> impl Iterator<Item = (&dyn Blocks, Range<usize>)> {
        let mut row = rows.start;
        let mut part = self.ends.partition_point(|&end| end <= row);
        std::iter::from_fn(move || {
            if row >= rows.end {
                return None;
            }
            let start = if part == 0 { 0 } else { self.ends[part - 1] };
            let end = self.ends[part].min(rows.end);
            let of = (&*self.parts[part], row - start..end - start);
            row = end;
            part += 1;
            Some(of)
        })
    }
}

impl Blocks for Behind {
    fn block(&self, rows: Range<usize>, cols: Range<usize>, mut out: &mut [f32]) {
        for (part, rows) in self.parts(rows) {
            let (now, rest) = out.split_at_mut(rows.len() * cols.len());
            part.block(rows, cols.clone(), now);
            out = rest;
        }
    }

    fn packed(&self, rows: Range<usize>, out: &mut Vec<u8>) {
        self.parts(rows).for_each(|(part, rows)| part.packed(rows, out));
    }
}

/// The same elements in rows of another length: of which one divides the other.
pub(super) struct Folded {
    pub(super) from: Arc<dyn Blocks>,
    pub(super) before: usize,
    pub(super) cols: usize,
}

impl Blocks for Folded {
    fn block(&self, rows: Range<usize>, cols: Range<usize>, out: &mut [f32]) {
        for (row, out) in rows.zip(out.chunks_exact_mut(cols.len().max(1))) {
            let mut at = row * self.cols + cols.start;
            let mut out = out;
            while !out.is_empty() {
                let (r, c) = (at / self.before, at % self.before);
                // Whole rows at once where they are short, or what is left of one.
                let (block, count) = match c == 0 && out.len() >= self.before {
                    true => {
                        let rows = out.len() / self.before;
                        ((r..r + rows, 0..self.before), rows * self.before)
                    }
                    false => {
                        let count = out.len().min(self.before - c);
                        ((r..r + 1, c..c + count), count)
                    }
                };
                let (now, rest) = out.split_at_mut(count);
                self.from.block(block.0, block.1, now);
                out = rest;
                at += count;
            }
        }
    }
}

/// Matrices of `rows` × `cols`, turned.
pub(super) struct Turned {
    pub(super) from: Arc<dyn Blocks>,
    pub(super) rows: usize,
    pub(super) cols: usize,
}

impl Blocks for Turned {
    fn block(&self, rows: Range<usize>, cols: Range<usize>, mut out: &mut [f32]) {
        let mut row = rows.start;
        while row < rows.end {
            let (member, first) = (row / self.cols, row % self.cols);
            let count = (self.cols - first).min(rows.end - row);
            let mut block = vec![0.0; cols.len() * count];
            let source = member * self.rows + cols.start..member * self.rows + cols.end;
            self.from.block(source, first..first + count, &mut block);
            let (now, rest) = out.split_at_mut(count * cols.len());
            for (i, out) in now.chunks_exact_mut(cols.len()).enumerate() {
                for (out, line) in out.iter_mut().zip(block.chunks_exact(count)) {
                    *out = line[i];
                }
            }
            out = rest;
            row += count;
        }
    }
}

/// Columns by their numbers.
pub(super) struct Columns {
    pub(super) from: Arc<dyn Blocks>,
    pub(super) order: Vec<usize>,
    pub(super) all: usize,
}

impl Blocks for Columns {
    fn block(&self, rows: Range<usize>, cols: Range<usize>, out: &mut [f32]) {
        let mut whole = vec![0.0; self.all];
        for (row, out) in rows.zip(out.chunks_exact_mut(cols.len())) {
            self.from.block(row..row + 1, 0..self.all, &mut whole);
            for (out, &col) in out.iter_mut().zip(&self.order[cols.clone()]) {
                *out = whole[col];
            }
        }
    }
}

/// Every element changed.
pub(super) struct Each {
    pub(super) from: Arc<dyn Blocks>,
    pub(super) change: Box<dyn Fn(f32) -> f32 + Send + Sync>,
}

impl Blocks for Each {
    fn block(&self, rows: Range<usize>, cols: Range<usize>, out: &mut [f32]) {
        self.from.block(rows, cols, out);
        out.iter_mut().for_each(|x| *x = (self.change)(*x));
    }
}

/// Numbers as -1, 0 or 1 times the mean of their magnitudes, which is found when the first are asked for.
pub(super) struct Ternary {
    pub(super) from: Arc<dyn Blocks>,
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) mean: OnceLock<f32>,
}

impl Ternary {
    fn mean(&self) -> f32 {
        let mut line = vec![0.0; self.cols];
        let mut sum = 0.0;
        for row in 0..self.rows {
            self.from.block(row..row + 1, 0..self.cols, &mut line);
            sum += line.iter().map(|x| f64::from(x.abs())).sum::<f64>();
        }
        (sum / (self.rows * self.cols) as f64) as f32
    }
}

impl Blocks for Ternary {
    fn block(&self, rows: Range<usize>, cols: Range<usize>, out: &mut [f32]) {
        let per_mean = 1.0 / self.mean.get_or_init(|| self.mean()).max(1e-5);
        self.from.block(rows, cols, out);
        for x in out {
            *x = (*x * per_mean).round_ties_even().clamp(-1.0, 1.0) / per_mean;
        }
    }
}
