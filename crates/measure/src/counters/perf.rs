//! One counter of the kernel: `perf_event_open` and what is done with its descriptor.

use std::fs::{self, File};
use std::io::{self, Read};

use crate::sys;

/// What to count: `type` and `config`, `config1` of `perf_event_attr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attr {
    pub(super) kind: u32,
    pub(super) config: [u64; 2],
}

/// The head of the kernel's structure, as far as its first published size goes; the kernel takes
/// what is beyond as zero.
#[repr(C)]
#[derive(Default)]
struct PerfEventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
}

// `PERF_ATTR_SIZE_VER0`.
const _: () = assert!(size_of::<PerfEventAttr>() == 64);

const DISABLED: u64 = 1 << 0;
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HV: u64 = 1 << 6;
/// `PERF_FORMAT_TOTAL_TIME_ENABLED` and `_RUNNING`.
const TIMES: u64 = 0b11;
/// `_IO('$', 0)` and `_IO('$', 3)` where ioctl numbers have no direction bits for `_IO`.
const IOC_ENABLE: u32 = 0x2400;
const IOC_RESET: u32 = 0x2403;

/// An open counter.
#[derive(Debug)]
pub(super) struct Counter {
    file: File,
    /// What it showed at the last [`Self::restart`]: free-running counters cannot be reset.
    base: f64,
}

impl Counter {
    /// Counts for one thread (0: the caller) and those it starts, in user code unless `kernel` is wanted too; stands
    /// still until it is started.
    pub(super) fn of_thread(attr: Attr, thread: i32, kernel: bool) -> io::Result<Self> {
        let user = if kernel { 0 } else { EXCLUDE_KERNEL | EXCLUDE_HV };
        Self::open(attr, DISABLED | INHERIT | user, thread, -1)
    }

    /// Counts for everybody, by the device that this CPU stands for; runs at once. (Most such
    /// devices refuse flags.)
    pub(super) fn of_cpu(attr: Attr, cpu: u32) -> io::Result<Self> {
        Self::open(attr, 0, -1, cpu as i32)
    }

    fn open(attr: Attr, flags: u64, thread: i32, cpu: i32) -> io::Result<Self> {
        let attr = PerfEventAttr {
            kind: attr.kind,
            size: size_of::<PerfEventAttr>() as u32,
            config: attr.config[0],
            config1: attr.config[1],
            read_format: TIMES,
            flags,
            ..PerfEventAttr::default()
        };
        // SAFETY: it says its size.
        let file = unsafe { sys::open_counter((&raw const attr).cast(), thread, cpu)? };
        Ok(Self { file, base: 0.0 })
    }

    /// Counts from zero.
    pub(super) fn start(&self) -> io::Result<()> {
        for request in [IOC_RESET, IOC_ENABLE] {
            sys::control_counter(&self.file, request)?;
        }
        Ok(())
    }

    /// As [`Self::start`], for a counter that runs already and may not be reset.
    pub(super) fn restart(&mut self) -> io::Result<()> {
        self.base = 0.0;
        self.base = self.read()?;
        Ok(())
    }

    /// The count, extrapolated from the part of the time that it had a place in the CPU.
    pub(super) fn read(&self) -> io::Result<f64> {
        let mut bytes = [0; 24];
        (&self.file).read_exact(&mut bytes)?;
        let [count, enabled, running] = bytes.as_chunks().0 else { unreachable!("24 bytes") };
        let number = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes) as f64;
        Ok(scaled(number(count), number(enabled), number(running)) - self.base)
    }
}

fn scaled(count: f64, enabled: f64, running: f64) -> f64 {
    if running > 0.0 && running < enabled { count * (enabled / running) } else { count }
}

/// Why a counter could not be opened, for people: the kernel's word for it, and what it means and what to do.
pub(super) fn reason(error: &io::Error) -> (String, String) {
    let level = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok();
    (error.to_string(), why(error.raw_os_error(), level.as_deref().map(str::trim)))
}

/// `level` is that of `kernel.perf_event_paranoid`.
fn why(error: Option<i32>, level: Option<&str>) -> String {
    match error {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::EINVAL) => {
            "this CPU or virtual machine does not count it; a virtual machine needs a PMU (QEMU: -cpu host,pmu=on)"
                .to_owned()
        }
        Some(libc::EACCES | libc::EPERM) => match level.and_then(|level| level.parse::<i32>().ok()) {
            Some(level @ 1..) => format!(
                "kernel.perf_event_paranoid is {level}: sudo sysctl kernel.perf_event_paranoid=0, or give CAP_PERFMON"
            ),
            _ => "a container or sandbox forbids perf_event_open: allow it, or give CAP_PERFMON (docker run --cap-add \
                  PERFMON)"
                .to_owned(),
        },
        Some(libc::ENOSYS) => "this kernel is built without it, or a sandbox hides it".to_owned(),
        Some(libc::EMFILE) => "too many open files, one for each thread and event: ulimit -n 65536".to_owned(),
        Some(libc::ESRCH) => "a thread has ended".to_owned(),
        _ => "see perf_event_open(2)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `PERF_TYPE_SOFTWARE`, which every kernel with counters has; 2 is page faults.
    const PAGE_FAULTS: Attr = Attr { kind: 1, config: [2, 0] };

    /// None where the kernel has no counters for us at all.
    fn faults(thread: i32) -> Option<Counter> {
        Counter::of_thread(PAGE_FAULTS, thread, false)
            .map_err(|e| eprintln!("not tested here: {:?}", reason(&e)))
            .ok()
    }

    fn touch(pages: usize) {
        let mut memory = vec![0_u8; pages << 16];
        for page in memory.chunks_mut(1 << 16) {
            std::hint::black_box(&mut page[7]).clone_from(&1);
        }
    }

    #[test]
    fn counts_begin_at_zero_and_go_on() {
        let Some(mut counter) = faults(0) else { return };
        touch(300);
        assert_eq!(counter.read().unwrap(), 0.0, "not started");
        counter.start().unwrap();
        // Beyond the size that an allocator maps anew; of 64 KiB each, one fault at least, unless
        // huge pages cover 32 of them.
        touch(1024);
        let first = counter.read().unwrap();
        assert!(first >= 32.0, "{first}");
        touch(1024);
        assert!(counter.read().unwrap() >= first + 32.0);
        counter.start().unwrap();
        assert!(counter.read().unwrap() < first);
        touch(1024);
        counter.restart().unwrap();
        assert!(counter.read().unwrap() < 16.0);
    }

    #[test]
    fn threads_started_later_count_too() {
        let Some(counter) = faults(0) else { return };
        counter.start().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| touch(1024)).join().unwrap();
        });
        assert!(counter.read().unwrap() >= 32.0);
    }

    #[test]
    fn what_does_not_exist_is_a_reason() {
        let error = Counter::of_thread(Attr { kind: 9999, config: [0, 0] }, 0, false).unwrap_err();
        let (error, why) = reason(&error);
        assert!(!error.is_empty() && !why.is_empty());
        let of = |errno, level| super::why(Some(errno), level);
        for refusal in [libc::EACCES, libc::EPERM] {
            let text = of(refusal, Some("4"));
            assert!(text.starts_with("kernel.perf_event_paranoid is 4: sudo sysctl "), "{text}");
            // It is not that setting.
            for level in [Some("0"), Some("-1"), None] {
                assert!(
                    of(refusal, level).starts_with("a container or sandbox forbids"),
                    "{level:?}"
                );
            }
        }
        assert!(of(libc::ENOENT, Some("2")).contains("virtual machine does not count it"));
        assert!(of(libc::ENOSYS, None).contains("sandbox hides it"));
        assert!(of(libc::EMFILE, None).contains("ulimit -n"));
    }

    #[test]
    fn counts_are_scaled_by_the_time_they_ran() {
        assert_eq!(scaled(10.0, 100.0, 50.0), 20.0);
        assert_eq!(scaled(10.0, 100.0, 100.0), 10.0);
        assert_eq!(scaled(0.0, 100.0, 0.0), 0.0);
    }
}
