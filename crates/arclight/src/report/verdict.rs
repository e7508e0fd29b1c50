//! What bounds the work, in plain words: no more than the figures support.

use super::figures::{Figures, NodesReport};
use super::table::{percent, time};
use crate::term;
use arclight_engine::Mode;

/// From this share of its limit on, while threads work, a memory is what counts.
const NEAR_LIMIT: f64 = 0.7;
/// Below this share, it is not.
const FAR_FROM_LIMIT: f64 = 0.5;
/// From this share of the time on, waiting is worth a sentence.
const MUCH_WAITING: f64 = 0.2;
/// From this share of the time on, so is what happens between steps.
const MUCH_BETWEEN: f64 = 0.25;
/// From this share of the bytes on, so is that they come from other nodes.
const MUCH_REMOTE: f64 = 0.1;
/// From this share of the time on, threads do little else than work.
const MUCH_WORK: f64 = 0.8;

/// One or two sentences.
pub(super) fn of(report: &NodesReport, mode: Mode) -> Vec<String> {
    let Figures { time: all, traffic, .. } = &report.all;
    let mut words = Vec::new();
    let streamed = traffic.weights_bytes_per_token + traffic.kv_bytes_per_token;
    let step = streamed * report.tokens as f64 / report.steps as f64;
    let cached = step < report.cache_bytes as f64;
    // Everybody waits for the slowest thread: its node's memory is what could be the bound.
    let at = report.threads[all.slowest.thread].node;
    let of_limit = percent(report.nodes[at].traffic.of_limit);
    // Virtual nodes are not far from each other.
    let apart = !report.virtual_nodes && report.nodes.len() > 1;
    let remote = traffic.remote_share.filter(|share| apart && *share >= MUCH_REMOTE);
    // The limit is that of a node's own memory: it says nothing about what comes from others.
    if !cached && remote.is_none() && near_limit(report, at) >= NEAR_LIMIT {
        let near = percent(near_limit(report, at));
        words.push(format!(
            "Memory bounds the work: {} is read at {of_limit} of its limit, at {near} of it while \
             its threads work.",
            report.name(at),
        ));
    }
    if all.waiting >= MUCH_WAITING {
        words.push(waiting(report, mode));
    }
    if all.between_steps >= MUCH_BETWEEN {
        words.push(format!(
            "{} of the time passes between steps, when no thread has work.",
            percent(all.between_steps)
        ));
    }
    if let Some(share) = remote {
        words.push(format!("{} of the bytes are on other nodes.", percent(share)));
    }
    if words.is_empty() {
        let memory = match cached {
            true => format!(
                "what a step reads ({}) fits into the caches ({})",
                term::size(step as usize),
                term::size(report.cache_bytes as usize)
            ),
            false => format!("{} is read at {of_limit} of its limit", report.name(at)),
        };
        let computes =
            all.working >= MUCH_WORK && (cached || near_limit(report, at) < FAR_FROM_LIMIT);
        let bound = if computes { "Computing bounds it" } else { "Nothing stands out" };
        let (working, waiting) = (percent(all.working), percent(all.waiting));
        words.push(format!(
            "{bound}: threads work {working} of the time and wait {waiting}, and {memory}."
        ));
    }
    words.truncate(2);
    words
}

/// The share of its limit at which a node is read while its threads work. Threads that share CPUs
/// seem to work while others do: then of all the time.
fn near_limit(report: &NodesReport, at: usize) -> f64 {
    let Figures { traffic, time, .. } = &report.nodes[at];
    let working = if report.cpus_shared { 1.0 } else { time.working.max(0.01) };
    // The limit is a measurement, too: what is a little above it is all of it.
    (traffic.of_limit / working).min(1.0)
}

/// Why threads wait: for one of them, or for the waits themselves.
fn waiting(report: &NodesReport, mode: Mode) -> String {
    let Figures { time: all, threads, .. } = &report.all;
    let share = percent(all.waiting);
    let us_per_token = report.seconds * 1e6 / report.tokens as f64;
    // What the slowest works beyond the mean, the others wait for, on average.
    let imbalance = all.slowest.us_per_token / us_per_token - all.working;
    if *threads > 1 && imbalance >= all.waiting / 2.0 {
        let slow = report.threads[all.slowest.thread];
        return format!(
            "Waiting takes {share} of the time, most of it for thread {} (CPU {}, {}): it works {} \
             a token, the mean is {}.",
            all.slowest.thread,
            slow.cpu,
            report.name(slow.node),
            time(all.slowest.us_per_token),
            time(all.working * us_per_token),
        );
    }
    if mode == Mode::Pipeline && report.nodes.len() > 1 {
        return format!(
            "Waiting takes {share} of the time: the nodes of a pipeline take turns at a sequence."
        );
    }
    let waits = all.local.per_step + all.global.per_step;
    let each = (all.local.us_per_token + all.global.us_per_token) * report.tokens as f64
        / (waits * report.steps as f64).max(1.0);
    format!(
        "Waiting takes {share} of the time, in {waits:.0} waits a step of {} on average.",
        time(each)
    )
}
