//! A shadow of the memory that threads share: who touched each word last. Debug builds keep it where the environment has
//! `ARCLIGHT_SHADOW`, and in this crate's own tests: every test of a step is a test for races then, and takes two to
//! ten times as long.
//!
//! Two accesses of one word by two threads, one of them a write, must have a wait between them: any wait if both
//! threads are of one place, a global one otherwise. The time of an access is the number of waits before it in its
//! program, and their number up to the last global one. This finds what the claims
//! of instructions do not show: two threads that were dealt the same tile, a write beyond what a thread was
//! dealt, a wait that is missing.
//!
//! Limits: a read is remembered for one thread or for many between two waits; an older one is forgotten for a later.
//! Handing on between the stages of a pipeline is not checked, nor is memory above [`MOST`].

use memory::{Arena, Block};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// The largest arena that has a shadow: that of a large model's pages would be several times as large.
const MOST: usize = 64 << 20;
/// Bytes of a word.
const WORD: usize = 4;
/// Words of a line, and lines that are made together.
const WORDS: usize = 16;
const PIECE: usize = 64;

/// When an access happens.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Moment {
    /// The step, and the part of it.
    pub epoch: u64,
    /// Waits before it.
    pub waits: usize,
    /// The same up to the last global one.
    pub met: usize,
}

/// Who accesses.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Who {
    pub thread: usize,
    /// Its team's.
    pub place: usize,
}

/// A past access: epoch, waits, place, thread, from the highest bits on. Zero is none.
#[derive(Copy, Clone, PartialEq, Eq)]
struct Mark(u64);

/// In the place of a thread: several have read.
const MANY: u64 = 0xffff;
/// In the place of a place: several of several.
const ANYWHERE: u64 = 0xff;

impl Mark {
    fn new(who: Who, at: Moment) -> Mark {
        let (thread, place) = (who.thread as u64 + 1, who.place as u64);
        Mark(at.epoch << 40 | (at.waits as u64 & 0xffff) << 24 | place << 16 | thread)
    }

    fn thread(self) -> u64 {
        self.0 & 0xffff
    }

    fn place(self) -> u64 {
        self.0 >> 16 & 0xff
    }

    fn waits(self) -> usize {
        (self.0 >> 24 & 0xffff) as usize
    }

    /// Whether it is ordered before an access of `who`.
    fn is_before(self, who: Who, at: Moment) -> bool {
        let same_step = self.0 >> 40 == at.epoch & 0xff_ffff;
        !same_step
            || self.0 == 0
            || self.thread() == who.thread as u64 + 1
            || self.waits() < at.met
            || self.place() == who.place as u64 && self.waits() < at.waits
    }

    /// This read and another one.
    fn with(self, other: Mark) -> Mark {
        let same_time = self.0 >> 24 == other.0 >> 24;
        if !same_time || self.thread() == other.thread() {
            return other;
        }
        let place = if self.place() == other.place() { self.place() } else { ANYWHERE };
        Mark(other.0 >> 24 << 24 | place << 16 | MANY)
    }
}

/// The last write and the last read.
#[derive(Default)]
struct Marks {
    write: AtomicU64,
    read: AtomicU64,
}

impl Marks {
    /// Notes an access.
    fn note(&self, write: bool, own: Mark) -> (Mark, Mark) {
        if write {
            let before = Mark(self.write.swap(own.0, SeqCst));
            return (before, Mark(self.read.load(SeqCst)));
        }
        let read = Mark(self.read.load(SeqCst));
        // Another reader of this moment may be lost, not this one: it is the later mark.
        let both = read.with(own);
        if read != both {
            self.read.store(both.0, SeqCst);
        }
        self.last()
    }

    fn last(&self) -> (Mark, Mark) {
        (Mark(self.write.load(SeqCst)), Mark(self.read.load(SeqCst)))
    }
}

/// A cache line: accesses of all of it are noted once; its words, if there were others.
#[derive(Default)]
struct Line {
    whole: Marks,
    words: OnceLock<Box<[Marks; WORDS]>>,
}

/// The shadow of a block.
struct Part {
    addr: usize,
    len: usize,
    /// Made when somebody first touches one of some lines: most of a cache never is.
    lines: Box<[OnceLock<Box<[Line]>>]>,
}

impl Part {
    fn new(block: Block) -> Part {
        let pieces = block.len().div_ceil(PIECE * WORDS * WORD);
        let lines = (0..pieces).map(|_| OnceLock::new()).collect();
        Part { addr: block.addr(), len: block.len(), lines }
    }

    /// Calls `seen` with the marks before an access of bytes at an address, which it notes.
    fn note<T>(
        &self,
        addr: usize,
        bytes: usize,
        write: bool,
        own: Mark,
        mut seen: impl FnMut((Mark, Mark)) -> Option<T>,
    ) -> Option<T> {
        let all = (addr - self.addr) / WORD..(addr - self.addr + bytes).div_ceil(WORD);
        for number in all.start / WORDS..all.end.div_ceil(WORDS) {
            let lines = || (0..PIECE).map(|_| Line::default()).collect();
            let line = &self.lines[number / PIECE].get_or_init(lines)[number % PIECE];
            let first = number * WORDS;
            let words = all.start.max(first) - first..all.end.min(first + WORDS) - first;
            let found = if words.len() == WORDS {
                let found = seen(line.whole.note(write, own));
                let words = line.words.get().into_iter().flat_map(|words| words.iter());
                found.or_else(|| words.map(Marks::last).find_map(&mut seen))
            } else {
                let words = &line.words.get_or_init(Box::default)[words];
                let found = words.iter().map(|word| word.note(write, own)).find_map(&mut seen);
                found.or_else(|| seen(line.whole.last()))
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }
}

/// The shadow of some arenas.
pub(crate) struct Shadow {
    parts: Vec<Part>,
    /// The epoch of a step's first part, and of the next step's.
    epoch: AtomicU64,
    next: AtomicU64,
}

impl Shadow {
    /// Whether one is wanted.
    pub(crate) fn is_wanted() -> bool {
        cfg!(debug_assertions) && (cfg!(test) || std::env::var_os("ARCLIGHT_SHADOW").is_some())
    }

    pub(crate) fn new<'a>(arenas: impl Iterator<Item = &'a Arena>) -> Shadow {
        let blocks = arenas.map(Arena::given_out).filter(|block| block.len() <= MOST);
        let parts = blocks.map(Part::new).collect();
        Shadow { parts, epoch: AtomicU64::new(0), next: AtomicU64::new(0) }
    }

    /// Another step of so many rounds begins: everything before it is ordered.
    pub(crate) fn begin(&self, rounds: usize) {
        self.epoch.store(self.next.fetch_add(rounds as u64, SeqCst), SeqCst);
    }

    /// The epoch of a round of the step that runs.
    pub(crate) fn epoch(&self, round: usize) -> u64 {
        (self.epoch.load(SeqCst) + round as u64) & 0xff_ffff
    }

    /// Notes an access; the other one if one of another thread conflicts with it.
    pub(crate) fn touch(
        &self,
        addr: usize,
        bytes: usize,
        write: bool,
        who: Who,
        at: Moment,
    ) -> Option<String> {
        let within = |part: &&Part| part.addr <= addr && addr + bytes <= part.addr + part.len;
        let part = self.parts.iter().find(within)?;
        part.note(addr, bytes, write, Mark::new(who, at), |(written, read)| {
            let other = |mark: Mark, did: &str| {
                let thread = match mark.thread() {
                    MANY => "several threads".to_owned(),
                    thread => format!("thread {}", thread - 1),
                };
                format!("{thread} of place {} {did} it after {} waits", mark.place(), mark.waits())
            };
            if !written.is_before(who, at) {
                return Some(other(written, "wrote"));
            }
            (write && !read.is_before(who, at)).then(|| other(read, "read"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memory::{ArenaOptions, HugePages, Policy};

    fn at(waits: usize, met: usize) -> Moment {
        Moment { epoch: 1, waits, met }
    }

    #[test]
    fn accesses_without_a_wait_between_conflict() {
        let policy = Policy::Default;
        let options = ArenaOptions { policy, huge: HugePages::Off, name: "shadow" };
        let mut arena = Arena::new(4096, &options).unwrap();
        let block = arena.alloc(1024, 64).unwrap();
        let shadow = Shadow::new(std::iter::once(&arena));
        let touch = |word: usize, write, thread, place, moment| {
            let place = Who { thread, place };
            shadow.touch(block.addr() + word * WORD, WORD, write, place, moment)
        };
        // Two writes: of one thread, of two without a wait, after a local wait, in other places after a local and after a
        // global one.
        assert_eq!(touch(0, true, 0, 0, at(3, 0)), None);
        assert_eq!(touch(0, true, 0, 0, at(3, 0)), None);
        assert!(touch(0, true, 1, 0, at(3, 0)).unwrap().contains("thread 0 of place 0 wrote"));
        assert_eq!(touch(0, true, 0, 0, at(4, 0)), None);
        assert!(touch(0, true, 2, 1, at(5, 4)).is_some());
        assert_eq!(touch(0, true, 3, 1, at(6, 6)), None);
        // Reads do not conflict with each other; a write does with any of them.
        assert_eq!(touch(1, false, 0, 0, at(3, 0)), None);
        assert_eq!(touch(1, false, 1, 0, at(3, 0)), None);
        assert!(touch(1, true, 1, 0, at(3, 0)).unwrap().contains("several threads"));
        assert_eq!(touch(2, false, 0, 0, at(3, 0)), None);
        assert_eq!(touch(2, true, 1, 0, at(4, 0)), None);
        assert!(touch(2, false, 0, 0, at(4, 0)).unwrap().contains("thread 1 of place 0 wrote"));
        // Another step, and what has no shadow.
        assert_eq!(touch(0, true, 5, 0, Moment { epoch: 2, ..at(0, 0) }), None);
        assert_eq!(shadow.touch(16, 64, true, Who { thread: 0, place: 0 }, at(0, 0)), None);
    }
}
