//! Web pages of other sites, and names that lead to this machine: what they reach of a server without keys.

use crate::support::{Direct, Reply, keys, options};
use arclight_server::{
    Abilities, Info, Model, ModelEntry, ModelLimits, ModelSource, Models, Options, Site,
};
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use serde_json::json;
use std::sync::Arc;

/// A model that cannot be loaded: no request here gets that far.
struct Absent;

impl ModelSource for Absent {
    fn bytes(&self) -> Result<u64, String> {
        Ok(1)
    }

    fn load(&self) -> Result<Model, String> {
        Err("it was asked for".into())
    }

    fn info(&self) -> Result<Info, String> {
        Err("it has no file".into())
    }

    fn abilities(&self) -> Result<Abilities, String> {
        Err("it has no file".into())
    }
}

/// A server with the paths of several models, which are all paths that there are.
fn server(common: &Options) -> Direct {
    let options = Options { names: vec!["a".into()], ..Options::default() };
    let entry =
        ModelEntry { options, source: Arc::new(Absent), pinned: false, idle: None, made: false };
    let limits = ModelLimits { models: 1, bytes: 1 << 30, made: 1 };
    let models = Models::new(common, limits, vec![entry], None).unwrap();
    Direct { router: Arc::new(models).router().unwrap() }
}

/// A request with JSON, unless its headers say otherwise.
async fn ask(server: &Direct, method: &str, path: &str, headers: &[(&str, &str)]) -> Reply {
    let mut request = Request::builder().method(method).uri(path);
    if headers.iter().all(|(name, _)| !matches!(*name, "content-type" | "host")) {
        let uploads = method == "POST" && path == "/v1/files";
        let kind = if uploads { "multipart/form-data; boundary=b" } else { "application/json" };
        request = request.header("content-type", kind);
    }
    if headers.iter().all(|(name, _)| *name != "host") {
        request = request.header("host", "localhost:8080");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = if method == "GET" { Body::empty() } else { Body::from("{}") };
    server.send(request.body(body).unwrap()).await
}

fn code(reply: &Reply) -> String {
    reply.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
}

/// All operations of the document, and the paths that it leaves out.
async fn operations(server: &Direct) -> Vec<(String, String)> {
    let document = server.get("/openapi.json").await.json();
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            all.push((method.to_uppercase(), path.replace("{id}", "0").replace("{model}", "a")));
        }
    }
    let more = [
        ("GET", "/"),
        ("GET", "/status"),
        ("GET", "/icon.svg"),
        ("GET", "/docs"),
        ("GET", "/ping"),
        ("POST", "/ping"),
        ("POST", "/rerank"),
        ("POST", "/v2/rerank"),
        ("GET", "/nothing"),
        ("POST", "/nothing"),
        ("OPTIONS", "/v1/models"),
        ("PUT", "/v1/models"),
    ];
    all.extend(more.map(|(method, path)| (method.to_owned(), path.to_owned())));
    assert!(all.len() > 60, "{all:?}");
    all
}

/// What any page may read.
fn is_public(method: &str, path: &str) -> bool {
    method == "GET" && ["/health", "/ping", "/version", "/openapi.json", "/docs"].contains(&path)
}

#[tokio::test]
async fn other_sites_reach_only_what_is_public() {
    let foreign: [(&str, &[(&str, &str)]); 7] = [
        ("a foreign origin", &[("origin", "http://evil.test")]),
        ("a foreign port", &[("origin", "http://localhost:3000")]),
        ("no origin", &[("origin", "null")]),
        ("a rebound name", &[("host", "evil.test:8080"), ("origin", "http://evil.test:8080")]),
        ("a rebound name that reads", &[("host", "evil.test:8080")]),
        ("another site", &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")]),
        ("the same site", &[("sec-fetch-site", "same-site"), ("origin", "http://localhost:8080")]),
    ];
    for options in [options(), Options { keys: keys(&["one"]), ..options() }] {
        let locked = !options.keys.is_empty();
        let server = server(&options);
        for (method, path) in operations(&Direct { router: server.router.clone() }).await {
            for (what, headers) in foreign {
                // The browser has no key for a rebound name.
                if locked && what.starts_with("a rebound name that") {
                    continue;
                }
                let reply = ask(&server, &method, &path, headers).await;
                let what = format!("{method} {path}, {what}: {} {}", reply.status, reply.text);
                if is_public(&method, &path) {
                    assert_ne!(reply.status, StatusCode::FORBIDDEN, "{what}");
                } else if locked && headers[0].0 == "host" {
                    let may = [200, 401, 404, 405, 415, 503];
                    assert!(may.contains(&reply.status.as_u16()), "{what}");
                    assert!(reply.status != 200 || method == "GET" || path == "/ping", "{what}");
                } else {
                    assert_eq!(reply.status, StatusCode::FORBIDDEN, "{what}");
                }
                assert!(!reply.headers.contains_key("access-control-allow-origin"), "{what}");
            }
        }
    }
}

#[tokio::test]
async fn bodies_have_to_be_declared_as_json() {
    let server = server(&options());
    let own = [("origin", "http://localhost:8080"), ("sec-fetch-site", "same-origin")];
    let all = operations(&server).await;
    for (method, path) in all.iter().filter(|(method, _)| !matches!(&**method, "GET" | "HEAD")) {
        for kind in [
            "text/plain",
            "text/plain;charset=UTF-8",
            "multipart/form-data; boundary=a",
            "image/png",
        ] {
            let uploads = path == "/v1/files" && kind.starts_with("multipart/");
            let reply = ask(&server, method, path, &[("content-type", kind)]).await;
            let what = format!("{method} {path} {kind}: {} {}", reply.status, reply.text);
            if !uploads {
                assert_eq!(reply.status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{what}");
            }
        }
        // Of a browser also what `curl -d` sends.
        let form = ("content-type", "application/x-www-form-urlencoded");
        let reply = ask(&server, method, path, &[own[0], own[1], form]).await;
        assert_eq!(reply.status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{method} {path}");
    }
    // Programs may say less, or what Ollama's examples for curl say.
    for kind in [
        "application/json",
        "Application/JSON; charset=utf-8",
        "application/ld+json",
        "application/x-www-form-urlencoded",
    ] {
        let reply = ask(&server, "POST", "/tokenize", &[("content-type", kind)]).await;
        assert_ne!(reply.status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{kind}");
    }
    let bare = server.post("/tokenize", &json!({})).await;
    assert_ne!(bare.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    // The fetch of Node.js says how it fetches, and is no browser.
    let node = [("content-type", "application/x-www-form-urlencoded"), ("sec-fetch-mode", "cors")];
    let reply = ask(&server, "POST", "/tokenize", &node).await;
    assert_ne!(reply.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    // A request without a body has none to declare.
    let request = Request::post("/ping").header("origin", "http://localhost");
    let request = request.header("host", "localhost").body(Body::empty()).unwrap();
    assert_ne!(server.send(request).await.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

/// The token in a page's HTML.
async fn token(server: &Direct, headers: &[(&str, &str)]) -> String {
    let html = [headers, &[("accept", "text/html")]].concat();
    let page = ask(server, "GET", "/", &html).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.text);
    assert_eq!(page.headers["cache-control"], "no-store");
    assert!(!page.headers.contains_key("etag"));
    let (_, rest) = page.text.split_once("name=\"arclight-token\" content=\"").unwrap();
    rest.split('"').next().unwrap().to_owned()
}

#[tokio::test]
async fn changes_from_a_browser_need_the_token_of_the_page() {
    let origins = vec!["https://friend.example".to_owned(), "http://localhost:8080".to_owned()];
    let server = server(&Options { origins, ..options() });
    let page = token(&server, &[]).await;
    assert_eq!(page.len(), 64);
    assert_eq!(token(&server, &[]).await, page);
    let own = ("origin", "http://localhost:8080");
    let needs = |reply: &Reply| {
        reply.status == StatusCode::FORBIDDEN && reply.text.contains("--api-key-file")
    };
    let mut guarded = Vec::new();
    for (method, path) in operations(&server).await {
        let without = ask(&server, &method, &path, &[own]).await;
        let wrong = ask(&server, &method, &path, &[own, ("x-arclight-token", &page[1..])]).await;
        assert_eq!(needs(&without), needs(&wrong), "{method} {path}");
        let with = ask(&server, &method, &path, &[own, ("x-arclight-token", &page)]).await;
        assert!(!needs(&with), "{method} {path}: {}", with.text);
        // A program has none, and needs none, but for what is the page's alone.
        let program = ask(&server, &method, &path, &[]).await;
        assert_eq!(needs(&program), path == "/page/mcp", "{method} {path}: {}", program.text);
        if needs(&without) {
            guarded.push(format!("{method} {path}"));
        }
    }
    guarded.sort();
    // A new path that changes something belongs here; one that only computes, into the list of `http/origin.rs`.
    let want = [
        "DELETE /api/delete",
        "DELETE /v1/files/0",
        "GET /page/mcp",
        "POST /api/copy",
        "POST /api/create",
        "POST /api/pull",
        "POST /lora-adapters",
        "POST /models/load",
        "POST /models/unload",
        "POST /nothing",
        "POST /page/mcp",
        "POST /slots/0",
        "POST /v1/batches",
        "POST /v1/batches/0/cancel",
        "POST /v1/files",
        "PUT /v1/models",
    ];
    assert_eq!(guarded, want);
    // A page of an allowed origin may ask the model, and cannot read the token.
    let friend = ("origin", "https://friend.example");
    assert_eq!(token(&server, &[friend]).await, "");
    let refused = ask(&server, "POST", "/v1/batches", &[friend]).await;
    assert!(needs(&refused) && code(&refused) == "page_token_needed", "{}", refused.text);
    assert_eq!(refused.headers["access-control-allow-origin"], "https://friend.example");
}

#[tokio::test]
async fn with_keys_there_is_no_token() {
    let server = server(&Options { keys: keys(&["one"]), ..options() });
    assert_eq!(token(&server, &[]).await, "");
    let (own, key) = (("origin", "http://localhost:8080"), ("authorization", "Bearer one"));
    let reply = ask(&server, "POST", "/v1/batches", &[own, key]).await;
    assert_eq!(reply.status, StatusCode::NOT_IMPLEMENTED, "{}", reply.text);
    let reply = ask(&server, "POST", "/v1/batches", &[own]).await;
    assert_eq!(reply.status, StatusCode::UNAUTHORIZED, "{}", reply.text);
}

#[tokio::test]
async fn the_page_works_by_name_by_address_and_behind_a_proxy() {
    let hosts = vec!["chat.example".to_owned()];
    let server = server(&Options { hosts, ..options() });
    for (host, origin) in [
        ("localhost:8080", "http://localhost:8080"),
        ("127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("[::1]:8080", "http://[::1]:8080"),
        ("chat.example", "https://chat.example"),
        // A proxy that names itself to the server.
        ("127.0.0.1:8080", "https://chat.example"),
    ] {
        let link = [
            ("host", host),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document"),
        ];
        let token = token(&server, &link).await;
        let own = [("host", host), ("origin", origin), ("x-arclight-token", &token)];
        let own = [&own[..], &[("content-type", "application/json")]].concat();
        let reply = ask(&server, "POST", "/page/mcp", &own).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{host}: {}", reply.text);
        let reply = ask(&server, "GET", "/v1/models", &own[..1]).await;
        assert_eq!(reply.status, StatusCode::OK, "{host}: {}", reply.text);
    }
}

#[tokio::test]
async fn refusals_name_the_option_in_each_protocols_words() {
    let server = server(&options());
    let evil = [("origin", "http://evil.test")];
    let openai = ask(&server, "POST", "/v1/chat/completions", &evil).await.json();
    assert_eq!(openai["error"]["type"], "permission_error");
    let message = openai["error"]["message"].as_str().unwrap();
    assert!(message.contains("--cors-origin http://evil.test"), "{message}");
    let anthropic = ask(&server, "POST", "/v1/messages", &evil).await.json();
    assert_eq!(anthropic["type"], "error");
    assert_eq!(anthropic["error"]["type"], "permission_error");
    let ollama = ask(&server, "POST", "/api/chat", &evil).await.json();
    assert!(ollama["error"].as_str().unwrap().contains("--cors-origin"), "{ollama}");
    let host = ask(&server, "GET", "/api/tags", &[("host", "box.lan")]).await.json();
    assert!(host["error"].as_str().unwrap().contains("--allowed-host box.lan"), "{host}");
    let wrong = Options { hosts: vec!["http://a".into()], ..options() };
    let app = Arc::new(arclight_server::App::new(wrong));
    let fault = arclight_server::router(app).err().unwrap().to_string();
    assert!(fault.contains("is no host name"), "{fault}");
}

#[tokio::test]
async fn preflights_of_allowed_origins_are_answered() {
    let server = server(&Options { origins: vec!["https://friend.example".into()], ..options() });
    let preflight = |origin: &'static str, host: &'static str| {
        [
            ("origin", origin),
            ("host", host),
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", "content-type"),
            ("sec-fetch-site", "cross-site"),
        ]
    };
    let path = "/v1/chat/completions";
    let friend = preflight("https://friend.example", "127.0.0.1:8080");
    let allowed = ask(&server, Method::OPTIONS.as_str(), path, &friend).await;
    assert_eq!(allowed.status, StatusCode::OK, "{}", allowed.text);
    assert_eq!(allowed.headers["access-control-allow-origin"], "https://friend.example");
    for other in [
        preflight("https://evil.test", "127.0.0.1:8080"),
        preflight("https://friend.example", "evil.test"),
    ] {
        let refused = ask(&server, "OPTIONS", path, &other).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN);
        assert!(!refused.headers.contains_key("access-control-allow-origin"));
    }
}
