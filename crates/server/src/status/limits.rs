//! What the memory beside each group of threads can deliver: measured once, on the engine's own threads, in idle
//! time, and only when somebody asks for the status.

use super::lock::lock;
use arclight_engine::{Engine, Replicas};
use std::sync::{Arc, Mutex};

/// Measures what the memory beside each group of an engine's threads can deliver, in bytes per second; the text says
/// why that cannot be measured.
pub type MeasureReads = fn(&mut Engine) -> Result<Vec<f64>, String>;

/// Of one replica.
#[derive(Clone, Debug, Default)]
pub(super) enum Limit {
    /// Not asked for.
    #[default]
    Unasked,
    /// Waits for idle time.
    Asked,
    /// Bytes per second of each group.
    Known(Vec<f64>),
    /// Why it is not known.
    Failed(String),
}

#[derive(Default)]
pub(super) struct Limits(Mutex<Vec<Limit>>);

impl Limits {
    /// Has them measured when there is time, unless they are known.
    pub(super) fn ask(self: &Arc<Self>, replicas: &Replicas, measure: MeasureReads) {
        let status = replicas.status();
        let mut all = lock(&self.0);
        all.resize_with(replicas.replicas().len(), Limit::default);
        for (at, limit) in all.iter_mut().enumerate() {
            if status.get(at).is_none_or(|replica| replica.failure.is_some()) {
                // What it was asked is forgotten; it may come back.
                if matches!(limit, Limit::Asked) {
                    *limit = Limit::Unasked;
                }
                continue;
            }
            if !matches!(limit, Limit::Unasked) {
                continue;
            }
            let limits = self.clone();
            let asked = replicas.idle_time(at).ask(move |engine| {
                let measured = match measure(engine) {
                    Ok(groups) => Limit::Known(groups),
                    Err(why) => Limit::Failed(why),
                };
                if let Some(limit) = lock(&limits.0).get_mut(at) {
                    *limit = measured;
                }
            });
            *limit = match asked {
                Ok(()) => Limit::Asked,
                Err(error) => Limit::Failed(error.to_string()),
            };
        }
    }

    /// Of a replica.
    pub(super) fn of(&self, replica: usize) -> Limit {
        lock(&self.0).get(replica).cloned().unwrap_or_default()
    }
}
