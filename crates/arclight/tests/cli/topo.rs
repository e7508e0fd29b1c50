//! `topo`: restrictions, and the matrices.

use crate::support::{fails, succeeds};
use serde_json::Value;

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&succeeds(args)).expect("JSON")
}

/// The first node that has CPUs, and its first CPU.
fn first() -> (String, String) {
    let seen = json(&["topo", "-o", "json"]);
    assert!(seen.get("access").is_none(), "measuring is asked for");
    let group = &seen["layout"]["groups"][0];
    (group["node"].as_u64().unwrap_or(0).to_string(), group["cpus"][0].to_string())
}

#[test]
fn the_doctor_says_what_was_seen_and_what_mends_it() {
    let seen = json(&["doctor", "-o", "json"]);
    let checks = seen["checks"].as_array().unwrap();
    let shares: Vec<f64> = checks.iter().map(|c| c["share"].as_f64().unwrap_or(0.0)).collect();
    assert!(shares.is_sorted_by(|a, b| a >= b), "{seen}");
    for check in checks {
        let mend = check["mend"].as_array();
        assert_eq!(check["state"] == "costs", mend.is_some_and(|all| !all.is_empty()), "{check}");
    }
    let text = succeeds(&["doctor"]);
    for check in ["CPU quota", "allowed cores", "governor", "huge pages", "memory channels"] {
        assert!(text.contains(check), "no {check} in: {text}");
    }
}

#[test]
fn every_pair_of_nodes_is_measured() {
    let (node, cpu) = first();
    let seen = json(&["topo", "--bandwidth", "-o", "json", "--nodes", &node, "--cpus", &cpu]);
    let access = &seen["access"];
    assert_eq!(access["readers"][0]["cpus"].as_array().unwrap().len(), 1, "{access}");
    assert_eq!(access["memories"].as_array().unwrap().len(), 1, "{access}");
    for matrix in ["read_bytes_per_second", "latency_nanoseconds"] {
        assert!(access[matrix][0][0].as_f64().unwrap() > 0.1, "{access}");
    }
    assert_eq!(access["memories"][0]["pages_elsewhere"].as_u64().unwrap_or(0), 0, "{access}");
    let bytes = access["bytes_read"].as_u64().unwrap();
    // One pass that does not count, and three that do.
    assert!(bytes >= 4 * access["memories"][0]["buffer_bytes"].as_u64().unwrap(), "{access}");
    assert_eq!(seen["machine"]["limits"]["restriction"]["cpus"], cpu);

    let text = succeeds(&["topo", "--bandwidth", "--cpus", &cpu]);
    for part in ["read bandwidth, GB/s", "latency, ns", "1 core ", "read in ", "as asked only"] {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
}

#[test]
fn cores_are_measured_against_each_other() {
    let seen = json(&["topo", "--latency", "-o", "json"]);
    let latency = &seen["latency"];
    let cpus = latency["times"]["cpus"].as_array().unwrap().len();
    let rows = latency["times"]["nanoseconds"].as_array().unwrap();
    assert_eq!((rows.len(), latency["levels"][0]["name"].as_str()), (cpus, Some("machine")));
    for (i, row) in rows.iter().enumerate() {
        for (j, time) in row.as_array().unwrap().iter().enumerate() {
            // Light goes a third of a metre in a nanosecond.
            assert_eq!(time.as_f64().unwrap() > 1.0, i != j, "{latency}");
        }
    }
    let (_, cpu) = first();
    let text = succeeds(&["topo", "--latency", "--cpus", &cpu]);
    for part in ["a cache line from one core to another", "1 core in", "no groups but"] {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
    fails(2, &["topo", "--latency", "--synthetic", "core:2"]);
}

#[test]
fn impossible_restrictions_are_named() {
    for (args, message) in [
        (["--nodes", "8000"], "no node 8000: this machine has nodes "),
        (["--cpus", "8000-8001"], "no cpu 8000-8001: this machine has cpus "),
        (["--cpus", "3-1"], "the range 3-1 runs backwards"),
        (["--nodes", "x"], "\"x\" is not a number"),
    ] {
        let line = fails(2, &[&["topo"], &args[..]].concat());
        assert!(line.contains(message), "{line}");
    }
}

#[test]
fn other_machines_are_described() {
    let text = succeeds(&["topo", "--synthetic", "pack:2 numa:2 l3:1 core:4 pu:2"]);
    for part in
        ["2 sockets × 8 cores × 2 threads", "package ×2, node ×2, core ×4", "group 3: node 3"]
    {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../topology/tests/data/hwloc/");
    let hybrid = format!("{data}Intel-RaptorLake-Corei7-1370P.xml");
    let seen = json(&["topo", "--hwloc", &hybrid, "--cpus", "0-11", "-o", "json"]);
    assert_eq!(seen["layout"]["groups"][0]["cpus"].as_array().unwrap().len(), 6);

    let line = fails(2, &["topo", "--synthetic", "numa:4 kern:8"]);
    assert!(line.contains("\"kern:8\": \"kern\" is no type"), "{line}");
    let line = fails(1, &["topo", "--hwloc", &format!("{data}COPYING")]);
    assert!(line.contains("COPYING: hwloc document: "), "{line}");
    fails(2, &["topo", "--hwloc", &hybrid, "--bandwidth"]);
}
