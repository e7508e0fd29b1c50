//! HTTP/1.1 to one server, over connections that are kept for the next request.
//!
//! A request that does not wait for others needs a connection of its own, so there is no bound on their
//! number. One that has idled longer than [`KEEP`] is not used again: servers close them after five
//! seconds and more, and a request on its way at that moment would look like a fault of the server.
//! Some close them after so many requests, too, and do not say so (llama-server after a hundred): a
//! request to which a kept connection gives no answer is sent again over a new one, once.

use crate::error::Error;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, Response, Uri, header};
use hyper_util::rt::TokioIo;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

const KEEP: Duration = Duration::from_secs(2);
/// For a connection to be made.
const CONNECT: Duration = Duration::from_secs(10);
/// Largest answer that is taken whole.
const MOST: usize = 64 << 20;

/// A connection.
pub(crate) type Connection = SendRequest<Full<Bytes>>;

/// A server's address and the connections to it.
#[derive(Debug)]
pub struct Client {
    host: String,
    port: u16,
    /// Host and port as the URL has them.
    authority: String,
    /// What stands before `/v1`; empty or beginning with a slash.
    base: String,
    key: Option<String>,
    idle: Mutex<Vec<(Connection, Instant)>>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Fault {
    /// No connection.
    Connect(String),
    /// It broke, or what came is no HTTP.
    Broken(String),
}

impl Fault {
    pub(crate) fn reason(&self) -> &str {
        match self {
            Fault::Connect(reason) | Fault::Broken(reason) => reason,
        }
    }
}

impl Client {
    /// Of the server at `url`, as in `http://localhost:8080`; a path that ends with `/v1` is taken
    /// as what it says. `key` goes into an `Authorization` header.
    ///
    /// # Errors
    /// When this is no address, or one with `https`.
    pub fn new(url: &str, key: Option<&str>) -> Result<Client, Error> {
        let fault = |reason| Error::Url { url: url.to_owned(), reason };
        if !url.contains("://") {
            return Err(fault("the scheme is missing"));
        }
        let uri: Uri = url.parse().map_err(|_| fault("it is no URL"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(Error::Https { url: url.to_owned() }),
            _ => return Err(fault("its scheme is not http")),
        }
        if uri.query().is_some() {
            return Err(fault("it has a query"));
        }
        let authority = uri.authority().ok_or_else(|| fault("it names no host"))?;
        if authority.as_str().contains('@') {
            return Err(fault("it holds a user; a key goes into --api-key"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(fault("it names no host"));
        }
        // A port that is no u16 is none to the parser.
        let port = match authority.as_str().rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') && !host.is_empty() => port.parse().ok(),
            _ => Some(80),
        };
        let port = port.ok_or_else(|| fault("its port is no number below 65536"))?;
        if let Some(key) = key
            && header::HeaderValue::from_str(key).is_err()
        {
            let (value, reason) = ("with line ends or the like".to_owned(), "no header holds it");
            return Err(Error::Value { what: "api-key", value, reason });
        }
        let path = uri.path().trim_end_matches('/');
        let base = path.strip_suffix("/v1").unwrap_or(path).to_owned();
        Ok(Client {
            host,
            port,
            authority: authority.to_string(),
            base,
            key: key.map(str::to_owned),
            idle: Mutex::default(),
        })
    }

    /// The server's address without a path to an endpoint.
    pub fn url(&self) -> String {
        format!("http://{}{}", self.authority, self.base)
    }

    async fn connect(&self) -> Result<Connection, Fault> {
        let fault = |e: &dyn std::fmt::Display| Fault::Connect(e.to_string());
        let stream = TcpStream::connect((self.host.as_str(), self.port));
        let stream = match tokio::time::timeout(CONNECT, stream).await {
            Ok(stream) => stream.map_err(|e| fault(&plain(&e)))?,
            Err(_) => {
                return Err(Fault::Connect(format!("no connection in {} s", CONNECT.as_secs())));
            }
        };
        // A request is one small write that must not wait for others.
        stream.set_nodelay(true).map_err(|e| fault(&e))?;
        let (connection, driver) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|e| fault(&e))?;
        // The user of the connection gets the error of its end.
        tokio::spawn(async move { drop(driver.await) });
        Ok(connection)
    }

    /// A connection that is kept, or none.
    async fn kept(&self) -> Option<Connection> {
        loop {
            let (mut connection, since) = self.idle.lock().expect("no holder panics").pop()?;
            if since.elapsed() < KEEP && connection.ready().await.is_ok() {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection whose answer has been read.
    pub(crate) fn keep(&self, connection: Connection) {
        let mut idle = self.idle.lock().expect("no holder panics");
        idle.retain(|(other, since)| since.elapsed() < KEEP && !other.is_closed());
        idle.push((connection, Instant::now()));
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, Fault> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header(header::HOST, &self.authority)
            .header(header::USER_AGENT, concat!("arclight-bench/", env!("CARGO_PKG_VERSION")));
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(key) = &self.key {
            request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
        }
        request.body(Full::new(body)).map_err(|e| Fault::Broken(e.to_string()))
    }

    /// Sends a request; the connection is to be kept or dropped when the answer has been read.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(Response<Incoming>, Connection), Fault> {
        let request = self.request(method, path, body)?;
        if let Some(mut connection) = self.kept().await {
            match connection.try_send_request(request.clone()).await {
                Ok(answer) => return Ok((answer, connection)),
                Err(mut e) => {
                    // The server has closed the connection before it could know of this request, or
                    // just then.
                    let unsent = e.take_message().is_some();
                    let e = e.into_error();
                    if !unsent && !e.is_incomplete_message() {
                        return Err(Fault::Broken(plain(&e)));
                    }
                }
            }
        }
        let mut connection = self.connect().await?;
        let answer = connection.send_request(request).await;
        answer.map(|answer| (answer, connection)).map_err(|e| Fault::Broken(plain(&e)))
    }

    /// Status and whole answer.
    pub(crate) async fn fetch(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        timeout: Duration,
    ) -> Result<(u16, Bytes), Fault> {
        let fetch = async {
            let (answer, connection) = self.send(method, path, body).await?;
            let status = answer.status().as_u16();
            let body = Limited::new(answer.into_body(), MOST).collect().await;
            let body = body.map_err(|e| Fault::Broken(e.to_string()))?.to_bytes();
            self.keep(connection);
            Ok((status, body))
        };
        let late = || Fault::Broken(format!("no answer in {} s", timeout.as_secs_f64()));
        tokio::time::timeout(timeout, fetch).await.unwrap_or_else(|_| Err(late()))
    }
}

/// An error with its last cause, which says most.
pub(crate) fn plain(e: &dyn std::error::Error) -> String {
    let mut last = e;
    while let Some(cause) = last.source() {
        last = cause;
    }
    // "Connection refused (os error 111)"
    let text = last.to_string();
    match text.split_once(" (os error") {
        Some((words, _)) => words.to_lowercase(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let client = |url: &str| Client::new(url, None).unwrap();
        let c = client("http://localhost:8080/");
        assert_eq!((c.host.as_str(), c.port, c.base.as_str()), ("localhost", 8080, ""));
        assert_eq!(client("http://h/v1").url(), "http://h");
        assert_eq!(client("http://h/v1/").base, "");
        assert_eq!(client("http://h/api/v1").base, "/api");
        assert_eq!(client("http://h/some").base, "/some");
        assert_eq!(client("http://h").port, 80);
        let six = client("http://[::1]:81");
        assert_eq!((six.host.as_str(), six.port, six.authority.as_str()), ("::1", 81, "[::1]:81"));
    }

    /// Answers `answers` requests on its first connection, then closes it when the next has come; a
    /// second connection likewise.
    async fn closing_server(answers: usize) -> String {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", server.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = server.accept().await {
                for at in 0.. {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        head.push(stream.read_u8().await.unwrap());
                    }
                    if at == answers {
                        break;
                    }
                    stream
                        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                        .await
                        .unwrap();
                }
            }
        });
        url
    }

    #[tokio::test]
    async fn a_kept_connection_that_breaks_at_once_is_replaced_and_a_new_one_is_not() {
        let get = async |client: &Client| {
            client.fetch(Method::GET, "/x", Bytes::new(), Duration::from_secs(10)).await
        };
        let client = Client::new(&closing_server(3).await, None).unwrap();
        for at in 0..3 {
            assert_eq!(get(&client).await.unwrap(), (200, Bytes::from_static(b"ok")), "{at}");
        }
        assert!(get(&client).await.is_ok(), "over a second connection");
        let client = Client::new(&closing_server(0).await, None).unwrap();
        assert!(matches!(get(&client).await, Err(Fault::Broken(_))));
    }

    #[test]
    fn no_addresses() {
        for (url, part) in [
            ("localhost:8080", "scheme is missing"),
            ("ftp://h", "not http"),
            ("https://h", "https is not supported"),
            ("http://", "no URL"),
            ("http://h:99999", "port is no number"),
            ("http://h:", "port is no number"),
            ("http://u:p@h", "--api-key"),
            ("http://h/?x=1", "query"),
        ] {
            let e = Client::new(url, None).unwrap_err();
            assert!(e.is_usage() && e.to_string().contains(part), "{url}: {e}");
        }
        assert!(Client::new("http://h", Some("a\nb")).unwrap_err().to_string().contains("api-key"));
    }
}
