//! Kernels are what schedules say.

use super::{MODES, load, qwen3, take};
use arclight_engine::{Grid, Numa, Schedule, Schedules};
use gguf::TensorType;
use kernels::{
    Acts, Foreign, ForeignProduct, How, Isa, Kernels, MatKernel, Piece, Rows, RowsMut, Tiles,
};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use testkit::TinyModel;

#[test]
fn every_kernel_gives_the_same_bits() {
    let mixed = TinyModel { second: Some(TensorType::Q6_K), ..TinyModel::qwen3(TensorType::Q4_K) };
    for model in [qwen3(), mixed, TinyModel::glm4(TensorType::BF16)] {
        let expected = take(&mut load(&model, MODES[0]));
        let mut engine = load(&model, (Numa::TensorParallel, 2, 4));
        let kernels = engine.kernels();
        let shapes = engine.matrix_shapes().swap_remove(0);
        // Not the others, whose calls are counted below.
        let family = kernels.family(model.ty).into_iter();
        let mut all: Vec<_> = family.map(MatKernel::Family).collect();
        all.retain(|kernel| model.second.is_none_or(|ty| kernels.has_kernel(ty, *kernel)));
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
                engine.set_schedules(schedules).unwrap();
                assert!(take(&mut engine) == expected, "{}, {kernel}, {ahead}", model.arch);
            }
        }
    }
}

#[test]
fn a_kernel_that_a_type_does_not_have_is_refused() {
    let mut engine = load(&qwen3(), (Numa::TensorParallel, 1, 2));
    let shape = engine.matrix_shapes().swap_remove(0).swap_remove(0).shape;
    let how = How { kernel: Some("9x9".parse().unwrap()), ..How::default() };
    let schedule = Schedule { how, ..Schedule::default() };
    let mut schedules = Schedules::default();
    schedules.add(shape.clone(), vec![(8, schedule)]);
    let words = "names the kernel 9x9, which does not multiply Q4_0";
    let refused = engine.set_schedules(schedules).unwrap_err().to_string();
    assert!(refused.contains(words), "{refused}");
    let refused = engine.time_matrices(&shape, 0, 1, &schedule, Duration::ZERO);
    assert!(refused.unwrap_err().to_string().contains(words));
}

/// The scalar kernel for Q4_0 as somebody else's, which counts its calls and the tokens in them.
struct Counted {
    size: (usize, usize),
}

static CALLS: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

impl ForeignProduct for Counted {
    fn ty(&self) -> TensorType {
        TensorType::Q4_0
    }

    fn size(&self) -> (usize, usize) {
        self.size
    }

    fn multiply(
        &self,
        _ahead: usize,
        tiles: Tiles<'_>,
        pieces: &[Piece],
        acts: Rows<'_, u8>,
        out: RowsMut<'_, f32>,
    ) {
        CALLS.fetch_add(1, Relaxed);
        MOST.fetch_max(acts.rows(), Relaxed);
        let scalar = Kernels::for_isa(Isa::Scalar).unwrap();
        scalar.matmul(TensorType::Q4_0, tiles, pieces, Acts::Q8(acts), out);
    }
}

#[test]
fn a_kernel_from_elsewhere_multiplies_what_it_is_for() {
    let kernel = Foreign::named("counted", "0011");
    let mut preferred = Schedules::default();
    preferred.preferred.push(kernel);
    // Not before it is loaded.
    let mut engine = load(&qwen3(), MODES[0]);
    engine.set_schedules(preferred.clone()).unwrap();
    let expected = take(&mut engine);
    assert_eq!(CALLS.load(Relaxed), 0);
    let shape = engine.matrix_shapes().swap_remove(0).swap_remove(0).shape;
    let how = How { kernel: Some(MatKernel::Foreign(kernel)), ..How::default() };
    let mut named = Schedules::default();
    named.add(shape.clone(), vec![(8, Schedule { how, ..Schedule::default() })]);
    let refused = engine.set_schedules(named.clone()).unwrap_err().to_string();
    assert!(
        refused.contains(
            "names the kernel counted of a file with the digest 0011, which is not loaded"
        ),
        "{refused}"
    );
    kernel.load(Box::new(Counted { size: (3, 5) }));
    // Wherever nothing is scheduled: on all nodes, for all matrices of the type, those of experts too.
    let mixed = TinyModel { second: Some(TensorType::Q6_K), ..TinyModel::qwen3(TensorType::Q4_0) };
    for model in [qwen3(), mixed, TinyModel::qwen3moe(TensorType::Q4_0, 256)] {
        for mode in [MODES[1], MODES[3], MODES[7]] {
            let mut engine = load(&model, mode);
            let expected = take(&mut engine);
            assert_eq!(CALLS.swap(0, Relaxed), 0);
            engine.set_schedules(preferred.clone()).unwrap();
            assert!(take(&mut engine) == expected, "{} {mode:?}", model.arch);
            assert!(CALLS.swap(0, Relaxed) > 100, "{} {mode:?}", model.arch);
            assert!(MOST.swap(0, Relaxed) >= 5, "whole register tiles");
        }
    }
    // And where a schedule names it, there alone.
    let mut engine = load(&qwen3(), MODES[0]);
    engine.set_schedules(named.clone()).unwrap();
    assert_eq!(engine.plan().schedules.foreign(), [kernel]);
    assert!(take(&mut engine) == expected);
    let some = CALLS.swap(0, Relaxed);
    engine.set_schedules(preferred).unwrap();
    assert!(take(&mut engine) == expected);
    assert!(some > 0 && some < CALLS.swap(0, Relaxed));
    // Matrices of another type are refused.
    let mut other = load(&TinyModel::qwen3(TensorType::Q8_0), MODES[0]);
    let shape = other.matrix_shapes().swap_remove(0).swap_remove(0).shape;
    let mut wrong = Schedules::default();
    wrong.add(shape, named.iter().next().unwrap().1.to_vec());
    let refused = other.set_schedules(wrong).unwrap_err().to_string();
    assert!(
        refused.contains("names the kernel counted, which does not multiply Q8_0"),
        "{refused}"
    );
}
