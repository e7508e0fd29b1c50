//! Kernels are what schedules say, also those from elsewhere.

use super::{MODES, grid, load, qwen3, take};
use arclight_engine::{Engine, Grid, Numa, Product, Schedule, Schedules};
use gguf::TensorType;
use kernels::{How, Imported, Isa, Kernels, MatKernel};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use testkit::TinyModel;

#[test]
fn every_kernel_gives_the_same_bits() {
    let mixed = TinyModel { second: Some(TensorType::Q6_K), ..TinyModel::qwen3(TensorType::Q4_K) };
    for model in [qwen3(), mixed, TinyModel::glm4(TensorType::BF16)] {
        let expected = take(&mut load(&model, MODES[0]));
        let mut engine = load(&model, (Numa::TensorParallel, 2, 4));
        let kernels = engine.executor().kernels();
        let shapes = engine.executor().matrix_shapes().swap_remove(0);
        let mut all = kernels.mat_kernels(model.ty);
        all.retain(|kernel| model.second.is_none_or(|ty| kernels.mat_kernels(ty).contains(kernel)));
        assert!(!all.is_empty());
        for ahead in [0, 4096] {
            for &kernel in &all {
                let how = How { kernel: Some(kernel), ahead };
                let mut schedules = Schedules::default();
                for used in &shapes {
                    let known = schedules.iter().any(|(shape, _)| *shape == used.shape);
                    if !known {
                        let grid = Grid { tokens: 2, splits: 1 };
                        let cut = Schedule { how, grid, ..Schedule::default() };
                        let usual = Schedule { how, ..Schedule::default() };
                        schedules
                            .add(used.shape.clone(), vec![(8, usual), (60, cut), (512, usual)]);
                    }
                }
                engine.executor().set_schedules(schedules).unwrap();
                assert!(take(&mut engine) == expected, "{}, {kernel}, {ahead}", model.arch);
            }
        }
    }
}

static CALLS: AtomicUsize = AtomicUsize::new(0);

/// A kernel from elsewhere, which counts what is asked of it.
static COUNTING: Imported = Imported {
    name: "counting",
    ty: TensorType::F32,
    isa: Isa::Scalar,
    size: (3, 5),
    run: |tiles, pieces, acts, out| {
        CALLS.fetch_add(1, Relaxed);
        Kernels::detect().unwrap().matmul(TensorType::F32, tiles, pieces, acts, out);
    },
};

#[test]
fn kernels_multiply_what_schedules_name_them_for() {
    kernels::register(&COUNTING).unwrap();
    let how = How { kernel: Some(MatKernel::Imported(&COUNTING)), ..How::default() };
    let by = |engine: &mut Engine, product| {
        let shapes = engine.executor().matrix_shapes().swap_remove(0);
        let used = shapes.into_iter().find(|used| used.shape.product == product).unwrap();
        let mut schedules = Schedules::default();
        schedules.add(used.shape.clone(), vec![(8, Schedule { how, ..grid(1, 1) })]);
        (used.shape, engine.executor().set_schedules(schedules))
    };
    let model = TinyModel { layers: 2, ..TinyModel::llama(TensorType::F32) };
    let expected = take(&mut load(&model, MODES[0]));
    let mut engine = load(&model, (Numa::TensorParallel, 1, 2));
    for product in [Product::Plain, Product::Paired, Product::Summed] {
        let (shape, set) = by(&mut engine, product);
        set.unwrap();
        let before = CALLS.load(Relaxed);
        assert!(take(&mut engine) == expected, "{product:?}");
        let after = CALLS.load(Relaxed);
        assert!(after > before, "{product:?}");
        let schedule = Schedule { how, ..Schedule::default() };
        engine.executor().time_matrices(&shape, 0, 1, &schedule, Duration::ZERO).unwrap();
        assert!(CALLS.load(Relaxed) > after, "{product:?}");
    }
    let mut engine = load(&qwen3(), (Numa::TensorParallel, 1, 2));
    let (shape, set) = by(&mut engine, Product::Plain);
    let refused = set.unwrap_err().to_string();
    assert!(
        refused.contains("names the kernel counting, which does not multiply Q4_0"),
        "{refused}"
    );
    let schedule = Schedule { how, ..Schedule::default() };
    let refused = engine.executor().time_matrices(&shape, 0, 1, &schedule, Duration::ZERO);
    assert!(refused.unwrap_err().to_string().contains("the kernel counting"));
}
