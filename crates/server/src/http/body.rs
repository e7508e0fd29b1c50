//! Requests' bodies: bounded in time, in size, and in what they become when they are read, each and all together.

use super::bodies::{Room, UNIT};
use super::json::{Cost, Fields, malformed};
use crate::blocking::blocking;
use crate::fault::Fault;
use crate::state::App;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use bytes::{Bytes, BytesMut};
use flate2::read::MultiGzDecoder;
use http_body_util::BodyExt;
use ruzstd::decoding::StreamingDecoder;
use serde::de::DeserializeOwned;
use std::io::Read;
use std::sync::{Arc, OnceLock};

/// Above this a body is read into values beside the threads that serve connections.
const LONG: usize = 256 << 10;

/// A body, whatever its content type says: many clients leave that out.
#[derive(Clone)]
pub(crate) struct Body {
    bytes: Bytes,
    /// Found by the first reader: the search for the model's name, or the endpoint.
    fields: Arc<OnceLock<Result<Fields, Fault>>>,
    room: Room,
}

impl FromRequest<Arc<App>> for Body {
    type Rejection = Fault;

    async fn from_request(mut request: Request, app: &Arc<App>) -> Result<Body, Fault> {
        // The search for the model's name has read it already.
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
    let room = |bytes: usize| app.bodies.claim(bytes, 0);
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
    let mut bytes = bytes.freeze();
    if coding != Coding::Identity {
        let limit = limit.min(coding.most(bytes.len()));
        held.merge(room(limit)?);
        let decode = move || coding.decode(&bytes, limit);
        bytes = blocking("decoding the body failed", decode).await??.into();
    }
    let unused = held.num_permits().saturating_sub(bytes.len().div_ceil(UNIT));
    drop(held.split(unused));
    let cost = if bytes.len() <= LONG {
        cost(&bytes)?
    } else {
        let bytes = bytes.clone();
        blocking("counting the body's values failed", move || cost(&bytes)).await??
    };
    let values = app.bodies.claim(cost.saturating_sub(bytes.len()), bytes.len())?;
    Ok(Body { bytes, fields: Arc::default(), room: Room::new(held, values) })
}

/// Bytes of memory that a body takes when it is read.
fn cost(bytes: &[u8]) -> Result<usize, Fault> {
    let cost = Cost::of(bytes);
    cost.check(bytes)?;
    Ok(cost.memory())
}

/// A compressed body may become this many times as large,
const RATIO: usize = 64;
/// and have this many bytes besides.
const UNPACKED: usize = 1 << 20;

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

    /// Bytes that a compressed body of this length may have. Texts of conversations are compressed to a fifth or a
    /// twentieth; a thousandth is an attack.
    fn most(self, compressed: usize) -> usize {
        compressed.saturating_mul(RATIO).saturating_add(UNPACKED)
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
        self.read(Fields::read).await
    }

    /// Reads the JSON in it as two types, each with the fields that it has, at once.
    ///
    /// # Errors
    /// As of [`json`](Body::json).
    pub(crate) async fn pair<A, B>(&self) -> Result<(A, B), Fault>
    where
        A: DeserializeOwned + Send + 'static,
        B: DeserializeOwned + Send + 'static,
    {
        self.read(|fields| Ok((fields.read()?, fields.read()?))).await
    }

    async fn read<T: Send + 'static>(
        &self,
        read: fn(&Fields) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        if self.bytes.len() <= LONG {
            return read(self.fields()?);
        }
        // With its room: the work goes on when the client has gone.
        let body = self.clone();
        blocking("reading the body failed", move || read(body.fields()?)).await?
    }

    fn fields(&self) -> Result<&Fields, Fault> {
        self.fields.get_or_init(|| Fields::of(&self.bytes)).as_ref().map_err(Fault::clone)
    }

    /// Reads any JSON: for bodies that are lists.
    ///
    /// # Errors
    /// 400 with the place, for what is no JSON.
    pub(crate) fn any(&self) -> Result<serde_json::Value, Fault> {
        serde_json::from_slice(&self.bytes).map_err(|error| malformed(&error))
    }

    /// Forgets the text, of which values have been made: their claim on memory.
    pub(crate) fn into_room(self) -> Room {
        self.room
    }
}
