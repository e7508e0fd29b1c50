//! The machine's own counters, where the kernel lets this process read them: what the cores did for some threads,
//! what the kernel did for them, and bytes that passed the memory controllers.
//!
//! [`Counters`] counts for given threads. Events of the kernel's software are there in every machine, those of the
//! CPU's counters in few virtual machines and containers. [`Controllers`] counts what all programs together read and
//! write, since a memory controller does not know for whom it works. [`Unavailable`] says why something is not to be
//! had, and the caller goes on without.
//!
//! Limits: the generic events mean what the kernel's table for the CPU says they mean, and many
//! CPUs lack some. Controllers are known of Intel servers (`uncore_imc`, free-running or not) and
//! AMD from Zen 4 (`amd_umc`). Their encodings are tested against made-up trees only.
//!
//! Source: `perf_event_open(2)`; the kernel's `Documentation/ABI/testing/
//! sysfs-bus-event_source-devices-events` and `-format`.

mod perf;
mod sysfs;

use std::collections::BTreeMap;
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

/// An event that cannot be counted for threads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {error}: {why}", event.name())]
pub struct Refusal {
    /// Which.
    pub event: Event,
    /// The kernel's word for it.
    pub error: String,
    /// What it means here, and what helps.
    pub why: String,
}

/// What is counted for a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// Instructions that were completed (`instructions`).
    Instructions,
    /// Cycles of the core (`cycles`).
    Cycles,
    /// Cycles of the bus, whose rate does not change with the core's (`bus-cycles`).
    BusCycles,
    /// Loads that looked into the last cache (`LLC-loads`).
    CacheLoads,
    /// Of these, that did not find their line there (`LLC-load-misses`).
    CacheLoadMisses,
    /// Loads that looked into the buffer of translations (`dTLB-loads`).
    TlbLoads,
    /// Of these, that did not find their page there (`dTLB-load-misses`).
    TlbLoadMisses,
    /// Loads that were served by memory (`node-loads`).
    NodeLoads,
    /// Of these, by the memory of another node (`node-load-misses`).
    NodeLoadMisses,
    /// Nanoseconds on a core (`task-clock`), by the kernel.
    TaskClock,
    /// Pages that were touched for the first time, or had to be mapped anew (`page-faults`), by the kernel.
    PageFaults,
    /// Times that the core went to another thread (`context-switches`), by the kernel.
    ContextSwitches,
}

impl Event {
    /// All of them.
    pub const ALL: [Event; 12] = [
        Event::Instructions,
        Event::Cycles,
        Event::BusCycles,
        Event::CacheLoads,
        Event::CacheLoadMisses,
        Event::TlbLoads,
        Event::TlbLoadMisses,
        Event::NodeLoads,
        Event::NodeLoadMisses,
        Event::TaskClock,
        Event::PageFaults,
        Event::ContextSwitches,
    ];

    /// As `perf list` has it.
    pub fn name(self) -> &'static str {
        match self {
            Event::Instructions => "instructions",
            Event::Cycles => "cycles",
            Event::BusCycles => "bus-cycles",
            Event::CacheLoads => "LLC-loads",
            Event::CacheLoadMisses => "LLC-load-misses",
            Event::TlbLoads => "dTLB-loads",
            Event::TlbLoadMisses => "dTLB-load-misses",
            Event::NodeLoads => "node-loads",
            Event::NodeLoadMisses => "node-load-misses",
            Event::TaskClock => "task-clock",
            Event::PageFaults => "page-faults",
            Event::ContextSwitches => "context-switches",
        }
    }

    /// `PERF_TYPE_HARDWARE`, `_SOFTWARE` and `_HW_CACHE` with their numbers. Of the last: the cache, the operation (0, a
    /// read) and the result (1, a miss), a byte each.
    fn attr(self) -> Attr {
        const HARDWARE: u32 = 0;
        const SOFTWARE: u32 = 1;
        const HW_CACHE: u32 = 3;
        let (last_level, data_tlb, node, miss) = (2, 3, 6, 1 << 16);
        let (kind, config) = match self {
            Event::Cycles => (HARDWARE, 0),
            Event::Instructions => (HARDWARE, 1),
            Event::BusCycles => (HARDWARE, 6),
            Event::TaskClock => (SOFTWARE, 1),
            Event::PageFaults => (SOFTWARE, 2),
            Event::ContextSwitches => (SOFTWARE, 3),
            Event::CacheLoads => (HW_CACHE, last_level),
            Event::CacheLoadMisses => (HW_CACHE, last_level | miss),
            Event::TlbLoads => (HW_CACHE, data_tlb),
            Event::TlbLoadMisses => (HW_CACHE, data_tlb | miss),
            Event::NodeLoads => (HW_CACHE, node),
            Event::NodeLoadMisses => (HW_CACHE, node | miss),
        };
        Attr { kind, config: [config, 0] }
    }

    /// Whether it happens in the kernel, and is not seen by a counter of user code.
    fn is_of_kernel(self) -> bool {
        self == Event::ContextSwitches
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

/// Counters of some threads, at work in user code.
#[derive(Debug)]
pub struct Counters {
    /// One counter per thread.
    open: Vec<(Event, Vec<Counter>)>,
    refused: Vec<Refusal>,
}

impl Counters {
    /// For threads of this process by their numbers in the kernel (0: the caller), and those that they start. What
    /// cannot be counted is in [`Self::refused`].
    pub fn of_threads(threads: &[i32]) -> Self {
        let (mut open, mut refused) = (Vec::new(), Vec::new());
        for event in Event::ALL {
            let counter =
                |&thread: &i32| Counter::of_thread(event.attr(), thread, event.is_of_kernel());
            match threads.iter().map(counter).collect::<Result<Vec<_>, _>>() {
                Ok(counters) => open.push((event, counters)),
                Err(e) => {
                    let (error, why) = perf::reason(&e);
                    refused.push(Refusal { event, error, why });
                }
            }
        }
        Self { open, refused }
    }

    /// Which events are counted.
    pub fn events(&self) -> impl Iterator<Item = Event> + '_ {
        self.open.iter().map(|(event, _)| *event)
    }

    /// Which are not, and why.
    pub fn refused(&self) -> &[Refusal] {
        &self.refused
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
    /// How many controllers of the package count.
    pub controllers: usize,
    /// Bytes read by the busiest of them.
    pub busiest_read_bytes: f64,
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
                let counter = Counter::of_cpu(event.attr, cpu.0).map_err(|e| {
                    let (error, why) = perf::reason(&e);
                    Unavailable { reason: format!("{}: {error}: {why}", event.name) }
                })?;
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
        let count = |c: &Channel| {
            Ok((c.package, c.node, c.writes, c.counter.read().map_err(lost)? * c.bytes))
        };
        Ok(sums(&self.open.iter().map(count).collect::<Result<Vec<_>, _>>()?))
    }
}

/// Bytes of controllers' counters (of which package and node, whether of writes) by package. A controller has one counter
/// of reads.
fn sums(counts: &[(u32, Option<NodeId>, bool, f64)]) -> Vec<Traffic> {
    let mut sums = BTreeMap::new();
    for &(package, node, writes, bytes) in counts {
        let sum = sums.entry(package).or_insert(Traffic {
            package,
            node,
            read_bytes: 0.0,
            written_bytes: 0.0,
            controllers: 0,
            busiest_read_bytes: 0.0,
        });
        if writes {
            sum.written_bytes += bytes;
        } else {
            sum.read_bytes += bytes;
            sum.controllers += 1;
            sum.busiest_read_bytes = sum.busiest_read_bytes.max(bytes);
        }
    }
    sums.into_values().collect()
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
        let mut counters = Counters::of_threads(&[0]);
        assert_eq!(counters.events().count() + counters.refused().len(), Event::ALL.len());
        counters.start().unwrap();
        let mut sum = 0_u64;
        for i in 0..20_000_000_u64 {
            sum = std::hint::black_box(sum + i);
        }
        let counts = counters.read().unwrap();
        assert_eq!(counts.len(), counters.events().count());
        assert!(counts.iter().all(|c| c.count >= 0.0), "{counts:?}");
        for refusal in counters.refused() {
            assert!(
                refusal.to_string().starts_with(&format!("{}: ", refusal.event.name())),
                "{refusal}"
            );
        }
        // Of the kernel's software, which needs no counters of the CPU.
        let of = |event| counts.iter().find(|c| c.event == event).map(|c| c.count);
        if let Some(nanos) = of(Event::TaskClock) {
            assert!(nanos > 1e6, "{counts:?}");
        }
        if let Some(instructions) = of(Event::Instructions) {
            assert!(instructions > 20e6, "{counts:?}");
        }
    }

    #[test]
    fn events_have_the_kernels_numbers() {
        // `perf_event.h`: PERF_TYPE_HARDWARE 0, HW_CACHE 3; PERF_COUNT_HW_BUS_CYCLES 6, HW_CACHE_DTLB 3.
        let of = |event: Event| (event.attr().kind, event.attr().config[0]);
        assert_eq!(of(Event::BusCycles), (0, 6));
        assert_eq!([Event::TlbLoads, Event::TlbLoadMisses].map(of), [(3, 3), (3, 3 | 1 << 16)]);
        let mut all = Event::ALL.map(of);
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0] != pair[1]), "{all:?}");
    }

    #[test]
    fn switches_of_threads_are_counted_where_the_kernel_may_be() {
        let counters = Counters::of_threads(&[0]);
        if !counters.events().any(|event| event == Event::ContextSwitches) {
            eprintln!("not tested here: {:?}", counters.refused());
            return;
        }
        let mut counters = counters;
        counters.start().unwrap();
        (0..20).for_each(|_| std::thread::sleep(std::time::Duration::from_micros(200)));
        let counts = counters.read().unwrap();
        let switches = counts.iter().find(|c| c.event == Event::ContextSwitches).unwrap().count;
        assert!(switches >= 20.0, "{counts:?}");
    }

    #[test]
    fn controllers_add_up_by_package_and_the_busiest_is_told() {
        let (own, other) = (Some(NodeId(0)), Some(NodeId(1)));
        let counts = [
            (0, own, false, 5.0),
            (0, own, false, 9.0),
            (0, own, true, 3.0),
            (1, other, false, 4.0),
        ];
        let of = |package, node, read_bytes, written_bytes, controllers, busiest_read_bytes| {
            Traffic { package, node, read_bytes, written_bytes, controllers, busiest_read_bytes }
        };
        assert_eq!(sums(&counts), [of(0, own, 14.0, 3.0, 2, 9.0), of(1, other, 4.0, 0.0, 1, 4.0)]);
    }

    #[test]
    fn this_machine_has_controllers_or_says_why_not() {
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
