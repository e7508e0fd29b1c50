//! The page at `/` and the dashboard at `/status`: files that `web/build` has made and compressed.
//!
//! They need no key: what they ask the server for does. A page may ask nobody but this server, which its
//! Content-Security-Policy says. Clients of Ollama ask for `/`, too, so the page is for who takes HTML.
//!
//! On a server without keys the HTML has a token, which differs for each process, so caches must not keep it.

mod servers;
mod token;
mod tools;

pub(crate) use token::{HEADER as TOKEN, Token};

pub use servers::{PageTools, ToolServers};
pub(crate) use tools::{CallBody, Called, Tools, routes};

use crate::state::App;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use flate2::read::GzDecoder;
use std::io::Read;
use std::sync::Arc;

/// A file of the page.
struct File {
    path: &'static str,
    /// Its content type.
    kind: &'static str,
    /// Tells contents apart: a part of their SHA-256.
    tag: &'static str,
    /// Its name has a hash of the contents, so that it never changes.
    hashed: bool,
    /// The bytes are those of gzip.
    compressed: bool,
    bytes: &'static [u8],
}

static FILES: &[File] = include!("dist/files.in");

const HTML: &str = "text/html";

/// Styles of elements are KaTeX's, which places every part of a formula by them.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; \
     font-src 'self'; img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'";

/// Whether a path is the page's, for the log.
pub(crate) fn has(path: &str) -> bool {
    find(path).is_some()
}

fn find(path: &str) -> Option<&'static File> {
    let path = match path {
        "/" => "/index.html",
        "/status" => "/status.html",
        // Each page has one address.
        "/index.html" | "/status.html" => return None,
        path => path,
    };
    FILES.iter().find(|file| file.path == path)
}

/// Answers requests for the page, and passes on all others.
pub(crate) async fn serve(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let read = matches!(*request.method(), Method::GET | Method::HEAD);
    let path = request.uri().path();
    let wanted = app.now().page && read && (path != "/" || takes_html(request.headers()));
    match find(path).filter(|_| wanted) {
        Some(file) if file.kind.starts_with(HTML) => html(&app, file, &request),
        Some(file) => answer(file, request.headers(), request.method() == Method::HEAD),
        None => next.run(request).await,
    }
}

/// A page, with the token if the server has no keys. Scripts of another origin that may read answers send theirs, and
/// do not get it.
fn html(app: &App, file: &File, request: &Request) -> Response {
    let mut text = unpack(file.bytes);
    if app.options.keys.is_empty() && !request.headers().contains_key(header::ORIGIN) {
        text = app.token.filled_in(text);
    }
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(file.kind));
    headers.insert(header::CONTENT_LENGTH, text.len().into());
    describe(headers, "no-store");
    if request.method() != Method::HEAD {
        *response.body_mut() = text.into();
    }
    response
}

fn answer(file: &File, headers: &HeaderMap, head: bool) -> Response {
    let packed = file.compressed && takes_gzip(headers);
    // A tag is of what is sent: compressed and plain bytes are two things.
    let tag = if packed { format!("\"{}-gz\"", file.tag) } else { format!("\"{}\"", file.tag) };
    let mut response = Response::new(Body::empty());
    if is_known(headers, &tag) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    } else {
        let body = match file.compressed && !packed {
            true => unpack(file.bytes).into(),
            false => bytes::Bytes::from_static(file.bytes),
        };
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(file.kind));
        response.headers_mut().insert(header::CONTENT_LENGTH, body.len().into());
        if !head {
            *response.body_mut() = body.into();
        }
        if packed {
            response
                .headers_mut()
                .insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
    }
    let cache = if file.hashed { "public, max-age=31536000, immutable" } else { "no-cache" };
    let headers = response.headers_mut();
    describe(headers, cache);
    // Hexadecimal digits in quotes always are a header's value.
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    response
}

/// The headers of all files.
fn describe(headers: &mut HeaderMap, cache: &'static str) {
    let always = [
        (header::CACHE_CONTROL, cache),
        (header::VARY, "accept, accept-encoding"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    for (name, value) in always {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// What was compressed when the page was built.
fn unpack(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut plain).expect("web/build compresses in this form");
    plain
}

/// The items of a header's list, each with its weight.
fn weighted(headers: &HeaderMap, name: header::HeaderName) -> impl Iterator<Item = (&str, f32)> {
    let lists = headers.get_all(name).into_iter().filter_map(|list| list.to_str().ok());
    lists.flat_map(|list| list.split(',')).map(|item| {
        let mut parts = item.split(';').map(str::trim);
        let what = parts.next().unwrap_or_default();
        let weight = parts.find_map(|part| part.strip_prefix("q=")?.trim().parse().ok());
        (what, weight.unwrap_or(1.0))
    })
}

/// Whether a client names HTML: one that takes anything is none that shows pages.
fn takes_html(headers: &HeaderMap) -> bool {
    weighted(headers, header::ACCEPT).any(|(what, weight)| {
        let html = ["text/html", "application/xhtml+xml"];
        weight > 0.0 && html.iter().any(|kind| what.eq_ignore_ascii_case(kind))
    })
}

fn takes_gzip(headers: &HeaderMap) -> bool {
    let weight = |name: &str| {
        let mut all = weighted(headers, header::ACCEPT_ENCODING);
        all.find_map(|(what, weight)| what.eq_ignore_ascii_case(name).then_some(weight))
    };
    weight("gzip").or_else(|| weight("*")).is_some_and(|weight| weight > 0.0)
}

/// Whether the client has it already.
fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let lists = headers.get_all(header::IF_NONE_MATCH).into_iter();
    let mut tags = lists.filter_map(|list| list.to_str().ok()).flat_map(|list| list.split(','));
    tags.any(|known| {
        let known = known.trim();
        known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that the page may add to the program.
    const MOST: usize = 400_000;

    #[test]
    fn the_page_is_small() {
        let bytes: usize = FILES.iter().map(|file| file.bytes.len()).sum();
        assert!(bytes < MOST, "{bytes} bytes");
        // Lazy parts are parts of their own.
        for part in ["/assets/math-", "/assets/highlight-"] {
            assert!(FILES.iter().any(|file| file.path.starts_with(part)), "{part}");
        }
    }

    #[test]
    fn pages_ask_nobody_else() {
        for file in FILES.iter().filter(|file| file.kind.starts_with(HTML)) {
            let text = String::from_utf8(unpack(file.bytes)).unwrap();
            assert!(!text.contains("//"), "{}: {text}", file.path);
            // What they name is there.
            for part in text.split("=\"/").skip(1) {
                let path = format!("/{}", &part[..part.find('"').unwrap()]);
                assert!(find(&path).is_some(), "{} names {path}", file.path);
            }
        }
    }

    #[test]
    fn weights_count() {
        let headers = |name: header::HeaderName, value: &'static str| {
            HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
        };
        let html = |value| takes_html(&headers(header::ACCEPT, value));
        assert!(html("text/html,application/xhtml+xml,*/*;q=0.8"));
        assert!(html("text/*, TEXT/HTML;level=1"));
        assert!(!html("*/*") && !html("application/json") && !html("text/html;q=0"));
        let gzip = |value| takes_gzip(&headers(header::ACCEPT_ENCODING, value));
        assert!(gzip("gzip, deflate, br") && gzip("*") && gzip("br, gzip;q=0.5"));
        assert!(!gzip("br") && !gzip("gzip;q=0, *") && !gzip("identity"));
    }
}
