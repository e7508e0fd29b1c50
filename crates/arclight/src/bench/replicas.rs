//! The same tests on several copies of a model at once.
//!
//! Every replica is loaded and measured on a thread of its own, as one engine is alone. Before each
//! test they wait for each other, so that all of them read and multiply at the same time; limits are
//! measured in the same way, and their sum is what the machine can do with all of it in use.

use super::limits::{Floor, Limits};
use super::measure::{Bench, Measured, Test};
use super::setup::{Replica, Setup};
use crate::error::Error;
use crate::report::Cause;
use crate::term;
use arclight_engine::{Engine, LoadOptions, ModelFile, NodeId, Replicas};
use kernels::Products;
use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use topology::Machine;

/// A test on one replica, or on all of them together.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    pub(crate) setup: Setup,
    pub(crate) test: Test,
    /// Of every repetition.
    pub(crate) seconds: Vec<f64>,
    pub(crate) floor: Floor,
    pub(crate) limits: Limits,
    /// What took speed from it.
    pub(crate) causes: Vec<Cause>,
}

/// Loads a copy on each part of the machine and runs all tests on all of them, those of one depth in
/// turns. For each test the figures of every replica, then those of all together. `done` is told
/// each test that all have done, the warm-up included.
pub(crate) fn run(
    file: &ModelFile,
    machine: &Machine,
    replicas: usize,
    options: &LoadOptions,
    tests: &[Test],
    repetitions: usize,
    done: &(dyn Fn(&Test) + Sync),
) -> Result<Vec<Figures>, Error> {
    let parts = Replicas::divide(file, machine, options, replicas)?;
    let bar = term::byte_bar("loading", file.bytes() * replicas);
    let together = Together::new(replicas);
    let run = |replica: usize, (part, options): &(Machine, LoadOptions)| {
        let _leaving = Leaving(&together);
        let mut last = 0;
        let engine = Engine::load_on(file, part, options, &mut |p| {
            bar.inc((p.done - last) as u64);
            last = p.done;
        })?;
        let mut bench = Bench::new(engine, part, tests, false)?;
        let setup = Setup { replica: Some(Replica::One(replica)), ..bench.setup() };
        together.wait();
        bar.finish_and_clear();
        let mut figures = Vec::with_capacity(tests.len());
        for here in tests.chunk_by(|a, b| a.depth == b.depth) {
            let measured = bench.measure(here, repetitions, None, &mut |test| {
                together.wait();
                if replica == 0 {
                    done(test);
                }
            })?;
            let limits = bench.limits();
            for (&test, Measured { seconds, .. }) in here.iter().zip(measured) {
                let (setup, floor) = (setup.clone(), bench.floor(&test));
                let causes = bench.causes().to_vec();
                figures.push(Figures { setup, test, seconds, floor, limits, causes });
            }
        }
        Ok(figures)
    };
    let each: Vec<Vec<Figures>> = thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> =
            parts.iter().enumerate().map(|(i, part)| scope.spawn(move || run(i, part))).collect();
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        // All are joined before the first error is given.
        joined.collect::<Vec<Result<_, Error>>>().into_iter().collect::<Result<_, _>>()
    })?;
    let nodes: BTreeSet<NodeId> =
        parts.iter().flat_map(|(part, _)| part.usable_nodes().map(|n| n.id)).collect();
    let mut all = Vec::with_capacity(tests.len() * (replicas + 1));
    for at in 0..tests.len() {
        let figures: Vec<&Figures> = each.iter().map(|figures| &figures[at]).collect();
        let total = sum(&figures, nodes.len());
        all.extend(figures.into_iter().cloned());
        all.extend(total);
    }
    Ok(all)
}

/// One test on all replicas together: rates and limits add up.
fn sum(figures: &[&Figures], nodes: usize) -> Option<Figures> {
    let first = figures.first()?;
    // The time in which one replica would do its part at the rate of all.
    let seconds = |r: usize| figures.iter().map(|f| f.seconds[r].recip()).sum::<f64>().recip();
    let limit = |of: fn(&Limits) -> f64| figures.iter().map(|f| of(&f.limits)).sum();
    let floors: Vec<Floor> = figures.iter().map(|f| f.floor).collect();
    Some(Figures {
        setup: Setup {
            replica: Some(Replica::All),
            nodes,
            threads: figures.iter().map(|f| f.setup.threads).sum(),
            isa: first.setup.isa,
            kernels: first.setup.kernels.clone(),
        },
        test: first.test,
        seconds: (0..first.seconds.len()).map(seconds).collect(),
        floor: Floor::side_by_side(&floors),
        limits: Limits {
            read: limit(|l| l.read),
            slowest_read: limit(|l| l.slowest_read),
            macs: Products::new(|p| {
                let rates = figures.iter().map(|f| f.limits.macs[p]);
                rates.sum::<Option<f64>>()
            }),
            caches: figures.iter().map(|f| f.limits.caches).sum(),
        },
        causes: first.causes.clone(),
    })
}

/// Where threads meet, as at a barrier that one can leave for good.
struct Together {
    state: Mutex<Meeting>,
    all_here: Condvar,
}

struct Meeting {
    members: usize,
    here: usize,
    round: u64,
}

impl Together {
    fn new(members: usize) -> Together {
        let state = Mutex::new(Meeting { members, here: 0, round: 0 });
        Together { state, all_here: Condvar::new() }
    }

    fn wait(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let round = state.round;
        state.here += 1;
        self.go_on_if_all(&mut state);
        while state.round == round {
            state = self.all_here.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn go_on_if_all(&self, state: &mut Meeting) {
        if state.here == state.members {
            state.here = 0;
            state.round += 1;
            self.all_here.notify_all();
        }
    }
}

/// Leaves when dropped: a replica that fails keeps nobody waiting.
struct Leaving<'a>(&'a Together);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.members -= 1;
        self.0.go_on_if_all(&mut state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    #[test]
    fn threads_go_on_together_and_without_those_that_left() {
        let together = Together::new(3);
        let rounds = AtomicUsize::new(0);
        thread::scope(|scope| {
            for leaves_after in [2, 5, 5] {
                let (together, rounds) = (&together, &rounds);
                scope.spawn(move || {
                    let _leaving = Leaving(together);
                    for round in 0..leaves_after {
                        rounds.fetch_add(1, SeqCst);
                        together.wait();
                        let members = |round| if round < 2 { 3 } else { 2 };
                        let so_far: usize = (0..=round).map(members).sum();
                        // Nobody is through before all have come, nor two rounds ahead.
                        let seen = rounds.load(SeqCst);
                        assert!((so_far..=so_far + members(round + 1)).contains(&seen), "{seen}");
                    }
                });
            }
        });
        assert_eq!(rounds.load(SeqCst), 3 * 2 + 2 * 3);
    }

    #[test]
    fn rates_and_limits_add_up() {
        use kernels::Product;

        let figures = |seconds: f64, threads| Figures {
            setup: Setup {
                replica: Some(Replica::One(0)),
                nodes: 1,
                threads,
                isa: "scalar",
                kernels: Vec::new(),
            },
            test: Test::prompt(100, 0),
            seconds: vec![seconds, 1.0],
            floor: Floor::default(),
            limits: Limits {
                read: 1e9,
                slowest_read: 1e9,
                macs: Products::new(|_| Some(2e9)),
                caches: 0,
            },
            causes: Vec::new(),
        };
        // 100 tokens in 1 s and in 0.5 s: 300 a second.
        let total = sum(&[&figures(1.0, 2), &figures(0.5, 3)], 1).unwrap();
        let rates: Vec<f64> = total.seconds.iter().map(|s| 100.0 / s).collect();
        assert!((rates[0] - 300.0).abs() < 1e-9 && (rates[1] - 200.0).abs() < 1e-9);
        assert_eq!(
            (total.setup.threads, total.setup.nodes, total.limits.rate(Product::Int8)),
            (5, 1, 4e9)
        );
    }
}
