//! Requests' bodies: bounded in size, each and all together, and in time; and JSON whose faults are
//! named.

use crate::fault::Fault;
use crate::state::App;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use bytes::{Bytes, BytesMut};
use flate2::read::MultiGzDecoder;
use http_body_util::BodyExt;
use ruzstd::decoding::StreamingDecoder;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Above this a body is read into values beside the threads that serve connections.
const LONG: usize = 256 << 10;

/// All bodies together may be so many times as large as one.
pub(crate) const AT_ONCE: usize = 16;
/// What is counted of them.
pub(crate) const UNIT: usize = 1 << 10;

/// Room for the bodies of a server, in their [unit](UNIT), however many models it has.
pub(crate) struct Bodies {
    free: Arc<Semaphore>,
    all: Mutex<usize>,
}

impl Bodies {
    pub(crate) fn new(all: usize) -> Bodies {
        Bodies { free: Arc::new(Semaphore::new(all)), all: Mutex::new(all) }
    }

    /// Makes room for so many in all. What has room is not sent away, so room never shrinks.
    pub(crate) fn grow(&self, to: usize) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        self.free.add_permits(to.saturating_sub(*all));
        *all = to.max(*all);
    }

    /// Room that nobody has.
    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.free.available_permits()
    }
}

/// A body, whatever its content type says: many clients leave that out.
#[derive(Clone)]
pub(crate) struct Body {
    bytes: Bytes,
    _room: Arc<OwnedSemaphorePermit>,
}

impl FromRequest<Arc<App>> for Body {
    type Rejection = Fault;

    async fn from_request(mut request: Request, app: &Arc<App>) -> Result<Body, Fault> {
        // Read already by who looked for the model's name in it.
        if let Some(read) = request.extensions_mut().remove::<Body>() {
            return Ok(read);
        }
        let time = app.now().read_timeout;
        match tokio::time::timeout(time, read(request, app)).await {
            Ok(read) => read,
            Err(_) => Err(Fault::new(
                StatusCode::REQUEST_TIMEOUT,
                format!("the body did not arrive within {} s", time.as_secs_f64()),
            )
            .code("request_timeout")),
        }
    }
}

async fn read(request: Request, app: &App) -> Result<Body, Fault> {
    let limit = app.now().body_limit;
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|l| l.to_str().ok()?.parse::<usize>().ok()).unwrap_or(0);
    if length > limit {
        return Err(too_large(limit));
    }
    let room = |bytes: usize| {
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        app.bodies.free.clone().try_acquire_many_owned(units).map_err(|_| {
            Fault::unavailable("too many large requests arrive at once").code("too_many_bodies")
        })
    };
    let coding = Coding::of(request.headers())?;
    // The whole is claimed before it arrives; what comes without a length, as it does.
    let mut held = room(length)?;
    let mut bytes = BytesMut::with_capacity(length);
    let mut body = request.into_body();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| Fault::invalid(format!("the body cannot be read: {e}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > limit {
            return Err(too_large(limit));
        }
        bytes.extend_from_slice(&data);
        let claimed = held.num_permits() * UNIT;
        if bytes.len() > claimed {
            held.merge(room(bytes.len() - claimed)?);
        }
    }
    let bytes = bytes.freeze();
    if coding == Coding::Identity {
        return Ok(Body { bytes, _room: Arc::new(held) });
    }
    // It takes no more than a body may have, so that much is claimed.
    held.merge(room(limit)?);
    let decoded = tokio::task::spawn_blocking(move || coding.decode(&bytes, limit)).await;
    let bytes = decoded.map_err(|_| Fault::internal("decoding the body failed"))??;
    let unused = held.num_permits().saturating_sub(bytes.len().div_ceil(UNIT));
    drop(held.split(unused));
    Ok(Body { bytes: bytes.into(), _room: Arc::new(held) })
}

/// How a body is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    Identity,
    Gzip,
    Zstd,
}

impl Coding {
    /// What the header says.
    fn of(headers: &HeaderMap) -> Result<Coding, Fault> {
        let said = headers.get(header::CONTENT_ENCODING).map_or(&b"identity"[..], |v| v.as_bytes());
        let known = [
            ("identity", Coding::Identity),
            ("gzip", Coding::Gzip),
            ("x-gzip", Coding::Gzip),
            ("zstd", Coding::Zstd),
        ];
        let found = known.iter().find(|(name, _)| said.eq_ignore_ascii_case(name.as_bytes()));
        found.map(|(_, coding)| *coding).ok_or_else(|| {
            let message = format!(
                "a body with the encoding {:?} cannot be read: use gzip, zstd or none",
                String::from_utf8_lossy(said)
            );
            Fault::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message).code("unsupported_encoding")
        })
    }

    /// The body itself, of `limit` bytes at most.
    fn decode(self, bytes: &[u8], limit: usize) -> Result<Vec<u8>, Fault> {
        let fault = |e: &dyn std::fmt::Display| {
            Fault::invalid(format!("the body cannot be decoded: {e}")).code("invalid_encoding")
        };
        let mut decoded = Vec::new();
        let most = limit as u64 + 1;
        match self {
            Coding::Identity => decoded.extend_from_slice(bytes),
            Coding::Gzip => {
                let reader = MultiGzDecoder::new(bytes);
                reader.take(most).read_to_end(&mut decoded).map_err(|e| fault(&e))?;
            }
            Coding::Zstd => {
                let reader = StreamingDecoder::new(bytes).map_err(|e| fault(&e))?;
                reader.take(most).read_to_end(&mut decoded).map_err(|e| fault(&e))?;
            }
        }
        if decoded.len() > limit {
            return Err(too_large(limit));
        }
        Ok(decoded)
    }
}

fn too_large(limit: usize) -> Fault {
    let message = format!("the body is larger than the {limit} bytes that are allowed");
    Fault::new(StatusCode::PAYLOAD_TOO_LARGE, message).code("body_too_large")
}

impl Body {
    /// Reads the JSON in it. Fields that `T` does not have are ignored.
    ///
    /// # Errors
    /// 400 with the place, for what is no JSON, and with the field, for what has the wrong type.
    pub(crate) async fn json<T: DeserializeOwned + Send + 'static>(&self) -> Result<T, Fault> {
        let bytes = self.bytes.clone();
        if bytes.len() <= LONG {
            return json(&bytes);
        }
        let read = tokio::task::spawn_blocking(move || json(&bytes)).await;
        read.unwrap_or_else(|_| Err(Fault::internal("reading the body failed")))
    }
}

impl Body {
    /// Reads any JSON: for bodies that are lists.
    ///
    /// # Errors
    /// 400 with the place, for what is no JSON.
    pub(crate) fn any(&self) -> Result<serde_json::Value, Fault> {
        serde_json::from_slice(&self.bytes).map_err(|error| malformed(&error))
    }
}

/// Reads a body's JSON.
pub(crate) fn json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Fault> {
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    if first.is_none() {
        return Err(Fault::invalid("the body is empty: it must be a JSON object"));
    }
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    if first != Some(&b'{') {
        // A list would do for a struct, field by field.
        let read = serde::de::IgnoredAny::deserialize(&mut reader).and_then(|_| reader.end());
        return Err(match read {
            Ok(()) => Fault::invalid("the body must be a JSON object").code("invalid_type"),
            Err(error) => malformed(&error),
        });
    }
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        if inner.classify() != Category::Data {
            return malformed(&inner);
        }
        // Where it stands in the text says less than the field's name.
        let text = inner.to_string();
        let message = text.rsplit_once(" at line ").map_or(text.as_str(), |(m, _)| m);
        let missing = message.strip_prefix("missing field `").and_then(|m| m.strip_suffix('`'));
        let twice = message.strip_prefix("duplicate field `").and_then(|m| m.strip_suffix('`'));
        if let Some(field) = twice {
            let field = if path == "." { field.to_owned() } else { format!("{path}.{field}") };
            return Fault::field(field.as_str(), format!("{field} is there twice"))
                .code("invalid_json");
        }
        match (path.as_str(), missing) {
            (".", Some(field)) => Fault::field(field, format!("{field} is missing")),
            (path, Some(field)) => {
                Fault::field(format!("{path}.{field}"), format!("{path}.{field} is missing"))
            }
            (path, None) => Fault::field(path, format!("{path}: {message}")).code("invalid_type"),
        }
    })?;
    reader.end().map_err(|e| malformed(&e))?;
    Ok(value)
}

fn malformed(error: &serde_json::Error) -> Fault {
    Fault::invalid(format!("the body is not valid JSON: {error}")).code("invalid_json")
}
