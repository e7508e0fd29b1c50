//! Stop strings over streamed text.
//!
//! Text that could be the beginning of a stop string is held back until it is known not to be one,
//! so a caller never prints part of a stop string.

/// Watches streamed text for stop strings.
#[derive(Clone, Debug, Default)]
pub struct StopStrings {
    stops: Vec<String>,
    held: String,
    found: Option<usize>,
}

/// What may be shown after a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text {
    /// Text that is certainly before any stop string; may be empty.
    More(String),
    /// The text before the stop string that was found; nothing follows.
    Stop(String),
}

impl StopStrings {
    /// Watches for `stops`; empty strings are ignored.
    pub fn new(stops: impl IntoIterator<Item = String>) -> StopStrings {
        StopStrings {
            stops: stops.into_iter().filter(|s| !s.is_empty()).collect(),
            held: String::new(),
            found: None,
        }
    }

    /// Takes the next piece of text.
    pub fn push(&mut self, piece: &str) -> Text {
        self.held.push_str(piece);
        if let Some((at, which)) = first_stop(&self.stops, &self.held) {
            self.found = Some(which);
            self.held.truncate(at);
            return Text::Stop(std::mem::take(&mut self.held));
        }
        let keep = self.undecided();
        let rest = self.held.split_off(self.held.len() - keep);
        Text::More(std::mem::replace(&mut self.held, rest))
    }

    /// The stop string that was found.
    pub fn found(&self) -> Option<&str> {
        self.found.map(|which| self.stops[which].as_str())
    }

    /// The text ends: what was held back.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Length of the longest end of the held text that begins a stop string.
    fn undecided(&self) -> usize {
        let begins = |at: &usize| self.stops.iter().any(|s| s.starts_with(&self.held[*at..]));
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        let from = self.held.len().saturating_sub(longest);
        (from..self.held.len())
            .filter(|&at| self.held.is_char_boundary(at))
            .find(begins)
            .map_or(0, |at| self.held.len() - at)
    }
}

/// Where the stop string begins that is complete first, and which it is; of two, the longer.
fn first_stop(stops: &[String], text: &str) -> Option<(usize, usize)> {
    let found = stops.iter().enumerate().filter_map(|(which, stop)| {
        let at = text.find(stop.as_str())?;
        Some((at + stop.len(), at, which))
    });
    found.min().map(|(_, at, which)| (at, which))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn beginnings_are_held_until_decided() {
        let mut s = StopStrings::new(["END".to_owned(), "\nUser:".to_owned()]);
        assert_eq!(s.push("abcE"), Text::More("abc".into()));
        assert_eq!(s.push("N"), Text::More("".into()));
        assert_eq!(s.push("T"), Text::More("ENT".into()));
        assert_eq!(s.push("x\nUs"), Text::More("x".into()));
        assert_eq!(s.found(), None);
        assert_eq!(s.push("er: no"), Text::Stop("".into()));
        assert_eq!(s.found(), Some("\nUser:"));
        let mut s = StopStrings::new(["END".to_owned()]);
        assert_eq!(s.push("a EN"), Text::More("a ".into()));
        assert_eq!(s.finish(), "EN");
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_text_before_the_first_stop(
            text in "[abé]{0,30}", stops in prop::collection::vec("[abé]{1,4}", 0..3), cuts in prop::collection::vec(0usize..8, 0..20)
        ) {
            let text = text.as_str();
            let ends = text.char_indices().map(|(i, c)| i + c.len_utf8());
            let starts = |end: usize| stops.iter().filter(move |s| text[..end].ends_with(s.as_str())).map(move |s| end - s.len()).min();
            let want = ends.into_iter().find_map(starts).map_or(text, |at| &text[..at]);
            let mut s = StopStrings::new(stops.clone());
            let (mut got, mut rest, mut stopped) = (String::new(), text, false);
            for cut in cuts.into_iter().chain([usize::MAX]) {
                let cut = rest.char_indices().map(|(i, _)| i).nth(cut).unwrap_or(rest.len());
                let (piece, tail) = rest.split_at(cut);
                rest = tail;
                match s.push(piece) {
                    Text::More(t) => got.push_str(&t),
                    Text::Stop(t) => { got.push_str(&t); stopped = true; break; }
                }
            }
            if !stopped { got.push_str(&s.finish()); }
            prop_assert_eq!(got, want);
        }
    }
}
