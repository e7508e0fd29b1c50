//! Prompts of random words with the right number of tokens, as the server counts them.
//!
//! Where the server has `/tokenize` (llama-server's form, vLLM's, and whatever takes the union of both)
//! every prompt is counted and corrected word by word. Otherwise tokens per word are learnt from the
//! usage of two requests, and prompts are right on average. What the server counted for each request
//! is in its record either way.
//!
//! The length of a prompt is that of everything the model sees: text, beginning-of-sequence token and
//! chat template. A prompt that should be shorter than the template has one word.
//!
//! Words are random, so no two prompts begin alike beyond a few tokens and a prefix cache gains
//! nothing, except for a prefix that is asked for.

use crate::client::Fault;
use crate::error::Error;
use crate::rng::Rng;
use crate::server::Server;
use crate::wire::Endpoint;
use crate::words::{WORDS, append, remove};
use crate::workload::Prompt;
use serde_json::{Value, json};

/// Counts of one prompt until it is taken as it is.
const ROUNDS: usize = 8;
/// Words of the two requests that show tokens per word.
const SAMPLES: (usize, usize) = (40, 240);

/// How tokens are counted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Counter {
    /// By the server's `/tokenize`.
    Tokenize {
        form: Form,
        /// Tokens of everything around the text that `/tokenize` does not count.
        around: i64,
        /// Tokens per word, and of no word.
        line: Line,
        /// Words of one token each.
        units: Vec<&'static str>,
    },
    /// By a line through what requests reported.
    Usage(Line),
    /// Not: a word is a token.
    Guess,
}

/// Tokens by words.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Line {
    per_word: f64,
    fixed: f64,
}

/// How `/tokenize` is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Union,
    LlamaServer,
    Vllm,
}

impl Line {
    const GUESS: Line = Line { per_word: 1.0, fixed: 0.0 };

    /// Through two counts; a line that cannot be is the guess.
    fn through((words0, tokens0): (usize, usize), (words1, tokens1): (usize, usize)) -> Line {
        let per_word = (tokens1 as f64 - tokens0 as f64) / (words1 - words0) as f64;
        match per_word > 0.1 {
            true => Line { per_word, fixed: tokens0 as f64 - per_word * words0 as f64 },
            false => Line::GUESS,
        }
    }

    /// Words for so many tokens; at least one.
    fn words(self, tokens: usize) -> usize {
        (((tokens as f64 - self.fixed) / self.per_word).round() as usize).max(1)
    }
}

impl Counter {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Counter::Tokenize { .. } => "tokenize",
            Counter::Usage(_) => "usage",
            Counter::Guess => "guess",
        }
    }

    /// Finds the best way that the server offers.
    pub(crate) async fn find(server: &Server) -> Result<Counter, Error> {
        for form in [Form::Union, Form::LlamaServer, Form::Vllm] {
            let once = WORDS.join(" ");
            let Some(one) = tokenize(server, form, &once).await? else { continue };
            let Some(two) = tokenize(server, form, &format!("{once} {once}")).await? else {
                continue;
            };
            let n = WORDS.len();
            let line = Line::through((n, one), (2 * n, two));
            let units = match two == one + n {
                true => WORDS.to_vec(),
                false => units(server, form).await?,
            };
            let around = match server.once(&once, 1).await.input {
                Some(counted) => counted as i64 - one as i64,
                None => 0,
            };
            return Ok(Counter::Tokenize { form, around, line, units });
        }
        let mut rng = Rng::new(0, "counting");
        let mut count = async |words| {
            let mut text = String::new();
            append(&mut text, words, &WORDS, &mut rng);
            server.once(&text, 1).await.input
        };
        Ok(match (count(SAMPLES.0).await, count(SAMPLES.1).await) {
            (Some(few), Some(many)) => {
                Counter::Usage(Line::through((SAMPLES.0, few), (SAMPLES.1, many)))
            }
            _ => Counter::Guess,
        })
    }
}

/// Words that are one token each wherever they stand.
async fn units(server: &Server, form: Form) -> Result<Vec<&'static str>, Error> {
    let mut units = Vec::new();
    for word in WORDS {
        let few = tokenize(server, form, &[word; 8].join(" ")).await?;
        let many = tokenize(server, form, &[word; 16].join(" ")).await?;
        if let (Some(few), Some(many)) = (few, many)
            && many == few + 8
        {
            units.push(word);
        }
        // A few are enough to fill up with; asking for all would take long from far away.
        if units.len() >= 16 {
            break;
        }
    }
    Ok(units)
}

/// Tokens of a text; none if the server does not count, or not in this form.
async fn tokenize(server: &Server, form: Form, text: &str) -> Result<Option<usize>, Error> {
    // A template brings its own beginning-of-sequence token.
    let special = server.endpoint() == Endpoint::Completions;
    let model = server.model();
    let body = match form {
        Form::Union => json!({"model": model, "prompt": text, "content": text,
            "add_special_tokens": special, "add_special": special}),
        Form::LlamaServer => json!({"content": text, "add_special": special}),
        Form::Vllm => json!({"model": model, "prompt": text, "add_special_tokens": special}),
    };
    match server.post("/tokenize", body.to_string().into()).await {
        Ok((200, answer)) => {
            let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
            let count = answer["count"].as_u64().map(|n| n as usize);
            let tokens = || answer["tokens"].as_array().map(Vec::len);
            // No text of ours has no tokens: a server that says so has read another field.
            Ok(count.or_else(tokens).filter(|&n| n > 0))
        }
        Ok(_) | Err(Fault::Broken(_)) => Ok(None),
        Err(Fault::Connect(reason)) => Err(Error::Unreachable { at: server.url(), reason }),
    }
}

impl Server {
    /// A prompt that can be sent, and how many tokens it was to have. `purpose`, `id` and `seed`
    /// choose the words.
    pub(crate) async fn put_into_words(
        &self,
        prompt: &Prompt,
        prefix: &str,
        purpose: &str,
        id: usize,
        seed: u64,
    ) -> (Prompt, Option<usize>) {
        match prompt {
            Prompt::Tokens(n) => {
                let mut rng = Rng::new(seed, &format!("{purpose} {id}"));
                (Prompt::Text(self.write(*n, prefix, &mut rng).await), Some(*n))
            }
            other => (other.clone(), None),
        }
    }

    /// A text of random words after `prefix`, of `tokens` tokens with the prefix.
    pub(crate) async fn write(&self, tokens: usize, prefix: &str, rng: &mut Rng) -> String {
        let mut text = self.draft(tokens, prefix, rng);
        let Counter::Tokenize { form, around, line, units } = &self.counter else { return text };
        let mut best = (i64::MAX, String::new());
        for _ in 0..ROUNDS {
            // A server that counts no more is asked no more; its usage will show the difference.
            let Ok(Some(counted)) = tokenize(self, *form, &text).await else { return text };
            let over = counted as i64 + around - tokens as i64;
            if over.abs() < best.0 {
                best = (over.abs(), text.clone());
            }
            let words = (over.unsigned_abs() as f64 / line.per_word) as usize;
            let own = text[prefix.len()..].split_whitespace().count();
            match over {
                0 => break,
                1.. if own <= 1 => break,
                1.. => remove(&mut text, words.max(1).min(own - 1)),
                _ if units.is_empty() => append(&mut text, words.max(1), &WORDS, rng),
                _ => append(&mut text, over.unsigned_abs() as usize, units, rng),
            }
        }
        best.1
    }

    /// The same without asking the server: right on average.
    pub(crate) fn draft(&self, tokens: usize, prefix: &str, rng: &mut Rng) -> String {
        let line = match &self.counter {
            Counter::Tokenize { line, around, .. } => {
                Line { fixed: line.fixed + *around as f64, ..*line }
            }
            Counter::Usage(line) => *line,
            Counter::Guess => Line::GUESS,
        };
        let has = if prefix.is_empty() { 0 } else { prefix.split(' ').count() };
        let mut text = prefix.to_owned();
        append(&mut text, line.words(tokens).saturating_sub(has).max(1), &WORDS, rng);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_through_what_was_counted() {
        // Three tokens around, two per word.
        let line = Line::through((40, 83), (240, 483));
        assert_eq!((line.per_word, line.fixed), (2.0, 3.0));
        assert_eq!((line.words(83), line.words(84), line.words(1)), (40, 41, 1));
        // A server that counts nonsense.
        assert_eq!(Line::through((40, 7), (240, 7)), Line::GUESS);
        assert_eq!(Line::GUESS.words(12), 12);
    }
}
