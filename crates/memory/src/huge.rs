//! How much of a block lies on huge pages: the kernel's answer.
//!
//! `/proc/self/smaps` tells it per mapping. The kernel may show neighbouring arenas of one kind and
//! policy as one mapping: then the answer for a block is bounded by the block, but may count its
//! neighbour's huge pages. An [`Arena`](crate::Arena)'s own mapping is asked for best as a whole.

use std::fs::File;
use std::io::{BufRead, BufReader};

use crate::block::Block;
use crate::error::Error;

/// Bytes of the block on huge pages, transparent or from the pool. The kernel walks the page tables
/// for it: about 0.1 s for a hundred gigabytes of base pages.
///
/// # Errors
/// `/proc` is not mounted, or the kernel does not have the file.
pub fn huge_bytes(block: Block) -> Result<u64, Error> {
    let file = File::open("/proc/self/smaps").map_err(Error::Smaps)?;
    count(BufReader::new(file), block.addr(), block.len()).map_err(Error::Smaps)
}

fn count(smaps: impl BufRead, start: usize, len: usize) -> std::io::Result<u64> {
    let mut total = 0;
    // Bytes that the present mapping shares with the block.
    let mut common = 0;
    for line in smaps.lines() {
        let line = line?;
        let Some((key, value)) = line.split_once(' ') else { continue };
        match key {
            "AnonHugePages:" | "Private_Hugetlb:" | "Shared_Hugetlb:" => {
                let kib = value.trim().strip_suffix(" kB").and_then(|n| n.trim().parse().ok());
                let huge = kib.unwrap_or(0_u64).saturating_mul(1024).min(common);
                total += huge;
            }
            _ if key.ends_with(':') => {}
            _ => common = overlap(key, start, len).unwrap_or(0),
        }
    }
    Ok(total)
}

/// A mapping's first line begins with `7f5a00000000-7f5a00200000`.
fn overlap(range: &str, start: usize, len: usize) -> Option<u64> {
    let (from, to) = range.split_once('-')?;
    let from = usize::from_str_radix(from, 16).ok()?;
    let to = usize::from_str_radix(to, 16).ok()?;
    Some(to.min(start.saturating_add(len)).saturating_sub(from.max(start)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
200000-800000 rw-p 00000000 00:00 0 \n\
Size:               6144 kB\n\
AnonHugePages:      4096 kB\n\
Private_Hugetlb:       0 kB\n\
800000-c00000 rw-p 00000000 00:0f 12  /anon_hugepage (deleted)\n\
Size:               4096 kB\n\
AnonHugePages:         0 kB\n\
Private_Hugetlb:    4096 kB\n\
VmFlags: rd wr mr mw me ht sd\n\
7f0000000000-7f0000200000 rw-p 00000000 00:00 0\n\
AnonHugePages:      2048 kB\n";

    #[test]
    fn huge_pages_count_where_mapping_and_block_overlap() {
        let of = |start, len| count(SMAPS.as_bytes(), start, len).unwrap() >> 10;
        assert_eq!(of(0x200000, 6 << 20), 4096);
        assert_eq!(of(0x200000, 10 << 20), 8192);
        // No more than the block has.
        assert_eq!(of(0x700000, 1 << 20), 1024);
        assert_eq!(of(0x900000, 4096), 4);
        assert_eq!(of(0x7f00_0000_0000, 2 << 20), 2048);
        assert_eq!(of(0xc00000, 8 << 20), 0);
    }
}
