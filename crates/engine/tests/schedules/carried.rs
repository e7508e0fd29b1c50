//! Schedules that were found for other threads are carried over, matrix by matrix.

use super::{MODES, grid, load, load_in, qwen3, slice, take};
use arclight_engine::{
    CpuId, Engine, Error, Grid, Group, LoadOptions, ModelFile, NodeId, Numa, Phase, Schedule,
    Schedules,
};
use kernels::How;
use std::collections::BTreeMap;
use topology::fake::FakeMachine;

/// Loads the model for so many threads with schedules that were found for others.
fn loaded(
    (numa, nodes, threads): (Numa, usize, usize),
    phases: &[Phase],
    (schedules, before): (&Schedules, &[Vec<usize>]),
) -> Result<Engine, Error> {
    let options = LoadOptions {
        numa,
        nodes: Some(nodes),
        threads: Some(threads),
        sequences: Some(3),
        step_outputs: Some(8),
        no_pin: true,
        phases: phases.to_vec(),
        schedules: schedules.clone(),
        schedules_for: Some(before.to_vec()),
        ..LoadOptions::default()
    };
    Engine::load(&ModelFile::from_bytes("tiny", qwen3().gguf()), &options, &mut |_| {})
}

/// A schedule for each shape that tells the matrix's name by its prefetch distance, and the distances.
fn by_name(engine: &mut Engine, schedule: Schedule) -> (Schedules, BTreeMap<String, usize>) {
    let (mut schedules, mut names) = (Schedules::default(), BTreeMap::new());
    for used in engine.matrix_shapes().into_iter().flatten() {
        let ahead = 64 * (1 + names.len());
        let ahead = *names.entry(used.name).or_insert(ahead);
        if schedules.of(&used.shape).is_empty() {
            let how = How { ahead, ..schedule.how };
            let most = used.shape.threads;
            let summed = used.shape.product == arclight_engine::Product::Summed;
            let splits = if summed { schedule.grid.splits.min(most) } else { 1 };
            let tokens = schedule.grid.tokens.min(most / splits);
            let schedule = Schedule { how, grid: Grid { tokens, splits }, ..schedule };
            schedules.add(used.shape, vec![(64, schedule)]);
        }
    }
    (schedules, names)
}

#[test]
fn a_node_multiplies_its_share_as_its_share_was() {
    let expected = take(&mut load(&qwen3(), MODES[0]));
    for (numa, nodes, threads, before) in [
        (Numa::TensorParallel, 1, 3, vec![4]),
        (Numa::TensorParallel, 2, 7, vec![4, 4]),
        (Numa::TensorParallel, 3, 8, vec![3, 3, 3]),
        (Numa::TensorParallel, 2, 4, vec![3, 3]),
        (Numa::Pipeline, 2, 7, vec![4, 4]),
        (Numa::Mirror, 2, 5, vec![3, 3]),
        (Numa::Interleave, 2, 3, vec![2, 2]),
    ] {
        let all: usize = before.iter().sum();
        let few: Vec<usize> = vec![1; nodes];
        // Fewer threads for single tokens, which stay as they were.
        let phase = [Phase { tokens: 1, threads: few.clone() }];
        for phases in [&phase[..], &[]] {
            let mut tuned = load_in(&qwen3(), (numa, nodes, all), phases.to_vec());
            let mut for_threads: Vec<Vec<usize>> = phases.iter().map(|_| few.clone()).collect();
            for_threads.push(before.clone());
            for schedule in [slice(2, 5), grid(2, 1), grid(1, 2)] {
                let (schedules, names) = by_name(&mut tuned, schedule);
                let mut engine =
                    loaded((numa, nodes, threads), phases, (&schedules, &for_threads)).unwrap();
                let what = format!("{numa:?}, {before:?} to {threads}, {schedule:?}");
                assert!(take(&mut engine) == expected, "{what}");
                let carried = engine.plan().schedules.clone();
                let levels = engine.matrix_shapes();
                assert_eq!(levels.len(), 1 + phases.len());
                for used in levels.iter().flatten() {
                    let rows = carried.of(&used.shape);
                    assert_eq!(rows.len(), 1, "{what}: {}", used.shape);
                    let (tokens, got) = rows[0];
                    // Of three nodes one's `down` had the shape of another's `attn_output`.
                    let twins = nodes == 3 && used.name == "down";
                    let own = got.how.ahead == names[&used.name]
                        || twins && got.how.ahead == names["attn_output"];
                    assert!(tokens == 64 && own, "{what}: {} {got:?}", used.shape);
                    // A grid that would leave a thread over is none, unless it was found for this shape.
                    let cells = got.grid.tokens * got.grid.splits;
                    let fits = used.shape.threads.is_multiple_of(cells);
                    let found = !schedules.of(&used.shape).is_empty();
                    assert!(fits || found, "{what}: {got:?}");
                    // A slice that was all of a thread's rows may be more of them.
                    if let Some(slice) = got.slice {
                        let was = schedule.slice.expect("the same schedule");
                        assert!(slice.tokens == was.tokens && slice.tiles >= was.tiles, "{what}");
                    }
                    let kept = schedule.grid == Grid::default() || got.grid == schedule.grid;
                    assert!(!kept || got.slice.is_some() == schedule.slice.is_some(), "{what}");
                }
            }
        }
    }
}

/// Groups of unequal size have unequal shares, before and after.
#[test]
fn each_group_has_what_it_had() {
    let expected = take(&mut load(&qwen3(), MODES[0]));
    let machine = FakeMachine::uniform(2, 4).machine().unwrap();
    let on = |sizes: [u32; 2], schedules: &Schedules, before: Option<Vec<Vec<usize>>>| {
        let group = |(at, &n): (u32, &u32)| Group {
            node: Some(NodeId(at)),
            cpus: (4 * at..4 * at + n).map(CpuId).collect(),
        };
        let options = LoadOptions {
            groups: Some((0..).zip(&sizes).map(group).collect()),
            sequences: Some(3),
            step_outputs: Some(8),
            no_pin: true,
            schedules: schedules.clone(),
            schedules_for: before,
            ..LoadOptions::default()
        };
        let file = ModelFile::from_bytes("tiny", qwen3().gguf());
        Engine::load_on(&file, &machine, &options, &mut |_| {}).unwrap()
    };
    let (schedules, names) = by_name(&mut on([4, 1], &Schedules::default(), None), slice(1, 5));
    let mut engine = on([3, 1], &schedules, Some(vec![vec![4, 1]]));
    assert!(take(&mut engine) == expected);
    let carried = engine.plan().schedules.clone();
    for used in &engine.matrix_shapes()[0] {
        let rows = carried.of(&used.shape);
        assert_eq!(rows.len(), 1, "{}", used.shape);
        assert_eq!(rows[0].1.how.ahead, names[&used.name], "{}", used.shape);
    }
}

/// Nothing was found for three threads: what was is for two and for four, of which each has its own.
#[test]
fn what_was_found_for_these_very_threads_stays() {
    let mut tuned = load(&qwen3(), (Numa::TensorParallel, 2, 8));
    let (four, _) = by_name(&mut tuned, slice(4, 4));
    let three = {
        let mut tuned = load(&qwen3(), (Numa::TensorParallel, 2, 7));
        by_name(&mut tuned, slice(3, 3)).0
    };
    let mut both = four.clone();
    // A node with four threads has as many heads as before.
    let new = three.iter().filter(|(shape, _)| four.of(shape).is_empty());
    new.for_each(|(shape, rows)| both.add(shape.clone(), rows.to_vec()));
    let mode = (Numa::TensorParallel, 2, 7);
    let engine = loaded(mode, &[], (&both, &[vec![4, 4]])).unwrap();
    let carried = engine.plan().schedules.clone();
    for used in &engine.matrix_shapes()[0] {
        assert_eq!(carried.of(&used.shape), both.of(&used.shape));
        assert!(!both.of(&used.shape).is_empty(), "{}", used.shape);
    }
}

#[test]
fn schedules_of_other_groups_or_phases_are_refused() {
    let mut tuned = load(&qwen3(), (Numa::TensorParallel, 2, 4));
    let (schedules, _) = by_name(&mut tuned, slice(3, 5));
    let mode = (Numa::TensorParallel, 2, 3);
    for before in [vec![], vec![vec![4]], vec![vec![1, 1], vec![2, 2]], vec![vec![2, 2, 2]]] {
        let Err(error) = loaded(mode, &[], (&schedules, &before)) else {
            panic!("{before:?} is taken");
        };
        assert!(matches!(error, Error::SchedulesFor { .. }), "{before:?}: {error}");
    }
    let Err(error) = loaded(mode, &[], (&schedules, &[vec![2, 0]])) else { panic!("none") };
    assert!(matches!(error, Error::Zero(_)), "{error}");
    // Where there are no schedules there is nothing to carry.
    assert!(loaded(mode, &[], (&Schedules::default(), &[])).is_ok());
}
