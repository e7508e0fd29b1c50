//! What products read, squared and summed: see [`crate::squares`].
//!
//! Threads deal the rows. What all nodes have alike the first node sums; of columns that nodes share, each sums its own.

use super::access::Source;
use super::{Chosen, Thread};
use crate::claims::Operand;
use crate::placement::share;
use crate::squares::Squares;
use crate::weight::{Matrix, MatrixId, SplitBy};
use kernels::ActKind;

impl Thread<'_> {
    /// Of what is multiplied by a matrix.
    pub(crate) fn squares_of_matrix(
        &self,
        squares: &Squares,
        id: MatrixId,
        acts: Operand<Source<'_>>,
        rows: usize,
    ) {
        let matrix = self.step.tables.matrix(id);
        let width = matrix.input_width(self.node);
        let own = share(rows, self.size, self.rank);
        if width == 0 || own.is_empty() || !self.sums_of(matrix) {
            return;
        }
        let (mut line, mut sums) = (vec![0.0; width], vec![0.0; width]);
        for row in own.clone() {
            self.numbers(acts, row, &mut line);
            add_squares(&mut sums, &line, 1.0);
        }
        if let Some(of) = &matrix.by_head {
            let before = matrix.rows(0, self.node).start / of.rows;
            for (head, sums) in sums.chunks_exact(of.input.0).enumerate() {
                squares.add(id, before + head, 0, &sums[of.input.1.clone()], own.len());
            }
            return;
        }
        // Rows are counted once.
        let first = (0..self.node).all(|node| matrix.input_width(node) == 0);
        let counted = if first { own.len() } else { 0 };
        squares.add(id, 0, matrix.cols(0, self.node).start, &sums, counted);
    }

    /// Of experts that read tokens.
    pub(crate) fn squares_of_tokens(
        &self,
        squares: &Squares,
        id: MatrixId,
        acts: Operand<Source<'_>>,
        chosen: Chosen<'_>,
        weigh: bool,
    ) {
        let Chosen { of: chosen, count, tokens } = chosen;
        let matrix = self.step.tables.matrix(id);
        if !self.sums_of(matrix) {
            return;
        }
        let width = matrix.input_width(self.node);
        let (mut line, mut sums) = (vec![0.0; width], vec![0.0; width]);
        for token in share(tokens, self.size, self.rank) {
            self.numbers(acts, token, &mut line);
            let (experts, weights) = chosen.row(token, 2 * count).split_at(count);
            for (expert, weight) in experts.iter().zip(weights) {
                sums.fill(0.0);
                add_squares(&mut sums, &line, if weigh { *weight } else { 1.0 });
                squares.add(id, *expert as usize, 0, &sums, 1);
            }
        }
    }

    /// Of experts that read what others have made of a token: a row for each, by expert and then by token, `weighed` if
    /// it was multiplied by the weights of experts, which no file has there.
    pub(crate) fn squares_of_slots(
        &self,
        squares: &Squares,
        id: MatrixId,
        acts: Operand<Source<'_>>,
        chosen: Chosen<'_>,
        weighed: bool,
    ) {
        let Chosen { of: chosen, count, tokens } = chosen;
        let matrix = self.step.tables.matrix(id);
        let Some(bank) = &matrix.bank else { return };
        let mut slots: Vec<(usize, usize, usize)> = Vec::with_capacity(tokens * count);
        for token in 0..tokens {
            let experts = &chosen.row(token, 2 * count)[..count];
            slots.extend(experts.iter().enumerate().map(|(at, e)| (*e as usize, token, at)));
        }
        slots.sort_unstable();
        let mut line = vec![0.0; matrix.input_width(self.node)];
        let mut sums = Vec::new();
        for slot in share(slots.len(), self.size, self.rank) {
            let (expert, token, at) = slots[slot];
            let cut = bank.cut(bank.place(expert).0);
            let own = cut.range(self.node);
            if own.is_empty() {
                continue;
            }
            let weight = match weighed {
                true => chosen.row(token, 2 * count)[count + at],
                false => 1.0,
            };
            if weight == 0.0 {
                continue; // what went in cannot be told
            }
            self.numbers(acts, slot, &mut line);
            sums.clear();
            sums.resize(own.len(), 0.0);
            add_squares(&mut sums, &line, 1.0 / weight);
            let first = (0..self.node).all(|node| cut.len(node) == 0);
            squares.add(id, expert, own.start, &sums, usize::from(first));
        }
    }

    /// Whether this node sums what goes into a matrix.
    fn sums_of(&self, matrix: &Matrix) -> bool {
        self.node == 0 || matrix.split == SplitBy::Cols || matrix.by_head.is_some()
    }

    /// A row of activations in the form that says most.
    fn numbers(&self, acts: Operand<Source<'_>>, row: usize, to: &mut [f32]) {
        let kernels = self.step.kernels;
        let (kind, from) = match acts {
            Operand { f32: Some(from), .. } => {
                return to.copy_from_slice(from.row(row, to.len()));
            }
            Operand { bf16: Some(from), .. } => (ActKind::Bf16, from),
            Operand { q8: Some(from), .. } => (ActKind::Q8, from),
            _ => unreachable!("a product has an input"),
        };
        let bytes = from.bytes(row..row + 1, 0..kernels.row_bytes(kind, to.len()));
        kernels.unpack_acts(kind, bytes.row(0), to);
    }
}

/// Adds the squares of numbers times a factor.
fn add_squares(sums: &mut [f64], numbers: &[f32], factor: f32) {
    let factor = f64::from(factor).powi(2);
    for (sum, x) in sums.iter_mut().zip(numbers) {
        *sum += f64::from(*x).powi(2) * factor;
    }
}
