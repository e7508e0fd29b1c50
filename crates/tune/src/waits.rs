//! What a barrier costs: arrivals that queue for one cache line, and transfers of that line.
//!
//! Every arriving thread adds one to a counter. The additions to one line are serialised: each
//! occupies it for an *arrival*. The last arrival's own round trip and the release that the waiting
//! threads must see cost a *line transfer* each. A flat barrier has one counter for all threads of
//! all nodes; a hierarchical one a counter per node, whose last thread alone crosses.
//!
//! Limits: mean cost of threads that arrive together; the idle time of unequal work is not in it.

use crate::error::{Error, positive};

/// How threads of several nodes meet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Barrier {
    /// All threads count on one cache line (llama.cpp, ArcLight's global barrier).
    Flat,
    /// Threads count in their node; one thread of each node crosses (Arm, this project).
    Hierarchical,
}

/// Latencies of the machine's cache lines, in seconds.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct WaitModel {
    /// Time that an atomic addition occupies the line when the previous one came from the same node.
    pub arrival: f64,
    /// The same when the previous one came from another node. Where atomics are executed at the
    /// line's home (Arm's LSE far atomics) it equals `arrival`; where the line must travel (x86) it
    /// is about `remote_line`.
    pub remote_arrival: f64,
    /// A line's way from one core to another of its node.
    pub line: f64,
    /// A line's way from one node to another.
    pub remote_line: f64,
}

impl WaitModel {
    pub(crate) fn validate(&self) -> Result<(), Error> {
        positive("wait model: arrival", self.arrival)?;
        positive("wait model: remote arrival", self.remote_arrival)?;
        positive("wait model: line", self.line)?;
        positive("wait model: remote line", self.remote_line)?;
        Ok(())
    }

    /// Seconds of a barrier among `threads` threads of one node; nothing for a single thread.
    pub fn local(&self, threads: usize) -> f64 {
        if threads < 2 { 0.0 } else { threads as f64 * self.arrival + 2.0 * self.line }
    }

    /// Seconds of a barrier among all threads; `threads[node]` of each node.
    pub fn global(&self, barrier: Barrier, threads: &[usize]) -> f64 {
        let nodes = threads.iter().filter(|&&n| n > 0).count();
        let widest = threads.iter().copied().max().unwrap_or(0);
        if nodes < 2 {
            return self.local(widest);
        }
        match barrier {
            Barrier::Flat => {
                let all = threads.iter().sum::<usize>() as f64;
                // Threads arrive in random order: how likely is the next one on the same node?
                let same: f64 = threads.iter().map(|&n| (n as f64 / all).powi(2)).sum();
                let arrival = same * self.arrival + (1.0 - same) * self.remote_arrival;
                all * arrival + 2.0 * self.remote_line
            }
            Barrier::Hierarchical => {
                let crossing = nodes as f64 * self.remote_arrival + 2.0 * self.remote_line;
                self.local(widest) + crossing
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAR: WaitModel =
        WaitModel { arrival: 3e-9, remote_arrival: 3e-9, line: 60e-9, remote_line: 400e-9 };
    const NEAR: WaitModel = WaitModel { arrival: 50e-9, remote_arrival: 400e-9, ..FAR };

    #[test]
    fn nobody_waits_for_himself() {
        assert_eq!(FAR.local(1), 0.0);
        assert_eq!(FAR.global(Barrier::Flat, &[0, 1, 0]), 0.0);
    }

    #[test]
    fn one_node_has_only_local_waits() {
        assert_eq!(FAR.global(Barrier::Flat, &[0, 48]), FAR.local(48));
        assert_eq!(FAR.global(Barrier::Hierarchical, &[48, 0]), FAR.local(48));
    }

    #[test]
    fn hierarchy_pays_most_where_lines_travel() {
        let threads = [48; 4];
        let gain = |w: WaitModel| {
            w.global(Barrier::Flat, &threads) / w.global(Barrier::Hierarchical, &threads)
        };
        assert!(gain(FAR) > 1.0, "{}", gain(FAR));
        // 192 arrivals, three of four of them a 0.4 us transfer, against 48 local and 4 crossing.
        assert!(gain(NEAR) > 10.0, "{}", gain(NEAR));
    }
}
