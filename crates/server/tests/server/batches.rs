//! Files and batches: sent, answered once each, gone on with after a restart, bounded, and each key's own.

use crate::support::{Live, NAME, Reply, keys, model, options};
use arclight_server::{FileOptions, FileStore, Options};
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

fn file_options(folder: &Path) -> FileOptions {
    FileOptions {
        folder: folder.to_owned(),
        file_bytes: 1 << 20,
        total_bytes: 4 << 20,
        lines: 1000,
    }
}

fn with_files(files: FileOptions) -> Options {
    // What a server that was stopped has still to drop has the folder for a moment.
    for _ in 0..500 {
        if let Ok(store) = FileStore::open(files.clone()) {
            return Options { files: Some(store), ..options() };
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the folder is not free");
}

struct Server {
    live: Live,
    key: Option<&'static str>,
}

impl Server {
    async fn new(folder: &Path) -> Server {
        Server::with(with_files(file_options(folder))).await
    }

    async fn with(options: Options) -> Server {
        Server { live: Live::new(options, model(4, 64)).await, key: None }
    }

    async fn stop(self) {
        let _ = self.live.stop.send(());
        self.live.served.await.unwrap();
        drop(self.live.direct);
        // Tasks that were ended are dropped.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    async fn send(&self, method: Method, path: &str, kind: &str, body: String) -> Reply {
        let mut request = Request::builder().method(method).uri(path).header("content-type", kind);
        if let Some(key) = self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        self.live.direct.send(request.body(Body::from(body)).unwrap()).await
    }

    async fn get(&self, path: &str) -> Reply {
        self.send(Method::GET, path, "text/plain", String::new()).await
    }

    async fn post(&self, path: &str, body: &Json) -> Reply {
        self.send(Method::POST, path, "application/json", body.to_string()).await
    }

    /// A form with these fields, and a file.
    async fn form(&self, fields: &[(&str, &str)], file: &str) -> Reply {
        let mut body = String::new();
        for (name, value) in fields {
            body += &format!(
                "--edge\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
            );
        }
        body += &format!(
            "--edge\r\ncontent-disposition: form-data; name=\"file\"; filename=\"in.jsonl\"\r\n\
             content-type: application/octet-stream\r\n\r\n{file}\r\n--edge--\r\n"
        );
        self.send(Method::POST, "/v1/files", "multipart/form-data; boundary=edge", body).await
    }

    async fn upload(&self, file: &str) -> String {
        let reply = self.form(&[("purpose", "batch")], file).await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
        reply.json()["id"].as_str().unwrap().to_owned()
    }

    async fn create(&self, file: &str, endpoint: &str, window: &str) -> Json {
        let body =
            json!({"input_file_id": file, "endpoint": endpoint, "completion_window": window});
        let reply = self.post("/v1/batches", &body).await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
        reply.json()
    }

    async fn batch(&self, id: &Json) -> Json {
        self.get(&format!("/v1/batches/{}", id.as_str().unwrap())).await.json()
    }

    /// Waits for the end of a batch.
    async fn ended(&self, id: &Json) -> Json {
        for _ in 0..3000 {
            let batch = self.batch(id).await;
            let ended = ["completed", "failed", "expired", "cancelled"];
            if ended.iter().any(|word| batch["status"] == *word) {
                return batch;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("it does not end: {}", self.batch(id).await);
    }

    /// The lines of a file, by their ids. Each must be there once.
    async fn lines(&self, file: &Json) -> BTreeMap<String, Json> {
        let path = format!("/v1/files/{}/content", file.as_str().unwrap());
        let reply = self.get(&path).await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
        let mut all = BTreeMap::new();
        for line in reply.text.lines() {
            let line: Json = serde_json::from_str(line).unwrap();
            let id = line["custom_id"].as_str().unwrap().to_owned();
            assert!(all.insert(id.clone(), line).is_none(), "{id} is there twice");
        }
        all
    }
}

fn line(id: &str, url: &str, body: Json) -> String {
    format!("{}\n", json!({"custom_id": id, "method": "POST", "url": url, "body": body}))
}

fn chat(id: &str, tokens: usize) -> String {
    let body = json!({
        "model": NAME, "temperature": 0, "max_tokens": tokens, "ignore_eos": true,
        "messages": [{"role": "user", "content": "What is your name?"}],
    });
    line(id, CHAT, body)
}

const CHAT: &str = "/v1/chat/completions";

#[tokio::test]
async fn every_line_is_answered_in_the_file_where_it_belongs() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::new(folder.path()).await;
    let wrong = line("bad", CHAT, json!({"model": NAME, "messages": []}));
    let text: String = (0..6).map(|n| chat(&format!("c{n}"), 4)).collect::<String>() + &wrong;
    let file = server.upload(&text).await;
    let made = server.create(&file, CHAT, "24h").await;
    assert_eq!((&made["object"], &made["status"]), (&json!("batch"), &json!("validating")));
    assert_eq!(made["expires_at"].as_u64(), made["created_at"].as_u64().map(|at| at + 86_400));
    let batch = server.ended(&made["id"]).await;
    assert_eq!(batch["status"], "completed", "{batch}");
    assert_eq!(batch["request_counts"], json!({"total": 7, "completed": 6, "failed": 1}));
    assert_eq!(batch["model"], NAME);
    let answers = server.lines(&batch["output_file_id"]).await;
    assert_eq!(answers.len(), 6);
    let same: Json = serde_json::from_str(&chat("x", 4)).unwrap();
    let live = server.post(CHAT, &same["body"]).await.json();
    for answer in answers.values() {
        assert!(answer["id"].as_str().unwrap().starts_with("batch_req_"));
        assert_eq!(
            (&answer["response"]["status_code"], &answer["error"]),
            (&json!(200), &Json::Null)
        );
        let body = &answer["response"]["body"];
        assert_eq!(body["choices"], live["choices"], "as a live request");
    }
    let tokens = answers["c0"]["response"]["body"]["usage"]["total_tokens"].as_u64().unwrap();
    assert_eq!(batch["usage"]["total_tokens"], tokens * 6);
    assert_eq!(batch["usage"]["output_tokens"], 24);
    let errors = server.lines(&batch["error_file_id"]).await;
    let error = &errors["bad"];
    assert_eq!(error["response"]["status_code"], 400);
    assert_eq!(error["response"]["body"]["error"]["param"], "messages");

    // The files of answers are files.
    let output = format!("/v1/files/{}", batch["output_file_id"].as_str().unwrap());
    assert_eq!(server.get(&output).await.json()["purpose"], "batch_output");
    let list = server.get("/v1/files?purpose=batch_output&limit=1&order=asc").await.json();
    assert_eq!((list["data"].as_array().unwrap().len(), &list["has_more"]), (1, &json!(true)));
    let deleted = server.send(Method::DELETE, &output, "", String::new()).await.json();
    assert_eq!(deleted["deleted"], true);
    assert_eq!(server.get(&output).await.status, StatusCode::NOT_FOUND);
    let list = server.get("/v1/batches").await.json();
    assert_eq!(list["data"][0], batch);
    server.stop().await;
}

#[tokio::test]
async fn other_endpoints_have_batches_too() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::new(folder.path()).await;
    for (endpoint, body) in [
        ("/v1/completions", json!({"prompt": "One day", "max_tokens": 3})),
        ("/v1/embeddings", json!({"input": ["One", "Two"]})),
        ("/v1/responses", json!({"input": "Hi", "max_output_tokens": 3})),
    ] {
        let file = server.upload(&line("one", endpoint, body)).await;
        let made = server.create(&file, endpoint, "24h").await;
        let batch = server.ended(&made["id"]).await;
        assert_eq!(batch["request_counts"]["completed"], 1, "{batch}");
        let answer = &server.lines(&batch["output_file_id"]).await["one"]["response"];
        if endpoint == "/v1/responses" {
            // Nobody goes on from it.
            let path = format!("/v1/responses/{}", answer["body"]["id"].as_str().unwrap());
            assert_eq!(server.get(&path).await.status, StatusCode::NOT_FOUND);
        }
        assert!(batch["usage"]["input_tokens"].as_u64() > Some(0), "{batch}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_batch_goes_on_after_a_restart_and_no_line_is_answered_twice() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::new(folder.path()).await;
    let text: String = (0..40).map(|n| chat(&format!("c{n}"), 30)).collect();
    let file = server.upload(&text).await;
    let made = server.create(&file, CHAT, "24h").await;
    let some = loop {
        let batch = server.batch(&made["id"]).await;
        let completed = batch["request_counts"]["completed"].as_u64().unwrap();
        if completed > 2 {
            break completed;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert!(some < 40, "it must be stopped in the middle");
    server.stop().await;
    // As a crash in the middle of a line leaves it.
    let files = folder.path().join("files");
    let output = std::fs::read_dir(&files).unwrap().map(|entry| entry.unwrap().path());
    let id = |path: &Path| path.file_stem().unwrap().to_string_lossy().into_owned();
    let mut data = output.filter(|path| path.extension().is_some_and(|kind| kind == "data"));
    let output = data.find(|path| id(path) != file && path.metadata().unwrap().len() > 0).unwrap();
    let mut torn = std::fs::read(&output).unwrap();
    let kept = torn.iter().filter(|byte| **byte == b'\n').count() as u64;
    assert!((some..40).contains(&kept), "{kept}");
    torn.extend_from_slice(b"{\"id\": \"batch_req_");
    std::fs::write(&output, torn).unwrap();

    let server = Server::new(folder.path()).await;
    let batch = server.ended(&made["id"]).await;
    assert_eq!(batch["status"], "completed", "{batch}");
    assert_eq!(batch["request_counts"], json!({"total": 40, "completed": 40, "failed": 0}));
    assert_eq!(server.lines(&batch["output_file_id"]).await.len(), 40);
    assert_eq!(batch["usage"]["output_tokens"], 40 * 30, "what was answered before counts");
    server.stop().await;
}

#[tokio::test]
async fn what_is_cancelled_or_late_ends_with_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::new(folder.path()).await;
    let text: String = (0..900).map(|n| chat(&format!("c{n}"), 150)).collect();
    let file = server.upload(&text).await;
    let made = server.create(&file, CHAT, "24h").await;
    while server.batch(&made["id"]).await["request_counts"]["completed"] == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let path = format!("/v1/files/{file}");
    let reply = server.send(Method::DELETE, &path, "", String::new()).await;
    assert_eq!(reply.json()["error"]["code"], "file_in_use");
    let cancel = format!("/v1/batches/{}/cancel", made["id"].as_str().unwrap());
    let cancelling = server.post(&cancel, &json!({})).await.json();
    assert_eq!(cancelling["status"], "cancelling");
    let batch = server.ended(&made["id"]).await;
    assert_eq!(batch["status"], "cancelled");
    let answered = server.lines(&batch["output_file_id"]).await.len();
    assert_eq!(batch["request_counts"]["completed"], answered);
    assert!(answered < 900 && batch["cancelled_at"].is_u64(), "{batch}");
    let again = server.post(&cancel, &json!({})).await;
    assert_eq!(again.json()["error"]["code"], "batch_not_cancellable");

    let made = server.create(&file, CHAT, "1s").await;
    let batch = server.ended(&made["id"]).await;
    assert_eq!(batch["status"], "expired", "{batch}");
    let late = server.lines(&batch["error_file_id"]).await;
    let on_time = batch["request_counts"]["completed"].as_u64().unwrap() as usize;
    assert_eq!(late.len() + on_time, 900);
    let (_, one) = late.first_key_value().unwrap();
    assert_eq!((&one["error"]["code"], &one["response"]), (&json!("batch_expired"), &Json::Null));
    server.stop().await;
}

#[tokio::test]
async fn wrong_lines_fail_the_batch_before_it_begins() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::new(folder.path()).await;
    let file = server.upload(&(chat("a", 1) + "{\n" + &chat("a", 1))).await;
    let made = server.create(&file, CHAT, "24h").await;
    let batch = server.ended(&made["id"]).await;
    assert_eq!((&batch["status"], &batch["output_file_id"]), (&json!("failed"), &Json::Null));
    let errors: Vec<(&Json, &Json)> = batch["errors"]["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| (&error["code"], &error["line"]))
        .collect();
    let expected =
        [(&json!("invalid_json_line"), &json!(2)), (&json!("duplicate_custom_id"), &json!(3))];
    assert_eq!(errors, expected);

    for (fields, at) in [
        (json!({"endpoint": "/v1/models"}), "endpoint"),
        (json!({"completion_window": "soon"}), "completion_window"),
        (json!({"input_file_id": "file-none"}), "input_file_id"),
        (json!({"metadata": {"a": 1}}), "metadata"),
        (
            json!({"output_expires_after": {"anchor": "created_at", "seconds": 1}}),
            "output_expires_after.seconds",
        ),
    ] {
        let mut body = json!({"input_file_id": file, "endpoint": CHAT, "completion_window": "24h"});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let reply = server.post("/v1/batches", &body).await;
        assert_eq!(reply.json()["error"]["param"], at, "{}", reply.text);
        assert!(reply.status.is_client_error());
    }
    for (fields, at) in [
        (&[][..], "purpose"),
        (&[("purpose", "vision")][..], "purpose"),
        (&[("purpose", "batch"), ("expires_after[seconds]", "3")][..], "expires_after.seconds"),
    ] {
        let reply = server.form(fields, "x").await;
        assert_eq!(reply.json()["error"]["param"], at, "{}", reply.text);
    }
    assert_eq!(server.get("/v1/files").await.json()["data"].as_array().unwrap().len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn files_and_disk_are_bounded_and_a_full_one_fails_the_batch_alone() {
    let folder = tempfile::tempdir().unwrap();
    let bounds = FileOptions { file_bytes: 4000, total_bytes: 6000, ..file_options(folder.path()) };
    let server = Server::with(with_files(bounds)).await;
    let reply = server.form(&[("purpose", "batch")], &"x".repeat(4001)).await;
    assert_eq!(reply.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(reply.json()["error"]["code"], "file_too_large");
    // What was refused has given its room back.
    let text: String = (0..14).map(|n| chat(&format!("c{n}"), 3)).collect();
    assert!((2500..3900).contains(&text.len()), "{}", text.len());
    let file = server.upload(&text).await;
    let reply = server.form(&[("purpose", "batch")], &"x".repeat(3900)).await;
    assert_eq!(reply.json()["error"]["code"], "storage_full", "{}", reply.text);

    let made = server.create(&file, CHAT, "24h").await;
    let batch = server.ended(&made["id"]).await;
    assert_eq!(batch["status"], "failed", "{batch}");
    assert_eq!(batch["errors"]["data"][0]["code"], "storage_full");
    let answered = server.lines(&batch["output_file_id"]).await.len() as u64;
    assert_eq!(batch["request_counts"]["completed"], answered);
    assert!(answered > 0);
    assert_eq!(server.get("/health").await.status, StatusCode::OK);
    server.stop().await;
}

#[tokio::test]
async fn each_key_has_its_own_and_without_a_folder_there_are_none() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        keys: keys(&["one", "two requests=6", "three models=other"]),
        ..with_files(file_options(folder.path()))
    };
    let mut server = Server::with(options).await;
    server.key = Some("one");
    let file = server.upload(&chat("a", 2)).await;
    let made = server.create(&file, CHAT, "24h").await;
    let batch = server.ended(&made["id"]).await;
    assert_eq!(batch["status"], "completed", "{batch}");
    server.key = Some("two");
    for path in [
        format!("/v1/files/{file}"),
        format!("/v1/files/{file}/content"),
        format!("/v1/batches/{}", made["id"].as_str().unwrap()),
    ] {
        assert_eq!(server.get(&path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    assert_eq!(server.get("/v1/files").await.json()["data"], json!([]));
    let body = json!({"input_file_id": file, "endpoint": CHAT, "completion_window": "24h"});
    assert_eq!(server.post("/v1/batches", &body).await.status, StatusCode::NOT_FOUND);
    // Three requests are made, and lines take the other three of this minute; the rest waits for the next.
    let text: String = (0..5).map(|n| chat(&format!("c{n}"), 1)).collect();
    let file = server.upload(&text).await;
    let made = server.create(&file, CHAT, "24h").await;
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let batch = server.batch(&made["id"]).await;
    assert_eq!(batch["status"], "in_progress");
    assert_eq!(batch["request_counts"], json!({"total": 5, "completed": 3, "failed": 0}));
    server.key = Some("three");
    assert_eq!(server.post("/v1/batches", &body).await.status, StatusCode::FORBIDDEN);
    server.stop().await;

    let server = Server::with(crate::support::options()).await;
    let reply = server.get("/v1/batches").await;
    assert_eq!(reply.status, StatusCode::NOT_IMPLEMENTED);
    assert!(reply.text.contains("--files-dir"), "{}", reply.text);
    server.stop().await;
}

#[tokio::test]
async fn live_requests_find_a_slot_beside_a_batch() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::new(folder.path()).await;
    let text: String = (0..300).map(|n| chat(&format!("c{n}"), 60)).collect();
    let file = server.upload(&text).await;
    let made = server.create(&file, CHAT, "24h").await;
    while server.batch(&made["id"]).await["request_counts"]["completed"] == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut most = 0;
    for _ in 0..100 {
        let health = server.get("/health").await.json();
        let count = |name: &str| health[name].as_u64().unwrap();
        most = most.max(count("running") + count("waiting"));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(most, 3, "of four slots one is left");
    server.stop().await;
}
