//! Kernels are what schedules say.

use super::{MODES, load, qwen3, take};
use arclight_engine::{Grid, Numa, Schedule, Schedules};
use gguf::TensorType;
use kernels::How;
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
        let mut all = kernels.family(model.ty);
        all.retain(|kernel| model.second.is_none_or(|ty| kernels.family(ty).contains(kernel)));
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

#[test]
fn a_kernel_that_a_type_does_not_have_is_refused() {
    let mut engine = load(&qwen3(), (Numa::TensorParallel, 1, 2));
    let shape = engine.executor().matrix_shapes().swap_remove(0).swap_remove(0).shape;
    let how = How { kernel: Some("9x9".parse().unwrap()), ..How::default() };
    let schedule = Schedule { how, ..Schedule::default() };
    let mut schedules = Schedules::default();
    schedules.add(shape.clone(), vec![(8, schedule)]);
    let words = "names the kernel 9x9, which does not multiply Q4_0";
    let refused = engine.executor().set_schedules(schedules).unwrap_err().to_string();
    assert!(refused.contains(words), "{refused}");
    let refused = engine.executor().time_matrices(&shape, 0, 1, &schedule, Duration::ZERO);
    assert!(refused.unwrap_err().to_string().contains(words));
}
