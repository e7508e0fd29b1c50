//! Affinity masks.

use std::io;

use topology::CpuId;

/// Linux can be built for at most 8192 CPUs.
const WORDS: usize = 8192 / 64;

/// A set of CPUs in the kernel's format. Longer than libc's `cpu_set_t`, which ends at 1024.
#[derive(Clone)]
pub(crate) struct CpuSet([u64; WORDS]);

impl CpuSet {
    /// Where the calling thread may run now.
    pub(crate) fn of_this_thread() -> io::Result<Self> {
        let mut set = Self([0; WORDS]);
        // SAFETY: the kernel writes at most the given number of bytes, all of them ours.
        let failed = unsafe {
            libc::sched_getaffinity(0, size_of_val(&set.0), set.0.as_mut_ptr().cast()) != 0
        };
        if failed { Err(io::Error::last_os_error()) } else { Ok(set) }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Confines the calling thread to this set.
    pub(crate) fn apply(&self) -> io::Result<()> {
        // SAFETY: the kernel reads the given number of bytes, all of them ours.
        let failed = unsafe {
            libc::sched_setaffinity(0, size_of_val(&self.0), self.0.as_ptr().cast()) != 0
        };
        if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Confines the calling thread to one CPU.
pub(crate) fn pin(cpu: CpuId) -> io::Result<()> {
    let mut set = CpuSet([0; WORDS]);
    let cpu = cpu.0 as usize;
    let word = set.0.get_mut(cpu / 64).ok_or(io::ErrorKind::InvalidInput)?;
    *word |= 1 << (cpu % 64);
    set.apply()
}

/// The system's id of the calling thread.
pub(crate) fn thread_id() -> i32 {
    // SAFETY: no preconditions.
    unsafe { libc::gettid() }
}

/// The CPU that the calling thread runs on, if the kernel says.
pub(crate) fn current() -> Option<CpuId> {
    // SAFETY: no preconditions.
    let cpu = unsafe { libc::sched_getcpu() };
    u32::try_from(cpu).ok().map(CpuId)
}
