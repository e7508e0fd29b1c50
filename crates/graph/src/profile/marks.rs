//! Marks of threads, and records of the parts of steps.

use crate::book::Extent;
use crate::variant::Variant;

/// A job begins.
pub(super) const BEGIN: u32 = u32::MAX;

/// A wait is over that stands in no program: all groups begin together, or hand over between the
/// rounds of a pipeline.
pub(super) const MET: u32 = u32::MAX - 1;

/// A thread came to this point: the end of one event, and the beginning of the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// When, in ticks.
    pub at: u64,
    /// In which part of a step.
    pub part: u32,
    /// Which event of the part's program, [`BEGIN`] or [`MET`].
    pub event: u32,
}

/// What the threads that are at it need not note.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartRecord {
    pub step: u32,
    pub level: u32,
    pub variant: Variant,
    pub extent: Extent,
}
