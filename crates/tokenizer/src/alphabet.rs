//! The alphabet of byte-level BPE: one printable character for each of the 256 bytes.
//!
//! Vocabularies of this kind store tokens as text. Bytes that print in Latin-1 stand for
//! themselves; the other 68 take the code points from U+0100 on, in order, so a space is `Ġ`.
//! Source: the published encoder of GPT-2, whose table every such vocabulary inherits.

const fn prints(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF)
}

const TO_CHAR: [char; 256] = {
    let mut table = ['\0'; 256];
    let (mut byte, mut next) = (0u32, 0x100u32);
    while byte < 256 {
        let code = if prints(byte as u8) {
            byte
        } else {
            next += 1;
            next - 1
        };
        table[byte as usize] = match char::from_u32(code) {
            Some(c) => c,
            None => panic!("all codes are below U+0200"),
        };
        byte += 1;
    }
    table
};

/// Byte for each code point up to the last of the alphabet; `None` for the gaps.
const TO_BYTE: [Option<u8>; 0x144] = {
    let mut table = [None; 0x144];
    let mut byte = 0usize;
    while byte < 256 {
        table[TO_CHAR[byte] as usize] = Some(byte as u8);
        byte += 1;
    }
    table
};

/// Appends the bytes that a token's text stands for; false, and nothing, if a character is not of the alphabet.
pub(crate) fn push_decoded(text: &[u8], out: &mut Vec<u8>) -> bool {
    let before = out.len();
    let whole = decoded(text).all(|byte| {
        out.extend(byte);
        byte.is_some()
    });
    if !whole {
        out.truncate(before);
    }
    whole
}

/// Whether a token's text is written in the alphabet and stands for `bytes`.
pub(crate) fn stands_for(text: &[u8], bytes: &[u8]) -> bool {
    decoded(text).eq(bytes.iter().map(|&byte| Some(byte)))
}

/// The byte of each character, which has one byte of UTF-8 or two.
fn decoded(text: &[u8]) -> impl Iterator<Item = Option<u8>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (code, tail) = match *rest {
            [] => return None,
            [byte, ref tail @ ..] if byte < 0x80 => (usize::from(byte), tail),
            [lead @ 0xC2..=0xDF, next @ 0x80..=0xBF, ref tail @ ..] => {
                (usize::from(lead & 0x1F) << 6 | usize::from(next & 0x3F), tail)
            }
            [_, ref tail @ ..] => (usize::MAX, tail),
        };
        rest = tail;
        Some(TO_BYTE.get(code).copied().flatten())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push_encoded(bytes: &[u8], out: &mut String) {
        out.extend(bytes.iter().map(|&b| TO_CHAR[b as usize]));
    }

    #[test]
    fn known_characters() {
        let mut text = String::new();
        push_encoded(b" \n\tA\x00\x7f\xa0\xad\xff", &mut text);
        assert_eq!(text, "ĠĊĉAĀġłŃÿ");
    }

    #[test]
    fn every_byte_survives() {
        let bytes: Vec<u8> = (0..=255).collect();
        let mut text = String::new();
        push_encoded(&bytes, &mut text);
        let mut decoded = vec![7];
        assert!(push_decoded(text.as_bytes(), &mut decoded));
        assert_eq!(decoded[1..], bytes);
        assert!(stands_for(text.as_bytes(), &bytes) && !stands_for(text.as_bytes(), &bytes[1..]));
        assert_eq!(text.chars().collect::<std::collections::HashSet<_>>().len(), 256);
    }

    #[test]
    fn foreign_characters_are_refused() {
        for text in ["a b", "日", "a日"] {
            let mut decoded = vec![7];
            assert!(!push_decoded(text.as_bytes(), &mut decoded), "{text}");
            assert_eq!(decoded, [7]);
        }
        assert!(!stands_for(b"\xC3", b"\xC3"));
    }
}
