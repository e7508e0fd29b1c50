//! The search for schedules against machines of which the best is known: by formula and by trying all.

mod planted;

use arclight_tune as tune;
use planted::{Planted, family, kernel, machine, no_limit, plain, problem};
use std::cell::Cell;
use std::collections::BTreeSet;
use tune::schedule::{Grid, Matrix, Problem, Schedule, Scheduler, Slice};
use tune::tuner::StepKind;

/// Searches one problem without a limit of time.
fn search(scheduler: &Scheduler<'_>, bench: &mut Planted<'_>) -> Matrix {
    let found = scheduler.run(bench, &mut no_limit).unwrap();
    assert!(found.failed.is_none() && found.schedules.complete);
    assert_eq!(found.schedules.evaluations, bench.log.len());
    found.schedules.matrices.into_iter().next().unwrap()
}

/// All that an exhaustive search would time: any slice under any grid that takes all threads.
fn everything(problem: &Problem, tokens: usize, ahead: &[u32]) -> Vec<Schedule> {
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
                        let of =
                            |&ahead| Schedule { kernel: kernel.id.clone(), slice, grid, ahead };
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
            let tuned = bench.exact(&problems[0], tokens, matrix.schedule(tokens).as_ref());
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
        // Beside slices of one size that take the same, the margin of a claim may be lost.
        assert!(worst <= 1.0 / (1.0 - scheduler.margin), "{tiles} {threads}: {worst}");
        assert!(gained > 1.05, "there was something to find: {gained}");
        let share = bench.log.len() as f64 / all as f64;
        assert!(share <= 0.02, "{share}");
    }
}

/// Products of kernels that differ in how many tokens they take at once; else nothing matters.
fn by_kernel(_: &Problem, tokens: usize, schedule: &Schedule) -> f64 {
    let padded = |tile: usize| (tokens.div_ceil(tile) * tile) as f64;
    match schedule.kernel.as_str() {
        "one" => tokens as f64,
        "four" => 0.8 * padded(4),
        "never" => 2.0 * tokens as f64,
        // Looks bad until the window has left it out.
        "late" => {
            if tokens < 20 {
                90.0
            } else {
                1.0
            }
        }
        other => panic!("{other}"),
    }
}

fn by_kernel_family() -> [tune::schedule::Kernel; 4] {
    [kernel("one", 1, 1), kernel("four", 1, 4), kernel("never", 1, 1), kernel("late", 1, 1)]
}

#[test]
fn a_window_asks_for_kernels_that_won_lately() {
    let problems = [problem("w", 64, 4, &[1])];
    let search_with = |window: usize| {
        let mut bench = Planted::new(&by_kernel_family(), by_kernel);
        let scheduler = Scheduler { window, stable: 0, ..Scheduler::new(&problems, &[], 64) };
        let matrix = search(&scheduler, &mut bench);
        // The kernels that were asked for at a count; the default is always timed.
        let asked = |tokens: usize| -> BTreeSet<String> {
            let default = plain(&bench.kernels[0], &problems[0], tokens);
            let at = bench.log.iter().filter(|(_, t, s)| *t == tokens && *s != default);
            at.map(|(_, _, schedule)| schedule.kernel.clone()).collect()
        };
        let asked: Vec<_> = matrix.compared().iter().map(|c| (c.tokens, asked(c.tokens))).collect();
        (matrix, asked, bench.log.len())
    };
    let (matrix, asked, few) = search_with(4);
    let all: BTreeSet<String> = by_kernel_family().map(|k| k.id).into();
    for (tokens, asked) in &asked {
        // "one" wins with 1, 2, 3, 5, 6 and 9 tokens, "four" with 4, 7, 8, 10 and more.
        let expected = match tokens {
            1..=4 => all.clone(),
            5..=13 => BTreeSet::from(["one", "four"].map(String::from)),
            _ => BTreeSet::from(["four"].map(String::from)),
        };
        assert_eq!(*asked, expected, "{tokens} tokens");
    }
    // "four" was in the window when it began to win for good.
    let kernel = |tokens| matrix.schedule(tokens).map(|schedule| schedule.kernel);
    assert_eq!(
        [4, 5, 6, 7, 9, 10, 13, 64].map(kernel).each_ref().map(Option::as_deref),
        [Some("four"), None, None, Some("four"), None, Some("four"), Some("four"), Some("four")]
    );
    // What the window costs: a kernel that had never won.
    let (matrix, asked, many) = search_with(0);
    assert!(asked.iter().all(|(_, asked)| *asked == all), "{asked:?}");
    assert_eq!(matrix.schedule(64).map(|s| s.kernel).as_deref(), Some("late"));
    println!("window of 4: {few} evaluations, without: {many}");
    assert!(few < many, "{few} {many}");
}

#[test]
fn hundreds_of_counts_do_not_cost_hundreds_of_searches() {
    let problems = [problem("w", 256, 16, &[1, 2])];
    let mut bench = Planted::new(&family(), machine);
    let matrix = search(&Scheduler::new(&problems, &[], 512), &mut bench);
    let looked_at: Vec<usize> = matrix.compared().iter().map(|c| c.tokens).collect();

    // Each count for itself.
    let mut each = Planted::new(&family(), machine);
    let scheduler =
        Scheduler { each: 512, window: 0, stable: 0, ..Scheduler::new(&problems, &[], 512) };
    let best = search(&scheduler, &mut each);
    assert_eq!(best.compared().len(), 512);
    let serves = |matrix: &Matrix| -> Vec<f64> {
        (1..=512).map(|t| bench.exact(&problems[0], t, matrix.schedule(t).as_ref())).collect()
    };
    let (kept, searched) = (serves(&matrix), serves(&best));
    let worst = kept.iter().zip(&searched).map(|(a, b)| a / b).fold(0.0, f64::max);
    let mean = kept.iter().zip(&searched).map(|(a, b)| a / b).sum::<f64>() / 512.0;
    println!(
        "| 512 counts | {} looked at, {} evaluations | {} one by one | {:.1} % at worst, {:.1} % in \
         the mean |",
        looked_at.len(),
        bench.log.len(),
        each.log.len(),
        100.0 * (worst - 1.0),
        100.0 * (mean - 1.0),
    );
    assert!(looked_at.starts_with(&(1..=16).collect::<Vec<_>>()) && looked_at.ends_with(&[512]));
    // 16, then 32, 64, 128, 256 and 512.
    assert_eq!(looked_at.len(), 21, "{looked_at:?}");
    assert!(bench.log.len() * 10 <= each.log.len());
    assert!(mean <= 1.02, "{mean}");
}

#[test]
fn a_check_that_fails_looks_at_what_was_left_out() {
    // From 45 tokens on another kernel is faster, and nothing else matters.
    let problems = [problem("w", 64, 4, &[1])];
    let cost = |_: &Problem, tokens: usize, schedule: &Schedule| match schedule.kernel.as_str() {
        "few" => 1.0 + schedule.slice.tiles as f64,
        "many" => {
            if tokens < 45 {
                3.0
            } else {
                1.0
            }
        }
        other => panic!("{other}"),
    };
    let mut bench = Planted::new(&[kernel("slow", 1, 1)], |p, t, s| match s.kernel.as_str() {
        "slow" => 9.0,
        _ => cost(p, t, s),
    });
    bench.kernels.extend([kernel("few", 1, 1), kernel("many", 1, 1)]);
    let scheduler = Scheduler { window: 0, ..Scheduler::new(&problems, &[], 300) };
    let matrix = search(&scheduler, &mut bench);
    let looked_at: Vec<usize> = matrix.compared().iter().map(|c| c.tokens).collect();
    // 32 holds, 64 does not: back to 20. From 64 on it holds again.
    assert_eq!(looked_at[16..], [20, 24, 28, 32, 40, 48, 56, 64, 128, 256, 300]);
    let kernel = |tokens| matrix.schedule(tokens).map(|schedule| schedule.kernel);
    assert_eq!(
        [1, 44, 47, 48, 300].map(kernel).each_ref().map(Option::as_deref),
        [Some("few"), Some("few"), Some("few"), Some("many"), Some("many")]
    );
    assert_eq!(matrix.rows().len(), 2, "{:?}", matrix.rows());
}

#[test]
fn an_imported_kernel_is_taken_where_it_is_faster() {
    let problems = [problem("w", 64, 8, &[1, 2])];
    let mut kernels = family();
    kernels.extend([kernel("imported slow", 2, 4), kernel("imported fast", 2, 4)]);
    let mut bench = Planted::new(&kernels, machine);
    let matrix = search(&Scheduler::new(&problems, &[], 64), &mut bench);
    let kernel = |t| matrix.schedule(t).map(|schedule| schedule.kernel);
    let chosen: Vec<Option<String>> = (1..=64).map(kernel).collect();
    let chosen: Vec<Option<&str>> = chosen.iter().map(Option::as_deref).collect();
    // Many tokens are limited by products, in which it is 1.6 times faster; one token by reading, for
    // which four tokens in registers are no use.
    assert_eq!((chosen[63], chosen[0]), (Some("imported fast"), Some("1x1")));
    assert!(!chosen.contains(&Some("imported slow")), "{chosen:?}");
    assert!(bench.log.iter().any(|(_, _, s)| s.kernel == "imported slow"));
    // Without it, the same search takes one of the family.
    let mut bench = Planted::new(&family(), machine);
    let matrix = search(&Scheduler::new(&problems, &[], 64), &mut bench);
    assert!(matrix.schedule(64).is_some_and(|s| family().iter().any(|k| k.id == s.kernel)));
}

#[test]
fn schedules_are_not_timed_twice_but_for_the_finals() {
    let problems = [problem("w", 64, 8, &[1, 2])];
    let mut bench = Planted::new(&family(), machine);
    let scheduler = Scheduler { stable: 0, ..Scheduler::new(&problems, &[], 24) };
    let matrix = search(&scheduler, &mut bench);
    for compared in matrix.compared() {
        let at: Vec<_> = bench.log.iter().filter(|(_, t, _)| *t == compared.tokens).collect();
        let distinct: BTreeSet<_> = at.iter().map(|(_, _, schedule)| schedule).collect();
        // Once more the default, and five times each of the two in the finals.
        let finals = if compared.repetitions == 5 { 10 } else { 0 };
        assert_eq!(at.len(), distinct.len() + 1 + finals, "{compared:?}");
    }
}

/// With little time the products on which a trace spends most are looked at first.
#[test]
fn short_time_goes_to_what_matters_most() {
    let often = Problem { calls: 30, ..problem("often", 64, 8, &[1, 2]) };
    let problems = [problem("rare", 64, 8, &[1, 2]), often];
    let kind = |tokens, weight| StepKind { tokens, depth: 0, weight };
    let kinds = [kind(1, 50.0), kind(8, 900.0), kind(64, 1.0), kind(256, 20.0)];
    let scheduler = Scheduler::new(&problems, &kinds, 256);
    let mut whole = Planted::new(&family(), machine);
    let all = scheduler.run(&mut whole, &mut no_limit).unwrap().schedules;

    let (mut complete, mut done_by) = (vec![], vec![]);
    for share in [0.01, 0.05, 0.2, 0.5, 4.0] {
        let budget = share * whole.spent;
        let (spent, slowest) = (Cell::new(0.0), Cell::new(0.0f64));
        let mut bench = Planted::new(&family(), |p: &Problem, t, s: &Schedule| {
            let seconds = machine(p, t, s);
            spent.set(spent.get() + seconds);
            slowest.set(slowest.get().max(seconds));
            seconds
        });
        let mut last = 0.0;
        let found = scheduler.run(&mut bench, &mut |progress| {
            assert!(progress.share >= last && progress.share <= 1.0);
            last = progress.share;
            budget - spent.get()
        });
        let found = found.unwrap().schedules;
        assert!(spent.get() <= budget + slowest.get(), "{share}");
        let tuned = |at: usize, tokens: usize| {
            found.matrices[at].compared().iter().any(|c| c.tokens == tokens && c.repetitions == 5)
        };
        // The one multiplied often comes first, with the tokens that the trace spends most on.
        let done = [tuned(1, 8), tuned(0, 8), tuned(0, 5)];
        done_by.push(done.iter().filter(|&&done| done).count());
        assert!(done.is_sorted_by(|before, after| before >= after), "{share}: {done:?}");
        // What there was no time for is as without tuning, whatever was found for fewer tokens.
        for matrix in &found.matrices {
            let known: BTreeSet<usize> = matrix.compared().iter().map(|c| c.tokens).collect();
            let mut unknown = (1..=16).filter(|tokens| !known.contains(tokens));
            assert!(unknown.all(|tokens| matrix.schedule(tokens).is_none()), "{share}");
        }
        let looked_at = found.matrices.iter().map(|m| m.compared().len()).sum::<usize>();
        complete.push((looked_at, found.complete));
    }
    assert!(complete.is_sorted(), "{complete:?}");
    assert!(done_by.is_sorted() && done_by.contains(&2) && done_by.contains(&3), "{done_by:?}");
    assert!(!complete[0].1 && complete[4].1, "{complete:?}");
    assert!(all.complete);
}
