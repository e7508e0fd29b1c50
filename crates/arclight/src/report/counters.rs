//! The machine's own counters around a phase, where there are any.
//!
//! What CPUs and the kernel count is of the engine's threads; memory controllers count for all programs together.
//! Neither is compared with the book by the program: caches serve a part of what the book has, prefetchers
//! and others add to what is counted.

use crate::term;
use measure::counters::{Controllers, Counters, Event, Refusal, Unavailable};
use serde::Serialize;
use std::path::Path;
use threads::Pool;
use topology::{Energy, Machine, NodeId};

/// In place of joules.
const NO_METERS: &str = "no J per token: the processors have no meters that this process may read";

/// The counters, opened, or why they cannot be.
pub(crate) struct Meter {
    /// Of the engine's threads; `None`: not wanted.
    threads: Option<Counters>,
    /// One of them was lost.
    lost: Option<Unavailable>,
    controllers: Result<Controllers, Unavailable>,
    /// When it began.
    energy: Option<Energy>,
}

/// What was counted in a phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Counted {
    /// Of the engine's threads.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) events: Vec<EventCount>,
    /// What could not be counted of them.
    #[serde(skip)]
    pub(super) refused: Vec<Refusal>,
    /// By the memory controllers, for all programs.
    pub(super) controllers: Vec<ControllerCount>,
    /// What the processors consumed, for all programs; `None` where they have no meters, or only root may read them.
    pub(super) joules: Option<f64>,
    /// Why something of this is missing.
    pub(super) unavailable: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct EventCount {
    pub(super) name: &'static str,
    pub(super) count: f64,
}

/// Of the controllers of one package.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct ControllerCount {
    pub(super) package: u32,
    /// Its memory node, if it has just one.
    pub(super) node: Option<u32>,
    pub(super) read_bytes: f64,
    pub(super) written_bytes: f64,
    pub(super) controllers: usize,
    /// Of the busiest controller.
    pub(super) busiest_read_bytes: f64,
}

impl Meter {
    /// For the memory alone, which costs the threads nothing.
    pub(crate) fn of_memory(machine: &Machine) -> Meter {
        Meter { threads: None, lost: None, controllers: Controllers::open(machine), energy: None }
    }

    /// For these threads too.
    pub(crate) fn of_threads(machine: &Machine, pool: &Pool) -> Meter {
        let ids: Vec<i32> = pool.kernel_ids().collect();
        Meter { threads: Some(Counters::of_threads(&ids)), ..Meter::of_memory(machine) }
    }

    /// Begins to count, from zero.
    pub(crate) fn start(&mut self) {
        if let Some(Err(lost)) = self.threads.as_mut().map(Counters::start) {
            self.lost = Some(lost);
        }
        if let Ok(open) = &mut self.controllers
            && let Err(lost) = open.start()
        {
            self.controllers = Err(lost);
        }
        self.energy = Energy::read(Path::new("/"));
    }

    /// The counts since.
    pub(crate) fn read(&self) -> Counted {
        let mut counted = Counted { joules: joules(self.energy.as_ref()), ..Counted::default() };
        if let Some(threads) = &self.threads {
            counted.refused = threads.refused().to_vec();
            let lost = self.lost.clone().map_or(Ok(()), Err);
            match lost.and_then(|()| threads.read()) {
                Ok(counts) => counted.events.extend(
                    counts.iter().map(|c| EventCount { name: c.event.name(), count: c.count }),
                ),
                Err(e) => counted.unavailable.push(e.reason),
            }
        }
        match self.controllers.as_ref().map_err(Clone::clone).and_then(Controllers::read) {
            Ok(all) => counted.controllers.extend(all.iter().map(|t| ControllerCount {
                package: t.package,
                node: t.node.map(|id| id.0),
                read_bytes: t.read_bytes,
                written_bytes: t.written_bytes,
                controllers: t.controllers,
                busiest_read_bytes: t.busiest_read_bytes,
            })),
            Err(e) => counted.unavailable.push(e.reason),
        }
        counted
    }
}

/// What the processors have consumed since a look at their meters.
pub(crate) fn joules(before: Option<&Energy>) -> Option<f64> {
    Energy::read(Path::new("/"))?.since(before?)
}

impl Counted {
    /// Adds what was counted in another stretch of the same work.
    pub(super) fn add(&mut self, other: &Counted) {
        for event in &other.events {
            match self.events.iter_mut().find(|e| e.name == event.name) {
                Some(to) => to.count += event.count,
                None => self.events.push(*event),
            }
        }
        for of in &other.controllers {
            match self.controllers.iter_mut().find(|c| c.package == of.package) {
                Some(to) => {
                    to.read_bytes += of.read_bytes;
                    to.written_bytes += of.written_bytes;
                    to.busiest_read_bytes += of.busiest_read_bytes;
                }
                None => self.controllers.push(*of),
            }
        }
        // Of all stretches or of none.
        self.joules = self.joules.zip(other.joules).map(|(a, b)| a + b);
        self.refused.clone_from(&other.refused);
        for why in &other.unavailable {
            if !self.unavailable.contains(why) {
                self.unavailable.push(why.clone());
            }
        }
    }

    /// Bytes that were read of each of these nodes' memories, if all have controllers that were asked. The only
    /// node, to which nothing is bound, is `None`.
    pub(super) fn reads_of(&self, nodes: &[Option<NodeId>]) -> Option<Vec<f64>> {
        let all = || self.controllers.iter().map(|c| c.read_bytes).sum();
        let of = |at: usize| {
            let node = nodes[at]?;
            // Of two groups that share a memory nobody can say which has read it.
            let alone = nodes.iter().filter(|other| **other == Some(node)).count() == 1;
            let controllers = self.controllers.iter().filter(|c| c.node == Some(node.0));
            let bytes: Vec<f64> = controllers.map(|c| c.read_bytes).collect();
            (alone && !bytes.is_empty()).then(|| bytes.iter().sum())
        };
        match nodes {
            [_] if !self.controllers.is_empty() => Some(vec![all()]),
            _ => (0..nodes.len()).map(of).collect(),
        }
    }

    /// How often an event was counted.
    pub(super) fn of(&self, event: Event) -> Option<f64> {
        self.events.iter().find(|e| e.name == event.name()).map(|e| e.count)
    }

    /// Sentences for people, but for the events.
    pub(super) fn lines(&self, tokens: u64, seconds: f64) -> Vec<String> {
        let mut lines = Vec::new();
        lines.push(match self.joules {
            Some(joules) => {
                let (token, watts) = (joules / tokens as f64, joules / seconds);
                format!("the processors consumed {token:.2} J per token, {watts:.0} W, for all programs together")
            }
            None => NO_METERS.to_owned(),
        });
        if !self.controllers.is_empty() {
            let each = self.controllers.iter().map(|c| {
                let place = match c.node {
                    Some(id) => format!("node {id}"),
                    None => format!("package {}", c.package),
                };
                let rate = |bytes: f64| term::rate(bytes / seconds / 1e9);
                format!("{place} {} read, {} written", rate(c.read_bytes), rate(c.written_bytes))
            });
            let each: Vec<String> = each.collect();
            let each = each.join("; ");
            lines.push(format!("memory controllers counted, for all programs, GB/s: {each}"));
        }
        if !self.unavailable.is_empty() {
            let why = self.unavailable.join("; ");
            lines.push(format!("what the memory's controllers read is not counted: {why}"));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_and_are_told_per_second() {
        let of = |events: &[(&'static str, f64)]| Counted {
            events: events.iter().map(|&(name, count)| EventCount { name, count }).collect(),
            ..Counted::default()
        };
        let mut sum = of(&[("node-loads", 3e6)]);
        let mut other = of(&[("node-loads", 1e6), ("node-load-misses", 1e6)]);
        let node = |node, read, busiest| ControllerCount {
            package: 1,
            node,
            read_bytes: read,
            written_bytes: 1e9,
            controllers: 2,
            busiest_read_bytes: busiest,
        };
        other.controllers = vec![node(Some(4), 30e9, 20e9)];
        sum.add(&other);
        sum.add(&Counted { controllers: vec![node(Some(4), 10e9, 5e9)], ..Counted::default() });
        assert_eq!(sum.controllers[0].busiest_read_bytes, 25e9);
        let counts = [Event::NodeLoads, Event::NodeLoadMisses, Event::Cycles].map(|e| sum.of(e));
        assert_eq!(counts, [Some(4e6), Some(1e6), None]);
        let controllers =
            "memory controllers counted, for all programs, GB/s: node 4 20.0 read, 1.00 written";
        assert_eq!(sum.lines(4, 2.0), [NO_METERS, controllers]);
        let joules = "the processors consumed 3.00 J per token, 6 W, for all programs together";
        sum.joules = Some(12.0);
        assert_eq!(sum.lines(4, 2.0), [joules, controllers]);
    }

    #[test]
    fn nodes_are_told_apart_by_their_controllers() {
        let of = |package, node, read_bytes| ControllerCount {
            package,
            node,
            read_bytes,
            written_bytes: 1.0,
            ..ControllerCount::default()
        };
        let two = Counted {
            controllers: vec![of(0, Some(0), 5.0), of(1, Some(1), 7.0), of(2, Some(1), 2.0)],
            ..Counted::default()
        };
        let nodes = [Some(NodeId(1)), Some(NodeId(0))];
        assert_eq!(two.reads_of(&nodes), Some(vec![9.0, 5.0]));
        // Virtual nodes, a node without a controller, no controllers at all.
        assert_eq!(two.reads_of(&[Some(NodeId(0)), Some(NodeId(0))]), None);
        assert_eq!(two.reads_of(&[Some(NodeId(0)), Some(NodeId(2))]), None);
        assert_eq!(Counted::default().reads_of(&[None]), None);
        // A machine with one node.
        assert_eq!(two.reads_of(&[None]), Some(vec![14.0]));
    }

    #[test]
    fn one_line_says_why_there_are_none() {
        let no = |why: &str| Counted { unavailable: vec![why.to_owned()], ..Counted::default() };
        let mut none = no("perf is forbidden");
        none.add(&no("perf is forbidden"));
        none.add(&no("no controller"));
        let text =
            "what the memory's controllers read is not counted: perf is forbidden; no controller";
        assert_eq!(none.lines(1, 1.0), [NO_METERS, text]);
        assert_eq!(Counted::default().lines(1, 1.0), [NO_METERS]);
    }
}
