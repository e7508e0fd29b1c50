//! Which web pages and host names may use a server, and what requests of browsers must have.
//!
//! A browser sends requests for any page that it shows, to this machine and its network too. So pages of other sites
//! are refused, with keys and without. Keys alone would not do: a page that once asked for a key keeps it, and other
//! sites could have it spend tokens or memory. Three headers, which a page's script cannot set, identify such requests:
//!
//! - `Host`, on a server without keys. A foreign name can be made to lead to this machine while a page of that name is
//!   shown (DNS rebinding), and all further headers then look like those of the server's own page. An IP address or
//!   `localhost` cannot be rebound; other names have to be given as [`Options::hosts`]. With keys it does not matter,
//!   since the browser keeps no key for such a page. No browser connects to a Unix socket; a request without `Host`
//!   is not a browser's.
//! - `Origin`: browsers send it with everything but `GET` and `HEAD`, and with requests whose answers a script may
//!   read. It has to be the request's own host, or one of [`Options::hosts`] or [`Options::origins`].
//! - `Sec-Fetch-Site`, which browsers send to HTTPS and to this machine: `same-origin`, or `none` for an address that a
//!   person has entered. Links from other sites to the server's pages work (top-level navigation).
//!
//! What is [public](PUBLIC) is answered in all cases: it changes nothing and shows nothing of models and requests.
//!
//! In addition, bodies have to be declared as JSON, which a page of another site cannot send without a question to the
//! server beforehand (preflight). Programs that are no browsers may leave the type out, or send the one that
//! `curl -d` does (`application/x-www-form-urlencoded`): without `Origin` and `Sec-Fetch-Site`, no browser of today
//! has sent it. `Sec-Fetch-Mode` alone is no sign of a browser, since `fetch` of Node.js sends it.
//!
//! On a server without keys, what changes files or models, or runs tools, is for programs, and for the server's own
//! page, which has a [token](crate::page::Token) in its HTML. A page of an allowed origin cannot read that.

use super::gate::Peer;
use crate::error::Error;
use crate::fault::Fault;
use crate::options::Options;
use crate::page;
use crate::state::App;
use axum::extract::{Request, State};
use axum::http::uri::{Authority, Uri};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::body::Body;
use std::net::IpAddr;
use std::sync::Arc;

const SITE: &str = "sec-fetch-site";

/// Paths that any page may read.
const PUBLIC: [&str; 5] = ["/health", "/ping", "/version", "/openapi.json", "/docs"];

/// Paths whose bodies are files.
const UPLOADS: [&str; 1] = ["/v1/files"];

/// Paths of requests that only compute. All others that do not read change something.
const COMPUTES: [&str; 25] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/chat/completions/render",
    "/v1/completions/render",
    "/v1/embeddings",
    "/v1/rerank",
    "/v2/rerank",
    "/rerank",
    "/v1/score",
    "/completion",
    "/infill",
    "/v1/responses",
    "/v1/responses/input_tokens",
    "/v1/responses/compact",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/api/chat",
    "/api/generate",
    "/api/embed",
    "/api/embeddings",
    "/api/show",
    "/tokenize",
    "/detokenize",
    "/apply-template",
    "/ping",
];

/// Checks the names in the options.
///
/// # Errors
/// When one is not a host name.
pub(super) fn check_hosts(options: &Options) -> Result<(), Error> {
    let is_name = |host: &str| {
        let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        !host.is_empty() && host.chars().all(letters)
    };
    match options.hosts.iter().find(|host| *host != "*" && !is_name(host)) {
        Some(host) => Err(Error::BadHost { host: host.clone() }),
        None => Ok(()),
    }
}

/// Passes requests of programs, of the server's own page, and of pages that the options allow.
pub(super) async fn admit(
    State(options): State<Arc<Options>>,
    request: Request,
    next: Next,
) -> Response {
    match check(&options, &request) {
        Ok(()) => next.run(request).await,
        Err(fault) => fault.into_response(),
    }
}

fn check(options: &Options, request: &Request) -> Result<(), Fault> {
    if reads(request.method()) && PUBLIC.contains(&request.uri().path()) {
        return Ok(());
    }
    if options.keys.is_empty() {
        check_host(options, request)?;
    }
    check_origin(options, request)
}

fn reads(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

fn check_host(options: &Options, request: &Request) -> Result<(), Fault> {
    // Not from the network.
    if request.extensions().get::<Peer>().is_some_and(|peer| peer.0.is_none()) {
        return Ok(());
    }
    let refused = |host: &str| {
        let message = format!(
            "the host {host:?} is not a name of this server: start it with --allowed-host {host}, or with API keys"
        );
        Fault::new(StatusCode::FORBIDDEN, message).code("host_not_allowed")
    };
    for host in hosts(request) {
        let Some(host) = host else { return Err(refused("?")) };
        if !is_safe(host.host()) && !is_named(options, host.host(), true) {
            return Err(refused(host.host()));
        }
    }
    Ok(())
}

/// The hosts that a request names; `None` for what is not a host.
fn hosts(request: &Request) -> impl Iterator<Item = Option<Authority>> {
    let given = request.headers().get_all(header::HOST).into_iter();
    let given = given.map(|host| host.as_bytes().try_into().ok());
    // The one of HTTP/2, and of requests to a proxy.
    request.uri().authority().cloned().map(Some).into_iter().chain(given)
}

/// Whether a host cannot be rebound: an IP address, or a name that stands for this machine everywhere.
fn is_safe(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let name = plain(host);
    address.parse::<IpAddr>().is_ok() || name == "localhost" || name.ends_with(".localhost")
}

/// A name in the form that names are compared in.
fn plain(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

/// Whether a host is one of the options', of which `*` is any if `any` is.
fn is_named(options: &Options, host: &str, any: bool) -> bool {
    let host = plain(host);
    options.hosts.iter().any(|named| (any && named == "*") || plain(named) == host)
}

fn check_origin(options: &Options, request: &Request) -> Result<(), Fault> {
    let headers = request.headers();
    let origin = headers.get(header::ORIGIN);
    let site = headers.get(SITE).map(HeaderValue::as_bytes);
    let listed = |origin: &HeaderValue| options.origins.iter().any(|one| *one == *origin);
    if options.origins.iter().any(|one| one == "*") || origin.is_some_and(listed) {
        return Ok(());
    }
    let own = match (origin, site) {
        (None, None | Some(b"same-origin" | b"none")) => true,
        (None, Some(_)) => navigates(request),
        // The browser has compared them, and has seen the address in front of a proxy.
        (Some(origin), Some(b"same-origin")) => origin != "null",
        (Some(origin), None | Some(b"none")) => is_own(options, origin, request),
        (Some(_), Some(_)) => false,
    };
    if own {
        return Ok(());
    }
    let message = match origin.and_then(|origin| origin.to_str().ok()).filter(|o| *o != "null") {
        Some(origin) => format!(
            "pages of the origin {origin:?} may not use this server: start it with --cors-origin {origin}"
        ),
        None => {
            "a page of another site may not use this server: start it with --cors-origin and the origin of the page"
                .to_owned()
        }
    };
    Err(Fault::new(StatusCode::FORBIDDEN, message).code("origin_not_allowed"))
}

/// Whether an origin is the host that the request was sent to, or is named by the options.
fn is_own(options: &Options, origin: &HeaderValue, request: &Request) -> bool {
    let Ok(origin) = Uri::try_from(origin.as_bytes()) else { return false };
    let (Some(scheme), Some(from)) = (origin.scheme_str(), origin.authority()) else {
        return false;
    };
    let Some(Some(to)) = hosts(request).next() else { return false };
    let usual = if scheme == "https" { 443 } else { 80 };
    let port = |host: &Authority| host.port_u16().unwrap_or(usual);
    (plain(from.host()) == plain(to.host()) && port(from) == port(&to))
        || is_named(options, from.host(), false)
}

/// Whether a link of another site leads to one of the server's pages.
fn navigates(request: &Request) -> bool {
    let is = |name: &str, value: &str| request.headers().get(name).is_some_and(|v| v == value);
    reads(request.method())
        && is("sec-fetch-mode", "navigate")
        && is("sec-fetch-dest", "document")
        && page::has(request.uri().path())
}

/// Passes requests whose body has the right type, and those that change something if they may.
pub(super) async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let checked = check_type(&request).and_then(|()| check_token(&app, &request));
    match checked {
        Ok(()) => next.run(request).await,
        Err(fault) => fault.into_response(),
    }
}

/// Whether a browser has sent a request that does more than read.
fn is_of_browser(headers: &HeaderMap) -> bool {
    headers.contains_key(header::ORIGIN) || headers.contains_key(SITE)
}

fn check_type(request: &Request) -> Result<(), Fault> {
    let uploads = UPLOADS.contains(&request.uri().path());
    if reads(request.method()) || request.body().is_end_stream() {
        return Ok(());
    }
    let kind = request.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let kind = kind.map(|kind| {
        let end = kind.iter().position(|byte| *byte == b';').unwrap_or(kind.len());
        kind[..end].trim_ascii().to_ascii_lowercase()
    });
    let fits = match kind.as_deref() {
        Some(b"multipart/form-data") => uploads,
        _ if uploads => false,
        Some(b"application/json") => true,
        Some(kind) if kind.starts_with(b"application/") && kind.ends_with(b"+json") => true,
        None | Some(b"application/x-www-form-urlencoded") => !is_of_browser(request.headers()),
        Some(_) => false,
    };
    if fits {
        return Ok(());
    }
    let wanted = if uploads { "multipart/form-data" } else { "application/json" };
    let message = match kind {
        Some(kind) => format!(
            "the content type {:?} is not supported here: it must be {wanted}",
            String::from_utf8_lossy(&kind)
        ),
        None => format!("the content type is missing: it must be {wanted}"),
    };
    let fault = Fault::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message);
    Err(fault.code("unsupported_media_type"))
}

fn check_token(app: &App, request: &Request) -> Result<(), Fault> {
    let (headers, path) = (request.headers(), request.uri().path());
    let needed = is_for_page(path) || (changes(request.method(), path) && is_of_browser(headers));
    let given = headers.get(page::TOKEN).is_some_and(|given| app.token.is(given.as_bytes()));
    if !needed || given || !app.options.keys.is_empty() {
        return Ok(());
    }
    let message = "without API keys this is for the server's own page, whose token is missing: load the page again, \
         or start the server with --api-key-file";
    Err(Fault::new(StatusCode::FORBIDDEN, message).code("page_token_needed"))
}

/// Paths that only the page uses.
fn is_for_page(path: &str) -> bool {
    path.starts_with("/page/")
}

/// Whether a request changes files or models, or runs tools.
fn changes(method: &Method, path: &str) -> bool {
    let computes = match *method {
        Method::POST => COMPUTES.contains(&path),
        // What memory keeps of an answer.
        Method::DELETE => path.starts_with("/v1/responses/"),
        _ => false,
    };
    !reads(method) && *method != Method::OPTIONS && !computes
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body as HttpBody;

    fn options() -> Options {
        let text = |list: &[&str]| list.iter().map(|one| (*one).to_owned()).collect();
        Options {
            hosts: text(&["chat.example"]),
            origins: text(&["https://other.example"]),
            ..Options::default()
        }
    }

    fn code(
        options: &Options,
        method: Method,
        uri: &str,
        headers: &[(&str, &str)],
    ) -> &'static str {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(HttpBody::empty()).unwrap();
        check(options, &request).map_or_else(|fault| fault.code.unwrap(), |()| "")
    }

    #[test]
    fn hosts_are_addresses_or_given_names() {
        let get = |uri: &str, host: &str| code(&options(), Method::GET, uri, &[("host", host)]);
        for host in [
            "127.0.0.1:8080",
            "192.0.2.7",
            "[::1]:8080",
            "[2001:db8::1]",
            "localhost",
            "LOCALHOST:1",
            "localhost.:1",
            "a.localhost",
            "chat.example",
            "Chat.Example.:8080",
        ] {
            assert_eq!(get("/v1/models", host), "", "{host}");
            // As HTTP/2 has it.
            assert_eq!(
                code(&options(), Method::GET, &format!("http://{host}/"), &[]),
                "",
                "{host}"
            );
        }
        for host in [
            "evil.test:8080",
            "127.0.0.1.evil.test",
            "localhost.evil.test",
            "notlocalhost",
            "a.chat.example",
            "127.0.0.1@evil.test",
            "evil test",
            "",
        ] {
            assert_eq!(get("/v1/models", host), "host_not_allowed", "{host}");
            assert_eq!(get("/health", host), "", "public");
        }
        assert_eq!(get("http://evil.test/", "localhost"), "host_not_allowed");
        assert_eq!(get("http://localhost/", "evil.test"), "host_not_allowed");
        let two = [("host", "localhost"), ("host", "evil.test")];
        assert_eq!(code(&options(), Method::GET, "/", &two), "host_not_allowed");
        assert_eq!(code(&options(), Method::GET, "/", &[]), "", "no browser");
        let any = Options { hosts: vec!["*".into()], ..Options::default() };
        let evil = [("host", "evil.test"), ("origin", "http://other.test")];
        assert_eq!(code(&any, Method::GET, "/", &evil[..1]), "");
        assert_eq!(code(&any, Method::GET, "/", &evil), "origin_not_allowed");
        let keys: Vec<crate::keys::Key> = vec!["k".parse().unwrap()];
        let keys = Options { keys: keys.into(), ..Options::default() };
        assert_eq!(code(&keys, Method::GET, "/v1/models", &evil[..1]), "");
        assert_eq!(code(&keys, Method::GET, "/v1/models", &evil), "origin_not_allowed");
    }

    #[test]
    fn origins_are_the_servers_own_or_given_ones() {
        let post = |host: &str, more: &[(&str, &str)]| {
            let headers = [&[("host", host)], more].concat();
            code(&options(), Method::POST, "/v1/chat/completions", &headers)
        };
        for (host, origin) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("127.0.0.1", "http://127.0.0.1"),
            ("localhost:80", "http://localhost"),
            ("localhost", "https://localhost:443"),
            ("[::1]:8080", "http://[::1]:8080"),
            ("chat.example", "https://chat.example"),
            // A proxy that names itself.
            ("127.0.0.1:8080", "https://chat.example"),
            ("127.0.0.1:8080", "https://other.example"),
        ] {
            assert_eq!(post(host, &[("origin", origin)]), "", "{host} {origin}");
        }
        for (host, origin) in [
            ("127.0.0.1:8080", "http://127.0.0.1:3000"),
            ("127.0.0.1:8080", "http://localhost:8080"),
            ("localhost", "http://localhost:8080"),
            ("localhost:443", "http://localhost"),
            ("localhost", "http://other.example"),
            ("localhost", "null"),
            ("localhost", "localhost"),
            ("localhost", ""),
        ] {
            assert_eq!(post(host, &[("origin", origin)]), "origin_not_allowed", "{host} {origin}");
        }
        let site = |site: &str, origin: &str| {
            post("localhost", &[("sec-fetch-site", site), ("origin", origin)])
        };
        assert_eq!(site("same-origin", "https://in.front"), "");
        assert_eq!(site("same-origin", "null"), "origin_not_allowed");
        for marked in ["cross-site", "same-site", "anything"] {
            assert_eq!(site(marked, "http://localhost"), "origin_not_allowed");
            assert_eq!(site(marked, "https://other.example"), "");
            assert_eq!(post("localhost", &[("sec-fetch-site", marked)]), "origin_not_allowed");
        }
        assert_eq!(post("localhost", &[("sec-fetch-site", "same-origin")]), "");
        let all = Options { origins: vec!["*".into()], ..Options::default() };
        let null = [("origin", "null"), ("sec-fetch-site", "cross-site")];
        assert_eq!(code(&all, Method::POST, "/v1/chat/completions", &null), "");
    }

    #[test]
    fn links_lead_to_pages_alone() {
        let marked = |dest: &'static str| {
            [
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-mode", "navigate"),
                ("sec-fetch-dest", dest),
            ]
        };
        let link = |method, path, dest| code(&options(), method, path, &marked(dest));
        for path in ["/", "/status", "/docs", "/icon.svg"] {
            assert_eq!(link(Method::GET, path, "document"), "", "{path}");
        }
        for path in ["/v1/models", "/metrics", "/status.json", "/page/mcp", "/nothing"] {
            assert_eq!(link(Method::GET, path, "document"), "origin_not_allowed", "{path}");
        }
        assert_eq!(link(Method::GET, "/", "iframe"), "origin_not_allowed");
        assert_eq!(link(Method::POST, "/", "document"), "origin_not_allowed");
    }

    #[test]
    fn new_paths_change_something_until_they_are_listed() {
        assert!(changes(&Method::POST, "/v1/new") && changes(&Method::DELETE, "/api/delete"));
        assert!(changes(&Method::PUT, "/v1/chat/completions"));
        assert!(!changes(&Method::POST, "/api/chat") && !changes(&Method::GET, "/v1/new"));
        assert!(!changes(&Method::DELETE, "/v1/responses/a"));
    }

    #[test]
    fn names_are_names() {
        let check = |host: &str| {
            check_hosts(&Options { hosts: vec![host.into()], ..Options::default() }).is_ok()
        };
        assert!(check("chat.example") && check("*") && check("a_b-1"));
        for wrong in ["", "http://chat.example", "chat.example:80", "a b", "*.example"] {
            assert!(!check(wrong), "{wrong}");
        }
    }
}
