//! What the machine is: memory nodes, packages, caches, SMT siblings, distances, allowed CPUs.
//!
//! Everything is read from sysfs, procfs and cgroupfs as text, under a root path, so a fake
//! machine is a directory ([`fake::FakeMachine`]). The description is cut down to what this
//! process may use: affinity mask, cpuset (CPUs and memory nodes) and CPU quota. A missing file
//! never stops the reading: the machine is described more coarsely and [`Machine::notes`] says
//! what was missing.
//!
//! Another machine is described by hwloc's XML ([`Machine::from_hwloc_xml`]), an imagined one by a string
//! such as `numa:4 core:48` ([`Machine::from_synthetic`]).
//!
//! A user's further choice is a [restriction](Machine::restrict) of the machine. The available memory of a
//! node is read [anew](Machine::available) each time.
//!
//! [`layout`] turns the description into the groups of CPUs that a thread pool pins to, and
//! [`Machine::divide`] cuts the machine into parts that each have a pool of their own.
//! [`topotree`] holds it as a tree and searches the ways to use a part of it.
//!
//! Limits: machines are read on Linux only; ids above [`MAX_ID`] are refused; no file is read beyond
//! a fixed size.
//! Source: the kernel's `Documentation/ABI/stable/sysfs-devices-node`,
//! `sysfs-devices-system-cpu`, and `admin-guide/cgroup-v1`, `cgroup-v2`.
//!
//! ```
//! use topology::{fake::FakeMachine, layout};
//! # extern crate arclight_topology as topology;
//! let machine = FakeMachine::uniform(2, 8).smt(2).machine()?;
//! assert_eq!(machine.usable_cores(), 16);
//! let layout = layout(&machine, None, None)?;
//! assert_eq!(layout.groups.len(), 2);
//! # Ok::<(), topology::Error>(())
//! ```
#![forbid(unsafe_code)]

mod bitmap;
mod cgroup;
mod describe;
mod display;
mod divide;
mod energy;
mod error;
pub mod fake;
mod files;
mod hwloc;
mod idlist;
mod layout;
mod load;
mod machine;
mod restrict;
mod room;
mod stats;
mod synthetic;
mod sysfs;
pub mod topotree;

pub use cgroup::Throttling;
pub use energy::Energy;
pub use error::Error;
pub use files::Tree;
pub use idlist::{CpuList, Id, IdList, MAX_ID, NodeList};
pub use layout::{Group, Layout, layout};
pub use load::CpuTicks;
pub use machine::{Cache, CacheId, CoreId, Cpu, CpuId, FirstCache, Machine, Node, NodeId};
pub use stats::{median, percent, quantile};
