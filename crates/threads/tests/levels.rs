//! Jobs on some of a pool's threads: who takes part, what they meet on, and that the others sleep.

use std::cell::UnsafeCell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use arclight_threads::{Error, Homes, Policy, Pool, PoolSpec, Scope, Spin, View, Worker};
use proptest::prelude::*;
use topology::{CpuId, Group};

/// An unpinned pool with groups of these sizes and these levels, with statistics.
fn spec(sizes: &[usize], levels: &[&[usize]]) -> PoolSpec {
    let groups = sizes.iter().map(|&n| Group::unbound((0..n as u32).map(CpuId).collect()));
    let levels = levels.iter().map(|level| level.to_vec()).collect();
    let groups = groups.collect();
    PoolSpec { groups, levels, pin: false, stats: true, ..PoolSpec::default() }
}

fn pool(sizes: &[usize], levels: &[&[usize]]) -> Pool {
    Pool::new(&spec(sizes, levels)).unwrap()
}

/// What a worker says of itself: group, rank, size and number of groups.
fn place(w: &Worker) -> [usize; 4] {
    [w.group(), w.rank(), w.size(), w.groups()]
}

#[test]
fn every_level_runs_its_threads_and_they_know_their_places() {
    let mut pool = pool(&[3, 1, 2], &[&[1, 1, 1], &[2, 1, 1], &[2, 1, 1]]);
    assert_eq!((pool.threads(), pool.groups(), pool.levels()), (6, 3, 4));
    // The threads of each level, and the group and rank of each thread.
    let parts = [&[0, 3, 4][..], &[0, 1, 3, 4], &[0, 1, 3, 4], &[0, 1, 2, 3, 4, 5]];
    let sizes = [[1, 1, 1], [2, 1, 1], [2, 1, 1], [3, 1, 2]];
    let homes = [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (2, 1)];
    for level in [0, 3, 1, 0, 2, 3, 3, 0, 0, 1] {
        let ran = Mutex::new(Vec::new());
        pool.run_on(level, &|w| {
            let (me, active) = (w.thread(), parts[level].len());
            let (home, home_rank) = homes[me];
            let index = parts[level].iter().position(|&thread| thread == me).unwrap();
            assert_eq!((w.threads(), w.index(), w.home()), (active, index, home));
            // Every job begins in one view, though the last one ended in the other.
            assert_eq!((w.view(), place(w)), (View::One, [0, index, active, 1]));
            w.switch(View::Groups);
            assert_eq!(place(w), [home, home_rank, sizes[level][home], 3]);
            assert_eq!((w.threads(), w.index(), w.home()), (active, index, home));
            ran.lock().unwrap().push(me);
        })
        .unwrap();
        let mut ran = ran.into_inner().unwrap();
        ran.sort_unstable();
        assert_eq!(ran, parts[level], "level {level}");
    }
    // Level 0 four times, 1 twice, 2 once, 3 three times; a job on all is one of the last level.
    pool.run(&|w| assert_eq!(w.threads(), 6)).unwrap();
    let jobs: Vec<u64> = pool.stats().iter().map(|thread| thread.jobs.count).collect();
    assert_eq!(jobs, [11, 7, 4, 11, 11, 4]);
}

#[test]
fn without_levels_there_is_one() {
    let mut pool = pool(&[2, 1], &[]);
    assert_eq!(pool.levels(), 1);
    let ran = AtomicUsize::new(0);
    pool.run_on(0, &|_| {
        ran.fetch_add(1, Relaxed);
    })
    .unwrap();
    assert_eq!(ran.into_inner(), 3);
}

#[test]
#[should_panic(expected = "a job of level 2, but the pool's levels are 0..2")]
fn there_must_be_such_a_level() {
    let _ = pool(&[2], &[&[1]]).run_on(2, &|_| {});
}

#[test]
fn levels_that_do_not_fit_are_named() {
    let refused = |levels: &[&[usize]]| Pool::new(&spec(&[2, 3], levels)).err().unwrap();
    for (given, levels) in [(1, &[&[1, 1][..], &[1]]), (3, &[&[1, 1], &[1, 1, 1]])] {
        let error = refused(levels);
        let named =
            matches!(error, Error::LevelShape { level: 1, groups: 2, given: n } if n == given);
        assert!(named, "{error}");
    }
    assert!(matches!(refused(&[&[]]), Error::LevelShape { level: 0, given: 0, groups: 2 }));
    for threads in [0, 4] {
        let error = refused(&[&[1, 1], &[1, threads]]);
        let named = matches!(
            error,
            Error::LevelSize { level: 1, group: 1, threads: n, size: 3 } if n == threads
        );
        assert!(named, "{error}");
        assert!(error.to_string().contains("3 threads of group 1"), "{error}");
    }
    let error = refused(&[&[1, 1], &[1, 3], &[2, 2]]);
    let order = Error::LevelOrder { level: 2, group: 1, threads: 2, below: 3 };
    assert_eq!(error.to_string(), order.to_string());
    // Equal levels and a level of all threads are allowed.
    assert_eq!(pool(&[2, 3], &[&[1, 1], &[1, 1], &[2, 3]]).levels(), 4);
}

/// A plain counter per thread, so that a wait that lets somebody through too early shows as a
/// wrong value (and as a data race to a sanitizer).
struct Counters(Vec<UnsafeCell<u64>>);

// SAFETY: each thread writes its own cell, and others read it only between two waits.
unsafe impl Sync for Counters {}

/// What the threads of a job do together.
#[derive(Clone, Copy, Debug)]
enum Step {
    Switch,
    Global,
    /// So many local waits; each group makes some more of its own, by its number.
    Local(usize),
    /// A set of tasks, and the wait after it.
    Tasks(Policy, usize),
}

/// Runs steps as one thread of a job; `counters` has a cell for every thread of the pool, `runs` one
/// for every step and task. After each wait every thread checks the counters of all for whom it waited.
fn job(
    w: &mut Worker,
    ids: &[usize],
    counters: &Counters,
    runs: &[Vec<AtomicUsize>],
    steps: &[Step],
) {
    let me = w.thread();
    // SAFETY: a thread writes only its own cell, and never while others may read it: each check has
    // a wait before it and one after it.
    let set = |n: u64| unsafe { *counters.0[me].get() = n };
    // SAFETY: as above.
    let read = |thread: usize| unsafe { *counters.0[thread].get() };
    let check = |ids: &[usize], value: u64| {
        ids.iter()
            .for_each(|&thread| assert_eq!(read(thread), value, "thread {thread} of {ids:?}"));
    };
    assert_eq!(ids[w.index()], me);
    for (at, step) in steps.iter().enumerate() {
        let value = at as u64 + 1;
        match *step {
            Step::Switch => {
                set(value);
                w.switch(if w.view() == View::One { View::Groups } else { View::One });
                check(ids, value);
            }
            Step::Global => {
                set(value);
                w.wait(Scope::Global);
                check(ids, value);
            }
            Step::Local(waits) => {
                let first = w.index() - w.rank();
                let group = &ids[first..first + w.size()];
                for wait in 0..waits + w.group() {
                    let value = value + 1000 * wait as u64;
                    set(value);
                    w.wait(Scope::Local);
                    check(group, value);
                    w.wait(Scope::Local);
                }
            }
            Step::Tasks(policy, tasks) => {
                // In groups every group has tasks of its own: as many, with the same numbers.
                w.tasks(policy, Homes::None(tasks), |task| {
                    if task % 3 == 0 {
                        std::thread::yield_now();
                    }
                    runs[at][task].fetch_add(1, Relaxed);
                });
                w.wait(Scope::Global);
                assert!(runs[at].iter().all(|n| n.load(Relaxed) == w.groups()), "{runs:?}");
            }
        }
        w.wait(Scope::Global);
    }
}

fn any_step() -> impl Strategy<Value = Step> {
    let policy = proptest::sample::select(Policy::ALL.to_vec());
    prop_oneof![
        Just(Step::Switch),
        Just(Step::Global),
        (0..4usize).prop_map(Step::Local),
        (policy, 0..20usize).prop_map(|(policy, tasks)| Step::Tasks(policy, tasks)),
    ]
}

/// Groups, some levels of theirs in ascending order, and jobs at these levels and on all.
#[derive(Clone, Debug)]
struct Case {
    sizes: Vec<usize>,
    levels: Vec<Vec<usize>>,
    jobs: Vec<(usize, Vec<Step>)>,
}

fn any_case() -> impl Strategy<Value = Case> {
    let sizes = proptest::collection::vec(1..4usize, 1..4);
    (sizes, 0..3usize)
        .prop_flat_map(|(sizes, count)| {
            // Sorted by group, any rows ascend.
            let column = |&size: &usize| proptest::collection::vec(1..=size, count);
            let columns: Vec<_> = sizes.iter().map(column).collect();
            let levels = columns.prop_map(move |mut columns| {
                columns.iter_mut().for_each(|column| column.sort_unstable());
                let row = |level| columns.iter().map(|column: &Vec<usize>| column[level]).collect();
                (0..count).map(row).collect::<Vec<Vec<usize>>>()
            });
            let steps = proptest::collection::vec(any_step(), 0..6);
            (Just(sizes), levels, proptest::collection::vec((0..=count, steps), 1..12))
        })
        .prop_map(|(sizes, levels, jobs)| Case { sizes, levels, jobs })
}

fn run(case: &Case, spin: Spin) {
    let levels: Vec<&[usize]> = case.levels.iter().map(Vec::as_slice).collect();
    let mut pool = Pool::new(&PoolSpec { spin, ..spec(&case.sizes, &levels) }).unwrap();
    let counters = Counters((0..pool.threads()).map(|_| UnsafeCell::new(0)).collect());
    for (level, steps) in &case.jobs {
        let row = case.levels.get(*level).unwrap_or(&case.sizes);
        let mut ids = Vec::new();
        let mut first = 0;
        for (&size, &part) in case.sizes.iter().zip(row) {
            ids.extend(first..first + part);
            first += size;
        }
        let tasks = |step: &Step| if let Step::Tasks(_, tasks) = step { *tasks } else { 0 };
        let runs = steps.iter().map(|step| (0..tasks(step)).map(|_| AtomicUsize::new(0)).collect());
        let runs: Vec<Vec<AtomicUsize>> = runs.collect();
        let (counters, ids) = (&counters, &ids);
        pool.run_on(*level, &|w| job(w, ids, counters, &runs, steps)).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn jobs_at_any_levels_wait_and_share_tasks(case in any_case()) {
        run(&case, Spin::Auto);
        run(&case, Spin::For(Duration::from_micros(5)));
    }
}

/// A set of tasks in either view; every task is to be run once.
fn set(pool: &mut Pool, level: usize, tasks: usize) {
    let runs: Vec<_> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
    let homes = [tasks - tasks / 3, tasks / 3];
    let groups = pool.groups();
    pool.run_on(level, &|w| {
        for view in [View::One, View::Groups] {
            w.switch(view);
            let homes = if groups == 2 { Homes::Counts(&homes) } else { Homes::None(tasks) };
            w.tasks(Policy::Balanced, homes, |task| {
                runs[task].fetch_add(1, Relaxed);
            });
        }
    })
    .unwrap();
    assert!(runs.iter().all(|n| n.load(Relaxed) == 2), "level {level}: {runs:?}");
}

/// A queue's word has 16 bits of the round. Whatever happens at one level, at another it is never more
/// than one round behind.
#[test]
fn sets_at_one_level_do_not_count_at_another() {
    // One thread of each group at the lower level: its rounds need nobody else, and are quick. Seen as
    // one, a pool of two groups would meet in every round.
    let shapes = [(&[3][..], &[1][..], View::One), (&[2, 2], &[1, 1], View::Groups)];
    for (sizes, low, view) in shapes {
        let mut pool = pool(sizes, &[low]);
        for rounds in [1, (1 << 16) - 2, (1 << 16) - 1, 1 << 16] {
            set(&mut pool, 1, 40);
            let ran = AtomicUsize::new(0);
            pool.run_on(0, &|w| {
                w.switch(view);
                for _ in 0..rounds {
                    w.tasks(Policy::Balanced, Homes::None(1), |_| {
                        ran.fetch_add(1, Relaxed);
                    });
                }
            })
            .unwrap();
            assert_eq!(ran.into_inner(), rounds * sizes.len());
            set(&mut pool, 1, 40);
            set(&mut pool, 0, 7);
        }
    }
}

#[test]
fn a_panic_at_one_level_leaves_nothing_behind_at_another() {
    let mut pool = pool(&[3, 2], &[&[1, 1], &[2, 1]]);
    let parts = [&[0, 3][..], &[0, 1, 3], &[0, 1, 2, 3, 4]];
    for (level, part) in parts.iter().enumerate() {
        for &culprit in *part {
            for scope in [Scope::Local, Scope::Global] {
                let error = pool
                    .run_on(level, &|w| {
                        w.tasks(Policy::Balanced, Homes::None(9), |_| {});
                        w.switch(View::Groups);
                        w.tasks(Policy::Local, Homes::None(9), |_| {});
                        assert_ne!(w.thread(), culprit, "gives up");
                        w.wait(scope);
                        w.wait(Scope::Global);
                        unreachable!("a global wait without the culprit");
                    })
                    .unwrap_err();
                assert_eq!(error.thread, culprit);
                for other in [2, 0, 1, 2] {
                    let passed = AtomicUsize::new(0);
                    pool.run_on(other, &|w| {
                        passed.fetch_add(1, Relaxed);
                        w.wait(Scope::Global);
                        assert_eq!(passed.load(Relaxed), parts[other].len());
                        w.switch(View::Groups);
                        w.wait(Scope::Local);
                    })
                    .unwrap();
                    set(&mut pool, other, 20);
                }
            }
        }
    }
}

#[test]
fn a_pool_may_end_after_a_job_at_any_level() {
    for last in 0..3 {
        let mut pool = pool(&[2, 2], &[&[1, 1], &[2, 1]]);
        for level in [2, last] {
            pool.run_on(level, &|w| w.wait(Scope::Global)).unwrap();
        }
        drop(pool); // joins the threads that had no part in the last job too
    }
    drop(pool(&[2], &[&[1]])); // and those that never had a job
}

#[test]
fn only_the_threads_of_a_level_are_stealable_from() {
    let mut pool = pool(&[2], &[&[1]]);
    let counts = |pool: &Pool| -> Vec<_> {
        pool.stats().iter().map(|t| (t.tasks.count, t.tasks.stealable)).collect()
    };
    // Alone there is nobody who could take a task.
    set(&mut pool, 0, 5);
    assert_eq!(counts(&pool), [(10, 0), (0, 0)]);
    pool.reset_stats();
    set(&mut pool, 1, 5);
    assert_eq!(counts(&pool).iter().map(|(count, _)| count).sum::<u64>(), 10);
    assert!(counts(&pool).iter().all(|(count, stealable)| count == stealable));
}

/// State of a thread of this process, and how often it has left a CPU.
fn life(tid: i32) -> (char, u64) {
    let status = std::fs::read_to_string(format!("/proc/self/task/{tid}/status")).unwrap();
    let value = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        line.unwrap_or_else(|| panic!("no {key} in {status}")).trim()
    };
    let switches = |key: &str| value(key).parse::<u64>().unwrap();
    let left = switches("voluntary_ctxt_switches:") + switches("nonvoluntary_ctxt_switches:");
    (value("State:").chars().next().unwrap(), left)
}

#[test]
fn who_has_no_part_in_jobs_sleeps_through_them() {
    let (jobs, spin) = (200, Spin::For(Duration::from_micros(30)));
    let spec = spec(&[3, 2], &[&[1, 1], &[2, 1]]);
    let mut pool = Pool::new(&PoolSpec { spin, ..spec }).unwrap();
    let tids: Vec<AtomicI32> = (0..5).map(|_| AtomicI32::new(0)).collect();
    for (level, out) in [(0, &[1, 2, 4][..]), (1, &[2, 4])] {
        pool.run(&|w| {
            // SAFETY: no preconditions.
            tids[w.thread()].store(unsafe { libc::gettid() }, Relaxed);
        })
        .unwrap();
        let lives = || out.iter().map(|&thread: &usize| life(tids[thread].load(Relaxed)));
        let all_sleep = || {
            while !lives().all(|(state, _)| state == 'S') {
                std::thread::yield_now();
            }
        };
        // They go to sleep while others are at work.
        pool.run_on(level, &|w| {
            if w.thread() == 0 {
                all_sleep();
            }
            w.wait(Scope::Global);
        })
        .unwrap();
        let before: Vec<u64> = lives().map(|(_, left)| left).collect();
        for _ in 0..jobs {
            pool.run_on(level, &|w| w.wait(Scope::Global)).unwrap();
            // Who was woken has left its CPU once more by now.
            all_sleep();
        }
        for ((_, after), before) in lives().zip(before) {
            // The system may stop a process and let it go on, which wakes everybody, so a few are
            // forgiven; one per job would be 200.
            assert!(after - before < 20, "woken {} times in {jobs} jobs", after - before);
        }
    }
}
