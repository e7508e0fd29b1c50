//! Tables with a row for each figure and a column for each node.

use crate::wrap::WIDTH;

/// A figure of every column under its name.
pub(super) type Row = (&'static str, Vec<String>);

/// Puts names and as many columns beside each other as fit; the others below, with the first row.
pub(super) fn lay_out(rows: &[Row]) -> Vec<String> {
    let chars = |text: &str| text.chars().count();
    let label = rows.iter().map(|(name, _)| chars(name)).max().unwrap_or(0);
    let cell = rows.iter().flat_map(|(_, cells)| cells).map(|c| chars(c)).max().unwrap_or(0);
    let (columns, room) = (rows.first().map_or(0, |(_, cells)| cells.len()), WIDTH - label);
    // Two spaces look better than one, unless they cost a table.
    let gap = if columns * (cell + 2) <= room { 2 } else { 1 };
    let fit = (room / (cell + gap)).max(1);
    let mut lines = Vec::new();
    for first in (0..columns).step_by(fit) {
        if first > 0 {
            lines.push(String::new());
        }
        for (name, cells) in rows {
            let cells = &cells[first..columns.min(first + fit)];
            let cells: String = cells.iter().map(|c| format!("{c:>0$}", cell + gap)).collect();
            lines.push(format!("{name:<label$}{cells}").trim_end().to_owned());
        }
    }
    lines
}

/// `0.2 %`, `12 %`.
pub(super) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        p if p > 0.0 && p < 0.05 => "<0.1 %".to_owned(),
        p if p > 0.0 && p < 9.95 => format!("{p:.1} %"),
        p => format!("{p:.0} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_that_do_not_fit_go_below() {
        let rows = |nodes: usize| -> [Row; 2] {
            let heads = (0..nodes).map(|n| format!("node {n}")).collect();
            [("", heads), ("weights in bytes", vec!["1.23 GiB".to_owned(); nodes])]
        };
        assert_eq!(lay_out(&rows(2))[1], "weights in bytes  1.23 GiB  1.23 GiB");
        let lines = lay_out(&rows(12));
        assert_eq!(lines.len(), 5, "{lines:#?}");
        assert!(lines[3].trim_start().starts_with("node 9"), "{lines:#?}");
        assert!(lines.iter().all(|l| l.chars().count() <= WIDTH));
    }
}
