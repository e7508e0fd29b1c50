//! Arguments that were cut off, as an object again.

use serde_json::{Map, Value};

/// The object that a text is the beginning of: what is open is closed, and what is not complete enough for that (a
/// key without its value, half of a word) is left out. `None` for a text that begins no object.
pub fn complete_object(text: &str) -> Option<Map<String, Value>> {
    let parsed = |text: &str| serde_json::from_str::<Map<String, Value>>(text).ok();
    let mut open: Vec<char> = Vec::new();
    // Where the text could have ended, and what would close it there.
    let mut safe = (0, String::new());
    let closing = |open: &[char]| open.iter().rev().collect::<String>();
    let (mut string, mut escaped) = (false, false);
    for (at, c) in text.char_indices() {
        if string {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => string = false,
                _ => {}
            }
            continue;
        }
        match c {
            '"' => string = true,
            '{' | '[' => {
                open.push(if c == '{' { '}' } else { ']' });
                safe = (at + 1, closing(&open));
            }
            '}' | ']' => {
                if open.pop() != Some(c) {
                    return None;
                }
                safe = (at + 1, closing(&open));
            }
            ',' => safe = (at, closing(&open)),
            _ => {}
        }
    }
    let mut whole = text;
    if string {
        // Half of an escape is no character yet.
        let half = whole.rfind('\\').filter(|&at| {
            let rest = &whole[at..];
            (escaped && rest.len() == 1) || (rest.starts_with("\\u") && rest.len() < 6)
        });
        whole = &whole[..half.unwrap_or(whole.len())];
    }
    let quote = if string { "\"" } else { "" };
    parsed(&format!("{whole}{quote}{}", closing(&open)))
        .or_else(|| parsed(&format!("{}{}", &text[..safe.0], safe.1)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_beginning_of_an_object_is_one() {
        let text = r#"{"cmd": "echo \"ä\u00e9\\", "n": [1, -2.5, {"deep": true}], "none": null}"#;
        for (at, _) in text.char_indices().skip(1) {
            assert!(complete_object(&text[..at]).is_some(), "{}", &text[..at]);
        }
        let of = |text: &str| complete_object(text).map(Value::Object);
        assert_eq!(of(text), Some(serde_json::from_str(text).unwrap()));
        assert_eq!(of("{"), Some(json!({})));
        assert_eq!(of(r#"{"cmd": "ls -"#), Some(json!({"cmd": "ls -"})));
        assert_eq!(of(r#"{"cmd": "a\"#), Some(json!({"cmd": "a"})));
        assert_eq!(of(r#"{"cmd": "a\u00"#), Some(json!({"cmd": "a"})));
        assert_eq!(of(r#"{"a": 1, "b"#), Some(json!({"a": 1})));
        assert_eq!(of(r#"{"a": 1, "b": tr"#), Some(json!({"a": 1})));
        assert_eq!(of(r#"{"a": [1, {"b": "c"#), Some(json!({"a": [1, {"b": "c"}]})));
    }

    #[test]
    fn what_begins_no_object_is_none() {
        for text in ["", "ls", "[1", "\"a", "{]", "}", "{a"] {
            assert_eq!(
                complete_object(text).map(Value::Object),
                match text {
                    "{a" => Some(json!({})),
                    _ => None,
                },
                "{text}"
            );
        }
    }
}
