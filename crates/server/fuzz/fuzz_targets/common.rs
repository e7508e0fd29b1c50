//! A server on the demo model, without connections, and what must be true of all its answers.
#![allow(dead_code, reason = "each target uses a part of it")]

use std::io::Error;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use arclight_engine::{LoadOptions, ModelFile, ReplicaOptions};
use arclight_server::{App, ChatStyle, FileOptions, FileStore, Model, Options, router};
use axum::Router;
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt;

/// Every endpoint that reads a body.
pub const PATHS: [&str; 19] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/responses/input_tokens",
    "/v1/responses/compact",
    "/completion",
    "/infill",
    "/v1/score",
    "/api/embed",
    "/api/embeddings",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/api/chat",
    "/api/generate",
    "/api/show",
    "/tokenize",
    "/detokenize",
    "/apply-template",
    "/lora-adapters",
];

/// Tokens of a prompt and its answer: answers that nothing else ends are short, so that there is time
/// for many of them.
const CONTEXT: usize = 96;

static SERVER: LazyLock<(Runtime, Router)> = LazyLock::new(|| {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../demo/arclight-demo.gguf");
    let file = Arc::new(ModelFile::open(path).unwrap());
    let options = LoadOptions {
        threads: Some(1),
        sequences: Some(2),
        context: Some(CONTEXT),
        no_pin: true,
        ..LoadOptions::default()
    };
    let serving = ReplicaOptions { queue: Some(4), ..ReplicaOptions::default() };
    // A family with calls, which the demo's template does not show.
    let style = ChatStyle { family: Some("hermes".parse().unwrap()), ..ChatStyle::default() };
    let files = FileOptions {
        folder: std::env::temp_dir().join(format!("arclight-fuzz-{}", std::process::id())),
        file_bytes: 16 << 10,
        total_bytes: 1 << 30,
        lines: 100,
    };
    let files = Some(FileStore::open(files).unwrap());
    let app = Arc::new(App::new(Options { body_limit: 64 << 10, files, ..Options::default() }));
    app.ready(Model::load(&file, &options, &serving, &style, &mut |_| {}).unwrap());
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    (runtime, router(app).unwrap())
});

/// Sends a request: whatever it says, the fault is not the server's, nor in the middle of a stream.
fn send(request: Request<Body>, said: impl Fn() -> String) -> String {
    let (runtime, router) = &*SERVER;
    let (status, answer) = runtime.block_on(async {
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        (status, response.into_body().collect().await.unwrap().to_bytes())
    });
    let text = String::from_utf8(answer.to_vec()).unwrap();
    let said = || format!("{} gave {status}: {text}", said());
    assert!(!status.is_server_error(), "{}", said());
    assert!(!text.contains(r#""type":"server_error""#), "{}", said());
    assert!(!text.contains(r#""type":"api_error""#), "{}", said());
    text
}

/// Sends a body of JSON, or what may be one.
pub fn post(path: &str, body: &[u8]) {
    let request = Request::post(path).header("host", "localhost");
    let request = request.header("content-type", "application/json");
    let request = request.body(Body::from(body.to_vec())).unwrap();
    send(request, || format!("{path} {}", String::from_utf8_lossy(body)));
}

/// Sends a form, in pieces of this size; a file that was kept is deleted.
pub fn upload(form: &[u8], piece: usize) {
    let pieces: Vec<_> = form.chunks(piece).map(|piece| Ok::<_, Error>(piece.to_vec())).collect();
    let request = Request::post("/v1/files").header("host", "localhost");
    let request = request.header("content-type", "multipart/form-data; boundary=edge");
    let request = request.body(Body::from_stream(futures_util::stream::iter(pieces))).unwrap();
    let text = send(request, || format!("a form {}", String::from_utf8_lossy(form)));
    let file: serde_json::Value = serde_json::from_str(&text).unwrap();
    if let Some(id) = file["id"].as_str() {
        let request = Request::delete(format!("/v1/files/{id}")).header("host", "localhost");
        send(request.body(Body::empty()).unwrap(), || format!("deleting {id}"));
    }
    // Wait for the threads that wrote the file: LeakSanitizer reported destructors of a thread as a leak.
    while threads().any(|name| name.trim() == "files") {
        std::thread::yield_now();
    }
}

/// The names of this process's threads.
fn threads() -> impl Iterator<Item = String> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok())
}
