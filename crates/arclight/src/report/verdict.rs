//! The causes that limit the speed of the reported work: the figures of a report as counts for the crate `why`.

use super::figures::{Figures, NodesReport, Traffic};
use arclight_engine::{CpuId, Mode};
use why::Cause;
use why::threads::{GroupWork, ThreadWork, Work, between};

/// Number of causes in a report at most.
const MOST: usize = 4;

/// The causes, the most important first.
pub(super) fn of(report: &NodesReport, mode: Mode) -> Vec<Cause> {
    let work = work(report, mode);
    let Figures { time, .. } = &report.all;
    let step = report.seconds / report.steps as f64;
    let gap = time.between_steps * step;
    let mut all = work.causes();
    all.extend(between(time.between_steps, step - gap, gap));
    if all.is_empty() {
        let slowest = &report.nodes[report.threads[time.slowest.thread].node];
        let Traffic { of_limit, no_share, .. } = slowest.traffic;
        let share = no_share.map_or(Ok(of_limit.unwrap_or_default()), Err);
        all.push(work.nothing(time.working, time.waiting, share));
    }
    all.truncate(MOST);
    all
}

/// The figures of a report as counts. Shares refer to all the time, including that between steps.
fn work(report: &NodesReport, mode: Mode) -> Work {
    let Figures { time, traffic, .. } = &report.all;
    let streamed = traffic.weights_bytes_per_token + traffic.kv_bytes_per_token;
    let us = report.seconds * 1e6;
    // Threads that did not take part in some of the steps cannot be compared with the others.
    let alike = report.threads.iter().all(|thread| thread.jobs == report.threads[0].jobs);
    let group = |(at, figures): (usize, &Figures)| {
        let threads = report.threads.iter().filter(|thread| thread.node == at);
        let thread = |thread: &super::figures::Thread| ThreadWork {
            cpu: CpuId(thread.cpu),
            working: if alike { thread.busy_us / us } else { time.working },
            held: if alike { thread.last_us / us } else { 0.0 },
            weights: thread.weights_bytes,
        };
        let pages = figures.memory.pages;
        GroupWork {
            // The number that the kernel uses.
            node: figures.node.filter(|_| !report.virtual_nodes).unwrap_or(at as u32),
            read: figures.traffic.read_bytes_per_second,
            limit: Some(figures.traffic.limit_bytes_per_second).filter(|limit| *limit > 0.0),
            remote: figures.traffic.remote_share,
            misplaced: pages.map(|pages| (pages.wrong as u64, (pages.wrong + pages.right) as u64)),
            waiting: figures.time.waiting,
            waiting_machine: figures.time.global.us_per_token * report.tokens as f64 / us,
            threads: threads.map(thread).collect(),
        }
    };
    let waits = time.local.per_step + time.global.per_step;
    let waited = (time.local.us_per_token + time.global.us_per_token) * report.tokens as f64 / 1e6;
    Work {
        groups: report.nodes.iter().enumerate().map(group).collect(),
        apart: !report.virtual_nodes,
        pipeline: mode == Mode::Pipeline,
        cpus_shared: report.cpus_shared,
        step_bytes: (streamed * report.tokens as f64 / report.steps as f64) as u64,
        cache_bytes: report.cache_bytes,
        waits: Some((waits, waited / (waits * report.steps as f64).max(1.0))),
        of_peak: report.of_peak,
    }
}
