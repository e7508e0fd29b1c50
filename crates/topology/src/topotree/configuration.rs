//! Service configurations: how many groups of threads, on which nodes, on which CPUs.

use super::digest::{Digest, Hasher};
use crate::{CpuId, CpuList, Group, Layout, NodeId, NodeList};
use serde::Serialize;
use std::fmt;

/// Groups of CPUs that serve a model together, each with a part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Configuration {
    parts: Vec<CpuSet>,
}

/// One group of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CpuSet {
    /// The nodes of its CPUs, ascending; none on a machine without nodes.
    pub nodes: Vec<NodeId>,
    /// Its CPUs, those that share most being neighbours; at least one.
    pub cpus: Vec<CpuId>,
}

/// What configurations have in common that differ in their CPUs alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Family {
    /// The nodes of each group, sorted.
    nodes: Vec<Vec<NodeId>>,
}

impl Configuration {
    pub(super) fn new(parts: Vec<CpuSet>) -> Self {
        Self { parts }
    }

    /// The groups, at least one, in the order of their lowest CPU.
    pub fn groups(&self) -> &[CpuSet] {
        &self.parts
    }

    /// CPUs over all groups.
    pub fn threads(&self) -> usize {
        self.parts.iter().map(|part| part.cpus.len()).sum()
    }

    /// The number of groups and the nodes of each.
    pub fn family(&self) -> Family {
        let mut nodes: Vec<Vec<NodeId>> = self.parts.iter().map(|p| p.nodes.clone()).collect();
        nodes.sort_unstable();
        Family { nodes }
    }

    /// Equal for configurations whose groups have the same CPUs and nodes, in whatever order.
    pub fn digest(&self) -> Digest {
        let part = |part: &CpuSet| {
            let mut cpus = part.cpus.clone();
            cpus.sort_unstable();
            let mut hasher = Hasher::new(2);
            hasher.number(part.nodes.len() as u32);
            part.nodes.iter().for_each(|node| hasher.number(node.0));
            cpus.iter().for_each(|cpu| hasher.number(cpu.0));
            hasher.finish()
        };
        let mut hasher = Hasher::new(3);
        hasher.unordered(self.parts.iter().map(part).collect());
        hasher.finish()
    }

    /// Where a thread pool pins its threads; `None` when a group spans nodes, as each is bound to
    /// the memory of one.
    pub fn layout(&self) -> Option<Layout> {
        let group = |part: &CpuSet| match part.nodes[..] {
            [] => Some(Group { node: None, cpus: part.cpus.clone() }),
            [node] => Some(Group { node: Some(node), cpus: part.cpus.clone() }),
            _ => None,
        };
        let mut groups = self.parts.iter().map(group).collect::<Option<Vec<_>>>()?;
        groups.sort_by_key(|group| group.node);
        Some(Layout { groups, notes: vec![] })
    }
}

impl fmt::Display for Configuration {
    /// `48 groups of 3 cpus`, then a line for each: `cpus 0-2 on node 0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |n: usize| if n == 1 { "" } else { "s" };
        let sizes = self.parts.iter().map(|part| part.cpus.len());
        let (fewest, most) = (sizes.clone().min().unwrap_or(0), sizes.max().unwrap_or(0));
        let groups = self.parts.len();
        write!(f, "{groups} group{} of {fewest}", plural(groups))?;
        if fewest < most {
            write!(f, " to {most}")?;
        }
        write!(f, " cpu{}", plural(most))?;
        for part in &self.parts {
            let cpus: CpuList = part.cpus.iter().copied().collect();
            write!(f, "\n  cpus {cpus}")?;
            if !part.nodes.is_empty() {
                let nodes: NodeList = part.nodes.iter().copied().collect();
                write!(f, " on node{} {nodes}", plural(part.nodes.len()))?;
            }
        }
        Ok(())
    }
}
