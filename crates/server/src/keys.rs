//! The keys that open a server, what each may do, and what it has done. They can change while the server runs.

use crate::fault::Fault;
use axum::http::StatusCode;
use prometheus::proto::MetricFamily;
use prometheus::{IntCounterVec, Opts, Registry};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq;

/// The time that limits are for.
const MINUTE: Duration = Duration::from_secs(60);

/// An API key and what its client may do.
///
/// As text: the key, then words such as `name=ci requests=60 tokens=100000 concurrent=4 models=chat,embed`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Key {
    secret: String,
    /// What it is called in `/metrics` and in the log; without a name it is not told there.
    name: Option<String>,
    /// Requests a minute.
    requests: Option<u64>,
    /// Tokens of prompts and answers a minute.
    tokens: Option<u64>,
    /// Requests at once.
    concurrent: Option<u64>,
    /// Names of models and adapters that it may ask for; all if there are none.
    models: Vec<String>,
}

impl FromStr for Key {
    type Err = String;

    fn from_str(text: &str) -> Result<Key, String> {
        let mut words = text.split_whitespace();
        let secret = words.next().ok_or("an API key must not be empty")?.to_owned();
        let mut key = Key { secret, ..Key::default() };
        for word in words {
            // The key itself is not repeated in a message.
            let (name, value) = word
                .split_once('=')
                .ok_or("behind a key stand words such as requests=60, with a space between them")?;
            let number = || match value.parse::<u64>() {
                Ok(number) if number > 0 => Ok(Some(number)),
                _ => Err(format!("{name}={value}: it must be a whole number of at least 1")),
            };
            match name {
                "name" => key.name = Some(value.to_owned()),
                "requests" => key.requests = number()?,
                "tokens" => key.tokens = number()?,
                "concurrent" => key.concurrent = number()?,
                "models" => key.models = value.split(',').map(str::to_owned).collect(),
                _ => {
                    return Err(format!(
                        "{name} is nothing that a key has: use name, requests, tokens, concurrent, models"
                    ));
                }
            }
        }
        Ok(key)
    }
}

/// What the client of a key has done.
#[derive(Debug)]
pub(crate) struct KeyUse {
    key: Key,
    /// How it is told from others.
    client: u64,
    /// The same in what is kept longer than the server runs. The key does not follow from it.
    owner: String,
    running: AtomicU64,
    /// When the minute began, and requests and tokens in it.
    minute: Mutex<(Instant, u64, u64)>,
    requests: AtomicU64,
    refused: AtomicU64,
    tokens: AtomicU64,
}

impl KeyUse {
    fn new(key: Key) -> KeyUse {
        KeyUse {
            client: client(key.secret.as_bytes()),
            owner: owner(&key.secret),
            key,
            running: AtomicU64::new(0),
            minute: Mutex::new((Instant::now(), 0, 0)),
            requests: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            tokens: AtomicU64::new(0),
        }
    }

    /// A request begins, which runs until what is given is dropped.
    ///
    /// # Errors
    /// 429 when one of the limits is reached.
    pub(crate) fn begin(self: &Arc<KeyUse>) -> Result<KeyLease, Fault> {
        let found = self.try_begin();
        let counter = if found.is_ok() { &self.requests } else { &self.refused };
        counter.fetch_add(1, Relaxed);
        found
    }

    /// The same for what can wait: how long, in the place of an error.
    pub(crate) fn begin_later(self: &Arc<KeyUse>) -> Result<KeyLease, Duration> {
        let found = self.try_begin();
        let lease = found.map_err(|fault| {
            Duration::from_secs(fault.retry_after.unwrap_or(1).into()).min(MINUTE)
        })?;
        self.requests.fetch_add(1, Relaxed);
        Ok(lease)
    }

    /// How it is told from others while the server runs.
    pub(crate) fn client(&self) -> u64 {
        self.client
    }

    /// How what is kept of its client is told from that of others.
    pub(crate) fn owner(&self) -> &str {
        &self.owner
    }

    fn try_begin(self: &Arc<KeyUse>) -> Result<KeyLease, Fault> {
        let refuse = |what: String, wait: Duration| Fault {
            retry_after: Some(wait.as_secs().clamp(1, 60) as u32),
            ..Fault::new(StatusCode::TOO_MANY_REQUESTS, what).code("rate_limit_exceeded")
        };
        let mut minute = self.minute.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if now - minute.0 >= MINUTE {
            *minute = (now, 0, 0);
        }
        let left = MINUTE.saturating_sub(now - minute.0);
        if let Some(most) = self.key.requests.filter(|most| minute.1 >= *most) {
            return Err(refuse(format!("this key has {most} requests a minute"), left));
        }
        if let Some(most) = self.key.tokens.filter(|most| minute.2 >= *most) {
            return Err(refuse(format!("this key has {most} tokens a minute"), left));
        }
        // Under the lock, so that two do not take the last place.
        if let Some(most) = self.key.concurrent.filter(|most| self.running.load(Relaxed) >= *most) {
            let message = format!("this key has {most} requests at once");
            return Err(refuse(message, Duration::from_secs(1)));
        }
        minute.1 += 1;
        self.running.fetch_add(1, Relaxed);
        Ok(KeyLease(self.clone()))
    }

    /// Tokens of prompts and answers were computed for it.
    pub(crate) fn count(&self, tokens: u64) {
        self.tokens.fetch_add(tokens, Relaxed);
        self.minute.lock().unwrap_or_else(PoisonError::into_inner).2 += tokens;
    }

    /// Whether it may ask for something by one of these names.
    ///
    /// # Errors
    /// 403 if it may not.
    pub(crate) fn check<'n>(&self, mut names: impl Iterator<Item = &'n str>) -> Result<(), Fault> {
        let models = &self.key.models;
        if models.is_empty() || names.any(|name| models.iter().any(|known| known == name)) {
            return Ok(());
        }
        let message = format!("this key is for {}", models.join(", "));
        let fault = Fault::new(StatusCode::FORBIDDEN, message).at("model");
        Err(fault.code("model_not_allowed"))
    }
}

/// A request of a key; it has ended when this is dropped.
#[derive(Debug)]
pub(crate) struct KeyLease(Arc<KeyUse>);

impl Drop for KeyLease {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Relaxed);
    }
}

/// API keys. Clones are the same keys.
#[derive(Clone, Default)]
pub struct Keys(Arc<RwLock<Vec<Arc<KeyUse>>>>);

impl From<Vec<Key>> for Keys {
    fn from(keys: Vec<Key>) -> Keys {
        let all = Keys::default();
        all.set(keys);
        all
    }
}

/// How many there are; none of them is shown.
impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} keys", self.all().len())
    }
}

/// How the client of a key is told from others.
pub(crate) fn client(secret: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    secret.hash(&mut hasher);
    hasher.finish()
}

/// The same for what is kept.
fn owner(secret: &str) -> String {
    let hash = blake3::derive_key("arclight 2026-11-26 owner of files", secret.as_bytes());
    hash[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Keys {
    fn all(&self) -> Vec<Arc<KeyUse>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether there are none, so that everybody has access.
    pub fn is_empty(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Takes these from now on. What the client of a key has done is remembered if nothing of it has changed.
    pub fn set(&self, keys: Vec<Key>) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *all);
        let kept = |key: Key| match before.iter().find(|one| one.key == key) {
            Some(one) => one.clone(),
            None => Arc::new(KeyUse::new(key)),
        };
        *all = keys.into_iter().map(kept).collect();
    }

    /// The key that was given, if it is one of these. It is compared with all, and each to its end, so that the time
    /// depends on lengths only.
    pub(crate) fn find(&self, given: &[u8]) -> Option<Arc<KeyUse>> {
        let mut found = None;
        for one in self.0.read().unwrap_or_else(PoisonError::into_inner).iter() {
            if bool::from(one.key.secret.as_bytes().ct_eq(given)) {
                found = Some(one.clone());
            }
        }
        found
    }

    /// The key of a [`client`].
    pub(crate) fn of(&self, of: u64) -> Option<Arc<KeyUse>> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|one| one.client == of).cloned()
    }

    /// The key of an [`owner`](KeyUse::owner).
    pub(crate) fn of_owner(&self, owner: &str) -> Option<Arc<KeyUse>> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|one| one.owner == owner).cloned()
    }

    /// What the keys that have names have done, for `/metrics`.
    pub(crate) fn families(&self) -> Vec<MetricFamily> {
        const VALID: &str = "names and labels are constant and valid";
        let registry = Registry::new();
        let of = |one: &KeyUse| {
            let count = |counter: &AtomicU64| counter.load(Relaxed);
            [count(&one.requests), count(&one.refused), count(&one.tokens)]
        };
        let named: Vec<(String, [u64; 3])> =
            self.all().iter().filter_map(|one| Some((one.key.name.clone()?, of(one)))).collect();
        if named.is_empty() {
            return Vec::new();
        }
        let counters = [
            ("arclight:key_requests_total", "Requests of a key"),
            ("arclight:key_refused_total", "Requests of a key that its limits refused"),
            ("arclight:key_tokens_total", "Tokens of prompts and answers of a key"),
        ];
        for (at, (metric, help)) in counters.into_iter().enumerate() {
            let counter = IntCounterVec::new(Opts::new(metric, help), &["key"]).expect(VALID);
            named.iter().for_each(|(name, counts)| {
                counter.with_label_values(&[name]).inc_by(counts[at]);
            });
            registry.register(Box::new(counter)).expect(VALID);
        }
        registry.gather()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(lines: &[&str]) -> Keys {
        Keys::from(lines.iter().map(|line| line.parse().unwrap()).collect::<Vec<Key>>())
    }

    #[test]
    fn only_whole_keys_open() {
        let keys = keys(&["abc", "second name=two"]);
        let same = keys.clone();
        let opens = |key: &str| keys.find(key.as_bytes()).is_some();
        assert!(opens("abc") && opens("second"));
        assert!(!opens("ab") && !opens("") && !opens("abd") && !opens("second name=two"));
        same.set(vec!["new".parse().unwrap()]);
        assert!(opens("new") && !opens("abc"));
        assert_eq!(format!("{keys:?}"), "1 keys");
    }

    #[test]
    fn what_stands_behind_a_key_is_checked() {
        for (line, words) in [
            ("", "must not be empty"),
            ("k many", "words such as"),
            ("k requests=0", "at least 1"),
            ("k tokens=x", "tokens=x"),
            ("k colour=red", "colour is nothing"),
        ] {
            let fault = line.parse::<Key>().unwrap_err();
            assert!(fault.contains(words) && !fault.starts_with('k'), "{line}: {fault}");
        }
    }

    #[test]
    fn limits_are_for_a_minute_and_at_once() {
        let keys = keys(&["k requests=3 concurrent=2 tokens=10 models=a,b"]);
        let one = keys.find(b"k").unwrap();
        let (first, second) = (one.begin().unwrap(), one.begin().unwrap());
        let fault = one.begin().unwrap_err();
        assert_eq!((fault.status.as_u16(), fault.code), (429, Some("rate_limit_exceeded")));
        assert!(fault.message.contains("2 requests at once"), "{}", fault.message);
        drop(first);
        let third = one.begin().unwrap();
        drop((second, third));
        let fault = one.begin().unwrap_err();
        assert!(fault.message.contains("3 requests a minute"), "{}", fault.message);
        assert!(fault.retry_after.is_some_and(|wait| (50..=60).contains(&wait)), "{fault:?}");
        // The same key with another limit begins anew; one that is the same does not.
        keys.set(vec!["k tokens=10".parse().unwrap(), "other".parse().unwrap()]);
        let one = keys.find(b"k").unwrap();
        one.begin().unwrap();
        one.count(10);
        keys.set(vec!["k tokens=10".parse().unwrap()]);
        let fault = keys.of(client(b"k")).unwrap().begin().unwrap_err();
        assert!(fault.message.contains("10 tokens a minute"), "{}", fault.message);
        assert!(one.check(["x"].into_iter()).is_ok());
        let only: Key = "k models=a,b".parse().unwrap();
        let only = KeyUse::new(only);
        assert!(only.check(["x", "b"].into_iter()).is_ok());
        assert_eq!(only.check(["x"].into_iter()).unwrap_err().status.as_u16(), 403);
    }
}
