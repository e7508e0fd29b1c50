//! Texts as vectors, by OpenAI's and Ollama's protocols.

use crate::support::{Direct, NAME, model, options};
use arclight_engine::Pooling;
use arclight_server::Options;
use axum::http::StatusCode;
use serde_json::{Value as Json, json};

const PATH: &str = "/v1/embeddings";

fn vector(value: &Json) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect()
}

/// The vectors of a reply that must be a success.
async fn vectors(server: &Direct, body: Json) -> Vec<Vec<f32>> {
    let reply = server.post(PATH, &body).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    let reply = reply.json();
    assert_eq!((&reply["object"], &reply["model"]), (&"list".into(), &NAME.into()));
    let item = |(at, item): (usize, &Json)| {
        assert_eq!((&item["object"], &item["index"]), (&"embedding".into(), &at.into()));
        vector(&item["embedding"])
    };
    reply["data"].as_array().unwrap().iter().enumerate().map(item).collect()
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[tokio::test]
async fn texts_become_vectors_of_length_one() {
    let server = Direct::new(2);
    let texts = ["Once upon a time", "The dog", "Once upon a time there was", "The dog"];
    let all = vectors(&server, json!({"input": texts})).await;
    assert_eq!(all.len(), 4);
    for vector in &all {
        // Rounding of some hundred values to f32.
        assert!((dot(vector, vector) - 1.0).abs() < 1e-5);
    }
    assert_eq!(all[1], all[3]);
    assert!(dot(&all[0], &all[1]) < 0.999);
    // One alone, or as tokens, is the same to the last bit.
    assert_eq!(vectors(&server, json!({"input": texts[2]})).await, [all[2].clone()]);
    let tokens = server.post("/tokenize", &json!({"prompt": texts[0]})).await.json();
    let tokens = &tokens["tokens"];
    assert_eq!(vectors(&server, json!({"input": tokens})).await, [all[0].clone()]);
    let both = json!({"input": [tokens, tokens]});
    assert_eq!(vectors(&server, both.clone()).await, [all[0].clone(), all[0].clone()]);
    let usage = &server.post(PATH, &both).await.json()["usage"];
    let count = 2 * tokens.as_array().unwrap().len();
    assert_eq!(*usage, json!({"prompt_tokens": count, "total_tokens": count}));
}

#[tokio::test]
async fn base64_holds_the_same_values() {
    let server = Direct::new(1);
    let body = |format: &str| json!({"input": "The dog", "encoding_format": format});
    let [numbers] = vectors(&server, body("float")).await.try_into().unwrap();
    let reply = server.post(PATH, &body("base64")).await.json();
    let text = reply["data"][0]["embedding"].as_str().unwrap();
    // By hand, so that the library is not held against itself.
    let digit = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => panic!("{c}"),
    };
    let digits: Vec<u8> = text.bytes().filter(|&c| c != b'=').map(digit).collect();
    let bits = |at: usize| {
        (0..8).fold(0, |byte, bit| {
            let at = 8 * at + bit;
            byte << 1 | digits[at / 6] >> (5 - at % 6) & 1
        })
    };
    let bytes: Vec<u8> = (0..digits.len() * 6 / 8).map(bits).collect();
    let values = bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b));
    assert_eq!(values.collect::<Vec<f32>>(), numbers);
}

#[tokio::test]
async fn fewer_dimensions_are_the_first_ones() {
    let server = Direct::new(1);
    let whole = vectors(&server, json!({"input": "The dog"})).await.remove(0);
    let some = vectors(&server, json!({"input": "The dog", "dimensions": 8})).await.remove(0);
    let length = dot(&whole[..8], &whole[..8]).sqrt();
    for (some, whole) in some.iter().zip(&whole) {
        assert!((some - whole / length).abs() < 1e-6);
    }
    assert_eq!(some.len(), 8);
}

#[tokio::test]
async fn pooling_is_the_files_unless_told() {
    let last = Direct::new(1);
    let options = Options { pooling: Some(Pooling::Mean), ..options() };
    let mean = Direct::with(options, model(1, 64));
    let (one, several) = (json!({"input": [17]}), json!({"input": [17, 5, 80]}));
    // Of one token they are the same.
    assert_eq!(vectors(&last, one.clone()).await, vectors(&mean, one).await);
    assert_ne!(vectors(&last, several.clone()).await, vectors(&mean, several).await);
}

#[tokio::test]
async fn what_cannot_be_a_vector_is_told() {
    let server = Direct::new(1);
    let long = vec!["a"; 2049];
    let tokens = vec![1; 50_000];
    for (body, words) in [
        (json!({}), "input is missing"),
        (json!({"input": []}), "must not be an empty list"),
        (json!({"input": [1, "a"]}), "must be a string"),
        (json!({"input": 7}), "must be a string"),
        (json!({"input": [[1], [-1]]}), "must be a string"),
        (json!({"input": [4_000_000]}), "token 4000000 of input 0 does not exist"),
        (json!({"input": "a", "dimensions": 0}), "dimensions must be from 1 to"),
        (json!({"input": "a", "dimensions": 100_000}), "dimensions must be from 1 to"),
        (json!({"input": "a", "encoding_format": "hex"}), "encoding_format"),
        (json!({"input": long}), "2048 are allowed"),
        (json!({"input": tokens}), "maximum context length is"),
        (json!({"input": [[]]}), "the prompt is empty"),
    ] {
        let reply = server.post(PATH, &body).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{}", reply.text);
        let error = reply.json()["error"].clone();
        assert!(error["message"].as_str().unwrap().contains(words), "{error}");
    }
    let other = server.post(PATH, &json!({"input": "a", "model": "other"})).await;
    assert_eq!(other.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn ollama_has_them_too() {
    let server = Direct::new(2);
    let want = vectors(&server, json!({"input": ["The dog", "a cat"]})).await;
    let body = json!({"model": NAME, "input": ["The dog", "a cat"]});
    let reply = server.post("/api/embed", &body).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    let reply = reply.json();
    let got: Vec<Vec<f32>> = reply["embeddings"].as_array().unwrap().iter().map(vector).collect();
    assert_eq!(got, want);
    assert_eq!(reply["model"], NAME);
    assert!(reply["total_duration"].as_u64().unwrap() > 0);
    assert!(reply["prompt_eval_count"].as_u64().unwrap() >= 2);
    // Nothing to embed is how clients ask for the model.
    let none = server.post("/api/embed", &json!({"model": NAME, "input": ""})).await.json();
    assert_eq!(none["embeddings"], json!([]));
    // What is too long is cut, or refused if that is wished.
    let long = "dog ".repeat(5000);
    let body = |truncate| json!({"input": long, "truncate": truncate});
    assert_eq!(server.post("/api/embed", &body(true)).await.status, StatusCode::OK);
    let refused = server.post("/api/embed", &body(false)).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert!(refused.json()["error"].as_str().unwrap().contains("maximum context length"));
    let one = server.post("/api/embeddings", &json!({"model": NAME, "prompt": "The dog"})).await;
    assert_eq!(vector(&one.json()["embedding"]), want[0]);
}
