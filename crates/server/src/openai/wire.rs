//! What OpenAI's answers have in common: heads, usage, log-probabilities, reasons.

use crate::normal::{Finish, TokenLogprob, TokenText};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeMap;

/// Tells which build answered; clients compare it between answers of one seed.
pub(super) const FINGERPRINT: &str = concat!("fp_arclight_", env!("CARGO_PKG_VERSION"));

/// What every object of an answer begins with.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) id: String,
    pub(super) created: u64,
    pub(super) model: String,
}

impl Head {
    /// An object with these choices. A part of a streamed answer has `None` for usage, or null before the end.
    pub(super) fn object<C: Choice>(
        &self,
        choices: Vec<C>,
        usage: Option<Option<Counts>>,
    ) -> Object<C> {
        Object {
            id: self.id.clone(),
            object: C::OBJECT,
            created: self.created,
            model: self.model.clone(),
            system_fingerprint: FINGERPRINT,
            choices,
            usage,
        }
    }
}

/// A choice of an answer, by which the object has its name.
pub(crate) trait Choice: Serialize {
    const OBJECT: &'static str;
}

/// An answer, or a part of a streamed one.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "{C}")]
pub(crate) struct Object<C: Choice> {
    id: String,
    #[schemars(extend("const" = C::OBJECT))]
    object: &'static str,
    /// Seconds since 1970.
    created: u64,
    model: String,
    system_fingerprint: &'static str,
    choices: Vec<C>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<Counts>>,
}

/// Tokens of a request and its answer.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Usage")]
pub(crate) struct Counts {
    prompt_tokens: usize,
    completion_tokens: usize,
    total_tokens: usize,
    prompt_tokens_details: PromptCounts,
    completion_tokens_details: AnswerCounts,
}

#[derive(Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
struct PromptCounts {
    cached_tokens: usize,
}

#[derive(Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
struct AnswerCounts {
    reasoning_tokens: usize,
}

/// Tokens of all choices together, and of every prompt once, however many choices it has.
#[derive(Clone, Debug, Default)]
pub(super) struct Usage {
    prompts: BTreeMap<usize, Prompt>,
    answer: usize,
    reasoning: usize,
}

#[derive(Clone, Copy, Debug)]
struct Prompt {
    tokens: usize,
    /// What the first of its choices found in the cache, as far as choices tell: the others find what
    /// that one has computed, and which ends first is chance.
    cached: usize,
}

impl Usage {
    /// Adds a choice of a prompt; choices come in any order.
    pub(super) fn add(&mut self, prompt: usize, finish: &Finish) {
        let new = Prompt { tokens: finish.prompt_tokens, cached: finish.cached_tokens };
        let known = self.prompts.entry(prompt).or_insert(new);
        known.cached = known.cached.min(new.cached);
        self.answer += finish.tokens;
        self.reasoning += finish.reasoning_tokens;
    }

    pub(super) fn counts(&self) -> Counts {
        let prompt: usize = self.prompts.values().map(|p| p.tokens).sum();
        let cached: usize = self.prompts.values().map(|p| p.cached).sum();
        Counts {
            prompt_tokens: prompt,
            completion_tokens: self.answer,
            total_tokens: prompt + self.answer,
            prompt_tokens_details: PromptCounts { cached_tokens: cached },
            completion_tokens_details: AnswerCounts { reasoning_tokens: self.reasoning },
        }
    }
}

/// `logprobs` of a chat's choice.
pub(crate) fn chat_logprobs(tokens: &[TokenLogprob]) -> Json {
    let entry = |token: &TokenText, logprob: Option<f32>| {
        let mut entry = Map::new();
        entry.insert("token".into(), text(token, "").into());
        entry.insert("logprob".into(), finite(logprob));
        entry.insert("bytes".into(), token.bytes.as_slice().into());
        entry
    };
    let content = tokens.iter().map(|of| {
        let top = of.top.iter().map(|(token, l)| Json::Object(entry(token, Some(*l))));
        let mut one = entry(&of.token, of.logprob);
        one.insert("top_logprobs".into(), top.collect());
        Json::Object(one)
    });
    json!({"content": content.collect::<Json>(), "refusal": null})
}

/// `logprobs` of a completion's choice: lists side by side.
#[derive(Clone, Debug, Default)]
pub(super) struct Legacy {
    /// Characters before the next token.
    offset: usize,
}

impl Legacy {
    /// The tokens that follow those of the calls before.
    pub(super) fn json(&mut self, tokens: &[TokenLogprob]) -> Json {
        let mut offsets = Vec::with_capacity(tokens.len());
        for of in tokens {
            offsets.push(self.offset);
            // A token's characters begin with it: bytes that continue one are no character.
            self.offset += of.token.bytes.iter().filter(|&&b| b & 0xC0 != 0x80).count();
        }
        let name = |token: &TokenText| text(token, "bytes:");
        let top = tokens.iter().map(|of| match of.logprob {
            None => Json::Null,
            Some(_) => {
                let top = of.top.iter().map(|(token, l)| (name(token), finite(Some(*l))));
                Json::Object(top.collect())
            }
        });
        json!({
            "tokens": tokens.iter().map(|of| name(&of.token)).collect::<Vec<_>>(),
            "token_logprobs": tokens.iter().map(|of| finite(of.logprob)).collect::<Vec<_>>(),
            "top_logprobs": top.collect::<Vec<_>>(),
            "text_offset": offsets,
        })
    }
}

/// JSON has no infinities: what is impossible is very unlikely, as OpenAI writes it.
fn finite(logprob: Option<f32>) -> Json {
    logprob.map_or(Json::Null, |l| f64::from(l.max(-9999.0)).into())
}

/// A token as text; one that is a part of a character as escaped bytes after `mark`.
fn text(token: &TokenText, mark: &str) -> String {
    match str::from_utf8(&token.bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => {
            let bytes = token.bytes.iter().map(|b| format!("\\x{b:02x}"));
            std::iter::once(mark.to_owned()).chain(bytes).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::normal::Reason;
    use std::time::Duration;

    #[test]
    fn a_prompt_counts_once_whichever_choice_ends_first() {
        let choice = |prompt_tokens, cached_tokens, tokens| Finish {
            reason: Reason::Stop,
            stop: None,
            end_token: None,
            queued: Duration::ZERO,
            prompt_tokens,
            cached_tokens,
            tokens,
            reasoning_tokens: 1,
            first: Duration::ZERO,
            rest: Duration::ZERO,
        };
        // Two choices of a prompt of 100 tokens, the second on what the first has computed; and
        // another prompt.
        let choices = [(0, choice(100, 32, 7)), (0, choice(100, 96, 8)), (1, choice(10, 0, 9))];
        let expected = json!({
            "prompt_tokens": 110,
            "completion_tokens": 24,
            "total_tokens": 134,
            "prompt_tokens_details": {"cached_tokens": 32},
            "completion_tokens_details": {"reasoning_tokens": 3},
        });
        for order in [[0, 1, 2], [1, 2, 0], [2, 1, 0]] {
            let mut usage = Usage::default();
            for (prompt, finish) in order.map(|at| &choices[at]) {
                usage.add(*prompt, finish);
            }
            assert_eq!(json!(usage.counts()), expected);
        }
    }
}
