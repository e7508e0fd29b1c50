//! Why the pool has queues of its own and not `crossbeam-deque`: what a task costs its owner and a
//! thief, and how often a set of tasks allocates.
//!
//! `cargo bench -p arclight-threads --bench queues`
//!
//! A round is what a stage of a step needs: `n` tasks are there, all are taken. The pool's round is
//! whole, with the deal, and thieves that look for more; the deque's is filled and emptied, nothing
//! else. Rounds of the two alternate.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use arclight_threads::{Homes, Policy, Pool, PoolSpec};
use crossbeam_deque::{Steal, Worker as Deque};
use topology::{Group, Machine};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const ROUNDS: usize = 201;

/// Nanoseconds per task of the rounds of one kind, and allocations.
#[derive(Default)]
struct Cost {
    nanos: Vec<f64>,
    allocations: usize,
}

impl Cost {
    fn add(&mut self, round: usize, tasks: usize, run: impl FnOnce() -> Duration) {
        let before = ALLOCATIONS.load(Relaxed);
        let took = run();
        // Buffers that last, and the memory for this very figure, come with the first rounds.
        if round >= 20 {
            self.allocations += ALLOCATIONS.load(Relaxed) - before;
            self.nanos.push(took.as_nanos() as f64 / tasks as f64);
        }
    }

    fn print(&mut self, name: &str, tasks: usize) {
        self.nanos.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| self.nanos[(share * (self.nanos.len() - 1) as f64) as usize];
        let allocations = self.allocations as f64 / self.nanos.len() as f64;
        println!(
            "{name:<28} {tasks:>5} tasks {:8.1} ns a task (quartiles {:.1}, {:.1}), \
             {allocations:.2} allocations a round",
            at(0.5),
            at(0.25),
            at(0.75)
        );
    }
}

fn timed(run: impl FnOnce()) -> Duration {
    let start = Instant::now();
    run();
    start.elapsed()
}

/// The owner runs all of its tasks.
fn owner(tasks: usize, cpus: &[topology::CpuId]) {
    let groups = vec![Group::unbound(cpus[..1].to_vec())];
    let mut pool = Pool::new(&PoolSpec { groups, ..PoolSpec::default() }).expect("a pool of one");
    let (mut ours, mut deques) = (Cost::default(), Cost::default());
    let deque: Deque<u32> = Deque::new_lifo();
    for round in 0..ROUNDS {
        ours.add(round, tasks, || {
            let took = std::sync::Mutex::new(Duration::ZERO);
            pool.run(&|w| {
                *took.lock().expect("not poisoned") = timed(|| {
                    w.tasks(Policy::Balanced, Homes::None(tasks), |task| {
                        black_box(task);
                    });
                });
            })
            .expect("no panic");
            took.into_inner().expect("not poisoned")
        });
        deques.add(round, tasks, || {
            timed(|| {
                (0..tasks).for_each(|task| deque.push(task as u32));
                while let Some(task) = deque.pop() {
                    black_box(task);
                }
            })
        });
    }
    ours.print("owner, range in a word", tasks);
    deques.print("owner, crossbeam-deque", tasks);
}

/// A thief on another CPU takes all but the first, at which the owner is held.
fn thief(tasks: usize, cpus: &[topology::CpuId]) {
    let groups = cpus[..2].iter().map(|&cpu| Group::unbound(vec![cpu])).collect();
    let mut pool = Pool::new(&PoolSpec { groups, ..PoolSpec::default() }).expect("a pool of two");
    let (mut ours, mut deques) = (Cost::default(), Cost::default());
    let deque: Deque<u32> = Deque::new_lifo();
    let stealer = deque.stealer();
    let deque = std::sync::Mutex::new(deque);
    for round in 0..ROUNDS {
        let held = AtomicUsize::new(0);
        let took = std::sync::Mutex::new(Duration::ZERO);
        let wait = |state| {
            while held.load(Relaxed) != state {
                std::hint::spin_loop();
            }
        };
        ours.add(round, tasks, || {
            pool.run(&|w| {
                if w.thread() == 1 {
                    wait(1);
                }
                let start = Instant::now();
                let mut first = w.thread() == 0;
                w.tasks(Policy::Balanced, Homes::Counts(&[tasks + 1, 0]), |task| {
                    if std::mem::take(&mut first) {
                        held.store(1, Relaxed);
                        wait(2);
                    }
                    black_box(task);
                });
                if w.thread() == 1 {
                    *took.lock().expect("not poisoned") = start.elapsed();
                    held.store(2, Relaxed);
                }
            })
            .expect("no panic");
            *took.lock().expect("not poisoned")
        });
        held.store(0, Relaxed);
        deques.add(round, tasks, || {
            pool.run(&|w| {
                if w.thread() == 0 {
                    let deque = deque.lock().expect("not poisoned");
                    (0..tasks).for_each(|task| deque.push(task as u32));
                    held.store(1, Relaxed);
                    return wait(2);
                }
                wait(1);
                let start = Instant::now();
                loop {
                    match stealer.steal() {
                        Steal::Success(task) => _ = black_box(task),
                        Steal::Retry => {}
                        Steal::Empty => break,
                    }
                }
                *took.lock().expect("not poisoned") = start.elapsed();
                held.store(2, Relaxed);
            })
            .expect("no panic");
            *took.lock().expect("not poisoned")
        });
    }
    ours.print("thief, range in a word", tasks);
    deques.print("thief, crossbeam-deque", tasks);
}

fn main() {
    let machine = Machine::read().expect("the machine's description");
    let cpus: Vec<_> = machine.cpus().iter().map(|cpu| cpu.id).collect();
    for tasks in [8, 64, 100, 1000] {
        owner(tasks, &cpus);
        if cpus.len() > 1 {
            thief(tasks, &cpus);
        }
    }
}
