//! `--profile`: where each thread's time goes, as a trace to look at and as tables to read.
//!
//! Steps are recorded in *phases*: a prompt and its answer, or the repetitions of a test. All of them
//! go into one [trace], and each gets a [table] of operators beside what the machine could do.

mod classes;
mod table;
mod trace;

#[cfg(test)]
mod tests;

use crate::bench::limits::{Limits, Probe};
use crate::error::Error;
use crate::term;
use arclight_engine::{Engine, Profile};
use serde_json::{Value, json};
use std::fs::File;
use std::path::{Path, PathBuf};
use table::Table;
use topology::Machine;
use trace::Trace;

/// Passes of the probes after an answer: the best of three is steady.
const PASSES: usize = 3;

/// Events of each thread that there is room for between two looks: 16 MiB, some 2,000 decoded tokens
/// of a model with 28 layers.
const ROOM: usize = 1 << 20;

/// Begins to record an engine.
pub(crate) fn begin(engine: &mut Engine) -> Result<(), Error> {
    Ok(engine.begin_profile(ROOM)?)
}

/// Collects profiles and writes them to a file as they come.
pub(crate) struct Recorder {
    path: PathBuf,
    trace: Trace<File>,
    /// One process of the trace for each engine.
    engines: usize,
    tables: Vec<Table>,
    /// Of engines before: see [`Table::classes`].
    classes: Vec<Value>,
}

impl Recorder {
    /// Makes the file, before any work is done in vain.
    pub(crate) fn create(path: &Path) -> Result<Recorder, Error> {
        let fault = |source| Error::write(path, source);
        let trace = File::create(path).and_then(Trace::new).map_err(fault)?;
        Ok(Recorder {
            path: path.to_owned(),
            trace,
            engines: 0,
            tables: Vec::new(),
            classes: Vec::new(),
        })
    }

    /// What comes next is of this engine: a process of its own in the trace, and its own tables.
    pub(crate) fn engine(&mut self, engine: &mut Engine) -> Result<(), Error> {
        let threads = engine.plan().threads();
        let name = format!("{}, {}", engine.hparams().name, term::plural(threads, "thread"));
        self.end();
        self.engines += 1;
        let made = self.trace.process(self.engines, &name, threads);
        made.map_err(|source| Error::write(&self.path, source))
    }

    /// No more comes of the present engine.
    fn end(&mut self) {
        let engine = self.engines;
        let of = |table: Table| json!({ "engine": engine, "phase": table.phase(), "shares": table.classes() });
        self.classes.extend(self.tables.drain(..).map(of));
    }

    /// Adds what was recorded to a phase.
    pub(crate) fn add(&mut self, phase: &str, profile: &Profile) -> Result<(), Error> {
        let table = match self.tables.iter_mut().position(|t| t.phase() == phase) {
            Some(at) => &mut self.tables[at],
            None => {
                self.tables.push(Table::new(phase, profile.threads()));
                self.tables.last_mut().expect("just added")
            }
        };
        table.add(profile);
        let written = self.trace.add(self.engines, phase, profile);
        written.map_err(|source| Error::write(&self.path, source))
    }

    /// The tables of the present engine's phases, as lines to print.
    pub(crate) fn tables(&self, limits: &Limits) -> Vec<String> {
        self.tables.iter().map(|table| table.lines(limits).join("\n")).collect()
    }

    /// Completes the file; what there is to say about it.
    pub(crate) fn finish(mut self) -> Result<String, Error> {
        self.end();
        let Recorder { path, trace, classes, .. } = self;
        let (written, left_out) =
            trace.finish(&classes).map_err(|source| Error::write(&path, source))?;
        let path = path.display();
        let left_out = match left_out {
            0 => String::new(),
            n => format!("; {n} more left out, because viewers choke on them"),
        };
        Ok(format!("trace      {written} events in {path}{left_out}: open it in ui.perfetto.dev"))
    }
}

/// Measures what the machine can do on the engine's own threads.
pub(crate) fn limits(engine: &mut Engine) -> Result<Limits, Error> {
    let mut probe = Probe::new(engine, &Machine::read()?)?;
    for _ in 0..PASSES {
        probe.pass(engine)?;
    }
    Ok(probe.limits())
}
