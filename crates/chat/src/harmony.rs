//! gpt-oss: an answer is a row of messages, each with a header that names its channel and whom it is
//! for: `<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…`.
//!
//! The prompt ends in `<|start|>assistant`, so an answer begins within a header. Messages to
//! `functions.name` are calls; `analysis` is reasoning; everything else is text.

use crate::json::{Scanner, Step};
use crate::mark::Search;
use crate::segment::Segments;
use crate::tool::Signature;

const START: &str = "<|start|>";
const CHANNEL: &str = "<|channel|>";
const MESSAGE: &str = "<|message|>";
const CONSTRAIN: &str = "<|constrain|>";
const ENDS: [&str; 5] = ["<|end|>", "<|return|>", "<|call|>", START, CHANNEL];

/// All marks of gpt-oss's answers, control tokens of its vocabulary.
pub const MARKS: [&str; 7] =
    [START, CHANNEL, MESSAGE, CONSTRAIN, "<|end|>", "<|return|>", "<|call|>"];

/// What a prompt ends in: the answer goes on with its header.
pub(crate) const TURN: &str = "<|start|>assistant";

/// Bytes of a header.
const HEADER: usize = 1 << 10;

#[derive(Debug)]
pub(crate) struct Messages {
    /// Whether reasoning has segments of its own.
    reasoning: bool,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Header(String),
    Body(Kind, Search),
}

#[derive(Debug)]
enum Kind {
    Text,
    Reasoning,
    /// Reasoning without segments of its own: as it stands, with header and end.
    Raw,
    /// To a tool of this name, before its arguments begin; the header, in case they do not.
    Ahead(String, String),
    Arguments(Scanner),
    /// Behind the arguments.
    After,
}

impl Messages {
    pub(crate) fn new(reasoning: bool) -> Self {
        Self { reasoning, place: Place::Header(String::new()) }
    }

    pub(crate) fn push(&mut self, c: char, tools: &[Signature], segments: &mut Segments) {
        match &mut self.place {
            Place::Header(header) => {
                header.push(c);
                if let Some(head) = header.strip_suffix(MESSAGE) {
                    let kind = kind_of(head, header, self.reasoning, tools, segments);
                    self.place = Place::Body(kind, Search::default());
                } else if header.len() > HEADER || !is_header(header) {
                    // Text without a header: read it as such, marks in it included.
                    let text = std::mem::take(header);
                    self.place = Place::Body(Kind::Text, Search::default());
                    text.chars().for_each(|c| self.push(c, tools, segments));
                }
            }
            Place::Body(kind, search) => {
                let hit = search.push(c, &ENDS, |c| body(kind, c, segments));
                if let Some(mark) = hit.map(|i| ENDS[i]) {
                    match kind {
                        Kind::Ahead(header, _) => segments.text(header),
                        Kind::Raw => segments.text(mark),
                        _ => {}
                    }
                    let begins = [START, CHANNEL].contains(&mark);
                    self.place = Place::Header(if begins { mark.into() } else { String::new() });
                }
            }
        }
    }

    pub(crate) fn finish(self, segments: &mut Segments) {
        match self.place {
            // An opening that nothing followed says nothing.
            Place::Header(header) if header.trim() == "" || header == TURN => {}
            Place::Header(header) => segments.text(&header),
            Place::Body(mut kind, mut search) => {
                search.take().chars().for_each(|c| body(&mut kind, c, segments));
                if let Kind::Ahead(header, _) = kind {
                    segments.text(&header);
                }
            }
        }
    }
}

impl Messages {
    /// The end of an answer that was cut off: half of a header or of a mark says nothing.
    pub(crate) fn cut(self, segments: &mut Segments) {
        if let Place::Body(Kind::Raw, mut search) = self.place {
            segments.text(&search.take());
        }
    }
}

/// What the header says its message is.
fn kind_of(
    head: &str,
    header: &str,
    reasoning: bool,
    tools: &[Signature],
    segments: &mut Segments,
) -> Kind {
    let word = |text: &str| -> String {
        text.chars().take_while(|c| !c.is_whitespace() && *c != '<').collect()
    };
    let after = |mark: &str| head.split_once(mark).map(|(_, rest)| word(rest));
    let to = after("to=");
    match (to, after(CHANNEL).as_deref()) {
        (Some(to), _) if !tools.is_empty() && to.starts_with("functions.") => {
            Kind::Ahead(header.to_owned(), to["functions.".len()..].to_owned())
        }
        // Tools of the model's own are part of its thinking.
        (Some(_), _) | (_, Some("analysis")) if reasoning => Kind::Reasoning,
        (Some(_), _) | (_, Some("analysis")) => {
            segments.text(header);
            Kind::Raw
        }
        _ => Kind::Text,
    }
}

/// Whether `text` is or may become a header.
fn is_header(text: &str) -> bool {
    let text = text.trim_start();
    let begins = |mark: &str| text.starts_with(mark) || mark.starts_with(text);
    [START, CHANNEL, MESSAGE, "to=", "assistant"].into_iter().any(begins)
}

/// A character of a message.
fn body(kind: &mut Kind, c: char, segments: &mut Segments) {
    match kind {
        Kind::Text | Kind::Raw => segments.text(c.encode_utf8(&mut [0; 4])),
        Kind::Reasoning => segments.reasoning(c.encode_utf8(&mut [0; 4])),
        Kind::Ahead(header, _) if c.is_whitespace() && header.len() < 2 * HEADER => header.push(c),
        Kind::Ahead(_, name) if c == '{' && !name.is_empty() => {
            let mut scanner = Scanner::new();
            scanner.push(c);
            segments.begin(std::mem::take(name));
            segments.argument(c);
            *kind = Kind::Arguments(scanner);
        }
        Kind::Ahead(header, _) => {
            segments.text(header);
            *kind = Kind::Text;
            body(kind, c, segments);
        }
        Kind::Arguments(scanner) => match scanner.push(c) {
            Step::More => segments.argument(c),
            Step::Done => {
                segments.argument(c);
                segments.end();
                *kind = Kind::After;
            }
            Step::Fault => {
                *kind = Kind::Text;
                body(kind, c, segments);
            }
        },
        Kind::After if c.is_whitespace() => {}
        Kind::After => {
            *kind = Kind::Text;
            body(kind, c, segments);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{options, read, read_with};
    use crate::{Family, ParserOptions};

    const F: Family = Family::Harmony;

    #[test]
    fn channels_are_told_apart() {
        let answer = "<|channel|>analysis<|message|>Simple.<|end|><|start|>assistant<|channel|>final<|message|>It is <b>7</b>.<|return|>";
        assert_eq!(read(F, answer), r#"(Simple.) "It is <b>7</b>.""#);
        let whole = ParserOptions { reasoning: false, ..options() };
        assert_eq!(
            read_with(F, whole, answer),
            r#""<|channel|>analysis<|message|>Simple.<|end|>It is <b>7</b>.""#
        );
    }

    #[test]
    fn calls_in_both_orders_of_the_header() {
        let answer = "<|channel|>analysis<|message|>Ask.<|end|><|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\": \"Kiel\"}<|call|>";
        assert_eq!(read(F, answer), r#"(Ask.) weather{"city": "Kiel"}"#);
        let answer = " to=functions.clock<|channel|>commentary json<|message|> {} ";
        assert_eq!(read(F, answer), "clock{}");
    }

    #[test]
    fn preambles_and_answers_without_header_are_text() {
        let answer = "<|channel|>commentary<|message|>I call.<|end|><|start|>assistant<|channel|>final<|message|>Done";
        assert_eq!(read(F, answer), "\"I call.Done\"");
        assert_eq!(read(F, "Hello <|there"), "\"Hello <|there\"");
        assert_eq!(read(F, "<|channel|>final"), "\"<|channel|>final\"");
    }

    #[test]
    fn a_message_to_a_tool_that_is_no_call_is_text() {
        let answer = "<|channel|>commentary to=functions.clock<|message|>now?<|call|>";
        assert_eq!(read(F, answer), "\"<|channel|>commentary to=functions.clock<|message|>now?\"");
        let answer = "<|channel|>commentary to=functions.clock<|message|>{now}";
        assert_eq!(read(F, answer), "clock{! \"now}\"");
    }
}
