//! Running the program, and models to run it on.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{LazyLock, Mutex};
use tempfile::TempDir;

/// How a run ended.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// The program, with an environment of its own and nothing on standard input.
pub(crate) fn arclight(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_arclight"));
    command
        .args(args)
        .stdin(Stdio::null())
        .env_remove("ARCLIGHT_LOG")
        .env_remove("ARCLIGHT_ISA")
        .env("XDG_STATE_HOME", FILES.path())
        // No profile and no models of the machine that the tests run on.
        .env("XDG_CACHE_HOME", FILES.path())
        .env("XDG_RUNTIME_DIR", FILES.path())
        .env("HOME", FILES.path());
    for name in ["HF_HOME", "HF_HUB_CACHE", "HF_TOKEN", "HF_HUB_OFFLINE", "OLLAMA_MODELS"] {
        command.env_remove(name);
    }
    command
}

/// Runs the program.
pub(crate) fn run(args: &[&str]) -> Ran {
    ran(arclight(args).output().expect("the program starts"))
}

/// Runs the program with text on standard input.
pub(crate) fn run_with(args: &[&str], input: &str) -> Ran {
    let mut command = arclight(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("it reads");
    ran(child.wait_with_output().expect("it ends"))
}

pub(crate) fn ran(output: Output) -> Ran {
    Ran {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).expect("output is text"),
        err: String::from_utf8(output.stderr).expect("messages are text"),
    }
}

/// Runs the program and gives its output.
#[track_caller]
pub(crate) fn succeeds(args: &[&str]) -> String {
    let Ran { code, out, err } = run(args);
    assert_eq!(code, Some(0), "{args:?}: {err}");
    out
}

/// Runs the program, which must end with this exit code after one line on standard error, and
/// gives that line.
#[track_caller]
pub(crate) fn fails(code: i32, args: &[&str]) -> String {
    complains(code, &run(args))
}

/// Checks that a run has failed as [`fails`] describes.
#[track_caller]
pub(crate) fn complains(code: i32, ran: &Ran) -> String {
    assert_eq!(ran.code, Some(code), "{}", ran.err);
    assert!(!ran.err.contains("panicked"), "{}", ran.err);
    let mut lines = ran.err.lines();
    let line = lines.next().unwrap_or_default();
    assert_eq!(lines.next(), None, "more than one line: {}", ran.err);
    assert!(line.starts_with("error: "), "{line}");
    line.to_owned()
}

/// Where this run of the tests has its files.
pub(crate) static FILES: LazyLock<TempDir> =
    LazyLock::new(|| TempDir::new().expect("a temporary directory"));

/// A new file with these contents. A name can be used once: tests run side by side, and a model
/// that one of them writes again is cut short under the program that another one runs.
#[track_caller]
pub(crate) fn file(name: &str, contents: &[u8]) -> String {
    let path = FILES.path().join(name);
    let mut file = std::fs::File::create_new(&path).unwrap_or_else(|e| panic!("{name}: {e}"));
    file.write_all(contents).expect("the temporary directory can be written");
    text(&path)
}

/// The path of a file that the program is to write.
pub(crate) fn output(name: &str) -> String {
    text(&FILES.path().join(name))
}

/// An empty folder.
pub(crate) fn folder(name: &str) -> String {
    let path = FILES.path().join(name);
    std::fs::create_dir_all(&path).expect("the temporary directory can be written");
    text(&path)
}

/// A path for a command line.
pub(crate) fn text(path: &Path) -> String {
    path.to_str().expect("a temporary path is text").to_owned()
}

/// A synthetic model without a chat template, of the shape `tiny`.
pub(crate) fn tiny() -> &'static str {
    static TINY: LazyLock<String> = LazyLock::new(|| synth("tiny:q4_0"));
    &TINY
}

/// A synthetic model, written once.
#[track_caller]
pub(crate) fn synth(model: &str) -> String {
    static WRITTEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let path: PathBuf = FILES.path().join(format!("{}.gguf", model.replace(':', "-")));
    let path = text(&path);
    let mut written = WRITTEN.lock().expect("all models before could be written");
    if written.insert(path.clone()) {
        succeeds(&["synth", model, "-o", &path]);
    }
    path
}

/// Runs the program and reads its output.
#[track_caller]
pub(crate) fn json(args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&succeeds(args)).expect("JSON")
}
