//! `docs/sources.md`: a row for each mechanism of the source documents. Its files exist, its command runs, and what
//! the row says that it prints is printed, but for the numbers.

use super::pages;
use super::{PROGRAM, World, prepare};
use crate::support::ran;
use regex::Regex;
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

/// On one line, with `#` for every number.
fn plain(text: &str) -> String {
    let number = Regex::new(r"[0-9]+(\.[0-9]+)?").expect("a pattern");
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    number.replace_all(&line, "#").into_owned()
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

#[test]
#[ignore = "takes minutes: in .ci/full"]
fn commands_print_what_their_rows_say() {
    let rows = rows();
    assert!(rows.len() > 40, "{} rows are found", rows.len());
    let world = World::new();
    prepare(&world, PAGE);
    let mut faults = vec![];
    let mut seen = std::collections::HashMap::new();
    for Row { mechanism, command, prints, .. } in &rows {
        if !command.contains("arclight ") {
            assert!(command.starts_with("cargo ") || command.starts_with("tools/"), "{command}");
            assert!(prints.is_empty(), "{mechanism}: {command} is not run here");
            continue;
        }
        assert!(!prints.is_empty(), "{mechanism}: nothing of what is printed");
        let out = seen.entry(command.clone()).or_insert_with(|| {
            let lines = format!("arclight() {{ '{PROGRAM}' \"$@\"; }}\n{command}");
            ran(world.shell(&lines).output().expect("sh starts"))
        });
        if out.code != Some(0) {
            faults.push(format!("{mechanism}: {command}: {:?}: {}", out.code, out.err));
            continue;
        }
        let said = plain(&format!("{}\n{}", out.out, out.err));
        for piece in prints {
            if !said.contains(&plain(piece)) {
                faults.push(format!("{mechanism}: {command} does not print {piece:?}:\n{said}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
