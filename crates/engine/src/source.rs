//! Where loading gets a file's bytes from, ahead of the threads that pack them.
//!
//! Some threads (*readers*) bring what is packed next while the pool packs. Of a mapped file they ask the
//! kernel to read it to its page cache, and give pages back that are packed. Past the page cache each reads
//! one part at a time to a buffer, from which it is packed.
//!
//! Limits: every replica reads a file by itself. Of a mapped file that stays in the page cache only the
//! first read costs anything.

use crate::control::Control;
use crate::cores::Cores;
use crate::error::Error;
use crate::file::ModelFile;
use crate::made::Made;
use crate::options::{PageCache, Reading};
use crate::packed::Packed;
use gguf::Gguf;
use graph::{PackBytes, WeightSource, WeightView};
use memory::{Advice, DirectFile, MappedFile, Stage};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use topology::Machine;

/// Bytes of the file that are asked for before they are packed, and all memory that buffers take: at most
/// what a fast disk (16 GB/s) reads in 16 ms, and of small files a part.
const AHEAD: std::ops::RangeInclusive<usize> = 32 << 20..=256 << 20;
const AHEAD_SHARE: usize = 16;

/// Bytes of the file that are packed between two waits; fewer where other models wait for them.
const ROUND: usize = 32 << 20;
const SHARED_ROUND: usize = 8 << 20;

/// Reads in flight for each memory node; one thread is behind each.
const READERS: usize = 4;

/// However many nodes there are.
const MOST_READERS: usize = 32;

/// The kernel reads no more ahead at a time than the disk takes in one go, and forgets the rest of what it
/// was asked for. All disks take this much.
const ADVICE_BYTES: usize = 128 << 10;

/// Whether the page cache keeps a file whose weights take `weights` bytes in the arenas of `machines`:
/// where there is room for both, in memory that can be had now and in the control group's limit. KV pages
/// are written later; the kernel then takes from the page cache what they need.
pub(crate) fn page_cache(machines: &[Machine], file: usize, weights: u64) -> PageCache {
    let needed = weights.saturating_add(file as u64);
    let needed = needed.saturating_add(memory::margin(needed));
    let mut nodes: Vec<_> = machines
        .iter()
        .flat_map(|part| part.usable_nodes().map(move |node| (node.id, part)))
        .collect();
    nodes.sort_unstable_by_key(|&(id, _)| id);
    nodes.dedup_by_key(|&mut (id, _)| id);
    let can_be_had = nodes.into_iter().map(|(id, part)| part.available(id)).sum::<Option<u64>>();
    let held = memory::resident().map_or(0, |held| held.anonymous);
    let limit = machines.iter().filter_map(Machine::memory_limit).min();
    let limit = limit.map(|limit| limit.saturating_sub(held));
    // A machine that does not tell is not one without memory.
    let room = can_be_had.into_iter().chain(limit).min().unwrap_or(u64::MAX);
    if needed <= room { PageCache::Keep } else { PageCache::Drop }
}

/// How a file is read.
pub(crate) struct ReadPlan {
    pub reading: Reading,
    pub cache: PageCache,
    /// Memory nodes that weights go to.
    pub nodes: usize,
}

/// The tensors of a file, which readers bring. See the module.
pub(crate) struct FileWeights<'a> {
    gguf: &'a Gguf<'a>,
    control: &'a Control,
    /// Nothing, if the model is in memory or made.
    files: &'a [MappedFile],
    made: Option<&'a Made>,
    /// The same, if they are read past the page cache.
    direct: Vec<DirectFile>,
    cache: PageCache,
    /// Bytes.
    ahead: usize,
    begun: Mutex<VecDeque<Begun>>,
    /// Of each file.
    packed: Vec<Mutex<Packed>>,
    jobs: Mutex<Jobs>,
    wake: Condvar,
    /// Buffers that nothing is in.
    stages: Mutex<Vec<Stage>>,
}

/// What was asked for and is not taken yet.
struct Begun {
    bytes: usize,
    /// What was read past the page cache, by its number.
    read: Receiver<(usize, Result<Stage, memory::Error>)>,
}

#[derive(Default)]
struct Jobs {
    queue: VecDeque<Job>,
    closed: bool,
}

/// What a reader does next.
enum Job {
    /// Asks the kernel to read it.
    Want(Part),
    /// Reads it to a buffer; its number, and who waits for it.
    Read(Part, usize, Sender<(usize, Result<Stage, memory::Error>)>),
    /// It is packed.
    Forget(Part),
}

/// A part of a file.
struct Part {
    file: usize,
    range: Range<u64>,
}

impl<'a> FileWeights<'a> {
    /// Runs `load` with the tensors of `file`, which is `gguf`, and with readers beside. Soon after
    /// `control` says so they fail.
    ///
    /// # Errors
    /// When the file cannot be read in this way, or `load` fails.
    pub(crate) fn with<R>(
        file: &'a ModelFile,
        gguf: &'a Gguf<'a>,
        &ReadPlan { reading, cache, nodes }: &ReadPlan,
        control: &'a Control,
        load: impl FnOnce(&dyn WeightSource) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let files = file.mapped();
        let direct = match reading {
            Reading::Mapped => Vec::new(),
            Reading::Direct => {
                files.iter().map(|f| DirectFile::open(f.path())).collect::<Result<_, _>>()?
            }
        };
        let source = FileWeights {
            gguf,
            control,
            files,
            made: file.maker(),
            direct,
            cache,
            ahead: (file.bytes() / AHEAD_SHARE).clamp(*AHEAD.start(), *AHEAD.end()),
            begun: Mutex::default(),
            packed: files.iter().map(|_| Mutex::default()).collect(),
            jobs: Mutex::default(),
            wake: Condvar::new(),
            stages: Mutex::default(),
        };
        let readers = (nodes.max(1) * READERS).min(MOST_READERS);
        let readers = if files.is_empty() { 0 } else { readers };
        let loaded = std::thread::scope(|scope| {
            let _closing = Closing(&source);
            for _ in 0..readers {
                let reader = std::thread::Builder::new().name("reader".to_owned());
                let spawned = reader.spawn_scoped(scope, || source.work());
                spawned.map_err(Error::Readers)?;
            }
            load(&source)
        })?;
        source.give_back();
        Ok(loaded)
    }

    /// What is left: the pages at the borders of parts, and those with the metadata, which come again if
    /// somebody looks at them.
    fn give_back(&self) {
        for file in self.files {
            let done = match self.leaves_nothing() {
                true => file.uncache(file),
                false => file.release(file),
            };
            if let Err(fault) = done {
                tracing::debug!("{fault}");
            }
        }
    }

    fn leaves_nothing(&self) -> bool {
        !self.direct.is_empty() || self.cache == PageCache::Drop
    }

    /// Does what is to be done until there will be no more.
    fn work(&self) {
        while let Some(job) = self.next_job() {
            match job {
                Job::Want(part) => {
                    let Some(bytes) = self.bytes(&part) else { continue };
                    for piece in bytes.chunks(ADVICE_BYTES) {
                        // Who packs it waits for it anyway.
                        let _ = self.files[part.file].advise(piece, Advice::WillNeed);
                    }
                }
                Job::Read(part, number, to) => {
                    // Nobody waits any more when loading has failed.
                    let _ = to.send((number, self.read(&part)));
                }
                Job::Forget(part) => self.forget(part),
            }
        }
    }

    fn forget(&self, mut part: Part) {
        let file = &self.files[part.file];
        if self.cache == PageCache::Drop {
            part.range = lock(&self.packed[part.file]).add(part.range);
        }
        let Some(bytes) = self.bytes(&part) else { return };
        let done = match self.cache {
            PageCache::Keep => file.release(bytes),
            PageCache::Drop => file.uncache(bytes),
        };
        if let Err(fault) = done {
            tracing::debug!("{fault}");
        }
    }

    fn next_job(&self) -> Option<Job> {
        let jobs = lock(&self.jobs);
        let idle = |jobs: &mut Jobs| jobs.queue.is_empty() && !jobs.closed;
        let waited = self.wake.wait_while(jobs, idle);
        waited.unwrap_or_else(PoisonError::into_inner).queue.pop_front()
    }

    fn read(&self, part: &Part) -> Result<Stage, memory::Error> {
        let file = &self.direct[part.file];
        let mut stage = self.stage(file.stage_bytes(&part.range))?;
        file.read(part.range.clone(), &mut stage)?;
        Ok(stage)
    }

    /// The smallest free buffer of at least so many bytes that is not much larger, or a new one.
    fn stage(&self, bytes: usize) -> Result<Stage, memory::Error> {
        let mut free = lock(&self.stages);
        let good = |stage: &Stage| (bytes..=2 * bytes.max(1 << 20)).contains(&stage.capacity());
        let sizes = free.iter().enumerate().filter(|(_, stage)| good(stage));
        if let Some((at, _)) = sizes.min_by_key(|(_, stage)| stage.capacity()) {
            return Ok(free.swap_remove(at));
        }
        drop(free);
        // Few sizes, so that each can be used again.
        Stage::new(bytes.next_multiple_of((bytes.next_power_of_two() / 8).max(1)))
    }

    fn recycle(&self, stages: impl IntoIterator<Item = Stage>) {
        let mut free = lock(&self.stages);
        free.extend(stages);
        let mut bytes: usize = free.iter().map(Stage::capacity).sum();
        while bytes > self.ahead && !free.is_empty() {
            // The one that was used longest ago.
            bytes -= free.remove(0).capacity();
        }
    }

    fn part(&self, bytes: &[u8]) -> Result<Part, memory::Error> {
        let mut fault = None;
        for (file, mapped) in self.files.iter().enumerate() {
            match mapped.place(bytes) {
                Ok(range) => return Ok(Part { file, range }),
                Err(e) => fault = Some(e),
            }
        }
        Err(fault.expect("who has no files has no parts of them"))
    }

    fn bytes(&self, part: &Part) -> Option<&[u8]> {
        self.files[part.file].get(part.range.start as usize..part.range.end as usize)
    }

    /// Takes what was asked for first: its bytes, if they were read past the page cache.
    fn wait(&self, parts: usize) -> Result<Vec<Stage>, graph::Error> {
        let begun = lock(&self.begun).pop_front();
        let Some(begun) = begun.filter(|_| !self.direct.is_empty()) else { return Ok(Vec::new()) };
        let mut read: Vec<Option<Stage>> = (0..parts).map(|_| None).collect();
        for _ in 0..parts {
            // Readers end early only when one has panicked, which the scope tells of.
            let (number, stage) = begun.read.recv().map_err(|_| graph::Error::Stopped)?;
            read[number] = Some(stage?);
        }
        Ok(read.into_iter().flatten().collect())
    }
}

impl WeightSource for FileWeights<'_> {
    fn tensor(&self, name: &str) -> Option<WeightView<'_>> {
        WeightSource::tensor(self.gguf, name)
    }

    fn round_bytes(&self) -> usize {
        // A step of another model may wait for a round.
        if self.control.cores.is_some() { SHARED_ROUND } else { ROUND }
    }

    fn begin(&self, parts: &[&[u8]]) -> bool {
        if self.files.is_empty() {
            return true;
        }
        let bytes = parts.iter().map(|part| part.len()).sum();
        let mut begun = lock(&self.begun);
        let ahead: usize = begun.iter().map(|round| round.bytes).sum();
        if !begun.is_empty() && ahead + bytes > self.ahead {
            return false;
        }
        // One message for each of the parts.
        let (to, read) = mpsc::channel();
        let mut jobs = lock(&self.jobs);
        for (number, bytes) in parts.iter().enumerate() {
            match self.part(bytes) {
                Ok(part) if self.direct.is_empty() => jobs.queue.push_back(Job::Want(part)),
                Ok(part) => jobs.queue.push_back(Job::Read(part, number, to.clone())),
                // The receiver is here.
                Err(fault) => drop(to.send((number, Err(fault)))),
            }
        }
        begun.push_back(Begun { bytes, read });
        self.wake.notify_all();
        true
    }

    fn take(&self, parts: &[&[u8]], pack: &mut PackBytes<'_>) -> Result<(), graph::Error> {
        if self.control.stop.load(Relaxed) {
            return Err(graph::Error::Stopped);
        }
        let mut pack = |bytes: &[&[u8]]| {
            let _turn = self.control.cores.as_ref().map(Cores::turn);
            pack(bytes)
        };
        if let Some(made) = self.made {
            let bytes = made.make(parts, &self.control.stop)?;
            return pack(&bytes.iter().map(Vec::as_slice).collect::<Vec<_>>());
        }
        if self.files.is_empty() {
            return pack(parts);
        }
        let stages = self.wait(parts.len())?;
        if !self.direct.is_empty() {
            pack(&stages.iter().map(|stage| &**stage).collect::<Vec<_>>())?;
            self.recycle(stages);
            return Ok(());
        }
        pack(parts)?;
        let mut jobs = lock(&self.jobs);
        for part in parts.iter().filter_map(|bytes| self.part(bytes).ok()) {
            // Before more is read.
            jobs.queue.push_front(Job::Forget(part));
        }
        self.wake.notify_all();
        Ok(())
    }
}

/// Lets readers end: what is to be given back is, and nothing more is read.
struct Closing<'a>(&'a FileWeights<'a>);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        let mut jobs = lock(&self.0.jobs);
        jobs.closed = true;
        jobs.queue.retain(|job| matches!(job, Job::Forget(_)));
        self.0.wake.notify_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::fake::FakeMachine;

    const GIB: usize = 1 << 30;

    #[test]
    fn a_file_stays_where_memory_holds_it_beside_its_weights() {
        let root = std::env::temp_dir().join(format!("arclight-source-{}", std::process::id()));
        let meminfo = |node: u32, gib: usize| {
            let path = format!("sys/devices/system/node/node{node}/meminfo");
            let text = format!(
                "Node {node} MemTotal: {0} kB\nNode {node} MemFree: {0} kB\n",
                gib * (GIB >> 10)
            );
            (path, text)
        };
        let mut fake = FakeMachine::uniform(2, 2);
        for (path, text) in [meminfo(0, 3), meminfo(1, 5)] {
            fake = fake.file(&path, &text);
        }
        fake.write(&root).unwrap();
        let machine = Machine::read_from(&root).unwrap();
        let keeps = |parts: &[Machine], file, weights| {
            page_cache(parts, file * GIB, (weights * GIB) as u64) == PageCache::Keep
        };
        let whole = std::slice::from_ref(&machine);
        assert!(keeps(whole, 4, 3) && keeps(whole, 1, 6) && keeps(whole, 6, 1));
        assert!(!keeps(whole, 4, 4), "not without a margin");
        assert!(!keeps(whole, 9, 1) && !keeps(whole, 1, 9));
        // Memory that the process may not use is none; what two parts share is there once.
        let nodes = [0, 1].map(|n| machine.restrict(Some(&[topology::NodeId(n)]), None).unwrap());
        assert!(keeps(&nodes[..1], 1, 1) && !keeps(&nodes[..1], 2, 2) && keeps(&nodes[1..], 2, 2));
        assert!(keeps(&nodes, 4, 3) && !keeps(&[machine.clone(), machine.clone()], 4, 4));
        std::fs::remove_dir_all(&root).unwrap();
        assert!(keeps(whole, 9, 9), "a machine that does not tell");
    }

    #[test]
    fn the_limit_of_the_control_group_counts() {
        let of = |limit: &str| {
            let fake = FakeMachine::uniform(1, 2).cgroup_v2("/a");
            fake.cgroup_file("a/memory.max", limit).machine().unwrap()
        };
        let cache =
            |machine: &Machine| page_cache(std::slice::from_ref(machine), 3 * GIB, 3 * GIB as u64);
        assert_eq!(cache(&of(&(8 * GIB).to_string())), PageCache::Keep);
        assert_eq!(cache(&of(&(6 * GIB).to_string())), PageCache::Drop);
        assert_eq!(cache(&of("max")), PageCache::Keep);
    }
}
