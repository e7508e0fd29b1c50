//! The trace: JSON trace events, as Perfetto and Chrome's `about:tracing` read them.
//!
//! An engine is a process, with a row of its steps and a row for each thread: every operator and every
//! wait is a complete event (`"ph": "X"`) with what it cost as arguments. Events are written as they
//! come, so that a trace is never held in memory.
//!
//! Limits: [`MOST_EVENTS`] of each phase. Format: "Trace Event Format" of the Chromium project.

use arclight_engine::Profile;
use graph::Scope;
use graph::profile::What;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use std::time::Instant;

/// Of a phase; some 60 MB, which a viewer opens in seconds. What comes after is left out, whole steps
/// at a time.
const MOST_EVENTS: usize = 400_000;

/// A trace that is being written.
pub(crate) struct Trace<W: Write> {
    out: BufWriter<W>,
    /// When the first profile began.
    zero: Option<Instant>,
    most: usize,
    /// Events of each process's phases so far.
    phases: HashMap<(usize, String), usize>,
    rows: usize,
    written: usize,
    left_out: usize,
    dropped: u64,
}

/// One line of the file. Times are in microseconds.
#[derive(Serialize)]
struct Complete<'a> {
    name: &'a str,
    cat: &'a str,
    ph: &'a str,
    ts: f64,
    dur: f64,
    pid: usize,
    tid: usize,
    args: Args<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Args<'a> {
    Operator {
        #[serde(skip_serializing_if = "Option::is_none")]
        layer: Option<usize>,
        rows: usize,
        bytes: u64,
        macs: u64,
    },
    Wait {
        #[serde(skip_serializing_if = "Option::is_none")]
        layer: Option<usize>,
        #[serde(skip_serializing_if = "Option::is_none")]
        after: Option<&'a str>,
        #[serde(rename = "for")]
        because: &'a str,
        scope: &'a str,
    },
    Step {
        step: usize,
        tokens: usize,
        outputs: usize,
    },
}

impl<W: Write> Trace<W> {
    /// Begins a file.
    pub(crate) fn new(out: W) -> io::Result<Trace<W>> {
        let mut out = BufWriter::new(out);
        out.write_all(b"{\"traceEvents\":[")?;
        Ok(Trace {
            out,
            zero: None,
            most: MOST_EVENTS,
            phases: HashMap::new(),
            rows: 0,
            written: 0,
            left_out: 0,
            dropped: 0,
        })
    }

    /// Sets how many events a phase may have.
    #[cfg(test)]
    pub(super) fn hold(&mut self, most: usize) {
        self.most = most;
    }

    /// Names a process and its rows: the steps, then the threads.
    pub(crate) fn process(&mut self, pid: usize, name: &str, threads: usize) -> io::Result<()> {
        let mut name_row = |what: &str, tid: usize, args: Value| {
            let row = json!({ "name": what, "ph": "M", "pid": pid, "tid": tid, "args": args });
            self.write(&row)
        };
        name_row("process_name", 0, json!({ "name": name }))?;
        name_row("thread_name", 0, json!({ "name": "steps" }))?;
        for thread in 0..threads {
            let name = format!("thread {thread}");
            name_row("thread_name", row(thread), json!({ "name": name }))?;
            name_row("thread_sort_index", row(thread), json!({ "sort_index": row(thread) }))?;
        }
        Ok(())
    }

    /// Writes what was recorded.
    pub(crate) fn add(&mut self, pid: usize, phase: &str, profile: &Profile) -> io::Result<()> {
        let zero = *self.zero.get_or_insert(profile.since());
        let offset = profile.since().saturating_duration_since(zero).as_nanos() as u64;
        let micros = |nanos: u64| nanos as f64 / 1e3;
        self.dropped += profile.dropped();
        let steps = self.room(pid, phase, profile);
        for (at, step) in profile.steps().enumerate().take(steps) {
            self.write(&Complete {
                name: phase,
                cat: "step",
                ph: "X",
                ts: micros(offset + step.start),
                dur: micros(step.end - step.start),
                pid,
                tid: 0,
                args: Args::Step { step: at, tokens: step.tokens, outputs: step.outputs },
            })?;
        }
        for thread in 0..profile.threads() {
            for event in profile.events(thread).take_while(|e| e.step < steps) {
                let layer = event.layer;
                let (name, cat, args) = match event.what {
                    What::Operator { name, rows, demand, .. } => {
                        let (bytes, macs) = (demand.bytes, demand.all_macs());
                        let args = Args::Operator { layer, rows, bytes, macs };
                        (name, "operator", args)
                    }
                    What::Wait { after, scope, because } => {
                        let scope = if scope == Scope::Global { "global" } else { "local" };
                        ("wait", "wait", Args::Wait { layer, after, because, scope })
                    }
                };
                self.write(&Complete {
                    name,
                    cat,
                    ph: "X",
                    ts: micros(offset + event.start),
                    dur: micros(event.end - event.start),
                    pid,
                    tid: row(thread),
                    args,
                })?;
                self.written += 1;
            }
        }
        Ok(())
    }

    /// How many steps of a profile there is room for in its phase; counts the events of the others.
    fn room(&mut self, pid: usize, phase: &str, profile: &Profile) -> usize {
        let complete = profile.complete();
        let mut events = vec![0; complete];
        for thread in 0..profile.threads() {
            let of_steps = profile.events(thread).take_while(|e| e.step < complete);
            of_steps.for_each(|e| events[e.step] += 1);
        }
        let so_far = self.phases.entry((pid, phase.to_owned())).or_default();
        let fits = events.iter().take_while(|&&n| {
            let fits = *so_far + n <= self.most;
            if fits {
                *so_far += n;
            }
            fits
        });
        let steps = fits.count();
        if steps < events.len() {
            *so_far = self.most; // the trace of a phase has no holes
        }
        self.left_out += events[steps..].iter().sum::<usize>();
        steps
    }

    /// Completes the file, with shares of `classes` by engine and phase: events that were written and that were left
    /// out.
    pub(crate) fn finish(mut self, classes: &[Value]) -> io::Result<(usize, usize)> {
        let other = json!({
            "program": concat!("arclight ", env!("CARGO_PKG_VERSION")),
            "events": self.written,
            "events_left_out": self.left_out,
            "events_dropped": self.dropped,
            "classes": classes,
        });
        write!(self.out, "\n],\"displayTimeUnit\":\"ns\",\"otherData\":{other}}}\n")?;
        self.out.flush()?;
        Ok((self.written, self.left_out))
    }

    fn write(&mut self, event: &impl Serialize) -> io::Result<()> {
        self.out.write_all(if self.rows == 0 { b"\n" } else { b",\n" })?;
        self.rows += 1;
        Ok(serde_json::to_writer(&mut self.out, event)?)
    }
}

/// The row of a thread, below the steps.
fn row(thread: usize) -> usize {
    thread + 1
}
