//! Tokens that stand for their own text: found in the input before anything else looks at it.
//!
//! User-defined tokens (`<think>`, runs of spaces, …) are found in any text. Control tokens
//! (`<|im_end|>`, …) only where the caller trusts the text, or a user's message could end its own
//! turn. The leftmost match wins and, of those that begin there, the longest. A control token of one character
//! that an escape character follows is text (see `escape`); one of several characters has it inside and does not
//! match.

use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};

use crate::Error;

/// A stretch of text, or a token found in it.
#[derive(Debug, PartialEq)]
pub(crate) enum Piece<'t> {
    Text(&'t [u8]),
    Token(u32),
}

#[derive(Debug)]
pub(crate) struct Specials {
    user: Matcher,
    /// The user-defined tokens and, after them, the control tokens: a control token does not begin
    /// inside a user-defined one.
    both: Matcher,
}

impl Specials {
    /// `user` and `control`: text and id of each token, in the form the text will have.
    pub(crate) fn new(
        user: &[(impl AsRef<[u8]>, u32)],
        control: &[(impl AsRef<[u8]>, u32)],
    ) -> Result<Self, Error> {
        let both = (user.iter().map(|(text, id)| (text.as_ref(), *id)))
            .chain(control.iter().map(|(text, id)| (text.as_ref(), *id)));
        Ok(Self {
            both: Matcher::new(both)?,
            user: Matcher::new(user.iter().map(|(text, id)| (text.as_ref(), *id)))?,
        })
    }

    /// Cuts `text` at the control tokens in it, those that are escaped left aside. The pieces come in order and none
    /// is empty.
    pub(crate) fn split_control<'a>(
        &'a self,
        text: &'a [u8],
        escape: Option<char>,
    ) -> impl Iterator<Item = Piece<'a>> {
        self.both.split(text, self.user.ids.len(), escape)
    }

    /// Cuts `text` at the user-defined tokens in it. The pieces come in order and none is empty.
    pub(crate) fn split_user<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = Piece<'a>> {
        self.user.split(text, 0, None)
    }
}

#[derive(Debug, Default)]
struct Matcher {
    /// `None` when there is nothing to find.
    automaton: Option<AhoCorasick>,
    /// Token id of each pattern.
    ids: Vec<u32>,
}

impl Matcher {
    fn new<'t>(tokens: impl Iterator<Item = (&'t [u8], u32)>) -> Result<Self, Error> {
        let (texts, ids): (Vec<_>, Vec<_>) = tokens.filter(|(text, _)| !text.is_empty()).unzip();
        if ids.is_empty() {
            return Ok(Self::default());
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(texts)
            .map_err(|e| Error::Model(e.to_string()))?;
        Ok(Self { automaton: Some(automaton), ids })
    }

    /// Cuts `text` at the tokens with an index of at least `from` that are not escaped.
    fn split<'a>(
        &'a self,
        text: &'a [u8],
        from: usize,
        escape: Option<char>,
    ) -> impl Iterator<Item = Piece<'a>> {
        let is_escaped = move |found: Range<usize>| {
            let one = || str::from_utf8(&text[found.clone()]).is_ok_and(is_one);
            escape.is_some_and(|e| starts_with(&text[found.end..], e) && one())
        };
        let mut found = (self.automaton.iter())
            .flat_map(move |automaton| automaton.find_iter(text))
            .filter(move |m| m.pattern().as_usize() >= from && !is_escaped(m.range()))
            .peekable();
        let mut at = 0;
        std::iter::from_fn(move || {
            let next = found.peek().map_or(text.len(), |m| m.start());
            if at < next {
                let piece = Piece::Text(&text[at..next]);
                at = next;
                return Some(piece);
            }
            let m = found.next()?;
            at = m.end();
            Some(Piece::Token(self.ids[m.pattern().as_usize()]))
        })
    }
}

/// Whether a text is one character, spaces aside.
fn is_one(text: &str) -> bool {
    text.trim_matches([' ', '▁']).chars().count() == 1
}

fn starts_with(text: &[u8], escape: char) -> bool {
    text.starts_with(escape.encode_utf8(&mut [0; 4]).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn specials() -> Specials {
        let user = [("<think>", 7), ("", 9), ("<x<|a|>", 8)];
        Specials::new(&user, &[("<|a|>", 1), ("<|a|><|b|>", 2)]).unwrap()
    }

    fn show<'t>(pieces: impl Iterator<Item = Piece<'t>>) -> String {
        let show = |p| match p {
            Piece::Text(text) => format!("{:?} ", str::from_utf8(text).unwrap()),
            Piece::Token(id) => format!("{id} "),
        };
        pieces.map(show).collect()
    }

    #[test]
    fn the_longest_of_the_leftmost_wins() {
        let s = specials();
        let got = show(s.split_control(b"<|a|><|b|><|a|>x", None));
        assert_eq!(got, "2 1 \"x\" ");
        assert_eq!(show(s.split_control(b"<x<|a|>", None)), "\"<x<|a|>\" ");
    }

    #[test]
    fn each_kind_by_itself() {
        let s = specials();
        assert_eq!(show(s.split_control(b"<think><|a|>", None)), "\"<think>\" 1 ");
        assert_eq!(show(s.split_user(b"<think><|a|>")), "7 \"<|a|>\" ");
    }

    #[test]
    fn one_character_with_an_escape_after_it_is_text() {
        let s = Specials::new(&[("", 0)], &[("(", 1), (" ((", 2)]).unwrap();
        let split = |text: &'static str, escape| show(s.split_control(text.as_bytes(), escape));
        assert_eq!(split("a(~b(", Some('~')), "\"a(~b\" 1 ");
        assert_eq!(split("a(~b(", None), "\"a\" 1 \"~b\" 1 ");
        assert_eq!(split(" ((~", Some('~')), "2 \"~\" ");
    }

    #[test]
    fn nothing_to_find() {
        let none = Specials::new(&[("", 0)], &[("", 0)]).unwrap();
        assert_eq!(show(none.split_control(b"<|a|>", None)), "\"<|a|>\" ");
        assert_eq!(none.split_user(b"").count(), 0);
    }
}
