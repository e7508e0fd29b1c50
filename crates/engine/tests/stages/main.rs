//! A model over several hosts: the bits of one machine, and what happens when a host is lost.

mod bits;
mod hosts;
mod lost;
mod serving;
