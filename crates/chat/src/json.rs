//! JSON, a character at a time: where one value ends, and whether it is one.

/// Nesting that a value may have; deeper is no arguments, and clients' parsers stop there too.
const DEPTH: usize = 120;

/// What a character did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The value goes on.
    More,
    /// The value is complete with this character.
    Done,
    /// This character does not belong here.
    Fault,
}

/// What may come next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// A value is to begin; in an array just opened it may end instead.
    Value {
        or_end: bool,
    },
    /// A key is to begin; in an object just opened it may end instead.
    Key {
        or_end: bool,
    },
    Colon,
    /// In a string, which is a key or a value.
    Text {
        key: bool,
        escape: Escape,
    },
    /// In `true`, `false` or `null`: what is to come of it.
    Word(&'static str),
    Number(Number),
    /// Behind a value.
    Next,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Escape {
    No,
    /// Behind a backslash.
    Begun,
    /// Digits to come.
    Hex(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Number {
    Sign,
    Zero,
    Digits,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
}

/// Reads one object, array or string. Numbers and words on their own do not say where they end, so
/// they are read only inside.
#[derive(Debug, Clone)]
pub(crate) struct Scanner {
    state: State,
    /// The brackets that are open: true for objects.
    open: Vec<bool>,
}

impl Scanner {
    /// At the beginning of a value.
    pub(crate) fn new() -> Self {
        Self { state: State::Value { or_end: false }, open: Vec::new() }
    }

    /// What may come next.
    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Brackets that are open.
    pub(crate) fn depth(&self) -> usize {
        self.open.len()
    }

    /// Takes a character. Behind [`Step::Done`] or [`Step::Fault`] the scanner is of no use.
    pub(crate) fn push(&mut self, c: char) -> Step {
        match self.advance(c) {
            None => Step::Fault,
            Some(()) if self.state == State::Next && self.open.is_empty() => Step::Done,
            Some(()) => Step::More,
        }
    }

    fn advance(&mut self, c: char) -> Option<()> {
        let space = matches!(c, ' ' | '\t' | '\n' | '\r');
        self.state = match self.state {
            State::Text { key, escape } => match (escape, c) {
                (Escape::No, '"') if key => State::Colon,
                (Escape::No, '"') => State::Next,
                (Escape::No, '\\') => State::Text { key, escape: Escape::Begun },
                (Escape::No, c) if c >= ' ' => State::Text { key, escape },
                (Escape::Begun, 'u') => State::Text { key, escape: Escape::Hex(4) },
                (Escape::Begun, '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't') => {
                    State::Text { key, escape: Escape::No }
                }
                (Escape::Hex(1), c) if c.is_ascii_hexdigit() => {
                    State::Text { key, escape: Escape::No }
                }
                (Escape::Hex(n), c) if c.is_ascii_hexdigit() => {
                    State::Text { key, escape: Escape::Hex(n - 1) }
                }
                _ => return None,
            },
            State::Word(rest) => match rest.strip_prefix(c)? {
                "" => State::Next,
                rest => State::Word(rest),
            },
            State::Number(number) => match (number, c) {
                (Number::Sign, '0') => State::Number(Number::Zero),
                (Number::Sign | Number::Digits, '0'..='9') => State::Number(Number::Digits),
                (Number::Zero | Number::Digits, '.') => State::Number(Number::Point),
                (Number::Point | Number::Fraction, '0'..='9') => State::Number(Number::Fraction),
                (Number::Zero | Number::Digits | Number::Fraction, 'e' | 'E') => {
                    State::Number(Number::Exponent)
                }
                (Number::Exponent, '+' | '-') => State::Number(Number::ExponentSign),
                (Number::Exponent | Number::ExponentSign | Number::ExponentDigits, '0'..='9') => {
                    State::Number(Number::ExponentDigits)
                }
                (Number::Zero | Number::Digits | Number::Fraction | Number::ExponentDigits, c) => {
                    self.state = State::Next;
                    return self.advance(c);
                }
                _ => return None,
            },
            state if space => state,
            State::Value { or_end: true } if c == ']' => return self.close(false),
            State::Value { .. } => match c {
                '{' => return self.open(true),
                '[' => return self.open(false),
                '"' => State::Text { key: false, escape: Escape::No },
                _ if self.open.is_empty() => return None,
                't' => State::Word("rue"),
                'f' => State::Word("alse"),
                'n' => State::Word("ull"),
                '-' => State::Number(Number::Sign),
                '0' => State::Number(Number::Zero),
                '1'..='9' => State::Number(Number::Digits),
                _ => return None,
            },
            State::Key { or_end: true } if c == '}' => return self.close(true),
            State::Key { .. } if c == '"' => State::Text { key: true, escape: Escape::No },
            State::Colon if c == ':' => State::Value { or_end: false },
            State::Next => match (self.open.last()?, c) {
                (true, ',') => State::Key { or_end: false },
                (false, ',') => State::Value { or_end: false },
                (true, '}') => return self.close(true),
                (false, ']') => return self.close(false),
                _ => return None,
            },
            _ => return None,
        };
        Some(())
    }

    fn open(&mut self, object: bool) -> Option<()> {
        if self.open.len() == DEPTH {
            return None;
        }
        self.open.push(object);
        self.state =
            if object { State::Key { or_end: true } } else { State::Value { or_end: true } };
        Some(())
    }

    fn close(&mut self, object: bool) -> Option<()> {
        let matches = self.open.pop()? == object;
        self.state = State::Next;
        matches.then_some(())
    }
}

/// `text` as JSON writes it within a string, without the quotes.
pub(crate) fn escaped(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// `text` as a JSON string.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// How many bytes of `text` are one value.
    fn value_len(text: &str) -> Option<usize> {
        let mut scanner = Scanner::new();
        for (i, c) in text.char_indices() {
            match scanner.push(c) {
                Step::More => {}
                Step::Done => return Some(i + c.len_utf8()),
                Step::Fault => return None,
            }
        }
        None
    }

    #[test]
    fn values_end_where_they_end() {
        for text in [
            "{}",
            "[]",
            r#"{"a": [1, -0.5e+7, 0, true, {"b": null}], "c\n\u00e9\"": "}"}"#,
            "[[],[{}],\"]\"]",
            "\"a\\\\\"",
        ] {
            assert_eq!(value_len(&format!(" {text}}}]")), Some(text.len() + 1), "{text}");
        }
    }

    #[test]
    fn what_is_no_json_is_a_fault() {
        for text in [
            "{a: 1}",
            "{\"a\" 1}",
            "{\"a\": 01}",
            "{,}",
            "{\"a\": 1,}",
            "[1 2]",
            "[}",
            "{]",
            "1",
            "tru",
            "[tru,",
            "\"\n\"",
            "\"\\x\"",
            "[1.]",
            "[-]",
            "[1e]",
            "\"\\u12g4\"",
        ] {
            let mut scanner = Scanner::new();
            assert!(text.chars().any(|c| scanner.push(c) == Step::Fault), "{text}");
        }
        assert_eq!(value_len(&"[".repeat(100_000)), None);
    }

    proptest! {
        /// Agrees with serde_json on what is a value, on texts that are nearly JSON.
        #[test]
        fn agrees_with_serde(text in r#"[\[{]([\[\]{}",:0-9eE.+\-\\untrf ]|"[ab]"|true|null|,|:){0,12}"#) {
            let whole = value_len(&text) == Some(text.trim_end().len());
            let serde = serde_json::from_str::<Value>(&text);
            // Lone surrogates and huge exponents are JSON by the grammar.
            prop_assume!(!text.contains("\\u") && !text.contains(['e', 'E']));
            prop_assert_eq!(whole, serde.is_ok(), "{}", text);
        }
    }
}
