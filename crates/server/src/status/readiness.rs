//! The readiness of the model of a status.

use super::ModelView;
use crate::fault::Fault;
use why::server::Readiness;

/// The readiness of a model whose requests fail with `fault`; `own` is its entry if the server has several models.
pub(super) fn of(fault: &Fault, own: Option<&ModelView>) -> Readiness {
    match (fault.code, own) {
        (Some("replica_failed"), _) => Readiness::Failed(fault.message.clone()),
        (Some("loading"), None) => Readiness::Loading,
        (Some("loading"), Some(own)) => match (own.state, &own.error) {
            ("loading", _) => Readiness::Loading,
            (_, Some(why)) => Readiness::Failed(why.clone()),
            (_, None) => Readiness::Unloaded,
        },
        _ => Readiness::Stopping,
    }
}

/// The phase in `/status.json`.
pub(super) fn word(readiness: &Readiness) -> &'static str {
    match readiness {
        Readiness::Loading => "loading",
        Readiness::Ready => "ready",
        Readiness::Unloaded => "unloaded",
        Readiness::Failed(_) => "failed",
        Readiness::Stopping => "stopping",
    }
}
