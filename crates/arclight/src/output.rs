//! How figures are printed: one value as text, Markdown, CSV or JSON.
//!
//! A command has one serialisable value with everything that it found. JSON is that value. CSV is one array of
//! it: a line for each element, with the single values that stand beside the array in front. Text and Markdown
//! are tables of [`Cell`]s, for people, with lines of words around them.

use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::{Map, Value};
use std::fmt::{self, Display};
use std::io::{self, StdoutLock, Write};

/// Form of the figures. (Documented variants would make `--help` three times as long.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    #[default]
    Text,
    Md,
    Csv,
    Json,
}

impl Format {
    /// Whether programs read it: then nothing but figures is printed.
    pub(crate) fn is_data(self) -> bool {
        matches!(self, Format::Csv | Format::Json)
    }
}

/// The option of every command that prints figures.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct OutputArgs {
    /// Form of the figures
    #[arg(id = "output", short, long = "output", value_name = "FORMAT", value_enum,
          default_value_t = Format::Text, display_order = 890)]
    pub(crate) format: Format,
}

/// A cell of a row, and what stands above it.
pub(crate) struct Cell {
    head: String,
    text: String,
    width: usize,
    is_figure: bool,
}

/// A cell of words, which begin at the left of at least `width` characters.
pub(crate) fn words(head: impl AsRef<str>, width: usize, value: impl Display) -> Cell {
    Cell { head: head.as_ref().to_owned(), text: value.to_string(), width, is_figure: false }
}

/// A cell of a figure, which ends at the right of at least `width` characters.
pub(crate) fn figure(head: impl AsRef<str>, width: usize, value: impl Display) -> Cell {
    Cell { is_figure: true, ..words(head, width, value) }
}

impl Cell {
    /// As wide as it has to be in a table whose rows are printed one by one.
    fn width(&self) -> usize {
        self.width.max(self.head.chars().count())
    }

    fn padded(&self, text: &str, width: usize) -> String {
        if self.is_figure { format!("{text:>width$}") } else { format!("{text:<width$}") }
    }

    fn rule(&self, width: usize) -> String {
        if self.is_figure { format!("-{:-<width$}:", "") } else { format!(":{:-<width$}-", "") }
    }
}

/// Where a command prints its figures.
pub(crate) struct Output<W = StdoutLock<'static>> {
    out: W,
    format: Format,
    /// Between columns of text.
    gap: &'static str,
    /// Widths of the columns of a table that has begun.
    widths: Vec<usize>,
}

impl Output {
    /// On standard output.
    pub(crate) fn new(args: OutputArgs) -> Output {
        Output::to(io::stdout().lock(), args.format)
    }
}

impl<W: Write> Output<W> {
    pub(crate) fn to(out: W, format: Format) -> Output<W> {
        Output { out, format, gap: "  ", widths: Vec::new() }
    }

    /// With one space between columns of text, for tables that are wide.
    pub(crate) fn narrow(self) -> Output<W> {
        Output { gap: " ", ..self }
    }

    /// Prints the whole value if programs read it, and says whether that is so. `rows` are the JSON pointers
    /// ([RFC 6901](https://www.rfc-editor.org/rfc/rfc6901)) of the arrays whose elements are the lines of CSV, a
    /// table each with an empty line between; without one, the value is the line.
    pub(crate) fn data(&mut self, whole: &impl Serialize, rows: &[&str]) -> io::Result<bool> {
        match self.format {
            Format::Text | Format::Md => return Ok(false),
            Format::Json => {
                serde_json::to_writer_pretty(&mut self.out, whole)?;
                writeln!(self.out)?;
            }
            Format::Csv => csv(&mut self.out, serde_json::to_value(whole)?, rows)?,
        }
        self.out.flush()?;
        Ok(true)
    }

    /// Lines that are to stay as they are, in columns of their own.
    pub(crate) fn block(&mut self, text: impl Display) -> io::Result<()> {
        match self.format {
            Format::Md => writeln!(self, "```\n{text}\n```"),
            _ => writeln!(self, "{text}"),
        }
    }

    /// A row of a table that goes on while rows follow each other; its columns are as wide as their cells say.
    pub(crate) fn row(&mut self, row: &[Cell]) -> io::Result<()> {
        if self.widths.is_empty() {
            self.begin(row, row.iter().map(Cell::width).collect())?;
        }
        self.cells(row, |cell| &cell.text)?;
        self.out.flush()
    }

    /// A whole table, whose columns are as wide as the widest cell.
    pub(crate) fn table<R: AsRef<[Cell]>>(
        &mut self,
        rows: impl IntoIterator<Item = R>,
    ) -> io::Result<()> {
        let rows: Vec<R> = rows.into_iter().collect();
        let Some(first) = rows.first() else { return Ok(()) };
        let width = |at: usize| {
            let cells = rows.iter().map(|row| row.as_ref()[at].text.chars().count());
            cells.fold(first.as_ref()[at].width(), usize::max)
        };
        self.begin(first.as_ref(), (0..first.as_ref().len()).map(width).collect())?;
        rows.iter().try_for_each(|row| self.cells(row.as_ref(), |cell| &cell.text))?;
        self.widths.clear();
        Ok(())
    }

    fn begin(&mut self, row: &[Cell], widths: Vec<usize>) -> io::Result<()> {
        self.widths = widths;
        self.cells(row, |cell| &cell.head)?;
        if self.format != Format::Md {
            return Ok(());
        }
        let rule: String =
            row.iter().zip(&self.widths).map(|(c, &w)| format!("|{}", c.rule(w))).collect();
        writeln!(self.out, "{rule}|")
    }

    fn cells(&mut self, row: &[Cell], of: impl Fn(&Cell) -> &str) -> io::Result<()> {
        let cells: Vec<String> = row
            .iter()
            .zip(&self.widths)
            .map(|(cell, &width)| cell.padded(of(cell), width))
            .collect();
        match self.format {
            Format::Text => writeln!(self.out, "{}", cells.join(self.gap).trim_end()),
            Format::Md => writeln!(self.out, "| {} |", cells.join(" | ")),
            Format::Csv | Format::Json => Ok(()),
        }
    }
}

/// Words around tables: programs that read the figures get none.
impl<W: Write> Write for Output<W> {
    fn write(&mut self, words: &[u8]) -> io::Result<usize> {
        self.widths.clear();
        if self.format.is_data() { Ok(words.len()) } else { self.out.write(words) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Writes the elements of arrays of a value as lines below the names of their fields.
fn csv(out: &mut impl Write, mut whole: Value, tables: &[&str]) -> io::Result<()> {
    // What is taken leaves a list that is no field.
    let left = || serde_json::json!([{}]);
    let mut take = |rows: &&str| match whole.pointer_mut(rows).map(|v| std::mem::replace(v, left()))
    {
        Some(Value::Array(rows)) => rows,
        other => Vec::from_iter(other),
    };
    let mut tables: Vec<Vec<Value>> = tables.iter().map(&mut take).collect();
    let mut beside = Map::new();
    flatten("", whole, &mut beside);
    if tables.is_empty() {
        tables.push(vec![Value::Null]);
    }
    tables.retain(|rows| !rows.is_empty());
    for (at, rows) in tables.into_iter().enumerate() {
        if at > 0 {
            writeln!(out)?;
        }
        table(out, &beside, rows)?;
    }
    Ok(())
}

/// One table of CSV.
fn table(out: &mut impl Write, beside: &Map<String, Value>, rows: Vec<Value>) -> io::Result<()> {
    let lines: Vec<Map<String, Value>> = rows
        .into_iter()
        .map(|row| {
            let mut line = beside.clone();
            flatten("", row, &mut line);
            line
        })
        .collect();
    let mut names: Vec<&str> = Vec::new();
    for name in lines.iter().flat_map(Map::keys) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    writeln!(out, "{}", names.iter().map(|name| field(name)).collect::<Vec<_>>().join(","))?;
    for line in &lines {
        let fields: Vec<String> =
            names.iter().map(|name| line.get(*name).map_or_else(String::new, plain)).collect();
        writeln!(out, "{}", fields.join(","))?;
    }
    Ok(())
}

/// Fields of fields as `outer.inner`; lists of single values are one field, other lists are left out.
fn flatten(name: &str, value: Value, to: &mut Map<String, Value>) {
    match value {
        Value::Object(fields) => {
            for (inner, value) in fields {
                flatten(
                    &if name.is_empty() { inner } else { format!("{name}.{inner}") },
                    value,
                    to,
                );
            }
        }
        Value::Array(list) if list.iter().any(|v| v.is_object() || v.is_array()) => {}
        Value::Null if name.is_empty() => {}
        value => drop(
            to.insert(if name.is_empty() { "value".to_owned() } else { name.to_owned() }, value),
        ),
    }
}

/// A single value, or several with spaces between them, as a field.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => field(text),
        Value::Array(list) => {
            let texts = list.iter().map(|v| v.as_str().map_or_else(|| plain(v), str::to_owned));
            field(&texts.collect::<Vec<_>>().join(" "))
        }
        other => other.to_string(),
    }
}

/// A field of any text (RFC 4180).
fn field(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

impl<W> fmt::Debug for Output<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").field("format", &self.format).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn printed(format: Format, print: impl FnOnce(&mut Output<&mut Vec<u8>>)) -> String {
        let mut bytes = Vec::new();
        print(&mut Output::to(&mut bytes, format));
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn columns_stand_below_their_headings() {
        let row = |name, speed: f64| [words("name", 6, name), figure("µs/step", 9, speed)];
        let rows = || [row("a", 1.5), row("longer than that", 2.0)];
        let whole = |format| printed(format, |out| out.table(rows()).unwrap());
        let expected = "\
| name             |   µs/step |
|:-----------------|----------:|
| a                |       1.5 |
| longer than that |         2 |
";
        assert_eq!(whole(Format::Md), expected);
        let expected = "\
name                µs/step
a                       1.5
longer than that          2
";
        assert_eq!(whole(Format::Text), expected);
        assert_eq!(whole(Format::Csv), "");
        let one_by_one = printed(Format::Text, |out| {
            out.row(&row("a", 1.5)).unwrap();
            out.row(&row("b", 2.5)).unwrap();
            writeln!(out, "then").unwrap();
            out.row(&row("c", 3.5)).unwrap();
        });
        let head = "name      µs/step\n";
        assert_eq!(
            one_by_one,
            format!("{head}a             1.5\nb             2.5\nthen\n{head}c             3.5\n")
        );
    }

    #[test]
    fn csv_is_the_rows_with_what_stands_beside_them() {
        let whole = json!({
            "cpu": "a, \"b\"", "model": {"bytes": 3}, "other": [{"x": 1}],
            "rows": [{"n": 1, "at": [0, 2]}, {"n": 2, "rate": {"int8": 0.5}, "none": null}],
        });
        let csv = printed(Format::Csv, |out| assert!(out.data(&whole, &["/rows"]).unwrap()));
        let expected = "\
cpu,model.bytes,n,at,rate.int8,none
\"a, \"\"b\"\"\",3,1,0 2,,
\"a, \"\"b\"\"\",3,2,,0.5,
";
        assert_eq!(csv, expected);
        let one = printed(Format::Csv, |out| assert!(out.data(&json!({"a": 1}), &[]).unwrap()));
        assert_eq!(one, "a\n1\n");
        assert!(!Output::to(Vec::new(), Format::Text).data(&whole, &["/rows"]).unwrap());
    }
}
