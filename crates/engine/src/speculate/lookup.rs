//! Guesses from the text itself (prompt lookup).

use super::ahead::Text;

/// Tokens that must stand there again for what followed them to be a guess, at least, and as many as are compared.
const AGAIN: std::ops::RangeInclusive<usize> = 2..=16;

/// Guesses what followed the last tokens when they stood there before.
pub(super) fn guess(text: &mut Text<'_>) {
    let most = text.ahead.wanted();
    lookup(text.tokens, most).into_iter().for_each(|token| text.ahead.push(token));
}

/// What followed the last tokens when as many as possible of them stood there before, at most `most`;
/// of several places the last.
fn lookup(tokens: &[u32], most: usize) -> Vec<u32> {
    let ends = 1..tokens.len(); // of what stood there before
    let alike = |end: usize| {
        let before = tokens[..end].iter().rev();
        let pairs = before.zip(tokens.iter().rev()).take(*AGAIN.end());
        pairs.take_while(|(before, last)| before == last).count()
    };
    let best = ends.map(|end| (alike(end), end)).max();
    match best.filter(|(alike, _)| alike >= AGAIN.start()) {
        Some((_, end)) => tokens[end..].iter().take(most).copied().collect(),
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stood_there_before_is_the_guess() {
        assert_eq!(lookup(&[1, 2, 3, 4, 9, 1, 2], 3), [3, 4, 9]);
        // A longer repetition is better than a later one.
        assert_eq!(lookup(&[5, 1, 2, 3, 8, 1, 2, 7, 5, 1, 2], 2), [3, 8]);
        // Of two alike the later one; it may reach into the end.
        assert_eq!(lookup(&[1, 2, 3, 1, 2, 4, 1, 2], 9), [4, 1, 2]);
        assert_eq!(lookup(&[6, 6, 6, 6], 4), [6]);
        // One token alone says little.
        assert_eq!(lookup(&[1, 2, 3, 2], 4), [0; 0]);
        assert_eq!(lookup(&[1], 4), [0; 0]);
        assert_eq!(lookup(&[], 4), [0; 0]);
        assert_eq!(lookup(&[1, 2, 3, 1, 2], 0), [0; 0]);
    }
}
