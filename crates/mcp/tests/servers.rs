//! Servers that say what they are told to: by a shell's standard streams, and by HTTP.

use arclight_mcp::{Error, Server, Target};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

const TIME: Duration = Duration::from_secs(10);

fn answer(id: u64, result: &Json) -> String {
    json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()
}

fn hello() -> Json {
    json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}})
}

fn page(name: &str, next: Option<&str>) -> Json {
    let tool = json!({"name": name, "description": "Does.", "inputSchema": {"type": "object"}});
    json!({"tools": [tool], "nextCursor": next})
}

/// A shell that reads lines and prints these.
fn shell(lines: &[&str]) -> Target {
    let mut script = String::new();
    for line in lines {
        script += &match line.strip_prefix('!') {
            Some(command) => format!("{command}\n"),
            None => format!("cat <<'EOF'\n{line}\nEOF\n"),
        };
    }
    let args = vec!["-c".to_owned(), script];
    Target::Command { command: "sh".to_owned(), args, env: BTreeMap::new(), cwd: None }
}

#[test]
fn a_program_is_asked_for_its_tools_and_called() {
    let read = "!read -r line";
    let outcome = json!({"content": [{"type": "text", "text": "42"}, {"type": "image", "data": ""}], "isError": true});
    let target = shell(&[
        read,
        "a line that is no message",
        &answer(1, &hello()),
        // The word that it is initialized, and the list.
        read,
        read,
        r#"{"jsonrpc": "2.0", "id": "p", "method": "ping"}"#,
        // What it was answered must be a pong.
        "!read -r pong; case $pong in *result*) ;; *) exit 1;; esac",
        r#"{"jsonrpc": "2.0", "method": "notifications/message", "params": {}}"#,
        &answer(2, &page("one", Some("next"))),
        read,
        &answer(3, &page("two", None)),
        read,
        &answer(4, &outcome),
        read,
        r#"{"jsonrpc": "2.0", "id": 5, "error": {"code": -32602, "message": "unknown tool"}}"#,
    ]);
    let mut server = Server::connect("s", &target).unwrap();
    let names: Vec<&str> = server.tools().iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["one", "two"]);
    let outcome = server.call("one", serde_json::Map::new(), TIME).unwrap();
    assert_eq!((&*outcome.text, outcome.failed), ("42\n[image]", true));
    let refused = server.call("x", serde_json::Map::new(), TIME).unwrap_err();
    assert_eq!(refused.to_string(), "s: unknown tool (-32602)");
    let gone = server.call("one", serde_json::Map::new(), TIME).unwrap_err();
    assert!(matches!(gone, Error::Gone { .. }), "{gone}");
}

#[test]
fn what_is_no_server_is_told() {
    let error = |target: &Target| Server::connect("s", target).err().unwrap().to_string();
    let missing = Target::parse("/nowhere/at/all").unwrap();
    assert!(error(&missing).contains("cannot be started"), "{}", error(&missing));
    assert!(error(&shell(&["!exit 3"])).starts_with("s: it "));
    let old = json!({"protocolVersion": "1999-01-01", "capabilities": {}});
    let old = shell(&["!read -r line", &answer(1, &old), "!read -r line"]);
    assert!(error(&old).contains("1999-01-01"));
    let odd = shell(&[
        "!read -r line",
        &answer(1, &hello()),
        "!read -r l; read -r l",
        &answer(2, &json!({})),
        "!read -r l",
    ]);
    assert!(error(&odd).contains("it has no tools"), "{}", error(&odd));
}

#[test]
fn a_tool_that_takes_too_long_is_not_waited_for() {
    let target = shell(&[
        "!read -r line",
        &answer(1, &hello()),
        "!read -r l; read -r l",
        &answer(2, &page("one", None)),
        "!read -r l; sleep 1",
        &answer(3, &json!({"content": [{"type": "text", "text": "late"}]})),
        "!read -r l",
        &answer(4, &json!({"content": [{"type": "text", "text": "on time"}]})),
    ]);
    let mut server = Server::connect("s", &target).unwrap();
    let call = |server: &mut Server, time| server.call("one", serde_json::Map::new(), time);
    let late = call(&mut server, Duration::from_millis(100)).unwrap_err();
    assert!(matches!(late, Error::Late { .. }), "{late}");
    // Its answer is not that of the next call.
    assert_eq!(call(&mut server, TIME).unwrap().text, "on time");
}

/// A request's head and body.
fn received(stream: &mut impl Read) -> (String, Json) {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
        head += &line.to_lowercase();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    (head, serde_json::from_slice(&body).unwrap_or(Json::Null))
}

#[test]
fn an_address_answers_with_json_or_with_events() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let served = thread::spawn(move || {
        let mut seen = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let (head, body) = received(&mut stream);
            let id = body["id"].as_u64().unwrap_or(0);
            let (kind, text) = match body["method"].as_str() {
                Some("initialize") => ("application/json", answer(id, &hello())),
                Some("tools/list") => {
                    let list = answer(id, &page("one", None));
                    (
                        "text/event-stream",
                        format!("event: message\ndata: {{\"method\":\"x\"}}\n\ndata: {list}\n\n"),
                    )
                }
                Some("tools/call") => {
                    let text = body["params"]["arguments"]["say"].clone();
                    let content = json!({"content": [{"type": "text", "text": text}]});
                    ("application/json", answer(id, &content))
                }
                _ => ("text/plain", String::new()),
            };
            let status = if text.is_empty() { "202 Accepted" } else { "200 OK" };
            write!(
                stream,
                "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\nmcp-session-id: abc\r\nconnection: close\r\n\
                 content-length: {}\r\n\r\n{text}",
                text.len()
            )
            .unwrap();
            let last = head.starts_with("delete");
            seen.push(head);
            if last {
                return seen;
            }
        }
        seen
    });
    let headers = BTreeMap::from([("Authorization".to_owned(), "Bearer k".to_owned())]);
    let mut server = Server::connect("web", &Target::Url { url, headers }).unwrap();
    assert_eq!(server.tools()[0].name, "one");
    let said = json!({"say": "hi"}).as_object().unwrap().clone();
    assert_eq!(server.call("one", said, TIME).unwrap().text, "hi");
    drop(server);
    let seen = served.join().unwrap();
    assert_eq!(seen.len(), 5, "{seen:?}");
    assert!(seen.iter().all(|head| head.contains("authorization: bearer k")));
    assert!(!seen[0].contains("mcp-session-id") && seen[0].contains("text/event-stream"));
    let known = |head: &String| head.contains("mcp-session-id: abc");
    assert!(seen[1..].iter().all(known), "{seen:?}");
    assert!(seen[2].contains("mcp-protocol-version: 2025-06-18"));
}
