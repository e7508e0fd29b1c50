//! The search for schedules against machines of which the best is known: by formula and by trying all.

mod planted;

use arclight_tune as tune;
use graph::{Grid, Schedule, Slice};
use kernels::{How, MatKernel};
use planted::{Planted, family, kernel, largest, machine, named, no_limit, plain, problem, rows};
use std::cell::Cell;
use std::collections::BTreeSet;
use tune::schedule::{Kernel, Problem, Scheduler, Tuned};
use tune::tuner::StepKind;

/// The name of the kernel for so many tokens, if there is a schedule.
fn kernel_of(matrix: &Tuned, tokens: usize) -> Option<String> {
    matrix.schedule(tokens).map(|schedule| name(schedule.how.kernel))
}

/// Searches one problem without a limit of time.
fn search(scheduler: &Scheduler<'_>, bench: &mut Planted<'_>) -> Tuned {
    let found = scheduler.run(bench, &mut no_limit).unwrap();
    assert!(found.failed.is_none() && found.schedules.complete);
    assert_eq!(found.schedules.evaluations, bench.log.len());
    found.schedules.matrices.into_iter().next().unwrap()
}

/// All that an exhaustive search would time: any slice under any grid that takes all threads.
fn everything(problem: &Problem, tokens: usize, ahead: &[usize]) -> Vec<Schedule> {
    let mut all = vec![];
    for parts in 1..=tokens {
        for &splits in &problem.splits {
            let grid = Grid { tokens: parts, splits };
            if rows(problem, grid) * parts * splits != problem.shape.threads {
                continue;
            }
            let most = largest(problem, grid, tokens);
            for (tiles, each) in
                (1..=most.tiles).flat_map(|i| (1..=most.tokens).map(move |j| (i, j)))
            {
                for Kernel { kernel, .. } in family() {
                    let slice = Some(Slice { tiles, tokens: each });
                    let of = |&ahead| Schedule { how: How { kernel, ahead }, slice, grid };
                    all.extend(ahead.iter().map(of));
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
        let problems = [problem(1, tiles, threads, &splits)];
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

/// The names of kernels: that is all there is to them.
const ONE: &str = "1x1";
const FOUR: &str = "1x4";
const NEVER: &str = "2x1";
const LATE: &str = "1x2";

fn name(kernel: Option<MatKernel>) -> String {
    kernel.unwrap().to_string()
}

/// Products of kernels that differ in how many tokens they take at once; else nothing matters.
fn by_kernel(_: &Problem, tokens: usize, schedule: &Schedule) -> f64 {
    let padded = |tile: usize| (tokens.div_ceil(tile) * tile) as f64;
    match name(schedule.how.kernel).as_str() {
        ONE => tokens as f64,
        FOUR => 0.8 * padded(4),
        NEVER => 2.0 * tokens as f64,
        // Looks bad until the window has left it out.
        LATE => {
            if tokens < 20 {
                90.0
            } else {
                1.0
            }
        }
        other => panic!("{other}"),
    }
}

fn by_kernel_family() -> [Kernel; 4] {
    [kernel(ONE, 1, 1), kernel(FOUR, 1, 4), kernel(NEVER, 1, 1), kernel(LATE, 1, 1)]
}

#[test]
fn a_window_asks_for_kernels_that_won_lately() {
    let problems = [problem(1, 64, 4, &[1])];
    let search_with = |window: usize| {
        let mut bench = Planted::new(&by_kernel_family(), by_kernel);
        let scheduler = Scheduler { window, stable: 0, ..Scheduler::new(&problems, &[], 64) };
        let matrix = search(&scheduler, &mut bench);
        // The kernels that were asked for at a count; the default is always timed.
        let asked = |tokens: usize| -> BTreeSet<String> {
            let default = plain(&bench.kernels[0], &problems[0], tokens);
            let at = bench.log.iter().filter(|(_, t, s)| *t == tokens && *s != default);
            at.map(|(_, _, schedule)| name(schedule.how.kernel)).collect()
        };
        let asked: Vec<_> = matrix.compared().iter().map(|c| (c.tokens, asked(c.tokens))).collect();
        (matrix, asked, bench.log.len())
    };
    let (matrix, asked, few) = search_with(4);
    let all: BTreeSet<String> = by_kernel_family().map(|k| name(k.kernel)).into();
    for (tokens, asked) in &asked {
        // ONE wins with 1, 2, 3, 5, 6 and 9 tokens, FOUR with 4, 7, 8, 10 and more.
        let expected = match tokens {
            1..=4 => all.clone(),
            5..=13 => BTreeSet::from([ONE, FOUR].map(String::from)),
            _ => BTreeSet::from([FOUR].map(String::from)),
        };
        assert_eq!(*asked, expected, "{tokens} tokens");
    }
    // FOUR was in the window when it began to win for good.
    let kernel = |tokens| kernel_of(&matrix, tokens);
    assert_eq!(
        [4, 5, 6, 7, 9, 10, 13, 64].map(kernel).each_ref().map(Option::as_deref),
        [Some(FOUR), None, None, Some(FOUR), None, Some(FOUR), Some(FOUR), Some(FOUR)]
    );
    // What the window costs: a kernel that had never won.
    let (matrix, asked, many) = search_with(0);
    assert!(asked.iter().all(|(_, asked)| *asked == all), "{asked:?}");
    assert_eq!(kernel_of(&matrix, 64).as_deref(), Some(LATE));
    println!("window of 4: {few} evaluations, without: {many}");
    assert!(few < many, "{few} {many}");
}

#[test]
fn hundreds_of_counts_do_not_cost_hundreds_of_searches() {
    let problems = [problem(1, 256, 16, &[1, 2])];
    let mut bench = Planted::new(&family(), machine);
    let matrix = search(&Scheduler::new(&problems, &[], 512), &mut bench);
    let looked_at: Vec<usize> = matrix.compared().iter().map(|c| c.tokens).collect();

    // Each count for itself.
    let mut each = Planted::new(&family(), machine);
    let scheduler =
        Scheduler { each: 512, window: 0, stable: 0, ..Scheduler::new(&problems, &[], 512) };
    let best = search(&scheduler, &mut each);
    assert_eq!(best.compared().len(), 512);
    let serves = |matrix: &Tuned| -> Vec<f64> {
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
    const FEW: &str = "1x1";
    const MANY: &str = "1x2";
    const SLOW: &str = "1x3";
    // From 45 tokens on another kernel is faster, and nothing else matters.
    let problems = [problem(1, 64, 4, &[1])];
    let cost = |_: &Problem, tokens: usize, schedule: &Schedule| match name(schedule.how.kernel)
        .as_str()
    {
        FEW => 1.0 + schedule.slice.unwrap().tiles as f64,
        MANY => {
            if tokens < 45 {
                3.0
            } else {
                1.0
            }
        }
        other => panic!("{other}"),
    };
    let mut bench = Planted::new(&[kernel(SLOW, 1, 1)], |p, t, s| match s.how.kernel {
        kernel if kernel == named(SLOW) => 9.0,
        _ => cost(p, t, s),
    });
    bench.kernels.extend([kernel(FEW, 1, 1), kernel(MANY, 1, 1)]);
    let scheduler = Scheduler { window: 0, ..Scheduler::new(&problems, &[], 300) };
    let matrix = search(&scheduler, &mut bench);
    let looked_at: Vec<usize> = matrix.compared().iter().map(|c| c.tokens).collect();
    // 32 holds, 64 does not: back to 20. From 64 on it holds again.
    assert_eq!(looked_at[16..], [20, 24, 28, 32, 40, 48, 56, 64, 128, 256, 300]);
    let kernel = |tokens| kernel_of(&matrix, tokens);
    assert_eq!(
        [1, 44, 47, 48, 300].map(kernel).each_ref().map(Option::as_deref),
        [Some(FEW), Some(FEW), Some(FEW), Some(MANY), Some(MANY)]
    );
    assert_eq!(matrix.rows().len(), 2, "{:?}", matrix.rows());
}

#[test]
fn a_kernel_is_taken_where_it_is_faster() {
    let problems = [problem(1, 64, 8, &[1, 2])];
    const FAST: &str = "2x4u2";
    const SLOW: &str = "2x4u3";
    let mut kernels = family();
    kernels.extend([kernel(SLOW, 2, 4), kernel(FAST, 2, 4)]);
    let mut bench = Planted::new(&kernels, machine);
    let matrix = search(&Scheduler::new(&problems, &[], 64), &mut bench);
    let chosen: Vec<Option<String>> = (1..=64).map(|t| kernel_of(&matrix, t)).collect();
    let chosen: Vec<Option<&str>> = chosen.iter().map(Option::as_deref).collect();
    // Many tokens are limited by products, in which it is 1.6 times faster; one token by reading, for
    // which four tokens in registers are no use.
    assert_eq!((chosen[63], chosen[0]), (Some(FAST), Some("1x1")));
    assert!(!chosen.contains(&Some(SLOW)), "{chosen:?}");
    assert!(bench.log.iter().any(|(_, _, s)| s.how.kernel == named(SLOW)));
    // Without it, the same search takes one of the family.
    let mut bench = Planted::new(&family(), machine);
    let matrix = search(&Scheduler::new(&problems, &[], 64), &mut bench);
    assert!(matrix.schedule(64).is_some_and(|s| family().iter().any(|k| k.kernel == s.how.kernel)));
}

#[test]
fn schedules_are_not_timed_twice_but_for_the_finals() {
    let problems = [problem(1, 64, 8, &[1, 2])];
    let mut bench = Planted::new(&family(), machine);
    let scheduler = Scheduler { stable: 0, ..Scheduler::new(&problems, &[], 24) };
    let matrix = search(&scheduler, &mut bench);
    for compared in matrix.compared() {
        let at: Vec<_> = bench.log.iter().filter(|(_, t, _)| *t == compared.tokens).collect();
        #[allow(
            clippy::mutable_key_type,
            reason = "kernels are ordered by names, which do not change"
        )]
        let distinct: BTreeSet<_> = at.iter().map(|(_, _, schedule)| schedule).collect();
        // Once more the default, and five times each of the two in the finals.
        let finals = if compared.repetitions == 5 { 10 } else { 0 };
        assert_eq!(at.len(), distinct.len() + 1 + finals, "{compared:?}");
    }
}

/// With little time the products on which a trace spends most are looked at first.
#[test]
fn short_time_goes_to_what_matters_most() {
    let often = Problem { calls: 30, ..problem(2, 64, 8, &[1, 2]) };
    let problems = [problem(1, 64, 8, &[1, 2]), often];
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
