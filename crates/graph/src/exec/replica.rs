//! Replicas: the data that a group of threads looks up at every step.

use crate::book::Cost;
use crate::compile::Stage;
use crate::error::Error;
use crate::graph::Graph;
use crate::load::WeightTable;
use crate::places::Places;
use crate::plan::Plan;
use crate::step::StepInput;
use crate::tally::Tally;
use crate::variant::Variant;
use std::collections::HashMap;
use std::sync::OnceLock;
use threads::{Pool, View};

/// What a group of threads looks up at every step: a replica of its own, so that nothing is read
/// from another node.
#[derive(Clone)]
pub(crate) struct Replica {
    pub graph: Graph,
    pub plan: Plan,
    pub programs: HashMap<Variant, Form>,
    pub places: Places,
    pub weight_table: WeightTable,
}

/// A replica in its group's own memory: even its first level must not lie beside the others'.
pub(crate) struct LocalReplica(pub(super) Box<Replica>);

impl LocalReplica {
    /// Moves it to where the calling thread allocates.
    pub(crate) fn new(replica: Replica) -> LocalReplica {
        LocalReplica(Box::new(replica))
    }
}

impl std::ops::Deref for LocalReplica {
    type Target = Replica;

    fn deref(&self) -> &Replica {
        &self.0
    }
}

/// A graph in one form.
#[derive(Clone)]
pub(crate) struct Form {
    /// What the threads do: one program, or one for each stage of a pipeline.
    pub stages: Vec<Vec<Stage>>,
    /// What they cost at each level in each place.
    pub costs: Vec<Vec<Cost>>, // [level][place]
}

/// A part of a step.
#[derive(Copy, Clone)]
pub(crate) struct StepPart<'a> {
    pub input: &'a StepInput,
    pub variant: Variant,
    /// Rows of logits of the parts before.
    pub logits_before: usize,
    /// Their hidden states.
    pub hidden_before: usize,
    /// Which part it is, and who is told of the experts that it chooses.
    pub at: usize,
    pub tally: Option<&'a Tally>,
}

/// Gives every group a copy of `first`, made by a thread of its own, so that it lies near.
pub(crate) fn replicate(first: Replica, pool: &mut Pool) -> Result<Vec<LocalReplica>, Error> {
    let first = LocalReplica::new(first);
    let others: Vec<OnceLock<LocalReplica>> = (1..pool.groups()).map(|_| OnceLock::new()).collect();
    pool.run(&|worker| {
        worker.switch(View::Groups);
        if worker.group() > 0 && worker.rank() == 0 {
            others[worker.group() - 1].get_or_init(|| LocalReplica::new((*first).clone()));
        }
    })?;
    Ok(std::iter::once(first).chain(others.into_iter().filter_map(OnceLock::into_inner)).collect())
}
