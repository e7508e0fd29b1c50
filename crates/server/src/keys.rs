//! The keys that open a server, which can change while it runs.

use std::sync::{Arc, PoisonError, RwLock};
use subtle::{Choice, ConstantTimeEq};

/// API keys. Clones are the same keys.
#[derive(Clone, Default)]
pub struct Keys(Arc<RwLock<Vec<String>>>);

impl From<Vec<String>> for Keys {
    fn from(keys: Vec<String>) -> Keys {
        Keys(Arc::new(RwLock::new(keys)))
    }
}

/// How many there are; none of them is shown.
impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} keys", self.0.read().unwrap_or_else(PoisonError::into_inner).len())
    }
}

impl Keys {
    /// Whether there are none, so that everybody has access.
    pub fn is_empty(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Takes these from now on.
    pub fn set(&self, keys: Vec<String>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = keys;
    }

    /// Compares with all keys, and each to its end, so that the time depends on lengths only.
    pub(crate) fn open_to(&self, given: &[u8]) -> bool {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let same = keys.iter().map(|key| key.as_bytes().ct_eq(given));
        same.fold(Choice::from(0), |any, one| any | one).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_keys_open() {
        let keys = Keys::from(vec!["abc".to_owned(), "second".to_owned()]);
        let same = keys.clone();
        assert!(keys.open_to(b"abc") && keys.open_to(b"second"));
        assert!(!keys.open_to(b"ab") && !keys.open_to(b"") && !keys.open_to(b"abd"));
        same.set(vec!["new".to_owned()]);
        assert!(keys.open_to(b"new") && !keys.open_to(b"abc"));
        assert_eq!(format!("{keys:?}"), "1 keys");
    }
}
