//! Nodes of the prefix cache that are to be written to a disk, each once.

use super::prefix::NodeId;
use crate::disk::Name;
use std::collections::{HashSet, VecDeque};

/// Nodes that are to be written.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    queue: VecDeque<(NodeId, Name)>,
    queued: HashSet<Name>,
}

impl Outgoing {
    pub(super) fn push(&mut self, id: NodeId, name: Name) {
        if self.queued.insert(name) {
            self.queue.push_back((id, name));
        }
    }

    pub(super) fn pop(&mut self) -> Option<(NodeId, Name)> {
        let (id, name) = self.queue.pop_front()?;
        self.queued.remove(&name);
        Some((id, name))
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }
}
