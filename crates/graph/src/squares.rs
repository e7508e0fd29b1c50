//! Sums of squares of what matrices multiply, by column: how much each column matters, for importance matrices.
//!
//! They are made while steps are computed, if asked for ([`crate::Executor::begin_squares`]): threads read the input of
//! every product before they multiply it. Programs stay as they are.

use crate::weight::{Layout, Matrix, MatrixId, Part};
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// The sums of one tensor of the model's file.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorSquares {
    /// Name of the tensor.
    pub name: String,
    /// Sums of squares of the input, `[matrices, columns]`: of a bank, those of each expert; of a matrix with a block
    /// for each head, those of each head.
    pub sums: Vec<f64>,
    /// Rows of input that were summed: one number, or of a bank that of each expert.
    pub counts: Vec<u64>,
}

/// What is summed while steps are computed.
pub(crate) struct Squares {
    of: Vec<Sums>, // [matrix]
}

/// The sums of a matrix.
struct Sums {
    cols: usize,
    members: Vec<Mutex<Member>>,
}

/// The sums of an expert or head.
#[derive(Clone)]
struct Member {
    sums: Vec<f64>,
    rows: u64,
}

impl Squares {
    /// Nothing yet.
    pub(crate) fn new(matrices: &[Matrix]) -> Squares {
        let sums = |matrix: &Matrix| {
            let part = &matrix.parts[0];
            let heads = matrix.by_head.as_ref().map(|by_head| part.rows / by_head.rows);
            let experts = matrix.bank.as_ref().map(|bank| bank.experts);
            let members = experts.or(heads).unwrap_or(1);
            Sums {
                cols: part.cols,
                members: (0..members).map(|_| Mutex::new(Member::none())).collect(),
            }
        };
        Squares { of: matrices.iter().map(sums).collect() }
    }

    /// Adds sums of columns from `first` on, and the number of rows that they are of.
    pub(crate) fn add(
        &self,
        matrix: MatrixId,
        member: usize,
        first: usize,
        squares: &[f64],
        rows: usize,
    ) {
        let Sums { cols, members, .. } = &self.of[matrix.0 as usize];
        let mut member = members[member].lock().unwrap_or_else(PoisonError::into_inner);
        member.sums.resize(*cols, 0.0);
        for (sum, square) in member.sums[first..].iter_mut().zip(squares) {
            *sum += square;
        }
        member.rows += rows as u64;
    }

    /// Those of all tensors whose columns are those of a product's input. Of a tensor that stands in several matrices,
    /// those of the first.
    pub(crate) fn take(self, matrices: &[Matrix]) -> Vec<TensorSquares> {
        let (mut all, mut known) = (Vec::new(), HashSet::new());
        for (matrix, sums) in matrices.iter().zip(self.of) {
            let members: Vec<Member> = sums
                .members
                .into_iter()
                .map(|member| member.into_inner().unwrap_or_else(PoisonError::into_inner))
                .collect();
            if members.iter().all(|member| member.rows == 0) {
                continue;
            }
            for part in &matrix.parts {
                // Blocks of heads that are a part of a larger tensor, or its columns, have no columns of their own.
                let plain = matrix.by_head.is_none() || part.first == 0;
                let rows = !matches!(part.layout, Layout::Columns { .. });
                if !(plain && rows && known.insert(part.name.clone())) {
                    continue;
                }
                let of = |member: &Member| member.in_order(sums.cols, part);
                let counts = match matrix.bank {
                    Some(_) => members.iter().map(|member| member.rows).collect(),
                    None => vec![members[0].rows],
                };
                let (name, sums) = (part.name.clone(), members.iter().flat_map(of).collect());
                all.push(TensorSquares { name, sums, counts });
            }
        }
        all
    }
}

impl Member {
    fn none() -> Member {
        Member { sums: Vec::new(), rows: 0 }
    }

    /// The sums in the order of the tensor's columns.
    fn in_order(&self, cols: usize, part: &Part) -> Vec<f64> {
        let mut ordered = vec![0.0; cols];
        for (col, sum) in self.sums.iter().enumerate() {
            ordered[part.columns.map_or(col, |turns| turns.source(col))] = *sum;
        }
        ordered
    }
}
