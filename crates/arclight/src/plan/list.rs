//! The machines that come with the program.

use super::machine::find;
use crate::error::Error;
use crate::output::{Output, figure, words};
use std::io::Write;
use tune::known::MACHINES;

/// All of them in a line each, or one with the origin of every number.
pub(super) fn print(out: &mut Output, name: Option<&str>) -> Result<(), Error> {
    match name {
        Some(name) => one(out, name),
        None => all(out),
    }
}

fn all(out: &mut Output) -> Result<(), Error> {
    let rows = MACHINES.iter().map(|m| {
        [
            words("name", 13, m.name),
            figure("nodes", 5, m.nodes),
            figure("cores", 6, m.nodes * m.cores),
            figure("memory", 8, format_args!("{:.1}", m.memory.value)),
            figure("link", 7, format_args!("{:.1}", m.link.value)),
            words("machine", 0, m.title),
        ]
    });
    out.table(rows)?;
    writeln!(out, "\nGB/s of each node's memory, and of the link from one node to another's.")?;
    writeln!(out, "Where the numbers come from: arclight plan --machines --machine NAME")?;
    Ok(())
}

fn one(out: &mut Output, name: &str) -> Result<(), Error> {
    let machine = find(name)?;
    writeln!(out, "{}: {}\n", machine.name, machine.title)?;
    if let Some(table) = machine.table {
        writeln!(out, "GB/s from the cores of a node (row) to the memory of a node (column):")?;
        for row in table.lines().filter(|row| !row.trim().is_empty()) {
            writeln!(out, "{row}")?;
        }
        writeln!(out)?;
    }
    for (what, unit, figure) in machine.figures() {
        // As they are written in the source, without needless digits.
        let value = figure.value.to_string();
        writeln!(out, "{what:<20} {value:>6} {unit:<7} {:<8} {}", figure.origin, figure.from)?;
    }
    Ok(())
}
