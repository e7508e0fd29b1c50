//! Pieces of output as `docs/sources.md` writes them: words, and numbers that are exact, bounded, about right or any.

use regex::{Captures, Regex};

/// What is asked of one number of a piece.
enum Number {
    /// As it is written, to the last digit.
    Exact(String),
    /// `≤2`.
    AtMost(f64),
    /// `≥2`.
    AtLeast(f64),
    /// `~2`: between half and twice of it.
    About(f64),
    /// `#`.
    Any,
}

impl Number {
    fn holds(&self, printed: &str) -> bool {
        let value: f64 = printed.parse().expect("the pattern takes numbers only");
        match self {
            Number::Exact(text) => text == printed,
            Number::AtMost(most) => value <= *most,
            Number::AtLeast(least) => value >= *least,
            Number::About(about) => (about / 2.0..=about * 2.0).contains(&value),
            Number::Any => true,
        }
    }
}

/// A piece of output; line breaks and widths of columns do not matter.
pub(super) struct Piece {
    pattern: Regex,
    numbers: Vec<Number>,
}

/// Words with one space between, whatever stood there, and none behind a `±`.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace("± ", "±")
}

impl Piece {
    pub(super) fn new(piece: &str) -> Piece {
        const NUMBER: &str = r"([0-9]+(?:\.[0-9]+)?)";
        let piece = one_line(piece);
        let written = Regex::new(r"#|([≤≥~]?)([0-9]+(?:\.[0-9]+)?)").expect("a pattern");
        // A number begins where none goes on.
        let mut pattern = String::from(r"(?:^|[^0-9.])");
        let mut numbers = vec![];
        let mut end = 0;
        for found in written.captures_iter(&piece) {
            let whole = found.get(0).expect("all of it");
            pattern.push_str(&regex::escape(&piece[end..whole.start()]));
            pattern.push_str(NUMBER);
            end = whole.end();
            numbers.push(match (found.get(1).map_or("", |sign| sign.as_str()), found.get(2)) {
                (_, None) => Number::Any,
                ("", Some(text)) => Number::Exact(text.as_str().to_owned()),
                (sign, Some(text)) => {
                    let value = text.as_str().parse().expect("the pattern takes numbers only");
                    match sign {
                        "≤" => Number::AtMost(value),
                        "≥" => Number::AtLeast(value),
                        _ => Number::About(value),
                    }
                }
            });
        }
        pattern.push_str(&regex::escape(&piece[end..]));
        Piece { pattern: Regex::new(&pattern).expect("escaped"), numbers }
    }

    /// Whether the piece stands somewhere in what was printed, with numbers that are as it asks.
    pub(super) fn stands_in(&self, printed: &str) -> bool {
        let printed = one_line(printed);
        let holds = |found: &Captures| {
            let mut numbers = self.numbers.iter().zip(found.iter().skip(1).flatten());
            numbers.all(|(number, text)| number.holds(text.as_str()))
        };
        // A place that does not hold may overlap with one that does.
        let mut from = 0;
        while let Some(found) = self.pattern.captures_at(&printed, from) {
            if holds(&found) {
                return true;
            }
            let start = found.get(0).expect("all of it").start();
            from = start + printed[start..].chars().next().map_or(1, char::len_utf8);
        }
        false
    }
}

#[test]
fn numbers_of_a_piece_are_held_to_what_it_asks() {
    let printed = "5 waits,  2 of them global\n remote share  0.5 %  15.0 %";
    let stands = |piece: &str| Piece::new(piece).stands_in(printed);
    for piece in [
        "5 waits, 2 of them",
        "# waits, # of",
        "remote share ≤0.5 %",
        "share ~0.9 % ≥15 %",
        "15.0 %",
    ] {
        assert!(stands(piece), "{piece}");
    }
    for piece in [
        "5 waits, 3 of them",
        "remote share ≤0.4 %",
        "share ~1.1 %",
        "≥15.1 %",
        "5.0 %",
        "15 %",
        "waits of",
    ] {
        assert!(!stands(piece), "{piece}");
    }
    assert!(Piece::new("1 1 2").stands_in("1 1 1 2"));
}
