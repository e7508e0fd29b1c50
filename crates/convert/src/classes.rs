//! The keys that each class has in its configuration, and what it takes where a folder is silent: a table that
//! `tools/golden/keys.py` makes from `transformers`.

use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::OnceLock;

const TABLE: &str = include_str!("keys.txt");

/// The keys of a configuration.
#[derive(Debug, Default)]
pub(crate) struct Class {
    /// With values where the class has plain ones.
    keys: BTreeMap<&'static str, Option<Value>>,
    /// Names of keys by which folders may have them as well.
    others: BTreeMap<&'static str, &'static str>,
}

impl Class {
    /// Whether the class knows a key.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.keys.contains_key(key) || self.others.contains_key(key)
    }

    /// The value that the class takes where a folder does not have the key.
    pub(crate) fn takes(&self, key: &str) -> Option<&Value> {
        let key = self.others.get(key).copied().unwrap_or(key);
        self.keys.get(key)?.as_ref()
    }

    fn of(line: &'static str) -> Class {
        let mut class = Class::default();
        for word in line.split_ascii_whitespace() {
            if let Some((other, key)) = word.split_once('>') {
                class.others.insert(other, key);
                continue;
            }
            let (key, value) = word.split_once('=').unwrap_or((word, "null"));
            let value = serde_json::from_str(value).ok().filter(|value: &Value| !value.is_null());
            class.keys.insert(key.trim_end_matches('?'), value);
        }
        class
    }
}

/// The keys of a class by its name.
pub(crate) fn of(name: &str) -> Option<&'static Class> {
    static ALL: OnceLock<BTreeMap<&'static str, Class>> = OnceLock::new();
    let all = || {
        let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
        let lines = lines.filter_map(|line| line.split_once(": "));
        let classes =
            lines.flat_map(|(names, keys)| names.split(' ').map(move |name| (name, keys)));
        classes.map(|(name, keys)| (name, Class::of(keys))).collect()
    };
    ALL.get_or_init(all).get(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families;
    use serde_json::json;

    #[test]
    fn every_class_has_its_keys() {
        for class in families::all().flat_map(|family| family.classes) {
            let keys = of(class).unwrap_or_else(|| panic!("keys.txt has no {class}"));
            assert!(keys.keys.len() > 5, "{class}: {keys:?}");
        }
    }

    #[test]
    fn words_of_a_line_are_keys_values_and_other_names() {
        let class =
            Class::of("n_embd=768 hidden_size>n_embd rope_theta?=10000.0 n_inner act=\"gelu\"");
        assert!(class.has("hidden_size") && class.has("rope_theta") && class.has("n_inner"));
        assert_eq!(class.takes("hidden_size"), Some(&json!(768)));
        assert_eq!((class.takes("n_inner"), class.takes("act")), (None, Some(&json!("gelu"))));
        assert!(!class.has("n_head"));
    }
}
