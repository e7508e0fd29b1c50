//! The report as text: a column for each node, a row for each figure, within 100 characters.

use super::experts::Experts;
use super::figures::{Figures, Memory, NodesReport, PageCounts, Waiting};
use super::rows::{Row, lay_out, percent};
use super::scheduled::Scheduled;
use super::shares::{NO_SHARE, no_shares};
use crate::term;
use crate::wrap::wrap;
use std::time::Duration;

/// Stands where there is no figure.
const NONE: &str = "-";

impl NodesReport {
    /// The lines to print.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = vec![self.title(), String::new()];
        lines.extend(self.table());
        lines.push(String::new());
        if let Some(tasks) = &self.tasks {
            lines.extend(tasks.table());
            lines.push(String::new());
        }
        let causes = self.causes.iter().map(ToString::to_string);
        let verdict = self.verdict.iter().map(ToString::to_string);
        let words = self.notes().into_iter().chain(causes).chain(verdict);
        lines.extend(words.flat_map(|text| wrap(&text)));
        lines
    }

    fn title(&self) -> String {
        let what = if self.phase == "decode" { "decoding" } else { "taking a prompt of" };
        let kind = if self.virtual_nodes { "virtual node" } else { "node" };
        let time = term::seconds(Duration::from_secs_f64(self.seconds));
        let tokens = term::plural(self.tokens as usize, "token");
        let mode = match self.nodes.len() {
            1 => String::new(),
            n => format!(", {} on {}", self.mode, term::plural(n, kind)),
        };
        format!("{what} {tokens} in {time}{mode}")
    }

    /// The rows that say something here, beside each other.
    fn table(&self) -> Vec<String> {
        let several = self.nodes.len() > 1;
        let columns = || self.nodes.iter().chain(several.then_some(&self.all));
        let mut rows: Vec<Row> = Vec::new();
        let mut row = |name, of: &dyn Fn(&Figures) -> String| {
            rows.push((name, columns().map(of).collect()));
        };
        let nothing = |_: &Figures| String::new();
        let or_none = |of: Option<String>| of.unwrap_or_else(|| NONE.to_owned());

        if self.virtual_nodes {
            row("on memory node", &|f| or_none(f.node.map(|id| id.to_string())));
        }
        row("threads", &|f| f.threads.to_string());
        row("weights", &|f| self.memory(f, |m| m.weights_bytes));
        row("KV", &|f| self.memory(f, |m| m.kv_bytes));
        row("activations", &|f| self.memory(f, |m| m.activation_bytes));
        if self.pages_unknown.is_none() {
            let pages = |f: &Figures, of: fn(&PageCounts) -> String| {
                or_none(f.memory.pages.as_ref().map(of))
            };
            row("pages in place", &|f| pages(f, |p| p.right.to_string()));
            row("pages elsewhere", &|f| pages(f, |p| p.wrong.to_string()));
            row("on huge pages", &|f| pages(f, |p| percent(p.huge_share)));
        }

        row("", &nothing);
        row("bytes per token", &nothing);
        row("  weights", &|f| bytes(f.traffic.weights_bytes_per_token));
        row("  KV", &|f| bytes(f.traffic.kv_bytes_per_token));
        if several && self.all.traffic.remote_bytes_per_token.is_some() {
            row("  remote", &|f| or_none(f.traffic.remote_bytes_per_token.map(bytes)));
            row("  remote share", &|f| or_none(f.traffic.remote_share.map(percent)));
        } else if several {
            row("  exchanged", &|f| bytes(f.traffic.exchanged_bytes_per_token));
        }
        row("reading, GB/s", &|f| term::rate(f.traffic.read_bytes_per_second / 1e9));
        row("limit, GB/s", &|f| term::rate(f.traffic.limit_bytes_per_second / 1e9));
        row("of limit", &|f| f.traffic.of_limit.map_or_else(|| NO_SHARE.to_owned(), percent));

        row("", &nothing);
        row("time per token", &nothing);
        row("  work, fastest", &|f| time(f.time.fastest.us_per_token));
        row("  work, slowest", &|f| time(f.time.slowest.us_per_token));
        let mut waits = |name, of: fn(&Figures) -> Waiting| {
            if columns().any(|f| of(f).per_step > 0.0) {
                row(name, &|f| time(of(f).us_per_token));
                row("    longest", &|f| time(of(f).most_us_per_token));
                row("    per step", &|f| count(of(f)));
            }
        };
        waits(if several { "  local waits" } else { "  waits" }, |f| f.time.local);
        waits("  global waits", |f| f.time.global);
        row("  start and end", &|f| time(f.time.step_ends_us_per_token));
        row("working", &|f| percent(f.time.working));
        row("waiting", &|f| percent(f.time.waiting));
        row("between steps", &|f| percent(f.time.between_steps));

        let names = (0..self.nodes.len()).map(|at| self.name(at));
        let heads = names.chain(several.then(|| "all".to_owned())).collect();
        rows.insert(0, ("", heads));
        lay_out(&rows)
    }

    /// A node as people know it: by its own number, unless it is virtual.
    pub(super) fn name(&self, at: usize) -> String {
        match self.nodes[at].node {
            Some(id) if !self.virtual_nodes => format!("node {id}"),
            _ => format!("node {at}"),
        }
    }

    /// Bytes; what nodes share and cannot be told apart has no figure of a node.
    fn memory(&self, node: &Figures, of: fn(&Memory) -> u64) -> String {
        let told_apart = self.nodes.iter().any(|n| of(&n.memory) > 0);
        match of(&node.memory) {
            0 if !told_apart && of(&self.all.memory) > 0 => "shared".to_owned(),
            bytes => term::size(bytes as usize),
        }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(why) = &self.pages_unknown {
            notes.push(format!("where pages are is not known: {why}"));
        }
        if self.cpus_shared {
            let text =
                "threads share CPUs: their work, waits and limits have others' turns in them";
            notes.push(text.to_owned());
        }
        if self.shared_activations {
            let text =
                "remote bytes are of weights and KV: activations that nodes share are not counted";
            notes.push(text.to_owned());
        }
        let nodes = self.nodes.iter().enumerate();
        let reasons: Vec<_> = nodes
            .map(|(at, figures)| (figures.traffic.no_share, self.name(at)))
            .chain([(self.all.traffic.no_share, "all".to_owned())])
            .collect();
        let reasons = reasons.iter().filter_map(|(why, name)| Some(((*why)?, name.as_str())));
        notes.extend(no_shares(reasons));
        match self.threads.iter().enumerate().find(|(_, t)| !t.as_compiled()) {
            None => notes.push("every thread has waited as often as compiled".to_owned()),
            Some((at, t)) => notes.push(format!(
                "waits are not as compiled: thread {at} has waited {} times locally and {} globally, \
                 its program says {} and {}",
                t.local_waits, t.global_waits, t.compiled_local_waits, t.compiled_global_waits
            )),
        }
        notes.extend(self.scheduled.iter().map(Scheduled::line));
        notes.extend(self.experts.iter().map(Experts::line));
        notes.extend(self.tasks.iter().flat_map(|tasks| tasks.warnings.clone()));
        notes.extend(self.counted.lines(self.tokens, self.seconds));
        notes
    }
}

fn bytes(n: f64) -> String {
    term::size(n.round() as usize)
}

/// Microseconds with a unit that suits.
pub(super) fn time(us: f64) -> String {
    match us {
        us if us < 999.5 => format!("{} µs", term::rate(us)),
        us if us < 999.5e3 => format!("{} ms", term::rate(us / 1e3)),
        us => format!("{} s", term::rate(us / 1e6)),
    }
}

/// Waits in a step; not a whole number if steps differ.
fn count(waits: Waiting) -> String {
    match waits.per_step {
        n if n.fract() == 0.0 => format!("{n:.0}"),
        n => format!("{n:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short_and_have_units() {
        assert_eq!([0.0, 0.0001, 0.0512, 0.995].map(percent), ["0 %", "<0.1 %", "5.1 %", "100 %"]);
        assert_eq!(
            [1.234, 999.4, 1e3, 2.5e6].map(time),
            ["1.23 µs", "999.4 µs", "1.00 ms", "2.50 s"]
        );
        let of = |per_step| count(Waiting { per_step, ..Waiting::default() });
        assert_eq!([of(87.0), of(12.25)], ["87", "12.2"]);
    }
}
