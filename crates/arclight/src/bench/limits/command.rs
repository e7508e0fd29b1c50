//! `arclight bench --limits`: what the machine does at best, without a model.
//!
//! For every number of threads, placed as an engine's would be: what they read from the memory
//! beside them, and what waiting for each other takes. For every instruction set that the CPU has,
//! on one core and on as many as there are threads at most: its multiply peaks. Of bandwidths and
//! peaks the best round counts, of waits the median.

use super::peak::PeakProbe;
use super::table::{self, Found, PeakRow, ThreadsRow};
use crate::args::{List, NodesArg};
use crate::bench::args::BenchArgs;
use crate::bench_sync::barrier;
use crate::bench_sync::pools::pool;
use crate::error::Error;
use crate::output::Output;
use crate::report::reads::ReadProbe;
use crate::term::{self, note};
use kernels::{Kernels, bf16_trial};
use std::collections::BTreeSet;
use topology::{Layout, Machine, layout};

/// Runs the command.
pub(in crate::bench) fn run(args: &BenchArgs) -> Result<(), Error> {
    let machine = Machine::read()?;
    let (on_nodes, nodes) = match &args.place.nodes {
        Some(NodesArg::List(list)) => (Some(list.as_slice()), None),
        Some(NodesArg::Count(n)) => (None, Some(*n)),
        None => (None, None),
    };
    let machine = machine.restrict(on_nodes, args.place.cpus.as_ref())?;
    let layouts = layouts(&machine, nodes, args.threads.as_ref())?;
    let rounds = args.repetitions;

    let bar = term::count_bar("measuring", 2 * layouts.len() + 2);
    let mut threads = Vec::new();
    for layout in &layouts {
        bar.suspend(|| layout.notes.iter().for_each(|text| note!("{text}")));
        bar.set_message(term::plural(layout.threads(), "thread"));
        threads.push(threads_row(layout, &machine, rounds, &mut || bar.inc(1))?);
    }
    // The first has the fewest threads and the last the most.
    let mut peaks = Vec::new();
    for layout in [layouts.first(), layouts.last()].into_iter().flatten() {
        bar.set_message(format!("products of {}", term::plural(layout.threads(), "thread")));
        if peaks.last().is_none_or(|row: &PeakRow| row.threads != layout.threads()) {
            peaks.extend(peak_rows(layout, rounds)?);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let found = Found {
        version: env!("CARGO_PKG_VERSION"),
        cpu: machine.model().unwrap_or("unknown CPU").to_owned(),
        kernels: Kernels::detect().map_err(arclight_engine::Error::from)?.isa().name(),
        rounds,
        threads,
        peaks,
    };
    let mut out = Output::new(args.output);
    if out.data(&found, &["/threads", "/peaks"])? {
        return Ok(());
    }
    table::print(&mut out, &found, bf16_trial())
}

/// A layout for each number of threads, ascending: those asked for, or powers of two and one for
/// every core.
fn layouts(
    machine: &Machine,
    nodes: Option<usize>,
    threads: Option<&List>,
) -> Result<Vec<Layout>, Error> {
    let counts: BTreeSet<usize> = match threads {
        Some(List(all)) => all.iter().copied().collect(),
        None => {
            let all = layout(machine, nodes, None)?.threads();
            let powers = (0..).map(|i| 1 << i).take_while(|&n| n < all);
            powers.chain([all]).collect()
        }
    };
    let of = |&n: &usize| layout(machine, nodes.map(|nodes| nodes.min(n)), Some(n));
    Ok(counts.iter().map(of).collect::<Result<_, _>>()?)
}

fn threads_row(
    layout: &Layout,
    machine: &Machine,
    rounds: usize,
    done: &mut dyn FnMut(),
) -> Result<ThreadsRow, Error> {
    let mut next = 0;
    let groups = layout.groups.iter().map(|group| {
        next += group.cpus.len();
        next - group.cpus.len()..next
    });
    let groups = groups.collect();
    // Before the waits, and gone when they are measured.
    let reads = {
        let mut pool = pool(&layout.groups, false)?;
        let mut probe = ReadProbe::new(&mut pool, groups, machine)?;
        (0..rounds).try_for_each(|_| probe.pass(&mut pool))?;
        probe.reads().clone()
    };
    done();
    let waits = barrier::measure(layout, rounds, &mut || ())?;
    done();
    Ok(ThreadsRow {
        setup: waits.setup,
        read_bytes_per_second: reads.all,
        node_read_bytes_per_second: reads.groups,
        local_wait_microseconds: waits.local.map(|wait| wait.median),
        global_wait_microseconds: waits.global.map(|wait| wait.median),
    })
}

/// The peaks of every instruction set, best first, measured in turns.
fn peak_rows(layout: &Layout, rounds: usize) -> Result<Vec<PeakRow>, Error> {
    let mut pool = pool(&layout.groups, false)?;
    let mut sets: Vec<_> =
        Kernels::available().map(|kernels| (kernels.isa(), PeakProbe::all(kernels))).collect();
    for _ in 0..rounds {
        for probe in sets.iter_mut().flat_map(|(_, probes)| probes) {
            probe.pass(&mut pool)?;
        }
    }
    let row = |(isa, probes): &(kernels::Isa, Vec<PeakProbe>)| PeakRow {
        isa: isa.name(),
        threads: layout.threads(),
        macs_per_second: probes.iter().map(|p| (p.product().name(), p.best())).collect(),
    };
    Ok(sets.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::fake::FakeMachine;

    #[test]
    fn powers_of_two_and_all_cores_are_measured_unless_others_are_asked_for() {
        let machine = FakeMachine::uniform(2, 3).machine().unwrap();
        let shapes = |nodes, threads: Option<&[usize]>| {
            let threads = threads.map(|t| List(t.to_vec()));
            let all = layouts(&machine, nodes, threads.as_ref()).unwrap();
            all.iter().map(|l| (l.groups.len(), l.threads())).collect::<Vec<_>>()
        };
        assert_eq!(shapes(None, None), [(1, 1), (2, 2), (2, 4), (2, 6)]);
        assert_eq!(shapes(Some(1), None), [(1, 1), (1, 2), (1, 3)]);
        assert_eq!(shapes(Some(4), Some(&[5, 3, 5])), [(3, 3), (4, 5)]);
    }
}
