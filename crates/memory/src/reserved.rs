//! Address space for a file that is nowhere.

use crate::Error;
use memmap2::{Mmap, MmapMut, MmapOptions};
use std::ops::Deref;

/// Bytes that are zero and take no memory, but for those that were written.
///
/// Whoever makes a file's data when they are wanted still needs an address for each of its bytes. A page takes
/// memory once something is written to it, or looked at.
#[derive(Debug)]
pub struct Reserved {
    map: Mmap,
}

impl Reserved {
    /// So many bytes, with `fill` let at them before they are fixed.
    ///
    /// # Errors
    /// There is no address space for as many, or the system promises no memory beyond what it has
    /// (`vm.overcommit_memory` is 2); or those of `fill`.
    pub fn new<E: From<Error>>(
        bytes: usize,
        fill: impl FnOnce(&mut MmapMut) -> Result<(), E>,
    ) -> Result<Reserved, E> {
        let failed = |source| Error::AddressSpace { bytes, source };
        let mut map =
            MmapOptions::new().len(bytes.max(1)).no_reserve_swap().map_anon().map_err(failed)?;
        fill(&mut map)?;
        Ok(Reserved { map: map.make_read_only().map_err(failed)? })
    }
}

impl Deref for Reserved {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_there_and_the_rest_takes_nothing() {
        let before = crate::resident().unwrap().now;
        // More than any machine has.
        let reserved = Reserved::new(1 << 44, |bytes| {
            bytes[..3].copy_from_slice(b"abc");
            Ok::<_, Error>(())
        });
        let reserved = reserved.unwrap();
        assert_eq!((reserved.len(), &reserved[..4]), (1 << 44, &b"abc\0"[..]));
        assert!(crate::resident().unwrap().now < before + (64 << 20));
    }
}
