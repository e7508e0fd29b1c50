//! Tokens per second over threads, as SVG: decoding above, the prompt below, a panel for each number of
//! nodes, a curve for each engine.

use super::engines::EngineArg;
use super::machine::Target;
use super::model::NamedModel;
use super::outcome::{Choice, Outcome};
use crate::error::Error;
use crate::term;
use loadgen::plot::drawing::{Anchor, Axis, Drawing, Panel, Pen, flow};
use tune::{Job, threads_on};

const WIDTH: f64 = 1080.0;
const MARGIN: f64 = 16.0;
const LEFT: f64 = 56.0;
const GAP: f64 = 58.0;
const PANEL: f64 = 230.0;
/// Above a panel, for its title; below, for its axis.
const ABOVE: f64 = 36.0;
const BELOW: f64 = 50.0;
const LEGEND: f64 = 70.0;
const LEGEND_LINE: f64 = 20.0;
/// A curve is drawn through so many points at most.
const POINTS: usize = 48;

/// Draws the outcome.
pub(super) fn svg(target: &Target, model: &NamedModel, outcome: &Outcome) -> Result<String, Error> {
    let title = format!("{} on {}", model.name, target.title);
    let name = |choice: &Choice| 33.0 + 6.6 * choice.arg.title().chars().count() as f64 + 18.0;
    let names = flow(outcome.choices.iter().map(name), (MARGIN, WIDTH), LEGEND_LINE);
    let top = LEGEND + names.last().map_or(0.0, |(_, y)| *y) + LEGEND_LINE - 12.0;
    let height = top + 2.0 * (ABOVE + PANEL + BELOW) + 4.0;
    let mut page = Drawing::new(WIDTH, height, &title);
    page.bold((MARGIN, 26.0), 15.0, Anchor::Start, &title);
    let words = format!(
        "tokens/s over threads as the model of time predicts them: decoding, and a prompt of {}, \
         both after {}",
        outcome.prompt.tokens,
        term::plural(outcome.decode.context, "token")
    );
    page.text((MARGIN, 46.0), 12.0, Anchor::Start, &words);
    for ((x, y), choice) in names.into_iter().zip(&outcome.choices) {
        let y = LEGEND + y;
        let pen = pen(choice.arg);
        page.line(&[(x, y - 4.0), (x + 26.0, y - 4.0)], Pen { width: 2.8, ..pen });
        page.text((x + 33.0, y), 12.0, Anchor::Start, choice.arg.title());
    }
    let all = target.model.nodes();
    let mut counts: Vec<usize> = (0..).map(|i| 1 << i).take_while(|&n| n < all).collect();
    counts.push(all);
    // The widest machines have more powers than fit beside each other.
    let counts = &counts[counts.len().saturating_sub(4)..];
    let width = (WIDTH - LEFT - MARGIN - (counts.len() - 1) as f64 * GAP) / counts.len() as f64;
    for (row, (what, job)) in
        [("decoding", outcome.decode), ("prompt", outcome.prompt)].into_iter().enumerate()
    {
        for (column, &nodes) in counts.iter().enumerate() {
            let left = LEFT + column as f64 * (width + GAP);
            let top = top + row as f64 * (ABOVE + PANEL + BELOW) + ABOVE;
            let panel = Panel { left, top, width, height: PANEL };
            let subject = Subject { target, model, choices: &outcome.choices, what, job, nodes };
            draw(&mut page, panel, &subject)?;
        }
    }
    Ok(page.end())
}

/// The look of an engine's curve. Sync A is a dashed Sync B.
fn pen(arg: EngineArg) -> Pen<'static> {
    let (colour, dashes) = match arg {
        EngineArg::Unplaced => ("#D16914", ""),
        EngineArg::Interleaved => ("#8A8A12", ""),
        EngineArg::Replicated => ("#2F81C7", ""),
        EngineArg::TpA => ("#209660", "6 4"),
        EngineArg::TpB => ("#209660", ""),
        EngineArg::Pp => ("#1C93A6", "2 3"),
        EngineArg::NumaAware => ("#C2477F", ""),
        EngineArg::PaperA => ("#896CE2", "6 4"),
        EngineArg::PaperB => ("#896CE2", ""),
    };
    Pen { colour, width: 2.0, opacity: 1.0, dashes }
}

/// What a panel shows.
struct Subject<'a> {
    target: &'a Target,
    model: &'a NamedModel,
    choices: &'a [Choice],
    what: &'a str,
    job: Job,
    nodes: usize,
}

fn draw(page: &mut Drawing, panel: Panel, subject: &Subject<'_>) -> Result<(), Error> {
    let &Subject { target, model, choices, what, job, nodes } = subject;
    let widest = target.model.cores()[..nodes].iter().copied().max().unwrap_or(1);
    let step = widest.div_ceil(POINTS).max(1);
    let mut counts: Vec<usize> = (1..=widest).step_by(step).collect();
    if counts.last() != Some(&widest) {
        counts.push(widest);
    }
    let mut curves = Vec::new();
    for choice in choices {
        let point = |&per_node: &usize| {
            let threads = threads_on(&target.model, nodes, per_node);
            let prediction = job.predict(&target.model, &choice.engine, &model.model, &threads)?;
            Ok((threads.iter().sum::<usize>() as f64, prediction.tokens_per_second()))
        };
        let curve = counts.iter().map(point).collect::<Result<Vec<_>, tune::Error>>();
        curves.push(curve.map_err(Error::usage)?);
    }
    let most = |of: fn(&(f64, f64)) -> f64| curves.iter().flatten().map(of).fold(0.0, f64::max);
    let x = Axis { low: 0.0, high: most(|p| p.0), log: false };
    let y = Axis { low: 0.0, high: 1.05 * most(|p| p.1), log: false };
    let title = format!("{what}, {}", term::plural(nodes, "node"));
    panel.frame(page, &title, (&y.marks(1.0), &x.marks(1.0)), "threads");
    for (choice, curve) in choices.iter().zip(curves) {
        let at = |(a, b): (f64, f64)| (panel.x(x.at(a)), panel.y(y.at(b)));
        let places: Vec<(f64, f64)> = curve.into_iter().map(at).collect();
        page.line(&places, pen(choice.arg));
    }
    Ok(())
}
