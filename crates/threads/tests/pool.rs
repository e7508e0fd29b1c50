//! The pool through its public face: shapes, barriers under stress, panics, statistics, pinning.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use arclight_threads::{Error, Pool, PoolSpec, Scope, Spin, View, Waits, Warning};
use topology::{CpuId, Group};

/// An unpinned pool with groups of these sizes.
fn spec(sizes: &[usize]) -> PoolSpec {
    let groups = sizes.iter().map(|&n| Group::unbound((0..n as u32).map(CpuId).collect()));
    PoolSpec { groups: groups.collect(), pin: false, ..PoolSpec::default() }
}

fn pool(sizes: &[usize]) -> Pool {
    Pool::new(&spec(sizes)).unwrap()
}

/// CPUs on which this thread may run.
fn allowed() -> Vec<CpuId> {
    // SAFETY: an all-zero set is a valid value, and the kernel writes at most its size.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &mut set), 0);
        set
    };
    // SAFETY: the index is below CPU_SETSIZE.
    let is_set = |cpu: &u32| unsafe { libc::CPU_ISSET(*cpu as usize, &set) };
    (0..libc::CPU_SETSIZE as u32).filter(is_set).map(CpuId).collect()
}

#[test]
fn every_thread_knows_its_place_in_both_views() {
    let mut pool = pool(&[3, 1, 2]);
    assert_eq!((pool.threads(), pool.groups()), (6, 3));
    let expected = [(0, 0, 3), (0, 1, 3), (0, 2, 3), (1, 0, 1), (2, 0, 2), (2, 1, 2)];
    let ran = AtomicUsize::new(0);
    for _ in 0..2 {
        pool.run(&|w| {
            let (group, rank, size) = expected[w.thread()];
            assert_eq!((w.threads(), w.home()), (6, group));
            // Every job begins in one view, though the last one ended in the other.
            assert_eq!(w.view(), View::One);
            assert_eq!((w.group(), w.rank(), w.size(), w.groups()), (0, w.thread(), 6, 1));
            w.switch(View::Groups);
            assert_eq!(w.view(), View::Groups);
            assert_eq!((w.group(), w.rank(), w.size(), w.groups()), (group, rank, size, 3));
            ran.fetch_add(1 << (8 * w.thread()), Relaxed);
        })
        .unwrap();
    }
    assert_eq!(ran.into_inner(), 0x02_02_02_02_02_02);
}

#[test]
fn impossible_specifications_are_named() {
    assert!(matches!(Pool::new(&spec(&[])), Err(Error::NoGroups)));
    let error = Pool::new(&spec(&[2, 0])).err().unwrap();
    assert!(matches!(error, Error::EmptyGroup { group: 1 }));
    assert!(error.to_string().contains("group 1"), "{error}");
}

/// A plain counter per thread, so that a wait that lets somebody through too early shows as a
/// wrong value (and as a data race to a sanitizer).
struct Counters(Vec<UnsafeCell<u64>>);

// SAFETY: each thread writes its own cell, and others read it only between two waits.
unsafe impl Sync for Counters {}

/// Random sequences of local waits, global waits and switches, the same for all threads of a
/// group; after each wait every thread checks the counters of all for whom it waited.
fn stress(sizes: &[usize], spin: Spin, seed: u64, steps: usize) {
    let mut pool = Pool::new(&PoolSpec { spin, ..spec(sizes) }).unwrap();
    let counters = Counters((0..pool.threads()).map(|_| UnsafeCell::new(0)).collect());
    let counters = &counters;
    let next = |state: &mut u64| {
        *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        *state >> 33
    };
    pool.run(&|w| {
        let mut common = seed;
        let mut mine = 0;
        let me = w.thread();
        // SAFETY: a thread writes only its own cell, and never while others may read it: each
        // step waits before the check and after it.
        let add = |n: u64| unsafe { *counters.0[me].get() += n };
        // SAFETY: as above.
        let read = |i: usize| unsafe { *counters.0[i].get() };
        for _ in 0..steps {
            match next(&mut common) % 4 {
                0 => {
                    w.switch(if w.view() == View::One { View::Groups } else { View::One });
                }
                1 => {
                    add(1);
                    mine += 1;
                    w.wait(Scope::Global);
                    for i in 0..w.threads() {
                        assert_eq!(read(i), read(me), "thread {i} seen too early");
                    }
                    w.wait(Scope::Global);
                }
                _ => {
                    // As many local rounds as the group likes: groups go apart here.
                    let first = w.thread() - w.rank();
                    let mut own = common ^ w.group() as u64;
                    for _ in 0..next(&mut own) % 8 {
                        add(1);
                        mine += 1;
                        w.wait(Scope::Local);
                        for i in first..first + w.size() {
                            assert_eq!(read(i) & 0xffff_ffff, mine, "thread {i} seen too early");
                        }
                        w.wait(Scope::Local);
                    }
                    // All counters agree again, and carry the round in the upper half.
                    w.wait(Scope::Global);
                    add((1 << 32) - mine);
                    mine = 0;
                    w.wait(Scope::Global);
                    for i in 0..w.threads() {
                        assert_eq!(read(i), read(me));
                    }
                    w.wait(Scope::Global);
                }
            }
        }
    })
    .unwrap();
}

#[test]
fn random_waits_let_nobody_through_too_early() {
    let shapes: &[&[usize]] = &[
        &[1],
        &[2],
        &[8],
        &[1, 1],
        &[2, 1],
        &[4, 4],
        &[1, 2, 3],
        &[1, 1, 1, 1],
        &[2, 2, 2, 2],
        &[5, 1, 1, 1],
    ];
    for (i, sizes) in shapes.iter().enumerate() {
        stress(sizes, Spin::Auto, i as u64, 150);
        stress(sizes, Spin::For(Duration::from_micros(5)), 100 + i as u64, 150);
    }
}

#[test]
fn thousands_of_jobs_reach_every_thread() {
    let mut pool = pool(&[2, 2]);
    let sum = AtomicUsize::new(0);
    for job in 0..3000 {
        pool.run(&|_| {
            sum.fetch_add(job, Relaxed);
        })
        .unwrap();
    }
    assert_eq!(sum.into_inner(), 4 * 3000 * 2999 / 2);
}

#[test]
fn a_panic_anywhere_is_reported_and_the_pool_lives_on() {
    let mut pool = pool(&[2, 2]);
    for culprit in [0, 1, 2, 3, 0] {
        for scope in [Scope::Local, Scope::Global] {
            let error = pool
                .run(&|w| {
                    w.switch(View::Groups);
                    if w.thread() == culprit {
                        panic!("thread {} gives up", w.thread());
                    }
                    w.wait(scope);
                    w.wait(Scope::Global);
                    unreachable!("a global wait without the culprit");
                })
                .unwrap_err();
            assert_eq!(error.thread, culprit);
            assert_eq!(error.message, format!("thread {culprit} gives up"));
            // The barriers work again, for everybody.
            let passed = AtomicUsize::new(0);
            pool.run(&|w| {
                passed.fetch_add(1, Relaxed);
                w.wait(Scope::Global);
                assert_eq!(passed.load(Relaxed), 4);
                w.switch(View::Groups);
                w.wait(Scope::Local);
            })
            .unwrap();
        }
    }
    let error = pool.run(&|_| std::panic::panic_any(7_u8)).unwrap_err();
    assert_eq!(error.message, "a value that is not text");
}

#[test]
fn waits_are_counted_by_how_far_they_reach() {
    let mut pool = Pool::new(&PoolSpec { stats: true, ..spec(&[2, 1]) }).unwrap();
    let job = |w: &mut arclight_threads::Worker| {
        w.wait(Scope::Local); // one view: reaches all
        w.switch(View::Groups);
        for _ in 0..5 {
            w.wait(Scope::Local);
        }
        if w.thread() == 1 {
            std::thread::sleep(Duration::from_millis(20));
        }
        w.wait(Scope::Global);
    };
    pool.run(&job).unwrap();
    let stats = pool.stats();
    assert_eq!(stats.len(), 3);
    for thread in &stats {
        assert_eq!((thread.local.count, thread.global.count), (5, 3));
    }
    // Two threads waited for the one that slept; half of it allows for a late start.
    assert!(stats[0].global.nanos > 10_000_000, "{stats:?}");
    assert!(stats[2].global.nanos > 10_000_000, "{stats:?}");
    pool.reset_stats();
    assert_eq!(pool.stats(), vec![arclight_threads::ThreadStats::default(); 3]);

    // One group: no wait leaves it.
    let mut single = Pool::new(&PoolSpec { stats: true, ..spec(&[2]) }).unwrap();
    single.run(&job).unwrap();
    assert_eq!((single.stats()[0].local.count, single.stats()[0].global.count), (8, 0));
    let mut silent = self::pool(&[2]);
    silent.run(&job).unwrap();
    assert!(silent.stats().is_empty());
}

#[test]
fn one_thread_of_each_group_crosses_at_a_global_wait() {
    const GLOBAL: u64 = 200;
    for sizes in [&[3][..], &[2, 1], &[1, 3, 2], &[2, 1, 1, 3]] {
        let mut pool = Pool::new(&PoolSpec { stats: true, ..spec(sizes) }).unwrap();
        let crossings = |pool: &Pool| pool.stats().iter().map(|t| t.crossings).sum::<u64>();
        pool.run(&|w| {
            for _ in 0..GLOBAL {
                w.wait(Scope::Global);
            }
        })
        .unwrap();
        // One group has no line to cross to: its global waits are local ones.
        let groups = if sizes.len() > 1 { sizes.len() as u64 } else { 0 };
        assert_eq!(crossings(&pool), groups * GLOBAL, "{sizes:?}");
        // And it is one of every group, not two of one and none of another.
        let stats = pool.stats();
        let mut first = 0;
        for &size in sizes {
            let of_group: u64 = stats[first..first + size].iter().map(|t| t.crossings).sum();
            assert_eq!(of_group, if groups > 0 { GLOBAL } else { 0 }, "{sizes:?}");
            first += size;
        }

        // Local waits cross only by way of the two switches.
        pool.reset_stats();
        pool.run(&|w| {
            w.switch(View::Groups);
            for _ in 0..100 {
                w.wait(Scope::Local);
            }
            w.switch(View::One);
        })
        .unwrap();
        assert_eq!(crossings(&pool), 2 * groups, "{sizes:?}");
    }
}

#[test]
fn a_threads_work_is_told_from_its_waits() {
    let mut pool = Pool::new(&PoolSpec { stats: true, ..spec(&[1, 2]) }).unwrap();
    for _ in 0..2 {
        pool.run(&|w| {
            if w.thread() == 2 {
                std::thread::sleep(Duration::from_millis(20));
            }
            w.wait(Scope::Global);
        })
        .unwrap();
    }
    let stats = pool.stats();
    for thread in &stats {
        assert_eq!(thread.jobs.count, 2);
        let waits = thread.local.nanos + thread.global.nanos;
        assert_eq!(thread.busy_nanos() + waits, thread.jobs.nanos, "{stats:?}");
    }
    // It slept for 40 ms, and the others have next to nothing to do; sleeping is never shorter.
    assert!(stats[2].busy_nanos() >= 40_000_000, "{stats:?}");
    assert!(stats[0].busy_nanos() < stats[2].busy_nanos(), "{stats:?}");
    // All others wait for it alone. A machine that lets another thread run 20 ms later would be another's fault.
    assert_eq!(stats[2].last.count, 2, "{stats:?}");
    assert!(stats[2].last.nanos >= 30_000_000, "{stats:?}");
    assert!(stats[..2].iter().all(|thread| thread.last == Waits::default()), "{stats:?}");
    // A job that ends in a panic has been run as well.
    pool.run(&|_| panic!("no")).unwrap_err();
    assert!(pool.stats().iter().all(|t| t.jobs.count == 3));
}

#[test]
fn threads_are_pinned_and_the_leader_gets_its_affinity_back() {
    // A thread of its own: the affinity of the test harness's thread is not ours to change.
    let test = || {
        let before = allowed();
        let (first, last) = (before[0], before[before.len() - 1]);
        let groups = |a, b| vec![Group::unbound(vec![a]), Group::unbound(vec![b, a])];
        let spec = |a, b| PoolSpec { groups: groups(a, b), ..PoolSpec::default() };
        let mut pool = Pool::new(&spec(first, last)).unwrap();
        assert_eq!(allowed(), before, "the leader is pinned by its first job, not before");
        let job = |w: &mut arclight_threads::Worker| {
            assert_eq!(allowed(), [[first], [last], [first]][w.thread()]);
        };
        pool.run(&job).unwrap();
        assert!(pool.warnings().is_empty(), "{:?}", pool.warnings());
        let free = arclight_threads::unpinned();
        let beside = std::thread::spawn(move || (allowed(), free(), allowed()));
        assert_eq!(beside.join().unwrap(), (vec![first], (), before.clone()));

        // A second pool takes the same leader elsewhere, and gives it back to the first.
        let mut other = Pool::new(&spec(last, first)).unwrap();
        other.run(&|w| assert_eq!(allowed(), [[last], [first], [last]][w.thread()])).unwrap();
        pool.run(&job).unwrap();
        drop(pool);
        other.run(&|w| assert_eq!(allowed(), [[last], [first], [last]][w.thread()])).unwrap();
        drop(other);
        assert_eq!(allowed(), before);
    };
    std::thread::spawn(test).join().unwrap();
}

#[test]
fn a_cpu_that_does_not_exist_is_a_warning() {
    let test = || {
        let (real, beyond_kernel) = (allowed()[0], CpuId(5_000_000));
        let groups = vec![Group::unbound(vec![CpuId(8191), real, beyond_kernel])];
        let mut pool = Pool::new(&PoolSpec { groups, ..PoolSpec::default() }).unwrap();
        let ran = AtomicUsize::new(0);
        for _ in 0..2 {
            pool.run(&|w| {
                ran.fetch_add(1, Relaxed);
                w.wait(Scope::Global);
            })
            .unwrap();
        }
        assert_eq!(ran.into_inner(), 6);
        let told: Vec<_> = pool.warnings().iter().map(ToString::to_string).collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("thread 2 is not pinned to cpu 5000000: "), "{told:?}");
        assert!(told[1].starts_with("thread 0 is not pinned to cpu 8191: "), "{told:?}");
    };
    std::thread::spawn(test).join().unwrap();
}

#[test]
fn a_pool_may_be_led_by_one_thread_after_another() {
    let groups = vec![Group::unbound(vec![allowed()[0]; 2])];
    let mut pool = Pool::new(&PoolSpec { groups, ..PoolSpec::default() }).unwrap();
    for leader in 0..3 {
        pool = std::thread::spawn(move || {
            pool.run(&|w| w.wait(Scope::Global)).unwrap();
            let moved = pool.warnings().iter().filter(|w| matches!(w, Warning::LeaderMoved));
            assert_eq!(moved.count(), usize::from(leader > 0));
            pool
        })
        .join()
        .unwrap();
    }
}

#[test]
fn dropping_a_pool_ends_its_threads() {
    let mine = |name: &str| {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let comm = |task: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
        };
        tasks.filter_map(comm).filter(|comm| comm.trim() == name).count()
    };
    // No other test has a thread with so high a number.
    let mut pool = pool(&[20]);
    assert_eq!(mine("worker-19"), 1);
    pool.run(&|w| w.wait(Scope::Global)).unwrap();
    drop(pool);
    assert_eq!(mine("worker-19"), 0);
}

#[test]
fn a_thread_that_is_moved_off_its_cpu_is_noticed() {
    let machine = topology::Machine::read().unwrap();
    let cpus: Vec<CpuId> = machine.cpus().iter().map(|c| c.id).collect();
    let [first, second, ..] = cpus[..] else { return }; // nowhere to be moved to
    let groups = vec![Group::unbound(vec![first, first])];
    let mut pool = Pool::new(&PoolSpec { groups, ..PoolSpec::default() }).unwrap();
    pool.run(&|_| {}).unwrap();
    assert_eq!(pool.strayed().count(), 0);
    // As a cpuset does when it loses the CPU: the affinity is another one.
    let tid = std::sync::atomic::AtomicI32::new(0);
    pool.run(&|worker| {
        if worker.thread() == 1 {
            // SAFETY: no preconditions.
            tid.store(unsafe { libc::gettid() }, std::sync::atomic::Ordering::Relaxed);
        }
    })
    .unwrap();
    // SAFETY: an empty set is all zeros.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: a CPU of this machine, in a set of the kernel's size.
    let moved = unsafe {
        libc::CPU_SET(second.0 as usize, &mut set);
        libc::sched_setaffinity(tid.into_inner(), size_of_val(&set), &raw const set)
    };
    assert_eq!(moved, 0);
    pool.run(&|_| {}).unwrap();
    assert_eq!(pool.strayed().collect::<Vec<_>>(), [1]);
}

#[test]
fn the_scheduler_tells_how_long_a_thread_was_not_let_run() {
    let cpu = allowed()[0];
    let groups = vec![Group::unbound(vec![cpu, cpu])];
    let mut pool = Pool::new(&PoolSpec { groups, ..PoolSpec::default() }).unwrap();
    let Some(before) = pool.cpu_times() else {
        println!("not tested: this kernel keeps no accounts of its scheduler");
        return;
    };
    // Two threads want 50 ms of one CPU, so one of them waits while the other runs.
    let work = Duration::from_millis(50);
    pool.run(&|_| {
        let begin = arclight_threads::thread_time();
        while arclight_threads::thread_time() - begin < work {}
    })
    .unwrap();
    let after = pool.cpu_times().unwrap();
    assert_eq!((before.len(), after.len()), (2, 2));
    let delayed: Duration = after.iter().zip(&before).map(|(a, b)| a.delayed - b.delayed).sum();
    // The first to end has waited for the other about as long as it has worked itself; a quarter of that leaves room
    // for turns of any length.
    assert!(delayed > work / 4, "{before:?}, then {after:?}");
}
