//! The page at `/` and `/status`: to whom it is given, and what a browser is told of it.

use crate::support::{Direct, Reply, options};
use arclight_server::{App, Options};
use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use std::io::Read;
use std::sync::Arc;

const HTML: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

/// A server without a model: the page is there at once.
fn server(options: Options) -> Direct {
    Direct::of(Arc::new(App::new(options)))
}

async fn ask(server: &Direct, method: Method, path: &str, headers: &[(&str, &str)]) -> Reply {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    server.send(request.body(Body::empty()).unwrap()).await
}

async fn get(server: &Direct, path: &str, headers: &[(&str, &str)]) -> Reply {
    ask(server, Method::GET, path, headers).await
}

/// The paths that a page names.
fn named(html: &str) -> Vec<String> {
    let parts = html.split("=\"/").skip(1);
    parts.map(|part| format!("/{}", &part[..part.find('"').unwrap()])).collect()
}

#[tokio::test]
async fn a_browser_gets_the_page_and_others_what_they_always_got() {
    let server = server(options());
    let page = get(&server, "/", &[("accept", HTML)]).await;
    assert_eq!(page.status, StatusCode::OK);
    assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
    assert!(page.text.starts_with("<!doctype html>"), "{}", page.text);
    for accept in ["*/*", "application/json", ""] {
        for method in [Method::GET, Method::HEAD] {
            let other = ask(&server, method.clone(), "/", &[("accept", accept)]).await;
            let without = ask(
                &Direct::of(Arc::new(App::new(Options { page: false, ..options() }))),
                method,
                "/",
                &[],
            )
            .await;
            assert_eq!((other.status, &other.text), (without.status, &without.text), "{accept}");
        }
    }
    // Only reading is the page's.
    assert_eq!(
        ask(&server, Method::POST, "/", &[("accept", HTML)]).await.status,
        StatusCode::METHOD_NOT_ALLOWED
    );
    let head = ask(&server, Method::HEAD, "/", &[("accept", HTML)]).await;
    assert_eq!((head.status, head.text.as_str()), (StatusCode::OK, ""));
    assert_eq!(head.headers["content-length"], page.text.len().to_string());
    // The dashboard has an address of its own, and each page only one.
    assert!(get(&server, "/status", &[]).await.text.contains("Status"));
    for path in ["/index.html", "/status.html", "/assets/", "/assets/nothing.js", "/favicon.ico"] {
        let reply = get(&server, path, &[("accept", HTML)]).await;
        assert_eq!(reply.status, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn what_a_page_names_is_there_and_stays() {
    let server = server(options());
    for path in ["/", "/status"] {
        let page = get(&server, path, &[("accept", HTML)]).await;
        let named = named(&page.text);
        assert!(named.len() >= 4, "{named:?}");
        for path in named {
            let file = get(&server, &path, &[]).await;
            assert_eq!(file.status, StatusCode::OK, "{path}");
            let cache = file.headers["cache-control"].to_str().unwrap();
            match path.starts_with("/assets/") {
                true => assert_eq!(cache, "public, max-age=31536000, immutable", "{path}"),
                false => assert_eq!(cache, "no-cache", "{path}"),
            }
            let kind = file.headers["content-type"].to_str().unwrap();
            let expected = match path.rsplit_once('.').unwrap().1 {
                "js" => "text/javascript; charset=utf-8",
                "css" => "text/css; charset=utf-8",
                "svg" => "image/svg+xml",
                other => panic!("{other}"),
            };
            assert_eq!(kind, expected, "{path}");
        }
        // It has a token, which the next server does not know.
        assert_eq!(page.headers["cache-control"], "no-store");
    }
}

#[tokio::test]
async fn nothing_foreign_may_run_or_be_asked() {
    let server = server(options());
    let page = get(&server, "/", &[("accept", HTML)]).await;
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    let rules: Vec<&str> = policy.split("; ").collect();
    for rule in [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data: blob:",
        "frame-ancestors 'none'",
        "form-action 'none'",
        "base-uri 'none'",
    ] {
        assert!(rules.contains(&rule), "{rule} in {policy}");
    }
    assert!(!policy.contains("http") && !policy.contains("unsafe-eval") && !policy.contains('*'));
    assert_eq!(page.headers["x-content-type-options"], "nosniff");
    assert_eq!(page.headers["referrer-policy"], "no-referrer");
    // No script stands in the page itself, which the policy would not let run.
    assert!(
        page.text.split("<script").skip(1).all(|part| part.contains("src=\"/")),
        "{}",
        page.text
    );
    assert!(!page.text.contains(" style="));
}

#[tokio::test]
async fn it_is_sent_compressed_to_who_takes_that() {
    let app = Arc::new(App::new(options()));
    let router = arclight_server::router(app.clone()).unwrap();
    let server = Direct::of(app);
    let plain = get(&server, "/theme.js", &[("accept-encoding", "br")]).await;
    assert!(!plain.headers.contains_key("content-encoding"));
    let request = Request::get("/theme.js").header("accept-encoding", "gzip, br");
    let response = tower::ServiceExt::oneshot(router, request.body(Body::empty()).unwrap()).await;
    let response = response.unwrap();
    assert_eq!(response.headers()["content-encoding"], "gzip");
    assert_ne!(response.headers()["etag"], plain.headers["etag"]);
    assert_eq!(response.headers()[header::VARY], "accept, accept-encoding");
    let packed = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    let mut text = String::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut text).unwrap();
    assert_eq!(text, plain.text);
    assert!(packed.len() < text.len());
}

#[tokio::test]
async fn what_is_known_is_not_sent_again() {
    let server = server(options());
    let page = get(&server, "/theme.js", &[]).await;
    let tag = page.headers["etag"].to_str().unwrap().to_owned();
    let other = "\"0123456789abcdef\"";
    for (known, status) in [
        (tag.clone(), 304),
        (format!("W/{tag}"), 304),
        (format!("{other}, {tag}"), 304),
        (other.to_owned(), 200),
    ] {
        let again = get(&server, "/theme.js", &[("if-none-match", &known)]).await;
        assert_eq!(again.status.as_u16(), status, "{known}");
        assert_eq!(again.text.is_empty(), status == 304);
        assert_eq!(again.headers["etag"], tag);
    }
}

#[tokio::test]
async fn the_page_needs_no_key_and_its_questions_do() {
    let server = server(Options { keys: crate::support::keys(&["one"]), ..options() });
    let page = get(&server, "/", &[("accept", HTML)]).await;
    assert_eq!(page.status, StatusCode::OK);
    for path in named(&page.text) {
        assert_eq!(get(&server, &path, &[]).await.status, StatusCode::OK, "{path}");
    }
    for path in ["/v1/models", "/status.json"] {
        assert_eq!(get(&server, path, &[]).await.status, StatusCode::UNAUTHORIZED, "{path}");
        let with = get(&server, path, &[("authorization", "Bearer one")]).await;
        assert_eq!(with.status, StatusCode::OK, "{path}");
    }
    // Who is no browser is told who is there, as without the page.
    assert_eq!(get(&server, "/", &[]).await.text, "Ollama is running");
}

#[tokio::test]
async fn it_can_be_switched_off() {
    let server = server(Options { page: false, ..options() });
    let root = get(&server, "/", &[("accept", HTML)]).await;
    assert_eq!((root.status, root.text.as_str()), (StatusCode::OK, "Ollama is running"));
    for path in ["/status", "/theme.js"] {
        let reply = get(&server, path, &[("accept", HTML)]).await;
        assert_eq!(reply.status, StatusCode::NOT_FOUND, "{path}");
        assert_eq!(reply.json()["error"]["code"], "unknown_url");
    }
    assert_eq!(get(&server, "/status.json", &[]).await.status, StatusCode::OK);
}
