//! Tables whose columns stand below each other in a terminal. A cell carries the heading of its column, so
//! that a column has one place in the source.

use std::fmt::Display;
use std::io::{self, Write};

/// A cell of a row, and its column.
pub(crate) struct Cell {
    head: String,
    width: usize,
    right: bool,
    text: String,
}

/// A cell of words, which begin at the left of at least `width` characters.
pub(crate) fn words(head: impl Into<String>, width: usize, value: impl Display) -> Cell {
    Cell { head: head.into(), width, right: false, text: value.to_string() }
}

/// A cell of a figure, which ends at the right of at least `width` characters.
pub(crate) fn figure(head: impl Into<String>, width: usize, value: impl Display) -> Cell {
    Cell { right: true, ..words(head, width, value) }
}

/// The headings of a row's columns.
pub(crate) fn heads(row: &[Cell], between: &str) -> String {
    joined(row, between, |cell| cell.padded(&cell.head))
}

/// A row.
pub(crate) fn line(row: &[Cell], between: &str) -> String {
    joined(row, between, |cell| cell.padded(&cell.text))
}

fn joined(row: &[Cell], between: &str, of: fn(&Cell) -> String) -> String {
    row.iter().map(of).collect::<Vec<_>>().join(between)
}

impl Cell {
    fn padded(&self, text: &str) -> String {
        let width = self.width;
        if self.right { format!("{text:>width$}") } else { format!("{text:<width$}") }
    }

    fn rule(&self) -> String {
        let line = "-".repeat(self.width + 1);
        if self.right { format!("{line}:") } else { format!(":{line}") }
    }
}

/// Prints a row in Markdown, above the first one of a table the headings.
pub(crate) fn print(out: &mut impl Write, first: bool, row: &[Cell]) -> io::Result<()> {
    if first {
        writeln!(out, "| {} |\n|{}|", heads(row, " | "), joined(row, "|", Cell::rule))?;
    }
    writeln!(out, "| {} |", line(row, " | "))
}

/// Prints all rows of a table in Markdown.
pub(crate) fn print_all<const N: usize>(
    out: &mut impl Write,
    rows: impl IntoIterator<Item = [Cell; N]>,
) -> io::Result<()> {
    rows.into_iter().enumerate().try_for_each(|(at, row)| print(out, at == 0, &row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_their_headings() {
        let row = |name, speed: f64| [words("name", 6, name), figure("µs/step", 9, speed)];
        let mut out = Vec::new();
        print_all(&mut out, [row("a", 1.5), row("longer than that", 2.0)]).unwrap();
        let expected = "\
| name   |   µs/step |
|:-------|----------:|
| a      |       1.5 |
| longer than that |         2 |
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        assert_eq!(heads(&row("a", 1.5), ""), "name    µs/step");
        assert_eq!(line(&row("a", 1.5), ""), "a           1.5");
    }
}
