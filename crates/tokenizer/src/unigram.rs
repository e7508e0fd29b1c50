//! SentencePiece Unigram: of all ways to cut the text into tokens the one with the best score.
//!
//! The text is normalised first ([`Charsmap`], then the spaces). The search goes through the text
//! once; an automaton gives the tokens that end at each place. A character without a token costs as
//! much as the worst token and ten more; neighbours of that kind become one unknown token, or byte
//! tokens if the vocabulary has them. Source: the SentencePiece paper (Kudo 2018) and the published
//! rules of its library.

use std::borrow::Cow;

use aho_corasick::{AhoCorasick, MatchKind};

use crate::Error;
use crate::charsmap::Charsmap;
use crate::spec::VocabSpec;
use crate::spm::{ByteTokens, MAX_TOKEN, SPACE};
use crate::vocab::{TokenKind, Tokens};

/// What an unknown character costs beyond the worst token.
const UNKNOWN_PENALTY: f64 = 10.0;

pub(crate) struct Unigram {
    automaton: AhoCorasick,
    /// Id and score of each of the automaton's patterns.
    tokens: Vec<(u32, f64)>,
    unknown_score: f64,
    unk: u32,
    bytes: Option<ByteTokens>,
    charsmap: Option<Charsmap>,
    add_space_prefix: bool,
    remove_extra_spaces: bool,
}

/// The best way to a place in the text.
#[derive(Clone, Copy)]
struct Best {
    score: f64,
    /// Where its last token begins.
    start: usize,
    /// That token; `None` is an unknown character.
    id: Option<u32>,
}

impl Unigram {
    pub(crate) fn new(
        spec: &VocabSpec,
        tokens: &Tokens<'_>,
        unk: Option<u32>,
    ) -> Result<Self, Error> {
        let scores =
            spec.scores.as_ref().ok_or(Error::MissingKey { key: "tokenizer.ggml.scores" })?;
        let unk = unk.ok_or(Error::MissingKey { key: "tokenizer.ggml.unknown_token_id" })?;
        let (mut texts, mut scored) = (Vec::new(), Vec::new());
        let mut worst = 0f64;
        for (id, text) in tokens.of_kind(TokenKind::Normal).filter(|t| !t.1.is_empty()) {
            let score = f64::from(scores[id as usize]);
            if !score.is_finite() {
                return Err(Error::BadScore { id: id as usize });
            }
            if text.len() > MAX_TOKEN {
                return Err(Error::BadToken {
                    id: id as usize,
                    fault: "is longer than 4096 bytes",
                });
            }
            worst = worst.min(score);
            texts.push(text);
            scored.push((id, score));
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .build(texts)
            .map_err(|e| Error::Model(e.to_string()))?;
        let bytes = ByteTokens::new(tokens);
        Ok(Self {
            automaton,
            tokens: scored,
            unknown_score: worst - UNKNOWN_PENALTY,
            unk,
            bytes: bytes.missing().is_none().then_some(bytes),
            charsmap: spec.charsmap.as_deref().map(Charsmap::new).transpose()?,
            add_space_prefix: spec.add_space_prefix.unwrap_or(true),
            remove_extra_spaces: spec.remove_extra_spaces.unwrap_or(false),
        })
    }

    /// Whether encoding puts a space in front, which decoding drops again.
    pub(crate) fn adds_space(&self) -> bool {
        self.add_space_prefix
    }

    /// Appends the ids of `text`. Bytes that are not UTF-8 count as U+FFFD.
    pub(crate) fn encode(&self, text: &[u8], out: &mut Vec<u32>) {
        let text = self.normalize(&String::from_utf8_lossy(text));
        let best = self.search(&text);
        let first = out.len();
        let mut end = text.len();
        while end > 0 {
            let Best { mut start, id, .. } = best[end];
            if id.is_none() {
                while start > 0 && best[start].id.is_none() {
                    start = best[start].start;
                }
            }
            match (id, &self.bytes) {
                (Some(id), _) => out.push(id),
                (None, None) => out.push(self.unk),
                (None, Some(bytes)) => {
                    let from = out.len();
                    bytes.push(&text.as_bytes()[start..end], None, out);
                    out[from..].reverse();
                }
            }
            end = start;
        }
        out[first..].reverse();
    }

    /// The best way to each place that a character ends at.
    fn search(&self, text: &str) -> Vec<Best> {
        let mut best = vec![Best { score: 0.0, start: 0, id: None }; text.len() + 1];
        let mut found = self.automaton.find_overlapping_iter(text).peekable();
        for (start, c) in text.char_indices() {
            let end = start + c.len_utf8();
            let mut way: Option<Best> = None;
            let mut has_single = false;
            // Of equal scores the longest last token wins: it comes first.
            while let Some(m) = found.next_if(|m| m.end() <= end) {
                let (id, score) = self.tokens[m.pattern().as_usize()];
                let score = best[m.start()].score + score;
                has_single |= m.start() == start;
                if way.is_none_or(|way| score > way.score) {
                    way = Some(Best { score, start: m.start(), id: Some(id) });
                }
            }
            let unknown = best[start].score + self.unknown_score;
            if !has_single && way.is_none_or(|way| unknown > way.score) {
                way = Some(Best { score: unknown, start, id: None });
            }
            best[end] = way.unwrap_or(best[end]);
        }
        best
    }

    /// The text as the vocabulary was trained on it.
    fn normalize(&self, text: &str) -> String {
        let text = match &self.charsmap {
            Some(map) => map.apply(text),
            None => Cow::Borrowed(text),
        };
        let mut out = String::with_capacity(text.len() + SPACE.len());
        if self.remove_extra_spaces {
            for word in text.split(' ').filter(|w| !w.is_empty()) {
                if !out.is_empty() || self.add_space_prefix {
                    out.push_str(SPACE);
                }
                out.push_str(word);
            }
        } else if !text.is_empty() {
            if self.add_space_prefix {
                out.push_str(SPACE);
            }
            out.push_str(&text.replace(' ', SPACE));
        }
        out
    }
}
