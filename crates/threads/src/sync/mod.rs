//! The only door to atomics, cells and sleeping: the operating system's, or loom's models of them.
//!
//! Everything that has to be right under every interleaving is written against this module, so
//! that `--cfg loom` checks the code that ships and not a copy of it.

#[cfg(loom)]
mod model;
#[cfg(loom)]
use model as imp;
#[cfg(all(not(loom), target_os = "linux", not(miri)))]
mod futex;
#[cfg(not(loom))]
mod os;
#[cfg(all(not(loom), any(miri, not(target_os = "linux"))))]
mod queue;
#[cfg(not(loom))]
use os as imp;

pub(crate) use imp::{AtomicU64, AtomicUsize, Futex, Ordering, UnsafeCell, spin_until};
// Configuration, not synchronisation: no reason for loom to explore it.
pub(crate) use std::sync::atomic::AtomicU64 as SettingU64;

/// Bytes that one thread's writes may take away from others.
///
/// 128: two 64-byte lines, because x86 prefetches lines in pairs, and one line of the Arm cores that
/// have 128-byte lines.
pub(crate) const LINES: usize = 128;

/// A value on cache lines of its own ([`LINES`]).
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

impl<T> std::ops::Deref for Padded<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

const _: () = assert!(align_of::<Padded<u8>>() == LINES && size_of::<Padded<u8>>() == LINES);

/// Tests that fields of a struct which may not share lines do not. Fields in one bracket may: they
/// are written by one thread only, or hardly ever.
#[cfg(test)]
macro_rules! assert_apart {
    ($type:ty: $([$($field:ident),+])+) => {{
        fn size<T, F>(_: fn(&T) -> &F) -> usize {
            size_of::<F>()
        }
        let mut fields = Vec::new();
        let mut bracket = 0;
        $(
            bracket += 1;
            $(
                let start = std::mem::offset_of!($type, $field);
                let lines = start / $crate::sync::LINES
                    ..=(start + size(|all: &$type| &all.$field) - 1) / $crate::sync::LINES;
                fields.push((bracket, stringify!($field), lines));
            )+
        )+
        assert_eq!(align_of::<$type>() % $crate::sync::LINES, 0, "offsets say nothing");
        for (a, name, lines) in &fields {
            for (b, other, others) in &fields {
                let apart = lines.end() < others.start() || others.end() < lines.start();
                assert!(a == b || apart, "{name} and {other} share a line");
            }
        }
    }};
}
#[cfg(test)]
pub(crate) use assert_apart;
