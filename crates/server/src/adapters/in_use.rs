//! Adapters that clients can name, and those that answers have at this moment.

use arclight_engine::Adapted;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// An adapter that clients can name.
#[derive(Clone, Debug, PartialEq)]
pub struct ServedAdapter {
    /// Its name on the wire.
    pub name: String,
    /// Its factor where it is named.
    pub scale: f32,
}

/// Adapters that answers name, which run or wait.
#[derive(Default)]
pub(crate) struct AdaptersInUse(Arc<Mutex<BTreeMap<u32, usize>>>);

/// Those of an answer, which are in use until this is dropped.
pub(crate) struct AdaptersHeld {
    counts: Arc<Mutex<BTreeMap<u32, usize>>>,
    held: Vec<u32>,
}

impl AdaptersInUse {
    /// An answer begins that names these.
    pub(crate) fn hold(&self, named: &Option<Vec<Adapted>>) -> AdaptersHeld {
        let held: Vec<u32> = named.iter().flatten().map(|one| one.adapter).collect();
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.iter().for_each(|adapter| *counts.entry(*adapter).or_insert(0) += 1);
        AdaptersHeld { counts: self.0.clone(), held }
    }

    /// Their numbers.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.keys().copied().collect()
    }
}

impl Drop for AdaptersHeld {
    fn drop(&mut self) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        for adapter in &self.held {
            if let Some(count) = counts.get_mut(adapter) {
                *count -= 1;
            }
        }
        counts.retain(|_, count| *count > 0);
    }
}
