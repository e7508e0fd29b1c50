//! System calls: those of Linux, or of a system that places memory by itself. Miri, which has no system calls, counts as
//! such a system.

#[cfg(all(target_os = "linux", not(miri)))]
mod linux;
#[cfg(any(miri, not(target_os = "linux")))]
mod other;

#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) use linux::*;
#[cfg(any(miri, not(target_os = "linux")))]
pub(crate) use other::*;

/// Which memory nodes the pages of a range come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// From these alone; pages that are there already stay.
    Bound,
    /// From these in turn; pages that are there already stay.
    Interleaved,
    /// From this one if it has room, and those that are there are moved to it.
    Moved,
}

/// What a range of memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    /// Huge pages are welcome.
    Huge,
    /// They are not.
    NoHuge,
    /// To be taken now.
    Populate,
    /// Not wanted for now.
    DontNeed,
    /// To be read from front to back.
    Sequential,
    /// To be read soon.
    WillNeed,
}

/// What a mapping is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    /// Usual pages, taken when they are touched.
    Reserved,
    /// Huge pages that the administrator has set aside.
    Huge,
}
