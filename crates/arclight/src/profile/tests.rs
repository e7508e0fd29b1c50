//! The trace is read back with a parser, and the table's figures are held against each other.

use super::table::Table;
use super::trace::Trace;
use crate::bench::limits::Limits;
use arclight_engine::{BatchEntry, Engine, LoadOptions, ModelFile, Outputs, Profile};
use gguf::TensorType;
use kernels::Products;
use serde_json::Value;
use std::collections::BTreeMap;
use testkit::TinyModel;

const THREADS: usize = 3;

/// `runs` of three steps of four tokens each, on two nodes.
fn record(runs: usize, room: usize) -> Vec<Profile> {
    let file = ModelFile::from_bytes("tiny", TinyModel::qwen3(TensorType::Q4_0).gguf());
    let (nodes, threads) = (Some(2), Some(THREADS));
    let options = LoadOptions { nodes, threads, no_pin: true, ..LoadOptions::default() };
    let mut engine = Engine::load(&file, &options, &mut |_| {}).unwrap();
    let sequence = engine.new_sequence().unwrap();
    engine.begin_profile(room).unwrap();
    let run = |_| {
        for _ in 0..3 {
            let entry = BatchEntry { sequence, tokens: &[1, 2, 3, 4], outputs: Outputs::Last };
            engine.step(&[entry]).unwrap();
        }
        engine.take_profile().unwrap()
    };
    (0..runs).map(run).collect()
}

/// The trace of some profiles with room for `most` events of the phase.
fn trace(profiles: &[Profile], most: usize) -> (Value, (usize, usize)) {
    let mut out = Vec::new();
    let mut trace = Trace::new(&mut out).unwrap();
    trace.hold(most);
    trace.process(1, "a \"model\"", THREADS).unwrap();
    for profile in profiles {
        trace.add(1, "pp4", profile).unwrap();
    }
    let counts = trace.finish(&[]).unwrap();
    (serde_json::from_slice(&out).expect("the trace is JSON"), counts)
}

/// The complete events of each row, in the order of the file.
fn rows(trace: &Value) -> BTreeMap<u64, Vec<&Value>> {
    let mut rows: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
    for event in trace["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] == "X") {
        assert_eq!(event["pid"], 1);
        rows.entry(event["tid"].as_u64().unwrap()).or_default().push(event);
    }
    rows
}

#[test]
fn a_trace_has_a_row_for_the_steps_and_one_for_each_thread() {
    let profiles = record(2, 1 << 14);
    let (trace, (written, left_out)) = trace(&profiles, usize::MAX);
    let rows = rows(&trace);
    assert_eq!(rows.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3]);
    let names: Vec<&Value> = trace["traceEvents"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|e| e["ph"] == "M" && e["name"] == "thread_name")
        .map(|e| &e["args"]["name"])
        .collect();
    assert_eq!(names, ["steps", "thread 0", "thread 1", "thread 2"]);
    assert_eq!(rows[&0].len(), 6);
    assert_eq!((written, left_out), (rows.values().skip(1).map(Vec::len).sum(), 0));
    assert_eq!(trace["otherData"]["events"], written);
    assert_eq!(trace["otherData"]["events_dropped"], 0);

    let time = |event: &Value, key: &str| event[key].as_f64().unwrap();
    for events in rows.values() {
        for pair in events.windows(2) {
            // Microseconds with three decimals, in binary: an end may be off by a rounding.
            let end = time(pair[0], "ts") + time(pair[0], "dur");
            assert!(end <= time(pair[1], "ts") + 1e-5, "{} overlaps {}", pair[0], pair[1]);
        }
    }
    for thread in 1..=3 {
        let events = &rows[&thread];
        let of = |name: &str| events.iter().filter(|e| e["name"] == name).count();
        assert_eq!((of("qkv"), of("down"), of("logits"), of("embed")), (12, 12, 6, 6));
        let qkv = events.iter().find(|e| e["name"] == "qkv" && e["args"]["layer"] == 1).unwrap();
        assert_eq!((&qkv["cat"], &qkv["args"]["rows"]), (&"operator".into(), &4.into()));
        let bytes = qkv["args"]["bytes"].as_u64().unwrap();
        let macs = qkv["args"]["macs"].as_u64().unwrap();
        // Q4_0: 18 bytes for 32 weights, each multiplied with four tokens.
        assert_eq!(bytes * 32 / 18 * 4, macs);
        let wait = events.iter().find(|e| e["cat"] == "wait" && e["args"]["after"] == "down");
        assert_eq!(wait.unwrap()["args"]["scope"], "global");
    }
}

#[test]
fn a_long_phase_is_cut_between_steps_and_says_so() {
    let profiles = record(2, 1 << 14);
    let (_, (all, _)) = trace(&profiles, usize::MAX);
    let step = all / 6;
    // The second stretch must not go on where the first was cut.
    let (trace, (written, left_out)) = trace(&profiles, 2 * step + step / 2);
    assert_eq!((written, left_out), (2 * step, 4 * step));
    assert_eq!(rows(&trace)[&0].len(), 2);
    assert_eq!(trace["otherData"]["events_left_out"], left_out);
}

/// The cells of a table's row.
fn cells<'t>(lines: &'t [String], name: &str) -> Vec<&'t str> {
    let line = lines.iter().find(|line| line.starts_with(name)).expect(name);
    line[name.len()..].split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

fn limits() -> Limits {
    Limits { read: 1e12, slowest_read: 1e12, macs: Products::new(|_| Some(1e12)), caches: 0 }
}

#[test]
fn an_operator_that_beats_its_limit_has_no_share() {
    let mut table = Table::new("pp4", THREADS);
    record(1, 1 << 14).iter().for_each(|profile| table.add(profile));
    let text = |limits: Limits| table.lines(&limits).join(" ");
    assert!(!text(limits()).contains("no share"), "{}", text(limits()));
    let slow = Limits { read: 1e3, ..limits() };
    let lines = table.lines(&slow);
    assert_eq!(cells(&lines, "qkv").iter().filter(|cell| cell.ends_with("no share")).count(), 1);
    let why = "faster than the probe of the memory, which was disturbed: no share";
    assert!(lines.join(" ").contains(why), "{lines:#?}");
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
    let cached = text(Limits { caches: u64::MAX, ..slow });
    assert!(cached.contains("fits into the caches") && !cached.contains("disturbed"), "{cached}");
}

#[test]
fn classes_are_all_of_the_time_in_steps() {
    let mut table = Table::new("pp4", THREADS);
    record(2, 1 << 14).iter().for_each(|profile| table.add(profile));
    let shares = table.classes();
    let of = |name: &str| shares[name].as_f64().unwrap();
    let names = ["gemm", "attention", "norm", "residual", "overhead", "sequential"];
    assert!((names.map(of).iter().sum::<f64>() - 1.0).abs() < 1e-9, "{shares}");
    assert!(names.iter().all(|name| (0.0..1.0).contains(&of(name))), "{shares}");
    // What operators of one class take is in the table too.
    let lines = table.lines(&limits());
    let number = |text: &str| text.trim_end_matches(" %").parse::<f64>().unwrap();
    let share = |name: &str| {
        let line = lines.iter().find(|line| line.starts_with(name)).unwrap();
        number(line[18..].split("  ").map(str::trim).find(|cell| cell.ends_with('%')).unwrap())
    };
    assert!((share("rms_norm") - 100.0 * of("norm")).abs() < 0.11, "{lines:#?}");
    assert!((share("norm") - 100.0 * of("norm")).abs() < 0.051, "{lines:#?}");
    let all = ["qkv", "gate_up", "down", "attn_output", "logits", "quantize"].map(share);
    assert!((all.iter().sum::<f64>() - 100.0 * of("gemm")).abs() < 0.4, "{lines:#?}");
    assert!(Table::new("pp4", THREADS).classes().as_object().unwrap().is_empty());
}

#[test]
fn a_tables_times_add_up_and_its_lines_fit_a_terminal() {
    let mut table = Table::new("pp4", THREADS);
    record(2, 1 << 14).iter().for_each(|profile| table.add(profile));
    let lines = table.lines(&limits());
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{}", lines.join("\n"));
    assert!(lines[0].starts_with("pp4: 6 steps of ") && lines[0].contains(", 4 tokens each, on 3"));
    assert!(!lines.join("\n").contains("did not fit"), "{}", lines.join("\n"));
    let number = |text: &str| text.trim_end_matches(" %").parse::<f64>().unwrap();
    let whole = number(lines[0].split(' ').nth(4).unwrap());
    let all = cells(&lines, "all");
    // Work and waits are all there is, but for roundings: half of the last digit of three figures.
    let sum = number(all[1]) + number(all[all.len() - 2]);
    assert!((sum - whole).abs() < 0.02, "{}", lines.join("\n"));
    let rows = lines.iter().skip(3).take_while(|line| !line.starts_with("all"));
    let times: Vec<f64> = rows
        .filter(|line| !line.starts_with('('))
        .map(|line| number(line[18..].split_whitespace().nth(1).unwrap()))
        .collect();
    let rounding = 0.006 * times.len() as f64;
    assert!((times.iter().sum::<f64>() - number(all[1])).abs() < rounding, "{}", lines.join("\n"));
    assert_eq!(cells(&lines, "gate_up")[0], "2", "once per layer");
    assert_eq!(cells(&lines, "logits")[0], "1");
    assert!(cells(&lines, "rms_norm")[3..6].iter().all(|cell| *cell == "-"));
}

#[test]
fn a_table_tells_what_it_has_not_seen() {
    let mut table = Table::new("pp4", THREADS);
    table.add(&record(1, 100)[0]);
    let text = table.lines(&limits()).join("\n");
    assert!(text.contains("events did not fit into the threads' logs"), "{text}");
    let mut table = Table::new("pp4", THREADS);
    table.add(&record(1, 0)[0]);
    assert!(table.lines(&limits())[0].contains("nothing was recorded"));
}
