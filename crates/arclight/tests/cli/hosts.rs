//! One model over several hosts, from the command line.

use crate::serve::{Served, get, post, serve};
use crate::support::{FILES, arclight, fails, file, json, run, succeeds, tiny};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json as value};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A stage before the last, and where the others reach it.
fn stage(which: &str, listen: &str, key: &str) -> (Served, String) {
    let args = [tiny(), "--stage", which, "--stage-listen", listen, "--stage-key-file", key];
    let (mut served, line) = serve(&args, &[]);
    served.address = served.address.trim_end().to_owned();
    let address = line.split(" on ").nth(1).and_then(|rest| rest.split(';').next()).unwrap();
    assert!(line.contains(&format!("as stage {which} on ")), "{line}");
    (served, address.to_owned())
}

fn complete(served: &Served, tokens: u32) -> (u16, Value) {
    let body = value!({"prompt": "Once upon a time", "max_tokens": tokens, "temperature": 0, "ignore_eos": true});
    post(served, "/v1/completions", &body)
}

/// The error of a server that ends by itself.
fn ends(args: &[&str]) -> String {
    let ran = run(args);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    ran.err.lines().last().unwrap_or_default().to_owned()
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn two_servers_share_a_model_and_find_each_other_again() {
    let key = file("stage-key", b"between us\n");
    let (alone, _) = serve(&[tiny()], &[]);
    let want = complete(&alone, 20).1["choices"][0]["text"].clone();
    drop(alone);

    let (first, at) = stage("1/2", "127.0.0.1:0", &key);
    let health = get(&first, "/health");
    assert!(health.contains(r#""state":"waiting""#) && health.contains(r#""stage":1"#), "{health}");
    let hosts = ["--stage", "2/2", "--stages", &at, "--stage-key-file", &key];
    let (front, _) = serve(&[&[tiny()], &hosts[..]].concat(), &[]);
    let (status, answer) = complete(&front, 20);
    assert_eq!((status, &answer["choices"][0]["text"]), (200, &want));
    assert!(get(&first, "/health").contains(r#""state":"serving""#));
    let metrics = get(&first, "/metrics");
    assert!(metrics.contains("\narclight:stage_serving 1\n"), "{metrics}");
    assert!(metrics.contains("\narclight:stage_steps_total "), "{metrics}");
    assert!(get(&first, "/v1/models").starts_with("HTTP/1.1 404"));

    // It is killed, noticed, and started again.
    drop(first);
    until("it is noticed", || get(&front, "/health").starts_with("HTTP/1.1 503"));
    let (status, answer) = complete(&front, 20);
    assert_eq!((status, &answer["error"]["code"]), (503, &value!("stage_lost")));
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.starts_with(&format!("stage 1/2 at {at} is lost: ")), "{message}");
    let (first, _) = stage("1/2", &at, &key);
    until("they serve again", || get(&front, "/health").starts_with("HTTP/1.1 200"));
    let (status, answer) = complete(&front, 20);
    assert_eq!((status, &answer["choices"][0]["text"]), (200, &want));

    // A stage ends when it is told to, also while a front has it.
    let mut first = first;
    kill_process(Pid::from_child(&first.child), Signal::TERM).unwrap();
    assert!(first.child.wait().unwrap().success());
    // And so does a front that has lost its stages.
    let mut front = front;
    until("it is noticed", || get(&front, "/health").starts_with("HTTP/1.1 503"));
    kill_process(Pid::from_child(&front.child), Signal::TERM).unwrap();
    assert!(front.child.wait().unwrap().success());
}

#[test]
fn a_front_that_is_refused_ends_with_the_reason() {
    let (key, other) = (file("key-one", b"one"), file("key-two", b"two"));
    let (_first, at) = stage("1/2", "127.0.0.1:0", &key);
    let front = |key: &str| {
        let hosts = ["serve", tiny(), "--port", "0", "--stage", "2/2", "--stages", &at];
        ends(&[&hosts[..], &["--stage-key-file", key]].concat())
    };
    let error = front(&other);
    assert!(
        error.contains(&format!(
            "stage 1/2 at {at} is lost: it refused: the caller has another stage key"
        )),
        "{error}"
    );
    let empty = file("key-empty", b"\n");
    assert!(front(&empty).contains("has no key"));
}

#[test]
fn a_front_that_waits_says_for_whom_and_can_be_ended() {
    let args = ["serve", tiny(), "--port", "0", "--stage", "2/2", "--stages", "127.0.0.1:1"];
    let mut child = arclight(&args).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    let said = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
    assert!(said.contains("waiting for stage 1/2 at 127.0.0.1:1: it cannot be reached"), "{said}");
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    let refused = |args: &[&str], why: &str| {
        let error = fails(2, &[&["serve", tiny()], args].concat());
        assert!(error.contains(why), "{args:?}: {error}");
    };
    refused(&["--stage", "3/2"], "it must be two numbers, as in 1/3");
    refused(&["--stage", "1/2"], "give --stage-listen");
    refused(&["--stage", "2/2"], "give --stages the address of each stage before");
    refused(&["--stage", "2/2", "--stages", "a:1,b:1"], "from the first on: 1; there are 2");
    refused(&["--stage", "2/2", "--stages", "a:1", "--stage-listen", "b:1"], "leave out");
    refused(&["--stage", "1/2", "--stage-listen", "a:1", "--stages", "b:1"], "there alone");
    refused(&["--stages", "a:1"], "--stage");
    refused(&["more.gguf", "--stage", "1/2", "--stage-listen", "a:1"], "name no others");
    let front = ["serve", tiny(), "--port", "0", "--stage", "2/2", "--stages", "127.0.0.1:1"];
    let folder = FILES.path().join("stages-cache");
    for (more, what) in [
        (&["--replicas", "2"][..], "several replicas"),
        (&["--numa", "pp"], "--numa pp"),
        (&["--cache-dir", folder.to_str().unwrap()], "a prefix cache on disk"),
    ] {
        let error = ends(&[&front[..], more].concat());
        assert!(error.contains(what) && error.contains("several hosts share"), "{error}");
    }
    // Without a key others cannot reach it, unless that is said.
    let open = ["serve", tiny(), "--port", "0", "--stage", "1/2", "--stage-listen", "0.0.0.0:0"];
    let error = ends(&open);
    assert!(error.contains("--stage-key-file") && error.contains("--stage-without-key"), "{error}");
    refused(
        &[
            "--stage",
            "1/2",
            "--stage-listen",
            "a:1",
            "--stage-key-file",
            "k",
            "--stage-without-key",
        ],
        "cannot be used with",
    );
    // In the file of options, too, it is about the server.
    let config = file(
        "stages.toml",
        format!("[models.a]\nmodel = {:?}\nstage = \"1/2\"\n", tiny()).as_bytes(),
    );
    let error = fails(2, &["serve", "--config", &config]);
    assert!(error.contains("stage is about the server"), "{error}");
}

#[test]
fn several_hosts_are_predicted() {
    let plan = |more: &[&str]| {
        let args = ["plan", "--machine", "epyc-9654", "-m", "qwen3-8b:q4_0", "-o", "json"];
        json(&[&args[..], &["--hosts", "3", "--batch", "60"], more].concat())
    };
    let fast = plan(&[]);
    let hosts = fast["hosts"].as_array().unwrap();
    assert_eq!(hosts.len(), 3);
    let ends = |host: &Value| (host["layers"][0].as_u64(), host["layers"][1].as_u64());
    assert_eq!(ends(&hosts[0]).0, Some(0));
    assert!(hosts.windows(2).all(|pair| ends(&pair[0]).1 == ends(&pair[1]).0), "{hosts:?}");
    assert_eq!(ends(&hosts[2]).1, Some(36));
    let speed = |seen: &Value, what: &str| seen[what]["tokens_per_second"].as_f64().unwrap();
    assert!(speed(&fast, "decode") > 3.0 * speed(&fast, "decode_one"));
    let slow = plan(&["--link", "100mbit", "--link-latency", "30us"]);
    assert_eq!(slow["decode"]["limit"], "the link");
    // Twenty rows of 16 KiB at 12.5 MB/s pass every 26 ms.
    let rows = 12.5e6 / (4096.0 * 4.0);
    assert!((speed(&slow, "decode") / rows - 1.0).abs() < 0.01, "{slow}");
    assert!(speed(&slow, "prompt") < rows);

    let text = succeeds(&["plan", "--machine", "epyc-9654", "--hosts", "2", "--link", "10gbit"]);
    assert!(text.contains("10.0 Gbit/s, 20.0 µs from one to the next"), "{text}");
    let refused = |args: &[&str], code| fails(code, &[&["plan", "--hosts", "2"], args].concat());
    assert!(refused(&["--link", "10"], 2).contains("a number with kbit, mbit or gbit"));
    assert!(refused(&["--scaling"], 2).contains("cannot be used with"));
    let error = fails(1, &["plan", "--machine", "epyc-9654", "--hosts", "99"]);
    assert!(error.contains("99 stages cannot share 36 layers"), "{error}");
}
