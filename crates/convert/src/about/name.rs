//! What the name of a model says: `Meta-Llama-3.1-8B-Instruct` has a base, a version, a size and a purpose.
//!
//! The rules are those of llama.cpp's converter, so that files are named alike.

use regex::Regex;
use std::sync::LazyLock;

/// Parts of a name.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Parts {
    /// The whole, without the organisation.
    pub(super) name: Option<String>,
    pub(super) organization: Option<String>,
    pub(super) basename: Option<String>,
    pub(super) finetune: Option<String>,
    pub(super) version: Option<String>,
    pub(super) size: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Base,
    Size,
    Finetune,
    Version,
    Type,
}

/// A word with what it may be.
struct Word {
    text: String,
    kinds: Vec<Kind>,
}

impl Word {
    fn is(&self, kind: Kind) -> bool {
        self.kinds.contains(&kind)
    }
}

/// One pattern for each kind that a whole word may be, in order.
static PATTERNS: LazyLock<[(Kind, Regex); 4]> = LazyLock::new(|| {
    [
        (Kind::Version, r"(v|iter)?\d+([.]\d+)*"),
        (Kind::Type, r"i?q\d(_\w)*|b?fp?(16|32)"),
        (Kind::Size, r"([A]|\d+[x])?\d+([._]\d+)?[KMBT][\d]?|small|mini|medium|large|x?xl"),
        (Kind::Finetune, r"chat|instruct|vision|lora"),
    ]
    .map(|(kind, words)| {
        (kind, Regex::new(&format!("(?i)^(?:{words})$")).expect("a constant pattern"))
    })
});

impl Parts {
    /// Of `OWNER/NAME`, `NAME` or a sentence, of a model of so many parameters.
    pub(super) fn of(id: &str, parameters: u64) -> Parts {
        if id.contains(' ') {
            return Parts { name: Some(id.to_owned()), ..Parts::default() };
        }
        let (organization, name) = match id.split_once('/') {
            Some((org, name)) => (Some(org).filter(|org| !org.starts_with('.')), name),
            None => (None, id),
        };
        let mut words: Vec<Word> = name
            .split('-')
            .filter(|word| !word.is_empty())
            .enumerate()
            .map(|(at, word)| Word::of(word, at, parameters))
            .collect();
        // Words for a size count only where no number does.
        let digits =
            |word: &Word| word.is(Kind::Size) && word.text.contains(|c: char| c.is_ascii_digit());
        if words.iter().any(digits) {
            for word in &mut words {
                if word.text.chars().all(char::is_alphabetic) {
                    word.kinds.retain(|kind| *kind != Kind::Size);
                }
            }
        }
        let mut at_start = true;
        for word in &mut words {
            let begins = word.kinds.is_empty() && word.text.starts_with(char::is_alphabetic);
            if at_start && (begins || word.is(Kind::Version)) {
                word.kinds.push(Kind::Base);
            } else {
                at_start = false;
                if word.kinds.is_empty() {
                    word.kinds.push(Kind::Finetune);
                }
            }
        }
        // A version at the end of the base is one of its own.
        for word in words.iter_mut().rev() {
            if !word.is(Kind::Base) || word.kinds.len() < 2 {
                break;
            }
            word.kinds.retain(|kind| *kind != Kind::Base);
        }
        let joined = |wanted: &dyn Fn(&Word) -> bool| {
            let words: Vec<&str> = words.iter().filter(|w| wanted(w)).map(|w| &*w.text).collect();
            (!words.is_empty()).then(|| words.join("-"))
        };
        let mut sizes: Vec<&str> = Vec::new();
        for word in words.iter().filter(|word| word.is(Kind::Size)) {
            if !sizes.contains(&&*word.text) {
                sizes.push(&word.text);
            }
        }
        let size = (!sizes.is_empty()).then(|| sizes.join("-"));
        let finetune = joined(&|word| word.is(Kind::Finetune));
        let version = joined(&|word| word.is(Kind::Version) && !word.is(Kind::Base));
        let base = joined(&|word| word.is(Kind::Base));
        // A base alone could be anything.
        let told = size.is_some() || finetune.is_some() || version.is_some();
        Parts {
            name: Some(name.to_owned()),
            organization: organization.map(str::to_owned),
            basename: base.filter(|_| told),
            finetune,
            version,
            size,
        }
    }
}

impl Word {
    fn of(word: &str, at: usize, parameters: u64) -> Word {
        let mut found = Word { text: word.to_owned(), kinds: Vec::new() };
        let kind = PATTERNS.iter().find(|(kind, pattern)| {
            let anywhere = matches!(kind, Kind::Version | Kind::Type);
            (anywhere || at > 0) && pattern.is_match(word)
        });
        match kind.map(|(kind, _)| *kind) {
            Some(Kind::Type) => {
                found.text = word.to_uppercase();
                found.kinds.push(Kind::Type);
            }
            Some(Kind::Size) => found.size(parameters),
            Some(kind) => found.kinds.push(kind),
            None => {}
        }
        found
    }

    /// A size, or what is written like one: a length of context.
    fn size(&mut self, parameters: u64) {
        let mut text: Vec<char> = self.text.replace('_', ".").chars().collect();
        let n = text.len();
        // `7b1` is 7.1b.
        if text[n - 1].is_ascii_digit() && n > 1 {
            let (unit, digit) = (text[n - 2], text[n - 1]);
            text.truncate(n - 2);
            text.extend(['.', digit, unit]);
        }
        let n = text.len();
        if n > 1 && text[n - 2].is_ascii_digit() && "kmbt".contains(text[n - 1]) {
            text[n - 1] = text[n - 1].to_ascii_uppercase();
        }
        let number: String = text[..n - 1].iter().collect();
        let power = " KMBT".find(text[n - 1]);
        if let (Ok(number), Some(power), true) = (number.parse::<f64>(), power, parameters != 0) {
            let label = number * 1000_f64.powi(power as i32);
            if (label - parameters as f64).abs() > (7 * parameters / 8) as f64 {
                self.kinds.push(Kind::Finetune);
                text[n - 1] = text[n - 1].to_ascii_lowercase();
            }
        }
        if self.kinds.is_empty() {
            self.kinds.push(Kind::Size);
        }
        self.text = text.into_iter().collect();
    }
}

/// A name for people: words apart, each with a capital unless it has some or is a version.
pub(super) fn title(name: &str) -> String {
    let words = name.replace('-', " ");
    let words: Vec<String> = words.split_whitespace().map(capitalised).collect();
    words.join(" ")
}

fn capitalised(word: &str) -> String {
    let version = word.strip_prefix('v').is_some_and(|rest| {
        rest.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    });
    let lower = word.contains(char::is_lowercase) && !word.contains(char::is_uppercase);
    if !lower || version || word.starts_with(|c: char| c.is_ascii_digit()) {
        return word.to_owned();
    }
    let mut begins = true;
    let letter = |c: char| {
        let capital = begins && c.is_alphabetic();
        begins = !c.is_alphabetic();
        if capital { c.to_uppercase().collect::<String>() } else { c.to_string() }
    };
    word.chars().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(id: &str, parameters: u64) -> [Option<String>; 5] {
        let p = Parts::of(id, parameters);
        [p.organization, p.basename, p.version, p.size, p.finetune]
    }

    #[test]
    fn names_of_the_hub_are_taken_apart() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            parts("Mistral/Mixtral-8x7B-Instruct-v0.1", 0),
            [some("Mistral"), some("Mixtral"), some("v0.1"), some("8x7B"), some("Instruct")]
        );
        assert_eq!(
            parts("meta-llama/Llama-3.1-8B-Instruct", 8_030_000_000),
            [some("meta-llama"), some("Llama-3.1"), None, some("8B"), some("Instruct")]
        );
        assert_eq!(
            parts("Qwen3-0.6B", 596_000_000),
            [None, some("Qwen3"), None, some("0.6B"), None]
        );
        // A length of context is no size, and a number for a size goes before a word.
        assert_eq!(
            parts("Phi-3-mini-4k-instruct", 3_820_000_000),
            [None, some("Phi-3"), None, some("mini"), some("4k-instruct")]
        );
        assert_eq!(
            parts("Ling-mini-2.0", 0),
            [None, some("Ling"), some("2.0"), some("mini"), None]
        );
        assert_eq!(parts("granite-3.3-2b-instruct", 2_500_000_000)[3], some("2B"));
        assert_eq!(parts("bloom-7b1", 0)[3], some("7.1B"));
        assert_eq!(parts("novel", 0), [None, None, None, None, None]);
        assert_eq!(Parts::of("A sentence", 0).name, some("A sentence"));
    }

    #[test]
    fn titles_have_capitals_where_names_have_none() {
        assert_eq!(title("tiny-random-llama-v2.1"), "Tiny Random Llama v2.1");
        assert_eq!(title("Qwen3-0.6b"), "Qwen3 0.6b");
        assert_eq!(title("qwen3_tied"), "Qwen3_Tied");
    }
}
