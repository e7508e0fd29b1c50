//! The guides: their commands parse, and run where a test can run them; their links lead somewhere.
//!
//! A block of shell commands is run by `sh`, line after line, in a folder that has the files which its page
//! names: the demo model, files that are made from it, small folders. A fake hub has the models that are named.
//! Lines that a test cannot run are in [`EXCEPTIONS`]. The program gets them with `--help` at the end: unknown
//! commands, options and values before it are errors. Missing arguments and conflicts are not found so.

mod pages;
mod pieces;
mod sources;

use crate::images::PIXEL;
use crate::support::{arclight, ran};
use gguf::TensorType;
use pages::Command as Line;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;
use testkit::{Checkpoint, FakeHub, FakeRepo, Script, repository, requantize};

/// How a command is checked that does not run to a good end.
#[derive(Clone, Copy)]
enum How {
    /// It ends with this code, and this is a part of its error.
    Fails(i32, &'static str),
    /// Its options and values are checked and it does not run, for this reason.
    Read(&'static str),
}
use How::{Fails, Read};

/// Page, command, and how it is checked.
const EXCEPTIONS: &[(&str, &str, How)] = &[
    ("README.md", "arclight bench --synth qwen3-4b:q4_0", Read("it takes 2.4 GB and minutes")),
    ("README.md", "arclight tune model.gguf", Read("it takes minutes")),
    (
        "docs/extending.md",
        "arclight bench model.gguf --untuned --kernel ./q8_0-vnni.so",
        Read("it needs a C compiler and AVX-512; `kernels` does the same where there are"),
    ),
    (
        "docs/extending.md",
        "arclight tune model.gguf --kernel ./q8_0-vnni.so",
        Read("it needs a C compiler and AVX-512; `kernels` does the same where there are"),
    ),
    (
        "docs/extending.md",
        "arclight serve model.gguf --kernel ./q8_0-vnni.so",
        Read("it needs a C compiler and AVX-512; `kernels` does the same where there are"),
    ),
    (
        "docs/getting-models.md",
        "arclight pull Qwen/Qwen3-4B-GGUF:Q3_K_M",
        Fails(1, "has no Q3_K_M; it has Q4_K_M, "),
    ),
    ("docs/getting-models.md", "arclight rm qwen3:4b", Fails(2, "--yes")),
    (
        "docs/hosts.md",
        "arclight serve model.gguf --stage-key-file key --stage 3/3 --stages host1:7001,host2:7001",
        Read("it waits for two other hosts"),
    ),
    (
        "docs/operation.md",
        "arclight health https://10.0.0.7:8443",
        Read("it needs a server at that address"),
    ),
    (
        "docs/serving-bench.md",
        "arclight bench-serve http://localhost:8080",
        Read("it takes minutes, and needs a server on that port"),
    ),
    (
        "docs/serving-bench.md",
        "arclight bench-serve http://localhost:8080 --concurrency 1,4,16",
        Read("it takes minutes, and needs a server on that port"),
    ),
    (
        "docs/serving-bench.md",
        "arclight bench-serve http://localhost:8080 --rate 0.5,1,2,4 --slo-ttft 2000 --slo-tpot 100 \
         --slo-scale 0.5,1,2 --plot out.svg -o json > out.json",
        Read("it takes minutes, and needs a server on that port"),
    ),
    ("docs/tuning.md", "arclight tune model.gguf", Read("it takes minutes")),
    (
        "docs/tuning.md",
        "arclight tune --quick",
        Read("it takes up to 20 s; the same runs with a model"),
    ),
    (
        "docs/tuning.md",
        "arclight tune model.gguf --trace log.jsonl --together 16",
        Read("it takes minutes"),
    ),
    (
        "docs/tuning.md",
        "arclight tune model.gguf --replicas 1,2 --together 16",
        Read("it takes minutes"),
    ),
    ("docs/tuning.md", "arclight tune model.gguf --ablation", Read("it takes minutes")),
    (
        "docs/tuning.md",
        "arclight tune model.gguf --compare",
        Read("it needs a whole search before"),
    ),
];

/// Models that the guides fetch: repositories and files, each with the demo model in it.
const FETCHED: [(&str, &[&str]); 3] = [
    ("Qwen/Qwen3-0.6B-GGUF", &["Qwen3-0.6B-Q8_0.gguf"]),
    ("Qwen/Qwen3-4B-GGUF", &["Qwen3-4B-Q4_K_M.gguf", "Qwen3-4B-Q8_0.gguf"]),
    ("ggml-org/gpt-oss-20b-GGUF", &["gpt-oss-20b-mxfp4.gguf"]),
];

const PROGRAM: &str = env!("CARGO_BIN_EXE_arclight");

/// Appended to a command line: the arguments before it are checked, and nothing runs.
const READS: &str = "--help";

/// The address of the fake hub in the guides.
const HUB: &str = "http://127.0.0.1:8090";

/// The directory and the hub that the lines of a page run with.
struct World {
    /// With the files that the page names.
    folder: TempDir,
    hub: FakeHub,
}

impl World {
    fn new() -> World {
        let world = World { folder: TempDir::new().expect("a folder"), hub: FakeHub::default() };
        symlink(repository("demo"), world.path("demo")).expect("a link");
        for (repo, files) in FETCHED {
            let files = files.iter().map(|file| ((*file).to_owned(), demo())).collect();
            world.hub.put(repo, FakeRepo { files, licence: None, token: None });
        }
        world
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn put(&self, name: &str, contents: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
        fs::write(path, contents).expect("the folder can be written");
    }

    /// `sh` with these lines.
    fn shell(&self, lines: &str) -> Command {
        // Only its environment is used.
        let plain = arclight(&[]);
        let mut command = Command::new("sh");
        command.args(["-c", &lines.replace(HUB, &self.hub.endpoint())]);
        for (name, value) in plain.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let home = self.folder.path();
        command
            .current_dir(home)
            .env("HOME", home)
            .env("XDG_CACHE_HOME", home.join("cache"))
            .env("XDG_STATE_HOME", home.join("state"))
            .env("XDG_RUNTIME_DIR", home.join("run"))
            .env("HF_ENDPOINT", self.hub.endpoint())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs a line, in which `arclight` is the program with `behind` at its end, with a text on standard input;
    /// exit code and standard error.
    fn run(&self, line: &str, behind: &str) -> (Option<i32>, String) {
        let lines = format!("arclight() {{ '{PROGRAM}' \"$@\" {behind}; }}\n{line}");
        let mut child = self.shell(&lines).spawn().expect("sh starts");
        // Not every command reads it.
        let _ = child.stdin.take().expect("piped").write_all(b"Once upon a time\n");
        let ran = ran(child.wait_with_output().expect("it ends"));
        (ran.code, ran.err)
    }

    #[track_caller]
    fn succeeds(&self, line: &str) {
        let (code, err) = self.run(line, "");
        assert_eq!(code, Some(0), "{line}: {err}");
    }

    /// Starts a server, on any free port, and ends it as soon as it serves.
    fn serves(&self, line: &str) -> Result<(), String> {
        // In place of the shell, so that the signal reaches it.
        let line = line.replacen("arclight", &format!("exec '{PROGRAM}'"), 1);
        let mut child = self.shell(&format!("{line} --port 0")).spawn().expect("sh starts");
        let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let mut lines = lines.map_while(Result::ok);
        let mut said = Vec::new();
        let ready = lines.by_ref().any(|line| {
            said.push(line);
            said.last().is_some_and(|line| line.starts_with("serving "))
        });
        if ready {
            kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
        }
        lines.for_each(drop);
        let status = child.wait().expect("it ends");
        if ready && status.success() {
            Ok(())
        } else {
            Err(format!("{status}: {}", said.join("\n")))
        }
    }
}

fn demo() -> Vec<u8> {
    fs::read(repository("demo/arclight-demo.gguf")).expect("the demo model")
}

fn of_type(ty: TensorType) -> Vec<u8> {
    requantize(&demo(), ty).expect("whole blocks").bytes
}

/// The files that a page names.
fn prepare(world: &World, page: &str) {
    let heldout = fs::read(repository("demo/heldout.txt")).expect("the text");
    let text = &heldout[..20_000];
    world.put("model.gguf", demo());
    match page {
        "README.md" => world.put("model-f16.gguf", of_type(TensorType::F16)),
        "docs/adapters.md" => {
            let lora = |seed| testkit::lora(&demo(), TensorType::F32, 4, 4.0, seed);
            world.put("sql.gguf", lora(1));
            peft(world);
        }
        "docs/agents.md" => {
            // Its context is as long as agents need it.
            let script = Script { context: 65_536, otherwise: "Done.".into(), ..Script::default() };
            world.put("model.gguf", testkit::scripted(&script, &demo()));
        }
        "docs/converting.md" => {
            folder_of_256(&world.path("Qwen3-4B"));
            world.put("calibration.txt", text);
            world.put("more.txt", text);
            // The first block uses what the last one makes.
            world.succeeds("arclight convert Qwen3-4B -o first.gguf");
            world.succeeds("arclight imatrix first.gguf -f calibration.txt -o qwen3.imatrix.gguf");
            for name in ["a.gguf", "b.gguf"] {
                fs::copy(world.path("qwen3.imatrix.gguf"), world.path(name)).expect("copied");
            }
        }
        "docs/cost-model.md" => {
            let machine = "crates/topology/tests/data/hwloc/Intel-RaptorLake-Corei7-1370P.xml";
            world.put("m.xml", fs::read(repository(machine)).expect("a fixture"));
            world.put("gbs.txt", "60\n");
        }
        "docs/getting-models.md" => world.succeeds("arclight pull qwen3:4b"),
        "docs/hosts.md" => world.put("key", "a secret of these hosts\n"),
        "docs/images.md" => {
            world.put("mmproj-model-f16.gguf", testkit::encoder(256));
            world.put("photo.jpg", PIXEL);
        }
        "docs/perplexity.md" => {
            world.put("q4_k.gguf", of_type(TensorType::Q4_K));
            world.put("arclight-demo-moe-f32.gguf", of_type(TensorType::F32));
        }
        "docs/serving.md" => {
            world.put("keys", "secret\n");
            world.put("bge-reranker-v2-m3-f16.gguf", demo());
            world.put("models/one.gguf", demo());
            world.put("models/more/two.gguf", demo());
            world.succeeds("arclight pull qwen3:4b");
        }
        "docs/types.md" => {
            world.put("q5_k.gguf", of_type(TensorType::Q5_K));
            world.put("model-f16.gguf", of_type(TensorType::F16));
            world.put("text.txt", text);
        }
        _ => {}
    }
}

/// A folder of PEFT for one matrix of the demo model.
fn peft(world: &World) {
    let name = "base_model.model.model.layers.0.self_attn.v_proj";
    let matrix = |end: &str, rows: usize, cols: usize| {
        let values = testkit::f32s(&testkit::numbers(rows * cols, 0));
        (format!("{name}.{end}.weight"), "F32", vec![rows, cols], values)
    };
    let tensors = [matrix("lora_A", 4, 256), matrix("lora_B", 128, 4)];
    world.put("style/adapter_model.safetensors", testkit::safetensors(&tensors));
    let config = serde_json::json!({
        "peft_type": "LORA", "r": 4, "lora_alpha": 4, "target_modules": ["v_proj"],
        "base_model_name_or_path": "demo",
    });
    world.put("style/adapter_config.json", config.to_string());
}

/// A folder as of the Hub, whose rows are long enough for all types.
fn folder_of_256(path: &Path) {
    let mut folder = Checkpoint::llama();
    let sizes =
        [("hidden_size", 256), ("intermediate_size", 256), ("max_position_embeddings", 1024)];
    for (key, value) in sizes {
        folder.config[key] = value.into();
    }
    let names: Vec<(String, usize)> =
        folder.tensors.iter().map(|(name, _, shape, _)| (name.clone(), shape.len())).collect();
    for (name, dims) in names {
        let has = |part: &str| name.contains(part);
        let rows = match () {
            () if has("embed_tokens") || has("lm_head") => Checkpoint::VOCAB,
            () if has("k_proj") || has("v_proj") => 128,
            () => 256,
        };
        let shape = [rows, 256];
        folder.add(&name, if dims == 1 { &shape[1..] } else { &shape });
    }
    fs::create_dir_all(path).expect("a folder");
    folder.write(path);
}

fn exception(line: &Line) -> Option<How> {
    let found = EXCEPTIONS.iter().find(|(page, text, _)| *page == line.page && *text == line.text);
    found.map(|(.., how)| *how)
}

/// Runs or checks a line; the fault in words.
fn check(world: &World, line: &Line) -> Result<(), String> {
    let text = &line.text;
    let how = exception(line);
    if how.is_none() && text.starts_with("arclight serve") {
        return world.serves(text);
    }
    let (code, said, behind) = match how {
        None => (0, "", ""),
        Some(Fails(code, said)) => (code, said, ""),
        Some(Read(_)) => (0, "", READS),
    };
    let (got, err) = world.run(text, behind);
    if got == Some(code) && err.contains(said) { Ok(()) } else { Err(format!("{got:?}: {err}")) }
}

#[test]
#[ignore = "takes minutes: in .ci/full"]
fn commands_of_the_guides_run() {
    let (mut faults, mut count) = (Vec::new(), 0);
    for page in pages::guides() {
        let lines = pages::commands(&page);
        let lines: Vec<&Line> = lines.iter().filter(|line| line.calls_arclight()).collect();
        if lines.is_empty() {
            continue;
        }
        let world = World::new();
        prepare(&world, &page);
        for line in lines {
            count += 1;
            let start = std::time::Instant::now();
            if let Err(fault) = check(&world, line) {
                faults.push(format!("{page}:{}: {}\n  {fault}", line.line, line.text));
            }
            let why = match exception(line) {
                Some(Read(why)) => format!(" (read: {why})"),
                _ => String::new(),
            };
            eprintln!("{:5.1} s  {page}: {}{why}", start.elapsed().as_secs_f64(), line.text);
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(count > 50, "{count} commands are found");
}

#[test]
fn exceptions_are_of_commands_that_the_guides_have() {
    let lines: Vec<Line> = pages::guides().iter().flat_map(|page| pages::commands(page)).collect();
    for (page, text, _) in EXCEPTIONS {
        let known = lines.iter().any(|line| line.page == *page && line.text == *text);
        assert!(known, "{page} does not have: {text}");
    }
}

#[test]
fn commands_within_text_parse() {
    let world = World::new();
    // With `--help` at the end a fault before it is an error.
    for wrong in ["run --nosuch", "run -n x", "bench --numa up", "runs"] {
        assert_eq!(world.run(&format!("arclight {wrong}"), READS).0, Some(2), "{wrong}");
    }
    let lines: Vec<Line> = pages::guides().iter().flat_map(|page| pages::inline(page)).collect();
    let lines: Vec<&Line> = lines.iter().filter(|line| line.calls_arclight()).collect();
    let mut faults = Vec::new();
    for line in &lines {
        let text = line.text.replace("--kv-type TYPE", "--kv-type f16");
        let (code, err) = world.run(&text, READS);
        if code != Some(0) {
            faults.push(format!("{}:{}: {text}\n  {err}", line.page, line.line));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(lines.len() > 30, "{} commands are found", lines.len());
}

#[test]
fn other_commands_name_what_exists() {
    let mut faults = Vec::new();
    for page in pages::guides() {
        for line in pages::commands(&page).into_iter().chain(pages::inline(&page)) {
            let fault = pages::cargo_fault(&line.text);
            let files = pages::missing_files(&line.text);
            let files = files.iter().map(|file| format!("no {file}"));
            faults.extend(
                fault.into_iter().chain(files).map(|f| format!("{page}:{}: {f}", line.line)),
            );
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn links_lead_somewhere() {
    let notes = pages::folder("benchmarks/notes");
    let broken: Vec<String> =
        pages::guides().iter().chain(&notes).flat_map(|page| pages::broken_links(page)).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
