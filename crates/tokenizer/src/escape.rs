//! Text from outside stays text, even where it spells a control token.
//!
//! A chat template mixes its own control tokens with text of users, tools and web pages. An [`Escaper`] keeps
//! them apart: before the rendering it puts an escape character into each text of a control token that occurs
//! in messages, tools and variables (`<|im_end|>` becomes `<` + escape + `|im_end|>`). Where the rendered text
//! becomes tokens ([`Tokenizer::encode_rendered`]), control tokens are looked for first, and then the escape
//! characters are removed from the text between them. That text has the ids of
//! [`Tokenizer::encode`] without `parse_special`: user-defined tokens (`<think>` in most vocabularies) are
//! found in it, control tokens are not.
//!
//! The escape character is a printable letter that occurs nowhere in the conversation or the template, so
//! filters and methods of templates treat it as any other letter. One is chosen only where there is something to
//! escape; other conversations are searched and not changed.
//!
//! What is escaped:
//!
//! - Occurrences in any string or key, ASCII case ignored: a template may have `lower`. Roles are not
//!   searched: they come from a closed set.
//! - The beginning of such a text at the end of a string (white space at the end aside), since a template may
//!   write another string directly after it.
//! - Every possible beginning, in a string with a text at which the template cuts strings (`content.split('x')`,
//!   `content | replace('x', '')`): what stood apart may be joined. Texts that the template searches for
//!   are left whole.
//! - Not escaped: a control token that is itself such a searched text (`content.split('[/THINK]')`), in the
//!   content and the reasoning of an assistant's message. Clients send back answers with the thoughts in them,
//!   and the template is to recognise these as before. No text of a user or a tool is exempt.
//!
//! Limits: a control token that consists of spaces is not escaped, and of one that begins with a letter or digit only
//! whole occurrences are. A template that composes a control token of
//! its own text and text from outside (`'<|' + name + '|>'`) gets what it composes.

use std::borrow::Cow;
use std::collections::HashSet;

use aho_corasick::{AhoCorasick, BuildError, MatchKind};
use serde_json::{Map, Value as Json};

use crate::spm::SPACE;
use crate::{ChatTemplate, Error, Message, Tokenizer};

/// Letters of which one becomes the escape character: Linear A, then CJK extension B. All are printable and without
/// case, and rare.
fn letters() -> impl Iterator<Item = char> {
    ('\u{10600}'..='\u{10736}').chain('\u{20000}'..='\u{2A6DF}')
}

/// Whether a character is of the planes of [`letters`].
fn is_rare(c: char) -> bool {
    c >= '\u{10000}'
}

/// A prompt as text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rendered {
    /// The text, with escape characters.
    pub text: String,
    /// The escape character, if there are any.
    pub escape: Option<char>,
}

impl Rendered {
    /// The text without escape characters.
    pub fn plain(&self) -> Cow<'_, str> {
        match self.escape {
            Some(escape) => Cow::Owned(self.text.replace(escape, "")),
            None => Cow::Borrowed(&self.text),
        }
    }
}

/// A text without its escape characters.
pub(crate) fn unescape(text: &[u8], escape: Option<char>) -> Cow<'_, [u8]> {
    let Some(escape) = escape else { return Cow::Borrowed(text) };
    let mut buffer = [0; 4];
    let escape = escape.encode_utf8(&mut buffer).as_bytes();
    let (mut plain, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some(at) = rest.windows(escape.len()).position(|bytes| bytes == escape) {
        plain.extend(&rest[..at]);
        rest = &rest[at + escape.len()..];
    }
    plain.extend(rest);
    Cow::Owned(plain)
}

/// Where a string comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// The name of a field, which is escaped only if a whole control token occurs in it.
    Key,
    /// Content or reasoning of the assistant.
    Answer,
    Other,
}

/// Gets each string, and returns what is to replace it.
type Visit<'v> = dyn FnMut(&str, Source) -> Option<String> + 'v;

/// Escapes the texts of a vocabulary's control tokens. Shared between threads as it is.
#[derive(Debug)]
pub struct Escaper {
    /// The texts. Of one with spaces, which have two spellings, the longest part without.
    texts: AhoCorasick,
    /// Which of them a template searches for.
    searched: Vec<bool>,
    /// The texts that begin with punctuation, in lower case and sorted.
    sorted: Vec<Vec<u8>>,
    /// Their first characters.
    firsts: Vec<char>,
    /// Bytes of the longest one.
    longest: usize,
    /// Where a template cuts.
    cuts: AhoCorasick,
    /// What it searches for.
    needles: AhoCorasick,
    /// Which of that is also the beginning of one of the texts.
    begins: Vec<bool>,
    /// Rare characters of the template.
    reserved: HashSet<char>,
}

impl Escaper {
    /// Escapes for a vocabulary, and for a template if there is one. `also`: further texts that have a meaning in
    /// a prompt, such as the placeholder of an image.
    ///
    /// # Errors
    /// When the texts are too large to be searched for together.
    pub fn new(
        tokenizer: &Tokenizer,
        template: Option<&ChatTemplate>,
        also: &[&str],
    ) -> Result<Self, Error> {
        let ids = (0..).take(tokenizer.vocab_size());
        let control = ids.filter(|&id| tokenizer.is_special(id));
        let control = control.filter_map(|id| str::from_utf8(tokenizer.token_bytes(id)?).ok());
        let all: Vec<&str> = control.chain(also.iter().copied()).collect();
        let parts = all.iter().map(|text| {
            let parts = text.split([' ', '▁']).filter(|part| !part.is_empty());
            parts.max_by_key(|part| (begins_with_mark(part), part.len())).unwrap_or_default()
        });
        let (all, texts): (Vec<&str>, Vec<&str>) =
            all.iter().zip(parts).filter(|(_, part)| !part.is_empty()).unzip();
        let searched: Vec<_> = template.iter().flat_map(|template| template.needles()).collect();
        let needles: Vec<&str> = searched.iter().map(|(needle, _)| needle.as_str()).collect();
        let cuts = searched.iter().filter(|(_, cuts)| **cuts).map(|(needle, _)| needle);
        let is_searched = |text: &&str| {
            needles.iter().any(|n| n.trim() == *text || n.trim().replace(SPACE, " ") == **text)
        };
        let mut sorted: Vec<Vec<u8>> = texts
            .iter()
            .filter(|text| begins_with_mark(text))
            .map(|text| text.to_ascii_lowercase().into_bytes())
            .collect();
        sorted.sort_unstable();
        let mut firsts: Vec<char> = sorted.iter().filter_map(|text| first(text)).collect();
        firsts.dedup();
        let fault = |e: BuildError| Error::Model(e.to_string());
        let mut builder = AhoCorasick::builder();
        let any_case = builder.ascii_case_insensitive(true).build(&texts).map_err(fault)?;
        let mut builder = AhoCorasick::builder();
        let leftmost = builder.match_kind(MatchKind::LeftmostLongest).build(&needles);
        let begins = |needle: &&str| {
            let needle = needle.to_ascii_lowercase().into_bytes();
            sorted.iter().any(|text| text.len() > needle.len() && text.starts_with(&needle))
        };
        let sources = template.iter().flat_map(|template| template.sources());
        Ok(Self {
            texts: any_case,
            searched: all.iter().map(is_searched).collect(),
            longest: sorted.iter().map(Vec::len).max().unwrap_or(0),
            begins: needles.iter().map(begins).collect(),
            cuts: AhoCorasick::new(cuts).map_err(fault)?,
            needles: leftmost.map_err(fault)?,
            reserved: sources.flat_map(str::chars).filter(|&c| is_rare(c)).collect(),
            sorted,
            firsts,
        })
    }

    /// Escapes what a template gets of a conversation; the escape character, if anything was escaped. It is to be
    /// in [`RenderOptions`](crate::RenderOptions) and in the [`Rendered`].
    ///
    /// # Errors
    /// When the texts use all characters that could be the escape character.
    pub fn escape(
        &self,
        messages: &mut [Message],
        tools: &mut [Json],
        variables: &mut Map<String, Json>,
    ) -> Result<Option<char>, Error> {
        self.read_arguments(messages);
        self.apply(|visit| {
            for message in &mut *messages {
                let answer =
                    if message.role == "assistant" { Source::Answer } else { Source::Other };
                each(&mut message.content, answer, visit);
                let calls = message.tool_calls.iter_mut();
                calls.for_each(|calls| each(calls, Source::Other, visit));
                let Message { reasoning_content, name, tool_call_id, .. } = message;
                for (text, source) in [
                    (reasoning_content, answer),
                    (name, Source::Other),
                    (tool_call_id, Source::Other),
                ] {
                    if let Some(text) = text {
                        replace(text, source, visit);
                    }
                }
            }
            tools.iter_mut().for_each(|tool| each(tool, Source::Other, visit));
            variables.values_mut().for_each(|value| each(value, Source::Other, visit));
        })
    }

    /// The same for texts.
    ///
    /// # Errors
    /// As [`escape`](Self::escape).
    pub fn escape_texts(&self, texts: &mut [String]) -> Result<Option<char>, Error> {
        self.apply(|visit| texts.iter_mut().for_each(|text| replace(text, Source::Other, visit)))
    }

    /// Escapes the strings that `walk` goes through.
    fn apply(&self, mut walk: impl FnMut(&mut Visit<'_>)) -> Result<Option<char>, Error> {
        let mut found = false;
        walk(&mut |text, source| {
            found = found || !self.places(text, source).is_empty();
            None
        });
        if !found {
            return Ok(None);
        }
        let mut used = self.reserved.clone();
        walk(&mut |text, _| {
            used.extend(text.chars().filter(|&c| is_rare(c)));
            used.extend(spelled_in_json(text));
            None
        });
        let escape = letters().find(|c| !used.contains(c)).ok_or(Error::NoEscape)?;
        walk(&mut |text, source| {
            let places = self.places(text, source);
            (!places.is_empty()).then(|| with(text, &places, escape))
        });
        Ok(Some(escape))
    }

    /// Where the escape character goes, in order.
    fn places(&self, text: &str, source: Source) -> Vec<usize> {
        let mut places = Vec::new();
        let after_first = |at: usize| at + text[at..].chars().next().map_or(0, char::len_utf8);
        // The first search is much faster than that for all of them.
        if self.texts.is_match(text) {
            let all = self.texts.find_overlapping_iter(text);
            let escaped =
                all.filter(|m| source != Source::Answer || !self.searched[m.pattern().as_usize()]);
            places.extend(escaped.map(|m| after_first(m.start())));
        }
        if source != Source::Key && text.contains(&*self.firsts) {
            places.extend(self.begun_at_end(text).map(after_first));
            if self.cuts.is_match(text) {
                let mut from = 0;
                let whole = self.needles.find_iter(text);
                let whole = whole.filter(|m| !self.begins[m.pattern().as_usize()]);
                let end = std::iter::once(text.len()..text.len());
                for needle in whole.map(|m| m.range()).chain(end) {
                    let between = text[from..needle.start].match_indices(&*self.firsts);
                    places.extend(between.map(|(at, _)| after_first(from + at)));
                    from = needle.end;
                }
            }
        }
        places.sort_unstable();
        places.dedup();
        places
    }

    /// Where a text begins that `text` ends within.
    fn begun_at_end<'t>(&self, text: &'t str) -> impl Iterator<Item = usize> + use<'t, '_> {
        let text = text.trim_end();
        let tail = text.len().saturating_sub(self.longest);
        let places = text.char_indices().rev().map(|(at, _)| at).take_while(move |&at| at >= tail);
        places.filter(move |&at| {
            let begun = text.as_bytes()[at..].to_ascii_lowercase();
            let next = self.sorted.partition_point(|whole| *whole <= begun);
            self.sorted.get(next).is_some_and(|whole| whole.starts_with(&begun))
        })
    }

    /// Reads a call's arguments if their text spells a control token by escapes of JSON alone, as in `\u003c`: what
    /// is read later would have it.
    fn read_arguments(&self, messages: &mut [Message]) {
        let calls = messages.iter_mut().filter_map(|message| message.tool_calls.as_mut());
        for call in calls.filter_map(Json::as_array_mut).flatten() {
            let arguments = match call.get("function") {
                Some(_) => call["function"].get_mut("arguments"),
                None => call.get_mut("arguments"),
            };
            if let Some(Json::String(text)) = &arguments
                && text.contains('\\')
                && let Ok(mut read @ Json::Object(_)) = serde_json::from_str(text)
            {
                let mut found = false;
                each(&mut read, Source::Other, &mut |text, _| {
                    found |= self.texts.is_match(text);
                    None
                });
                if let Some(arguments) = arguments.filter(|_| found) {
                    *arguments = read;
                }
            }
        }
    }
}

/// Takes the escape character out of tools and variables again: it occurs nowhere else in them.
pub fn unescape_values(escape: char, tools: &mut [Json], variables: &mut Map<String, Json>) {
    let mut visit = |text: &str, _| text.contains(escape).then(|| text.replace(escape, ""));
    let values = tools.iter_mut().chain(variables.values_mut());
    values.for_each(|value| each(value, Source::Other, &mut visit));
}

fn begins_with_mark(text: &str) -> bool {
    text.starts_with(|c: char| !c.is_alphanumeric())
}

fn first(text: &[u8]) -> Option<char> {
    str::from_utf8(text).ok()?.chars().next()
}

/// `text` with the escape character in these places.
fn with(text: &str, places: &[usize], escape: char) -> String {
    let mut escaped = String::with_capacity(text.len() + places.len() * escape.len_utf8());
    let mut from = 0;
    for &place in places {
        escaped.push_str(&text[from..place]);
        escaped.push(escape);
        from = place;
    }
    escaped + &text[from..]
}

/// Characters of the upper planes that a text spells as JSON does, in two halves.
fn spelled_in_json(text: &str) -> impl Iterator<Item = char> + '_ {
    let half = |at: usize| u16::from_str_radix(text.get(at..at + 4)?, 16).ok();
    text.match_indices("\\u").filter_map(move |(at, _)| {
        let halves = [half(at + 2)?, half(at + 8)?];
        char::decode_utf16(halves).next()?.ok().filter(|&c| is_rare(c))
    })
}

fn replace(text: &mut String, source: Source, visit: &mut Visit<'_>) {
    if let Some(new) = visit(text, source) {
        *text = new;
    }
}

/// Visits the strings and keys of a value.
fn each(value: &mut Json, source: Source, visit: &mut Visit<'_>) {
    match value {
        Json::String(text) => replace(text, source, visit),
        Json::Array(items) => items.iter_mut().for_each(|item| each(item, source, visit)),
        Json::Object(fields) => {
            let mut renamed = false;
            for (key, value) in fields.iter_mut() {
                renamed |= visit(key, Source::Key).is_some();
                each(value, source, visit);
            }
            if renamed {
                let mut new = |key: String| visit(&key, Source::Key).unwrap_or(key);
                let old = std::mem::take(fields).into_iter();
                *fields = old.map(|(key, value)| (new(key), value)).collect();
            }
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}
