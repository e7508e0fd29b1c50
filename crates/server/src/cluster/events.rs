//! Changes of the prefix cache for who routes requests by it, over ZeroMQ, as vLLM publishes them.
//!
//! A `PUB` socket sends three frames for each step that changed something: the topic, a number that grows by one
//! (8 bytes, the highest first), and MessagePack: `[time, [event, …], replica]`, where events are maps with a `type`.
//! Who has missed numbers asks for them on a `ROUTER` socket: a frame with the first number wanted is answered by
//! messages of number and MessagePack for those that are still kept, and at the end by the number −1.

use crate::error::Error;
use arclight_engine::{CacheEvent, CacheEvents};
use bytes::Bytes;
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use zeromq::{PubSocket, RouterSocket, Socket, SocketRecv, SocketSend, ZmqMessage};

/// Messages that are kept for who has missed them.
const KEPT: usize = 10_000;

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

/// What a step has changed, on its way to the socket.
struct Change {
    topic: Bytes,
    payload: Bytes,
}

/// Publishes changes of the prefix caches of a server's models.
#[derive(Clone)]
pub struct CachePublisher {
    changes: UnboundedSender<Change>,
    /// Names this server in topics.
    pod: String,
    endpoint: String,
    replay: Option<String>,
}

impl CachePublisher {
    /// Opens the sockets, as in `tcp://*:5557`: one for changes, and one for those that were missed. `pod` names this server in the
    /// topics, which are `kv@POD@MODEL`.
    ///
    /// # Errors
    /// When an endpoint cannot be, or is taken.
    pub async fn open(
        endpoint: &str,
        replay: Option<&str>,
        pod: String,
    ) -> Result<CachePublisher, Error> {
        let fault = |endpoint: &str, why: String| Error::Listen {
            at: endpoint.to_owned(),
            source: std::io::Error::other(why),
        };
        let mut publish = PubSocket::new();
        let bound = publish.bind(&every(endpoint)).await;
        let bound = bound.map_err(|e| fault(endpoint, e.to_string()))?.to_string();
        let (router, asked) = match replay {
            None => (None, None),
            Some(endpoint) => {
                let mut router = RouterSocket::new();
                let bound = router.bind(&every(endpoint)).await;
                let bound = bound.map_err(|e| fault(endpoint, e.to_string()))?;
                (Some(router), Some(bound.to_string()))
            }
        };
        let (changes, received) = unbounded_channel();
        tokio::spawn(run(publish, router, received));
        Ok(CachePublisher { changes, pod, endpoint: bound, replay: asked })
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
        let changes = self.changes.clone();
        let adapters = Arc::new(adapters);
        CacheEvents::new(move |replica, events| {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let time = now.map_or(0.0, |time| time.as_secs_f64());
            let events: Vec<Told<'_>> = events.iter().map(|e| told(e, &adapters)).collect();
            match rmp_serde::to_vec_named(&(time, events, replica)) {
                // Nobody publishes any more when the server ends.
                Ok(payload) => {
                    let _ = changes.send(Change { topic: topic.clone(), payload: payload.into() });
                }
                Err(e) => tracing::error!("a cache event cannot be written: {e}"),
            }
        })
    }
}

/// An endpoint on every address, in the words of the library.
fn every(endpoint: &str) -> String {
    endpoint.replace("://*:", "://0.0.0.0:")
}

async fn run(
    mut publish: PubSocket,
    mut router: Option<RouterSocket>,
    mut changes: UnboundedReceiver<Change>,
) {
    let mut kept: VecDeque<(u64, Bytes)> = VecDeque::new();
    let mut next: u64 = 0;
    loop {
        let asked = async {
            match &mut router {
                Some(router) => router.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            change = changes.recv() => {
                let Some(Change { topic, payload }) = change else { return };
                let number = Bytes::copy_from_slice(&next.to_be_bytes());
                if let Err(e) = publish.send(message([topic, number, payload.clone()])).await {
                    tracing::warn!("a cache event is not published: {e}");
                }
                kept.push_back((next, payload));
                if kept.len() > KEPT {
                    kept.pop_front();
                }
                next += 1;
            }
            asked = asked => match (asked, &mut router) {
                (Ok(asked), Some(router)) => {
                    if let Err(e) = replay(router, &asked, &kept).await {
                        tracing::debug!("who asked for cache events is gone: {e}");
                    }
                }
                (Err(e), _) => tracing::debug!("a question for cache events cannot be read: {e}"),
                (Ok(_), None) => {}
            },
        }
    }
}

fn message<const N: usize>(frames: [Bytes; N]) -> ZmqMessage {
    ZmqMessage::try_from(frames.to_vec()).expect("it has frames")
}

/// Answers who asks for the messages from a number on.
async fn replay(
    router: &mut RouterSocket,
    asked: &ZmqMessage,
    kept: &VecDeque<(u64, Bytes)>,
) -> Result<(), zeromq::ZmqError> {
    // Who asks, perhaps an empty frame, and the number.
    let Some(who) = asked.get(0).cloned() else { return Ok(()) };
    let number = asked.get(asked.len() - 1).and_then(|frame| frame.as_ref().try_into().ok());
    let Some(first) = number.map(u64::from_be_bytes).filter(|_| asked.len() > 1) else {
        tracing::debug!("a question for cache events has no number of 8 bytes");
        return Ok(());
    };
    for (number, payload) in kept.iter().filter(|(number, _)| *number >= first) {
        let number = Bytes::copy_from_slice(&number.to_be_bytes());
        router.send(message([who.clone(), Bytes::new(), number, payload.clone()])).await?;
    }
    let end = Bytes::copy_from_slice(&(-1_i64).to_be_bytes());
    router.send(message([who, Bytes::new(), end, Bytes::new()])).await
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
