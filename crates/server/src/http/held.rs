//! An answer with which something ends.

use axum::body::{Body, Bytes};
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};

/// A body, and what is dropped when it has been sent.
pub(crate) struct Held<H> {
    body: Body,
    _held: H,
}

impl<H: Send + Unpin + 'static> Held<H> {
    /// The same body, which holds something.
    pub(crate) fn body(body: Body, held: H) -> Body {
        Body::new(Held { body, _held: held })
    }
}

impl<H: Unpin> hyper::body::Body for Held<H> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
