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

/// Appends the characters that stand for `bytes`.
pub(crate) fn push_encoded(bytes: &[u8], out: &mut String) {
    out.extend(bytes.iter().map(|&b| TO_CHAR[b as usize]));
}

/// The bytes a token's text stands for; `None` if a character is not of the alphabet.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|c| TO_BYTE.get(c as usize).copied().flatten()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(decode(&text), Some(bytes));
        assert_eq!(text.chars().collect::<std::collections::HashSet<_>>().len(), 256);
    }

    #[test]
    fn foreign_characters_are_refused() {
        assert_eq!(decode("a b"), None);
        assert_eq!(decode("日"), None);
    }
}
