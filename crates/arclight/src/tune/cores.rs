//! The search for cores, as the options request it, and the graphs that it needs.

use super::args::TuneArgs;
use super::tree::Base;
use crate::term::note;
use arclight_engine::ModelFile;
use graph::Graph;
use std::borrow::Borrow;
use topology::topotree::Configuration;
use tune::simulated::Operators;
use tune::tuner::{Scheme, StepKind, Tuner};

/// Families that are looked at closely, and plans that are measured in the end, at least.
const FAMILIES: usize = 3;
const FINALISTS: usize = 2;

/// The search for cores that the options ask for.
pub(super) fn tuner<'a>(
    args: &TuneArgs,
    base: &'a Base,
    default: &'a Scheme,
    kinds: &'a [StepKind],
    permit: &'a dyn Fn(&Configuration) -> bool,
) -> Tuner<'a> {
    let TuneArgs { repetitions, top_k, patience, .. } = *args;
    Tuner {
        tree: &base.tree,
        default,
        kinds,
        permit,
        families: FAMILIES,
        finalists: FINALISTS.max(top_k),
        repetitions,
        patience,
        suppose: base.suppose,
        choices: &[], // Page sizes are the engine's to choose, by its own measurement.
    }
}

/// By how many groups a model can be shared, those of the default in any case.
pub(super) fn operators_of<'a, G: Borrow<Graph>>(
    build: impl Fn(usize) -> Result<G, tune::Error> + 'a,
    default: &Scheme,
) -> Operators<'a> {
    Operators::new(build, default.groups().len())
}

/// Tells of the numbers of groups that a model cannot be shared by.
pub(super) fn left_out(refused: &[(usize, String)]) {
    let groups = |groups: &(usize, String)| groups.0.to_string();
    let counts: Vec<String> = refused.iter().map(groups).collect();
    if let Some((_, operator)) = refused.first() {
        note!(
            "left out: {} groups, of which some would have nothing of {operator}",
            counts.join(", ")
        );
    }
}

/// A model's graph for so many equal nodes.
pub(super) fn built(file: &ModelFile, nodes: usize) -> Result<Graph, tune::Error> {
    let fault = |e: String| tune::Error::Graph(e);
    let gguf = file.gguf().map_err(|e| fault(e.to_string()))?;
    let built = models::build(&gguf, nodes).map_err(|e| fault(e.to_string()))?;
    Ok(built.graph)
}
