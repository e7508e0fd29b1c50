//! Marks for the access-counting plugin: instructions that do nothing on a processor.
//!
//! A mark is a `nop` with an address operand whose displacement says which: `nopl K(%rax)`, bytes
//! `0f 1f 80` and K in little endian. Compilers pad code with `nop`s of small displacement only,
//! so `0x4e554d00 + mark` ("NUM") does not occur by chance. `numacount/src/lib.rs` looks for it.

use clap::ValueEnum;
#[cfg(target_arch = "x86_64")]
use std::arch::asm;

/// What the plugin is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mark {
    /// Zero the counters and count from here on.
    Start,
    /// Count no more.
    Stop,
    /// Print the counters and zero them.
    Report,
}

#[cfg(target_arch = "x86_64")]
macro_rules! mark {
    ($op:expr) => {
        // SAFETY: a `nop` reads no memory in spite of its operand and changes no register. Without
        // `nomem` the compiler keeps memory accesses on their side of it.
        unsafe {
            asm!(".byte 0x0f, 0x1f, 0x80", ".long {}", const 0x4e55_4d00_u32 + $op,
                options(nostack, preserves_flags));
        }
    };
}

/// Sends a mark. Where the plugin does not listen nothing happens.
#[cfg(target_arch = "x86_64")]
pub(crate) fn send(mark: Mark) {
    match mark {
        Mark::Start => mark!(1),
        Mark::Stop => mark!(2),
        Mark::Report => mark!(3),
    }
}

/// The virtual machine is an x86-64 one.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn send(_: Mark) {}
