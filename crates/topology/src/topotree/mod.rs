//! The TopoTree: a machine as a tree of what its CPUs share, and the ways to use a part of it.
//!
//! Leaves are the CPUs this process may run on, inner vertices what those below share. All leaves
//! are equally deep, so a tree is a list of levels; levels that part the CPUs alike are one.
//! [`TopoTree::group`] inserts a level that no system tool shows, [`TopoTree::remove`] leaves CPUs
//! idle evenly, [`TopoTree::cross_section`] makes the vertices of a level into groups of threads.
//! [`Search`] goes through all of it with a caller's measure of what is good, and
//! [`TopoTree::latent`] proposes groups from times that were measured between CPUs.
//!
//! Children stand in the order of their lowest CPU, and trees are equal when they have the same
//! levels and share the same CPUs in the same way: [`TopoTree::digest`] tells.
//!
//! Limits: transformations apply to all vertices of a level alike, so they need a symmetric tree;
//! [`TopoTree::evened`] makes one of any. CPUs count alike, whatever their speed.
//!
//! Source: Zhao, Li, Wu, *Sandwich: Joint Configuration Search and Hot-Switching for Efficient CPU
//! LLM Serving* (2026), sections 4.1 to 4.3; `docs/topology.md` tells where this differs.
//!
//! ```
//! # extern crate arclight_topology as topology;
//! use topology::{Machine, topotree::{LevelKind, TopoTree}};
//! // Four Kunpeng 920: 8 nodes of 24 cores. Cores 4k to 4k + 3 share an L3 tag, which nobody says.
//! let machine = Machine::from_synthetic("pack:4 numa:2 core:24")?;
//! let tree = TopoTree::of(&machine).group(4, 1, 3)?.remove(1, 3)?;
//! assert_eq!(tree.to_string(), "machine ×1, package ×4, node ×2, group ×6, core ×3");
//! let by_node = tree.cross_section(tree.depth_of(LevelKind::Node).unwrap());
//! assert_eq!((by_node.groups().len(), by_node.groups()[0].cpus.len()), (8, 18));
//! # Ok::<(), topology::Error>(())
//! ```

mod build;
mod complexity;
mod configuration;
mod digest;
mod latent;
mod search;

pub use complexity::{Complexity, groupings};
pub use configuration::{Configuration, CpuSet, Family};
pub use digest::Digest;
pub use latent::{Level, LineTimes, Proposal, SEPARATED};
pub use search::{Counts, Search, SearchResult};

use crate::{CpuId, Error, NodeId};
use std::fmt;

/// What the vertices of a level are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LevelKind {
    /// The whole machine.
    Machine,
    /// A socket.
    Package,
    /// A memory node with the CPUs that work on it.
    Node,
    /// A die of a package.
    Die,
    /// What shares an L3 cache.
    L3,
    /// CPUs sharing an interconnect stop.
    Cluster,
    /// What shares an L2 cache.
    L2,
    /// A structure that was supposed, not found.
    Group,
    /// A physical core.
    Core,
    /// A CPU: a core or one of its hardware threads.
    Pu,
}

impl fmt::Display for LevelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            LevelKind::Machine => "machine",
            LevelKind::Package => "package",
            LevelKind::Node => "node",
            LevelKind::Die => "die",
            LevelKind::L3 => "l3",
            LevelKind::Cluster => "cluster",
            LevelKind::L2 => "l2",
            LevelKind::Group => "group",
            LevelKind::Core => "core",
            LevelKind::Pu => "pu",
        })
    }
}

/// A leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Leaf {
    cpu: CpuId,
    /// Whose memory it works on.
    node: Option<NodeId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Vertex {
    Leaf(Leaf),
    /// At least one child.
    Inner(Vec<Vertex>),
}

impl Vertex {
    fn children(&self) -> &[Vertex] {
        match self {
            Vertex::Leaf(_) => &[],
            Vertex::Inner(children) => children,
        }
    }

    /// Calls `f` with every vertex so many levels below, from left to right.
    fn at<'a>(&'a self, below: usize, f: &mut dyn FnMut(&'a Vertex)) {
        match below {
            0 => f(self),
            _ => self.children().iter().for_each(|child| child.at(below - 1, f)),
        }
    }

    /// Calls `f` with the children of every vertex so many levels below.
    fn change(&mut self, below: usize, f: &dyn Fn(&mut Vec<Vertex>)) {
        match (self, below) {
            (Vertex::Leaf(_), _) => {}
            (Vertex::Inner(children), 0) => f(children),
            (Vertex::Inner(children), _) => {
                children.iter_mut().for_each(|child| child.change(below - 1, f));
            }
        }
    }

    /// Calls `f` with the leaves from left to right.
    fn leaves(&self, f: &mut dyn FnMut(Leaf)) {
        match self {
            Vertex::Leaf(leaf) => f(*leaf),
            Vertex::Inner(children) => children.iter().for_each(|child| child.leaves(f)),
        }
    }
}

/// A machine as a tree. See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopoTree {
    /// What the vertices at each depth are, from the root to the leaves; several for those that
    /// are the same.
    levels: Vec<Vec<LevelKind>>,
    root: Vertex,
}

impl TopoTree {
    /// What the vertices at each depth are, from the root (depth 0) to the CPUs: several where one
    /// vertex is several things, such as a package with one node.
    pub fn levels(&self) -> &[Vec<LevelKind>] {
        &self.levels
    }

    /// Depth of the leaves; the root has 0.
    pub fn height(&self) -> usize {
        self.levels.len() - 1
    }

    /// The depth of the level whose vertices are of this kind; of several groups the outermost.
    pub fn depth_of(&self, kind: LevelKind) -> Option<usize> {
        self.levels.iter().position(|level| level.contains(&kind))
    }

    /// The CPUs, from left to right.
    pub fn cpus(&self) -> Vec<CpuId> {
        let mut cpus = vec![];
        self.root.leaves(&mut |leaf| cpus.push(leaf.cpu));
        cpus
    }

    /// The CPUs below each vertex of a level, from left to right; none beyond the leaves.
    pub fn parts(&self, depth: usize) -> Vec<Vec<CpuId>> {
        let mut parts = vec![];
        self.root.at(depth, &mut |vertex| {
            let mut cpus = vec![];
            vertex.leaves(&mut |leaf| cpus.push(leaf.cpu));
            parts.push(cpus);
        });
        parts
    }

    /// How many children each vertex of a level has, from the root to the lowest inner level.
    ///
    /// # Errors
    /// [`Error::Uneven`] when vertices of one level differ.
    pub fn arities(&self) -> Result<Vec<usize>, Error> {
        (0..self.height())
            .map(|depth| match self.extremes(depth) {
                (fewest, most) if fewest == most => Ok(most),
                (fewest, most) => Err(Error::Uneven { level: self.name(depth), fewest, most }),
            })
            .collect()
    }

    /// Fewest and most children of a vertex at this depth.
    fn extremes(&self, depth: usize) -> (usize, usize) {
        let (mut fewest, mut most) = (usize::MAX, 0);
        self.root.at(depth, &mut |vertex| {
            let n = vertex.children().len();
            (fewest, most) = (fewest.min(n), most.max(n));
        });
        (fewest, most)
    }

    /// Puts new vertices at `depth`, each holding `n` of those that were there and now are one
    /// level deeper. The members of a group stand `stride` apart among the children of their
    /// common parent: of eight children, `group(2, 1, …)` makes 01 23 45 67, `group(2, 4, …)`
    /// makes 04 15 26 37.
    ///
    /// # Errors
    /// [`Error::NoLevel`] for the root and beyond the leaves; [`Error::CannotGroup`] unless
    /// `1 < n < c` and `n` × `stride` divides `c`, the number of children of each parent;
    /// [`Error::Uneven`].
    pub fn group(&self, n: usize, stride: usize, depth: usize) -> Result<Self, Error> {
        let arities = self.arities()?;
        if depth == 0 || depth > self.height() {
            return Err(Error::NoLevel { depth, first: 1, last: self.height() });
        }
        let children = arities[depth - 1];
        let span = n.checked_mul(stride).filter(|&span| span > 0 && children.is_multiple_of(span));
        let Some(span) = span.filter(|_| n > 1 && n < children) else {
            return Err(Error::CannotGroup { n, stride, children });
        };
        let mut tree = self.clone();
        tree.levels.insert(depth, vec![LevelKind::Group]);
        tree.root.change(depth - 1, &|children| {
            let mut rest = std::mem::take(children).into_iter();
            while rest.len() > 0 {
                let mut groups: Vec<Vec<Vertex>> = (0..stride).map(|_| vec![]).collect();
                for (i, child) in rest.by_ref().take(span).enumerate() {
                    groups[i % stride].push(child);
                }
                children.extend(groups.into_iter().map(Vertex::Inner));
            }
        });
        Ok(tree)
    }

    /// Removes the `k` last children of every vertex at `depth`: `k` fewer CPUs, clusters or nodes
    /// in each.
    ///
    /// # Errors
    /// [`Error::NoLevel`] for the leaves and beyond; [`Error::CannotRemove`] when no child would
    /// be left; [`Error::Uneven`].
    pub fn remove(&self, k: usize, depth: usize) -> Result<Self, Error> {
        let arities = self.arities()?;
        let Some(&children) = arities.get(depth) else {
            return Err(Error::NoLevel { depth, first: 0, last: self.height().saturating_sub(1) });
        };
        if k >= children {
            return Err(Error::CannotRemove { k, children });
        }
        let mut tree = self.clone();
        tree.keep(children - k, depth);
        Ok(tree)
    }

    /// Leaves the vertices at `depth` their first `n` children.
    fn keep(&mut self, n: usize, depth: usize) {
        self.root.change(depth, &|children| children.truncate(n));
    }

    /// The tree with CPUs left out until it is symmetric: every vertex of a level keeps as many
    /// children, its first, as the one with the fewest has.
    #[must_use]
    pub fn evened(&self) -> Self {
        let mut tree = self.clone();
        for depth in 0..tree.height() {
            tree.keep(tree.extremes(depth).0, depth);
        }
        tree
    }

    /// The configuration that makes each vertex at `depth` a group of threads.
    ///
    /// # Panics
    /// Beyond the leaves.
    pub fn cross_section(&self, depth: usize) -> Configuration {
        assert!(depth <= self.height(), "no depth {depth} in a tree of height {}", self.height());
        let mut parts = vec![];
        self.root.at(depth, &mut |vertex| {
            let mut part = CpuSet { nodes: vec![], cpus: vec![] };
            vertex.leaves(&mut |leaf| {
                part.cpus.push(leaf.cpu);
                part.nodes.extend(leaf.node);
            });
            part.nodes.sort_unstable();
            part.nodes.dedup();
            parts.push(part);
        });
        Configuration::new(parts)
    }

    /// What levels part the CPUs by, and how many trees and configurations that makes.
    ///
    /// # Errors
    /// [`Error::Uneven`].
    pub fn complexity(&self) -> Result<Complexity, Error> {
        let levels = (0..self.height()).map(|depth| self.name(depth)).collect();
        Ok(Complexity::new(levels, self.arities()?))
    }

    /// What the vertices at this depth are called: the narrowest of what they are, but a node
    /// before its cache, and the leaves by what they are when there is no SMT.
    fn name(&self, depth: usize) -> String {
        let level = &self.levels[depth];
        let first = [LevelKind::Machine, LevelKind::Node, LevelKind::Core];
        let kind = first.iter().find(|kind| level.contains(kind)).or(level.last());
        kind.map_or_else(String::new, LevelKind::to_string)
    }
}

impl fmt::Display for TopoTree {
    /// The levels with the number of vertices in each of the level above, or in the machine where
    /// that differs: `machine ×1, package ×4, node ×2, core ×24`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ×1", self.name(0))?;
        for depth in 1..=self.height() {
            let name = self.name(depth);
            match self.extremes(depth - 1) {
                (fewest, most) if fewest == most => write!(f, ", {name} ×{most}")?,
                (fewest, most) => write!(f, ", {name} ×{fewest}–{most}")?,
            }
        }
        Ok(())
    }
}
