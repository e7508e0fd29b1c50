//! Times and ids that answers have.

use std::time::SystemTime;

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// A new id: a prefix and 24 letters and digits, as OpenAI's are.
pub(crate) fn id(prefix: &str) -> String {
    let random = std::iter::repeat_with(fastrand::alphanumeric);
    prefix.chars().chain(random.take(24)).collect()
}
