//! How far the model is that a status is of.

use super::ModelView;
use crate::fault::Fault;

/// How far it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
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

impl Phase {
    /// Of a model that cannot be had for a reason; `own` is what is told of it where the server has several.
    pub(super) fn of(fault: &Fault, own: Option<&ModelView>) -> Phase {
        match (fault.code, own) {
            (Some("replica_failed"), _) => Phase::Failed(fault.message.clone()),
            (Some("loading"), None) => Phase::Loading,
            (Some("loading"), Some(own)) => match (own.state, &own.error) {
                ("loading", _) => Phase::Loading,
                (_, Some(why)) => Phase::Failed(why.clone()),
                (_, None) => Phase::Unloaded,
            },
            _ => Phase::Stopping,
        }
    }

    pub(super) fn word(&self) -> &'static str {
        match self {
            Phase::Loading => "loading",
            Phase::Ready => "ready",
            Phase::Unloaded => "unloaded",
            Phase::Failed(_) => "failed",
            Phase::Stopping => "stopping",
        }
    }
}
