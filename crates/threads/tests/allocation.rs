//! Running, waiting, switching and sharing tasks allocate nothing. Alone in its binary: it counts for the process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use arclight_threads::{Homes, Policy, Pool, PoolSpec, Scope, View};
use topology::{CpuId, Group};

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

#[test]
fn jobs_waits_and_tasks_allocate_nothing() {
    let group = Group::unbound(vec![CpuId(0); 2]);
    let groups = vec![group.clone(), group];
    let levels = vec![vec![1, 2]];
    let spec = PoolSpec { groups, levels, stats: true, ..PoolSpec::default() };
    let mut pool = Pool::new(&spec).unwrap();
    let job = |w: &mut arclight_threads::Worker| {
        for _ in 0..20 {
            w.wait(Scope::Global);
            w.switch(View::Groups);
            w.wait(Scope::Local);
            w.tasks(Policy::Balanced, Homes::None(100), |_| {});
            w.switch(View::One);
            for policy in Policy::ALL {
                // More than 64 tasks a thread, where crossbeam's deques begin to grow.
                w.tasks(policy, Homes::Counts(&[300, 200]), |_| {});
            }
        }
    };
    let both = |pool: &mut Pool| {
        pool.run(&job).unwrap();
        pool.run_on(0, &job).unwrap();
    };
    both(&mut pool);
    let before = ALLOCATIONS.load(Relaxed);
    for _ in 0..20 {
        both(&mut pool);
    }
    // The test harness's own thread may be about to allocate once, so a few are forgiven; one per
    // job, thread or wait would be at least 20.
    let made = ALLOCATIONS.load(Relaxed) - before;
    assert!(made < 5, "{made} allocations");
}
