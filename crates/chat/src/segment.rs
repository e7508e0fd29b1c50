//! What an answer is made of, as it is found.

/// A part of an answer. The texts of neighbouring segments of one kind belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    /// A piece of what the model thinks before it answers.
    Reasoning(String),
    /// A piece of the answer.
    Text(String),
    /// A call begins. Its arguments follow, then its end, before any other segment.
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

impl Segment {
    /// Neighbouring pieces of one kind as one segment.
    pub fn join(segments: impl IntoIterator<Item = Segment>) -> Vec<Segment> {
        let mut all: Vec<Segment> = Vec::new();
        for segment in segments {
            match (all.last_mut(), segment) {
                (Some(Segment::Text(text)), Segment::Text(more))
                | (Some(Segment::Reasoning(text)), Segment::Reasoning(more)) => {
                    text.push_str(&more);
                }
                (
                    Some(Segment::Arguments { index: of, delta }),
                    Segment::Arguments { index, delta: more },
                ) if *of == index => delta.push_str(&more),
                (_, segment) => all.push(segment),
            }
        }
        all
    }
}

/// Segments that have been found, pieces of one kind joined.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    pub(crate) found: Vec<Segment>,
    /// Calls that have begun.
    pub(crate) calls: usize,
}

impl Segments {
    pub(crate) fn text(&mut self, piece: &str) {
        match self.found.last_mut() {
            Some(Segment::Text(text)) => text.push_str(piece),
            _ if piece.is_empty() => {}
            _ => self.found.push(Segment::Text(piece.to_owned())),
        }
    }

    pub(crate) fn reasoning(&mut self, piece: &str) {
        match self.found.last_mut() {
            Some(Segment::Reasoning(text)) => text.push_str(piece),
            _ if piece.is_empty() => {}
            _ => self.found.push(Segment::Reasoning(piece.to_owned())),
        }
    }

    pub(crate) fn begin(&mut self, name: String) {
        self.found.push(Segment::ToolCall { index: self.calls, name });
        self.calls += 1;
    }

    /// A piece of the arguments of the call that began last.
    pub(crate) fn arguments(&mut self, piece: &str) {
        match self.found.last_mut() {
            Some(Segment::Arguments { delta, .. }) => delta.push_str(piece),
            _ if piece.is_empty() => {}
            _ => {
                self.found
                    .push(Segment::Arguments { index: self.calls - 1, delta: piece.to_owned() });
            }
        }
    }

    pub(crate) fn argument(&mut self, c: char) {
        self.arguments(c.encode_utf8(&mut [0; 4]));
    }

    pub(crate) fn end(&mut self) {
        self.found.push(Segment::ToolCallEnd { index: self.calls - 1 });
    }
}
