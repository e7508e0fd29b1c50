//! What operators have of `serve`: addresses of their own, options that change, and a log that keeps secrets.

use crate::serve::{Served, get, post};
use crate::support::{arclight, complains, file, output, ran, tiny};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

/// Starts the program and reads what it says until `last` is in a line; that, and all lines so far.
fn start(args: &[&str], variables: &[(&str, &str)], last: &str) -> (Served, String) {
    let mut command = arclight(&[&["serve", "--threads", "1", "--port", "0"], args].concat());
    command.envs(variables.iter().copied()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let err = BufReader::new(child.stderr.take().unwrap());
    let mut served = Served { child, err, address: String::new() };
    let said = served.hears(last);
    served.address = address(&said, "on http://");
    (served, said)
}

/// The first address behind a text.
fn address(said: &str, before: &str) -> String {
    said.split_once(before)
        .map_or("", |(_, rest)| rest)
        .split(['/', ' ', ',', '\n'])
        .next()
        .unwrap()
        .to_owned()
}

impl Served {
    /// What it says until `last` is in a line.
    pub(crate) fn hears(&mut self, last: &str) -> String {
        let mut said = String::new();
        loop {
            let from = said.len();
            assert_ne!(self.err.read_line(&mut said).unwrap(), 0, "it ended early: {said}");
            if said[from..].contains(last) {
                return said;
            }
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(std::process::Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    fn at(&self, address: &str, path: &str) -> u16 {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nhost: localhost\r\naccept: text/html\r\nconnection: close\r\n\r\n"
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text.split(' ').nth(1).unwrap().parse().unwrap()
    }
}

#[test]
fn what_is_for_operators_has_an_address_of_its_own() {
    let (mut served, said) = start(&["--admin-listen", "127.0.0.1:0"], &[], "serving ");
    let operators = address(&said, "for operators: http://");
    assert_ne!(operators, served.address);
    for path in ["/metrics", "/status", "/status.json", "/slots"] {
        assert_eq!(served.at(&served.address, path), 404, "{path}");
        assert_eq!(served.at(&operators, path), 200, "{path}");
    }
    for path in ["/v1/models", "/health", "/lora-adapters"] {
        assert_eq!(served.at(&served.address, path), 200, "{path}");
        assert_eq!(served.at(&operators, path), 200, "{path}");
    }
    for path in ["/", "/props", "/docs"] {
        assert_eq!(served.at(&served.address, path), 200, "{path}");
        assert_eq!(served.at(&operators, path), 404, "{path}");
    }
    // Nothing is asked of a model there.
    let clients = std::mem::replace(&mut served.address, operators);
    assert_eq!(post(&served, "/v1/completions", &json!({"prompt": "a"})).0, 404);
    assert_eq!(post(&served, "/lora-adapters", &json!([])).0, 200);
    served.address = clients;
    assert_eq!(post(&served, "/v1/completions", &json!({"prompt": "a", "max_tokens": 1})).0, 200);
    assert_eq!(post(&served, "/lora-adapters", &json!([])).0, 404);
    // Without such an address all is at one.
    let (served, _) = start(&[], &[], "serving ");
    assert_eq!(served.at(&served.address, "/metrics"), 200);
    for (wrong, why) in [("nowhere", "nowhere: "), ("127.0.0.1", "127.0.0.1: ")] {
        let ran = ran(arclight(&["serve", tiny(), "--admin-listen", wrong]).output().unwrap());
        let line = complains(2, &ran);
        assert!(line.contains("--admin-listen") && line.contains(why), "{line}");
    }
}

#[test]
fn all_lines_are_json_where_that_is_wanted() {
    let log = output("json-lines.log");
    let mut command = arclight(&["serve", "--threads", "1", "--port", "0", "--log-format", "json"]);
    let mut child = command.stderr(Stdio::from(File::create(&log).unwrap())).spawn().unwrap();
    let text = || fs::read_to_string(&log).unwrap();
    wait(|| text().contains("serving demo-model"));
    let kill = std::process::Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert!(kill.success() && child.wait().unwrap().success());
    let lines: Vec<Value> = text()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect();
    let messages: Vec<&str> = lines.iter().map(|line| line["message"].as_str().unwrap()).collect();
    for part in ["listening on http://", "serving demo-model on http://", "stopping: "] {
        assert!(messages.iter().any(|message| message.starts_with(part)), "{messages:?}");
    }
    // The line that says why it ends, too.
    let args = ["serve", "--log-format", "json", "--host", "192.0.2.1"];
    let failed = ran(arclight(&args).output().unwrap());
    let line: Value = serde_json::from_str(failed.err.lines().last().unwrap()).unwrap();
    assert_eq!((failed.code, line["level"].as_str()), (Some(1), Some("ERROR")), "{}", failed.err);
}

fn wait(done: impl Fn() -> bool) {
    for _ in 0..1200 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("it did not happen within a minute");
}

/// What must not be in a log.
const SECRET: &str = "xyzzy-secret-4711";

#[test]
fn texts_keys_and_queries_are_in_no_log() {
    for level in ["info", "debug"] {
        let log = output(&format!("secrets-{level}.log"));
        let keys =
            file(&format!("secrets-{level}.keys"), format!("{SECRET}-key name=ci\n").as_bytes());
        let args = ["serve", "--threads", "1", "--port", "0", "--api-key-file", &keys];
        let mut command = arclight(&args);
        command.env("ARCLIGHT_LOG", level).stderr(Stdio::from(File::create(&log).unwrap()));
        let child = command.spawn().unwrap();
        let text = || fs::read_to_string(&log).unwrap();
        wait(|| text().contains("serving demo-model"));
        let at = address(&text(), "on http://");
        let mut empty = std::process::Command::new("true").stderr(Stdio::piped()).spawn().unwrap();
        let err = BufReader::new(empty.stderr.take().unwrap());
        empty.wait().unwrap();
        let served = Served { child, err, address: at };
        let said = format!("Say {SECRET}.");
        let messages =
            json!([{"role": "system", "content": said}, {"role": "user", "content": said}]);
        let sampling = json!({"max_tokens": 2, "user": SECRET, "metadata": {"a": SECRET}, "stop": [SECRET],
            "prompt_cache_key": SECRET, "safety_identifier": SECRET, "unknown": SECRET});
        let with = |more: Value| {
            let mut body = sampling.clone();
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            body
        };
        let tools = json!([{"type": "function", "function": {"name": "f", "description": SECRET,
            "parameters": {"type": "object", "description": SECRET}}}, {"type": "web_search", "name": SECRET}]);
        let bodies = [
            ("/v1/chat/completions", with(json!({"messages": messages}))),
            ("/v1/chat/completions", with(json!({"messages": messages, "tools": tools}))),
            ("/v1/chat/completions", with(json!({"messages": messages, "model": SECRET}))),
            ("/v1/chat/completions", with(json!({"messages": messages, "temperature": SECRET}))),
            ("/v1/chat/completions", with(json!({"messages": messages, "stream": true, "n": 2}))),
            (
                "/v1/chat/completions",
                with(json!({"messages": [{"role": SECRET, "content": SECRET}]})),
            ),
            (
                "/v1/chat/completions",
                with(json!({"messages": messages, "response_format":
                {"type": "json_schema", "json_schema": {"name": SECRET, "schema": {"type": SECRET}}}})),
            ),
            (
                "/v1/chat/completions",
                with(json!({"messages": [{"role": "user", "content": [{"type": "image_url",
                "image_url": {"url": format!("https://a.example/{SECRET}?token={SECRET}")}}]}]})),
            ),
            ("/v1/completions", with(json!({"prompt": said, "suffix": SECRET}))),
            ("/v1/completions", with(json!({"prompt": said}))),
            (
                "/v1/responses",
                with(json!({"input": said, "instructions": said, "previous_response_id": SECRET})),
            ),
            (
                "/v1/responses",
                json!({"input": said, "instructions": said, "max_output_tokens": 2, "tools": tools}),
            ),
            (
                "/v1/messages",
                with(json!({"system": said, "messages": [{"role": "user", "content": said}]})),
            ),
            ("/v1/embeddings", json!({"input": said, "user": SECRET})),
            ("/v1/rerank", json!({"query": said, "documents": [said]})),
            (
                "/api/chat",
                json!({"model": "demo-model", "messages": messages, "stream": false,
                "options": {"num_predict": 2, "num_ctx": 1 << 20, "unknown": SECRET}}),
            ),
            ("/api/generate", json!({"model": SECRET, "prompt": said, "system": said})),
            ("/tokenize", json!({"content": said})),
            ("/completion", json!({"prompt": said, "n_predict": 2, "grammar": SECRET})),
            ("/slots/0?action=erase", json!({"filename": SECRET})),
        ];
        for (path, body) in &bodies {
            let query = if path.contains('?') { "&" } else { "?" };
            for key in [format!("{SECRET}-key"), format!("{SECRET}-wrong")] {
                let mut stream = TcpStream::connect(&served.address).unwrap();
                let body = body.to_string();
                let headers = format!(
                    "authorization: Bearer {key}\r\ncookie: a={SECRET}\r\nuser-agent: {SECRET}\r\nreferer: {SECRET}\r\n\
                     x-api-key: {SECRET}\r\nx-forwarded-for: {SECRET}\r\ntraceparent: {SECRET}\r\n\
                     content-type: application/json; charset={SECRET}\r\nx-other: {SECRET}\r\nconnection: close"
                );
                let head = format!(
                    "POST {path}{query}key={SECRET} HTTP/1.1\r\nhost: {SECRET}\r\n{headers}"
                );
                write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).unwrap();
                assert!(answer.starts_with("HTTP/1.1 "), "{path}: {answer}");
            }
        }
        assert!(get(&served, &format!("/v1/models?key={SECRET}")).starts_with("HTTP/1.1 401"));
        served.signal("-TERM");
        wait(|| text().contains("stopping"));
        let text = text();
        // It was logged at all, with ids and paths.
        assert!(text.contains("/v1/chat/completions") && text.contains("answer"), "{text}");
        let found: Vec<&str> = text.lines().filter(|line| line.contains(SECRET)).collect();
        assert!(found.is_empty(), "{level}: {found:#?}");
    }
}

#[test]
fn options_change_at_a_signal_and_a_wrong_file_changes_nothing() {
    let config = file("reload.toml", b"temp = 0.5\nqueue = 4\n");
    let (mut served, _) = start(&["--config", &config, "--alias", "demo"], &[], "serving ");
    let temperature = |served: &Served| {
        let text = get(served, "/props");
        let props: Value = serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap();
        let value = &props["default_generation_settings"]["params"]["temperature"];
        value.as_f64().unwrap_or_else(|| panic!("{props}"))
    };
    let reload = |served: &mut Served, text: &str| {
        fs::write(&config, text).unwrap();
        served.signal("-HUP");
        served.hears("were read again")
    };
    let many = json!({"prompt": "a", "n": 20, "best_of": 20, "max_tokens": 1});
    assert_eq!(temperature(&served), 0.5);
    let said =
        reload(&mut served, "temp = 0.25\nqueue = 64\nport = 1\nparallel = 3\nlog = \"debug\"");
    assert!(said.contains("options have changed options=\"log, queue, temp\""), "{said}");
    assert!(
        said.contains("until a restart options=\"parallel\""),
        "port is said on the command line: {said}"
    );
    assert_eq!(temperature(&served), 0.25);
    assert_eq!(post(&served, "/v1/completions", &many).0, 200);
    // Probes are in the log at this level only.
    assert!(get(&served, "/health").starts_with("HTTP/1.1 200"));
    served.hears("path=\"/health\"");

    for (wrong, why) in [
        ("temp = -1\nqueue = 0", "temperature"),
        ("queue = \"many\"\ntemp = 1", "queue"),
        ("tmep = 1", "tmep is no option"),
        ("temp = 1\nlog = \"arclight=loud\"", "is no filter"),
        ("temp = ", "line 1"),
    ] {
        let said = reload(&mut served, wrong);
        assert!(
            said.contains("options stay as they were") && said.contains(why),
            "{wrong}: {said}"
        );
        assert_eq!(temperature(&served), 0.25, "{wrong}");
        assert_eq!(post(&served, "/v1/completions", &many).0, 200, "{wrong}");
    }
    let said = reload(&mut served, "max-choices = 1\nmax-body = 1\nrequest-timeout = 1");
    assert!(said.contains("log, max-body, max-choices, request-timeout, temp"), "{said}");
    assert_eq!(temperature(&served), 1.0);
    assert_eq!(post(&served, "/v1/completions", &many).0, 400);
}

#[test]
fn options_of_models_change_too() {
    let model = tiny();
    let table = |more: &str| format!("[models.one]\nmodel = {model:?}\nctx = 64\n{more}");
    let config = file("reload-several.toml", table("temp = 0.5\n").as_bytes());
    let (mut served, _) = start(&["--config", &config], &[], "serving ");
    let ask = |served: &Served, n: u64| {
        post(
            served,
            "/v1/completions",
            &json!({"model": "one", "prompt": [1], "n": n, "max_tokens": 1}),
        )
    };
    assert_eq!(ask(&served, 2).0, 200);
    let more = "max-choices = 1\nkeep-alive = \"0s\"\nparallel = 2\n[models.two]\nmodel = \"b\"\n";
    fs::write(&config, table(&more.replace("\"b\"", &format!("{model:?}")))).unwrap();
    served.signal("-HUP");
    let said = served.hears("were read again");
    assert!(
        said.contains("models.one.keep-alive, models.one.max-choices, models.one.temp"),
        "{said}"
    );
    assert!(
        said.contains("until a restart options=\"models.one.parallel, models.two.model\""),
        "{said}"
    );
    assert_eq!(ask(&served, 2).0, 400);
    // Nobody has asked for it for long enough now.
    served.hears("unloaded");
}
