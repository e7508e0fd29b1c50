//! Well-known machines as data: every number with where it comes from.
//!
//! *Taken* numbers are published, *derived* ones follow from published ones, *assumed* ones are typical
//! of the hardware, *fitted* ones are chosen so that the model agrees with a published result. What
//! the memory gives is mostly assumed as a share of what its channels could: measure where you can
//! (`arclight topo --bandwidth`).

use crate::machine::{CoreMath, CoreRead, MachineModel, Matrix, parse_matrix};
use crate::simulated::{Fill, Sharing};
use crate::step::Pages;
use crate::waits::WaitModel;
use std::fmt;
use topology::Machine;

/// Where a number comes from.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Published: measured or stated by someone.
    Taken,
    /// Follows from published numbers.
    Derived,
    /// Typical of such hardware; nobody has measured it here.
    Assumed,
    /// Chosen so that the model gives a published result.
    Fitted,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Origin::Taken => "taken",
            Origin::Derived => "derived",
            Origin::Assumed => "assumed",
            Origin::Fitted => "fitted",
        })
    }
}

/// A number and where it comes from.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Figure {
    /// In the unit of its field.
    pub value: f64,
    /// How it was found.
    pub origin: Origin,
    /// By whom, or from what.
    pub from: &'static str,
}

const fn taken(value: f64, from: &'static str) -> Figure {
    Figure { value, origin: Origin::Taken, from }
}
const fn derived(value: f64, from: &'static str) -> Figure {
    Figure { value, origin: Origin::Derived, from }
}
const fn assumed(value: f64, from: &'static str) -> Figure {
    Figure { value, origin: Origin::Assumed, from }
}
const fn fitted(value: f64, from: &'static str) -> Figure {
    Figure { value, origin: Origin::Fitted, from }
}

/// A way to memory that neighbouring cores share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shared {
    /// Number of cores that share it.
    pub cores: Figure,
    /// GB/s that it lets through.
    pub read: Figure,
    /// [`Sharing::crowd`].
    pub crowd: Figure,
}

/// A machine of equal nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownMachine {
    /// As the command line calls it.
    pub name: &'static str,
    /// What it is.
    pub title: &'static str,
    /// Memory nodes.
    pub nodes: usize,
    /// Cores of each.
    pub cores: usize,
    /// Its levels, as [`Machine::from_synthetic`] reads them: what system tools show.
    pub levels: &'static str,
    /// The way to memory that cores share below a node, where it is known.
    pub shared: Option<Shared>,
    /// GB/s that the cores of a node (row) read from a memory (column), where it was published;
    /// otherwise `memory` and `link` say it.
    pub table: Option<&'static str>,
    /// GB/s that a node's memory gives.
    pub memory: Figure,
    /// GB/s that all cores of a node read from another's memory.
    pub link: Figure,
    /// GB/s that a core alone reads from its own node.
    pub core_local: Figure,
    /// GB/s that a core alone reads from another node.
    pub core_remote: Figure,
    /// 10⁹ int8 multiply-accumulates per second of a core's matrix kernels.
    pub int8: Figure,
    /// The same of bf16.
    pub bf16: Figure,
    /// The same of f32.
    pub f32: Figure,
    /// 10⁹ elements of an activation that a core passes over in a second.
    pub elements: Figure,
    /// ns: [`WaitModel::arrival`].
    pub arrival: Figure,
    /// ns: [`WaitModel::remote_arrival`].
    pub remote_arrival: Figure,
    /// ns: [`WaitModel::line`].
    pub line: Figure,
    /// ns: [`WaitModel::remote_line`].
    pub remote_line: Figure,
    /// Share of an unplaced engine's pages that lie on node 0.
    pub home_share: Figure,
    /// Whether this project's kernels were ever timed on cores with its instruction set; without, no multiply rate is
    /// derived from them.
    pub timed: bool,
}

impl KnownMachine {
    /// The figures with their names and units.
    pub fn figures(&self) -> [(&'static str, &'static str, Figure); 13] {
        [
            ("memory of a node", "GB/s", self.memory),
            ("link between nodes", "GB/s", self.link),
            ("core, own memory", "GB/s", self.core_local),
            ("core, other memory", "GB/s", self.core_remote),
            ("core, int8", "GMAC/s", self.int8),
            ("core, bf16", "GMAC/s", self.bf16),
            ("core, f32", "GMAC/s", self.f32),
            ("core, elements", "G/s", self.elements),
            ("arrival, own node", "ns", self.arrival),
            ("arrival, other node", "ns", self.remote_arrival),
            ("line, own node", "ns", self.line),
            ("line, other node", "ns", self.remote_line),
            ("unplaced on node 0", "share", self.home_share),
        ]
    }

    /// The machine as the model sees it.
    pub fn model(&self) -> MachineModel {
        let read = match self.table {
            Some(table) => parse_matrix(table).expect("the tables below are square"),
            None => self.uniform(),
        };
        let core =
            CoreRead { local: self.core_local.value * 1e9, remote: self.core_remote.value * 1e9 };
        let math = CoreMath {
            int8: self.int8.value * 1e9,
            bf16: self.bf16.value * 1e9,
            f32: self.f32.value * 1e9,
            elements: self.elements.value * 1e9,
        };
        let waits = WaitModel {
            arrival: self.arrival.value * 1e-9,
            remote_arrival: self.remote_arrival.value * 1e-9,
            line: self.line.value * 1e-9,
            remote_line: self.remote_line.value * 1e-9,
        };
        MachineModel::new(vec![self.cores; self.nodes], read, core, math, waits)
            .expect("the numbers below are positive")
    }

    /// Its CPUs.
    pub fn machine(&self) -> Machine {
        Machine::from_synthetic(self.levels).expect("the levels below are some")
    }

    /// What its cores share below a node.
    pub fn sharing(&self) -> Option<Sharing> {
        let Shared { cores, read, crowd } = self.shared?;
        let (cores, crowd) = (cores.value as usize, crowd.value);
        Some(Sharing { cores, stride: 1, fill: Fill::Bytes(read.value * 1e9), crowd })
    }

    fn uniform(&self) -> Matrix {
        let cell = |a: usize, b: usize| if a == b { self.memory.value } else { self.link.value };
        let row = |a| (0..self.nodes).map(|b| cell(a, b) * 1e9).collect();
        (0..self.nodes).map(row).collect()
    }

    /// Where the pages of an unplaced engine lie.
    pub fn unplaced(&self) -> Pages {
        let pages = Pages::first_touch(0, self.home_share.value, self.nodes);
        pages.expect("the share lies in 0..=1")
    }
}

/// The machine of this name.
pub fn machine(name: &str) -> Option<&'static KnownMachine> {
    MACHINES.iter().find(|m| m.name.eq_ignore_ascii_case(name))
}

const SHARE: &str = "channels, of which reads get 80 %";
const LINKS: &str = "links in one direction, of which reads get 70 %";
const TYPICAL: &str = "typical of such cores";
const ELEMENTS: Figure =
    assumed(2.0, "as measured on one Zen 5 core: quantising, norms and sums (docs/profile.md)");
const REMOTE_LINE: Figure = taken(400.0, "public discussion of the Xeon 6980P: about 0.4 us");
const X86_ARRIVAL: &str = "a contended addition, which takes the line along";
const NOT_CROWDED: Figure = assumed(0.0, "further cores wait and take nothing from the others");
const ALL_HOME: Figure = assumed(1.0, "one thread touched everything, as Arm saw on its machine");
const KERNEL: &str = "base clock x instructions x 70 %, as our kernels reach on Zen 5";
const NEON: &str = "clock x instructions x 70 %, as our kernels reach on another machine";

/// Every machine that comes with the program.
pub const MACHINES: [KnownMachine; 11] = [
    KnownMachine {
        name: "kunpeng-920",
        title: "4 nodes x 48 cores Kunpeng 920, six DDR4 channels each (ArcLight's machine)",
        nodes: 4,
        cores: 48,
        levels: "numa:4 core:48",
        // Its clusters have tags as well, but table 1 has 102 GB/s with all 48 cores: no contention.
        shared: None,
        table: Some(KUNPENG_920_GB_S),
        memory: taken(102.0, "ArcLight, table 1: 101 to 103"),
        link: taken(24.0, "ArcLight, table 1: 22 to 26"),
        core_local: fitted(2.2, "ArcLight, section 4: one node speeds up until all 48 cores work"),
        core_remote: fitted(
            1.85,
            "ArcLight, section 4: slightly ahead of spread pages on one node",
        ),
        int8: assumed(58.0, "2.6 GHz x 2 sdot x 16 x 70 %"),
        bf16: assumed(14.5, "widened: as f32"),
        f32: assumed(14.5, "2.6 GHz x 8 x 70 %"),
        elements: ELEMENTS,
        arrival: fitted(3.0, "ArcLight, section 4: Sync B gains about 5 tokens/s"),
        remote_arrival: assumed(3.0, "far atomics are executed where the line lives"),
        line: assumed(60.0, "a transfer through a die's cache"),
        remote_line: REMOTE_LINE,
        home_share: fitted(0.53, "ArcLight, abstract: up to 46 % ahead"),
        timed: false,
    },
    KnownMachine {
        name: "kunpeng-920-8",
        title: "8 nodes x 24 cores Kunpeng 920, four sockets (Sandwich's machine; eight DDR4-2933 each)",
        nodes: 8,
        cores: 24,
        levels: "pack:4 numa:2 core:24",
        shared: Some(Shared {
            cores: taken(4.0, "Sandwich, section 4.2: four cores of a cluster share an L3 tag"),
            read: assumed(
                9.6,
                "three cores fill it: its example leaves one of four out; no size is stated",
            ),
            crowd: assumed(0.2, "it states contention and no size: the fourth core costs a sixth"),
        }),
        table: None,
        memory: derived(
            75.1,
            "WikiChip, 920-4826: eight channels a socket; four for a node, of which reads get 80 %",
        ),
        link: assumed(24.0, "as between sockets of ArcLight's machine: table 1, 22 to 26"),
        core_local: assumed(3.2, "so many that a node's cores fill its memory"),
        core_remote: assumed(1.85, "as ArcLight's machine"),
        int8: assumed(58.0, "2.6 GHz x 2 sdot x 16 x 70 %"),
        bf16: assumed(14.5, "widened: as f32"),
        f32: assumed(14.5, "2.6 GHz x 8 x 70 %"),
        elements: ELEMENTS,
        arrival: assumed(3.0, "as ArcLight's machine"),
        remote_arrival: assumed(3.0, "as ArcLight's machine"),
        line: assumed(60.0, "a transfer through a die's cache"),
        remote_line: REMOTE_LINE,
        home_share: ALL_HOME,
        timed: false,
    },
    KnownMachine {
        name: "neoverse-n2",
        title: "2 nodes x 64 cores Neoverse N2 (Arm's machine for llama.cpp)",
        nodes: 2,
        cores: 64,
        levels: "numa:2 core:64",
        shared: None,
        table: None,
        memory: taken(119.8, "Arm: STREAM on one node"),
        link: fitted(55.0, "Arm: 70.6 GB/s with 128 threads and all pages on node 0"),
        core_local: fitted(5.1, "Arm: 41.15 tokens/s with 40 threads"),
        core_remote: assumed(5.1, "as local"),
        int8: fitted(55.0, "Arm: 48.73 tokens/s, prompt and answer, with 36 threads"),
        bf16: assumed(27.0, "half of int8"),
        f32: assumed(12.0, TYPICAL),
        elements: ELEMENTS,
        arrival: fitted(150.0, "Arm: 104.9 GB/s with 64 threads on one node"),
        remote_arrival: fitted(450.0, "Arm: 74.4 + 72.2 GB/s with 128 threads"),
        line: assumed(60.0, "a transfer through the mesh"),
        remote_line: REMOTE_LINE,
        home_share: taken(1.0, "Arm: 70.6 GB/s from node 0, 0.2 from node 1"),
        timed: false,
    },
    KnownMachine {
        name: "xeon-6151",
        title: "2 x Xeon Gold 6151, 18 cores each (six DDR4-2666)",
        nodes: 2,
        cores: 18,
        levels: "numa:2 core:18",
        shared: None,
        table: None,
        memory: derived(102.4, SHARE),
        link: derived(43.7, LINKS),
        core_local: assumed(10.0, TYPICAL),
        core_remote: assumed(6.0, TYPICAL),
        int8: derived(89.6, "3.0 GHz x 2 x 64 in three instructions (no VNNI) x 70 %"),
        bf16: derived(67.2, "widened: as f32"),
        f32: derived(67.2, KERNEL),
        elements: ELEMENTS,
        arrival: assumed(25.0, X86_ARRIVAL),
        remote_arrival: assumed(150.0, X86_ARRIVAL),
        line: assumed(60.0, "a transfer through the mesh"),
        remote_line: assumed(150.0, "a transfer over UPI"),
        home_share: ALL_HOME,
        timed: true,
    },
    KnownMachine {
        name: "xeon-6230",
        title: "2 x Xeon Gold 6230, 20 cores each (six DDR4-2933)",
        nodes: 2,
        cores: 20,
        levels: "numa:2 core:20",
        shared: None,
        table: None,
        memory: derived(112.6, SHARE),
        link: derived(43.7, LINKS),
        core_local: assumed(10.0, TYPICAL),
        core_remote: assumed(6.0, TYPICAL),
        int8: derived(188.0, KERNEL),
        bf16: derived(47.0, "widened: as f32"),
        f32: derived(47.0, KERNEL),
        elements: ELEMENTS,
        arrival: assumed(25.0, X86_ARRIVAL),
        remote_arrival: assumed(150.0, X86_ARRIVAL),
        line: assumed(60.0, "a transfer through the mesh"),
        remote_line: assumed(150.0, "a transfer over UPI"),
        home_share: ALL_HOME,
        timed: true,
    },
    KnownMachine {
        name: "xeon-8272cl",
        title: "2 x Xeon Platinum 8272CL, 24 cores each as Sandwich counts (six DDR4-2933)",
        nodes: 2,
        cores: 24,
        levels: "numa:2 core:24",
        shared: None,
        table: None,
        memory: derived(112.6, SHARE),
        link: derived(43.7, LINKS),
        core_local: assumed(10.0, TYPICAL),
        core_remote: assumed(6.0, TYPICAL),
        int8: derived(233.0, KERNEL),
        bf16: derived(58.0, "widened: as f32"),
        f32: derived(58.0, KERNEL),
        elements: ELEMENTS,
        arrival: assumed(25.0, X86_ARRIVAL),
        remote_arrival: assumed(150.0, X86_ARRIVAL),
        line: assumed(60.0, "a transfer through the mesh"),
        remote_line: assumed(150.0, "a transfer over UPI"),
        home_share: ALL_HOME,
        timed: true,
    },
    KnownMachine {
        name: "epyc-7h12",
        title: "2 x EPYC 7H12, 64 cores each, one node per socket (eight DDR4-3200)",
        nodes: 2,
        cores: 64,
        levels: "numa:2 l3:16 core:4",
        shared: Some(Shared {
            cores: taken(4.0, "AMD: an L3 cache of four cores"),
            read: assumed(
                23.5,
                "a die's link reads 32 bytes a cycle of 1.467 GHz; half for each of its caches",
            ),
            crowd: NOT_CROWDED,
        }),
        table: None,
        memory: derived(163.8, SHARE),
        link: derived(89.6, LINKS),
        core_local: assumed(15.0, TYPICAL),
        core_remote: assumed(9.0, TYPICAL),
        int8: derived(58.0, "2.6 GHz, 32 in two multiplying instructions of AVX2, x 70 %"),
        bf16: derived(29.0, "widened: as f32"),
        f32: derived(29.0, KERNEL),
        elements: ELEMENTS,
        arrival: assumed(50.0, X86_ARRIVAL),
        remote_arrival: assumed(200.0, X86_ARRIVAL),
        line: assumed(95.0, "between core complexes: 94 to 100 ns on a dual EPYC 9274F"),
        remote_line: assumed(200.0, "over xGMI: 188 to 195 ns on a dual EPYC 9274F"),
        home_share: ALL_HOME,
        timed: true,
    },
    KnownMachine {
        name: "epyc-9654",
        title: "2 x EPYC 9654, 96 cores each, one node per socket (twelve DDR5-4800)",
        nodes: 2,
        cores: 96,
        levels: "numa:2 l3:12 core:8",
        shared: Some(Shared {
            cores: taken(8.0, "AMD: an L3 cache of eight cores"),
            read: assumed(57.6, "a die's link reads 32 bytes a cycle of 1.8 GHz"),
            crowd: NOT_CROWDED,
        }),
        table: None,
        memory: derived(368.6, SHARE),
        link: derived(
            179.2,
            "four xGMI, 512 GB/s both ways (Lenovo LP1852), of which reads get 70 %",
        ),
        core_local: assumed(20.0, TYPICAL),
        core_remote: assumed(12.0, TYPICAL),
        int8: derived(107.0, KERNEL),
        bf16: derived(54.0, KERNEL),
        f32: derived(27.0, KERNEL),
        elements: ELEMENTS,
        arrival: assumed(50.0, X86_ARRIVAL),
        remote_arrival: assumed(200.0, X86_ARRIVAL),
        line: assumed(95.0, "between core complexes: 94 to 100 ns on a dual EPYC 9274F"),
        remote_line: assumed(195.0, "over xGMI: 188 to 195 ns on a dual EPYC 9274F"),
        home_share: ALL_HOME,
        timed: true,
    },
    KnownMachine {
        name: "xeon-6980p",
        title: "2 x Xeon 6980P, 128 cores each, one node per socket",
        nodes: 2,
        cores: 128,
        levels: "numa:2 core:128",
        shared: None,
        table: None,
        memory: taken(554.0, "public discussion: 554 GB/s local"),
        link: taken(247.0, "public discussion: 247 GB/s remote"),
        core_local: assumed(12.0, TYPICAL),
        core_remote: assumed(7.0, TYPICAL),
        int8: derived(179.0, "2.0 GHz x 128 (VNNI, no AMX) x 70 %"),
        bf16: derived(90.0, "2.0 GHz x 64 (no AMX) x 70 %"),
        f32: derived(45.0, KERNEL),
        elements: ELEMENTS,
        arrival: assumed(25.0, X86_ARRIVAL),
        remote_arrival: taken(430.0, "public discussion: a remote transfer of 0.43 us"),
        line: assumed(80.0, "a transfer through the mesh"),
        remote_line: taken(430.0, "public discussion: a remote transfer of 0.43 us"),
        home_share: ALL_HOME,
        timed: true,
    },
    KnownMachine {
        name: "graviton4",
        title: "2 x Graviton4, 96 cores each (twelve DDR5-5600)",
        nodes: 2,
        cores: 96,
        levels: "numa:2 core:96",
        shared: None,
        table: None,
        memory: derived(430.1, SHARE),
        link: assumed(145.0, "nothing published: a third of the memory"),
        core_local: assumed(16.0, TYPICAL),
        core_remote: assumed(9.0, TYPICAL),
        int8: derived(251.0, NEON),
        bf16: derived(125.0, NEON),
        f32: derived(31.0, NEON),
        elements: ELEMENTS,
        arrival: assumed(15.0, "far atomics in the mesh"),
        remote_arrival: assumed(45.0, "three times local, as fitted for Neoverse N2"),
        line: taken(45.0, "Chips and Cheese: 30 to 60 ns"),
        remote_line: taken(138.6, "Chips and Cheese: 138.6 ns on average"),
        home_share: ALL_HOME,
        timed: false,
    },
    KnownMachine {
        name: "grace",
        title: "Grace CPU Superchip: 2 nodes x 72 cores (LPDDR5X)",
        nodes: 2,
        cores: 72,
        levels: "numa:2 core:72",
        shared: None,
        table: None,
        memory: derived(409.6, "up to 512 GB/s per CPU, of which reads get 80 %"),
        link: derived(315.0, "NVLink-C2C, 900 GB/s both ways, of which reads get 70 %"),
        core_local: assumed(20.0, TYPICAL),
        core_remote: assumed(12.0, TYPICAL),
        int8: derived(278.0, NEON),
        bf16: derived(139.0, NEON),
        f32: derived(35.0, NEON),
        elements: ELEMENTS,
        arrival: assumed(15.0, "far atomics in the mesh"),
        remote_arrival: assumed(45.0, "three times local, as fitted for Neoverse N2"),
        line: assumed(45.0, "as Graviton4, whose mesh is alike"),
        remote_line: assumed(140.0, "as Graviton4"),
        home_share: ALL_HOME,
        timed: false,
    },
];

/// GB/s that the cores of a node (row) read from a memory (column). Taken: ArcLight, table 1.
const KUNPENG_920_GB_S: &str = "
    102  26  24  23
     26 103  23  22
     24  23 103  26
     23  22  26 101
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::Simulated;

    #[test]
    fn every_machine_is_one() {
        for known in &MACHINES {
            let model = known.model();
            assert_eq!((model.nodes(), model.cores()[0]), (known.nodes, known.cores));
            let cpus = known.machine();
            assert_eq!(
                (cpus.nodes().len(), cpus.usable_cores()),
                (known.nodes, model.cores().iter().sum())
            );
            let sharing: Vec<Sharing> = known.sharing().into_iter().collect();
            assert!(Simulated::new(&cpus, model, &sharing).is_ok(), "{}", known.name);
            assert_eq!(known.unplaced().shares().len(), known.nodes);
            assert_eq!(machine(&known.name.to_uppercase()), Some(known));
            // A machine whose cores could not fill its memory, or whose links were as fast as its
            // memory, would be a slip of the pen.
            let cores = known.cores as f64 * known.core_local.value;
            assert!(cores > 0.99 * known.memory.value, "{}", known.name);
            assert!(known.link.value < known.memory.value, "{}", known.name);
            assert!(known.int8.value >= known.bf16.value && known.bf16.value >= known.f32.value);
            assert!(known.remote_line.value > known.line.value, "{}", known.name);
            for (what, _, figure) in known.figures() {
                assert!(figure.value > 0.0 && !figure.from.is_empty(), "{}: {what}", known.name);
            }
        }
        assert_eq!(machine("pdp-11"), None);
    }

    #[test]
    fn derived_numbers_follow_from_what_is_published() {
        let memory = |name| machine(name).unwrap().memory.value;
        // Channels x MT/s x 8 bytes x 80 %.
        let channels = |n: f64, mega: f64| n * mega * 8e-3 * 0.8;
        assert!((memory("xeon-8272cl") - channels(6.0, 2933.0)).abs() < 0.1);
        assert!((memory("xeon-6151") - channels(6.0, 2666.0)).abs() < 0.5);
        assert!((memory("xeon-6230") - channels(6.0, 2933.0)).abs() < 0.1);
        assert!((memory("kunpeng-920-8") - channels(4.0, 2933.0)).abs() < 0.1);
        assert!((memory("epyc-7h12") - channels(8.0, 3200.0)).abs() < 0.1);
        assert!((memory("epyc-9654") - channels(12.0, 4800.0)).abs() < 0.1);
        assert!((memory("graviton4") - channels(12.0, 5600.0)).abs() < 0.1);
        // GT/s x bytes x links x 70 %: three UPI of 10.4 GT/s, four xGMI of 16 lanes at 16 GT/s.
        let link = |name| machine(name).unwrap().link.value;
        assert!((link("xeon-8272cl") - 3.0 * 10.4 * 2.0 * 0.7).abs() < 0.1);
        assert_eq!((link("xeon-6151"), link("xeon-6230")), (43.7, 43.7));
        assert!((link("epyc-7h12") - 4.0 * 16.0 * 2.0 * 0.7).abs() < 0.1);
        // GHz x multiply-accumulates a cycle x 70 %: two ports of VNNI with 512 bits, one with as many
        // bits in two halves, four of smmla; without VNNI three instructions for one.
        let int8 = |name| machine(name).unwrap().int8.value;
        for (name, clock, cycle) in [
            ("xeon-6151", 3.0, 128.0 / 3.0),
            ("xeon-6230", 2.1, 128.0),
            ("xeon-8272cl", 2.6, 128.0),
            ("epyc-9654", 2.4, 64.0),
            ("xeon-6980p", 2.0, 128.0),
            ("graviton4", 2.8, 128.0),
            ("grace", 3.1, 128.0),
        ] {
            assert!((int8(name) - clock * cycle * 0.7).abs() < 1.0, "{name}");
        }
    }
}
