//! The time of steps by the classes of ZigLlama's chapter on threads, next to the shares that it has for them.

use crate::output::{Format, Output, figure, words};
use arclight_engine::Profile;
use graph::profile::{Class, What};
use serde_json::{Map, Value};

/// Time of threads.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Classes {
    /// Nanoseconds of the classes of [`Class::ALL`].
    work: [u64; Class::ALL.len()],
    /// Nanoseconds of all threads in steps.
    all: u64,
}

/// A line: its name, its share of the time in steps, and that of the chapter.
type Line = (&'static str, f64, f64);

impl Classes {
    /// Adds what threads did in the complete steps of a profile.
    pub(crate) fn add(&mut self, profile: &Profile) {
        let complete = profile.complete();
        for thread in 0..profile.threads() {
            let own = profile.steps().take(complete).filter(|s| profile.takes_part(thread, s));
            self.all += own.map(|step| step.end - step.start).sum::<u64>();
            for event in profile.events(thread).take_while(|event| event.step < complete) {
                if let What::Operator { class, .. } = event.what {
                    self.work[class as usize] += event.end - event.start;
                }
            }
        }
    }

    /// Shares of the time in steps, which add up to 1: all time without work is overhead.
    fn lines(&self) -> [Line; 6] {
        let share = |class: Class| self.work[class as usize] as f64 / self.all as f64;
        let overhead = 1.0 - Class::ALL.into_iter().map(share).sum::<f64>();
        // Table of section 7.2: LLaMA-7B, one sequence, context of 2048.
        [
            ("GEMM", share(Class::Gemm), 0.75),
            ("attention", share(Class::Attention), 0.10),
            ("norm", share(Class::Norm), 0.05),
            ("residual", share(Class::Residual), 0.03),
            ("overhead (waits)", overhead, 0.05),
            ("sequential", share(Class::Sequential), 0.02),
        ]
    }

    /// The lines to print; none where nothing was recorded.
    pub(crate) fn table(&self) -> Vec<String> {
        if self.all == 0 {
            return Vec::new();
        }
        let mut text = Vec::new();
        let rows = self.lines().map(|(name, share, chapter)| {
            [
                words("class", 18, name),
                figure("share", 7, format_args!("{:.1} %", 100.0 * share)),
                figure("in ZigLlama's table", 19, format_args!("{:.0} %", 100.0 * chapter)),
            ]
        });
        let out = Output::to(&mut text, Format::Text);
        out.narrow().table(rows).expect("memory can be written to");
        String::from_utf8_lossy(&text).lines().map(str::to_owned).collect()
    }

    /// Shares by name, in 0..=1.
    pub(crate) fn value(&self) -> Value {
        let lines = if self.all == 0 { Vec::new() } else { self.lines().to_vec() };
        let key = |name: &str| name.split(' ').next().unwrap_or(name).to_lowercase();
        let shares = lines.iter().map(|(name, share, _)| (key(name), Value::from(*share)));
        Value::Object(shares.collect::<Map<_, _>>())
    }
}
