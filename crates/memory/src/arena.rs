//! Arenas: memory whose node is chosen, reserved at once, given out in blocks, freed at once.

use std::io;

use topology::NodeId;

use crate::block::Block;
use crate::error::Error;
use crate::policy::{self, Policy};
use crate::sys::{self, Advice, Mapping, Pages};

/// What the arena asks of the kernel for large pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// Base pages only.
    Off,
    /// 2 MiB pages where the kernel finds them when memory is touched.
    #[default]
    Transparent,
    /// 2 MiB pages from the pool that the administrator set aside (`vm.nr_hugepages`). They are
    /// taken by [`Arena::new`] already: a node that ran out of them later would end the process
    /// with SIGBUS. If there are not enough, [`Self::Transparent`] and a warning.
    Explicit,
}

/// How an arena is made.
#[derive(Clone, Debug)]
pub struct ArenaOptions {
    /// Which nodes pages come from.
    pub policy: Policy,
    /// Page size.
    pub huge: HugePages,
    /// What errors and warnings call it.
    pub name: &'static str,
}

/// Something that makes an arena slower than asked for, but not wrong.
#[derive(Debug, thiserror::Error)]
pub enum Warning {
    /// The kernel did not take the policy: there is no such node, the cpuset excludes it, or a
    /// container forbids it.
    #[error(
        "arena `{arena}` is not {policy}: mbind: {source} ({}); \
         its pages will be where the threads that first write to them run",
        policy::refusal(source)
    )]
    NotBound {
        /// The arena's name.
        arena: &'static str,
        /// The policy asked for.
        policy: Policy,
        /// The system's reason.
        source: io::Error,
    },
    /// There are not enough explicit huge pages (on the node); transparent ones are used.
    #[error(
        "arena `{arena}` has no explicit huge pages: {call}: {source}; \
         raise vm.nr_hugepages (the arena needs {pages} pages of 2 MiB)"
    )]
    NoHugePages {
        /// The arena's name.
        arena: &'static str,
        /// How many it needs.
        pages: usize,
        /// The call that was refused.
        call: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The kernel is built or configured without transparent huge pages.
    #[error("arena `{arena}` has no transparent huge pages: madvise: {source}")]
    NoTransparentPages {
        /// The arena's name.
        arena: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}

const HUGE: usize = 2 << 20;

/// Memory whose node is chosen, reserved at once, given out in blocks, freed at once.
///
/// It is an anonymous mapping without reservation: it costs nothing until its pages are written.
/// The pages come from the bound node whoever touches them first, but the node's own threads
/// should: they then zero them at local speed, and if binding was refused their touch decides the
/// node.
///
/// Blocks do not borrow the arena. Dropping it while a slice made from one is in use breaks the
/// contract of [`Block::as_slice`].
#[derive(Debug)]
pub struct Arena {
    map: Mapping,
    used: usize,
    policy: Policy,
    name: &'static str,
    warnings: Vec<Warning>,
}

impl Arena {
    /// Reserves an arena of at least `bytes`, rounded up to whole pages (of the chosen size), at
    /// least one. Pages are not touched, except explicit huge pages.
    ///
    /// # Errors
    /// The kernel has no address space, or a limit (`ulimit -v`) forbids it. What it merely does
    /// not do as asked is a [warning](Self::warnings).
    pub fn new(bytes: usize, options: &ArenaOptions) -> Result<Self, Error> {
        let ArenaOptions { policy, huge, name } = options.clone();
        let mut warnings = Vec::new();
        let reserve = |source| Error::Reserve { arena: name, bytes, source };
        let unit = if huge == HugePages::Off { sys::page_size() } else { HUGE };
        let len = bytes
            .max(1)
            .checked_next_multiple_of(unit)
            .ok_or_else(|| reserve(io::ErrorKind::OutOfMemory.into()))?;

        if huge == HugePages::Explicit {
            match explicit(len, &policy, name) {
                Ok((map, not_bound)) => {
                    warnings.extend(not_bound);
                    return Ok(Self { map, used: 0, policy, name, warnings });
                }
                Err((call, source)) => {
                    let pages = len / HUGE;
                    warnings.push(Warning::NoHugePages { arena: name, pages, call, source });
                }
            }
        }
        let map = Mapping::new(len, unit, Pages::Reserved).map_err(reserve)?;
        let advice = if huge == HugePages::Off { Advice::NoHuge } else { Advice::Huge };
        // SAFETY: our own new mapping; this advice takes nothing.
        match unsafe { sys::advise(map.start(), map.len(), advice) } {
            // A kernel without huge pages needs no telling to leave them off.
            Err(source) if huge != HugePages::Off => {
                warnings.push(Warning::NoTransparentPages { arena: name, source });
            }
            _ => {}
        }
        warnings.extend(place(&map, &policy, name));
        Ok(Self { map, used: 0, policy, name, warnings })
    }

    /// Cuts off the next block, of `bytes` at an address that is a multiple of `align`.
    ///
    /// # Errors
    /// The arena has too little left, or `align` is no power of two.
    pub fn alloc(&mut self, bytes: usize, align: usize) -> Result<Block, Error> {
        if !align.is_power_of_two() {
            return Err(Error::Alignment { arena: self.name, align });
        }
        let base = self.map.start().addr();
        let start = (base + self.used).checked_next_multiple_of(align).map(|at| at - base);
        let left = self.map.len().saturating_sub(start.unwrap_or(usize::MAX));
        match start {
            Some(start) if start <= self.map.len() && bytes <= left => {
                self.used = start + bytes;
                Ok(self.block(start, bytes))
            }
            _ => Err(Error::Exhausted {
                arena: self.name,
                wanted: bytes,
                left,
                capacity: self.map.len(),
            }),
        }
    }

    /// Bytes given out, alignment gaps included.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Bytes in all.
    pub fn capacity(&self) -> usize {
        self.map.len()
    }

    /// The memory node asked for, if it was one.
    pub fn node(&self) -> Option<NodeId> {
        self.policy.node()
    }

    /// Where pages were to come from. Whether they do is for [`warnings`](Self::warnings) to say.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What the kernel did not do as asked.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Takes the warnings out, to be kept beyond the arena.
    pub fn take_warnings(&mut self) -> Vec<Warning> {
        std::mem::take(&mut self.warnings)
    }

    /// Everything given out so far, as one block (to ask for its pages, say).
    pub fn given_out(&self) -> Block {
        self.block(0, self.used)
    }

    fn block(&self, start: usize, len: usize) -> Block {
        assert!(start + len <= self.map.len());
        // SAFETY: in the mapping, by the assertion; anonymous memory is zero from the beginning.
        unsafe { Block::new(self.map.start().add(start), len) }
    }
}

/// Maps and takes explicit huge pages by the policy, or names the call that was refused.
fn explicit(
    len: usize,
    policy: &Policy,
    name: &'static str,
) -> Result<(Mapping, Option<Warning>), (&'static str, io::Error)> {
    let map = Mapping::new(len, HUGE, Pages::Huge).map_err(|e| ("mmap", e))?;
    let not_bound = place(&map, policy, name);
    // The pool is reserved for the machine, not per node, so only taking the pages shows whether
    // this node has them. (Linux 5.14; an older kernel refuses.)
    // SAFETY: our own new mapping.
    let taken = unsafe { sys::advise(map.start(), map.len(), Advice::Populate) };
    taken.map_err(|e| ("madvise", e))?;
    Ok((map, not_bound))
}

fn place(map: &Mapping, policy: &Policy, arena: &'static str) -> Option<Warning> {
    // SAFETY: our own mapping, not touched yet.
    let placed = unsafe { policy.apply(map.start(), map.len()) };
    placed.err().map(|source| Warning::NotBound { arena, policy: policy.clone(), source })
}
