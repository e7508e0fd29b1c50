//! The search for schedules against machines of which the best is known: by formula and by trying all.

mod planted;

use arclight_tune as tune;
use planted::{Name, Planted, family, kernel, machine, no_limit, plain, problem};
use std::collections::BTreeSet;
use tune::schedule::{Bench, Grid, Matrix, Problem, Row, Schedule, Scheduler, Slice};
use tune::tuner::StepKind;

/// Searches one problem without a limit of time.
fn search(scheduler: &Scheduler<'_>, bench: &mut Planted<'_>) -> Matrix<Name> {
    let found = scheduler.run(bench, &mut no_limit).unwrap();
    assert!(found.failed.is_none() && found.schedules.complete);
    assert_eq!(found.schedules.evaluations, bench.log.len());
    found.schedules.matrices.into_iter().next().unwrap()
}

/// All that an exhaustive search would time: any slice under any grid that takes all threads.
fn everything(problem: &Problem, tokens: usize, ahead: &[u32]) -> Vec<Schedule<Name>> {
    let mut all = vec![];
    for rows in 1..=problem.tiles {
        for parts in 1..=tokens {
            for &splits in &problem.splits {
                let grid = Grid { rows, tokens: parts, splits };
                if grid.parts() != problem.threads {
                    continue;
                }
                let most = grid.largest(problem.tiles, tokens);
                for (tiles, each) in
                    (1..=most.tiles).flat_map(|i| (1..=most.tokens).map(move |j| (i, j)))
                {
                    for kernel in family() {
                        let slice = Slice { tiles, tokens: each };
                        let of = |&ahead| Schedule { kernel: kernel.id, slice, grid, ahead };
                        all.extend(ahead.iter().map(of));
                    }
                }
            }
        }
    }
    all
}

#[test]
fn an_exhaustive_search_finds_little_better() {
    for (tiles, threads, splits) in
        [(24, 8, vec![1, 2]), (30, 6, vec![1]), (64, 4, vec![1, 2, 4]), (20, 12, vec![1, 3])]
    {
        let problems = [problem("w", tiles, threads, &splits)];
        let mut bench = Planted::new(&family(), machine);
        let scheduler = Scheduler::new(&problems, &[], 16);
        let matrix = search(&scheduler, &mut bench);
        let (mut all, mut worst, mut gained) = (0, 1.0f64, f64::INFINITY);
        for tokens in 1..=16 {
            let candidates = everything(&problems[0], tokens, scheduler.ahead);
            all += candidates.len();
            let times = candidates.iter().map(|s| machine(&problems[0], tokens, s));
            let best = times.fold(f64::INFINITY, f64::min);
            let tuned = bench.exact(&problems[0], tokens, matrix.schedule(tokens));
            worst = worst.max(tuned / best);
            gained = gained.min(bench.exact(&problems[0], tokens, None) / tuned);
        }
        println!(
            "| {tiles} tiles, {threads} threads, splits {splits:?} | {all} | {} ({:.2} %) | {:.1} % | \
             {gained:.2} |",
            bench.log.len(),
            100.0 * bench.log.len() as f64 / all as f64,
            100.0 * (worst - 1.0),
        );
        assert!(worst <= 1.05, "{tiles} {threads}: {worst}");
        assert!(gained >= 1.0, "{gained}");
    }
}
