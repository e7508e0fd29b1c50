//! Models by name: `pull`, `list`, `show`, `rm`, `ps`, and names where other commands want a model.

use crate::support::{Ran, arclight, complains, ran};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;
use testkit::{FakeHub, FakeRepo, Fault};

/// The repository that a short name stands for, with the demo model as its file.
const REPO: &str = "Qwen/Qwen3-0.6B-GGUF";
const FILE: &str = "Qwen3-0.6B-Q8_0.gguf";

/// A machine of its own, and a hub that it reaches.
pub(crate) struct World {
    home: TempDir,
    hub: FakeHub,
}

impl World {
    pub(crate) fn new() -> World {
        let world = World { home: TempDir::new().unwrap(), hub: FakeHub::default() };
        world.hub.put_file(REPO, FILE, &demo());
        world
    }

    /// A text without what differs from one machine to another.
    pub(crate) fn plain(&self, text: &str) -> String {
        let endpoint = self.hub.endpoint().replace("http://", "");
        text.replace(&*self.home.path().to_string_lossy(), "[home]").replace(&endpoint, "[hub]")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = arclight(args);
        let home = self.home.path();
        command
            .env("HOME", home)
            .env("XDG_CACHE_HOME", home.join("cache"))
            .env("XDG_RUNTIME_DIR", home.join("run"))
            .env("HF_ENDPOINT", self.hub.endpoint());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        ran(self.command(args).output().unwrap())
    }

    #[track_caller]
    fn succeeds(&self, args: &[&str]) -> Ran {
        let ran = self.run(args);
        assert_eq!(ran.code, Some(0), "{args:?}: {}", ran.err);
        ran
    }
}

fn demo() -> Vec<u8> {
    fs::read(testkit::repository("demo/arclight-demo.gguf")).unwrap()
}

const PROMPT: &str = "Once upon a time";

#[test]
fn a_short_name_runs_on_an_empty_machine_and_then_without_a_network() {
    let world = World::new();
    let plain = ran(arclight(&["run", "-n", "8", "--greedy", "-p", PROMPT]).output().unwrap());
    let args = ["run", "qwen3:0.6b", "-p", PROMPT, "-n", "8", "--greedy"];
    let first = world.succeeds(&args);
    assert_eq!(first.out, plain.out);
    for part in
        ["qwen3:0.6b is not on this machine", REPO, "licence apache-2.0", "its checksum is right"]
    {
        assert!(first.err.contains(part), "no {part:?} in {}", first.err);
    }
    world.hub.seen();
    for offline in [&["--offline"][..], &[]] {
        let again = world.succeeds(&[&args[..], offline].concat());
        assert_eq!(again.out, plain.out);
        assert!(!again.err.contains("fetch"), "{}", again.err);
    }
    assert!(world.hub.seen().is_empty(), "what is here is used without a question");
    let quiet = world.succeeds(&[&args[..], &["-q"]].concat());
    assert_eq!((quiet.out, quiet.err.as_str()), (plain.out, ""));
}

/// Puts a repository with several files on the site.
fn repository<const N: usize>(world: &World, id: &str, files: [(&str, Vec<u8>); N]) {
    let files = files.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect();
    world.hub.put(id, FakeRepo { files, licence: None, token: None });
}

/// A picture.
fn picture(world: &World) -> String {
    let path = world.home.path().join("a.gif");
    fs::write(&path, crate::images::PIXEL).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn an_image_encoder_comes_with_its_model_and_goes_with_it() {
    let world = World::new();
    let encoder = testkit::encoder(256);
    let more = b"of more bits".to_vec();
    repository(
        &world,
        REPO,
        [(FILE, demo()), ("mmproj-F32.gguf", more), ("mmproj-Q8_0.gguf", encoder)],
    );
    let picture = picture(&world);
    let ask = ["run", REPO, "--image", &picture, "-p", "What?", "-n", "8", "--greedy"];
    let first = world.succeeds(&ask);
    let with = "Q8_0, with the image encoder mmproj-Q8_0.gguf from";
    assert!(first.err.contains(with), "{}", first.err);
    let read = |ran: &Ran| ran.err.contains("image encoder: ") && ran.err.contains("mmproj-Q8_0");
    assert!(read(&first), "{}", first.err);
    world.hub.seen();
    let again = world.succeeds(&ask);
    assert_eq!(again.out, first.out);
    assert!(world.hub.seen().is_empty(), "both are here");
    // It is none of the models, and goes with the last of them.
    let list = world.succeeds(&["list"]).out;
    assert!(list.contains("Q8_0") && !list.contains("mmproj"), "{list}");
    let path = world.succeeds(&["pull", "-q", REPO]).out;
    let beside = Path::new(path.trim_end()).with_file_name("mmproj-Q8_0.gguf");
    assert!(beside.exists());
    world.succeeds(&["rm", REPO, "--yes"]);
    assert!(!beside.exists());
    // Unless it is left out.
    let pulled = world.succeeds(&["pull", REPO, "--no-mmproj"]);
    assert!(!pulled.err.contains("image encoder"), "{}", pulled.err);
    assert!(Path::new(pulled.out.trim_end()).exists() && !beside.exists());
}

#[test]
fn an_image_encoder_has_a_name() {
    let world = World::new();
    let encoder = testkit::encoder(256);
    let names = ["mmproj-F16.gguf", "mmproj-Q8_0.gguf", "sub/other.gguf"];
    repository(&world, "someone/eyes", names.map(|name| (name, encoder.clone())));
    let picture = picture(&world);
    let with = |mmproj: &str, more: &[&str]| {
        let args = ["run", "--image", &picture, "-p", "What?", "-n", "4", "--greedy"];
        world.run(&[&args[..], &["--mmproj", mmproj], more].concat())
    };
    let first = with("someone/eyes", &[]);
    assert_eq!(first.code, Some(0), "{}", first.err);
    assert!(first.err.contains("someone/eyes F16 from"), "{}", first.err);
    world.hub.seen();
    let again = with("someone/eyes", &["--offline"]);
    assert_eq!((again.code, &again.out), (Some(0), &first.out), "{}", again.err);
    assert!(world.hub.seen().is_empty(), "it is here");
    for (name, quant) in [("someone/eyes:Q8_0", "Q8_0 "), ("someone/eyes:sub/other.gguf", "")] {
        let ran = with(name, &[]);
        assert_eq!((ran.code, &ran.out), (Some(0), &first.out), "{}", ran.err);
        assert!(ran.err.contains(&format!("someone/eyes {quant}from")), "{}", ran.err);
    }
    let line = complains_last(1, &with("someone/eyes:Q5_0", &[]));
    assert!(line.contains("mmproj-F16.gguf"), "{line}");
    let line = complains_last(1, &with(REPO, &[]));
    assert!(line.contains("has no image encoder (mmproj)"), "{line}");
    let line = complains_last(1, &with("someone/ears", &["--offline"]));
    assert!(line.contains("someone/ears") && line.contains("offline"), "{line}");
}

#[test]
fn offline_a_missing_model_is_an_error() {
    let world = World::new();
    let line = complains(1, &world.run(&["run", REPO, "-p", "a", "--offline"]));
    assert!(line.contains(REPO) && line.contains("offline"), "{line}");
    let mut command = world.command(&["pull", REPO]);
    let line = complains(1, &ran(command.env("HF_HUB_OFFLINE", "1").output().unwrap()));
    assert!(line.contains("HF_HUB_OFFLINE"), "{line}");
    assert!(world.hub.seen().is_empty());
}

#[test]
fn pull_prints_where_the_model_is() {
    let world = World::new();
    let pulled = world.succeeds(&["pull", "qwen3:0.6b"]);
    let path = pulled.out.trim_end();
    assert!(path.ends_with(FILE), "{path}");
    assert!(fs::read(path).unwrap() == demo());
    let again = world.succeeds(&["pull", REPO]);
    assert_eq!(again.out, pulled.out);
    assert!(again.err.contains("are here"), "{}", again.err);
    let quiet = world.succeeds(&["pull", "-q", "hf.co/Qwen/Qwen3-0.6B-GGUF:q8_0"]);
    assert_eq!((quiet.out, quiet.err.as_str()), (pulled.out, ""));
}

#[test]
fn wrong_names_are_one_line_that_helps() {
    let world = World::new();
    let line = complains(2, &world.run(&["run", "qwen3:0.7b", "-p", "a"]));
    assert!(line.contains("qwen3:0.6b"), "{line}");
    let line = complains(2, &world.run(&["pull", "a/b/c"]));
    assert!(line.contains("\"a/b/c\""), "{line}");
    let line = complains(1, &world.run(&["run", "models/nothing.gguf", "-p", "a"]));
    assert!(line.contains("models/nothing.gguf") && !line.contains("repository"), "{line}");
    let ran = world.run(&["pull", "Qwen/Qwen3-0.7B-GGUF"]);
    assert!(complains(1, &ran).contains("did you mean Qwen/Qwen3-0.6B-GGUF?"), "{}", ran.err);
    let ran = world.run(&["pull", "Qwen/Qwen3-0.6B-GGUF:Q4_0"]);
    assert!(complains(1, &ran).contains("it has Q8_0"), "{}", ran.err);
    let line = complains(1, &world.run(&["inspect", "qwen3:0.6b"]));
    assert!(line.contains("arclight pull qwen3:0.6b fetches it"), "{line}");
}

#[test]
fn a_damaged_download_is_told_and_leaves_nothing() {
    let world = World::new();
    world.hub.fail([Fault::Damaged]);
    let ran = world.run(&["pull", "qwen3:0.6b", "-q"]);
    let line = complains(1, &ran);
    assert!(line.contains(FILE) && line.contains("sha256"), "{line}");
    assert!(world.succeeds(&["list"]).out.contains("There are no models here yet"));
}

#[test]
fn models_are_listed_shown_and_removed() {
    let world = World::new();
    assert!(world.succeeds(&["list"]).out.contains("arclight pull"));
    world.succeeds(&["pull", "qwen3:0.6b"]);
    let list = world.succeeds(&["list"]).out;
    for part in ["name", "Qwen/Qwen3-0.6B-GGUF:Q8_0", "2.99 MiB", "Hugging Face", "just now"] {
        assert!(list.contains(part), "no {part:?} in {list}");
    }
    let shown = world.succeeds(&["show", "qwen3:0.6b"]).out;
    for part in ["Qwen/Qwen3-0.6B-GGUF:Q8_0", "qwen3", "runs", "licence", FILE] {
        assert!(shown.contains(part), "no {part:?} in {shown}");
    }
    assert!(world.succeeds(&["inspect", "qwen3:0.6b"]).out.contains("general.architecture"));
    // Nobody is there to say yes.
    let line = complains_last(2, &world.run(&["rm", "qwen3:0.6b"]));
    assert!(line.contains("--yes"), "{line}");
    let removed = world.succeeds(&["rm", "qwen3:0.6b", "--yes"]).out;
    assert!(removed.contains("2.99 MiB are free now"), "{removed}");
    assert!(
        !world.home.path().join("cache/huggingface/hub/models--Qwen--Qwen3-0.6B-GGUF").exists()
    );
    let line = complains(1, &world.run(&["rm", "qwen3:0.6b", "--yes"]));
    assert!(line.contains("is not on this machine"), "{line}");
}

/// The error line of a command that has said something before.
#[track_caller]
fn complains_last(code: i32, ran: &Ran) -> String {
    assert_eq!(ran.code, Some(code), "{}", ran.err);
    ran.err.lines().last().unwrap_or_default().to_owned()
}

fn put(home: &Path, path: &str, contents: &[u8]) {
    let path = home.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, contents).unwrap();
}

#[test]
fn ollamas_models_run_if_they_can_and_are_not_removed() {
    let world = World::new();
    let home = world.home.path();
    let manifest = |digest: &str| {
        format!(
            r#"{{"layers": [{{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:{digest}"}}]}}"#
        )
    };
    let [good, odd] = ["a".repeat(64), "b".repeat(64)];
    let library = ".ollama/models/manifests/registry.ollama.ai/library";
    put(home, &format!("{library}/mine/latest"), manifest(&good).as_bytes());
    put(home, &format!("{library}/odd/latest"), manifest(&odd).as_bytes());
    put(home, &format!(".ollama/models/blobs/sha256-{good}"), &demo());
    put(home, &format!(".ollama/models/blobs/sha256-{odd}"), b"a form of Ollama's own");
    let ran = world.succeeds(&["run", "mine", "-p", "Once", "-n", "3"]);
    assert!(ran.err.contains("the file of Ollama"), "{}", ran.err);
    let line = complains(2, &world.run(&["run", "odd", "-p", "a"]));
    assert!(line.contains("nor a short name"), "{line}");
    let line = complains(1, &world.run(&["rm", "mine", "--yes"]));
    assert!(line.contains("belongs to Ollama"), "{line}");
    assert!(world.succeeds(&["list"]).out.contains("mine:latest"));
}

#[test]
fn names_can_be_listed() {
    let list = World::new().succeeds(&["list", "--names"]).out;
    for part in ["qwen3:4b", "gpt-oss:20b", "apache-2.0", "ggml-org/gpt-oss-20b-GGUF:MXFP4"] {
        assert!(list.contains(part), "no {part:?} in {list}");
    }
}

#[test]
fn a_server_that_runs_is_listed_until_it_ends() {
    let world = World::new();
    world.succeeds(&["pull", "-q", "qwen3:0.6b"]);
    // One that was killed once, and whose number somebody else has now.
    let stale = format!(
        r#"{{"pid": {}, "ticks": 1, "since": 0, "address": "x", "model": "stale", "path": "x"}}"#,
        std::process::id()
    );
    put(world.home.path(), "run/arclight/servers/1.json", stale.as_bytes());
    let mut command = world.command(&["serve", "qwen3:0.6b", "--port", "0", "--ctx", "256"]);
    let mut server = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
    let ready = lines.by_ref().map_while(Result::ok).find(|line| line.contains("serving "));
    let ready = ready.expect("the server is ready");
    let listed = world.succeeds(&["ps"]).out;
    let address = ready.split("http://").nth(1).and_then(|rest| rest.split('/').next()).unwrap();
    for part in ["Qwen3-0.6B-Q8_0", address, &server.id().to_string()] {
        assert!(listed.contains(part), "no {part:?} in {listed}");
    }
    assert!(!listed.contains("stale"), "{listed}");
    let pid = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    server.wait().unwrap();
    assert!(world.succeeds(&["ps"]).out.contains("No server"));
}
