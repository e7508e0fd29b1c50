//! Text broken into lines.

/// Characters in a line of results.
pub(crate) const WIDTH: usize = 100;

/// Lines of words, of at most 100 characters.
pub(crate) fn wrap(text: &str) -> Vec<String> {
    wrap_at(text, WIDTH)
}

/// Lines of words, of at most so many characters.
pub(crate) fn wrap_at(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is one from the start");
        if line.is_empty() || line.chars().count() + 1 + word.chars().count() <= width {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}
