//! Requests: redirects, tokens, and what a failure means.
//!
//! Redirects are followed here and not by the client, since the token goes to the site alone and not to
//! the servers that hold its files. What may pass by itself (a cut connection, a busy server) is told
//! from what will not; [`Backoff`] says how long to wait.

use crate::{Error, Settings};
use serde::de::DeserializeOwned;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;
use ureq::http::{HeaderMap, Response};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body};

/// Redirects that are followed.
const REDIRECTS: usize = 10;

/// Bytes of an answer of the API.
const ANSWER: u64 = 64 << 20;

/// Longest wait that a server may ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// Why a request has brought nothing.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// It may pass: the reason, and how long the server asks to wait.
    Passing { why: String, wait: Option<Duration> },
    /// The network does not lead to this host.
    Unreachable { host: String, why: String },
    /// An answer with a status that says no.
    Refused(Refusal),
    /// Anything else.
    Final(Error),
}

/// An answer with a status that says no.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) url: String,
    pub(crate) status: u16,
    /// The Hub's own word for the fault: `GatedRepo`, `RepoNotFound`, `EntryNotFound`.
    pub(crate) code: String,
    pub(crate) message: Option<String>,
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        let Refusal { url, status, message, .. } = refusal;
        Error::Status { url, status, message }
    }
}

impl Trouble {
    /// As an error of someone who does not try again.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Trouble::Passing { why, .. } => Error::Cut { file: "the site".into(), why, tries: 1 },
            Trouble::Unreachable { host, why } => Error::Unreachable { host, why },
            Trouble::Refused(refusal) => refusal.into(),
            Trouble::Final(error) => error,
        }
    }
}

/// Asks one site.
pub(crate) struct Http {
    agent: Agent,
    /// `scheme://host:port` of the site.
    origin: String,
    token: Option<String>,
}

impl Http {
    /// For the site at an address, with the token that it knows the user by.
    pub(crate) fn new(
        settings: &Settings,
        endpoint: &str,
        token: Option<&str>,
    ) -> Result<Http, Error> {
        let mut tls = TlsConfig::builder();
        if let Some(path) = &settings.certificates {
            let fault = |why: String| Error::Certificates { path: path.clone(), why };
            let pem = std::fs::read(path).map_err(|e| fault(e.to_string()))?;
            let certificates: Vec<_> = parse_pem(&pem)
                .filter_map(|item| match item {
                    Ok(PemItem::Certificate(certificate)) => Some(Ok(certificate)),
                    Ok(_) => None,
                    Err(e) => Some(Err(fault(e.to_string()))),
                })
                .collect::<Result<_, _>>()?;
            if certificates.is_empty() {
                return Err(fault("it has no certificates".into()));
            }
            tls = tls.root_certs(RootCerts::Specific(Arc::new(certificates)));
        }
        let mut config = Agent::config_builder();
        if is_loopback(host(endpoint)) {
            // No proxy leads to this machine.
            config = config.proxy(None);
        }
        let agent = config
            .tls_config(tls.build())
            .user_agent(concat!("arclight/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(Duration::from_secs(15)))
            .timeout_recv_response(Some(Duration::from_secs(60)))
            .timeout_per_read(Some(Duration::from_secs(60)))
            .max_idle_connections_per_host(settings.connections)
            .build()
            .new_agent();
        let token = token.map(str::to_owned);
        Ok(Http { agent, origin: origin(endpoint).to_owned(), token })
    }

    /// Whether requests carry a token.
    pub(crate) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// The answer to a request for a resource or, with a range `from..to`, some of its bytes. It is a
    /// success, a redirect never.
    pub(crate) fn get(
        &self,
        url: &str,
        range: Option<(u64, u64)>,
    ) -> Result<Response<Body>, Trouble> {
        let mut url = url.to_owned();
        for _ in 0..=REDIRECTS {
            let by_site = origin(&url).eq_ignore_ascii_case(&self.origin);
            let mut request = self.agent.get(&url);
            if let Some(token) = self.token.as_deref().filter(|_| by_site) {
                request = request.header("authorization", format!("Bearer {token}"));
            }
            if let Some((from, to)) = range {
                request = request.header("range", format!("bytes={from}-{}", to - 1));
            }
            let mut answer = request.call().map_err(|e| trouble(&url, e))?;
            match answer.status().as_u16() {
                200..=299 => return Ok(answer),
                301 | 302 | 303 | 307 | 308 => {
                    let to = header(answer.headers(), "location").unwrap_or("");
                    url = joined(&url, to).ok_or_else(|| {
                        let why = format!("it redirects to {to:?}");
                        Trouble::Final(Error::BadAnswer { url: shown(&url), why })
                    })?;
                }
                status => return Err(refused(&url, status, by_site, &mut answer)),
            }
        }
        let why = format!("more than {REDIRECTS} redirects");
        Err(Trouble::Final(Error::BadAnswer { url: shown(&url), why }))
    }

    /// The JSON that a request gives, and the address of the next page.
    pub(crate) fn json<T: DeserializeOwned>(
        &self,
        url: &str,
    ) -> Result<(T, Option<String>), Trouble> {
        let answer = self.get(url, None)?;
        let next = header(answer.headers(), "link").and_then(next_page).map(str::to_owned);
        let next = next.and_then(|next| joined(url, &next));
        let mut body = Vec::new();
        let read =
            answer.into_body().into_with_config().limit(ANSWER).reader().read_to_end(&mut body);
        read.map_err(|e| Trouble::Passing { why: e.to_string(), wait: None })?;
        let value = serde_json::from_slice(&body).map_err(|e| {
            Trouble::Final(Error::BadAnswer { url: shown(url), why: e.to_string() })
        })?;
        Ok((value, next))
    }
}

/// What a transport's error means.
fn trouble(url: &str, error: ureq::Error) -> Trouble {
    let host = host(url).to_owned();
    match error {
        ureq::Error::HostNotFound => Trouble::Unreachable { host, why: "no such host".into() },
        ureq::Error::ConnectionFailed => Trouble::Unreachable { host, why: "no connection".into() },
        ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => {
            Trouble::Unreachable { host, why: "no answer".into() }
        }
        ureq::Error::Io(e) if e.kind() == std::io::ErrorKind::ConnectionRefused => {
            Trouble::Unreachable { host, why: "connection refused".into() }
        }
        ureq::Error::Io(source) if is_out_of_descriptors(&source) => {
            Trouble::Final(Error::Io { what: format!("cannot connect to {host}"), source })
        }
        ureq::Error::Timeout(_) => {
            Trouble::Passing { why: format!("{host} sends nothing"), wait: None }
        }
        ureq::Error::Io(e) => Trouble::Passing { why: format!("{host}: {e}"), wait: None },
        ureq::Error::Protocol(e) => Trouble::Passing { why: format!("{host}: {e}"), wait: None },
        other => Trouble::Unreachable { host, why: other.to_string() },
    }
}

/// Whether the process or the system has no file descriptors left: that does not pass while it waits.
fn is_out_of_descriptors(error: &std::io::Error) -> bool {
    // ENFILE and EMFILE have these numbers on all Unix systems.
    cfg!(unix) && matches!(error.raw_os_error(), Some(23 | 24))
}

/// What an answer that is no success means.
fn refused(url: &str, status: u16, by_site: bool, answer: &mut Response<Body>) -> Trouble {
    let headers = answer.headers();
    let host = host(url).to_owned();
    match status {
        429 => {
            let wait = wait_of(headers);
            if let Some(wait) = wait.filter(|wait| *wait > LONGEST_WAIT) {
                return Trouble::Final(Error::Limited { host, wait });
            }
            return Trouble::Passing { why: format!("{host} asks for fewer requests"), wait };
        }
        408 | 500 | 502 | 503 | 504 => {
            let wait = wait_of(headers).filter(|wait| *wait <= LONGEST_WAIT);
            return Trouble::Passing { why: format!("{host} answers {status}"), wait };
        }
        // Addresses that the site gives out for its files hold for a while.
        401 | 403 if !by_site => {
            return Trouble::Passing { why: format!("{host} answers {status}"), wait: None };
        }
        _ => {}
    }
    let code = header(headers, "x-error-code").unwrap_or("").to_owned();
    let mut message = header(headers, "x-error-message").map(str::to_owned);
    if message.is_none() {
        let body =
            answer.body_mut().with_config().limit(64 << 10).read_to_vec().unwrap_or_default();
        let body: Option<serde_json::Value> = serde_json::from_slice(&body).ok();
        let text =
            body.as_ref().and_then(|body| body.get("error").or(body.get("Message"))?.as_str());
        message = text.map(|text| text.chars().take(200).collect());
    }
    Trouble::Refused(Refusal { url: shown(url), status, code, message })
}

/// How long the server asks to wait: `Retry-After` in seconds, or the Hub's `RateLimit: ...;t=SECONDS`.
fn wait_of(headers: &HeaderMap) -> Option<Duration> {
    let seconds = header(headers, "retry-after").and_then(|text| text.trim().parse().ok());
    let seconds = seconds.or_else(|| {
        let parts = header(headers, "ratelimit")?.split(';');
        parts.filter_map(|part| part.trim().strip_prefix("t=")).next()?.parse().ok()
    });
    seconds.map(Duration::from_secs)
}

pub(crate) fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// The address of the next page in a `Link` header.
fn next_page(link: &str) -> Option<&str> {
    let next = link.split(',').find(|part| part.contains("rel=\"next\""))?;
    next.split_once('<')?.1.split_once('>').map(|(url, _)| url)
}

/// `scheme://host:port` of an address.
fn origin(url: &str) -> &str {
    let after = url.find("://").map_or(0, |at| at + 3);
    let end = url[after..].find(['/', '?', '#']).map_or(url.len(), |at| after + at);
    &url[..end]
}

/// The host of an address.
pub(crate) fn host(url: &str) -> &str {
    let origin = origin(url);
    origin.split_once("://").map_or(origin, |(_, host)| host)
}

fn is_loopback(host: &str) -> bool {
    let name = if host.starts_with('[') { host.split(']').next() } else { host.split(':').next() };
    matches!(name, Some("localhost" | "[::1")) || name.is_some_and(|name| name.starts_with("127."))
}

/// An address without what may be secret in it.
fn shown(url: &str) -> String {
    url.split('?').next().unwrap_or(url).to_owned()
}

/// Where a redirect leads.
fn joined(base: &str, to: &str) -> Option<String> {
    if to.starts_with("http://") || to.starts_with("https://") {
        return Some(to.to_owned());
    }
    (to.starts_with('/') && !to.starts_with("//")).then(|| format!("{}{to}", origin(base)))
}

/// Text as a part of an address.
pub(crate) fn escaped(text: &str, keep: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        let plain = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if plain || keep.as_bytes().contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// How long to wait before the next try.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    most: u32,
    failures: u32,
}

impl Backoff {
    pub(crate) fn new(settings: &Settings) -> Backoff {
        Backoff { first: settings.first_wait, most: settings.tries, failures: 0 }
    }

    /// Something came: what failed before counts no more.
    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Tries that failed in a row.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// The wait after one more failure; `None` when it is time to give up. A server that says how long
    /// is taken at its word.
    pub(crate) fn failed(&mut self, asked: Option<Duration>) -> Option<Duration> {
        self.failures += 1;
        (self.failures < self.most).then(|| {
            let doubled = self.first.saturating_mul(1 << (self.failures - 1).min(5));
            asked.unwrap_or(doubled)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_apart_and_together() {
        assert_eq!(origin("https://a.b:8/c/d?e"), "https://a.b:8");
        assert_eq!(host("http://a.b?c"), "a.b");
        assert_eq!(joined("https://a/b/c", "/d").unwrap(), "https://a/d");
        assert_eq!(joined("https://a/b/c", "http://x/y").unwrap(), "http://x/y");
        assert_eq!(joined("https://a/b/c", "//x/y"), None);
        assert_eq!(joined("https://a/b/c", "file:///etc/passwd"), None);
        assert_eq!(shown("https://a/b?signature=1"), "https://a/b");
        assert_eq!(escaped("a b/ü", "/"), "a%20b/%C3%BC");
        assert!(is_loopback("127.0.0.1:80") && is_loopback("localhost") && is_loopback("[::1]:80"));
        assert!(!is_loopback("huggingface.co"));
    }

    #[test]
    fn a_link_names_the_next_page() {
        let link = "<https://a/first>; rel=\"first\", <https://a/next?cursor=x>; rel=\"next\"";
        assert_eq!(next_page(link), Some("https://a/next?cursor=x"));
        assert_eq!(next_page("<https://a/first>; rel=\"first\""), None);
    }

    #[test]
    fn waits_double_and_end() {
        let first = Duration::from_secs(1);
        let mut backoff = Backoff { first, most: 4, failures: 0 };
        let waits: Vec<_> = (0..4).map(|_| backoff.failed(None)).collect();
        let seconds = |n| Some(Duration::from_secs(n));
        assert_eq!(waits, [seconds(1), seconds(2), seconds(4), None]);
        backoff.succeeded();
        assert_eq!(backoff.failed(seconds(7)), seconds(7));
    }

    #[test]
    fn servers_say_how_long_to_wait() {
        let headers = |name: &'static str, value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            headers
        };
        let seconds = |n| Some(Duration::from_secs(n));
        assert_eq!(wait_of(&headers("retry-after", "7")), seconds(7));
        assert_eq!(wait_of(&headers("ratelimit", "\"resolvers\";r=0;t=55")), seconds(55));
        assert_eq!(wait_of(&headers("x", "y")), None);
    }
}
