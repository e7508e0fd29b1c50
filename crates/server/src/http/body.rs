//! Requests' bodies: bounded in time, in size, and in what they become when they are read, each and all together.

use super::json::{Cost, Fields, malformed, most};
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
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Above this a body is read into values beside the threads that serve connections.
const LONG: usize = 256 << 10;

/// Bodies of the largest size and of the most values for which there is room at once.
pub(crate) const AT_ONCE: usize = 4;
/// Room is counted in units of this many bytes.
pub(crate) const UNIT: usize = 1 << 10;

/// Memory is given back to the system after requests that took at least this much together.
const LARGE: usize = 8 << 20;
/// Time from the end of the last of them to that, and so the time between two of them at least.
const GIVE_BACK: Duration = Duration::from_secs(1);

/// Room for the bodies of a server and for what they become, in their [unit](UNIT), however many models it has.
pub(crate) struct Bodies {
    free: Arc<Semaphore>,
    all: Mutex<usize>,
}

impl Bodies {
    /// Room for bodies of up to this many bytes in a process with this much memory.
    pub(crate) fn units(limit: usize, memory: Option<u64>) -> usize {
        let share = memory.map_or(usize::MAX, |bytes| (bytes / 8) as usize);
        let all = most(limit).saturating_mul(AT_ONCE).min(share).max(limit);
        all.div_ceil(UNIT).min(Semaphore::MAX_PERMITS)
    }

    pub(crate) fn new(all: usize) -> Bodies {
        Bodies { free: Arc::new(Semaphore::new(all)), all: Mutex::new(all) }
    }

    /// Makes room for this much in all. What has room is not sent away, so room never shrinks.
    pub(crate) fn grow(&self, to: usize) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        self.free.add_permits(to.saturating_sub(*all));
        *all = to.max(*all);
    }

    /// Claims memory for a request that has `held` bytes of it.
    fn claim(&self, bytes: usize, held: usize) -> Result<OwnedSemaphorePermit, Fault> {
        let all = *self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if (held + bytes).div_ceil(UNIT) > all {
            let message = format!(
                "reading the body takes {} MiB of memory, and this server has {} MiB for all requests",
                (held + bytes) >> 20,
                (all * UNIT) >> 20
            );
            let fault = Fault::new(StatusCode::PAYLOAD_TOO_LARGE, message);
            return Err(fault.code("body_too_large"));
        }
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        self.free.clone().try_acquire_many_owned(units).map_err(|_| {
            let message = "the requests that are being read take all memory that there is for them";
            Fault::unavailable(message).code("too_many_bodies")
        })
    }

    /// Room that is free.
    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.free.available_permits()
    }
}

/// A claim on memory, free again when its last clone is gone. It goes along with the values that a body has become.
#[derive(Clone, Debug, Default)]
pub(crate) struct Room {
    /// For the body as it came.
    body: Option<Arc<OwnedSemaphorePermit>>,
    /// For its values.
    _values: Option<Arc<Values>>,
}

impl Room {
    /// The part for what is kept as text, once there are no values any more.
    pub(crate) fn of_text(&self) -> Room {
        Room { body: self.body.clone(), _values: None }
    }
}

#[derive(Debug)]
struct Values(OwnedSemaphorePermit);

impl Drop for Values {
    fn drop(&mut self) {
        static SOON: AtomicBool = AtomicBool::new(false);
        static FREED: AtomicUsize = AtomicUsize::new(0);
        let bytes = self.0.num_permits() * UNIT;
        if FREED.fetch_add(bytes, SeqCst) + bytes < LARGE {
            return;
        }
        // The allocator keeps what is freed; many small values are a long way from the end of its heaps.
        if let Ok(runtime) = tokio::runtime::Handle::try_current()
            && !SOON.swap(true, SeqCst)
        {
            runtime.spawn(async {
                tokio::time::sleep(GIVE_BACK).await;
                SOON.store(false, SeqCst);
                FREED.store(0, SeqCst);
                tokio::task::spawn_blocking(memory::trim_heap);
            });
        }
    }
}

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
    let room = Room { body: Some(Arc::new(held)), _values: Some(Arc::new(Values(values))) };
    Ok(Body { bytes, fields: Arc::default(), room })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_have_a_share_of_a_memory_that_is_bounded() {
        let mib = |limit: usize, memory: Option<u64>| {
            (Bodies::units(limit << 20, memory.map(|mib| mib << 20)) * UNIT) >> 20
        };
        // Eight times its length and 16 MiB each, four times.
        assert_eq!(mib(16, None), 576);
        assert_eq!(mib(16, Some(1 << 20)), 576);
        assert_eq!(mib(16, Some(1600)), 200);
        // There is always room for a body as it comes.
        assert_eq!(mib(16, Some(64)), 16);
    }

    #[test]
    fn room_is_free_when_the_last_value_is_gone() {
        let bodies = Bodies::new(100);
        let claim = || Some(bodies.claim(10 << 10, 0).unwrap());
        let room = Room { body: claim().map(Arc::new), _values: claim().map(Values).map(Arc::new) };
        assert_eq!(bodies.free(), 80);
        let (kept, values) = (room.of_text(), room.clone());
        drop(room);
        assert_eq!(bodies.free(), 80);
        drop(values);
        assert_eq!(bodies.free(), 90);
        let fault = bodies.claim(91 << 10, 0).unwrap_err();
        assert_eq!((fault.status.as_u16(), fault.code), (503, Some("too_many_bodies")));
        drop(kept);
        assert_eq!(bodies.free(), 100);
        // More than there ever is.
        assert_eq!(bodies.claim(91 << 10, 10 << 10).unwrap_err().status.as_u16(), 413);
    }
}
