//! What holds for every matrix and every time, however mad: no part starves, every count has one row,
//! nothing gets worse, and a search can be stopped anywhere.

mod planted;

use arclight_tune as tune;
use graph::{Grid, Schedule, Slice};
use kernels::How;
use planted::{Planted, family, kernel, mad, named, no_limit, plain, problem, rows};
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::BTreeSet;
use tune::schedule::{Compared, Kernel, Problem, Scheduler, Tuned};
use tune::tuner::StepKind;

/// Threads that the grids of a product can occupy at most, by trying all.
fn most_threads(problem: &Problem, tokens: usize) -> usize {
    let mut most = 0;
    let threads = problem.shape.threads;
    for rows in 1..=problem.shape.tiles().min(threads) {
        for parts in 1..=tokens.min(threads) {
            let of = |splits: &usize| rows * parts * splits;
            let of = problem.splits.iter().map(of).filter(|&all| all <= threads);
            most = of.fold(most, usize::max);
        }
    }
    most
}

/// The slices that each of so many parts gets, dealt in turns.
fn dealt(all: usize, slice: usize, parts: usize) -> Vec<usize> {
    let mut gets = vec![0; parts];
    for at in 0..all.div_ceil(slice) {
        gets[at % parts] += 1;
    }
    gets
}

/// What is wrong with a schedule that the search made.
fn fault(problem: &Problem, tokens: usize, schedule: &Schedule) -> Option<&'static str> {
    let Schedule { slice, grid, .. } = schedule;
    let (slice, rows) = (slice.unwrap(), rows(problem, *grid));
    let threads = rows * grid.tokens * grid.splits;
    // The default's own grid may leave threads out, and is varied.
    let default = plain(&family()[0], problem, tokens);
    let starves = |all, slice, parts| slice == 0 || dealt(all, slice, parts).contains(&0);
    if threads > problem.shape.threads {
        Some("more parts than threads")
    } else if threads != most_threads(problem, tokens) && *grid != default.grid {
        Some("threads left out")
    } else if !problem.splits.contains(&grid.splits) {
        Some("splits that are not allowed")
    } else if starves(problem.shape.tiles(), slice.tiles, rows) {
        Some("a part without tiles")
    } else if starves(tokens, slice.tokens, grid.tokens) {
        Some("a part without tokens")
    } else {
        None
    }
}

/// Each count is in exactly one row, and all schedules can be run.
fn covered(matrix: &Tuned, problem: &Problem, largest: usize) {
    let mut next = 1;
    for row in matrix.rows() {
        assert!(row.up_to >= next, "{:?}", matrix.rows());
        for tokens in next..=row.up_to {
            let schedule = row.schedule.map(|s| s.at(&problem.shape, tokens));
            assert_eq!(matrix.schedule(tokens), schedule);
            if let Some(schedule) = schedule {
                assert_eq!(schedule.fits(&problem.shape, tokens), Ok(()));
            }
        }
        next = row.up_to + 1;
    }
    assert_eq!(next, largest + 1, "{:?}", matrix.rows());
    assert!(matrix.rows().windows(2).all(|pair| pair[0].schedule != pair[1].schedule));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn no_part_starves_and_every_count_is_covered(
        tiles in 1usize..70,
        threads in 1usize..30,
        splits in prop::sample::subsequence(vec![2usize, 3, 4, 8], 0..4),
        largest in 1usize..60,
        seed: u64,
        stable in 0usize..4,
    ) {
        let splits: Vec<usize> = [1].into_iter().chain(splits).collect();
        let problems = [problem(1, tiles, threads, &splits)];
        let mut bench = Planted::new(&family(), |p: &Problem, t, s: &Schedule| {
            mad(seed, 0, p, t, s)
        });
        let scheduler = Scheduler { stable, ..Scheduler::new(&problems, &[], largest) };
        let found = scheduler.run(&mut bench, &mut no_limit).unwrap();
        for (_, tokens, schedule) in &bench.log {
            if *schedule == plain(&bench.kernels[0], &problems[0], *tokens) {
                continue;
            }
            let fault = fault(&problems[0], *tokens, schedule);
            prop_assert_eq!(fault, None, "{} tokens: {:?}", tokens, schedule);
        }
        covered(&found.schedules.matrices[0], &problems[0], largest);
    }

    /// Times without sense, limits of time, benches that fail: the table is nowhere slower than the
    /// default where it was looked at.
    #[test]
    fn tuned_is_never_worse_than_the_default(
        seed: u64,
        impossible in prop::sample::select(vec![0u64, 30, 95]),
        shapes in prop::collection::vec((1usize..40, 1usize..17, 1usize..20), 1..4),
        weights in prop::collection::vec(0.1f64..100.0, 0..5),
        largest in 1usize..70,
        fails_after in prop::option::of(0usize..900),
        stop_after in prop::option::of(0usize..900),
        budget in prop::option::of(0.0f64..2000.0),
    ) {
        let problems: Vec<Problem> = shapes.iter().enumerate().map(|(id, &(tiles, threads, calls))| {
            Problem { calls, ..problem(1 + id, tiles, threads, &[1, 2]) }
        }).collect();
        let kinds: Vec<StepKind> = weights.iter().enumerate().map(|(i, &weight)| {
            StepKind { tokens: 1 << (2 * i), depth: 0, weight }
        }).collect();
        let spent = std::cell::Cell::new(0.0);
        let mut bench = Planted::new(&family(), |p: &Problem, t, s: &Schedule| {
            let seconds = mad(seed, impossible, p, t, s);
            spent.set(spent.get() + seconds.min(2.0));
            seconds
        });
        bench.fails_after = fails_after.unwrap_or(usize::MAX);
        let mut told = 0;
        let scheduler = Scheduler { repetitions: 5, ..Scheduler::new(&problems, &kinds, largest) };
        let found = scheduler.run(&mut bench, &mut |progress| {
            told = progress.evaluations;
            match (stop_after, budget) {
                (Some(stop), _) if progress.evaluations >= stop => 0.0,
                (_, Some(budget)) => budget - spent.get(),
                (_, None) => f64::INFINITY,
            }
        }).unwrap();
        let schedules = &found.schedules;
        prop_assert_eq!((schedules.evaluations, told), (bench.log.len(), bench.log.len()));
        prop_assert_eq!(found.failed.is_some(), bench.failed);
        // A limited search keeps seconds for a second look, so it may end with some left, just where
        // the bench would fail next.
        let fails = fails_after == Some(told) && stop_after.is_none_or(|s| told < s)
            && budget.is_none_or(|b| b - spent.get() > 0.0) && !schedules.complete;
        prop_assert!(fails || !bench.failed);
        prop_assert!(bench.failed || !fails || budget.is_some());
        if let Some(stop) = stop_after {
            prop_assert!(told <= stop, "{told} {stop}");
        }
        if let Some(budget) = budget {
            prop_assert!(spent.get() <= budget + 2.0);
        }
        prop_assert_eq!(schedules.matrices.len(), problems.len());
        for (problem, matrix) in problems.iter().zip(&schedules.matrices) {
            prop_assert!(problem.is(matrix));
            covered(matrix, problem, largest);
            let looked_at: BTreeSet<usize> = matrix.compared().iter().map(|c| c.tokens).collect();
            for compared in matrix.compared() {
                let tokens = compared.tokens;
                let default = mad(seed, impossible, problem, tokens, &plain(&family()[0], problem, tokens));
                let schedule = matrix.schedule(tokens);
                let tuned = schedule.as_ref().map_or(default, |s| mad(seed, impossible, problem, tokens, s));
                prop_assert!(tuned <= default * (1.0 - 0.01) || schedule.is_none(), "{tuned} {default}");
                prop_assert_eq!((compared.default, compared.tuned), (default, tuned));
            }
            // What was not looked at before time was up is as without tuning: with fewer tokens
            // than the first count looked at, that is.
            let first = looked_at.first().copied().unwrap_or(largest + 1);
            prop_assert!((1..first).all(|tokens| matrix.schedule(tokens).is_none()));
        }
    }
}

/// Where nothing makes a difference, chance is not taken for one. A claim is wrong with a chance of 2 in
/// 252 without the margin; half of those that are not made are tried again, with a chance of 1 in 100. Of at
/// most 250 claims three are expected to be wrong; with more than 7 (odds of 1 in 60 if seeds were drawn
/// anew) the rule is not kept.
#[test]
fn noise_alone_changes_nothing() {
    let problems = [problem(1, 64, 8, &[1, 2])];
    let (mut changed, mut claims) = (0, 0);
    for random in 1..=20 {
        let mut bench = Planted::new(&family(), |_: &Problem, _, _: &Schedule| 1e-4);
        (bench.noise, bench.random) = (0.03, random);
        let scheduler = Scheduler { margin: 0.0, ..Scheduler::new(&problems, &[], 32) };
        let found = scheduler.run(&mut bench, &mut no_limit).unwrap();
        let compared = found.schedules.matrices[0].compared();
        claims += compared.iter().filter(|c| c.repetitions >= 5).count();
        changed += compared.iter().filter(|c| c.tuned != c.default).count();
    }
    println!("{changed} of {claims} claims");
    // Noise makes something look faster nearly everywhere.
    assert!((100..=250).contains(&claims), "{claims}");
    assert!(changed <= 7, "{changed} of {claims}");
}

/// A gain of twice the noise is mostly proven, because what looks better gets more turns: without them it is
/// in 6 of these 20 runs, with them in 19.
#[test]
fn small_gains_are_proven_by_more_turns() {
    let problems = [problem(1, 64, 8, &[1])];
    let best = family()[1].kernel;
    let mut proven = 0;
    for random in 1..=20 {
        let time = |_: &Problem, _: usize, schedule: &Schedule| {
            if schedule.how.kernel == best { 0.94e-4 } else { 1e-4 }
        };
        let mut bench = Planted::new(&family(), time);
        (bench.noise, bench.random) = (0.03, random);
        let found = Scheduler::new(&problems, &[], 1).run(&mut bench, &mut no_limit).unwrap();
        let schedule = found.schedules.matrices[0].schedule(1);
        proven += usize::from(schedule.is_some_and(|schedule| schedule.how.kernel == best));
    }
    println!("{proven} of 20");
    assert!(proven > 10, "{proven} of 20");
}

/// What was faster once and is slower in the end stays out.
#[test]
fn what_gains_no_more_in_the_end_is_left_out() {
    let problems = [problem(1, 64, 8, &[1]), problem(2, 64, 8, &[1])];
    let best = family()[1].kernel;
    for lasts in [true, false] {
        // Whether the first matrix was done with.
        let later = Cell::new(false);
        let time = |problem: &Problem, _: usize, schedule: &Schedule| {
            later.set(later.get() || problem.shape.cols == 2);
            match (problem.shape.cols == 1 && schedule.how.kernel == best, later.get() && !lasts) {
                (true, false) => 0.8e-4,
                (true, true) => 1.2e-4,
                _ => 1e-4,
            }
        };
        let mut bench = Planted::new(&family(), time);
        bench.noise = 0.01;
        let found = Scheduler::new(&problems, &[], 1).run(&mut bench, &mut no_limit).unwrap();
        let matrix = &found.schedules.matrices[0];
        let Compared { default, tuned, .. } = matrix.compared()[0];
        assert_eq!((matrix.schedule(1).is_some(), tuned < default), (lasts, lasts));
    }
}

/// With noise the outcome is near what is found without.
#[test]
fn with_noise_it_ends_near_what_is_found_without() {
    let problems = [problem(1, 96, 12, &[1, 2])];
    let scheduler = Scheduler::new(&problems, &[], 64);
    let serves = |bench: &Planted<'_>, matrix: &Tuned| -> f64 {
        (1..=64).map(|t| bench.exact(&problems[0], t, matrix.schedule(t).as_ref())).sum()
    };
    let mut exact = Planted::new(&family(), planted::machine);
    let best = scheduler.run(&mut exact, &mut no_limit).unwrap().schedules;
    let best = serves(&exact, &best.matrices[0]);
    for random in 1..=8 {
        let mut bench = Planted::new(&family(), planted::machine);
        (bench.noise, bench.random) = (0.03, random);
        let found = scheduler.run(&mut bench, &mut no_limit).unwrap().schedules;
        let ratio = serves(&bench, &found.matrices[0]) / best;
        println!("seed {random}: {ratio:.3}, {} evaluations", found.evaluations);
        assert!(ratio <= 1.03, "{random}: {ratio}");
    }
}

/// The margin is part of the claim.
#[test]
fn a_gain_below_the_margin_is_none() {
    let problems = [problem(1, 8, 1, &[1])];
    for (gain, margin, claimed) in [(0.008, 0.01, false), (0.012, 0.01, true), (0.008, 0.0, true)] {
        let kernels = [kernel("1x1", 1, 1), kernel("1x2", 1, 1)];
        let mut bench =
            Planted::new(
                &kernels,
                |_: &Problem, _, s: &Schedule| {
                    if s.how.kernel == named("1x2") { 1.0 - gain } else { 1.0 }
                },
            );
        let scheduler = Scheduler { margin, ..Scheduler::new(&problems, &[], 1) };
        let found = scheduler.run(&mut bench, &mut no_limit).unwrap();
        let schedule = found.schedules.matrices[0].schedule(1);
        assert_eq!(schedule.is_some(), claimed, "{gain} {margin}");
    }
}

/// A default that the search would never propose: it leaves threads out and has slices beyond all.
#[test]
fn any_default_will_do() {
    struct Odd<'a>(Planted<'a>);
    impl tune::schedule::Bench for Odd<'_> {
        type Error = String;
        fn kernels(&self, p: &Problem, t: usize) -> Vec<Kernel> {
            // What can do the first counts cannot do the others.
            self.0
                .kernels(p, t)
                .into_iter()
                .filter(|k| t <= 20 || k.kernel != named("1x8"))
                .collect()
        }
        fn default(&self, _: &Problem, _: usize) -> Schedule {
            let grid = Grid { tokens: 7, splits: 5 };
            let slice = Some(Slice { tiles: 999, tokens: 999 });
            Schedule { how: How { kernel: None, ahead: 1 }, slice, grid }
        }
        fn time(&mut self, p: &Problem, t: usize, s: &Schedule) -> Result<f64, String> {
            self.0.time(p, t, s)
        }
    }
    let problems = [problem(1, 16, 4, &[1])];
    let cost = |_: &Problem, tokens: usize, s: &Schedule| match s.how.kernel {
        None if tokens.is_multiple_of(5) => 0.5 - s.how.ahead as f64 / 1e6,
        None => 3.0,
        kernel if kernel == named("1x8") => 1.0,
        _ => 2.0,
    };
    let mut bench = Odd(Planted::new(&family(), cost));
    let found = Scheduler::new(&problems, &[], 40).run(&mut bench, &mut no_limit).unwrap();
    let matrix = &found.schedules.matrices[0];
    covered(matrix, &problems[0], 40);
    let kernel = |tokens| matrix.schedule(tokens).map(|s| s.how.kernel);
    assert_eq!([4, 5, 19].map(kernel), [Some(named("1x8")), None, Some(named("1x8"))]);
    // The default is faster with 20; 24 to 27 tokens are as 24, and so on.
    assert_eq!((kernel(20), kernel(23)), (None, None));
    assert!(kernel(24).is_some_and(|k| k != named("1x8")) && kernel(40).is_none());
}

#[test]
fn problems_that_make_no_sense_are_refused() {
    let good = problem(1, 8, 2, &[1, 2]);
    for (problems, largest, words) in [
        (vec![problem(1, 0, 2, &[1])], 4, "no tiles"),
        (vec![problem(1, 8, 0, &[1])], 4, "no threads"),
        (vec![Problem { calls: 0, ..good.clone() }], 4, "no calls"),
        (vec![Problem { splits: vec![2], ..good.clone() }], 4, "splits must have 1"),
        (vec![good.clone(), good.clone()], 4, "twice"),
        (vec![good.clone()], 0, "0 tokens"),
    ] {
        let mut bench = Planted::new(&family(), |_: &Problem, _, _: &Schedule| 1.0);
        let error = Scheduler::new(&problems, &[], largest).run(&mut bench, &mut no_limit);
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with("matrix Q4_0 ") && error.contains(words), "{error}");
        assert!(bench.log.is_empty());
    }
    let mut bench = Planted::new(&family(), |_: &Problem, _, _: &Schedule| 1.0);
    let none = Scheduler::new(&[], &[], 9).run(&mut bench, &mut no_limit).unwrap();
    assert!(none.schedules.matrices.is_empty() && none.schedules.complete);
}
