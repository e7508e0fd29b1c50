//! The part of a model that a host is to have, and the key that it shares with the other hosts.

use crate::error::Error;
use std::fmt;

/// One of several hosts that have the layers of a model together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageOptions {
    /// Which stage this host is, from 1 on. The last one is the front: it has the head, and takes requests.
    pub number: usize,
    /// How many stages there are.
    pub of: usize,
    /// Where the stages before the front listen, from the first on, for the front alone. The others use these
    /// addresses too.
    pub peers: Vec<String>,
    /// What the hosts know each other by.
    pub key: StageKey,
    /// Whether it listens without a key on addresses that other hosts can reach.
    pub without_key: bool,
}

impl StageOptions {
    pub(crate) fn is_front(&self) -> bool {
        self.number == self.of
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let StageOptions { number, of, ref peers, .. } = *self;
        if of < 2 || !(1..=of).contains(&number) {
            return Err(Error::BadStage { number, of });
        }
        if self.is_front() && peers.len() != of - 1 {
            return Err(Error::StagePeers { got: peers.len(), need: of - 1 });
        }
        Ok(())
    }
}

/// A secret that the hosts of a model share.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StageKey([u8; 32]);

impl StageKey {
    /// Made of any bytes, spaces at their end not counted.
    pub fn new(secret: &[u8]) -> StageKey {
        StageKey(blake3::derive_key("arclight stage key 1", secret.trim_ascii_end()))
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        *self == StageKey::default()
    }

    /// The keyed hash of these parts, one after the other.
    pub(super) fn hash(&self, parts: &[&[u8]]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        parts.iter().for_each(|part| _ = hasher.update(part));
        hasher.finalize()
    }
}

impl fmt::Debug for StageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StageKey")
    }
}
