//! Waiting for what threads of Rust do, in a thread of Python.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use tokio::runtime::Handle;

/// How often it is looked for signals.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// Waits for a future without the interpreter's lock. A signal whose handler raises drops it.
///
/// # Errors
/// What the handler of a signal raises.
pub(crate) fn wait<T: Send + 'static>(
    py: Python<'_>,
    runtime: &Handle,
    future: impl Future<Output = T> + Send + 'static,
) -> PyResult<T> {
    let (done, mut result) = channel();
    let task = runtime.spawn(async move {
        // If nobody waits any more, nobody wants it.
        let _ = done.send(future.await);
    });
    loop {
        let (got, back) = py.detach(move || (result.recv_timeout(LOOK), result));
        result = back;
        match got {
            Ok(value) => return Ok(value),
            Err(RecvTimeoutError::Timeout) => {
                if let Err(raised) = py.check_signals() {
                    task.abort();
                    return Err(raised);
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("a thread of the engine has failed"));
            }
        }
    }
}
