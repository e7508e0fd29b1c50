//! Cutting text into the words inside which byte-level BPE merges.
//!
//! The published patterns end in `\s+(?!\S)|\s+`: a run of white space leaves its last character
//! to the word that follows. Look-ahead needs a backtracking engine, whose time on hostile text
//! has no good bound. The entries of the table leave that ending out, and [`Compiled::words`] cuts
//! the white space between two matches itself, which is the same thing and linear in the text.

use std::borrow::Cow;
use std::ops::Range;

use regex_automata::meta::Regex;
use regex_automata::{Anchored, Input};
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use crate::Error;
use crate::schemes::{PRE_TOKENIZERS, Scheme, Step};

/// A scheme with its patterns compiled.
#[derive(Debug)]
pub(crate) struct PreTokenizer {
    pub(crate) scheme: &'static Scheme,
    steps: Vec<Compiled>,
}

#[derive(Debug)]
struct Compiled {
    step: Step,
    regex: Regex,
}

impl PreTokenizer {
    /// Finds the scheme called `name`.
    pub(crate) fn named(name: &str) -> Result<Self, Error> {
        let scheme = PRE_TOKENIZERS.iter().find(|s| s.names.contains(&name)).ok_or_else(|| {
            let names: Vec<_> = PRE_TOKENIZERS.iter().flat_map(|s| s.names).copied().collect();
            Error::UnsupportedPre { pre: name.to_owned(), supported: names.join(", ") }
        })?;
        let steps = scheme.steps.iter().map(|&step| Compiled::new(step)).collect::<Result<_, _>>();
        Ok(Self { scheme, steps: steps? })
    }

    /// The text as the vocabulary was trained on it.
    pub(crate) fn normalize<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if !self.scheme.nfc || is_nfc_quick(text.chars()) == IsNormalized::Yes {
            Cow::Borrowed(text)
        } else {
            Cow::Owned(text.nfc().collect())
        }
    }

    /// Byte ranges of the words of `text`, in order; together they cover it and none is empty.
    pub(crate) fn split(&self, text: &str) -> Vec<Range<usize>> {
        let mut words = Vec::new();
        push(0..text.len(), &mut words);
        for step in &self.steps {
            let mut next = Vec::with_capacity(words.len());
            for word in words {
                step.split(&text[word.clone()], word.start, &mut next);
            }
            words = next;
        }
        words
    }
}

impl Compiled {
    fn new(step: Step) -> Result<Self, Error> {
        let (Step::Split(pattern)
        | Step::Words(pattern)
        | Step::WordsHalving(pattern)
        | Step::Thousands(pattern)) = step;
        let regex = Regex::new(pattern).map_err(|e| Error::Model(e.to_string()))?;
        Ok(Self { step, regex })
    }

    /// The next match from `at` on, which is not empty.
    fn next(&self, text: &str, at: usize) -> Option<Range<usize>> {
        // Nearly every word follows the one before it at once. Where a match must begin is known then, and only its
        // end is looked for, which is several times as fast.
        let rest = Input::new(text).range(at..);
        let here = self.regex.search_half(&rest.clone().anchored(Anchored::Yes));
        if let Some(end) = here.map(|half| half.offset()).filter(|&end| end > at) {
            return Some(at..end);
        }
        self.regex.search(&rest).map(|found| found.range()).filter(|found| !found.is_empty())
    }

    /// Appends the words of `text`, which stands at `base` in the whole.
    fn split(&self, text: &str, base: usize, out: &mut Vec<Range<usize>>) {
        let mut emit = |start: usize, end: usize| push(base + start..base + end, out);
        let mut at = 0;
        while at < text.len() {
            let found = self.next(text, at).unwrap_or(text.len()..text.len());
            while at < found.start {
                let end = match self.step {
                    Step::Split(_) | Step::Thousands(_) => found.start,
                    Step::Words(_) => unmatched(text, at, found.start),
                    Step::WordsHalving(_) => halved(text, at, found.start),
                };
                emit(at, end);
                at = end;
            }
            // White space that begins before a match may reach into it.
            if at == found.start {
                match self.step {
                    Step::Thousands(_) => thousands(text, found.clone(), &mut emit),
                    _ => emit(at, found.end),
                }
                at = found.end;
            }
        }
    }
}

/// Where the word ends that begins at `at`, where no match does; the next one is at `found`.
fn unmatched(text: &str, at: usize, found: usize) -> usize {
    let rest = &text[at..];
    if !rest.starts_with(char::is_whitespace) {
        return text[at..found].find(char::is_whitespace).map_or(found, |n| at + n);
    }
    let run = rest.find(|c: char| !c.is_whitespace()).unwrap_or(rest.len());
    let last = rest[..run].chars().next_back().map_or(0, char::len_utf8);
    if run == rest.len() || run == last { at + run } else { at + run - last }
}

/// Like `unmatched`, but of white space only as much as the largest power of two of characters,
/// up to 512, that there is room for.
fn halved(text: &str, at: usize, found: usize) -> usize {
    let rest = &text[at..];
    let run = rest.chars().take(513).take_while(|c| c.is_whitespace()).count();
    let ends = rest.chars().nth(run).is_none();
    match run {
        0 => unmatched(text, at, found),
        _ => {
            let room = if ends || run == 1 { run } else { run - 1 };
            let size = (1 << room.ilog2()).min(512);
            rest.char_indices().nth(size).map_or(text.len(), |(n, _)| at + n)
        }
    }
}

/// Emits groups of three characters of a run, of which only the first may be shorter.
fn thousands(text: &str, run: Range<usize>, emit: &mut impl FnMut(usize, usize)) {
    let digits = text[run.clone()].chars().count();
    let mut start = run.start;
    for (i, (at, _)) in text[run.clone()].char_indices().enumerate().skip(1) {
        if (digits - i).is_multiple_of(3) {
            emit(start, run.start + at);
            start = run.start + at;
        }
    }
    emit(start, run.end);
}

fn push(word: Range<usize>, out: &mut Vec<Range<usize>>) {
    if !word.is_empty() {
        out.push(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words<'t>(name: &str, text: &'t str) -> Vec<&'t str> {
        PreTokenizer::named(name).unwrap().split(text).into_iter().map(|r| &text[r]).collect()
    }

    #[test]
    fn white_space_leaves_one_to_the_next_word() {
        assert_eq!(words("qwen2", "a   b"), ["a", "  ", " b"]);
        assert_eq!(words("qwen2", "a   "), ["a", "   "]);
        assert_eq!(words("qwen2", "  \n \n  x"), ["  \n \n", " ", " x"]);
        assert_eq!(words("qwen2", "a \u{3000}b"), ["a", " ", "\u{3000}b"]);
        assert_eq!(words("qwen2", "\t\t1"), ["\t", "\t", "1"]);
        assert_eq!(words("gpt-2", "\n\n\na"), ["\n\n", "\n", "a"]);
    }

    #[test]
    fn white_space_halves() {
        let text = [&" ".repeat(1031), "x"].concat();
        let lengths: Vec<_> = words("jais-2", &text).iter().map(|w| w.len()).collect();
        assert_eq!(lengths, [512, 512, 4, 2, 2]);
        let lengths: Vec<_> = words("jais-2", "\t\t\t\t1").iter().map(|w| w.len()).collect();
        assert_eq!(lengths, [2, 1, 1, 1]);
    }

    #[test]
    fn digits_differ_between_schemes() {
        assert_eq!(words("qwen2", "12345"), ["1", "2", "3", "4", "5"]);
        assert_eq!(words("llama-bpe", "12345"), ["123", "45"]);
        assert_eq!(words("tiny_aya", "12345"), ["12", "345"]);
        assert_eq!(words("superbpe", "a 1234567 b"), ["a ", "1", "234", "567", " b"]);
    }

    #[test]
    fn contractions_in_both_cases() {
        assert_eq!(words("qwen2", "I'll IT'S"), ["I", "'ll", " IT", "'S"]);
    }

    #[test]
    fn composed_only_where_the_scheme_says_so() {
        let text = "e\u{301}";
        assert_eq!(PreTokenizer::named("qwen2").unwrap().normalize(text), "é");
        assert_eq!(PreTokenizer::named("llama-bpe").unwrap().normalize(text), text);
    }

    #[test]
    fn unknown_name_is_named_with_the_known_ones() {
        let message = PreTokenizer::named("novel").unwrap_err().to_string();
        assert!(message.contains("`novel`") && message.contains("qwen2"), "{message}");
    }

    #[test]
    fn no_name_stands_twice() {
        let mut seen = std::collections::HashSet::new();
        for name in PRE_TOKENIZERS.iter().flat_map(|s| s.names) {
            assert!(seen.insert(name), "{name}");
        }
    }

    /// What the published patterns give in the engine that they were written for.
    #[test]
    fn splits_as_the_reference_does() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/splits.json");
        let data: serde_json::Value =
            serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let texts = data["texts"].as_array().unwrap();
        let mut wrong = Vec::new();
        let expected = data["lengths"].as_object().unwrap();
        for scheme in PRE_TOKENIZERS {
            let name = scheme.names.iter().find(|n| expected.contains_key(**n));
            let name = name.unwrap_or_else(|| panic!("no reference for {:?}", scheme.names));
            let pre = PreTokenizer::named(name).unwrap();
            for (text, lengths) in texts.iter().zip(expected[*name].as_array().unwrap()) {
                let text = text.as_str().unwrap();
                let words: Vec<_> = pre.split(text).into_iter().map(|r| &text[r]).collect();
                let got: Vec<_> = words.iter().map(|w| w.chars().count() as u64).collect();
                let lengths = lengths.as_array().unwrap().iter().map(|n| n.as_u64().unwrap());
                if !lengths.clone().eq(got.iter().copied()) {
                    let want: Vec<_> = lengths.collect();
                    wrong.push(format!("{name}: {words:?}\n got {got:?}\nwant {want:?}"));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    }
}
