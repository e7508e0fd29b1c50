//! What a path names, with faults in the protocol's words, and the fault of a path that is not there.

use crate::fault::Fault;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};

/// The one part of the path that the route leaves open.
pub(crate) struct Named(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Named, Fault> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        path.map(|Path(name)| Named(name)).map_err(|e| Fault::invalid(e.body_text()))
    }
}

/// 404: no endpoint has the path.
pub(super) async fn no_route(uri: Uri) -> Fault {
    let message = format!("there is no {}: /openapi.json tells what there is", uri.path());
    Fault::new(StatusCode::NOT_FOUND, message).code("unknown_url")
}
