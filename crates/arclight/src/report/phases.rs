//! What tells prefill from decode: the machine's counters of each phase, beside each other.
//!
//! The figures are those of Sandwich's figure 2 (section 2.1): instructions per cycle; the share of loads that the buffer of
//! translations missed; and by thousand instructions the cycles of the bus, and the loads that go to the last cache, past
//! the buffer of translations, to the memory's controllers and to the busiest of these. Counts of the kernel (time on cores,
//! page faults, switches of threads) stand below; machines without counters in their CPUs have them too. `GHz` is what the cores ran at: cycles by time on them.

use super::counters::{ControllerCount, Counted};
use super::phase::Phase;
use super::rows::percent;
use crate::output::{Cell, Output, figure, words};
use crate::term;
use crate::wrap::wrap;
use measure::counters::Event;
use serde::Serialize;
use std::io::{self, Write};

/// Bytes of a line, which is what a controller reads.
const LINE: f64 = 64.0;
/// Stands where there is no figure.
const NONE: &str = "-";

/// A figure of the counters in one phase.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct PhaseFigure {
    /// The test of a benchmark, or a part of an answer.
    phase: String,
    threads: usize,
    figure: &'static str,
    value: Option<f64>,
    /// Why there is none.
    missing: Option<String>,
    #[serde(skip)]
    text: String,
    /// The same in short.
    #[serde(skip)]
    short: Option<String>,
}

/// What a figure is made of.
struct Seen<'a> {
    counted: &'a Counted,
    tokens: f64,
    seconds: f64,
}

struct Figure {
    name: &'static str,
    /// Of the threads.
    needs: &'static [Event],
    /// It needs the memory's controllers too.
    controllers: bool,
    of: fn(&Seen<'_>) -> Option<f64>,
    shown: fn(f64) -> String,
}

const fn of_threads(
    name: &'static str,
    needs: &'static [Event],
    of: fn(&Seen<'_>) -> Option<f64>,
) -> Figure {
    Figure { name, needs, controllers: false, of, shown: term::rate }
}

/// By thousand instructions.
const fn of_controllers(name: &'static str, of: fn(&Seen<'_>) -> Option<f64>) -> Figure {
    Figure { controllers: true, ..of_threads(name, &[Event::Instructions], of) }
}

const FIGURES: [Figure; 14] = [
    Figure {
        shown: |n| term::count(n.round() as usize),
        ..of_threads("instructions per token", &[Event::Instructions], |s| {
            s.per_token(Event::Instructions)
        })
    },
    of_threads("instructions per cycle", &[Event::Instructions, Event::Cycles], |s| {
        ratio(s.of(Event::Instructions)?, s.of(Event::Cycles)?)
    }),
    of_threads("GHz", &[Event::Cycles, Event::TaskClock], |s| {
        ratio(s.of(Event::Cycles)?, s.of(Event::TaskClock)?)
    }),
    of_threads(
        "bus cycles per 1,000 instructions",
        &[Event::BusCycles, Event::Instructions],
        |s| s.per_thousand(s.of(Event::BusCycles)?),
    ),
    of_threads(
        "last-level loads per 1,000 instructions",
        &[Event::CacheLoads, Event::Instructions],
        |s| s.per_thousand(s.of(Event::CacheLoads)?),
    ),
    of_threads(
        "last-level misses per 1,000 instructions",
        &[Event::CacheLoadMisses, Event::Instructions],
        |s| s.per_thousand(s.of(Event::CacheLoadMisses)?),
    ),
    of_threads(
        "TLB misses per 1,000 instructions",
        &[Event::TlbLoadMisses, Event::Instructions],
        |s| s.per_thousand(s.of(Event::TlbLoadMisses)?),
    ),
    Figure {
        shown: percent,
        ..of_threads("TLB miss ratio", &[Event::TlbLoads, Event::TlbLoadMisses], |s| {
            ratio(s.of(Event::TlbLoadMisses)?, s.of(Event::TlbLoads)?)
        })
    },
    Figure {
        shown: percent,
        ..of_threads(
            "remote share of loads from memory",
            &[Event::NodeLoads, Event::NodeLoadMisses],
            |s| ratio(s.of(Event::NodeLoadMisses)?, s.of(Event::NodeLoads)?),
        )
    },
    of_controllers("controllers' loads per 1,000 instructions", |s| {
        let all = s.counted.controllers.iter().map(|c| c.read_bytes);
        s.per_thousand(all.reduce(|a, b| a + b)? / LINE)
    }),
    of_controllers("imbalance of controllers per 1,000 instructions", |s| {
        s.per_thousand(imbalance(&s.counted.controllers)? / LINE)
    }),
    of_threads("cores at work", &[Event::TaskClock], |s| {
        ratio(s.of(Event::TaskClock)? / 1e9, s.seconds)
    }),
    of_threads("page faults per token", &[Event::PageFaults], |s| s.per_token(Event::PageFaults)),
    of_threads("context switches per token", &[Event::ContextSwitches], |s| {
        s.per_token(Event::ContextSwitches)
    }),
];

/// Bytes that the busiest controller was read beyond the mean of all.
fn imbalance(of: &[ControllerCount]) -> Option<f64> {
    let all = of.iter().map(|c| c.controllers).sum::<usize>() as f64;
    let mean = ratio(of.iter().map(|c| c.read_bytes).sum(), all)?;
    let most = of.iter().map(|c| c.busiest_read_bytes).reduce(f64::max)?;
    Some(most - mean)
}

fn ratio(of: f64, by: f64) -> Option<f64> {
    (by > 0.0).then(|| of / by)
}

impl Seen<'_> {
    fn of(&self, event: Event) -> Option<f64> {
        self.counted.of(event)
    }

    fn per_token(&self, event: Event) -> Option<f64> {
        ratio(self.of(event)?, self.tokens)
    }

    fn per_thousand(&self, count: f64) -> Option<f64> {
        ratio(1e3 * count, self.of(Event::Instructions)?)
    }

    /// Why a figure is missing, in short and in full.
    fn missing(&self, figure: &Figure) -> (String, String) {
        let refused = self.counted.refused.iter().find(|r| figure.needs.contains(&r.event));
        if let Some(refusal) = refused {
            return (format!("{}: {}", refusal.event.name(), refusal.error), refusal.to_string());
        }
        let why = match self.counted.unavailable.first() {
            Some(why) if figure.controllers => why.clone(),
            _ => "nothing of it was counted".to_owned(),
        };
        (why.clone(), why)
    }
}

/// The figures of a phase of some work, which has a name.
pub(crate) fn figures(name: &str, threads: usize, phase: &Phase) -> Vec<PhaseFigure> {
    let seen = Seen {
        counted: &phase.counted,
        tokens: phase.activity.counts.tokens as f64,
        seconds: phase.time.as_secs_f64(),
    };
    let of = |figure: &Figure| {
        let value = (figure.of)(&seen);
        let (short, missing) = value.is_none().then(|| seen.missing(figure)).unzip();
        PhaseFigure {
            phase: name.to_owned(),
            threads,
            figure: figure.name,
            value,
            missing,
            text: value.map_or_else(|| NONE.to_owned(), figure.shown),
            short,
        }
    };
    FIGURES.iter().map(of).collect()
}

/// Prints the figures: a column for each phase, what is not to be had with the reason beside it, and in full below.
pub(crate) fn print<W: Write>(out: &mut Output<W>, all: &[PhaseFigure]) -> io::Result<()> {
    let columns: Vec<&[PhaseFigure]> = all.chunks(FIGURES.len()).collect();
    let several = columns.windows(2).any(|pair| pair[0][0].threads != pair[1][0].threads);
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    let mut reasons: Vec<&str> = Vec::new();
    for (at, of) in FIGURES.iter().enumerate().filter(|_| !columns.is_empty()) {
        let mut row = vec![words("counted on the engine's threads", 0, of.name)];
        row.extend(columns.iter().map(|column| {
            let PhaseFigure { phase, threads, text, .. } = &column[at];
            let head = match several {
                true => format!("{phase}, {}", term::plural(*threads, "thread")),
                false => phase.clone(),
            };
            figure(head, 6, text)
        }));
        let missing = columns.iter().find(|column| column[at].value.is_none());
        let short = missing.and_then(|column| column[at].short.as_deref()).unwrap_or_default();
        row.push(words("not to be had", 0, short));
        rows.push(row);
        for reason in columns.iter().filter_map(|column| column[at].missing.as_deref()) {
            // What the kernel says of one event it says of others: told once, with what it means.
            let rest = |text: &str| text.find(": ").unwrap_or(0);
            if !reasons.iter().any(|told| told[rest(told)..] == reason[rest(reason)..]) {
                reasons.push(reason);
            }
        }
    }
    out.table(rows)?;
    let mut lines = reasons.iter().flat_map(|reason| wrap(reason));
    lines.try_for_each(|line| writeln!(out, "{line}"))
}

#[cfg(test)]
mod tests {
    use super::super::counters::EventCount;
    use super::*;
    use crate::output::Format;
    use arclight_engine::Activity;
    use graph::Counts;
    use measure::counters::Refusal;
    use std::time::Duration;

    fn phase(counted: Counted) -> Phase {
        let counts = Counts { tokens: 10, steps: 10, ..Counts::default() };
        let activity =
            Activity { counts, waits: Vec::new(), threads: Vec::new(), experts: Vec::new() };
        Phase { decoding: true, time: Duration::from_secs(2), activity, counted }
    }

    fn counted(events: &[(Event, f64)]) -> Counted {
        let count = |&(event, count): &(Event, f64)| EventCount { name: event.name(), count };
        Counted { events: events.iter().map(count).collect(), ..Counted::default() }
    }

    fn controller(package: u32, controllers: usize, read: f64, busiest: f64) -> ControllerCount {
        ControllerCount {
            package,
            controllers,
            read_bytes: read,
            busiest_read_bytes: busiest,
            ..ControllerCount::default()
        }
    }

    fn printed(all: &[PhaseFigure], format: Format) -> String {
        let mut text = Vec::new();
        print(&mut Output::to(&mut text, format), all).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn figures_follow_from_counts() {
        let mut all = counted(&[
            (Event::Instructions, 5e9),
            (Event::Cycles, 2e9),
            (Event::BusCycles, 1e8),
            (Event::CacheLoads, 40e6),
            (Event::CacheLoadMisses, 10e6),
            (Event::TlbLoads, 2e6),
            (Event::TlbLoadMisses, 5e5),
            (Event::NodeLoads, 8e6),
            (Event::NodeLoadMisses, 2e6),
            (Event::TaskClock, 1e9),
            (Event::PageFaults, 30.0),
            (Event::ContextSwitches, 5.0),
        ]);
        // Three controllers: 96 million lines, 32 million each on average; the busiest has 42 million.
        all.controllers = vec![
            controller(0, 2, 72e6 * 64.0, 42e6 * 64.0),
            controller(1, 1, 24e6 * 64.0, 24e6 * 64.0),
        ];
        let figures = figures("tg10", 2, &phase(all));
        let values: Vec<f64> = figures.iter().map(|f| f.value.unwrap()).collect();
        let expected = [5e8, 2.5, 2.0, 20.0, 8.0, 2.0, 0.1, 0.25, 0.25, 19.2, 2.0, 0.5, 3.0, 0.5];
        assert_eq!(values, expected);
        assert!(figures.iter().all(|f| f.missing.is_none()));
        let text = printed(&figures, Format::Text);
        let row = |name: &str| text.lines().find(|l| l.starts_with(name)).unwrap();
        assert!(row("instructions per token").ends_with("  500 M"), "{text}");
        assert!(row("remote share of loads from memory").ends_with("  25 %"), "{text}");
    }

    #[test]
    fn what_is_not_to_be_had_says_why() {
        let refusal = |event| Refusal {
            event,
            error: "Permission denied".into(),
            why: "kernel.perf_event_paranoid is 4: sudo …".into(),
        };
        let mut one = counted(&[(Event::TaskClock, 3e9), (Event::PageFaults, 0.0)]);
        one.refused =
            [Event::Instructions, Event::Cycles, Event::ContextSwitches].map(refusal).into();
        one.unavailable = vec!["no memory controller is known".into()];
        let both =
            [figures("pp16", 2, &phase(one.clone())), figures("tg8", 2, &phase(one))].concat();
        let of = |name: &str| both.iter().find(|f| f.figure == name).unwrap();
        assert_eq!(of("cores at work").value, Some(1.5));
        // Nothing was counted, which is a count.
        assert_eq!(of("page faults per token").value, Some(0.0));
        let missing = |name| of(name).missing.as_deref().unwrap();
        assert_eq!(
            missing("GHz"),
            "cycles: Permission denied: kernel.perf_event_paranoid is 4: sudo …"
        );
        assert!(missing("instructions per cycle").starts_with("instructions: "));
        assert_eq!(missing("remote share of loads from memory"), "nothing of it was counted");
        let text = printed(&both, Format::Text);
        let row = |name: &str| text.lines().find(|l| l.starts_with(name)).unwrap().to_owned();
        assert!(row("counted on").ends_with("  pp16     tg8  not to be had"), "{text}");
        assert!(row("GHz").ends_with("-       -  cycles: Permission denied"), "{text}");
        assert!(row("cores at work").ends_with("1.50    1.50"), "{text}");
        // One reason once.
        assert_eq!(text.matches("perf_event_paranoid is 4").count(), 1, "{text}");
        assert!(printed(&both, Format::Md).contains("| cores at work "));
    }

    #[test]
    fn setups_are_told_apart_by_their_threads() {
        let of = |threads| figures("tg8", threads, &phase(counted(&[(Event::TaskClock, 2e9)])));
        let text = printed(&[of(1), of(2)].concat(), Format::Text);
        assert!(text.contains("tg8, 1 thread  tg8, 2 threads"), "{text}");
        assert_eq!(printed(&[], Format::Text), "");
    }
}
