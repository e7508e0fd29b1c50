//! The contest of the best plans: which of them is the fastest with its matrices tuned is planted.

mod common;

use arclight_tune as tune;
use common::{Planted, by_node, never_stop, on_nodes, tree};
use std::ops::ControlFlow;
use topology::{CpuId, Group};
use tune::schedule::{MatrixShape, Schedule, Tuned, TunedRow, TunedSchedules};
use tune::tuner::{
    Candidate, Choice, Contest, Level, Matrices, Measure, Measured, Outcome, Row, Scheme, Setting,
    StepKind, Table, TuneProgress, Tuner, Won,
};

const LARGEST: usize = 512;
const REPETITIONS: usize = 7;

/// A machine whose matrices gain by tuning: as much as the threads of the groups say.
struct Tunable<'a> {
    machine: Planted,
    /// How many times as fast a step of so many threads of each group is with schedules.
    gain: &'a Gain<'a>,
    loading: f64,
    /// Of each plan that was tuned: what was known, and its share of the time.
    tuned: Vec<(usize, f64)>,
    /// All steps of the contest: threads, and whether with schedules.
    steps: Vec<(usize, bool)>,
}

type Gain<'a> = dyn Fn(&[usize]) -> f64 + 'a;

fn tunable<'a>(gain: &'a Gain<'a>) -> Tunable<'a> {
    let machine = Planted::new(&tree("numa:2 core:16"), 4, 1, 2);
    Tunable { machine, gain, loading: 0.0, tuned: vec![], steps: vec![] }
}

impl Tunable<'_> {
    /// Seconds of the trace without noise, by a plan's own schedules.
    fn serves(&self, plan: &Outcome, kinds: &[StepKind]) -> f64 {
        let of = |kind: &StepKind| {
            let level = plan.table.level(kind.tokens);
            let plain = kind.weight * self.machine.step(plan, kind.tokens);
            if has(&plan.schedules, level) { plain / (self.gain)(level.cpus()) } else { plain }
        };
        kinds.iter().map(of).sum()
    }
}

/// Whether there is a schedule for a level.
fn has(schedules: &TunedSchedules, level: &Level) -> bool {
    schedules.matrices.iter().any(|m| *m.shape() == shape(level))
}

/// A matrix whose columns tell levels apart.
fn shape(level: &Level) -> MatrixShape {
    let cols = level.cpus().iter().fold(0, |cols, cpus| 100 * cols + cpus);
    let parts = vec![(gguf::TensorType::Q4_0, 1024)];
    MatrixShape { parts, cols, product: graph::Product::Plain, threads: level.threads() }
}

/// TunedSchedules for some levels; the search for each took 10 evaluations.
fn schedules<'a>(levels: impl IntoIterator<Item = &'a Level>) -> TunedSchedules {
    let matrix = |level: &Level| {
        let row = TunedRow { up_to: LARGEST, schedule: Some(Schedule::default()) };
        Tuned::new(shape(level), vec![row], vec![]).unwrap()
    };
    let matrices: Vec<_> = levels.into_iter().map(matrix).collect();
    TunedSchedules { evaluations: 10 * matrices.len(), matrices, ..TunedSchedules::default() }
}

/// Those of a plan, as far as they gain anything.
fn tuned(plan: &Outcome, gain: &Gain<'_>) -> TunedSchedules {
    let levels = plan.table.rows().iter().map(|row| &row.level);
    schedules(levels.filter(|level| gain(level.cpus()) != 1.0))
}

impl Measure for Tunable<'_> {
    fn seconds(&mut self, candidate: &Candidate<'_>, kind: &StepKind) -> Option<f64> {
        let threads = candidate.level.threads();
        let tuned = candidate.schedules.is_some_and(|s| has(s, candidate.level));
        self.steps.push((threads, candidate.schedules.is_some()));
        let seconds = self.machine.seconds(candidate, kind)?;
        let gain = if tuned { (self.gain)(candidate.level.cpus()) } else { 1.0 };
        Some(seconds / gain)
    }

    fn load_seconds(&self) -> f64 {
        self.loading
    }
}

impl Matrices for Tunable<'_> {
    fn tune(
        &mut self,
        plan: &Outcome,
        known: &[TunedSchedules],
        share: f64,
    ) -> Option<TunedSchedules> {
        self.tuned.push((known.len(), share));
        Some(tuned(plan, self.gain))
    }
}

/// Decoding that reads and prompts that multiply; decoding is most of it.
fn kinds() -> [StepKind; 3] {
    [(1, 400.0), (8, 100.0), (512, 1.0)].map(|(tokens, weight)| StepKind {
        tokens,
        depth: 0,
        weight,
    })
}

/// The best plans of the planted machine, by the whole search.
fn best(machine: &mut dyn Measure, kinds: &[StepKind]) -> Vec<Outcome> {
    let (tree, default) = (tree("numa:2 core:16"), by_node("numa:2 core:16"));
    let tuner = Tuner {
        tree: &tree,
        default: &default,
        kinds,
        permit: &|configuration| on_nodes(configuration),
        choices: &[],
        families: 3,
        finalists: 2,
        repetitions: 5,
        patience: None,
        suppose: true,
    };
    tuner.best(machine, &mut never_stop).unwrap().plans
}

fn contest(machine: &mut Tunable<'_>, plans: &[Outcome], kinds: &[StepKind]) -> Won {
    let contest = Contest { kinds, largest: LARGEST, repetitions: REPETITIONS };
    contest.run(machine, plans.to_vec(), &mut never_stop)
}

/// How many groups a plan has.
fn groups(plan: &Outcome) -> usize {
    plan.scheme.groups().len()
}

/// A plan of one group that decodes with the first so many of `cpus`.
fn plan(few: usize, cpus: std::ops::Range<u32>) -> Outcome {
    let scheme = Scheme::new(vec![Group { node: None, cpus: cpus.map(CpuId).collect() }]).unwrap();
    let rows = vec![
        Row { up_to: 64, level: scheme.level(vec![few]).unwrap() },
        Row { up_to: u32::MAX, level: scheme.all() },
    ];
    let (table, choices) = (Table::new(&scheme, rows).unwrap(), vec![]);
    let schedules = TunedSchedules::default();
    let (measured, evaluations, loads, complete) = (vec![], 100, 3, true);
    Outcome { scheme, table, choices, measured, evaluations, loads, complete, schedules }
}

#[test]
fn the_search_hands_on_what_came_second() {
    let kinds = kinds();
    let plans = best(&mut tunable(&|_| 1.0), &kinds);
    assert_eq!(plans.len(), 2, "{plans:#?}");
    let machine = tunable(&|_| 1.0);
    let times: Vec<f64> = plans.iter().map(|plan| machine.serves(plan, &kinds)).collect();
    assert!(times[0] < times[1] && times[1] < 1.5 * times[0], "{times:?}");
    // Nodes are groups, or halves of nodes.
    assert_eq!((groups(&plans[0]), groups(&plans[1])), (2, 4));
}

/// Of two CPUs nothing is in question, and a plan that is far behind has no prospects.
#[test]
fn who_is_alone_stays_alone() {
    let kinds = kinds();
    for (synthetic, crowd) in [("numa:1 core:2", 0.0), ("numa:1 core:8", 3.0)] {
        let (tree, default) = (tree(synthetic), by_node(synthetic));
        let mut machine = Planted { crowd, ..Planted::new(&tree, 8, 1, 2) };
        if crowd == 0.0 {
            machine.clusters = tree.parts(tree.height());
        }
        let tuner = Tuner {
            tree: &tree,
            default: &default,
            kinds: &kinds,
            permit: &|_| true,
            choices: &[],
            families: 1,
            finalists: 2,
            repetitions: 5,
            patience: None,
            suppose: true,
        };
        let plans = tuner.best(&mut machine, &mut never_stop).unwrap().plans;
        let serves: Vec<f64> = plans.iter().map(|plan| machine.serves(plan, &kinds)).collect();
        assert!(serves.iter().all(|s| *s <= 1.5 * serves[0]), "{synthetic}: {serves:?}");
        if crowd == 0.0 {
            assert_eq!(plans.len(), 1);
        } else {
            // The default is three times as slow as what was found.
            let default = machine.default_serves(&default, &kinds);
            assert!(default > 1.5 * serves[0], "{default} {serves:?}");
        }
    }
}

/// The plan that comes second with the default's ways to multiply is the first with its own: the matrices
/// of its team gain by being tuned, those of the other's do not. With noise, too.
#[test]
fn the_second_wins_where_its_matrices_gain_more() {
    let kinds = kinds();
    let plans = best(&mut tunable(&|_| 1.0), &kinds);
    let second = groups(&plans[1]);
    let gain = |level: &[usize]| if level.len() == second { 1.4 } else { 1.05 };
    for (noise, random, loading) in [(0.0, 1, 0.0), (0.03, 1, 0.0), (0.03, 2, 9.0), (0.03, 3, 0.0)]
    {
        let mut machine = tunable(&gain);
        (machine.machine.noise, machine.machine.random) = (noise, random);
        machine.loading = loading;
        let won = contest(&mut machine, &plans, &kinds);
        assert_eq!((won.was, won.tuned, won.slower), (1, 2, vec![]));
        assert_eq!(won.outcome.table, plans[1].table);
        assert_eq!(won.outcome.schedules.matrices, tuned(&plans[1], &gain).matrices);
        // Nothing that there is to choose is faster.
        let mut first = plans[0].clone();
        first.schedules = tuned(&first, &gain);
        let times = [&first, &won.outcome].map(|plan| machine.serves(plan, &kinds));
        assert!(times[1] < times[0], "{times:?}");
        // What is told is true.
        for measured in &won.outcome.measured {
            let level = won.outcome.table.level(measured.tokens);
            let seconds = machine.machine.step(&won.outcome, measured.tokens) / gain(level.cpus());
            let rate = f64::from(measured.tokens) / seconds;
            // Medians of 7 with 3 % of noise, two of them divided by each other.
            let near = if noise > 0.0 { 0.08 } else { 1e-9 };
            assert!((measured.after / rate - 1.0).abs() < near, "{measured:?} {rate}");
        }
    }
}

/// Where both gain alike, or the second too little, the first stays, and it has its schedules.
#[test]
fn the_first_stays_where_tuning_does_not_turn_the_order() {
    let kinds = kinds();
    let plans = best(&mut tunable(&|_| 1.0), &kinds);
    let second = groups(&plans[1]);
    let machine = tunable(&|_| 1.0);
    let behind = machine.serves(&plans[1], &kinds) / machine.serves(&plans[0], &kinds);
    for (own, others) in [(1.3, 1.3), (1.0 + 0.5 * (behind - 1.0), 1.0), (1.0, 1.2)] {
        let gain = |level: &[usize]| if level.len() == second { own } else { others };
        let mut machine = tunable(&gain);
        let won = contest(&mut machine, &plans, &kinds);
        assert_eq!((won.was, won.tuned, won.slower), (0, 2, vec![]), "{own} {others}");
        assert_eq!(won.outcome.table, plans[0].table);
        assert_eq!(won.outcome.schedules.matrices, tuned(&plans[0], &gain).matrices);
    }
}

/// Both take the same as tuned, but for noise: the first stays but for the chance of the rule, one in a
/// hundred. Of 20 seeds two are let pass (with a hundredth each, three or more have odds of 1 in 900).
#[test]
fn noise_alone_does_not_turn_the_order() {
    let kinds = kinds();
    let plans = [plan(8, 0..16), plan(8, 0..15)];
    struct Flat<'a>(Tunable<'a>);
    impl Measure for Flat<'_> {
        fn seconds(&mut self, _: &Candidate<'_>, kind: &StepKind) -> Option<f64> {
            Some(f64::from(kind.tokens) * (1.0 + 0.03 * self.0.machine.normal()))
        }

        fn load_seconds(&self) -> f64 {
            0.0
        }
    }
    impl Matrices for Flat<'_> {
        fn tune(
            &mut self,
            plan: &Outcome,
            known: &[TunedSchedules],
            share: f64,
        ) -> Option<TunedSchedules> {
            self.0.tune(plan, known, share)
        }
    }
    let contest = Contest { kinds: &kinds, largest: LARGEST, repetitions: REPETITIONS };
    let turned = (1..=20).filter(|&random| {
        let mut flat = Flat(tunable(&|_| 1.1));
        flat.0.machine.random = random;
        contest.run(&mut flat, plans.to_vec(), &mut never_stop).was > 0
    });
    let turned = turned.count();
    assert!(turned <= 2, "{turned}");
}

#[test]
fn plans_that_cut_matrices_alike_cost_nothing_more() {
    let kinds = kinds();
    let alone = {
        let mut machine = tunable(&|_| 1.2);
        let won = contest(&mut machine, &[plan(4, 0..16)], &kinds);
        assert_eq!((won.outcome.evaluations, won.outcome.loads), (100 + machine.steps.len(), 3));
        (machine.tuned.clone(), machine.steps.clone())
    };
    assert_eq!(alone.0, [(0, 1.0)]);
    assert_eq!(alone.1.len(), 2 * REPETITIONS * kinds.len(), "without and with its schedules");
    // Other CPUs, but as many.
    let mut machine = tunable(&|_| 1.2);
    let won = contest(&mut machine, &[plan(4, 0..16), plan(4, 16..32)], &kinds);
    assert_eq!((won.was, won.tuned), (0, 1));
    assert_eq!((machine.tuned, machine.steps), alone);
    // Where nothing is found no step is taken.
    let mut machine = tunable(&|_| 1.0);
    let won = contest(&mut machine, &[plan(4, 0..16), plan(5, 0..16)], &kinds);
    assert_eq!((won.was, won.tuned, machine.steps.len()), (0, 2, 0));
    assert_eq!(won.outcome.schedules.matrices, []);
}

#[test]
fn time_is_shared_by_what_is_new() {
    let kinds = kinds();
    // Both have all 16 threads for prompts: that is the first's.
    let mut machine = tunable(&|_| 1.2);
    let won = contest(&mut machine, &[plan(4, 0..16), plan(5, 0..16)], &kinds);
    assert_eq!(machine.tuned, [(0, 2.0 / 3.0), (1, 1.0)]);
    assert_eq!(won.outcome.schedules.evaluations, 40, "of both");
    let steps = machine.steps.len();
    assert_eq!(steps, 4 * REPETITIONS * kinds.len());
    // One scheme: never loaded again.
    assert_eq!((won.outcome.evaluations, won.outcome.loads), (100 + steps, 3));
    // Another cut of the weights has nothing in common.
    let mut machine = tunable(&|_| 1.2);
    let group = |n: u32| Group { node: None, cpus: (8 * n..8 * n + 8).map(CpuId).collect() };
    let scheme = Scheme::new(vec![group(0), group(1)]).unwrap();
    let two = Outcome { table: Table::all(&scheme), scheme, ..plan(4, 0..16) };
    let won = contest(&mut machine, &[plan(4, 0..16), two.clone()], &kinds);
    assert_eq!(machine.tuned, [(0, 2.0 / 3.0), (1, 1.0)]);
    // Loaded for its matrices, and for four visits in turns; where that takes long, for two.
    assert_eq!(won.outcome.loads, 3 + 1 + 4);
    let mut machine = Tunable { loading: 1e9, ..tunable(&|_| 1.2) };
    let won = contest(&mut machine, &[plan(4, 0..16), two], &kinds);
    assert_eq!(won.outcome.loads, 3 + 1 + 2);
}

/// TunedSchedules that make a kind of step slower are given up for it, and stay for the others.
#[test]
fn schedules_that_cost_time_are_given_up() {
    let kinds = kinds();
    let plans = [plan(4, 0..16), plan(5, 0..16)];
    // Prompts, with all 16, are slower.
    let gain = |level: &[usize]| if level[0] == 16 { 0.8 } else { 2.0 };
    let mut machine = tunable(&gain);
    let won = contest(&mut machine, &plans[..1], &kinds);
    assert_eq!(won.slower, kinds[2..]);
    let tuned = |kind: &StepKind| {
        let mut matrices = won.outcome.schedules.matrices.iter();
        matrices.any(|matrix| matrix.schedule(kind.tokens as usize).is_some())
    };
    let tuned: Vec<bool> = kinds.iter().map(tuned).collect();
    assert!(tuned[0] && !tuned[2], "{tuned:?}");
    // What they would have won there they do not win.
    let mut machine = tunable(&gain);
    let won = contest(&mut machine, &plans, &kinds);
    assert_eq!(won.slower, kinds[2..]);
    let clear = |m: &Tuned| m.schedule(kinds[2].tokens as usize).is_none();
    assert!(won.outcome.schedules.matrices.iter().all(clear));
    let serves = |plan| machine.serves(plan, &kinds[..2]) / 2.0 + machine.serves(plan, &kinds[2..]);
    let times = plans.each_ref().map(serves);
    assert_eq!(won.was, usize::from(times[1] < times[0]), "{times:?}");
}

/// Stopped anywhere, what comes out is the first plan as it was, or something faster.
#[test]
fn a_stopped_contest_keeps_what_was_found() {
    let kinds = kinds();
    let plans = best(&mut tunable(&|_| 1.0), &kinds);
    let second = groups(&plans[1]);
    let gain = |level: &[usize]| if level.len() == second { 1.4 } else { 1.05 };
    let contest = Contest { kinds: &kinds, largest: LARGEST, repetitions: REPETITIONS };
    let mut won_at = vec![];
    for stop in 1.. {
        let mut machine = tunable(&gain);
        let mut asked = 0;
        let mut watch = |_: &TuneProgress| {
            asked += 1;
            if asked == stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let won = contest.run(&mut machine, plans.clone(), &mut watch);
        let stopped = asked == stop;
        assert_eq!(won.outcome.complete, !stopped);
        // Whose search was stopped is no contender.
        assert_eq!(won.tuned, if stop <= 2 { 1 } else { 2 }, "{stop}");
        let times = [&plans[0], &won.outcome].map(|plan| machine.serves(plan, &kinds));
        assert!(times[1] <= times[0] * (1.0 + 1e-9), "{stop}: {times:?}");
        // What its search found is there, also when it was stopped then.
        let found = tuned(&won.outcome, &gain);
        assert_eq!(won.outcome.schedules.matrices, found.matrices, "{stop}");
        won_at.push(won.was);
        if !stopped {
            break;
        }
    }
    assert_eq!((won_at[0], won_at[won_at.len() - 1]), (0, 1), "{won_at:?}");
}

/// Steps that take what a setting says.
struct Set {
    scattered: f64,
    noise: f64,
    planted: Planted,
}

impl Set {
    fn new(scattered: f64, noise: f64) -> Set {
        Set { scattered, noise, planted: Planted::new(&tree("numa:2 core:4"), 2, 1, 2) }
    }
}

impl Measure for Set {
    fn seconds(&mut self, candidate: &Candidate<'_>, kind: &StepKind) -> Option<f64> {
        let scattered = candidate.choices.iter().any(|(_, value)| value == "scattered");
        let seconds = if scattered { self.scattered } else { 1.0 };
        let noise = 1.0 + self.noise * self.planted.normal();
        Some(f64::from(kind.tokens) * seconds * noise)
    }

    fn load_seconds(&self) -> f64 {
        0.0
    }
}

#[test]
fn a_setting_is_taken_where_it_is_surely_faster() {
    let scheme = by_node("numa:2 core:4");
    let plan = |kinds: &[StepKind]| Outcome {
        table: Table::all(&scheme),
        scheme: scheme.clone(),
        choices: vec![("pages".into(), "off".into())],
        measured: kinds
            .iter()
            .map(|k| Measured {
                tokens: k.tokens,
                depth: 0,
                before: 1.0,
                after: 1.0,
                repetitions: 5,
            })
            .collect(),
        evaluations: 0,
        loads: 0,
        complete: true,
        schedules: TunedSchedules::default(),
    };
    let choice =
        Choice { name: "gather".into(), options: vec!["pulled".into(), "scattered".into()] };
    let kinds = [64, 512].map(|tokens| StepKind { tokens, depth: 0, weight: 1.0 });
    let setting = Setting { choice: &choice, kinds: &kinds[1..], repetitions: 9 };
    for (scattered, noise, taken) in
        [(0.8, 0.0, true), (0.8, 0.03, true), (1.2, 0.0, false), (1.0, 0.0, false)]
    {
        let mut machine = Set::new(scattered, noise);
        let found = setting.run(&mut machine, plan(&kinds), &mut never_stop);
        let gather = found.choices.iter().find(|(name, _)| name == "gather");
        assert_eq!(gather.is_some(), taken, "{scattered} {noise}");
        assert_eq!(found.choices[0], ("pages".into(), "off".into()));
        assert_eq!(found.evaluations, 18);
        // Of the steps that it changes alone.
        assert_eq!(found.measured[0].after, 1.0);
        assert_eq!(found.measured[1].after > 1.1, taken, "{:?}", found.measured);
    }
    // Stopped before it is sure.
    let mut machine = Set::new(0.5, 0.0);
    let found = setting.run(&mut machine, plan(&kinds), &mut |_| ControlFlow::Break(()));
    assert_eq!((found.choices.len(), found.evaluations), (1, 1));
}
