//! Results of `bench-sync`.

use super::gather::METHODS;
use super::summary::Summary;
use crate::error::Error;
use crate::output::{Cell, Output, figure, words};
use crate::term;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;
use std::io::Write;
use topology::{Layout, Machine};

/// Who waited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Setup {
    pub(crate) nodes: usize,
    pub(crate) threads: usize,
    /// CPUs that the threads are pinned to; with fewer than threads the scheduler is measured.
    pub(crate) cpus: usize,
    /// More nodes than the machine has.
    pub(crate) virtual_nodes: bool,
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (threads, nodes) =
            (term::plural(self.threads, "thread"), term::plural(self.nodes, "node"));
        write!(f, "{threads} on {nodes}")
    }
}

/// Waits of one setup.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BarrierRow {
    #[serde(flatten)]
    pub(crate) setup: Setup,
    /// `None` if each group has one thread, which has no other to wait for.
    pub(crate) local: Option<Summary>,
    /// `None` with one node, where it is the local one.
    pub(crate) global: Option<Summary>,
    pub(super) flat: Option<Summary>,
    /// Of one global wait.
    pub(super) crossings: usize,
}

/// Gathers of one size in one setup.
#[derive(Clone, Debug, Serialize)]
pub(super) struct GatherRow {
    #[serde(flatten)]
    pub(super) setup: Setup,
    pub(super) bytes: usize,
    /// Those that suit the size.
    #[serde(serialize_with = "by_name")]
    pub(super) times: Vec<(&'static str, Summary)>,
}

fn by_name<S: serde::Serializer>(
    times: &[(&'static str, Summary)],
    to: S,
) -> Result<S::Ok, S::Error> {
    to.collect_map(times.iter().map(|(gather, summary)| (gather, summary)))
}

impl GatherRow {
    fn get(&self, gather: &str) -> Option<&Summary> {
        self.times.iter().find(|(of, _)| *of == gather).map(|(_, summary)| summary)
    }

    fn best(&self) -> Option<&(&'static str, Summary)> {
        self.times.iter().min_by(|a, b| a.1.median.total_cmp(&b.1.median))
    }

    /// Whether a scatter is better than any one-shot gather, beyond the noise.
    fn wants_scatter(&self) -> bool {
        let scatter = self.get("scatter");
        let mut others = self.times.iter().filter(|(of, _)| *of != "scatter");
        scatter.is_some_and(|scatter| others.all(|(_, other)| scatter.is_below(other)))
    }
}

/// From which size a scatter pays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Crossover {
    #[serde(flatten)]
    setup: Setup,
    /// The largest size up to which some one-shot gather is as good; 0 when none is.
    one_shot_up_to: usize,
    /// The largest size measured.
    measured_up_to: usize,
}

impl Crossover {
    /// `rows` are of one setup, by size.
    fn of(rows: &[GatherRow]) -> Option<Crossover> {
        let last = rows.last()?;
        let one_shot = rows.iter().rev().find(|row| !row.wants_scatter());
        Some(Crossover {
            setup: last.setup.clone(),
            one_shot_up_to: one_shot.map_or(0, |row| row.bytes),
            measured_up_to: last.bytes,
        })
    }
}

impl fmt::Display for Crossover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (one_shot, most) = (self.one_shot_up_to, term::size(self.measured_up_to));
        write!(f, "{}: ", self.setup)?;
        match one_shot {
            0 => write!(f, "scatter at every size measured"),
            n if n == self.measured_up_to => {
                write!(f, "one-shot up to {most}, the largest measured")
            }
            n => write!(f, "one-shot up to {}, scatter beyond", term::size(n)),
        }
    }
}

/// Where the memory of a setup's messages is.
#[derive(Clone, Debug, Serialize)]
struct Placement {
    #[serde(flatten)]
    setup: Setup,
    pages: usize,
    /// Pages on another node than their group's.
    elsewhere: usize,
}

/// Everything that a run of `bench-sync` finds out.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Rows printed, of barriers and of gathers.
    #[serde(skip)]
    printed: (usize, usize),
    version: &'static str,
    cpu: String,
    cores: usize,
    memory_nodes: usize,
    rounds: usize,
    barriers: Vec<BarrierRow>,
    gathers: Vec<GatherRow>,
    crossovers: Vec<Crossover>,
    placement: Vec<Placement>,
}

impl Report {
    pub(super) fn new(machine: &Machine, rounds: usize) -> Report {
        Report {
            printed: (0, 0),
            version: env!("CARGO_PKG_VERSION"),
            cpu: machine.model().unwrap_or("unknown CPU").to_owned(),
            cores: machine.usable_cores(),
            memory_nodes: machine.usable_nodes().count().max(1),
            rounds,
            barriers: Vec::new(),
            gathers: Vec::new(),
            crossovers: Vec::new(),
            placement: Vec::new(),
        }
    }

    pub(super) fn add_barrier(&mut self, row: BarrierRow) {
        self.barriers.push(row);
    }

    pub(super) fn add_gather(&mut self, row: GatherRow) {
        self.gathers.push(row);
    }

    /// The gathers of a setup are done; `placed` are its pages, in all and on wrong nodes.
    pub(super) fn end_gathers(
        &mut self,
        setup: &Setup,
        placed: Option<(usize, usize)>,
        out: &mut Output,
    ) -> Result<(), Error> {
        if let Some((pages, elsewhere)) = placed {
            self.placement.push(Placement { setup: setup.clone(), pages, elsewhere });
        }
        let first = self.gathers.iter().position(|row| row.setup == *setup).unwrap_or(0);
        self.crossovers.extend(Crossover::of(&self.gathers[first..]));
        self.print_new(out)
    }

    /// Prints what was added since the last time; what programs read is one piece and waits for the end.
    pub(super) fn print_new(&mut self, out: &mut Output) -> Result<(), Error> {
        let (barriers, gathers) = self.printed;
        if barriers == 0 {
            self.print_head(out)?;
        }
        self.barriers[barriers..].iter().try_for_each(|row| out.row(&row.cells()))?;
        if gathers == 0 && !self.gathers.is_empty() {
            writeln!(out, "\ngathers: one sum, the waits and products before it included\n")?;
        }
        self.gathers[gathers..].iter().try_for_each(|row| out.row(&row.cells()))?;
        self.printed = (self.barriers.len(), self.gathers.len());
        Ok(())
    }

    /// Prints what there is to say when all is measured.
    pub(super) fn finish(&self, out: &mut Output) -> Result<(), Error> {
        if out.data(self, &["/barriers", "/gathers"])? || self.gathers.is_empty() {
            return Ok(());
        }
        writeln!(out)?;
        self.crossovers.iter().try_for_each(|crossover| writeln!(out, "{crossover}"))?;
        let pages: usize = self.placement.iter().map(|p| p.pages).sum();
        let elsewhere: usize = self.placement.iter().map(|p| p.elsewhere).sum();
        if pages > 0 {
            writeln!(out, "pages on another node than asked for: {elsewhere} of {pages}")?;
        }
        Ok(())
    }

    fn print_head(&self, out: &mut Output) -> Result<(), Error> {
        let (cores, nodes) =
            (term::plural(self.cores, "core"), term::plural(self.memory_nodes, "memory node"));
        writeln!(out, "{}, {cores} on {nodes}", self.cpu)?;
        writeln!(
            out,
            "µs, median of {} ± half of what lies between the quartiles\n",
            term::plural(self.rounds, "round")
        )?;
        Ok(writeln!(out, "barriers: one wait\n")?)
    }
}

/// A number, or nothing where there is nothing to measure.
fn cell(summary: Option<&Summary>) -> String {
    summary.map_or("–".to_owned(), ToString::to_string)
}

impl Setup {
    /// That of a layout's threads.
    pub(crate) fn of(layout: &Layout) -> Setup {
        let cpus: BTreeSet<_> = layout.groups.iter().flat_map(|g| &g.cpus).collect();
        let nodes: BTreeSet<_> = layout.groups.iter().map(|g| g.node).collect();
        Setup {
            nodes: layout.groups.len(),
            threads: layout.threads(),
            cpus: cpus.len(),
            virtual_nodes: nodes.len() < layout.groups.len(),
        }
    }

    /// Threads, marked when they share CPUs.
    fn marked(&self) -> String {
        let mark = if self.cpus < self.threads { "*" } else { "" };
        format!("{}{mark}", self.threads)
    }
}

impl BarrierRow {
    fn cells(&self) -> [Cell; 7] {
        let BarrierRow { setup, local, global, flat, crossings } = self;
        let ratio = match (global, flat) {
            (Some(global), Some(flat)) => format!("{:.2}", flat.median / global.median),
            _ => "–".to_owned(),
        };
        [
            figure("nodes", 5, setup.nodes),
            figure("threads", 7, setup.marked()),
            figure("local", 11, cell(local.as_ref())),
            figure("global", 11, cell(global.as_ref())),
            figure("flat", 11, cell(flat.as_ref())),
            figure("flat/global", 11, ratio),
            figure("crossings", 9, crossings),
        ]
    }
}

impl GatherRow {
    fn cells(&self) -> Vec<Cell> {
        let mut row = vec![
            figure("nodes", 5, self.setup.nodes),
            figure("threads", 7, self.setup.marked()),
            figure("size", 8, term::size(self.bytes)),
        ];
        row.extend(METHODS.map(|(_, gather)| figure(gather, 11, cell(self.get(gather)))));
        row.push(words("best", 7, self.best().map_or("", |(gather, _)| gather)));
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETUP: Setup = Setup { nodes: 2, threads: 4, cpus: 4, virtual_nodes: false };

    /// A row in which the two take so long in every round, give or take a tenth.
    fn row(bytes: usize, pull: f64, scatter: f64) -> GatherRow {
        let times = [("pull", pull), ("scatter", scatter)];
        let around = |t: f64| Summary::new(vec![t * 0.9, t, t * 1.1]);
        GatherRow { setup: SETUP, bytes, times: times.map(|(g, t)| (g, around(t))).into() }
    }

    #[test]
    fn the_crossover_is_where_a_scatter_stays_better() {
        let text = |rows: &[GatherRow]| Crossover::of(rows).unwrap().to_string();
        let (small, large) = (row(1024, 1.0, 2.0), row(4096, 4.0, 3.0));
        assert_eq!(
            text(&[small.clone(), large.clone()]),
            "4 threads on 2 nodes: one-shot up to 1.00 KiB, scatter beyond"
        );
        assert!(text(std::slice::from_ref(&large)).ends_with("scatter at every size measured"));
        assert!(
            text(&[large.clone(), row(8192, 4.0, 4.1)]).contains("up to 8.00 KiB, the largest")
        );
        // Within the noise is not better.
        assert!(text(&[small, row(4096, 4.0, 3.9)]).contains("up to 4.00 KiB, the largest"));
        assert!(Crossover::of(&[]).is_none());
    }
}
