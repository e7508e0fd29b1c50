//! Completions as a stream of chunks.

use super::chunks::Chunks;
use super::wire::{self, Head, Legacy};
use crate::fault::Fault;
use crate::http::{Frame, Translate};
use crate::normal::{Answer, Delta, Event};
use chat::Segment;
use serde_json::{Value as Json, json};

pub(super) struct TextStream {
    chunks: Chunks,
    /// Choices whose prompt is still to be sent; it comes with the first delta, since only then its
    /// log-probabilities are known.
    echo: Vec<bool>,
    with_echo: bool,
    logprobs: bool,
    offsets: Vec<Legacy>,
}

impl TextStream {
    pub(super) fn new(head: Head, echo: bool, logprobs: bool, include_usage: bool) -> TextStream {
        let chunks = Chunks::new(head, "text_completion", include_usage);
        TextStream { chunks, echo: Vec::new(), with_echo: echo, logprobs, offsets: Vec::new() }
    }

    fn choice(&self, index: usize, text: &str, logprobs: Json, reason: Json) -> Frame {
        self.chunks.choice(
            json!({"text": text, "index": index, "logprobs": logprobs, "finish_reason": reason}),
        )
    }
}

impl Translate for TextStream {
    fn begin(&mut self, answer: &Answer, _: &mut Vec<Frame>) {
        self.echo = vec![self.with_echo; answer.choices()];
        self.offsets = vec![Legacy::default(); answer.choices()];
    }

    fn delta(&mut self, choice: usize, delta: Delta, answer: &Answer, out: &mut Vec<Frame>) {
        if std::mem::take(&mut self.echo[choice]) {
            let logprobs = if self.logprobs {
                self.offsets[choice].json(&answer.prompt_logprobs(choice))
            } else {
                Json::Null
            };
            let text = &answer.prompts()[answer.prompt_of(choice)].text;
            out.push(self.choice(choice, text, logprobs, Json::Null));
        }
        match delta.event {
            Event::Segment(Segment::Text(text)) => {
                let told = self.logprobs && !delta.logprobs.is_empty();
                let logprobs =
                    if told { self.offsets[choice].json(&delta.logprobs) } else { Json::Null };
                out.push(self.choice(choice, &text, logprobs, Json::Null));
            }
            Event::Finished(finish) => {
                self.chunks.count(choice, &finish, answer);
                let reason = wire::reason(finish.reason).into();
                out.push(self.choice(choice, "", Json::Null, reason));
            }
            // Texts have no thoughts and call no tools.
            _ => {}
        }
    }

    fn end(&mut self, out: &mut Vec<Frame>) {
        self.chunks.end(out);
    }

    fn fault(&mut self, fault: &Fault, out: &mut Vec<Frame>) {
        self.chunks.fault(fault, out);
    }
}
