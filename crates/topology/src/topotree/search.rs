//! The search for the best configuration: group, remove, cut, evaluate.
//!
//! First all groupings, none of which leaves a CPU idle. From each a *transformation tree* of
//! removals, one child of every vertex of a level at a time, so that a tree that lost so many
//! children on each level has as parents those that lost one less on one of them. Trees are taken
//! in topological order. One that is no better than its best parent is *discarded*: its
//! descendants, which lack at least what it lacks, are never looked at. A tree is worth what its
//! best cross-section is, and each configuration is evaluated once, wherever it comes from.

use super::digest::Digest;
use super::{Configuration, Family, TopoTree};
use crate::Error;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::ops::ControlFlow;

/// What to search, and when to give up. The default is one latent level, pruning, no patience's
/// end, everything permitted, and the five best.
pub struct Search<'a> {
    /// Most levels that group transformations insert; each multiplies the number of trees.
    /// [`Complexity::groupings`](super::Complexity::groupings) counts them without a bound.
    pub latent_levels: usize,
    /// Whether descendants of a removal that does not help are left out.
    pub prune: bool,
    /// After so many evaluations in a row that do not better a family's best, what is left of that
    /// family (as many groups, on the same nodes) is given up. `None`: never.
    pub patience: Option<usize>,
    /// Whether a model can be served so; what its heads do not divide into, say.
    pub permit: &'a dyn Fn(&Configuration) -> bool,
    /// How many of the best to keep.
    pub keep: usize,
}

impl Default for Search<'_> {
    fn default() -> Self {
        Self { latent_levels: 1, prune: true, patience: None, permit: &|_| true, keep: 5 }
    }
}

/// What a search found.
#[derive(Clone, Debug)]
pub struct SearchResult {
    /// The best with their costs, best first; of equally good ones the first found.
    pub best: Vec<(Configuration, f64)>,
    /// How it went.
    pub counts: Counts,
    /// False when the evaluation stopped the search.
    pub complete: bool,
}

/// What a search came across.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Trees by group transformations, the original included.
    pub grouped: usize,
    /// Group transformations that led to a tree already seen.
    pub grouped_again: usize,
    /// Trees looked at, with and without removals.
    pub trees: usize,
    /// Trees by removals that had been looked at under another grouping.
    pub trees_again: usize,
    /// Trees that were no better than their parents.
    pub discarded: usize,
    /// Different configurations met.
    pub configurations: usize,
    /// Cross-sections that gave a configuration already met.
    pub configurations_again: usize,
    /// Configurations that were not permitted.
    pub forbidden: usize,
    /// Configurations given up with their family.
    pub impatient: usize,
    /// Configurations evaluated.
    pub evaluated: usize,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { grouped, grouped_again, trees, trees_again, discarded, .. } = self;
        let Counts { configurations, configurations_again, forbidden, .. } = self;
        writeln!(f, "groupings       {grouped} ({grouped_again} more seen again)")?;
        writeln!(
            f,
            "trees           {trees} ({trees_again} more seen again), {discarded} discarded with \
             all their descendants"
        )?;
        writeln!(
            f,
            "configurations  {configurations} ({configurations_again} more seen again), \
             {forbidden} forbidden, {} given up",
            self.impatient
        )?;
        write!(f, "evaluated       {}", self.evaluated)
    }
}

impl Search<'_> {
    /// Searches from a symmetric tree. `evaluate` gives what a configuration costs, the less the
    /// better (NaN is the worst there is), or breaks the search off; what was found until then is
    /// kept.
    ///
    /// # Errors
    /// [`Error::Uneven`]; see [`TopoTree::evened`].
    pub fn run(
        &self,
        tree: &TopoTree,
        evaluate: impl FnMut(&Configuration) -> ControlFlow<(), f64>,
    ) -> Result<SearchResult, Error> {
        let mut run = Run {
            search: self,
            evaluate,
            counts: Counts::default(),
            worth: HashMap::new(),
            costs: HashMap::new(),
            families: BTreeMap::new(),
            best: vec![],
        };
        let mut complete = true;
        for grouped in run.groupings(tree)? {
            if run.removals(&grouped)?.is_break() {
                complete = false;
                break;
            }
        }
        Ok(SearchResult { best: run.best, counts: run.counts, complete })
    }
}

/// How a family has been doing.
struct Standing {
    best: f64,
    /// Evaluations since.
    stale: usize,
}

struct Run<'a, E> {
    search: &'a Search<'a>,
    evaluate: E,
    counts: Counts,
    /// The best of each tree's cross-sections; `None` where none was evaluated.
    worth: HashMap<Digest, Option<f64>>,
    /// Likewise of each configuration.
    costs: HashMap<Digest, Option<f64>>,
    families: BTreeMap<Family, Standing>,
    best: Vec<(Configuration, f64)>,
}

impl<E: FnMut(&Configuration) -> ControlFlow<(), f64>> Run<'_, E> {
    /// All trees that group transformations make, those with the fewest new levels first.
    fn groupings(&mut self, tree: &TopoTree) -> Result<Vec<TopoTree>, Error> {
        let mut seen = HashSet::from([tree.digest()]);
        let mut all = vec![tree.clone()];
        let mut newest = 0..1;
        for _ in 0..self.search.latent_levels {
            for at in newest.clone() {
                let arities = all[at].arities()?;
                for (depth, &children) in (1..).zip(&arities) {
                    for (n, stride) in tilings(children) {
                        let grouped = all[at].group(n, stride, depth)?;
                        if seen.insert(grouped.digest()) {
                            all.push(grouped);
                        } else {
                            self.counts.grouped_again += 1;
                        }
                    }
                }
            }
            newest = newest.end..all.len();
            if newest.is_empty() {
                break;
            }
        }
        self.counts.grouped = all.len();
        Ok(all)
    }

    /// The transformation tree of removals under a grouped tree, in topological order: by the
    /// number of children removed.
    fn removals(&mut self, tree: &TopoTree) -> Result<ControlFlow<()>, Error> {
        let arities = tree.arities()?;
        // The trees of the last round that were kept, with the best of theirs and their ancestors'.
        let mut kept: BTreeMap<Vec<usize>, f64> = BTreeMap::new();
        let mut round = vec![arities.clone()];
        while !round.is_empty() {
            let mut next: BTreeMap<Vec<usize>, f64> = BTreeMap::new();
            for children in round {
                let parents = parents(&children, &arities);
                let best = parents.iter().map(|parent| kept.get(parent).copied());
                // A parent that is not there was discarded, or is the descendant of one that was.
                let Some(best) = best.collect::<Option<Vec<f64>>>() else { continue };
                let best = best.into_iter().reduce(f64::min);
                let ControlFlow::Continue(worth) = self.worth(tree, &children)? else {
                    return Ok(ControlFlow::Break(()));
                };
                match (worth, best) {
                    (Some(worth), Some(best)) if worth >= best && self.search.prune => {
                        self.counts.discarded += 1;
                    }
                    // Where nothing was evaluated, nothing is known against the descendants.
                    _ => {
                        let known = [worth, best].into_iter().flatten().reduce(f64::min);
                        next.insert(children, known.unwrap_or(f64::INFINITY));
                    }
                }
            }
            kept = next;
            let mut children: Vec<Vec<usize>> = kept.keys().flat_map(|c| one_less(c)).collect();
            children.sort_unstable();
            children.dedup();
            round = children;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// What the tree is worth that has so many children left on each level.
    fn worth(
        &mut self,
        tree: &TopoTree,
        children: &[usize],
    ) -> Result<ControlFlow<(), Option<f64>>, Error> {
        let mut left = tree.clone();
        for (depth, &n) in children.iter().enumerate() {
            left.keep(n, depth);
        }
        let digest = left.digest();
        if let Some(&worth) = self.worth.get(&digest) {
            self.counts.trees_again += 1;
            return Ok(ControlFlow::Continue(worth));
        }
        self.counts.trees += 1;
        let mut worth: Option<f64> = None;
        for depth in 0..=left.height() {
            let ControlFlow::Continue(cost) = self.cost(left.cross_section(depth)) else {
                return Ok(ControlFlow::Break(()));
            };
            worth = [worth, cost].into_iter().flatten().reduce(f64::min);
        }
        self.worth.insert(digest, worth);
        Ok(ControlFlow::Continue(worth))
    }

    /// What a configuration costs, if it is or was evaluated.
    fn cost(&mut self, configuration: Configuration) -> ControlFlow<(), Option<f64>> {
        let digest = configuration.digest();
        if let Some(&cost) = self.costs.get(&digest) {
            self.counts.configurations_again += 1;
            return ControlFlow::Continue(cost);
        }
        let cost = self.evaluated(configuration)?;
        self.counts.configurations += 1;
        self.costs.insert(digest, cost);
        ControlFlow::Continue(cost)
    }

    fn evaluated(&mut self, configuration: Configuration) -> ControlFlow<(), Option<f64>> {
        if !(self.search.permit)(&configuration) {
            self.counts.forbidden += 1;
            return ControlFlow::Continue(None);
        }
        let fresh = Standing { best: f64::INFINITY, stale: 0 };
        let standing = self.families.entry(configuration.family()).or_insert(fresh);
        if self.search.patience.is_some_and(|most| standing.stale >= most) {
            self.counts.impatient += 1;
            return ControlFlow::Continue(None);
        }
        let cost = (self.evaluate)(&configuration)?;
        let cost = if cost.is_nan() { f64::INFINITY } else { cost };
        self.counts.evaluated += 1;
        if cost < standing.best {
            *standing = Standing { best: cost, stale: 0 };
        } else {
            standing.stale += 1;
        }
        let place = self.best.partition_point(|&(_, better)| better <= cost);
        self.best.insert(place, (configuration, cost));
        self.best.truncate(self.search.keep);
        ControlFlow::Continue(Some(cost))
    }
}

/// The group transformations of so many children: `n` and stride.
pub(super) fn tilings(children: usize) -> impl Iterator<Item = (usize, usize)> {
    let divides = move |n: &usize| children.is_multiple_of(*n);
    let strides =
        move |n: usize| (1..=children / n).filter(move |s| (children / n).is_multiple_of(*s));
    (2..children).filter(divides).flat_map(move |n| strides(n).map(move |stride| (n, stride)))
}

/// The trees that lack one child less on one level.
fn parents(children: &[usize], all: &[usize]) -> Vec<Vec<usize>> {
    changed(children, |depth, n| (n < all[depth]).then_some(n + 1))
}

/// The trees that lack one child more on one level.
fn one_less(children: &[usize]) -> Vec<Vec<usize>> {
    changed(children, |_, n| (n > 1).then_some(n - 1))
}

fn changed(of: &[usize], change: impl Fn(usize, usize) -> Option<usize>) -> Vec<Vec<usize>> {
    let with = |(depth, &n): (usize, &usize)| {
        let mut new = of.to_vec();
        new[depth] = change(depth, n)?;
        Some(new)
    };
    of.iter().enumerate().filter_map(with).collect()
}
