//! The machines that come with the program.

use super::machine::find;
use crate::error::Error;
use crate::output::{Output, figure, words};
use serde_json::{Value, json};
use std::io::Write;
use tune::known::{Figure, KnownMachine, MACHINES, Shared};

/// All of them in a line each, or one with the origin of every number.
pub(super) fn print(out: &mut Output, name: Option<&str>) -> Result<(), Error> {
    match name {
        Some(name) => one(out, name),
        None => all(out),
    }
}

/// A machine as data, its figures apart.
fn value(m: &KnownMachine) -> Value {
    json!({
        "name": m.name,
        "title": m.title,
        "nodes": m.nodes,
        "cores_per_node": m.cores,
        "memory_gb_per_second": m.memory.value,
        "link_gb_per_second": m.link.value,
        "timed": m.timed,
    })
}

fn all(out: &mut Output) -> Result<(), Error> {
    let machines: Vec<Value> = MACHINES.iter().map(value).collect();
    if out.data(&json!({ "machines": machines }), &["/machines"])? {
        return Ok(());
    }
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
    let figures = machine.figures().map(|(what, unit, figure)| {
        let origin = figure.origin.to_string();
        json!({ "what": what, "unit": unit, "value": figure.value, "origin": origin,
                "from": figure.from })
    });
    let mut data = value(machine);
    data["figures"] = figures.into_iter().collect();
    data["levels"] = json!(machine.levels);
    if let Some(Shared { cores, read, crowd }) = machine.shared {
        let of = |Figure { value, origin, from }| {
            let origin = origin.to_string();
            json!({ "value": value, "origin": origin, "from": from })
        };
        data["shared"] =
            json!({ "cores": of(cores), "gb_per_second": of(read), "crowd": of(crowd) });
    }
    let (model, nodes) = (machine.model(), machine.nodes);
    let row = |cpu| (0..nodes).map(|memory| model.link(cpu, memory)).collect::<Vec<_>>();
    data["read_bytes_per_second"] = json!((0..nodes).map(row).collect::<Vec<_>>());
    if out.data(&data, &["/figures"])? {
        return Ok(());
    }
    writeln!(out, "{}: {}\n", machine.name, machine.title)?;
    if let Some(table) = machine.table {
        writeln!(out, "GB/s from the cores of a node (row) to the memory of a node (column):")?;
        for row in table.lines().filter(|row| !row.trim().is_empty()) {
            writeln!(out, "{row}")?;
        }
        writeln!(out)?;
    }
    let shared = machine.shared.map(|Shared { cores, read, crowd }| {
        [("cores that share", "", cores), ("what they share", "GB/s", read), ("crowd", "", crowd)]
    });
    for (what, unit, figure) in machine.figures().into_iter().chain(shared.into_iter().flatten()) {
        // As they are written in the source, without needless digits.
        let value = figure.value.to_string();
        writeln!(out, "{what:<20} {value:>6} {unit:<7} {:<8} {}", figure.origin, figure.from)?;
    }
    Ok(())
}
