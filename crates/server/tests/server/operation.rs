//! Keys, origins, request ids, figures.

use crate::support::{Direct, NAME, copies, model, options, question};
use arclight_server::{App, Model, Options, Site};
use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value as Json, json};
use std::sync::Arc;
use tower::ServiceExt;

fn locked() -> Direct {
    let keys = crate::support::keys(&["one", "two"]);
    Direct::with(Options { keys, ..options() }, crate::support::model(1, 4))
}

#[tokio::test]
async fn keys_open_what_is_locked() {
    let server = locked();
    let with = |header: &str, value: &str| {
        Request::get("/v1/models").header(header, value).body(Body::empty()).unwrap()
    };
    for (header, value, status) in [
        ("authorization", "Bearer one", 200),
        ("authorization", "bearer two", 200),
        ("x-api-key", "two", 200),
        ("authorization", "Bearer onetwo", 401),
        ("authorization", "Bearer on", 401),
        ("authorization", "one", 401),
        ("x-api-key", "", 401),
        ("x-other", "one", 401),
    ] {
        let reply = server.send(with(header, value)).await;
        assert_eq!(reply.status.as_u16(), status, "{header}: {value}");
        if status == 401 {
            assert_eq!(reply.json()["error"]["code"], "invalid_api_key");
        }
    }
    // Paths that are not there tell nothing either.
    assert_eq!(server.get("/v1/nothing").await.status, StatusCode::UNAUTHORIZED);
    for open in ["/health", "/metrics", "/openapi.json"] {
        assert_eq!(server.get(open).await.status, StatusCode::OK, "{open}");
    }
}

#[tokio::test]
async fn pages_of_named_origins_may_ask() {
    let origins = vec!["https://a.example".to_owned()];
    let keys = crate::support::keys(&["one"]);
    let server = Direct::with(Options { origins, keys, ..options() }, crate::support::model(1, 4));
    let ask = |origin: &str| {
        Request::builder()
            .method("OPTIONS")
            .uri("/v1/chat/completions")
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "authorization,content-type")
            .body(Body::empty())
            .unwrap()
    };
    // A browser asks before it sends the key.
    let allowed = server.send(ask("https://a.example")).await;
    assert_eq!(allowed.status, StatusCode::OK);
    assert_eq!(allowed.headers["access-control-allow-origin"], "https://a.example");
    assert_eq!(allowed.headers["access-control-allow-headers"], "authorization,content-type");
    let other = server.send(ask("https://b.example")).await;
    assert_eq!(other.status, StatusCode::FORBIDDEN);
    assert!(!other.headers.contains_key("access-control-allow-origin"));
}

#[tokio::test]
async fn every_answer_has_an_id_the_clients_own_if_it_has_one() {
    let server = locked();
    let with =
        |id: &str| Request::get("/health").header("x-request-id", id).body(Body::empty()).unwrap();
    assert_eq!(server.send(with("mine-1")).await.headers["x-request-id"], "mine-1");
    let long = "x".repeat(200);
    let own = server.send(with(&long)).await.headers["x-request-id"].clone();
    assert!(own.to_str().unwrap().starts_with("req-"));
    // What is refused has one too.
    assert!(server.get("/v1/models").await.headers.contains_key("x-request-id"));
}

#[tokio::test]
async fn models_are_told_under_all_their_names() {
    let names = vec![NAME.to_owned(), "org/other".to_owned()];
    let server = Direct::with(Options { names, ..options() }, crate::support::model(1, 4));
    let list = server.get("/v1/models").await.json();
    assert_eq!(list["object"], "list");
    assert_eq!(list["data"][0]["id"], NAME);
    assert_eq!(list["data"][0]["max_model_len"], 2048);
    assert_eq!(server.get("/v1/models/org/other").await.json()["id"], "org/other");
    let reply = server.chat(json!({"model": "org/other"})).await;
    assert_eq!(reply.json()["model"], NAME);
}

#[tokio::test]
async fn figures_add_up() {
    let server = Direct::new(1);
    let answer = server.chat(json!({"max_tokens": 5, "ignore_eos": true})).await.json();
    server.chat(json!({})).await;
    server.post("/v1/chat/completions", &question(json!({"n": 0}))).await;
    let page = server.get("/metrics").await;
    assert!(
        page.headers["content-type"].to_str().unwrap().starts_with("text/plain; version=0.0.4")
    );
    // The sample of a family that has these labels, in any order.
    let value = |name: &str, labels: &[(&str, &str)]| -> f64 {
        let found = page.text.lines().find_map(|line| {
            let (of, value) = line.strip_prefix(&format!("{name}{{"))?.rsplit_once("} ")?;
            let named = [("model_name", NAME)];
            let mut all = labels.iter().chain(&named);
            all.all(|(name, value)| of.split(',').any(|l| l == format!("{name}=\"{value}\"")))
                .then(|| value.parse().unwrap())
        });
        found.unwrap_or_else(|| panic!("no {name} with {labels:?} in\n{}", page.text))
    };
    for (reason, count) in
        [("length", 1.), ("stop", 1.), ("tool_calls", 0.), ("abort", 0.), ("error", 0.)]
    {
        let labels = [("finished_reason", reason)];
        assert_eq!(value("vllm:request_success_total", &labels), count, "{reason}");
    }
    assert_eq!(value("vllm:time_to_first_token_seconds_count", &[]), 2.);
    assert_eq!(value("vllm:e2e_request_latency_seconds_bucket", &[("le", "+Inf")]), 2.);
    assert_eq!(value("vllm:num_requests_running", &[]), 0.);
    assert_eq!(value("vllm:num_requests_waiting", &[]), 0.);
    let prompt = answer["usage"]["prompt_tokens"].as_f64().unwrap();
    assert_eq!(value("vllm:prompt_tokens_total", &[]), 2. * prompt);
    let replica = [("replica", "0")];
    for figure in ["node_read_bytes", "node_busy_seconds", "step_seconds"] {
        assert!(value(&format!("arclight:{figure}_total"), &replica) > 0., "{figure}");
    }
    assert!(value("arclight:node_wait_seconds_total", &[("scope", "node")]) > 0.);
    for figure in ["node_tasks", "node_stolen_tasks", "node_left_tasks"] {
        value(&format!("arclight:{figure}_total"), &replica);
    }
    // Every line is a comment or a sample, and every sample's family has a type.
    for l in page.text.lines().filter(|l| !l.starts_with('#')) {
        let (name, value) = l.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{l}");
        let family = name.split_once('{').unwrap().0;
        let family = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|s| family.strip_suffix(s))
            .unwrap_or(family);
        assert!(page.text.contains(&format!("# TYPE {family} ")), "{family}");
    }
}

#[tokio::test]
async fn text_and_tokens() {
    let server = Direct::new(1);
    let reply = server
        .post("/tokenize", &json!({"prompt": "Once upon", "return_token_strs": true}))
        .await
        .json();
    assert_eq!(reply["count"], reply["tokens"].as_array().unwrap().len());
    let strs: String =
        reply["token_strs"].as_array().unwrap().iter().map(|s| s.as_str().unwrap()).collect();
    assert_eq!(strs, "Once upon");
    let back = server.post("/detokenize", &json!({"tokens": reply["tokens"]})).await.json();
    assert_eq!(back["prompt"], "Once upon");
    let messages = json!({"messages": [{"role": "user", "content": "Hi"}]});
    let prompt = server.post("/apply-template", &messages).await.json()["prompt"].clone();
    assert_eq!(prompt, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    let of_messages = server.post("/tokenize", &messages).await.json();
    let of_prompt = server.post("/tokenize", &json!({"prompt": prompt})).await.json();
    assert_eq!(of_messages["tokens"], of_prompt["tokens"]);
}

#[tokio::test]
async fn keys_have_limits_and_models() {
    let lines = [
        "one name=first requests=3 concurrent=1",
        "two name=second tokens=30",
        "three models=other",
    ];
    let server =
        Direct::with(Options { keys: crate::support::keys(&lines), ..options() }, model(2, 4));
    let ask = |key: &str, more: Json| {
        let body = question(more).to_string();
        let request = Request::post("/v1/chat/completions").header("x-api-key", key);
        request.body(Body::from(body)).unwrap()
    };
    let refused = async |key: &str, words: &str| {
        let reply = server.send(ask(key, json!({}))).await;
        assert_eq!(reply.status, StatusCode::TOO_MANY_REQUESTS, "{}", reply.text);
        assert_eq!(reply.json()["error"]["code"], "rate_limit_exceeded");
        assert!(reply.text.contains(words) && reply.headers.contains_key("retry-after"), "{words}");
    };
    let more = json!({"stream": true, "max_tokens": 32, "ignore_eos": true});
    let running = server.router.clone().oneshot(ask("one", more)).await.unwrap();
    assert_eq!(running.status(), StatusCode::OK);
    refused("one", "1 requests at once").await;
    running.into_body().collect().await.unwrap();
    for _ in 0..2 {
        assert_eq!(server.send(ask("one", json!({}))).await.status, StatusCode::OK);
    }
    refused("one", "3 requests a minute").await;
    // Looking at something does not count.
    let look = Request::get("/v1/models").header("x-api-key", "one").body(Body::empty()).unwrap();
    assert_eq!(server.send(look).await.status, StatusCode::OK);
    let reply = server.send(ask("two", json!({}))).await.json();
    let used = reply["usage"]["total_tokens"].as_u64().unwrap();
    assert!(used >= 30, "{used}");
    refused("two", "30 tokens a minute").await;
    let reply = server.send(ask("three", json!({}))).await;
    assert_eq!(
        (reply.status, &reply.json()["error"]["code"]),
        (StatusCode::FORBIDDEN, &json!("model_not_allowed"))
    );
    let page = server.get("/metrics").await.text;
    for line in [
        "arclight:key_requests_total{key=\"first\"} 3".to_owned(),
        "arclight:key_refused_total{key=\"first\"} 2".to_owned(),
        format!("arclight:key_tokens_total{{key=\"second\"}} {used}"),
    ] {
        assert!(page.contains(&line), "{line}: {page}");
    }
}

#[tokio::test]
async fn statuses_are_counted_by_route() {
    let server = locked();
    // Nothing is counted yet.
    assert!(!server.get("/metrics").await.text.contains("arclight:http_requests_total{"));
    let with_key = |path: &str, body: &str| {
        let request = Request::post(path).header("x-api-key", "one");
        request.body(Body::from(body.to_owned())).unwrap()
    };
    let fine = question(json!({"max_tokens": 1})).to_string();
    for body in [&*fine, &*fine, "{"] {
        server.send(with_key("/v1/chat/completions", body)).await;
    }
    server.post("/v1/chat/completions", &json!({})).await;
    server.send(with_key("/v1/responses/resp_1", "")).await;
    for path in ["/v1/secret-4711", "/v1/secret-4712", "/v1/models/a/secret-4713"] {
        let request = Request::get(path).header("x-api-key", "one").body(Body::empty()).unwrap();
        server.send(request).await;
    }
    let page = server.get("/metrics").await.text;
    let count = |route: &str, method: &str, class: &str, status: u16| {
        let labels = format!(
            "{{class=\"{class}\",method=\"{method}\",route=\"{route}\",status=\"{status}\"}} "
        );
        let line = format!("arclight:http_requests_total{labels}");
        page.lines().find_map(|l| l.strip_prefix(&line)).map(|n| n.parse::<u64>().unwrap())
    };
    assert_eq!(count("/v1/chat/completions", "POST", "2xx", 200), Some(2), "{page}");
    assert_eq!(count("/v1/chat/completions", "POST", "4xx", 400), Some(1));
    assert_eq!(count("/v1/chat/completions", "POST", "4xx", 401), Some(1));
    assert_eq!(count("/v1/responses/{id}", "POST", "4xx", 405), Some(1));
    assert_eq!(count("/v1/models/{*name}", "GET", "4xx", 404), Some(1));
    assert_eq!(count("/metrics", "GET", "2xx", 200), Some(1));
    // What clients make up is no label.
    assert_eq!(count("none", "GET", "4xx", 404), Some(2));
    assert!(!page.contains("secret-47"), "{page}");
}

#[tokio::test]
async fn the_only_model_is_loaded_again_when_it_has_failed() {
    let reload_wait = std::time::Duration::from_secs(1);
    let app = Arc::new(App::new(Options { reload_wait, ..options() }));
    let fails = |model: &Model| {
        let panics = |_: &mut arclight_engine::Engine| panic!("told to");
        model.replicas().idle_time(0).ask(panics).unwrap();
    };
    let first = model(1, 4);
    fails(&first);
    app.ready(first);
    let server = Direct::of(app.clone());
    let keeper = {
        let (app, faults) = (app.clone(), std::sync::atomic::AtomicUsize::new(1));
        std::thread::spawn(move || {
            app.keep_loaded(|| match faults.fetch_sub(1, std::sync::atomic::Ordering::SeqCst) {
                1 => Err("the disk is on fire".to_owned()),
                _ => Ok(model(1, 4)),
            });
        })
    };
    let code = async || server.get("/health").await.json()["error"]["code"].clone();
    let mut seen = Vec::new();
    for _ in 0..1000 {
        let now = code().await;
        if now == "replica_failed" {
            let health = server.get("/health").await;
            let list = server.get("/v1/models").await.json();
            let error = list["data"][0]["status"]["error"].as_str().unwrap_or_default().to_owned();
            if !error.is_empty() && health.headers.contains_key("retry-after") {
                seen.push(error);
            }
        } else if !seen.is_empty() && now.is_null() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(seen[0].contains("told to"), "{seen:?}");
    assert!(seen.iter().any(|error| error.contains("on fire")), "{seen:?}");
    server.chat(json!({})).await;
    let list = server.get("/v1/models").await.json();
    assert!(list["data"][0].get("status").is_none(), "{list}");
    let page = server.get("/metrics").await.text;
    assert!(
        page.contains(&format!("arclight:model_reloads_total{{model_name=\"{NAME}\"}} 1\n")),
        "{page}"
    );
    Site::stop(&*app);
    keeper.join().unwrap();
    app.end(std::time::Duration::from_secs(10));
}

#[tokio::test]
async fn a_replica_that_has_failed_comes_back_while_the_others_answer() {
    let reload_wait = std::time::Duration::from_millis(300);
    let app = Arc::new(App::new(Options { reload_wait, ..options() }));
    let two = copies(2, 1);
    let panics = |_: &mut arclight_engine::Engine| panic!("told to");
    two.replicas().idle_time(1).ask(panics).unwrap();
    app.ready(two);
    let server = Direct::of(app.clone());
    let keeper = {
        let app = app.clone();
        std::thread::spawn(move || {
            app.keep_loaded(|| panic!("one of them works: nothing else is loaded"));
        })
    };
    let mut seen = false;
    let mut works = false;
    for _ in 0..3000 {
        let status = server.get("/status.json").await.json();
        let failure = &status["replicas"][1]["failure"];
        if failure.is_null() && seen {
            works = true;
            break;
        }
        if let Some(why) = failure.as_str() {
            seen = true;
            assert!(why.contains("told to"), "{why}");
            assert_eq!(server.get("/health").await.json()["status"], "ok");
            server.chat(json!({"max_tokens": 1})).await;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert!(seen && works);
    // The server notices that within a look.
    let counted = format!("arclight:model_reloads_total{{model_name=\"{NAME}\"}} 1\n");
    let mut page = String::new();
    for _ in 0..100 {
        page = server.get("/metrics").await.text;
        if page.contains(&counted) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(page.contains(&counted), "{page}");
    assert!(page.contains(&format!("arclight:replicas_failed{{model_name=\"{NAME}\"}} 0\n")));
    Site::stop(&*app);
    keeper.join().unwrap();
    app.end(std::time::Duration::from_secs(10));
}
