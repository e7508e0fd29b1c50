//! An answer as items: thoughts, messages, calls, one after the other, with the events of
//! their growth. The same for streams and for whole responses, which have no use for the events.

use super::input::item_id;
use super::kept;
use super::object::{Head, Status};
use super::tools::{self, Kind, Toolset};
use crate::fault::Fault;
use crate::http::Frame;
use crate::normal::{Delta, Event, Finish, Reason, TokenLogprob};
use crate::openai::wire::chat_logprobs;
use crate::stamp;
use chat::Segment;
use serde_json::value::RawValue;
use serde_json::{Value as Json, json};

pub(super) struct Output {
    head: Head,
    /// Log-probabilities of the text are wanted.
    logprobs: bool,
    /// Thoughts are wanted in a form that clients send back.
    sealed: bool,
    tools: Toolset,
    /// Those that are complete.
    items: Vec<Json>,
    open: Option<Open>,
    /// Number of the next event.
    sequence: u64,
}

/// The item that grows.
enum Open {
    Reasoning { text: String },
    Message { text: String, logprobs: Vec<Json> },
    Call { call_id: String, kind: Kind, arguments: String },
}

impl Output {
    pub(super) fn new(head: Head, tools: Toolset, logprobs: bool, sealed: bool) -> Output {
        Output { head, logprobs, sealed, tools, items: Vec::new(), open: None, sequence: 0 }
    }

    pub(super) fn head(&self) -> &Head {
        &self.head
    }

    /// The response begins.
    pub(super) fn begin(&mut self, out: &mut Vec<Frame>) {
        for kind in ["response.created", "response.in_progress"] {
            let response = self.head.response(Status::InProgress, &[]);
            self.tell_response(kind, &response, out);
        }
    }

    /// A piece of the answer; the whole response when that was the last one.
    pub(super) fn delta(&mut self, delta: Delta, out: &mut Vec<Frame>) -> Option<Box<RawValue>> {
        match delta.event {
            Event::Segment(Segment::Reasoning(text)) => self.reasoning(&text, out),
            Event::Segment(Segment::Text(text)) => self.text(&text, &delta.logprobs, out),
            Event::Segment(Segment::ToolCall { name, .. }) => self.call(&name, out),
            Event::Segment(Segment::Arguments { delta, .. }) => self.arguments(&delta, out),
            Event::Segment(Segment::ToolCallEnd { .. }) => self.end("completed", out),
            Event::Finished(finish) => return Some(self.finish(&finish, out)),
            Event::Failed(_) => {}
        }
        None
    }

    /// The response cannot be finished.
    pub(super) fn fail(&mut self, fault: &Fault, out: &mut Vec<Frame>) {
        self.close("incomplete", out);
        let code = fault.code.unwrap_or("server_error");
        let response = self.head.response(Status::Failed(code, &fault.message), &self.items);
        self.tell_response("response.failed", &response, out);
    }

    /// The items so far.
    pub(super) fn items(&self) -> &[Json] {
        &self.items
    }

    fn finish(&mut self, finish: &Finish, out: &mut Vec<Frame>) -> Box<RawValue> {
        let cut = finish.reason == Reason::Length;
        self.close(if cut { "incomplete" } else { "completed" }, out);
        let (kind, status) = if cut {
            ("response.incomplete", Status::Incomplete(finish))
        } else {
            ("response.completed", Status::Completed(finish))
        };
        let response = self.head.response(status, &self.items);
        self.tell_response(kind, &response, out);
        response
    }

    fn reasoning(&mut self, piece: &str, out: &mut Vec<Frame>) {
        if !matches!(self.open, Some(Open::Reasoning { .. })) {
            self.open(Open::Reasoning { text: String::new() }, out);
        }
        if let Some(Open::Reasoning { text }) = &mut self.open {
            text.push_str(piece);
        }
        self.tell_part("response.reasoning_text.delta", json!({"delta": piece}), out);
    }

    fn text(&mut self, piece: &str, tokens: &[TokenLogprob], out: &mut Vec<Frame>) {
        let told = match chat_logprobs(if self.logprobs { tokens } else { &[] })["content"].take() {
            Json::Array(told) => told,
            _ => Vec::new(),
        };
        if piece.is_empty() && told.is_empty() {
            return;
        }
        if !matches!(self.open, Some(Open::Message { .. })) {
            self.open(Open::Message { text: String::new(), logprobs: Vec::new() }, out);
        }
        if let Some(Open::Message { text, logprobs }) = &mut self.open {
            text.push_str(piece);
            logprobs.extend(told.iter().cloned());
        }
        let delta = json!({"delta": piece, "logprobs": told});
        self.tell_part("response.output_text.delta", delta, out);
    }

    fn call(&mut self, name: &str, out: &mut Vec<Frame>) {
        let kind = self.tools.kind(name);
        let call = Open::Call { call_id: stamp::id("call_"), kind, arguments: String::new() };
        self.open(call, out);
    }

    fn arguments(&mut self, piece: &str, out: &mut Vec<Frame>) {
        let Some(Open::Call { kind, arguments, .. }) = &mut self.open else { return };
        arguments.push_str(piece);
        // Of other calls the arguments are not what the client is told.
        if matches!(kind, Kind::Function { .. }) {
            self.tell_item("response.function_call_arguments.delta", json!({"delta": piece}), out);
        }
    }

    /// An item begins, after the one before has ended.
    fn open(&mut self, item: Open, out: &mut Vec<Frame>) {
        self.close("completed", out);
        let (part, late) = (item.part(), item.late());
        self.open = Some(item);
        if !late {
            self.added(out);
        }
        if let Some(part) = part {
            self.tell_part("response.content_part.added", json!({"part": part}), out);
        }
    }

    fn added(&mut self, out: &mut Vec<Frame>) {
        let Some(item) = &self.open else { return };
        let added = item.json(&self.item_id(item), "in_progress", self.sealed);
        let added = json!({"output_index": self.items.len(), "item": added});
        self.tell("response.output_item.added", added, out);
    }

    /// The item that grows is over. A call without an event of its end is cut off.
    fn close(&mut self, status: &'static str, out: &mut Vec<Frame>) {
        let call = matches!(self.open, Some(Open::Call { .. }));
        self.end(if call { "incomplete" } else { status }, out);
    }

    /// The item that grows ends.
    fn end(&mut self, status: &'static str, out: &mut Vec<Frame>) {
        match &self.open {
            None => return,
            Some(Open::Reasoning { text }) => {
                let done = json!({"text": text});
                self.tell_part("response.reasoning_text.done", done, out);
            }
            Some(Open::Message { text, logprobs }) => {
                let done = json!({"text": text, "logprobs": logprobs});
                self.tell_part("response.output_text.done", done, out);
            }
            Some(Open::Call { kind: Kind::Function { name, .. }, arguments, .. }) => {
                let done = json!({"name": name, "arguments": arguments});
                self.tell_item("response.function_call_arguments.done", done, out);
            }
            Some(Open::Call { kind: Kind::Custom { .. }, arguments, .. }) => {
                let input = tools::input(arguments);
                let delta = json!({"delta": input});
                self.tell_item("response.custom_tool_call_input.delta", delta, out);
                let done = json!({"input": input});
                self.tell_item("response.custom_tool_call_input.done", done, out);
            }
            // Half of a command must not be run, nor half of a file's name be used.
            Some(Open::Call { .. }) if status != "completed" => {
                self.open = None;
                return;
            }
            Some(Open::Call { .. }) => self.added(out),
        }
        if let Some(part) = self.open.as_ref().and_then(Open::part) {
            self.tell_part("response.content_part.done", json!({"part": part}), out);
        }
        if let Some(item) = self.open.take() {
            let item = item.json(&self.item_id(&item), status, self.sealed);
            let done = json!({"output_index": self.items.len(), "item": item});
            self.items.push(item);
            self.tell("response.output_item.done", done, out);
        }
    }

    fn item_id(&self, item: &Open) -> String {
        let prefix = match item {
            Open::Reasoning { .. } => "rs",
            Open::Message { .. } => "msg",
            Open::Call { kind, .. } => names(kind).1,
        };
        item_id(prefix, &self.head.key, 'o', self.items.len())
    }

    /// An event about the one part that the open item has.
    fn tell_part(&mut self, kind: &'static str, mut fields: Json, out: &mut Vec<Frame>) {
        fields["content_index"] = 0.into();
        self.tell_item(kind, fields, out);
    }

    /// An event about the open item.
    fn tell_item(&mut self, kind: &'static str, mut fields: Json, out: &mut Vec<Frame>) {
        fields["item_id"] = self.open.as_ref().map(|item| self.item_id(item)).into();
        fields["output_index"] = self.items.len().into();
        self.tell(kind, fields, out);
    }

    /// An event about the response, whose text may be large.
    fn tell_response(&mut self, kind: &'static str, response: &RawValue, out: &mut Vec<Frame>) {
        let (sequence, response) = (self.sequence, response.get());
        let data = format!(
            "{{\"type\":\"{kind}\",\"sequence_number\":{sequence},\"response\":{response}}}"
        );
        self.sequence += 1;
        out.push(Frame { event: Some(kind), data });
    }

    fn tell(&mut self, kind: &'static str, fields: Json, out: &mut Vec<Frame>) {
        let mut event = json!({"type": kind, "sequence_number": self.sequence});
        if let (Json::Object(event), Json::Object(fields)) = (&mut event, fields) {
            event.extend(fields);
        }
        self.sequence += 1;
        out.push(Frame::named(kind, &event));
    }
}

impl Open {
    /// Its one part, as it is now.
    fn part(&self) -> Option<Json> {
        match self {
            Open::Reasoning { text } => Some(json!({"type": "reasoning_text", "text": text})),
            Open::Message { text, logprobs } => Some(json!({
                "type": "output_text",
                "text": text,
                "annotations": [],
                "logprobs": logprobs,
            })),
            Open::Call { .. } => None,
        }
    }

    /// Whether it is told of when it is complete: what is known before says nothing.
    fn late(&self) -> bool {
        let early = |kind: &Kind| matches!(kind, Kind::Function { .. } | Kind::Custom { .. });
        matches!(self, Open::Call { kind, .. } if !early(kind))
    }

    /// The item, as it is now; one that has just begun has no part yet.
    fn json(&self, id: &str, status: &str, sealed: bool) -> Json {
        let part = self.part().filter(|_| status != "in_progress");
        let content: Vec<Json> = part.into_iter().collect();
        match self {
            Open::Reasoning { text } => {
                let mut item = json!({
                    "id": id,
                    "type": "reasoning",
                    "summary": [],
                    "content": content,
                    "status": status,
                });
                if sealed && status != "in_progress" {
                    item["encrypted_content"] = kept::seal(text).into();
                }
                item
            }
            Open::Message { .. } => json!({
                "id": id,
                "type": "message",
                "role": "assistant",
                "content": content,
                "status": status,
            }),
            Open::Call { call_id, kind, arguments } => {
                let mut item = json!({"id": id, "type": names(kind).0, "call_id": call_id});
                if let Json::Object(item) = &mut item {
                    item.extend(tools::fields(kind, arguments));
                    item.insert("status".into(), status.into());
                }
                item
            }
        }
    }
}

/// The type of a call's item, and what its id begins with.
fn names(kind: &Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::Function { .. } => ("function_call", "fc"),
        Kind::Custom { .. } => ("custom_tool_call", "ctc"),
        Kind::LocalShell => ("local_shell_call", "lsh"),
        Kind::Shell => ("shell_call", "sh"),
        Kind::ApplyPatch => ("apply_patch_call", "apc"),
        Kind::ToolSearch => ("tool_search_call", "tsc"),
    }
}
