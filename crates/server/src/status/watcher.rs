//! State between two requests for the status.

use super::health::Health;
use super::limits::Limits;
use super::rates::Looks;
use std::sync::{Arc, Mutex, OnceLock};
use topology::Machine;

/// State between two requests for the status.
#[derive(Default)]
pub(crate) struct Watcher {
    machine: OnceLock<Result<Machine, String>>,
    pub(super) looks: Mutex<Looks>,
    pub(super) health: Mutex<Health>,
    pub(super) limits: Arc<Limits>,
}

impl Watcher {
    /// The machine, which is described once.
    pub(super) fn machine(&self) -> Result<&Machine, &str> {
        let machine = self.machine.get_or_init(|| Machine::read().map_err(|e| e.to_string()));
        machine.as_ref().map_err(String::as_str)
    }
}
