//! What a path names, with faults in the protocol's words.

use crate::fault::Fault;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;

/// The one part of the path that the route leaves open.
pub(crate) struct Named(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Named, Fault> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        path.map(|Path(name)| Named(name)).map_err(|e| Fault::invalid(e.body_text()))
    }
}
