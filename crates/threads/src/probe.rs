//! Static probes at waits, as those of SystemTap: instructions that do nothing, for a tool that runs the program in an
//! emulator. `tests/numa-vm/numacount` cuts its counts of a step into stages by them.
//!
//! A probe is a `nop` with an address operand whose displacement is its number: `nopl 0x4e554d00+n(%rax)`. It has
//! seven bytes and takes part of a cycle, where a wait takes at least 100 ns.
//!
//! Limits: x86-64 only. Miri does not execute inline assembly, so there are no probes under it.

/// A thread has come to a wait: probe 5 if it waits for all groups, 4 if for its own.
#[inline]
pub(crate) fn comes(global: bool) {
    if global {
        probe::<5>();
    } else {
        probe::<4>();
    }
}

/// A thread has left a wait: probe 6.
#[inline]
pub(crate) fn leaves() {
    probe::<6>();
}

#[inline]
fn probe<const NUMBER: u32>() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a `nop` reads no memory in spite of its operand and changes no register. Without `nomem` the compiler
    // keeps memory accesses on their side of it.
    unsafe {
        std::arch::asm!(".byte 0x0f, 0x1f, 0x80", ".long {}", const 0x4e55_4d00_u32 + NUMBER,
            options(nostack, preserves_flags));
    }
}
