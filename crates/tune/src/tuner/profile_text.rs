//! A profile as text: TOML with comments that say what it means. Written by hand, as comments cannot be
//! had from a serializer; read with `serde`, and everything that is read is checked.
//!
//! A later version of the program may write a later `version`, which this one refuses by name, as it does
//! earlier ones: they are for other programs. Within a version, what is not known is an error, so that a
//! misspelt key has an effect.

use super::matrix_text::{self, MatrixText, SchedulesText, schedules};
use super::profile::{Identity, Objective, Profile};
use super::scheme::Scheme;
use super::table::{Row, Table};
use super::{Measured, Outcome};
use crate::Error;
use serde::Deserialize;
use std::fmt::Write;
use topology::{CpuId, Group, NodeId};

/// The version that is written and read.
const VERSION: i64 = 3;

/// What a comment adds where a search did not come to its end.
pub(super) const STOPPED: &str = "; not complete: it was stopped, and this is the best by then";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    /// Read before, as [`Version`].
    #[serde(rename = "version")]
    _version: i64,
    date: String,
    machine: Identity,
    model: Identity,
    program: Identity,
    groups: Vec<GroupText>,
    table: Vec<RowText>,
    #[serde(default)]
    choices: Vec<ChoiceText>,
    #[serde(default)]
    measured: Vec<Measured>,
    search: SearchText,
    schedules: Option<SchedulesText>,
    #[serde(default)]
    matrix: Vec<MatrixText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupText {
    node: Option<u32>,
    cpus: Vec<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RowText {
    up_to: Option<u32>,
    cpus: Vec<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChoiceText {
    name: String,
    value: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchText {
    complete: bool,
    evaluations: usize,
    loads: usize,
    seconds: f64,
    #[serde(default)]
    objective: Objective,
}

/// What is read first, whatever else there is.
#[derive(Deserialize)]
struct Version {
    version: Option<i64>,
}

impl Profile {
    /// Reads a profile.
    ///
    /// # Errors
    /// [`Error::NewerProfile`], and [`Error::BadProfile`] with what is wrong.
    pub fn parse(text: &str) -> Result<Profile, Error> {
        let bad = |reason: String| Error::BadProfile(reason);
        // The message of `toml` shows the line and ends in a newline.
        let syntax = |e: toml::de::Error| bad(e.to_string().trim_end().to_owned());
        let version: Version = toml::from_str(text).map_err(syntax)?;
        match version.version {
            None => return Err(bad("it has no version".into())),
            Some(version) if version > VERSION => {
                return Err(Error::NewerProfile { version, known: VERSION });
            }
            Some(VERSION) => {}
            Some(other) => {
                return Err(bad(format!("version {other} is of another program: tune again")));
            }
        }
        let text: Text = toml::from_str(text).map_err(syntax)?;
        let schedules = schedules(text.schedules, text.matrix)?;
        let group = |group: GroupText| Group {
            node: group.node.map(NodeId),
            cpus: group.cpus.into_iter().map(CpuId).collect(),
        };
        let named = |e: Error| bad(e.to_string());
        let scheme = Scheme::new(text.groups.into_iter().map(group).collect()).map_err(named)?;
        let row = |row: RowText| -> Result<Row, Error> {
            Ok(Row { up_to: row.up_to.unwrap_or(u32::MAX), level: scheme.level(row.cpus)? })
        };
        let rows = text.table.into_iter().map(row).collect::<Result<_, _>>().map_err(named)?;
        let table = Table::new(&scheme, rows).map_err(named)?;
        text.measured.iter().try_for_each(check_rates)?;
        let SearchText { complete, evaluations, loads, seconds, objective } = text.search;
        if !(seconds.is_finite() && seconds >= 0.0) {
            return Err(bad(format!("search.seconds is {seconds}")));
        }
        let choices = text.choices.into_iter().map(|choice| (choice.name, choice.value)).collect();
        Ok(Profile {
            machine: text.machine,
            model: text.model,
            program: text.program,
            date: text.date,
            seconds,
            objective,
            outcome: Outcome {
                scheme,
                table,
                choices,
                measured: text.measured,
                evaluations,
                loads,
                complete,
                schedules,
            },
        })
    }

    /// The profile as a text that [`Profile::parse`] reads.
    pub fn text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out).expect("writing into a string does not fail");
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let Profile { machine, model, program, date, seconds, objective, outcome } = self;
        let best = match objective {
            Objective::Time => "fastest",
            Objective::Energy => "with the fewest joules",
        };
        writeln!(
            out,
            "# How this machine serves this model {best}, as measured by `arclight tune`.\n\
             # It is used as long as machine, model and program are those named here."
        )?;
        writeln!(out, "version = {VERSION}")?;
        writeln!(out, "date = {}", quoted(date))?;
        for (name, Identity { digest, words }) in
            [("machine", machine), ("model", model), ("program", program)]
        {
            let (digest, words) = (quoted(digest), quoted(words));
            writeln!(out, "\n[{name}]\ndigest = {digest}\nwords = {words}")?;
        }
        out.push_str(
            "\n# Groups of threads, each with its part of the weights, on a memory node\n\
             # (none: bound to no memory). A thread per CPU; the order is that in which\n\
             # they are used.\n",
        );
        for group in outcome.scheme.groups() {
            writeln!(out, "[[groups]]")?;
            if let Some(node) = group.node {
                writeln!(out, "node = {}", node.0)?;
            }
            let cpus: Vec<u32> = group.cpus.iter().map(|cpu| cpu.0).collect();
            writeln!(out, "cpus = {cpus:?}")?;
        }
        out.push_str(
            "\n# Steps of up to so many tokens use the first CPUs of each group, so many of\n\
             # them. The last row is for all larger steps.\n",
        );
        for row in outcome.table.rows() {
            writeln!(out, "[[table]]")?;
            if row.up_to != u32::MAX {
                writeln!(out, "up_to = {}", row.up_to)?;
            }
            writeln!(out, "cpus = {:?}", row.level.cpus())?;
        }
        if !outcome.choices.is_empty() {
            writeln!(out, "\n# Other settings that were tried.")?;
        }
        for (name, value) in &outcome.choices {
            writeln!(out, "[[choices]]\nname = {}\nvalue = {}", quoted(name), quoted(value))?;
        }
        if !outcome.measured.is_empty() {
            let per = match objective {
                Objective::Time => "second",
                Objective::Energy => "joule",
            };
            writeln!(
                out,
                "\n# Tokens a {per} by tokens in the step and the sequence's tokens before it (depth):\n\
                 # with the default and as tuned, medians of the repetitions."
            )?;
        }
        for Measured { tokens, depth, before, after, repetitions } in &outcome.measured {
            writeln!(out, "[[measured]]\ntokens = {tokens}\ndepth = {depth}")?;
            writeln!(out, "before = {before:?}\nafter = {after:?}\nrepetitions = {repetitions}")?;
        }
        let stopped = if outcome.complete { "" } else { STOPPED };
        writeln!(out, "\n# How it was found{stopped}.")?;
        writeln!(out, "[search]\ncomplete = {}", outcome.complete)?;
        writeln!(out, "evaluations = {}\nloads = {}", outcome.evaluations, outcome.loads)?;
        writeln!(out, "seconds = {seconds:?}")?;
        if *objective == Objective::Energy {
            writeln!(out, "objective = \"energy\"")?;
        }
        matrix_text::write(out, &outcome.schedules)
    }
}

fn check_rates(&Measured { tokens, before, after, .. }: &Measured) -> Result<(), Error> {
    match [before, after].into_iter().find(|rate| !(rate.is_finite() && *rate >= 0.0)) {
        Some(rate) => Err(Error::BadProfile(format!("{rate} tokens a second at {tokens} tokens"))),
        None => Ok(()),
    }
}

/// A TOML basic string.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => {
                // Controls are below U+00A0.
                out.push_str(&format!("\\u{:04X}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
