//! What holds for every machine and every time, however mad: outcomes can be loaded, levels are nested,
//! nothing gets worse, a search can be stopped anywhere, and a profile reads as it was written.

mod common;

use arclight_tune as tune;
use common::{by_node, on_nodes, tree};
use kernels::{Foreign, How, MatKernel, MicroKernel};
use proptest::prelude::*;
use std::collections::{BTreeSet, hash_map::DefaultHasher};
use std::hash::{Hash, Hasher};
use std::ops::ControlFlow;
use topology::{CpuId, Group, NodeId};
use tune::schedule::{
    Compared, Grid, MatrixShape, Schedule, Slice, Tuned, TunedRow, TunedSchedules,
};
use tune::tuner::{
    Candidate, Choice, Identity, Level, Measure, Measured, Objective, Outcome, Profile, Quick, Row,
    Scheme, Start, StepKind, Table, Tuner,
};

const MACHINES: [&str; 6] = [
    "numa:1 core:1",
    "numa:1 core:6",
    "numa:2 core:4",
    "numa:2 core:2 pu:2",
    "numa:4 core:2",
    "numa:2 l3:2 core:2",
];

/// Times without any sense, but always the same for the same CPUs and step; some cannot be run.
struct Mad {
    seed: u64,
    /// Of a hundred, how many cannot be run; the default always can.
    impossible: u64,
    default: Vec<BTreeSet<CpuId>>,
}

impl Mad {
    fn step(&self, groups: &[&[CpuId]], choices: &[(String, String)], tokens: u32) -> Option<f64> {
        let mut sets: Vec<BTreeSet<CpuId>> =
            groups.iter().map(|cpus| cpus.iter().copied().collect()).collect();
        sets.sort();
        let mut hasher = DefaultHasher::new();
        (self.seed, &sets, choices, tokens).hash(&mut hasher);
        let random = hasher.finish();
        let possible = sets == self.default || random % 100 >= self.impossible;
        possible.then(|| 1.0 + (random >> 32) as f64 / f64::from(u32::MAX))
    }

    fn serves(&self, outcome: &Outcome, kinds: &[StepKind]) -> f64 {
        let of = |kind: &StepKind| {
            let level = outcome.table.level(kind.tokens);
            let groups: Vec<&[CpuId]> = outcome.scheme.cpus(level).collect();
            kind.weight * self.step(&groups, &outcome.choices, kind.tokens).unwrap()
        };
        kinds.iter().map(of).sum()
    }
}

impl Measure for Mad {
    fn seconds(&mut self, candidate: &Candidate<'_>, kind: &StepKind) -> Option<f64> {
        let groups: Vec<&[CpuId]> = candidate.scheme.cpus(candidate.level).collect();
        assert!(groups.iter().all(|cpus| !cpus.is_empty()));
        self.step(&groups, candidate.choices, kind.tokens)
    }

    fn load_seconds(&self) -> f64 {
        1.0
    }
}

/// Levels of a table are prefixes of the groups, so they are nested if one is nowhere larger.
fn can_be_loaded(outcome: &Outcome, of: &BTreeSet<CpuId>) {
    let all: Vec<CpuId> =
        outcome.scheme.groups().iter().flat_map(|g| g.cpus.iter().copied()).collect();
    let set: BTreeSet<CpuId> = all.iter().copied().collect();
    assert_eq!(set.len(), all.len(), "a cpu twice");
    assert!(set.is_subset(of));
    for row in outcome.table.rows() {
        assert_eq!(row.level.cpus().len(), outcome.scheme.groups().len());
        for (&n, group) in row.level.cpus().iter().zip(outcome.scheme.groups()) {
            assert!((1..=group.cpus.len()).contains(&n), "{n} of {group:?}");
        }
    }
    let mut levels: Vec<Vec<BTreeSet<CpuId>>> = outcome
        .table
        .rows()
        .iter()
        .map(|row| outcome.scheme.cpus(&row.level).map(|c| c.iter().copied().collect()).collect())
        .collect();
    levels.sort_by_key(|groups| groups.iter().map(BTreeSet::len).sum::<usize>());
    for pair in levels.windows(2) {
        assert!(pair[0].iter().zip(&pair[1]).all(|(few, many)| few.is_subset(many)), "{pair:?}");
    }
    // No thread is made that no step uses.
    let most = outcome.table.rows().iter().map(|row| row.level.threads()).max();
    assert_eq!(most, Some(all.len()));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn tuned_is_never_worse_than_the_default(
        machine in 0..MACHINES.len(),
        seed: u64,
        impossible in prop::sample::select(vec![0u64, 30, 90]),
        weights in prop::collection::vec(0.1f64..100.0, 1..6),
        stop in prop::option::of(0usize..300),
    ) {
        let (tree, default) = (tree(MACHINES[machine]), by_node(MACHINES[machine]));
        let kinds: Vec<StepKind> = weights
            .iter()
            .enumerate()
            .map(|(i, &weight)| StepKind { tokens: 1 << (2 * i), depth: 7, weight })
            .collect();
        let mut mad = Mad { seed, impossible, default: common::sets(default.groups()) };
        mad.default.sort();
        let settled = [("pages".to_owned(), "small".to_owned())];
        let tuner = Tuner {
            tree: &tree,
            default: &default,
            kinds: &kinds,
            permit: &|configuration| on_nodes(configuration),
            choices: &settled,
            families: 3,
            finalists: 2,
            repetitions: 5,
            patience: None,
            suppose: true,
        };
        let mut calls = 0;
        let outcome = tuner.run(&mut mad, &mut |progress| {
            calls += 1;
            assert_eq!(progress.evaluations, calls);
            if stop == Some(calls) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let outcome = outcome.unwrap();
        prop_assert_eq!(outcome.evaluations, calls);
        prop_assert_eq!(outcome.complete, stop != Some(calls));
        prop_assert_eq!(&outcome.choices, &settled);
        can_be_loaded(&outcome, &tree.cpus().into_iter().collect());
        let untuned = Outcome {
            table: Table::all(&default), scheme: default.clone(), ..outcome.clone()
        };
        let (tuned, before) = (mad.serves(&outcome, &kinds), mad.serves(&untuned, &kinds));
        // Sums of the same numbers in another order differ in the last bits.
        prop_assert!(tuned <= before * (1.0 + 1e-12), "{tuned} {before}");
        for measured in &outcome.measured {
            let groups: Vec<&[CpuId]> =
                outcome.scheme.cpus(outcome.table.level(measured.tokens)).collect();
            let seconds = mad.step(&groups, &settled, measured.tokens).unwrap();
            let rate = f64::from(measured.tokens) / seconds;
            prop_assert!((measured.after / rate - 1.0).abs() < 1e-12, "{measured:?} {rate}");
        }
    }

    #[test]
    fn quick_is_never_worse_than_the_default(
        machine in 0..MACHINES.len(),
        seed: u64,
        impossible in prop::sample::select(vec![0u64, 30, 90]),
        smt: bool,
        seconds in 0.0f64..400.0,
    ) {
        let default = by_node(MACHINES[machine]);
        let all = default.all();
        let fewer = all.cpus().iter().map(|&n| if smt { n.div_ceil(2) } else { n }).collect();
        let start = Start { level: default.level(fewer).unwrap(), scheme: default.clone() };
        let used = default.cpus(&start.level).map(|c| c.iter().copied().collect()).collect();
        let mut mad = Mad { seed, impossible, default: used };
        mad.default.sort();
        let choice = |name: &str, options: &[&str]| Choice {
            name: name.into(), options: options.iter().map(|&o| o.to_owned()).collect(),
        };
        let choices = [choice("pages", &["huge", "small"]), choice("ahead", &["0", "4", "8"])];
        let one = default.groups()[0].clone();
        let other = Scheme::new(vec![one]).unwrap();
        let others = [Start { level: other.all(), scheme: other }];
        let kind = |tokens| StepKind { tokens, depth: 3, weight: 2.0 };
        let kinds = [kind(1), kind(512)];
        let quick = Quick {
            default: &start, others: &others, decode: kinds[0], prompt: kinds[1], choices: &choices,
        };
        let outcome = quick.run(&mut mad, &mut |p| seconds - p.evaluations as f64).unwrap();
        can_be_loaded(&outcome, &tree(MACHINES[machine]).cpus().into_iter().collect());
        prop_assert_eq!(outcome.choices.len(), 2);
        let table = Table::new(&default, vec![Row { up_to: u32::MAX, level: start.level.clone() }]);
        let mut untuned = Outcome {
            table: table.unwrap(), scheme: default.clone(), ..outcome.clone()
        };
        untuned.choices[0].1 = "huge".into();
        untuned.choices[1].1 = "0".into();
        let (tuned, before) = (mad.serves(&outcome, &kinds), mad.serves(&untuned, &kinds));
        prop_assert!(tuned <= before * (1.0 + 1e-12), "{tuned} {before}");
        // It ends with the time, not after it.
        prop_assert!(outcome.evaluations as f64 <= seconds.max(0.0) + 1.0);
    }

    #[test]
    fn a_profile_reads_as_it_was_written(
        words in prop::collection::vec("\\PC{0,12}|[\u{0}-\u{9f}\"\\\\]{0,8}", 9),
        nodes in prop::collection::vec(prop::option::of(0u32..9), 1..4),
        each in 1usize..6,
        rows in prop::collection::btree_set(1u32..9999, 0..4),
        rates in prop::collection::vec((1e-9f64..1e12, 1e-9f64..1e12), 0..4),
        complete: bool,
        matrices in prop::collection::vec(matrix(), 0..3),
    ) {
        let groups = nodes.iter().enumerate().map(|(at, node)| Group {
            node: node.map(NodeId),
            cpus: (0..each).rev().map(|i| CpuId((at * each + i) as u32)).collect(),
        });
        let scheme = Scheme::new(groups.collect()).unwrap();
        let level = |at: usize| -> Level {
            scheme.level(nodes.iter().map(|_| 1 + at % each).collect()).unwrap()
        };
        let rows = rows.into_iter().chain([u32::MAX]).enumerate();
        let rows = rows.map(|(at, up_to)| Row { up_to, level: level(at) }).collect();
        let mut words = words.into_iter();
        let mut next = || words.next().unwrap();
        let mut identity = || Identity { digest: next(), words: next() };
        let (machine, model, program) = (identity(), identity(), identity());
        let measured = rates.iter().map(|&(before, after)| Measured {
            tokens: 3, depth: 4, before, after, repetitions: 5,
        });
        let profile = Profile {
            machine, model, program,
            date: next(),
            seconds: 12.625,
            objective: if complete { Objective::Energy } else { Objective::Time },
            outcome: Outcome {
                table: Table::new(&scheme, rows).unwrap(),
                scheme,
                choices: vec![(next(), next())],
                measured: measured.collect(),
                evaluations: 77,
                loads: 3,
                complete,
                schedules: schedules(matrices, complete),
            },
        };
        let text = profile.text();
        prop_assert_eq!(Profile::parse(&text).map_err(|e| e.to_string()), Ok(profile), "{}", text);
    }

    /// Whatever stands in a file: a profile or an error, no panic.
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,60}", cut in 0usize..2600, put in any::<char>()) {
        drop(Profile::parse(&text));
        let mut whole = with_schedules().text();
        let at = (0..=cut.min(whole.len())).rev().find(|&i| whole.is_char_boundary(i)).unwrap();
        whole.insert(at, put);
        drop(Profile::parse(&whole));
        whole.truncate(at);
        drop(Profile::parse(&whole));
    }
}

fn identity(digest: &str) -> Identity {
    Identity { digest: digest.into(), words: format!("words of {digest}") }
}

fn sample() -> Profile {
    let scheme = by_node("numa:2 core:4");
    let few = scheme.level(vec![2, 2]).unwrap();
    let rows = vec![Row { up_to: 22, level: few }, Row { up_to: u32::MAX, level: scheme.all() }];
    Profile {
        machine: identity("m1"),
        model: identity("a/b"),
        program: identity("p1"),
        date: "today".into(),
        seconds: 61.5,
        objective: Objective::Time,
        outcome: Outcome {
            table: Table::new(&scheme, rows).unwrap(),
            scheme,
            choices: vec![("page size".into(), "2 MiB".into())],
            measured: vec![Measured {
                tokens: 1,
                depth: 9,
                before: 10.0,
                after: 12.5,
                repetitions: 5,
            }],
            evaluations: 100,
            loads: 4,
            complete: true,
            schedules: TunedSchedules::default(),
        },
    }
}

/// A matrix of so many tiles, whose columns may be split.
fn shape(tiles: usize, cols: usize, threads: usize) -> MatrixShape {
    let parts = vec![(gguf::TensorType::Q4_0, 16 * tiles)];
    MatrixShape { parts, cols, product: graph::Product::Summed, threads }
}

/// Rows that fit: one thread for everything, or as the numbers say.
fn matrix() -> impl Strategy<Value = Tuned> {
    let kernel = prop::option::of((1u8..9, 1u8..99, 1u8..4, any::<bool>()));
    let row = (1usize..4, 1usize..99, 0usize..9999, kernel);
    let rows = prop::collection::btree_map(1usize..9999, prop::option::of(row), 1..5);
    let figures = prop::collection::vec((1usize..999, 1e-12f64..1e9, 1e-12f64..1e9, 0u32..9), 0..4);
    (1usize..999, 5usize..99, rows, figures).prop_map(|(cols, tiles, rows, figures)| {
        let schedule = |(tiles, tokens, ahead, kernel): (usize, usize, usize, Option<_>)| {
            let kernel = kernel.map(|(vectors, tokens, unroll, panel)| match vectors {
                8 => MatKernel::Foreign(foreign()),
                _ => MicroKernel { vectors, tokens, unroll, panel }.into(),
            });
            let slice = Some(Slice { tiles, tokens });
            Schedule { how: How { kernel, ahead }, slice, grid: Grid { tokens: 1, splits: 2 } }
        };
        let row =
            |(up_to, row): (usize, Option<_>)| TunedRow { up_to, schedule: row.map(schedule) };
        let compared = |(tokens, default, tuned, repetitions)| Compared {
            tokens,
            default,
            tuned,
            repetitions,
        };
        let rows = rows.into_iter().map(row).collect();
        let figures = figures.into_iter().map(compared).collect();
        Tuned::new(shape(tiles, cols, 6), rows, figures).unwrap()
    })
}

/// Each shape once.
fn schedules(mut matrices: Vec<Tuned>, complete: bool) -> TunedSchedules {
    let mut shapes = BTreeSet::new();
    matrices.retain(|matrix| shapes.insert(matrix.shape().clone()));
    TunedSchedules { matrices, evaluations: 5, complete, foreign: vec![foreign()] }
}

/// A kernel that was written elsewhere.
fn foreign() -> &'static Foreign {
    Foreign::named("fast-1.2", "0123456789abcdef")
}

fn with_schedules() -> Profile {
    let grid = Grid { tokens: 1, splits: 2 };
    let slice = Some(Slice { tiles: 2, tokens: 512 });
    let how = How { kernel: Some("4x8".parse().unwrap()), ahead: 4096 };
    let rows = vec![
        TunedRow { up_to: 3, schedule: None },
        TunedRow { up_to: 512, schedule: Some(Schedule { how, slice, grid }) },
    ];
    let compared = vec![Compared { tokens: 4, default: 2e-5, tuned: 1.5e-5, repetitions: 5 }];
    let matrix = Tuned::new(shape(9, 64, 8), rows, compared).unwrap();
    let mut profile = sample();
    profile.outcome.schedules = schedules(vec![matrix], true);
    profile.outcome.schedules.foreign.clear();
    profile
}

/// The same with a kernel that was written elsewhere in the place of ours.
fn with_foreign() -> Profile {
    let mut profile = with_schedules();
    let matrix = &profile.outcome.schedules.matrices[0];
    let mut rows = matrix.rows().to_vec();
    let own = rows[1].schedule.as_mut().unwrap();
    own.how.kernel = Some(MatKernel::Foreign(foreign()));
    let matrix = Tuned::new(matrix.shape().clone(), rows, matrix.compared().to_vec()).unwrap();
    profile.outcome.schedules = schedules(vec![matrix], true);
    profile
}

#[test]
fn a_profile_is_for_one_machine_model_and_program() {
    let profile = sample();
    let (machine, model, program) = (identity("m1"), identity("a/b"), identity("p1"));
    assert_eq!(profile.applies(&machine, &model, &program), Ok(()));
    let other = identity("x2");
    for (stale, what) in [
        (profile.applies(&other, &model, &other), "another machine: words of m1 (m1)"),
        (profile.applies(&machine, &other, &other), "another model: words of a/b (a/b)"),
        (profile.applies(&machine, &model, &other), "another program: words of p1 (p1)"),
    ] {
        let message = stale.unwrap_err().to_string();
        assert!(message.contains(what) && message.contains("words of x2 (x2)"), "{message}");
    }
    // Words may be put better.
    let reworded = Identity { words: "other words".into(), ..machine.clone() };
    assert_eq!(profile.applies(&reworded, &model, &program), Ok(()));

    let name = Profile::file_name(&machine, &model);
    assert!(name.starts_with("tune-m1-ab-") && name.ends_with(".toml"), "{name}");
    let safe = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
    assert!(name.chars().all(safe), "{name}");
    // What a name leaves out still tells two apart.
    assert_ne!(name, Profile::file_name(&machine, &identity("ab")));
    assert_ne!(name, Profile::file_name(&identity("m1/"), &identity("ab")));
}

#[test]
fn a_profile_says_that_it_was_stopped_only_if_it_was() {
    let mut profile = with_schedules();
    let stopped = "not complete: it was stopped";
    assert!(profile.outcome.complete && profile.outcome.schedules.complete);
    assert!(!profile.text().contains(stopped), "{}", profile.text());
    profile.outcome.schedules.complete = false;
    let text = profile.text();
    let found = |line: &str| text.lines().any(|of| of.starts_with(line) && of.contains(stopped));
    assert!(found("# How matrices are multiplied") && !found("# How it was found"), "{text}");
    profile.outcome.complete = false;
    let text = profile.text();
    assert!(text.lines().any(|of| of.starts_with("# How it was found") && of.contains(stopped)));
}

#[test]
fn errors_of_profiles_say_what_is_wrong() {
    let text = sample().text();
    assert_eq!(Profile::parse(&text), Ok(sample()));
    for (from, to, words) in [
        ("version = 3", "version = 4", "of version 4 and this program knows 3"),
        ("version = 3", "version = 2", "version 2 is of another program: tune again"),
        ("version = 3", "", "no version"),
        ("version = 3", "version = \"one\"", "invalid type"),
        ("cpus = [2, 2]", "cpus = [2, 9]", "9 of the 4 cpus of group 1"),
        ("cpus = [2, 2]", "cpus = [2]", "a level of 1 numbers for 2 groups"),
        ("cpus = [2, 2]", "cpus = [0, 2]", "0 of the 4"),
        ("cpus = [0, 1, 2, 3]", "cpus = [0, 1, 2, 0]", "cpu 0 is there twice"),
        ("cpus = [0, 1, 2, 3]", "cpus = []", "group 0 has no cpu"),
        ("up_to = 22\n", "", "must ascend"),
        ("up_to = 22", "upto = 22", "unknown field `upto`"),
        ("before = 10.0", "before = nan", "NaN tokens a second"),
        ("seconds = 61.5", "seconds = -1.0", "search.seconds is -1"),
        ("[program]", "[programme]", "programme"),
    ] {
        assert!(text.contains(from), "{from}");
        let error = Profile::parse(&text.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.starts_with("profile: ") && error.contains(words), "{to}: {error}");
    }
    // A newer one may look different altogether.
    let newer = Profile::parse("version = 7\nwhat = 'else'").unwrap_err();
    assert_eq!(newer, tune::Error::NewerProfile { version: 7, known: 3 });
}

#[test]
fn schedules_are_checked() {
    let text = with_schedules().text();
    assert_eq!(Profile::parse(&text), Ok(with_schedules()));
    for (from, to, words) in [
        (
            "[schedules]\ncomplete = true\nevaluations = 5\n",
            "",
            "summed, 8 threads\" without [schedules]",
        ),
        (
            "grid = [1, 2]",
            "grid = [5, 2]",
            "5 parts of the tokens by 2 of the columns for 8 threads",
        ),
        ("grid = [1, 2]", "grid = [8, 1]", "of the 4 tokens for 8 parts"),
        ("grid = [1, 2]", "grid = [1, 0]", "empty grid"),
        ("64 summed", "64", "cuts the columns into 2"),
        ("Q4_0 144 x", "Q4_0 144 by", "is not the shape of a matrix"),
        ("kernel = \"4x8\"", "kernel = \"4by8\"", "\"4by8\" is not a micro-kernel"),
        ("slice = [2, 512]", "slice = [0, 512]", "slices of 0 of the 9 tiles"),
        ("slice = [2, 512]", "slice = [2]", "invalid length 1"),
        (", ahead = 4096", "", "needs all or none"),
        (", ahead = 4096", ", ahead = -1", "invalid value"),
        ("up_to = 512", "up_to = 3", "must ascend from 1"),
        ("up_to = 3", "up_to = 0", "must ascend from 1"),
        ("tuned = 1.5e-5", "tuned = 0.0", "0 seconds with 4 tokens"),
        ("tuned = 1.5e-5", "tuned = inf", "inf seconds with 4 tokens"),
        ("kernel = ", "kernels = ", "unknown field `kernels`"),
    ] {
        assert!(text.contains(from), "{from}");
        let error = Profile::parse(&text.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.starts_with("profile: ") && error.contains(words), "{to}: {error}");
    }
    let matrix = &text[text.find("[[matrix]]").unwrap()..];
    let error = Profile::parse(&format!("{text}{matrix}")).unwrap_err().to_string();
    assert!(error.contains("summed, 8 threads is there twice"), "{error}");
}

#[test]
fn kernels_from_elsewhere_are_known_by_name_and_digest() {
    let text = with_foreign().text();
    assert_eq!(Profile::parse(&text), Ok(with_foreign()));
    // Of another file it is another one.
    let other = Profile::parse(&text.replace("0123456789abcdef", "00")).unwrap();
    assert_ne!(other, with_foreign());
    let how = other.outcome.schedules.matrices[0].schedule(4).unwrap().how;
    assert_eq!(how.kernel, Some(MatKernel::Foreign(Foreign::named("fast-1.2", "00"))));
    let list = "  { name = \"fast-1.2\", digest = \"0123456789abcdef\" },\n";
    for (from, to, words) in [
        (list, "", "\"fast-1.2\" is not a micro-kernel"),
        ("name = \"fast-1.2\"", "name = \"2x4\"", "kernel \"2x4\" is the name of another"),
        ("name = \"fast-1.2\"", "name = \"usual\"", "kernel \"usual\" is the name of another"),
        (list, &list.repeat(2), "kernel \"fast-1.2\" is the name of another"),
        (", digest = \"0123456789abcdef\"", "", "missing field `digest`"),
    ] {
        assert!(text.contains(from), "{from} in {text}");
        let error = Profile::parse(&text.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.starts_with("profile: ") && error.contains(words), "{to}: {error}");
    }
}

#[test]
fn rows_of_a_profile_serve_the_tokens_that_they_name() {
    let matrix = &with_schedules().outcome.schedules.matrices[0];
    assert_eq!(matrix.schedule(3), None);
    let schedule = matrix.schedule(4).unwrap();
    // No more than a part has.
    assert_eq!(schedule.slice.unwrap(), Slice { tiles: 2, tokens: 4 });
    assert_eq!(matrix.schedule(513), None);
}
