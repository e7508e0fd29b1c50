//! A response as a stream of events, and its keeping when it is complete.

use super::input::item;
use super::output::Output;
use super::store::{Item, Stored};
use crate::fault::Fault;
use crate::http::{Frame, Room, Translate};
use crate::normal::{Answer, Delta};
use crate::state::App;
use serde_json::value::RawValue;
use std::sync::Arc;

/// Where a response goes when it is complete.
pub(super) struct Keep {
    pub(super) app: Arc<App>,
    pub(super) owner: u64,
    /// The claim on memory of the texts.
    pub(super) _room: Room,
    /// The conversation with what was new in the request.
    pub(super) items: Vec<Item>,
}

impl Keep {
    pub(super) fn put(self, output: &Output, response: &RawValue) {
        let Keep { app, owner, mut items, .. } = self;
        let begin = items.len();
        items.extend(output.items().iter().filter_map(item));
        let response = response.to_owned().into();
        app.responses.put(&output.head().id(), Stored { owner, response, items, output: begin });
    }
}

pub(super) struct ResponseStream {
    output: Output,
    /// `None` if it is not to be kept, or is.
    keep: Option<Keep>,
}

impl ResponseStream {
    pub(super) fn new(output: Output, keep: Option<Keep>) -> ResponseStream {
        ResponseStream { output, keep }
    }
}

impl Translate for ResponseStream {
    fn begin(&mut self, _: &Answer, out: &mut Vec<Frame>) {
        self.output.begin(out);
    }

    fn delta(&mut self, _: usize, delta: Delta, _: &Answer, out: &mut Vec<Frame>) {
        if let Some(response) = self.output.delta(delta, out)
            && let Some(keep) = self.keep.take()
        {
            keep.put(&self.output, &response);
        }
    }

    fn end(&mut self, _: &mut Vec<Frame>) {}

    fn fault(&mut self, fault: &Fault, out: &mut Vec<Frame>) {
        self.output.fail(fault, out);
    }
}
