//! The table: what each operator took, moved and multiplied, and what was waited for after it.
//!
//! Time is a thread's, as the mean over the threads that take part in a step, per step. Bytes and products are those of all threads
//! together, so a rate is that of the machine while it was at the operator; its share of the limit is
//! the nearer of bytes over read bandwidth and products over multiply peak, and there is none where it beats that. All
//! operators' times and waits add up to the time in steps.

use super::classes::Classes;
use crate::bench::limits::Limits;
use crate::output::{Cell, Format, Output, figure, words};
use crate::report::{no_shares, of_limit};
use crate::term;
use crate::wrap::wrap_at;
use arclight_engine::Profile;
use graph::profile::{Demand, What};
use serde_json::Value;
use why::NoShare;

/// Operators of a phase.
pub(crate) struct Table {
    phase: String,
    threads: usize,
    steps: usize,
    tokens: usize,
    /// Nanoseconds of all steps.
    in_steps: u64,
    /// The same, times the threads that took part in each.
    of_threads: u64,
    /// Nanoseconds from the first step of each stretch to its last.
    total: u64,
    operators: Vec<Operator>,
    /// Nanoseconds that each thread waited at the beginning of steps and for other groups.
    meeting: Vec<u64>,
    dropped: u64,
    classes: Classes,
}

/// One operator, over all steps and layers.
struct Operator {
    name: String,
    calls: u64,
    /// Nanoseconds in it and in waits after it: `[thread]`.
    time: Vec<u64>,
    waits: Vec<u64>,
    demand: Demand,
}

/// A line of figures.
struct Row<'a> {
    name: &'a str,
    calls: Option<u64>,
    time: u64,
    demand: Demand,
    waits: Vec<u64>,
}

impl Table {
    pub(crate) fn new(phase: &str, threads: usize) -> Table {
        Table {
            phase: phase.to_owned(),
            threads,
            steps: 0,
            tokens: 0,
            in_steps: 0,
            of_threads: 0,
            total: 0,
            operators: Vec::new(),
            meeting: vec![0; threads],
            dropped: 0,
            classes: Classes::default(),
        }
    }

    pub(crate) fn phase(&self) -> &str {
        &self.phase
    }

    /// Shares of the time in steps by class.
    pub(crate) fn classes(&self) -> Value {
        self.classes.value()
    }

    /// Adds a stretch of steps.
    pub(crate) fn add(&mut self, profile: &Profile) {
        self.classes.add(profile);
        let complete = profile.complete();
        let steps = || profile.steps().take(complete);
        self.steps += complete;
        self.tokens += steps().map(|step| step.tokens).sum::<usize>();
        self.in_steps += steps().map(|step| step.end - step.start).sum::<u64>();
        if let Some((first, last)) = steps().next().zip(steps().last()) {
            self.total += last.end - first.start;
        }
        self.dropped += profile.dropped();
        for thread in 0..self.threads {
            let own = steps().filter(|step| profile.takes_part(thread, step));
            self.of_threads += own.map(|step| step.end - step.start).sum::<u64>();
            for event in profile.events(thread).take_while(|e| e.step < complete) {
                let took = event.end - event.start;
                match event.what {
                    What::Operator { name, demand, .. } => {
                        let operator = self.operator(name);
                        operator.calls += u64::from(thread == 0);
                        operator.time[thread] += took;
                        operator.demand += demand;
                    }
                    What::Wait { after: Some(name), .. } => {
                        self.operator(name).waits[thread] += took;
                    }
                    What::Wait { after: None, .. } => self.meeting[thread] += took,
                }
            }
        }
    }

    fn operator(&mut self, name: &str) -> &mut Operator {
        let at = self.operators.iter().position(|o| o.name == name).unwrap_or_else(|| {
            let none = vec![0; self.threads];
            self.operators.push(Operator {
                name: name.to_owned(),
                calls: 0,
                time: none.clone(),
                waits: none,
                demand: Demand::default(),
            });
            self.operators.len() - 1
        });
        &mut self.operators[at]
    }

    /// The lines to print: what takes longest first, within 80 characters.
    pub(crate) fn lines(&self, limits: &Limits) -> Vec<String> {
        let Table { phase, threads, steps, .. } = self;
        if self.operators.is_empty() {
            return vec![format!("{phase}: nothing was recorded")];
        }
        let unit = Unit::of(self.in_steps / *steps as u64);
        let mut lines = vec![
            format!(
                "{phase}: {} of {} {}, {} each, on {}",
                term::plural(*steps, "step"),
                unit.show(self.in_steps as f64 / *steps as f64),
                unit.name,
                term::plural((self.tokens as f64 / *steps as f64).round() as usize, "token"),
                term::plural(*threads, "thread"),
            ),
            String::new(),
        ];
        let mut rows: Vec<Row<'_>> = self.operators.iter().map(Operator::row).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.time + row.waits.iter().sum::<u64>()));
        let all = self.all();
        rows.push(Row {
            name: "(step begins)",
            calls: None,
            time: 0,
            demand: Demand::default(),
            waits: self.meeting.clone(),
        });
        rows.push(all);
        let shares: Vec<_> = rows.iter().map(|row| self.share(row, limits)).collect();
        let cells = rows.iter().zip(&shares).map(|(row, share)| self.cells(row, *share, &unit));
        let cells: Vec<_> = cells.collect();
        let mut text = Vec::new();
        Output::to(&mut text, Format::Text)
            .narrow()
            .table(cells)
            .expect("memory can be written to");
        lines.extend(String::from_utf8_lossy(&text).lines().map(str::to_owned));
        lines.push(String::new());
        lines.extend(self.classes.table());
        lines.push(String::new());
        lines.extend(self.notes(limits));
        let reasons =
            rows.iter().zip(shares).filter_map(|(row, share)| Some((share?.err()?, row.name)));
        lines.extend(no_shares(reasons).iter().flat_map(|text| wrap_at(text, 80)));
        lines
    }

    /// A row's share of the limit; `None` if it neither reads nor multiplies.
    fn share(&self, row: &Row<'_>, limits: &Limits) -> Option<Result<f64, NoShare>> {
        let step_bytes = self.all().demand.bytes / self.steps as u64;
        let works = row.demand.bytes + row.demand.all_macs() > 0;
        works.then(|| limits.share(row.demand, self.nanos(row) / 1e9, step_bytes))
    }

    /// What threads did at the same time took the mean of their times.
    fn nanos(&self, row: &Row<'_>) -> f64 {
        row.time as f64 * self.in_steps as f64 / self.of_threads as f64
    }

    /// The sums of all operators and waits.
    fn all(&self) -> Row<'_> {
        let mut all = Row {
            name: "all",
            calls: None,
            time: 0,
            demand: Demand::default(),
            waits: self.meeting.clone(),
        };
        let mut calls = 0;
        for operator in &self.operators {
            calls += operator.calls;
            all.time += operator.time.iter().sum::<u64>();
            all.demand += operator.demand;
            for (to, wait) in all.waits.iter_mut().zip(&operator.waits) {
                *to += wait;
            }
        }
        all.calls = Some(calls);
        all
    }

    fn cells(
        &self,
        row: &Row<'_>,
        share_of_limit: Option<Result<f64, NoShare>>,
        unit: &Unit,
    ) -> [Cell; 9] {
        let steps = self.steps as f64;
        let threads = self.of_threads as f64 / self.in_steps as f64;
        let or_none = |some: bool, text: String| if some { text } else { "-".to_owned() };
        let per_step = |nanos: f64| unit.show(nanos / steps);
        let nanos = self.nanos(row);
        let (bytes, macs) = (row.demand.bytes, row.demand.all_macs());
        let rate = |amount: u64| term::rate(amount as f64 / nanos);
        let of_limit = share_of_limit.map_or_else(|| "-".to_owned(), |s| of_limit(s.ok()));
        let wait = row.waits.iter().sum::<u64>() as f64 / threads;
        let longest = row.waits.iter().max().copied().unwrap_or(0) as f64;
        let calls = row.calls.map_or(String::new(), |n| format!("{:.0}", n as f64 / steps));
        let share = format!("{:.1} %", 100.0 * nanos / self.in_steps as f64);
        [
            words("operator", 18, row.name),
            figure("n", 4, calls),
            figure(format!("{}/step", unit.name), 8, or_none(row.time > 0, per_step(nanos))),
            figure("share", 7, or_none(row.time > 0, share)),
            figure("GB/s", 5, or_none(bytes > 0, rate(bytes))),
            figure("GMAC/s", 6, or_none(macs > 0, rate(macs))),
            figure("of limit", 8, of_limit),
            figure("wait", 7, or_none(longest > 0.0, per_step(wait))),
            figure("longest", 7, or_none(longest > 0.0, per_step(longest))),
        ]
    }

    fn notes(&self, limits: &Limits) -> Vec<String> {
        let done = self.all().demand.macs;
        let mut notes = vec![format!("limits: {}", limits.words(|product| done[product] > 0))];
        let between = self.total - self.in_steps;
        if between > 0 {
            let share = 100.0 * between as f64 / self.total as f64;
            notes.push(format!("between steps: {share:.1} % of the time from first to last"));
        }
        if self.dropped > 0 {
            notes.push(format!(
                "{} events did not fit into the threads' logs: the last steps are missing here",
                self.dropped
            ));
        }
        notes
    }
}

impl Operator {
    fn row(&self) -> Row<'_> {
        Row {
            name: &self.name,
            calls: Some(self.calls),
            time: self.time.iter().sum(),
            demand: self.demand,
            waits: self.waits.clone(),
        }
    }
}

/// The unit in which a table's times have sensible digits.
struct Unit {
    name: &'static str,
    nanos: f64,
    decimals: usize,
}

impl Unit {
    fn of(step: u64) -> Unit {
        match step {
            0..1_000_000 => Unit { name: "µs", nanos: 1e3, decimals: 2 },
            1_000_000..100_000_000 => Unit { name: "ms", nanos: 1e6, decimals: 3 },
            _ => Unit { name: "ms", nanos: 1e6, decimals: 2 },
        }
    }

    fn show(&self, nanos: f64) -> String {
        format!("{:.*}", self.decimals, nanos / self.nanos)
    }
}
