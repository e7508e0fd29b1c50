//! Memory that requests make the server take: at most eight times their length and a constant, and given back. Alone in
//! its binary: it counts for the whole process.
//!
//! Every `POST` endpoint of the OpenAPI document gets bodies in which each of its fields, and each place further inside
//! that takes free JSON, has values of many shapes. Most are refused, some are answered; the bound is the same. With
//! `ARCLIGHT_ALL_SHAPES` set every shape is tried in every place that is read by hand, and a fifth of them elsewhere, as
//! `.ci/full` does; without, a third of the fields and each of the places has one of them.

mod places;
mod shapes;
#[allow(dead_code, reason = "the other tests use the rest")]
#[path = "../server/support.rs"]
mod support;

use arclight_server::{FileOptions, FileStore, Options};
use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use peak_alloc::PeakAlloc;
use places::Place;
use shapes::SHAPES;
use std::fmt::Write as _;
use support::{Direct, model, options};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Maximum memory of a request, in terms of its length,
const TIMES: usize = 8;
/// and a constant for small bodies, which are mostly names and brackets, and for buffers. The server refuses bodies that
/// would take more (`http/json.rs`, `SMALL`).
const SMALL: usize = 17 << 20;

/// Maximum memory left after a request: entries of bounded caches, and allocations of other threads at that moment.
const LEFT: usize = 64 << 10;

/// A server with everything that has endpoints.
fn server(folder: &std::path::Path) -> Direct {
    let files = FileOptions {
        folder: folder.join("files"),
        file_bytes: 64 << 20,
        total_bytes: 256 << 20,
        lines: 100_000,
    };
    std::fs::create_dir_all(folder.join("files")).unwrap();
    let files = Some(FileStore::open(files).unwrap());
    Direct::with(Options { files, choices: 4, ..options() }, model(2, 8))
}

/// Bytes that a request has taken at its peak, bytes that it has left, and its status.
async fn take(server: &Direct, path: &str, kind: &str, body: &str) -> (usize, usize, StatusCode) {
    let request = Request::post(path).header("content-type", kind);
    let request = request.body(Body::from(body.to_owned())).unwrap();
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let response = server.respond(request).await;
    let status = response.status();
    // As a connection does: what was written is gone.
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        drop(frame.unwrap());
    }
    let peak = MEMORY.peak_usage().saturating_sub(before);
    server.idle().await;
    (peak, MEMORY.current_usage().saturating_sub(before), status)
}

struct Run {
    server: Direct,
    /// The requests that took most in terms of their bound.
    worst: Vec<(f64, String)>,
    faults: String,
    count: usize,
}

impl Run {
    async fn check(&mut self, name: &str, path: &str, body: &str) {
        let (peak, _, status) = take(&self.server, path, "application/json", body).await;
        self.count += 1;
        let most = TIMES * body.len() + SMALL;
        let line = format!(
            "{path} {name}: {} KiB took {} KiB ({:.1} times), status {status}",
            body.len() >> 10,
            peak >> 10,
            peak as f64 / body.len() as f64
        );
        if peak > most || status.is_server_error() && status != StatusCode::SERVICE_UNAVAILABLE {
            writeln!(self.faults, "{line}").unwrap();
        }
        self.worst.push((peak as f64 / most as f64, line));
        if self.worst.len() > 1000 {
            self.keep_worst();
        }
    }

    fn keep_worst(&mut self) {
        self.worst.sort_by(|a, b| b.0.total_cmp(&a.0));
        self.worst.truncate(40);
    }
}

/// Shapes in all places, of one length.
#[tokio::test]
async fn no_request_takes_more_than_eight_times_its_length_and_none_keeps_it() {
    const LENGTH: usize = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path());
    let document = server.get("/openapi.json").await.json();
    let places = places::all(&document);
    let mut run = Run { server, worst: Vec::new(), faults: String::new(), count: 0 };
    let all = std::env::var_os("ARCLIGHT_ALL_SHAPES").is_some();
    let texts = SHAPES.each_ref().map(|shape| (shape.name, shape.text(LENGTH)));
    // Fields are much alike: every third, and every place that is read by hand.
    let tried = |&(at, place): &(usize, &Place)| all || place.within || at % 3 == 0;
    for (at, place) in places.iter().enumerate().filter(tried) {
        // One in turn, or what is read by hand all of them.
        let step = match (all, place.within) {
            (true, true) => 1,
            (true, false) => 5,
            (false, _) => SHAPES.len(),
        };
        for (shape, text) in texts.iter().skip(at % step).step_by(step) {
            let body = place.with(text);
            run.check(&format!("{} {shape}", place.name), &place.path, &body).await;
        }
    }
    run.keep_worst();
    let worst: Vec<String> =
        run.worst.iter().map(|(share, line)| format!("{share:.2} {line}")).collect();
    println!("{} requests; the largest shares of the bound:\n{}", run.count, worst.join("\n"));
    assert!(
        run.faults.is_empty(),
        "more than {TIMES} times and {} MiB:\n{}",
        SMALL >> 20,
        run.faults
    );
    let least = if all { 500 } else { 100 };
    assert!(run.count > least, "the document has too few endpoints: {}", run.count);

    // All caches are as they stay.
    let others = places.iter().enumerate().filter(|(_, place)| place.name != "kept metadata");
    for (at, place) in others.filter(tried) {
        let body = place.with(&texts[at % SHAPES.len()].1);
        let (_, left, _) = take(&run.server, &place.path, "application/json", &body).await;
        assert!(left <= LEFT, "{} {}: {left} bytes are left", place.path, place.name);
    }
    // A stored response keeps the text, in itself and as the conversation. A new server has kept little yet.
    let folder = tempfile::tempdir().unwrap();
    let server = self::server(folder.path());
    let kept = places.iter().find(|place| place.name == "kept metadata").unwrap();
    let body = kept.with(&SHAPES[0].text(LENGTH / 8));
    take(&server, &kept.path, "application/json", &body).await;
    let (_, left, status) = take(&server, &kept.path, "application/json", &body).await;
    assert!(
        status == StatusCode::OK && left > body.len() / 2 && left < 2 * body.len(),
        "{status}, {left}"
    );
}
