//! Clients that go away, do not read, or do not write; and the end of the server.

use crate::support::{Live, model, options, question, read_until};
use arclight_server::{App, Options, Server};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;

const CHAT: &str = "/v1/chat/completions";

/// More tokens than any test waits for.
fn long(stream: bool) -> serde_json::Value {
    question(json!({"stream": stream, "ignore_eos": true, "max_tokens": 2000}))
}

async fn started(live: &Live) {
    for _ in 0..1000 {
        if live.direct.get("/health").await.json()["running"] == 1 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("nothing has begun");
}

#[tokio::test]
async fn who_goes_away_frees_the_place() {
    let live = Live::new(options(), model(1, 4)).await;
    for stream in [false, true] {
        let before = live.direct.metric("generation_tokens_total").await;
        let mut client = live.post(CHAT, &long(stream)).await;
        if stream {
            let text = read_until(&mut client, "\"content\":\"").await;
            assert!(text.contains("transfer-encoding: chunked"), "{text}");
        } else {
            started(&live).await;
        }
        drop(client);
        live.direct.idle().await;
        let computed = live.direct.metric("generation_tokens_total").await - before;
        assert!(computed < 1900.0, "{computed} tokens for nobody");
    }
}

#[tokio::test]
async fn who_does_not_read_is_cut_off() {
    let options = Options { write_timeout: Duration::from_millis(100), ..options() };
    let live = Live::new(options, model(4, 4)).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut client = socket.connect(live.address).await.unwrap();
    // Some 16 MB, more than any buffer between the two.
    let body = question(json!({"stream": true, "ignore_eos": true, "max_tokens": 2000, "n": 4,
        "logprobs": true, "top_logprobs": 20}))
    .to_string();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    client.write_all(head.as_bytes()).await.unwrap();
    client.write_all(body.as_bytes()).await.unwrap();
    started_any(&live).await;
    live.direct.idle().await;
    let page = live.direct.get("/metrics").await.text;
    let mut lines = page.lines();
    let aborted = |l: &str| l.contains("finished_reason=\"abort\"") && l.ends_with("} 4");
    assert!(lines.any(aborted), "{page}");
    drop(client);
}

async fn started_any(live: &Live) {
    for _ in 0..1000 {
        if live.direct.get("/health").await.json()["running"] != 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("nothing has begun");
}

#[tokio::test]
async fn who_does_not_write_is_told_or_cut_off() {
    let options = Options { read_timeout: Duration::from_millis(100), ..options() };
    let live = Live::new(options, model(1, 4)).await;
    // A body that does not come.
    let mut client = TcpStream::connect(live.address).await.unwrap();
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{{");
    client.write_all(head.as_bytes()).await.unwrap();
    let text = read_until(&mut client, "request_timeout").await;
    assert!(text.starts_with("HTTP/1.1 408"), "{text}");
    // A head that does not come.
    let mut client = TcpStream::connect(live.address).await.unwrap();
    client.write_all(b"POST / HT").await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(10), read_until(&mut client, "\n\n\n"));
    assert!(ended.await.is_ok());
}

/// A request on a connection of its own, and the beginning of its answer.
async fn get(live: &Live, path: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(live.address).await.unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let text = read_until(&mut stream, "}").await;
    (stream, text)
}

/// Whether the server closes a connection within ten seconds.
async fn closes(stream: &mut TcpStream) -> bool {
    let rest = tokio::time::timeout(Duration::from_secs(10), read_until(stream, "never sent"));
    rest.await.is_ok()
}

#[tokio::test]
async fn connections_beyond_the_bound_are_refused_and_health_is_not() {
    let live = Live::new(Options { connections: 1, ..options() }, model(1, 4)).await;
    let mut running = live.post(CHAT, &long(true)).await;
    read_until(&mut running, "\"content\":\"").await;
    for path in ["/health", "/metrics"] {
        let (_, text) = get(&live, path).await;
        assert!(text.starts_with("HTTP/1.1 200"), "{path}: {text}");
    }
    let (mut refused, text) = get(&live, "/v1/models").await;
    assert!(text.starts_with("HTTP/1.1 503") && text.contains("too_many_connections"), "{text}");
    assert!(text.contains("retry-after: 1") && text.contains("connection: close"), "{text}");
    assert!(closes(&mut refused).await);
    let mut anthropic = live.post("/v1/messages", &json!({})).await;
    let text = read_until(&mut anthropic, "}}").await;
    assert!(text.contains("overloaded_error"), "{text}");
    // Between two requests a connection does not count.
    drop(running);
    live.direct.idle().await;
    let mut first = None;
    for _ in 0..1000 {
        let (stream, text) = get(&live, "/v1/models").await;
        if text.starts_with("HTTP/1.1 200") {
            first = Some(stream);
            break;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(first.is_some());
    let (_, text) = get(&live, "/v1/models").await;
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
}

#[tokio::test]
async fn silent_connections_make_room_for_others() {
    let live = Live::new(Options { connections: 4, ..options() }, model(1, 4)).await;
    let mut running = live.post(CHAT, &long(true)).await;
    read_until(&mut running, "\"content\":\"").await;
    let (mut idle, text) = get(&live, "/health").await;
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    let mut silent = Vec::new();
    for at in 0..300 {
        let mut stream = TcpStream::connect(live.address).await.unwrap();
        if at % 3 == 0 {
            // The beginning of a head, and of HTTP/2.
            stream.write_all(if at % 2 == 0 { b"GET /hea" } else { b"PRI * HT" }).await.unwrap();
        }
        silent.push(stream);
    }
    let (_, text) = get(&live, "/health").await;
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    assert!(closes(&mut silent[0]).await);
    // Those that have sent a request stay, and so does the answer.
    idle.write_all(b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    assert!(read_until(&mut idle, "}").await.starts_with("HTTP/1.1 200"));
    read_until(&mut running, "\"content\":\"").await;
    let mut last = silent.pop().unwrap();
    last.write_all(b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    assert!(read_until(&mut last, "}").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_connection_has_a_time_for_its_first_request() {
    let options = Options { read_timeout: Duration::from_millis(100), ..options() };
    let live = Live::new(options, model(1, 4)).await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    for first in [&b""[..], b"P", b"GET / HTTP/1.1\r\nhost:", preface] {
        let mut stream = TcpStream::connect(live.address).await.unwrap();
        stream.write_all(first).await.unwrap();
        assert!(closes(&mut stream).await, "{first:?}");
    }
    // An answer may take longer.
    let mut running = live.post(CHAT, &long(true)).await;
    let text = read_until(&mut running, "[DONE]").await;
    assert!(text.contains("[DONE]"), "{text}");
}

#[tokio::test]
async fn without_files_for_all_connections_health_is_answered() {
    let app = Arc::new(App::new(Options { connections: 1000, ..options() }));
    app.ready(model(1, 4));
    let server = Server::bind(app, "127.0.0.1:0".parse().unwrap()).await.unwrap().with_files(80);
    let address = server.address().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let served = tokio::spawn(server.run(async move {
        let _ = stopped.await;
    }));
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    assert!(closes(&mut silent[0]).await);
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    assert!(read_until(&mut stream, "}").await.starts_with("HTTP/1.1 200"));
    drop((stop, silent, stream));
    served.await.unwrap();
}

#[tokio::test]
async fn what_runs_is_finished_when_the_server_stops() {
    let live = Live::new(options(), model(1, 4)).await;
    let body = question(json!({"stream": true, "ignore_eos": true, "max_tokens": 300}));
    let mut running = live.post(CHAT, &body).await;
    let mut text = read_until(&mut running, "\"content\":\"").await;
    // Waits behind it, and is served too.
    let mut waiting = live.post(CHAT, &question(json!({}))).await;
    let mut idle = TcpStream::connect(live.address).await.unwrap();
    while live.direct.get("/health").await.json()["waiting"] == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    live.stop.send(()).unwrap();
    // Connections without a request end at once.
    assert_eq!(read_until(&mut idle, "\n").await, "");
    // Who asks meanwhile is told so.
    let mut late = TcpStream::connect(live.address).await.unwrap();
    late.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    assert!(read_until(&mut late, "stopping").await.starts_with("HTTP/1.1 503"));
    text += &read_until(&mut running, "[DONE]\n\n\r\n0").await;
    assert!(text.contains("\"finish_reason\":\"length\"") && text.contains("[DONE]"), "{text}");
    assert!(read_until(&mut waiting, "\"usage\"").await.starts_with("HTTP/1.1 200"));
    tokio::time::timeout(Duration::from_secs(10), live.served).await.unwrap().unwrap();
    assert!(TcpStream::connect(live.address).await.is_err());
}

#[tokio::test]
async fn what_does_not_end_in_time_is_cut_off() {
    let options = Options { drain: Duration::from_millis(1), ..options() };
    let live = Live::new(options, model(1, 4)).await;
    let mut running = live.post(CHAT, &long(true)).await;
    read_until(&mut running, "\"content\":\"I").await;
    live.stop.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(10), live.served).await.unwrap().unwrap();
    let rest = read_until(&mut running, "[DONE]").await;
    assert!(!rest.contains("[DONE]"));
}
