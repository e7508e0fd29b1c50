//! Sets of CPUs and nodes as masks: `3,00000000,0000ffff` in sysfs, `0x00000003,,0x0000ffff` in hwloc.

/// A set of ids. Words of 32 bits, the lowest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bitmap {
    words: Vec<u32>,
    /// Whether all ids beyond the words are in it.
    infinite: bool,
}

/// hwloc's mark of a set that never ends.
const INFINITE: &str = "0xf...f";

impl Bitmap {
    /// Words of eight hexadecimal digits, the highest first; an empty one is zero. The error is
    /// the reason alone.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (infinite, rest) = match text.trim().strip_prefix(INFINITE) {
            Some("") => return Ok(Self { words: vec![], infinite: true }),
            Some(rest) => match rest.strip_prefix(',') {
                Some(rest) => (true, rest),
                None => return Err(format!("no comma after {INFINITE}")),
            },
            None => (false, text.trim()),
        };
        if rest.is_empty() {
            return Err("it is empty".into());
        }
        let mut words = vec![];
        for word in rest.rsplit(',') {
            let digits = word.strip_prefix("0x").unwrap_or(word);
            let hex = digits.len() <= 8 && digits.bytes().all(|b| b.is_ascii_hexdigit());
            if !hex || (digits.is_empty() && word != digits) {
                let word: String = word.chars().take(20).collect();
                return Err(format!("{word:?} is not a number of 32 bits in hexadecimal"));
            }
            words.push(u32::from_str_radix(digits, 16).unwrap_or(0));
        }
        Ok(Self { words, infinite })
    }

    pub(crate) fn contains(&self, id: u32) -> bool {
        match self.words.get(id as usize / 32) {
            Some(word) => word >> (id % 32) & 1 == 1,
            None => self.infinite,
        }
    }

    /// The ids, ascending; `None` when there is no end of them.
    pub(crate) fn ids(&self) -> Option<Vec<u32>> {
        let bits = self.words.len() as u32 * 32;
        (!self.infinite).then(|| (0..bits).filter(|&id| self.contains(id)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(text: &str) -> Option<Vec<u32>> {
        Bitmap::parse(text).unwrap().ids()
    }

    #[test]
    fn sets_of_any_length_are_read() {
        assert_eq!(ids("0x0000000d"), Some(vec![0, 2, 3]));
        assert_eq!(ids("0x0"), Some(vec![]));
        assert_eq!(ids("0x00000003,,0x80000000"), Some(vec![31, 64, 65]));
        assert_eq!(ids("1,00000000"), Some(vec![32]));
        let endless = Bitmap::parse("0xf...f,0x00000002").unwrap();
        assert_eq!(endless.ids(), None);
        assert!(endless.contains(1) && !endless.contains(0) && endless.contains(8000));
        assert!(Bitmap::parse("0xf...f").unwrap().contains(0));
    }

    #[test]
    fn faults_are_named() {
        for (text, part) in [
            ("", "empty"),
            ("0x123456789", "\"0x123456789\" is not"),
            ("0xg", "\"0xg\" is not"),
            ("0x", "\"0x\" is not"),
            ("0xf...f0", "no comma"),
            ("-1", "\"-1\" is not"),
            ("0x+1", "not a number"),
        ] {
            let reason = Bitmap::parse(text).unwrap_err();
            assert!(reason.contains(part), "{text:?}: {reason}");
        }
    }
}
