//! `GET /status.json`: figures that agree with what was asked, and words for them.

use crate::support::{Direct, NAME, options, question};
use arclight_server::{App, Options};
use serde_json::{Value as Json, json};
use std::sync::Arc;
use std::time::Duration;

/// The status, once something holds of it.
async fn until(server: &Direct, what: &str, holds: impl Fn(&Json) -> bool) -> Json {
    for _ in 0..300 {
        let status = server.get("/status.json").await.json();
        if holds(&status) {
            return status;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{what}: {}", server.get("/status.json").await.text);
}

fn first_reason(status: &Json) -> &str {
    status["why"][0]["text"].as_str().unwrap()
}

#[tokio::test]
async fn a_server_that_loads_says_so() {
    let server = Direct::of(Arc::new(App::new(options())));
    let status = server.get("/status.json").await.json();
    assert_eq!(status["phase"], "loading");
    assert_eq!(status["model"], NAME);
    assert_eq!(status["replicas"], json!([]));
    assert_eq!(first_reason(&status), "The model is being loaded.");
    assert!(status["machine"]["cores"].as_u64().unwrap() >= 1);
}

#[tokio::test]
async fn figures_are_those_of_what_was_asked() {
    let server = Direct::new(2);
    let before = server.get("/status.json").await.json();
    assert_eq!(before["rates"], Json::Null);
    let unknown = before["unknown"].as_array().unwrap();
    assert!(unknown.iter().any(|one| one["what"] == "rates"), "{unknown:?}");
    assert_eq!(before["requests"], json!([]));
    let replica = &before["replicas"][0];
    assert_eq!(
        (&replica["slots"], &replica["running"], &replica["waiting"]),
        (&json!(2), &json!(0), &json!(0))
    );
    assert_eq!(replica["pages"]["total"], replica["pages"]["free"]);
    // Time passes between two looks, or there are no rates.
    tokio::time::sleep(Duration::from_millis(600)).await;
    let answer = server.chat(json!({"max_tokens": 5, "ignore_eos": true})).await.json();
    // The client has its answer before the replica has told of the last step.
    let status = until(&server, "the last step is told", |status| {
        let replica = &status["replicas"][0];
        replica["totals"]["answers"] == 1
            && replica["running"] == 0
            && replica["pages"]["used"] == 0
            && replica["groups"][0]["rates"].is_object()
            && status["requests"][0].is_object()
    })
    .await;
    let prompt = answer["usage"]["prompt_tokens"].as_u64().unwrap();
    let totals = &status["replicas"][0]["totals"];
    assert_eq!((&totals["answers"], &totals["generated_tokens"]), (&json!(1), &json!(5)));
    assert_eq!(totals["prompt_tokens"], prompt);
    let rates = &status["rates"];
    let seconds = rates["seconds"].as_f64().unwrap();
    assert!((0.5..60.0).contains(&seconds), "{seconds}");
    let tokens = rates["generated_per_second"].as_f64().unwrap() * seconds;
    assert!((tokens - 5.0).abs() < 1e-6, "{tokens}");
    assert!(rates["step_ms"].as_f64().unwrap() > 0.0);
    let group = &status["replicas"][0]["groups"][0]["rates"];
    let shares =
        ["working", "waiting_node", "waiting_machine"].map(|name| group[name].as_f64().unwrap());
    assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-6, "{shares:?}");
    assert!(group["read_bytes_per_second"].as_f64().unwrap() > 0.0);
    // Nobody has said how it is measured.
    assert_eq!(group["of_limit"], Json::Null);
    let served = &status["requests"][0];
    assert_eq!(
        (&served["end"], &served["tokens"], &served["replica"]),
        (&json!("length"), &json!(5), &json!(0))
    );
    assert_eq!(served["prompt_tokens"], prompt);
    let [queued, first, total] =
        ["queued_ms", "first_ms", "total_ms"].map(|name| served[name].as_f64().unwrap());
    assert!(queued <= first && first <= total, "{served}");
    let pages = &status["replicas"][0]["pages"];
    let [total, used, cached, free] =
        ["total", "used", "cached", "free"].map(|name| pages[name].as_u64().unwrap());
    assert_eq!((used, cached + free), (0, total), "{pages}");
    // The model has no experts.
    assert_eq!(status["replicas"][0]["experts"], Json::Null);
}

#[tokio::test]
async fn answers_that_are_given_up_are_there_too() {
    let server = Direct::new(1);
    let body = question(json!({"max_tokens": 1500, "ignore_eos": true, "stream": true}));
    let ask = server.post("/v1/chat/completions", &body);
    // The client goes away while the answer is made.
    assert!(tokio::time::timeout(Duration::from_millis(100), ask).await.is_err());
    let status = until(&server, "it is noted", |status| status["requests"][0].is_object()).await;
    assert_eq!(status["requests"][0]["end"], "abort");
    assert_eq!(status["requests"][0]["queued_ms"], Json::Null);
    server.chat(json!({"stop": ["a"]})).await;
    let status = server.get("/status.json").await.json();
    assert_eq!(status["requests"][0]["end"], "stop");
    assert_eq!(status["requests"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_full_server_says_what_is_waited_for() {
    let server = Arc::new(Direct::new(1));
    let ask = |server: Arc<Direct>| async move {
        server.chat(json!({"max_tokens": 1000, "ignore_eos": true})).await;
    };
    let all: Vec<_> = (0..3).map(|_| tokio::spawn(ask(server.clone()))).collect();
    let status = until(&server, "two wait", |status| status["replicas"][0]["waiting"] == 2).await;
    assert_eq!(first_reason(&status), "2 answers wait: the only slot is in use.");
    assert_eq!(status["why"][0]["costs"], true);
    assert!(!status["why"][0]["mend"].as_array().unwrap().is_empty());
    for one in all {
        one.await.unwrap();
    }
    let status = until(&server, "it is idle", |status| status["replicas"][0]["running"] == 0).await;
    assert_eq!(status["replicas"][0]["waiting"], 0);
}

#[tokio::test]
async fn what_memory_delivers_is_measured_in_idle_time() {
    let measure = |_: &mut arclight_engine::Engine| Ok(vec![5e9]);
    let options = Options { measure_reads: Some(measure), ..options() };
    let server = Direct::with(options, crate::support::model(1, 4));
    let limit =
        |status: &Json| status["replicas"][0]["groups"][0]["limit_bytes_per_second"].clone();
    let first = server.get("/status.json").await.json();
    assert_eq!(limit(&first), Json::Null);
    let unknown = first["unknown"].as_array().unwrap();
    assert!(unknown.iter().any(|one| one["what"] == "limit_bytes_per_second"), "{unknown:?}");
    let status = until(&server, "it is measured", |status| !limit(status).is_null()).await;
    assert_eq!(limit(&status), json!(5e9));
    // What cannot be measured says why.
    let fails = |_: &mut arclight_engine::Engine| Err("memory is too full".to_owned());
    let options = Options { measure_reads: Some(fails), ..self::options() };
    let server = Direct::with(options, crate::support::model(1, 4));
    let status = until(&server, "it has failed", |status| {
        status["unknown"].as_array().unwrap().iter().any(|one| one["why"] == "memory is too full")
    })
    .await;
    assert_eq!(limit(&status), Json::Null);
}
