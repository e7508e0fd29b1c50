//! `docs/tutorial.md` shows the programs as they are, and prints what they print.
//!
//! A block of Rust has lines that follow each other in a file of its chapter; that of the last chapter is a patch. A
//! block of text that begins with a command has what the command prints. Indentation, and where lines of text end,
//! do not count.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A chapter: its program and its files.
struct Chapter {
    name: &'static str,
    program: &'static str,
    files: &'static [&'static str],
}

/// Those that have a program, from the first chapter on.
const PROGRAMS: [Chapter; 5] = [
    Chapter { name: "run", program: env!("CARGO_BIN_EXE_run"), files: &["src/bin/run.rs"] },
    Chapter { name: "steps", program: env!("CARGO_BIN_EXE_steps"), files: &["src/bin/steps.rs"] },
    Chapter {
        name: "placement",
        program: env!("CARGO_BIN_EXE_placement"),
        files: &["src/bin/placement.rs"],
    },
    Chapter { name: "waits", program: env!("CARGO_BIN_EXE_waits"), files: &["src/bin/waits.rs"] },
    Chapter {
        name: "family",
        program: env!("CARGO_BIN_EXE_family"),
        files: &["src/bin/family/main.rs", "src/bin/family/letters.rs"],
    },
];

/// What the last chapter is about.
const PATCH: &str = "operator.patch";

/// A block of the page.
struct Block {
    /// From 1; 0 before the first.
    chapter: usize,
    /// Line of the page where it begins.
    line: usize,
    language: String,
    text: Vec<String>,
}

fn examples(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(examples(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The blocks of code of the page.
fn blocks() -> Vec<Block> {
    let (mut blocks, mut chapter, mut open): (Vec<Block>, usize, bool) = (Vec::new(), 0, false);
    for (at, line) in read("../docs/tutorial.md").lines().enumerate() {
        match line.strip_prefix("```") {
            Some(_) if open => open = false,
            Some(language) => {
                let (line, language) = (at + 1, language.to_owned());
                blocks.push(Block { chapter, line, language, text: Vec::new() });
                open = true;
            }
            None if open => blocks.last_mut().unwrap().text.push(line.to_owned()),
            None => {
                // Headings of chapters have numbers.
                let number = line.strip_prefix("## ").and_then(|rest| rest.split_once(". "));
                chapter = number.and_then(|(n, _)| n.parse().ok()).unwrap_or(chapter);
            }
        }
    }
    assert!(!open, "a block has no end");
    blocks
}

/// The lines of a chapter's files.
fn sources(chapter: usize) -> Vec<Vec<String>> {
    let trimmed = |text: &str| text.lines().map(|l| l.trim().to_owned()).collect::<Vec<_>>();
    match PROGRAMS.get(chapter - 1) {
        Some(chapter) => chapter.files.iter().map(|file| trimmed(&read(file))).collect(),
        None => {
            // What the patch adds.
            let patch = read(PATCH);
            let added = patch.lines().filter(|l| l.starts_with('+') && !l.starts_with("+++"));
            vec![added.map(|l| l[1..].trim().to_owned()).collect()]
        }
    }
}

#[test]
fn code_of_the_page_is_that_of_the_programs() {
    let (mut seen, mut faults) = ([0; PROGRAMS.len() + 1], Vec::new());
    for block in blocks().iter().filter(|b| b.language == "rust" && b.chapter > 0) {
        let want: Vec<&str> = block.text.iter().map(|l| l.trim()).collect();
        let mut files = sources(block.chapter).into_iter();
        let found = files.any(|file| file.windows(want.len()).any(|lines| lines == want));
        if !found {
            faults.push(format!("line {}: {}", block.line, want[0]));
        }
        seen[block.chapter - 1] += 1;
    }
    assert!(faults.is_empty(), "in no file of their chapters:\n{}", faults.join("\n"));
    assert!(seen.iter().all(|&blocks| blocks > 0), "a chapter shows no code: {seen:?}");
}

/// Output as it is compared: without what depends on the machine. `told` says whether the kernel tells of pages.
fn plain(output: &str, told: bool) -> String {
    let mut words: Vec<String> = Vec::new();
    for line in output.lines() {
        let of_pages =
            ["bound to", "placed by", "interleaved over"].iter().any(|w| line.contains(w));
        let line = match of_pages {
            // Which node it is, and how many pages were written.
            true if told => line.split(',').next().unwrap_or_default(),
            true => continue,
            false if line.starts_with("  where pages are: ") => continue,
            false => line,
        };
        words.extend(line.split_whitespace().map(str::to_owned));
    }
    // Scratch of activations is as the instruction set wants it.
    for at in 2..words.len() {
        if words[at - 1] == "of" && words[at] == "activations" {
            words[at - 2] = "#".to_owned();
        }
    }
    words.join(" ")
}

fn ran(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn programs_print_what_the_page_says() {
    let blocks = blocks();
    for (at, chapter) in PROGRAMS.iter().enumerate() {
        let command = format!("$ cargo run -p arclight-examples --bin {}", chapter.name);
        let mut of_chapter = blocks.iter().filter(|b| b.chapter == at + 1);
        let said = of_chapter.find(|b| b.text.first() == Some(&command));
        let said = said.unwrap_or_else(|| panic!("chapter {}: no {command}", at + 1));
        let (code, out, err) = ran(Command::new(chapter.program).output().expect("it starts"));
        assert_eq!((code, &*err), (Some(0), ""), "{}", chapter.name);
        let told = !out.contains("where pages are: ");
        let said = said.text[1..].join("\n");
        assert_eq!(plain(&out, told), plain(&said, told), "{}:\n{out}", chapter.name);
    }
}

#[test]
fn bad_models_are_errors_of_one_line() {
    for program in PROGRAMS.iter().filter(|p| p.name != "family") {
        for (path, fault) in [("/none.gguf", "no such file"), ("Cargo.toml", "not a GGUF file")] {
            let mut command = Command::new(program.program);
            let (code, out, err) =
                ran(command.arg(path).current_dir(examples("")).output().expect("it starts"));
            assert_eq!((code, &*out), (Some(1), ""), "{}: {err}", program.name);
            assert!(err.starts_with("error: ") && err.contains(fault), "{}: {err}", program.name);
            assert_eq!(err.lines().count(), 1, "{}: {err}", program.name);
        }
    }
}

#[test]
fn programs_stay_short() {
    for file in PROGRAMS.iter().flat_map(|chapter| chapter.files) {
        let lines = read(file).lines().count();
        assert!(lines <= 100, "{file}: {lines} lines");
    }
}

#[test]
fn the_patch_fits_the_sources() {
    let mut git = Command::new("git");
    git.args(["apply", "--check", "examples/operator.patch"]).current_dir(examples(".."));
    let (code, _, err) = ran(git.output().expect("git is installed"));
    assert_eq!(code, Some(0), "examples/operator.patch has to follow a change: {err}");
}
