//! The other hosts of a model, and the steps that they take.

use crate::control::Control;
use crate::error::Error;
use crate::file::ModelFile;
use crate::kv::{KvCache, Sizes};
use crate::load;
use crate::options::LoadOptions;
use crate::stages::{self, Cache, Group, Order};
use graph::Outputs;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use topology::Machine;

/// The other hosts of a model, and steps that are under way.
pub(crate) struct Staged {
    pub(super) group: Group,
    pub(super) cache: Cache,
    sizes: Sizes,
    pub(super) sent: VecDeque<Sent>,
    pub(super) next: u64,
}

/// A step that the stages before this one take, or have taken.
pub(super) struct Sent {
    pub(super) order: Order,
    pub(super) outputs: Vec<Outputs>,
}

/// A step that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SentStep(pub(super) u64);

/// Options with a cache that fits on all hosts of a model, if it has several; waits until they are there.
pub(crate) fn agree(
    file: &ModelFile,
    machine: &Machine,
    options: &LoadOptions,
    control: &Control,
) -> Result<Option<LoadOptions>, Error> {
    let Some(stage) = &options.stage else { return Ok(None) };
    if !stage.is_front() {
        return Err(Error::BadStage { number: stage.number, of: stage.of });
    }
    let own = load::size(file, machine, std::slice::from_ref(machine), options)?.room;
    let Some(mut group) = Group::new(file, options)? else { return Ok(None) };
    group.wait(&control.stop)?;
    Ok(Some(stages::agree(&mut group, options, own)?))
}

/// Has the other hosts load their layers, if there are such.
pub(super) fn begin(
    file: &ModelFile,
    options: &LoadOptions,
    control: &Control,
) -> Result<Option<Group>, Error> {
    let Some(mut group) = Group::new(file, options)? else { return Ok(None) };
    group.wait(&control.stop)?;
    group.load(options)?;
    Ok(Some(group))
}

impl Staged {
    /// Waits until the others have loaded.
    pub(super) fn new(
        mut group: Group,
        cache: Cache,
        sizes: Sizes,
        control: &Control,
    ) -> Result<Staged, Error> {
        group.ready(&cache.pages(), &|| control.stop.load(Relaxed))?;
        Ok(Staged { group, cache, sizes, sent: VecDeque::new(), next: 0 })
    }

    /// The books of pages that all hosts have.
    pub(super) fn empty_cache(&self) -> KvCache {
        KvCache::new(self.sizes, self.cache.classes.iter().copied())
    }
}
