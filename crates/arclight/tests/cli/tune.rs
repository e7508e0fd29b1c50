//! `tune`: what it finds is kept, used by the commands that load the model, and by no other model.

use crate::serve::{complete, serve_plainly};
use crate::support::{FILES, Ran, arclight, fails, file, run, succeeds, synth, text, tiny};
use std::path::PathBuf;

/// A quick profile of the tiny model, in a file of its own.
fn quick(name: &str) -> String {
    let path = text(&FILES.path().join(name));
    let Ran { code, out, err } = run(&["tune", tiny(), "--quick", "--profile-file", &path]);
    assert_eq!(code, Some(0), "{err}");
    // Of two cores that others use too, one may be best.
    let threads = out.contains("threads (") || out.contains("1 thread (1)");
    assert!(out.contains("group 0: cpus ") && threads, "{out}");
    assert!(err.contains(&format!("kept in {path}")), "{err}");
    path
}

#[test]
fn a_search_is_kept_and_read_again() {
    let trace = "{\"prompt_tokens\": 9, \"output_tokens\": 3}\n\n\
                 {\"usage\": {\"prompt_tokens\": 40, \"completion_tokens\": 5}}\n";
    let trace = file("requests.jsonl", trace.as_bytes());
    let path = text(&FILES.path().join("whole.toml"));
    let args = ["tune", tiny(), "--trace", &trace, "--together", "2", "-r", "5", "--matrices", "3"];
    let Ran { code, out, err } = run(&[&args[..], &["--tree", "--profile-file", &path]].concat());
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("decoding: ") && err.contains("`plan`"), "{err}");
    assert!(
        out.contains("looked at") && out.contains("\ndefault ") && out.contains("  by "),
        "{out}"
    );
    assert!(!err.contains("left out"), "{err}");
    // One and two answers at a time, prompts of about 8 and 32 tokens.
    for tokens in ["1 ", "2 ", "8 ", "32 "] {
        let row = out.lines().find(|line| line.trim_start().starts_with(tokens));
        assert!(row.is_some(), "no row of {tokens} in: {out}");
    }
    let profile = std::fs::read_to_string(&path).unwrap();
    assert!(profile.contains("version = 3") && profile.contains("[[table]]"), "{profile}");
    // What is paired and what is summed has products of its own.
    for shape in [" paired, ", " summed, "] {
        let matrix = |line: &str| line.starts_with("name = \"") && line.contains(shape);
        assert!(profile.lines().any(matrix), "no matrix{shape}in {profile}");
    }
    assert!(profile.contains("complete = true"), "{profile}");
    let generate = ["run", tiny(), "-n", "9", "-p", "a", "--greedy"];
    let Ran { code, out, err } = run(&[&generate[..], &["--profile-file", &path]].concat());
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("cores as tuned on 2"), "{err}");
    assert_eq!(out, run(&[&generate[..], &["--untuned"]].concat()).out, "another text as tuned");
    let Ran { code, out, err } = run(&["tune", tiny(), "--compare", "--profile-file", &path]);
    assert_eq!(code, Some(0), "{err}");
    assert!(
        out.contains(" paired, ") && out.contains("the tuned product is surely the faster one in "),
        "{out}"
    );
}

#[test]
fn what_a_profile_says_of_matrices_must_be_known_here() {
    let path = text(&FILES.path().join("unknown.toml"));
    let args = ["tune", tiny(), "-r", "5", "--matrices", "3", "--profile-file", &path];
    let Ran { code, err, .. } = run(&args);
    assert_eq!(code, Some(0), "{err}");
    let profile = std::fs::read_to_string(&path).unwrap();
    let start = profile.find("rows = [").unwrap();
    let end = start + profile[start..].find("\n]").unwrap();
    let row =
        "rows = [\n  { up_to = 512, kernel = \"9x9\", slice = [1, 1], grid = [1, 1], ahead = 0 },";
    let profile_with = |row: &str| format!("{}{row}{}", &profile[..start], &profile[end..]);
    std::fs::write(&path, profile_with(row)).unwrap();
    let Ran { code, err, .. } =
        run(&["run", tiny(), "-n", "4", "-p", "a", "--profile-file", &path]);
    assert_eq!(code, Some(0), "{err}");
    assert!(
        err.contains("names the kernel 9x9, which does not multiply Q4_0 on this CPU"),
        "{err}"
    );

    // A kernel of this CPU is used, and the report names the matrix. Which kernels there are depends on the CPU.
    let report = |more: &[&str]| {
        let generate = ["run", tiny(), "-n", "4", "-p", "a", "--report"];
        let Ran { code, out, err } = run(&[&generate[..], more].concat());
        assert_eq!(code, Some(0), "{err}");
        format!("{out}{err}").split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let told = |report: String| {
        report.contains("of a step are multiplied by schedules of the profile: qkv")
    };
    assert!(["1x1", "2x2", "4x2", "1x4", "2x4", "4x4", "2x8", "4x8"].iter().any(|kernel| {
        let known = profile_with(&row.replace("9x9", kernel));
        std::fs::write(&path, known).unwrap();
        told(report(&["--profile-file", &path]))
    }));
    assert!(!told(report(&["--untuned"])));
}

#[test]
fn what_was_found_is_used_by_itself_until_something_speaks_against_it() {
    let cache: PathBuf = FILES.path().join("own-cache");
    let with_cache = |args: &[&str]| {
        let output = arclight(args).env("XDG_CACHE_HOME", &cache).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stderr).unwrap()
    };
    let model = tiny();
    let generate = ["run", model, "-n", "4", "-p", "a"];
    assert!(!with_cache(&generate).contains("tuned"));
    assert!(with_cache(&["tune", model, "--quick"]).contains("own-cache/arclight/tune-"));
    assert!(with_cache(&generate).contains("cores as tuned on 2"));
    let bench = ["bench", model, "-p", "8", "-n", "2", "-r", "1"];
    assert!(with_cache(&bench).contains("cores as tuned on 2"));
    for own in [&["--untuned"][..], &["--threads", "1"], &["--nodes", "1"], &["--no-pin"]] {
        let err = with_cache(&[&generate[..], own].concat());
        assert!(!err.contains("tuned"), "{own:?}: {err}");
    }
    // A profile of another program is told and left alone.
    let folder = cache.join("arclight");
    let path = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    let profile = std::fs::read_to_string(&path).unwrap();
    let (before, after) = profile.split_once("[program]\ndigest = \"").unwrap();
    std::fs::write(&path, format!("{before}[program]\ndigest = \"old {after}")).unwrap();
    let err = with_cache(&generate);
    assert!(err.contains("for another program") && err.contains("not used"), "{err}");
    std::fs::write(&path, "version = 9\n").unwrap();
    let err = with_cache(&generate);
    assert!(err.contains("version 9") && err.contains("not used"), "{err}");
}

#[test]
#[ignore = "takes minutes: in .ci/full"]
fn a_big_model_begins_at_once_and_its_cores_are_found_in_idle_time() {
    if std::thread::available_parallelism().is_ok_and(|n| n.get() < 2) {
        return; // Nothing to choose between.
    }
    let path = synth("qwen3-0.6b:q4_0");
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().to_str().unwrap();
    let profiles = || {
        let files = std::fs::read_dir(folder.path().join("arclight"));
        let names = files.into_iter().flatten().map(|file| file.unwrap().file_name());
        names.filter(|name| name.to_str().unwrap().ends_with(".toml")).count()
    };
    let start = |own: &[&str]| {
        let args = ["run", &path, "--ctx", "64", "-p", "a", "-n", "1", "--greedy"];
        let mut command = arclight(&[&args[..], own].concat());
        let output = command.env("XDG_CACHE_HOME", cache).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(start(&["-q"]), "");
    let hint = format!("untuned: `arclight tune {path}` finds");
    for (own, told) in [(&["--untuned"][..], false), (&[], true), (&[], false)] {
        let err = start(own);
        assert!(err.contains(&hint) == told && !err.contains("tuned on"), "{own:?}: {err}");
    }
    assert_eq!(profiles(), 0);

    let (served, _) = serve_plainly(&[&path, "--ctx", "256"], &[("XDG_CACHE_HOME", cache)]);
    let answer = complete(&served, "a").0;
    for _ in 0..300 {
        if profiles() > 0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_secs(2));
        assert_eq!(complete(&served, "a").0, answer);
    }
    assert_eq!(profiles(), 1);
    assert_eq!(complete(&served, "a").0, answer);
    drop(served);
    let known = start(&[]);
    assert!(!known.contains("untuned") && known.contains("cores as tuned on"), "{known}");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_profile_that_is_asked_for_must_fit() {
    let path = quick("quick.toml");
    let profile = std::fs::read_to_string(&path).unwrap();
    let generate =
        |path: &str| fails(1, &["run", "-q", tiny(), "-n", "2", "-p", "a", "--profile-file", path]);
    let (before, after) = profile.split_once("[model]\ndigest = \"").unwrap();
    let other = file("other.toml", format!("{before}[model]\ndigest = \"f{after}").as_bytes());
    let error = generate(&other);
    assert!(error.contains("other.toml") && error.contains("for another model"), "{error}");
    let error = generate(&file("text.toml", b"no profile"));
    assert!(error.contains("text.toml"), "{error}");
    let error = generate(&text(&FILES.path().join("nowhere.toml")));
    assert!(error.contains("nowhere.toml"), "{error}");
    // Phases of a user's own making: what cannot be is refused by the engine.
    let (before, after) = profile.split_once("[[table]]\n").unwrap();
    let row = "[[table]]\nup_to = 0\ncpus = [1]\n[[table]]\n";
    let error = generate(&file("phases.toml", format!("{before}{row}{after}").as_bytes()));
    assert!(error.contains("0 tokens"), "{error}");
}

#[test]
fn the_same_text_with_and_without_a_profile() {
    let path = quick("same.toml");
    let generate = ["run", "-q", tiny(), "-n", "24", "-p", "a b c", "--greedy"];
    let plain = succeeds(&[&generate[..], &["--untuned"]].concat());
    assert_eq!(succeeds(&[&generate[..], &["--profile-file", &path]].concat()), plain);
}

#[test]
fn faults_of_the_arguments_are_told() {
    let trace = file("bad.jsonl", b"{\"prompt_tokens\": 9, \"output_tokens\": 3}\n{}\n");
    let error = fails(1, &["tune", tiny(), "--trace", &trace]);
    assert!(error.contains("bad.jsonl") && error.contains("line 2"), "{error}");
    let error = fails(1, &["tune", tiny(), "--quick", "--profile-file", "/proc/none/x.toml"]);
    assert!(error.contains("/proc/none"), "{error}");
    let few = run(&["tune", tiny(), "-r", "4"]);
    assert!(few.code == Some(2) && few.err.contains("at least 5"), "{}", few.err);
    let both = run(&["run", tiny(), "--profile-file", "x", "--threads", "1"]);
    assert_eq!(both.code, Some(2), "{}", both.err);
}

#[test]
#[ignore = "takes minutes: in .ci/full"]
fn replicas_have_a_profile_of_their_own() {
    if std::thread::available_parallelism().is_ok_and(|n| n.get() < 2) {
        return; // No core for the second.
    }
    let cache = FILES.path().join("replicas-cache");
    let with_cache = |args: &[&str]| {
        let output = arclight(args).env("XDG_CACHE_HOME", &cache).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let (out, err) = (String::from_utf8(output.stdout), String::from_utf8(output.stderr));
        (out.unwrap(), err.unwrap())
    };
    let own = ["-r", "5", "--matrices", "2", "--together", "4"];
    let (out, err) = with_cache(&[&["tune", tiny(), "--replicas", "1,2"], &own[..]].concat());
    assert!(out.contains("of the first replica:") && out.contains("seconds of the trace"), "{out}");
    assert!(err.contains("2 replicas, 2 at a time on each"), "{err}");
    assert!(!err.contains("left out: a replica"), "{err}");
    assert_eq!(std::fs::read_dir(cache.join("arclight")).unwrap().count(), 2);
    let bench = |replicas: &str| {
        let (_, err) =
            with_cache(&["bench", tiny(), "-p", "8", "-n", "2", "-r", "1", "--replicas", replicas]);
        err
    };
    assert!(bench("2").contains("cores as tuned on 2"));
    let serve = ["serve", tiny(), "--replicas", "2", "--port", "0"];
    let mut command = arclight(&serve);
    command.env("XDG_CACHE_HOME", &cache).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let lines = std::io::BufReader::new(child.stderr.take().unwrap());
    let told: Vec<String> = std::io::BufRead::lines(lines)
        .map(Result::unwrap)
        .take_while(|line| !line.contains("http://"))
        .collect();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(told.iter().any(|line| line.contains("cores as tuned on 2")), "{told:?}");
    // One file cannot have the profiles of several numbers.
    let both = run(&["tune", tiny(), "--replicas", "1,2", "--profile-file", "x"]);
    assert!(both.code == Some(2) && both.err.contains("one number"), "{}", both.err);
}

#[test]
#[ignore = "takes minutes: in .ci/full"]
fn mechanisms_are_measured_one_by_one() {
    let trace = short_trace();
    let args = ["tune", tiny(), "--ablation", "--nodes", "2", "-r", "5", "--matrices", "1"];
    let args = [&args[..], &["--trace", &trace]].concat();
    let rows = succeeds(&[&args[..], &["-o", "csv"]].concat());
    for way in [
        ",\"no placement, all wait\",",
        ",+ communication,",
        ",+ configuration,",
        ",+ kernels,",
        ",+ split-K,",
        ",all but communication,",
        ",k = 1,",
        ",window = 5,",
        ",window = 20,",
    ] {
        assert!(rows.contains(way), "no row {way} in {rows}");
    }
    let text = succeeds(&args);
    assert!(text.contains("8 sequences, tokens/s") && text.contains("tuning, s"), "{text}");
    let error = fails(2, &["tune", tiny(), "--nodes", "2"]);
    assert!(error.contains("--ablation"), "{error}");
}

/// Requests of which eight run together.
fn short_trace() -> String {
    let lines: String = (0..16)
        .map(|i| format!("{{\"prompt_tokens\": {}, \"output_tokens\": {}}}\n", 20 + i, 5 + i))
        .collect();
    file("sixteen.jsonl", lines.as_bytes())
}

#[test]
fn a_search_ends_with_its_budget() {
    let path = text(&FILES.path().join("budget.toml"));
    let args = ["tune", tiny(), "-r", "5", "--budget", "1", "--profile-file", &path];
    let Ran { code, err, .. } = run(&[&args[..], &["--top-k", "1", "--window", "4"]].concat());
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("kept in"), "{err}");
    let none = run(&["tune", tiny(), "--top-k", "0"]);
    assert!(none.code == Some(2) && none.err.contains("top-k"), "{}", none.err);
    let quick = run(&["tune", tiny(), "--quick", "--budget", "3"]);
    assert!(quick.code == Some(2) && quick.err.contains("--budget"), "{}", quick.err);
}

#[test]
fn two_nodes_scatter_sums_where_a_profile_says_so() {
    let path = quick("scatter.toml");
    let profile = std::fs::read_to_string(&path).unwrap();
    let groups = profile.find("[[groups]]").unwrap();
    let cpus = profile[groups..].split("cpus = [").nth(1).unwrap().split(']').next().unwrap();
    let Some((one, two)) = cpus.split_once(", ") else { return };
    let two = two.split(',').next().unwrap();
    // Two groups on the one node there is, whose sums of long prompts are scattered.
    let head = &profile[..groups];
    let node = profile[groups..].lines().find(|line| line.starts_with("node =")).unwrap_or("");
    let group = |cpu: &str| format!("[[groups]]\n{node}\ncpus = [{cpu}]\n");
    let search = &profile[profile.find("[search]").unwrap()..];
    let search = search.split("[[matrix]]").next().unwrap();
    let made = |choice: &str| {
        let table = "[[table]]\ncpus = [1, 1]\n";
        format!("{head}{}{}{table}{choice}{search}", group(one), group(two))
    };
    let scattered = "[[choices]]\nname = \"gather\"\nvalue = \"scattered\"\n\n";
    let of = |name: &str, choice: &str| {
        let path = file(name, made(choice).as_bytes());
        succeeds(&[
            "run",
            "-q",
            tiny(),
            "-n",
            "9",
            "-p",
            "a b c",
            "--greedy",
            "--profile-file",
            &path,
        ])
    };
    assert_eq!(of("scattered.toml", scattered), of("pulled.toml", ""));
}

#[test]
fn energy_is_refused_by_name_where_no_meter_can_be_read() {
    let energy = ["tune", tiny(), "--objective", "energy"];
    let error = fails(2, &[&energy[..], &["--replicas", "1,2"]].concat());
    assert!(error.contains("count all replicas together"), "{error}");
    if topology::Energy::read(std::path::Path::new("/")).is_none() {
        let error = fails(1, &energy);
        assert!(error.contains("--objective energy") && error.contains("intel-rapl"), "{error}");
    }
}
