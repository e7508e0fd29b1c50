//! Responses that were made, for a while.
//!
//! What is kept is JSON text, bounded in number, bytes and time since the last use; of too many the one that was
//! used longest ago goes first. Items are shared between a response and those that go on from it, but
//! counted with each, so that the bound holds whichever of them goes.

use serde_json::value::RawValue;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Responses.
const MOST: usize = 4096;
/// Bytes of all of them.
const MOST_BYTES: usize = 64 << 20;
/// Time since the last use.
const KEPT: Duration = Duration::from_secs(3600);

/// Bytes of a response or an item besides its text and its id: their places in lists and tables.
const EACH: usize = 256;

/// An item of a conversation.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) id: Arc<str>,
    /// Compact JSON.
    pub(crate) text: Arc<RawValue>,
}

/// A response with the whole conversation that led to it.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    /// The client that may read it.
    pub(crate) owner: u64,
    pub(crate) response: Arc<RawValue>,
    /// All before, what was new, and the answer.
    pub(crate) items: Vec<Item>,
    /// Where the answer begins in them.
    pub(crate) output: usize,
}

/// Responses by their ids.
#[derive(Debug, Default)]
pub(crate) struct Store(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    entries: HashMap<String, Entry>,
    /// Ids by their last use.
    order: BTreeMap<u64, String>,
    uses: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    stored: Stored,
    bytes: usize,
    used: u64,
    at: Instant,
}

impl Store {
    /// Keeps a response.
    pub(crate) fn put(&self, id: &str, stored: Stored) {
        let bytes = stored.size();
        let mut inner = self.lock();
        inner.expire(Instant::now());
        if bytes > MOST_BYTES {
            tracing::warn!(id, bytes, "a response is too large to be kept");
            return;
        }
        inner.remove(id);
        while inner.entries.len() >= MOST || inner.bytes + bytes > MOST_BYTES {
            inner.remove_oldest();
        }
        let used = inner.next_use(id);
        inner.bytes += bytes;
        inner.entries.insert(id.to_owned(), Entry { stored, bytes, used, at: Instant::now() });
    }

    /// The response with an id, if it is there and the owner's.
    pub(crate) fn get(&self, id: &str, owner: u64) -> Option<Stored> {
        let mut inner = self.lock();
        inner.expire(Instant::now());
        let used = inner.entries.get(id).filter(|entry| entry.stored.owner == owner)?.used;
        inner.order.remove(&used);
        let used = inner.next_use(id);
        let entry = inner.entries.get_mut(id)?;
        (entry.used, entry.at) = (used, Instant::now());
        Some(entry.stored.clone())
    }

    /// Forgets a response; whether it was there and the owner's.
    pub(crate) fn delete(&self, id: &str, owner: u64) -> bool {
        let mut inner = self.lock();
        inner.expire(Instant::now());
        let there = inner.entries.get(id).is_some_and(|entry| entry.stored.owner == owner);
        if there {
            inner.remove(id);
        }
        there
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn next_use(&mut self, id: &str) -> u64 {
        self.uses += 1;
        self.order.insert(self.uses, id.to_owned());
        self.uses
    }

    fn remove(&mut self, id: &str) {
        if let Some(entry) = self.entries.remove(id) {
            self.order.remove(&entry.used);
            self.bytes -= entry.bytes;
        }
    }

    fn remove_oldest(&mut self) {
        if let Some(id) = self.order.first_key_value().map(|(_, id)| id.clone()) {
            self.remove(&id);
        }
    }

    /// Forgets what was not used for long. The order of uses is that of time.
    fn expire(&mut self, now: Instant) {
        let old = |entry: &Entry| now.saturating_duration_since(entry.at) > KEPT;
        while let Some((_, id)) = self.order.first_key_value()
            && self.entries.get(id).is_none_or(old)
        {
            self.remove_oldest();
        }
    }
}

impl Stored {
    /// Bytes that it takes.
    fn size(&self) -> usize {
        let item = |item: &Item| item.text.get().len() + item.id.len() + EACH;
        self.response.get().len() + EACH + self.items.iter().map(item).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(owner: u64, bytes: usize) -> Stored {
        let text = format!("\"{}\"", "x".repeat(bytes.saturating_sub(EACH + 2)));
        let response = RawValue::from_string(text).unwrap().into();
        Stored { owner, response, items: Vec::new(), output: 0 }
    }

    #[test]
    fn only_the_owner_sees_a_response() {
        let store = Store::default();
        store.put("a", stored(1, 10));
        assert!(store.get("a", 2).is_none() && !store.delete("a", 2));
        assert!(store.get("a", 1).is_some() && store.delete("a", 1));
        assert!(store.get("a", 1).is_none() && store.lock().bytes == 0);
    }

    #[test]
    fn number_and_bytes_are_bounded_and_the_used_stay() {
        let store = Store::default();
        for n in 0..MOST + 10 {
            store.put(&n.to_string(), stored(0, 10));
            store.get("0", 0).unwrap();
        }
        assert_eq!(store.lock().entries.len(), MOST);
        assert_eq!(store.lock().order.len(), MOST);
        assert!(store.get("1", 0).is_none() && store.get(&(MOST + 9).to_string(), 0).is_some());
        store.put("large", stored(0, MOST_BYTES - 1000));
        assert!(store.lock().bytes <= MOST_BYTES);
        assert!(store.get("large", 0).is_some());
        store.put("too large", stored(0, MOST_BYTES + 1));
        assert!(store.get("too large", 0).is_none() && store.get("large", 0).is_some());
    }

    #[test]
    fn what_is_not_used_goes() {
        let store = Store::default();
        store.put("a", stored(0, 10));
        let later = Instant::now() + KEPT + Duration::from_secs(1);
        store.lock().expire(later);
        assert!(store.lock().entries.is_empty() && store.lock().order.is_empty());
    }
}
