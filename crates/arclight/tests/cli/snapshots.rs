//! What the program prints, as it was looked at: help of all commands at two widths, figures in all forms, messages,
//! colours. `INSTA_UPDATE=always cargo test --workspace --test cli snapshots` writes what has changed, for a person
//! to look at before it is committed.

use crate::hub::World;
use crate::serve::{complete, serve};
use crate::support::{FILES, Ran, arclight, file, output, ran, run_with, text, tiny};
use std::fmt::Write;
use std::io::Read;
use std::process::Command;

/// Runs the program at a terminal's width.
fn printed(columns: u32, args: &[&str]) -> String {
    let mut command = arclight(args);
    let columns = columns.to_string();
    // Where no servers of other tests are.
    let command = command.env("COLUMNS", columns).env("XDG_RUNTIME_DIR", output("no-servers"));
    told(args, &ran(command.output().expect("the program starts")))
}

/// What a run has printed.
fn told(args: &[&str], ran: &Ran) -> String {
    let mut all = format!("$ arclight {}\n{}", args.join(" "), ran.out);
    if !ran.err.is_empty() {
        let code = ran.code.unwrap_or(-1);
        let _ = write!(all, "-- standard error, exit code {code}\n{}", ran.err);
    }
    all.replace(&text(FILES.path()), "[files]")
}

/// Compares.
fn check(name: &str, printed: &str) {
    insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!(name, printed);
    });
}

/// A text in which what a pattern finds is something else.
fn with(text: &str, pattern: &str, other: &str) -> String {
    regex::Regex::new(pattern).expect("a regex").replace_all(text, other).into_owned()
}

/// Compares what was measured: every figure is a `#`, and columns are as wide as it happens.
fn check_measured(name: &str, printed: &str) {
    let rules = [(r"\d+(\.\d+)?", "#"), (r"-{3,}", "---"), (r"± *", "± "), (r" +", " ")];
    let printed = rules.iter().fold(printed.to_owned(), |text, (from, to)| with(&text, from, to));
    check(name, &with(&printed, "(?m) $", ""));
}

const COMMANDS: [&str; 24] = [
    "run",
    "chat",
    "serve",
    "embed",
    "pull",
    "list",
    "show",
    "rm",
    "ps",
    "bench",
    "bench-serve",
    "bench-sync",
    "perplexity",
    "inspect",
    "topo",
    "doctor",
    "plan",
    "tune",
    "graph",
    "convert",
    "quantize",
    "imatrix",
    "synth",
    "completions",
];

#[test]
fn help_of_every_command() {
    for columns in [80, 120] {
        let mut all = printed(columns, &["--help"]);
        for command in COMMANDS {
            let _ = write!(all, "\n{}", printed(columns, &[command, "--help"]));
        }
        // Kernels are those of this architecture.
        let all = with(&all, r"(?s)(instead of the best ones:\n).*?(  NO_COLOR)", "$1$2");
        let widest = all.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        assert!(widest <= 120, "{widest} characters");
        check(&format!("help-{columns}"), &all);
    }
}

#[test]
fn figures_in_every_form() {
    let plan = ["plan", "--machine", "epyc-7h12", "-t", "64,128", "--engine", "unplaced,tp-b"];
    let topo = ["topo", "--synthetic", "pack:2 numa:2 core:4 pu:2"];
    for form in ["text", "md", "csv", "json"] {
        let of = |args: &[&str]| printed(80, &[args, &["-o", form]].concat());
        let mut all = of(&["list", "--names"]);
        let _ = write!(all, "\n{}\n{}", of(&["list"]), of(&["ps"]));
        check(&format!("names-{form}"), &all);
        check(&format!("topo-{form}"), &of(&topo));
        if form != "json" {
            check(&format!("plan-{form}"), &of(&plan));
        }
        if form != "csv" {
            check(&format!("inspect-{form}"), &of(&["inspect", tiny(), "--tensors"]));
        }
    }
    check("machines", &printed(80, &["plan", "--machines"]));
    check("graph", &printed(80, &["graph", tiny(), "--nodes", "2"]));
    let headers = ["graph", tiny(), "--nodes", "2", "--tensors", "--layer", "0"];
    check("graph-tensors", &printed(80, &headers));
}

#[test]
fn files_that_are_made() {
    let folder = crate::support::folder("checkpoint");
    testkit::Checkpoint::llama().write(std::path::Path::new(&folder));
    let made = output("converted.gguf");
    let mut all = printed(80, &["convert", &folder, "-o", &made]);
    let _ =
        write!(all, "\n{}", printed(80, &["convert", &folder, "-o", &made, "--type", "f16", "-q"]));
    let all = with(&all, r"in [0-9.]+ m?s", "in # s");
    check("convert", &all);
    // Their first lines: the rest is of the library.
    let mut all = String::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = printed(80, &["completions", shell]);
        let head: Vec<&str> = script.lines().take(4).collect();
        let _ = write!(all, "{}\n[...]\n\n", head.join("\n"));
    }
    check("completions", &all);
}

#[test]
fn figures_that_are_measured() {
    let bench = ["bench", tiny(), "-p", "8", "-n", "2", "-r", "1", "-t", "1", "-q"];
    let sync = ["bench-sync", "-t", "2", "--nodes", "2", "--sizes", "4K,64K", "-r", "1", "-q"];
    for form in ["text", "md"] {
        let of = |args: &[&str]| printed(80, &[args, &["-o", form]].concat());
        let mut all = of(&bench);
        let _ = write!(all, "\n{}", of(&sync));
        // Names and limits are those of this machine; what is best and what binds is measured.
        let machine = "(?m)^.*(kernels, 1 rep|cores? on [0-9]|limits in this run|one-shot|scatter at \
                       every|pages on another node).*$";
        let all = with(&all, machine, "[machine]");
        // What others do meanwhile is theirs.
        let causes = r"(?m)^(?:the limit of reading moved|Up to|Other programs are|The thread on CPU).*\n(?:[^\n$].*\n)*";
        let all = with(&all, causes, "");
        // So is what beats a limit that was measured beside them.
        let beaten = r"(?m)^(?:pp|tg)[^:\n]*: faster than .*\n(?:[^\n$].*\n)*";
        let all = with(&with(&all, beaten, ""), "no share", "1 %");
        // Few machines let a program ask the controllers of their memory.
        let all = with(&all, "(computed: what steps|counted by its memory).*:", "[how]:");
        let best = r"(?m)(compute|memory|caches|pull|push|group|scatter) *(\|?)$";
        let all = with(&all, best, "[measured] $2");
        check_measured(&format!("measured-{form}"), &all);
    }
}

#[test]
fn messages_that_a_newcomer_meets() {
    let mut all = String::new();
    let faults: &[&[&str]] = &[
        &["foo"],
        &["run", "--promt", "a"],
        &["run", "nowhere.gguf", "-p", "a"],
        &["run", "qwen9:0.6b", "-p", "a"],
        &["run", "/dev/null", "-p", "a"],
        &["run", tiny(), "-q"],
        &["run", tiny(), "-p", "a", "--temp", "hot"],
        &["run", tiny(), "-m", tiny(), "-p", "a"],
        &["chat", tiny()],
        &["run", tiny(), "--chat", "-p", "a"],
        &["run", tiny(), "--image", "a.png", "-p", "a"],
        &["run", "-q", "-p", "Once upon a time there lived a fox", "--ctx", "4"],
        &["serve", tiny(), "--port", "99999"],
        &["bench", "--synth", "qwen3-99b:q4_0"],
        &["pull", "a/b/c/d"],
        &["quantize", tiny(), "out.gguf", "--type", "q9"],
        &["plan", "--machine", "cray-1"],
        &["perplexity", tiny(), "-f", "nowhere.txt"],
        &["man", "foo"],
    ];
    for args in faults {
        let _ = writeln!(all, "{}", printed(80, args));
    }
    check("faults", &all);
    let run = ["run", "-n", "12", "--greedy", "-t", "1"];
    let told = with(&printed(80, &run), "(?m)^1 thread on .*$", "[machine]");
    check_measured("story", &told);
}

#[test]
fn colours_are_there_when_they_are_asked_for() {
    let visible = |args: &[&str]| printed(80, args).replace('\u{1b}', "ESC");
    let mut all = String::new();
    for when in ["always", "never"] {
        for args in [&["foo"][..], &["list"], &["ps", "--help"]] {
            let _ = writeln!(all, "{}", visible(&[&["--color", when], args].concat()));
        }
    }
    check("colours", &all);
}

#[test]
fn models_by_name() {
    let world = World::new();
    let mut all = String::new();
    for args in [
        &["pull", "qwen3:0.6b"][..],
        &["pull", "qwen3:0.6b"],
        &["list"],
        &["show", "qwen3:0.6b"],
        &["run", "qwen3:0.6b", "-q", "--greedy", "-n", "8", "-p", "Once upon a time"],
        &["rm", "qwen3:0.6b"],
        &["rm", "qwen3:0.6b", "--yes"],
        &["show", "qwen3:0.6b"],
    ] {
        let _ = writeln!(all, "{}", world.plain(&told(args, &world.run(args))));
    }
    // How fast it came, and what stands in the cache by its digest.
    let all = with(&all, r"in \d+(\.\d+)? s, \d+(\.\d+)? .B/s|[0-9a-f]{40}", "[…]");
    check("models", &all);
}

#[test]
fn files_that_are_made_and_texts_that_are_read() {
    let story = "The fox lived in a wood. ".repeat(40);
    let story = file("snapshot-story.txt", story.as_bytes());
    let floats = output("snapshot-floats.gguf");
    let mut all = String::new();
    for args in [
        &["synth", "tiny:bf16", "-o", &floats][..],
        &["quantize", &floats, "/nowhere/x.gguf", "--type", "q4_k_m", "--dry-run"],
        &["quantize", &floats, &output("snapshot-q8.gguf"), "--type", "q8_0", "-t", "1"],
        &["imatrix", &floats, "-f", &story, "-o", &output("snapshot-imatrix.gguf"), "-t", "1"],
        &["perplexity", "-f", &story, "-c", "64", "-t", "1"],
        &["perplexity", "-q", "-f", &story, "-c", "64", "-o", "csv"],
        &["embed", &floats, "-p", "a fox", "-t", "1"],
        &["show", "nothing"],
    ] {
        let _ = writeln!(all, "{}", printed(80, args));
    }
    let all = with(&all, "(?m)^1 thread on .*$", "[machine]");
    check_measured("files", &with(&all, r"\[-?\d[^\]]*\]", "[…]"));
}

#[test]
fn a_conversation() {
    let args = ["chat", "--greedy", "-n", "40", "-t", "1"];
    let lines = "Tell me a story.\n/stats\n/system Be short.\n/nonsense\n/help\n/regenerate\n";
    let told = told(&args, &run_with(&args, lines));
    check_measured("chat", &with(&told, "(?m)^1 thread on .*$", "[machine]"));
}

/// All that a server says of its life: its start, one request, its end.
fn life_of_a_server(args: &[&str]) -> String {
    let (mut served, serving) = serve(args, &[]);
    complete(&served, "Once upon a time");
    // As a service manager ends it.
    let pid = served.child.id().to_string();
    assert!(Command::new("kill").arg(pid).status().unwrap().success());
    let mut all = serving;
    served.err.read_to_string(&mut all).unwrap();
    format!("$ arclight serve {}\n{all}", args.join(" "))
}

#[test]
fn servers_and_searches() {
    let mut all = life_of_a_server(&["--alias", "demo"]);
    all.push('\n');
    let profile = output("snapshot-profile.toml");
    let tune = ["tune", tiny(), "--quick", "--profile-file", &profile];
    let _ = writeln!(all, "{}", printed(80, &tune));
    let _ = writeln!(all, "{}", printed(80, &["bench", "--limits", "-r", "1"]));
    // Names, cores and instructions are those of this machine, and what was found is, too.
    let machine =
        "(?m)^.*(kernels, 1 round|cpus 0|threads? \\(|amx|avx|neon|scalar|gets|one node).*\n";
    let all = with(&all, machine, "");
    // A connection may or may not be closed yet, and there are rows for every number of threads.
    let all = with(&all, "(?m)^.*waiting for requests.*\n", "");
    let all = with(&all, r#"id="req-[^"]*""#, "id=[…]");
    check_measured("lives", &with(&all, r"(?m)^(?: +[\d.]+)+\n(?:(?: +[\d.]+)+\n)+", " [rows]\n"));
}
