//! Sets of tasks through the pool's public face: each is run once, by whom the policy says, and no
//! panic leaves anything behind.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

use arclight_threads::{Error, Homes, Policy, Pool, PoolSpec, Scope, TaskReport, View, Worker};
use proptest::prelude::*;
use topology::{CpuId, Group};

/// An unpinned pool with groups of these sizes, with statistics.
fn spec(sizes: &[usize]) -> PoolSpec {
    let groups = sizes.iter().map(|&n| Group::unbound((0..n as u32).map(CpuId).collect()));
    PoolSpec { groups: groups.collect(), pin: false, stats: true, ..PoolSpec::default() }
}

fn pool(sizes: &[usize]) -> Pool {
    Pool::new(&spec(sizes)).unwrap()
}

fn counters(n: usize) -> Vec<AtomicUsize> {
    (0..n).map(|_| AtomicUsize::new(0)).collect()
}

fn until(ready: impl Fn() -> bool) {
    while !ready() {
        std::thread::yield_now();
    }
}

/// A plain value per task: a task that is run twice or read too early is a data race to a sanitizer,
/// and mostly a wrong value.
struct Cells(Vec<UnsafeCell<usize>>);

// SAFETY: each cell is written by the one thread that runs its task, and read after a wait.
unsafe impl Sync for Cells {}

impl Cells {
    fn new(n: usize) -> Self {
        Self((0..n).map(|_| UnsafeCell::new(0)).collect())
    }

    fn add(&self, at: usize) {
        // SAFETY: only the thread that runs the task is here.
        unsafe { *self.0[at].get() += 1 };
    }

    fn get(&self, at: usize) -> usize {
        // SAFETY: after a wait.
        unsafe { *self.0[at].get() }
    }
}

/// One set of tasks that all threads of the pool run.
#[derive(Clone, Debug)]
struct Set {
    policy: Policy,
    counts: Vec<usize>,
    homes: bool,
    /// Some tasks give the CPU away, so that others come to steal.
    slow: usize,
    /// Wait after it; otherwise the next set must see to that.
    wait: bool,
}

impl Set {
    fn total(&self) -> usize {
        self.counts.iter().sum()
    }

    fn homes(&self) -> Homes<'_> {
        if self.homes { Homes::Counts(&self.counts) } else { Homes::None(self.total()) }
    }

    /// Runs a task of this set.
    fn task(&self, cells: &Cells, task: usize) {
        if self.slow > 0 && task.is_multiple_of(self.slow) {
            std::thread::yield_now();
        }
        cells.add(task);
    }
}

/// In one view, in groups, and in one view again: groups then come with different numbers of sets
/// behind them.
fn each_once(sizes: &[usize], sets: &[Set], rounds: usize) {
    let mut pool = pool(sizes);
    let groups = sizes.len();
    let new = || -> Vec<Cells> { sets.iter().map(|set| Cells::new(set.total())).collect() };
    for _ in 0..rounds {
        let (one, split, again) = (new(), new(), new());
        // In groups without homes every group has tasks of its own, of another number in each.
        let own: Vec<Vec<Cells>> = (0..groups)
            .map(|g| sets.iter().map(|set| Cells::new(set.counts[g])).collect())
            .collect();
        pool.run(&|w: &mut Worker| {
            let pass = |w: &mut Worker, all: &[Cells]| {
                for (set, cells) in sets.iter().zip(all) {
                    w.tasks(set.policy, set.homes(), |task| set.task(cells, task));
                    if set.wait {
                        w.wait(Scope::Local);
                        for at in 0..set.total() {
                            assert_eq!(cells.get(at), 1, "task {at} of {set:?} in {sizes:?}");
                        }
                        w.wait(Scope::Local);
                    }
                }
            };
            pass(w, &one);
            w.switch(View::Groups);
            for (set, cells) in sets.iter().zip(&split) {
                let homes = Homes::Counts(&set.counts);
                w.tasks(set.policy, homes, |task| set.task(cells, task));
            }
            for (set, cells) in sets.iter().zip(&own[w.home()]).skip(w.home()) {
                let homes = Homes::None(set.counts[w.home()]);
                w.tasks(set.policy, homes, |task| set.task(cells, task));
            }
            w.switch(View::One);
            pass(w, &again);
        })
        .unwrap();
        let once = |all: &[Cells], skip: usize| {
            for (set, cells) in sets.iter().zip(all).skip(skip) {
                let runs: Vec<usize> = (0..cells.0.len()).map(|at| cells.get(at)).collect();
                assert!(runs.iter().all(|&n| n == 1), "{runs:?} of {set:?} in {sizes:?}");
            }
        };
        once(&one, 0);
        once(&split, 0);
        once(&again, 0);
        own.iter().enumerate().for_each(|(group, all)| once(all, group));
    }
}

#[test]
fn every_task_is_run_once_with_none_one_few_and_a_remainder() {
    for sizes in [&[1][..], &[3], &[1, 1], &[2, 2], &[1, 3, 2], &[1, 1, 1, 1]] {
        let threads: usize = sizes.iter().sum();
        let mut sets = Vec::new();
        for policy in Policy::ALL {
            for total in [0, 1, threads - 1, threads, threads + 1, 5 * threads + threads / 2, 61] {
                let counts = (0..sizes.len()).map(|g| if g == 0 { total } else { total / (g + 1) });
                let homes = total % 2 == 0;
                let counts = counts.collect();
                sets.push(Set { policy, counts, homes, slow: total % 3, wait: total % 4 == 1 });
            }
        }
        each_once(sizes, &sets, 3);
    }
}

fn any_set(groups: usize) -> impl Strategy<Value = Set> {
    let policy = proptest::sample::select(Policy::ALL.to_vec());
    let count = prop_oneof![Just(0), Just(1), 0..5usize, 0..60usize];
    let counts = proptest::collection::vec(count, groups);
    (policy, counts, any::<bool>(), 0..4usize, any::<bool>())
        .prop_map(|(policy, counts, homes, slow, wait)| Set { policy, counts, homes, slow, wait })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn every_task_is_run_once(
        (sizes, sets) in proptest::collection::vec(1..4usize, 1..4).prop_flat_map(|sizes| {
            let sets = proptest::collection::vec(any_set(sizes.len()), 1..8);
            (Just(sizes), sets)
        })
    ) {
        each_once(&sizes, &sets, 2);
    }
}

#[test]
fn local_tasks_stay_in_their_group_and_disabled_ones_with_their_thread() {
    let mut pool = pool(&[2, 1, 2]);
    let counts = [7, 9, 2];
    let home = |task| usize::from(task >= 7) + usize::from(task >= 16);
    // Thread 2 is the only one of group 1; it comes when all others have had their time.
    let (others, astray) = (AtomicUsize::new(0), AtomicUsize::new(0));
    pool.run(&|w| {
        if w.thread() == 2 {
            until(|| others.load(SeqCst) == 4);
        }
        let own = w.home();
        w.tasks(Policy::Local, Homes::Counts(&counts), |task| {
            astray.fetch_add(usize::from(home(task) != own), Relaxed);
        });
        others.fetch_add(1, SeqCst);
    })
    .unwrap();
    assert_eq!(astray.into_inner(), 0);
    let ran: Vec<u64> = pool.stats().iter().map(|t| t.tasks.count).collect();
    assert_eq!((ran[0] + ran[1], ran[2], ran[3] + ran[4]), (7, 9, 2));
    assert!(pool.stats().iter().all(|t| t.tasks.far == 0));

    pool.reset_stats();
    let (others, astray) = (AtomicUsize::new(0), AtomicUsize::new(0));
    pool.run(&|w| {
        if w.thread() == 2 {
            until(|| others.load(SeqCst) == 4);
        }
        // 18 tasks for 5 threads: 4, 4, 4, 3, 3.
        let first = [0, 4, 8, 12, 15, 18];
        let own = first[w.thread()]..first[w.thread() + 1];
        w.tasks(Policy::Disabled, Homes::Counts(&counts), |task| {
            astray.fetch_add(usize::from(!own.contains(&task)), Relaxed);
        });
        others.fetch_add(1, SeqCst);
    })
    .unwrap();
    assert_eq!(astray.into_inner(), 0);
    let ran: Vec<u64> = pool.stats().iter().map(|t| t.tasks.count).collect();
    assert_eq!(ran, [4, 4, 4, 3, 3]);
}

/// Two threads are held in the first of their tasks until all others are done, so the third runs them.
/// What it ran, in order.
fn stolen_by_one(
    spec: &PoolSpec,
    policy: Policy,
    held: [usize; 2],
    thief: usize,
) -> (Vec<usize>, Pool) {
    let mut pool = Pool::new(spec).unwrap();
    let tasks = if spec.groups.len() == 2 { vec![10, 5] } else { vec![0, 5, 5] };
    let total: usize = tasks.iter().sum();
    let begun = AtomicUsize::new(0);
    let done = AtomicUsize::new(0);
    let order = std::sync::Mutex::new(Vec::new());
    pool.run(&|w| {
        if w.thread() == thief {
            until(|| begun.load(SeqCst) == 2);
        }
        let (me, mut first) = (w.thread(), true);
        let homes = Homes::Counts(&tasks);
        w.tasks(policy, homes, |task| {
            if held.contains(&me) && std::mem::take(&mut first) {
                begun.fetch_add(1, SeqCst);
                until(|| done.load(SeqCst) == total - 2);
                return;
            }
            assert_eq!(me, thief, "task {task}");
            order.lock().unwrap().push(task);
            done.fetch_add(1, SeqCst);
        });
        w.wait(Scope::Global);
    })
    .unwrap();
    (order.into_inner().unwrap(), pool)
}

#[test]
fn a_thief_turns_to_its_own_group_first() {
    // Threads 0 and 2 are held, thread 1 is the thief: its own five, thread 0's four, thread 2's.
    let (order, pool) = stolen_by_one(&spec(&[2, 1]), Policy::Balanced, [0, 2], 1);
    assert_eq!(order, [5, 6, 7, 8, 9, 4, 3, 2, 1, 14, 13, 12, 11]);
    let stats: Vec<_> = pool.stats().iter().map(|t| t.tasks).collect();
    assert_eq!((stats[1].count, stats[1].near, stats[1].far), (13, 4, 4));
    assert_eq!((stats[0].count, stats[0].near, stats[2].count, stats[2].far), (1, 0, 1, 0));
    // 4, 3, 2, 1, 0 left of its own, then of the others' 3, 2, 1, 0 each.
    assert_eq!((stats[1].depths, stats[1].deepest), (10 + 6 + 6, 4));
    let report = TaskReport::of(&pool.stats());
    assert_eq!((report.counts.count, report.counts.stealable, report.counts.deepest), (15, 15, 4));
    assert_eq!((report.stolen(), report.stolen_far()), (Some(8.0 / 15.0), Some(4.0 / 15.0)));
    assert!(report.warnings().iter().any(|w| w.trouble && w.to_string().contains("were stolen")));
}

#[test]
fn a_thief_turns_to_the_nearest_group_first() {
    // Thread 0 has no tasks.
    let table = |near: usize| {
        let mut table = vec![vec![20; 3]; 3];
        (0..3).for_each(|g| table[g][g] = 10);
        table[0][near] = 12;
        table
    };
    let (first, second) = ([4, 3, 2, 1], [9, 8, 7, 6]);
    for (near, order) in [(1, [first, second]), (2, [second, first])] {
        let spec = PoolSpec { distances: table(near), ..spec(&[1, 1, 1]) };
        let (ran, pool) = stolen_by_one(&spec, Policy::Balanced, [1, 2], 0);
        assert_eq!(ran, order.concat(), "group {near} is nearest");
        assert_eq!((pool.stats()[0].tasks.near, pool.stats()[0].tasks.far), (0, 8));
    }
    for distances in [table(1)[..2].to_vec(), vec![vec![10; 2]; 3]] {
        let error = Pool::new(&PoolSpec { distances, ..spec(&[1, 1, 1]) }).err().unwrap();
        assert!(matches!(error, Error::Distances { groups: 3 }), "{error}");
    }
}

#[test]
fn a_thread_that_comes_late_finds_its_tasks_done() {
    for policy in [Policy::Local, Policy::Interleave, Policy::Balanced] {
        let mut pool = pool(&[2]);
        let done = AtomicUsize::new(0);
        for set in 1..=3 {
            pool.run(&|w| {
                // Nothing but the others can bring it here: that it ends shows that they did.
                if w.thread() == 1 {
                    until(|| done.load(SeqCst) == set * 9);
                }
                let me = w.thread();
                w.tasks(policy, Homes::None(9), |_| {
                    assert_eq!(me, 0);
                    done.fetch_add(1, SeqCst);
                });
            })
            .unwrap();
        }
        assert_eq!((pool.stats()[0].tasks.count, pool.stats()[0].tasks.near), (27, 12));
    }
}

#[test]
fn a_set_begins_when_the_one_before_is_done() {
    let mut pool = pool(&[1, 1]);
    for _ in 0..20 {
        let done = AtomicUsize::new(0);
        pool.run(&|w| {
            w.tasks(Policy::Balanced, Homes::None(2), |task| {
                if task == 0 {
                    (0..200).for_each(|_| std::thread::yield_now());
                }
                done.fetch_add(1, SeqCst);
            });
            // No wait: the pool must see to it.
            w.tasks(Policy::Balanced, Homes::None(8), |_| assert_eq!(done.load(SeqCst), 2));
        })
        .unwrap();
    }
}

#[test]
fn one_wait_stands_between_two_sets_and_none_where_nothing_is_stolen() {
    let mut pool = pool(&[2]);
    let mut waits = |first, between, second| {
        pool.reset_stats();
        pool.run(&|w| {
            w.tasks(first, Homes::None(5), |_| {});
            (0..between).for_each(|_| w.wait(Scope::Local));
            w.tasks(second, Homes::None(5), |_| {});
        })
        .unwrap();
        pool.stats().iter().map(|thread| thread.local.count).collect::<Vec<_>>()
    };
    assert_eq!(waits(Policy::Balanced, 0, Policy::Local), [1, 1]);
    assert_eq!(waits(Policy::Balanced, 1, Policy::Local), [1, 1]);
    assert_eq!(waits(Policy::Balanced, 2, Policy::Local), [2, 2]);
    assert_eq!(waits(Policy::Disabled, 0, Policy::Balanced), [0, 0]);
}

#[test]
fn a_panic_in_a_task_or_beside_it_leaves_nothing_behind() {
    let mut pool = pool(&[2, 1]);
    let check = |pool: &mut Pool| {
        for policy in Policy::ALL {
            let runs = counters(20);
            pool.run(&|w| {
                w.tasks(policy, Homes::Counts(&[13, 7]), |task| {
                    runs[task].fetch_add(1, Relaxed);
                });
                w.switch(View::Groups);
                w.tasks(policy, Homes::Counts(&[13, 7]), |task| {
                    runs[task].fetch_add(1, Relaxed);
                });
            })
            .unwrap();
            assert!(runs.iter().all(|n| n.load(Relaxed) == 2), "{policy:?}: {runs:?}");
        }
    };
    for policy in Policy::ALL {
        for culprit in [0, 7, 12, 19] {
            let error = pool
                .run(&|w| {
                    w.tasks(policy, Homes::Counts(&[13, 7]), |task| {
                        assert!(task != culprit, "task {task} fails");
                    });
                    w.wait(Scope::Global);
                    unreachable!("a wait without the culprit");
                })
                .unwrap_err();
            assert_eq!(error.message, format!("task {culprit} fails"));
            check(&mut pool);
        }
        // Beside it: some threads have come to the set and others never do.
        for culprit in 0..3 {
            for sets in 1..4 {
                let error = pool
                    .run(&|w| {
                        for set in 0..sets {
                            if w.thread() == culprit && set + 1 == sets {
                                panic!("thread {culprit} gives up");
                            }
                            w.tasks(policy, Homes::Counts(&[13, 7]), |_| {});
                        }
                        w.wait(Scope::Global);
                    })
                    .unwrap_err();
                assert_eq!(error.thread, culprit);
                check(&mut pool);
            }
        }
    }
}

#[test]
fn what_cannot_be_dealt_is_an_error_of_the_job() {
    let mut pool = pool(&[1, 1]);
    let job = |homes| move |w: &mut Worker| w.tasks(Policy::Balanced, homes, |_| {});
    let error = pool.run(&job(Homes::Counts(&[1, 2, 3]))).unwrap_err();
    assert_eq!(error.message, "tasks have 3 homes, but the pool has 2 groups");
    let error = pool.run(&job(Homes::None(1 << 24))).unwrap_err();
    assert_eq!(error.message, "16777216 tasks at once: at most 16777215 can be dealt");
    pool.run(&job(Homes::None(3))).unwrap();
}

#[test]
fn the_wait_after_a_set_is_idleness_and_no_other_wait() {
    let mut pool = pool(&[2]);
    for policy in [Policy::Disabled, Policy::Balanced] {
        pool.reset_stats();
        pool.run(&|w| {
            w.tasks(policy, Homes::None(2), |_| {});
            w.wait(Scope::Global);
        })
        .unwrap();
        let before = pool.stats();
        for thread in &before {
            // The only wait belongs to the set, and there is nothing else in the job.
            let tasks = thread.tasks;
            assert!(tasks.idle_nanos >= thread.local.nanos, "{thread:?}");
            assert!(tasks.busy_nanos + tasks.idle_nanos <= thread.jobs.nanos, "{thread:?}");
            assert_eq!(tasks.stealable, if policy.steals() { tasks.count } else { 0 });
        }
        pool.run(&|w| w.wait(Scope::Global)).unwrap();
        for (now, before) in pool.stats().iter().zip(&before) {
            assert_eq!(now.tasks, before.tasks);
        }
        assert_eq!(TaskReport::of(&before).counts.count, 2);
    }
    pool.reset_stats();
    assert_eq!(TaskReport::of(&pool.stats()), TaskReport::default());
}
