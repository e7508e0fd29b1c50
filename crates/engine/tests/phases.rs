//! Plans are switched between two steps: other threads take part, and nothing else changes.

use arclight_engine::{
    Activity, BatchEntry, CpuId, Engine, Error, FewThreads, Group, LoadOptions, ModelFile, NodeId,
    Numa, Outputs, Phase, SeqId, TaskPolicy, TellFew, Variant,
};
use gguf::TensorType;
use testkit::TinyModel;
use topology::fake::FakeMachine;

/// Steps of one token, of up to eight, and larger ones.
const STEPS: [&[usize]; 9] =
    [&[40], &[1], &[1, 8], &[1, 1], &[3, 2, 3], &[1, 1, 1], &[70, 1, 1], &[1], &[2]];

fn load(numa: Numa, nodes: usize, phases: Vec<Phase>) -> Engine {
    let model = TinyModel { layers: 3, ..TinyModel::qwen3(TensorType::Q4_0) };
    let file = ModelFile::from_bytes("tiny", model.gguf());
    let options = LoadOptions {
        numa,
        nodes: Some(nodes),
        threads: Some(3 * nodes),
        sequences: Some(3),
        no_pin: true,
        stats: true,
        phases,
        ..LoadOptions::default()
    };
    Engine::load(&file, &options, &mut |_| {}).unwrap()
}

/// One thread of each group, then two, then all three.
fn phases(nodes: usize) -> Vec<Phase> {
    [(1, 1), (8, 2)].map(|(tokens, n)| Phase { tokens, threads: vec![n; nodes] }).to_vec()
}

/// Takes all steps; the bits of their logits.
fn take(engine: &mut Engine) -> Vec<u32> {
    let sequences: Vec<SeqId> = (0..3).map(|_| engine.new_sequence().unwrap()).collect();
    let mut bits = Vec::new();
    for (at, step) in STEPS.iter().enumerate() {
        let tokens: Vec<u32> = (0..70).map(|i| (i * 31 + 7 * at as u32) % 300).collect();
        let batch: Vec<BatchEntry<'_>> = step
            .iter()
            .zip(&sequences)
            .map(|(&len, &sequence)| BatchEntry {
                sequence,
                tokens: &tokens[..len],
                outputs: Outputs::Last,
            })
            .collect();
        let logits = engine.step(&batch).unwrap();
        bits.extend((0..logits.len()).flat_map(|i| logits.row(i)).map(|x| x.to_bits()));
    }
    for sequence in sequences {
        engine.free(sequence).unwrap();
    }
    bits
}

const MODES: [(Numa, usize); 7] = [
    (Numa::TensorParallel, 1),
    (Numa::TensorParallel, 2),
    (Numa::TensorParallel, 4),
    (Numa::Pipeline, 2),
    (Numa::Mirror, 2),
    (Numa::Interleave, 2),
    (Numa::Off, 2),
];

#[test]
fn switching_changes_no_bits_and_threads_wait_as_compiled() {
    let expected = take(&mut load(Numa::TensorParallel, 1, Vec::new()));
    assert!(expected.iter().any(|&bits| f32::from_bits(bits) != 0.0));
    for (numa, nodes) in MODES {
        let mut engine = load(numa, nodes, phases(nodes));
        engine.reset_activity();
        assert!(take(&mut engine) == expected, "{numa:?}, {nodes} nodes");
        let (activity, plan) = (engine.activity(), engine.plan().clone());
        assert!(activity.waits_as_compiled(), "{numa:?}, {nodes} nodes: {activity:?}");
        // Who has no part in a step has no job either.
        let of_level = |level| STEPS.iter().filter(|s| plan.level(s.iter().sum()) == level).count();
        assert_eq!([0, 1, 2].map(of_level), [2, 4, 3]);
        let jobs = |rank: usize| {
            let groups = plan.group_threads().into_iter();
            groups.map(|g| activity.threads[g.start + rank].jobs.count).collect::<Vec<_>>()
        };
        for (rank, steps) in [(0, 9), (1, 7), (2, 3)] {
            assert_eq!(jobs(rank), vec![steps; nodes], "{numa:?}, threads {rank} of each group");
        }
        // More tokens may have fewer threads.
        let turned = [(1, 2), (2, 1), (8, 3)].map(|(tokens, n)| (tokens, vec![n; nodes]));
        let turned = turned.map(|(tokens, threads)| Phase { tokens, threads }).to_vec();
        let mut turned = load(numa, nodes, turned);
        assert!(take(&mut turned) == expected, "{numa:?}, {nodes} nodes, turned");
        let plan = turned.plan().clone();
        assert_eq!([1, 2, 3, 9].map(|tokens| plan.level(tokens)), [1, 0, 2, 2]);
        // The same steps on threads that are chosen from outside.
        for level in [0, 2, 1] {
            engine.force_level(Some(level));
            assert!(take(&mut engine) == expected, "{numa:?}, {nodes} nodes, level {level}");
        }
    }
}

#[test]
fn sums_that_all_threads_share_are_whole_at_every_level() {
    let expected = take(&mut load(Numa::TensorParallel, 1, Vec::new()));
    let mut engine = load(Numa::TensorParallel, 4, phases(4));
    let scatter = Variant { gather: graph::Gather::Scatter, ..Variant::PREFILL };
    engine.force_variant(Some(scatter)).unwrap();
    for level in [0, 1, 2] {
        engine.force_level(Some(level));
        assert!(take(&mut engine) == expected, "level {level}");
    }
    let of_level = |level: usize| {
        let mut engine = load(Numa::TensorParallel, 4, phases(4));
        engine.force_variant(Some(scatter)).unwrap();
        engine.force_level(Some(level));
        take(&mut engine);
        engine.activity().counts.places.iter().map(|p| p.exchanged).sum::<u64>()
    };
    // All groups have equally many threads at each level, so equal parts of the sums.
    assert_eq!([of_level(0), of_level(1)], [of_level(2); 2]);
}

#[test]
fn threads_are_rearranged_around_a_loaded_model() {
    let expected = take(&mut load(Numa::TensorParallel, 1, Vec::new()));
    let machine = topology::Machine::read().unwrap();
    for (numa, nodes) in MODES {
        let mut engine = load(numa, nodes, Vec::new());
        let mut groups = engine.plan().groups.clone();
        groups.iter_mut().for_each(|group| group.cpus.reverse());
        for phases in [phases(nodes), Vec::new()] {
            engine.rearrange(groups.clone(), phases.clone(), &machine).unwrap();
            assert_eq!(engine.plan().phases, phases);
            assert_eq!(engine.plan().groups, groups);
            assert!(take(&mut engine) == expected, "{numa:?}, {nodes} nodes, {phases:?}");
            let activity = engine.activity();
            assert!(activity.waits_as_compiled(), "{numa:?}, {nodes} nodes: {activity:?}");
        }
        let fewer: Vec<_> = groups[1..].to_vec();
        for other in [fewer, {
            groups[0].cpus.pop();
            groups
        }] {
            let error = engine.rearrange(other, Vec::new(), &machine).unwrap_err();
            assert!(error.to_string().contains("load it anew"), "{error}");
        }
        assert!(take(&mut engine) == expected, "a refusal changes nothing");
    }
}

#[test]
fn steps_go_without_cores_and_come_back_to_them() {
    let expected = take(&mut load(Numa::TensorParallel, 1, Vec::new()));
    let machine = topology::Machine::read().unwrap();
    for (numa, nodes) in MODES {
        for phases in [Vec::new(), phases(nodes)] {
            let mut engine = load(numa, nodes, Vec::new());
            let mut groups = engine.plan().groups.clone();
            // Every thread has a CPU of its own; nothing is pinned.
            for (at, cpu) in groups.iter_mut().flat_map(|g| &mut g.cpus).enumerate() {
                *cpu = CpuId(100 + at as u32);
            }
            engine.rearrange(groups.clone(), phases.clone(), &machine).unwrap();
            // The first of the last group; then two of it; then all are there again.
            let last = 100 + 3 * (nodes as u32 - 1);
            for left in [vec![last], vec![last, last + 2], Vec::new()] {
                let left: Vec<CpuId> = left.into_iter().map(CpuId).collect();
                engine.leave_out(&left).unwrap();
                let before = engine.activity();
                assert!(take(&mut engine) == expected, "{numa:?}, {nodes} nodes, {left:?}");
                let (after, plan) = (engine.activity(), engine.plan().clone());
                assert!(after.waits_as_compiled(), "{numa:?}, {nodes} nodes, {left:?}: {after:?}");
                // Counts went on.
                let steps = after.counts.steps - before.counts.steps;
                assert_eq!(steps, STEPS.len() as u64);
                let ids = plan.groups.iter().flat_map(|group| &group.cpus).enumerate();
                for (thread, cpu) in ids {
                    let jobs = |activity: &Activity| activity.threads[thread].jobs.count;
                    let took = jobs(&after) - jobs(&before);
                    assert!(!left.contains(cpu) || took == 0, "{numa:?}, {nodes}, {cpu:?}: {took}");
                }
            }
            assert_eq!(engine.plan().groups, groups);
            assert_eq!(engine.plan().phases, phases);
            let all: Vec<CpuId> = groups[0].cpus.clone();
            assert!(matches!(engine.leave_out(&all), Err(Error::Graph(graph::Error::NobodyLeft))));
            assert!(take(&mut engine) == expected, "a refusal changes nothing");
        }
    }
}

#[test]
fn products_are_shared_when_told_and_not_otherwise() {
    let model = TinyModel { ffn: 4096, ..TinyModel::qwen3(TensorType::Q4_0) };
    let file = ModelFile::from_bytes("tiny", model.gguf());
    let tokens: Vec<u32> = (0..512).map(|at| at % 300).collect();
    let machine = FakeMachine::uniform(1, 4).machine().unwrap();
    let run = |tasks, shares| {
        let options = LoadOptions { no_pin: true, stats: true, tasks, ..LoadOptions::default() };
        let mut engine = Engine::load_on(&file, &machine, &options, &mut |_| {}).unwrap();
        engine.share_products(shares);
        let sequence = engine.new_sequence().unwrap();
        let entry = BatchEntry { sequence, tokens: &tokens, outputs: Outputs::Last };
        let logits: Vec<u32> =
            engine.step(&[entry]).unwrap().row(0).iter().map(|x| x.to_bits()).collect();
        let activity = engine.activity();
        assert!(activity.waits_as_compiled());
        let counts = activity.threads.iter().map(|thread| thread.tasks);
        let counts = counts.map(|tasks| [tasks.count, tasks.near, tasks.far]);
        let sum = counts.reduce(|a, b| std::array::from_fn(|i| a[i] + b[i])).unwrap();
        (logits, sum)
    };
    let (logits, [attention, ..]) = run(None, false);
    // Gate and up of a layer are 8 MiB as pieces are counted, times 4 and more of other products.
    let (shared, [tasks, near, far]) = run(None, true);
    assert!(shared == logits && far == 0);
    assert!(tasks > attention + 2 * 4 * 4, "{tasks} tasks, {attention} of attention");
    // Four threads, on two cores or on many, are never through with all of them at the same time.
    assert!(near > 0, "{tasks} tasks");
    let (apart, [tasks, ..]) = run(Some(TaskPolicy::Disabled), true);
    assert!(apart == logits && tasks == attention, "{tasks} tasks");
}

#[test]
fn a_profile_has_the_threads_that_took_part() {
    for (numa, nodes) in MODES {
        let mut engine = load(numa, nodes, phases(nodes));
        engine.begin_profile(1 << 16).unwrap();
        take(&mut engine);
        let profile = engine.end_profile().unwrap();
        assert_eq!((profile.complete(), profile.dropped()), (STEPS.len(), 0));
        let plan = engine.plan().clone();
        let mut bytes = vec![0; STEPS.len()];
        for (group, threads) in plan.group_threads().into_iter().enumerate() {
            for thread in threads.clone() {
                let first = plan.first_level(group, thread - threads.start);
                let mut seen: Vec<usize> = profile.events(thread).map(|e| e.step).collect();
                for event in profile.events(thread) {
                    if let graph::profile::What::Operator { demand, .. } = event.what {
                        bytes[event.step] += demand.bytes;
                    }
                }
                seen.dedup();
                let own: Vec<usize> = (0..STEPS.len())
                    .filter(|&s| plan.level(STEPS[s].iter().sum()) >= first)
                    .collect();
                assert_eq!(seen, own, "{numa:?}, group {group}, thread {thread}");
            }
        }
        // However many share them, all weights are read in every step: those of steps 1 and 7, of one
        // token each, differ in the keys that are seen only.
        let weights: u64 = engine.activity().counts.places.iter().map(|p| p.weights).sum();
        let least = weights / STEPS.len() as u64 / 2;
        assert!(bytes.iter().all(|&b| b > least), "{numa:?}: {bytes:?}, {weights}");
    }
}

#[test]
fn phases_that_cannot_be_are_refused() {
    let load = |phases: &[(usize, &[usize])]| {
        let model = TinyModel::qwen3(TensorType::Q4_0);
        let file = ModelFile::from_bytes("tiny", model.gguf());
        let phases = phases.iter().map(|&(tokens, t)| Phase { tokens, threads: t.to_vec() });
        let options = LoadOptions {
            nodes: Some(2),
            threads: Some(4),
            no_pin: true,
            phases: phases.collect(),
            ..LoadOptions::default()
        };
        Engine::load(&file, &options, &mut |_| {}).map(|_| ()).unwrap_err().to_string()
    };
    let ascend = load(&[(8, &[1, 1]), (8, &[2, 2])]);
    assert!(ascend.contains("a phase of up to 8 tokens behind one of up to 8"), "{ascend}");
    assert!(load(&[(0, &[1, 1])]).contains("a phase of up to 0 tokens"));
    for threads in [&[1][..], &[0, 1], &[3, 1]] {
        load(&[(1, threads)]);
    }
    // Neither has all threads of the other.
    load(&[(1, &[2, 1]), (2, &[1, 2])]);
}

#[test]
fn groups_are_taken_as_they_are_given() {
    let model = TinyModel::qwen3(TensorType::Q4_0);
    let file = ModelFile::from_bytes("tiny", model.gguf());
    let here = topology::Machine::read().unwrap();
    let cpu = here.cpus().last().unwrap().id;
    let load = |node, cpus: &[CpuId]| {
        let groups = Some(vec![Group { node, cpus: cpus.to_vec() }]);
        let options = LoadOptions { groups, no_pin: true, ..LoadOptions::default() };
        Engine::load(&file, &options, &mut |_| {})
    };
    let engine = load(None, &[cpu, cpu]).unwrap();
    assert_eq!(engine.plan().groups[0].cpus, [cpu, cpu]);
    assert!(matches!(load(None, &[CpuId(8000)]), Err(Error::NoCpu(CpuId(8000)))));
    assert!(matches!(load(Some(NodeId(900)), &[cpu]), Err(Error::NoNode(NodeId(900)))));
}

/// Decodes so many tokens, each behind the same prompt; the bits of all logits.
fn decode(engine: &mut Engine, count: u32, mut until: impl FnMut() -> bool) -> Vec<u32> {
    let sequence = engine.new_sequence().unwrap();
    let step = |engine: &mut Engine, tokens: &[u32]| -> Vec<u32> {
        let batch = [BatchEntry { sequence, tokens, outputs: Outputs::Last }];
        engine.step(&batch).unwrap().row(0).iter().map(|x| x.to_bits()).collect()
    };
    let mut bits = step(engine, &[1, 2, 3, 4, 5, 6, 7]);
    for _ in 0..count {
        if until() {
            break;
        }
        assert_eq!(engine.truncate(sequence, 7).unwrap(), 7);
        let all = step(engine, &[8]);
        // Steps of one class are taken by fewer threads and by more.
        assert!(bits.len() == all.len() || bits[all.len()..] == all, "other bits");
        bits.truncate(all.len());
        bits.extend(all);
    }
    engine.truncate(sequence, 0).unwrap();
    engine.free(sequence).unwrap();
    bits
}

#[test]
fn fewer_threads_are_tried_on_steps_and_change_no_bits() {
    let file = ModelFile::from_bytes("tiny", TinyModel::qwen3(TensorType::Q4_0).gguf());
    let load = |options: &LoadOptions| Engine::load(&file, options, &mut |_| {}).unwrap();
    let mut engine = load(&LoadOptions::default());
    if engine.plan().threads() < 2 {
        return; // Nothing to try.
    }
    let expected = decode(&mut engine, 1, || false);
    let (told, heard) = std::sync::mpsc::channel();
    let tell = TellFew::new(move |found| told.send(found.clone()).unwrap());
    // Other programs would have it wait.
    let mut options = LoadOptions {
        try_fewer: Some(tell),
        fixed_cores: true,
        stats: true,
        ..LoadOptions::default()
    };
    let mut engine = load(&options);
    let mut found: Option<FewThreads> = None;
    let bits = decode(&mut engine, 1_000_000, || {
        found = heard.try_recv().ok();
        found.is_some()
    });
    assert!(bits == expected);
    let found = found.expect("trials end");
    assert!(engine.activity().waits_as_compiled());
    let plan = engine.plan().clone();
    let of: Vec<usize> = plan.groups.iter().map(|group| group.cpus.len()).collect();
    assert_eq!((found.of.clone(), found.phases.len(), found.phases[0].tokens), (of, 1, 1));
    // From the next step on, and at the next start.
    assert!(decode(&mut engine, 1, || false) == expected);
    assert_eq!(engine.plan().phases, found.phases);
    options.few_threads = vec![FewThreads { of: vec![99], ..found.clone() }, found.clone()];
    assert_eq!(load(&options).plan().phases, found.phases);
    // What somebody says of threads counts more.
    options.phases = phases(found.of.len());
    options.phases.truncate(1);
    let mut engine = load(&options);
    decode(&mut engine, 100, || false);
    assert_eq!(engine.plan().phases, options.phases);
}
