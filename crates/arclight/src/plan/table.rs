//! The answer as text.

use super::machine::Target;
use super::model::NamedModel;
use super::outcome::{Choice, Outcome, Row};
use crate::error::Error;
use crate::report::wrap;
use crate::term;
use std::io::Write;
use tune::Best;

/// Prints everything.
pub(super) fn print(
    out: &mut impl Write,
    target: &Target,
    model: &NamedModel,
    outcome: &Outcome,
) -> Result<(), Error> {
    let cores: usize = target.model.cores().iter().sum();
    let (nodes, cores) = (term::plural(target.model.nodes(), "node"), term::plural(cores, "core"));
    writeln!(out, "machine  {}: {nodes}, {cores}", target.title)?;
    let (weights, kv) = outcome.bytes;
    writeln!(
        out,
        "model    {}: a token reads {} of weights and, after {}, {} of cache",
        model.name,
        term::size(weights as usize),
        outcome.decode.context,
        term::size(kv as usize)
    )?;
    for note in &target.notes {
        for (i, line) in wrap(note).iter().enumerate() {
            writeln!(out, "{:<8} {line}", if i == 0 { "note" } else { "" })?;
        }
    }
    if let Some(hand) = &target.at_hand {
        hand.print(out, target, model, outcome)?;
    }
    let decoding = format!("decoding after {}", outcome.decode.context);
    let prompt = format!("prompt of {} after {}", outcome.prompt.tokens, outcome.decode.context);
    best(out, target, outcome, &decoding, |choice| &choice.decode)?;
    best(out, target, outcome, &prompt, |choice| &choice.prompt)?;
    by_threads(out, outcome, &decoding, |row| &row.decode)?;
    by_threads(out, outcome, &prompt, |row| &row.prompt)?;
    Ok(())
}

/// The fastest choice of each engine.
fn best(
    out: &mut impl Write,
    target: &Target,
    outcome: &Outcome,
    what: &str,
    of: impl Fn(&Choice) -> &Best,
) -> Result<(), Error> {
    writeln!(out, "\n{what}, with as many threads as are fastest")?;
    writeln!(
        out,
        "  {:<12} {:>9} {:>8} {:>6} {:>7} {:>6}  mostly limited by",
        "engine", "tokens/s", "threads", "nodes", "serial", "waits"
    )?;
    for choice in &outcome.choices {
        let Best { threads, prediction } = of(choice);
        let share = |seconds: f64| format!("{:.0} %", 100.0 * seconds / prediction.seconds);
        writeln!(
            out,
            "  {:<12} {:>9} {:>8} {:>6} {:>7} {:>6}  {}",
            choice.arg.name(),
            term::rate(prediction.tokens_per_second()),
            threads.iter().sum::<usize>(),
            threads.iter().filter(|&&n| n > 0).count(),
            share(prediction.alone()),
            share(prediction.waiting()),
            target.name_of(prediction.bottleneck)
        )?;
    }
    Ok(())
}

/// Every engine by threads and nodes.
fn by_threads(
    out: &mut impl Write,
    outcome: &Outcome,
    what: &str,
    of: impl Fn(&Row) -> &[f64],
) -> Result<(), Error> {
    writeln!(out, "\n{what}, tokens/s by threads")?;
    write!(out, "  {:>7} {:>6}", "threads", "nodes")?;
    for choice in &outcome.choices {
        write!(out, "  {:>11}", choice.arg.name())?;
    }
    writeln!(out)?;
    for row in &outcome.rows {
        let nodes = row.threads.iter().filter(|&&n| n > 0).count();
        write!(out, "  {:>7} {nodes:>6}", row.threads.iter().sum::<usize>())?;
        for &speed in of(row) {
            write!(out, "  {:>11}", term::rate(speed))?;
        }
        writeln!(out)?;
    }
    Ok(())
}
