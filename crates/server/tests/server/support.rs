//! Servers over the demo model, requests to them, and what came back.

use arclight_engine::{LoadOptions, ModelFile, ReplicaOptions};
use arclight_server::{App, ChatStyle, Key, Keys, Model, Options, Server, router};
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::response::Response;
use chat::Family;
use http_body_util::BodyExt;
use serde_json::{Value as Json, json};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tower::ServiceExt;

pub(crate) const NAME: &str = "demo";

pub(crate) fn options() -> Options {
    Options { names: vec![NAME.to_owned()], ..Options::default() }
}

/// Keys as they stand in a file.
pub(crate) fn keys(lines: &[&str]) -> Keys {
    Keys::from(lines.iter().map(|line| line.parse().unwrap()).collect::<Vec<Key>>())
}

/// The demo model's file.
pub(crate) fn load_file() -> ModelFile {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/arclight-demo.gguf");
    ModelFile::open(path).unwrap()
}

/// The demo model, told to call tools as Hermes does, which its template does not show.
pub(crate) fn model(sequences: usize, queue: usize) -> Model {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/arclight-demo.gguf");
    load(&path, Some("hermes".parse().unwrap()), sequences, queue)
}

/// A model whose format its template shows, unless a family is given.
pub(crate) fn load(path: &Path, family: Option<Family>, sequences: usize, queue: usize) -> Model {
    let file = Arc::new(ModelFile::open(path).unwrap());
    let options = LoadOptions {
        threads: Some(2),
        sequences: Some(sequences),
        no_pin: true,
        stats: true,
        ..LoadOptions::default()
    };
    let serving = ReplicaOptions { queue: Some(queue), ..ReplicaOptions::default() };
    let style = ChatStyle { family, ..ChatStyle::default() };
    Model::load(&file, &options, &serving, &style, &mut |_| {}).unwrap()
}

/// Replicas of the demo model, of one thread each.
pub(crate) fn copies(replicas: usize, sequences: usize) -> Model {
    let options = LoadOptions {
        threads: Some(1),
        sequences: Some(sequences),
        no_pin: true,
        ..LoadOptions::default()
    };
    let serving = ReplicaOptions { replicas, ..ReplicaOptions::default() };
    let file = Arc::new(load_file());
    Model::load(&file, &options, &serving, &ChatStyle::default(), &mut |_| {}).unwrap()
}

/// The demo model with an image encoder, which knows nothing of what it sees.
pub(crate) fn seeing(sequences: usize) -> Model {
    seeing_with(testkit::encoder(256), sequences)
}

/// The demo model with this image encoder.
pub(crate) fn seeing_with(encoder: Vec<u8>, sequences: usize) -> Model {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/arclight-demo.gguf");
    let file = Arc::new(ModelFile::open(&path).unwrap());
    let options = LoadOptions {
        threads: Some(2),
        sequences: Some(sequences),
        no_pin: true,
        ..LoadOptions::default()
    };
    let encoder = Some(Arc::new(ModelFile::from_bytes("tiny encoder", encoder)));
    let serving = ReplicaOptions { encoder, ..ReplicaOptions::default() };
    Model::load(&file, &options, &serving, &ChatStyle::default(), &mut |_| {}).unwrap()
}

/// A server without connections.
pub(crate) struct Direct {
    pub(crate) router: Router,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Json {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }

    /// The JSON of each event, without the last, which must be `[DONE]`.
    pub(crate) fn events(&self) -> Vec<Json> {
        assert_eq!(self.headers["content-type"], "text/event-stream; charset=utf-8");
        let mut events: Vec<&str> = self.text.split_terminator("\n\n").collect();
        assert!(self.text.ends_with("\n\n"), "{:?}", self.text);
        assert_eq!(events.pop(), Some("data: [DONE]"));
        let data = events.into_iter().filter(|event| !event.starts_with(':'));
        data.map(|event| {
            let data = event.strip_prefix("data: ").unwrap_or_else(|| panic!("{event:?}"));
            serde_json::from_str(data).unwrap()
        })
        .collect()
    }
}

impl Direct {
    pub(crate) fn new(sequences: usize) -> Direct {
        Direct::with(options(), model(sequences, 64))
    }

    pub(crate) fn with(options: Options, model: Model) -> Direct {
        let app = Arc::new(App::new(options));
        app.ready(model);
        Direct { router: router(app).unwrap() }
    }

    pub(crate) fn of(app: Arc<App>) -> Direct {
        Direct { router: router(app).unwrap() }
    }

    pub(crate) async fn respond(&self, request: Request<Body>) -> Response {
        self.router.clone().oneshot(request).await.unwrap()
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Reply {
        let response = self.respond(request).await;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        Reply { status, headers, text: String::from_utf8(body.to_vec()).unwrap() }
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(Request::get(path).body(Body::empty()).unwrap()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Json) -> Reply {
        self.post_text(path, &body.to_string()).await
    }

    pub(crate) async fn post_text(&self, path: &str, body: &str) -> Reply {
        self.send(Request::post(path).body(Body::from(body.to_owned())).unwrap()).await
    }

    /// A chat completion that must succeed. `body` is merged over a question.
    pub(crate) async fn chat(&self, body: Json) -> Reply {
        let reply = self.post("/v1/chat/completions", &question(body)).await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
        reply
    }

    /// A completion that must succeed.
    pub(crate) async fn complete(&self, body: Json) -> Reply {
        let reply = self.post("/v1/completions", &body).await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
        reply
    }

    /// The value of a metric without further labels.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let line = format!("vllm:{name}{{model_name=\"{NAME}\"}} ");
        let page = self.get("/metrics").await.text;
        let value = page.lines().find_map(|l| l.strip_prefix(&line));
        value.unwrap_or_else(|| panic!("no {name} in {page}")).parse().unwrap()
    }

    /// Waits until nothing runs or waits any more.
    pub(crate) async fn idle(&self) {
        for _ in 0..1000 {
            let health = self.get("/health").await.json();
            if health["running"] == 0 && health["waiting"] == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("requests still run: {}", self.get("/health").await.text);
    }
}

/// A chat's body: a question at temperature 0, and what `more` says.
pub(crate) fn question(more: Json) -> Json {
    let mut body = json!({
        "model": NAME,
        "messages": [{"role": "user", "content": "What is your name?"}],
        "temperature": 0,
        "max_tokens": 24,
    });
    let Json::Object(more) = more else { panic!("{more} is no object") };
    body.as_object_mut().unwrap().extend(more);
    body
}

/// A tool with one argument.
pub(crate) fn tool(name: &str) -> Json {
    json!({"type": "function", "function": {"name": name, "parameters": {
        "type": "object",
        "properties": {"city": {"enum": ["Rome", "Oslo"]}},
        "required": ["city"],
        "additionalProperties": false,
    }}})
}

/// A server with connections.
pub(crate) struct Live {
    pub(crate) address: SocketAddr,
    /// The same server without them.
    pub(crate) direct: Direct,
    pub(crate) stop: oneshot::Sender<()>,
    pub(crate) served: JoinHandle<()>,
}

impl Live {
    pub(crate) async fn new(options: Options, model: Model) -> Live {
        let app = Arc::new(App::new(options));
        app.ready(model);
        let server = Server::bind(app.clone(), "127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = server.address().unwrap();
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(server.run(async move {
            // Dropped or sent: both mean stop.
            let _ = stopped.await;
        }));
        Live { address, direct: Direct::of(app), stop, served }
    }

    /// A connection on which a request has been written.
    pub(crate) async fn post(&self, path: &str, body: &Json) -> TcpStream {
        let body = body.to_string();
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body.as_bytes()).await.unwrap();
        stream
    }
}

/// Reads until `end` has come, or the connection ends.
pub(crate) async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&bytes).contains(end) {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(n) => bytes.extend_from_slice(&buffer[..n]),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
