//! HTTP around the protocols: routes, keys, bodies, streams, connections.

mod body;
mod dialect;
mod gate;
mod listen;
mod path;
mod router;
mod stall;
mod stream;

pub(crate) use body::{AT_ONCE, Body, UNIT};
pub(crate) use gate::{Client, Peer};
pub use listen::{Server, Site};
pub(crate) use path::Named;
pub use router::router;
pub(crate) use router::{routes, surround};
pub(crate) use stream::{Frame, Framing, Translate, respond};
