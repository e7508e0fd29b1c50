//! The token by which a server without keys recognises its own page: a random number that only that page's HTML has.
//!
//! A page of another origin cannot read the HTML. Programs on this machine can; they are as trusted as its user.

use rustls::crypto::ring::default_provider;
use std::fmt::Write as _;
use std::sync::Arc;
use subtle::ConstantTimeEq;

/// The header in which the page sends it.
pub(crate) const HEADER: &str = "x-arclight-token";

/// Its place in the HTML, before it is filled in.
const PLACE: &str = "name=\"arclight-token\" content=\"";

/// A token of one process. Clones are equal.
#[derive(Clone)]
pub(crate) struct Token(Arc<str>);

impl Token {
    /// A new one: 256 random bits.
    pub(crate) fn random() -> Token {
        let mut bytes = [0; 32];
        default_provider().secure_random.fill(&mut bytes).expect("the system has random numbers");
        let text = bytes.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        Token(text.into())
    }

    /// Whether it is this one.
    pub(crate) fn is(&self, given: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(given).into()
    }

    /// A page's HTML with the token.
    pub(super) fn filled_in(&self, html: Vec<u8>) -> Vec<u8> {
        match String::from_utf8(html) {
            Ok(html) => html.replacen(PLACE, &format!("{PLACE}{}", self.0), 1).into_bytes(),
            Err(html) => html.into_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_random_and_has_a_place() {
        let (one, other) = (Token::random(), Token::random());
        assert!(one.is(one.0.as_bytes()) && !one.is(other.0.as_bytes()) && !one.is(b""));
        let html = format!("<meta {PLACE}\" />");
        let filled = String::from_utf8(one.filled_in(html.into_bytes())).unwrap();
        assert_eq!(filled, format!("<meta {PLACE}{}\" />", one.0));
    }
}
