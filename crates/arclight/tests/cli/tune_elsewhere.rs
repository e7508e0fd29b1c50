//! `tune` on machines that are not at hand.

use crate::support::{Ran, fails, file, run, succeeds, text};
use serde_json::{Value, json};

const PLANTED: [&str; 6] = [
    "tune",
    "--synthetic",
    "numa:2 core:16",
    "--contention",
    "cores:4 fill:2 crowd:0.3",
    "--synth",
];

fn searched(more: &[&str]) -> Value {
    let args = [&PLANTED[..], &["llama3.2-1b:q8_0", "-o", "json"], more].concat();
    serde_json::from_str(&succeeds(&args)).unwrap()
}

fn count(found: &Value, stage: &str) -> usize {
    let branches = found["branches"].as_array().unwrap();
    branches.iter().filter(|branch| branch["stage"] == stage).count()
}

#[test]
fn group_and_remove_pay_where_contention_is_planted() {
    let found = searched(&[]);
    let won = |what: &str| found["decoding_won"][what].as_f64().unwrap();
    assert!(won("group") > 1.4 && won("cut") < 1.1 && won("remove") < 1.1, "{found}");
    let seconds = |what: &str| found["trace_seconds"][what].as_f64().unwrap();
    assert!(seconds("default") > 1.3 * seconds("tuned"), "{found}");
    assert!(count(&found, "decoding") > 9 && count(&found, "family") > 3, "{found}");
    // A search that may not wait finds less.
    let hasty = searched(&["--patience", "1", "--top-k", "1"]);
    assert!(hasty["steps_timed"].as_u64() < found["steps_timed"].as_u64(), "{hasty}");
    let Ran { code, out, err } = run(&["tune", "--machine", "xeon-8272cl", "--synth", "tiny:q8_0"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("by node") && out.contains("for decoding, groups of 2"), "{out}");
    assert!(err.contains("would have taken") && !err.contains("kept in"), "{err}");
}

/// Of an uneven machine an even part is searched, and the default stays where that is slower.
#[test]
fn machines_of_hwloc_are_searched() {
    let folder = testkit::repository("crates/topology/tests/data/hwloc");
    let of = |name: &str| {
        let path = text(&folder.join(name));
        let args = ["tune", "--hwloc", &path, "--synth", "llama3.2-1b:q8_0", "-o", "json"];
        serde_json::from_str::<Value>(&succeeds(&args)).unwrap()
    };
    let uneven = of("16amd64-8n2c-cpusets.xml");
    let won = &uneven["decoding_won"];
    assert!(["cut", "remove", "group"].iter().all(|step| won[step] == 1.0), "{won}");
    let even = of("28intel64-2p2g7c-CoDgroups.v1.xml");
    assert_eq!((even["groups"].as_array().unwrap().len(), count(&even, "default")), (4, 1));
}

#[test]
fn latency_shows_the_level_that_is_searched() {
    // Clusters of four that stand side by side.
    let near = |a: usize, b: usize| {
        if a == b {
            0
        } else if a / 4 == b / 4 {
            30
        } else {
            80
        }
    };
    let cpus: Vec<usize> = (0..32).collect();
    let row = |&a: &usize| cpus.iter().map(|&b| near(a, b)).collect::<Vec<_>>();
    let rows: Vec<Vec<usize>> = cpus.iter().map(row).collect();
    let times = |rows: &[Vec<usize>]| {
        json!({ "latency": { "times": { "cpus": cpus, "nanoseconds": rows } } }).to_string()
    };
    let path = file("latency.json", times(&rows).as_bytes());
    let supposed = searched(&[]);
    let found = searched(&[&format!("--latency={path}")]);
    assert_eq!(found["tree"], "machine ×1, node ×2, group ×4, core ×4");
    // The same is found, in fewer steps.
    assert_eq!(found["trace_seconds"]["tuned"], supposed["trace_seconds"]["tuned"]);
    let steps = |found: &Value| found["steps_timed"].as_u64().unwrap();
    assert!(steps(&found) < steps(&supposed), "{} {}", steps(&found), steps(&supposed));
    let error = fails(1, &[&PLANTED[..], &["tiny:q8_0", "--latency=/proc/none"]].concat());
    assert!(error.contains("/proc/none"), "{error}");
    let cut = file("cut.json", times(&rows[1..]).as_bytes());
    let error = fails(1, &[&PLANTED[..], &["tiny:q8_0", &format!("--latency={cut}")]].concat());
    assert!(error.contains("32 rows"), "{error}");
    let away = json!({ "latency": { "times": { "cpus": [900, 901], "nanoseconds": [[0, 30], [30, 0]] } } });
    let away = file("away.json", away.to_string().as_bytes());
    let error = fails(1, &[&PLANTED[..], &["tiny:q8_0", &format!("--latency={away}")]].concat());
    assert!(error.contains("other CPUs"), "{error}");
}

#[test]
fn faults_of_another_machine_are_told() {
    for (args, word) in [
        (&["--machine", "pdp-11"][..], "pdp-11"),
        (&["--synthetic", "numa:x"], "numa:x"),
        (&["--contention", "cores:4 fill:2"], "--synthetic"),
        (&["--like", "epyc-9654"], "--machine"),
        (&["--synthetic", "numa:2 core:6", "--contention", "cores:4 fill:2"], "cores share"),
        (&["--synthetic", "numa:2 core:6", "--contention", "cores:4"], "fill:N"),
        (&["--synthetic", "numa:2 core:6", "--latency"], "--latency=FILE"),
        (&["--machine", "grace", "--quick"], "--quick"),
        (&["--machine", "grace", "--objective", "energy"], "--objective"),
        (&["--quick", "--objective", "energy"], "--objective"),
    ] {
        let Ran { code, err, .. } = run(&[&["tune"], args].concat());
        assert!(code == Some(2) && err.contains(word), "{args:?}: {code:?} {err}");
    }
}

#[test]
fn the_size_of_the_space_is_printed_with_the_tree() {
    let words = ["tune", "--machine", "kunpeng-920-8", "--synth", "llama3.2-1b:q8_0"];
    let text = succeeds(&[&words[..], &["--tree"]].concat());
    assert!(text.contains("group:   858 trees, the product of the groupings"), "{text}");
    assert!(!succeeds(&words).contains("858 trees"));
    let found: Value =
        serde_json::from_str(&succeeds(&[&words[..], &["-o", "json"]].concat())).unwrap();
    let complexity = &found["complexity"];
    assert_eq!((&complexity["groupings"], &complexity["trees"]), (&json!(858), &json!(858 * 192)));
    let cores = json!({ "level": "node", "children": 24, "groupings": 286 });
    assert_eq!(complexity["levels"][2], cores);
    // Both commands state its clusters, and that their size is assumed.
    let (why, said) =
        (run(&words).err, succeeds(&["plan", "--machines", "--machine", "kunpeng-920-8"]));
    assert!(
        why.contains(
            "what cores share, assumed of this machine: cores:4 stride:1 read:9.6 crowd:0.2"
        ),
        "{why}"
    );
    assert!(said.contains("taken    Sandwich, section 4.2"), "{said}");
    assert!(found["decoding_won"]["group"].as_f64().unwrap() > 1.1, "{found}");
}
