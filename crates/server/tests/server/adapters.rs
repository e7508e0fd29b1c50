//! Adapters by number, by name and for all requests.

use crate::support::{Direct, NAME, options, question};
use arclight_engine::{Adapter, AdapterUse, LoadOptions, ModelFile, ReplicaOptions};
use arclight_server::{ChatStyle, Model, Options, ServedAdapter};
use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value as Json, json};
use std::path::Path;
use std::sync::Arc;
use tower::ServiceExt;

/// The demo model with two adapters: `a` for all requests, `b` for those that name it.
fn server() -> Direct {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/arclight-demo.gguf");
    let bytes = std::fs::read(&path).unwrap();
    let adapter = |name: &str, seed, scale| {
        let lora = testkit::lora(&bytes, gguf::TensorType::F32, 4, 40.0, seed);
        let adapter = Adapter::read(&ModelFile::from_bytes(name, lora)).unwrap();
        AdapterUse { name: name.to_owned(), adapter: Arc::new(adapter), scale }
    };
    let loading = LoadOptions {
        threads: Some(2),
        sequences: Some(4),
        no_pin: true,
        adapters: vec![adapter("a", 1, 1.0), adapter("b", 2, 0.0)],
        ..LoadOptions::default()
    };
    let file = Arc::new(ModelFile::open(path).unwrap());
    let model = Model::load(
        &file,
        &loading,
        &ReplicaOptions::default(),
        &ChatStyle::default(),
        &mut |_| {},
    )
    .unwrap();
    let served = |name: &str| ServedAdapter { name: name.to_owned(), scale: 1.0 };
    Direct::with(Options { adapters: vec![served("a"), served("b")], ..options() }, model)
}

/// The answer to a prompt, the model that it names, and the tokens that were not computed.
async fn complete(server: &Direct, more: Json) -> (String, String, u64) {
    let mut body = json!({
        "model": NAME,
        "prompt": "Once upon a time there was a bear who had a book, and the book had a bear in it. ",
        "max_tokens": 12,
        "temperature": 0,
        "ignore_eos": true,
    });
    let Json::Object(more) = more else { panic!("{more} is no object") };
    body.as_object_mut().unwrap().extend(more);
    let answer = server.complete(body).await.json();
    let text = |of: &Json| of.as_str().unwrap().to_owned();
    let cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    (text(&answer["choices"][0]["text"]), text(&answer["model"]), cached)
}

#[tokio::test]
async fn requests_have_the_adapters_that_they_name() {
    let server = server();
    let (plain, ..) = complete(&server, json!({"lora": []})).await;
    let (a, model, cached) = complete(&server, json!({"model": "a"})).await;
    assert_eq!((&*model, cached), ("a", 0), "nothing is shared with what has no adapter");
    let (b, model, cached) = complete(&server, json!({"model": "b"})).await;
    assert_eq!((&*model, cached), ("b", 0));
    assert!(a != plain && b != plain && a != b);
    // By number, and what is given to all.
    let (text, model, cached) = complete(&server, json!({"lora": [{"id": 0, "scale": 1.0}]})).await;
    assert_eq!((text, &*model), (a.clone(), NAME));
    assert!(cached > 16, "the same set: {cached}");
    assert_eq!(complete(&server, json!({})).await.0, a, "of which nothing is said");
    let zero = json!({"lora": [{"id": 0, "scale": 0}, {"id": 1, "scale": 1}]});
    assert_eq!(complete(&server, zero).await.0, b);
    // At once, in one batch.
    let all = tokio::join!(
        complete(&server, json!({"model": "a"})),
        complete(&server, json!({"lora": []})),
        complete(&server, json!({"model": "b"})),
        complete(&server, json!({"model": "a"})),
    );
    assert_eq!(
        [all.0.0, all.1.0, all.2.0, all.3.0],
        [a.clone(), plain.clone(), b.clone(), a.clone()]
    );

    // What is given to all changes.
    let reply = server.get("/lora-adapters").await.json();
    assert_eq!(reply[0], json!({"id": 0, "name": "a", "path": "a", "scale": 1.0}));
    assert_eq!(reply[1]["scale"], 0.0);
    let reply = server.post("/lora-adapters", &json!([{"id": 1, "scale": 1.0}])).await;
    assert_eq!(reply.json(), json!({"success": true}));
    assert_eq!(server.get("/lora-adapters").await.json()[0]["scale"], 0.0);
    assert_eq!(complete(&server, json!({})).await.0, b);
    server.post("/lora-adapters", &json!([])).await;
    assert_eq!(complete(&server, json!({})).await.0, plain);
}

#[tokio::test]
async fn every_protocol_knows_their_names() {
    let server = server();
    let models = server.get("/v1/models").await.json();
    let ids: Vec<&Json> =
        models["data"].as_array().unwrap().iter().map(|model| &model["id"]).collect();
    assert_eq!(ids, [NAME, "a", "b"]);
    assert_eq!(
        (&models["data"][0]["parent"], &models["data"][2]["parent"]),
        (&Json::Null, &NAME.into())
    );
    assert_eq!(server.get("/v1/models/b").await.json()["parent"], NAME);
    let text = async |path: &str, body: Json, at: &str| {
        let reply = server.post(path, &body).await;
        assert_eq!(reply.status, StatusCode::OK, "{path}: {}", reply.text);
        let answer = reply.json();
        (answer.pointer(at).unwrap().as_str().unwrap().to_owned(), answer["model"].clone())
    };
    let chat = question(json!({"model": "b", "max_tokens": 12}));
    let (want, model) = text("/v1/chat/completions", chat, "/choices/0/message/content").await;
    assert_eq!(model, "b");
    let plain = question(json!({"max_tokens": 12, "lora": []}));
    let (plain, _) = text("/v1/chat/completions", plain, "/choices/0/message/content").await;
    assert_ne!(plain, want);
    let messages = question(json!({"model": "b", "max_tokens": 12}));
    assert_eq!(text("/v1/messages", messages, "/content/0/text").await, (want.clone(), "b".into()));
    let response = json!({
        "model": "b", "input": "What is your name?", "temperature": 0, "max_output_tokens": 12,
    });
    let at = "/output/0/content/0/text";
    assert_eq!(text("/v1/responses", response, at).await, (want.clone(), "b".into()));
    let ollama = json!({
        "model": "b:latest", "stream": false, "options": {"temperature": 0, "num_predict": 12},
        "messages": [{"role": "user", "content": "What is your name?"}],
    });
    let got = text("/api/chat", ollama, "/message/content").await;
    assert_eq!(got, (want, "b:latest".into()));
    // Vectors, too.
    let vector = async |model: &str| {
        let body = json!({"model": model, "input": "a bear"});
        server.post("/v1/embeddings", &body).await.json()["data"][0]["embedding"].clone()
    };
    assert_ne!(vector("b").await, vector("a").await);
}

#[tokio::test]
async fn what_is_not_there_is_named() {
    let server = server();
    let refused = async |path: &str, body: Json| {
        let reply = server.post(path, &body).await;
        assert!(reply.status.is_client_error(), "{body}: {} {}", reply.status, reply.text);
        let error = reply.json()["error"].clone();
        (
            error["param"].as_str().unwrap_or_default().to_owned(),
            error["message"].as_str().unwrap().to_owned(),
        )
    };
    let lora = async |lora: Json| {
        refused("/v1/completions", json!({"model": NAME, "prompt": "a", "lora": lora})).await
    };
    let (param, message) = lora(json!([{"id": 0, "scale": 1}, {"id": 2, "scale": 1}])).await;
    assert_eq!((&*param, &*message), ("lora[1].id", "there is no adapter 2: this server has 2"));
    let (param, message) = lora(json!([{"id": 1, "scale": 1}, {"id": 1, "scale": 2}])).await;
    assert_eq!((&*param, &*message), ("lora[1].id", "adapter 1 is named twice"));
    assert_eq!(lora(json!([{"id": 1}])).await.0, "lora[0]");
    assert_eq!(lora(json!([{"id": -1, "scale": 1}])).await.0, "lora[0]");
    assert_eq!(lora(json!({"id": 1, "scale": 1})).await.0, "lora");
    let (param, _) = refused("/v1/completions", json!({"model": "c", "prompt": "a"})).await;
    assert_eq!(param, "model");
    let (param, _) = refused("/lora-adapters", json!([{"id": 7, "scale": 1}])).await;
    assert_eq!(param, "adapters[0].id");
    let (_, message) = refused("/lora-adapters", json!({"id": 0, "scale": 1})).await;
    assert!(message.contains("must be a list"), "{message}");
    let all = server.get("/lora-adapters").await.json();
    assert_eq!(all[0]["scale"], 1.0, "nothing was changed");
}

#[tokio::test]
async fn gateways_are_told_which_adapters_are_in_use() {
    let server = server();
    let used = async || {
        let page = server.get("/metrics").await.text;
        let line = page.lines().find(|line| line.starts_with("vllm:lora_requests_info{"));
        let line = line.unwrap_or_else(|| panic!("{page}")).to_owned();
        assert!(
            line.contains("max_lora=\"2\"") && line.contains("waiting_lora_adapters=\"\""),
            "{line}"
        );
        let names = line.split("running_lora_adapters=\"").nth(1).unwrap();
        names.split('"').next().unwrap().to_owned()
    };
    assert_eq!(used().await, "");
    let body =
        question(json!({"model": "b", "stream": true, "max_tokens": 64, "ignore_eos": true}));
    let request = Request::post("/v1/chat/completions").body(Body::from(body.to_string())).unwrap();
    let response = server.router.clone().oneshot(request).await.unwrap();
    assert_eq!((response.status(), used().await.as_str()), (StatusCode::OK, "b"));
    response.into_body().collect().await.unwrap();
    assert_eq!(used().await, "");
    assert!(!Direct::new(1).get("/metrics").await.text.contains("lora_requests_info"));
}
