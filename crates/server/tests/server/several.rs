//! Several models: loaded when they are named, unloaded for others, told of together.

use crate::support::{Direct, Reply, load_file, model, options, question};
use arclight_engine::IdleTime;
use arclight_server::{
    Abilities, ChatStyle, Info, Model, ModelChange, ModelEntry, ModelLimits, ModelSource, Models,
    Options, Site,
};
use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value as Json, json};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tower::ServiceExt;

/// The demo model, which takes some bytes, and fails to load a number of times.
#[derive(Default)]
struct Demo {
    bytes: u64,
    faults: AtomicUsize,
    loads: AtomicUsize,
    /// Of the model that was loaded last.
    idle: Mutex<Option<IdleTime>>,
}

impl Demo {
    /// The model's replica panics, when it has had nothing to do for a second.
    fn fails(&self) {
        let idle = self.idle.lock().unwrap().clone().unwrap();
        idle.ask(|_| panic!("told to")).unwrap();
    }
}

impl ModelSource for Demo {
    fn bytes(&self) -> Result<u64, String> {
        Ok(self.bytes)
    }

    fn load(&self) -> Result<Model, String> {
        self.loads.fetch_add(1, SeqCst);
        let fails = self.faults.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
        if fails {
            return Err("the disk is on fire".into());
        }
        let model = model(2, 8);
        *self.idle.lock().unwrap() = Some(model.replicas().idle_time(0));
        Ok(model)
    }

    fn abilities(&self) -> Result<Abilities, String> {
        let style = ChatStyle { family: Some("hermes".parse().unwrap()), ..ChatStyle::default() };
        Abilities::read(&load_file(), &style, false).map_err(|e| e.to_string())
    }

    fn info(&self) -> Result<Info, String> {
        let file = load_file();
        let gguf = file.gguf().map_err(|e| e.to_string())?;
        Ok(Info::read(&file, &gguf))
    }
}

struct Server {
    direct: Direct,
    models: Arc<Models>,
    sources: Vec<Arc<Demo>>,
}

impl Server {
    /// Models by their names, bytes, whether they are pinned, and their time without requests.
    fn new(limits: (usize, u64), models: &[(&str, u64, bool, Option<Duration>)]) -> Server {
        Server::with(&options(), limits, models)
    }

    fn with(
        common: &Options,
        limits: (usize, u64),
        models: &[(&str, u64, bool, Option<Duration>)],
    ) -> Server {
        let (mut entries, mut sources) = (Vec::new(), Vec::new());
        for &(name, bytes, pinned, idle) in models {
            let source = Arc::new(Demo { bytes, ..Demo::default() });
            sources.push(source.clone());
            let options = Options { names: vec![name.to_owned()], ..Options::default() };
            entries.push(ModelEntry { options, source, pinned, made: false, idle });
        }
        let limits = ModelLimits { models: limits.0, bytes: limits.1, made: 8 };
        let models = Arc::new(Models::new(common, limits, entries, None).unwrap());
        let direct = Direct { router: models.clone().router().unwrap() };
        Server { direct, models, sources }
    }

    async fn ask(&self, model: &str) -> Reply {
        self.direct.post("/v1/chat/completions", &question(json!({"model": model}))).await
    }

    /// How far the models are.
    async fn states(&self) -> Vec<(String, String)> {
        let list = self.direct.get("/v1/models").await.json();
        let text = |value: &Json| value.as_str().unwrap().to_owned();
        let each = |one: &Json| (text(&one["id"]), text(&one["status"]["value"]));
        list["data"].as_array().unwrap().iter().map(each).collect()
    }

    async fn loaded(&self) -> Vec<String> {
        let loaded = self.states().await.into_iter().filter(|(_, state)| state == "loaded");
        loaded.map(|(name, _)| name).collect()
    }
}

const GIB: u64 = 1 << 30;

#[tokio::test]
async fn a_model_is_loaded_when_a_request_names_it() {
    let server = Server::new((2, GIB), &[("a", 1, false, None), ("b", 1, false, None)]);
    assert_eq!(server.loaded().await, [""; 0]);
    assert_eq!(server.direct.get("/health").await.status, StatusCode::OK);
    let reply = server.ask("b").await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    assert_eq!(reply.json()["model"], "b");
    assert_eq!(server.loaded().await, ["b"]);
    // By every protocol, and by Ollama's tag.
    let body = json!({"model": "a:latest", "prompt": "One day", "stream": false});
    let reply = server.direct.post("/api/generate", &body).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    let body =
        json!({"model": "a", "max_tokens": 2, "messages": [{"role": "user", "content": "Hi"}]});
    let reply = server.direct.post("/v1/messages", &body).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    assert_eq!(server.loaded().await, ["a", "b"]);
    assert_eq!(server.sources[0].loads.load(SeqCst), 1, "it stays");

    let reply = server.ask("c").await;
    assert_eq!(reply.status, StatusCode::NOT_FOUND);
    assert!(reply.text.contains("this server has a, b"), "{}", reply.text);
    let reply = server.direct.post("/v1/completions", &json!({"prompt": "x"})).await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    assert!(reply.text.contains("model is missing"), "{}", reply.text);
    let reply = server.direct.post_text("/v1/completions", "{").await;
    assert_eq!(reply.json()["error"]["code"], "invalid_json");
    let reply = server.direct.post("/v1/nothing", &json!({"model": "a"})).await;
    assert_eq!(reply.json()["error"]["code"], "unknown_url");
    // In the words of the protocol.
    let reply = server.direct.post("/v1/messages", &json!({"model": "c"})).await;
    assert_eq!(reply.json()["type"], "error");
}

#[tokio::test]
async fn the_one_that_was_asked_for_longest_ago_makes_room() {
    let all = [("a", 4, false, None), ("b", 4, false, None), ("c", 8, false, None)];
    let server = Server::new((2, 10), &all);
    for name in ["a", "b", "a"] {
        assert_eq!(server.ask(name).await.status, StatusCode::OK);
    }
    assert_eq!(server.loaded().await, ["a", "b"]);
    // By its bytes it needs the room of both.
    assert_eq!(server.ask("c").await.status, StatusCode::OK);
    assert_eq!(server.loaded().await, ["c"]);
    assert_eq!(server.ask("b").await.status, StatusCode::OK);
    assert_eq!(server.loaded().await, ["b"]);

    // By number.
    let all = [("a", 1, true, None), ("b", 1, false, None), ("c", 1, false, None)];
    let server = Server::new((2, 10), &all);
    for name in ["a", "b", "c"] {
        assert_eq!(server.ask(name).await.status, StatusCode::OK);
    }
    assert_eq!(server.loaded().await, ["a", "c"], "a is pinned");
    let reply = server.direct.post("/models/unload", &json!({"model": "a"})).await;
    assert_eq!(reply.json()["error"]["code"], "pinned");
}

#[tokio::test]
async fn what_can_never_fit_is_refused_and_tried_again() {
    let server = Server::new(
        (2, 10),
        &[("a", 11, false, None), ("b", 8, true, None), ("c", 8, false, None)],
    );
    let reply = server.ask("a").await;
    assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(reply.text.contains("it needs") && reply.text.contains("GiB"), "{}", reply.text);
    assert_eq!(server.ask("b").await.status, StatusCode::OK);
    let reply = server.ask("c").await;
    assert!(reply.text.contains("pinned: b"), "{}", reply.text);

    let server = Server::new((2, GIB), &[("a", 1, false, None)]);
    server.sources[0].faults.store(1, SeqCst);
    let reply = server.ask("a").await;
    assert_eq!(reply.json()["error"]["code"], "load_failed");
    assert!(reply.text.contains("the disk is on fire"), "{}", reply.text);
    let list = server.direct.get("/v1/models/a").await.json();
    assert_eq!(list["status"], json!({"value": "failed", "error": "the disk is on fire"}));
    assert_eq!(server.ask("a").await.status, StatusCode::OK);
}

#[tokio::test]
async fn answers_are_finished_before_their_model_goes() {
    let server = Server::new((1, GIB), &[("a", 1, false, None), ("b", 1, false, None)]);
    let body =
        question(json!({"model": "a", "stream": true, "max_tokens": 64, "ignore_eos": true}));
    let request = Request::post("/v1/chat/completions").body(Body::from(body.to_string())).unwrap();
    let response = server.direct.router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let other = {
        let router = server.direct.router.clone();
        tokio::spawn(
            async move { Direct { router }.post("/models/load", &json!({"model": "b"})).await },
        )
    };
    while server.states().await[0].1 != "unloading" {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // It was not read so far, and b waits for it; so do new requests for a.
    assert_eq!(server.states().await[1].1, "loading");
    let late = {
        let router = server.direct.router.clone();
        tokio::spawn(async move {
            Direct { router }.post("/v1/chat/completions", &question(json!({"model": "a"}))).await
        })
    };
    let text = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(text.to_vec()).unwrap();
    assert!(text.trim_end().ends_with("data: [DONE]") && !text.contains("error"), "{text}");
    assert_eq!(other.await.unwrap().json(), json!({"success": true}));
    let reply = late.await.unwrap();
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    assert_eq!(server.sources[0].loads.load(SeqCst), 2);
}

#[tokio::test]
async fn idle_models_go_and_pinned_ones_come_by_themselves() {
    let soon = Some(Duration::from_millis(50));
    let all = [("a", 1, false, soon), ("b", 1, true, soon), ("c", 1, false, None)];
    let server = Server::new((3, GIB), &all);
    assert_eq!(server.direct.get("/health").await.json()["error"]["code"], "loading");
    let models = server.models.clone();
    let running = tokio::spawn(async move { models.run(|| ()).await });
    let reaches = async |names: &[&str]| {
        for _ in 0..2000 {
            if server.loaded().await == names {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{:?} instead of {names:?}", server.states().await);
    };
    reaches(&["b"]).await;
    assert_eq!(server.direct.get("/health").await.status, StatusCode::OK);
    assert_eq!(server.ask("a").await.status, StatusCode::OK);
    assert_eq!(server.ask("c").await.status, StatusCode::OK);
    reaches(&["b", "c"]).await;
    // Ollama's clients say how long.
    let body = json!({"model": "c", "keep_alive": 0});
    assert_eq!(server.direct.post("/api/generate", &body).await.json()["done"], true);
    reaches(&["b"]).await;
    let body = json!({"model": "a", "keep_alive": -1});
    assert_eq!(server.direct.post("/api/generate", &body).await.json()["done"], true);
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(server.loaded().await, ["a", "b"]);
    running.abort();
}

#[tokio::test]
async fn keys_are_for_some_of_the_models() {
    let keys = crate::support::keys(&["one models=a"]);
    let server = Server::with(
        &Options { keys, ..options() },
        (2, GIB),
        &[("a", 1, false, None), ("b", 1, false, None)],
    );
    let ask = async |model: &str| {
        let body = question(json!({"model": model})).to_string();
        let request = Request::post("/v1/chat/completions").header("authorization", "Bearer one");
        server.direct.send(request.body(Body::from(body)).unwrap()).await
    };
    assert_eq!(ask("a").await.status, StatusCode::OK);
    let reply = ask("b").await;
    assert_eq!(reply.json()["error"]["code"], "model_not_allowed", "{}", reply.text);
    assert_eq!(server.sources[1].loads.load(SeqCst), 0);
}

#[tokio::test]
async fn lists_and_figures_are_of_all() {
    let server = Server::new((2, GIB), &[("a", 1, false, None), ("b", 1, false, None)]);
    for name in ["a", "b"] {
        assert_eq!(server.ask(name).await.status, StatusCode::OK);
    }
    let page = server.direct.get("/metrics").await.text;
    for name in ["a", "b"] {
        let line = format!(
            "vllm:request_success_total{{finished_reason=\"stop\",model_name=\"{name}\"}} 1"
        );
        assert!(page.contains(&line), "{line}: {page}");
        let line = format!("vllm:num_requests_running{{model_name=\"{name}\"}} 0");
        assert!(page.contains(&line), "{line}: {page}");
    }
    assert_eq!(page.matches("# TYPE vllm:request_success_total counter").count(), 1);
    let tags = server.direct.get("/api/tags").await.json();
    assert_eq!(tags["models"][1]["name"], "b:latest");
    assert!(tags["models"][1]["size"].as_u64().unwrap() > 0);
    let loaded = server.direct.get("/api/ps").await.json();
    assert_eq!(loaded["models"].as_array().unwrap().len(), 2);
    // What was kept of one model is found without a name.
    let body = json!({"model": "b", "input": "Hi", "max_output_tokens": 4});
    let kept = server.direct.post("/v1/responses", &body).await.json();
    let again = server.direct.get(&format!("/v1/responses/{}", kept["id"].as_str().unwrap())).await;
    assert_eq!(again.json()["model"], "b");
    let reply = server.direct.get("/lora-adapters?model=a").await;
    assert_eq!(reply.json(), json!([]));
    let document = server.direct.get("/openapi.json").await.json();
    assert!(document["paths"]["/models/load"].is_object());
    assert!(Direct::new(1).get("/openapi.json").await.json()["paths"]["/models/load"].is_null());
}

#[tokio::test]
async fn statuses_are_counted_once() {
    let server = Server::new((2, GIB), &[("a", 1, false, None), ("b", 1, false, None)]);
    for name in ["a", "b", "c"] {
        server.ask(name).await;
    }
    let page = server.direct.get("/metrics").await.text;
    let of = |status: &str| {
        page.lines().find(|line| {
            line.starts_with("arclight:http_requests_total{")
                && line.contains("/v1/chat")
                && line.contains(status)
        })
    };
    assert!(of("\"200\"").is_some_and(|line| line.ends_with(" 2")), "{page}");
    assert!(of("\"404\"").is_some_and(|line| line.ends_with(" 1")), "{page}");
}

#[tokio::test]
async fn options_of_models_change_while_they_run() {
    let server = Server::new((2, GIB), &[("a", 1, false, None), ("b", 1, false, None)]);
    let many = json!({"model": "a", "prompt": "x", "n": 3, "max_tokens": 1});
    let ask = async || server.direct.post("/v1/completions", &many).await;
    assert_eq!(ask().await.status, StatusCode::OK);
    let change = |choices: usize, queue: usize| {
        let options = Options { choices, ..Options::default() };
        let name = "a".to_owned();
        let one = ModelChange { name, options, queue: Some(queue), idle: None };
        let common = Options { body_limit: 100, ..crate::support::options() };
        server.models.change(&common, ModelLimits { models: 1, bytes: GIB, made: 8 }, vec![one]);
    };
    change(2, 8);
    assert!(ask().await.text.contains("2"), "{}", ask().await.text);
    assert_eq!(ask().await.status, StatusCode::BAD_REQUEST);
    // Two slots, and nobody may wait.
    change(8, 0);
    let reply = ask().await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{}", reply.text);
    let long = json!({"model": "a", "prompt": "x".repeat(200)});
    let reply = server.direct.post("/v1/completions", &long).await;
    assert_eq!(reply.status, StatusCode::PAYLOAD_TOO_LARGE);
    // There is room for one alone now, and it has the new queue when it is loaded again.
    assert_eq!(
        server.direct.post("/models/load", &json!({"model": "b"})).await.status,
        StatusCode::OK
    );
    assert_eq!(server.loaded().await, ["b"]);
    assert_eq!(ask().await.status, StatusCode::BAD_REQUEST);
    change(8, 8);
    assert_eq!(ask().await.status, StatusCode::OK);
}

/// Waits until something is so.
async fn wait(what: &str, so: impl AsyncFn() -> bool) {
    for _ in 0..600 {
        if so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("not so within 12 s: {what}");
}

/// A server of a pinned `a` and a `b`, both loaded, that waits for `reload_wait` before it loads one again.
async fn two(reload_wait: Duration) -> (Server, impl AsyncFn() -> Reply, AbortOnDrop) {
    let common = Options { reload_wait, ..options() };
    let server = Server::with(&common, (2, GIB), &[("a", 1, true, None), ("b", 1, false, None)]);
    let models = server.models.clone();
    let running = AbortOnDrop(tokio::spawn(async move {
        let _ = models.run(|| {}).await;
    }));
    assert_eq!(server.ask("b").await.status, StatusCode::OK);
    let direct = Direct { router: server.direct.router.clone() };
    let health = async move || direct.get("/health").await;
    wait("the pinned one is loaded", async || health().await.status == StatusCode::OK).await;
    (server, health, running)
}

struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[tokio::test]
async fn a_model_that_has_failed_says_so() {
    let (server, health, _running) = two(Duration::from_secs(3600)).await;
    // One that is not pinned: the others go on.
    server.sources[1].fails();
    wait("b has failed", async || server.states().await[1].1 == "failed").await;
    // At no time from now on is it told without its reason.
    for _ in 0..20 {
        let list = server.direct.get("/v1/models/b").await.json();
        assert!(list["status"]["error"].as_str().unwrap().contains("told to"), "{list}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let reply = server.ask("b").await;
    assert_eq!(reply.json()["error"]["code"], "replica_failed", "{}", reply.text);
    let seconds: u64 = reply.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=3600).contains(&seconds), "{seconds}");
    assert_eq!(server.ask("a").await.status, StatusCode::OK);
    let healthy = health().await;
    assert_eq!((healthy.status, &healthy.json()["failed"]), (StatusCode::OK, &json!(["b"])));
    let page = server.direct.get("/metrics").await.text;
    assert!(page.contains("arclight:model_failed{model_name=\"b\"} 1\n"), "{page}");
    assert!(page.contains("arclight:model_failed{model_name=\"a\"} 0\n"), "{page}");

    // The pinned one: the server is not well without it.
    server.sources[0].fails();
    wait("a has failed", async || health().await.json()["error"]["code"] == "replica_failed").await;
}

#[tokio::test]
async fn a_model_that_has_failed_is_loaded_again() {
    let (server, health, _running) = two(Duration::from_millis(100)).await;
    // It cannot be loaded the first time.
    server.sources[1].faults.store(1, SeqCst);
    server.sources[1].fails();
    wait("b is loaded", async || server.sources[1].loads.load(SeqCst) == 3).await;
    wait("b works again", async || server.ask("b").await.status == StatusCode::OK).await;
    wait("it is counted", async || {
        let page = server.direct.get("/metrics").await.text;
        page.contains("arclight:model_reloads_total{model_name=\"b\"} 1\n")
            && page.contains("arclight:model_failed{model_name=\"b\"} 0\n")
    })
    .await;
    assert!(health().await.json().get("failed").is_none());
    let list = server.direct.get("/v1/models/b").await.json();
    assert_eq!((&list["status"]["value"], list["status"].get("error")), (&json!("loaded"), None));

    server.sources[0].fails();
    wait("a is loaded", async || server.sources[0].loads.load(SeqCst) == 2).await;
    wait("a works again", async || health().await.status == StatusCode::OK).await;
    assert_eq!(server.ask("a").await.status, StatusCode::OK);
}

#[tokio::test]
async fn what_is_not_loaded_is_shown_without_loading_it() {
    let server = Server::new((2, GIB), &[("a", 1, false, None), ("b", 1, false, None)]);
    let show = async |name: &str| server.direct.post("/api/show", &json!({"model": name})).await;
    let shown = show("a").await;
    assert_eq!(shown.status, StatusCode::OK, "{}", shown.text);
    assert_eq!(server.loaded().await, [""; 0]);
    assert_eq!(server.ask("a").await.status, StatusCode::OK);
    assert_eq!(show("a").await.json(), shown.json(), "the same as of one that is loaded");
    assert_eq!(shown.json()["capabilities"], json!(["completion", "tools", "thinking"]));
    assert_eq!(show("c").await.status, StatusCode::NOT_FOUND);
    assert_eq!(show("").await.status, StatusCode::BAD_REQUEST);

    // With a key for another model it is not shown either.
    let keys = crate::support::keys(&["k models=b"]);
    let common = Options { keys, ..options() };
    let server = Server::with(&common, (2, GIB), &[("a", 1, false, None), ("b", 1, false, None)]);
    for (name, status) in [("a", StatusCode::FORBIDDEN), ("b", StatusCode::OK)] {
        let body = Body::from(json!({"model": name}).to_string());
        let request = Request::post("/api/show").header("x-api-key", "k").body(body).unwrap();
        assert_eq!(server.direct.send(request).await.status, status, "{name}");
    }
}

#[tokio::test]
async fn the_status_has_all_models() {
    let server = Server::new((2, GIB), &[("a", 5, false, None), ("b", 1, true, None)]);
    server.sources[1].faults.store(1, SeqCst);
    server.ask("a").await;
    server.ask("b").await;
    let models = server.direct.get("/status.json").await.json()["models"].clone();
    let view = |at: usize, key: &str| models[at][key].clone();
    assert_eq!(
        [view(0, "name"), view(0, "state"), view(0, "bytes")],
        [json!("a"), json!("loaded"), json!(5)]
    );
    assert_eq!(
        [view(1, "state"), view(1, "pinned"), view(1, "bytes")],
        [json!("failed"), json!(true), json!(0)]
    );
    assert!(view(1, "error").as_str().unwrap().contains("on fire"), "{models}");
    assert!(view(0, "idle_seconds").is_u64() && view(1, "idle_seconds").is_null());
    // Each of them can be looked at, whatever its state.
    let first = server.direct.get("/status.json?model=b").await.json();
    assert_eq!([&first["model"], &first["phase"]], ["b", "failed"]);
    let why = first["why"][0]["text"].as_str().unwrap();
    assert!(why.starts_with("The model is out of service: the disk is on fire"), "{why}");
    assert_eq!(server.direct.get("/status.json?model=a").await.json()["phase"], "ready");
    server.direct.post("/models/unload", &json!({"model": "a"})).await;
    let first = server.direct.get("/status.json?model=a").await.json();
    assert_eq!(first["phase"], "unloaded");
    let why = first["why"][0]["text"].as_str().unwrap();
    assert!(why.starts_with("The model is not in memory"), "{why}");
}
