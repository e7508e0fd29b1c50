//! Schedules say how products are shared and cut; they change no bits and no state.

use arclight_engine::{
    BatchEntry, Engine, Grid, LoadOptions, MatrixShape, ModelFile, Numa, Outputs, Phase, Product,
    Schedule, Schedules, SeqId, Slice, Variant,
};
use gguf::TensorType;
use graph::{Gather, SplitBy};
use std::time::Duration;
use testkit::TinyModel;

/// Prompts, batches of tokens, and both together: rows that are worked on privately, and more.
const STEPS: [&[usize]; 7] = [&[40], &[1], &[1, 8], &[3, 2, 3], &[70, 1, 1], &[1, 1, 1], &[5]];

/// Every way to share a model, with teams of one to six threads.
const MODES: [(Numa, usize, usize); 9] = [
    (Numa::TensorParallel, 1, 1),
    (Numa::TensorParallel, 1, 2),
    (Numa::TensorParallel, 1, 5),
    (Numa::TensorParallel, 2, 4),
    (Numa::TensorParallel, 2, 5),
    (Numa::TensorParallel, 3, 9),
    (Numa::Mirror, 2, 6),
    (Numa::Pipeline, 2, 4),
    (Numa::Interleave, 2, 3),
];

/// Three layers, in which no two matrices have one shape.
fn qwen3() -> TinyModel {
    TinyModel { layers: 3, ffn: 1536, ..TinyModel::qwen3(TensorType::Q4_0) }
}

fn load(model: &TinyModel, (numa, nodes, threads): (Numa, usize, usize)) -> Engine {
    load_in(model, (numa, nodes, threads), Vec::new())
}

fn load_in(
    model: &TinyModel,
    (numa, nodes, threads): (Numa, usize, usize),
    phases: Vec<Phase>,
) -> Engine {
    let file = ModelFile::from_bytes("tiny", model.gguf());
    let options = LoadOptions {
        numa,
        nodes: Some(nodes),
        threads: Some(threads),
        sequences: Some(3),
        step_outputs: Some(8),
        no_pin: true,
        stats: true,
        phases,
        ..LoadOptions::default()
    };
    Engine::load(&file, &options, &mut |_| {}).unwrap()
}

/// Takes all steps; the bits of their logits.
fn take(engine: &mut Engine) -> Vec<u32> {
    let sequences: Vec<SeqId> = (0..3).map(|_| engine.new_sequence().unwrap()).collect();
    let mut bits = Vec::new();
    for (at, step) in STEPS.iter().enumerate() {
        let tokens: Vec<u32> = (0..70).map(|i| (i * 31 + 7 * at as u32) % 300).collect();
        let entry = |(&len, &sequence)| BatchEntry {
            sequence,
            tokens: &tokens[..len],
            outputs: Outputs::Last,
        };
        let batch: Vec<BatchEntry<'_>> = step.iter().zip(&sequences).map(entry).collect();
        let logits = engine.step(&batch).unwrap();
        bits.extend((0..logits.len()).flat_map(|i| logits.row(i)).map(|x| x.to_bits()));
    }
    for sequence in sequences {
        engine.free(sequence).unwrap();
    }
    bits
}

/// The fewest segments that columns which nodes share have on a node.
fn segments(engine: &mut Engine) -> usize {
    let graph = engine.executor().graph();
    let summed = graph.matrices().iter().filter(|m| m.split == SplitBy::Cols);
    let each = summed.flat_map(|m| (0..graph.nodes()).map(|node| m.segments(0, node).len()));
    each.filter(|&segments| segments > 0).min().unwrap()
}

/// `schedule` for all shapes, as far as they can have it; `which` tells by the shape's index.
fn everywhere(engine: &mut Engine, schedule: Schedule, which: impl Fn(usize) -> bool) -> Schedules {
    let mut schedules = Schedules::default();
    let segments = segments(engine);
    let shapes = engine.executor().matrix_shapes().into_iter().flatten().enumerate();
    let mut seen = Vec::new();
    for (at, used) in shapes {
        let shape = used.shape;
        if !which(at) || seen.contains(&shape) {
            continue;
        }
        seen.push(shape.clone());
        let most = if shape.product == Product::Summed { segments.min(shape.threads) } else { 1 };
        let splits = schedule.grid.splits.min(most);
        let tokens = schedule.grid.tokens.min(shape.threads / splits);
        let schedule = Schedule { grid: Grid { tokens, splits }, ..schedule };
        schedules.add(shape, vec![(4096, schedule)]);
    }
    schedules
}

fn slice(tiles: usize, tokens: usize) -> Schedule {
    Schedule { slice: Some(Slice { tiles, tokens }), ..Schedule::default() }
}

fn grid(tokens: usize, splits: usize) -> Schedule {
    Schedule { grid: Grid { tokens, splits }, ..Schedule::default() }
}

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
            engine.executor().set_schedules(schedules.clone()).unwrap();
            assert_eq!(engine.executor().plan().schedules, schedules);
            assert!(take(&mut engine) == expected, "{mode:?}, {schedule:?}");
            let (activity, plan) = (engine.activity(), engine.executor().plan().clone());
            assert!(activity.waits_as_compiled(&plan), "{mode:?}, {schedule:?}: {activity:?}");
        }
        // Each number of tokens has its own, and not every matrix has one.
        let mut mixed = everywhere(&mut engine, grid(1, 1), |_| false);
        for (at, used) in engine.executor().matrix_shapes()[0].clone().into_iter().enumerate() {
            let most = used.shape.threads.min(2);
            let splits = if used.shape.product == Product::Summed { most } else { 1 };
            let rows = vec![(1, grid(1, splits)), (8, grid(most, 1)), (64, slice(1, 3))];
            if at % 3 > 0 {
                mixed.add(used.shape, rows);
            }
        }
        engine.executor().set_schedules(mixed).unwrap();
        assert!(take(&mut engine) == expected, "{mode:?}, mixed");
        engine.executor().set_schedules(Schedules::default()).unwrap();
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
    ] {
        let expected = take(&mut load(&model, MODES[0]));
        for mode in [(Numa::TensorParallel, 1, 5), (Numa::TensorParallel, 2, 6)] {
            let mut engine = load(&model, mode);
            for schedule in [slice(1, 1), slice(99, 99), grid(2, 1), grid(1, 3), grid(2, 2)] {
                let schedules = everywhere(&mut engine, schedule, |_| true);
                engine.executor().set_schedules(schedules).unwrap();
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
        let mut summed = engine.executor().matrix_shapes()[0].clone();
        summed.retain(|used| used.shape.product == Product::Summed);
        let mut schedules = Schedules::default();
        schedules.add(summed[0].shape.clone(), vec![(4096, grid(1, 2))]);
        engine.executor().set_schedules(schedules).unwrap();
        for gather in [Gather::Push, Gather::Pull, Gather::Scatter] {
            if nodes == 1 && gather == Gather::Scatter {
                continue;
            }
            let base = if gather == Gather::Push { Variant::DECODE } else { Variant::PREFILL };
            for splits in [1, 2] {
                let variant = Variant { gather, splits, ..base };
                engine.executor().force_variant(Some(variant)).unwrap();
                assert!(take(&mut engine) == expected, "{nodes} nodes, {variant:?}");
            }
            let other = Variant { gather, splits: 3, ..base };
            assert!(engine.executor().force_variant(Some(other)).is_err(), "nobody asked for 3");
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
            .executor()
            .matrix_shapes()
            .iter()
            .map(|level| level.iter().map(|used| used.shape.threads).collect())
            .collect();
        assert_eq!(teams.iter().map(|t| t[0]).collect::<Vec<_>>(), [1, 2, 3]);
        for schedule in [slice(3, 5), grid(3, 1), grid(1, 3), grid(1, 2)] {
            let schedules = everywhere(&mut engine, schedule, |_| true);
            engine.executor().set_schedules(schedules.clone()).unwrap();
            assert!(take(&mut engine) == expected, "{nodes} nodes, {schedule:?}");
            let (activity, plan) = (engine.activity(), engine.executor().plan().clone());
            assert!(activity.waits_as_compiled(&plan), "{nodes} nodes, {schedule:?}");
            // A rearrangement has other teams, and the same schedules for those that it has.
            let groups = plan.groups.clone();
            engine.executor().rearrange(groups.clone(), Vec::new(), &machine).unwrap();
            assert_eq!(engine.executor().plan().schedules, schedules);
            assert!(take(&mut engine) == expected, "{nodes} nodes, {schedule:?}, all threads");
            engine.executor().rearrange(groups, phases.to_vec(), &machine).unwrap();
            // A level that is forced stays so.
            engine.executor().force_level(Some(1));
            engine.executor().set_schedules(schedules).unwrap();
            assert!(take(&mut engine) == expected, "{nodes} nodes, {schedule:?}, level 1");
            let waits = engine.activity().counts.waits;
            let taken = |level: usize| waits[level].iter().all(|w| w.local + w.global > 0);
            assert_eq!([0, 1, 2].map(taken), [false, true, false]);
            engine.executor().force_level(None);
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
    assert_eq!(engine.executor().plan().schedules, schedules);
    let variant = Variant { splits: 2, ..Variant::DECODE };
    assert!(engine.executor().program(variant).is_some());
    assert!(take(&mut engine) == expected);
}

#[test]
fn the_books_know_what_parts_of_columns_exchange() {
    // What a step of so many tokens exchanges beyond that of as many tokens without schedules.
    let exchanged = |tokens: usize, rows: Vec<(usize, Schedule)>| {
        let mut engine = load(&qwen3(), (Numa::TensorParallel, 2, 4));
        let mut schedules = Schedules::default();
        for used in engine.executor().matrix_shapes()[0].clone() {
            if used.shape.product == Product::Summed {
                schedules.add(used.shape, rows.clone());
            }
        }
        engine.executor().set_schedules(schedules).unwrap();
        let sequence = engine.new_sequence().unwrap();
        let tokens = &[7; 8][..tokens];
        engine.step(&[BatchEntry { sequence, tokens, outputs: Outputs::None }]).unwrap();
        let places = engine.activity().counts.places;
        (places.iter().map(|p| p.exchanged).collect::<Vec<_>>(), places[0].weights)
    };
    // A node has four of eight segments: one root, or two. Each goes to the other node, for the output
    // and the down projection of three layers: a row of 256 f32.
    let more = 3 * 2 * 256 * 4;
    let rows = vec![(1, grid(1, 2)), (2, grid(2, 1)), (4, grid(1, 2))];
    for (tokens, cut) in [(1, true), (2, false), (3, true), (4, true), (5, false)] {
        let ((one, weights), (two, same)) =
            (exchanged(tokens, Vec::new()), exchanged(tokens, rows.clone()));
        assert_eq!(weights, same, "the node's weights, however threads share them");
        let got: Vec<u64> = one.iter().zip(&two).map(|(one, two)| two - one).collect();
        let want = if cut { more * tokens as u64 } else { 0 };
        assert_eq!(got, [want; 2], "{tokens} tokens");
    }
}

#[test]
fn a_profile_tells_each_threads_part() {
    let mut engine = load(&qwen3(), (Numa::TensorParallel, 1, 5));
    let mut record = |schedule| {
        let schedules = everywhere(&mut engine, schedule, |_| true);
        engine.executor().set_schedules(schedules).unwrap();
        engine.begin_profile(1 << 16).unwrap();
        take(&mut engine);
        let profile = engine.end_profile().unwrap();
        let mut threads = [(0, 0); 5];
        for (thread, (bytes, macs)) in threads.iter_mut().enumerate() {
            for event in profile.events(thread).filter(|e| STEPS[e.step].iter().sum::<usize>() > 8)
            {
                let graph::profile::What::Operator { name: "down" | "gate_up", demand, .. } =
                    event.what
                else {
                    continue;
                };
                *bytes += demand.bytes;
                *macs += demand.macs();
            }
        }
        threads
    };
    let sum = |threads: [(u64, u64); 5]| {
        threads.iter().fold((0, 0), |(b, m), (bytes, macs)| (b + bytes, m + macs))
    };
    let (bytes, macs) = sum(record(Schedule::default()));
    assert!(macs > 0);
    // Each product is computed once, whoever does it; weights are read once for each part of the tokens.
    let two = record(grid(2, 1));
    assert_eq!(sum(two), (2 * bytes, macs));
    assert_eq!(two[4], (0, 0), "left over");
    assert_eq!(sum(record(grid(5, 1))), (5 * bytes, macs));
    assert_eq!(sum(record(grid(1, 2))), (bytes, macs));
    assert_eq!(sum(record(slice(1, 1))), (bytes, macs));
}

#[test]
fn products_are_timed_beside_running_sequences() {
    for mode in [
        (Numa::TensorParallel, 1, 2),
        (Numa::TensorParallel, 2, 4),
        (Numa::Pipeline, 2, 4),
        (Numa::Mirror, 2, 4),
    ] {
        let run = |timed: bool| {
            let mut engine = load(&qwen3(), mode);
            let sequence = engine.new_sequence().unwrap();
            let tokens: Vec<u32> = (0..40).collect();
            let mut bits = Vec::new();
            for tokens in [&tokens[..], &[7], &[8], &[9, 10, 11]] {
                let entry = BatchEntry { sequence, tokens, outputs: Outputs::Last };
                let logits = engine.step(&[entry]).unwrap();
                bits.extend(logits.row(0).iter().map(|x| x.to_bits()));
                let (activity, plan) = (engine.activity(), engine.executor().plan().clone());
                assert!(activity.waits_as_compiled(&plan), "{mode:?}, {activity:?}");
                if timed {
                    time_all(&mut engine);
                }
            }
            bits
        };
        assert!(run(true) == run(false), "{mode:?}");
    }
}

/// Times all shapes, for few tokens and many, in several ways.
fn time_all(engine: &mut Engine) {
    let shapes = engine.executor().matrix_shapes()[0].clone();
    let before = engine.executor().plan().clone();
    for used in shapes {
        assert!(used.matrices > 0, "{used:?}");
        let summed = used.shape.product == Product::Summed;
        for schedule in [Schedule::default(), slice(1, 2), grid(2, 1), grid(1, 2)] {
            for tokens in [1, 8] {
                let splits = schedule.grid.splits;
                let most = Duration::ZERO;
                let executor = engine.executor();
                let timed = executor.time_matrices(&used.shape, 0, tokens, &schedule, most);
                match summed || splits == 1 {
                    true => assert!(timed.unwrap() > 0.0, "{used:?}"),
                    false => assert!(timed.unwrap_err().to_string().contains("columns")),
                }
            }
        }
    }
    assert_eq!(*engine.executor().plan(), before);
}

#[test]
fn what_is_timed_is_the_whole_product() {
    for mode in [(Numa::TensorParallel, 1, 3), (Numa::TensorParallel, 2, 6)] {
        let mut engine = load(&qwen3(), mode);
        let sequence = engine.new_sequence().unwrap();
        let entry = BatchEntry { sequence, tokens: &[7; 4], outputs: Outputs::All };
        engine.step(&[entry]).unwrap();
        let executor = engine.executor();
        let bits = |executor: &graph::Executor| {
            let logits = executor.logits();
            (0..4).flat_map(|i| logits.row(i)).map(|x| x.to_bits()).collect::<Vec<_>>()
        };
        let shapes = executor.matrix_shapes().swap_remove(0);
        // The matrix that makes logits, whose products can be seen: made-up activations, alike in all rows.
        let heads = shapes.iter().filter(|used| used.matrices == 1);
        let mut all = vec![bits(executor)];
        for schedule in [Schedule::default(), slice(3, 1), grid(2, 1), grid(3, 1)] {
            for used in heads.clone() {
                let most = Duration::ZERO;
                executor.time_matrices(&used.shape, 0, 4, &schedule, most).unwrap();
            }
            let got = bits(executor);
            assert!(got.chunks(300).all(|row| row == &got[..300]), "{mode:?}, {schedule:?}");
            all.push(got);
        }
        assert!(all[2..].iter().all(|got| *got == all[1]), "{mode:?}");
        assert!(all[1] != all[0] && all[1].iter().all(|&x| f32::from_bits(x).is_normal()));
    }
}

#[test]
fn shapes_are_those_of_the_model() {
    let mut engine = load(&qwen3(), (Numa::TensorParallel, 2, 4));
    let levels = engine.executor().matrix_shapes();
    let [all] = levels.as_slice() else { panic!("one level") };
    let names: Vec<(&str, usize)> = all.iter().map(|u| (u.name.as_str(), u.matrices)).collect();
    // The vocabulary of 300 is 160 rows on one node and 140 on the other.
    let layers = [("qkv", 3), ("attn_output", 3), ("gate_up", 3), ("down", 3)];
    assert_eq!(names, [&layers[..], &[("vocab", 1), ("vocab", 1)]].concat());
    let qkv = &all[0].shape;
    let half = |rows| (TensorType::Q4_0, rows);
    assert_eq!(qkv.parts, [half(512), half(256), half(256)]);
    assert_eq!((qkv.cols, qkv.product, qkv.threads), (256, Product::Plain, 2));
    assert_eq!(qkv.to_string(), "Q4_0 512 + Q4_0 256 + Q4_0 256 x 256, 2 threads");
}

#[test]
fn schedules_that_cannot_be_are_refused() {
    let mut engine = load(&qwen3(), (Numa::TensorParallel, 2, 20));
    let expected = take(&mut engine);
    let shapes = engine.executor().matrix_shapes()[0].clone();
    let of =
        |product| shapes.iter().find(|used| used.shape.product == product).unwrap().shape.clone();
    let (plain, summed) = (of(Product::Plain), of(Product::Summed));
    let mut refuse = |rows: Vec<(MatrixShape, Vec<(usize, Schedule)>)>, says: &str| {
        let mut schedules = Schedules::default();
        rows.into_iter().for_each(|(shape, rows)| schedules.add(shape, rows));
        let error = engine.executor().set_schedules(schedules).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
        assert_eq!(engine.executor().plan().schedules, Schedules::default());
    };
    let one = |shape: &MatrixShape, schedule| vec![(shape.clone(), vec![(8, schedule)])];
    refuse(
        one(&plain, slice(0, 1)),
        "Q4_0 512 + Q4_0 256 + Q4_0 256 x 256, 10 threads for up to 8 tokens has an empty slice",
    );
    refuse(one(&plain, slice(1, 0)), "an empty slice");
    refuse(one(&plain, grid(0, 1)), "an empty grid");
    refuse(one(&plain, grid(1, 0)), "an empty grid");
    refuse(one(&plain, grid(1, 2)), "cuts the columns into 2, which only");
    refuse(one(&plain, grid(11, 1)), "11 parts of the tokens by 1 of the columns for 10 threads");
    refuse(one(&summed, grid(4, 3)), "4 parts of the tokens by 3 of the columns for 10 threads");
    refuse(one(&summed, grid(usize::MAX, 3)), "for 10 threads");
    refuse(one(&summed, grid(1, 5)), "cuts the columns into 5, but a node has only 4 segments");
    let rows = |a, b| vec![(plain.clone(), vec![(a, grid(1, 1)), (b, grid(2, 1))])];
    refuse(rows(8, 8), "for up to 8 tokens stands behind one for up to 8");
    refuse(rows(0, 8), "for up to 0 tokens stands behind one for up to 0");
    let twice = [one(&plain, grid(2, 1)), one(&plain, grid(3, 1))].concat();
    refuse(twice, "is the second of its shape");
    // Shapes of other models and teams do no harm.
    let mut schedules = Schedules::default();
    schedules.add(MatrixShape { threads: 40, ..plain.clone() }, vec![(1, grid(40, 1))]);
    engine.executor().set_schedules(schedules).unwrap();
    assert!(take(&mut engine) == expected);

    let mut time = |shape: &MatrixShape, tokens, schedule| {
        let most = Duration::ZERO;
        let error = engine.executor().time_matrices(shape, 0, tokens, &schedule, most);
        error.unwrap_err().to_string()
    };
    let none = MatrixShape { cols: 17, ..plain.clone() };
    let usual = Schedule::default();
    assert!(time(&none, 1, usual).contains("no matrix of the model is Q4_0 512"));
    assert!(time(&plain, 0, usual).contains("no tokens"));
    assert!(time(&plain, 513, usual).contains("a step of 513 tokens exceeds the limit of 512"));
    assert!(time(&summed, 1, grid(1, 5)).contains("only 4 segments"));
    assert!(time(&plain, 1, grid(11, 1)).contains("11 parts of the tokens"));
    let head = shapes.iter().find(|used| used.name == "vocab").unwrap();
    assert!(time(&head.shape, 9, usual).contains("a step of 9 outputs exceeds the limit of 8"));
}
