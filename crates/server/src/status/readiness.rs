//! How far the model is that a status is of.

use super::ModelView;
use crate::fault::Fault;

/// How far it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Readiness {
    /// It is being loaded.
    #[default]
    Loading,
    /// It answers.
    Ready,
    /// Not in memory: a request loads it.
    Unloaded,
    /// It is out of service; why.
    Failed(String),
    /// The server is about to end.
    Stopping,
}

impl Readiness {
    /// Of a model that cannot be had for a reason; `own` is what is told of it where the server has several.
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

    pub(super) fn word(&self) -> &'static str {
        match self {
            Readiness::Loading => "loading",
            Readiness::Ready => "ready",
            Readiness::Unloaded => "unloaded",
            Readiness::Failed(_) => "failed",
            Readiness::Stopping => "stopping",
        }
    }
}
