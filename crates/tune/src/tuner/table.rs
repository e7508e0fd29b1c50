//! The table that the engine takes a step's level from: by the tokens in the step.

use super::scheme::{Level, Scheme};
use super::trace::StepKind;
use crate::Error;

/// One row: steps of at most so many tokens use this level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Most tokens; `u32::MAX` in the last row.
    pub up_to: u32,
    /// The level.
    pub level: Level,
}

/// Rows by ascending tokens, at least one; the last is for all that is larger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    rows: Vec<Row>,
}

impl Table {
    /// A table of a scheme's levels.
    ///
    /// # Errors
    /// [`Error::BadScheme`] when there are no rows, their tokens do not ascend to `u32::MAX`, or a
    /// level is none of the scheme's.
    pub fn new(scheme: &Scheme, rows: Vec<Row>) -> Result<Table, Error> {
        let ascend = rows.is_sorted_by(|a, b| a.up_to < b.up_to);
        if !ascend || rows.last().is_none_or(|row| row.up_to != u32::MAX) {
            let reason = "the tokens of the table's rows must ascend and the last be open";
            return Err(Error::BadScheme(reason.into()));
        }
        for row in &rows {
            scheme.level(row.level.cpus().to_vec())?;
        }
        Ok(Table { rows })
    }

    /// All CPUs whatever the step.
    pub fn all(scheme: &Scheme) -> Table {
        Table { rows: vec![Row { up_to: u32::MAX, level: scheme.all() }] }
    }

    /// A level for each of some kinds of steps, which stand by ascending tokens. Between two kinds the
    /// geometric mean parts them, as it does when steps are counted.
    pub(super) fn of(kinds: &[StepKind], levels: &[&Level]) -> Table {
        let mut rows: Vec<Row> = vec![];
        for (at, &level) in levels.iter().enumerate() {
            let up_to = kinds.get(at + 1).map_or(u32::MAX, |next| {
                (f64::from(kinds[at].tokens) * f64::from(next.tokens)).sqrt() as u32
            });
            match rows.last_mut() {
                Some(last) if last.level == *level => last.up_to = up_to,
                _ => rows.push(Row { up_to, level: level.clone() }),
            }
        }
        Table { rows }
    }

    /// The rows.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// What a step of so many tokens uses.
    pub fn level(&self, tokens: u32) -> &Level {
        let row = self.rows.partition_point(|row| row.up_to < tokens);
        &self.rows[row.min(self.rows.len() - 1)].level
    }

    /// For each group the most CPUs that any row uses.
    pub(super) fn most(&self) -> Level {
        let mut levels = self.rows.iter().map(|row| row.level.clone());
        let first = levels.next().expect("a table has a row");
        levels.fold(first, |most, level| most.join(&level))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::{CpuId, Group};

    fn scheme() -> Scheme {
        Scheme::new(vec![Group { node: None, cpus: (0..8).map(CpuId).collect() }]).unwrap()
    }

    #[test]
    fn kinds_become_thresholds_between_them() {
        let kind = |tokens| StepKind { tokens, depth: 0, weight: 1.0 };
        let kinds = [1, 2, 8, 512].map(kind);
        let scheme = scheme();
        let (few, all) = (scheme.level(vec![3]).unwrap(), scheme.all());
        let table = Table::of(&kinds, &[&few, &few, &few, &all]);
        // √(8 · 512) = 64.
        let rows: Vec<(u32, usize)> =
            table.rows().iter().map(|r| (r.up_to, r.level.threads())).collect();
        assert_eq!(rows, [(64, 3), (u32::MAX, 8)]);
        for (tokens, threads) in [(1, 3), (64, 3), (65, 8), (u32::MAX, 8)] {
            assert_eq!(table.level(tokens).threads(), threads, "{tokens}");
        }
        assert_eq!(table.most(), all);
        assert_eq!(Table::new(&scheme, table.rows().to_vec()).unwrap(), table);
    }

    #[test]
    fn tables_that_leave_tokens_out_are_refused() {
        let scheme = scheme();
        let row = |up_to| Row { up_to, level: scheme.all() };
        for rows in [vec![], vec![row(7)], vec![row(9), row(7), row(u32::MAX)]] {
            assert!(Table::new(&scheme, rows).unwrap_err().to_string().contains("ascend"));
        }
        let other = Level::at_most(
            &Scheme::new(vec![Group { node: None, cpus: (0..9).map(CpuId).collect() }])
                .unwrap()
                .all(),
            9,
        );
        let rows = vec![Row { up_to: u32::MAX, level: other }];
        assert!(Table::new(&scheme, rows).unwrap_err().to_string().contains("9 of the 8"));
    }
}
