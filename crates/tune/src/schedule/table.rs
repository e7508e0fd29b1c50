//! What the search leaves: for each matrix a schedule by the number of tokens.

use super::shape::{Problem, Schedule};
use crate::Error;
use serde::Deserialize;
use std::ops::RangeInclusive;

/// Counts of tokens that are multiplied the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
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

/// The schedules of one matrix for every count up to the largest.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    name: String,
    tiles: usize,
    threads: usize,
    rows: Vec<Row>,
    compared: Vec<Compared>,
}

/// What was found for all matrices.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedules {
    /// In the order of the problems.
    pub matrices: Vec<Matrix>,
    /// Products timed.
    pub evaluations: usize,
    /// False when time was too short for all that is looked at, or the search was stopped.
    pub complete: bool,
}

impl Default for Schedules {
    /// No matrices.
    fn default() -> Self {
        Schedules { matrices: vec![], evaluations: 0, complete: true }
    }
}

impl Matrix {
    /// A table of a matrix of so many tiles, multiplied by so many threads.
    ///
    /// # Errors
    /// [`Error::BadSchedule`] when counts of rows do not ascend from 1, a schedule does not fit the
    /// fewest tokens of its row, or a figure is no time.
    pub fn new(
        name: String,
        tiles: usize,
        threads: usize,
        rows: Vec<Row>,
        compared: Vec<Compared>,
    ) -> Result<Matrix, Error> {
        let bad = |reason: String| Error::BadSchedule { matrix: name.clone(), reason };
        if rows.first().is_none_or(|row| row.up_to == 0)
            || !rows.is_sorted_by(|a, b| a.up_to < b.up_to)
        {
            return Err(bad("the tokens of its rows must ascend from 1".into()));
        }
        let mut fewest = 1;
        for row in &rows {
            if let Some(schedule) = &row.schedule {
                let fault = |fault| bad(format!("up to {} tokens: {fault}", row.up_to));
                schedule.at(tiles, fewest).fits(tiles, fewest, threads).map_err(fault)?;
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
        Ok(Matrix { name, tiles, threads, rows, compared })
    }

    /// What people call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its tiles of 16 rows.
    pub fn tiles(&self) -> usize {
        self.tiles
    }

    /// The threads that multiply it.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The rows, by ascending tokens.
    pub fn rows(&self) -> &[Row] {
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
        let schedule = self.rows.get(row)?.schedule.as_ref()?;
        Some(schedule.at(self.tiles, tokens.max(1)))
    }

    /// Leaves these counts as without tuning.
    pub(crate) fn clear(&mut self, tokens: RangeInclusive<usize>) {
        let (before, last) = (tokens.start().saturating_sub(1), *tokens.end());
        let mut rows: Vec<Row> = vec![];
        for Row { up_to, schedule } in std::mem::take(&mut self.rows) {
            let parts = [(before, schedule.clone()), (last, None), (usize::MAX, schedule)];
            for (end, schedule) in parts {
                let up_to = up_to.min(end);
                if up_to <= rows.last().map_or(0, |row| row.up_to) {
                    continue;
                }
                match rows.last_mut() {
                    Some(row) if row.schedule == schedule => row.up_to = up_to,
                    _ => rows.push(Row { up_to, schedule }),
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
    pub fn is(&self, matrix: &Matrix) -> bool {
        (&self.name, self.tiles, self.threads) == (&matrix.name, matrix.tiles, matrix.threads)
    }
}

#[cfg(test)]
mod tests {
    use super::super::shape::Grid;
    use super::*;
    use graph::Slice;

    #[test]
    fn cleared_counts_are_as_without_tuning() {
        let schedule = |ahead| {
            let (slice, grid) =
                (Slice { tiles: 1, tokens: 1 }, Grid { rows: 1, tokens: 1, splits: 1 });
            Some(Schedule { kernel: "a".into(), slice, grid, ahead })
        };
        let row = |(up_to, ahead)| Row {
            up_to,
            schedule: if ahead > 0 { schedule(ahead) } else { None },
        };
        let rows = [(1, 1), (4, 0), (20, 2), (512, 3)].map(row);
        let compared = Compared { tokens: 8, default: 2.0, tuned: 1.0, repetitions: 5 };
        let other = Compared { tokens: 33, ..compared };
        let matrix = Matrix::new("w".into(), 8, 1, rows.to_vec(), vec![compared, other]).unwrap();
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
