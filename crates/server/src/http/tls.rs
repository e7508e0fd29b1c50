//! TLS: a certificate and its key, read again when their files change.

use crate::error::Error;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};
use tokio_rustls::TlsAcceptor;

/// How often it is looked whether the files have changed.
const LOOK: Duration = Duration::from_secs(10);

/// The certificate that a server shows.
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    current: RwLock<(Arc<ServerConfig>, Times)>,
}

/// When the files were written.
type Times = [Option<SystemTime>; 2];

impl Tls {
    /// Reads a certificate, with those that it is signed by, and its private key: both PEM.
    ///
    /// # Errors
    /// When they cannot be read, or are not of each other.
    pub fn open(certificate: &Path, key: &Path) -> Result<Tls, Error> {
        let (certificate, key) = (certificate.to_owned(), key.to_owned());
        let current = RwLock::new((read(&certificate, &key)?, times(&certificate, &key)));
        Ok(Tls { certificate, key, current })
    }

    /// Reads the files again. Connections that are there keep what they have.
    ///
    /// # Errors
    /// As [`Tls::open`]; what was read before is kept then.
    pub fn reload(&self) -> Result<(), Error> {
        let times = times(&self.certificate, &self.key);
        let read = read(&self.certificate, &self.key);
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        // What is wrong is told once.
        current.1 = times;
        current.0 = read?;
        Ok(())
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        TlsAcceptor::from(current.0.clone())
    }

    fn has_changed(&self) -> bool {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        let now = times(&self.certificate, &self.key);
        // Between a file's removal and its return nothing is known.
        now != current.1 && now.iter().all(Option::is_some)
    }

    /// Reads the files again whenever they have changed.
    pub(super) async fn watch(&self) {
        loop {
            tokio::time::sleep(LOOK).await;
            if self.has_changed() {
                match self.reload() {
                    Ok(()) => tracing::info!("the certificate was read again"),
                    Err(e) => tracing::error!("the certificate stays as it was: {e}"),
                }
            }
        }
    }
}

fn times(certificate: &Path, key: &Path) -> Times {
    [certificate, key].map(|path| path.metadata().and_then(|file| file.modified()).ok())
}

fn read(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, Error> {
    let fault = |path: &Path, why: String| Error::Tls { path: path.to_owned(), why };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|e| fault(certificate, e.to_string()))?;
    if chain.is_empty() {
        return Err(fault(certificate, "it has no certificate".to_owned()));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|e| fault(key, e.to_string()))?;
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| fault(certificate, e.to_string()))?;
    let config = config.with_no_client_auth().with_single_cert(chain, private);
    let mut config = config.map_err(|e| fault(key, e.to_string()))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
