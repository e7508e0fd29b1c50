//! What the search leaves: for each matrix a schedule by the number of tokens.

use super::shape::Problem;
use crate::Error;
use graph::{MatrixShape, Schedule};
use kernels::Foreign;
use serde::Deserialize;
use std::ops::RangeInclusive;

/// Counts of tokens that are multiplied the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunedRow {
    /// The largest of these counts; the smallest is one more than that of the row before.
    pub up_to: usize,
    /// How ([`Schedule::at`] says how with one of these counts); `None`: as without tuning.
    pub schedule: Option<Schedule>,
}

/// A count that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compared {
    /// Tokens.
    pub tokens: usize,
    /// Seconds of one product with the default, by the median of the repetitions.
    pub default: f64,
    /// Seconds as tuned; those of the default where nothing was changed.
    pub tuned: f64,
    /// Repetitions of each.
    pub repetitions: u32,
}

/// The schedules of one shape for every count up to the largest.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuned {
    shape: MatrixShape,
    rows: Vec<TunedRow>,
    compared: Vec<Compared>,
}

/// What was found for all matrices.
#[derive(Clone, Debug, PartialEq)]
pub struct TunedSchedules {
    /// In the order of the problems.
    pub matrices: Vec<Tuned>,
    /// Products timed.
    pub evaluations: usize,
    /// False when time was too short for all that is looked at, or the search was stopped.
    pub complete: bool,
    /// Kernels from elsewhere that were candidates.
    pub foreign: Vec<&'static Foreign>,
}

impl Default for TunedSchedules {
    /// No matrices.
    fn default() -> Self {
        TunedSchedules { matrices: vec![], evaluations: 0, complete: true, foreign: vec![] }
    }
}

impl Tuned {
    /// The table of a shape.
    ///
    /// # Errors
    /// [`Error::BadSchedule`] when counts of rows do not ascend from 1, a schedule does not fit the
    /// fewest tokens of its row, or a figure is no time.
    pub fn new(
        shape: MatrixShape,
        rows: Vec<TunedRow>,
        compared: Vec<Compared>,
    ) -> Result<Tuned, Error> {
        let bad = |reason: String| Error::BadSchedule { shape: shape.clone(), reason };
        if rows.first().is_none_or(|row| row.up_to == 0)
            || !rows.is_sorted_by(|a, b| a.up_to < b.up_to)
        {
            return Err(bad("the tokens of its rows must ascend from 1".into()));
        }
        let mut fewest = 1;
        for row in &rows {
            if let Some(schedule) = &row.schedule {
                let fault = |fault| bad(format!("up to {} tokens it {fault}", row.up_to));
                schedule.at(&shape, fewest).fits(&shape, fewest).map_err(fault)?;
            }
            fewest = row.up_to.saturating_add(1);
        }
        for &Compared { tokens, default, tuned, .. } in &compared {
            for seconds in [default, tuned] {
                if !(seconds.is_finite() && seconds > 0.0) {
                    return Err(bad(format!("{seconds} seconds with {tokens} tokens")));
                }
            }
        }
        Ok(Tuned { shape, rows, compared })
    }

    /// What is multiplied.
    pub fn shape(&self) -> &MatrixShape {
        &self.shape
    }

    /// The rows, by ascending tokens.
    pub fn rows(&self) -> &[TunedRow] {
        &self.rows
    }

    /// The counts looked at, by ascending tokens.
    pub fn compared(&self) -> &[Compared] {
        &self.compared
    }

    /// How it is multiplied with so many tokens; `None`: as without tuning, which is also for more
    /// tokens than the last row has.
    pub fn schedule(&self, tokens: usize) -> Option<Schedule> {
        let row = self.rows.partition_point(|row| row.up_to < tokens);
        Some(self.rows.get(row)?.schedule?.at(&self.shape, tokens.max(1)))
    }

    /// Leaves these counts as without tuning.
    pub(crate) fn clear(&mut self, tokens: RangeInclusive<usize>) {
        let (before, last) = (tokens.start().saturating_sub(1), *tokens.end());
        let mut rows: Vec<TunedRow> = vec![];
        for TunedRow { up_to, schedule } in std::mem::take(&mut self.rows) {
            let parts = [(before, schedule), (last, None), (usize::MAX, schedule)];
            for (end, schedule) in parts {
                let up_to = up_to.min(end);
                if up_to <= rows.last().map_or(0, |row| row.up_to) {
                    continue;
                }
                match rows.last_mut() {
                    Some(row) if row.schedule == schedule => row.up_to = up_to,
                    _ => rows.push(TunedRow { up_to, schedule }),
                }
            }
        }
        self.rows = rows;
        for compared in self.compared.iter_mut().filter(|c| tokens.contains(&c.tokens)) {
            compared.tuned = compared.default;
        }
    }
}

impl Problem {
    /// Whether a table of a profile is that of this problem.
    pub fn is(&self, matrix: &Tuned) -> bool {
        self.shape == matrix.shape
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::{Grid, Product, Slice};
    use kernels::How;

    #[test]
    fn cleared_counts_are_as_without_tuning() {
        let schedule = |ahead| {
            let slice = Some(Slice { tiles: 1, tokens: 1 });
            Some(Schedule { how: How { kernel: None, ahead }, slice, grid: Grid::default() })
        };
        let row = |(up_to, ahead)| TunedRow {
            up_to,
            schedule: if ahead > 0 { schedule(ahead) } else { None },
        };
        let rows = [(1, 1), (4, 0), (20, 2), (512, 3)].map(row);
        let compared = Compared { tokens: 8, default: 2.0, tuned: 1.0, repetitions: 5 };
        let other = Compared { tokens: 33, ..compared };
        let parts = vec![(gguf::TensorType::Q4_0, 128)];
        let shape = MatrixShape { parts, cols: 64, product: Product::Plain, threads: 1 };
        let matrix = Tuned::new(shape, rows.to_vec(), vec![compared, other]).unwrap();
        for (first, last) in [(1, 1), (1, 7), (5, 31), (2, 512), (1, usize::MAX), (40, usize::MAX)]
        {
            let mut cleared = matrix.clone();
            cleared.clear(first..=last);
            for tokens in 1..=600 {
                let expected = match (first..=last).contains(&tokens) {
                    true => None,
                    false => matrix.schedule(tokens),
                };
                assert_eq!(cleared.schedule(tokens), expected, "{first}-{last}: {tokens}");
            }
            assert_eq!(cleared.rows().last().unwrap().up_to, 512);
            assert!(cleared.rows().windows(2).all(|pair| pair[0].schedule != pair[1].schedule));
            for (was, is) in matrix.compared().iter().zip(cleared.compared()) {
                let kept = !(first..=last).contains(&was.tokens);
                assert_eq!(is.tuned, if kept { 1.0 } else { 2.0 });
            }
        }
    }
}
