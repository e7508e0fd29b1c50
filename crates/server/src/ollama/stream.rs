//! Answers as lines of JSON, the last of which has the durations.

use super::wire::{self, Head};
use crate::fault::Fault;
use crate::http::{Frame, Translate};
use crate::normal::{Answer, Delta, Event, TokenLogprob};
use chat::Segment;
use serde_json::{Map, Value as Json, json};
use std::sync::Arc;
use tokenizer::{EncodeOptions, Tokenizer};

/// Whose lines they are.
pub(super) enum Kind {
    Chat,
    /// With a tokenizer, the last object has the tokens of the whole exchange.
    Generate(Option<Arc<Tokenizer>>),
}

pub(super) struct Lines {
    head: Head,
    kind: Kind,
    logprobs: bool,
    /// The answer's text so far, if its tokens are to be sent.
    text: String,
    /// The call that is being made.
    name: String,
    arguments: String,
}

impl Lines {
    pub(super) fn new(head: Head, kind: Kind, logprobs: bool) -> Lines {
        let (text, name, arguments) = Default::default();
        Lines { head, kind, logprobs, text, name, arguments }
    }

    /// A line that says something under a name: text, a thought, calls.
    fn line(&self, name: &str, said: Json, logprobs: &[TokenLogprob]) -> Frame {
        let mut object = self.head.object(false);
        match self.kind {
            Kind::Chat => {
                let mut message = Map::new();
                message.insert("role".into(), "assistant".into());
                message.insert("content".into(), "".into());
                message.insert(name.into(), said);
                object.insert("message".into(), message.into());
            }
            Kind::Generate(_) => {
                object.insert("response".into(), "".into());
                object.insert(name.into(), said);
            }
        }
        if self.logprobs && !logprobs.is_empty() {
            object.insert("logprobs".into(), wire::logprobs(logprobs));
        }
        Frame::json(&Json::Object(object))
    }

    fn text_name(&self) -> &'static str {
        match self.kind {
            Kind::Chat => "content",
            Kind::Generate(_) => "response",
        }
    }
}

impl Translate for Lines {
    fn begin(&mut self, _: &Answer, _: &mut Vec<Frame>) {}

    fn delta(&mut self, _: usize, delta: Delta, answer: &Answer, out: &mut Vec<Frame>) {
        match delta.event {
            Event::Segment(Segment::Text(text)) => {
                if matches!(self.kind, Kind::Generate(Some(_))) {
                    self.text.push_str(&text);
                }
                out.push(self.line(self.text_name(), text.into(), &delta.logprobs));
            }
            Event::Segment(Segment::Reasoning(text)) => {
                out.push(self.line("thinking", text.into(), &delta.logprobs));
            }
            Event::Segment(Segment::ToolCall { name, .. }) => {
                (self.name, self.arguments) = (name, String::new());
            }
            Event::Segment(Segment::Arguments { delta, .. }) => self.arguments.push_str(&delta),
            Event::Segment(Segment::ToolCallEnd { index }) => {
                if let Some(call) = wire::call(index, &self.name, &self.arguments) {
                    out.push(self.line("tool_calls", json!([call]), &delta.logprobs));
                }
            }
            Event::Finished(finish) => {
                let mut object = self.head.done(&finish);
                match &self.kind {
                    Kind::Chat => {
                        let message = json!({"role": "assistant", "content": ""});
                        object.insert("message".into(), message);
                    }
                    Kind::Generate(tokenizer) => {
                        object.insert("response".into(), "".into());
                        let tokens =
                            tokenizer.as_ref().and_then(|t| exchange(t, answer, &self.text));
                        if let Some(tokens) = tokens {
                            object.insert("context".into(), tokens.into());
                        }
                    }
                }
                out.push(Frame::json(&Json::Object(object)));
            }
            Event::Failed(_) => {}
        }
    }

    fn end(&mut self, _: &mut Vec<Frame>) {}

    fn fault(&mut self, fault: &Fault, out: &mut Vec<Frame>) {
        out.push(Frame::json(&wire::fault(fault)));
    }
}

/// The tokens of a prompt and its answer, from which the next prompt can go on; `None` if the answer's
/// text cannot be written with the vocabulary: what was no text in it has become U+FFFD.
pub(super) fn exchange(tokenizer: &Tokenizer, answer: &Answer, text: &str) -> Option<Vec<u32>> {
    let prompt = answer.prompts().first()?;
    let said = tokenizer.encode(text, EncodeOptions::default()).ok()?;
    Some([prompt.tokens.as_slice(), &said].concat())
}
