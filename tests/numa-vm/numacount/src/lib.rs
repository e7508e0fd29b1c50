//! A QEMU plugin that counts the guest's loads and stores by (virtual processor, memory node).
//!
//! The counted program is asked nothing: the node of an access is that of its guest-physical
//! address, the home of a processor is the machine's description. So it proves placement without
//! the bookkeeping of whoever placed. What it counts are instructions' accesses; which of them
//! would leave a processor's caches is said by an optional [model](cache) of a private cache.
//!
//! Arguments (`-plugin libnumacount.so,n0=0x0-0x20000000,n1=..,c0=0-1,c1=2-3,..`): see [`args`].
//!
//! A program steers it with marks, `nop`s that carry a number: `nopl 0x4e554d00+mark(%rax)`, bytes
//! `0f 1f 80` and the displacement. 1: count from here, from zero; 2: count no more; 3: print.
//! With `stages=1` there are three more, of a thread that waits: 4: it comes to a wait for its group; 5: to one for
//! all; 6: it has left it. Then the counts between any two waits are printed too, with instructions and products.
//! The cache model keeps its contents, so that a first mark 1 before a warm-up and a second one
//! after it count a warm cache.
//!
//! Limits: x86-64 guests; one cache level; instruction fetches and page walks are not counted.
//!
//! Source: QEMU's `include/qemu/qemu-plugin.h`, interface version 4.

mod args;
mod cache;
mod hot;
mod multiply;
// A test program has no QEMU to link with.
#[cfg(not(test))]
mod plugin;
mod stages;
mod tally;
