//! Results of `bench`.

use super::limits::{Floor, Limits};
use super::measure::{Kind, Test};
use super::setup::{Replica, Setup};
use crate::error::Error;
use crate::model_info::ModelInfo;
use crate::output::{Output, figure, words};
use crate::report::phases::{self, PhaseFigure};
use crate::report::{Cause, NodeRead, NodesReport, no_shares, of_limit};
use crate::term;
use crate::wrap::wrap;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use topology::Machine;
use why::NoShare;

/// One test in one setup.
#[derive(Clone, Debug, Serialize)]
struct Row {
    test: String,
    kind: &'static str,
    tokens: usize,
    depth: usize,
    batch: usize,
    #[serde(flatten)]
    setup: Setup,
    /// Tokens per second: mean over repetitions, and their standard deviation.
    mean: f64,
    sd: f64,
    /// What the machine could do at most, and what share of it was reached.
    limit: f64,
    of_limit: Option<f64>,
    /// Why there is no share.
    no_share: Option<NoShare>,
    bound_by: &'static str,
    read_bytes_per_second: f64,
    /// The same in the slowest pass of its probe.
    slowest_read_bytes_per_second: f64,
    /// By the names of the products that are done differently.
    macs_per_second: BTreeMap<&'static str, f64>,
    #[serde(skip)]
    limits: Limits,
    /// Tokens per second of every repetition.
    samples: Vec<f64>,
    /// What took speed, whatever the model did.
    causes: Vec<Cause>,
    /// What the processors consumed for a token, all programs together, where they have meters that may be read.
    joules_per_token: Option<f64>,
    /// What each node was read.
    reads: Vec<NodeRead>,
    /// Where memory is and what each node did, over all repetitions.
    #[serde(skip_serializing_if = "Option::is_none")]
    report: Option<NodesReport>,
}

/// What was found beside a test's times.
#[derive(Default)]
pub(crate) struct Found<'a> {
    pub(crate) causes: &'a [Cause],
    /// Of all repetitions.
    pub(crate) joules: Option<f64>,
    pub(crate) reads: Vec<NodeRead>,
    pub(crate) report: Option<NodesReport>,
}

/// Everything that a run of `bench` finds out.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    #[serde(skip)]
    printed: usize,
    version: &'static str,
    cpu: String,
    model: ModelInfo,
    repetitions: usize,
    results: Vec<Row>,
    /// By the machine's counters, where they are wanted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    counters: Vec<PhaseFigure>,
}

impl Report {
    pub(crate) fn new(model: ModelInfo, machine: &Machine, repetitions: usize) -> Report {
        Report {
            printed: 0,
            version: env!("CARGO_PKG_VERSION"),
            cpu: machine.model().unwrap_or("unknown CPU").to_owned(),
            model,
            repetitions,
            results: Vec::new(),
            counters: Vec::new(),
        }
    }

    /// Notes a test's repetitions, in seconds each.
    pub(crate) fn add(
        &mut self,
        setup: &Setup,
        test: &Test,
        seconds: &[f64],
        floor: Floor,
        limits: Limits,
        Found { causes, joules, reads, report }: Found<'_>,
    ) {
        let samples: Vec<f64> = seconds.iter().map(|s| test.total() as f64 / s).collect();
        let (mean, sd) = mean_and_sd(&samples);
        let limit = test.total() as f64 / floor.seconds;
        // A limit that one of the repetitions beats is none.
        let best = seconds.iter().copied().fold(f64::INFINITY, f64::min);
        let share = floor.share(best, &limits).map(|_| mean / limit);
        let no_share = share.err();
        self.results.push(Row {
            test: test.to_string(),
            kind: match test.kind {
                Kind::Prompt => "prompt",
                Kind::Decode => "decode",
                Kind::Combined => "combined",
            },
            tokens: test.tokens(),
            depth: test.depth,
            batch: test.batch,
            setup: setup.clone(),
            mean,
            sd,
            limit,
            of_limit: share.ok(),
            no_share,
            bound_by: if no_share == Some(NoShare::Cached) { "caches" } else { floor.bound() },
            read_bytes_per_second: limits.read,
            slowest_read_bytes_per_second: limits.slowest_read,
            macs_per_second: limits.measured().map(|(p, rate)| (p.name(), rate)).collect(),
            limits,
            samples,
            causes: causes.to_vec(),
            joules_per_token: joules.map(|all| all / (test.total() * seconds.len()) as f64),
            reads,
            report,
        });
    }

    /// Notes what counters tell of a test.
    pub(crate) fn count(&mut self, figures: Vec<PhaseFigure>) {
        self.counters.extend(figures);
    }

    /// Prints what was added since the last time; what programs read is one piece and waits for the end.
    pub(crate) fn print_new(&mut self, out: &mut Output) -> Result<(), Error> {
        if self.printed == 0 {
            self.print_head(out)?;
        }
        self.results[self.printed..].iter().try_for_each(|row| row.print(out))?;
        self.printed = self.results.len();
        Ok(())
    }

    /// Prints what there is to say when all tests are done.
    pub(crate) fn finish(&self, out: &mut Output) -> Result<(), Error> {
        let tables: &[&str] = match self.counters.is_empty() {
            true => &["/results"],
            false => &["/results", "/counters"],
        };
        if out.data(self, tables)? {
            return Ok(());
        }
        writeln!(out)?;
        self.print_reads(out)?;
        let mut last = None;
        let whole = |row: &&Row| !matches!(row.setup.replica, Some(Replica::One(_)));
        for row in self.results.iter().filter(whole).rev() {
            // The last row of a setup has its best figures.
            let setup = (row.setup.nodes, row.setup.threads);
            if last.replace(setup) != Some(setup) {
                row.print_limits(out)?;
            }
        }
        let reasons = self.results.iter().filter_map(|row| Some((row.no_share?, &*row.test)));
        for line in no_shares(reasons).iter().flat_map(|text| wrap(text)) {
            writeln!(out, "{line}")?;
        }
        self.print_causes(out)?;
        self.print_reports(out)?;
        if !self.counters.is_empty() {
            writeln!(out)?;
            phases::print(out, &self.counters)?;
        }
        Ok(())
    }

    /// What each node was read in decoding, which is bound by it.
    fn print_reads(&self, out: &mut Output) -> Result<(), Error> {
        let decoding = |row: &&Row| row.kind == "decode" && !row.reads.is_empty();
        let mut told = None;
        for row in self.results.iter().filter(decoding) {
            let counted = row.reads[0].counted;
            if told.replace(counted) != Some(counted) {
                writeln!(
                    out,
                    "each node read, GB/s, {}:",
                    match counted {
                        true => "counted by its memory's controllers, for all programs together",
                        false => "computed: what steps read of it, in their time",
                    }
                )?;
            }
            let rates: Vec<String> =
                row.reads.iter().map(|r| format!("{:.1}", r.bytes_per_second / 1e9)).collect();
            let threads = term::plural(row.setup.threads, "thread");
            writeln!(out, "  {}, {threads}: {}", row.test, rates.join("  "))?;
        }
        Ok(())
    }

    /// What took speed: once for each sentence, and where a report says it, there.
    fn print_causes(&self, out: &mut Output) -> Result<(), Error> {
        let mut told: Vec<&Cause> = Vec::new();
        for cause in self.results.iter().filter(|row| row.report.is_none()).flat_map(|r| &r.causes)
        {
            if !told.contains(&cause) {
                wrap(&cause.to_string()).iter().try_for_each(|line| writeln!(out, "{line}"))?;
                told.push(cause);
            }
        }
        Ok(())
    }

    /// Of decoding, or of prompts where nothing else was tested: what is said of them is that the
    /// kernels compute.
    fn print_reports(&self, out: &mut Output) -> Result<(), Error> {
        let decoding = self.results.iter().any(|row| row.kind == "decode");
        for row in self.results.iter().filter(|row| !decoding || row.kind == "decode") {
            let Some(report) = &row.report else { continue };
            let threads = term::plural(row.setup.threads, "thread");
            writeln!(out, "\n{}, {threads}:", row.test)?;
            out.block(report.lines().join("\n"))?;
        }
        Ok(())
    }

    fn print_head(&self, out: &mut Output) -> Result<(), Error> {
        let ModelInfo { name, ty, parameters, bytes, .. } = &self.model;
        let (parameters, bytes) = (term::count(*parameters), term::size(*bytes));
        writeln!(out, "{name} {ty}, {parameters} parameters, {bytes}")?;
        let isa = self.results.first().map_or("", |r| r.setup.isa);
        let (cpu, repetitions) = (&self.cpu, self.repetitions);
        Ok(writeln!(out, "{cpu}, {isa} kernels, {repetitions} repetitions\n")?)
    }
}

impl Row {
    fn print(&self, out: &mut Output) -> Result<(), Error> {
        let Setup { replica, nodes, threads, .. } = self.setup;
        let mut row: Vec<_> = replica.map(|r| figure("replica", 7, r)).into_iter().collect();
        row.extend([
            figure("nodes", 5, nodes),
            figure("threads", 7, threads),
            words("test", 18, &self.test),
            figure("tokens/s", 16, format_args!("{:.2} ± {:.2}", self.mean, self.sd)),
            figure("limit", 8, term::rate(self.limit)),
            figure("of limit", 8, of_limit(self.of_limit)),
            words("bound by", 8, self.bound_by),
        ]);
        row.extend(self.joules_per_token.map(|j| figure("J/token", 7, format_args!("{j:.2}"))));
        Ok(out.row(&row)?)
    }

    fn print_limits(&self, out: &mut Output) -> Result<(), Error> {
        let Setup { nodes, threads, .. } = self.setup;
        writeln!(
            out,
            "limits in this run, {} on {}: {}",
            term::plural(threads, "thread"),
            term::plural(nodes, "node"),
            self.limits.words(|_| true)
        )?;
        if let Some(moved) = self.limits.moved() {
            wrap(&moved).iter().try_for_each(|line| writeln!(out, "{line}"))?;
        }
        Ok(())
    }
}

/// Mean and standard deviation (of the sample; 0 for a single value).
fn mean_and_sd(samples: &[f64]) -> (f64, f64) {
    let n = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / n;
    let squares: f64 = samples.iter().map(|s| (s - mean).powi(2)).sum();
    (mean, if samples.len() > 1 { (squares / (n - 1.0)).sqrt() } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviation_is_that_of_a_sample() {
        assert_eq!(mean_and_sd(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).0, 5.0);
        let (mean, sd) = mean_and_sd(&[1.0, 3.0]);
        assert!((mean - 2.0).abs() < 1e-12 && (sd - 2f64.sqrt()).abs() < 1e-12);
        assert_eq!(mean_and_sd(&[3.0]), (3.0, 0.0));
    }
}
