//! The search within a scheme: which CPUs of each group to leave out for one kind of step.
//!
//! [`Search`] proposes: under each grouping the transformation tree of removals, of which a branch ends
//! where leaving out more does not help. It asks for one configuration at a time and is told that those
//! not measured yet are useless; so one run under each grouping yields all that can be measured next.
//! These are measured together, in the order of few loads ([`chains`]), and everything is run
//! again from what is known, until nothing new is asked for. What is measured is what [`Search`] alone
//! would have measured.

use super::scheme::{Teams, chains, scheme};
use super::session::{Session, Stop};
use crate::Error;
use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use topology::topotree::{Search, TopoTree};

/// Teams that were measured, and the first tree that proposed them.
#[derive(Clone, Debug)]
pub(super) struct Tried {
    pub(super) teams: Teams,
    pub(super) seconds: f64,
    pub(super) tree: usize,
}

impl Tried {
    /// By seconds; of equally fast ones that with the fewest CPUs first.
    pub(super) fn order(&self, other: &Tried) -> Ordering {
        let threads = || self.teams.threads().cmp(&other.teams.threads());
        self.seconds.total_cmp(&other.seconds).then_with(threads)
    }
}

/// Why a search ended before its end.
#[derive(Clone, Debug)]
pub(super) enum Ended {
    Stopped,
    Failed(Error),
}

impl From<Stop> for Ended {
    fn from(_: Stop) -> Ended {
        Ended::Stopped
    }
}

impl From<topology::Error> for Ended {
    fn from(error: topology::Error) -> Ended {
        Ended::Failed(Error::Tree(error.to_string()))
    }
}

/// What a search within a scheme found.
pub(super) struct Descent {
    /// All that was measured, fastest first.
    pub(super) tried: Vec<Tried>,
    /// The fastest of each tree, and how many were measured there.
    pub(super) trees: Vec<Option<(Teams, f64, usize)>>,
}

/// What is to be searched within a scheme.
#[derive(Clone, Copy)]
pub(super) struct Descending<'a> {
    /// What it is for.
    pub(super) doing: &'static str,
    /// The trees that propose.
    pub(super) trees: &'a [TopoTree],
    /// What everything is to be within.
    pub(super) most: &'a Teams,
    /// The kind of step.
    pub(super) kind: usize,
    /// After so many in a row that are no better than the best, a tree is given up.
    pub(super) patience: Option<usize>,
    /// Evaluations that are expected to follow.
    pub(super) later: usize,
}

/// Measures what some trees propose within a scheme.
pub(super) fn descend(session: &mut Session<'_>, of: &Descending<'_>) -> Result<Descent, Ended> {
    let Descending { doing, trees, most, kind, patience, later } = *of;
    loop {
        let mut tried: BTreeMap<Teams, (f64, usize)> = BTreeMap::new();
        let mut best: Vec<Option<(Teams, f64, usize)>> = vec![None; trees.len()];
        let mut wanted: BTreeSet<Teams> = BTreeSet::new();
        for (at, tree) in trees.iter().enumerate() {
            // `permit` is asked just before each evaluation.
            let asked: RefCell<Option<Teams>> = RefCell::new(None);
            let permit = |c: &_| {
                *asked.borrow_mut() = Teams::of(c).and_then(|teams| teams.aligned(most));
                asked.borrow().is_some()
            };
            let search = Search {
                latent_levels: 0,
                permit: &permit,
                keep: 0,
                patience,
                ..Search::default()
            };
            let best = &mut best[at];
            search.run(tree, |_| {
                let teams = asked.borrow_mut().take().expect("only what is permitted is evaluated");
                let known = session.known(&teams, kind);
                match known {
                    Some(seconds) => {
                        let (least, timed) =
                            best.as_ref().map_or((f64::INFINITY, 0), |(_, s, n)| (*s, *n));
                        match best {
                            Some((.., n)) if seconds >= least => *n += 1,
                            _ => *best = Some((teams.clone(), seconds, timed + 1)),
                        }
                        tried.entry(teams).or_insert((seconds, at));
                    }
                    None => drop(wanted.insert(teams)),
                }
                ControlFlow::Continue(known.unwrap_or(f64::INFINITY))
            })?;
        }
        if wanted.is_empty() {
            let of = |(teams, (seconds, tree))| Tried { teams, seconds, tree };
            let mut tried: Vec<Tried> = tried.into_iter().map(of).collect();
            tried.sort_by(Tried::order);
            return Ok(Descent { tried, trees: best });
        }
        // Rounds get smaller, as most branches end.
        session.begin(doing, wanted.len() * 3 / 2, later);
        for chain in chains(wanted.iter().cloned().collect(), most) {
            let (scheme, levels) = scheme(&chain);
            for (teams, level) in chain.iter().zip(&levels) {
                if wanted.contains(teams) {
                    session.once(&scheme, level, kind)?;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::families::groupings;
    use super::super::session::{Measure, TuneProgress};
    use super::super::{Candidate, StepKind};
    use super::*;
    use topology::{CpuId, Machine};

    /// Times that are as good as any: a polynomial of the CPUs.
    fn seconds<'a>(cpus: impl Iterator<Item = &'a CpuId>, seed: u64) -> f64 {
        let mut cpus: Vec<u64> = cpus.map(|cpu| u64::from(cpu.0) + 1).collect();
        cpus.sort_unstable();
        let mixed = cpus
            .iter()
            .fold(seed, |sum, cpu| (sum ^ cpu).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29));
        1.0 + (mixed >> 40) as f64 + 1e5 * cpus.len() as f64
    }

    struct Asked {
        seed: u64,
        teams: Vec<Vec<CpuId>>,
    }

    impl Measure for Asked {
        fn seconds(&mut self, candidate: &Candidate<'_>, _: &StepKind) -> Option<f64> {
            let cpus = || candidate.scheme.cpus(candidate.level).flatten();
            let mut sorted: Vec<CpuId> = cpus().copied().collect();
            sorted.sort_unstable();
            self.teams.push(sorted);
            Some(seconds(cpus(), self.seed))
        }

        fn load_seconds(&self) -> f64 {
            0.0
        }
    }

    #[test]
    fn what_is_measured_is_what_the_search_alone_would_measure() {
        let tree = TopoTree::of(&Machine::from_synthetic("numa:2 core:12").unwrap());
        let most = Teams::of(&tree.cross_section(1)).unwrap();
        let kinds = [StepKind { tokens: 1, depth: 0, weight: 1.0 }];
        for seed in 0..20 {
            let mut alone = vec![];
            let permit = |c: &_| Teams::of(c).and_then(|teams| teams.aligned(&most)).is_some();
            let search = Search { permit: &permit, ..Search::default() };
            let found = search.run(&tree, |c| {
                let cpus = || c.groups().iter().flat_map(|part| &part.cpus);
                let mut sorted: Vec<CpuId> = cpus().copied().collect();
                sorted.sort_unstable();
                alone.push(sorted);
                ControlFlow::Continue(seconds(cpus(), seed))
            });
            let found = found.unwrap();

            let mut asked = Asked { seed, teams: vec![] };
            let mut watch = |_: &TuneProgress| ControlFlow::Continue(());
            let mut session = Session::new(&mut asked, &mut watch, &kinds);
            let trees: Vec<TopoTree> =
                groupings(&tree, 1, true).into_iter().map(|(_, t)| t).collect();
            let of = Descending {
                doing: "",
                trees: &trees,
                most: &most,
                kind: 0,
                patience: None,
                later: 0,
            };
            let tried = descend(&mut session, &of).unwrap().tried;
            let loads = session.progress.loads;
            assert_eq!(tried[0].seconds, found.best[0].1);
            assert!(loads < tried.len(), "{loads} loads for {} teams", tried.len());
            asked.teams.sort_unstable();
            alone.sort_unstable();
            assert!(alone.len() > 10, "{}", alone.len());
            assert_eq!(asked.teams, alone);
        }
    }
}
