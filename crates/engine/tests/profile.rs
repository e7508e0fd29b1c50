//! What a profile says is what the compiled programs say, for every thread and mode.

use arclight_engine::{
    BatchEntry, Engine, LoadOptions, ModelFile, Numa, Outputs, Profile, Variant,
};
use gguf::TensorType;
use graph::profile::{Demand, Interval, What};
use kernels::Product;
use std::collections::BTreeMap;
use std::time::Instant;
use testkit::TinyModel;

const ROOM: usize = 1 << 16;

fn load(numa: Numa, nodes: usize, threads: usize) -> Engine {
    let model = TinyModel { layers: 3, ..TinyModel::qwen3(TensorType::Q4_0) };
    let file = ModelFile::from_bytes("tiny", model.gguf());
    let (nodes, threads) = (Some(nodes), Some(threads));
    let options = LoadOptions { numa, nodes, threads, no_pin: true, ..LoadOptions::default() };
    Engine::load(&file, &options, &mut |_| {}).unwrap()
}

/// Takes `steps` steps of `tokens` tokens each.
fn take(engine: &mut Engine, steps: usize, tokens: usize) {
    let sequence = engine.new_sequence().unwrap();
    for _ in 0..steps {
        let tokens = &vec![7; tokens];
        engine.step(&[BatchEntry { sequence, tokens, outputs: Outputs::Last }]).unwrap();
    }
    engine.free(sequence).unwrap();
}

/// The names of a stage's instructions and, as `-`, its waits.
fn compiled(engine: &mut Engine, variant: Variant, stage: usize) -> Vec<String> {
    let graph = engine.graph();
    let mut names = Vec::new();
    for stage in &engine.program(variant).unwrap()[stage] {
        // Where the pool's view changes, a profile has the meeting of all groups and no operator.
        let operators = stage.instrs.iter().filter(|instr| instr.view().is_none());
        names.extend(operators.map(|instr| match (instr.name(), instr.matrix()) {
            ("logits", _) | (_, None) => instr.name().to_owned(),
            (_, Some(matrix)) => graph.matrix(matrix).name.clone(),
        }));
        names.extend(stage.wait.as_ref().map(|_| "-".to_owned()));
    }
    names
}

/// Names of a thread's operators and, as `-`, its waits after some; of each step.
fn recorded(profile: &Profile, thread: usize) -> BTreeMap<usize, Vec<String>> {
    let mut steps: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for event in profile.events(thread) {
        let name = match event.what {
            What::Operator { name, .. } => name,
            What::Wait { because: "the step to end", .. } | What::Wait { after: None, .. } => {
                continue;
            }
            What::Wait { .. } => "-",
        };
        steps.entry(event.step).or_default().push(name.to_owned());
    }
    steps
}

#[test]
fn every_thread_records_the_program_it_walks() {
    let cases = [
        (Numa::TensorParallel, 1, 2),
        (Numa::TensorParallel, 2, 3),
        (Numa::Pipeline, 2, 3),
        (Numa::Mirror, 2, 2),
        (Numa::Off, 2, 2),
    ];
    for (numa, nodes, threads) in cases {
        let mut engine = load(numa, nodes, threads);
        let stage_of: Vec<usize> = (0..threads)
            .map(|t| match numa {
                Numa::Pipeline => {
                    let groups = engine.plan().group_threads();
                    groups.iter().position(|g| g.contains(&t)).unwrap()
                }
                _ => 0,
            })
            .collect();
        for (variant, steps, tokens) in [(Variant::DECODE, 5, 1), (Variant::PREFILL, 2, 40)] {
            engine.force_variant(Some(variant)).unwrap();
            engine.begin_profile(ROOM).unwrap();
            take(&mut engine, steps, tokens);
            let profile = engine.end_profile().unwrap();
            assert_eq!((profile.threads(), profile.dropped()), (threads, 0));
            assert_eq!(profile.steps().len(), steps);
            assert!(profile.steps().all(|s| (s.tokens, s.outputs) == (tokens, 1)));
            for (thread, &stage) in stage_of.iter().enumerate() {
                let program = compiled(&mut engine, variant, stage);
                let recorded = recorded(&profile, thread);
                assert_eq!(recorded.len(), steps);
                for names in recorded.values() {
                    assert_eq!(*names, program, "{numa:?}, {nodes} nodes, thread {thread}");
                }
            }
        }
        assert!(engine.take_profile().is_none(), "recording has ended");
    }
}

#[test]
fn parts_that_go_through_a_pipeline_are_recorded_in_order() {
    let mut engine = load(Numa::Pipeline, 3, 4);
    engine.begin_profile(ROOM).unwrap();
    take(&mut engine, 1, 300);
    let profile = engine.take_profile().unwrap();
    for thread in 0..4 {
        let rows = |event: Interval<'_>| match event.what {
            What::Operator { name: "qkv", rows, .. } => Some((event.layer.unwrap(), rows)),
            _ => None,
        };
        let mut rows_of: BTreeMap<usize, usize> = BTreeMap::new();
        for (layer, rows) in profile.events(thread).filter_map(rows) {
            *rows_of.entry(layer).or_default() += rows;
        }
        assert_eq!(rows_of.into_values().collect::<Vec<_>>(), [300], "one layer, all tokens");
    }
}

#[test]
fn a_threads_time_is_accounted_for() {
    for (numa, nodes, threads) in [(Numa::TensorParallel, 2, 4), (Numa::Pipeline, 2, 2)] {
        let mut engine = load(numa, nodes, threads);
        engine.begin_profile(ROOM).unwrap();
        let start = Instant::now();
        take(&mut engine, 3, 70);
        let took = start.elapsed();
        let profile = engine.take_profile().unwrap();
        let steps: Vec<_> = profile.steps().collect();
        assert!(profile.duration() >= took && profile.since() <= start);
        let in_steps: u64 = steps.iter().map(|s| s.end - s.start).sum();
        // Ticks are converted by readings of both clocks that are some 10 ns apart.
        assert!(u128::from(in_steps) <= took.as_nanos() + 10_000, "{in_steps} ns in {took:?}");
        assert!(steps.windows(2).all(|pair| pair[0].end <= pair[1].start), "{steps:?}");
        for thread in 0..threads {
            let events: Vec<Interval<'_>> = profile.events(thread).collect();
            for step in events.chunk_by(|a, b| a.step == b.step) {
                let whole = steps[step[0].step];
                assert!(step.windows(2).all(|pair| pair[0].end == pair[1].start), "{step:?}");
                assert!(step.iter().all(|event| event.start <= event.end), "{step:?}");
                let (first, last) = (step[0].start, step[step.len() - 1].end);
                // Counters of different CPUs are some ticks apart.
                assert!(first.abs_diff(whole.start) < 1_000 && last.abs_diff(whole.end) < 1_000);
            }
        }
    }
}

#[test]
fn threads_share_the_bytes_and_products_of_the_book() {
    for (numa, nodes, threads) in
        [(Numa::TensorParallel, 1, 3), (Numa::TensorParallel, 2, 3), (Numa::Mirror, 2, 2)]
    {
        let mut engine = load(numa, nodes, threads);
        engine.begin_profile(ROOM).unwrap();
        engine.reset_activity();
        take(&mut engine, 4, 1);
        let (profile, counts) = (engine.take_profile().unwrap(), engine.activity().counts);
        let mut sums: BTreeMap<&str, Demand> = BTreeMap::new();
        for event in (0..threads).flat_map(|thread| profile.events(thread)) {
            if let What::Operator { name, demand, .. } = event.what {
                *sums.entry(name).or_default() += demand;
            }
        }
        let attention = sums["rope+append+attend"];
        let weights: u64 =
            sums.iter().filter(|(name, _)| !name.ends_with("attend")).map(|(_, d)| d.bytes).sum();
        assert_eq!(weights, counts.places.iter().map(|p| p.weights).sum::<u64>());
        assert_eq!(attention.bytes, counts.places.iter().map(|p| p.kv).sum::<u64>());
        // 4 tokens through 3 layers; token i sees i + 1. The weights are of Q4_0.
        assert_eq!(attention.macs[Product::F32], 3 * (1 + 2 + 3 + 4) * 8 * 128 * 2);
        assert_eq!(sums["qkv"].macs[Product::Int4], 4 * 3 * (8 + 4 + 4) * 128 * 256);
        assert_eq!(sums["gate_up"].macs[Product::Int4], 4 * 3 * 2 * 1024 * 256);
        assert_eq!(sums["down"].macs[Product::Int4], 4 * 3 * 1024 * 256);
        assert_eq!(
            sums["logits"].macs[Product::Int4],
            4 * 300 * 256,
            "the last tile's padding is no product"
        );
        assert_eq!(sums["rms_norm"], Demand::default());
        assert!(sums.values().all(|d| d.macs[Product::F32] == 0 || *d == attention));
    }
}

#[test]
fn what_does_not_fit_is_counted_and_room_is_made_by_looking() {
    let mut engine = load(Numa::TensorParallel, 1, 2);
    engine.begin_profile(ROOM).unwrap();
    take(&mut engine, 1, 1);
    let of_one: usize = engine.take_profile().unwrap().events(0).count();
    // Room for three steps and a half. (The wait at a step's end takes none.)
    engine.begin_profile((of_one - 1) * 7 / 2).unwrap();
    for _ in 0..2 {
        take(&mut engine, 5, 1);
        let profile = engine.take_profile().unwrap();
        for thread in 0..2 {
            let steps: Vec<usize> = profile.events(thread).map(|event| event.step).collect();
            assert_eq!(steps.len(), 3 * of_one, "whole steps");
            assert_eq!(steps.last(), Some(&2));
        }
        assert_eq!(profile.steps().len(), 5);
        assert_eq!(profile.dropped() as usize, 2 * 2 * (of_one - 1));
    }
    engine.begin_profile(0).unwrap();
    take(&mut engine, 2, 1);
    let profile = engine.take_profile().unwrap();
    assert_eq!((profile.steps().len(), profile.events(0).count()), (0, 0));
    assert_eq!(profile.dropped() as usize, 2 * 2 * (of_one - 1));
}

#[test]
fn recording_changes_no_bit() {
    let logits = |profile: bool| {
        let mut engine = load(Numa::TensorParallel, 2, 2);
        if profile {
            engine.begin_profile(ROOM).unwrap();
        }
        let sequence = engine.new_sequence().unwrap();
        let entry = BatchEntry { sequence, tokens: &[1, 2, 3], outputs: Outputs::Last };
        engine.step(&[entry]).unwrap().row(0).to_vec()
    };
    assert_eq!(logits(true), logits(false));
}
