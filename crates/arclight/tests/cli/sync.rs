//! `bench-sync`: barriers and gathers, on virtual nodes.

use crate::support::{fails, run, succeeds};
use serde_json::Value;

#[test]
fn as_many_threads_cross_at_a_global_wait_as_there_are_nodes() {
    // Seven threads on up to four nodes: groups of unequal sizes.
    let args =
        ["bench-sync", "-t", "7", "--nodes", "1,2,3,4", "--sizes", "4K", "-r", "3", "-o", "json"];
    let seen: Value = serde_json::from_str(&succeeds(&args)).expect("JSON");
    let barriers = seen["barriers"].as_array().unwrap();
    assert_eq!(barriers.len(), 4);
    for (row, nodes) in barriers.iter().zip(1..) {
        assert_eq!((row["nodes"].as_u64(), row["threads"].as_u64()), (Some(nodes), Some(7)));
        // One node has no line that nodes share, and no barrier over nodes.
        assert_eq!(row["crossings"].as_u64(), Some(if nodes > 1 { nodes } else { 0 }), "{row}");
        for kind in ["global", "flat"] {
            assert_eq!(row[kind].is_null(), nodes == 1, "{row}");
        }
        let local = &row["local"];
        let mut samples: Vec<f64> =
            local["samples"].as_array().unwrap().iter().map(|s| s.as_f64().unwrap()).collect();
        samples.sort_by(f64::total_cmp);
        assert_eq!(samples.len(), 3);
        assert!(samples[0] > 0.0);
        assert_eq!(local["median"].as_f64(), Some(samples[1]));
    }
}

#[test]
fn gathers_are_compared_by_size_and_their_memory_is_where_it_belongs() {
    let args = ["bench-sync", "-t", "3", "--nodes", "2,3", "--sizes", "64K,4K,100K", "-r", "2"];
    let seen: Value =
        serde_json::from_str(&succeeds(&[&args[..], &["-o", "json"]].concat())).unwrap();
    let rows = seen["gathers"].as_array().unwrap();
    let shape =
        |row: &Value| (row["nodes"].as_u64().unwrap(), row["bytes"].as_u64().unwrap() >> 10);
    let shapes: Vec<_> = rows.iter().map(shape).collect();
    assert_eq!(shapes, [(2, 4), (2, 64), (2, 100), (3, 4), (3, 64), (3, 100)]);
    for row in rows {
        let names: Vec<&String> = row["times"].as_object().unwrap().keys().collect();
        match row["bytes"].as_u64().unwrap() {
            0..=0x10000 => assert_eq!(names, ["pull", "push", "scatter"]),
            _ => assert_eq!(names, ["pull", "scatter"]),
        }
    }
    assert_eq!(seen["crossovers"].as_array().unwrap().len(), 2);
    for placed in seen["placement"].as_array().unwrap() {
        assert!(placed["pages"].as_u64().unwrap() > 0);
        assert_eq!(placed["elsewhere"], 0, "{placed}");
    }

    // A group of one thread has no local wait.
    let locals: Vec<bool> =
        seen["barriers"].as_array().unwrap().iter().map(|row| row["local"].is_null()).collect();
    assert_eq!(locals, [false, true]);

    let table = succeeds(&args);
    for part in ["local", "crossings", " 100 KiB ", "scatter", "3 threads on 3 nodes: "] {
        assert!(table.contains(part), "no {part:?} in: {table}");
    }
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");

    let csv = succeeds(&[&args[..], &["-o", "csv"]].concat());
    let tables: Vec<Vec<&str>> = csv.split("\n\n").map(|t| t.lines().collect()).collect();
    // Barriers and gathers of three sizes, each on two setups.
    assert_eq!(tables.iter().map(Vec::len).collect::<Vec<_>>(), [1 + 2, 1 + 2 * 3], "{csv}");
    assert!(tables[1][0].contains(",bytes,times.pull.median,"), "{csv}");
}

#[test]
fn shared_cpus_are_told_of() {
    let ran = run(&["bench-sync", "-t", "9000", "--nodes", "1"]);
    assert_eq!(ran.code, Some(2), "more threads than a machine can have: {}", ran.err);
    // More threads than this machine has CPUs, whatever it is.
    let cpus = std::thread::available_parallelism().unwrap().get();
    let threads = (cpus + 1).to_string();
    let args = ["bench-sync", "-t", &threads, "--nodes", "1", "-r", "1"];
    let ran = run(&args);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.err.contains("threads share CPUs"), "{}", ran.err);
    assert!(ran.out.contains(&format!(" {threads}* ")), "{}", ran.out);
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let e = fails(2, &["bench-sync", "-t", "1,2", "--nodes", "3"]);
    assert!(e.contains("every node needs a thread"), "{e}");
    let e = fails(2, &["bench-sync", "--sizes", "4K,x"]);
    assert!(e.contains("\"x\" is no size"), "{e}");
}
