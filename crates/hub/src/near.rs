//! Names that are written nearly alike.

/// The names among these that are nearest to what was typed, at most `most`; none that has nothing to do
/// with it.
pub(crate) fn near<'a>(
    typed: &str,
    names: impl IntoIterator<Item = &'a str>,
    most: usize,
) -> Vec<String> {
    let plain = |text: &str| text.to_ascii_lowercase();
    let typed = plain(typed);
    let mut ranked: Vec<(usize, String)> = names
        .into_iter()
        .filter_map(|name| {
            let other = plain(name);
            let distance = distance(&typed, &other);
            let part = other.contains(&typed) || typed.contains(&other);
            (part || distance * 3 <= typed.chars().count()).then(|| (distance, name.to_owned()))
        })
        .collect();
    ranked.sort();
    ranked.dedup();
    ranked.into_iter().map(|(_, name)| name).take(most).collect()
}

/// Characters to insert, remove or replace to make one text the other.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_characters() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("qwen3", "qwen3"), 0);
        assert_eq!(distance("aé", "ae"), 1);
    }

    #[test]
    fn near_names_come_nearest_first_and_far_ones_not_at_all() {
        let names = ["qwen3:4b", "qwen3:14b", "llama3.2:1b", "qwen3:0.6b"];
        assert_eq!(near("qwen3:4", names, 2), ["qwen3:4b", "qwen3:14b"]);
        assert_eq!(near("Qwen3:4B", names, 1), ["qwen3:4b"]);
        assert_eq!(near("granite", names, 3), [""; 0]);
    }
}
