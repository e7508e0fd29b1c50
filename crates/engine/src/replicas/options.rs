//! How requests are served.

use crate::cores::CoreTurns;
use crate::disk::DiskCache;
use crate::file::ModelFile;
use crate::kv::CacheEvent;
use crate::speculate::Speculation;
use std::sync::Arc;
use std::time::Duration;

/// How requests are served, beside what [`LoadOptions`](crate::LoadOptions) say of each replica.
#[derive(Clone, Debug)]
pub struct ReplicaOptions {
    /// Copies of the model.
    pub replicas: usize,
    /// Requests that may wait beside those for which there is a sequence; `None`: as many as come.
    pub queue: Option<usize>,
    /// How long a step may last that has a part of a prompt. `None`: somewhat longer than without.
    pub max_step: Option<Duration>,
    /// Whether keys and values of ended requests are kept for those that begin alike.
    pub prefix_cache: bool,
    /// Where they are kept on disk as well, to be found again when memory had no room for them, or by another
    /// server.
    pub disk: Option<DiskCache>,
    /// Whether what a slot's last request has left can be [saved](super::Replicas::save_slot) and restored.
    pub saves: bool,
    /// Whether tokens are guessed ahead. Answers are the same in any case.
    pub speculation: Speculation,
    /// Whether they are also where that takes more time than it saves: for measurements.
    pub always_speculate: bool,
    /// The file of the image encoder (mmproj), which each replica loads.
    pub encoder: Option<Arc<ModelFile>>,
    /// Where other models of this process compute on the same cores: all that share them have the same here.
    pub turns: Option<Arc<CoreTurns>>,
    /// Who hears of changes of the prefix caches.
    pub cache_events: Option<CacheEvents>,
}

impl Default for ReplicaOptions {
    fn default() -> ReplicaOptions {
        ReplicaOptions {
            replicas: 1,
            queue: None,
            max_step: None,
            prefix_cache: true,
            disk: None,
            saves: false,
            speculation: Speculation::Off,
            always_speculate: false,
            encoder: None,
            turns: None,
            cache_events: None,
        }
    }
}

/// Who hears of changes of the replicas' prefix caches: after each step, those of a replica in their order. It must not
/// wait for anything.
#[derive(Clone)]
pub struct CacheEvents(Arc<dyn Fn(usize, Vec<CacheEvent>) + Send + Sync>);

impl CacheEvents {
    /// `told` gets the number of the replica and what has changed.
    pub fn new(told: impl Fn(usize, Vec<CacheEvent>) + Send + Sync + 'static) -> CacheEvents {
        CacheEvents(Arc::new(told))
    }

    pub(super) fn tell(&self, replica: usize, events: Vec<CacheEvent>) {
        (self.0)(replica, events);
    }
}

impl std::fmt::Debug for CacheEvents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CacheEvents")
    }
}
