//! `docs/sources.md`: a row for each mechanism of the source documents. Its files exist, its command runs, and what
//! the row says that it prints is printed, with numbers as it says. `ARCLIGHT_ROWS=WORD` runs the rows with that word
//! in their command.

use super::pages;
use super::pieces::Piece;
use super::{PROGRAM, World, prepare};
use crate::support::{Ran, ran};
use regex::Regex;
use std::collections::HashMap;
use std::process::Command;
use testkit::repository;

const PAGE: &str = "docs/sources.md";

/// A row of a table: the mechanism, files, command, and pieces of what it prints.
struct Row {
    mechanism: String,
    files: Vec<String>,
    command: String,
    prints: Vec<String>,
}

/// What stands between backticks.
fn spans(cell: &str) -> Vec<String> {
    let code = Regex::new("`([^`]+)`").expect("a pattern");
    code.captures_iter(cell).map(|m| m[1].to_owned()).collect()
}

fn rows() -> Vec<Row> {
    let text = pages::read(PAGE);
    let tables =
        text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| mechanism"));
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [mechanism, files, command, prints, _] = cells[..] else {
            panic!("a row has five cells: {line}");
        };
        let mechanism = mechanism.to_owned();
        let command = spans(command).pop().unwrap_or_else(|| panic!("{mechanism}: no command"));
        Row { mechanism, files: spans(files), command, prints: spans(prints) }
    };
    tables.map(row).collect()
}

#[test]
fn rows_name_files_that_exist() {
    let mut missing = vec![];
    for row in rows() {
        assert!(!row.files.is_empty(), "{}: no file", row.mechanism);
        for file in row.files {
            let there = [repository(&file), repository("crates").join(&file)];
            if !there.iter().any(|path| path.exists()) {
                missing.push(format!("{}: {file}", row.mechanism));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// Runs a row's command: of this program in the pages' folder, of cargo and of the figures in the repository.
fn run(world: &World, command: &str) -> Ran {
    if !["cargo ", "tools/", "python3 "].iter().any(|start| command.starts_with(start)) {
        let lines = format!("arclight() {{ '{PROGRAM}' \"$@\"; }}\n{command}");
        return ran(world.shell(&lines).output().expect("sh starts"));
    }
    let mut shell = Command::new("sh");
    let line = match command.strip_prefix("tools/figures/run ") {
        Some(figures) => {
            let out = world.path("figures");
            // A figure is measured for this row alone.
            let _ = std::fs::remove_dir_all(&out);
            let out = out.display();
            let run = format!(
                "tools/figures/run {figures} --quick --no-peer --arclight '{PROGRAM}' --out '{out}'"
            );
            format!("{run} && cat '{out}'/*.csv")
        }
        None => command.to_owned(),
    };
    ran(shell.args(["-c", &line]).current_dir(repository(".")).output().expect("sh starts"))
}

#[test]
#[ignore = "takes minutes: in .ci/full"]
fn commands_print_what_their_rows_say() {
    let rows = rows();
    assert!(rows.len() > 40, "{} rows are found", rows.len());
    let only = std::env::var("ARCLIGHT_ROWS").ok();
    let world = World::new();
    prepare(&world, PAGE);
    let mut faults = vec![];
    let mut seen = HashMap::new();
    for Row { mechanism, command, prints, .. } in &rows {
        assert!(!prints.is_empty(), "{mechanism}: nothing of what is printed");
        if only.as_ref().is_some_and(|only| !command.contains(only)) {
            continue;
        }
        let out = seen.entry(command.clone()).or_insert_with(|| run(&world, command));
        if out.code != Some(0) {
            faults.push(format!("{mechanism}: {command}: {:?}: {}", out.code, out.err));
            continue;
        }
        let said = format!("{}\n{}", out.out, out.err);
        for piece in prints {
            if !Piece::new(piece).stands_in(&said) {
                faults.push(format!("{mechanism}: {command} does not print {piece:?}:\n{said}"));
            }
        }
        let skipped = said.lines().find(|line| line.starts_with("# skipped: "));
        faults.extend(skipped.map(|line| format!("{mechanism}: {command}: {line}")));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
