//! What people see: numbers with units, progress bars, dim text.
//!
//! Results go to standard output; everything about them goes to standard error, through `anstream`,
//! which drops colours when nobody would see them or `NO_COLOR` is set.

use crate::wrap::wrap_at;
use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use std::fmt;
use std::io::IsTerminal;
#[cfg(unix)]
use std::os::fd::AsFd as Handle;
#[cfg(windows)]
use std::os::windows::io::AsHandle as Handle;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Start of dim text, for what stands beside the point.
pub(crate) const DIM: anstyle::Style = anstyle::Style::new().dimmed();
/// Start of bold text.
pub(crate) const BOLD: anstyle::Style = anstyle::Style::new().bold();

/// A line on standard error about what goes on.
macro_rules! note {
    ($($text:tt)*) => {{
        if $crate::logging::is_json() {
            tracing::info!(target: $crate::logging::NOTES, "{}", format_args!($($text)*))
        } else if !$crate::term::is_quiet() {
            let dim = $crate::term::DIM;
            anstream::eprintln!("{dim}{}{dim:#}", $crate::term::wrapped(&format!($($text)*)))
        }
    }};
}
pub(crate) use note;

static QUIET: AtomicBool = AtomicBool::new(false);

/// Sets what holds for all that the program prints.
pub(crate) fn set(quiet: bool, color: clap::ColorChoice) {
    QUIET.store(quiet, Ordering::Relaxed);
    match color {
        clap::ColorChoice::Auto => {}
        clap::ColorChoice::Always => anstream::ColorChoice::Always.write_global(),
        clap::ColorChoice::Never => anstream::ColorChoice::Never.write_global(),
    }
}

/// Whether nothing but results is to be printed.
pub(crate) fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Whether bars are seen.
pub(crate) fn shows_bars() -> bool {
    std::io::stderr().is_terminal()
}

/// Characters of a line of a terminal; `None` of anything else.
pub(crate) fn columns(out: &(impl IsTerminal + Handle)) -> Option<usize> {
    let (columns, _) = out.is_terminal().then(|| terminal_size::terminal_size_of(out)).flatten()?;
    Some(usize::from(columns.0)).filter(|&columns| columns > 0)
}

/// A text for standard error: on a terminal, its lines end between words.
pub(crate) fn wrapped(text: &str) -> String {
    match columns(&std::io::stderr()) {
        None => text.to_owned(),
        Some(columns) => {
            let lines = text.lines().flat_map(|line| wrap_at(line, columns));
            lines.collect::<Vec<_>>().join("\n")
        }
    }
}

/// Whether a person sees standard error.
pub(crate) fn is_interactive() -> bool {
    std::io::stderr().is_terminal()
}

/// A bar over bytes on standard error; draws nothing when that is no terminal.
pub(crate) fn byte_bar(what: &str, bytes: usize) -> ProgressBar {
    bar(what, bytes, "{bytes} of {total_bytes}{pace}")
}

/// A bar over things that take a while each.
pub(crate) fn count_bar(what: &str, count: usize) -> ProgressBar {
    bar(what, count, "{pos} of {len} {msg}")
}

fn bar(what: &str, len: usize, numbers: &str) -> ProgressBar {
    let template = format!("{what:<8} [{{bar:30}}] {numbers}");
    let style = ProgressStyle::with_template(&template).expect("a constant template");
    let style = style.with_key("pace", |state: &ProgressState, out: &mut dyn fmt::Write| {
        let _ = out.write_str(&pace(state.pos(), state.len(), state.elapsed()));
    });
    if is_quiet() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(len as u64).with_style(style.progress_chars("=> "));
    bar.tick(); // it may be a while until something happens
    bar
}

/// The rate so far and, by it, the time left. A moving average would take seconds to get anywhere.
fn pace(done: u64, all: Option<u64>, time: Duration) -> String {
    let per_second = done as f64 / time.as_secs_f64();
    if done == 0 || !per_second.is_finite() {
        return String::new();
    }
    let left = all.unwrap_or(done).saturating_sub(done) as f64 / per_second;
    let (left, unit) = if left < 119.5 { (left, "s") } else { (left / 60.0, "min") };
    format!(", {} GB/s, {left:.0} {unit} left", rate(per_second / 1e9))
}

/// Bytes with a binary unit and three digits: `361 MiB`, `2.21 GiB`.
pub(crate) fn size(bytes: usize) -> String {
    scaled(bytes as f64, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"])
}

/// A count with three digits: `596 M`, `4.02 B`.
pub(crate) fn count(n: usize) -> String {
    scaled(n as f64, 1000.0, &["", "K", "M", "B", "T"]).trim_end().to_owned()
}

fn scaled(mut value: f64, base: f64, units: &[&str]) -> String {
    let mut unit = 0;
    // 999.5 would print as 1000.
    while value >= base.min(1000.0) - 0.5 && unit + 1 < units.len() {
        value /= base;
        unit += 1;
    }
    let decimals = match value {
        _ if unit == 0 => 0,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {}", units[unit])
}

/// A time in seconds with sensible digits: `0.03 s`, `12.5 s`.
pub(crate) fn seconds(time: Duration) -> String {
    let s = time.as_secs_f64();
    format!("{s:.*} s", if s < 9.995 { 2 } else { 1 })
}

/// A rate with three digits at least: `5.21`, `98.5`, `1234`.
pub(crate) fn rate(per_second: f64) -> String {
    let decimals = match per_second {
        v if v < 9.995 => 2,
        v if v < 999.5 => 1,
        _ => 0,
    };
    format!("{per_second:.decimals$}")
}

/// `1 token`, `2 tokens`.
pub(crate) fn plural(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_the_right_unit() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1.00 KiB");
        assert_eq!(size(378_535_936), "361 MiB");
        assert_eq!(size(1 << 30), "1.00 GiB");
        assert_eq!(count(596_049_920), "596 M");
        assert_eq!(count(4_022_468_096), "4.02 B");
        assert_eq!(count(999_700), "1.00 M");
        assert_eq!(count(12), "12");
        assert_eq!(rate(5.214), "5.21");
        assert_eq!(rate(1234.5), "1234");
        assert_eq!(plural(1, "node"), "1 node");
    }

    #[test]
    fn the_pace_is_that_of_all_bytes_so_far() {
        let after = |seconds, done, all| pace(done, Some(all), Duration::from_secs(seconds));
        assert_eq!(after(4, 6_000_000_000, 21_000_000_000), ", 1.50 GB/s, 10 s left");
        assert_eq!(after(10, 1_000_000_000, 61_000_000_000), ", 0.10 GB/s, 10 min left");
        assert_eq!(after(2, 3_000_000_000, 3_000_000_000), ", 1.50 GB/s, 0 s left");
        assert_eq!(after(2, 0, 3), "");
        assert_eq!(after(0, 1, 3), "");
    }
}
