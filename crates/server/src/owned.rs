//! Changes that a client cannot leave half made.

use crate::fault::Fault;
use std::future::Future;
use tracing::Instrument;

/// Runs a change to its end in a task of its own. The future of a handler is dropped when its client hangs up, which
/// ends the wait and not the change.
pub(crate) async fn owned<T: Send + 'static>(
    change: impl Future<Output = Result<T, Fault>> + Send + 'static,
) -> Result<T, Fault> {
    let task = tokio::spawn(change.in_current_span());
    task.await.unwrap_or_else(|_| Err(Fault::internal("the change was not finished")))
}
