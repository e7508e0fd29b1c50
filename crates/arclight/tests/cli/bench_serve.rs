//! `bench-serve`: its options, and what it prints and writes, against a server of a few lines.

use crate::support::{fails, file, output, succeeds};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

/// A server that answers every completion at once, with a token per word asked for.
struct Server(String);

impl Server {
    fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        // It ends with the tests.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || answer(&stream));
            }
        });
        Server(url)
    }
}

/// One request per connection.
fn answer(mut stream: &TcpStream) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let head = head.to_lowercase();
    let length = head.lines().find_map(|l| l.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |l| l.trim().parse().unwrap())];
    reader.read_exact(&mut body).ok()?;
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let path = head.split(' ').nth(1)?;
    let (status, kind, text) = match path {
        "/v1/models" => (200, "application/json", json!({"data": [{"id": "quick"}]}).to_string()),
        "/v1/completions" => {
            let words = body["prompt"].as_str()?.split(' ').count();
            let tokens = body["max_tokens"].as_u64()?;
            let token = |_| "data: {\"choices\": [{\"text\": \" a\"}]}\n\n".to_owned();
            let end = json!({"choices": [{"text": "", "finish_reason": "length"}],
                "usage": {"prompt_tokens": words, "completion_tokens": tokens}});
            let events: String = (0..tokens).map(token).collect();
            (200, "text/event-stream", format!("{events}data: {end}\n\ndata: [DONE]\n\n"))
        }
        _ => (404, "application/json", "{}".to_owned()),
    };
    write!(
        stream,
        "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{text}",
        text.len()
    )
    .ok()
}

#[test]
fn rates_give_tables_a_file_and_a_plot() {
    let server = Server::start();
    let plot = output("serve.svg");
    let args = [
        "bench-serve",
        &server.0,
        "--rate",
        "50,100",
        "-n",
        "12",
        "--input-len",
        "20",
        "--output-len",
        "4",
        "--seed",
        "3",
        "--slo-ttft",
        "60000",
        "--slo-tpot",
        "60000",
        "--slo-scale",
        "0.0000001,1",
        "--plot",
        &plot,
    ];
    let out = succeeds(&args);
    for part in [
        "quick at http://127.0.0.1",
        "prompts 20 tokens, answers 4 tokens, seed 3",
        "50 arrivals per second, Poisson",
        "12 answered, 0 failed",
        "TTFT: first token",
        "lag of this generator",
        "all runs",
        "× 1: at least 100/s",
        "× 0.0000001: none of these rates",
    ] {
        assert!(out.contains(part), "no {part:?} in: {out}");
    }
    assert!(out.lines().all(|line| line.chars().count() <= 100), "{out}");

    let again = succeeds(&[&args[..], &["-o", "json"]].concat());
    let report: Value = serde_json::from_str(&again).unwrap();
    assert_eq!(report["schema"], "arclight-bench-serve/1");
    assert_eq!(report["counts_by"], "usage");
    for (level, rate) in report["levels"].as_array().unwrap().iter().zip([50.0, 100.0]) {
        assert_eq!(level["load"]["rate"], rate);
        let requests = level["requests"].as_array().unwrap();
        assert_eq!(requests.len(), 12);
        for request in requests {
            assert_eq!(
                (&request["outcome"], &request["input_tokens"]),
                (&"done".into(), &20.into())
            );
            assert_eq!(request["token_times_ms"].as_array().unwrap().len(), 4);
        }
    }
    let svg = std::fs::read_to_string(&plot).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
}

#[test]
fn streams_and_files() {
    let server = Server::start();
    let lines =
        "{\"prompt\": \"one two\", \"output_len\": 2}\n{\"input_len\": 7, \"output_len\": 1}\n";
    let data = file("asked.jsonl", lines.as_bytes());
    let out = succeeds(&["bench-serve", &server.0, "--concurrency", "2", "--dataset", &data]);
    assert!(out.contains("2 streams") && out.contains("2 answered, 0 failed"), "{out}");
    assert!(!out.contains("from sending"), "{out}");

    let bad = file("not-asked.jsonl", b"{\"prompt\": \"one two\"}\n");
    let line = fails(1, &["bench-serve", &server.0, "--dataset", &bad]);
    assert!(line.contains("not-asked.jsonl line 1: output_len is missing"), "{line}");
    let line = fails(1, &["bench-serve", &server.0, "--dataset", "none.jsonl"]);
    assert!(line.contains("none.jsonl"), "{line}");
}

#[test]
fn faults_of_the_command_line() {
    let with = |args: &[&str]| fails(2, &[&["bench-serve", "http://127.0.0.1:9"], args].concat());
    for (args, part) in [
        (&["--rate", "0"][..], "no positive number"),
        (&["--rate", "1,x"], "\"x\" is no positive number"),
        (&["--rate", "1", "--concurrency", "2"], "cannot be used with"),
        (&["--rate", "1", "--burstiness", "0.001"], "burstiness is 0.001"),
        (&["--burstiness", "2"], "--rate"),
        (&["--concurrency", "0"], "at least 1"),
        (&["-n", "0"], "at least 1"),
        (&["--trace", "none"], "azure-code"),
        (&["--dataset", "x", "--input-len", "5"], "cannot be used with"),
        (&["--slo-ttft", "200"], "--slo-tpot"),
        (&["--slo-scale", "2"], "--slo-ttft"),
        (&["--slo-ttft", "1", "--slo-tpot", "1", "--slo-target", "101"], "slo-target is 101"),
        (&["--intruder-every", "5"], "--intruder-len"),
        (&["--body", "[]"], "object"),
        (&["--timeout", "0"], "no positive number"),
        (&["--plot", "/nonexistent/out.svg"], "no directory"),
        (&["--plot", "/"], "is a directory"),
    ] {
        let line = with(args);
        assert!(line.contains(part), "{args:?}: {line}");
    }
    for (url, part) in [
        ("https://localhost", "https is not supported"),
        ("localhost:8080", "http://HOST:PORT"),
        ("http://h:99999", "port"),
    ] {
        let line = fails(2, &["bench-serve", url]);
        assert!(line.contains(part), "{url}: {line}");
    }
}

#[test]
fn a_server_that_does_not_answer() {
    // Bound and given back: nobody listens there.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let line = fails(1, &["bench-serve", &format!("http://127.0.0.1:{port}")]);
    assert!(line.contains("does not answer: connection refused"), "{line}");
    // A trace that has no answer so short is the command line's fault, told before anybody is asked.
    let url = format!("http://127.0.0.1:{port}");
    let line = fails(2, &["bench-serve", &url, "--trace", "azure-conv", "--max-output-len", "3"]);
    assert!(line.contains("the shortest of azure-conv is 7"), "{line}");
}
