//! `arclight health`: whether a server serves requests, for probes and for `HEALTHCHECK` of containers.
//!
//! It asks `GET /health` once, over TCP, TLS or a socket of the file system, and ends with 0 for status 200 and with
//! 1 otherwise. As Kubernetes' probes do, it does not check the server's certificate: it sends no secret and
//! believes one bit.

use crate::error::Error;
use crate::hub::ps::url;
use crate::hub::servers::servers;
use bytes::Bytes;
use clap::{Args, ValueHint};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper::{Request, Uri, header};
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Where a server is if nobody says it.
const USUAL: &str = "http://127.0.0.1:8080";
/// Bytes of an answer at most.
const MOST: usize = 1 << 20;

/// Ask a server whether it serves requests: exit code 0 if it does, 1 if not
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct HealthArgs {
    /// Its address, as in http://127.0.0.1:8080 [default: that of your server on this machine, if arclight ps
    /// lists one; otherwise http://127.0.0.1:8080]
    url: Option<String>,
    /// Ask over a socket in the file system
    #[arg(long, value_name = "SOCKET", conflicts_with = "url", value_hint = ValueHint::FilePath)]
    unix: Option<PathBuf>,
    /// Time for the answer
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = crate::args::count)]
    timeout: usize,
}

const AFTER_HELP: &str = "\
By https the certificate is not checked, as by Kubernetes' probes: no secret is sent.

Examples:
  arclight health
  arclight health https://10.0.0.7:8443
  arclight health --unix /run/arclight/arclight.sock";

/// Runs the command.
pub(crate) fn run(args: &HealthArgs) -> Result<(), Error> {
    let at = args.place()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| Error::Io { what: "cannot ask".into(), source })?;
    let time = Duration::from_secs(args.timeout as u64);
    let asked = runtime.block_on(async { tokio::time::timeout(time, at.ask()).await });
    let asked = asked.unwrap_or_else(|_| Err(format!("no answer in {} s", args.timeout)));
    let said = asked.map_err(|why| Error::Refused(format!("{at}: {why}")))?;
    println!("{said}");
    Ok(())
}

/// Where a server is.
enum Place {
    Tcp { uri: Uri, host: String, port: u16, tls: bool },
    Unix(PathBuf),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Tcp { uri, .. } => write!(f, "{}", uri.to_string().trim_end_matches('/')),
            Place::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl HealthArgs {
    fn place(&self) -> Result<Place, Error> {
        if let Some(path) = &self.unix {
            return Ok(Place::Unix(path.clone()));
        }
        if let Some(url) = &self.url {
            return Place::of(url);
        }
        match servers().as_slice() {
            [] => Place::of(USUAL),
            [only] => Place::of(&url(&only.address)),
            _ => Err(Error::Usage(
                "several servers run on this machine: say which one (arclight ps lists them)"
                    .into(),
            )),
        }
    }
}

impl Place {
    /// Reads an address.
    fn of(url: &str) -> Result<Place, Error> {
        let fault = |why: &str| Error::Usage(format!("{url}: {why}"));
        if let Some(path) = url.strip_prefix("unix:") {
            return Ok(Place::Unix(path.into()));
        }
        let uri: Uri = url.parse().map_err(|_| fault("it is no URL"))?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(fault("it must begin with http:// or https://")),
        };
        let host = uri.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(fault("it names no host"));
        }
        let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
        Ok(Place::Tcp { uri, host, port, tls })
    }

    async fn ask(&self) -> Result<String, String> {
        match self {
            Place::Unix(path) => ask(connect(path).await?, "/health", "localhost").await,
            Place::Tcp { uri, host, port, tls } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(plain)?;
                let path = match uri.path() {
                    "/" | "" => "/health",
                    path => path,
                };
                let name = uri.authority().map_or(host.as_str(), |all| all.as_str());
                if !tls {
                    return ask(stream, path, name).await;
                }
                let server = ServerName::try_from(host.clone()).map_err(|e| e.to_string())?;
                let stream = TlsConnector::from(Arc::new(unchecked()))
                    .connect(server, stream)
                    .await
                    .map_err(plain)?;
                ask(stream, path, name).await
            }
        }
    }
}

#[cfg(unix)]
async fn connect(path: &Path) -> Result<tokio::net::UnixStream, String> {
    tokio::net::UnixStream::connect(path).await.map_err(plain)
}

#[cfg(not(unix))]
async fn connect(path: &Path) -> Result<TcpStream, String> {
    Err(format!("{}: this system has no sockets in its file system", path.display()))
}

/// What the server says of itself.
#[derive(Deserialize)]
struct Health {
    running: Option<u64>,
    waiting: Option<u64>,
}

/// What it says when it serves nothing.
#[derive(Deserialize)]
struct Refusal {
    error: Reason,
}

#[derive(Deserialize)]
struct Reason {
    message: String,
}

/// Asks over a connection.
async fn ask<S>(stream: S, path: &str, host: &str) -> Result<String, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    tokio::spawn(async move { drop(connection.await) });
    let request = Request::get(path)
        .header(header::HOST, host)
        .header(header::USER_AGENT, concat!("arclight-health/", env!("CARGO_PKG_VERSION")))
        .body(Empty::<Bytes>::new())
        .map_err(|e| e.to_string())?;
    let answer = sender.send_request(request).await.map_err(|e| e.to_string())?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), MOST).collect().await.map_err(|e| e.to_string())?;
    let body = body.to_bytes();
    if !status.is_success() {
        let why = serde_json::from_slice::<Refusal>(&body).map(|said| said.error.message);
        let why = why.unwrap_or_else(|_| status.canonical_reason().unwrap_or_default().to_owned());
        return Err(format!("{}: {why}", status.as_u16()));
    }
    Ok(match serde_json::from_slice(&body) {
        Ok(Health { running: Some(running), waiting: Some(waiting) }) => {
            format!("ok: {running} running, {waiting} waiting")
        }
        _ => "ok".to_owned(),
    })
}

/// The system's words without its number.
fn plain(e: std::io::Error) -> String {
    let text = e.to_string();
    text.split_once(" (os error").map_or(text.clone(), |(words, _)| words.to_lowercase())
}

/// TLS with whatever certificate the server has.
fn unchecked() -> ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Arc::new(Any(provider.signature_verification_algorithms));
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has the usual versions")
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth()
}

/// Takes any certificate whose key the server has.
#[derive(Debug)]
struct Any(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for Any {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
