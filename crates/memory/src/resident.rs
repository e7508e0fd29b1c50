//! How much memory this process holds, by `/proc/self/status`.
//!
//! The kernel keeps these counters per CPU and adds them up lazily: they can be off by some dozen
//! pages per CPU.

use std::fs;

use crate::error::Error;

/// Resident memory in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident {
    /// Everything now (`VmRSS`).
    pub now: u64,
    /// The most there has been (`VmHWM`).
    pub peak: u64,
    /// The part of `now` that is memory of this process alone: arenas, heap, stacks (`RssAnon`).
    pub anonymous: u64,
    /// The part of `now` that is pages of mapped files, which the page cache holds anyway
    /// (`RssFile`).
    pub file: u64,
}

/// Reads this process's resident memory.
///
/// # Errors
/// `/proc` is not mounted, or does not have the fields.
pub fn resident() -> Result<Resident, Error> {
    let status = fs::read_to_string("/proc/self/status").map_err(Error::Status)?;
    parse(&status)
}

/// [`Resident::peak`].
///
/// # Errors
/// As [`resident`].
pub fn peak_resident_bytes() -> Result<u64, Error> {
    Ok(resident()?.peak)
}

/// Gives memory that was allocated and freed on the heap back to the system, as far as the allocator
/// can (glibc's can). Worth it once after building something large.
pub fn trim_heap() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: takes a number and touches free memory only.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Limits glibc's allocator to two arenas for all threads. Its default is eight per core; memory that was freed in one
/// arena cannot be reused by the others, so a server that runs for long keeps more of it with every arena. Call it
/// before threads are started. The variable `MALLOC_ARENA_MAX` takes precedence, and other allocators are unaffected.
pub fn limit_arenas() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    if std::env::var_os("MALLOC_ARENA_MAX").is_none() {
        // SAFETY: it takes two numbers; arenas that exist already stay as they are.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, 2);
        }
    }
}

fn parse(status: &str) -> Result<Resident, Error> {
    // A line is "VmRSS:\t    1234 kB".
    let field = |name: &'static str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .and_then(|value| value.trim().strip_suffix(" kB")?.parse::<u64>().ok())
            .and_then(|kib| kib.checked_mul(1024))
            .ok_or(Error::StatusField(name))
    };
    Ok(Resident {
        now: field("VmRSS")?,
        peak: field("VmHWM")?,
        anonymous: field("RssAnon")?,
        file: field("RssFile")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_by_their_full_name() {
        let status = "VmHWM:\t    2048 kB\nVmRSSX:\t 9 kB\nVmRSS:\t  1024 kB\n\
                      RssAnon:\t     512 kB\nRssFile:\t     256 kB\n";
        let expected =
            Resident { now: 1024 << 10, peak: 2048 << 10, anonymous: 512 << 10, file: 256 << 10 };
        assert_eq!(parse(status).unwrap(), expected);
    }

    #[test]
    fn a_missing_or_broken_field_is_named() {
        let status = "VmHWM:\t 2048 kB\nVmRSS:\t lots kB\n";
        assert_eq!(
            parse(status).unwrap_err().to_string(),
            "/proc/self/status has no readable field VmRSS"
        );
    }
}
