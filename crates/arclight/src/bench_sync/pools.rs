//! Thread pools that are timed, and the size of a batch between two readings of the clock.

use crate::error::Error;
use crate::term::note;
use std::time::Duration;
use threads::{Pool, PoolSpec};
use topology::Group;

/// A batch of waits or exchanges takes at least this long, so that reading the clock and the
/// beginning do not count.
pub(super) const BATCH: Duration = Duration::from_millis(2);
/// ... unless it would be more than so many.
const MOST_IN_BATCH: usize = 1 << 14;

/// A pinned pool with these groups.
pub(crate) fn pool(groups: &[Group], stats: bool) -> Result<Pool, Error> {
    let groups = groups.to_vec();
    let pool =
        Pool::new(&PoolSpec { groups, stats, ..PoolSpec::default() }).map_err(Error::refused)?;
    for warning in pool.warnings() {
        note!("{warning}");
    }
    Ok(pool)
}

/// How many repetitions make a batch, found by doubling; `time` gives the time of a batch.
pub(super) fn batch(
    mut time: impl FnMut(usize) -> Result<Duration, Error>,
) -> Result<usize, Error> {
    let mut n = 1;
    while n < MOST_IN_BATCH && time(n)? < BATCH {
        n *= 2;
    }
    Ok(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_grow_until_they_take_long_enough() {
        let per_turn = Duration::from_micros(100);
        assert_eq!(batch(|n| Ok(per_turn * n as u32)).unwrap(), 32);
        assert_eq!(batch(|_| Ok(BATCH)).unwrap(), 1);
        assert_eq!(batch(|_| Ok(Duration::ZERO)).unwrap(), MOST_IN_BATCH);
    }
}
