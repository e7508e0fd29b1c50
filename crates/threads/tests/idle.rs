//! A pool without work uses no CPU. Alone in its binary, because it measures the whole process.

use std::time::Duration;

use arclight_threads::{Pool, PoolSpec, Scope, Spin};
use topology::{CpuId, Group};

/// CPU time of this process so far, user and system.
fn cpu_time() -> Duration {
    // SAFETY: all-zero is a valid value, and the kernel fills the structure.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &mut usage), 0);
        usage
    };
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}

#[test]
fn idle_threads_sleep() {
    let cpus = (0..4).map(CpuId).collect();
    let spin = Spin::For(Duration::from_micros(30));
    let spec =
        PoolSpec { groups: vec![Group::unbound(cpus)], pin: false, spin, ..PoolSpec::default() };
    let mut pool = Pool::new(&spec).unwrap();
    pool.run(&|w| w.wait(Scope::Global)).unwrap();

    let before = cpu_time();
    std::thread::sleep(Duration::from_millis(300));
    let between_jobs = cpu_time() - before;
    // Three workers that spin would use 300 ms or more on one CPU; sleepers use microseconds.
    assert!(between_jobs < Duration::from_millis(30), "idle workers used {between_jobs:?}");

    let before = cpu_time();
    pool.run(&|w| {
        if w.thread() == 2 {
            std::thread::sleep(Duration::from_millis(300));
        }
        w.wait(Scope::Global);
    })
    .unwrap();
    let in_barrier = cpu_time() - before;
    assert!(in_barrier < Duration::from_millis(30), "waiting threads used {in_barrier:?}");
}
