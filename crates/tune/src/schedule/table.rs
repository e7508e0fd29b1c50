//! What the search leaves: for each matrix a schedule by the number of tokens.

use super::shape::{Problem, Schedule};
use crate::Error;

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
