//! Endpoints and bodies that clients of other servers try.

use crate::support::{Direct, NAME, model, options, question};
use arclight_server::Options;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value as Json, json};
use std::io::Write;

#[tokio::test]
async fn what_is_probed_answers() {
    let server = Direct::new(2);
    let head = Request::builder().method(Method::HEAD).uri("/").body(Body::empty()).unwrap();
    assert_eq!(server.send(head).await.status, StatusCode::OK);
    assert_eq!(server.get("/").await.text, "Ollama is running");
    assert_eq!(server.get("/ping").await.status, StatusCode::OK);
    assert_eq!(server.get("/load").await.json(), json!({"server_load": 0}));
    assert!(server.get("/version").await.json()["version"].is_string());
    let props = server.get("/props").await.json();
    assert_eq!((&props["total_slots"], &props["model_alias"]), (&json!(2), &json!(NAME)));
    assert_eq!(props["default_generation_settings"]["n_ctx"], 2048);
    let slots = server.get("/slots").await.json();
    assert_eq!(slots.as_array().unwrap().len(), 2);
    assert_eq!(slots[0]["is_processing"], false);
    let info = server.get("/tokenizer_info").await.json();
    assert_eq!(info["eos_token"], "<|im_end|>");
    assert!(info["chat_template"].as_str().unwrap().contains("im_start"));
    let docs = server.get("/docs").await;
    assert!(
        docs.headers["content-security-policy"].to_str().unwrap().contains("default-src 'none'")
    );
    assert!(docs.text.contains("/v1/chat/completions"));
    // It ranks nothing, and says so.
    let score = server.post("/v1/score", &json!({"text_1": "a", "text_2": ["b", "c"]})).await;
    assert_eq!(score.json()["error"]["code"], "no_ranking");
    let uneven = server.post("/v1/score", &json!({"text_1": ["a", "b"], "text_2": "c"})).await;
    assert_eq!(uneven.json()["error"]["param"], "text_1");
}

#[tokio::test]
async fn llama_servers_completions_are_those_of_openai() {
    let server = Direct::new(1);
    let openai = json!({"prompt": "Once upon a time", "temperature": 0, "max_tokens": 8});
    let openai = server.complete(openai).await.json();
    let body = json!({"prompt": "Once upon a time", "temperature": 0, "n_predict": 8});
    let whole = server.post("/completion", &body).await.json();
    assert_eq!(whole["content"], openai["choices"][0]["text"]);
    assert_eq!((&whole["stop"], &whole["stop_type"]), (&json!(true), &json!("limit")));
    assert_eq!(whole["tokens_predicted"], 8);
    let mut body = body;
    body["stream"] = true.into();
    let stream = server.post("/completion", &body).await.text;
    assert!(!stream.contains("[DONE]"), "{stream}");
    let pieces: Vec<Json> = stream
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    let said: String = pieces.iter().map(|piece| piece["content"].as_str().unwrap()).collect();
    assert_eq!(said, whole["content"].as_str().unwrap());
    assert_eq!(pieces.last().unwrap()["stop"], true);
    // The demo model fills no gaps.
    let gap = server.post("/infill", &json!({"input_prefix": "a", "input_suffix": "b"})).await;
    assert_eq!(gap.json()["error"]["param"], "suffix");
}

#[tokio::test]
async fn the_last_tokens_of_a_prompt_are_read_where_the_client_says_so() {
    let server = Direct::new(1);
    let body = |more: Json| {
        let mut body = json!({"prompt": "The cat and the dog. Once upon a time", "temperature": 0,
            "max_tokens": 4});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let some = server.complete(body(json!({"truncate_prompt_tokens": 4}))).await.json();
    assert_eq!(some["usage"]["prompt_tokens"], 4);
    let all = server.complete(body(json!({"truncate_prompt_tokens": -1}))).await.json();
    assert!(all["usage"]["prompt_tokens"].as_u64().unwrap() > 4);
    // To the end of the context, and no further.
    let long = json!({"prompt": "dog ".repeat(2020), "max_tokens": -1, "ignore_eos": true});
    let long = server.complete(long).await.json();
    assert_eq!(long["usage"]["total_tokens"], 2048, "{}", long["usage"]);
    assert_eq!(long["choices"][0]["finish_reason"], "length");
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A frame of a block as it is, and blocks of one byte each many times.
fn zstd(bytes: &[u8], repeated: usize) -> Vec<u8> {
    let size = bytes.len() + repeated * (128 << 10);
    let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD, 0xE0];
    frame.extend((size as u64).to_le_bytes());
    let block = |last: usize, kind: usize, size: usize| {
        ((size << 3 | kind << 1 | last) as u32).to_le_bytes()[..3].to_vec()
    };
    frame.extend(block(usize::from(repeated == 0), 0, bytes.len()));
    frame.extend(bytes);
    for at in 0..repeated {
        frame.extend(block(usize::from(at + 1 == repeated), 1, 128 << 10));
        frame.push(b' ');
    }
    frame
}

#[tokio::test]
async fn bodies_may_be_compressed() {
    let small = Options { body_limit: 1 << 20, ..options() };
    let server = Direct::with(small, model(1, 4));
    let plain = question(json!({"max_tokens": 4})).to_string().into_bytes();
    let send = async |encoding: &str, body: Vec<u8>| {
        let request = Request::post("/v1/chat/completions").header("content-encoding", encoding);
        let reply = server.send(request.body(Body::from(body)).unwrap()).await;
        (reply.status.as_u16(), reply.text)
    };
    for (encoding, body) in [
        ("identity", plain.clone()),
        ("gzip", gzip(&plain)),
        ("GZIP", gzip(&plain)),
        ("zstd", zstd(&plain, 0)),
        ("zstd", zstd(&plain, 2)),
    ] {
        let (status, text) = send(encoding, body).await;
        assert_eq!(status, 200, "{encoding}: {text}");
    }
    let bomb = [plain.clone(), vec![b' '; 2 << 20]].concat();
    for (encoding, body, want) in [
        ("br", plain.clone(), 415),
        ("gzip", plain.clone(), 400),
        ("zstd", plain.clone(), 400),
        ("gzip", gzip(&bomb), 413),
        ("zstd", zstd(&plain, 16), 413),
    ] {
        let (status, text) = send(encoding, body).await;
        assert_eq!(status, want, "{encoding}: {text}");
    }
}

#[tokio::test]
async fn a_prompt_that_is_surely_too_long_is_not_cut_into_tokens() {
    let server = Direct::new(1);
    let long = json!({"messages": [{"role": "user", "content": "dog ".repeat(3_000_000)}]});
    let start = std::time::Instant::now();
    let reply = server.post("/v1/chat/completions", &long).await;
    assert_eq!(reply.json()["error"]["code"], "context_length_exceeded");
    // Twelve megabytes take many seconds to be cut into tokens in this profile.
    assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
}
