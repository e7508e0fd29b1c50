//! The matrices as tables.

use super::latency::Latency;
use super::measure::{Access, Reader};
use crate::error::Error;
use crate::output::{Output, figure, words};
use crate::term;
use std::io::Write;
use std::time::Duration;
use topology::topotree::SEPARATED;

/// Prints both matrices and how they were taken.
pub(super) fn print(out: &mut Output<impl Write>, access: &Access) -> Result<(), Error> {
    let gigabytes = |rate: f64| term::rate(rate / 1e9);
    writeln!(out, "\nread bandwidth, GB/s: all cores of a node from the memory of a node")?;
    matrix(out, access, &access.read_bytes_per_second, gigabytes)?;
    writeln!(out, "\nlatency, ns: one core of a node waiting for a line of the memory of a node")?;
    matrix(out, access, &access.latency_nanoseconds, |ns| format!("{ns:.0}"))?;

    let largest = access.memories.iter().map(|m| m.buffer_bytes).max().unwrap_or(0);
    let huge: u64 = access.memories.iter().map(|m| m.huge_bytes).sum();
    let all: u64 = access.memories.iter().map(|m| m.buffer_bytes).sum();
    writeln!(
        out,
        "\n  medians of passes over {} per node, {} % of it on huge pages; {} read in {}",
        term::size(largest as usize),
        (100 * huge).checked_div(all).unwrap_or(0),
        term::size(access.bytes_read as usize),
        term::seconds(Duration::from_secs_f64(access.seconds))
    )?;
    access.warnings.iter().try_for_each(|w| writeln!(out, "  warning: {w}"))?;
    Ok(())
}

/// Prints what times between cores say.
pub(super) fn print_latency(out: &mut Output<impl Write>, latency: &Latency) -> Result<(), Error> {
    writeln!(out, "\nlatency, ns: a cache line from one core to another")?;
    out.table(latency.levels.iter().map(|level| {
        let median = level.nanoseconds.map_or("-".into(), |ns| format!("{ns:.0}"));
        let says = match level.separation {
            None => "-".into(),
            Some(ratio) if ratio >= SEPARATED => format!("{ratio:.2} times nearer"),
            Some(ratio) => format!("{ratio:.2}: no nearer, it does not show"),
        };
        [
            words("inside a", 14, &level.name),
            figure("median", 7, median),
            words("than to others", 0, says),
        ]
    }))?;
    writeln!(out)?;
    for group in &latency.proposals {
        let apart = match group.stride {
            1 => "neighbours".to_owned(),
            stride => format!("{stride} apart"),
        };
        writeln!(
            out,
            "  {} ×{} that are {apart} are {:.2} times nearer to each other: nothing shows them, as a \
             tree group({}, {}, {})",
            group.of, group.n, group.separation, group.n, group.stride, group.depth
        )?;
    }
    if latency.proposals.is_empty() {
        writeln!(out, "  no groups but those that are known")?;
    }
    let (cores, time) = (latency.times.cpus().len(), Duration::from_secs_f64(latency.seconds));
    writeln!(
        out,
        "  {} in {}, the fastest of some batches of each pair",
        term::plural(cores, "core"),
        term::seconds(time)
    )?;
    latency.warnings.iter().try_for_each(|w| writeln!(out, "  warning: {w}"))?;
    Ok(())
}

fn matrix(
    out: &mut Output<impl Write>,
    access: &Access,
    cells: &[Vec<Option<f64>>],
    text: impl Fn(f64) -> String,
) -> Result<(), Error> {
    let ratios = access.memories.len() > 1;
    let rows = access.readers.iter().zip(cells).map(|(reader, row)| {
        let mut line = vec![words("cores", 14, row_head(reader))];
        line.extend(access.memories.iter().zip(row).map(|(memory, cell)| {
            let text = cell.map_or("-".to_owned(), &text);
            figure(format!("node {}", memory.node), 7, text)
        }));
        let local = access.memories.iter().position(|m| m.node == reader.node);
        line.extend(ratios.then(|| words("remote / local", 0, ratio(row, local))));
        line
    });
    Ok(out.table(rows)?)
}

fn row_head(reader: &Reader) -> String {
    format!("node {}, {}", reader.node, term::plural(reader.cpus.len(), "core"))
}

/// The least and the most that the others are of the local value: `0.23 to 0.26`.
fn ratio(row: &[Option<f64>], local: Option<usize>) -> String {
    let Some(own) = local.and_then(|i| row[i]) else { return "-".to_owned() };
    let others = row.iter().enumerate().filter(|&(i, _)| Some(i) != local);
    let ratios: Vec<f64> = others.filter_map(|(_, cell)| Some((*cell)? / own)).collect();
    let least = ratios.iter().copied().reduce(f64::min).map(|r| format!("{r:.2}"));
    let most = ratios.iter().copied().reduce(f64::max).map(|r| format!("{r:.2}"));
    match (least, most) {
        (Some(least), Some(most)) if least == most => least,
        (Some(least), Some(most)) => format!("{least} to {most}"),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::measure::Memory;
    use super::*;
    use crate::output::Format;
    use topology::{CpuId, NodeId};

    fn access() -> Access {
        let reader =
            |node, cpus: u32| Reader { node: NodeId(node), cpus: (0..cpus).map(CpuId).collect() };
        let memory = |node, mib: u64| Memory {
            node: NodeId(node),
            buffer_bytes: mib << 20,
            huge_bytes: mib << 19,
            pages_elsewhere: Some(0),
        };
        Access {
            readers: vec![reader(0, 48), reader(2, 1)],
            memories: vec![memory(0, 128), memory(2, 128), memory(5, 0)],
            read_bytes_per_second: vec![
                vec![Some(102.4e9), Some(25.0e9), None],
                vec![Some(2.5e9), Some(9.25e9), None],
            ],
            latency_nanoseconds: vec![
                vec![Some(90.4), Some(210.0), None],
                vec![Some(205.0), Some(91.0), None],
            ],
            bytes_read: 12 << 30,
            seconds: 2.5,
            warnings: vec!["node 5 is small".into()],
        }
    }

    #[test]
    fn tables_have_a_row_per_reader_and_the_ratio_to_local() {
        let mut out = vec![];
        print(&mut Output::to(&mut out, Format::Text), &access()).unwrap();
        let expected = "
read bandwidth, GB/s: all cores of a node from the memory of a node
cores              node 0   node 2   node 5  remote / local
node 0, 48 cores    102.4     25.0        -  0.24
node 2, 1 core       2.50     9.25        -  0.27

latency, ns: one core of a node waiting for a line of the memory of a node
cores              node 0   node 2   node 5  remote / local
node 0, 48 cores       90      210        -  2.32
node 2, 1 core        205       91        -  2.25

  medians of passes over 128 MiB per node, 50 % of it on huge pages; 12.0 GiB read in 2.50 s
  warning: node 5 is small
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn levels_and_groups_are_told() {
        let machine = topology::Machine::from_synthetic("numa:2 core:8").unwrap();
        let tree = topology::topotree::TopoTree::of(&machine);
        let times = topology::topotree::LineTimes::measure(tree.cpus(), |a, b| {
            Ok::<f64, Error>(match () {
                () if a.0 / 4 == b.0 / 4 => 40.0,
                () if a.0 / 8 == b.0 / 8 => 60.0,
                () => 150.0,
            })
        })
        .unwrap();
        let latency = Latency {
            levels: tree.measured_levels(&times),
            proposals: tree.latent(&times),
            times,
            seconds: 1.5,
            warnings: vec!["cpu 3 is busy".into()],
        };
        let mut out = vec![];
        print_latency(&mut Output::to(&mut out, Format::Text), &latency).unwrap();
        let expected = "
latency, ns: a cache line from one core to another
inside a         median  than to others
machine             150  -
node                 60  2.50 times nearer

  core ×4 that are neighbours are 1.50 times nearer to each other: nothing shows them, as a tree group(4, 1, 2)
  16 cores in 1.50 s, the fastest of some batches of each pair
  warning: cpu 3 is busy
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn ratios_need_a_local_value() {
        assert_eq!(ratio(&[Some(2.0), Some(4.0), Some(5.0)], Some(0)), "2.00 to 2.50");
        assert_eq!(ratio(&[Some(2.0), Some(4.0)], None), "-");
        assert_eq!(ratio(&[None, Some(4.0)], Some(0)), "-");
        assert_eq!(ratio(&[Some(4.0), None], Some(0)), "-");
    }
}
