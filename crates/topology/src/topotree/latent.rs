//! Structure that is measured: which CPUs are near each other, by how long a cache line takes from one
//! to the other.
//!
//! Two questions are answered from a matrix of such times. For every level of a tree: are CPUs below
//! one vertex nearer to each other than to those of its siblings? And for the vertices without a level
//! between them: does a grouping make such a level, one that no system tool shows?
//!
//! Both by *separation*: of each CPU the time to the nearest one outside of its part, over the time to
//! the farthest one inside, and of these ratios the median. A part that is too small has near CPUs
//! outside, one that is too large has far ones inside, so only the true one separates; a median, because
//! a time that was disturbed spoils the ratio of two CPUs and not of all.
//!
//! Limits: CPUs that were not measured are not looked at; groups are those of [`TopoTree::group`], of one
//! size and with one stride everywhere.

use super::TopoTree;
use super::search::tilings;
use crate::{CpuId, Error};
use serde::Serialize;
use std::collections::HashMap;

/// From this separation on, parts are taken for real: those that are known to be (L3 caches of four or
/// eight cores, clusters that share a tag) are 1.5 and more apart, while times within one cache differ by
/// some per cent, or gradually where it is a mesh.
pub const SEPARATED: f64 = 1.2;

/// How long a cache line takes between CPUs, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LineTimes {
    cpus: Vec<CpuId>,
    nanoseconds: Vec<Vec<f64>>, // [cpu][cpu], symmetric
}

impl LineTimes {
    /// Times between `cpus`, each pair measured once: `time(i, j)` is asked for the `i`-th and the `j`-th,
    /// `i < j`.
    ///
    /// # Errors
    /// The first error of `time`.
    pub fn measure<E>(
        cpus: Vec<CpuId>,
        mut time: impl FnMut(CpuId, CpuId) -> Result<f64, E>,
    ) -> Result<LineTimes, E> {
        let mut nanoseconds = vec![vec![0.0; cpus.len()]; cpus.len()];
        for i in 0..cpus.len() {
            for j in i + 1..cpus.len() {
                let time = time(cpus[i], cpus[j])?;
                nanoseconds[i][j] = time;
                nanoseconds[j][i] = time;
            }
        }
        Ok(LineTimes { cpus, nanoseconds })
    }

    /// Times that are known: a row for each CPU.
    ///
    /// # Errors
    /// [`Error::BadTimes`] unless there is a row and a column for each CPU, each of them is there once, and
    /// times are positive and the same in both directions.
    pub fn new(cpus: Vec<CpuId>, nanoseconds: Vec<Vec<f64>>) -> Result<LineTimes, Error> {
        let fault = |reason: String| Err(Error::BadTimes { reason });
        let n = cpus.len();
        if nanoseconds.len() != n || nanoseconds.iter().any(|row| row.len() != n) {
            return fault(format!("there are not {n} rows of {n} numbers"));
        }
        if let Some(twice) = (0..n).find(|&i| cpus[..i].contains(&cpus[i])) {
            return fault(format!("CPU {} is there twice", cpus[twice].0));
        }
        for i in 0..n {
            for j in i + 1..n {
                let (there, back) = (nanoseconds[i][j], nanoseconds[j][i]);
                if !(there.is_finite() && there > 0.0 && there == back) {
                    let (a, b) = (cpus[i].0, cpus[j].0);
                    return fault(format!("{there} and {back} ns between CPUs {a} and {b}"));
                }
            }
        }
        Ok(LineTimes { cpus, nanoseconds })
    }

    /// The CPUs, in the order of rows and columns.
    pub fn cpus(&self) -> &[CpuId] {
        &self.cpus
    }

    /// The times, `[cpu][cpu]`; zero from a CPU to itself.
    pub fn nanoseconds(&self) -> &[Vec<f64>] {
        &self.nanoseconds
    }
}

/// What the times say of one level of a tree.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Level {
    /// What its vertices are.
    pub name: String,
    /// Median time between CPUs that it is the lowest to hold, in nanoseconds; `None` if it has no two.
    pub nanoseconds: Option<f64>,
    /// How much nearer CPUs are to those of their own vertex than to those of its siblings; `None` where
    /// vertices have one CPU, or no siblings.
    pub separation: Option<f64>,
}

/// A level that nobody shows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Proposal {
    /// Arguments of [`TopoTree::group`]: members of a group.
    pub n: usize,
    /// How far they stand apart.
    pub stride: usize,
    /// Where the groups come to stand.
    pub depth: usize,
    /// What is grouped.
    pub of: String,
    /// As of [`Level`].
    pub separation: f64,
}

impl TopoTree {
    /// What the times between CPUs say of every level but the leaves', from the root on.
    pub fn measured_levels(&self, times: &LineTimes) -> Vec<Level> {
        (0..self.height())
            .map(|depth| {
                let below = Parts::new(self, times, depth + 1);
                let own = Parts::new(self, times, depth);
                let above = depth.checked_sub(1).map(|above| Parts::new(self, times, above));
                let pairs = own.pairs(times, |i, j| own.together(i, j) && !below.together(i, j));
                Level {
                    name: self.name(depth),
                    nanoseconds: crate::median(&pairs),
                    separation: above.and_then(|above| own.separation(times, &above)),
                }
            })
            .collect()
    }

    /// The tree with the level that the times speak for most, and which it is; `None` if they speak for none.
    pub fn with_latent(&self, times: &LineTimes) -> Option<(TopoTree, Proposal)> {
        let proposal = self.latent(times).into_iter().next()?;
        let tree = self.group(proposal.n, proposal.stride, proposal.depth).ok()?;
        Some((tree, proposal))
    }

    /// Groupings of the vertices at any depth that the times speak for, the plainest first; none on a
    /// tree that is not symmetric.
    pub fn latent(&self, times: &LineTimes) -> Vec<Proposal> {
        let Ok(arities) = self.arities() else { return Vec::new() };
        let mut found = Vec::new();
        for (above, &children) in arities.iter().enumerate() {
            let depth = above + 1;
            for (n, stride) in tilings(children) {
                let Ok(grouped) = self.group(n, stride, depth) else { continue };
                let own = Parts::new(&grouped, times, depth);
                let separation = own.separation(times, &Parts::new(&grouped, times, above));
                if let Some(separation) = separation.filter(|&s| s >= SEPARATED) {
                    let of = self.name(depth);
                    found.push(Proposal { n, stride, depth, of, separation });
                }
            }
        }
        found.sort_by(|a, b| b.separation.total_cmp(&a.separation));
        found
    }
}

/// Which vertex at some depth each measured CPU is below.
struct Parts {
    part: Vec<Option<usize>>, // [measured cpu]
}

impl Parts {
    fn new(tree: &TopoTree, times: &LineTimes, depth: usize) -> Parts {
        let parts = tree.parts(depth);
        let of: HashMap<CpuId, usize> = parts
            .iter()
            .enumerate()
            .flat_map(|(part, cpus)| cpus.iter().map(move |cpu| (*cpu, part)))
            .collect();
        Parts { part: times.cpus.iter().map(|cpu| of.get(cpu).copied()).collect() }
    }

    fn together(&self, i: usize, j: usize) -> bool {
        self.part[i].is_some() && self.part[i] == self.part[j]
    }

    /// The times of pairs.
    fn pairs(&self, times: &LineTimes, is: impl Fn(usize, usize) -> bool) -> Vec<f64> {
        let cpus = times.cpus.len();
        let pairs = (0..cpus).flat_map(|i| (i + 1..cpus).map(move |j| (i, j)));
        pairs.filter(|&(i, j)| is(i, j)).map(|(i, j)| times.nanoseconds[i][j]).collect()
    }

    /// See the module's text: among the CPUs of one part of `above`.
    fn separation(&self, times: &LineTimes, above: &Parts) -> Option<f64> {
        let ratios = (0..times.cpus.len()).filter_map(|i| {
            let others = |inside: bool| {
                let others = (0..times.cpus.len()).filter(move |&j| j != i);
                others
                    .filter(move |&j| above.together(i, j) && self.together(i, j) == inside)
                    .map(|j| times.nanoseconds[i][j])
            };
            let farthest = others(true).reduce(f64::max)?;
            let nearest = others(false).reduce(f64::min)?;
            Some(nearest / farthest.max(f64::MIN_POSITIVE))
        });
        crate::median(&ratios.collect::<Vec<_>>())
    }
}
