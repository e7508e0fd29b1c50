//! Loom models of the meetings and of shared tasks: every interleaving within the preemption bound, and every value
//! that the memory orderings allow.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p arclight-threads --release --test loom`
#![cfg(loom)]

use std::time::Duration;

use arclight_threads::model::{
    Deal, Desk, Desks, End, Gate, Hub, Levels, Lines, Member, OwnPage, Place, Poisoned, Queue,
    Seen, View,
};
use arclight_threads::{Homes, Policy};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

/// One look before going to sleep, or none.
const SPINS: [Duration; 2] = [Duration::ZERO, Duration::from_nanos(1)];

fn check(preemptions: usize, model: impl Fn(Duration) + Sync + Send + Copy + 'static) {
    for spin in SPINS {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
        builder.check(move || model(spin));
    }
}

/// A hub whose jobs are all for all threads: level 0.
fn hub<J: Copy>(sizes: &[usize], spin: Duration) -> Hub<J> {
    hub_with(&[], sizes, spin)
}

/// A hub with levels.
fn hub_with<J: Copy>(levels: &[&[usize]], sizes: &[usize], spin: Duration) -> Hub<J> {
    let given: Vec<_> = levels.iter().map(|level| level.to_vec()).collect();
    let levels = Levels::new(sizes, &given).unwrap();
    let lines = || OwnPage::new(Lines::new(levels.count()).unwrap()).unwrap();
    Hub::new(sizes.iter().map(|_| lines()).collect(), levels, spin)
}

/// A thread of this group, of a hub without further levels.
fn of(group: usize) -> Member {
    Member { level: 0, group }
}

/// A cell per thread, written by its thread and read by others. Loom fails the model if an access
/// is not ordered after the conflicting one before it.
struct Board(Vec<UnsafeCell<usize>>);

// SAFETY: loom checks the accesses; that is the point.
unsafe impl Sync for Board {}
// SAFETY: as above.
unsafe impl Send for Board {}

impl Board {
    fn new(threads: usize) -> Self {
        Self((0..threads).map(|_| UnsafeCell::new(0)).collect())
    }

    fn write(&self, thread: usize, value: usize) {
        // SAFETY: checked by loom.
        self.0[thread].with_mut(|cell| unsafe { *cell = value });
    }

    fn expect(&self, threads: std::ops::Range<usize>, value: usize) {
        for thread in threads {
            // SAFETY: checked by loom.
            self.0[thread].with(|cell| assert_eq!(unsafe { *cell }, value, "thread {thread}"));
        }
    }
}

/// Runs `body(group, thread)` on a thread per member of each group; the caller is thread 0.
fn threads(sizes: &[usize], body: impl Fn(usize, usize) + Send + Sync + 'static) {
    let body = Arc::new(body);
    let members = sizes.iter().enumerate().flat_map(|(g, &n)| std::iter::repeat_n(g, n));
    let spawn = |(thread, group)| {
        let body = body.clone();
        thread::spawn(move || body(group, thread))
    };
    let handles: Vec<_> = members.enumerate().skip(1).map(spawn).collect();
    body(0, 0);
    for handle in handles {
        handle.join().unwrap();
    }
}

fn local_generations(threads_: usize, preemptions: usize) {
    check(preemptions, move |spin| {
        let (hub, board) = (hub::<()>(&[threads_], spin), Board::new(threads_));
        threads(&[threads_], move |group, me| {
            for value in 1..=2 {
                board.write(me, value);
                hub.wait_local(of(group), None).unwrap();
                board.expect(0..threads_, value);
                if value == 1 {
                    hub.wait_local(of(group), None).unwrap();
                }
            }
        });
    });
}

#[test]
fn local_barrier_of_two() {
    local_generations(2, 3);
}

#[test]
#[ignore = "takes long: in .ci/full"]
fn local_barrier_of_three() {
    local_generations(3, 2);
}

/// Global, then local, then global: what a scatter and a gather make of a graph.
fn mixed(sizes: &'static [usize], preemptions: usize) {
    let total: usize = sizes.iter().sum();
    check(preemptions, move |spin| {
        let (hub, board) = (hub::<()>(sizes, spin), Board::new(total));
        threads(sizes, move |group, me| {
            let first: usize = sizes[..group].iter().sum();
            board.write(me, 1);
            hub.wait_local(of(group), None).unwrap();
            board.expect(first..first + sizes[group], 1);
            hub.wait_global(of(group), None).unwrap();
            board.expect(0..total, 1);
        });
    });
}

#[test]
fn local_then_global_with_groups_of_one() {
    mixed(&[1, 1], 3);
}

#[test]
fn local_then_global_with_groups_of_two_and_one() {
    mixed(&[2, 1], 2);
}

#[test]
fn local_then_global_with_groups_of_two() {
    mixed(&[2, 2], 1);
}

/// Whatever the order of arrival, exactly one thread of each group goes on to the line that the
/// groups share, at every global wait; a local wait in between sends nobody there.
fn crossings(sizes: &'static [usize], preemptions: usize) {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    check(preemptions, move |spin| {
        let hub = hub::<()>(sizes, spin);
        // Of the standard library: counted, not modelled.
        let crossed: Arc<Vec<[AtomicUsize; 2]>> =
            Arc::new(sizes.iter().map(|_| Default::default()).collect());
        let counts = crossed.clone();
        threads(sizes, move |group, _| {
            for (wait, count) in counts[group].iter().enumerate() {
                if wait == 1 {
                    hub.wait_local(of(group), None).unwrap();
                }
                if hub.wait_global(of(group), None).unwrap().crossed {
                    count.fetch_add(1, Relaxed);
                }
            }
        });
        let several = usize::from(sizes.len() > 1);
        for group in crossed.iter() {
            assert!(group.iter().all(|count| count.load(Relaxed) == several));
        }
    });
}

#[test]
fn one_thread_of_each_group_crosses() {
    crossings(&[1, 1], 3);
    crossings(&[2, 1], 1);
}

#[test]
fn nobody_crosses_in_one_group() {
    crossings(&[2], 2);
}

/// One view, groups, one view: a global wait, a stretch in which only one group waits, and a global
/// wait that publishes what it wrote.
#[test]
#[ignore = "takes long: in .ci/full"]
fn switching_to_groups_and_back() {
    const SIZES: &[usize] = &[2, 1];
    check(2, |spin| {
        let (hub, board) = (hub::<()>(SIZES, spin), Board::new(3));
        threads(SIZES, move |group, me| {
            board.write(me, 1);
            hub.wait_global(of(group), None).unwrap(); // One -> Groups
            if group == 0 {
                board.expect(2..3, 1);
                board.write(me, 2);
                hub.wait_local(of(group), None).unwrap();
                board.expect(0..2, 2);
            }
            hub.wait_global(of(group), None).unwrap(); // Groups -> One
            board.expect(0..2, 2);
        });
    });
}

/// The opener may come before, between or after the waiter's looks: it is never left asleep (loom
/// reports a deadlock), twice in a row, and with two sleepers.
#[test]
fn no_wake_up_is_lost() {
    check(3, |spin| {
        let gate = Arc::new(Gate::new());
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let gate = gate.clone();
                thread::spawn(move || {
                    let seen = gate.wait(Seen::NEW, spin);
                    assert!(!seen.is_poisoned());
                })
            })
            .collect();
        gate.open();
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
}

/// A job and its input reach the workers, their output reaches the leader, twice, and `None` ends
/// them.
fn jobs(sizes: &'static [usize], rounds: usize, preemptions: usize) {
    let total: usize = sizes.iter().sum();
    check(preemptions, move |spin| {
        let (hub, board) = (hub::<usize>(sizes, spin), Board::new(total + 1));
        let input = total;
        threads(sizes, move |group, me| {
            if me > 0 {
                let mut seen = Seen::NEW;
                while let Some((job, _)) = hub.next_job(group, 0, &mut seen) {
                    board.expect(input..input + 1, job);
                    board.write(me, job);
                    hub.finish(of(group));
                }
                return;
            }
            for job in 1..=rounds {
                board.write(input, job);
                // SAFETY: this thread is the leader, and all jobs before are finished.
                unsafe { hub.broadcast(Some((job, 0))) };
                board.write(0, job);
                hub.finish_as_leader(0);
                board.expect(0..total, job);
            }
            // SAFETY: as above.
            unsafe { hub.broadcast(None) };
        });
    });
}

#[test]
fn jobs_in_one_group_of_two() {
    jobs(&[2], 2, 3);
}

#[test]
#[ignore = "takes long: in .ci/full"]
fn jobs_in_one_group_of_three() {
    jobs(&[3], 1, 2);
}

#[test]
#[ignore = "takes long: in .ci/full"]
fn jobs_in_two_groups() {
    jobs(&[1, 1], 2, 3);
    jobs(&[2, 1], 1, 2);
}

/// A thread panics while the members of another group meet: they may still pass their own barrier,
/// but nobody waits for the thread that does not come.
#[test]
fn poison_overtakes_no_opening_and_is_not_overtaken() {
    const SIZES: &[usize] = &[2, 1];
    check(2, |spin| {
        let hub = hub::<()>(SIZES, spin);
        threads(SIZES, move |group, me| {
            if me == 2 {
                hub.poison();
            } else if hub.wait_local(of(group), None).is_ok() {
                assert_eq!(hub.wait_global(of(group), None), Err(Poisoned));
            }
        });
    });
}

/// A thread that panics instead of arriving releases whoever waits or will wait, and the barrier
/// works again when the leader has cleared it.
#[test]
#[ignore = "takes long: in .ci/full"]
fn poison_releases_waiters_and_is_cleared() {
    const SIZES: &[usize] = &[1, 1];
    check(3, |spin| {
        let (hub, board) = (hub::<usize>(SIZES, spin), Board::new(2));
        threads(SIZES, move |group, me| {
            let work = |job: usize| {
                if job == 1 && me == 1 {
                    hub.poison();
                } else if job == 1 {
                    assert_eq!(hub.wait_global(of(group), None), Err(Poisoned));
                } else {
                    board.write(me, job);
                    hub.wait_global(of(group), None).unwrap();
                    board.expect(0..2, job);
                }
            };
            if me > 0 {
                let mut seen = Seen::NEW;
                while let Some((job, _)) = hub.next_job(group, 0, &mut seen) {
                    work(job);
                    hub.finish(of(group));
                }
                return;
            }
            for job in 1..=2 {
                // SAFETY: this thread is the leader, and all jobs before are finished.
                unsafe { hub.broadcast(Some((job, 0))) };
                work(job);
                hub.finish_as_leader(0);
                if job == 1 {
                    hub.clear_poison();
                }
            }
            // SAFETY: as above.
            unsafe { hub.broadcast(None) };
        });
    });
}

/// Jobs at several levels, one after the other: each reaches the threads of its level, who know who
/// they are, and no others; their output reaches the leader; `None` ends all. With `wait` those who
/// take part meet in every job, on the same lines at every level.
fn levels(
    given: &'static [&'static [usize]],
    sizes: &'static [usize],
    jobs: &'static [usize],
    wait: bool,
    preemptions: usize,
) {
    let total: usize = sizes.iter().sum();
    check(preemptions, move |spin| {
        let (hub, board) = (hub_with::<usize>(given, sizes, spin), Board::new(total + 1));
        let input = total;
        threads(sizes, move |group, me| {
            let part = |thread: usize, level: usize| {
                let of = |g: &usize| thread < sizes[..=*g].iter().sum();
                let group = (0..sizes.len()).find(of).unwrap();
                thread - sizes[..group].iter().sum::<usize>() < hub.levels().size(level, group)
            };
            let work = |job: usize, level: usize| {
                board.expect(input..input + 1, job);
                board.write(me, job);
                if wait {
                    hub.wait_global(Member { level, group }, None).unwrap();
                    for thread in (0..total).filter(|&thread| part(thread, level)) {
                        board.expect(thread..thread + 1, job);
                    }
                }
            };
            if me > 0 {
                let (mut seen, mut taken) = (Seen::NEW, 0);
                let class = hub.levels().class(group, me - sizes[..group].iter().sum::<usize>());
                while let Some((job, level)) = hub.next_job(group, class, &mut seen) {
                    assert!(part(me, level), "thread {me} has no part in level {level}");
                    taken += 1;
                    work(job, level);
                    hub.finish(Member { level, group });
                }
                assert_eq!(taken, jobs.iter().filter(|&&level| part(me, level)).count());
                return;
            }
            for (at, &level) in jobs.iter().enumerate() {
                let job = at + 1;
                board.write(input, job);
                // SAFETY: this thread is the leader, and all jobs before are finished.
                unsafe { hub.broadcast(Some((job, level))) };
                work(job, level);
                hub.finish_as_leader(level);
                for thread in (0..total).filter(|&thread| part(thread, level)) {
                    board.expect(thread..thread + 1, job);
                }
            }
            // SAFETY: as above.
            unsafe { hub.broadcast(None) };
        });
    });
}

#[test]
fn levels_of_one_and_all_of_two() {
    levels(&[&[1]], &[2], &[0, 1, 0], false, 3);
    levels(&[&[1]], &[2], &[1, 0, 1], true, 2);
}

#[test]
#[ignore = "takes long: in .ci/full"]
fn levels_of_two_and_all_of_three() {
    levels(&[&[2]], &[3], &[0, 1], false, 1);
}

#[test]
fn levels_of_two_groups() {
    levels(&[&[1, 1]], &[2, 1], &[0, 1], false, 1);
}

/// All threads meet and then some of them, on the same lines, before the others have left.
fn fewer_meet_after_all(
    given: &'static [&'static [usize]],
    sizes: &'static [usize],
    part: &'static [usize],
    preemptions: usize,
) {
    let total: usize = sizes.iter().sum();
    check(preemptions, move |spin| {
        let (hub, board) = (hub_with::<()>(given, sizes, spin), Board::new(2 * total));
        threads(sizes, move |group, me| {
            board.write(me, 1);
            hub.wait_global(Member { level: 1, group }, None).unwrap();
            board.expect(0..total, 1);
            if part.contains(&me) {
                board.write(total + me, 2);
                hub.wait_global(Member { level: 0, group }, None).unwrap();
                part.iter().for_each(|&other| board.expect(total + other..total + other + 1, 2));
            }
        });
    });
}

#[test]
fn two_of_three_meet_after_all() {
    fewer_meet_after_all(&[&[2]], &[3], &[0, 1], 2);
}

#[test]
fn one_of_each_group_meets_after_all() {
    fewer_meet_after_all(&[&[1, 1]], &[2, 1], &[0, 2], 2);
}

/// A panic in a job on some threads, here the leader alone, does not reach those who were left out.
#[test]
fn poison_at_one_level_is_cleared_for_all() {
    const SIZES: &[usize] = &[2];
    check(3, |spin| {
        let (hub, board) = (hub_with::<usize>(&[&[1]], SIZES, spin), Board::new(2));
        threads(SIZES, move |group, me| {
            let work = |level: usize| {
                let member = Member { level, group };
                if level == 0 {
                    hub.poison();
                    assert_eq!(hub.wait_global(member, None), Err(Poisoned));
                    return;
                }
                board.write(me, 1);
                hub.wait_global(member, None).unwrap();
                board.expect(0..2, 1);
            };
            if me > 0 {
                let mut seen = Seen::NEW;
                while let Some((_, level)) = hub.next_job(group, 1, &mut seen) {
                    work(level);
                    hub.finish(Member { level, group });
                }
                return;
            }
            for level in [0, 1] {
                // SAFETY: this thread is the leader, and all jobs before are finished.
                unsafe { hub.broadcast(Some((level, level))) };
                work(level);
                hub.finish_as_leader(level);
                if level == 0 {
                    hub.clear_poison();
                }
            }
            // SAFETY: as above.
            unsafe { hub.broadcast(None) };
        });
    });
}

/// How often each task was run; of the standard library: counted, not modelled.
type Runs = Vec<std::sync::atomic::AtomicUsize>;

fn tally(tasks: usize) -> Arc<Runs> {
    Arc::new((0..tasks).map(|_| Default::default()).collect())
}

fn count(runs: &Runs, task: usize) {
    runs[task].fetch_add(1, std::sync::atomic::Ordering::Relaxed);
}

fn expect_once(runs: &Runs, what: &str) {
    let once = runs.iter().all(|n| n.load(std::sync::atomic::Ordering::Relaxed) == 1);
    assert!(once, "{what}: {runs:?}");
}

/// Takes from one end until there is nothing.
fn empty(queue: &Queue, len: usize, end: End, runs: &Runs, last: &Runs) {
    while let Some(taken) = queue.take(1, len, end) {
        count(runs, taken.position);
        if taken.left == 0 {
            count(last, 0);
        }
    }
}

/// The owner takes from the front while thieves take from the back: of the last element, too, there is
/// one taker, and one of them is told that it was the last.
fn queue_of(len: usize, thieves: usize, preemptions: usize) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.check(move || {
        let (queue, runs, last) = (Arc::new(Queue::new()), tally(len), tally(1));
        let handles: Vec<_> = (0..thieves)
            .map(|_| {
                let (queue, runs, last) = (queue.clone(), runs.clone(), last.clone());
                thread::spawn(move || empty(&queue, len, End::Back, &runs, &last))
            })
            .collect();
        empty(&queue, len, End::Front, &runs, &last);
        for handle in handles {
            handle.join().unwrap();
        }
        expect_once(&runs, "tasks");
        expect_once(&last, "last");
    });
}

#[test]
fn the_last_element_has_one_taker() {
    queue_of(1, 1, 4);
    queue_of(1, 2, 3);
    queue_of(2, 1, 4);
    queue_of(3, 1, 3);
    queue_of(2, 2, 2);
}

/// Sets of tasks with a wait between them, as jobs have: each task is run once, what it writes is seen
/// after the wait, and a thread that is late or early takes nothing of another set.
fn sets(
    sizes: &'static [usize],
    counts: &'static [&'static [usize]],
    far: bool,
    preemptions: usize,
) {
    let firsts: Vec<usize> = (0..=sizes.len()).map(|g| sizes[..g].iter().sum()).collect();
    let firsts: &'static [usize] = firsts.leak();
    let policy = if far { Policy::Balanced } else { Policy::Local };
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.check(move || {
        let desks = sizes.iter().map(|&n| OwnPage::new(Desk::new(n).unwrap()).unwrap());
        let desks = Arc::new(Desks::new(desks.collect(), &[]));
        let hub = hub::<()>(sizes, Duration::ZERO);
        let boards: Vec<Board> = counts.iter().map(|c| Board::new(c.iter().sum())).collect();
        let ran: Arc<Vec<_>> = Arc::new(counts.iter().map(|c| tally(c.iter().sum())).collect());
        let runs = ran.clone();
        threads(sizes, move |group, me| {
            let place = Place { group, rank: me - firsts[group], view: View::One };
            for (set, board) in boards.iter().enumerate() {
                let deal = Deal::new(policy, Homes::Counts(counts[set]), View::One, firsts);
                desks.round(place, &deal, far, |task| {
                    board.write(task.number, set + 1);
                    count(&runs[set], task.number);
                });
                // Joining the threads is the wait after the last set.
                if set + 1 < boards.len() {
                    hub.wait_global(of(group), None).unwrap();
                    board.expect(0..counts[set].iter().sum(), set + 1);
                }
            }
        });
        for (set, runs) in ran.iter().enumerate() {
            expect_once(runs, &format!("set {set}"));
        }
    });
}

#[test]
fn sets_of_one_group() {
    sets(&[2], &[&[1]], true, 3);
    sets(&[2], &[&[2], &[1]], true, 2);
    sets(&[2], &[&[0], &[3]], true, 2);
}

#[test]
fn sets_of_two_groups() {
    sets(&[1, 1], &[&[1, 1]], true, 3);
    sets(&[1, 1], &[&[2, 0], &[0, 1]], true, 2);
    sets(&[1, 1], &[&[2, 1], &[1, 1]], false, 2);
}

#[test]
#[ignore = "takes long: in .ci/full"]
fn sets_of_three_threads() {
    sets(&[2, 1], &[&[2, 0]], true, 2);
    sets(&[2, 1], &[&[1, 1]], true, 2);
    sets(&[3], &[&[2]], true, 2);
}

/// Threads leave one hub by its last job and wait for the first of the other: the job that follows at once is neither
/// missed nor taken twice, and what the leader wrote before it is seen. The groups are others, and with `back` the
/// threads return to a hub whose gates have opened before.
fn regroup(back: bool, preemptions: usize) {
    check(preemptions, move |spin| {
        let hubs = Arc::new([hub::<usize>(&[2], spin), hub::<usize>(&[1, 1], spin)]);
        let board = Arc::new(Board::new(2));
        // Each job names the hub that the next one comes from.
        let jobs: &'static [usize] = if back { &[0, 1, 0, 0] } else { &[0, 1, 1] };
        let (theirs, seen) = (hubs.clone(), board.clone());
        let worker = thread::spawn(move || {
            let (mut at, mut state) = (0, Seen::NEW);
            let mut taken = 1;
            loop {
                let group = at;
                let Some((next, level)) = theirs[at].next_job(group, 0, &mut state) else { break };
                assert_eq!((next, level), (jobs[taken], 0));
                seen.expect(0..1, taken);
                seen.write(1, taken);
                taken += 1;
                let left = at;
                if next != at {
                    (at, state) = (next, theirs[next].seen(next, 0));
                }
                theirs[left].finish(of(group));
            }
            assert_eq!(taken, jobs.len());
        });
        for (job, pair) in jobs.windows(2).enumerate() {
            let [at, next] = [pair[0], pair[1]];
            board.write(0, job + 1);
            // SAFETY: the caller is the only leader, and every job before has ended.
            unsafe { hubs[at].broadcast(Some((next, 0))) };
            hubs[at].finish_as_leader(0);
            board.expect(1..2, job + 1);
        }
        // SAFETY: as above.
        unsafe { hubs[*jobs.last().unwrap()].broadcast(None) };
        worker.join().unwrap();
    });
}

#[test]
fn threads_go_to_the_groups_of_another_hub() {
    regroup(false, 3);
}

#[test]
fn threads_go_back_to_a_hub_that_they_have_left() {
    regroup(true, 2);
}
