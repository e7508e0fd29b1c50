//! Steps of a model on a simulated machine, for a search to measure; and by how many groups a model can be shared.

use super::Simulated;
use crate::model::ModelGraphs;
use crate::step::{StepModel, Work};
use crate::tuner::{Candidate, Measure, StepKind};
use crate::{Engine, Error};
use graph::Graph;
use std::borrow::Borrow;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use topology::topotree::Configuration;

/// A simulated machine with a model.
pub struct Laboratory<'a> {
    machine: &'a Simulated,
    model: &'a ModelGraphs<'a>,
    engine: Engine,
    /// Sequences that decode together; steps of more tokens are a prompt's.
    together: usize,
    /// Bytes that loading the model reads.
    bytes: f64,
    steps: HashMap<(Vec<usize>, u32, u32), Option<StepModel>>,
    /// Seconds that the steps would have taken there.
    spent: f64,
    fault: Option<Error>,
}

impl<'a> Laboratory<'a> {
    /// A machine that serves a model to so many at a time.
    ///
    /// # Errors
    /// As [`ModelGraphs::bytes`].
    pub fn new(
        machine: &'a Simulated,
        model: &'a ModelGraphs<'a>,
        together: usize,
    ) -> Result<Laboratory<'a>, Error> {
        let (bytes, _) = model.bytes(1, 0)?;
        let (engine, steps) = (Engine::tensor_parallel(), HashMap::new());
        let together = together.max(1);
        Ok(Laboratory { machine, model, engine, together, bytes, steps, spent: 0.0, fault: None })
    }

    /// Seconds that the steps which were asked for would have taken.
    pub fn spent(&self) -> f64 {
        self.spent
    }

    /// Why the first step that cannot be run cannot.
    pub fn fault(&self) -> Option<&Error> {
        self.fault.as_ref()
    }

    fn step(&mut self, threads: &[usize], kind: &StepKind) -> Option<&StepModel> {
        let key = (threads.to_vec(), kind.tokens, kind.depth);
        let tokens = kind.tokens as usize;
        let (sequences, tokens) = if tokens <= self.together { (tokens, 1) } else { (1, tokens) };
        let work = Work { tokens, context: kind.depth as usize, sequences };
        let Laboratory { engine, model, fault, .. } = self;
        let made =
            self.steps.entry(key).or_insert_with(|| match engine.step(model, work, threads) {
                Ok(step) => Some(step),
                Err(error) => {
                    fault.get_or_insert(error);
                    None
                }
            });
        made.as_ref()
    }
}

impl Measure for Laboratory<'_> {
    fn seconds(&mut self, candidate: &Candidate<'_>, kind: &StepKind) -> Option<f64> {
        let machine = self.machine;
        let nodes = candidate.scheme.groups().iter().map(|group| machine.place(group.node));
        let groups: Vec<_> = nodes.zip(candidate.scheme.cpus(candidate.level)).collect();
        let threads: Vec<usize> = groups.iter().map(|(_, cpus)| cpus.len()).collect();
        let step = self.step(&threads, kind)?;
        let seconds = machine.seconds(&groups, step);
        self.spent += seconds;
        Some(seconds)
    }

    /// The time in which all nodes' memories give the weights once.
    fn load_seconds(&self) -> f64 {
        let model = self.machine.model();
        self.bytes / (0..model.nodes()).map(|node| model.memory(node)).sum::<f64>()
    }
}

/// By how many groups a model can be shared, so that each has some of every matrix that is cut: as many as its
/// operators have units, such as heads and blocks of columns.
pub struct Operators<'a> {
    /// The operator that leaves a group without work, if one does; `None` where the model cannot be shared so.
    idle: Box<dyn Fn(usize) -> Option<Option<String>> + 'a>,
    /// Groups that are permitted in any case.
    always: usize,
    /// What lacks units, by groups.
    known: RefCell<BTreeMap<usize, Option<String>>>,
}

impl<'a> Operators<'a> {
    /// Those of a model whose graph is built for so many equal nodes. As many groups as `always`, which the
    /// model is served by without tuning, are permitted whatever it is.
    pub fn new<G: Borrow<Graph>>(
        build: impl Fn(usize) -> Result<G, Error> + 'a,
        always: usize,
    ) -> Operators<'a> {
        let build = move |groups| build(groups).ok().map(|graph| idle(graph.borrow(), groups));
        Operators { idle: Box::new(build), always, known: RefCell::default() }
    }

    /// Whether the groups of a configuration all have some of every operator.
    pub fn permit(&self, configuration: &Configuration) -> bool {
        let groups = configuration.groups().len();
        let mut known = self.known.borrow_mut();
        let whole = || Some("the model".to_owned());
        let lack = known.entry(groups).or_insert_with(|| (self.idle)(groups).unwrap_or_else(whole));
        groups <= self.always || lack.is_none()
    }

    /// The numbers of groups that were not permitted, each with an operator that has fewer units.
    pub fn refused(&self) -> Vec<(usize, String)> {
        let known = self.known.borrow();
        let lack = |(&groups, lack): (&usize, &Option<String>)| Some((groups, lack.clone()?));
        known.iter().filter_map(lack).filter(|(groups, _)| *groups > self.always).collect()
    }
}

/// The first matrix of which some node has nothing.
fn idle(graph: &Graph, nodes: usize) -> Option<String> {
    let idle = |matrix: &&graph::Matrix| (0..nodes).any(|node| matrix.node_bytes(node) == 0);
    graph.matrices().iter().find(idle).map(|matrix| matrix.name.clone())
}
