//! Reads the guides: their commands, their links, the files that they name.

use regex::Regex;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use testkit::repository;

/// A command as a page has it, without its comment, continuation lines joined.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) page: String,
    /// Line of the page, from 1, where it begins; of code within text the first of the paragraph.
    pub(super) line: usize,
    pub(super) text: String,
}

impl Command {
    /// Whether the program is one of the commands of the line.
    pub(super) fn calls_arclight(&self) -> bool {
        self.text.split(" | ").any(|part| {
            let is_variable = |word: &&str| word.contains('=');
            part.split_whitespace().find(|word| !is_variable(word)) == Some("arclight")
        })
    }
}

/// The pages of this folder of the repository, by name.
pub(super) fn folder(path: &str) -> Vec<String> {
    let entries = fs::read_dir(repository(path)).expect("the folder is there");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let names = names.map(|name| name.into_string().expect("a name of text"));
    let mut pages: Vec<String> =
        names.filter(|name| name.ends_with(".md")).map(|name| format!("{path}/{name}")).collect();
    pages.sort();
    pages
}

/// The guides.
pub(super) fn guides() -> Vec<String> {
    let top = ["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(str::to_owned);
    top.into_iter().chain(folder("docs")).collect()
}

pub(super) fn read(page: &str) -> String {
    fs::read_to_string(repository(page)).unwrap_or_else(|e| panic!("{page}: {e}"))
}

/// The lines of a page with their numbers, those of blocks of code with the language of the block.
fn lines(text: &str) -> Vec<(usize, Option<String>, &str)> {
    let mut language: Option<String> = None;
    let mut lines = Vec::new();
    for (i, line) in text.lines().enumerate() {
        match line.strip_prefix("```") {
            Some(name) => language = language.is_none().then(|| name.to_owned()),
            None => lines.push((i + 1, language.clone(), line)),
        }
    }
    assert_eq!(language, None, "a block of code has no end");
    lines
}

/// The commands in a page's blocks of code: all lines of `sh`, lines behind a prompt in others.
pub(super) fn commands(page: &str) -> Vec<Command> {
    let text = read(page);
    let mut commands: Vec<Command> = Vec::new();
    let mut goes_on = false;
    for (number, language, line) in lines(&text) {
        let line = match language.as_deref() {
            Some("sh") => line,
            Some("text" | "console") => match line.strip_prefix("$ ") {
                Some(line) => line,
                None => continue,
            },
            _ => continue,
        };
        let line = line.split(" # ").next().unwrap_or_default().trim_end();
        let part = line.strip_suffix('\\').unwrap_or(line).trim();
        match commands.last_mut().filter(|_| goes_on) {
            Some(command) => command.text = format!("{} {part}", command.text),
            None if part.is_empty() || part.starts_with('#') => continue,
            None => {
                let text = part.replace("cargo run --release -p arclight -- ", "arclight ");
                commands.push(Command { page: page.to_owned(), line: number, text });
            }
        }
        goes_on = line.ends_with('\\');
    }
    commands
}

/// Code within the text of a page, paragraph by paragraph.
pub(super) fn inline(page: &str) -> Vec<Command> {
    let text = read(page);
    let mut paragraphs = vec![(1, String::new())];
    for (number, language, line) in lines(&text) {
        if language.is_some() || line.trim().is_empty() {
            paragraphs.push((number + 1, String::new()));
        } else if let Some((_, paragraph)) = paragraphs.last_mut() {
            *paragraph = format!("{paragraph}{} ", line.trim());
        }
    }
    let code = Regex::new("`([^`]+)`").expect("a pattern");
    let found = |(line, paragraph): &(usize, String)| {
        let all = code.captures_iter(paragraph);
        let all =
            all.map(|m| Command { page: page.to_owned(), line: *line, text: m[1].to_owned() });
        all.collect::<Vec<_>>()
    };
    paragraphs.iter().flat_map(found).collect()
}

/// The anchors of a page's headings, as GitHub names them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = lines(text).into_iter().filter(|(_, language, _)| language.is_none());
    let headings = headings.filter_map(|(.., line)| line.trim_start_matches('#').strip_prefix(' '));
    let kept = |c: &char| c.is_alphanumeric() || "-_ ".contains(*c);
    let name = |heading: &str| -> String {
        heading
            .to_lowercase()
            .chars()
            .filter(kept)
            .map(|c| if c == ' ' { '-' } else { c })
            .collect()
    };
    headings.map(name).collect()
}

/// Links of a page whose file or heading does not exist.
pub(super) fn broken_links(page: &str) -> Vec<String> {
    let link = Regex::new(r"\]\(([^)\s]+)\)").expect("a pattern");
    let text = read(page);
    let mut broken = Vec::new();
    for (number, language, line) in lines(&text) {
        if language.is_some() {
            continue;
        }
        for target in link.captures_iter(line).map(|m| m[1].to_owned()) {
            if target.starts_with("http") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let from = repository(page);
            let path: PathBuf = match path {
                "" => from,
                path => from.parent().expect("pages lie in a folder").join(path),
            };
            let is_page = path.extension().is_some_and(|e| e == "md");
            let missing = |path: &Path| {
                is_page && !anchors(&fs::read_to_string(path).expect("a page")).contains(anchor)
            };
            if !path.exists() || !anchor.is_empty() && missing(&path) {
                broken.push(format!("{page}:{number}: {target}"));
            }
        }
    }
    broken
}

/// The fault of a line of cargo: a package or target that does not exist.
pub(super) fn cargo_fault(text: &str) -> Option<String> {
    let mut words = text.split_whitespace();
    if words.next() != Some("cargo") {
        return None;
    }
    let mut package = None;
    while let Some(word) = words.next() {
        let folder = match word {
            "--" => break,
            "-p" => {
                let name = words.next().unwrap_or_default();
                let folder = match name.strip_prefix("arclight-").unwrap_or(name) {
                    "examples" => repository("examples"),
                    folder => repository(&format!("crates/{folder}")),
                };
                if !folder.join("Cargo.toml").exists() {
                    return Some(format!("no package {name}"));
                }
                package = Some(folder);
                continue;
            }
            "--bin" => "src/bin",
            "--bench" => "benches",
            "--test" => "tests",
            "--example" => "examples",
            _ => continue,
        };
        let name = words.next().unwrap_or_default();
        // The package may come later in the line.
        let Some(package) = &package else { continue };
        let at = package.join(folder);
        if !at.join(format!("{name}.rs")).exists() && !at.join(name).join("main.rs").exists() {
            return Some(format!("no {word} {name} in {}", package.display()));
        }
    }
    None
}

/// Words of a command that are paths in the repository, or in its `crates`, and do not exist.
pub(super) fn missing_files(text: &str) -> Vec<&str> {
    let top =
        ["tools/", "tests/", "demo/", "benchmarks/", "crates/", "docs/", "deploy/", "examples/"];
    let within = |word: &str| {
        let (of, rest) = word.split_once('/')?;
        let known = ["src/", "tests/", "benches/", "fuzz/"].iter().any(|f| rest.starts_with(f));
        (known && repository("crates").join(of).exists()).then(|| format!("crates/{word}"))
    };
    let place = |word: &str| match top.iter().any(|folder| word.starts_with(folder)) {
        true => Some(word.to_owned()),
        false => within(word),
    };
    let words = text.split([' ', '=', ',']);
    words.filter(|word| place(word).is_some_and(|path| !repository(&path).exists())).collect()
}
