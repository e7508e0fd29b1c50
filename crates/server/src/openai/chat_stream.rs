//! Chat completions as a stream of chunks. The role is in the first chunk of each choice and in no
//! other.

use super::chunks::Chunks;
use super::wire::{self, Head};
use crate::fault::Fault;
use crate::http::{Frame, Translate};
use crate::normal::{Answer, Delta, Event, TokenLogprob};
use crate::state;
use chat::Segment;
use serde_json::{Map, Value as Json, json};

pub(super) struct ChatStream {
    chunks: Chunks,
    logprobs: bool,
}

impl ChatStream {
    pub(super) fn new(head: Head, logprobs: bool, include_usage: bool) -> ChatStream {
        let chunks = Chunks::new(head, "chat.completion.chunk", include_usage);
        ChatStream { chunks, logprobs }
    }

    fn choice(&self, index: usize, delta: Json, logprobs: &[TokenLogprob]) -> Frame {
        let told = self.logprobs && !logprobs.is_empty();
        self.chunks.choice(json!({
            "index": index,
            "delta": delta,
            "logprobs": if told { wire::chat_logprobs(logprobs) } else { Json::Null },
            "finish_reason": null,
        }))
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
            Event::Segment(Segment::ToolCall { index, name }) => json!({"tool_calls": [{
                "index": index,
                "id": state::id("call_"),
                "type": "function",
                "function": {"name": name, "arguments": ""},
            }]}),
            Event::Segment(Segment::Arguments { index, delta }) => json!({"tool_calls": [{
                "index": index,
                "function": {"arguments": delta},
            }]}),
            Event::Segment(Segment::ToolCallEnd { .. }) | Event::Failed(_) => return,
            Event::Finished(finish) => {
                self.chunks.count(choice, &finish, answer);
                return out.push(self.chunks.choice(json!({
                    "index": choice,
                    "delta": Map::new(),
                    "logprobs": null,
                    "finish_reason": wire::reason(finish.reason),
                })));
            }
        };
        out.push(self.choice(choice, said, &delta.logprobs));
    }

    fn end(&mut self, out: &mut Vec<Frame>) {
        self.chunks.end(out);
    }

    fn fault(&mut self, fault: &Fault, out: &mut Vec<Frame>) {
        self.chunks.fault(fault, out);
    }
}
