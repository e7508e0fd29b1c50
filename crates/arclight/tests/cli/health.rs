//! `health`: an exit code and a line; and the port that Kubernetes sets.

use crate::serve::{Served, serve};
use crate::support::{arclight, fails, succeeds};
use std::io::{BufRead, BufReader};
use std::process::Stdio;

/// An address on which nobody listens.
fn free_address() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

#[test]
fn health_is_an_exit_code_and_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("a.sock");
    let host = format!("unix:{}", socket.display());
    let (served, _) = serve(&["--host", "127.0.0.1", "--host", &host], &[]);
    let url = format!("http://{}", served.address);
    assert_eq!(succeeds(&["health", &url]), "ok: 0 running, 0 waiting\n");
    assert_eq!(
        succeeds(&["health", "--unix", socket.to_str().unwrap()]),
        "ok: 0 running, 0 waiting\n"
    );
    assert_eq!(succeeds(&["health", &host]), "ok: 0 running, 0 waiting\n");
    // Another path of the same server, which it does not have.
    let line = fails(1, &["health", &format!("{url}/nowhere")]);
    assert!(line.contains("404: there is no /nowhere"), "{line}");
    let line = fails(1, &["health", &format!("http://{}", free_address())]);
    assert!(line.ends_with("connection refused"), "{line}");
    let line = fails(1, &["health", "--unix", "/nowhere.sock"]);
    assert!(line.contains("unix:/nowhere.sock: no such file"), "{line}");
    // A server that takes the connection and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("http://{}", silent.local_addr().unwrap());
    let line = fails(1, &["health", "--timeout", "1", &silent]);
    assert!(line.contains("no answer in 1 s"), "{line}");
    for wrong in ["localhost:8080", "ftp://a", "http://"] {
        fails(2, &["health", wrong]);
    }
}

#[test]
fn health_finds_the_only_server_of_the_machine() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = [("XDG_RUNTIME_DIR", folder.path().to_str().unwrap())];
    let asked = || {
        let mut command = arclight(&["health"]);
        command.envs(runtime);
        crate::support::ran(command.output().unwrap())
    };
    let (_first, _) = serve(&[], &runtime);
    assert_eq!(asked().code, Some(0));
    let (_second, _) = serve(&[], &runtime);
    let line = crate::support::complains(2, &asked());
    assert!(line.contains("several servers"), "{line}");
}

#[test]
fn health_asks_by_tls_without_a_look_at_the_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let [certificate, key] = ["tls.crt", "tls.key"].map(|name| folder.path().join(name));
    let pair = rcgen::generate_simple_self_signed(vec!["somewhere.example".to_owned()]).unwrap();
    std::fs::write(&certificate, pair.cert.pem()).unwrap();
    std::fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
    let [certificate, key] = [&certificate, &key].map(|path| path.to_str().unwrap());
    let mut command = arclight(&[
        "serve",
        "--threads",
        "1",
        "--port",
        "0",
        "--tls-cert",
        certificate,
        "--tls-key",
        key,
    ]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("serving ") {
        line.clear();
        assert_ne!(err.read_line(&mut line).unwrap(), 0, "it ended early");
    }
    let address = line.split("https://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    let _served = Served { child, err, address: address.clone() };
    assert!(succeeds(&["health", &format!("https://{address}")]).starts_with("ok: "));
    fails(1, &["health", &format!("http://{address}")]);
}

#[test]
fn what_kubernetes_says_of_a_service_is_not_the_port() {
    let port = free_address().rsplit(':').next().unwrap().to_owned();
    let mut command = arclight(&["serve", "--threads", "1", "--host", "127.0.0.1"]);
    let file = crate::support::file("linked.toml", format!("port = {port}").as_bytes());
    command.args(["--config", &file]).env("ARCLIGHT_PORT", "tcp://10.0.0.1:80");
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("\nserving ") {
        assert_ne!(err.read_line(&mut said).unwrap(), 0, "it ended early: {said}");
    }
    let _served = Served { child, err, address: String::new() };
    assert!(said.contains(&format!("127.0.0.1:{port}/v1")), "{said}");
    assert!(said.contains("ARCLIGHT_PORT=tcp://10.0.0.1:80 is not taken"), "{said}");
    // A value that is neither is a fault, as before.
    let mut command = arclight(&["serve"]);
    let ran = crate::support::ran(command.env("ARCLIGHT_PORT", "http").output().unwrap());
    crate::support::complains(2, &ran);
}
