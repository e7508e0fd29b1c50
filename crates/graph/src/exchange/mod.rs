//! Gathers alone, for measurement: what threads do to turn a summand of every node into the sum on
//! every node. `arclight bench-sync` times them; the executor's own are in `exec/sums.rs`.
//!
//! One *turn*: each thread writes its part of its node's summand, as a matrix product would; the
//! threads wait, gather, and read the sum, as the next stage would. Summands change their place
//! every other turn, as the engine's double-buffered activations do, so that a turn needs no
//! further wait before the next. Messages of up to [`PRIVATE_MOST`] bytes are read whole by every
//! thread (in decoding everybody normalises the row for himself), larger ones in shares.
//!
//! | | writes its part to | after the global wait | then |
//! |---|---|---|---|
//! | pull | its node | every thread: all summands → a sum of its own | |
//! | push | every node, its own first | every thread: the copies in its node → a sum of its own | |
//! | group | its node | a share of the columns of all summands → its node's sum | local wait |
//! | scatter | its node | a share of the g-th part of the columns → every node's sum | global wait |
//!
//! In a scatter, g is the thread's group; it takes the summands g+1, g+2, … g in this order, so
//! that the groups do not all read from one node at a time, and writes in the order g, g+1, ….
//!
//! Where several threads sum the same column they do it in the same order, as replicas must not
//! differ in a bit; only *scatter*, which sums each column once, is free to begin elsewhere.
//!
//! Those who read a sum check it: every one of some turns before the clock runs, and the last one
//! of each batch.
//!
//! Threads share arenas by agreement. The agreement is the table above; it cannot be broken from
//! outside, because [`Exchange::run`] is the only way in and makes all threads do the same.
//!
//! Source: rank-shifted reduce-scatter and all-gather are §6.2 of the Sandwich paper.

mod values;

use crate::error::Error;
use kernels::Kernels;
use memory::{Arena, ArenaOptions, Block, HugePages, Pages};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use threads::{Pool, Scope, View, Worker};
use topology::Group;
pub use values::MOST_NODES;
use values::{checksum, element, fill, tag};

/// The largest message that every thread reads whole, in bytes.
pub const PRIVATE_MOST: usize = 64 << 10;
/// Shares begin on lines of their own; 128 bytes, because some prefetchers fetch lines in pairs.
pub const LINE: usize = 128 / size_of::<f32>();
/// Floats that are summed at a time: the sum stays in the first cache.
const CHUNK: usize = 1024;
/// Turns of a check.
const CHECKED: usize = 6;

/// How a sum is gathered; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatherMethod {
    /// Every thread reads all summands.
    Pull,
    /// Every thread writes its part to every node.
    Push,
    /// A node's threads share the sum.
    Group,
    /// Reduce-scatter and all-gather.
    Scatter,
}

impl GatherMethod {
    /// All of them.
    pub const ALL: [GatherMethod; 4] =
        [GatherMethod::Pull, GatherMethod::Push, GatherMethod::Group, GatherMethod::Scatter];

    /// For tables.
    pub fn name(self) -> &'static str {
        match self {
            GatherMethod::Pull => "pull",
            GatherMethod::Push => "push",
            GatherMethod::Group => "group",
            GatherMethod::Scatter => "scatter",
        }
    }

    /// Whether it is meant for messages of this size. Where every thread makes a sum of its own,
    /// larger ones cost as much for every thread as for a whole group.
    pub fn suits(self, bytes: usize) -> bool {
        bytes <= PRIVATE_MOST || matches!(self, GatherMethod::Group | GatherMethod::Scatter)
    }
}

/// The memory of all nodes for messages up to a size.
pub struct Exchange {
    nodes: Vec<Memory>,
    /// Each thread's own sum: `[PRIVATE_MOST]` bytes, in its node.
    private: Vec<Block>,
    kernels: &'static Kernels,
}

/// What one node holds.
struct Memory {
    arena: Arena,
    /// Its summand, of even and odd turns: `[floats]`.
    summand: [Block; 2],
    /// Copies of all nodes' summands, of even and odd turns: `[nodes, floats]`.
    inbox: [Block; 2],
    /// Its replica of the sum: `[floats]`.
    sum: Block,
}

/// Bytes that each group needs for messages of up to `bytes`.
pub fn bytes_per_group(bytes: usize, groups: usize, threads: usize) -> usize {
    // Gaps for alignment included.
    3 * (bytes + LINE * 4) + (2 * groups + threads) * (bytes.min(PRIVATE_MOST) + LINE * 4)
}

impl Exchange {
    /// Maps an arena per group in the group's node, and has the group's own threads touch it.
    ///
    /// # Errors
    /// When memory cannot be had, or a thread of the pool panicked.
    pub fn new(
        groups: &[Group],
        bytes: usize,
        kernels: &'static Kernels,
        pool: &mut Pool,
    ) -> Result<Exchange, Error> {
        let private_bytes = bytes.min(PRIVATE_MOST);
        let mut nodes = Vec::new();
        let mut private = Vec::new();
        for group in groups {
            let options = ArenaOptions {
                policy: group.node.into(),
                huge: HugePages::Transparent,
                name: "exchange",
            };
            let size = bytes_per_group(bytes, groups.len(), group.cpus.len());
            let mut arena = Arena::new(size, &options)?;
            let mut block = |bytes| arena.alloc(bytes, LINE * 4);
            let summand = [block(bytes)?, block(bytes)?];
            let sum = block(bytes)?;
            let inbox =
                [block(groups.len() * private_bytes)?, block(groups.len() * private_bytes)?];
            for _ in &group.cpus {
                private.push(block(private_bytes)?);
            }
            nodes.push(Memory { arena, summand, inbox, sum });
        }
        let exchange = Exchange { nodes, private, kernels };
        let touch = |worker: &mut Worker| {
            worker.switch(View::Groups);
            if worker.rank() == 0 {
                let all = exchange.nodes[worker.group()].arena.given_out();
                // SAFETY: the arena lives as long as `exchange`; it is new, and only this thread
                // of its group touches it.
                unsafe { all.as_mut_slice::<u8>() }.fill(0);
            }
        };
        pool.run(&touch)?;
        Ok(exchange)
    }

    /// What the kernel did not do as asked.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        self.nodes.iter().flat_map(|n| n.arena.warnings()).map(ToString::to_string)
    }

    /// Pages in all, and on other nodes than their group's; `None` where groups have no node or the
    /// kernel does not tell.
    pub fn placement(&self) -> Option<(usize, usize)> {
        let (mut total, mut elsewhere) = (0, 0);
        for memory in &self.nodes {
            let node = memory.arena.node()?;
            let pages: Pages = memory::pages_by_node(memory.arena.given_out()).ok()?;
            total += pages.total();
            elsewhere += pages.total() - pages.present() + pages.elsewhere(node);
        }
        Some((total, elsewhere))
    }

    /// Takes `turns` turns with messages of `bytes` and gives the time of the slowest thread. The
    /// last sum is checked.
    ///
    /// # Errors
    /// A wrong sum, or a thread that panicked.
    ///
    /// # Panics
    /// When the message is larger than the exchange was made for.
    pub fn run(
        &mut self,
        pool: &mut Pool,
        gather: GatherMethod,
        bytes: usize,
        turns: usize,
    ) -> Result<Duration, Error> {
        self.go(pool, gather, bytes, turns, false)
    }

    /// Takes a few turns of which every sum is checked as soon as a thread may read it, so that a
    /// missing wait shows too.
    ///
    /// # Errors
    /// As [`Self::run`].
    ///
    /// # Panics
    /// As [`Self::run`].
    pub fn check(
        &mut self,
        pool: &mut Pool,
        gather: GatherMethod,
        bytes: usize,
    ) -> Result<(), Error> {
        self.go(pool, gather, bytes, CHECKED, true).map(|_| ())
    }

    fn go(
        &mut self,
        pool: &mut Pool,
        gather: GatherMethod,
        bytes: usize,
        turns: usize,
        every: bool,
    ) -> Result<Duration, Error> {
        assert!(gather.suits(bytes), "{} of {bytes} bytes", gather.name());
        let exchange = &*self;
        let nanos = AtomicU64::new(0);
        let wrong = AtomicUsize::new(usize::MAX);
        let job = |worker: &mut Worker| {
            worker.switch(View::Groups);
            let part = Part::new(exchange, worker, gather, bytes / size_of::<f32>());
            let start = Instant::now();
            let check = |turn| {
                if let Some(at) = part.first_wrong(turn) {
                    wrong.fetch_min(at, Relaxed);
                }
            };
            for turn in 0..turns {
                part.turn(worker, turn);
                if every {
                    check(turn);
                }
            }
            worker.wait(Scope::Global);
            nanos.fetch_max(start.elapsed().as_nanos() as u64, Relaxed);
            if turns > 0 && !every {
                check(turns - 1);
            }
        };
        pool.run(&job)?;
        match wrong.into_inner() {
            usize::MAX => Ok(Duration::from_nanos(nanos.into_inner())),
            at => {
                let (gather, nodes) = (gather.name(), exchange.nodes.len());
                Err(Error::WrongSum { gather, bytes, nodes, at })
            }
        }
    }
}

/// One thread's part in an exchange.
struct Part<'a> {
    exchange: &'a Exchange,
    gather: GatherMethod,
    floats: usize,
    thread: usize,
    home: usize,
    /// Its share of the node's summand.
    own: Range<usize>,
    /// The share of columns of which it makes the sum.
    sums: Range<usize>,
    /// What it reads of the sum.
    reads: Range<usize>,
}

impl<'a> Part<'a> {
    fn new(
        exchange: &'a Exchange,
        worker: &Worker,
        gather: GatherMethod,
        floats: usize,
    ) -> Part<'a> {
        let (home, rank, size) = (worker.home(), worker.rank(), worker.size());
        let own = share(0..floats, size, rank);
        let sums = match gather {
            GatherMethod::Pull | GatherMethod::Push => 0..floats,
            GatherMethod::Group => own.clone(),
            GatherMethod::Scatter => {
                share(share(0..floats, exchange.nodes.len(), home), size, rank)
            }
        };
        let whole = floats * size_of::<f32>() <= PRIVATE_MOST;
        let reads = if whole { 0..floats } else { own.clone() };
        Part { exchange, gather, floats, thread: worker.thread(), home, own, sums, reads }
    }

    /// One turn; see the module.
    fn turn(&self, worker: &mut Worker, turn: usize) {
        let (odd, count) = (turn % 2, self.exchange.nodes.len());
        let nodes = &self.exchange.nodes;
        let summand = match self.gather {
            GatherMethod::Push => self.inbox_row(self.home, self.home, odd),
            _ => nodes[self.home].summand[odd],
        };
        // SAFETY: `own` is this thread's alone among those of its node. Whoever reads it did so
        // last two turns ago, and has come to the global wait of the turn between since.
        let own = unsafe { write(summand, self.own.clone()) };
        fill(own, self.own.start, tag(self.home, turn));
        let all = 0..count;
        match self.gather {
            GatherMethod::Push => {
                for to in self.others() {
                    let row = self.inbox_row(to, self.home, odd);
                    // SAFETY: as above.
                    unsafe { write(row, self.own.clone()) }.copy_from_slice(own);
                }
                worker.wait(Scope::Global);
                self.sum(all.map(|from| self.inbox_row(self.home, from, odd)), no_copies());
            }
            GatherMethod::Pull => {
                worker.wait(Scope::Global);
                self.sum(all.map(|from| nodes[from].summand[odd]), no_copies());
            }
            GatherMethod::Group => {
                worker.wait(Scope::Global);
                self.sum(all.map(|from| nodes[from].summand[odd]), no_copies());
                worker.wait(Scope::Local);
            }
            GatherMethod::Scatter => {
                worker.wait(Scope::Global);
                let next = self.others().chain([self.home]);
                let copies = self.others().map(|to| nodes[to].sum);
                self.sum(next.map(|from| nodes[from].summand[odd]), copies);
                worker.wait(Scope::Global);
            }
        }
        std::hint::black_box(checksum(self.result()));
    }

    /// The other nodes, beginning with the one after its own: so no two nodes turn to the same one
    /// at the same time.
    fn others(&self) -> impl Iterator<Item = usize> + Clone + use<> {
        let (home, count) = (self.home, self.exchange.nodes.len());
        (1..count).map(move |k| (home + k) % count)
    }

    /// The copy of `from`'s summand that lies in node `to`.
    fn inbox_row(&self, to: usize, from: usize, odd: usize) -> Block {
        let bytes = self.floats * size_of::<f32>();
        self.exchange.nodes[to].inbox[odd].sub(from * bytes, bytes)
    }

    /// Where the sum is put that this thread reads.
    fn target(&self) -> Block {
        match self.gather {
            GatherMethod::Pull | GatherMethod::Push => self.exchange.private[self.thread],
            GatherMethod::Group | GatherMethod::Scatter => self.exchange.nodes[self.home].sum,
        }
    }

    /// Sums its columns of the summands into its target, and copies the sum to other places.
    fn sum(
        &self,
        summands: impl Iterator<Item = Block> + Clone,
        copies: impl Iterator<Item = Block> + Clone,
    ) {
        for start in self.sums.clone().step_by(CHUNK) {
            let columns = start..self.sums.end.min(start + CHUNK);
            // SAFETY: the target is the thread's own, or these columns of it are this thread's
            // alone. Whoever reads them did so last a turn ago and has come to this turn's global
            // wait since; whoever will read them waits for this thread before.
            let sum = unsafe { write(self.target(), columns.clone()) };
            let mut rest = summands.clone();
            if let Some(first) = rest.next() {
                // SAFETY: all summands are complete since the global wait, and not written to
                // before everybody has come to the next one.
                sum.copy_from_slice(unsafe { read(first, columns.clone()) });
            }
            for summand in rest {
                // SAFETY: as above.
                self.exchange.kernels.add_assign(sum, unsafe { read(summand, columns.clone()) });
            }
            for copy in copies.clone() {
                // SAFETY: as for the target: nobody else sums these columns.
                unsafe { write(copy, columns.clone()) }.copy_from_slice(sum);
            }
        }
    }

    /// What this thread reads of the sum, after a turn.
    fn result(&self) -> &'a [f32] {
        // SAFETY: complete since the last wait of the turn, or made by this thread; and written
        // again only after the next turn's global wait, to which this thread comes later.
        unsafe { read(self.target(), self.reads.clone()) }
    }

    /// The first element of what it reads that is not the sum of a turn's summands.
    fn first_wrong(&self, turn: usize) -> Option<usize> {
        let nodes = self.exchange.nodes.len();
        let tags: f32 = (0..nodes).map(|node| tag(node, turn)).sum();
        let right = |i: usize| tags + nodes as f32 * element(i);
        (self.reads.clone()).zip(self.result()).find(|&(i, &sum)| sum != right(i)).map(|(i, _)| i)
    }
}

fn no_copies() -> std::iter::Empty<Block> {
    std::iter::empty()
}

/// # Safety
/// That of [`Block::as_slice`].
unsafe fn read<'a>(block: Block, floats: Range<usize>) -> &'a [f32] {
    // SAFETY: by this function's contract.
    unsafe { part(block, floats).as_slice() }
}

/// # Safety
/// That of [`Block::as_mut_slice`].
unsafe fn write<'a>(block: Block, floats: Range<usize>) -> &'a mut [f32] {
    // SAFETY: by this function's contract.
    unsafe { part(block, floats).as_mut_slice() }
}

fn part(block: Block, floats: Range<usize>) -> Block {
    block.sub(floats.start * size_of::<f32>(), floats.len() * size_of::<f32>())
}

/// The `i`-th of `parts` parts of a range, in whole lines.
fn share(range: Range<usize>, parts: usize, i: usize) -> Range<usize> {
    let lines = range.len().div_ceil(LINE);
    let at = |i: usize| range.end.min(range.start + lines * i / parts * LINE);
    at(i)..at(i + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use threads::PoolSpec;
    use topology::CpuId;

    const BYTES: usize = 200 << 10;

    fn exchange(sizes: &[usize]) -> (Exchange, Pool) {
        let cpus = |n: usize| (0..n as u32).map(CpuId).collect::<Vec<_>>();
        let groups: Vec<Group> =
            sizes.iter().map(|&n| Group { node: None, cpus: cpus(n) }).collect();
        let spec = groups.clone();
        let mut pool =
            Pool::new(&PoolSpec { groups: spec, pin: false, ..PoolSpec::default() }).unwrap();
        (Exchange::new(&groups, BYTES, Kernels::detect().unwrap(), &mut pool).unwrap(), pool)
    }

    #[test]
    fn every_gather_gives_the_sum_for_groups_of_any_size() {
        for sizes in [&[1, 1][..], &[2, 1], &[1, 3, 2], &[2, 1, 1, 1, 3]] {
            let (mut exchange, mut pool) = exchange(sizes);
            for gather in GatherMethod::ALL {
                // One element, one line and one more, more lines than threads, many chunks.
                for bytes in [4, 132, 1 << 10, 10_000, PRIVATE_MOST, BYTES] {
                    if gather.suits(bytes) {
                        exchange.check(&mut pool, gather, bytes).unwrap();
                        exchange.run(&mut pool, gather, bytes, 3).unwrap();
                    }
                }
            }
        }
    }

    /// The check sees a sum that lacks a node, has one twice, is a turn old, or is shifted.
    #[test]
    fn a_wrong_sum_is_found() {
        let (mut exchange, mut pool) = exchange(&[1, 1]);
        exchange.run(&mut pool, GatherMethod::Group, 4096, 3).unwrap();
        let exchange = &exchange;
        let wrong = std::sync::Mutex::new(Vec::new());
        let look = |worker: &mut Worker| {
            worker.switch(View::Groups);
            if worker.group() == 1 {
                let part = Part::new(exchange, worker, GatherMethod::Group, 1024);
                let mut wrong = wrong.lock().unwrap();
                wrong.extend([part.first_wrong(2), part.first_wrong(1), part.first_wrong(3)]);
                // SAFETY: only this thread uses its node's sum here.
                let sum = unsafe { write(part.target(), 0..1024) };
                for change in [1.0, tag(0, 2) - tag(1, 2)] {
                    sum[1000] += change;
                    wrong.push(part.first_wrong(2));
                    sum[1000] -= change;
                }
                sum.rotate_left(LINE);
                wrong.push(part.first_wrong(2));
            }
        };
        pool.run(&look).unwrap();
        let found = wrong.into_inner().unwrap();
        assert_eq!(found, [None, Some(0), Some(0), Some(1000), Some(1000), Some(0)]);
    }

    #[test]
    fn shares_are_whole_lines_and_cover_everything() {
        for len in [0, 1, 31, 32, 33, 1000, 4096] {
            for parts in 1..9 {
                let mut at = 5 * LINE;
                for i in 0..parts {
                    let share = share(5 * LINE..5 * LINE + len, parts, i);
                    assert_eq!(share.start, at);
                    assert!(share.start.is_multiple_of(LINE) || share.is_empty());
                    at = share.end;
                }
                assert_eq!(at, 5 * LINE + len);
            }
        }
    }
}
