//! `arclight bench-serve`: how a server does under load, ours or any other that speaks OpenAI's API.
//!
//! All measuring is in the crate `loadgen`; here are the options and the tables.
//! `docs/serving-bench.md` says what the figures mean.

mod args;
mod table;

use crate::error::Error;
use crate::interrupt::{self, Answering};
use crate::output::Output;
use crate::replace;
use crate::term::{self, note};
pub(crate) use args::BenchServeArgs;
use args::Plan;
use loadgen::{Client, Dialect, Head, Level, Load, Report, Server, plot};
use std::path::Path;
use std::sync::Arc;

/// A generator that is later than this with every hundredth request is told of, in milliseconds.
const LATE_MS: f64 = 20.0;
/// Above this share of prompt tokens in the server's cache, times to first token are those of another
/// workload.
const CACHED: f64 = 0.05;

/// Runs the command.
pub(crate) fn run(args: &BenchServeArgs) -> Result<(), Error> {
    let plan = Plan::of(args)?;
    if let Some(file) = &args.plot {
        check_place(file)?;
    }
    let client = Client::new(&args.url, args.key().as_deref())?;
    interrupt::install();
    let mut out = Output::new(args.output);
    let report = loadgen::block_on(measure(args, &plan, client, &mut out))??;
    table::print_all(&report, &mut out)?;
    out.data(&report, &["/levels"])?;
    if let Some(path) = &args.plot {
        replace::bytes(path, plot::svg(&report).as_bytes()).map_err(|e| Error::write(path, e))?;
        note!("{} written", path.display());
    }
    match report.levels.iter().any(|level| level.interrupted) {
        true => Err(Error::Interrupted),
        false => Ok(()),
    }
}

async fn measure(
    args: &BenchServeArgs,
    plan: &Plan,
    client: Client,
    out: &mut Output,
) -> Result<Report, Error> {
    let asks = plan.workload.asks(plan.requests, args.requests.seed)?;
    let server = Arc::new(Server::find(client, args.options()).await?);
    let head = Head {
        schema: Head::SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        url: server.url(),
        endpoint: server.endpoint().to_string(),
        model: server.model().map(str::to_owned),
        counts_by: server.counts_by(),
        exact_length: server.dialect().exact_length,
        workload: plan.words.clone(),
        prefix: args.requests.prefix_len,
        seed: args.requests.seed,
    };
    tell(&server, args);
    if args.load.warmup > 0 {
        let some: Vec<_> = asks.iter().cycle().take(args.load.warmup).cloned().collect();
        if let Some(failure) = server.warm_up(&some, args.requests.seed).await {
            note!("a request to warm up has failed: {}: {}", failure.reason, failure.message);
        }
    }

    let mut report = Report::new(head, plan.slo, plan.scales.clone());
    table::print_head(&report.head, out)?;
    for (number, &load) in plan.loads.iter().enumerate() {
        // While prompts are made, too: what earlier runs have measured is not to be lost.
        let answering = Answering::begin();
        let numbered = (args.requests.seed, number);
        let prepared =
            server.prepare(load, &asks, args.requests.prefix_len, plan.intruder, numbered).await;
        let bar = term::count_bar(&load.to_string(), asks.len());
        let mut failed = 0;
        let mut progress = |record: &loadgen::Record| {
            failed += usize::from(matches!(record.outcome, loadgen::Outcome::Failed(_)));
            if failed > 0 {
                bar.set_message(format!("({failed} failed)"));
            }
            bar.inc(1);
        };
        let run = server.run(prepared, &mut progress, &|| answering.interrupted()).await?;
        bar.finish_and_clear();
        drop(answering);
        let level = report.add(run);
        table::print_level(level, out)?;
        warn(level, args.requests.prefix_len);
        if level.interrupted {
            break;
        }
    }
    Ok(report)
}

/// Says what the server does not know.
fn tell(server: &Server, args: &BenchServeArgs) {
    let Dialect { exact_length, usage } = server.dialect();
    if !exact_length && !args.server.allow_eos {
        note!("the server knows no ignore_eos: answers may be shorter than asked for");
    }
    if !usage {
        note!("the server counts no tokens: every event with text is taken for one");
    }
    match server.counts_by() {
        "usage" => note!("no /tokenize: prompts have the right length on average"),
        "guess" => note!("the server counts no prompts: every word is taken for a token"),
        _ => {}
    }
}

/// Says what makes figures doubtful.
fn warn(level: &Level, prefix: usize) {
    let figures = &level.figures;
    if level.interrupted {
        let seen = level.requests.len();
        note!("interrupted: {seen} of {} requests were sent", level.planned);
    }
    if let (Load::Open(_), Some(lag)) = (level.load, figures.lag_ms)
        && lag.p99 > LATE_MS
    {
        note!(
            "the generator was late by up to {:.0} ms: this machine is too busy to send at this \
             rate; figures from the scheduled arrival hold it against the server",
            lag.max
        );
    }
    if let Some(share) = figures.cached_share
        && share > CACHED
        && prefix == 0
    {
        note!(
            "{:.0} % of the prompt tokens were in the server's cache: has it seen this --seed before?",
            share * 100.0
        );
    }
}

/// Refuses a place for a file before anything is measured for it.
fn check_place(path: &Path) -> Result<(), Error> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
    if path.is_dir() {
        return Err(Error::Usage(format!("{} is a directory: name a file", path.display())));
    }
    match folder {
        Some(folder) if !folder.is_dir() => {
            let (path, folder) = (path.display(), folder.display());
            Err(Error::Usage(format!("{path}: there is no directory {folder}")))
        }
        _ => Ok(()),
    }
}
