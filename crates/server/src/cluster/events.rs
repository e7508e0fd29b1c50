//! Changes of the prefix cache for programs that route requests by it, over ZeroMQ, as vLLM publishes them.
//!
//! A `PUB` socket sends three frames for each step that changed something: the topic, a number that grows by one
//! (8 bytes, the highest first), and MessagePack: `[time, [event, …], replica]`, where events are maps with a `type`.
//! A subscriber that has missed numbers asks for them on a `ROUTER` socket: a frame with the first number wanted is
//! answered by messages of number and MessagePack for those that are still kept, and at the end by the number −1.
//!
//! The last messages are [`Kept`], and no others: who publishes waits for nothing, the oldest give way, and a peer that
//! reads too slowly finds a gap in the numbers.

use super::kept::{Change, Kept, Most};
use super::sockets::{self, Bounds, Peers, Socket};
use crate::error::Error;
use arclight_engine::{CacheEvent, CacheEvents};
use bytes::Bytes;
use serde::Serialize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::task::AbortHandle;

/// Messages that are kept, also for subscribers that are slow or have missed some.
const KEPT: Most = Most { messages: 10_000, bytes: 64 << 20 };

/// Bounds of both sockets.
const BOUNDS: Bounds = Bounds {
    connections: 128,
    of_address: 32,
    greeting: Duration::from_secs(5),
    send: Duration::from_secs(10),
    replays: 4,
    replay: Duration::from_secs(60),
};

/// Tokens of a block.
const BLOCK: usize = arclight_engine::KV_PAGE;

/// Where the cache is.
const MEDIUM: &str = "CPU";

/// An event on the wire.
#[derive(Debug, PartialEq, Serialize)]
#[serde(tag = "type")]
enum Told<'a> {
    BlockStored {
        block_hashes: [u64; 1],
        parent_block_hash: Option<u64>,
        token_ids: &'a [u32],
        block_size: usize,
        lora_id: Option<u32>,
        medium: &'static str,
        lora_name: Option<&'a str>,
    },
    BlockRemoved {
        block_hashes: [u64; 1],
        medium: &'static str,
    },
    AllBlocksCleared,
}

fn told<'a>(event: &'a CacheEvent, adapters: &'a [String]) -> Told<'a> {
    match event {
        CacheEvent::Stored { block, parent, tokens, adapter } => Told::BlockStored {
            block_hashes: [*block],
            parent_block_hash: *parent,
            token_ids: tokens,
            block_size: BLOCK,
            lora_id: *adapter,
            medium: MEDIUM,
            lora_name: adapter.and_then(|at| adapters.get(at as usize)).map(String::as_str),
        },
        CacheEvent::Removed { block } => {
            Told::BlockRemoved { block_hashes: [*block], medium: MEDIUM }
        }
        CacheEvent::Cleared => Told::AllBlocksCleared,
    }
}

/// The messages, and the tasks that take connections as long as there is one who publishes.
struct Hub {
    kept: Arc<Kept>,
    /// With the connections that they have.
    tasks: Mutex<Vec<(AbortHandle, Arc<Peers>)>>,
}

impl Drop for Hub {
    fn drop(&mut self) {
        let tasks = self.tasks.get_mut().unwrap_or_else(PoisonError::into_inner);
        tasks.iter().for_each(|(task, _)| task.abort());
    }
}

/// Publishes changes of the prefix caches of a server's models.
#[derive(Clone)]
pub struct CachePublisher {
    hub: Arc<Hub>,
    /// Names this server in topics.
    pod: String,
    endpoint: String,
    replay: Option<String>,
}

impl CachePublisher {
    /// Opens the sockets, as in `tcp://*:5557`: one for changes, and one for those that were missed. `pod` names this
    /// server in the topics, which are `kv@POD@MODEL`.
    ///
    /// # Errors
    /// When an endpoint cannot be, or is taken.
    pub async fn open(
        endpoint: &str,
        replay: Option<&str>,
        pod: String,
    ) -> Result<CachePublisher, Error> {
        CachePublisher::within((KEPT, BOUNDS), endpoint, replay, pod).await
    }

    pub(super) async fn within(
        (most, bounds): (Most, Bounds),
        endpoint: &str,
        replay: Option<&str>,
        pod: String,
    ) -> Result<CachePublisher, Error> {
        let hub = Arc::new(Hub { kept: Arc::new(Kept::new(most)), tasks: Mutex::default() });
        let open = async |endpoint: &str, socket| {
            let fault = |source| Error::Listen { at: endpoint.to_owned(), source };
            let (listener, bound) = sockets::listen(endpoint).await.map_err(fault)?;
            let (kept, peers) = (Arc::downgrade(&hub.kept), Arc::new(Peers::default()));
            let task = sockets::accept(listener, socket, kept, peers.clone(), bounds);
            let task = tokio::spawn(task).abort_handle();
            hub.tasks.lock().unwrap_or_else(PoisonError::into_inner).push((task, peers));
            Ok::<_, Error>(format!("tcp://{bound}"))
        };
        let endpoint = open(endpoint, Socket::Publish).await?;
        let replay = match replay {
            Some(replay) => Some(open(replay, Socket::Replay).await?),
            None => None,
        };
        Ok(CachePublisher { hub, pod, endpoint, replay })
    }

    #[cfg(test)]
    pub(super) fn kept(&self) -> &Kept {
        &self.hub.kept
    }

    /// Connections to both sockets.
    #[cfg(test)]
    pub(super) fn peers(&self) -> usize {
        self.hub.tasks.lock().unwrap().iter().map(|(_, peers)| peers.count()).sum()
    }

    /// Where it publishes, with the port if it was left to the system.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Where it answers who has missed something.
    pub fn replay(&self) -> Option<&str> {
        self.replay.as_deref()
    }

    /// Who hears of a model's changes; its adapters by their numbers.
    pub fn of(&self, model: &str, adapters: Vec<String>) -> CacheEvents {
        let topic = Bytes::from(format!("kv@{}@{model}", self.pod));
        let hub = self.hub.clone();
        let adapters = Arc::new(adapters);
        CacheEvents::new(move |replica, events| {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let time = now.map_or(0.0, |time| time.as_secs_f64());
            let events: Vec<Told<'_>> = events.iter().map(|e| told(e, &adapters)).collect();
            match rmp_serde::to_vec_named(&(time, events, replica)) {
                Ok(payload) => {
                    hub.kept.push(Change { topic: topic.clone(), payload: payload.into() });
                }
                Err(e) => tracing::error!("a cache event cannot be written: {e}"),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_maps_with_a_type() {
        let adapters = ["sql".to_owned()];
        let stored =
            CacheEvent::Stored { block: 7, parent: None, tokens: vec![1, 2], adapter: Some(0) };
        let bytes = rmp_serde::to_vec_named(&(1.5, [told(&stored, &adapters)], 2)).unwrap();
        // An array of three: a float of 8 bytes, an array of one map with 8 entries, a number.
        assert_eq!((bytes[0], bytes[1], bytes[10], bytes[11]), (0x93, 0xcb, 0x91, 0x88));
        let text = String::from_utf8_lossy(&bytes);
        let at = |word: &str| text.find(word).unwrap_or_else(|| panic!("no {word} in {text:?}"));
        assert!(at("type") < at("BlockStored") && at("BlockStored") < at("parent_block_hash"));
        assert!(at("sql") > at("lora_name"));
        let cleared = rmp_serde::to_vec_named(&told(&CacheEvent::Cleared, &[])).unwrap();
        assert_eq!(cleared, b"\x81\xa4type\xb0AllBlocksCleared");
    }
}
