//! What a search found, for people and programs.

use super::args::TuneArgs;
use super::expected::Threads;
use super::tree::{self, Searching};
use crate::error::Error;
use crate::output::{Output, figure};
use crate::term::{self, note};
use arclight_engine::CpuList;
use kernels::{Foreign, MatKernel};
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;
use tune::schedule::TunedSchedules;
use tune::tuner::{Measured, Objective, Outcome, Profile};

/// What was found for so many replicas, and where it is kept.
pub(super) struct Kept {
    pub(super) replicas: usize,
    pub(super) profile: Profile,
    pub(super) path: PathBuf,
    /// Seconds that the trace takes, or joules.
    pub(super) trace: f64,
    /// How a whole search went.
    pub(super) searching: Option<Searching>,
    /// Threads for decoding as found, by default and by the model of time.
    pub(super) threads: Option<Threads>,
}

/// What was found, as data.
fn value(Kept { replicas, profile, path, trace, searching, threads }: &Kept) -> Value {
    let outcome = &profile.outcome;
    let kernel = |kernel: &&'static Foreign| {
        let (schedules, of) = won(&outcome.schedules, kernel);
        json!({
            "name": kernel.name(), "digest": kernel.digest(), "schedules": schedules, "of": of,
        })
    };
    let (per, total) = match profile.objective {
        Objective::Time => ("tokens_per_second", "trace_seconds"),
        Objective::Energy => ("tokens_per_joule", "trace_joules"),
    };
    let of = |m: &Measured| {
        json!({
            "tokens": m.tokens, "depth": m.depth, (format!("default_{per}")): m.before,
            (format!("tuned_{per}")): m.after,
        })
    };
    json!({
        "replicas": replicas, "profile": path, "complete": outcome.complete,
        "steps_timed": outcome.evaluations, "loads": outcome.loads, "seconds": profile.seconds,
        (total): trace, "decoding_threads": threads,
        "branches": searching.as_ref().map(|searching| &searching.trail.branches),
        "complexity": searching.as_ref().map(|searching| tree::complexity(&searching.space)),
        "results": outcome.measured.iter().map(of).collect::<Vec<_>>(),
        "kernels": outcome.schedules.foreign.iter().map(kernel).collect::<Vec<_>>(),
    })
}

/// How many schedules name a kernel from elsewhere, and how many there are.
fn won(schedules: &TunedSchedules, kernel: &'static Foreign) -> (usize, usize) {
    let rows = schedules.matrices.iter().flat_map(|matrix| matrix.rows());
    let all: Vec<_> = rows.filter_map(|row| row.schedule).collect();
    let own = Some(MatKernel::Foreign(kernel));
    (all.iter().filter(|schedule| schedule.how.kernel == own).count(), all.len())
}

/// What was found, for people.
pub(super) fn print(args: &TuneArgs, all: &[Kept]) -> Result<(), Error> {
    let mut out = Output::new(args.output);
    match all {
        [one] => _ = out.data(&value(one), &["/results"])?,
        _ => {
            let all: Vec<Value> = all.iter().map(value).collect();
            out.data(&json!({ "numbers": all }), &["/numbers"])?;
        }
    }
    for (at, Kept { replicas, profile, path, searching, threads, .. }) in all.iter().enumerate() {
        let outcome = &profile.outcome;
        if at > 0 {
            writeln!(out)?;
        }
        writeln!(out, "{} on {}", profile.model.words, profile.machine.words)?;
        if *replicas > 1 {
            writeln!(out, "of the first replica:")?;
        }
        if let Some(Searching { trail, space }) = searching.as_ref().filter(|_| args.tree) {
            writeln!(out, "{space}\n")?;
            out.table(tree::rows(trail))?;
            writeln!(out)?;
        }
        plan(&mut out, outcome)?;
        if !outcome.measured.is_empty() {
            writeln!(out)?;
        }
        speeds(&mut out, &outcome.measured, profile.objective)?;
        out.flush()?;
        threads.iter().for_each(|threads| note!("{}", threads.words()));
        for kernel in &outcome.schedules.foreign {
            let (rows, all) = won(&outcome.schedules, kernel);
            note!("kernel {}: in {rows} of {all} schedules", kernel.name());
        }
        let stopped = if outcome.complete { "" } else { ", stopped before its end" };
        note!(
            "{} timed in {}{stopped}; kept in {}",
            term::plural(outcome.evaluations, "step"),
            term::seconds(Duration::from_secs_f64(profile.seconds)),
            path.display()
        );
    }
    if let [_, _, ..] = all {
        writeln!(out)?;
        let row = |kept: &Kept| {
            [
                figure("replicas", 8, kept.replicas),
                figure("groups of each", 14, kept.profile.outcome.scheme.groups().len()),
                figure("seconds of the trace", 20, format_args!("{:.2}", kept.trace)),
                figure("ratio", 5, format_args!("{:.2}", all[0].trace / kept.trace)),
            ]
        };
        out.table(all.iter().map(row))?;
        out.flush()?;
        if let Some(best) = all.iter().min_by(|a, b| a.trace.total_cmp(&b.trace)) {
            note!(
                "fastest: serve --replicas {}, which uses what was found for that",
                best.replicas
            );
        }
    }
    Ok(())
}

/// The groups, and the threads by the tokens of a step.
pub(super) fn plan(out: &mut Output, outcome: &Outcome) -> Result<(), Error> {
    for (at, group) in outcome.scheme.groups().iter().enumerate() {
        let cpus: CpuList = group.cpus.iter().copied().collect();
        let node = group.node.map_or(String::new(), |node| format!(" on node {node}"));
        writeln!(out, "group {at}: cpus {cpus}{node}")?;
    }
    let mut from = 1;
    for row in outcome.table.rows() {
        let steps = match row.up_to {
            u32::MAX if from == 1 => "all steps".to_owned(),
            u32::MAX => format!("steps of {from} tokens and more"),
            1 => "steps of 1 token".to_owned(),
            up_to => format!("steps of {from} to {up_to} tokens"),
        };
        let parts: Vec<String> = row.level.cpus().iter().map(ToString::to_string).collect();
        writeln!(
            out,
            "{steps}: {} ({})",
            term::plural(row.level.threads(), "thread"),
            parts.join(" + ")
        )?;
        from = row.up_to.saturating_add(1);
    }
    Ok(())
}

/// Kinds of steps before and after.
pub(super) fn speeds(
    out: &mut Output,
    measured: &[Measured],
    objective: Objective,
) -> Result<(), Error> {
    let unit = objective.unit();
    let row = |&Measured { tokens, depth, before, after, .. }: &Measured| {
        [
            figure("tokens in a step", 16, tokens),
            figure("after", 5, depth),
            figure(format!("default, tokens/{unit}"), 17, term::rate(before)),
            figure(format!("tuned, tokens/{unit}"), 15, term::rate(after)),
            figure("ratio", 5, format_args!("{:.2}", after / before)),
        ]
    };
    out.table(measured.iter().map(row))?;
    Ok(())
}
