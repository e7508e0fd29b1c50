//! `arclight tune --compare`: what a profile's schedules are worth, product by product, measured again.
//!
//! Every product is timed without schedules, by the profile's, and by each micro-kernel of the family as
//! the only one, in turns. Ratios are of times in the same turn, which what disturbs the machine changes
//! least.

use super::matrices::Products;
use super::stored::{self, For};
use crate::error::Error;
use crate::load;
use crate::term;
use arclight_engine::{LoadOptions, ModelFile};
use std::io::Write;
use std::path::Path;
use topology::Machine;
use tune::schedule::{Bench, Problem, Schedule};
use tune::tuner::median;

/// Turns of all ways.
const TURNS: usize = 7;
/// Counts of tokens.
const TOKENS: [usize; 10] = [1, 2, 4, 8, 12, 16, 32, 64, 128, 512];

/// One product.
struct Row {
    tokens: usize,
    /// Seconds, by turn.
    default: Vec<f64>,
    tuned: Vec<f64>,
    /// Of the micro-kernel that is fastest as the only one.
    fixed: (String, Vec<f64>),
    /// Whether the profile has a schedule for it.
    scheduled: bool,
}

/// Compares, and prints a table for each matrix.
pub(super) fn run(file: &ModelFile, path: &Path, options: LoadOptions) -> Result<(), Error> {
    let machine = Machine::read()?;
    let profile = stored::read(path, true)?.expect("an error if there is none");
    let owner = For::of(&machine, &file.gguf()?)?;
    let applies = profile.applies(&owner.machine, &owner.model, &owner.program);
    applies.map_err(|stale| Error::Refused(format!("{}: {stale}", path.display())))?;
    let mut options = options;
    stored::put(&profile, &mut options);
    let mut engine = load::load_engine(file, &options)?;
    // The level of most threads: that of prompts.
    let level = engine.executor().plan().levels().len() - 1;
    let going = || false;
    let mut products = Products::of(&mut engine, level, &going)?;
    let mut out = std::io::stdout().lock();
    // Where the profile has a schedule; and elsewhere, where both are the same and differ by noise alone.
    let mut least = [f64::INFINITY; 2];
    let bar = term::count_bar("comparing", products.problems.len() * TOKENS.len());
    for problem in products.problems.clone() {
        let matrix = profile.outcome.schedules.matrices.iter().find(|m| problem.is(m));
        let mut rows = Vec::new();
        for tokens in TOKENS {
            bar.inc(1);
            if !products.has(&problem, tokens) {
                continue;
            }
            let schedule = matrix.and_then(|m| m.schedule(tokens));
            rows.push(row(&mut products, &problem, tokens, schedule)?);
        }
        writeln!(out, "\n{}\n", problem.name)?;
        writeln!(out, "| tokens | default, µs | tuned, µs | default/tuned | fixed/tuned |")?;
        writeln!(out, "|-------:|------------:|----------:|--------------:|------------:|")?;
        for Row { tokens, default, tuned, fixed, scheduled } in &rows {
            let (gain, low, high) = ratio(default, tuned);
            let of = usize::from(!scheduled);
            least[of] = least[of].min(gain);
            let (name, times) = fixed;
            let (of_fixed, ..) = ratio(times, tuned);
            let own = if *scheduled { "" } else { " (as default)" };
            writeln!(
                out,
                "| {tokens} | {:.0} | {:.0}{own} | {gain:.2} ({low:.2}-{high:.2}) | {of_fixed:.2} ({name}) |",
                1e6 * median(default),
                1e6 * median(tuned),
            )?;
        }
    }
    bar.finish_and_clear();
    let [tuned, alike] =
        least.map(|least| if least.is_finite() { format!("{least:.3}") } else { "-".into() });
    writeln!(
        out,
        "\nThe least of default/tuned is {tuned}; where both are alike, by noise, {alike}."
    )?;
    Ok(out.flush()?)
}

/// Times a product in all ways.
fn row(
    products: &mut Products<'_>,
    problem: &Problem,
    tokens: usize,
    schedule: Option<Schedule<String>>,
) -> Result<Row, Error> {
    let default = products.default(problem, tokens);
    let scheduled = schedule.is_some();
    let tuned = schedule.unwrap_or_else(|| default.clone());
    let mut ways = vec![default.clone(), tuned];
    // The first is the default's.
    let kernels = products.kernels(problem, tokens).into_iter().skip(1);
    ways.extend(kernels.map(|kernel| Schedule { kernel: kernel.id, ..default.clone() }));
    let mut times = vec![Vec::new(); ways.len()];
    for turn in 0..TURNS {
        for at in 0..ways.len() {
            // Every other turn backwards.
            let at = if turn % 2 == 0 { at } else { ways.len() - 1 - at };
            times[at].push(products.time(problem, tokens, &ways[at])?);
        }
    }
    let fixed = (2..ways.len()).min_by(|&a, &b| median(&times[a]).total_cmp(&median(&times[b])));
    let fixed = fixed.map_or_else(
        || (default.kernel.clone(), times[0].clone()),
        |at| (ways[at].kernel.clone(), times[at].clone()),
    );
    let mut times = times.into_iter();
    let (default, tuned) = (times.next().unwrap_or_default(), times.next().unwrap_or_default());
    Ok(Row { tokens, default, tuned, fixed, scheduled })
}

/// The median of the ratios of two series, the least and the greatest.
fn ratio(of: &[f64], to: &[f64]) -> (f64, f64, f64) {
    let ratios: Vec<f64> = of.iter().zip(to).map(|(of, to)| of / to).collect();
    let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    (median(&ratios), low, ratios.iter().copied().fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_the_same_turn() {
        assert_eq!(ratio(&[2.0, 9.0, 30.0], &[1.0, 3.0, 10.0]), (3.0, 2.0, 3.0));
    }
}
