//! Shares of what a machine can do, all of which was measured: none is above 1.
//!
//! A limit that the work beats was measured while other programs ran, or it does not apply to this work. The work then
//! has no share of it, and [`NoShare`] has the reason in words.

use serde::{Serialize, Serializer};
use std::fmt;

/// Why some work has no share of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoShare {
    /// The work beats the read limit of the memory, and the bytes that a step reads fit into the caches.
    Cached,
    /// The work beats the read limit of the memory.
    Memory,
    /// The work beats the peak of the multiplications.
    Cores,
    /// There is no limit.
    Unmeasured,
}

impl fmt::Display for NoShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoShare::Cached => {
                "faster than the memory, because what a step reads fits into the caches: no share"
            }
            NoShare::Memory => "faster than the probe of the memory, which was disturbed: no share",
            NoShare::Cores => {
                "faster than the probe of the multiplications, which was disturbed: no share"
            }
            NoShare::Unmeasured => "the limit was not measured: no share",
        })
    }
}

impl Serialize for NoShare {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// `done` as a share of `limit`, both in the same unit; at most 1.
///
/// # Errors
/// `beaten` when `done` exceeds the limit, [`NoShare::Unmeasured`] when the limit is not a positive number.
pub fn share(done: f64, limit: f64, beaten: NoShare) -> Result<f64, NoShare> {
    match done / limit {
        _ if limit.is_nan() || limit <= 0.0 => Err(NoShare::Unmeasured),
        share if share <= 1.0 => Ok(share),
        _ => Err(beaten),
    }
}

/// The reason why work that reads memory beats its limit.
pub fn beaten_memory(step_bytes: u64, cache_bytes: u64) -> NoShare {
    if step_bytes < cache_bytes { NoShare::Cached } else { NoShare::Memory }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_share_is_above_one() {
        let of = |done, limit| share(done, limit, NoShare::Memory);
        assert_eq!((of(5.0, 10.0), of(10.0, 10.0)), (Ok(0.5), Ok(1.0)));
        assert_eq!((of(10.01, 10.0), of(15.2, 2.6)), (Err(NoShare::Memory), Err(NoShare::Memory)));
        assert_eq!(share(2.0, 1.0, NoShare::Cores), Err(NoShare::Cores));
        for limit in [0.0, -1.0, f64::NAN] {
            assert_eq!(of(1.0, limit), Err(NoShare::Unmeasured));
        }
        assert_eq!(of(f64::NAN, 1.0), Err(NoShare::Memory));
        assert_eq!(beaten_memory(10, 11), NoShare::Cached);
        assert_eq!(beaten_memory(11, 11), NoShare::Memory);
    }
}
