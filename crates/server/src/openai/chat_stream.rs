//! Chat completions as a stream of chunks. The role is in the first chunk of each choice and in no
//! other.

use super::chunks::Chunks;
use super::custom;
use super::wire::{self, Choice, Head};
use crate::fault::Fault;
use crate::http::{Frame, Translate};
use crate::normal::{Answer, Delta, Event, Reason, TokenLogprob};
use crate::stamp;
use chat::Segment;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value as Json, json};
use std::collections::{BTreeMap, HashSet};

/// A choice of a chunk.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ChatChunk", inline)]
pub(crate) struct ChatDelta {
    index: usize,
    /// The fields of the message that are new, or more of them.
    #[schemars(with = "Map<String, Json>")]
    delta: Json,
    #[schemars(with = "Option<Map<String, Json>>")]
    logprobs: Option<Json>,
    finish_reason: Option<Reason>,
}

impl Choice for ChatDelta {
    const OBJECT: &'static str = "chat.completion.chunk";
}

pub(super) struct ChatStream {
    chunks: Chunks,
    logprobs: bool,
    /// Names of custom tools.
    custom: HashSet<String>,
    /// Their calls that run: the arguments so far, by choice and call.
    calls: BTreeMap<(usize, usize), String>,
}

impl ChatStream {
    pub(super) fn new(
        head: Head,
        logprobs: bool,
        include_usage: bool,
        custom: HashSet<String>,
    ) -> ChatStream {
        let chunks = Chunks::new(head, include_usage);
        ChatStream { chunks, logprobs, custom, calls: BTreeMap::new() }
    }

    /// The text of a custom tool's call, which is known when its arguments are.
    fn input(&mut self, choice: usize, index: usize, out: &mut Vec<Frame>) {
        let Some(arguments) = self.calls.remove(&(choice, index)) else { return };
        let input = custom::input(&arguments);
        let said = json!({"tool_calls": [{"index": index, "custom": {"input": input}}]});
        out.push(self.choice(choice, said, &[]));
    }

    fn choice(&self, index: usize, delta: Json, logprobs: &[TokenLogprob]) -> Frame {
        let some = self.logprobs && !logprobs.is_empty();
        let logprobs = some.then(|| wire::chat_logprobs(logprobs));
        self.chunks.choice(ChatDelta { index, delta, logprobs, finish_reason: None })
    }
}

impl Translate for ChatStream {
    fn begin(&mut self, answer: &Answer, out: &mut Vec<Frame>) {
        let role = || json!({"role": "assistant", "content": ""});
        out.extend((0..answer.choices()).map(|index| self.choice(index, role(), &[])));
    }

    fn delta(&mut self, choice: usize, delta: Delta, answer: &Answer, out: &mut Vec<Frame>) {
        let said = match delta.event {
            Event::Segment(Segment::Text(text)) => json!({"content": text}),
            Event::Segment(Segment::Reasoning(text)) => json!({"reasoning_content": text}),
            Event::Segment(Segment::ToolCall { index, name }) if self.custom.contains(&name) => {
                self.calls.insert((choice, index), String::new());
                json!({"tool_calls": [{
                    "index": index,
                    "id": stamp::id("call_"),
                    "type": "custom",
                    "custom": {"name": name, "input": ""},
                }]})
            }
            Event::Segment(Segment::ToolCall { index, name }) => json!({"tool_calls": [{
                "index": index,
                "id": stamp::id("call_"),
                "type": "function",
                "function": {"name": name, "arguments": ""},
            }]}),
            Event::Segment(Segment::Arguments { index, delta: more })
                if self.calls.contains_key(&(choice, index)) =>
            {
                self.calls.entry((choice, index)).or_default().push_str(&more);
                // Log-probabilities come with their tokens.
                if delta.logprobs.is_empty() {
                    return;
                }
                json!({})
            }
            Event::Segment(Segment::Arguments { index, delta }) => json!({"tool_calls": [{
                "index": index,
                "function": {"arguments": delta},
            }]}),
            Event::Segment(Segment::ToolCallEnd { index }) => {
                return self.input(choice, index, out);
            }
            Event::Failed(_) => return,
            Event::Finished(finish) => {
                // Those that were cut off.
                let open = self.calls.range((choice, 0)..=(choice, usize::MAX));
                for index in open.map(|((_, index), _)| *index).collect::<Vec<_>>() {
                    self.input(choice, index, out);
                }
                self.chunks.count(choice, &finish, answer);
                let (delta, finish_reason) = (json!({}), Some(finish.reason));
                let last = ChatDelta { index: choice, delta, logprobs: None, finish_reason };
                return out.push(self.chunks.choice(last));
            }
        };
        out.push(self.choice(choice, said, &delta.logprobs));
    }

    fn end(&mut self, out: &mut Vec<Frame>) {
        self.chunks.end::<ChatDelta>(out);
    }

    fn fault(&mut self, fault: &Fault, out: &mut Vec<Frame>) {
        self.chunks.fault(fault, out);
    }
}
