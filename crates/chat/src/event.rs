//! What an answer is made of, as it is found.

/// A part of an answer. The texts of neighbouring events of one kind belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A piece of what the model thinks before it answers.
    Reasoning(String),
    /// A piece of the answer.
    Text(String),
    /// A call begins. Its arguments follow, then its end, before any other event.
    ToolCall {
        /// Number of the call in this answer, from 0.
        index: usize,
        /// Name of the tool.
        name: String,
    },
    /// A piece of a call's arguments: the pieces together are the text of a JSON object.
    Arguments {
        /// Number of the call.
        index: usize,
        /// The piece.
        delta: String,
    },
    /// The call is complete and its arguments are one JSON object. A call without it was cut off, or
    /// went wrong behind its name.
    ToolCallEnd {
        /// Number of the call.
        index: usize,
    },
}

impl Event {
    /// Neighbouring pieces of one kind as one event.
    pub fn join(events: impl IntoIterator<Item = Event>) -> Vec<Event> {
        let mut all: Vec<Event> = Vec::new();
        for event in events {
            match (all.last_mut(), event) {
                (Some(Event::Text(text)), Event::Text(more))
                | (Some(Event::Reasoning(text)), Event::Reasoning(more)) => text.push_str(&more),
                (
                    Some(Event::Arguments { index: of, delta }),
                    Event::Arguments { index, delta: more },
                ) if *of == index => delta.push_str(&more),
                (_, event) => all.push(event),
            }
        }
        all
    }
}

/// Events that have been found, pieces of one kind joined.
#[derive(Debug, Default)]
pub(crate) struct Events {
    pub(crate) found: Vec<Event>,
    /// Calls that have begun.
    pub(crate) calls: usize,
}

impl Events {
    pub(crate) fn text(&mut self, piece: &str) {
        match self.found.last_mut() {
            Some(Event::Text(text)) => text.push_str(piece),
            _ if piece.is_empty() => {}
            _ => self.found.push(Event::Text(piece.to_owned())),
        }
    }

    pub(crate) fn reasoning(&mut self, piece: &str) {
        match self.found.last_mut() {
            Some(Event::Reasoning(text)) => text.push_str(piece),
            _ if piece.is_empty() => {}
            _ => self.found.push(Event::Reasoning(piece.to_owned())),
        }
    }

    pub(crate) fn begin(&mut self, name: String) {
        self.found.push(Event::ToolCall { index: self.calls, name });
        self.calls += 1;
    }

    /// A piece of the arguments of the call that began last.
    pub(crate) fn arguments(&mut self, piece: &str) {
        match self.found.last_mut() {
            Some(Event::Arguments { delta, .. }) => delta.push_str(piece),
            _ if piece.is_empty() => {}
            _ => {
                self.found
                    .push(Event::Arguments { index: self.calls - 1, delta: piece.to_owned() });
            }
        }
    }

    pub(crate) fn argument(&mut self, c: char) {
        self.arguments(c.encode_utf8(&mut [0; 4]));
    }

    pub(crate) fn end(&mut self) {
        self.found.push(Event::ToolCallEnd { index: self.calls - 1 });
    }
}
