//! The machine that is asked about: one that comes with the program, or one from a file with a table of bandwidths. The
//! one at hand is measured ([`at_hand`](super::at_hand)).

use crate::error::Error;
use serde_json::Value;
use std::path::Path;
use topology::{Layout, Machine, layout};
use tune::known::{self, KnownMachine};
use tune::{CoreMath, CoreRead, MachineModel, Matrix, Pages, Resource, parse_matrix};

/// Whose cores a described machine has unless told: middling ones of an x86 server.
pub(crate) const LIKE: &str = "epyc-9654";

/// A machine to predict for.
pub(crate) struct Target {
    pub(super) title: String,
    pub(crate) model: MachineModel,
    /// The kernel's numbers of the nodes.
    pub(super) nodes: Vec<u32>,
    /// Where the pages of an engine lie that does not place them.
    pub(super) unplaced: Pages,
    /// What to know of the numbers.
    pub(super) notes: Vec<String>,
}

impl Target {
    pub(super) fn known(known: &'static KnownMachine) -> Target {
        let mut notes = vec![format!(
            "where the numbers come from: arclight plan --machines --machine {}",
            known.name
        )];
        notes.extend(not_timed(known));
        Target {
            title: known.title.to_owned(),
            model: known.model(),
            nodes: (0..known.nodes as u32).collect(),
            unplaced: known.unplaced(),
            notes,
        }
    }

    /// A machine without its numbers: bandwidths from a file, the rest from a known machine.
    pub(super) fn described(
        machine: &Machine,
        bandwidth: Option<&Path>,
        like: Option<&str>,
    ) -> Result<Target, Error> {
        let path = bandwidth.ok_or_else(|| {
            let text = "no description says what memory delivers: add --bandwidth FILE with what \
                        arclight topo --bandwidth -o json prints on that machine, or with GB/s, a row \
                        for the cores of each node and a column for the memory of each";
            Error::Usage(text.to_owned())
        })?;
        let known = find(like.unwrap_or(LIKE))?;
        let layout = layout(machine, None, None)?;
        let read = matrix(path)?;
        let cores: Vec<usize> = layout.groups.iter().map(|g| g.cpus.len()).collect();
        let (core, math, waits) = of_cores(known);
        let model = MachineModel::new(cores, read, core, math, waits)
            .map_err(|e| Error::in_file(path, e))?;
        let how = if like.is_some() { "as asked" } else { "assumed: see --like" };
        let mut notes = vec![format!("cores and waits are those of {}, {how}", known.name)];
        notes.extend(not_timed(known));
        notes.push(UNPLACED.to_owned());
        Ok(Target {
            title: machine.model().unwrap_or("a described machine").to_owned(),
            unplaced: home(model.nodes())?,
            nodes: numbers(&layout),
            model,
            notes,
        })
    }

    /// A limit by the kernel's numbers of nodes.
    pub(crate) fn name_of(&self, limit: Resource) -> String {
        let id = |node: usize| self.nodes.get(node).map_or(node, |&id| id as usize);
        let renamed = match limit {
            Resource::Cores(node) => Resource::Cores(id(node)),
            Resource::Multiply(node) => Resource::Multiply(id(node)),
            Resource::Memory(node) => Resource::Memory(id(node)),
            Resource::Link { cpu, memory } => Resource::Link { cpu: id(cpu), memory: id(memory) },
            Resource::Alone | Resource::Waits => limit,
        };
        renamed.to_string()
    }

    /// Bytes/s, a row for each node's cores.
    pub(super) fn read_matrix(&self) -> Matrix {
        let nodes = self.model.nodes();
        (0..nodes).map(|a| (0..nodes).map(|b| self.model.link(a, b)).collect()).collect()
    }
}

/// A note on the multiply rates of cores that this program's kernels were never timed on.
pub(crate) fn not_timed(known: &KnownMachine) -> Option<String> {
    if known.timed {
        return None;
    }
    let rates = [("int8", known.int8), ("bf16", known.bf16), ("f32", known.f32)];
    let origins = rates.map(|(name, figure)| format!("{name} is {}", figure.origin));
    let all = rates.iter().all(|(_, figure)| figure.origin == rates[0].1.origin);
    let rates = match all {
        true => format!("its multiply rates are {}", rates[0].1.origin),
        false => format!("of its multiply rates {}", origins.join(", ")),
    };
    Some(format!(
        "{rates}: this program has kernels for such cores, which were never timed on them"
    ))
}

/// What unplaced engines do where nobody has looked.
pub(super) const UNPLACED: &str =
    "unplaced: all pages on the first node, assumed as one thread that touches them leaves them";

pub(super) fn home(nodes: usize) -> Result<Pages, Error> {
    Pages::first_touch(0, 1.0, nodes).map_err(Error::usage)
}

/// The kernel's numbers of a layout's nodes.
pub(super) fn numbers(layout: &Layout) -> Vec<u32> {
    let id = |(i, group): (usize, &topology::Group)| group.node.map_or(i as u32, |node| node.0);
    layout.groups.iter().enumerate().map(id).collect()
}

pub(crate) fn find(name: &str) -> Result<&'static KnownMachine, Error> {
    known::machine(name).ok_or_else(|| {
        let names = known::MACHINES.each_ref().map(|m| m.name).join(", ");
        Error::Usage(format!("there is no machine {name:?}: use one of {names}"))
    })
}

pub(crate) fn of_cores(like: &KnownMachine) -> (CoreRead, CoreMath, tune::WaitModel) {
    let model = like.model();
    let core = CoreRead { local: model.core(0, 0), remote: model.core(0, 1) };
    (core, *model.math(), *model.waits())
}

/// A table of GB/s, or the JSON of `topo --bandwidth`.
fn matrix(path: &Path) -> Result<Matrix, Error> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::read(path, e))?;
    let fault = |what: String| Error::in_file(path, what);
    if !text.trim_start().starts_with('{') {
        return parse_matrix(&text).map_err(|e| fault(e.to_string()));
    }
    let json: Value = serde_json::from_str(&text).map_err(|e| fault(format!("no JSON: {e}")))?;
    let missing = || {
        fault("no access.read_bytes_per_second: print it with topo --bandwidth -o json".to_owned())
    };
    let rows = json.pointer("/access/read_bytes_per_second").and_then(Value::as_array);
    let cell = |cell: &Value| {
        cell.as_f64().ok_or_else(|| fault(format!("{cell} is no bandwidth: it was not measured")))
    };
    let row = |row: &Value| row.as_array().ok_or_else(missing)?.iter().map(cell).collect();
    rows.ok_or_else(missing)?.iter().map(row).collect()
}
