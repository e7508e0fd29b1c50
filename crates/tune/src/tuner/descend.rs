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

/// What was measured of that which some trees propose within `most`, fastest first. `later` evaluations
/// are expected to follow.
pub(super) fn descend(
    session: &mut Session<'_>,
    trees: &[TopoTree],
    most: &Teams,
    kind: usize,
    (doing, later): (&'static str, usize),
) -> Result<Vec<Tried>, Ended> {
    loop {
        let mut tried: BTreeMap<Teams, (f64, usize)> = BTreeMap::new();
        let mut wanted: BTreeSet<Teams> = BTreeSet::new();
        for (at, tree) in trees.iter().enumerate() {
            // `permit` is asked just before each evaluation.
            let asked: RefCell<Option<Teams>> = RefCell::new(None);
            let permit = |c: &_| {
                *asked.borrow_mut() = Teams::of(c).and_then(|teams| teams.aligned(most));
                asked.borrow().is_some()
            };
            let search = Search { latent_levels: 0, permit: &permit, keep: 0, ..Search::default() };
            search.run(tree, |_| {
                let teams = asked.borrow_mut().take().expect("only what is permitted is evaluated");
                let known = session.known(&teams, kind);
                match known {
                    Some(seconds) => drop(tried.entry(teams).or_insert((seconds, at))),
                    None => drop(wanted.insert(teams)),
                }
                ControlFlow::Continue(known.unwrap_or(f64::INFINITY))
            })?;
        }
        if wanted.is_empty() {
            let of = |(teams, (seconds, tree))| Tried { teams, seconds, tree };
            let mut tried: Vec<Tried> = tried.into_iter().map(of).collect();
            // Of equally fast ones that with the fewest CPUs.
            tried.sort_by(|a, b| {
                a.seconds.total_cmp(&b.seconds).then(a.teams.threads().cmp(&b.teams.threads()))
            });
            return Ok(tried);
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
