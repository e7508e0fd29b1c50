//! `--report`: where memory is, what the nodes read, where the time goes.
//!
//! On whatever machine this is: with one node the nodes are virtual.

use crate::support::{fails, run, succeeds};
use serde_json::Value;

/// What the report says where the kernel does not answer, as in containers that forbid the call.
const UNKNOWN: &str = "where pages are is not known";

/// The cells of the first row of this name.
#[track_caller]
fn row<'t>(text: &'t str, name: &str) -> Vec<&'t str> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(name));
    let cells = lines.next().unwrap_or_else(|| panic!("no row {name:?} in:\n{text}"));
    cells.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

/// `1.25 MiB` in bytes.
fn bytes(text: &str) -> f64 {
    let (value, unit) = text.split_once(' ').expect("a number and a unit");
    let power = ["B", "KiB", "MiB", "GiB"].iter().position(|u| *u == unit).expect("a unit");
    value.parse::<f64>().expect("a number") * 1024_f64.powi(power as i32)
}

#[test]
fn a_run_ends_with_a_column_for_each_node() {
    let ran = run(&["run", "-n", "8", "--greedy", "--nodes", "3", "--threads", "3", "--report"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let (before, report) = ran.err.split_once("\ndecoding ").expect("a report");
    assert!(report.starts_with("7 tokens in "), "{report}");
    assert_eq!(row(report, "threads"), ["1", "1", "1", "3"]);
    // Every node has what loading said it got.
    let loaded: Vec<&str> = before.lines().filter(|l| l.starts_with("memory node ")).collect();
    assert_eq!(loaded.len(), 3, "{before}");
    for (name, said) in
        [("weights", "weights "), ("KV", "KV up to "), ("activations", "activations ")]
    {
        let cells = row(report, name);
        assert_eq!(cells.len(), 4, "{report}");
        for (line, cell) in loaded.iter().zip(cells) {
            let at = line.find(said).expect("all three are told") + said.len();
            let text: Vec<&str> = line[at..].split([' ', ',']).take(2).collect();
            // Three digits each; gaps between buffers count for one of them only.
            let (loaded, reported) = (bytes(&text.join(" ")), bytes(cell));
            assert!((reported - loaded).abs() <= 0.01 * loaded, "{name}: {line} {cell}");
        }
    }
    if !report.contains(UNKNOWN) {
        assert_eq!(row(report, "pages elsewhere"), ["0", "0", "0", "0"]);
        assert!(row(report, "pages in place").iter().all(|n| n.parse::<usize>().unwrap() > 0));
    }
    assert!(report.contains("every thread has waited as often as compiled"), "{report}");
    assert!(report.contains("counted"), "{report}");
    // Two sentences at the end: what costs most, and what helps, or that nothing stands out.
    let end = report.split("every thread has").last().unwrap().replace('\n', " ");
    assert!(end.contains(" What helps: ") || end.contains("Nothing stands out"), "{report}");
}

#[test]
fn without_decoding_the_report_is_of_the_prompt_and_one_node_has_one_column() {
    let ran = run(&["run", "-n", "1", "--nodes", "1", "-p", "Once upon a time", "--report"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let (_, report) = ran.err.split_once("\ntaking a prompt of ").expect("a report");
    assert_eq!(row(report, "weights").len(), 1, "{report}");
    assert!(!report.contains("remote") && !report.contains("exchanged"), "{report}");
}

#[test]
fn a_report_is_more_than_the_text() {
    assert!(fails(2, &["run", "-q", "--report"]).contains("cannot be used with"));
}

fn bench(more: &[&str]) -> Value {
    let args = ["bench", "-r", "2", "-n", "4", "-o", "json"];
    serde_json::from_str(&succeeds(&[&args[..], more].concat())).expect("JSON")
}

#[test]
fn bench_has_every_figure_of_every_node_and_test() {
    assert_eq!(bench(&["-p", "0"])["results"][0].get("report"), None);
    let seen = bench(&["-p", "8", "-b", "1,2", "--nodes", "2", "-t", "2", "--report"]);
    let results = seen["results"].as_array().unwrap();
    let phases: Vec<&str> =
        results.iter().map(|r| r["report"]["phase"].as_str().unwrap()).collect();
    assert_eq!(phases, ["prompt", "decode", "decode", "decode", "decode"]);
    // Two repetitions; the warm-up is not counted.
    let tokens: Vec<u64> =
        results.iter().map(|r| r["report"]["tokens"].as_u64().unwrap()).collect();
    assert_eq!(tokens, [16, 8, 16, 24, 48]);
    // Computed, where controllers do not tell: the report has the same.
    for result in results.iter().filter(|result| result["reads"][0]["counted"] == false) {
        for (read, node) in result["reads"]
            .as_array()
            .unwrap()
            .iter()
            .zip(result["report"]["nodes"].as_array().unwrap())
        {
            assert_eq!(read["bytes_per_second"], node["traffic"]["read_bytes_per_second"]);
        }
    }
    for report in results.iter().map(|r| &r["report"]) {
        let nodes = report["nodes"].as_array().unwrap();
        assert_eq!((nodes.len(), report["threads"].as_array().unwrap().len()), (2, 2));
        assert_eq!(report["virtual_nodes"], nodes[1]["node"] == nodes[0]["node"]);
        for key in ["weights_bytes", "kv_bytes", "activation_bytes"] {
            let of = |figures: &Value| figures["memory"][key].as_u64().unwrap();
            assert_eq!(nodes.iter().map(of).sum::<u64>(), of(&report["all"]), "{key}");
            assert!(nodes.iter().all(|n| of(n) > 0), "{key}");
        }
        if report["pages_unknown"].is_null() {
            assert!(nodes.iter().all(|n| n["memory"]["pages"]["wrong"] == 0), "{report}");
        }
        assert_eq!(report["waits_as_compiled"], true, "{report}");
        for node in nodes {
            let number = |of: &str, key: &str| node[of][key].as_f64().unwrap();
            for key in ["weights_bytes_per_token", "limit_bytes_per_second"] {
                assert!(number("traffic", key) > 0.0, "{key} of {node}");
            }
            let (share, why) = (&node["traffic"]["of_limit"], &node["traffic"]["no_share"]);
            assert!(share.as_f64().is_none_or(|share| 0.0 < share && share <= 1.0), "{node}");
            assert_eq!(share.is_null(), why.is_string(), "{node}");
            let parts = ["working", "waiting", "between_steps"].map(|key| number("time", key));
            assert!((parts.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{parts:?}");
        }
        let verdict = report["verdict"].as_array().unwrap();
        assert!(!verdict.is_empty());
        for cause in verdict {
            let text = cause["text"].as_str().unwrap();
            let helps = !cause["mend"].as_array().unwrap().is_empty();
            assert!(helps || text.starts_with("Nothing stands out"), "{cause}");
        }
        for thread in report["threads"].as_array().unwrap() {
            assert!(thread["weights_bytes"].as_u64().unwrap() > 0, "{thread}");
        }
    }
    // Two sequences share the weights of a step.
    let weights = |at: usize| {
        results[at]["report"]["all"]["traffic"]["weights_bytes_per_token"].as_f64().unwrap()
    };
    assert!((weights(1) / weights(2) - 2.0).abs() < 1e-9);
}

/// The figures of `--counters` for a phase: their values, or why there are none.
fn counters<'r>(seen: &'r Value, phase: &str) -> Vec<(&'r str, Option<f64>, Option<&'r str>)> {
    let all = seen["counters"].as_array().expect("counters").iter();
    let own = all.filter(|row| row["phase"] == phase);
    let row = |row: &'r Value| {
        (row["figure"].as_str().unwrap(), row["value"].as_f64(), row["missing"].as_str())
    };
    own.map(row).collect()
}

#[test]
fn counters_tell_phases_apart_or_say_why_not() {
    assert!(bench(&["-p", "0"]).get("counters").is_none());
    let seen = bench(&["-p", "64", "-t", "1", "--counters"]);
    for phase in ["pp64", "tg4"] {
        let rows = counters(&seen, phase);
        assert_eq!(rows.len(), 14, "{rows:?}");
        for (figure, value, missing) in &rows {
            assert!(value.is_some() != missing.is_some(), "{figure}: {value:?} {missing:?}");
            assert!(value.is_none_or(|value| value >= 0.0), "{figure}: {value:?}");
        }
        let of = |name: &str| rows.iter().find(|row| row.0 == name).unwrap();
        // Of the kernel's software, which every machine has unless the call is forbidden.
        match of("cores at work") {
            (_, Some(cores), _) => {
                assert!(*cores > 0.0 && *cores < 2.0, "one thread: {cores}");
                assert!(of("page faults per token").1.is_some());
            }
            (_, _, why) => assert!(why.unwrap().starts_with("task-clock: "), "{why:?}"),
        }
        if let (_, Some(ipc), _) = of("instructions per cycle") {
            assert!((0.01..16.0).contains(ipc), "{ipc}");
        }
    }
    // CSV has them in a table of their own.
    let args = ["bench", "-r", "1", "-p", "0", "-n", "4", "-o", "csv", "--counters"];
    let csv = succeeds(&args);
    let (_, table) = csv.split_once("\n\n").expect("two tables");
    assert!(table.lines().next().unwrap().ends_with("phase,threads,figure,value,missing"), "{csv}");
    assert_eq!(table.lines().count(), 15, "{csv}");
}

#[test]
fn a_run_has_counters_of_its_prompt_and_of_decoding() {
    let ran = run(&["run", "-n", "8", "--greedy", "-p", "Once upon a time", "--counters"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let (_, table) = ran.err.split_once("\ncounted on the engine's threads").expect("a table");
    let heads: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(heads[..2], ["prompt", "decode"], "{table}");
    assert!(!ran.err.contains("pages in place"), "no report was asked for: {}", ran.err);
    assert!(fails(2, &["run", "-q", "--counters"]).contains("cannot be used with"));
    let replicas = ["bench", "--replicas", "1", "--counters", "-n", "4"];
    assert!(fails(2, &replicas).contains("cannot be used with"));
}

#[test]
fn copies_and_shares_of_weights_add_up_in_every_mode() {
    let weights = |mode| {
        let seen = bench(&["-p", "0", "--numa", mode, "--nodes", "2", "-t", "2", "--report"]);
        let report = &seen["results"][0]["report"];
        assert_eq!(report["waits_as_compiled"], true, "{mode}");
        report["all"]["memory"]["weights_bytes"].as_u64().unwrap()
    };
    let one = weights("off");
    assert_eq!(weights("interleave"), one);
    assert_eq!(weights("mirror"), 2 * one);
    // Nodes that split a model keep small vectors twice, which are few.
    assert!((weights("pp") as f64 / one as f64 - 1.0).abs() < 0.1);
}

#[test]
fn bench_prints_reports_of_decoding_below_its_table() {
    let args = ["bench", "-r", "1", "-n", "4", "--nodes", "2", "-t", "2", "--report"];
    let text = succeeds(&[&args[..], &["-p", "8", "-o", "md"]].concat());
    let (table, report) = text.split_once("\ntg4, 2 threads:\n```\n").expect("a report");
    assert!(table.contains("| pp8 ") && table.contains("GMAC/s"), "{text}");
    assert!(!text.contains("taking a prompt") && report.trim_end().ends_with("```"), "{text}");
    let prompts = succeeds(&["bench", "-r", "1", "-n", "0", "-p", "8", "--report"]);
    assert!(prompts.contains("taking a prompt of 8 tokens"), "{prompts}");
}
