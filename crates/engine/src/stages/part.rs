//! What one host has of a model, and what of it depends on the whole.

use super::options::StageOptions;
use crate::error::Error;
use crate::options::LoadOptions;
use crate::room::{self, Room};
use gguf::Gguf;
use graph::{Graph, KV_CLASSES, Keep, Shares};
use std::ops::Range;

/// A stage that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LostStage {
    stage: usize,
    of: usize,
    address: String,
    reason: String,
}

impl LostStage {
    /// The one that an error tells of, if it does.
    pub(crate) fn of(error: &Error) -> Option<LostStage> {
        match error {
            Error::StageLost { stage, of, address, reason } => {
                let (address, reason) = (address.clone(), reason.clone());
                Some(LostStage { stage: *stage, of: *of, address, reason })
            }
            _ => None,
        }
    }

    pub(crate) fn error(&self) -> Error {
        let LostStage { stage, of, address, reason } = self.clone();
        Error::StageLost { stage, of, address, reason }
    }
}

/// A whole model, and how its layers are cut.
pub(crate) struct Whole {
    graph: Graph,
    /// Of each stage.
    pub layers: Vec<Range<usize>>,
    /// Which of them is this host's.
    me: usize,
    front: bool,
}

impl Whole {
    pub(crate) fn read(gguf: &Gguf<'_>, stage: &StageOptions) -> Result<Whole, Error> {
        stage.check()?;
        // One node: what follows from it is to be the same on all hosts.
        let model = models::build(gguf, Shares::from(1))?;
        let layers = models::stages(&model, stage.of)?;
        // An error names what is in the way on every host alike.
        for part in &layers {
            models::build_part(gguf, Shares::from(1), part.clone())?;
        }
        let (me, front) = (stage.number - 1, stage.is_front());
        Ok(Whole { graph: model.graph, layers, me, front })
    }

    /// This host's layers.
    pub(crate) fn own(&self) -> Range<usize> {
        self.layers[self.me].clone()
    }

    /// Whether every token gives something: the residual stream for the next stage.
    pub(crate) fn hands_on(&self) -> bool {
        !self.front
    }

    /// The cache that all stages have alike, if sequences have this room; `part` is this host's graph.
    pub(crate) fn cache(mut self, part: &Graph, room: Room, options: &LoadOptions) -> Cache {
        self.graph.set_context(room.context);
        let pages = room.pages(&self.graph, options);
        let classes: Vec<(Keep, usize)> = self.graph.classes().iter().copied().zip(pages).collect();
        let of = |keep: &Keep| classes.iter().position(|(whole, _)| whole == keep);
        let map = part.classes().iter().map(|keep| of(keep).expect("a part of the whole"));
        let map = map.collect();
        let interval = room::interval(&self.graph, options.kv);
        Cache { classes, map, interval }
    }
}

/// The pages of the whole model, and which classes of them this host has.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    /// What is kept, and in how many pages.
    pub classes: Vec<(Keep, usize)>,
    /// By class of this host's graph.
    pub map: Vec<usize>,
    /// Tokens from one snapshot of fixed states to the next.
    pub interval: usize,
}

impl Cache {
    /// The pages of this host.
    pub(crate) fn own_pages(&self) -> [usize; KV_CLASSES] {
        let mut pages = [0; KV_CLASSES];
        for (pages, &class) in pages.iter_mut().zip(&self.map) {
            *pages = self.classes[class].1;
        }
        pages
    }

    /// The pages of all classes, for comparison.
    pub(crate) fn pages(&self) -> Vec<u32> {
        self.classes.iter().map(|(_, pages)| *pages as u32).collect()
    }
}
