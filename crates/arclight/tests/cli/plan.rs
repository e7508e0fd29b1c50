//! `plan`: machines that come with it, from files, and the one at hand.

use crate::support::{FILES, fails, json, run, succeeds, tiny};
use serde_json::Value;
use std::path::PathBuf;

fn file(name: &str, text: &str) -> PathBuf {
    let path = FILES.path().join(name);
    std::fs::write(&path, text).expect("written");
    path
}

/// Tokens/s of the best choice of each engine.
fn speeds(seen: &Value, what: &str) -> Vec<f64> {
    let engines = seen["engines"].as_array().expect("engines");
    let speed = |e: &Value| e[what]["prediction"]["tokens_per_second"].as_f64().expect("a speed");
    engines.iter().map(speed).collect()
}

/// On one line.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_paper_s_machine_is_predicted_for_every_engine() {
    let seen =
        json(&["plan", "--machine", "kunpeng-920", "--model", "qwen3-4b:q4_0", "-o", "json"]);
    assert_eq!(seen["cores"], serde_json::json!([48, 48, 48, 48]));
    let decode = speeds(&seen, "decode");
    let [unplaced, interleaved, replicated, a, b] = decode[..] else { panic!("{decode:?}") };
    assert!(unplaced < interleaved && interleaved < replicated && replicated < a && a < b);
    // Prompts are bound by multipliers, which no placement changes: within a tenth of each other.
    let prompt = speeds(&seen, "prompt");
    let (least, most) = (prompt.iter().copied().fold(f64::MAX, f64::min), prompt[0].max(prompt[4]));
    assert!(most / least < 1.1 && least > 5.0 * b, "{prompt:?}");
    let limit = |e: usize, what: &str| {
        seen["engines"][e][what]["prediction"]["limit"].as_str().expect("a limit").to_owned()
    };
    assert!(limit(0, "decode").starts_with("link "), "{}", limit(0, "decode"));
    assert!(limit(4, "decode").starts_with("memory of node "), "{}", limit(4, "decode"));
    assert!(limit(4, "prompt").starts_with("multipliers of node "), "{}", limit(4, "prompt"));

    let text = succeeds(&["plan", "--machine", "Kunpeng-920", "--threads", "96"]);
    for part in ["4 nodes, 192 cores", "decoding after 128, tokens/s by threads", "prompt of 512"] {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
    // There are kernels for these cores; no one has timed them.
    assert!(flat(&text).contains("which were never timed on them"), "{text}");
    assert!(!flat(&succeeds(&["plan", "--machine", "epyc-9654"])).contains("never timed"));
    // On two nodes and on four, in all three tables.
    assert_eq!(text.lines().filter(|l| l.starts_with("     96 ")).count(), 6, "{text}");
}

#[test]
fn prompt_and_answer_have_a_speed_together() {
    let plan = ["plan", "--machine", "neoverse-n2", "-m", "llama3-8b:q4_0", "-c", "0", "-p", "128"];
    let of = |more: &[&str]| json(&[&plan[..], &["-e", "unplaced", "-o", "json"], more].concat());
    let seen = of(&["-t", "36"]);
    let row = &seen["rows"][0];
    assert_eq!(row["threads"], serde_json::json!([36, 0]));
    let both = |seen: &Value| seen["prompt_and_answer_tokens_per_second"][0].as_f64().unwrap();
    // docs/cost-model.md has this number next to Arm's.
    assert!((both(row) - 44.1).abs() < 0.1, "{row}");
    // A longer answer is nearer to the speed of decoding; together sequences are faster.
    let long = of(&["-t", "36", "-n", "512"]);
    let decode = row["decode_tokens_per_second"][0].as_f64().unwrap();
    assert!((decode..both(row)).contains(&both(&long["rows"][0])), "{long}");
    let four = of(&["-t", "36", "-b", "4"]);
    assert!(both(&four["rows"][0]) > 1.5 * both(row), "{four}");
    // The fastest threads of each are no slower than the same threads for both.
    let best = seen["engines"][0]["prompt_and_answer"]["tokens_per_second"].as_f64().unwrap();
    assert!(best >= both(row), "{seen}");
    let text = succeeds(&[&plan[..], &["-e", "unplaced"]].concat());
    assert!(
        text.contains("prompt of 128 after 0 and answer of 128, S, tokens/s by threads"),
        "{text}"
    );
    // A fitted rate is not called assumed.
    let origin = "of its multiply rates int8 is fitted, bf16 is assumed, f32 is assumed";
    assert!(flat(&text).contains(origin), "{text}");
}

#[test]
fn machines_are_listed_with_the_origin_of_their_numbers() {
    let text = succeeds(&["plan", "--machines"]);
    for name in ["kunpeng-920", "neoverse-n2", "xeon-8272cl", "epyc-7h12", "epyc-9654"]
        .iter()
        .chain(&["xeon-6980p", "graviton4", "grace", "xeon-6151", "xeon-6230", "kunpeng-920-8"])
    {
        assert!(text.contains(name), "no {name} in: {text}");
        let one = succeeds(&["plan", "--machines", "--machine", name]);
        assert!(one.contains("memory of a node") && one.contains("assumed"), "{one}");
    }
    // The same for programs.
    let list = json(&["plan", "--machines", "-o", "json"]);
    let names = list["machines"].as_array().expect("a list").iter().map(|m| &m["name"]);
    assert_eq!(names.filter(|name| *name == "xeon-6230").count(), 1, "{list}");
    let one = json(&["plan", "--machines", "--machine", "neoverse-n2", "-o", "json"]);
    let arrival = one["figures"].as_array().expect("a list");
    let arrival = arrival.iter().find(|f| f["what"] == "arrival, other node").expect("it is there");
    assert_eq!((arrival["value"].as_f64(), &arrival["origin"]), (Some(450.0), &"fitted".into()));
    assert_eq!(one["read_bytes_per_second"][0][1].as_f64(), Some(55e9));
    let line = fails(2, &["plan", "--machine", "pdp-11"]);
    assert!(line.contains("no machine \"pdp-11\"") && line.contains("grace"), "{line}");
}

#[test]
fn described_machines_need_their_bandwidths() {
    let line = fails(2, &["plan", "--synthetic", "numa:2 core:8"]);
    assert!(line.contains("--bandwidth FILE") && line.contains("a row for the cores"), "{line}");
    let matrix = file("two.txt", "100 30 # node 0\n 30 100\n");
    let matrix = matrix.to_str().expect("text");
    let args = ["plan", "--synthetic", "numa:2 core:8", "--bandwidth", matrix, "-o", "json"];
    let like = |name| json(&[&args[..], &["--like", name]].concat());
    let (slow, fast) = (like("kunpeng-920"), like("grace"));
    assert_eq!(slow["read_bytes_per_second"][0][1].as_f64(), Some(30e9));
    // 16 cores that read 2.2 GB/s each do not fill 200 GB/s, others do.
    assert!(speeds(&slow, "decode")[4] < 0.5 * speeds(&fast, "decode")[4]);
    let text = succeeds(&args[..5]);
    assert!(text.contains("assumed: see --like"), "{text}");

    let line = fails(1, &["plan", "--synthetic", "numa:3 core:8", "--bandwidth", matrix]);
    assert!(line.contains("two.txt") && line.contains("2 nodes, the machine has 3"), "{line}");
    let broken = file("broken.txt", "100 x\n30 100\n");
    let broken = broken.to_str().expect("text");
    let line = fails(1, &["plan", "--synthetic", "numa:2 core:8", "--bandwidth", broken]);
    assert!(line.contains("line 1: \"x\" is no bandwidth"), "{line}");
    let line = fails(2, &["plan", "--bandwidth", matrix]);
    assert!(line.contains("--synthetic"), "{line}");
}

#[test]
fn what_topo_has_measured_is_read() {
    let seen = succeeds(&["topo", "--bandwidth", "-o", "json", "--cpus", &first_cpu()]);
    let measured: Value = serde_json::from_str(&seen).expect("JSON");
    let rate = measured["access"]["read_bytes_per_second"][0][0].as_f64().expect("measured");
    let path = file("measured.json", &seen);
    let path = path.to_str().expect("text");
    let seen = json(&[
        "plan",
        "--synthetic",
        "numa:1 core:2",
        "--bandwidth",
        path,
        "-o",
        "json",
        "-c",
        "0",
    ]);
    assert_eq!(seen["read_bytes_per_second"][0][0].as_f64(), Some(rate));
    let other = file("other.json", "{\"machine\": 1}");
    let other = other.to_str().expect("text");
    let line = fails(1, &["plan", "--synthetic", "core:2", "--bandwidth", other]);
    assert!(line.contains("topo --bandwidth -o json"), "{line}");
}

fn first_cpu() -> String {
    json(&["topo", "-o", "json"])["layout"]["groups"][0]["cpus"][0].to_string()
}

#[test]
fn the_machine_at_hand_is_measured_and_told_in_words() {
    let text = succeeds(&["plan", "--model", "tiny:q4_0", "--prompt", "64"]);
    for part in
        ["measured in ", "one core alone: ", "plan for Tiny Qwen3 Q4_0", "  prompts ", "  so "]
    {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
    let seen = json(&["plan", "--model", "tiny:q4_0", "-o", "json"]);
    assert!(seen["plan"]["decode"]["tokens_per_second"].as_f64().expect("a speed") > 0.0);
    assert!(seen["plan"]["core_read_bytes_per_second"].as_f64().expect("a rate") > 1e6);
}

#[test]
fn more_sequences_read_more_experts() {
    let plan = |batch: &str| {
        let model = ["plan", "--machine", "kunpeng-920", "-m", "qwen3-30b-a3b:q4_0"];
        json(&[&model[..], &["--engine", "tp-b", "-t", "192", "-b", batch, "-o", "json"]].concat())
    };
    let [one, sixteen, all] = ["1", "16", "4096"].map(plan);
    let bytes = |seen: &Value| seen["bytes_per_step"].as_f64().expect("bytes");
    // Of 128 experts a token goes to 8, and tokens that choose by chance to others: 128 (1 - (15/16)^16) = 82.4.
    let share = (bytes(&sixteen) - bytes(&one)) / (bytes(&all) - bytes(&one));
    let expected = (128.0 * (1.0 - (15f64 / 16.0).powi(16)) - 8.0) / (128.0 - 8.0);
    // Experts are counted whole, class by class.
    assert!((share - expected).abs() < 0.01, "{share}, not {expected}");
    // Active: 3.3 of 30.5 billion parameters, less the embedding's rows.
    assert!((1.7e9..1.9e9).contains(&bytes(&one)), "{one}");
    let speed = |seen: &Value| {
        seen["engines"][0]["decode"]["prediction"]["tokens_per_second"].as_f64().expect("a rate")
    };
    assert!(speed(&sixteen) > 2.0 * speed(&one), "{} and {}", speed(&sixteen), speed(&one));
}

#[test]
fn speeds_are_drawn_and_models_come_from_files() {
    let model = FILES.path().join("plan-tiny.gguf");
    let model = model.to_str().expect("text");
    succeeds(&["synth", "tiny:q8_0", "-o", model]);
    let plot = FILES.path().join("plan.svg");
    let ran = run(&[
        "plan",
        "--machine",
        "epyc-9654",
        "-m",
        model,
        "--plot",
        plot.to_str().expect("text"),
        "--engine",
        "unplaced,tp-b,pp",
        "-o",
        "json",
    ]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let seen: Value = serde_json::from_str(&ran.out).expect("JSON");
    let same = json(&["plan", "--machine", "epyc-9654", "-m", "tiny:q8_0", "-o", "json"]);
    assert_eq!(seen["bytes_per_step"], same["bytes_per_step"]);
    let svg = std::fs::read_to_string(plot).expect("drawn");
    // A line in the legend and a curve for one and for two nodes, decoding and prompt, of each.
    for colour in ["#D16914", "#209660", "#1C93A6"] {
        assert_eq!(svg.matches(colour).count(), 1 + 4, "{colour}");
    }
    assert!(!svg.contains("NaN") && svg.contains("prompt, 2 nodes"), "{svg}");

    let line = fails(2, &["plan", "-m", "qwen9:q4_0"]);
    assert!(line.contains("there is no shape \"qwen9\""), "{line}");
    let line = fails(2, &["plan", "--machine", "grace", "--threads", "500"]);
    assert!(line.contains("the machine has 144 cores"), "{line}");
}

#[test]
fn speeds_by_threads_are_measured_and_fitted() {
    let path = tiny();
    let args = ["plan", "--scaling", "-m", path, "-t", "2", "-p", "32", "-c", "16"];
    let seen = json(&[&args[..], &["-o", "json"]].concat());
    let rows = seen["rows"].as_array().expect("rows");
    for phase in ["decode", "prompt"] {
        let of: Vec<&Value> = rows.iter().filter(|row| row["phase"] == phase).collect();
        let threads: Vec<_> =
            of.iter().map(|row| row["threads"].as_u64().expect("a number")).collect();
        assert_eq!(threads, [1, 2], "one thread is what the others are compared with: {seen}");
        assert_eq!((of[0]["speedup"].as_f64(), &of[0]["per_core"]), (Some(1.0), &Value::Null));
        assert!(of.iter().all(|row| row["tokens_per_second"].as_f64() > Some(0.0)), "{seen}");
        let spread = &of[1]["speedup_spread"];
        let [low, high] = ["low", "high"].map(|key| spread[key].as_f64().expect("a number"));
        let median = of[1]["speedup"].as_f64().expect("a number");
        assert!(low <= median && median <= high && low < high, "{seen}");
    }
    for phase in seen["phases"].as_array().expect("phases") {
        let serial = phase["serial_share"].as_f64().expect("two points are fitted");
        assert!((0.0..=1.0).contains(&serial), "{phase}");
    }
    let text = succeeds(&args);
    for part in
        ["decoding 32 tokens after 16", "prompt of 32 after 16", "is serial by Amdahl's law"]
    {
        assert!(flat(&text).contains(part), "no {part:?} in: {text}");
    }
    let line = fails(2, &["plan", "--scaling", "-m", path, "-c", "999999"]);
    assert!(line.contains("use a smaller -p or -c"), "{line}");
    let line = fails(2, &["plan", "--scaling", "--machine", "grace"]);
    assert!(line.contains("cannot be used with"), "{line}");
}
