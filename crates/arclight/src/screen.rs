//! Text that is written piece by piece: as it is, or on a terminal with lines that end between words.
//!
//! A word is held back until it ends, so that it goes to the next line as a whole, and signs of several characters
//! (emoji joined of others) reach the terminal in one piece. Code between ``` fences is left as it is.

use crate::term;
use std::io::{self, StdoutLock, Write};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// A fence of Markdown.
const FENCE: &str = "```";
/// From here on are emoji, which join.
const EMOJI: char = '\u{1f000}';

/// Where text is shown.
pub(crate) struct Screen<W: Write = StdoutLock<'static>> {
    out: W,
    /// Columns; `None` where no lines are broken.
    width: Option<usize>,
    column: usize,
    /// The word that has not ended, and whether its beginning is shown, because a line does not hold it.
    word: String,
    is_open: bool,
    /// Whether the line began with a fence, and whether code is between two.
    is_start: bool,
    is_code: bool,
}

impl Screen {
    /// Standard output.
    pub(crate) fn stdout() -> Screen {
        let out = io::stdout().lock();
        let width = term::columns(&out);
        Screen::new(out, width)
    }
}

impl<W: Write> Screen<W> {
    fn new(out: W, width: Option<usize>) -> Screen<W> {
        Screen {
            out,
            width,
            column: 0,
            word: String::new(),
            is_open: false,
            is_start: true,
            is_code: false,
        }
    }

    /// Begins where a text ends that is on the terminal already.
    pub(crate) fn after(&mut self, text: &str) {
        self.column = text.lines().last().map_or(0, UnicodeWidthStr::width);
        self.is_start = self.column == 0;
    }

    /// Shows the next piece.
    pub(crate) fn show(&mut self, text: &str) -> io::Result<()> {
        let Some(width) = self.width else {
            self.out.write_all(text.as_bytes())?;
            return self.out.flush();
        };
        for c in text.chars() {
            match c {
                '\n' => {
                    self.end_word(width)?;
                    self.out.write_all(b"\n")?;
                    (self.column, self.is_start) = (0, true);
                }
                ' ' => {
                    self.end_word(width)?;
                    // At the edge the end of the line stands for it.
                    if self.column < width || self.is_code {
                        self.out.write_all(b" ")?;
                        self.column += 1;
                    }
                }
                c => {
                    self.word.push(c);
                    // Languages with wide characters have no spaces.
                    let is_wide = c.width() == Some(2) && c < EMOJI;
                    let may_be_fence = self.is_start && self.word.starts_with('`');
                    let is_of_code = self.is_code && !may_be_fence;
                    let is_long = self.word.width() >= width;
                    if is_wide || is_of_code || is_long {
                        self.end_word(width)?;
                    }
                    self.is_open = is_long || self.is_open && !is_wide;
                }
            }
        }
        self.out.flush()
    }

    /// Shows what was held back, and ends the line if it has begun.
    pub(crate) fn end(&mut self, ends_line: bool) -> io::Result<()> {
        self.end_word(self.width.unwrap_or(usize::MAX))?;
        if !ends_line {
            self.out.write_all(b"\n")?;
        }
        (self.column, self.is_start) = (0, true);
        self.out.flush()
    }

    fn end_word(&mut self, width: usize) -> io::Result<()> {
        let goes_on = std::mem::take(&mut self.is_open);
        if self.word.is_empty() {
            return Ok(());
        }
        if self.is_start && self.word.starts_with(FENCE) {
            self.is_code = !self.is_code;
        }
        let wide = self.word.width();
        if !self.is_code && !goes_on && self.column > 0 && self.column + wide > width {
            self.out.write_all(b"\n")?;
            self.column = 0;
        }
        self.out.write_all(self.word.as_bytes())?;
        self.column += wide;
        if self.column > width {
            self.column %= width;
        }
        self.is_start = false;
        self.word.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(width: Option<usize>, pieces: &[&str]) -> String {
        let mut bytes = Vec::new();
        let mut screen = Screen::new(&mut bytes, width);
        pieces.iter().for_each(|piece| screen.show(piece).unwrap());
        screen.end(pieces.last().is_some_and(|piece| piece.ends_with('\n'))).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn lines_end_between_words() {
        let pieces = ["The mem", "ory of", " a node", " is near."];
        assert_eq!(shown(None, &pieces), "The memory of a node is near.\n");
        assert_eq!(shown(Some(12), &pieces), "The memory \nof a node is\nnear.\n");
        assert_eq!(shown(Some(4), &["abcdefghij k\n"]), "abcdefghij k\n");
    }

    #[test]
    fn code_is_left_as_it_is() {
        let pieces = ["a b c\n``", "`rust\nlet long = line;\n", "```\nd e f g"];
        assert_eq!(shown(Some(5), &pieces), "a b c\n```rust\nlet long = line;\n```\nd e f\ng\n");
    }

    #[test]
    fn wide_characters_need_no_spaces_and_joined_ones_come_together() {
        assert_eq!(shown(Some(4), &["日本", "語"]), "日本\n語\n");
        let mut bytes = Vec::new();
        let mut screen = Screen::new(&mut bytes, Some(20));
        screen.show("👩\u{200d}").unwrap();
        screen.show("🚀").unwrap();
        assert!(screen.word.ends_with('🚀') && screen.column == 0);
        screen.show(" ").unwrap();
        assert_eq!(String::from_utf8(bytes).unwrap(), "👩\u{200d}🚀 ");
    }
}
