//! Searches on machines that are not at hand: the model of time, with what cores share planted.

use arclight_tune as tune;
use std::ops::ControlFlow;
use topology::Machine;
use topology::topotree::TopoTree;
use tune::simulated::{Laboratory, Operators, Sharing, Simulated};
use tune::tuner::{
    Branch, Candidate, Measure, Scheme, Searched, Stage, StepKind, TuneProgress, Tuner,
};
use tune::{
    CoreMath, CoreRead, Engine, MachineModel, ModelGraphs, WaitModel, Work, known, predict,
};

fn never_stop(_: &TuneProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn kinds() -> Vec<StepKind> {
    let kind = |tokens, depth, weight| StepKind { tokens, depth, weight };
    vec![kind(1, 300, 400.0), kind(64, 0, 1.0), kind(512, 128, 1.0)]
}

/// The default: a group for each node, of all its cores.
fn by_node(machine: &Machine) -> Scheme {
    Scheme::new(topology::layout(machine, None, None).unwrap().groups).unwrap()
}

/// Two nodes of `cores` cores that could read three times what their node's memory gives.
fn two_nodes(cores: usize) -> MachineModel {
    let core = CoreRead { local: 10e9, remote: 5e9 };
    let math = CoreMath { int8: 60e9, bf16: 30e9, f32: 15e9, elements: 2e9 };
    let waits = WaitModel { arrival: 2e-8, remote_arrival: 1e-7, line: 6e-8, remote_line: 3e-7 };
    let read = vec![vec![100e9, 30e9], vec![30e9, 100e9]];
    MachineModel::new(vec![cores; 2], read, core, math, waits).unwrap()
}

fn model() -> ModelGraphs<'static> {
    ModelGraphs::published("llama3.2-1b:q8_0".parse().unwrap(), graph::KvType::F16)
}

fn search(machine: &Machine, simulated: &Simulated, patience: Option<usize>) -> Searched {
    let (tree, default, kinds, model) = (TopoTree::of(machine), by_node(machine), kinds(), model());
    let mut laboratory = Laboratory::new(simulated, &model, 1).unwrap();
    let tuner = Tuner {
        tree: &tree,
        default: &default,
        kinds: &kinds,
        permit: &|_| true,
        choices: &[],
        families: 3,
        finalists: 2,
        repetitions: 5,
        patience,
        suppose: true,
    };
    tuner.best(&mut laboratory, &mut never_stop).unwrap()
}

/// The fastest branch for decoding, with or without a level that was supposed.
fn decoding(searched: &Searched, supposed: bool) -> &Branch {
    let branches = searched.trail.branches.iter();
    let of = branches.filter(|b| b.stage == Stage::Decoding && b.supposed.is_empty() != supposed);
    of.min_by(|a, b| a.decoding.unwrap().total_cmp(&b.decoding.unwrap())).unwrap()
}

#[test]
fn groups_of_whole_nodes_take_what_the_model_of_time_says() {
    let (known, model) = (known::kunpeng_920(), known::qwen3_4b_q4_0());
    let machine = Machine::from_synthetic("numa:4 core:48").unwrap();
    let simulated = Simulated::new(&machine, known.clone(), &[]).unwrap();
    let mut laboratory = Laboratory::new(&simulated, &model, 1).unwrap();
    let scheme = by_node(&machine);
    for (tokens, depth, level) in [(1, 128, [48; 4]), (1, 9, [30; 4]), (300, 0, [48, 48, 48, 7])] {
        let level = scheme.level(level.to_vec()).unwrap();
        let (choices, schedules) = (&[][..], None);
        let candidate = Candidate { scheme: &scheme, level: &level, choices, schedules };
        let kind = StepKind { tokens, depth, weight: 1.0 };
        let seconds = laboratory.seconds(&candidate, &kind).unwrap();
        let work = Work { tokens: tokens as usize, context: depth as usize, sequences: 1 };
        let step = Engine::tensor_parallel().step(&model, work, level.cpus()).unwrap();
        let predicted = predict(&known, &step).unwrap().seconds;
        assert!((seconds / predicted - 1.0).abs() < 1e-9, "{tokens}: {seconds} {predicted}");
    }
}

#[test]
fn groups_on_one_node_share_its_memory_and_hardware_threads_their_core() {
    let machine = Machine::from_synthetic("numa:2 core:16 pu:2").unwrap();
    let simulated = Simulated::new(&machine, two_nodes(16), &[]).unwrap();
    let model = model();
    let mut laboratory = Laboratory::new(&simulated, &model, 1).unwrap();
    let tree = TopoTree::of(&machine);
    let mut seconds = |tree: &TopoTree, depth, tokens| {
        let groups = tree.cross_section(depth).layout().unwrap().groups;
        let scheme = Scheme::new(groups).unwrap();
        let (level, choices) = (scheme.all(), &[][..]);
        let candidate = Candidate { scheme: &scheme, level: &level, choices, schedules: None };
        laboratory.seconds(&candidate, &StepKind { tokens, depth: 9, weight: 1.0 }).unwrap()
    };
    let cores = tree.remove(1, 2).unwrap();
    // Memory is full with a group for each node: two of each cannot read more.
    let halves = cores.group(8, 1, 2).unwrap();
    let (whole, half) = (seconds(&cores, 1, 1), seconds(&halves, 2, 1));
    assert!(half > 0.99 * whole, "{half} {whole}");
    // Second hardware threads multiply nothing more, and wait.
    assert!(seconds(&tree, 1, 512) > seconds(&cores, 1, 512));
}

#[test]
fn group_and_remove_pay_where_cores_crowd_each_other_on_what_nothing_shows() {
    let machine = Machine::from_synthetic("numa:2 core:16").unwrap();
    let plain = Simulated::new(&machine, two_nodes(16), &[]).unwrap();
    // Four cores, 4 apart, of which two fill what they share.
    let sharing: Sharing = "cores:4 stride:4 fill:1.5 crowd:0.3".parse().unwrap();
    let crowded = Simulated::new(&machine, two_nodes(16), &[sharing]).unwrap();

    // Nothing is shared: memory is full with 10 cores of a node, and some of the others only wait.
    let searched = search(&machine, &plain, None);
    let default = searched.trail.branches[0].decoding.unwrap();
    let (bare, supposed) = (decoding(&searched, false), decoding(&searched, true));
    assert!(bare.decoding.unwrap() <= supposed.decoding.unwrap(), "{bare:?} {supposed:?}");
    let gain = default / bare.decoding.unwrap();
    assert!((1.0..1.01).contains(&gain) && bare.threads() < 32, "{gain}: {bare:?}");

    let searched = search(&machine, &crowded, None);
    let default = searched.trail.branches[0].decoding.unwrap();
    let (bare, supposed) = (decoding(&searched, false), decoding(&searched, true));
    let gain = |branch: &Branch| default / branch.decoding.unwrap();
    // Cores that are left out as nothing shows it empty whole clusters or leave all crowded.
    assert!(gain(bare) < 1.3 && gain(supposed) > 1.5, "{} {}", gain(bare), gain(supposed));
    // Two of each cluster: groups of two or of four show that alike.
    for cluster in (0..32).filter(|cpu| cpu % 16 < 4) {
        let own = (0..4).map(|member| topology::CpuId(cluster + 4 * member));
        let used = own.filter(|cpu| supposed.groups.iter().any(|team| team.cpus.contains(cpu)));
        assert_eq!(used.count(), 2, "{supposed:?}");
    }
    let outcome = &searched.plans[0];
    assert_eq!(outcome.table.level(1).threads(), 16);
    assert_eq!(outcome.table.level(512).threads(), 32);
    // Parents come first, and the default is the root.
    for (at, branch) in searched.trail.branches.iter().enumerate() {
        assert!(branch.parent.map_or(at == 0, |parent| parent < at), "{at}: {branch:?}");
    }
}

#[test]
fn levels_of_levels_are_found_where_two_things_are_shared() {
    let machine = Machine::from_synthetic("numa:2 core:16").unwrap();
    // One core of a pair fills what the pair shares, and three of eight what these share.
    let sharing = ["cores:2 fill:1 crowd:3", "cores:8 fill:3 crowd:3"].map(|s| s.parse().unwrap());
    let crowded = Simulated::new(&machine, two_nodes(16), &sharing).unwrap();
    let searched = search(&machine, &crowded, None);
    let branches = searched.trail.branches.iter().filter(|b| b.stage == Stage::Decoding);
    let best = |levels: usize| {
        let of = branches.clone().filter(|b| b.supposed.len() == levels);
        of.min_by(|a, b| a.decoding.unwrap().total_cmp(&b.decoding.unwrap())).unwrap()
    };
    let gain = best(1).decoding.unwrap() / best(2).decoding.unwrap();
    assert!((1.3..1.5).contains(&gain), "{gain}: {:?} {:?}", best(1), best(2));
    // No cores that are equally far apart are three of eight without two of a pair.
    let cpus: Vec<u32> = best(2).groups[0].cpus.iter().map(|cpu| cpu.0).collect();
    assert_eq!(cpus, [0, 2, 4, 8, 10, 12]);
    assert_eq!(searched.plans[0].table.level(1).threads(), 12);
    // It looks further only where that has helped: fewer loads than there are trees.
    let trees = topology::topotree::groupings(16) as usize;
    assert!(searched.plans[0].loads < trees, "{} of {trees}", searched.plans[0].loads);
}

/// Sandwich's figure 13, as far as the model of time can show it: docs/tuning.md has the numbers.
#[test]
fn what_pays_differs_from_machine_to_machine() {
    let planted: Sharing = "cores:4 fill:2 crowd:0.2".parse().unwrap();
    let gains = |name: &str, planted: Option<Sharing>| {
        let known = known::machine(name).unwrap();
        let shared: Vec<Sharing> = planted.or(known.sharing()).into_iter().collect();
        let machine = known.machine();
        let simulated = Simulated::new(&machine, known.model(), &shared).unwrap();
        let searched = search(&machine, &simulated, None);
        let default = searched.trail.branches[0].decoding.unwrap();
        let gain = |supposed| default / decoding(&searched, supposed).decoding.unwrap();
        (gain(false), gain(true))
    };
    for (name, planted, bare, grouped) in [
        ("xeon-8272cl", None, 0.999..1.01, 0.999..1.01),
        ("xeon-8272cl", Some(planted), 0.999..1.01, 1.2..1.5),
        // Cores are left out by the caches that are shown.
        ("epyc-7h12", None, 1.01..1.2, 0.999..1.2),
        // Its clusters are stated and nothing shows them: one core of each is left out.
        ("kunpeng-920-8", None, 0.999..1.01, 1.1..1.25),
        ("kunpeng-920-8", Some(planted), 0.999..1.01, 1.2..1.5),
    ] {
        let found = gains(name, planted);
        assert!(bare.contains(&found.0) && grouped.contains(&found.1), "{name}: {found:?}");
    }
}

#[test]
fn patience_times_less_and_finds_what_is_planted() {
    let machine = Machine::from_synthetic("numa:2 core:32").unwrap();
    let sharing: Sharing = "cores:8 stride:4 fill:3 crowd:0.2".parse().unwrap();
    let crowded = Simulated::new(&machine, two_nodes(32), &[sharing]).unwrap();
    let found = |patience| {
        let searched = search(&machine, &crowded, patience);
        let branches = searched.trail.branches.iter().filter(|b| b.stage == Stage::Decoding);
        let timed: usize = branches.map(|branch| branch.timed).sum();
        (timed, decoding(&searched, true).decoding.unwrap())
    };
    let (all, few, fewest) = (found(None), found(Some(3)), found(Some(1)));
    assert_eq!(all.1, few.1);
    assert!(few.0 <= all.0 && fewest.0 < few.0, "{fewest:?} {few:?} {all:?}");
}

#[test]
fn a_model_is_shared_by_as_many_groups_as_its_operators_have_units() {
    let shape: models::published::Published = "llama3.2-1b:q8_0".parse().unwrap();
    let build = |groups| Ok(shape.build(graph::Shares::from(groups)).graph);
    let operators = Operators::new(build, 1);
    let tree = TopoTree::of(&Machine::from_synthetic("numa:4 core:16").unwrap());
    let permitted: Vec<usize> = (0..=tree.height())
        .map(|depth| tree.cross_section(depth))
        .filter(|c| operators.permit(c))
        .map(|c| c.groups().len())
        .collect();
    // The heads are 32, and the summed columns have fewer segments than 64.
    assert_eq!(permitted, [1, 4]);
    let refused = operators.refused();
    assert_eq!(refused.len(), 1);
    assert!(refused[0].0 == 64 && !refused[0].1.is_empty(), "{refused:?}");
    // What serves it by default is permitted in any case.
    let operators = Operators::new(build, 64);
    assert!(operators.permit(&tree.cross_section(2)) && operators.refused().is_empty());
}

#[test]
fn what_cannot_be_shared_so_is_refused() {
    let machine = Machine::from_synthetic("numa:2 core:16").unwrap();
    let sharing: Sharing = "cores:5 fill:2".parse().unwrap();
    let error = Simulated::new(&machine, two_nodes(16), &[sharing]).unwrap_err().to_string();
    assert!(error.contains("what cores share") && error.contains('5'), "{error}");
    let four = Machine::from_synthetic("numa:4 core:16").unwrap();
    let error = Simulated::new(&four, two_nodes(16), &[]).unwrap_err().to_string();
    assert!(error.contains("4 nodes"), "{error}");
}
