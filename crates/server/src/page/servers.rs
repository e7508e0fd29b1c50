//! Tools of the process, and turns to call them.

use crate::fault::Fault;
use axum::http::StatusCode;
use serde_json::{Map, Value as Json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Calls that run at once; each has a thread.
const RUNNING: usize = 8;

/// Calls that run and wait.
const CALLS: usize = 32;

/// Time for which a call waits for its turn.
const WAIT: Duration = Duration::from_secs(30);

/// Tools that a server's process can call.
pub trait ToolServers: Send + Sync {
    /// The tools, in OpenAI's form.
    fn tools(&self) -> Vec<Json>;

    /// Calls one: its result, and whether the tool says that it has failed.
    ///
    /// # Errors
    /// When there is no such tool, or it cannot be called; in words.
    fn call(&self, name: &str, arguments: Map<String, Json>) -> Result<(String, bool), String>;
}

/// Tools for the page. Clones are the same.
#[derive(Clone)]
pub struct PageTools {
    pub(super) servers: Arc<dyn ToolServers>,
    /// Room for calls that run and wait.
    calls: Arc<Semaphore>,
    running: Arc<Semaphore>,
}

impl PageTools {
    /// Tools of these servers.
    pub fn new(servers: Arc<dyn ToolServers>) -> PageTools {
        let (calls, running) = (Arc::new(Semaphore::new(CALLS)), Arc::new(Semaphore::new(RUNNING)));
        PageTools { servers, calls, running }
    }

    /// A turn, which a call has until it has ended.
    pub(super) async fn turn(&self) -> Result<[OwnedSemaphorePermit; 2], Fault> {
        let busy = |why: String| {
            let fault = Fault::new(StatusCode::TOO_MANY_REQUESTS, why).code("too_many_calls");
            Fault { retry_after: Some(5), ..fault }
        };
        let place = self.calls.clone().try_acquire_owned();
        let place = place.map_err(|_| busy(format!("{CALLS} tools are being called already")))?;
        let late = || busy(format!("{RUNNING} other calls of tools have not ended in time"));
        match timeout(WAIT, self.running.clone().acquire_owned()).await {
            Ok(Ok(turn)) => Ok([place, turn]),
            Ok(Err(_)) | Err(_) => Err(late()),
        }
    }
}

impl std::fmt::Debug for PageTools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PageTools")
    }
}
