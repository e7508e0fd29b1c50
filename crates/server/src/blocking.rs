//! Work that grows with the length of its input, on threads next to those that serve connections.
//!
//! tokio's queue for these threads has no bound, and work in it stays after its request has gone. A client that sends
//! long texts and hangs up would fill it. So work waits for a place first, as part of its request, and ends with it.

use crate::fault::Fault;
use tokio::sync::Semaphore;

/// Places of this process: more than the threads that `arclight serve` has for such work, so that none is idle.
const PLACES: usize = 16;

static ALL: Places = Places::new(PLACES);

/// Runs `work`. `failed` is the message to the client for work that panics.
///
/// # Errors
/// 500 for work that panics.
pub(crate) async fn blocking<T: Send + 'static>(
    failed: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Fault> {
    ALL.run(failed, work).await
}

/// Places for work that runs or stands in tokio's queue.
struct Places(Semaphore);

impl Places {
    const fn new(places: usize) -> Places {
        Places(Semaphore::const_new(places))
    }

    async fn run<T: Send + 'static>(
        &'static self,
        failed: &'static str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Fault> {
        let fault = || Fault::internal(failed);
        // The semaphore is never closed.
        let place = self.0.acquire().await.map_err(|_| fault())?;
        let done = tokio::task::spawn_blocking(move || {
            let _place = place;
            work()
        });
        done.await.map_err(|_| fault())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::sync::mpsc::channel;

    #[tokio::test]
    async fn work_of_a_request_that_has_gone_takes_no_place() {
        static ONE: Places = Places::new(1);
        let (go, wait) = channel::<()>();
        let mut first = Box::pin(ONE.run("failed", move || wait.recv().is_ok()));
        assert!(first.as_mut().now_or_never().is_none());
        let mut gone = Box::pin(ONE.run::<()>("failed", || panic!("its request has gone")));
        assert!(gone.as_mut().now_or_never().is_none());
        drop(gone);
        let third = tokio::spawn(ONE.run("failed", || 3));
        go.send(()).unwrap();
        assert_eq!(first.await, Ok(true));
        assert_eq!(third.await.unwrap(), Ok(3));
        let panics = ONE.run::<()>("failed", || panic!("the test")).await;
        assert_eq!(panics.unwrap_err().message, "failed");
        assert_eq!(ONE.0.available_permits(), 1);
    }
}
