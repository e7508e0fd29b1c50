//! Arenas bound to memory nodes, mapped model files, and queries for the place of pages.
//!
//! Everything that a core streams during inference lies in an [`Arena`] of its own node. Blocks
//! are cut from it once, when the model is loaded, and never returned one by one. The model file
//! itself is only a source: a [`MappedFile`] whose pages are released as soon as they are copied, or a
//! [`DirectFile`] that is read past the page cache.
//! [`pages_by_node`] asks the kernel for the node of each page, [`huge_bytes`] how many of them are
//! huge, [`resident`] how much there is in all. [`check_room`] checks before anything is written
//! whether a node has room for it. Bandwidth, latency and counters are in the crate `measure`.
//!
//! Limits: on systems other than Linux nothing is bound, queries for pages and resident memory fail, and reads
//! past the page cache are refused. A binding that the kernel refuses is a warning, because first touch by
//! pinned threads leads to the same place on an idle machine; what cannot be mapped is an error.
//!
//! Sources: a buffer per node is §2.3 of the ArcLight paper;
//! `mbind(2)`, `move_pages(2)`, `madvise(2)`, `proc_pid_status(5)`.

mod arena;
mod block;
mod direct;
mod error;
mod file;
mod home;
mod huge;
mod pages;
mod policy;
mod reserved;
mod resident;
mod sys;

pub use arena::{Arena, ArenaOptions, HugePages, Warning};
pub use block::{Block, Pod};
pub use direct::{DirectFile, Stage};
pub use error::Error;
pub use file::{Advice, MappedFile};
pub use home::bring_home;
pub use huge::huge_bytes;
pub use pages::{Pages, pages_by_node};
pub use policy::{Policy, check_room, margin};
pub use reserved::Reserved;
pub use resident::{Resident, limit_arenas, peak_resident_bytes, resident, trim_heap};
