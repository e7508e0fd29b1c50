//! Work with a model on other threads than those that serve connections.

use crate::blocking::blocking;
use crate::fault::Fault;
use crate::hold::Hold;
use crate::model::Model;

/// Runs work that may take long, on another thread.
pub(crate) async fn beside<T: Send + 'static>(
    model: Hold<Model>,
    work: impl FnOnce(&Model) -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    blocking("preparing the request failed", move || work(&model)).await?
}
