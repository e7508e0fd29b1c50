//! What `bench-serve` prints.

use crate::error::Error;
use crate::output::{Output, figure, words};
use crate::term;
use loadgen::{Effect, Failures, Figures, Goodput, Head, Level, Load, Report, Slo, Summary};
use std::io::Write;

/// What was measured, and how.
pub(super) fn print_head(head: &Head, out: &mut Output) -> Result<(), Error> {
    let model = head.model.as_deref().unwrap_or("a model without a name");
    writeln!(out, "{model} at {}/{}", head.url, head.endpoint)?;
    let prefix = match head.prefix {
        0 => String::new(),
        n => format!(" after {n} shared tokens"),
    };
    Ok(writeln!(out, "{}{prefix}, seed {}", head.workload, head.seed)?)
}

/// A load in a line.
fn label(load: Load) -> String {
    match load {
        Load::Open(arrivals) => {
            let pattern = match arrivals.shape() {
                1.0 => "Poisson".to_owned(),
                shape => format!("gamma of shape {shape}, CV {:.2}", 1.0 / shape.sqrt()),
            };
            format!("{} arrivals per second, {pattern}", arrivals.rate())
        }
        Load::Closed(1) => "one request after another".to_owned(),
        Load::Closed(streams) => format!("{streams} streams"),
    }
}

/// The figures of a run.
pub(super) fn print_level(level: &Level, out: &mut Output) -> Result<(), Error> {
    let figures = &level.figures;
    writeln!(out, "\n{}", label(level.load))?;
    print_counts(figures, out)?;
    if figures.ttft_ms.is_some() {
        print_times(level.load, figures, out)?;
    }
    match &level.effect {
        Some(effect) => print_effect(effect, out),
        None => Ok(()),
    }
}

fn print_counts(f: &Figures, out: &mut Output) -> Result<(), Error> {
    let offered = f.offered_per_second.map(|o| format!(" ({} came per second)", term::rate(o)));
    writeln!(
        out,
        "  {} answered, {} failed in {:.1} s{}",
        f.completed,
        f.failed,
        f.seconds,
        offered.unwrap_or_default()
    )?;
    for failures in &f.failures {
        let Failures { count, reason, example } = failures;
        writeln!(out, "  failed: {count} × {reason}: {example}")?;
    }
    if f.unfinished > 0 {
        writeln!(out, "  given up: {}", f.unfinished)?;
    }
    if f.completed == 0 {
        return Ok(());
    }
    let all = f.total_tokens_per_second.map(|t| format!(", {} with prompts", term::rate(t)));
    writeln!(
        out,
        "  per second: {} requests, {} tokens written{}",
        term::rate(f.requests_per_second),
        term::rate(f.output_tokens_per_second),
        all.unwrap_or_default()
    )?;
    if let (Some(asked), Some(counted)) = (f.input_asked_mean, f.input_counted_mean) {
        let worst = match f.input_worst_difference {
            Some(n @ 1..) => format!(", at most {n} off"),
            _ => String::new(),
        };
        let (asked, counted) = (term::rate(asked), term::rate(counted));
        let cached = f.cached_share.map(|share| format!("; {:.0} % cached", share * 100.0));
        writeln!(
            out,
            "  prompts: {asked} tokens on average, the server counts {counted}{worst}{}",
            cached.unwrap_or_default()
        )?;
    }
    if let Some(mean) = f.output_mean {
        let short = match f.short {
            0 => String::new(),
            n => format!(", {n} shorter than asked for"),
        };
        writeln!(out, "  answers: {} tokens on average{short}", term::rate(mean))?;
    }
    Ok(())
}

fn print_times(load: Load, f: &Figures, out: &mut Output) -> Result<(), Error> {
    writeln!(out)?;
    // Where requests are sent at will, both beginnings are one.
    let open = matches!(load, Load::Open(_));
    let rows = [
        ("TTFT: first token", f.ttft_ms, true),
        ("  from sending", f.ttft_from_sending_ms, open),
        ("TPOT: per token after", f.tpot_ms, true),
        ("ITL: between tokens", f.itl_ms, true),
        ("E2E: whole answer", f.e2e_ms, true),
        ("  from sending", f.e2e_from_sending_ms, open),
        ("lag of this generator", f.lag_ms, open),
    ];
    let rows = rows.into_iter().filter(|row| row.2).map(|(name, summary, _)| {
        let of = |head, which| figure(head, 7, cell(summary, which));
        [
            words("ms", 22, name),
            of("mean", |s| s.mean),
            of("p50", |s| s.p50),
            of("p90", |s| s.p90),
            of("p95", |s| s.p95),
            of("p99", |s| s.p99),
            of("max", |s| s.max),
        ]
    });
    Ok(out.table(rows)?)
}

/// A figure of a summary, where there is one.
fn cell(of: Option<Summary>, which: fn(&Summary) -> f64) -> String {
    of.map_or("–".to_owned(), |s| term::rate(which(&s)))
}

fn print_effect(e: &Effect, out: &mut Output) -> Result<(), Error> {
    let counted = e.input_counted_mean.map_or(String::new(), |n| format!(" of {n:.0} tokens"));
    let first =
        e.ttft_ms.map_or(String::new(), |s| format!(", median TTFT {} ms", term::rate(s.p50)));
    writeln!(
        out,
        "\nlong prompts: {}{counted}, {} failed{first}; the others, in ms:\n",
        e.sent, e.failed
    )?;
    let rows = [
        ("TTFT", e.disturbed_ttft_ms, e.undisturbed_ttft_ms),
        ("TPOT", e.disturbed_tpot_ms, e.undisturbed_tpot_ms),
        ("ITL", e.disturbed_itl_ms, e.undisturbed_itl_ms),
    ];
    let rows = rows.map(|(name, with, without)| {
        let ratio = match (with, without) {
            (Some(with), Some(without)) if without.p99 > 0.0 => {
                format!("{:.2}", with.p99 / without.p99)
            }
            _ => "–".to_owned(),
        };
        let count = |of: Option<Summary>| of.map_or(0, |s| s.count);
        [
            words("ms", 4, name),
            figure("while one is read: n", 5, count(with)),
            figure("p50", 7, cell(with, |s| s.p50)),
            figure("p99", 7, cell(with, |s| s.p99)),
            figure("otherwise: n", 5, count(without)),
            figure("p50", 7, cell(without, |s| s.p50)),
            figure("p99", 7, cell(without, |s| s.p99)),
            figure("p99 ratio", 9, ratio),
        ]
    });
    Ok(out.table(rows)?)
}

/// What can be said of all runs together.
pub(super) fn print_all(report: &Report, out: &mut Output) -> Result<(), Error> {
    if report.levels.len() > 1 {
        print_overview(&report.levels, out)?;
    }
    match &report.slo {
        Some(slo) => print_slo(report, slo, out),
        None => Ok(()),
    }
}

fn print_overview(levels: &[Level], out: &mut Output) -> Result<(), Error> {
    writeln!(out, "\nall runs, ms\n")?;
    let rows = levels.iter().map(|Level { load, figures: f, .. }| {
        [
            figure("load", 10, load),
            figure("answered", 8, f.completed),
            figure("failed", 6, f.failed),
            figure("req/s", 6, term::rate(f.requests_per_second)),
            figure("tok/s", 5, term::rate(f.output_tokens_per_second)),
            figure("TTFT p50", 8, cell(f.ttft_ms, |s| s.p50)),
            figure("p99", 7, cell(f.ttft_ms, |s| s.p99)),
            figure("TPOT p50", 8, cell(f.tpot_ms, |s| s.p50)),
            figure("p99", 7, cell(f.tpot_ms, |s| s.p99)),
        ]
    });
    Ok(out.table(rows)?)
}

fn print_slo(report: &Report, slo: &Slo, out: &mut Output) -> Result<(), Error> {
    let (ttft, tpot) = (term::rate(slo.ttft * 1e3), term::rate(slo.tpot * 1e3));
    let target = slo.target * 100.0;
    writeln!(out, "\nrequests within TTFT ≤ {ttft} ms and TPOT ≤ {tpot} ms, by scale of both:\n")?;
    let rows = report.levels.iter().map(|level| {
        let mut row = vec![figure("load", 10, level.load)];
        row.extend(report.scales.iter().enumerate().map(|(at, scale)| {
            // Without a request that ended there is no share.
            let share = level.attainment.get(at).map(|of| format!("{:.1} %", of.both * 100.0));
            figure(format!("× {scale}"), 7, share.as_deref().unwrap_or("–"))
        }));
        let strictest = level.strictest_scale.map_or("–".to_owned(), |s| format!("× {s:.3}"));
        row.push(figure(format!("scale for {target} %"), 15, strictest));
        row
    });
    out.table(rows)?;
    if !report.goodput.is_empty() {
        writeln!(out, "\ngoodput, the highest rate at which {target} % meet both bounds:")?;
        for goodput in &report.goodput {
            writeln!(out, "  {}", goodput_line(goodput))?;
        }
    }
    Ok(())
}

fn goodput_line(goodput: &Goodput) -> String {
    let Goodput { scale, rate, rate_apart, at_least } = goodput;
    let rate = match rate {
        Some(rate) if *at_least => format!("at least {rate}/s, the highest that was tried"),
        Some(rate) => format!("{rate}/s"),
        None => "none of these rates".to_owned(),
    };
    let apart = match rate_apart {
        Some(apart) if goodput.rate != Some(*apart) => format!(" (each bound apart: {apart}/s)"),
        _ => String::new(),
    };
    format!("× {scale}: {rate}{apart}")
}
