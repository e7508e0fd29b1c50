//! Addresses and sockets on which a server listens.

use crate::error::Error;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Address(SocketAddr),
    /// A socket in the file system.
    Socket(PathBuf),
}

impl Place {
    /// Reads a value of `option`: `unix:PATH`, or a text that resolves as `address`.
    ///
    /// # Errors
    /// When there is no such address.
    pub(super) fn read(
        option: &str,
        text: &str,
        address: impl ToSocketAddrs,
    ) -> Result<Place, Error> {
        let fault = |why: String| Error::Usage(format!("{option} {text}: {why}"));
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Place::Socket(path.into()));
        }
        let mut found = address.to_socket_addrs().map_err(|e| fault(e.to_string()))?;
        let found = found.next().map(Place::Address);
        found.ok_or_else(|| fault("there is no such address".to_owned()))
    }
}
