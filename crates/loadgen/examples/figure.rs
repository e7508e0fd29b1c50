//! Draws `docs/figures/serving-bench.svg`: what a plot of `arclight bench-serve` looks like, with the
//! times of a simulated server. It measures nothing.
//!
//! The server reads one prompt at a time, at a fixed speed; between prompts all its sequences, at most
//! eight, take a token together, in a time that grows with their number.

use arclight_loadgen::{
    Arrivals, Ask, Head, Lengths, Load, Outcome, Prompt, Record, Report, Run, Slo, Trace, Workload,
    plot,
};

/// Seconds per prompt token, per step, and per sequence in a step.
const READ: f64 = 1.0 / 2000.0;
const STEP: f64 = 0.012;
const SEQUENCE: f64 = 0.002;
const SLOTS: usize = 8;
const REQUESTS: usize = 300;
const SEED: u64 = 1;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let workload = Workload::Drawn {
        input: Lengths::Inputs(Trace::ShareGpt),
        output: Lengths::Outputs(Trace::ShareGpt),
        most_input: Some(1024),
        most_output: Some(256),
    };
    let asks = workload.asks(REQUESTS, SEED)?;
    let head = Head {
        schema: Head::SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        url: "http://localhost:8080".to_owned(),
        endpoint: "v1/completions".to_owned(),
        model: Some("a-simulation".to_owned()),
        counts_by: "guess",
        exact_length: true,
        workload: "prompts as in sharegpt up to 1024 tokens, answers up to 256; simulated"
            .to_owned(),
        prefix: 0,
        seed: SEED,
    };
    let slo = Slo::new(1000.0, 35.0, 90.0)?;
    let mut report = Report::new(head, Some(slo), vec![0.5, 1.0, 2.0]);
    for rate in [0.5, 1.0, 1.5, 2.0, 2.5, 3.0] {
        report.add(simulate(Arrivals::new(rate, 1.0)?, &asks));
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/figures/serving-bench.svg");
    std::fs::write(path, plot::svg(&report))?;
    Ok(())
}

/// What the server does with these requests.
fn simulate(arrivals: Arrivals, asks: &[Ask]) -> Run {
    let mut waiting = asks.iter().zip(arrivals.times(asks.len(), SEED)).enumerate().peekable();
    let (mut now, mut records) = (0.0, Vec::new());
    let mut running: Vec<(usize, Record)> = Vec::new();
    while waiting.peek().is_some() || !running.is_empty() {
        let next = waiting.peek().map_or(f64::INFINITY, |(_, (_, at))| at.as_secs_f64());
        if running.is_empty() {
            now = f64::max(now, next);
        }
        if next <= now && running.len() < SLOTS {
            let (id, (ask, at)) = waiting.next().expect("it was seen");
            let Prompt::Tokens(input) = ask.prompt else { unreachable!("lengths were drawn") };
            now += READ * input as f64;
            let mut record = record(id, at.as_secs_f64(), input, ask.output);
            record.tokens.push(now);
            running.push((ask.output - 1, record));
        } else {
            now += STEP + SEQUENCE * running.len() as f64;
            for (left, record) in running.iter_mut().filter(|(left, _)| *left > 0) {
                record.tokens.push(now);
                *left -= 1;
            }
        }
        for (_, mut record) in running.extract_if(.., |(left, _)| *left == 0) {
            record.end = now;
            records.push(record);
        }
    }
    records.sort_by_key(|record| record.id);
    let planned = records.len();
    let load = Load::Open(arrivals);
    Run { load, records, intruders: Vec::new(), planned, seconds: now, interrupted: false }
}

fn record(id: usize, at: f64, input: usize, output: usize) -> Record {
    Record {
        id,
        intruder: false,
        scheduled: at,
        sent: at,
        tokens: Vec::new(),
        end: at,
        input_asked: Some(input),
        output_asked: output,
        input: Some(input),
        cached: None,
        output: Some(output),
        outcome: Outcome::Done,
    }
}
