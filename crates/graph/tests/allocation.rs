//! A step allocates nothing once its vectors have grown. Alone in its binary: it counts for the
//! whole process.

mod run;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use arclight_graph::{
    Executor, Grid, KvType, Limits, Outputs, PageId, PageTable, Product, Schedule, Schedules,
    ShapeUse, Slice,
};
use gguf::{Gguf, TensorType};
use testkit::TinyModel;

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
fn steps_allocate_nothing() {
    steps_of(&TinyModel::qwen3(TensorType::Q4_0));
    steps_of(&TinyModel { window: Some(100), ..TinyModel::llama(TensorType::Q4_0) });
}

fn steps_of(model: &TinyModel) {
    let bytes = model.gguf();
    let gguf = Gguf::parse(&bytes).unwrap();
    let graph = models::build(&gguf, 2).unwrap().graph;
    let limits =
        Limits { kv: KvType::F16.into(), tokens: 64, outputs: 2, pages: [32, 0, 0, 0], ranges: 8 };
    let mut executor = run::executor(&gguf, graph, run::plan(2), limits);

    // Each number of tokens has its own way to multiply, some with the columns cut.
    let mut schedules = Schedules::default();
    let mut shapes = executor.matrix_shapes().swap_remove(0);
    shapes.dedup_by_key(|used| used.shape.clone());
    for ShapeUse { shape, .. } in shapes {
        let splits = if shape.product == Product::Summed { shape.threads } else { 1 };
        let parts = |tokens, splits| {
            let grid = Grid { tokens, splits };
            Schedule { slice: Some(Slice { tiles: 3, tokens: 5 }), grid, ..Schedule::default() }
        };
        let rows = vec![(1, parts(1, splits)), (60, parts(1, 1)), (64, parts(shape.threads, 1))];
        schedules.add(shape, rows);
    }

    let tables = [PageTable { first: 0, pages: (0..16).map(PageId).collect() }];
    let prompt = [7u32; 64];
    let run = |executor: &mut Executor, tokens: &[u32], past| {
        let mut rows = run::step(executor, tokens, past, &tables, Outputs::Last);
        assert!(rows.next().unwrap().iter().all(|x| x.is_finite()));
    };
    // Vectors grow to their largest: a long prompt, one whose tokens see into the range of keys before,
    // and the last token that is decoded below.
    run(&mut executor, &prompt, 400);
    run(&mut executor, &prompt, 256);
    run(&mut executor, &prompt[..1], 500);
    let count = |executor: &mut Executor| {
        let before = ALLOCATIONS.load(Relaxed);
        for past in 0..8 {
            run(executor, &prompt, past * 64);
        }
        for past in 480..500 {
            run(executor, &prompt[..1], past);
        }
        ALLOCATIONS.load(Relaxed) - before
    };
    assert_eq!(count(&mut executor), 0, "allocations in 28 steps");
    executor.set_schedules(schedules).unwrap();
    assert_eq!(count(&mut executor), 0, "allocations in 28 steps by schedules");
    executor.begin_profile(1 << 14).unwrap();
    assert_eq!(count(&mut executor), 0, "allocations in 28 recorded steps");
    assert_eq!(executor.take_profile().unwrap().steps().len(), 28);
}
