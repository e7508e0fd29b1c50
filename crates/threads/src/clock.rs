//! A clock that is cheap enough to be read between any two pieces of a thread's work.
//!
//! On x86-64 it is the CPU's time-stamp counter, if the kernel keeps its own time with it: the kernel
//! has found then that the counter runs at one rate and alike on all cores. Elsewhere, and on other
//! processors, it is the system's monotonic clock in nanoseconds.
//!
//! Limits: the counter is read without waiting for the instructions before, so a reading can be some
//! ten nanoseconds early.

use std::time::{Duration, Instant};

/// Where the kernel says what it keeps time with.
#[cfg(target_arch = "x86_64")]
const KERNEL_CLOCK: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Counts ticks of an unknown, constant length. All threads may read a copy of it.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    source: Source,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    /// The time-stamp counter.
    #[cfg(target_arch = "x86_64")]
    Counter,
    /// Nanoseconds since then.
    System(Instant),
}

/// One moment on both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// On this one.
    pub ticks: u64,
    /// On the system's.
    pub time: Instant,
}

impl Clock {
    /// Chooses the source. Reads a file: make one clock and copy it.
    #[expect(clippy::new_without_default, reason = "not a plain value: it asks the system")]
    pub fn new() -> Clock {
        #[cfg(target_arch = "x86_64")]
        if std::fs::read_to_string(KERNEL_CLOCK).is_ok_and(|name| name.trim() == "tsc") {
            return Clock { source: Source::Counter };
        }
        Clock { source: Source::System(Instant::now()) }
    }

    /// Ticks since some moment in the past.
    #[inline]
    pub fn ticks(&self) -> u64 {
        match self.source {
            // SAFETY: every x86-64 CPU has the instruction; the kernel's own clock, which uses it in
            // user mode too, would not be this one if it had been forbidden there.
            #[cfg(target_arch = "x86_64")]
            Source::Counter => unsafe { core::arch::x86_64::_rdtsc() },
            Source::System(zero) => zero.elapsed().as_nanos() as u64,
        }
    }

    /// Now on both clocks, to within some ten nanoseconds: two moments tell how long a tick is.
    pub fn now(&self) -> Moment {
        // A thread may be interrupted between the readings: the closest of several pairs counts.
        let pair = || {
            let (before, time, after) = (self.ticks(), Instant::now(), self.ticks());
            (after - before, Moment { ticks: before + (after - before) / 2, time })
        };
        (0..8).map(|_| pair()).min_by_key(|(apart, _)| *apart).expect("eight pairs").1
    }
}

/// Time that the calling thread has spent on a CPU: what other programs take of the CPU does not count, nor,
/// where the kernel is told of it (`CONFIG_PARAVIRT_TIME_ACCOUNTING`), what a virtual machine's host takes.
///
/// Reading it is a system call, some hundred nanoseconds.
///
/// Not every system tells: on Windows it is the time since the thread asked first.
pub fn thread_time() -> Duration {
    #[cfg(unix)]
    {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer is to a local that can be written.
        let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) } != 0;
        assert!(!failed, "every Unix has this clock: {}", std::io::Error::last_os_error());
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
    #[cfg(not(unix))]
    {
        thread_local!(static BEGIN: Instant = Instant::now());
        BEGIN.with(Instant::elapsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threads_time_passes_while_it_works_and_not_while_it_sleeps() {
        let begin = thread_time();
        std::thread::sleep(Duration::from_millis(50));
        // Falling asleep and waking take some ten microseconds.
        assert!(thread_time() - begin < Duration::from_millis(25));
        let (begin, wall) = (thread_time(), Instant::now());
        while thread_time() - begin < Duration::from_millis(5) {}
        // Two clocks of the same kernel: to within the readings' own time.
        assert!(wall.elapsed() + Duration::from_micros(100) > Duration::from_millis(5));
    }

    #[test]
    fn ticks_pass_as_time_does_on_every_thread() {
        let clock = Clock::new();
        let moments: Vec<Moment> = (0..4)
            .map(|_| {
                std::thread::sleep(Duration::from_millis(5));
                std::thread::spawn(move || clock.now()).join().unwrap()
            })
            .collect();
        let rate = |a: &Moment, b: &Moment| {
            (b.ticks - a.ticks) as f64 / (b.time - a.time).as_nanos() as f64
        };
        let all = rate(&moments[0], &moments[3]);
        for pair in moments.windows(2) {
            // A pair of readings is good to some 100 ns even where clock readings trap, an interval
            // is 5 ms: one part in 10,000, with room for a thread that is interrupted eight times.
            let part = rate(&pair[0], &pair[1]);
            assert!((part / all - 1.0).abs() < 0.01, "{part} and {all} ticks per ns");
        }
    }
}
