//! The head of a model card: YAML between two lines of dashes.
//!
//! Of YAML, what cards have there is read: keys with a text, or with a list of texts in either form. What is
//! nested deeper is passed over.

/// Keys with one text or several.
#[derive(Debug, Default)]
pub(super) struct Card {
    entries: Vec<(String, Entry)>,
}

#[derive(Debug, Clone, PartialEq)]
enum Entry {
    Text(String),
    List(Vec<String>),
}

impl Card {
    /// Of the text of a README.
    pub(super) fn of(readme: &str) -> Card {
        let mut lines = readme.lines();
        let mut card = Card::default();
        if lines.next() != Some("---") {
            return card;
        }
        let lines: Vec<&str> = lines.take_while(|line| *line != "---").collect();
        let mut at = 0;
        while at < lines.len() {
            let line = lines[at];
            at += 1;
            let indented = line.starts_with([' ', '\t', '-', '#']) || line.trim().is_empty();
            let Some((key, rest)) = line.split_once(':').filter(|_| !indented) else { continue };
            let start = at;
            let item = |line: &str| line.trim_start().starts_with('-');
            while at < lines.len()
                && (lines[at].starts_with([' ', '\t'])
                    || item(lines[at])
                    || lines[at].trim().is_empty())
            {
                at += 1;
            }
            if let Some(entry) = entry(uncommented(rest).trim(), &lines[start..at]) {
                card.entries.push((unquoted(key.trim()), entry));
            }
        }
        card
    }

    fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|(known, _)| known == key).map(|(_, entry)| entry)
    }

    /// A key's one text.
    pub(super) fn text(&self, key: &str) -> Option<String> {
        match self.get(key)? {
            Entry::Text(text) => Some(text.clone()),
            Entry::List(_) => None,
        }
    }

    /// A key's texts: all of a list, or the one.
    pub(super) fn list(&self, key: &str) -> Option<Vec<String>> {
        Some(match self.get(key)? {
            Entry::Text(text) => vec![text.clone()],
            Entry::List(list) => list.clone(),
        })
    }
}

/// The value behind a key, and on the lines below it.
fn entry(rest: &str, below: &[&str]) -> Option<Entry> {
    match rest {
        "" => {
            let below: Vec<&str> =
                below.iter().copied().filter(|line| !line.trim().is_empty()).collect();
            let depth = below.first()?.find(|c| c != ' ')?;
            let items = below.iter().filter_map(|line| {
                (line.find(|c| c != ' ') == Some(depth))
                    .then(|| line.trim_start().strip_prefix('-'))
                    .flatten()
            });
            // An entry that is a map is passed over with the rest.
            let items: Vec<String> = items
                .map(|item| uncommented(item).trim().to_owned())
                .filter(|item| !item.is_empty() && !is_map(item))
                .map(|item| unquoted(&item))
                .collect();
            (!items.is_empty()).then_some(Entry::List(items))
        }
        "|" | ">" | "|-" | ">-" => {
            let joint = if rest.starts_with('|') { "\n" } else { " " };
            let lines: Vec<&str> = below.iter().map(|line| line.trim()).collect();
            Some(Entry::Text(lines.join(joint).trim_end().to_owned()))
        }
        "null" | "~" => None,
        _ if rest.starts_with('[') => {
            let list = rest.strip_prefix('[')?.strip_suffix(']')?;
            let items = list.split(',').map(|item| unquoted(item.trim()));
            Some(Entry::List(items.filter(|item| !item.is_empty()).collect()))
        }
        _ if rest.starts_with('{') => None,
        _ => Some(Entry::Text(unquoted(rest))),
    }
}

fn is_map(item: &str) -> bool {
    !item.starts_with(['"', '\'']) && (item.ends_with(':') || item.contains(": "))
}

/// A value without the comment behind it.
fn uncommented(text: &str) -> &str {
    if text.trim_start().starts_with(['"', '\'']) {
        return text;
    }
    text.find(" #").map_or(text, |at| &text[..at])
}

fn unquoted(text: &str) -> String {
    for quote in ['"', '\''] {
        if let Some(inner) = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            return inner.to_owned();
        }
    }
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_lists_in_either_form() {
        let card = Card::of(
            "---\nlicense: apache-2.0 # as said\nlanguage:\n- en\n- no\ntags:\n  - a\n  - \"b: c\"\n\
             datasets: [x/y, 'z']\nmodel-index:\n  - name: deep\n    results:\n      - task: t\n\
             description: >-\n  two\n  lines\nbase_model: A/B\n---\nlicense: mit\n",
        );
        assert_eq!(card.text("license").as_deref(), Some("apache-2.0"));
        assert_eq!(card.list("language").unwrap(), ["en", "no"]);
        assert_eq!(card.list("tags").unwrap(), ["a", "b: c"]);
        assert_eq!(card.list("datasets").unwrap(), ["x/y", "z"]);
        assert_eq!(card.text("description").as_deref(), Some("two lines"));
        assert_eq!(card.list("base_model").unwrap(), ["A/B"]);
        assert!(card.get("model-index").is_none() && card.get("results").is_none());
    }

    #[test]
    fn a_card_without_a_head_says_nothing() {
        assert!(Card::of("# Title\nlicense: mit\n").entries.is_empty());
        assert!(Card::of("").entries.is_empty());
        // One that does not end is read as far as it goes.
        assert_eq!(Card::of("---\nlicense: mit").text("license").as_deref(), Some("mit"));
    }
}
