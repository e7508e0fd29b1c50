//! Memory for requests' bodies and for what they become: a claim of each, and a bound for all together.

use super::json::most;
use crate::fault::Fault;
use axum::http::StatusCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bodies of the largest size and of the most values for which there is room at once.
const AT_ONCE: usize = 4;
/// Room is counted in units of this many bytes.
pub(super) const UNIT: usize = 1 << 10;

/// Memory is given back to the system after requests that took at least this much together.
const LARGE: usize = 8 << 20;
/// Time from the end of the last of them to that, and so the time between two of them at least.
const GIVE_BACK: Duration = Duration::from_secs(1);

/// Room for the bodies of a server and for what they become, in their [unit](UNIT), however many models it has.
pub(crate) struct Bodies {
    free: Arc<Semaphore>,
    all: Mutex<usize>,
}

impl Bodies {
    /// Room for bodies of up to this many bytes in a process with this much memory.
    pub(crate) fn units(limit: usize, memory: Option<u64>) -> usize {
        let share = memory.map_or(usize::MAX, |bytes| (bytes / 8) as usize);
        let all = most(limit).saturating_mul(AT_ONCE).min(share).max(limit);
        all.div_ceil(UNIT).min(Semaphore::MAX_PERMITS)
    }

    pub(crate) fn new(all: usize) -> Bodies {
        Bodies { free: Arc::new(Semaphore::new(all)), all: Mutex::new(all) }
    }

    /// Makes room for this much in all. What has room is not sent away, so room never shrinks.
    pub(crate) fn grow(&self, to: usize) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        self.free.add_permits(to.saturating_sub(*all));
        *all = to.max(*all);
    }

    /// Claims memory for a request that has `held` bytes of it.
    pub(super) fn claim(&self, bytes: usize, held: usize) -> Result<OwnedSemaphorePermit, Fault> {
        let all = *self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if (held + bytes).div_ceil(UNIT) > all {
            let message = format!(
                "reading the body takes {} MiB of memory, and this server has {} MiB for all requests",
                (held + bytes) >> 20,
                (all * UNIT) >> 20
            );
            let fault = Fault::new(StatusCode::PAYLOAD_TOO_LARGE, message);
            return Err(fault.code("body_too_large"));
        }
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        self.free.clone().try_acquire_many_owned(units).map_err(|_| {
            let message = "the requests that are being read take all memory that there is for them";
            Fault::unavailable(message).code("too_many_bodies")
        })
    }

    /// Room that is free.
    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.free.available_permits()
    }
}

/// A claim on memory, free again when its last clone is gone. It goes along with the values that a body has become.
#[derive(Clone, Debug, Default)]
pub(crate) struct Room {
    /// For the body as it came.
    body: Option<Arc<OwnedSemaphorePermit>>,
    /// For its values.
    _values: Option<Arc<Values>>,
}

impl Room {
    /// The claims of a body, and of the values in addition to its text.
    pub(super) fn new(body: OwnedSemaphorePermit, values: OwnedSemaphorePermit) -> Room {
        Room { body: Some(Arc::new(body)), _values: Some(Arc::new(Values(values))) }
    }

    /// The part for what is kept as text, once there are no values any more.
    pub(crate) fn of_text(&self) -> Room {
        Room { body: self.body.clone(), _values: None }
    }
}

#[derive(Debug)]
struct Values(OwnedSemaphorePermit);

impl Drop for Values {
    fn drop(&mut self) {
        static SOON: AtomicBool = AtomicBool::new(false);
        static FREED: AtomicUsize = AtomicUsize::new(0);
        let bytes = self.0.num_permits() * UNIT;
        if FREED.fetch_add(bytes, SeqCst) + bytes < LARGE {
            return;
        }
        // The allocator keeps what is freed; many small values are a long way from the end of its heaps.
        if let Ok(runtime) = tokio::runtime::Handle::try_current()
            && !SOON.swap(true, SeqCst)
        {
            runtime.spawn(async {
                tokio::time::sleep(GIVE_BACK).await;
                SOON.store(false, SeqCst);
                FREED.store(0, SeqCst);
                tokio::task::spawn_blocking(memory::trim_heap);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_have_a_share_of_a_memory_that_is_bounded() {
        let mib = |limit: usize, memory: Option<u64>| {
            (Bodies::units(limit << 20, memory.map(|mib| mib << 20)) * UNIT) >> 20
        };
        // Eight times its length and 16 MiB each, four times.
        assert_eq!(mib(16, None), 576);
        assert_eq!(mib(16, Some(1 << 20)), 576);
        assert_eq!(mib(16, Some(1600)), 200);
        // There is always room for a body as it comes.
        assert_eq!(mib(16, Some(64)), 16);
    }

    #[test]
    fn room_is_free_when_the_last_value_is_gone() {
        let bodies = Bodies::new(100);
        let claim = || Some(bodies.claim(10 << 10, 0).unwrap());
        let room = Room { body: claim().map(Arc::new), _values: claim().map(Values).map(Arc::new) };
        assert_eq!(bodies.free(), 80);
        let (kept, values) = (room.of_text(), room.clone());
        drop(room);
        assert_eq!(bodies.free(), 80);
        drop(values);
        assert_eq!(bodies.free(), 90);
        let fault = bodies.claim(91 << 10, 0).unwrap_err();
        assert_eq!((fault.status.as_u16(), fault.code), (503, Some("too_many_bodies")));
        drop(kept);
        assert_eq!(bodies.free(), 100);
        // More than there ever is.
        assert_eq!(bodies.claim(91 << 10, 10 << 10).unwrap_err().status.as_u16(), 413);
    }
}
