//! HTTP around the protocols: routes, keys, bodies, streams, connections.

mod bodies;
mod body;
mod connections;
mod dialect;
mod gate;
mod held;
mod json;
mod listen;
mod origin;
mod path;
mod reserve;
mod router;
mod sides;
mod sockets;
mod stall;
mod statuses;
mod stream;
mod tls;

pub(crate) use bodies::{Bodies, Room};
pub(crate) use body::Body;
pub(crate) use gate::{Client, Peer, Rank};
pub(crate) use held::Held;
pub(crate) use json::{compact, pair, value};
pub use listen::{Background, Server, Site};
pub(crate) use path::Named;
pub(crate) use reserve::files;
pub use router::router;
pub(crate) use router::{closed, routes, surround, unguarded};
pub use sockets::Listener;
pub(crate) use statuses::Statuses;
pub(crate) use stream::{Frame, Framing, Translate, respond};
pub use tls::Tls;
