//! Server-sent events, from bytes that may be cut anywhere.
//!
//! Lines end with LF, CR or CRLF; a blank line ends an event; `data` lines of one event are joined by
//! line feeds; lines that begin with a colon are comments. Fields other than `event` and `data` mean
//! nothing to a client that never reconnects.
//!
//! Limit: an event of more than [`MOST`] bytes is a fault, so that a broken server cannot fill memory.
//!
//! Source: WHATWG HTML, "Server-sent events", section "Interpreting an event stream".

/// Bytes of the largest event.
const MOST: usize = 16 << 20;

/// An event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    /// Its type; empty for the usual one.
    pub(crate) kind: String,
    /// Its data.
    pub(crate) data: String,
}

/// Reads a stream.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    /// The line that has begun.
    line: Vec<u8>,
    /// The event that has begun, and whether it has data.
    event: Event,
    has_data: bool,
    /// The last byte was a CR: a LF that follows belongs to it.
    after_cr: bool,
    /// A line has ended: no byte order mark any more.
    begun: bool,
}

/// An event of more than [`MOST`] bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

impl Parser {
    /// Takes the next bytes and appends the events that they complete.
    pub(crate) fn push(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), TooLarge> {
        let mut rest = bytes;
        if std::mem::take(&mut self.after_cr) && rest.first() == Some(&b'\n') {
            rest = &rest[1..];
        }
        while let Some(end) = rest.iter().position(|b| matches!(b, b'\n' | b'\r')) {
            self.line.extend_from_slice(&rest[..end]);
            let cr = rest[end] == b'\r';
            rest = &rest[end + 1..];
            if cr {
                match rest.first() {
                    Some(b'\n') => rest = &rest[1..],
                    Some(_) => {}
                    None => self.after_cr = true,
                }
            }
            self.end_line(events);
            self.check()?;
        }
        self.line.extend_from_slice(rest);
        self.check()
    }

    /// Whether the stream has stopped in the middle of an event.
    pub(crate) fn is_within_event(&self) -> bool {
        self.has_data || !self.line.is_empty()
    }

    fn check(&self) -> Result<(), TooLarge> {
        if self.line.len() + self.event.data.len() > MOST { Err(TooLarge) } else { Ok(()) }
    }

    fn end_line(&mut self, events: &mut Vec<Event>) {
        let line = std::mem::take(&mut self.line);
        let mut line = line.as_slice();
        if !std::mem::replace(&mut self.begun, true) {
            line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        }
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            if std::mem::take(&mut self.has_data) {
                events.push(event);
            }
            return;
        }
        let colon = line.iter().position(|&b| b == b':').unwrap_or(line.len());
        let (field, value) = (&line[..colon], line.get(colon + 1..).unwrap_or_default());
        let value = String::from_utf8_lossy(value.strip_prefix(b" ").unwrap_or(value));
        match field {
            b"data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(&value);
            }
            b"event" => self.event.kind = value.into_owned(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pieces: &[&[u8]]) -> Vec<(String, String)> {
        let (mut parser, mut events) = (Parser::default(), Vec::new());
        for piece in pieces {
            parser.push(piece, &mut events).unwrap();
        }
        events.into_iter().map(|e| (e.kind, e.data)).collect()
    }

    fn data(texts: &[&str]) -> Vec<(String, String)> {
        texts.iter().map(|t| (String::new(), (*t).to_owned())).collect()
    }

    #[test]
    fn fields_comments_and_line_ends() {
        assert_eq!(parse(&[b"data: a\n\ndata:b\n\n"]), data(&["a", "b"]));
        assert_eq!(parse(&[b"data:  two spaces\r\n\r\n"]), data(&[" two spaces"]));
        assert_eq!(parse(&[b"data: cr\r\rdata: x\r\r"]), data(&["cr", "x"]));
        assert_eq!(parse(&[b": ping\n\n: ping\ndata: a\n: in it\ndata: b\n\n"]), data(&["a\nb"]));
        assert_eq!(parse(&[b"data\ndata:\n\n"]), data(&["\n"]));
        assert_eq!(parse(&[b"id: 1\nretry: 5\nunknown: x\n\n"]), []);
        assert_eq!(parse(&[b"\xEF\xBB\xBFdata: a\n\n"]), data(&["a"]));
        let error = parse(&[b"event: error\ndata: {}\n\ndata: usual\n\n"]);
        assert_eq!(error[0], ("error".to_owned(), "{}".to_owned()));
        assert_eq!(error[1], (String::new(), "usual".to_owned()), "the type is of one event only");
        assert_eq!(parse(&[b"data: bad \xFF utf-8\n\n"]), data(&["bad \u{FFFD} utf-8"]));
    }

    #[test]
    fn any_cut_gives_the_same_events() {
        let stream =
            "\u{FEFF}: hello\r\ndata: {\"a\": \"ä€😀\"}\r\n\r\nevent: x\ndata: 1\ndata: 2\n\n\
                      data: cr\r\rdata: [DONE]\r\n\r\n"
                .as_bytes();
        let whole = parse(&[stream]);
        assert_eq!(whole.len(), 4);
        for first in 0..=stream.len() {
            for second in first..=stream.len() {
                let pieces = [&stream[..first], &stream[first..second], &stream[second..]];
                assert_eq!(parse(&pieces), whole, "cut at {first} and {second}");
            }
        }
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(parse(&bytes), whole);
    }

    #[test]
    fn what_has_not_ended_is_no_event() {
        for (text, within) in
            [("data: a\n", true), ("data: a", true), ("dat", true), ("data: a\n\n", false)]
        {
            let (mut parser, mut events) = (Parser::default(), Vec::new());
            parser.push(text.as_bytes(), &mut events).unwrap();
            assert_eq!(parser.is_within_event(), within, "{text:?}");
            assert_eq!(events.is_empty(), within);
        }
    }

    #[test]
    fn endless_events_are_refused() {
        let block = vec![b'x'; 1 << 20];
        let (mut parser, mut events) = (Parser::default(), Vec::new());
        let pushed = (0..20).map(|_| parser.push(&block, &mut events)).find(Result::is_err);
        assert_eq!(pushed, Some(Err(TooLarge)));
        // The same in many lines.
        let mut parser = Parser::default();
        let line = [b"data: ".as_slice(), &block, b"\n"].concat();
        let pushed = (0..20).map(|_| parser.push(&line, &mut events)).find(Result::is_err);
        assert_eq!(pushed, Some(Err(TooLarge)));
    }
}
