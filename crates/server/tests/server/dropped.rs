//! Clients that hang up: the future of each handler that changes something is dropped after its first poll, its second,
//! and so on until it completes. After each time every model can be loaded, used and unloaded, lists agree with what is
//! on the disk, and no file is left half written. A batch that was made is worked on.

use crate::support::{Direct, Reply, load_file, options, question};
use arclight_engine::{LoadOptions, ReplicaOptions};
use arclight_server::{
    Abilities, ChatStyle, FileOptions, FileStore, Info, Model, ModelEntry, ModelKeeper,
    ModelLimits, ModelSource, Models, Options, PageTools, PullStep, Recipe, Site, ToolServers,
};
use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode};
use futures_util::stream;
use http_body_util::BodyExt;
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::task::Poll;
use std::time::Duration;
use tempfile::TempDir;
use tower::ServiceExt;

/// The demo model, whose slots can be saved.
struct Demo;

impl ModelSource for Demo {
    fn bytes(&self) -> Result<u64, String> {
        Ok(1)
    }

    fn load(&self) -> Result<Model, String> {
        let options = LoadOptions {
            threads: Some(1),
            sequences: Some(2),
            no_pin: true,
            ..LoadOptions::default()
        };
        let serving = ReplicaOptions { saves: true, ..ReplicaOptions::default() };
        let style = ChatStyle::default();
        Model::load(&Arc::new(load_file()), &options, &serving, &style, &mut |_| {})
            .map_err(|e| e.to_string())
    }

    fn abilities(&self) -> Result<Abilities, String> {
        Err("not asked for".into())
    }

    fn info(&self) -> Result<Info, String> {
        Err("not asked for".into())
    }
}

/// Keeps a file for each model that clients have made.
struct Folder {
    folder: PathBuf,
    slots: PathBuf,
}

impl Folder {
    fn entry(&self, name: &str) -> Result<ModelEntry, String> {
        std::fs::write(self.folder.join(name), b"").map_err(|e| e.to_string())?;
        Ok(entry(name, &self.slots, true))
    }
}

impl ModelKeeper for Folder {
    fn pull(&self, name: &str, report: &mut dyn FnMut(PullStep)) -> Result<ModelEntry, String> {
        for completed in 0..3 {
            report(PullStep::File { digest: None, name: "f".into(), total: 2, completed });
        }
        self.entry(name)
    }

    fn create(&self, name: &str, _: &str, _: Recipe) -> Result<ModelEntry, String> {
        self.entry(name)
    }

    fn copy(&self, _: &str, to: &str) -> Result<ModelEntry, String> {
        self.entry(to)
    }

    fn may_delete(&self, name: &str) -> Result<(), String> {
        let is_made = self.folder.join(name).exists();
        is_made.then_some(()).ok_or_else(|| "it stays".to_owned())
    }

    fn delete(&self, name: &str) -> Result<(), String> {
        std::fs::remove_file(self.folder.join(name)).map_err(|e| e.to_string())
    }
}

fn entry(name: &str, slots: &Path, made: bool) -> ModelEntry {
    let options = Options {
        names: vec![name.to_owned()],
        slot_saves: Some(slots.to_owned()),
        ..Options::default()
    };
    ModelEntry { options, source: Arc::new(Demo), pinned: false, made, idle: None }
}

/// A tool that answers, and one that waits until it is let go.
#[derive(Default)]
struct Tools {
    waits: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl ToolServers for Tools {
    fn tools(&self) -> Vec<Json> {
        Vec::new()
    }

    fn call(&self, name: &str, _: Map<String, Json>) -> Result<(String, bool), String> {
        if name == "wait" {
            let mut waits = self.waits.lock().unwrap();
            waits.0 += 1;
            self.changed.notify_all();
            while !waits.1 {
                waits = self.changed.wait(waits).unwrap();
            }
        }
        Ok(("done".into(), false))
    }
}

struct Server {
    direct: Direct,
    models: Arc<Models>,
    /// Of the server's own page.
    token: String,
    tools: Arc<Tools>,
    folder: TempDir,
}

impl Server {
    /// `a` and `b`, of which one is loaded at a time.
    async fn new(made: usize) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let of = |name: &str| folder.path().join(name);
        for name in ["made", "slots"] {
            std::fs::create_dir(of(name)).unwrap();
        }
        let files = FileOptions {
            folder: of("files"),
            file_bytes: 1 << 20,
            total_bytes: 1 << 30,
            lines: 10,
        };
        let tools = Arc::new(Tools::default());
        let common = Options {
            files: Some(FileStore::open(files).unwrap()),
            page_tools: Some(PageTools::new(tools.clone())),
            ..options()
        };
        let entries = ["a", "b"].map(|name| entry(name, &of("slots"), false)).into();
        let keeper = Arc::new(Folder { folder: of("made"), slots: of("slots") });
        let limits = ModelLimits { models: 1, bytes: 1 << 30, made };
        let models = Arc::new(Models::new(&common, limits, entries, Some(keeper)).unwrap());
        let direct = Direct { router: models.clone().router().unwrap() };
        let page = Request::get("/").header("host", "localhost").header("accept", "text/html");
        let page = direct.send(page.body(Body::empty()).unwrap()).await.text;
        let (_, rest) = page.split_once("name=\"arclight-token\" content=\"").unwrap();
        let token = rest.split('"').next().unwrap().to_owned();
        Server { direct, models, token, tools, folder }
    }

    async fn call(&self, wanted: &Wanted) -> Reply {
        let reply = self.direct.send(wanted.request(&self.token)).await;
        assert_eq!(reply.status, StatusCode::OK, "{wanted:?}: {}", reply.text);
        reply
    }

    async fn post(&self, path: &str, body: Json) -> Reply {
        self.call(&Wanted::post(path, body)).await
    }

    /// Sends a request and reads the answer; the client hangs up after a number of polls. Whether it ended before.
    async fn hangs_up(&self, wanted: &Wanted, polls: usize) -> bool {
        let (router, request) = (self.direct.router.clone(), wanted.request(&self.token));
        let mut work = Box::pin(async move {
            let response = router.oneshot(request).await.unwrap();
            assert!(response.status().is_success(), "{wanted:?}: {}", response.status());
            let _ = response.into_body().collect().await;
        });
        let mut polled = 0;
        poll_fn(|context| {
            polled += 1;
            match work.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(true),
                Poll::Pending if polled >= polls => Poll::Ready(false),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    fn names_in(&self, folder: &str) -> BTreeSet<String> {
        let read = std::fs::read_dir(self.folder.path().join(folder)).unwrap();
        read.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    async fn names(&self, path: &str) -> BTreeSet<String> {
        let list = self.direct.get(path).await.json();
        let each = |one: &Json| one["id"].as_str().unwrap().to_owned();
        list["data"].as_array().unwrap().iter().map(each).collect()
    }

    /// Uploads lines of a batch: the id of their file.
    async fn upload(&self) -> String {
        let file = self.call(&Wanted::upload()).await.json();
        file["id"].as_str().unwrap().to_owned()
    }

    /// A request for a batch, whose file is there.
    async fn batch(&self) -> Wanted {
        let body = json!({"input_file_id": self.upload().await, "endpoint": "/v1/completions",
            "completion_window": "24h"});
        Wanted::post("/v1/batches", body)
    }

    /// What holds after a client has hung up.
    async fn is_sound(&self, after: &str) {
        // What was begun is finished by itself.
        until(after, "models and their files agree", async || {
            let mut kept = self.names_in("made");
            kept.extend(["a".to_owned(), "b".to_owned()]);
            self.names("/v1/models").await == kept
        })
        .await;
        until(after, "batches and their files agree", async || {
            let listed = self.names("/v1/batches?limit=100").await;
            listed.into_iter().map(|id| format!("{id}.json")).collect::<BTreeSet<_>>()
                == self.names_in("files/batches")
        })
        .await;
        until(after, "files and their descriptions agree", async || {
            let listed = self.names("/v1/files").await;
            let both = listed.iter().flat_map(|id| [format!("{id}.json"), format!("{id}.data")]);
            both.collect::<BTreeSet<_>>() == self.names_in("files/files")
        })
        .await;
        until(after, "no slot is half written", async || {
            self.names_in("slots").is_subset(&BTreeSet::from(["s".to_owned()]))
        })
        .await;
        // The other model makes room for this one, which can be used and leaves.
        for (path, body) in [
            ("/models/load", json!({"model": "b"})),
            ("/v1/chat/completions", question(json!({"model": "b", "max_tokens": 1}))),
            ("/models/unload", json!({"model": "b"})),
        ] {
            let wanted = Wanted::post(path, body);
            let time = Duration::from_secs(120);
            let reply =
                tokio::time::timeout(time, self.direct.send(wanted.request(&self.token))).await;
            let reply = reply.unwrap_or_else(|_| panic!("{after}: {path} does not end"));
            assert_eq!(reply.status, StatusCode::OK, "{after}: {path}: {}", reply.text);
        }
        let views = self.direct.get("/v1/models").await.json();
        let states = views["data"].as_array().unwrap().iter().map(|one| &one["status"]["value"]);
        assert!(states.into_iter().all(|state| state == "unloaded"), "{after}: {views}");
    }
}

/// Waits until something holds.
async fn until(after: &str, what: &str, holds: impl AsyncFn() -> bool) {
    for _ in 0..1200 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{after}: it never holds that {what}");
}

/// A request.
#[derive(Clone, Debug)]
struct Wanted {
    method: &'static str,
    path: String,
    kind: &'static str,
    body: String,
}

impl Wanted {
    fn new(method: &'static str, path: &str, body: Json) -> Wanted {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        Wanted { method, path: path.to_owned(), kind: "application/json", body }
    }

    fn post(path: &str, body: Json) -> Wanted {
        Wanted::new("POST", path, body)
    }

    fn delete(path: &str, body: Json) -> Wanted {
        Wanted::new("DELETE", path, body)
    }

    fn upload() -> Wanted {
        let line = json!({"custom_id": "1", "method": "POST", "url": "/v1/completions",
            "body": {"model": "a", "prompt": "x"}});
        let part = |name: &str, text: &str| {
            format!("--x\r\ncontent-disposition: form-data; name={name}\r\n\r\n{text}\r\n")
        };
        let body = format!(
            "{}{}--x--\r\n",
            part("\"purpose\"", "batch"),
            part("\"file\"; filename=\"f\"", &format!("{line}\n")),
        );
        let kind = "multipart/form-data; boundary=x";
        Wanted { method: "POST", path: "/v1/files".into(), kind, body }
    }

    /// The body comes in two pieces, with a pause.
    fn request(&self, token: &str) -> Request<Body> {
        let (first, second) = self.body.split_at(self.body.len() / 2);
        let pieces = [first, second].map(|piece| Bytes::from(piece.to_owned()));
        let body = stream::unfold(pieces.into_iter(), async |mut pieces| {
            tokio::task::yield_now().await;
            Some((Ok::<_, Infallible>(pieces.next()?), pieces))
        });
        let request = Request::builder().method(self.method).uri(&self.path);
        let request = request.header("content-type", self.kind).header("x-arclight-token", token);
        request.body(Body::from_stream(body)).unwrap()
    }
}

/// Sends a request again and again, with what comes before it, and hangs up later each time.
async fn dropped(server: &Server, name: &str, before: impl AsyncFn(&Server) -> Wanted) {
    for polls in 1.. {
        assert!(polls < 300, "{name} does not end");
        let wanted = before(server).await;
        let ended = server.hangs_up(&wanted, polls).await;
        server.is_sound(&format!("{name}, dropped after {polls} polls")).await;
        if ended {
            return;
        }
    }
}

/// Has `a` loaded.
async fn load(server: &Server) {
    server.post("/models/load", json!({"model": "a"})).await;
}

/// Removes `made`, if a client has made it.
async fn clean(server: &Server) {
    let gone = Wanted::delete("/api/delete", json!({"model": "made"}));
    server.direct.send(gone.request(&server.token)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_hangs_up_leaves_every_model_usable() {
    let server = &Server::new(8).await;
    dropped(server, "load", async |server| {
        load(server).await;
        Wanted::post("/models/load", json!({"model": "b"}))
    })
    .await;
    dropped(server, "unload", async |server| {
        load(server).await;
        Wanted::post("/models/unload", json!({"model": "a"}))
    })
    .await;
    for stream in [false, true] {
        dropped(server, "a chat completion", async |_| {
            let body = question(json!({"model": "a", "stream": stream, "max_tokens": 3}));
            Wanted::post("/v1/chat/completions", body)
        })
        .await;
    }
    dropped(server, "the factors of adapters", async |server| {
        load(server).await;
        Wanted::post("/lora-adapters?model=a", json!([]))
    })
    .await;
    for action in ["save", "restore", "erase"] {
        dropped(server, action, async |server| {
            // What it leaves in its slot is saved.
            let prompt = "In the beginning there was a bear. ".repeat(8);
            let body = json!({"model": "a", "prompt": prompt, "max_tokens": 1});
            server.post("/v1/completions", body).await;
            let save = Wanted::post("/slots/0?action=save&model=a", json!({"filename": "s"}));
            server.call(&save).await;
            Wanted { path: format!("/slots/0?action={action}&model=a"), ..save }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_hangs_up_leaves_no_model_half_made() {
    let server = &Server::new(8).await;
    let made = json!({"model": "made", "from": "a"});
    for (name, path, body) in [
        ("copy", "/api/copy", json!({"source": "a", "destination": "made"})),
        ("create", "/api/create", made.clone()),
        ("pull", "/api/pull", json!({"model": "made"})),
    ] {
        dropped(server, name, async |server| {
            clean(server).await;
            Wanted::post(path, body.clone())
        })
        .await;
        // In the place of one that is loaded.
        dropped(server, &format!("{name} once more"), async |server| {
            server.post("/models/load", json!({"model": "made"})).await;
            Wanted::post(path, body.clone())
        })
        .await;
    }
    dropped(server, "delete", async |server| {
        server.post("/api/create", made.clone()).await;
        server.post("/models/load", json!({"model": "made"})).await;
        Wanted::delete("/api/delete", json!({"model": "made"}))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_hangs_up_leaves_no_file_half_written() {
    let server = &Server::new(8).await;
    dropped(server, "upload", async |_| Wanted::upload()).await;
    dropped(server, "delete of a file", async |server| {
        Wanted::delete(&format!("/v1/files/{}", server.upload().await), Json::Null)
    })
    .await;
    dropped(server, "batch", Server::batch).await;
    dropped(server, "cancel", async |server| {
        let made = server.call(&server.batch().await).await.json();
        Wanted::post(&format!("/v1/batches/{}/cancel", made["id"].as_str().unwrap()), Json::Null)
    })
    .await;
    let respond =
        Wanted::post("/v1/responses", json!({"model": "a", "input": "Hi", "max_output_tokens": 2}));
    dropped(server, "response", async |_| respond.clone()).await;
    dropped(server, "delete of a response", async |server| {
        let made = server.call(&respond).await.json();
        Wanted::delete(&format!("/v1/responses/{}", made["id"].as_str().unwrap()), Json::Null)
    })
    .await;
    dropped(server, "a tool", async |_| {
        Wanted::post("/page/mcp", json!({"name": "now", "arguments": {}}))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_whose_client_hangs_up_ends() {
    let server = Server::new(8).await;
    tokio::spawn(server.models.clone().background().unwrap());
    for polls in 1.. {
        assert!(polls < 300, "it does not end");
        let ended = server.hangs_up(&server.batch().await, polls).await;
        until(&format!("dropped after {polls} polls"), "every batch ends", async || {
            let list = server.direct.get("/v1/batches?limit=100").await.json();
            list["data"].as_array().unwrap().iter().all(|batch| batch["status"] == "completed")
        })
        .await;
        if ended {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unload_of_a_model_that_answers_goes_on_without_its_client() {
    let server = Server::new(8).await;
    load(&server).await;
    let body =
        question(json!({"model": "a", "stream": true, "max_tokens": 64, "ignore_eos": true}));
    let request = Wanted::post("/v1/chat/completions", body).request(&server.token);
    let answer = server.direct.router.clone().oneshot(request).await.unwrap();
    let unload = Wanted::post("/models/unload", json!({"model": "a"})).request(&server.token);
    let unload = tokio::spawn(server.direct.router.clone().oneshot(unload));
    while server.direct.get("/v1/models/a").await.json()["status"]["value"] != "unloading" {
        tokio::task::yield_now().await;
    }
    // It waits for the answer, which is not read, and its client leaves.
    unload.abort();
    assert!(unload.await.unwrap_err().is_cancelled(), "the answer has not been read");
    let other = tokio::spawn({
        let router = server.direct.router.clone();
        async move { Direct { router }.post("/models/load", &json!({"model": "b"})).await }
    });
    answer.into_body().collect().await.unwrap();
    assert_eq!(other.await.unwrap().status, StatusCode::OK);
    server.is_sound("unload").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn models_that_clients_make_are_bounded() {
    let server = Server::new(2).await;
    for name in ["one", "two", "one"] {
        server.post("/api/copy", json!({"source": "a", "destination": name})).await;
    }
    for (path, body) in [
        ("/api/copy", json!({"source": "a", "destination": "three"})),
        ("/api/create", json!({"model": "three", "from": "a"})),
        ("/api/pull", json!({"model": "three"})),
    ] {
        let reply = server.direct.post(path, &body).await;
        assert_eq!(reply.status, StatusCode::CONFLICT, "{path}: {}", reply.text);
        assert!(reply.text.contains("--max-managed-models"), "{}", reply.text);
    }
    server.call(&Wanted::delete("/api/delete", json!({"model": "one"}))).await;
    server.post("/api/copy", json!({"source": "a", "destination": "three"})).await;
    let long = json!({"model": "three", "from": "a", "system": "x".repeat(1 << 18)});
    let reply = server.direct.post("/api/create", &long).await;
    assert_eq!(reply.status, StatusCode::PAYLOAD_TOO_LARGE, "{}", reply.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_tools_are_bounded() {
    let server = Server::new(8).await;
    let call = || {
        let router = server.direct.router.clone();
        let wanted = Wanted::post("/page/mcp", json!({"name": "wait", "arguments": {}}));
        let request = wanted.request(&server.token);
        tokio::spawn(async move { Direct { router }.send(request).await })
    };
    let calls: Vec<_> = (0..33).map(|_| call()).collect();
    // Eight have a thread each, and one too many is refused at once.
    until("33 calls", "eight run and one is refused", async || {
        server.tools.waits.lock().unwrap().0 == 8
            && calls.iter().filter(|call| call.is_finished()).count() == 1
    })
    .await;
    assert_eq!(server.tools.waits.lock().unwrap().0, 8);
    server.tools.waits.lock().unwrap().1 = true;
    server.tools.changed.notify_all();
    let mut refused = 0;
    for call in calls {
        let reply = call.await.unwrap();
        match reply.status {
            StatusCode::OK => {}
            StatusCode::TOO_MANY_REQUESTS => refused += 1,
            other => panic!("{other}: {}", reply.text),
        }
    }
    assert_eq!(refused, 1);
}
