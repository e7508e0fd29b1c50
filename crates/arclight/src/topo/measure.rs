//! How fast every node's cores read every node's memory, and how long one of them waits for a line.
//!
//! For each node with memory: a buffer bound to it, several times as large as the caches of those
//! who will read it, written by the node's own cores. Then for each node with cores: all of them
//! read the buffer together, each a part of its own, again and again for a third of a second; then
//! one of them walks through it at random. Medians of the passes count: what disturbs a pass makes
//! it slower or, by a cache, faster.
//!
//! Limits: one thread per physical core, reading only; nodes are measured one pair at a time, so
//! links that several pairs share are not loaded by more than one. This is how table 1 of the
//! ArcLight paper was taken, as far as it tells.

use crate::error::Error;
use crate::term;
use measure::probe::{self, Buffer};
use memory::{HugePages, Policy};
use serde::Serialize;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use threads::{Pool, PoolSpec, Scope, Worker};
use topology::{CpuId, Group, Machine, Node, NodeId};

/// How thoroughly pairs are measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Time for each pair and quantity.
    enough: Duration,
    /// Whether latency is measured too.
    latency: bool,
}

impl Pace {
    /// For figures that are told.
    pub(crate) const FULL: Pace = Pace { enough: Duration::from_millis(300), latency: true };
    /// For figures that are calculated with: bandwidth only.
    pub(crate) const BRIEF: Pace = Pace { enough: Duration::from_millis(80), latency: false };
}

/// What may be spent when passes are slow.
const TOO_MUCH: Duration = Duration::from_secs(2);
const LEAST_PASSES: usize = 3;

/// A buffer is several times the caches of its readers, but at least this.
const LEAST_BUFFER: u64 = 64 << 20;
const TIMES_CACHES: u64 = 4;
/// A node that cannot spare even this is not measured.
const SMALLEST_BUFFER: u64 = 8 << 20;
/// The part of a buffer that is walked at random. The walk goes on where it ended, so it meets new
/// lines even if the part lay in a cache.
const WALK_BYTES: usize = 256 << 20;
/// Steps of a pass.
const STEPS: usize = 20_000;

/// What was measured. Matrices are `[node with cores][node with memory]`; `None` where the buffer
/// could not be had.
#[derive(Debug, Serialize)]
pub(crate) struct Access {
    pub(crate) readers: Vec<Reader>,
    pub(crate) memories: Vec<Memory>,
    pub(crate) read_bytes_per_second: Vec<Vec<Option<f64>>>,
    pub(crate) latency_nanoseconds: Vec<Vec<Option<f64>>>,
    /// Bytes read for the first matrix.
    pub(crate) bytes_read: u64,
    pub(crate) seconds: f64,
    /// What makes figures less than they seem.
    pub(crate) warnings: Vec<String>,
}

impl Access {
    /// Both matrices cell by cell.
    pub(crate) fn pairs(&self) -> Vec<Pair> {
        let cell = |(at, reader): (usize, &Reader)| {
            let node = reader.node;
            let pair = move |(to, memory): (usize, &Memory)| Pair {
                cores_of_node: node,
                memory_of_node: memory.node,
                read_bytes_per_second: self.read_bytes_per_second[at][to],
                latency_nanoseconds: self.latency_nanoseconds[at][to],
            };
            self.memories.iter().enumerate().map(pair).collect::<Vec<_>>()
        };
        self.readers.iter().enumerate().flat_map(cell).collect()
    }
}

/// What the cores of a node have of the memory of a node.
#[derive(Debug, Serialize)]
pub(crate) struct Pair {
    cores_of_node: NodeId,
    memory_of_node: NodeId,
    read_bytes_per_second: Option<f64>,
    latency_nanoseconds: Option<f64>,
}

/// A node whose cores read.
#[derive(Debug, Serialize)]
pub(crate) struct Reader {
    pub(crate) node: NodeId,
    /// One for each core that took part.
    pub(crate) cpus: Vec<CpuId>,
}

/// A node whose memory was read.
#[derive(Debug, Serialize)]
pub(crate) struct Memory {
    pub(crate) node: NodeId,
    pub(crate) buffer_bytes: u64,
    pub(crate) huge_bytes: u64,
    /// Pages of the buffer on other nodes, where the kernel tells.
    pub(crate) pages_elsewhere: Option<u64>,
}

/// Measures all pairs of nodes that the machine has and may use.
pub(crate) fn access(machine: &Machine, pace: Pace) -> Result<Access, Error> {
    let start = Instant::now();
    let mut warnings = Vec::new();
    let readers = readers(machine, &mut warnings);
    let mut teams = readers.iter().map(Team::new).collect::<Result<Vec<_>, _>>()?;
    let wanted = buffer_bytes(machine, &readers);
    let usable = |n: &&Node| n.has_memory && n.memory_allowed;
    let nodes: Vec<NodeId> = machine.nodes().iter().filter(usable).map(|n| n.id).collect();

    let pairs = readers.len() * nodes.len();
    let bar = term::count_bar("pairs", pairs);
    let mut memories = Vec::new();
    let mut bytes_read = 0;
    let mut read = vec![vec![]; teams.len()];
    let mut latency = vec![vec![]; teams.len()];
    for &node in &nodes {
        let home = nearest(machine, &readers, node);
        let buffer = place(machine, node, wanted, &mut teams[home], &mut warnings)?;
        for (reader, team) in teams.iter_mut().enumerate() {
            let mut cell = |buffer: &Buffer| -> Result<(f64, Option<f64>), Error> {
                let (rate, bytes) = team.read(buffer, pace.enough)?;
                bytes_read += bytes;
                let wait = pace.latency.then(|| team.walk(buffer, pace.enough)).transpose()?;
                Ok((rate, wait))
            };
            let cell = buffer.as_ref().map(&mut cell).transpose()?;
            read[reader].push(cell.map(|(rate, _)| rate));
            latency[reader].push(cell.and_then(|(_, wait)| wait));
            bar.inc(1);
        }
        memories.push(describe(node, buffer.as_ref(), machine.has_nodes(), &mut warnings));
    }
    bar.finish_and_clear();
    warnings.extend(teams.iter().flat_map(|t| t.pool.warnings()).map(ToString::to_string));
    Ok(Access {
        readers,
        memories,
        read_bytes_per_second: read,
        latency_nanoseconds: latency,
        bytes_read,
        seconds: start.elapsed().as_secs_f64(),
        warnings,
    })
}

/// One CPU of each core that may be used.
pub(super) fn cores(machine: &Machine) -> Vec<CpuId> {
    let mut seen = BTreeSet::new();
    machine.cpus().iter().filter(|cpu| seen.insert(cpu.core)).map(|cpu| cpu.id).collect()
}

/// One CPU of each core that may be used, by node, as far as the quota lets them run.
fn readers(machine: &Machine, warnings: &mut Vec<String>) -> Vec<Reader> {
    let mut readers = Vec::new();
    for node in machine.nodes() {
        let mut seen = BTreeSet::new();
        let own = node.cpus.iter().filter_map(|&id| machine.cpu(id));
        let mut cpus: Vec<CpuId> = own.filter(|c| seen.insert(c.core)).map(|c| c.id).collect();
        let most = machine.quota().map_or(usize::MAX, |quota| quota as usize).max(1);
        if cpus.len() > most {
            warnings.push(format!(
                "{most} of node {}'s {} cores take part: more would exceed the quota of cpu time",
                node.id,
                cpus.len()
            ));
            cpus.truncate(most);
        }
        if !cpus.is_empty() {
            readers.push(Reader { node: node.id, cpus });
        }
    }
    readers
}

/// Several times the caches of the node that has most of them.
fn buffer_bytes(machine: &Machine, readers: &[Reader]) -> u64 {
    let of = |reader: &Reader| -> u64 {
        let cpus = reader.cpus.iter().filter_map(|&id| machine.cpu(id));
        let ids: BTreeSet<_> = cpus.flat_map(|c| [c.l2, c.l3]).flatten().collect();
        ids.into_iter().filter_map(|id| machine.cache(id)).map(|c| c.size_bytes).sum()
    };
    let caches = readers.iter().map(of).max().unwrap_or(0);
    (TIMES_CACHES * caches).max(LEAST_BUFFER)
}

/// The reader nearest to a node: itself, if it has cores.
fn nearest(machine: &Machine, readers: &[Reader], node: NodeId) -> usize {
    let far = |i: &usize| {
        let from = readers[*i].node;
        (from != node, machine.distance(from, node).unwrap_or(u32::MAX))
    };
    (0..readers.len()).min_by_key(far).unwrap_or(0)
}

/// A buffer on the node, written by the team, or a warning why not.
fn place(
    machine: &Machine,
    node: NodeId,
    wanted: u64,
    team: &mut Team,
    warnings: &mut Vec<String>,
) -> Result<Option<Buffer>, Error> {
    // Half of what there is: to bind more than a node has ends the process, and others allocate
    // meanwhile. A control group's limit ends it too.
    let available = machine.available(node).unwrap_or(u64::MAX);
    let most = (available / 2).min(machine.memory_limit().unwrap_or(u64::MAX) / 4);
    let bytes = wanted.min(most) & !0xfff;
    if bytes < SMALLEST_BUFFER {
        warnings.push(format!(
            "memory of node {node} is not measured: only {} of it are available",
            term::size(available as usize)
        ));
        return Ok(None);
    }
    if bytes < wanted {
        warnings.push(format!(
            "node {node} has room for a buffer of {} only, not {}: caches may make it seem faster",
            term::size(bytes as usize),
            term::size(wanted as usize)
        ));
    }
    let policy = if machine.has_nodes() { Policy::Bind(node) } else { Policy::Default };
    let buffer = Buffer::new(bytes as usize, policy, HugePages::Transparent);
    let mut buffer = buffer.map_err(Error::refused)?;
    warnings.extend(buffer.take_warnings().iter().map(ToString::to_string));
    team.write(&mut buffer)?;
    let walked = WALK_BYTES.min(buffer.len()) / 8;
    probe::lay_cycle(&mut buffer.words_mut()[..walked]);
    Ok(Some(buffer))
}

/// What became of a buffer; its pages are asked for, since a figure for the wrong node is worse
/// than none.
fn describe(
    node: NodeId,
    buffer: Option<&Buffer>,
    nodes: bool,
    warnings: &mut Vec<String>,
) -> Memory {
    let Some(buffer) = buffer else {
        return Memory { node, buffer_bytes: 0, huge_bytes: 0, pages_elsewhere: None };
    };
    let elsewhere = match nodes.then(|| buffer.pages()) {
        Some(Ok(pages)) => {
            let elsewhere = pages.elsewhere(node);
            if elsewhere > 0 {
                warnings.push(format!(
                    "{elsewhere} of {} pages of node {node}'s buffer are on other nodes: its \
                     column is not what it says",
                    pages.total()
                ));
            }
            Some(elsewhere as u64)
        }
        Some(Err(e)) => {
            warnings.push(e.to_string());
            None
        }
        None => None,
    };
    let huge_bytes = buffer.huge_bytes().unwrap_or(0);
    Memory { node, buffer_bytes: buffer.len() as u64, huge_bytes, pages_elsewhere: elsewhere }
}

/// The pinned threads of one node.
struct Team {
    pool: Pool,
    /// Where the walk goes on.
    at: usize,
}

impl Team {
    fn new(reader: &Reader) -> Result<Team, Error> {
        let groups = vec![Group::unbound(reader.cpus.clone())];
        let pool = Pool::new(&PoolSpec { groups, ..PoolSpec::default() });
        Ok(Team { pool: pool.map_err(Error::refused)?, at: 0 })
    }

    /// Every thread writes its part, so that pages come into being at the speed of the node.
    fn write(&mut self, buffer: &mut Buffer) -> Result<(), Error> {
        let words = buffer.words_mut();
        let share = words.len().div_ceil(self.pool.threads());
        let parts: Vec<_> = words.chunks_mut(share).map(Mutex::new).collect();
        self.run(&|worker| {
            if let Some(part) = parts.get(worker.thread()) {
                part.lock().unwrap_or_else(PoisonError::into_inner).fill(1);
            }
        })?;
        Ok(())
    }

    /// Bytes per second that all threads read together, and bytes read for it.
    fn read(&mut self, buffer: &Buffer, enough: Duration) -> Result<(f64, u64), Error> {
        let bytes = buffer.bytes();
        // Whole lines, so that no two threads read the same one.
        let share = bytes.len().div_ceil(self.pool.threads()).next_multiple_of(64);
        let parts: Vec<&[u8]> = bytes.chunks(share).collect();
        let mut passes = 0;
        let seconds = median_of(enough, || {
            passes += 1;
            let took = self.run(&|worker| {
                if let Some(part) = parts.get(worker.thread()) {
                    std::hint::black_box(probe::read_bytes(part));
                }
            })?;
            Ok(took.as_secs_f64())
        })?;
        Ok((bytes.len() as f64 / seconds, passes * bytes.len() as u64))
    }

    /// Nanoseconds that one thread waits for a line.
    fn walk(&mut self, buffer: &Buffer, enough: Duration) -> Result<f64, Error> {
        let words = &buffer.words()[..WALK_BYTES.min(buffer.len()) / 8];
        // Buffers differ in size; zero is on every walk.
        let at = Mutex::new(if self.at < words.len() { self.at } else { 0 });
        let result = median_of(enough, || {
            let wait = Mutex::new(0.0);
            self.run(&|worker| {
                if worker.thread() == 0 {
                    let mut at = at.lock().unwrap_or_else(PoisonError::into_inner);
                    let measured = probe::chase_nanoseconds(words, &mut at, STEPS);
                    *wait.lock().unwrap_or_else(PoisonError::into_inner) = measured;
                }
            })?;
            Ok(wait.into_inner().unwrap_or_else(PoisonError::into_inner))
        });
        self.at = at.into_inner().unwrap_or_else(PoisonError::into_inner);
        result
    }

    /// Runs a job on all threads at the same time and gives the time from first to last.
    fn run(&mut self, job: &(dyn Fn(&Worker) + Sync)) -> Result<Duration, Error> {
        let took = Mutex::new(Duration::ZERO);
        let ran = self.pool.run(&|worker| {
            worker.wait(Scope::Global);
            let start = Instant::now();
            job(worker);
            worker.wait(Scope::Global);
            if worker.thread() == 0 {
                *took.lock().unwrap_or_else(PoisonError::into_inner) = start.elapsed();
            }
        });
        ran.map_err(Error::refused)?;
        Ok(took.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The median of passes over `enough` time, after one that does not count.
fn median_of(enough: Duration, mut pass: impl FnMut() -> Result<f64, Error>) -> Result<f64, Error> {
    let start = Instant::now();
    pass()?;
    let mut samples = Vec::new();
    loop {
        samples.push(pass()?);
        let so_far = start.elapsed();
        if so_far > TOO_MUCH || so_far > enough && samples.len() >= LEAST_PASSES {
            return Ok(topology::median(&samples).expect("a pass was measured"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::fake::FakeMachine;

    #[test]
    fn one_thread_of_each_core_reads_within_the_quota() {
        let fake = FakeMachine::empty().node(0, 4, 8).node(2, 3, 8).node(5, 0, 64).smt(2);
        let machine = fake.machine().unwrap();
        let mut warnings = vec![];
        let found = readers(&machine, &mut warnings);
        let cpus = |r: &Reader| r.cpus.iter().map(|c| c.0).collect::<Vec<_>>();
        assert_eq!(found.iter().map(cpus).collect::<Vec<_>>(), [vec![0, 1, 2, 3], vec![4, 5, 6]]);
        assert_eq!(nearest(&machine, &found, NodeId(2)), 1);
        assert!(warnings.is_empty());
        // Four times one node's caches: 4 L2 of 1 MiB and an L3 of 32 MiB.
        assert_eq!(buffer_bytes(&machine, &found), (4 * 36) << 20);

        let machine = fake.cgroup_v2("/a").cgroup_file("a/cpu.max", "350000 100000").machine();
        let found = readers(&machine.unwrap(), &mut warnings);
        assert_eq!(found.iter().map(|r| r.cpus.len()).collect::<Vec<_>>(), [3, 3]);
        assert!(warnings[0].starts_with("3 of node 0's 4 cores take part"), "{warnings:?}");
        assert_eq!(warnings.len(), 1);
    }

    #[test]
    fn memory_without_cores_is_written_by_the_nearest() {
        let fake = FakeMachine::uniform(3, 2).node(7, 0, 64).distance(1, 7, 12);
        let machine = fake.machine().unwrap();
        let readers = readers(&machine, &mut vec![]);
        assert_eq!(nearest(&machine, &readers, NodeId(7)), 1);
    }

    #[test]
    fn medians_are_taken_after_a_first_pass() {
        let mut passes = 0;
        let median = median_of(Pace::BRIEF.enough, || {
            passes += 1;
            Ok(if passes == 1 { 1e9 } else { 5.0 })
        });
        assert_eq!(median.unwrap(), 5.0);
        assert!(passes > LEAST_PASSES);
    }
}
