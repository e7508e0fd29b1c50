//! One request, from sending to the last token.

use crate::client::{Client, Connection, Fault, plain};
use crate::record::{Failure, Outcome, Reason, Record};
use crate::sse::Parser;
use crate::wire::{self, Endpoint, Told};
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::{Method, StatusCode, header};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What an answer that is no stream may say of its reason.
const MOST_WORDS: usize = 64 << 10;
/// After its `[DONE]` a stream ends; a connection on which it does not is not used again.
const GRACE: Duration = Duration::from_secs(1);

/// A request that is ready to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) id: usize,
    pub(crate) intruder: bool,
    pub(crate) body: Bytes,
    pub(crate) input_asked: Option<usize>,
    pub(crate) output_asked: usize,
}

/// How and where requests are sent.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) client: Arc<Client>,
    pub(crate) endpoint: Endpoint,
    /// For a whole answer.
    pub(crate) timeout: Duration,
}

impl Record {
    /// A request that is sent now; `clock` is the beginning of the run.
    pub(crate) fn begin(job: &Job, scheduled: Option<Duration>, clock: Instant) -> Record {
        let sent = clock.elapsed().as_secs_f64();
        Record {
            id: job.id,
            intruder: job.intruder,
            scheduled: scheduled.map_or(sent, |at| at.as_secs_f64()),
            sent,
            tokens: Vec::with_capacity(job.output_asked.min(1 << 16)),
            end: sent,
            input_asked: job.input_asked,
            output_asked: job.output_asked,
            input: None,
            cached: None,
            output: None,
            outcome: Outcome::Unfinished,
        }
    }
}

impl Line {
    /// Sends a request and notes what comes.
    pub(crate) async fn exchange(
        &self,
        body: Bytes,
        clock: Instant,
        record: &mut Record,
    ) -> Outcome {
        let answer = tokio::time::timeout(self.timeout, self.stream(body, clock, record)).await;
        match answer {
            Ok(Ok(())) => Outcome::Done,
            Ok(Err(failure)) => Outcome::Failed(failure),
            Err(_) => {
                let message = format!("no end in {} s", self.timeout.as_secs_f64());
                Outcome::Failed(Failure { reason: Reason::Timeout, message })
            }
        }
    }

    async fn stream(
        &self,
        body: Bytes,
        clock: Instant,
        record: &mut Record,
    ) -> Result<(), Failure> {
        let fail = |reason, message: String| Err(Failure { reason, message });
        let sent = self.client.send(Method::POST, self.endpoint.path(), body).await;
        let (answer, connection) = match sent {
            Ok(sent) => sent,
            Err(Fault::Connect(message)) => return fail(Reason::Connect, message),
            Err(Fault::Broken(message)) => return fail(Reason::Broken, message),
        };
        let status = answer.status();
        let kind = answer.headers().get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok());
        let streams = kind.is_none_or(|kind| !kind.starts_with("application/json"));
        let mut body = answer.into_body();
        if status != StatusCode::OK || !streams {
            let text = Limited::new(body, MOST_WORDS).collect().await;
            let text = text.map(|text| text.to_bytes()).unwrap_or_default();
            if status == StatusCode::OK {
                return fail(Reason::Malformed, "a whole answer instead of a stream".to_owned());
            }
            self.client.keep(connection);
            return fail(Reason::Status(status.as_u16()), wire::words(&text));
        }

        let (mut parser, mut events) = (Parser::default(), Vec::new());
        let (mut ended, mut done) = (None, false);
        while !done {
            let Some(frame) = body.frame().await else { break };
            let now = clock.elapsed().as_secs_f64();
            let data = match frame.map(|frame| frame.into_data()) {
                Ok(Ok(data)) => data,
                Ok(Err(_trailers)) => continue,
                // What was complete before stays complete.
                Err(_) if ended.is_some() => break,
                Err(e) => return fail(Reason::Broken, plain(&e)),
            };
            if parser.push(&data, &mut events).is_err() {
                return fail(Reason::Malformed, "an event has no end".to_owned());
            }
            for event in events.drain(..) {
                match wire::read(&event)? {
                    Told::Done => done = true,
                    Told::Part { token, last, usage } => {
                        if token {
                            record.tokens.push(now);
                        }
                        if last {
                            ended = Some(now);
                        }
                        if let Some(usage) = usage {
                            record.input = usage.input.or(record.input);
                            record.cached = usage.cached.or(record.cached);
                            record.output = usage.output.or(record.output);
                        }
                    }
                }
            }
        }
        if done {
            tokio::spawn(finish(body, connection, self.client.clone()));
        } else if ended.is_none() || parser.is_within_event() {
            let tokens = record.tokens.len();
            return fail(
                Reason::CutOff,
                format!("the stream ends after {tokens} events with text"),
            );
        } else {
            self.client.keep(connection);
        }
        match (record.tokens.is_empty(), record.output) {
            (false, _) => Ok(()),
            // A token without text, such as the one that ends the answer.
            (true, Some(1..)) => {
                record.tokens.push(ended.unwrap_or_else(|| clock.elapsed().as_secs_f64()));
                Ok(())
            }
            (true, _) => fail(Reason::Empty, "the answer ends without a token".to_owned()),
        }
    }
}

/// Reads what comes after the end, so that the connection can be used again.
async fn finish(mut body: Incoming, connection: Connection, client: Arc<Client>) {
    let rest = async { while let Some(Ok(_)) = body.frame().await {} };
    if tokio::time::timeout(GRACE, rest).await.is_ok() {
        client.keep(connection);
    }
}
