//! Systems on which threads run where the system puts them.

use std::io;

use topology::CpuId;

/// All CPUs: nothing confines a thread that we could see.
#[derive(Clone)]
pub(crate) struct CpuSet;

impl CpuSet {
    pub(crate) fn of_this_thread() -> io::Result<Self> {
        Ok(Self)
    }

    #[expect(clippy::unused_self, reason = "as Linux has it")]
    pub(crate) fn len(&self) -> usize {
        std::thread::available_parallelism().map_or(usize::MAX, usize::from)
    }

    #[expect(clippy::unused_self, reason = "as Linux has it")]
    pub(crate) fn apply(&self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) fn pin(_: CpuId) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Ids are for the accounts of Linux's scheduler.
pub(crate) fn thread_id() -> i32 {
    0
}

pub(crate) fn current() -> Option<CpuId> {
    None
}
