//! Which schemes are worth a closer look: the ways to cut a machine into groups, ranked by two kinds of
//! steps with all CPUs.
//!
//! A cut is a level of the tree, or of the tree under one grouping, whose vertices become the groups.
//! What is left out above the cut (a node, a cluster that would be a group) makes another cut, and is
//! tried on the best as long as it helps; what is left out below it is a level of the same scheme.

use super::scheme::{Teams, chains, scheme};
use super::session::{Session, Stop};
use super::trail::{Branch, Stage, Supposed};
use std::collections::BTreeSet;
use topology::topotree::{Configuration, LevelKind, TopoTree};

/// A tree and the level of it whose vertices are groups.
#[derive(Clone, Debug)]
pub(super) struct Cut {
    pub(super) tree: TopoTree,
    pub(super) depth: usize,
    /// All CPUs of it.
    pub(super) all: Teams,
    /// One CPU of each core, where that leaves the groups as they are.
    pub(super) cores: Teams,
    /// The levels that were supposed for it.
    pub(super) supposed: Vec<Supposed>,
    /// Its place among the branches of the search.
    pub(super) branch: usize,
}

impl Cut {
    fn at(
        tree: &TopoTree,
        depth: usize,
        supposed: Vec<Supposed>,
        permit: &dyn Fn(&Configuration) -> bool,
    ) -> Option<Cut> {
        let configuration = tree.cross_section(depth);
        let all = Teams::of(&configuration).filter(|_| permit(&configuration))?;
        let cores = single(tree)
            .and_then(|single| Teams::of(&single.cross_section(depth))?.aligned(&all))
            .unwrap_or_else(|| all.clone());
        Some(Cut { tree: tree.clone(), depth, all, cores, supposed, branch: 0 })
    }
}

impl Cut {
    fn grow(&self, session: &mut Session<'_>, ends: (usize, usize)) -> usize {
        let default = (!session.branches.is_empty()).then_some(0);
        let branch = Branch::new(session, Stage::Family, default, &self.cores, ends);
        // A vertex that is several things is called by the widest.
        let level = self.tree.levels()[self.depth].first().copied();
        session.grow(Branch { level, ..branch.of_tree(&self.tree, self.supposed.clone()) })
    }
}

/// The tree with one CPU of each core, where cores have more.
fn single(tree: &TopoTree) -> Option<TopoTree> {
    let above = tree.height().checked_sub(1)?;
    let cpus = *tree.arities().ok()?.last()?;
    let smt = tree.levels()[above].contains(&LevelKind::Core) && cpus > 1;
    smt.then(|| tree.remove(cpus - 1, above).ok()).flatten()
}

/// How a tree was grouped: members, stride, and levels below the members at that time.
pub(super) type Grouping = (usize, usize, usize);

/// A tree with the groupings that made it, in the order in which they were applied.
pub(super) type Grouped = (Vec<Grouping>, TopoTree);

/// The supposed levels of a tree with these groupings.
pub(super) fn supposed(groupings: &[Grouping], grouped: &TopoTree) -> Vec<Supposed> {
    let bare = grouped.height() - groupings.len();
    let mut all: Vec<Supposed> = vec![];
    for (before, &(members, stride, below)) in groupings.iter().enumerate() {
        let depth = bare + before - below;
        all.iter_mut().filter(|level| level.depth >= depth).for_each(|level| level.depth += 1);
        all.push(Supposed { members, stride, depth });
    }
    all
}

/// The tree, and, if levels are to be supposed, it under every single grouping of a level that is deeper
/// than `above`.
pub(super) fn groupings(tree: &TopoTree, above: usize, suppose: bool) -> Vec<Grouped> {
    let mut all = vec![(vec![], tree.clone())];
    if suppose {
        let mut seen = BTreeSet::from([tree.digest()]);
        all.extend(composed(&all, above, &mut seen));
    }
    all
}

/// Trees that were grouped, under every further grouping of a level that is deeper than `above`; of equal trees, and
/// those that were `seen`, one.
pub(super) fn composed(
    of: &[Grouped],
    above: usize,
    seen: &mut BTreeSet<topology::topotree::Digest>,
) -> Vec<Grouped> {
    let mut all = vec![];
    for (names, tree) in of {
        let arities = tree.arities().unwrap_or_default();
        for (depth, &children) in (1..).zip(&arities).filter(|&(depth, _)| depth > above) {
            for n in (2..children).filter(|n| children.is_multiple_of(*n)) {
                for stride in (1..=children / n).filter(|s| (children / n).is_multiple_of(*s)) {
                    let Ok(grouped) = tree.group(n, stride, depth) else { continue };
                    if seen.insert(grouped.digest()) {
                        let below = tree.height() - depth;
                        let names = names.iter().copied().chain([(n, stride, below)]).collect();
                        all.push((names, grouped));
                    }
                }
            }
        }
    }
    all
}

/// The tree under groupings that were found in another one; `None` where they do not fit below `above`.
pub(super) fn regrouped(tree: &TopoTree, above: usize, names: &[Grouping]) -> Option<Grouped> {
    let group = |tree: TopoTree, &(n, stride, below): &Grouping| {
        let depth = tree.height().checked_sub(below).filter(|&depth| depth > above)?;
        tree.group(n, stride, depth).ok()
    };
    Some((names.to_vec(), names.iter().try_fold(tree.clone(), group)?))
}

/// The cuts that may serve the model, best first, and what each is worth: less is better. `scores` says
/// how much a second of each kind of step counts.
pub(super) fn ranked(
    session: &mut Session<'_>,
    tree: &TopoTree,
    permit: &dyn Fn(&Configuration) -> bool,
    scores: &[(usize, f64)],
    (keep, suppose): (usize, bool),
    ends: (usize, usize),
) -> Result<Vec<(f64, Cut)>, Stop> {
    let mut seen = BTreeSet::new();
    let mut ranked: Vec<(f64, Cut)> = vec![];
    let mut fresh: Vec<Cut> = vec![];
    for (names, tree) in groupings(tree, 0, suppose) {
        let names = supposed(&names, &tree);
        let at = |depth| Cut::at(&tree, depth, names.clone(), permit);
        fresh.extend((0..=tree.height()).filter_map(at));
    }
    fresh.retain(|cut| seen.insert(family(&cut.all)));
    let mut parents = vec![f64::INFINITY; fresh.len()];
    loop {
        let mut better = vec![];
        for (mut cut, parent) in fresh.into_iter().zip(parents) {
            let worth = worth(session, &cut, scores)?;
            cut.branch = cut.grow(session, ends);
            if worth < parent {
                better.push((worth, cut));
            }
        }
        better.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let first = ranked.is_empty();
        ranked.extend(better.iter().cloned());
        ranked.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        if first {
            better.truncate(keep);
        }
        (fresh, parents) = (vec![], vec![]);
        for (worth, cut) in &better {
            for above in 0..cut.depth {
                let Ok(less) = cut.tree.remove(1, above) else { continue };
                let less = Cut::at(&less, cut.depth, cut.supposed.clone(), permit);
                if let Some(less) = less.filter(|less| seen.insert(family(&less.all))) {
                    fresh.push(less);
                    parents.push(*worth);
                }
            }
        }
        if fresh.is_empty() {
            return Ok(ranked);
        }
    }
}

/// What tells families apart, whatever their CPUs: the nodes of the groups.
fn family(teams: &Teams) -> Vec<Option<topology::NodeId>> {
    let mut nodes = teams.nodes();
    nodes.sort_unstable();
    nodes
}

fn worth(session: &mut Session<'_>, cut: &Cut, scores: &[(usize, f64)]) -> Result<f64, Stop> {
    let mut worth = 0.0;
    for &(kind, score) in scores {
        let chain = &chains(vec![cut.cores.clone()], &cut.all)[0];
        let (scheme, levels) = scheme(chain);
        worth += score * session.once(&scheme, &levels[0], kind)?;
    }
    Ok(worth)
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::Machine;

    fn tree(synthetic: &str) -> TopoTree {
        TopoTree::of(&Machine::from_synthetic(synthetic).unwrap())
    }

    #[test]
    fn hardware_threads_are_told_from_cores() {
        let smt = Cut::at(&tree("numa:2 core:4 pu:2"), 1, vec![], &|_| true).unwrap();
        assert_eq!((smt.all.threads(), smt.cores.threads()), (16, 8));
        let plain = Cut::at(&tree("numa:2 core:4"), 1, vec![], &|_| true).unwrap();
        assert_eq!(plain.all, plain.cores);
        // Groups of a node each do not span nodes; the whole machine does.
        assert!(Cut::at(&tree("numa:2 core:4"), 0, vec![], &|_| true).is_none());
        assert!(Cut::at(&tree("numa:2 core:4"), 1, vec![], &|_| false).is_none());
    }

    #[test]
    fn only_what_is_below_a_cut_is_grouped() {
        let tree = tree("numa:4 core:8");
        // Nodes: (2, 1), (2, 2). Cores: (2, 1), (2, 2), (2, 4), (4, 1), (4, 2). And none.
        let of = |above, suppose| groupings(&tree, above, suppose).len();
        assert_eq!([of(0, true), of(1, true), of(2, true), of(0, false)], [8, 6, 1, 1]);
    }

    #[test]
    fn groupings_of_groupings_are_all_trees_once() {
        let tree = tree("numa:2 core:12");
        let mut seen = BTreeSet::from([tree.digest()]);
        let (mut all, mut newest) = (1, vec![(vec![], tree.clone())]);
        while !newest.is_empty() {
            newest = composed(&newest, 1, &mut seen);
            all += newest.len();
            for (names, grouped) in &newest {
                // The same levels are found again by their names, and stand where these say.
                let (_, again) = regrouped(&tree, 1, names).unwrap();
                assert_eq!(again, *grouped);
                let levels = supposed(names, grouped);
                assert!(levels.iter().all(|l| grouped.levels()[l.depth] == [LevelKind::Group]));
            }
        }
        assert_eq!(all as u128, topology::topotree::groupings(12));
        let (inner, outer) = ((2, 1, 0), (3, 2, 1));
        let (_, grouped) = regrouped(&tree, 1, &[inner, outer]).unwrap();
        let depths: Vec<usize> =
            supposed(&[inner, outer], &grouped).iter().map(|l| l.depth).collect();
        assert_eq!(
            (depths, grouped.to_string()),
            (vec![3, 2], "machine ×1, node ×2, group ×2, group ×3, core ×2".into())
        );
        assert_eq!(regrouped(&tree, 2, &[inner]), None);
    }
}
