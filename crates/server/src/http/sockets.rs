//! Where connections come from: addresses, files of the system, sockets that a service manager has opened.

use crate::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
#[cfg(unix)]
use {
    listenfd::ListenFd,
    std::os::unix::fs::{FileTypeExt, PermissionsExt},
    std::path::PathBuf,
    tokio::net::{UnixListener, UnixStream},
};

/// A socket that connections come to.
pub struct Listener(Kind);

enum Kind {
    Tcp(TcpListener, SocketAddr),
    /// The file is removed at the end, if it was made here.
    #[cfg(unix)]
    Unix(UnixListener, PathBuf, bool),
}

/// A connection's bytes.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A connection that was accepted.
pub(super) struct Accepted {
    pub(super) stream: Box<dyn Stream>,
    /// `None` for a connection of this machine without an address.
    pub(super) peer: Option<IpAddr>,
}

impl Listener {
    /// Listens on an address.
    ///
    /// # Errors
    /// When it is taken or not this machine's.
    pub async fn tcp(address: SocketAddr) -> Result<Listener, Error> {
        let fault = |source| Error::Listen { at: address.to_string(), source };
        let listener = TcpListener::bind(address).await.map_err(fault)?;
        let address = listener.local_addr().map_err(fault)?;
        Ok(Listener(Kind::Tcp(listener, address)))
    }

    /// Listens on a socket in the file system, which user and group may connect to. One that an ended server has left
    /// is replaced.
    ///
    /// # Errors
    /// When something else is there, a server listens on it, or it cannot be made; always on a system without such
    /// sockets.
    #[cfg(not(unix))]
    pub async fn unix(path: &Path) -> Result<Listener, Error> {
        let source = io::ErrorKind::Unsupported.into();
        Err(Error::Listen { at: path.display().to_string(), source })
    }

    /// Listens on a socket in the file system, which user and group may connect to. One that an ended server has left
    /// is replaced.
    ///
    /// # Errors
    /// When something else is there, a server listens on it, or it cannot be made.
    #[cfg(unix)]
    pub async fn unix(path: &Path) -> Result<Listener, Error> {
        let fault = |source| Error::Listen { at: path.display().to_string(), source };
        if std::fs::symlink_metadata(path).is_ok_and(|there| there.file_type().is_socket()) {
            if UnixStream::connect(path).await.is_ok() {
                return Err(fault(io::ErrorKind::AddrInUse.into()));
            }
            std::fs::remove_file(path).map_err(fault)?;
        }
        let listener = UnixListener::bind(path).map_err(fault)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660)).map_err(fault)?;
        Ok(Listener(Kind::Unix(listener, path.to_owned(), true)))
    }

    /// The sockets that this process was given, as systemd's socket units do it (`LISTEN_FDS`); none if it was given
    /// none.
    ///
    /// # Errors
    /// When one of them does not listen on an address or in the file system.
    #[cfg(not(unix))]
    pub fn inherited() -> Result<Vec<Listener>, Error> {
        Ok(Vec::new())
    }

    /// The sockets that this process was given, as systemd's socket units do it (`LISTEN_FDS`); none if it was given
    /// none.
    ///
    /// # Errors
    /// When one of them does not listen on an address or in the file system.
    #[cfg(unix)]
    pub fn inherited() -> Result<Vec<Listener>, Error> {
        let fault = |source| Error::Listen { at: "a socket of the service manager".into(), source };
        let mut given = ListenFd::from_env();
        let mut all = Vec::new();
        for at in 0..given.len() {
            let kind = if let Ok(Some(tcp)) = given.take_tcp_listener(at) {
                tcp.set_nonblocking(true).map_err(fault)?;
                let listener = TcpListener::from_std(tcp).map_err(fault)?;
                let address = listener.local_addr().map_err(fault)?;
                Kind::Tcp(listener, address)
            } else {
                let unix = given.take_unix_listener(at).map_err(fault)?;
                let unix = unix.ok_or_else(|| fault(io::ErrorKind::NotFound.into()))?;
                unix.set_nonblocking(true).map_err(fault)?;
                let address = unix.local_addr().map_err(fault)?;
                let path = address.as_pathname().map(Path::to_owned).unwrap_or_default();
                Kind::Unix(UnixListener::from_std(unix).map_err(fault)?, path, false)
            };
            all.push(Listener(kind));
        }
        Ok(all)
    }

    /// The address, with the port if it was left to the system.
    pub fn address(&self) -> Option<SocketAddr> {
        match self.0 {
            Kind::Tcp(_, address) => Some(address),
            #[cfg(unix)]
            Kind::Unix(..) => None,
        }
    }

    pub(super) async fn accept(&self) -> io::Result<Accepted> {
        match &self.0 {
            Kind::Tcp(listener, _) => {
                let (stream, peer) = listener.accept().await?;
                // Tokens are small and are to be seen at once.
                let _ = stream.set_nodelay(true);
                Ok(Accepted { stream: Box::new(stream), peer: Some(peer.ip()) })
            }
            #[cfg(unix)]
            Kind::Unix(listener, ..) => {
                let (stream, _) = listener.accept().await?;
                Ok(Accepted { stream: Box::new(stream), peer: None })
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        #[cfg(unix)]
        if let Kind::Unix(_, path, true) = &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// As people write it: `127.0.0.1:80`, `unix:/run/arclight.sock`.
impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Tcp(_, address) => address.fmt(f),
            #[cfg(unix)]
            Kind::Unix(_, path, _) => write!(f, "unix:{}", path.display()),
        }
    }
}
