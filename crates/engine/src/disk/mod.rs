//! The prefix cache on disk: pages and snapshots of ended sequences, by the tokens that led to them.
//!
//! What a sequence leaves in the prefix cache is written when it ends, a little with every step and the rest when
//! nothing runs, and found again when another begins alike: after memory had to give it up, after a restart, after
//! a crash. A page is a file, named by a hash of the model, of how it is loaded, and of all tokens up to its
//! end; so replicas and servers may share a folder.
//!
//! Limits: a file that is torn or damaged is noticed by its checksum and deleted. Nothing is synchronised: a crash of
//! the system may lose what was written last. What is loaded otherwise (another number of nodes, another type of
//! cache) has other names and is not found.

mod names;
mod rates;
mod saved;
mod store;
mod traffic;

pub(crate) use names::{Name, digest, fingerprint};
pub(crate) use rates::Disk;
pub use store::DiskCache;
pub(crate) use store::{Key, Store};
