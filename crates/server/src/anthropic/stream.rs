//! Messages as a stream of events: the message begins, blocks begin, grow and end one after the other,
//! an event gives the reason of the end, and the message ends.

use super::wire::{self, Head};
use crate::fault::Fault;
use crate::http::{Frame, Translate};
use crate::normal::{Answer, Delta, Event, Finish};
use crate::stamp;
use chat::Segment;
use serde_json::{Value as Json, json};

pub(super) struct MessageStream {
    head: Head,
    /// The block that grows.
    open: Option<Block>,
    /// Its number, or the next one's.
    index: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Block {
    Thinking,
    Text,
    ToolUse,
}

impl MessageStream {
    pub(super) fn new(head: Head) -> MessageStream {
        MessageStream { head, open: None, index: 0 }
    }

    fn begin_block(&mut self, block: Block, content: &Json, out: &mut Vec<Frame>) {
        self.end_block(out);
        self.open = Some(block);
        out.push(Frame::named(
            "content_block_start",
            &json!({"type": "content_block_start", "index": self.index, "content_block": content}),
        ));
    }

    fn grow(&self, delta: &Json, out: &mut Vec<Frame>) {
        out.push(Frame::named(
            "content_block_delta",
            &json!({"type": "content_block_delta", "index": self.index, "delta": delta}),
        ));
    }

    fn end_block(&mut self, out: &mut Vec<Frame>) {
        match self.open.take() {
            None => return,
            // Clients keep it to send it back; nothing here is signed.
            Some(Block::Thinking) => {
                self.grow(&json!({"type": "signature_delta", "signature": ""}), out);
            }
            Some(Block::Text | Block::ToolUse) => {}
        }
        out.push(Frame::named(
            "content_block_stop",
            &json!({"type": "content_block_stop", "index": self.index}),
        ));
        self.index += 1;
    }

    fn finish(&mut self, finish: &Finish, out: &mut Vec<Frame>) {
        self.end_block(out);
        let delta = json!({
            "stop_reason": self.head.stop_reason(finish),
            "stop_sequence": finish.stop,
        });
        let mut end =
            json!({"type": "message_delta", "delta": delta, "usage": wire::usage(finish)});
        self.head.tell_edits(&mut end);
        out.push(Frame::named("message_delta", &end));
    }
}

impl Translate for MessageStream {
    fn begin(&mut self, answer: &Answer, out: &mut Vec<Frame>) {
        let tokens = answer.prompts().first().map_or(0, |prompt| prompt.tokens.len());
        let message = self.head.message(Vec::new(), None, wire::usage_before(tokens));
        let start = json!({"type": "message_start", "message": message});
        out.push(Frame::named("message_start", &start));
        out.extend(self.ping());
    }

    fn delta(&mut self, _: usize, delta: Delta, _: &Answer, out: &mut Vec<Frame>) {
        match delta.event {
            Event::Segment(Segment::Reasoning(text)) => {
                if self.open != Some(Block::Thinking) {
                    let block = json!({"type": "thinking", "thinking": "", "signature": ""});
                    self.begin_block(Block::Thinking, &block, out);
                }
                self.grow(&json!({"type": "thinking_delta", "thinking": text}), out);
            }
            Event::Segment(Segment::Text(text)) if text.is_empty() => {}
            Event::Segment(Segment::Text(text)) => {
                if self.open != Some(Block::Text) {
                    self.begin_block(Block::Text, &json!({"type": "text", "text": ""}), out);
                }
                self.grow(&json!({"type": "text_delta", "text": text}), out);
            }
            Event::Segment(Segment::ToolCall { name, .. }) => {
                let id = stamp::id("toolu_");
                let block = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
                self.begin_block(Block::ToolUse, &block, out);
            }
            Event::Segment(Segment::Arguments { delta, .. }) => {
                self.grow(&json!({"type": "input_json_delta", "partial_json": delta}), out);
            }
            Event::Segment(Segment::ToolCallEnd { .. }) => self.end_block(out),
            Event::Finished(finish) => self.finish(&finish, out),
            Event::Failed(_) => {}
        }
    }

    fn end(&mut self, out: &mut Vec<Frame>) {
        out.push(Frame::named("message_stop", &json!({"type": "message_stop"})));
    }

    fn fault(&mut self, fault: &Fault, out: &mut Vec<Frame>) {
        out.push(Frame::named("error", &wire::fault(fault)));
    }

    fn ping(&self) -> Option<Frame> {
        Some(Frame::named("ping", &json!({"type": "ping"})))
    }
}
