//! Finding marks in a stream, a character at a time.

/// What a character did to a mark that is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Match {
    /// It may still become one of them.
    More,
    /// It is this one of them.
    Hit(usize),
    /// It is none of them.
    Miss,
}

/// A mark that is being read, at a place where nothing else may stand but white space before it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mark {
    read: String,
}

impl Mark {
    /// Takes a character of one of `marks`.
    pub(crate) fn push(&mut self, c: char, marks: &[&str]) -> Match {
        if self.read.is_empty() && c.is_whitespace() && !marks.iter().any(|m| m.starts_with(c)) {
            return Match::More;
        }
        self.read.push(c);
        if let Some(i) = marks.iter().position(|m| *m == self.read) {
            self.read.clear();
            return Match::Hit(i);
        }
        let begun = |m: &&str| m.starts_with(&self.read);
        if marks.iter().any(begun) { Match::More } else { Match::Miss }
    }

    /// Bytes read of a mark.
    pub(crate) fn len(&self) -> usize {
        self.read.len()
    }
}

/// A search for marks in running text.
#[derive(Debug, Clone, Default)]
pub(crate) struct Search {
    /// What may be the beginning of a mark.
    tail: String,
}

impl Search {
    /// Takes a character. What turned out to be no part of a mark goes to `text`; a mark that is
    /// complete is given by its index.
    pub(crate) fn push(
        &mut self,
        c: char,
        marks: &[&str],
        mut text: impl FnMut(char),
    ) -> Option<usize> {
        self.tail.push(c);
        loop {
            if let Some(i) = marks.iter().position(|m| *m == self.tail) {
                self.tail.clear();
                return Some(i);
            }
            if self.tail.is_empty() || marks.iter().any(|m| m.starts_with(&self.tail)) {
                return None;
            }
            text(self.tail.remove(0));
        }
    }

    /// Whether nothing is being held.
    pub(crate) fn is_empty(&self) -> bool {
        self.tail.is_empty()
    }

    /// What is left when the text ends.
    pub(crate) fn take(&mut self) -> String {
        std::mem::take(&mut self.tail)
    }
}
