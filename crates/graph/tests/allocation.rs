//! A step allocates nothing once its vectors have grown. Alone in its binary: it counts for the
//! whole process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use arclight_graph::{
    Executor, KvType, Limits, Outputs, PageId, PageTable, Plan, PlanGroup, SeqInput,
};
use gguf::{Gguf, TensorType};
use kernels::Kernels;
use testkit::TinyModel;
use topology::CpuId;

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
    let group = PlanGroup { node: None, cpus: vec![CpuId(0); 2] };
    let plan = Plan { pin: false, ..Plan::new(vec![group; 2]) };
    let limits =
        Limits { kv: KvType::F16, tokens: 64, outputs: 2, pages: [32, 0, 0, 0], ranges: 8 };
    let kernels = Kernels::detect().unwrap();
    let machine = topology::Machine::read().unwrap();
    let mut executor =
        Executor::new(graph, plan, limits, kernels, &machine, &gguf, &mut |_| {}).unwrap();

    let tables = [PageTable { first: 0, pages: (0..16).map(PageId).collect() }];
    let prompt = [7u32; 64];
    let run = |executor: &mut Executor, tokens: &[u32], past| {
        let sequence = SeqInput { tokens, past, tables: &tables, outputs: Outputs::Last };
        let logits = executor.step([sequence].into_iter()).unwrap();
        assert!(logits.row(0).iter().all(|x| x.is_finite()));
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
    executor.begin_profile(1 << 14).unwrap();
    assert_eq!(count(&mut executor), 0, "allocations in 28 recorded steps");
    assert_eq!(executor.take_profile().unwrap().steps().len(), 28);
}
