//! The machine's own counters, where the kernel lets this process read them: loads that went to
//! memory and to other nodes, and bytes that passed the memory controllers.
//!
//! [`Counters`] counts for one thread or for all of this process. [`Controllers`] counts what all
//! programs together read and write, since a memory controller does not know for whom it works.
//! Neither is there in most virtual machines and containers; [`Unavailable`] says why not, and the
//! caller goes on without.
//!
//! Limits: the generic events mean what the kernel's table for the CPU says they mean, and many
//! CPUs lack some. Controllers are known of Intel servers (`uncore_imc`, free-running or not) and
//! AMD from Zen 4 (`amd_umc`). Their encodings are tested against made-up trees only.
//!
//! Source: `perf_event_open(2)`; the kernel's `Documentation/ABI/testing/
//! sysfs-bus-event_source-devices-events` and `-format`.

mod perf;
mod sysfs;

use std::fs;
use std::path::Path;

use topology::{CpuList, Machine, NodeId};

use perf::{Attr, Counter};

/// Why there is nothing to read: not a fault, but a property of the machine or its settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Unavailable {
    /// What is missing, and what would help.
    pub reason: String,
}

/// What a CPU counts for a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// Loads that were served by memory (`node-loads`).
    NodeLoads,
    /// Of these, by the memory of another node (`node-load-misses`).
    NodeLoadMisses,
    /// Loads that looked into the last cache (`LLC-loads`).
    CacheLoads,
    /// Of these, that did not find their line there (`LLC-load-misses`).
    CacheLoadMisses,
}

impl Event {
    /// All of them.
    pub const ALL: [Event; 4] =
        [Event::NodeLoads, Event::NodeLoadMisses, Event::CacheLoads, Event::CacheLoadMisses];

    /// As `perf list` has it.
    pub fn name(self) -> &'static str {
        match self {
            Event::NodeLoads => "node-loads",
            Event::NodeLoadMisses => "node-load-misses",
            Event::CacheLoads => "LLC-loads",
            Event::CacheLoadMisses => "LLC-load-misses",
        }
    }

    /// `PERF_TYPE_HW_CACHE`: the cache, the operation (0, a read) and the result (1, a miss), a
    /// byte each.
    fn attr(self) -> Attr {
        const HW_CACHE: u32 = 3;
        let (last_level, node, miss) = (2, 6, 1 << 16);
        let config = match self {
            Event::NodeLoads => node,
            Event::NodeLoadMisses => node | miss,
            Event::CacheLoads => last_level,
            Event::CacheLoadMisses => last_level | miss,
        };
        Attr { kind: HW_CACHE, config: [config, 0] }
    }
}

/// A count since [`Counters::start`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// What was counted.
    pub event: Event,
    /// How often, extrapolated when the CPU had to share its counters among more events.
    pub count: f64,
}

/// Counters of a thread, or of all threads of this process, at work in user code.
#[derive(Debug)]
pub struct Counters {
    /// One counter per thread.
    open: Vec<(Event, Vec<Counter>)>,
}

impl Counters {
    /// For the calling thread.
    ///
    /// # Errors
    /// None of the events can be counted.
    pub fn of_this_thread() -> Result<Self, Unavailable> {
        Self::open(&[0])
    }

    /// For all threads of this process: those that there are, and those that they start.
    ///
    /// # Errors
    /// None of the events can be counted.
    pub fn of_process() -> Result<Self, Unavailable> {
        let tasks = fs::read_dir("/proc/self/task").map(|entries| {
            let names = entries.flatten().map(|entry| entry.file_name());
            names.filter_map(|name| name.to_str()?.parse().ok()).collect::<Vec<i32>>()
        });
        match tasks {
            Ok(tasks) if !tasks.is_empty() => Self::open(&tasks),
            _ => Err(Unavailable { reason: "/proc/self/task does not list threads".into() }),
        }
    }

    fn open(threads: &[i32]) -> Result<Self, Unavailable> {
        let mut open = Vec::new();
        let mut refusal = None;
        for event in Event::ALL {
            // A thread may have ended meanwhile (ESRCH); its counts went with it.
            let counters = threads
                .iter()
                .map(|&thread| Counter::of_thread(event.attr(), thread))
                .filter(|c| !matches!(c, Err(e) if e.raw_os_error() == Some(libc::ESRCH)))
                .collect::<Result<Vec<_>, _>>();
            match counters {
                Ok(counters) if !counters.is_empty() => open.push((event, counters)),
                Ok(_) => {}
                Err(e) => refusal = refusal.or(Some(perf::reason(event.name(), &e))),
            }
        }
        if open.is_empty() {
            let reason = refusal.unwrap_or_else(|| "there is no thread to count for".into());
            return Err(Unavailable { reason });
        }
        Ok(Self { open })
    }

    /// Which events this CPU has.
    pub fn events(&self) -> impl Iterator<Item = Event> + '_ {
        self.open.iter().map(|(event, _)| *event)
    }

    /// Begins to count, from zero.
    ///
    /// # Errors
    /// The kernel takes a counter away.
    pub fn start(&mut self) -> Result<(), Unavailable> {
        let mut counters = self.open.iter().flat_map(|(_, counters)| counters);
        counters.try_for_each(Counter::start).map_err(lost)
    }

    /// The counts so far; counting goes on.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn read(&self) -> Result<Vec<Reading>, Unavailable> {
        let sum = |(event, counters): &(Event, Vec<Counter>)| {
            let counts = counters.iter().map(Counter::read);
            Ok(Reading { event: *event, count: counts.sum::<Result<f64, _>>().map_err(lost)? })
        };
        self.open.iter().map(sum).collect()
    }
}

fn lost(e: std::io::Error) -> Unavailable {
    Unavailable { reason: format!("a counter was lost: {e}") }
}

/// What passed the memory controllers of a package since [`Controllers::start`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traffic {
    /// The socket.
    pub package: u32,
    /// Its memory node, if it has just one.
    pub node: Option<NodeId>,
    /// Bytes read from memory.
    pub read_bytes: f64,
    /// Bytes written.
    pub written_bytes: f64,
}

/// The memory controllers' counters, for everything that the machine does.
#[derive(Debug)]
pub struct Controllers {
    open: Vec<Channel>,
}

/// A counter of one controller, as seen from one package.
#[derive(Debug)]
struct Channel {
    counter: Counter,
    package: u32,
    node: Option<NodeId>,
    writes: bool,
    bytes: f64,
}

impl Controllers {
    /// Finds and opens them.
    ///
    /// # Errors
    /// The machine shows none, or this process may not count for others
    /// (`kernel.perf_event_paranoid` above 0 without `CAP_PERFMON`).
    pub fn open(machine: &Machine) -> Result<Self, Unavailable> {
        let found = sysfs::controllers(Path::new("/"));
        if found.is_empty() {
            let reason = "no memory controller is known under /sys/bus/event_source/devices";
            return Err(Unavailable { reason: reason.into() });
        }
        let mut open = Vec::new();
        for event in &found {
            for cpu in event.cpus.iter() {
                let counter = Counter::of_cpu(event.attr, cpu.0)
                    .map_err(|e| Unavailable { reason: perf::reason(&event.name, &e) })?;
                let package = machine.cpu(cpu).map_or(0, |c| c.package);
                let node = only_node(machine, package);
                let (writes, bytes) = (event.writes, event.bytes);
                open.push(Channel { counter, package, node, writes, bytes });
            }
        }
        Ok(Self { open })
    }

    /// Begins to count, from zero.
    ///
    /// # Errors
    /// The kernel takes a counter away.
    pub fn start(&mut self) -> Result<(), Unavailable> {
        self.open.iter_mut().try_for_each(|c| c.counter.restart()).map_err(lost)
    }

    /// Bytes so far, by package; counting goes on.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn read(&self) -> Result<Vec<Traffic>, Unavailable> {
        let mut sums = std::collections::BTreeMap::new();
        for channel in &self.open {
            let Channel { package, node, .. } = *channel;
            let zero = Traffic { package, node, read_bytes: 0.0, written_bytes: 0.0 };
            let sum = sums.entry(package).or_insert(zero);
            let bytes = channel.counter.read().map_err(lost)? * channel.bytes;
            *if channel.writes { &mut sum.written_bytes } else { &mut sum.read_bytes } += bytes;
        }
        Ok(sums.into_values().collect())
    }
}

/// The node of a package that has one only.
fn only_node(machine: &Machine, package: u32) -> Option<NodeId> {
    let mut nodes = machine.all_cpus().iter().filter(|c| c.package == package).map(|c| c.node);
    let first = nodes.next()?;
    nodes.all(|node| node == first).then_some(first)
}

/// An event of a memory controller: what [`sysfs::controllers`] finds.
#[derive(Clone, Debug, PartialEq)]
struct ControllerEvent {
    /// `uncore_imc_0/cas_count_read`.
    name: String,
    attr: Attr,
    /// One CPU for each package whose controller this is.
    cpus: CpuList,
    writes: bool,
    /// Bytes per count.
    bytes: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::fake::FakeMachine;

    #[test]
    fn this_machine_counts_or_says_why_not() {
        for counters in [Counters::of_this_thread(), Counters::of_process()] {
            match counters {
                Ok(mut counters) => {
                    counters.start().unwrap();
                    let counts = counters.read().unwrap();
                    assert_eq!(counts.len(), counters.events().count());
                    assert!(counts.iter().all(|c| c.count >= 0.0), "{counts:?}");
                }
                Err(Unavailable { reason }) => {
                    assert!(reason.starts_with("perf_event_open: node-loads: "), "{reason}");
                }
            }
        }
        match Controllers::open(&Machine::read().unwrap()) {
            Ok(mut controllers) => {
                controllers.start().unwrap();
                assert!(!controllers.read().unwrap().is_empty());
            }
            Err(Unavailable { reason }) => assert!(!reason.is_empty()),
        }
    }

    #[test]
    fn a_package_with_several_nodes_has_no_node() {
        let two = FakeMachine::uniform(4, 2).nodes_per_package(2).machine().unwrap();
        assert_eq!((only_node(&two, 0), only_node(&two, 9)), (None, None));
        let one = FakeMachine::uniform(2, 2).machine().unwrap();
        assert_eq!(only_node(&one, 1), Some(NodeId(1)));
    }
}
