//! The plot of a benchmark, as SVG: how times are distributed in each run, and how many requests meet
//! their objective.
//!
//! Distributions are of all requests that ended: where requests failed, a curve ends below 100 %.

pub mod drawing;

use crate::record::{Outcome, Record};
use crate::report::{Level, Report};
use crate::run::Load;
use crate::stats::sorted;
use drawing::{Anchor, Axis, COLOURS, Drawing, INK, Panel, Pen, flow, number};

const WIDTH: f64 = 976.0;
const MARGIN: f64 = 14.0;
/// Between panels, with room for the numbers of the right one.
const GAP: f64 = 46.0;
/// Left of the first panel.
const LEFT: f64 = 44.0;
const PANEL: f64 = 200.0;
/// Above a panel, for its title; below, for its axis.
const ABOVE: f64 = 34.0;
const BELOW: f64 = 46.0;
/// Where the first line of the legend stands.
const LEGEND: f64 = 66.0;
const LEGEND_LINE: f64 = 20.0;
/// A curve of more samples is drawn through so many.
const MOST_POINTS: usize = 100;

/// Draws a report.
pub fn svg(report: &Report) -> String {
    let head = &report.head;
    let model = head.model.as_deref().unwrap_or("a model");
    let title = format!("{model} at {}/{}", head.url, head.endpoint);
    let legend = Legend::of(&report.levels);
    let rows = if report.slo.is_some() { 2.0 } else { 1.0 };
    let top = LEGEND - 12.0 + legend.height();
    let height = top + rows * (ABOVE + PANEL + BELOW) + 8.0;
    let mut page = Drawing::new(WIDTH, height, &title);
    page.bold((MARGIN, 24.0), 15.0, Anchor::Start, &shortened(&title, 110));
    page.text((MARGIN, 43.0), 12.0, Anchor::Start, &shortened(&head.workload, 150));
    legend.draw(&mut page, report);

    let widths = |n: f64| (WIDTH - LEFT - MARGIN - (n - 1.0) * GAP) / n;
    let panel = |row: f64, i: f64, n: f64| Panel {
        left: LEFT + i * (widths(n) + GAP),
        top: top + row * (ABOVE + PANEL + BELOW) + ABOVE,
        width: widths(n),
        height: PANEL,
    };
    type Time = fn(&Record) -> Option<f64>;
    let bound = |of: fn(&crate::Slo) -> f64| report.slo.as_ref().map(of);
    let times: [(&str, Time, Option<f64>); 3] = [
        ("time to first token", Record::ttft, bound(|slo| slo.ttft)),
        ("time per output token", Record::tpot, bound(|slo| slo.tpot)),
        ("end to end", Record::e2e, None),
    ];
    for (i, (name, time, bound)) in times.into_iter().enumerate() {
        distribution(&mut page, panel(0.0, i as f64, 3.0), report, name, time, bound);
    }
    if let Some(slo) = &report.slo {
        by_scale(&mut page, panel(1.0, 0.0, 2.0), report, slo);
        let by_rate = report.levels.iter().filter(|l| matches!(l.load, Load::Open(_))).count() > 1;
        if by_rate {
            by_rates(&mut page, panel(1.0, 1.0, 2.0), report, slo);
        }
    }
    page.end()
}

fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The look of the i-th of n runs: cold for the first, hot for the last; dashed where colours repeat.
fn pen(i: usize, n: usize) -> Pen<'static> {
    let colours = COLOURS.len();
    let place = if n <= colours { i * (colours - 1) / n.saturating_sub(1).max(1) } else { i };
    let dashes = ["", "6 3", "2 2"][(place / colours).min(2)];
    Pen { colour: COLOURS[place % colours], width: 1.8, opacity: 1.0, dashes }
}

/// The names of the runs, in lines.
struct Legend(Vec<(f64, f64, String)>);

impl Legend {
    fn of(levels: &[Level]) -> Legend {
        let words: Vec<String> = levels.iter().map(|level| level.load.to_string()).collect();
        let widths = words.iter().map(|words| 26.0 + 7.0 * words.chars().count() as f64 + 16.0);
        let places = flow(widths, (MARGIN, WIDTH - MARGIN), LEGEND_LINE);
        Legend(places.into_iter().zip(words).map(|((x, y), w)| (x, LEGEND + y, w)).collect())
    }

    fn height(&self) -> f64 {
        self.0.last().map_or(0.0, |(_, y, _)| y - LEGEND + LEGEND_LINE)
    }

    fn draw(&self, page: &mut Drawing, report: &Report) {
        let n = report.levels.len();
        for (i, (x, y, words)) in self.0.iter().enumerate() {
            let look = pen(i, n);
            page.line(&[(*x, y - 4.0), (x + 20.0, y - 4.0)], Pen { width: 2.6, ..look });
            page.coloured((x + 26.0, *y), 12.0, look.colour, words);
        }
    }
}

/// The frame of shares.
fn frame(page: &mut Drawing, panel: Panel, title: &str, (axis, factor): (Axis, f64), unit: &str) {
    let percent = |of: u8| (f64::from(of) / 100.0, format!("{of} %"));
    panel.frame(page, title, (&[0, 25, 50, 75, 100].map(percent), &axis.marks(factor)), unit);
}

impl Panel {
    /// A curve of ascending values, of which there are `of` with those that are missing at the end.
    fn steps(self, page: &mut Drawing, axis: Axis, values: &[f64], of: usize, pen: Pen<'_>) {
        let mut points = Vec::new();
        let every = values.len().div_ceil(MOST_POINTS).max(1);
        let mut share = 0.0;
        for (i, &value) in values.iter().enumerate() {
            // The last is always drawn.
            if i % every == 0 || i + 1 == values.len() {
                let x = self.x(axis.at(value));
                points.push((x, self.y(share)));
                share = (i + 1) as f64 / of as f64;
                points.push((x, self.y(share)));
            }
        }
        if let Some(&(x, y)) = points.last() {
            let end = self.left + self.width;
            if x < end {
                points.push((end, y));
            }
        }
        page.line(&points, pen);
    }

    /// An upright mark.
    fn bound(self, page: &mut Drawing, x: f64, words: String) {
        page.line(&[(x, self.top), (x, self.top + self.height)], Pen::BOUND);
        if !words.is_empty() {
            page.text((x, self.top - 3.0), 10.0, Anchor::Middle, &words);
        }
    }

    /// A level mark.
    fn target(self, page: &mut Drawing, share: f64) {
        let y = self.y(share);
        page.line(&[(self.left, y), (self.left + self.width, y)], Pen::BOUND);
    }
}

/// How a time is distributed, a curve per run, with the bounds on it.
fn distribution(
    page: &mut Drawing,
    panel: Panel,
    report: &Report,
    name: &str,
    time: fn(&Record) -> Option<f64>,
    bound: Option<f64>,
) {
    // Ascending times of a run, and how many there would be had none failed.
    let curve = |level: &Level| {
        let done = level.requests.iter().filter(|r| r.is_done());
        let values = sorted(done.filter_map(time));
        let failed =
            level.requests.iter().filter(|r| matches!(r.outcome, Outcome::Failed(_))).count();
        let of = values.len() + failed;
        (values, of)
    };
    let curves: Vec<(Vec<f64>, usize)> = report.levels.iter().map(curve).collect();
    let bounds: Vec<(f64, f64)> =
        bound.iter().flat_map(|b| report.scales.iter().map(move |&s| (s, b * s))).collect();
    let all = curves.iter().flat_map(|(values, _)| values.iter().copied());
    let axis = Axis::of(all.chain(bounds.iter().map(|b| b.1)));
    let (unit, factor) = if axis.high < 10.0 { ("ms", 1e3) } else { ("s", 1.0) };
    frame(page, panel, name, (axis, factor), unit);
    let mut named: Vec<f64> = Vec::new();
    let first = |&(scale, _): &(f64, f64)| scale != 1.0;
    let (others, own): (Vec<_>, Vec<_>) = bounds.into_iter().partition(first);
    for (scale, bound) in own.into_iter().chain(others) {
        let x = panel.x(axis.at(bound));
        // Names that would cover others are left out: the bounds as they are come first.
        let free = named.iter().all(|other| (x - other).abs() > 40.0);
        panel.bound(page, x, if free { times(scale) } else { String::new() });
        named.push(x);
    }
    for (i, (values, of)) in curves.iter().enumerate() {
        panel.steps(page, axis, values, *of, pen(i, curves.len()));
    }
}

/// A scale, as in `× 0.5`; nothing for the bounds as they are.
fn times(scale: f64) -> String {
    if scale == 1.0 { "SLO".to_owned() } else { format!("× {}", number(scale)) }
}

/// The share that meets the objective, over what its bounds are multiplied by.
fn by_scale(page: &mut Drawing, panel: Panel, report: &Report, slo: &crate::Slo) {
    let curves: Vec<Vec<f64>> = report.levels.iter().map(|l| slo.scales(&l.requests)).collect();
    let all = curves.iter().flatten().copied().chain(report.scales.iter().copied());
    let axis = Axis::of(all);
    let title = "requests that meet both bounds, by SLO scale";
    frame(page, panel, title, (axis, 1.0), "scale of both bounds");
    for &scale in &report.scales {
        panel.bound(page, panel.x(axis.at(scale)), String::new());
    }
    panel.target(page, slo.target);
    for (i, scales) in curves.iter().enumerate() {
        let met = scales.partition_point(|s| s.is_finite());
        panel.steps(page, axis, &scales[..met], scales.len(), pen(i, curves.len()));
    }
}

/// The share that meets the objective over the rate, a line per scale.
fn by_rates(page: &mut Drawing, panel: Panel, report: &Report, slo: &crate::Slo) {
    let mut panel = panel;
    panel.width -= 30.0; // the lines' names
    let rate = |level: &Level| match level.load {
        Load::Open(arrivals) => Some(arrivals.rate()),
        Load::Closed(_) => None,
    };
    let rates: Vec<f64> = report.levels.iter().filter_map(rate).collect();
    let axis = Axis::of(rates.iter().copied());
    let title = "requests that meet both bounds, by rate";
    frame(page, panel, title, (axis, 1.0), "requests per second");
    panel.target(page, slo.target);
    let mut names: Vec<(f64, String)> = Vec::new();
    for (i, &scale) in report.scales.iter().enumerate() {
        let point = |level: &Level| Some((rate(level)?, level.attainment.get(i)?.both));
        let mut points: Vec<(f64, f64)> = report.levels.iter().filter_map(point).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let places: Vec<(f64, f64)> =
            points.iter().map(|&(rate, share)| (panel.x(axis.at(rate)), panel.y(share))).collect();
        let opacity = if scale == 1.0 { 1.0 } else { 0.65 };
        page.line(&places, Pen { colour: INK, width: 1.6, opacity, dashes: "" });
        if let Some(&(_, y)) = places.last() {
            names.push((y, times(scale)));
        }
    }
    // Each dot in the colour of its run, over the lines.
    for (i, level) in report.levels.iter().enumerate() {
        let Some(rate) = rate(level) else { continue };
        let colour = pen(i, report.levels.len()).colour;
        for attainment in &level.attainment {
            page.dot((panel.x(axis.at(rate)), panel.y(attainment.both)), colour);
        }
    }
    // From the lowest upwards, so that none lies below the axis or on another.
    names.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut free = panel.top + PANEL;
    for (y, words) in names {
        let y = y.min(free);
        free = y - 12.0;
        page.text((panel.left + panel.width + 8.0, y + 4.0), 10.5, Anchor::Start, &words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrivals::Arrivals;
    use crate::record::Reason;
    use crate::record::tests::{done, failed};
    use crate::report::tests::head;
    use crate::run::Run;
    use crate::slo::Slo;

    fn report(rates: &[f64], slo: bool) -> Report {
        let slo = slo.then(|| Slo::new(200.0, 20.0, 90.0).unwrap());
        let scales = if slo.is_some() { vec![0.5, 1.0] } else { vec![] };
        let mut report = Report::new(head(), slo, scales);
        for &rate in rates {
            let request = |i: u32| {
                let first = 0.01 * rate * f64::from(i + 1);
                done(0.0, 0.0, &[first, first + 0.01])
            };
            report.add(Run {
                load: Load::Open(Arrivals::new(rate, 1.0).unwrap()),
                records: (0..9).map(request).chain([failed(0.0, Reason::Timeout)]).collect(),
                intruders: vec![],
                planned: 10,
                seconds: 1.0,
                interrupted: false,
            });
        }
        report
    }

    fn paths(svg: &str) -> usize {
        svg.matches("<path").count()
    }

    #[test]
    fn every_run_has_its_curves() {
        // Of each run beyond the first: a line in the legend and three curves, whatever the axes.
        let colours = |svg: &str, i, n| svg.matches(pen(i, n).colour).count();
        let svg = svg(&report(&[1.0, 2.0], true));
        for i in 0..2 {
            // Legend: line and words; three distributions, one curve by scale; two dots by rate.
            assert_eq!(colours(&svg, i, 2), 2 + 3 + 1 + 2, "{svg}");
        }
        for words in ["1/s", "2/s", "SLO", "× 0.5", "by rate", "by SLO scale", "end to end"] {
            assert!(svg.contains(words), "{words}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn what_was_not_measured_is_not_drawn() {
        let without = svg(&report(&[1.0, 2.0], false));
        assert!(!without.contains("SLO") && !without.contains("by rate"));
        let single = svg(&report(&[1.0], true));
        assert!(single.contains("by SLO scale") && !single.contains("by rate"));
        let nothing = svg(&Report::new(head(), None, vec![]));
        assert!(paths(&nothing) > 0 && !nothing.contains("NaN"));
    }

    #[test]
    fn a_curve_ends_at_the_share_that_was_answered() {
        let panel = Panel { left: 0.0, top: 0.0, width: 100.0, height: PANEL };
        let axis = Axis { low: 0.0, high: 10.0, log: false };
        let mut page = Drawing::new(1.0, 1.0, "");
        panel.steps(&mut page, axis, &[2.0, 5.0], 4, pen(0, 1));
        let text = page.end();
        // Up to a quarter at 2, to a half at 5, and level from there.
        let path = "M20.0 200.0L20.0 150.0L50.0 150.0L50.0 100.0L100.0 100.0";
        assert!(text.contains(path), "{text}");
    }

    #[test]
    fn looks_are_told_apart() {
        for n in 1..=16 {
            let looks: std::collections::HashSet<_> =
                (0..n).map(|i| (pen(i, n).colour, pen(i, n).dashes)).collect();
            assert_eq!(looks.len(), n, "{n} runs");
        }
    }
}
