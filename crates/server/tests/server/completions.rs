//! Completions: echo, legacy log-probabilities, tokens as prompts, several prompts.

use crate::support::Direct;
use axum::http::StatusCode;
use serde_json::{Value as Json, json};

fn texts(reply: &Json) -> Vec<&str> {
    reply["choices"].as_array().unwrap().iter().map(|c| c["text"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn choices_of_several_prompts_stand_in_order() {
    let server = Direct::new(2);
    let body = json!({"prompt": ["Once upon a", "The dog"], "n": 2, "max_tokens": 4,
        "temperature": 0, "echo": true});
    let reply = server.complete(body).await.json();
    let texts = texts(&reply);
    assert_eq!(texts.len(), 4);
    assert!(texts[0].starts_with("Once upon a") && texts[0] == texts[1]);
    assert!(texts[2].starts_with("The dog") && texts[2] == texts[3]);
    let indices: Vec<&Json> =
        reply["choices"].as_array().unwrap().iter().map(|c| &c["index"]).collect();
    assert_eq!(indices, [0, 1, 2, 3]);
    // A prompt counts once, whatever n is.
    let count = |text| json!({"prompt": text});
    let one = server.post("/tokenize", &count("Once upon a")).await.json()["count"].clone();
    let two = server.post("/tokenize", &count("The dog")).await.json()["count"].clone();
    let both = one.as_u64().unwrap() + two.as_u64().unwrap();
    assert_eq!(reply["usage"]["prompt_tokens"], both);
}

#[tokio::test]
async fn tokens_are_prompts_like_their_text() {
    let server = Direct::new(1);
    let text = "Once upon a time";
    let tokens = server.post("/tokenize", &json!({"prompt": text})).await.json()["tokens"].clone();
    let ask = |prompt: Json| json!({"prompt": prompt, "max_tokens": 6, "temperature": 0});
    let by_text = server.complete(ask(text.into())).await.json();
    let by_tokens = server.complete(ask(tokens.clone())).await.json();
    let by_lists = server.complete(ask(json!([tokens, tokens]))).await.json();
    assert_eq!(texts(&by_text), texts(&by_tokens));
    assert_eq!(texts(&by_lists), [texts(&by_text)[0]; 2]);
}

#[tokio::test]
async fn echo_tells_the_prompt_and_how_likely_it_was() {
    let server = Direct::new(1);
    let body = |more: Json| {
        let mut body = json!({"prompt": "Once upon a time", "temperature": 0, "logprobs": 2});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    // Nothing but the prompt.
    let scored = server.complete(body(json!({"echo": true, "max_tokens": 0}))).await.json();
    assert_eq!(texts(&scored), ["Once upon a time"]);
    assert_eq!(scored["usage"]["completion_tokens"], 0);
    let logprobs = &scored["choices"][0]["logprobs"];
    let list = |of: &Json, name: &str| of[name].as_array().unwrap().clone();
    let tokens = list(logprobs, "tokens");
    assert_eq!(tokens.iter().map(|t| t.as_str().unwrap()).collect::<String>(), "Once upon a time");
    assert!(list(logprobs, "token_logprobs")[0].is_null());
    assert!(list(logprobs, "token_logprobs")[1..].iter().all(|l| l.as_f64().unwrap() < 0.0));
    assert_eq!(list(logprobs, "top_logprobs")[1].as_object().unwrap().len(), 2);
    // Offsets are where the tokens stand in the text, those of the answer too.
    let both = server.complete(body(json!({"echo": true, "max_tokens": 5}))).await.json();
    let (text, logprobs) = (texts(&both)[0], &both["choices"][0]["logprobs"]);
    let tokens = list(logprobs, "tokens");
    for (token, offset) in tokens.iter().zip(list(logprobs, "text_offset")) {
        assert!(text[offset.as_u64().unwrap() as usize..].starts_with(token.as_str().unwrap()));
    }
    // What the answer's tokens are said to be without echo.
    let answer = server.complete(body(json!({"max_tokens": 5}))).await.json();
    let answer = list(&answer["choices"][0]["logprobs"], "token_logprobs");
    assert!(list(logprobs, "token_logprobs").ends_with(&answer));
    // And what they are as a prompt: the same bits.
    let rescored = json!({"prompt": text, "echo": true, "logprobs": 2, "max_tokens": 0});
    let rescored = server.complete(rescored).await.json();
    assert_eq!(
        list(&rescored["choices"][0]["logprobs"], "token_logprobs"),
        list(logprobs, "token_logprobs"),
    );
}

#[tokio::test]
async fn a_stream_says_the_same_with_echo() {
    let server = Direct::new(1);
    let body = json!({"prompt": "Once upon", "temperature": 0, "logprobs": 1, "echo": true,
        "max_tokens": 5});
    let whole = server.complete(body.clone()).await.json();
    let mut body = body;
    body["stream"] = true.into();
    let events = server.complete(body).await.events();
    let choices: Vec<&Json> = events.iter().map(|e| &e["choices"][0]).collect();
    let text: String = choices.iter().map(|c| c["text"].as_str().unwrap()).collect();
    assert_eq!(texts(&whole), [text]);
    for field in ["tokens", "token_logprobs", "text_offset"] {
        let lists = choices.iter().filter_map(|c| c["logprobs"][field].as_array());
        let told: Vec<&Json> = lists.flatten().collect();
        let want: Vec<&Json> =
            whole["choices"][0]["logprobs"][field].as_array().unwrap().iter().collect();
        assert_eq!(told, want);
    }
    assert!(events[0]["id"].as_str().unwrap().starts_with("cmpl-"));
}

#[tokio::test]
async fn sixteen_tokens_if_nothing_is_said() {
    let body = json!({"prompt": "Once upon a time", "ignore_eos": true});
    let reply = Direct::new(1).complete(body).await.json();
    assert_eq!(reply["usage"]["completion_tokens"], 16);
}

#[tokio::test]
async fn a_model_without_tokens_for_gaps_refuses_a_suffix() {
    let body = json!({"prompt": "def f():", "suffix": "return 1"});
    let reply = Direct::new(1).post("/v1/completions", &body).await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    assert_eq!(reply.json()["error"]["param"], "suffix");
}
