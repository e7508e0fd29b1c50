//! How long each thread ran, and how long it wanted to run and was not let: the scheduler's own account.
//!
//! `/proc/self/task/TID/schedstat` has three numbers: nanoseconds on a CPU, nanoseconds in a run queue (the kernel's
//! `run_delay`), and how often it was scheduled (the kernel's `scheduler/sched-stats`). A thread that sleeps is in
//! no queue, so what it waits for others is not in them: what is, is another thread on its CPU, or the quota of
//! a control group. Another virtual machine on the CPU is not seen.

use std::fs::File;
use std::io;
use std::time::Duration;

/// What the scheduler gave a thread since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// On a CPU.
    pub ran: Duration,
    /// Ready to run, but not on a CPU.
    pub delayed: Duration,
}

/// The accounts of a pool's threads, which stay open: to read one again takes about a microsecond.
#[derive(Default)]
pub(crate) struct Accounts {
    files: Vec<Option<File>>, // [thread]
    leader: i32,
}

impl Accounts {
    /// Reads the accounts of the threads with these ids; `None` if the kernel keeps none.
    pub(crate) fn read(&mut self, ids: impl Iterator<Item = i32>) -> Option<Vec<CpuTime>> {
        let mut times = Vec::with_capacity(self.files.len());
        for (thread, id) in ids.enumerate() {
            if thread == self.files.len() {
                self.files.push(None);
            }
            // The caller may change between two jobs.
            if thread == 0 && self.leader != id {
                (self.leader, self.files[0]) = (id, None);
            }
            let file = match &mut self.files[thread] {
                Some(file) => file,
                none => none.insert(File::open(format!("/proc/self/task/{id}/schedstat")).ok()?),
            };
            let mut text = [0; 80]; // three numbers of 20 digits at most
            let len = read_from_start(file, &mut text).ok()?;
            times.push(parse(std::str::from_utf8(&text[..len]).ok()?)?);
        }
        Some(times)
    }
}

#[cfg(unix)]
fn read_from_start(file: &File, to: &mut [u8]) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, to, 0)
}

/// Nobody has such a file there.
#[cfg(not(unix))]
fn read_from_start(_: &File, _: &mut [u8]) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

fn parse(text: &str) -> Option<CpuTime> {
    let mut numbers = text.split_ascii_whitespace().map(|word| word.parse().ok());
    let mut next = || numbers.next()?.map(Duration::from_nanos);
    Some(CpuTime { ran: next()?, delayed: next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_three_numbers() {
        let time = |ran, delayed| {
            let [ran, delayed] = [ran, delayed].map(Duration::from_nanos);
            Some(CpuTime { ran, delayed })
        };
        assert_eq!(parse("12 3366986 1\n"), time(12, 3_366_986));
        for bad in ["", "0", "1 x 3", "99999999999999999999 1 1"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
