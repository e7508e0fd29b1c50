//! Sockets of the file system, TLS with certificates that change, HTTP/2.

use crate::support::{Live, model, options, read_until};
use arclight_server::{App, Listener, Server, Tls};
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::CertifiedKey;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A server on these sockets; dropped, the sender ends it.
fn serve(
    listeners: Vec<Listener>,
    tls: Option<Arc<Tls>>,
) -> (Option<SocketAddr>, oneshot::Sender<()>, JoinHandle<()>) {
    let app = Arc::new(App::new(options()));
    app.ready(model(1, 4));
    let server = Server::on(app, listeners, tls).unwrap();
    let address = server.address();
    let (stop, stopped) = oneshot::channel::<()>();
    let served = tokio::spawn(server.run(async move {
        let _ = stopped.await;
    }));
    (address, stop, served)
}

async fn health(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> String {
    let request = b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut text = String::new();
    // A server of TLS may close the connection without a word.
    let _ = stream.read_to_string(&mut text).await;
    text
}

#[tokio::test]
async fn a_socket_in_the_file_system() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("arclight.sock");
    // What an ended server has left.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let listener = Listener::unix(&path).await.unwrap();
    assert_eq!(listener.to_string(), format!("unix:{}", path.display()));
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o660);
    let (address, stop, served) = serve(vec![listener], None);
    assert_eq!(address, None);
    let text = health(UnixStream::connect(&path).await.unwrap()).await;
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    let taken = Listener::unix(&path).await.err().unwrap().to_string();
    assert!(taken.contains("arclight.sock") && taken.contains("in use"), "{taken}");
    drop(stop);
    served.await.unwrap();
    assert!(!path.exists());
    std::fs::write(&path, "a file").unwrap();
    assert!(Listener::unix(&path).await.is_err());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "a file");
}

/// Writes a certificate for `localhost` and its key.
fn certify(folder: &Path) -> CertificateDer<'static> {
    let CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join("cert.pem"), cert.pem()).unwrap();
    std::fs::write(folder.join("key.pem"), signing_key.serialize_pem()).unwrap();
    CertificateDer::from_pem_file(folder.join("cert.pem")).unwrap()
}

async fn connect(
    address: SocketAddr,
    trusted: &CertificateDer<'static>,
    protocol: &[u8],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

#[tokio::test]
async fn certificates_change_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    let first = certify(folder.path());
    let tls = Arc::new(Tls::open(&cert, &key).unwrap());
    let listener = Listener::tcp("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let (address, stop, served) = serve(vec![listener], Some(tls.clone()));
    let address = address.unwrap();
    let text = health(connect(address, &first, b"http/1.1").await.unwrap()).await;
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    // Who speaks plainly gets no answer, and nobody else suffers.
    let text = health(TcpStream::connect(address).await.unwrap()).await;
    assert!(!text.contains("200"), "{text}");

    let second = certify(folder.path());
    assert!(connect(address, &second, b"http/1.1").await.is_err(), "not read yet");
    tls.reload().unwrap();
    assert!(connect(address, &first, b"http/1.1").await.is_err());
    let text = health(connect(address, &second, b"http/1.1").await.unwrap()).await;
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");

    std::fs::write(&cert, "nothing").unwrap();
    let fault = tls.reload().unwrap_err().to_string();
    assert!(fault.contains("cert.pem"), "{fault}");
    assert!(connect(address, &second, b"http/1.1").await.is_ok(), "what was read before is kept");
    drop(stop);
    served.await.unwrap();
    // A key that is not the certificate's.
    certify(folder.path());
    let other = folder.path().join("other.pem");
    std::fs::copy(&cert, &other).unwrap();
    certify(folder.path());
    assert!(Tls::open(&other, &key).is_err());
    assert!(Tls::open(&cert, &folder.path().join("none")).is_err());
}

/// Answers of two requests on one connection of HTTP/2.
async fn by_http2(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Vec<String> {
    let io = TokioIo::new(stream);
    let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    let ask = |path: &str| {
        let mut sender = sender.clone();
        let uri = format!("http://localhost{path}");
        async move {
            let request = Request::get(uri).body(Body::empty()).unwrap();
            let response = sender.send_request(request).await.unwrap();
            let bytes = response.into_body().collect().await.unwrap().to_bytes();
            String::from_utf8(bytes.to_vec()).unwrap()
        }
    };
    let (one, other) = tokio::join!(ask("/health"), ask("/v1/models"));
    vec![one, other]
}

#[tokio::test]
async fn many_requests_on_one_connection() {
    let live = Live::new(options(), model(1, 4)).await;
    let answers = by_http2(TcpStream::connect(live.address).await.unwrap()).await;
    assert!(answers[0].contains("ok") && answers[1].contains("demo"), "{answers:?}");
    let mut plain = TcpStream::connect(live.address).await.unwrap();
    plain.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    assert!(read_until(&mut plain, "}").await.starts_with("HTTP/1.1 200"));

    let folder = tempfile::tempdir().unwrap();
    let trusted = certify(folder.path());
    let tls = Tls::open(&folder.path().join("cert.pem"), &folder.path().join("key.pem")).unwrap();
    let listener = Listener::tcp("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let (address, _stop, _served) = serve(vec![listener], Some(Arc::new(tls)));
    let stream = connect(address.unwrap(), &trusted, b"h2").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let answers = by_http2(stream).await;
    assert!(answers[0].contains("ok"), "{answers:?}");
}
