//! `chat --mcp`: tools of a server are offered, asked for, called, and their results go on.

use crate::manage::send;
use crate::serve::{Served, post, serve_plainly};
use crate::support::{arclight, run_with};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use testkit::{Script, repository, scripted};

/// A model that calls `add`, and says what comes of it.
fn model(folder: &Path) -> PathBuf {
    let call =
        "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 2, \"b\": 3}}\n</tool_call>";
    let script = Script {
        context: 4096,
        rules: vec![("add".to_owned(), format!("Let me see.\n{call}"))],
        otherwise: "That is what came of it.".to_owned(),
        ..Script::default()
    };
    let demo = fs::read(repository("demo/arclight-demo.gguf")).unwrap();
    let path = folder.join("scripted.gguf");
    fs::write(&path, scripted(&script, &demo)).unwrap();
    path
}

/// A server in a shell, which writes down what it was asked to call.
fn server(folder: &Path) -> String {
    let hello = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}"#;
    let list = r#"{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"add","description":"Adds.","inputSchema":{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}}}}]}}"#;
    let script = format!(
        "read -r l\necho '{hello}'\nread -r l\nread -r l\necho '{list}'\nid=3\n\
         while read -r l; do echo \"$l\" >>\"{}/asked\"\n\
         echo \"{{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"id\\\":$id,\\\"result\\\":{{\\\"content\\\":[{{\\\"type\\\":\\\"text\\\",\\\"text\\\":\\\"five\\\"}}]}}}}\"\n\
         id=$((id+1)); done\n",
        folder.display()
    );
    let path = folder.join("server.sh");
    fs::write(&path, script).unwrap();
    format!("sh {}", path.display())
}

fn talk(args: &[&str], input: &str) -> (String, String) {
    let base = ["chat", "--greedy"];
    let mut child = arclight(&[&base, args].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(out.status.success(), "{}", text(&out.stderr));
    (text(&out.stdout), text(&out.stderr))
}

#[test]
fn a_tool_is_called_when_the_user_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let (model, server) = (model(dir.path()), server(dir.path()));
    let saved = dir.path().join("talk.md");
    let input = format!("Add.\nmaybe\ny\n/save {}\n", saved.display());
    let model = model.to_str().unwrap();
    let (out, err) = talk(&[model, "--mcp", &server], &input);
    assert!(
        out.contains("Let me see.") && out.contains("That is what came of it."),
        "{out}\n{err}"
    );
    assert!(!out.contains("tool_call"), "{out}");
    assert!(
        err.contains("tools of server: add") && err.contains(r#"[add {"a": 2, "b": 3}]"#),
        "{err}"
    );
    assert_eq!(
        err.matches("call it?").count(),
        2,
        "a word that is no answer is asked again: {err}"
    );
    assert!(err.contains("[= five]"), "{err}");
    let asked = fs::read_to_string(dir.path().join("asked")).unwrap();
    assert!(
        asked.contains(r#""arguments":{"a":2,"b":3}"#) && asked.lines().count() == 1,
        "{asked}"
    );
    let saved = fs::read_to_string(saved).unwrap();
    assert!(saved.contains("## tool\n\nfive"), "{saved}");

    // Not when the user does not, and never again asked when the user always does.
    let (_, err) = talk(&[model, "--mcp", &server], "Add.\nn\nAdd.\na\nAdd.\n");
    assert_eq!(err.matches("call it?").count(), 2, "{err}");
    assert_eq!(err.matches("[= five]").count(), 2, "{err}");
    let allow = [model, "--mcp", &server, "--mcp-allow", "add"];
    let (_, err) = talk(&allow, "Add.\n");
    assert!(!err.contains("call it?") && err.contains("[= five]"), "{err}");
}

#[test]
fn servers_come_from_a_file_and_faults_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let (model, server) = (model(dir.path()), server(dir.path()));
    let model = model.to_str().unwrap();
    let config = dir.path().join("mcp.json");
    let script = server.strip_prefix("sh ").unwrap();
    let text =
        format!(r#"{{"mcpServers": {{"sums": {{"command": "sh", "args": ["{script}"]}}}}}}"#);
    fs::write(&config, text).unwrap();
    let config = config.to_str().unwrap();
    let (_, err) = talk(&[model, "--mcp-config", config, "--mcp-allow", "*"], "Add.\n");
    assert!(err.contains("tools of sums: add") && err.contains("[= five]"), "{err}");
    for (args, words) in [
        (&["--mcp", "/nowhere/at/all"][..], "cannot be started"),
        (&["--mcp", "a 'b"][..], "is no command"),
        (&["--mcp", &server, "--mcp-allow", "take"][..], "there is no such tool"),
        (&["--mcp-allow", "x"][..], "goes with --mcp"),
        (&["--mcp-config", "/nowhere.json"][..], "/nowhere.json"),
    ] {
        let ran = run_with(&[&["chat", model], args].concat(), "");
        assert!(ran.code != Some(0) && ran.err.contains(words), "{args:?}: {}", ran.err);
    }
}

#[test]
fn the_page_has_tools_called_by_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let server = server(dir.path());
    let config = dir.path().join("mcp.json");
    let script = server.strip_prefix("sh ").unwrap();
    let text =
        format!(r#"{{"mcpServers": {{"sums": {{"command": "sh", "args": ["{script}"]}}}}}}"#);
    fs::write(&config, text).unwrap();
    let args = ["--mcp-config", config.to_str().unwrap(), "--untuned", "--api-key", "k"];
    let (served, _) = serve_plainly(&args[..3], &[]);
    let call = json!({"name": "add", "arguments": {"a": 1, "b": 4}});
    // Without the page's token.
    for (method, body) in [("GET", &json!(null)), ("POST", &call)] {
        let (status, text) = send(&served, method, "/page/mcp", body);
        assert!(status == 403 && !dir.path().join("asked").exists(), "{text}");
    }
    let token = token(&served);
    let (status, tools) = for_page(&served, &token, "GET", &json!(null));
    assert_eq!((status, &tools["tools"][0]["function"]["name"]), (200, &json!("add")));
    let (status, result) = for_page(&served, &token, "POST", &call);
    assert_eq!((status, result), (200, json!({"content": "five", "is_error": false})));
    let unknown = json!({"name": "take", "arguments": {}});
    let (status, result) = for_page(&served, &token, "POST", &unknown);
    assert_eq!((status, &result["error"]["code"]), (502, &json!("tool_not_called")));
    drop(served);
    let (served, _) = serve_plainly(&args, &[]);
    assert_eq!(post(&served, "/page/mcp", &call).0, 401, "keys are as elsewhere");
    let (served, _) = serve_plainly(&["--untuned"], &[]);
    let token = self::token(&served);
    assert_eq!(for_page(&served, &token, "GET", &json!(null)), (200, json!({"tools": []})));
    assert_eq!(for_page(&served, &token, "POST", &call).0, 404);
}

/// The token that a server's page has.
fn token(served: &Served) -> String {
    let page = exchange(served, "GET / HTTP/1.0\r\naccept: text/html\r\n\r\n");
    let (_, rest) = page.split_once("name=\"arclight-token\" content=\"").unwrap();
    rest.split('"').next().unwrap().to_owned()
}

/// The answer to a request of the page for tools.
fn for_page(served: &Served, token: &str, method: &str, body: &Value) -> (u16, Value) {
    let body = body.to_string();
    let kind = "content-type: application/json";
    let head = format!("{method} /page/mcp HTTP/1.0\r\nx-arclight-token: {token}\r\n{kind}");
    let answer =
        exchange(served, &format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()));
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), serde_json::from_str(body).unwrap())
}

fn exchange(served: &Served, request: &str) -> String {
    let mut stream = TcpStream::connect(served.address()).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}
