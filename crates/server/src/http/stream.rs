//! Streamed answers: server-sent events, and lines of JSON.
//!
//! A protocol is a [`Translate`]: it turns deltas into [`Frame`]s. What streams have in common is
//! here: comments during silences, and the end of the computation when the client has gone.

use crate::fault::Fault;
use crate::normal::{Answer, Delta, Event};
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use serde::Serialize;
use serde_json::Value as Json;
use std::convert::Infallible;
use std::time::Duration;

/// What goes over the wire at once.
pub(crate) struct Frame {
    /// The event's name, where the protocol names its events.
    pub(crate) event: Option<&'static str>,
    pub(crate) data: String,
}

impl Frame {
    /// An event without a name.
    pub(crate) fn json(data: &impl Serialize) -> Frame {
        // Our answers have no maps whose keys are no strings, which is all that could fail.
        Frame { event: None, data: serde_json::to_string(data).unwrap_or_default() }
    }

    /// An event with a name.
    pub(crate) fn named(event: &'static str, data: &Json) -> Frame {
        Frame { event: Some(event), data: data.to_string() }
    }
}

/// A protocol's words for an answer.
pub(crate) trait Translate: Send + 'static {
    /// Before anything else; nothing is computed yet.
    fn begin(&mut self, answer: &Answer, out: &mut Vec<Frame>);

    /// A piece of a choice. Failures go to [`fault`](Translate::fault) instead.
    fn delta(&mut self, choice: usize, delta: Delta, answer: &Answer, out: &mut Vec<Frame>);

    /// After the end of the last choice.
    fn end(&mut self, out: &mut Vec<Frame>);

    /// Instead of the end, if the answer cannot be finished.
    fn fault(&mut self, fault: &Fault, out: &mut Vec<Frame>);

    /// The sign of life in a silence; `None` for a comment.
    fn ping(&self) -> Option<Frame> {
        None
    }
}

/// How frames are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// `data: …` and an empty line; comments while nothing comes.
    Events,
    /// A line each, which has no comments.
    Lines,
}

/// The response that streams an answer.
pub(crate) fn respond(
    answer: Answer,
    translate: impl Translate,
    framing: Framing,
    ping: Duration,
) -> Response {
    let streaming = Streaming { answer, translate, framing, ping, begun: false, ended: false };
    let frames = stream::unfold(streaming, |mut streaming| async {
        let bytes = streaming.next().await?;
        Some((Ok::<_, Infallible>(bytes), streaming))
    });
    let mut response = Body::from_stream(frames).into_response();
    let headers = response.headers_mut();
    let content = match framing {
        Framing::Events => "text/event-stream; charset=utf-8",
        Framing::Lines => "application/x-ndjson",
    };
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies are not to collect events before they pass them on.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

struct Streaming<T> {
    answer: Answer,
    translate: T,
    framing: Framing,
    ping: Duration,
    begun: bool,
    ended: bool,
}

impl<T: Translate> Streaming<T> {
    /// What is to be written next; several frames if they come of one delta.
    async fn next(&mut self) -> Option<Bytes> {
        let mut frames = Vec::new();
        if !self.begun {
            self.begun = true;
            self.translate.begin(&self.answer, &mut frames);
        }
        while frames.is_empty() {
            if self.ended {
                return None;
            }
            let next = match self.framing {
                Framing::Lines => self.answer.next().await,
                Framing::Events => {
                    match tokio::time::timeout(self.ping, self.answer.next()).await {
                        Ok(next) => next,
                        Err(_) => match self.translate.ping() {
                            Some(frame) => return Some(self.write(vec![frame])),
                            None => return Some(Bytes::from_static(b": ping\n\n")),
                        },
                    }
                }
            };
            match next {
                Some((_, Delta { event: Event::Failed(fault), .. })) => {
                    self.ended = true;
                    self.translate.fault(&fault, &mut frames);
                }
                Some((choice, delta)) => {
                    self.translate.delta(choice, delta, &self.answer, &mut frames);
                }
                None => {
                    self.ended = true;
                    self.translate.end(&mut frames);
                }
            }
        }
        Some(self.write(frames))
    }

    fn write(&self, frames: Vec<Frame>) -> Bytes {
        let mut text = String::new();
        for Frame { event, data } in frames {
            // JSON text has no line ends, so data is always one line.
            match self.framing {
                Framing::Lines => text.extend([data.as_str(), "\n"]),
                Framing::Events => {
                    if let Some(event) = event {
                        text.extend(["event: ", event, "\n"]);
                    }
                    text.extend(["data: ", data.as_str(), "\n\n"]);
                }
            }
        }
        text.into()
    }
}
