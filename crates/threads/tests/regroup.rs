//! A living pool goes to other groups: the same threads, with other barriers, levels and CPUs.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use arclight_threads::{Error, LEAST_STACK, MOST_STACK, Pool, PoolSpec, Scope, View};
use topology::{CpuId, Group};

/// Groups of these sizes, wherever the system lets them run.
fn spec(sizes: &[usize], levels: &[&[usize]]) -> PoolSpec {
    let groups = sizes.iter().map(|&size| Group::unbound(vec![CpuId(0); size])).collect();
    let levels = levels.iter().map(|level| level.to_vec()).collect();
    PoolSpec { groups, levels, pin: false, stats: true, ..PoolSpec::default() }
}

/// Runs a job on a level, in which every group counts its members between two of its own waits and all of them
/// between two waits for all; what each thread was, by its number.
fn seats(pool: &mut Pool, level: usize) -> Vec<(usize, usize, usize, usize)> {
    let (threads, groups) = (pool.threads(), pool.groups());
    let seats = Mutex::new(vec![(usize::MAX, 0, 0, 0); threads]);
    let counts: Vec<AtomicUsize> = (0..=groups).map(|_| AtomicUsize::new(0)).collect();
    pool.run_on(level, &|worker| {
        counts[groups].fetch_add(1, Relaxed);
        worker.switch(View::Groups);
        assert_eq!(counts[groups].load(Relaxed), worker.threads());
        counts[worker.group()].fetch_add(1, Relaxed);
        worker.wait(Scope::Local);
        assert_eq!(counts[worker.group()].load(Relaxed), worker.size());
        let seat = (worker.group(), worker.rank(), worker.size(), worker.groups());
        seats.lock().unwrap()[worker.thread()] = seat;
    })
    .unwrap();
    seats.into_inner().unwrap()
}

#[test]
fn the_same_threads_meet_in_other_groups() {
    let mut pool = Pool::new(&spec(&[2, 2], &[])).unwrap();
    let ids: Vec<i32> = pool.kernel_ids().collect();
    let two = [(0, 0, 2, 2), (0, 1, 2, 2), (1, 0, 2, 2), (1, 1, 2, 2)];
    assert_eq!(seats(&mut pool, 0), two);
    let before = pool.regroup(&spec(&[1, 3], &[&[1, 1]])).unwrap();
    assert_eq!((pool.threads(), pool.groups(), pool.levels()), (4, 2, 2));
    let (away, others) = ((usize::MAX, 0, 0, 0), [(0, 0, 1, 2), (1, 0, 1, 2)]);
    assert_eq!(seats(&mut pool, 0), [others[0], others[1], away, away]);
    assert_eq!(seats(&mut pool, 1), [(0, 0, 1, 2), (1, 0, 3, 2), (1, 1, 3, 2), (1, 2, 3, 2)]);
    pool.regroup(&spec(&[4], &[])).unwrap();
    assert_eq!(seats(&mut pool, 0), [0, 1, 2, 3].map(|rank| (0, rank, 4, 1)));
    // Groups that jobs were run in may be gone back to.
    pool.restore(before);
    assert_eq!(seats(&mut pool, 0), two);
    assert_eq!(pool.kernel_ids().collect::<Vec<_>>(), ids, "no thread was started or ended");
}

#[test]
fn threads_that_sleep_and_jobs_that_panic_are_no_obstacle() {
    let mut pool = Pool::new(&spec(&[1, 2], &[&[1, 1]])).unwrap();
    for round in 0..50 {
        let sizes: &[usize] = if round % 2 == 0 { &[2, 1] } else { &[1, 2] };
        // Those outside the level sleep on a gate of their own.
        seats(&mut pool, 0);
        let failed = pool.run(&|worker| {
            assert!(worker.thread() != 2, "planned");
            worker.wait(Scope::Global);
        });
        assert_eq!(failed.unwrap_err().thread, 2);
        pool.regroup(&spec(sizes, &[&[1, 1]])).unwrap();
        let all: Vec<usize> = seats(&mut pool, 1).iter().map(|seat| seat.2).collect();
        assert_eq!(all, if round % 2 == 0 { [2, 2, 1] } else { [1, 2, 2] });
    }
}

#[cfg(target_os = "linux")]
#[test]
fn pinned_threads_go_to_their_new_cpus() {
    let allowed = |id: i32| {
        let status = std::fs::read_to_string(format!("/proc/self/task/{id}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("Cpus_allowed_list")).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    let mine = allowed(std::process::id() as i32);
    let numbers = mine.split([',', '-']).map(|cpu| cpu.parse().unwrap());
    let cpus: Vec<CpuId> = numbers.map(CpuId).collect();
    let [first, last] = [cpus[0], *cpus.last().unwrap()];
    let groups = |order: [CpuId; 2]| order.map(|cpu| Group::unbound(vec![cpu])).to_vec();
    let spec = move |order| PoolSpec { groups: groups(order), ..PoolSpec::default() };
    // On a thread of its own, which the pool pins.
    std::thread::spawn(move || {
        let mut pool = Pool::new(&spec([first, last])).unwrap();
        for order in [[last, first], [first, last]] {
            pool.regroup(&spec(order)).unwrap();
            pool.run(&|_| {}).unwrap();
            let ids: Vec<i32> = pool.kernel_ids().collect();
            assert_eq!(allowed(ids[0]), order[0].0.to_string());
            assert_eq!(allowed(ids[1]), order[1].0.to_string());
            assert_eq!(pool.strayed().count(), 0);
            assert!(pool.warnings().is_empty(), "{:?}", pool.warnings());
        }
        drop(pool);
    })
    .join()
    .unwrap();
}

#[test]
fn groups_that_the_threads_cannot_go_to_change_nothing() {
    let mut pool = Pool::new(&spec(&[2, 1], &[])).unwrap();
    let before = seats(&mut pool, 0);
    let mut refused = |spec: &PoolSpec| pool.regroup(spec).err().unwrap().to_string();
    assert!(refused(&spec(&[2, 2], &[])).contains("3 threads cannot be regrouped to 4"));
    assert!(refused(&spec(&[3], &[&[4]])).contains("level 0 of the thread pool takes 4 of the 3"));
    if cfg!(target_os = "linux") {
        let pinned = PoolSpec { pin: true, ..spec(&[3], &[]) };
        assert!(refused(&pinned).contains("does not change whether its threads are pinned"));
    }
    assert_eq!(seats(&mut pool, 0), before);
}

#[test]
fn threads_have_the_stack_that_was_asked_for() {
    for stack in [0, LEAST_STACK - 1, MOST_STACK + 1, usize::MAX] {
        let error = Pool::new(&PoolSpec { stack, ..spec(&[2], &[]) }).err().unwrap();
        assert!(matches!(error, Error::Stack { bytes } if bytes == stack), "{error}");
        assert!(error.to_string().contains("256 KiB to 1 GiB"), "{error}");
    }
    // More than threads have by default.
    let mut pool = Pool::new(&PoolSpec { stack: 32 << 20, ..spec(&[2], &[]) }).unwrap();
    // Not part of the job's own frame: the leader has the stack of this thread.
    #[inline(never)]
    fn large(at: usize) -> u8 {
        std::hint::black_box([1; 8 << 20])[at]
    }
    pool.run(&|worker| {
        if worker.thread() > 0 {
            assert_eq!(large(worker.thread()), 1);
        }
    })
    .unwrap();
}
