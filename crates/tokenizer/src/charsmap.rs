//! SentencePiece's table of replacements, compiled into the model file.
//!
//! Layout: the length in bytes of a trie, the trie, then the replacements, each ended by a zero.
//! The trie is a double array (Darts): 32-bit units, each with the offset of its children, the
//! label it is reached by, and whether it has a value: a place among the replacements. At each
//! place of the text the longest entry is replaced; a character without one stays. A damaged table
//! gives other replacements, never a read outside of it.

use std::borrow::Cow;

use crate::Error;

pub(crate) struct Charsmap {
    units: Vec<u32>,
    replacements: String,
}

impl Charsmap {
    /// Reads a table; an empty one replaces nothing.
    pub(crate) fn new(bytes: &[u8]) -> Result<Self, Error> {
        let fault = |fault| Error::BadCharsmap { fault };
        let Some((length, rest)) = bytes.split_first_chunk() else {
            return if bytes.is_empty() {
                Ok(Self { units: Vec::new(), replacements: String::new() })
            } else {
                Err(fault("is too short"))
            };
        };
        let length = u32::from_le_bytes(*length) as usize;
        if !length.is_multiple_of(4) || length > rest.len() {
            return Err(fault("gives its trie a length that it does not have"));
        }
        let (trie, replacements) = rest.split_at(length);
        let units = trie.chunks_exact(4).map(|u| u32::from_le_bytes([u[0], u[1], u[2], u[3]]));
        let replacements =
            str::from_utf8(replacements).map_err(|_| fault("has a replacement not in UTF-8"))?;
        if !replacements.is_empty() && !replacements.ends_with('\0') {
            return Err(fault("has a replacement without an end"));
        }
        Ok(Self { units: units.collect(), replacements: replacements.to_owned() })
    }

    /// The text with everything replaced.
    pub(crate) fn apply<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut out = String::new();
        // What is before `done` has gone to `out`.
        let (mut done, mut at) = (0, 0);
        while let Some(c) = text[at..].chars().next() {
            let Some((length, replacement)) = self.longest(&text[at..]) else {
                at += c.len_utf8();
                continue;
            };
            out.push_str(&text[done..at]);
            out.push_str(replacement);
            at += length;
            done = at;
        }
        if done == 0 {
            return Cow::Borrowed(text);
        }
        out.push_str(&text[done..]);
        Cow::Owned(out)
    }

    /// Length and replacement of the longest entry that `text` begins with.
    fn longest(&self, text: &str) -> Option<(usize, &str)> {
        let mut found = None;
        let mut node = offset(*self.units.first()?);
        for (i, &byte) in text.as_bytes().iter().enumerate() {
            // Zero is the label of values.
            if byte == 0 {
                break;
            }
            node ^= byte as usize;
            let Some(&unit) = self.units.get(node) else { break };
            if unit & (1 << 31 | 0xFF) != u32::from(byte) {
                break;
            }
            node ^= offset(unit);
            if unit & 1 << 8 != 0 && text.is_char_boundary(i + 1) {
                let value = self.units.get(node).map(|u| (u & !(1 << 31)) as usize);
                if let Some(from) = value.and_then(|v| self.replacements.get(v..)) {
                    found = Some((i + 1, from.split('\0').next().unwrap_or_default()));
                }
            }
        }
        found
    }
}

/// How far from a unit its children are.
fn offset(unit: u32) -> usize {
    ((unit >> 10) << ((unit & 1 << 9) >> 6)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table that replaces `a` with `xy` and `ab` with nothing.
    fn table() -> Vec<u8> {
        let child = |label: u8, offset: u32, has_value: bool| {
            u32::from(label) | offset << 10 | u32::from(has_value) << 8
        };
        let value = |at: u32| 1 << 31 | at;
        let mut units = vec![0u32; 1024];
        // The root's children stand at 256 ^ label, those of `a` at 256 ^ 'a' ^ 512 ^ label.
        units[0] = child(0, 256, false);
        let a = 256 ^ b'a' as usize;
        units[a] = child(b'a', 512, true);
        units[a ^ 512] = value(0);
        let ab = a ^ 512 ^ b'b' as usize;
        units[ab] = child(b'b', 1, true);
        units[ab ^ 1] = value(3);
        let mut bytes = (units.len() as u32 * 4).to_le_bytes().to_vec();
        bytes.extend(units.iter().flat_map(|u| u.to_le_bytes()));
        bytes.extend(b"xy\0\0");
        bytes
    }

    #[test]
    fn the_longest_entry_wins() {
        let map = Charsmap::new(&table()).unwrap();
        assert_eq!(map.apply("caabad"), "cxyxyd");
        assert_eq!(map.apply("é\0"), "é\0");
    }

    #[test]
    fn damaged_tables() {
        for bytes in [&b"\x04\0\0"[..], b"\x03\0\0\0abcd", b"\x08\0\0\0abcd", b"\0\0\0\0a"] {
            assert!(Charsmap::new(bytes).is_err(), "{bytes:?}");
        }
        assert!(Charsmap::new(b"\0\0\0\0\xFF\0").is_err());
        // Every single byte of the trie changed: another result, no panic.
        let good = table();
        for at in (4..good.len() - 4).step_by(7) {
            let mut bytes = good.clone();
            bytes[at] ^= 0xFF;
            Charsmap::new(&bytes).unwrap().apply("caabad");
        }
    }
}
