//! A shadow of the memory that threads share: who touched each word last. Debug builds have it, so every test of
//! a step is a test for races.
//!
//! Two accesses of one word by two threads, one of them a write, must have a wait between them: any wait if both
//! threads are of one place, a global one otherwise. A program's stages are separated by waits, so the time of an
//! access is the number of its stage, and the first stage after the last global wait. This finds what the claims
//! of instructions do not show: two threads that were dealt the same tile, a write beyond what a thread was
//! dealt, a wait that is missing.
//!
//! Limits: a read is remembered for one thread or for many of one stage; an older one that a later stage has
//! overwritten is forgotten. Handing on between the stages of a pipeline is not checked, nor is memory above
//! [`MOST`].

use memory::Arena;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// The largest arena that has a shadow: that of a large model's pages would be several times as large.
const MOST: usize = 64 << 20;
/// Bytes of a word.
const WORD: usize = 4;

/// When an access happens.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Moment {
    /// The step, and the part of it.
    pub epoch: u64,
    /// Number of the stage.
    pub stage: usize,
    /// The first stage after the last global wait.
    pub met: usize,
}

/// Who accesses.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Who {
    pub thread: usize,
    /// Its team's.
    pub place: usize,
}

/// A past access: epoch, stage, place, thread, from the highest bits on. Zero is none.
#[derive(Copy, Clone, PartialEq, Eq)]
struct Mark(u64);

/// In the place of a thread: several have read.
const MANY: u64 = 0xffff;
/// In the place of a place: several of several.
const ANYWHERE: u64 = 0xff;

impl Mark {
    fn new(who: Who, at: Moment) -> Mark {
        let (thread, place) = (who.thread as u64 + 1, who.place as u64);
        Mark(at.epoch << 40 | (at.stage as u64 & 0xffff) << 24 | place << 16 | thread)
    }

    fn thread(self) -> u64 {
        self.0 & 0xffff
    }

    fn place(self) -> u64 {
        self.0 >> 16 & 0xff
    }

    fn stage(self) -> usize {
        (self.0 >> 24 & 0xffff) as usize
    }

    /// Whether it is ordered before an access of `who`.
    fn is_before(self, who: Who, at: Moment) -> bool {
        let same_step = self.0 >> 40 == at.epoch & 0xff_ffff;
        !same_step
            || self.0 == 0
            || self.thread() == who.thread as u64 + 1
            || self.stage() < at.met
            || self.place() == who.place as u64 && self.stage() < at.stage
    }

    /// This read and another one.
    fn with(self, other: Mark) -> Mark {
        let same_stage = self.0 >> 24 == other.0 >> 24;
        if !same_stage || self.thread() == other.thread() {
            return other;
        }
        let place = if self.place() == other.place() { self.place() } else { ANYWHERE };
        Mark(other.0 >> 24 << 24 | place << 16 | MANY)
    }
}

/// The last write and the last read of a word.
#[derive(Default)]
struct Word {
    write: AtomicU64,
    read: AtomicU64,
}

/// The shadow of some arenas.
pub(crate) struct Shadow {
    parts: Vec<(usize, Box<[Word]>)>, // address of the first word
    epoch: AtomicU64,
}

impl Shadow {
    pub(crate) fn new<'a>(arenas: impl Iterator<Item = &'a Arena>) -> Shadow {
        let blocks = arenas.map(Arena::given_out).filter(|block| block.len() <= MOST);
        let words = |len: usize| (0..len.div_ceil(WORD)).map(|_| Word::default()).collect();
        let parts = blocks.map(|block| (block.addr(), words(block.len()))).collect();
        Shadow { parts, epoch: AtomicU64::new(0) }
    }

    /// Another step begins: everything before it is ordered.
    pub(crate) fn begin(&self, parts: usize) {
        self.epoch.fetch_add(parts as u64, SeqCst);
    }

    /// The epoch of a part of the step that runs.
    pub(crate) fn epoch(&self, part: usize) -> u64 {
        (self.epoch.load(SeqCst) + part as u64) & 0xff_ffff
    }

    /// Notes an access; the other one if one of another thread conflicts with it.
    pub(crate) fn touch(
        &self,
        (addr, bytes): (usize, usize),
        write: bool,
        who: Who,
        at: Moment,
    ) -> Option<String> {
        let part = self
            .parts
            .iter()
            .find(|(first, words)| *first <= addr && addr + bytes <= first + words.len() * WORD);
        let (first, words) = part?;
        let (own, from) = (Mark::new(who, at), (addr - first) / WORD);
        let words = &words[from..(addr - first + bytes).div_ceil(WORD)];
        words.iter().find_map(|word| {
            let written = match write {
                true => Mark(word.write.swap(own.0, SeqCst)),
                false => {
                    let read = Mark(word.read.load(SeqCst));
                    // Another reader of this moment may be lost, not this one: it is the later mark.
                    word.read.store(read.with(own).0, SeqCst);
                    Mark(word.write.load(SeqCst))
                }
            };
            let read = Mark(word.read.load(SeqCst));
            let other = |mark: Mark, did: &str| {
                let thread = match mark.thread() {
                    MANY => "several threads".to_owned(),
                    thread => format!("thread {}", thread - 1),
                };
                format!("{thread} of place {} {did} it in stage {}", mark.place(), mark.stage())
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

    fn at(stage: usize, met: usize) -> Moment {
        Moment { epoch: 1, stage, met }
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
            shadow.touch((block.addr() + word * WORD, WORD), write, place, moment)
        };
        // Two writes: of one thread, of two in one stage, after a local wait, in other places after a local and after a
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
        assert_eq!(shadow.touch((16, 64), true, Who { thread: 0, place: 0 }, at(0, 0)), None);
    }
}
