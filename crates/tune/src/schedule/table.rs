//! What the search leaves: for each matrix a schedule by the number of tokens.

use super::shape::{Problem, Schedule};
use crate::Error;
use std::ops::RangeInclusive;

/// Counts of tokens that are multiplied the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row<K> {
    /// The largest of these counts; the smallest is one more than that of the row before.
    pub up_to: usize,
    /// How ([`Schedule::at`] says how with one of these counts); `None`: as without tuning.
    pub schedule: Option<Schedule<K>>,
}

/// A count that was looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
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
pub struct Matrix<K> {
    name: String,
    tiles: usize,
    threads: usize,
    rows: Vec<Row<K>>,
    compared: Vec<Compared>,
}

/// What was found for all matrices.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedules<K> {
    /// In the order of the problems.
    pub matrices: Vec<Matrix<K>>,
    /// Products timed.
    pub evaluations: usize,
    /// False when time was too short for all that is looked at, or the search was stopped.
    pub complete: bool,
}

impl<K> Default for Schedules<K> {
    /// No matrices.
    fn default() -> Self {
        Schedules { matrices: vec![], evaluations: 0, complete: true }
    }
}

impl<K: Clone> Matrix<K> {
    /// A table of a matrix of so many tiles, multiplied by so many threads.
    ///
    /// # Errors
    /// [`Error::BadSchedule`] when counts of rows do not ascend from 1, a schedule does not fit the
    /// fewest tokens of its row, or a figure is no time.
    pub fn new(
        name: String,
        tiles: usize,
        threads: usize,
        rows: Vec<Row<K>>,
        compared: Vec<Compared>,
    ) -> Result<Matrix<K>, Error> {
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
    pub fn rows(&self) -> &[Row<K>] {
        &self.rows
    }

    /// The counts looked at, by ascending tokens.
    pub fn compared(&self) -> &[Compared] {
        &self.compared
    }

    /// How it is multiplied with so many tokens; `None`: as without tuning, which is also for more
    /// tokens than the last row has.
    pub fn schedule(&self, tokens: usize) -> Option<Schedule<K>> {
        let row = self.rows.partition_point(|row| row.up_to < tokens);
        let schedule = self.rows.get(row)?.schedule.as_ref()?;
        Some(schedule.at(self.tiles, tokens.max(1)))
    }

    /// Leaves these counts as without tuning.
    pub(crate) fn clear(&mut self, tokens: RangeInclusive<usize>)
    where
        K: PartialEq,
    {
        let (before, last) = (tokens.start().saturating_sub(1), *tokens.end());
        let mut rows: Vec<Row<K>> = vec![];
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

    /// The same with other names of micro-kernels: as text for a profile, or from it.
    ///
    /// # Errors
    /// What `name` says, of a kernel that is not known here, say.
    pub fn named<L, E>(&self, mut name: impl FnMut(&K) -> Result<L, E>) -> Result<Matrix<L>, E> {
        let mut row = |row: &Row<K>| -> Result<Row<L>, E> {
            let schedule = match &row.schedule {
                Some(Schedule { kernel, slice, grid, ahead }) => Some(Schedule {
                    kernel: name(kernel)?,
                    slice: *slice,
                    grid: *grid,
                    ahead: *ahead,
                }),
                None => None,
            };
            Ok(Row { up_to: row.up_to, schedule })
        };
        Ok(Matrix {
            rows: self.rows.iter().map(&mut row).collect::<Result<_, E>>()?,
            name: self.name.clone(),
            tiles: self.tiles,
            threads: self.threads,
            compared: self.compared.clone(),
        })
    }
}

impl<K: Clone> Schedules<K> {
    /// The same with the micro-kernels' names as text, for a profile.
    pub fn text(&self) -> Schedules<String>
    where
        K: std::fmt::Display,
    {
        let text = |kernel: &K| Ok::<String, std::convert::Infallible>(kernel.to_string());
        let matrix = |matrix: &Matrix<K>| {
            let Ok(matrix) = matrix.named(text);
            matrix
        };
        Schedules {
            matrices: self.matrices.iter().map(matrix).collect(),
            evaluations: self.evaluations,
            complete: self.complete,
        }
    }
}

impl Problem {
    /// Whether a table of a profile is that of this problem.
    pub fn is<K>(&self, matrix: &Matrix<K>) -> bool {
        (&self.name, self.tiles, self.threads) == (&matrix.name, matrix.tiles, matrix.threads)
    }
}

#[cfg(test)]
mod tests {
    use super::super::shape::{Grid, Slice};
    use super::*;

    #[test]
    fn cleared_counts_are_as_without_tuning() {
        let schedule = |ahead| {
            let (slice, grid) =
                (Slice { tiles: 1, tokens: 1 }, Grid { rows: 1, tokens: 1, splits: 1 });
            Some(Schedule { kernel: "a", slice, grid, ahead })
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
