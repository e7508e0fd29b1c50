//! How far a download is: a bar on a terminal, a line now and then elsewhere.

use crate::term::{self, note};
use hub::Event;
use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use std::fmt;
use std::time::{Duration, Instant};

/// Time between lines where nobody sees a bar.
const BETWEEN_LINES: Duration = Duration::from_secs(30);

/// Characters of a file's name.
const NAME: usize = 40;

/// What tells of downloads.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    /// Of the file that is on its way.
    bytes: u64,
    done: u64,
    begun: u64,
    start: Instant,
    told: Instant,
}

impl Progress {
    pub(super) fn new() -> Progress {
        let now = Instant::now();
        Progress { bar: None, bytes: 0, done: 0, begun: 0, start: now, told: now }
    }

    /// Tells of an event.
    pub(super) fn tell(&mut self, event: &Event<'_>) {
        if term::is_quiet() {
            return;
        }
        match *event {
            Event::Begin { file, bytes, done } => self.begin(file, bytes, done),
            Event::Bytes(bytes) => self.came(bytes),
            Event::Wait { why, wait } => {
                let wait = term::seconds(wait);
                match &self.bar {
                    Some(bar) => bar.set_message(format!("; {why}, again in {wait}")),
                    None => note!("{why}: trying again in {wait}"),
                }
            }
            Event::Busy { file } => note!("another program fetches {file}: waiting for it"),
            Event::End => self.end(),
        }
    }

    fn begin(&mut self, file: &str, bytes: u64, done: u64) {
        let now = Instant::now();
        (self.bytes, self.done, self.begun) = (bytes, done, done);
        (self.start, self.told) = (now, now);
        if done > 0 {
            note!("going on with {file} at {} of {}", size(done), size(bytes));
        } else if !term::is_interactive() {
            note!("fetching {file}, {}", size(bytes));
        }
        if term::is_interactive() {
            let bar = ProgressBar::new(bytes).with_style(style()).with_prefix(short(file));
            bar.set_position(done);
            bar.reset_eta();
            self.bar = Some(bar);
        }
    }

    fn came(&mut self, bytes: u64) {
        self.done += bytes;
        if let Some(bar) = &self.bar {
            bar.set_message(if self.done < self.bytes { "" } else { "; comparing its checksum" });
            bar.set_position(self.done);
        } else if self.told.elapsed() >= BETWEEN_LINES {
            self.told = Instant::now();
            let rate = (self.done - self.begun) as f64 / self.start.elapsed().as_secs_f64();
            let left = pace(rate, self.bytes - self.done);
            note!("{} of {}{left}", size(self.done), size(self.bytes));
        }
    }

    fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        let (bytes, time) = (self.done - self.begun, self.start.elapsed());
        if bytes == 0 {
            return note!("all of it was here; its checksum is right");
        }
        let rate = bytes as f64 / time.as_secs_f64().max(1e-3) / 1e6;
        note!(
            "fetched {} in {}, {} MB/s; its checksum is right",
            size(bytes),
            term::seconds(time),
            term::rate(rate)
        );
    }
}

/// A bar that is left behind by an error would stay half drawn.
impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn style() -> ProgressStyle {
    let template = "{prefix} [{bar:30}] {bytes} of {total_bytes}{pace}{msg}";
    let style = ProgressStyle::with_template(template).expect("a constant template");
    // A network's rate changes, so it is that of the last seconds.
    let style = style.with_key("pace", |state: &ProgressState, out: &mut dyn fmt::Write| {
        let left = state.len().unwrap_or(0).saturating_sub(state.pos());
        let _ = out.write_str(&pace(state.per_sec(), left));
    });
    style.progress_chars("=> ")
}

/// A rate, and the time that so many bytes take by it.
fn pace(per_second: f64, left: u64) -> String {
    if !(per_second.is_finite() && per_second >= 1.0) {
        return String::new();
    }
    let seconds = left as f64 / per_second;
    let left = match seconds {
        s if s < 119.5 => format!("{s:.0} s"),
        s if s < 119.5 * 60.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.0} h", s / 3600.0),
    };
    format!(", {} MB/s, {left} left", term::rate(per_second / 1e6))
}

/// A file's name, its end at least.
fn short(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    let count = name.chars().count();
    match count > NAME {
        true => std::iter::once('…').chain(name.chars().skip(count - NAME + 1)).collect(),
        false => name.to_owned(),
    }
}

pub(super) fn size(bytes: u64) -> String {
    term::size(bytes as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_has_the_unit_that_fits() {
        assert_eq!(pace(12.3e6, 123_000_000), ", 12.3 MB/s, 10 s left");
        assert_eq!(pace(1e6, 600_000_000), ", 1.00 MB/s, 10 min left");
        assert_eq!(pace(1e6, 36_000_000_000), ", 1.00 MB/s, 10 h left");
        assert_eq!(pace(0.0, 1), "");
        assert_eq!(pace(f64::INFINITY, 1), "");
    }

    #[test]
    fn long_names_keep_their_end() {
        let name = "a-model-of-a-very-long-name-that-goes-on-and-on-Q4_K_M.gguf";
        let shown = short(&format!("folder/{name}"));
        assert_eq!(shown.chars().count(), NAME);
        assert!(shown.starts_with('…') && shown.ends_with("on-Q4_K_M.gguf"));
        assert_eq!(short("m.gguf"), "m.gguf");
    }
}
