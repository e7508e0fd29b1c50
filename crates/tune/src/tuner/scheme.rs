//! What a model is loaded for, and how much of it a step uses.
//!
//! A *scheme* is groups of CPUs, each on one memory node, for which the weights are split and to which
//! threads are pinned; another scheme means loading the model again. A *level* is how many CPUs of
//! each group a step uses, the first of its list; another level costs microseconds. So whatever is
//! to be switched between steps has to be *nested*: the CPUs of each level among those of the next.
//! [`Teams`] are the CPUs of a level without the order, which is what a search proposes; a chain of
//! nested teams becomes a scheme whose levels they are, and [`chains`] parts what is to be measured
//! into few of these.

use super::trail::Team;
use crate::Error;
use crate::schedule::TunedSchedules;
use std::collections::BTreeSet;
use topology::topotree::Configuration;
use topology::{CpuId, Group, NodeId};

/// Groups of CPUs in order. Each has at least one, and no CPU is in it twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheme {
    groups: Vec<Group>,
}

/// CPUs of each group that are used: at least one, the first of the group's list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(Vec<usize>);

impl Scheme {
    /// A scheme of these groups.
    ///
    /// # Errors
    /// [`Error::BadScheme`] when there is no group, one has no CPU, or a CPU is in it twice.
    pub fn new(groups: Vec<Group>) -> Result<Scheme, Error> {
        let mut seen = BTreeSet::new();
        if groups.is_empty() {
            return Err(Error::BadScheme("there are none".into()));
        }
        for (at, group) in groups.iter().enumerate() {
            if group.cpus.is_empty() {
                return Err(Error::BadScheme(format!("group {at} has no cpu")));
            }
            if let Some(twice) = group.cpus.iter().find(|cpu| !seen.insert(**cpu)) {
                return Err(Error::BadScheme(format!("cpu {} is there twice", twice.0)));
            }
        }
        Ok(Scheme { groups })
    }

    /// The groups.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// A level of this scheme.
    ///
    /// # Errors
    /// [`Error::BadScheme`] unless it has a number for each group, from 1 to the group's CPUs.
    pub fn level(&self, cpus: Vec<usize>) -> Result<Level, Error> {
        if cpus.len() != self.groups.len() {
            let (has, groups) = (cpus.len(), self.groups.len());
            return Err(Error::BadScheme(format!("a level of {has} numbers for {groups} groups")));
        }
        for (at, (&n, group)) in cpus.iter().zip(&self.groups).enumerate() {
            if n == 0 || n > group.cpus.len() {
                let all = group.cpus.len();
                return Err(Error::BadScheme(format!("{n} of the {all} cpus of group {at}")));
            }
        }
        Ok(Level(cpus))
    }

    /// The level of all CPUs.
    pub fn all(&self) -> Level {
        Level(self.groups.iter().map(|group| group.cpus.len()).collect())
    }

    /// The CPUs of each group that a level uses.
    pub fn cpus<'a>(&'a self, level: &'a Level) -> impl Iterator<Item = &'a [CpuId]> {
        self.groups.iter().zip(&level.0).map(|(group, &n)| &group.cpus[..n.min(group.cpus.len())])
    }

    /// Without the CPUs that no level uses.
    pub(super) fn cut(mut self, most: &Level) -> Scheme {
        self.groups.iter_mut().zip(&most.0).for_each(|(group, &n)| group.cpus.truncate(n));
        self
    }

    pub(super) fn teams(&self, level: &Level) -> Teams {
        let team = |(group, cpus): (&Group, &[CpuId])| (group.node, cpus.iter().copied().collect());
        Teams(self.groups.iter().zip(self.cpus(level)).map(team).collect())
    }
}

impl Level {
    /// CPUs of each group.
    pub fn cpus(&self) -> &[usize] {
        &self.0
    }

    /// CPUs of all groups.
    pub fn threads(&self) -> usize {
        self.0.iter().sum()
    }

    /// The level of so many CPUs in every group; all of them in groups with fewer.
    pub(super) fn at_most(all: &Level, n: usize) -> Level {
        Level(all.0.iter().map(|&most| n.clamp(1, most)).collect())
    }

    /// One CPU fewer in every group that has more than one.
    pub(super) fn one_less(&self) -> Level {
        Level(self.0.iter().map(|&n| n.saturating_sub(1).max(1)).collect())
    }

    /// For each group the larger of the two.
    pub(super) fn join(&self, other: &Level) -> Level {
        Level(self.0.iter().zip(&other.0).map(|(a, b)| *a.max(b)).collect())
    }
}

/// What is measured: a level of a scheme, and other settings of the program. Candidates of one scheme
/// are measured in a row.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// What the model is loaded for.
    pub scheme: &'a Scheme,
    /// What of it is used.
    pub level: &'a Level,
    /// Name and value of each [`Choice`](super::Choice) of the caller's, in its order.
    pub choices: &'a [(String, String)],
    /// How matrices are multiplied; `None`: as without tuning.
    pub schedules: Option<&'a TunedSchedules>,
}

/// The node and the CPUs of each group, whatever their order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Teams(Vec<(Option<NodeId>, BTreeSet<CpuId>)>);

impl Teams {
    /// `None` when a group spans nodes.
    pub(super) fn of(configuration: &Configuration) -> Option<Teams> {
        let teams = configuration.layout()?.groups;
        Some(Teams(teams.into_iter().map(|g| (g.node, g.cpus.into_iter().collect())).collect()))
    }

    pub(super) fn groups(&self) -> usize {
        self.0.len()
    }

    pub(super) fn list(&self) -> Vec<Team> {
        let team = |(node, cpus): &(Option<NodeId>, BTreeSet<CpuId>)| Team {
            node: *node,
            cpus: cpus.iter().copied().collect(),
        };
        self.0.iter().map(team).collect()
    }

    pub(super) fn threads(&self) -> usize {
        self.0.iter().map(|(_, cpus)| cpus.len()).sum()
    }

    /// The nodes of the groups: what those have in common that the weights are split alike for.
    pub(super) fn nodes(&self) -> Vec<Option<NodeId>> {
        self.0.iter().map(|&(node, _)| node).collect()
    }

    /// Whether each group's CPUs are among those of the other's group in the same place.
    pub(super) fn within(&self, other: &Teams) -> bool {
        let inside =
            |(a, b): (&(_, BTreeSet<_>), &(_, BTreeSet<_>))| a.0 == b.0 && a.1.is_subset(&b.1);
        self.groups() == other.groups() && self.0.iter().zip(&other.0).all(inside)
    }

    /// With its groups in such an order that it is within `other`, if there is one.
    pub(super) fn aligned(mut self, other: &Teams) -> Option<Teams> {
        if self.groups() != other.groups() {
            return None;
        }
        // Groups of `other` have no CPU in common, so at most one of these fits each.
        for (at, (node, all)) in other.0.iter().enumerate() {
            let fits = |(n, cpus): &(_, BTreeSet<_>)| n == node && cpus.is_subset(all);
            let from = self.0[at..].iter().position(fits)?;
            self.0.swap(at, at + from);
        }
        Some(self)
    }
}

/// The scheme whose levels are these teams, each within the next; at least one.
pub(super) fn scheme(chain: &[Teams]) -> (Scheme, Vec<Level>) {
    let nodes = chain[0].nodes();
    let mut groups: Vec<Group> =
        nodes.into_iter().map(|node| Group { node, cpus: vec![] }).collect();
    let mut levels = vec![];
    let mut before: Vec<BTreeSet<CpuId>> = vec![BTreeSet::new(); groups.len()];
    for Teams(teams) in chain {
        for ((group, before), (_, cpus)) in groups.iter_mut().zip(&mut before).zip(teams) {
            group.cpus.extend(cpus.difference(before));
            before.clone_from(cpus);
        }
        levels.push(Level(groups.iter().map(|group| group.cpus.len()).collect()));
    }
    (Scheme { groups }, levels)
}

/// Parts teams that are all within `most` into chains, each of which ends in `most`: as a scheme, each
/// serves all of its teams with one load. From the smallest on, each team goes to the chain whose
/// largest is the largest within it.
pub(super) fn chains(mut wanted: Vec<Teams>, most: &Teams) -> Vec<Vec<Teams>> {
    wanted.sort_by_key(Teams::threads);
    let mut chains: Vec<Vec<Teams>> = vec![];
    for teams in wanted.into_iter().filter(|teams| teams != most) {
        let fits = chains.iter_mut().filter(|chain| chain.last().is_some_and(|t| t.within(&teams)));
        match fits.max_by_key(|chain| chain.last().map(Teams::threads)) {
            Some(chain) => chain.push(teams),
            None => chains.push(vec![teams]),
        }
    }
    if chains.is_empty() {
        chains.push(vec![]);
    }
    chains.iter_mut().for_each(|chain| chain.push(most.clone()));
    chains
}

#[cfg(test)]
mod tests {
    use super::*;

    fn teams(groups: &[&[u32]]) -> Teams {
        let team = |cpus: &&[u32]| (Some(NodeId(0)), cpus.iter().map(|&cpu| CpuId(cpu)).collect());
        Teams(groups.iter().map(team).collect())
    }

    #[test]
    fn nested_teams_become_levels() {
        let chain =
            [teams(&[&[2], &[4]]), teams(&[&[0, 2], &[4]]), teams(&[&[0, 1, 2, 3], &[4, 5, 6, 7]])];
        let (scheme, levels) = scheme(&chain);
        let order: Vec<u32> = scheme.groups()[0].cpus.iter().map(|cpu| cpu.0).collect();
        assert_eq!(order, [2, 0, 1, 3]);
        assert_eq!(levels[1].cpus(), [2, 1]);
        for (level, teams) in levels.iter().zip(&chain) {
            assert_eq!(scheme.teams(level), *teams);
        }
    }

    #[test]
    fn few_loads_serve_many_teams() {
        let most = teams(&[&[0, 1, 2, 3]]);
        let wanted = [&[0, 1, 2][..], &[0], &[0, 2, 3], &[0, 1]].map(|cpus| teams(&[cpus]));
        let chains = chains(wanted.to_vec(), &most);
        let sizes: Vec<Vec<usize>> =
            chains.iter().map(|c| c.iter().map(Teams::threads).collect()).collect();
        assert_eq!(sizes, [vec![1, 2, 3, 4], vec![3, 4]]);
        for chain in &chains {
            assert!(chain.is_sorted_by(|a, b| a.within(b)));
        }
        assert_eq!(super::chains(vec![], &most), [vec![most]]);
    }

    #[test]
    fn groups_are_matched_by_what_holds_them() {
        let most = teams(&[&[0, 1], &[2, 3]]);
        let turned = teams(&[&[3], &[1]]);
        assert!(!turned.within(&most));
        assert_eq!(turned.aligned(&most), Some(teams(&[&[1], &[3]])));
        assert_eq!(teams(&[&[1, 2], &[3]]).aligned(&most), None);
        assert_eq!(teams(&[&[1]]).aligned(&most), None);
    }

    #[test]
    fn impossible_groups_are_refused() {
        let group =
            |cpus: &[u32]| Group { node: None, cpus: cpus.iter().map(|&c| CpuId(c)).collect() };
        for (groups, word) in [
            (vec![], "none"),
            (vec![group(&[1]), group(&[])], "group 1 has no cpu"),
            (vec![group(&[1, 2]), group(&[2])], "cpu 2 is there twice"),
        ] {
            let message = Scheme::new(groups).unwrap_err().to_string();
            assert!(message.contains(word), "{message}");
        }
        let scheme = Scheme::new(vec![group(&[5, 3])]).unwrap();
        for (level, word) in
            [(vec![], "0 numbers"), (vec![0], "0 of the 2"), (vec![3], "3 of the 2")]
        {
            let message = scheme.level(level).unwrap_err().to_string();
            assert!(message.contains(word), "{message}");
        }
        assert_eq!(scheme.level(vec![2]).unwrap(), scheme.all());
    }
}
