//! Text that a client keeps and sends back in fields that other servers encrypt: thoughts, and summaries. Here it is
//! in base64 behind a mark, so that what another server has encrypted is told apart.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

const MARK: &str = "arclight.";

/// A text as the value of `encrypted_content`.
pub(super) fn seal(text: &str) -> String {
    format!("{MARK}{}", URL_SAFE_NO_PAD.encode(text))
}

/// The text in a value that [`seal`] has made.
pub(super) fn open(sealed: &str) -> Option<String> {
    let bytes = URL_SAFE_NO_PAD.decode(sealed.strip_prefix(MARK)?).ok()?;
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sealed_here_is_read_and_nothing_else() {
        assert_eq!(open(&seal("So, \u{e4}.")).as_deref(), Some("So, \u{e4}."));
        assert_eq!(open("gAAAAABk"), None);
        assert_eq!(open("arclight.!"), None);
    }
}
