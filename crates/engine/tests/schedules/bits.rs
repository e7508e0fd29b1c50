//! No schedule changes a bit, whoever shares the model and however.

use super::{MODES, everywhere, grid, load, load_in, qwen3, slice, take};
use arclight_engine::{
    Engine, Grid, LoadOptions, ModelFile, Numa, Phase, Product, Schedule, Schedules, Variant,
};
use gguf::TensorType;
use graph::Gather;
use testkit::TinyModel;

/// What is tried: slices, parts of the tokens, parts of the columns, and all together.
fn candidates() -> Vec<Schedule> {
    vec![
        slice(1, 1),
        slice(3, 5),
        slice(usize::MAX, usize::MAX),
        grid(2, 1),
        grid(3, 1),
        grid(99, 1),
        grid(1, 2),
        grid(1, 3),
        grid(1, 4),
        grid(2, 2),
        Schedule { grid: Grid { tokens: 2, splits: 2 }, ..slice(2, 7) },
    ]
}

#[test]
fn schedules_change_no_bits_and_threads_wait_as_compiled() {
    let expected = take(&mut load(&qwen3(), MODES[0]));
    assert!(expected.iter().any(|&bits| f32::from_bits(bits) != 0.0));
    for mode in MODES {
        let mut engine = load(&qwen3(), mode);
        for schedule in candidates() {
            let schedules = everywhere(&mut engine, schedule, |_| true);
            engine.set_schedules(schedules.clone()).unwrap();
            assert_eq!(engine.plan().schedules, schedules);
            assert!(take(&mut engine) == expected, "{mode:?}, {schedule:?}");
            let activity = engine.activity();
            assert!(activity.waits_as_compiled(), "{mode:?}, {schedule:?}: {activity:?}");
        }
        // Each number of tokens has its own, and not every matrix has one.
        let mut mixed = everywhere(&mut engine, grid(1, 1), |_| false);
        for (at, used) in engine.matrix_shapes()[0].clone().into_iter().enumerate() {
            let most = used.shape.threads.min(2);
            let splits = if used.shape.product == Product::Summed { most } else { 1 };
            let rows = vec![(1, grid(1, splits)), (8, grid(most, 1)), (64, slice(1, 3))];
            if at % 3 > 0 {
                mixed.add(used.shape, rows);
            }
        }
        engine.set_schedules(mixed).unwrap();
        assert!(take(&mut engine) == expected, "{mode:?}, mixed");
        engine.set_schedules(Schedules::default()).unwrap();
        assert!(take(&mut engine) == expected, "{mode:?}, none");
    }
}

#[test]
fn other_kinds_of_matrices_have_schedules_too() {
    let mixed = |model: TinyModel| TinyModel { second: Some(TensorType::Q6_K), ..model };
    for model in [
        // Norms over the queries of all nodes; parts of several kinds; floats; biases and GELU.
        TinyModel::olmo2(TensorType::Q4_0),
        mixed(TinyModel::qwen3(TensorType::Q4_K)),
        TinyModel::glm4(TensorType::BF16),
        TinyModel::starcoder2(TensorType::F32),
        // Experts are cut as they are; the matrices about them and those of latents have schedules.
        TinyModel::qwen3moe(TensorType::Q4_0, 192),
        TinyModel::gpt_oss(TensorType::Q4_0, 192),
        TinyModel::deepseek2(TensorType::Q4_0, 192),
    ] {
        let expected = take(&mut load(&model, MODES[0]));
        for mode in [(Numa::TensorParallel, 1, 5), (Numa::TensorParallel, 2, 6)] {
            let mut engine = load(&model, mode);
            for schedule in [slice(1, 1), slice(99, 99), grid(2, 1), grid(1, 3), grid(2, 2)] {
                let schedules = everywhere(&mut engine, schedule, |_| true);
                engine.set_schedules(schedules).unwrap();
                assert!(take(&mut engine) == expected, "{}, {mode:?}, {schedule:?}", model.arch);
            }
        }
    }
}

#[test]
fn every_gather_adds_up_the_parts_of_columns() {
    let expected = take(&mut load(&qwen3(), MODES[0]));
    for nodes in [1, 2, 3] {
        let mut engine = load(&qwen3(), (Numa::TensorParallel, nodes, 3 * nodes));
        // The output projection is cut in two; the down projection is not, and sums all runs that there
        // are.
        let mut summed = engine.matrix_shapes()[0].clone();
        summed.retain(|used| used.shape.product == Product::Summed);
        let mut schedules = Schedules::default();
        schedules.add(summed[0].shape.clone(), vec![(4096, grid(1, 2))]);
        engine.set_schedules(schedules).unwrap();
        for gather in [Gather::Push, Gather::Pull, Gather::Scatter] {
            if nodes == 1 && gather == Gather::Scatter {
                continue;
            }
            let base = if gather == Gather::Push { Variant::DECODE } else { Variant::PREFILL };
            for splits in [1, 2] {
                let variant = Variant { gather, splits, ..base };
                engine.force_variant(Some(variant)).unwrap();
                assert!(take(&mut engine) == expected, "{nodes} nodes, {variant:?}");
            }
            let other = Variant { gather, splits: 3, ..base };
            assert!(engine.force_variant(Some(other)).is_err(), "nobody asked for 3");
        }
    }
}

#[test]
fn schedules_follow_the_level_of_a_step() {
    let expected = take(&mut load(&qwen3(), MODES[0]));
    let machine = topology::Machine::read().unwrap();
    for nodes in [1, 2] {
        let phases = [(1, 1), (8, 2)].map(|(tokens, n)| Phase { tokens, threads: vec![n; nodes] });
        let mode = (Numa::TensorParallel, nodes, 3 * nodes);
        let mut engine = load_in(&qwen3(), mode, phases.to_vec());
        let teams: Vec<Vec<usize>> = engine
            .matrix_shapes()
            .iter()
            .map(|level| level.iter().map(|used| used.shape.threads).collect())
            .collect();
        assert_eq!(teams.iter().map(|t| t[0]).collect::<Vec<_>>(), [1, 2, 3]);
        for schedule in [slice(3, 5), grid(3, 1), grid(1, 3), grid(1, 2)] {
            let schedules = everywhere(&mut engine, schedule, |_| true);
            engine.set_schedules(schedules.clone()).unwrap();
            assert!(take(&mut engine) == expected, "{nodes} nodes, {schedule:?}");
            let activity = engine.activity();
            assert!(activity.waits_as_compiled(), "{nodes} nodes, {schedule:?}");
            // A rearrangement has other teams, and the same schedules for those that it has.
            let groups = engine.plan().groups.clone();
            engine.rearrange(groups.clone(), Vec::new(), &machine).unwrap();
            assert_eq!(engine.plan().schedules, schedules);
            assert!(take(&mut engine) == expected, "{nodes} nodes, {schedule:?}, all threads");
            engine.rearrange(groups, phases.to_vec(), &machine).unwrap();
            // A level that is forced stays so.
            engine.force_level(Some(1));
            engine.set_schedules(schedules).unwrap();
            assert!(take(&mut engine) == expected, "{nodes} nodes, {schedule:?}, level 1");
            let waits = engine.activity().counts.waits;
            let taken = |level: usize| waits[level].iter().all(|w| w.local + w.global > 0);
            assert_eq!([0, 1, 2].map(taken), [false, true, false]);
            engine.force_level(None);
        }
    }
}

#[test]
fn schedules_may_be_there_from_the_beginning() {
    let expected = take(&mut load(&qwen3(), MODES[0]));
    let schedules = {
        let mut engine = load(&qwen3(), (Numa::TensorParallel, 2, 4));
        everywhere(&mut engine, grid(1, 2), |_| true)
    };
    let file = ModelFile::from_bytes("tiny", qwen3().gguf());
    let options = LoadOptions {
        nodes: Some(2),
        threads: Some(4),
        sequences: Some(3),
        no_pin: true,
        schedules: schedules.clone(),
        ..LoadOptions::default()
    };
    let mut engine = Engine::load(&file, &options, &mut |_| {}).unwrap();
    assert_eq!(engine.plan().schedules, schedules);
    let variant = Variant { splits: 2, ..Variant::DECODE };
    assert!(engine.program(variant).is_some());
    assert!(take(&mut engine) == expected);
}
