//! `plan --scaling`: speed by threads as measured here, the share of it that is serial by Amdahl's law, and what a
//! further core brings.
//!
//! A number of threads is loaded on the fewest memory nodes that have as many cores. All numbers are loaded in turns, there
//! and back; speedups are of the same turn, and every figure has its spread.

use super::args::PlanArgs;
use crate::args::List;
use crate::bench::measure::{Bench, Test};
use crate::error::Error;
use crate::load;
use crate::model_info::ModelInfo;
use crate::output::{Output, figure};
use crate::report::Look;
use crate::spread::{Spread, told_apart};
use crate::term;
use crate::wrap::wrap;
use arclight_engine::LoadOptions;
use serde::Serialize;
use std::io::Write;
use topology::{Layout, Machine, NodeList, layout};
use tune::Amdahl;
use tune::tuner::median;

/// Tokens that are decoded.
const TOKENS: usize = 32;
/// Turns of all numbers of threads: the fewest with which anything can be told apart.
const TURNS: usize = 5;

/// A number of threads, the nodes that it is on, and its tokens a second in each turn.
type Speeds = (usize, usize, Vec<f64>);

/// A number of threads.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Row {
    phase: &'static str,
    threads: usize,
    nodes: usize,
    /// Tokens a second, the median of all turns.
    tokens_per_second: f64,
    /// Over one thread, the median of all turns.
    speedup: f64,
    speedup_spread: Spread,
    /// What the fitted law says.
    fitted_speedup: Option<f64>,
    /// Tokens/s that each core has brought since the row before.
    per_core: Option<f64>,
    per_core_spread: Option<Spread>,
}

/// Prompt or decoding.
#[derive(Clone, Debug, Serialize)]
struct Phase {
    phase: &'static str,
    what: String,
    serial_share: Option<f64>,
    /// The share by single turns.
    serial_spread: Option<Spread>,
    most_speedup: Option<f64>,
    fastest_threads: usize,
    /// Numbers of threads that are not told apart from the fastest.
    as_fast: Vec<usize>,
    /// What one core more than the most that were measured brings, by the law: a share of the speed.
    next_core: Option<f64>,
    #[serde(skip)]
    rows: Vec<Row>,
}

impl Phase {
    /// Of speeds by threads, ascending, the first of one thread.
    fn of(phase: &'static str, what: String, speeds: &[Speeds]) -> Phase {
        let one = &speeds[0].2;
        let fit = |speed: &dyn Fn(&[f64]) -> f64| {
            Amdahl::fit(speeds.iter().map(|(n, _, all)| (*n, speed(all) / speed(one))))
        };
        let law = fit(&|all| median(all));
        let turns: Option<Vec<f64>> =
            (0..one.len()).map(|turn| Some(fit(&|all| all[turn])?.serial)).collect();
        let row = |(i, (threads, nodes, all)): (usize, &Speeds)| {
            let speedup = Spread::of_ratios(all, one);
            let per_core = (i > 0).then(|| {
                let (before, _, slower) = &speeds[i - 1];
                let more = |(fast, slow): (&f64, &f64)| (fast - slow) / (threads - before) as f64;
                Spread::of(&all.iter().zip(slower).map(more).collect::<Vec<_>>())
            });
            Row {
                phase,
                threads: *threads,
                nodes: *nodes,
                tokens_per_second: median(all),
                speedup: speedup.median,
                speedup_spread: speedup,
                fitted_speedup: law.map(|law| law.speedup(*threads)),
                per_core: per_core.map(|spread| spread.median),
                per_core_spread: per_core,
            }
        };
        let by_speed = |a: &&Speeds, b: &&Speeds| median(&a.2).total_cmp(&median(&b.2));
        let (fastest, _, best) = speeds.iter().max_by(by_speed).expect("there is one");
        let others = speeds.iter().filter(|(n, _, all)| n != fastest && !told_apart(all, best));
        let most = speeds[speeds.len() - 1].0;
        Phase {
            phase,
            what,
            serial_share: law.map(|law| law.serial),
            serial_spread: turns.map(|turns| Spread::of(&turns)),
            most_speedup: law.and_then(|law| law.most()),
            fastest_threads: *fastest,
            as_fast: others.map(|(n, ..)| *n).collect(),
            next_core: law.map(|law| law.speedup(most + 1) / law.speedup(most) - 1.0),
            rows: speeds.iter().enumerate().map(row).collect(),
        }
    }

    /// The answer in words.
    fn words(&self) -> String {
        let (Some(serial), Some(spread), Some(next)) =
            (self.serial_share, self.serial_spread, self.next_core)
        else {
            return "one thread only: there is nothing to fit".to_owned();
        };
        let most = self.rows[self.rows.len() - 1].threads;
        let limit = match self.most_speedup {
            Some(most) => format!("so {most:.1} times one thread at most"),
            None => "so no limit by it".to_owned(),
        };
        let alike: Vec<String> = self.as_fast.iter().map(usize::to_string).collect();
        let alike = match alike.is_empty() {
            true => String::new(),
            false => format!(", not told apart from {}", alike.join(", ")),
        };
        format!(
            "{:.1} % ({:.1}-{:.1} %) is serial by Amdahl's law, {limit}; fastest with {}{alike}; by the law a core beyond \
             {most} brings {:+.1} %",
            100.0 * serial,
            100.0 * spread.low,
            100.0 * spread.high,
            term::plural(self.fastest_threads, "thread"),
            100.0 * next,
        )
    }
}

/// Runs the command.
pub(super) fn run(args: &PlanArgs, out: &mut Output) -> Result<(), Error> {
    let file = args.model.open()?;
    let tests =
        [Test::decode(TOKENS, args.context, args.batch), Test::prompt(args.prompt, args.context)];
    let context = tests.iter().map(Test::context).max().expect("two tests");
    let trained = load::hparams(&file)?.context;
    if context > trained {
        return Err(Error::Usage(format!(
            "{context} tokens are needed, but the model was trained for {trained}: use a smaller -p or -c"
        )));
    }
    let machine = Machine::read()?;
    let all = layout(&machine, None, None)?;
    let counts = counts(args.threads.as_ref(), all.threads());
    let bar = term::count_bar("testing", TURNS * counts.len() * tests.len() * 2);
    let look = Look::of_machine();
    let of = |&threads: &usize| (threads, holding(&all, threads), Vec::new());
    let mut speeds: [Vec<Speeds>; 2] = std::array::from_fn(|_| counts.iter().map(of).collect());
    for turn in 0..TURNS {
        for at in 0..counts.len() {
            let at = if turn % 2 == 1 { counts.len() - 1 - at } else { at };
            let (threads, nodes, _) = speeds[0][at];
            let options = LoadOptions {
                threads: Some(threads),
                on_nodes: node_list(&all, nodes),
                kv: args.kv.types(),
                context: Some(context),
                sequences: Some(args.batch),
                ..LoadOptions::default()
            };
            let engine = load::load_engine(&file, &options)?;
            let mut bench = Bench::new(engine, &machine, &tests, false)?;
            let measured = bench.measure(&tests, 1, None, &mut |test| {
                bar.set_message(test.to_string());
                bar.inc(1);
            })?;
            for ((test, measured), speeds) in tests.iter().zip(measured).zip(&mut speeds) {
                let rates = measured.seconds.iter().map(|seconds| test.total() as f64 / seconds);
                speeds[at].2.extend(rates);
            }
        }
    }
    bar.finish_and_clear();
    let causes = look.causes_in(&machine);
    let [decode, prompt] = speeds;
    let phases = [
        Phase::of("decode", format!("decoding {TOKENS} tokens after {}", args.context), &decode),
        Phase::of("prompt", format!("prompt of {} after {}", args.prompt, args.context), &prompt),
    ];
    let info = ModelInfo::of(&file.gguf()?);
    let model = format!("{} {}", info.name, info.ty);
    let rows: Vec<&Row> = phases.iter().flat_map(|phase| &phase.rows).collect();
    let data = serde_json::json!({
        "machine": machine.model(),
        "model": model,
        "repetitions": TURNS,
        "batch": args.batch,
        "causes": causes,
        "phases": phases,
        "rows": rows,
    });
    if out.data(&data, &["/rows"])? {
        return Ok(());
    }
    writeln!(out, "machine  {}", machine.model().unwrap_or("unknown CPU"))?;
    writeln!(out, "model    {model}, medians of {TURNS} repetitions in turns (least-greatest)")?;
    phases.iter().try_for_each(|phase| print(out, phase))?;
    writeln!(out, "\nThe law knows no bandwidth: where memory is full, that counts as serial.")?;
    for line in causes.iter().flat_map(|cause| wrap(&cause.to_string())) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn print(out: &mut Output, phase: &Phase) -> Result<(), Error> {
    writeln!(out, "\n{}", phase.what)?;
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "–".to_owned());
    out.table(phase.rows.iter().map(|row| {
        [
            figure("threads", 7, row.threads),
            figure("nodes", 5, row.nodes),
            figure("tokens/s", 9, term::rate(row.tokens_per_second)),
            figure("speedup", 16, row.speedup_spread),
            figure("by the law", 10, or_dash(row.fitted_speedup.map(|s| format!("{s:.2}")))),
            figure(
                "tokens/s per core added",
                23,
                or_dash(row.per_core_spread.map(|s| format!("{s:+.2}"))),
            ),
        ]
    }))?;
    for line in wrap(&phase.words()) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Numbers of threads: those that were asked for and one, or 1, 2, 4, ... and all.
fn counts(asked: Option<&List>, all: usize) -> Vec<usize> {
    let mut counts = match asked {
        Some(List(asked)) => asked.clone(),
        None => std::iter::successors(Some(1), |n| Some(2 * n)).take_while(|&n| n < all).collect(),
    };
    if asked.is_none() {
        counts.push(all);
    }
    counts.push(1);
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// The fewest nodes with as many cores, the first of them; all where there are too few.
fn holding(all: &Layout, threads: usize) -> usize {
    let mut held = 0;
    let enough = all.groups.iter().position(|group| {
        held += group.cpus.len();
        held >= threads
    });
    enough.map_or(all.groups.len(), |last| last + 1)
}

/// The first nodes by their ids; none where the machine has no ids, or all are used.
fn node_list(all: &Layout, nodes: usize) -> Option<NodeList> {
    let ids: Option<NodeList> = all.groups.iter().take(nodes).map(|group| group.node).collect();
    ids.filter(|_| nodes < all.groups.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::fake::FakeMachine;

    #[test]
    fn threads_double_up_to_all_and_begin_with_one() {
        assert_eq!(counts(None, 48), [1, 2, 4, 8, 16, 32, 48]);
        assert_eq!(counts(None, 1), [1]);
        assert_eq!(counts(Some(&List(vec![8, 4, 8])), 48), [1, 4, 8]);
    }

    #[test]
    fn few_threads_stay_on_few_nodes() {
        let machine = FakeMachine::uniform(4, 8).machine().unwrap();
        let all = layout(&machine, None, None).unwrap();
        let nodes = |threads| holding(&all, threads);
        assert_eq!([1, 8, 9, 16, 32, 40].map(nodes), [1, 1, 2, 2, 4, 4]);
        assert_eq!(node_list(&all, 2).map(|list| list.to_string()).as_deref(), Some("0-1"));
        assert_eq!(node_list(&all, 4), None);
    }

    #[test]
    fn what_was_measured_is_put_in_words() {
        // A tenth of the time is serial.
        let law = Amdahl { serial: 0.1 };
        let speeds = |spread: f64| {
            [1, 2, 4].map(|n| {
                let turn = |i: i32| 10.0 * law.speedup(n) * (1.0 + spread * f64::from(i - 2));
                (n, 1, (0..5).map(turn).collect::<Vec<f64>>())
            })
        };
        let quiet = speeds(0.01);
        let speeds = &quiet;
        let phase = Phase::of("decode", "decoding".to_owned(), speeds);
        assert!((phase.serial_share.unwrap() - 0.1).abs() < 1e-9);
        // From 30.8 to 18.2 by two cores.
        let per_core = phase.rows[2].per_core_spread.unwrap();
        assert!((per_core.median - 6.29).abs() < 0.01, "{phase:?}");
        assert!(per_core.low < per_core.median && per_core.median < per_core.high, "{phase:?}");
        assert_eq!((phase.rows[0].per_core, phase.fastest_threads), (None, 4));
        assert_eq!(phase.as_fast, [0; 0]);
        let words = phase.words();
        assert!(
            words.starts_with("10.0 % (10.0-10.0 %) is serial by Amdahl's law, so 10.0 times one"),
            "{words}"
        );
        assert!(
            words.ends_with("fastest with 4 threads; by the law a core beyond 4 brings +16.1 %"),
            "{words}"
        );

        // Where all is noise, no number of threads is the fastest.
        let noise = [1, 2].map(|n| (n, 1, vec![5.0, 4.0, 6.0, 5.5, 4.5 + 0.1 * n as f64]));
        let noise = Phase::of("decode", String::new(), &noise);
        let spread = noise.serial_spread.unwrap();
        assert!(spread.low < spread.high, "{noise:?}");
        assert_eq!(noise.as_fast.len(), 1);
        assert!(noise.words().contains(", not told apart from "), "{}", noise.words());

        let one = Phase::of("decode", String::new(), &[(1, 1, vec![5.0; 5])]);
        assert_eq!((one.serial_share, one.next_core), (None, None));
        assert!(one.words().contains("nothing to fit"));
    }
}
