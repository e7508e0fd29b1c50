//! Completions as a stream of chunks.

use super::chunks::Chunks;
use super::completions::TextChoice;
use super::wire::{Head, Legacy};
use crate::fault::Fault;
use crate::http::{Frame, Translate};
use crate::normal::{Answer, Delta, Event, Reason};
use chat::Segment;
use serde_json::Value as Json;

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
        let chunks = Chunks::new(head, include_usage);
        TextStream { chunks, echo: Vec::new(), with_echo: echo, logprobs, offsets: Vec::new() }
    }

    fn choice(
        &self,
        index: usize,
        text: String,
        logprobs: Option<Json>,
        finish_reason: Option<Reason>,
    ) -> Frame {
        self.chunks.choice(TextChoice { text, index, logprobs, finish_reason })
    }
}

impl Translate for TextStream {
    fn begin(&mut self, answer: &Answer, _: &mut Vec<Frame>) {
        self.echo = vec![self.with_echo; answer.choices()];
        self.offsets = vec![Legacy::default(); answer.choices()];
    }

    fn delta(&mut self, choice: usize, delta: Delta, answer: &Answer, out: &mut Vec<Frame>) {
        if std::mem::take(&mut self.echo[choice]) {
            let logprobs =
                self.logprobs.then(|| self.offsets[choice].json(&answer.prompt_logprobs(choice)));
            let text = answer.prompts()[answer.prompt_of(choice)].text.clone();
            out.push(self.choice(choice, text, logprobs, None));
        }
        match delta.event {
            Event::Segment(Segment::Text(text)) => {
                let some = self.logprobs && !delta.logprobs.is_empty();
                let logprobs = some.then(|| self.offsets[choice].json(&delta.logprobs));
                out.push(self.choice(choice, text, logprobs, None));
            }
            Event::Finished(finish) => {
                self.chunks.count(choice, &finish, answer);
                out.push(self.choice(choice, String::new(), None, Some(finish.reason)));
            }
            // Texts have no thoughts and call no tools.
            _ => {}
        }
    }

    fn end(&mut self, out: &mut Vec<Frame>) {
        self.chunks.end::<TextChoice>(out);
    }

    fn fault(&mut self, fault: &Fault, out: &mut Vec<Frame>) {
        self.chunks.fault(fault, out);
    }
}
