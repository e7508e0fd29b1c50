//! The answer as text.

use super::machine::Target;
use super::model::NamedModel;
use super::outcome::{Choice, Outcome, Row};
use crate::error::Error;
use crate::output::{Output, figure, words};
use crate::term;
use crate::wrap::wrap;
use std::io::Write;
use tune::Best;

/// Prints machine, model and notes.
pub(super) fn head(
    out: &mut Output,
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
        "model    {}: {} {} of weights and, after {}, {} of cache",
        model.name,
        match outcome.decode.sequences {
            1 => "a token reads".to_owned(),
            several => format!("tokens of {several} sequences read"),
        },
        term::size(weights as usize),
        outcome.decode.context,
        term::size(kv as usize)
    )?;
    for note in &target.notes {
        for (i, line) in wrap(note).iter().enumerate() {
            writeln!(out, "{:<8} {line}", if i == 0 { "note" } else { "" })?;
        }
    }
    Ok(())
}

/// Prints the fastest choices, and the speeds by threads.
pub(super) fn speeds(out: &mut Output, target: &Target, outcome: &Outcome) -> Result<(), Error> {
    let decoding = match outcome.decode.sequences {
        1 => format!("decoding after {}", outcome.decode.context),
        several => format!("decoding {several} sequences after {}", outcome.decode.context),
    };
    let prompt = format!("prompt of {} after {}", outcome.prompt.tokens, outcome.decode.context);
    best(out, target, outcome, &decoding, |choice| &choice.decode)?;
    best(out, target, outcome, &prompt, |choice| &choice.prompt)?;
    let both = match outcome.decode.sequences {
        1 => format!("{prompt} and answer of {}", outcome.answer),
        several => format!("{several} of: {prompt} and answer of {}", outcome.answer),
    };
    together(out, outcome, &both)?;
    by_threads(out, outcome, &decoding, |row| &row.decode)?;
    by_threads(out, outcome, &prompt, |row| &row.prompt)?;
    by_threads(out, outcome, &format!("{both}, S"), |row| &row.both)?;
    Ok(())
}

/// The fastest choice of each engine.
fn best(
    out: &mut Output,
    target: &Target,
    outcome: &Outcome,
    what: &str,
    of: impl Fn(&Choice) -> &Best,
) -> Result<(), Error> {
    writeln!(out, "\n{what}, with as many threads as are fastest")?;
    let rows = outcome.choices.iter().map(|choice| {
        let Best { threads, prediction } = of(choice);
        let share = |seconds: f64| format!("{:.0} %", 100.0 * seconds / prediction.seconds);
        [
            words("engine", 12, choice.arg.name()),
            figure("tokens/s", 9, term::rate(prediction.tokens_per_second())),
            figure("threads", 8, threads.iter().sum::<usize>()),
            figure("nodes", 6, threads.iter().filter(|&&n| n > 0).count()),
            figure("serial", 7, share(prediction.alone())),
            figure("waits", 6, share(prediction.waiting())),
            words("mostly limited by", 0, target.name_of(prediction.bottleneck)),
        ]
    });
    Ok(out.table(rows)?)
}

/// Prompt and answer of each engine.
fn together(out: &mut Output, outcome: &Outcome, what: &str) -> Result<(), Error> {
    writeln!(out, "\n{what}, each with as many threads as are fastest")?;
    let rows = outcome.choices.iter().map(|choice| {
        let threads = |best: &Best| best.threads.iter().sum::<usize>();
        [
            words("engine", 12, choice.arg.name()),
            figure("S, tokens/s", 11, term::rate(outcome.both(choice))),
            figure("prompt threads", 14, threads(&choice.prompt)),
            figure("answer threads", 14, threads(&choice.answer)),
        ]
    });
    Ok(out.table(rows)?)
}

/// Every engine by threads and nodes.
fn by_threads(
    out: &mut Output,
    outcome: &Outcome,
    what: &str,
    of: impl Fn(&Row) -> &[f64],
) -> Result<(), Error> {
    writeln!(out, "\n{what}, tokens/s by threads")?;
    let rows = outcome.rows.iter().map(|row| {
        let nodes = row.threads.iter().filter(|&&n| n > 0).count();
        let mut cells = vec![
            figure("threads", 7, row.threads.iter().sum::<usize>()),
            figure("nodes", 5, nodes),
        ];
        let speeds = outcome.choices.iter().zip(of(row));
        cells.extend(speeds.map(|(c, &speed)| figure(c.arg.name(), 13, term::rate(speed))));
        cells
    });
    Ok(out.table(rows)?)
}
