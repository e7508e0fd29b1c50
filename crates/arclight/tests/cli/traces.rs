//! Traces: what a collector gets of requests, and that nothing is sent where none is wanted.

use crate::serve::{Served, post, serve};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// A collector: its address, and requests that it got, as head and JSON.
fn collector() -> (String, Receiver<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (told, heard) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let told = told.clone();
            std::thread::spawn(move || {
                take(stream.unwrap(), |head, body| told.send((head, body)).is_ok());
            });
        }
    });
    (address, heard)
}

/// Reads requests of a connection and answers them.
fn take(stream: TcpStream, told: impl Fn(String, Value) -> bool) {
    let mut read = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if read.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let head = head.to_lowercase();
        let length = head.split("content-length: ").nth(1).unwrap().lines().next().unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        read.read_exact(&mut body).unwrap();
        if !told(head, serde_json::from_slice(&body).unwrap()) {
            return;
        }
        let answer =
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
        stream.write_all(answer.as_bytes()).unwrap();
    }
}

/// Spans of an export, and the resource's attributes.
fn spans(export: &Value) -> (Vec<Value>, Value) {
    let all = &export["resourceSpans"][0];
    let scopes = all["scopeSpans"].as_array().unwrap();
    let spans = scopes.iter().flat_map(|scope| scope["spans"].as_array().unwrap().clone());
    (spans.collect(), all["resource"]["attributes"].clone())
}

/// The value of an attribute, of whatever type it is.
fn attribute(attributes: &Value, key: &str) -> Value {
    let all = attributes.as_array().unwrap();
    let found = all.iter().find(|one| one["key"] == key);
    let found = found.unwrap_or_else(|| panic!("no {key} in {attributes}"));
    found["value"].as_object().unwrap().values().next().unwrap().clone()
}

fn number(value: &Value) -> u64 {
    // 64 bits are text in protobuf's JSON.
    value.as_u64().unwrap_or_else(|| value.as_str().unwrap().parse().unwrap())
}

fn stop(served: &Served) {
    let id = served.child.id().to_string();
    assert!(std::process::Command::new("kill").arg(&id).status().unwrap().success());
}

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

#[test]
fn a_collector_gets_requests_and_the_parts_of_their_time() {
    let (address, heard) = collector();
    let variables = [
        ("OTEL_SERVICE_NAME", "stories"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=seven"),
        ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test"),
    ];
    let (served, _) = serve(&["--otlp-endpoint", &address, "--alias", "demo"], &variables);
    let body = json!({"prompt": "One secret day", "max_tokens": 5, "ignore_eos": true, "n": 2, "stream": true}).to_string();
    let mut stream = TcpStream::connect(&served.address).unwrap();
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntraceparent: 00-{TRACE}-{PARENT}-01"
    );
    write!(
        stream,
        "{head}\r\nx-request-id: mine-1\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    // Of another trace, and with a fault.
    assert_eq!(post(&served, "/v1/completions", &json!({"prompt": 5})).0, 400);
    stop(&served);
    let (mut all, mut resource) = (Vec::new(), Value::Null);
    while let Ok((head, export)) = heard.recv_timeout(Duration::from_secs(10)) {
        assert!(head.starts_with("post /v1/traces ") && head.contains("x-tenant: seven"), "{head}");
        let (spans, of) = spans(&export);
        all.extend(spans);
        resource = of;
        if all.iter().filter(|span| span["kind"] == 2).count() == 2 {
            break;
        }
    }
    assert_eq!(attribute(&resource, "service.name"), "stories");
    assert_eq!(attribute(&resource, "deployment.environment"), "test");
    let named = |name: &str| {
        all.iter()
            .filter(|span| span["name"] == name && span["traceId"] == TRACE)
            .collect::<Vec<_>>()
    };
    let [request] = named("POST /v1/completions")[..] else { panic!("{all:#?}") };
    assert_eq!(request["parentSpanId"], PARENT);
    let of = |key: &str| attribute(&request["attributes"], key);
    assert_eq!(of("http.route"), "/v1/completions");
    assert_eq!(number(&of("http.response.status_code")), 200);
    assert_eq!(of("gen_ai.operation.name"), "text_completion");
    assert_eq!(of("gen_ai.request.model"), "demo");
    assert_eq!(of("arclight.request.id"), "mine-1");
    assert_eq!(number(&of("gen_ai.usage.output_tokens")), 10);
    let prompt_tokens = number(&of("gen_ai.usage.input_tokens"));
    let time = |span: &Value, key: &str| number(&span[key]);
    for name in ["queue", "prompt", "decode"] {
        let parts = named(name);
        assert_eq!(parts.len(), 2, "{name}, one for each choice");
        for part in parts {
            assert_eq!(part["parentSpanId"], request["spanId"], "{name}");
            let (from, to) = (time(part, "startTimeUnixNano"), time(part, "endTimeUnixNano"));
            assert!(
                from <= to && to <= time(request, "endTimeUnixNano") + 1_000_000,
                "{name}: {part}"
            );
            // Two clocks are read one after the other.
            assert!(from + 1_000_000 >= time(request, "startTimeUnixNano"), "{name}: {part}");
        }
    }
    let decode = &named("decode")[0]["attributes"];
    assert_eq!(number(&attribute(decode, "gen_ai.usage.output_tokens")), 5);
    assert!(attribute(decode, "gen_ai.response.finish_reasons").to_string().contains("length"));
    let prompt = &named("prompt")[0]["attributes"];
    assert_eq!(number(&attribute(prompt, "gen_ai.usage.input_tokens")), prompt_tokens);
    // The other request began a trace of its own, and no text is in any.
    let other = all.iter().find(|span| span["traceId"] != TRACE).unwrap();
    assert_eq!(number(&attribute(&other["attributes"], "http.response.status_code")), 400);
    assert!(!format!("{all:?}").contains("secret"), "{all:#?}");
}

#[test]
fn nothing_is_sent_where_none_is_wanted() {
    let (address, heard) = collector();
    // The usual variable turns it on, and the other one off.
    for (disabled, count) in [("true", 0), ("false", 1)] {
        let variables =
            [("OTEL_EXPORTER_OTLP_ENDPOINT", &*address), ("OTEL_SDK_DISABLED", disabled)];
        let (mut served, _) = serve(&[], &variables);
        assert_eq!(
            post(&served, "/v1/completions", &json!({"prompt": "a", "max_tokens": 1})).0,
            200
        );
        stop(&served);
        served.child.wait().unwrap();
        let got = heard.recv_timeout(Duration::from_secs(if count == 0 { 1 } else { 10 })).is_ok();
        assert_eq!(got, count == 1, "OTEL_SDK_DISABLED={disabled}");
    }
    // A collector that is not there costs nothing but the traces.
    let (served, _) = serve(&["--otlp-endpoint", "http://127.0.0.1:9"], &[]);
    for _ in 0..3 {
        assert_eq!(
            post(&served, "/v1/completions", &json!({"prompt": "a", "max_tokens": 1})).0,
            200
        );
    }
    let line = crate::support::fails(2, &["serve", "--otlp-endpoint", "localhost:4318"]);
    assert!(line.contains("must begin with http://"), "{line}");
}
