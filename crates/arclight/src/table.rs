//! Tables whose columns stand below each other in a terminal. A cell carries the heading of its column, so
//! that a column has one place in the source.

use std::fmt::Display;
use std::io::{self, Write};

/// A cell of a row, and what stands above it.
pub(crate) struct Cell {
    head: String,
    rule: String,
    text: String,
}

/// A cell of words, which begin at the left of at least `width` characters.
pub(crate) fn words(head: impl AsRef<str>, width: usize, value: impl Display) -> Cell {
    let [head, text] = [head.as_ref(), &value.to_string()].map(|text| format!("{text:<width$}"));
    Cell { head, rule: format!(":{:-<width$}-", ""), text }
}

/// A cell of a figure, which ends at the right of at least `width` characters.
pub(crate) fn figure(head: impl AsRef<str>, width: usize, value: impl Display) -> Cell {
    let [head, text] = [head.as_ref(), &value.to_string()].map(|text| format!("{text:>width$}"));
    Cell { head, rule: format!("-{:-<width$}:", ""), text }
}

/// The headings of a row's columns.
pub(crate) fn heads(row: &[Cell], between: &str) -> String {
    row.iter().map(|cell| cell.head.as_str()).collect::<Vec<_>>().join(between)
}

/// A row.
pub(crate) fn line(row: &[Cell], between: &str) -> String {
    row.iter().map(|cell| cell.text.as_str()).collect::<Vec<_>>().join(between)
}

/// A row in Markdown, below the headings if it is the first of a table.
pub(crate) fn markdown(first: bool, row: &[Cell]) -> String {
    let line = format!("| {} |", line(row, " | "));
    if !first {
        return line;
    }
    let rule: String = row.iter().map(|cell| format!("|{}", cell.rule)).collect();
    format!("| {} |\n{rule}|\n{line}", heads(row, " | "))
}

/// Prints all rows of a table in Markdown.
pub(crate) fn print<const N: usize>(
    out: &mut impl Write,
    rows: impl IntoIterator<Item = [Cell; N]>,
) -> io::Result<()> {
    let mut rows = rows.into_iter().enumerate();
    rows.try_for_each(|(at, row)| writeln!(out, "{}", markdown(at == 0, &row)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_their_headings() {
        let row = |name, speed: f64| [words("name", 6, name), figure("µs/step", 9, speed)];
        let mut out = Vec::new();
        print(&mut out, [row("a", 1.5), row("longer than that", 2.0)]).unwrap();
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
