//! Words that prompts are made of: common ones, which most vocabularies have as one token each.

use crate::rng::Rng;

/// The words.
pub(crate) const WORDS: [&str; 160] = [
    "time",
    "year",
    "people",
    "way",
    "day",
    "man",
    "thing",
    "woman",
    "life",
    "child",
    "world",
    "school",
    "state",
    "family",
    "student",
    "group",
    "country",
    "problem",
    "hand",
    "part",
    "place",
    "case",
    "week",
    "company",
    "system",
    "program",
    "question",
    "work",
    "government",
    "number",
    "night",
    "point",
    "home",
    "water",
    "room",
    "mother",
    "area",
    "money",
    "story",
    "fact",
    "month",
    "lot",
    "right",
    "study",
    "book",
    "eye",
    "job",
    "word",
    "business",
    "issue",
    "side",
    "kind",
    "head",
    "house",
    "service",
    "friend",
    "father",
    "power",
    "hour",
    "game",
    "line",
    "end",
    "member",
    "law",
    "car",
    "city",
    "name",
    "president",
    "team",
    "minute",
    "idea",
    "body",
    "information",
    "back",
    "parent",
    "face",
    "others",
    "level",
    "office",
    "door",
    "health",
    "person",
    "art",
    "war",
    "history",
    "party",
    "result",
    "change",
    "morning",
    "reason",
    "research",
    "girl",
    "guy",
    "moment",
    "air",
    "teacher",
    "force",
    "education",
    "foot",
    "boy",
    "age",
    "policy",
    "process",
    "music",
    "market",
    "sense",
    "nation",
    "plan",
    "college",
    "interest",
    "death",
    "experience",
    "effect",
    "use",
    "class",
    "control",
    "care",
    "field",
    "development",
    "role",
    "effort",
    "rate",
    "heart",
    "drug",
    "show",
    "leader",
    "light",
    "voice",
    "wife",
    "police",
    "mind",
    "price",
    "report",
    "decision",
    "son",
    "view",
    "relationship",
    "town",
    "road",
    "arm",
    "difference",
    "value",
    "building",
    "action",
    "season",
    "society",
    "tax",
    "director",
    "position",
    "player",
    "record",
    "paper",
    "space",
    "ground",
    "form",
    "event",
    "official",
    "matter",
    "center",
    "couple",
];

/// Adds `n` words of `of` to a text.
pub(crate) fn append(text: &mut String, n: usize, of: &[&str], rng: &mut Rng) {
    for _ in 0..n {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(of[rng.below(of.len())]);
    }
}

/// Takes away the last `n` words.
pub(crate) fn remove(text: &mut String, n: usize) {
    for _ in 0..n {
        text.truncate(text.rfind(' ').unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_and_go() {
        let mut rng = Rng::new(1, "words");
        let mut text = "prefix".to_owned();
        append(&mut text, 5, &WORDS, &mut rng);
        assert_eq!(text.split(' ').count(), 6);
        remove(&mut text, 5);
        assert_eq!(text, "prefix");
        remove(&mut text, 3);
        assert_eq!(text, "");
        append(&mut text, 2, &["a"], &mut rng);
        assert_eq!(text, "a a");
        let mut sorted = WORDS.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), WORDS.len(), "every word once");
    }
}
