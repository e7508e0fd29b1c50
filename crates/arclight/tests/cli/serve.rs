//! `serve`: options from three places, what it says, and how it ends.

use crate::support::{arclight, fails, run, succeeds, tiny};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

/// A server that runs, and is ended with the test.
pub(crate) struct Served {
    pub(crate) child: Child,
    pub(crate) err: BufReader<std::process::ChildStderr>,
    pub(crate) address: String,
}

impl Served {
    pub(crate) fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts the program with one thread and waits until it says what it serves; what it has said is given too.
pub(crate) fn serve(args: &[&str], variables: &[(&str, &str)]) -> (Served, String) {
    serve_plainly(&[&["--threads", "1"], args].concat(), variables)
}

/// The same with as many threads as it takes.
pub(crate) fn serve_plainly(args: &[&str], variables: &[(&str, &str)]) -> (Served, String) {
    let mut command = arclight(&[&["serve", "--port", "0"], args].concat());
    command.envs(variables.iter().copied()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("serving ") {
        assert_ne!(err.read_line(&mut said).unwrap(), 0, "it ended early: {said}");
    }
    let address = said.split("http://").last().unwrap().split('/').next().unwrap().to_owned();
    (Served { child, err, address }, said)
}

/// The status and the JSON of an answer to a request of JSON.
pub(crate) fn post(served: &Served, path: &str, body: &Value) -> (u16, Value) {
    let mut stream = TcpStream::connect(&served.address).unwrap();
    let body = body.to_string();
    let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close");
    let kind = "content-type: application/json";
    write!(stream, "{head}\r\n{kind}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap())
}

pub(crate) fn get(served: &Served, path: &str) -> String {
    let mut stream = TcpStream::connect(&served.address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// The answer to a prompt, and how many tokens of that were not computed.
pub(crate) fn complete(served: &Served, prompt: &str) -> (String, u64) {
    let body = json!({"prompt": prompt, "max_tokens": 8, "temperature": 0});
    let (_, answer) = post(served, "/v1/completions", &body);
    let cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    (answer["choices"][0]["text"].as_str().unwrap().to_owned(), cached)
}

#[test]
fn a_killed_server_loses_nothing_that_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("cache");
    let args = ["--ctx", "1024", "--cache-dir", folder.to_str().unwrap(), "--cache-bytes", "4M"];
    let prompts: Vec<String> =
        (0..4).map(|n| format!("{n} bears and {} bees. ", n + 1).repeat(20)).collect();
    let want: Vec<String> = {
        let (served, _) = serve(&["--ctx", "1024"], &[]);
        prompts.iter().map(|prompt| complete(&served, prompt).0).collect()
    };
    for round in 0..6 {
        let (mut served, _) = serve(&args, &[]);
        for (prompt, want) in prompts.iter().zip(&want) {
            assert_eq!(&complete(&served, prompt).0, want, "round {round}");
        }
        // In the middle of what is written, now here, now there.
        std::thread::sleep(std::time::Duration::from_millis(3 * round));
        served.child.kill().unwrap();
        served.child.wait().unwrap();
    }
    let pages = || std::fs::read_dir(&folder).unwrap().count();
    assert!(pages() > 0);
    let (served, _) = serve(&args, &[]);
    for (prompt, want) in prompts.iter().zip(&want) {
        let (answer, cached) = complete(&served, prompt);
        assert_eq!(&answer, want);
        assert!(cached > 64, "{cached} tokens found");
    }
    assert!(get(&served, "/metrics").contains("arclight:prefix_cache_disk_hits_total{"));
    let ran = run(&["serve", tiny(), "--port", "0", "--cache-dir", tiny()]);
    assert!(ran.code == Some(1) && ran.err.contains("prefix cache cannot be kept"), "{}", ran.err);
    let line = fails(2, &["serve", tiny(), "--cache-dir", "a", "--cache-bytes", "4x"]);
    assert!(line.contains("K, M, G or T"), "{line}");
}

#[test]
fn flags_come_before_variables_and_these_before_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("serve.toml");
    std::fs::write(
        &file,
        "alias = [\"of-file\"]\nparallel = 3\nqueue = 7\nctx = 128\nno_pin = true\n",
    )
    .unwrap();
    let config = file.to_str().unwrap();
    let (served, line) = serve(
        &["--config", config, "--ctx", "64"],
        &[("ARCLIGHT_PARALLEL", "2"), ("ARCLIGHT_CTX", "96")],
    );
    assert!(line.contains("serving of-file "), "{line}");
    assert!(line.contains("context 64, 2 slots, 7 may wait, 1 thread on 1 node"), "{line}");
    assert!(get(&served, "/v1/models").contains("\"of-file\""));
}

#[test]
fn the_ready_line_has_virtual_nodes_and_their_mode() {
    let (_served, line) = serve_plainly(&[tiny(), "--nodes", "2", "--threads", "2"], &[]);
    assert!(line.contains("2 threads on 2 nodes, tensor parallel"), "{line}");
}

#[test]
fn faults_of_the_file_and_of_variables_are_told_in_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("serve.toml");
    let path = file.to_str().unwrap();
    for (text, words) in [
        ("colour = 1", "colour is no option"),
        ("port = [1, 2]", "port must be"),
        ("no-pin = 1", "no-pin must be true or false"),
        ("port = 70000", "'70000' for '--port"),
        ("port = ", "line 1"),
        ("config = \"a\"", "config is no option"),
    ] {
        std::fs::write(&file, text).unwrap();
        let line = fails(2, &["serve", "--config", path]);
        assert!(line.contains(words), "{text}: {line}");
    }
    let line = fails(2, &["serve", "--config", "/no/such/file"]);
    assert!(line.contains("/no/such/file"), "{line}");
    let line = fails(2, &["serve", tiny(), "--cors-origin", "example.com"]);
    assert!(line.contains("is no origin"), "{line}");
    let line = fails(2, &["serve", tiny(), "--allowed-host", "http://a"]);
    assert!(line.contains("is no host name"), "{line}");
    let line = fails(2, &["serve", "--chat-format", "morse"]);
    assert!(line.contains("hermes"), "{line}");
    std::fs::write(&file, "# nobody\n\n").unwrap();
    let line = fails(1, &["serve", tiny(), "--api-key-file", path]);
    assert!(line.contains("has no keys"), "{line}");
}

#[test]
fn keys_come_from_a_file_too() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keys");
    std::fs::write(&file, "# mine\n secret \n").unwrap();
    let (served, _) = serve(&["--api-key-file", file.to_str().unwrap()], &[]);
    assert!(get(&served, "/v1/models").starts_with("HTTP/1.1 401"));
    assert!(get(&served, "/health").starts_with("HTTP/1.1 200"));
}

#[test]
fn a_signal_ends_it_cleanly() {
    let (mut served, _) = serve(&["--log-format", "json"], &[]);
    assert!(get(&served, "/v1/nothing").starts_with("HTTP/1.1 404"));
    let pid = served.child.id().to_string();
    assert!(std::process::Command::new("kill").arg(&pid).status().unwrap().success());
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
    let mut rest = String::new();
    served.err.read_to_string(&mut rest).unwrap();
    let logged = rest.lines().find(|line| line.starts_with('{')).unwrap();
    let logged: serde_json::Value = serde_json::from_str(logged).unwrap();
    assert_eq!((&logged["path"], &logged["status"]), (&"/v1/nothing".into(), &404.into()));
    assert!(rest.contains("stopping"), "{rest}");
}

#[test]
fn the_address_must_be_free() {
    let (served, _) = serve(&[], &[]);
    let port = served.address.rsplit(':').next().unwrap();
    let line = fails(1, &["serve", tiny(), "--port", port]);
    assert!(line.contains("cannot listen on 127.0.0.1"), "{line}");
}

#[test]
fn the_help_says_where_options_come_from() {
    let help = succeeds(&["serve", "--help"]);
    for word in ["ARCLIGHT_MAX_BODY", "--config", "--parallel", "--api-key-file", "--replicas"] {
        assert!(help.contains(word), "no {word}");
    }
}

/// Starts the program with several models and waits for the line that says which.
fn serve_several(args: &[&str]) -> (Served, String) {
    serve_plainly(args, &[])
}

fn models_of(served: &Served) -> Vec<(String, String)> {
    let text = get(served, "/v1/models");
    let list: Value = serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let each = |one: &Value| (text(&one["id"]), text(&one["status"]["value"]));
    list["data"].as_array().unwrap().iter().map(each).collect()
}

#[test]
fn a_folder_of_models_is_served_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/../../demo/arclight-demo.gguf");
    std::fs::create_dir(dir.path().join("inner")).unwrap();
    std::fs::copy(demo, dir.path().join("One story.gguf")).unwrap();
    std::fs::copy(demo, dir.path().join("inner/two.gguf")).unwrap();
    std::fs::write(dir.path().join("broken.gguf"), "GGUF").unwrap();
    std::fs::write(dir.path().join("notes.txt"), "none").unwrap();
    let folder = dir.path().to_str().unwrap();
    let (served, line) =
        serve_several(&["--models-dir", folder, "--max-models", "1", "--ctx", "256"]);
    assert!(
        line.contains("serving 2 models") && line.contains("One-story, two; 1 at once"),
        "{line}"
    );
    let unloaded = |name: &str| (name.to_owned(), "unloaded".to_owned());
    assert_eq!(models_of(&served), [unloaded("One-story"), unloaded("two")]);
    for name in ["two", "One-story"] {
        let body = json!({"model": name, "prompt": "One day", "max_tokens": 4});
        let (status, answer) = post(&served, "/v1/completions", &body);
        assert_eq!((status, &answer["model"]), (200, &json!(name)), "{answer}");
    }
    assert_eq!(models_of(&served), [("One-story".into(), "loaded".into()), unloaded("two")]);
    std::fs::remove_file(dir.path().join("broken.gguf")).unwrap();
    let line = fails(2, &["serve", "--models-dir", folder, "--pin", "three"]);
    assert!(line.contains("--pin three: there is no such model"), "{line}");
    let empty = tempfile::tempdir().unwrap();
    let line = fails(1, &["serve", "--models-dir", empty.path().to_str().unwrap()]);
    assert!(line.contains("has no models"), "{line}");
}

#[test]
fn models_have_options_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/../../demo/arclight-demo.gguf");
    let file = dir.path().join("serve.toml");
    let text = format!(
        "ctx = 192\nthreads = 1\n[models.short]\nmodel = {demo:?}\nctx = 64\npin = true\n\
         [models.long]\nmodel = {demo:?}\nalias = [\"long\", \"other\"]\n"
    );
    std::fs::write(&file, text).unwrap();
    let config = file.to_str().unwrap();
    let (served, line) = serve_several(&["--config", config]);
    assert!(line.contains("serving 2 models") && line.contains("long, short; 2 at once"), "{line}");
    for (name, context) in [("short", 64), ("other", 192)] {
        let body = json!({"model": name, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1});
        assert_eq!(post(&served, "/v1/chat/completions", &body).0, 200);
        let text = get(&served, &format!("/v1/models/{name}"));
        assert!(text.contains(&format!("\"max_model_len\":{context}")), "{text}");
    }
    // A file of the folder that a table names is there once.
    let demo = dir.path().join("one.gguf");
    std::fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/../../demo/arclight-demo.gguf"), &demo)
        .unwrap();
    std::fs::write(&file, format!("[models.chat]\nmodel = {demo:?}\nctx = 64\n")).unwrap();
    let folder = dir.path().to_str().unwrap();
    let (_served, line) = serve_several(&["--config", config, "--models-dir", folder]);
    assert!(line.contains("serving 1 model ") && line.contains(": chat; "), "{line}");
    for (text, words) in [
        ("models = 3", "must be tables"),
        ("[models.a]\nctx = 3", "models.a has no model"),
        ("[models.a]\nmodel = \"x\"\nport = 3", "port is about the server"),
        ("[models.a]\nmodel = \"x\"\npin = 3", "pin must be true or false"),
        ("[models.a]\nmodel = \"x\"\ncolour = 3", "models.a: colour is no option"),
    ] {
        std::fs::write(&file, text).unwrap();
        let line = fails(2, &["serve", "--config", config]);
        assert!(line.contains(words), "{text}: {line}");
    }
}

#[test]
fn the_service_manager_gives_sockets_and_is_told() {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixDatagram;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let told = UnixDatagram::bind(&path).unwrap();
    told.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    let hears = || {
        let mut words = [0; 256];
        let n = told.recv(&mut words).unwrap();
        String::from_utf8(words[..n].to_vec()).unwrap()
    };
    let keys = folder.path().join("keys");
    std::fs::write(&keys, "first\n").unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // As systemd does it: the socket is file 3, and the process knows that it is meant.
    let line = "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" serve --threads 1 --api-key-file \"$1\" 3<&0 </dev/null";
    let command = arclight(&[]);
    let program = command.get_program().to_owned();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", line]).arg(program).arg(&keys).env("NOTIFY_SOCKET", &path);
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.stdin(Stdio::from(OwnedFd::from(listener))).stderr(Stdio::piped());
    let mut child = shell.spawn().unwrap();
    let err = BufReader::new(child.stderr.take().unwrap());
    let mut served = Served { child, err, address };
    assert_eq!(hears().trim(), "READY=1");
    let status = |key: &str| {
        let mut stream = TcpStream::connect(&served.address).unwrap();
        let head = format!("authorization: Bearer {key}\r\nconnection: close");
        write!(stream, "GET /v1/models HTTP/1.1\r\nhost: localhost\r\n{head}\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text.split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!([status("first"), status("second")], ["200", "401"]);
    std::fs::write(&keys, "second\n").unwrap();
    let signal = |name: &str, child: &Child| {
        let kill =
            std::process::Command::new("kill").args([name, &child.id().to_string()]).status();
        assert!(kill.unwrap().success());
    };
    signal("-HUP", &served.child);
    let reloading = hears();
    assert!(
        reloading.contains("RELOADING=1") && reloading.contains("MONOTONIC_USEC="),
        "{reloading}"
    );
    assert_eq!(hears().trim(), "READY=1");
    assert_eq!([status("first"), status("second")], ["401", "200"]);
    // A file that changes is read without a signal, too.
    std::fs::write(&keys, "third\n").unwrap();
    let read = (0..600).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        status("third") == "200"
    });
    assert!(read && status("second") == "401");
    signal("-TERM", &served.child);
    assert_eq!(hears().trim(), "STOPPING=1");
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
}

#[test]
fn it_listens_in_several_places() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("a.sock");
    let host = format!("unix:{}", socket.display());
    let (served, line) = serve(&["--host", "127.0.0.1", "--host", &host], &[]);
    assert!(line.contains(&format!("/v1 and {host}: context")), "{line}");
    assert!(get(&served, "/health").starts_with("HTTP/1.1 200"));
    let mut stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    write!(stream, "GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    let line = fails(2, &["serve", tiny(), "--tls-cert", "a.pem"]);
    assert!(line.contains("--tls-key"), "{line}");
    let line = fails(1, &["serve", tiny(), "--tls-cert", tiny(), "--tls-key", tiny()]);
    assert!(line.contains("no certificate"), "{line}");
}
