//! The adapters of replicas, and their factors in requests that name none.

use crate::adapter::{AdapterUse, check_set, normal};
use crate::decode::Request;
use crate::error::Error;
use graph::Adapted;
use std::sync::{PoisonError, RwLock};

/// The adapters that are loaded, and the factors that they have in requests which say nothing.
pub(super) struct Adapters {
    all: Vec<AdapterUse>,
    scales: RwLock<Vec<f32>>,
}

impl Adapters {
    pub(super) fn new(all: Vec<AdapterUse>) -> Adapters {
        let scales = RwLock::new(all.iter().map(|one| one.scale).collect());
        Adapters { all, scales }
    }

    /// The set of a request.
    pub(super) fn of(&self, request: &Request) -> Result<Vec<Adapted>, Error> {
        let usual = || {
            let scales = self.scales.read().unwrap_or_else(PoisonError::into_inner);
            scales.iter().zip(0..).map(|(&scale, adapter)| Adapted { adapter, scale }).collect()
        };
        let set = request.adapters.clone().unwrap_or_else(usual);
        check_set(&set, self.all.len())?;
        Ok(normal(&set))
    }

    /// All adapters with their present factors.
    pub(super) fn all(&self) -> Vec<AdapterUse> {
        let scales = self.scales.read().unwrap_or_else(PoisonError::into_inner);
        let all = self.all.iter().zip(&*scales);
        all.map(|(one, &scale)| AdapterUse { scale, ..one.clone() }).collect()
    }

    /// Sets the factors of later requests; adapters that are not in `set` are off.
    pub(super) fn set_scales(&self, set: &[Adapted]) -> Result<(), Error> {
        check_set(set, self.all.len())?;
        let mut scales = self.scales.write().unwrap_or_else(PoisonError::into_inner);
        scales.fill(0.0);
        set.iter().for_each(|one| scales[one.adapter as usize] = one.scale);
        Ok(())
    }
}
