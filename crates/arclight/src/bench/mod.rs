//! `arclight bench`: how fast a model is here, and how fast this machine could be.
//!
//! Like llama-bench: `pp` tests take a prompt, `tg` tests decode token by token, both after a given
//! number of tokens in the cache (depth). A test of both together, for one sequence too, has what llama-batched-bench
//! calls `S t/s`. Tokens are random, and nothing is sampled. Beside each
//! figure stands the machine's limit for the same work, from its memory bandwidth and multiply
//! peak as measured in the same run (see [`limits`]). Repetitions of different tests take turns,
//! so that a change of the machine's mood shows in all of them.

mod args;
mod guesses;
pub(crate) mod limits;
pub(crate) mod measure;
mod replicas;
mod report;
mod setup;

use self::measure::{Bench, Measured, Test};
use crate::error::Error;
use crate::load;
use crate::output::Output;
use crate::profile::{self, Recorder};
use crate::synth;
use crate::term::{self, note};
use crate::tune::apply;
use arclight_engine::Speculation;
pub(crate) use args::BenchArgs;
use args::{check, fitting, options, setups, tests};
use report::{Found, Report};
use std::io::Write;
use topology::Machine;

/// Runs the command.
pub(crate) fn run(args: &BenchArgs) -> Result<(), Error> {
    if args.limits {
        return limits::command::run(args);
    }
    let tests = tests(args)?;
    let speculation = args.speculate.speculation(args.model.offline)?;
    let file = match &args.synth {
        Some(model) => synth::in_memory(model, synth::DEFAULT_SEED)?,
        None => load::open(&args.model)?,
    };
    match speculation {
        Speculation::Off if args.text.is_some() => {
            let why = "--text is continued with guesses: say which with --speculate";
            return Err(Error::Usage(why.to_owned()));
        }
        Speculation::Off => {}
        speculation => return guesses::run(args, &file, &speculation),
    }
    let tests = fitting(&file, tests)?;
    let info = check(&file, &tests)?;
    let mut recorder = args.profile.as_deref().map(Recorder::create).transpose()?;
    let mut tables = Vec::new();
    let machine = Machine::read()?;
    let setups = setups(args);
    let bar = term::count_bar("testing", setups.len() * tests.len() * (args.repetitions + 1));
    let mut out = Output::new(args.output);
    let mut report = Report::new(info, &machine, args.repetitions);
    for threads in setups {
        let mut options = options(&tests, threads, args);
        args.lora.add(&file, &mut options)?;
        apply::apply(&file, &args.tuned, args.replicas.unwrap_or(1), &mut options)?;
        if let Some(replicas) = args.replicas {
            let told = |test: &Test| {
                bar.set_message(test.to_string());
                bar.inc(1);
            };
            for f in
                replicas::run(&file, &machine, replicas, &options, &tests, args.repetitions, &told)?
            {
                report.add(
                    &f.setup,
                    &f.test,
                    &f.seconds,
                    f.floor,
                    f.limits,
                    Found { causes: &f.causes, ..Found::default() },
                );
            }
            bar.suspend(|| report.print_new(&mut out))?;
            continue;
        }
        let engine = load::load_engine(&file, &options)?;
        let mut bench = Bench::new(engine, &machine, &tests, args.counters)?;
        if let Some(recorder) = &mut recorder {
            recorder.engine(bench.engine())?;
            profile::begin(bench.engine())?;
        }
        let setup = bench.setup();
        for depth in &args.depth.0 {
            let here: Vec<Test> = tests.iter().filter(|t| t.depth == *depth).copied().collect();
            let measured =
                bench.measure(&here, args.repetitions, recorder.as_mut(), &mut |test| {
                    bar.set_message(test.to_string());
                    bar.inc(1);
                })?;
            bench.probe_again(&here, &measured)?;
            let limits = bench.limits();
            let reports = args.report.then(|| bench.reports(&here, &measured));
            let mut reports = reports.into_iter().flatten();
            for (test, measured) in here.iter().zip(&measured) {
                let Measured { seconds, joules, .. } = measured;
                let (reads, report_of) = (bench.reads(measured), reports.next());
                let causes = bench.causes();
                let found = Found { causes, joules: *joules, reads, report: report_of };
                report.add(&setup, test, seconds, bench.floor(test), limits, found);
                if args.counters {
                    report.count(measured.figures(test, setup.threads));
                }
            }
            bar.suspend(|| report.print_new(&mut out))?;
        }
        tables.extend(recorder.iter().flat_map(|recorder| recorder.tables(&bench.limits())));
    }
    bar.finish_and_clear();
    report.finish(&mut out)?;
    if let Some(recorder) = recorder {
        for table in &tables {
            match args.output.format.is_data() {
                true => anstream::eprintln!("\n{table}"),
                false => writeln!(out).and_then(|()| out.block(table))?,
            }
        }
        note!("{}", recorder.finish()?);
    }
    Ok(())
}
