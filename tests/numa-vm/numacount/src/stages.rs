//! The counts of a processor, cut at the waits of the thread on it.
//!
//! A thread announces that it comes to a wait and that it has left it. Between the two nothing counts: how long a
//! thread spins depends on the machine. Every thread of a step makes the same sequence of waits, so the stages of all
//! processors that have the same number are between the same two waits.
//!
//! Limits: each thread must stay on its processor.

use crate::cache::LINE;
use crate::tally::{Counts, FILLS, NODES};
use std::fmt::Write as _;

/// How a stage ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The thread waits for those of its group.
    Local,
    /// The thread waits for all.
    Global,
    /// Counting ends.
    Stop,
}

/// Counters of a processor at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Lines fetched by node.
    pub(crate) lines: [u64; NODES],
    /// Instructions, int8 products and f32 products.
    pub(crate) work: [u64; 3],
}

impl Moment {
    pub(crate) fn new(counts: &Counts, work: [u64; 3]) -> Moment {
        Moment { lines: std::array::from_fn(|node| counts[node][FILLS]), work }
    }

    fn since(&self, before: &Moment) -> Moment {
        let lines = std::array::from_fn(|node| self.lines[node] - before.lines[node]);
        Moment { lines, work: std::array::from_fn(|i| self.work[i] - before.work[i]) }
    }
}

/// The stages of one processor since the count began.
#[derive(Debug, Default)]
pub(crate) struct Stages {
    done: Vec<(Moment, End)>,
    /// Counters at the beginning of the present stage; `None` while the thread waits.
    began: Option<Moment>,
}

impl Stages {
    /// The count begins.
    pub(crate) fn start(&mut self, now: Moment) {
        *self = Stages { done: vec![], began: Some(now) };
    }

    /// The thread comes to a wait, or counting ends.
    pub(crate) fn end(&mut self, now: Moment, end: End) {
        if let Some(began) = self.began.take() {
            self.done.push((now.since(&began), end));
        }
    }

    /// The thread has left its wait.
    pub(crate) fn resume(&mut self, now: Moment) {
        self.began = Some(now);
    }

    /// A line for each stage: what was done in it and the bytes of lines by node.
    pub(crate) fn report(&self, cpu: usize) -> String {
        let mut text = String::new();
        for (number, (stage, end)) in self.done.iter().enumerate() {
            let [instructions, int8, f32] = stage.work;
            let end = match end {
                End::Local => "local",
                End::Global => "global",
                End::Stop => "stop",
            };
            let _ = write!(
                text,
                "numacount stage {number} cpu {cpu} end {end} instructions {instructions} int8 {int8} f32 {f32}"
            );
            for (node, lines) in stage.lines.iter().enumerate().filter(|(_, lines)| **lines > 0) {
                let _ = write!(text, " node{node} {}", lines * LINE);
            }
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_counts_while_a_thread_waits() {
        let at = |lines: u64, work: u64| {
            let mut counts = Counts::default();
            counts[1][FILLS] = lines;
            Moment::new(&counts, [work, 32 * work, 0])
        };
        let mut stages = Stages::default();
        stages.end(at(1, 1), End::Local);
        assert_eq!(stages.report(0), "", "counting has not started");
        stages.start(at(5, 10));
        stages.end(at(8, 14), End::Global);
        stages.resume(at(9, 100));
        stages.end(at(9, 101), End::Stop);
        assert_eq!(
            stages.report(3),
            "numacount stage 0 cpu 3 end global instructions 4 int8 128 f32 0 node1 192\n\
             numacount stage 1 cpu 3 end stop instructions 1 int8 32 f32 0\n"
        );
    }
}
