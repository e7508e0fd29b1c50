//! `serve --manage-models`: models that clients fetch, make, copy and delete, also after a restart.

use crate::serve::{Served, serve_plainly};
use crate::support::fails;
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use testkit::FakeHub;

const REPO: &str = "Qwen/Qwen3-0.6B-GGUF";
const FILE: &str = "Qwen3-0.6B-Q8_0.gguf";

fn demo() -> Vec<u8> {
    fs::read(testkit::repository("demo/arclight-demo.gguf")).unwrap()
}

fn start(folder: &Path, hub: &FakeHub) -> Served {
    let folder = folder.to_str().unwrap();
    let endpoint = hub.endpoint();
    let variables = [("HF_ENDPOINT", &*endpoint), ("HOME", folder)];
    serve_plainly(&["--models-dir", folder, "--manage-models", "--ctx", "256"], &variables).0
}

/// Status and text of an answer, which ends with its connection.
pub(crate) fn send(served: &Served, method: &str, path: &str, body: &Value) -> (u16, String) {
    let mut stream = TcpStream::connect(served.address()).unwrap();
    let body = body.to_string();
    write!(stream, "{method} {path} HTTP/1.0\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn names(served: &Served) -> Vec<String> {
    let (_, text) = send(served, "GET", "/api/tags", &json!(null));
    let tags: Value = serde_json::from_str(&text).unwrap();
    let each = |tag: &Value| tag["name"].as_str().unwrap().to_owned();
    let mut all: Vec<String> = tags["models"].as_array().unwrap().iter().map(each).collect();
    all.sort();
    all
}

fn says(served: &Served, model: &str) -> Value {
    let body = json!({"model": model, "stream": false, "options": {"temperature": 0, "num_predict": 6},
        "messages": [{"role": "user", "content": "Hi"}]});
    let (status, text) = send(served, "POST", "/api/chat", &body);
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

fn prompt(served: &Served, model: &str) -> String {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "Hi"}]});
    send(served, "POST", "/apply-template", &body).1
}

#[test]
fn models_are_fetched_made_copied_and_deleted() {
    let (dir, hub) = (tempfile::tempdir().unwrap(), FakeHub::default());
    hub.put_file(REPO, FILE, &demo());
    let served = start(dir.path(), &hub);
    assert_eq!(names(&served), [""; 0]);

    let (status, text) = send(&served, "POST", "/api/pull", &json!({"model": "qwen3:0.6b"}));
    let told = lines(&text);
    assert_eq!((status, &told[0]["status"]), (200, &json!("pulling manifest")));
    assert_eq!(told.last().unwrap()["status"], "success", "{text}");
    let file = told.iter().rfind(|line| line["total"].is_u64()).unwrap();
    assert_eq!(file["total"], demo().len());
    assert!(file["digest"].as_str().unwrap().starts_with("sha256:"), "{file}");
    assert_eq!(names(&served), ["qwen3:0.6b"]);
    says(&served, "qwen3:0.6b");

    let made = json!({"model": "brief", "from": "qwen3:0.6b", "system": "Be very brief.",
        "parameters": {"temperature": 0.25, "stop": ["."], "num_ctx": 128}, "stream": false});
    let (status, text) = send(&served, "POST", "/api/create", &made);
    assert_eq!((status, &*text), (200, r#"{"status":"success"}"#));
    assert!(prompt(&served, "brief").contains("Be very brief."));
    assert!(!prompt(&served, "qwen3:0.6b").contains("Be very brief."));
    let template = json!({"model": "odd", "from": "brief", "stream": false,
        "template": "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"});
    assert_eq!(send(&served, "POST", "/api/create", &template).0, 200);
    assert!(
        prompt(&served, "odd").contains("<system>Be very brief.<user>Hi"),
        "what it was made of holds"
    );
    let copy = json!({"source": "brief", "destination": "other:latest"});
    assert_eq!(send(&served, "POST", "/api/copy", &copy), (200, String::new()));
    drop(served);

    let served = start(dir.path(), &hub);
    let all = ["brief:latest", "odd:latest", "other:latest", "qwen3:0.6b"];
    assert_eq!(names(&served), all);
    says(&served, "other");
    let (_, text) = send(&served, "POST", "/api/show", &json!({"model": "other"}));
    let shown: Value = serde_json::from_str(&text).unwrap();
    let modelfile = shown["modelfile"].as_str().unwrap();
    assert!(modelfile.contains("FROM qwen3:0.6b\n") && modelfile.contains("PARAMETER num_ctx 128"));
    assert_eq!(shown["system"], "Be very brief.");
    assert!(shown["parameters"].as_str().unwrap().contains("0.25"), "{shown}");

    for (body, words) in [
        (json!({"model": "x", "from": "nobody"}), "does not exist"),
        (json!({"model": "x"}), "from is missing"),
        (json!({"model": "../x", "from": "brief"}), "a model's name has"),
        (json!({"model": "x", "from": "brief", "quantize": "q4_0"}), "arclight quantize"),
        (
            json!({"model": "x", "from": "brief", "files": {"a.gguf": "sha256:0"}}),
            "files is not supported",
        ),
        (json!({"model": "x", "from": "brief", "parameters": {"top_p": 2}}), "top_p"),
    ] {
        let (status, text) = send(&served, "POST", "/api/create", &body);
        assert!((400..500).contains(&status) && text.contains(words), "{body}: {text}");
    }
    let go = json!({"model": "x", "from": "brief", "template": "{{ if .System }}a{{ end }}"});
    let (_, text) = send(&served, "POST", "/api/create", &go);
    assert!(lines(&text).last().unwrap()["error"].as_str().unwrap().contains("Jinja"), "{text}");
    let (_, text) = send(&served, "POST", "/api/pull", &json!({"model": "nobody/nothing"}));
    assert!(lines(&text).last().unwrap()["error"].is_string(), "{text}");

    // The file stays as long as a model is made of it.
    let bytes = || {
        let blobs = walk(&dir.path().join(".arclight/hub"));
        blobs.iter().filter(|path| path.metadata().is_ok_and(|m| m.len() > 1000)).count()
    };
    for (left, name) in ["qwen3:0.6b", "brief", "odd"].into_iter().enumerate() {
        let gone = send(&served, "DELETE", "/api/delete", &json!({"model": name}));
        assert_eq!(gone, (200, String::new()));
        assert_eq!(names(&served).len(), 3 - left);
        assert!(bytes() > 0);
    }
    says(&served, "other");
    assert_eq!(send(&served, "DELETE", "/api/delete", &json!({"model": "other"})).0, 200);
    assert_eq!((bytes(), names(&served).len()), (0, 0));
    assert_eq!(send(&served, "DELETE", "/api/delete", &json!({"model": "other"})).0, 404);
}

fn walk(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { found.extend(walk(&path)) } else { found.push(path) }
    }
    found
}

#[test]
fn files_of_the_folder_go_and_what_was_named_stays() {
    let (dir, hub) = (tempfile::tempdir().unwrap(), FakeHub::default());
    let given = tempfile::tempdir().unwrap();
    let named = given.path().join("named.gguf");
    fs::write(&named, demo()).unwrap();
    fs::write(dir.path().join("one.gguf"), demo()).unwrap();
    let folder = dir.path().to_str().unwrap();
    let args = [named.to_str().unwrap(), "--models-dir", folder];
    let endpoint = hub.endpoint();
    let (served, _) = serve_plainly(&args, &[("HF_ENDPOINT", &*endpoint)]);
    let (status, text) = send(&served, "DELETE", "/api/delete", &json!({"model": "one"}));
    assert!(status == 501 && text.contains("--manage-models"), "{text}");
    drop(served);
    let args = [&args[..], &["--manage-models"]].concat();
    let (served, _) = serve_plainly(&args, &[("HF_ENDPOINT", &*endpoint)]);
    let (status, text) = send(&served, "DELETE", "/api/delete", &json!({"model": "named"}));
    assert!(status == 400 && text.contains("it stays"), "{text}");
    let made = json!({"model": "two", "from": "one", "stream": false});
    assert_eq!(send(&served, "POST", "/api/create", &made).0, 200);
    let (status, text) = send(&served, "DELETE", "/api/delete", &json!({"model": "one"}));
    assert!(status == 400 && text.contains("the file of two"), "{text}");
    for name in ["two", "one"] {
        let (status, text) = send(&served, "DELETE", "/api/delete", &json!({"model": name}));
        assert_eq!(status, 200, "{text}");
    }
    assert!(!dir.path().join("one.gguf").exists() && named.exists());
    let line = fails(2, &["serve", "--manage-models"]);
    assert!(line.contains("--models-dir"), "{line}");
}

#[test]
fn options_of_a_reload_hold_for_models_made_before_and_after() {
    let (dir, given) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(dir.path().join("one.gguf"), demo()).unwrap();
    let config = given.path().join("arclight.toml");
    fs::write(&config, "temp = 0.5\ntop-k = 7\n").unwrap();
    let (folder, config_name) = (dir.path().to_str().unwrap(), config.to_str().unwrap());
    let args = ["--models-dir", folder, "--manage-models", "--config", config_name];
    let (mut served, _) = serve_plainly(&args, &[]);
    let make = |served: &Served, body: &Value| {
        let (status, text) = send(served, "POST", "/api/create", body);
        assert_eq!(status, 200, "{text}");
    };
    let shown = |served: &Served, name: &str| {
        let (_, text) = send(served, "POST", "/api/show", &json!({"model": name}));
        let shown: Value = serde_json::from_str(&text).unwrap();
        let lines = shown["parameters"].as_str().unwrap().lines().take(2);
        lines.map(|line| line.split_whitespace().last().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let own = json!({"model": "before", "from": "one", "stream": false, "parameters": {"temperature": 0.25}});
    make(&served, &own);
    assert_eq!(
        (shown(&served, "one"), shown(&served, "before")),
        (vec!["0.5".to_owned(), "7".to_owned()], vec!["0.25".to_owned(), "7".to_owned()],)
    );
    fs::write(&config, "temp = 0.75\ntop-k = 9\n").unwrap();
    served.signal("-HUP");
    served.hears("options have changed");
    served.hears("were read again");
    make(&served, &json!({"model": "after", "from": "one", "stream": false}));
    assert_eq!(shown(&served, "one"), ["0.75", "9"]);
    assert_eq!(shown(&served, "before"), ["0.25", "9"], "its own parameters hold");
    assert_eq!(shown(&served, "after"), ["0.75", "9"]);
}

#[test]
fn models_that_are_not_loaded_have_no_file_open_and_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("one.gguf"), demo()).unwrap();
    let folder = dir.path().to_str().unwrap();
    let args = ["--models-dir", folder, "--manage-models", "--max-managed-models", "20"];
    let (served, _) = serve_plainly(&args, &[]);
    let files = || {
        let open = fs::read_dir(format!("/proc/{}/fd", served.child.id())).unwrap();
        let paths = open.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
        paths.filter(|path| path.to_string_lossy().ends_with(".gguf")).count()
    };
    let copy = |to: &str| {
        let body = json!({"source": "one", "destination": to});
        send(&served, "POST", "/api/copy", &body)
    };
    for at in 0..20 {
        assert_eq!(copy(&format!("copy-{at}")).0, 200);
    }
    let (status, text) = copy("more");
    assert!(status == 409 && text.contains("--max-managed-models"), "{text}");
    assert_eq!(names(&served).len(), 21);
    if cfg!(target_os = "linux") {
        assert_eq!(files(), 0);
        // A model that is loaded, and is unloaded again: its file is open while it is loaded alone.
        says(&served, "copy-7");
        let body = json!({"model": "copy-7"});
        assert_eq!(send(&served, "POST", "/models/unload", &body).0, 200);
        assert_eq!(files(), 0);
    }
    // Its file is read again.
    says(&served, "copy-7");
}
