//! `--kernel`: micro-kernels from shared objects. The example is built by `cc`; where there is none, or the CPU lacks
//! AVX2, tests say so and check nothing.

use crate::serve::{complete, serve_plainly};
use crate::support::{FILES, Ran, arclight, fails, file, ran, run, succeeds, synth, text};
use std::path::Path;
use std::process::Command;
use testkit::repository;

/// What the example's kernel is called.
const NAME: &str = "example-q8_0-avx2";

/// The example, and what writes the number of its calls into the file that `CALLS` names.
const COUNTED: &str = r#"
#define arclight_kernels uncounted
#include "q8_0.c"
#undef arclight_kernels
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
static atomic_ulong calls;
static void counted(const arclight_product *product) { atomic_fetch_add(&calls, 1); multiply(product); }
static const arclight_kernel counted_list[] = {{NAME, "Q8_0", INSTRUCTIONS, 16 * TILES, TOKENS, counted}};
extern const arclight_kernel_list arclight_kernels;
const arclight_kernel_list arclight_kernels = {ARCLIGHT_KERNEL_VERSION, 1, counted_list};
__attribute__((destructor)) static void tell(void) {
    const char *path = getenv("CALLS");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (file) { fprintf(file, "%lu", calls); fclose(file); }
}
"#;

/// Builds C for AVX2; `None` where that cannot be done or run.
fn build(name: &str, source: &str) -> Option<String> {
    #[cfg(target_arch = "x86_64")]
    let runs = std::arch::is_x86_feature_detected!("avx2")
        && std::arch::is_x86_feature_detected!("fma")
        && std::arch::is_x86_feature_detected!("f16c");
    #[cfg(not(target_arch = "x86_64"))]
    let runs = false;
    if !runs {
        eprintln!("skipped: the CPU lacks AVX2, FMA or F16C");
        return None;
    }
    let source = file(&format!("{name}.c"), source.as_bytes());
    let out = text(&FILES.path().join(format!("{name}.so")));
    let mut cc = Command::new("cc");
    cc.args([
        "-O3", "-shared", "-fPIC", "-mavx2", "-mfma", "-mf16c", "-Wall", "-Wextra", "-Werror",
    ]);
    cc.arg("-I").arg(repository("crates/foreign/include"));
    cc.arg("-I").arg(repository("examples/kernel")).args([&source, "-o", &out]);
    match cc.output() {
        Err(fault) => {
            eprintln!("skipped: no C compiler (cc): {fault}");
            None
        }
        Ok(built) => {
            assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
            Some(out)
        }
    }
}

fn example() -> String {
    std::fs::read_to_string(repository("examples/kernel/q8_0.c")).unwrap()
}

/// Runs the program, and the calls of the counted kernel.
fn counted(name: &str, args: &[&str]) -> (Ran, u64) {
    let calls = FILES.path().join(name);
    let ran = ran(arclight(args).env("CALLS", &calls).output().unwrap());
    assert_eq!(ran.code, Some(0), "{args:?}: {}", ran.err);
    let calls = std::fs::read_to_string(calls).map_or(0, |calls| calls.parse().unwrap());
    (ran, calls)
}

#[test]
fn the_example_multiplies_and_the_text_is_the_same() {
    let Some(kernel) = build("counted", COUNTED) else { return };
    let generate = ["run", "-p", "Once upon a time", "-n", "12", "--greedy", "--untuned"];
    let (without, none) = counted("calls-none", &generate);
    let (with, calls) = counted("calls-run", &[&generate[..], &["--kernel", &kernel]].concat());
    assert_eq!((&with.out, none), (&without.out, 0));
    // Its trial takes some hundreds.
    assert!(calls > 10_000, "{calls} calls");
    assert!(
        with.err.contains(&format!("kernel {NAME} for Q8_0 matrices, of {kernel}")),
        "{}",
        with.err
    );
    // A model without such matrices does not use it.
    let q4 = synth("tiny:q4_0");
    let args = ["run", &q4, "-p", "a", "-n", "12", "--greedy", "--kernel", &kernel];
    let (_, trial) = counted("calls-q4", &args);
    assert!(trial < 2_000, "{trial} calls");
    let bench = ["bench", "-p", "20", "-n", "2", "-r", "1", "-o", "json", "--kernel", &kernel];
    let (bench, calls) = counted("calls-bench", &bench);
    let figures: serde_json::Value = serde_json::from_str(&bench.out).unwrap();
    assert_eq!(figures["results"][0]["kernels"], serde_json::json!([NAME]), "{}", bench.out);
    assert!(calls > 10_000, "{calls} calls");
}

#[test]
fn a_server_has_it_from_its_file_or_a_variable() {
    let Some(kernel) = build("served", &example()) else { return };
    let model = synth("tiny:q8_0");
    let (plain, _) = serve_plainly(&[&model], &[]);
    let expected = complete(&plain, "a b c").0;
    drop(plain);
    let config = format!("model = {model:?}\nkernel = [{kernel:?}]\n");
    let config = file("kernels.toml", config.as_bytes());
    let (served, _) = serve_plainly(&["--config", &config], &[]);
    assert_eq!(complete(&served, "a b c").0, expected);
    drop(served);
    let (served, _) = serve_plainly(&[&model], &[("ARCLIGHT_KERNEL", &kernel)]);
    assert_eq!(complete(&served, "a b c").0, expected);
    drop(served);
    // That they are read is seen where they are wrong.
    let missing = format!("model = {model:?}\nkernel = [\"/no/such.so\"]\n");
    let missing = file("missing-kernel.toml", missing.as_bytes());
    let line = fails(1, &["serve", "--config", &missing]);
    assert!(line.contains("/no/such.so: No such file"), "{line}");
}

#[test]
fn what_cannot_be_used_is_told_in_a_line() {
    let model = synth("tiny:q8_0");
    let refused =
        |kernel: &str| fails(1, &["run", &model, "-p", "a", "-n", "1", "--kernel", kernel]);
    assert!(refused("/no/such.so").contains("/no/such.so: No such file"));
    let text = file("text.so", b"no kernel");
    assert!(refused(&text).contains("not a shared object that can be loaded"));
    let example = example();
    let Some(other) = build("other", "int other;") else { return };
    assert!(refused(&other).contains("no symbol arclight_kernels"));
    let changed = |name: &str, from: &str, to: &str| {
        assert!(example.contains(from), "{from}");
        build(name, &example.replace(from, to)).expect("as before")
    };
    for (name, from, to, words) in [
        ("version", "= ARCLIGHT_KERNEL_VERSION", "= 7", "kernels for version 7 of the interface"),
        ("type", "\"Q8_0\"", "\"Q5_K\"", "is for \"Q5_K\": Q8_0 and Q4_0 are taken"),
        ("lacking", "\"avx2\"", "\"neon\"", "needs neon, which this CPU does not have"),
        // Broken: magnitudes with a sign, as 16 bits do not hold them.
        (
            "broken",
            "_mm256_abs_epi8(weights), acts",
            "weights, acts",
            "differ from the scalar kernel's, first row ",
        ),
    ] {
        let line = refused(&changed(name, from, to));
        assert!(line.contains(words) && line.contains(&format!("{name}.so: ")), "{line}");
    }
}

/// A profile's rows, all of which name a kernel.
fn named_everywhere(profile: &str, kernel: &str) -> String {
    let rows = regex::Regex::new(r"rows = \[\n(?:  .*\n)*\]").unwrap();
    let one = format!(
        "rows = [\n  {{ up_to = 512, kernel = \"{kernel}\", grid = [1, 1], ahead = 0 }},\n]"
    );
    rows.replace_all(profile, &*one).into_owned()
}

#[test]
fn tuning_times_it_and_the_profile_knows_it_by_its_digest() {
    let Some(kernel) = build("tuned", COUNTED) else { return };
    let model = synth("tiny:q8_0");
    let profile = text(&FILES.path().join("with-kernel.toml"));
    let tune = ["tune", &model, "-r", "5", "--matrices", "3", "--profile-file", &profile];
    let (_, calls) = counted("calls-tune", &[&tune[..], &["--kernel", &kernel]].concat());
    assert!(calls > 10_000, "{calls} calls");
    let found = std::fs::read_to_string(&profile).unwrap();
    let digest = blake3::hash(&std::fs::read(&kernel).unwrap()).to_hex()[..16].to_owned();
    assert!(
        found.contains(&format!("  {{ name = \"{NAME}\", digest = \"{digest}\" }},")),
        "{found}"
    );
    // As if it had won everywhere.
    std::fs::write(&profile, named_everywhere(&found, NAME)).unwrap();
    let generate = ["run", &model, "-p", "a", "-n", "8", "--greedy"];
    let tuned = [&generate[..], &["--profile-file", &profile]].concat();
    let (expected, _) = counted("calls-plain", &[&generate[..], &["--untuned"]].concat());
    let (with, calls) = counted("calls-tuned", &[&tuned[..], &["--kernel", &kernel]].concat());
    assert_eq!(with.out, expected.out);
    assert!(calls > 2_000 && !with.err.contains("left out"), "{calls}: {}", with.err);
    // Without it the program's own multiply, and that is told once.
    let Ran { code, out, err } = run(&tuned);
    assert_eq!((code, &out), (Some(0), &expected.out), "{err}");
    let told = format!(
        "that name kernel {NAME} of a file with the digest {digest}, which is not loaded (--kernel)"
    );
    assert_eq!(err.matches(&told).count(), 1, "{err}");
    // One of the same name in another file is another one: it is used, and the profile is not for it.
    let other = build(
        "retuned",
        &COUNTED.replace("stdatomic.h>", "stdatomic.h>\nconst char other[] = \"another\";"),
    );
    let (with, calls) =
        counted("calls-other", &[&tuned[..], &["--kernel", &other.unwrap()]].concat());
    assert_eq!(with.out, expected.out);
    assert!(calls > 2_000, "{calls}");
    assert!(
        with.err.contains(&format!("the profile was made without kernel {NAME}")),
        "{}",
        with.err
    );
}

#[test]
fn the_lines_that_build_the_example_are_right() {
    let example = example();
    let lines = example.lines().filter_map(|line| line.trim_start().strip_prefix("*   cc "));
    let lines: Vec<&str> = lines.collect();
    assert_eq!(lines.len(), 2);
    if cfg!(not(target_arch = "x86_64")) || Command::new("cc").arg("--version").output().is_err() {
        eprintln!("skipped: no C compiler (cc) for x86-64");
        return;
    }
    for (line, isa) in lines.iter().zip(["avx2", "avx512vnni"]) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (last, words) = words.split_last().unwrap();
        let out = FILES.path().join(Path::new(last));
        let mut cc = Command::new("cc");
        let built = cc.current_dir(repository(".")).args(words).arg(&out).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let ran =
            run(&["run", "-p", "a", "-n", "4", "--greedy", "--kernel", out.to_str().unwrap()]);
        if ran.code == Some(0) {
            assert_eq!(ran.out, succeeds(&["run", "-p", "a", "-n", "4", "--greedy"]));
        } else {
            assert!(ran.err.contains(&format!("needs {isa}, which this CPU")), "{}", ran.err);
        }
    }
}
