//! The short names, from `data/models.toml`.

use crate::name::{Pick, Repo, Site};
use serde::Deserialize;
use std::sync::LazyLock;

/// A model with a short name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Short {
    /// `FAMILY:TAG`.
    pub name: String,
    /// `OWNER/REPO` on the Hugging Face Hub.
    repo: String,
    /// The quantisation that is taken when none is named.
    pub quant: String,
    /// Bytes of its files, rounded.
    pub size: u64,
    /// Licence of the weights, by the Hub's identifier.
    pub licence: String,
}

impl Short {
    /// The repository.
    pub fn repo(&self) -> Repo {
        let (owner, name) = self.repo.split_once('/').expect("the table is tested");
        Repo { site: Site::HuggingFace, owner: owner.to_owned(), name: name.to_owned() }
    }

    /// The files, if another quantisation than the usual may be named.
    pub(crate) fn pick(&self, quant: Option<&str>) -> Pick {
        Pick::Quant(quant.unwrap_or(&self.quant).to_owned())
    }

    fn family(&self) -> &str {
        self.name.split(':').next().unwrap_or(&self.name)
    }
}

/// All short names, in the order of the file.
pub fn shorts() -> &'static [Short] {
    #[derive(Deserialize)]
    struct Table {
        model: Vec<Short>,
    }
    static TABLE: LazyLock<Vec<Short>> = LazyLock::new(|| {
        let table: Table =
            toml::from_str(include_str!("../data/models.toml")).expect("the table is tested");
        table.model
    });
    &TABLE
}

/// The model of a family and a tag; without a tag, the family's first.
pub(crate) fn find(family: &str, tag: Option<&str>) -> Option<&'static Short> {
    shorts().iter().find(|short| match tag {
        Some(tag) => short.name.eq_ignore_ascii_case(&format!("{family}:{tag}")),
        None => short.family().eq_ignore_ascii_case(family),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Name, choose};
    use std::collections::BTreeSet;

    #[test]
    fn every_row_is_a_name_and_a_repository() {
        let mut names = BTreeSet::new();
        for short in shorts() {
            assert!(names.insert(&short.name), "{} stands twice", short.name);
            assert_eq!(Name::parse(&short.name).unwrap().to_string(), short.name);
            let id = short.repo().id();
            assert!(matches!(Name::parse(&id), Ok(Name::Repo { .. })), "{id}");
            // A file that is called as the table says would be found.
            let file = format!("x-{}.gguf", short.quant);
            assert_eq!(choose::quant(&file), short.quant);
            assert!((100_000_000..1_000_000_000_000).contains(&short.size), "{}", short.name);
            assert!(!short.licence.is_empty());
        }
        assert!(names.len() >= 30);
    }

    #[test]
    fn a_family_alone_is_its_first() {
        assert_eq!(find("qwen3", None).unwrap().name, "qwen3:4b");
        assert_eq!(find("Qwen3", Some("0.6B")).unwrap().name, "qwen3:0.6b");
        assert_eq!(find("qwen3", Some("5b")), None);
        assert_eq!(find("qwen", None), None);
    }
}
