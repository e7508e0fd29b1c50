//! What people type to name a model, and what it means.
//!
//! ```text
//! [hf:|hf.co/|huggingface.co/|https://huggingface.co/]OWNER/REPO[:QUANT|:FILE]
//! ms:OWNER/REPO[...] or [https://][www.]modelscope.cn/[models/]OWNER/REPO[...]
//! NAME[:TAG[:QUANT]]
//! ```
//!
//! Addresses of files and folders, as a browser shows them (`.../blob/main/FILE`), are understood too.

use crate::Error;
use std::fmt;

/// Where a repository is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Site {
    /// The Hugging Face Hub, or what `HF_ENDPOINT` puts in its place.
    HuggingFace,
    /// ModelScope.
    ModelScope,
}

/// A repository of a site.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Repo {
    /// The site.
    pub site: Site,
    /// User or organisation.
    pub owner: String,
    /// The repository's own name.
    pub name: String,
}

impl Repo {
    /// `OWNER/REPO`.
    pub fn id(&self) -> String {
        format!("{}/{}", self.owner, self.name)
    }
}

/// As a name: Hugging Face needs no prefix.
impl fmt::Display for Repo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = match self.site {
            Site::HuggingFace => "",
            Site::ModelScope => "ms:",
        };
        write!(f, "{prefix}{}/{}", self.owner, self.name)
    }
}

/// Which of a repository's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pick {
    /// The one that most people would take.
    Default,
    /// The one of this quantisation, in whatever case.
    Quant(String),
    /// This one.
    File(String),
    /// The image encoder (`mmproj`), if need be the one of this type or in this file.
    Encoder(Option<String>),
}

/// A name that follows the grammar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// Files of a repository.
    Repo {
        /// The repository.
        repo: Repo,
        /// The files.
        pick: Pick,
    },
    /// A short name.
    Short {
        /// `qwen3`.
        family: String,
        /// `4b`.
        tag: Option<String>,
        /// A quantisation other than the table's.
        quant: Option<String>,
    },
}

impl Name {
    /// Reads a name.
    ///
    /// # Errors
    /// When it does not follow the grammar.
    pub fn parse(text: &str) -> Result<Name, Error> {
        let bad = |why| Error::BadName { text: text.to_owned(), why };
        let (site, rest) = site(text);
        if site.is_none() && !rest.contains('/') {
            return short(rest).ok_or_else(|| bad("it has characters that names do not have"));
        }
        // What a browser adds.
        let rest = rest.split(['?', '#']).next().unwrap_or(rest).trim_end_matches('/');
        let (path, pick) = match rest.split_once(':') {
            Some((_, "")) => return Err(bad("nothing comes after the colon")),
            Some((path, pick)) => (path, Some(pick)),
            None => (rest, None),
        };
        let mut parts = path.split('/');
        let (owner, name) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        if !is_word(owner) || !is_word(name) {
            return Err(bad("it is not an owner and a repository with a slash between"));
        }
        let more: Vec<&str> = parts.collect();
        let pick = match (&more[..], pick) {
            ([], None) => Pick::Default,
            ([], Some(pick)) if is_gguf(pick) && is_file(pick) => Pick::File(pick.to_owned()),
            ([], Some(pick)) if is_word(pick) => Pick::Quant(pick.to_owned()),
            ([], Some(_)) => {
                return Err(bad("what comes after the colon is no quantisation and no file"));
            }
            (["tree", "main" | "master"], None) => Pick::Default,
            (["blob" | "resolve", "main" | "master", file @ ..], None) => {
                let file = file.join("/");
                if !is_gguf(&file) || !is_file(&file) {
                    return Err(bad("the address is not that of a GGUF file"));
                }
                Pick::File(file)
            }
            _ => return Err(bad("more comes after owner and repository")),
        };
        let site = site.unwrap_or(Site::HuggingFace);
        Ok(Name::Repo { repo: Repo { site, owner: owner.into(), name: name.into() }, pick })
    }
}

/// The site that a name begins with, and the rest of it.
fn site(text: &str) -> (Option<Site>, &str) {
    let bare = ["https://", "http://"].iter().find_map(|p| text.strip_prefix(p)).unwrap_or(text);
    for host in ["hf.co/", "huggingface.co/", "www.huggingface.co/"] {
        if let Some(rest) = bare.strip_prefix(host) {
            return (Some(Site::HuggingFace), rest);
        }
    }
    for host in ["modelscope.cn/", "www.modelscope.cn/", "modelscope.ai/", "www.modelscope.ai/"] {
        if let Some(rest) = bare.strip_prefix(host) {
            return (Some(Site::ModelScope), rest.strip_prefix("models/").unwrap_or(rest));
        }
    }
    if let Some(rest) = text.strip_prefix("hf:") {
        return (Some(Site::HuggingFace), rest);
    }
    if let Some(rest) = text.strip_prefix("ms:") {
        return (Some(Site::ModelScope), rest);
    }
    (None, text)
}

fn short(text: &str) -> Option<Name> {
    let mut parts = text.split(':');
    let family = parts.next().filter(|p| is_word(p))?.to_owned();
    let [tag, quant] = [parts.next(), parts.next()];
    if parts.next().is_some() || [tag, quant].iter().flatten().any(|p| !is_word(p)) {
        return None;
    }
    Some(Name::Short { family, tag: tag.map(str::to_owned), quant: quant.map(str::to_owned) })
}

/// Letters, digits, `.`, `_` and `-`, as the Hub allows; never `.` or `..`.
fn is_word(text: &str) -> bool {
    let known = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    !text.is_empty()
        && text.len() <= 96
        && text.bytes().all(known)
        && !text.starts_with(['.', '-'])
        && !text.contains("..")
}

fn is_gguf(text: &str) -> bool {
    text.len() > 5
        && text.is_char_boundary(text.len() - 5)
        && text[text.len() - 5..].eq_ignore_ascii_case(".gguf")
}

/// A path inside a repository that stays inside it.
pub(crate) fn is_file(path: &str) -> bool {
    let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    path.split('/').all(plain) && !path.contains(['\\', '\0'])
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Repo { repo, pick } => match pick {
                Pick::Default | Pick::Encoder(None) => write!(f, "{repo}"),
                Pick::Encoder(Some(pick)) => write!(f, "{repo}:{pick}"),
                Pick::Quant(pick) | Pick::File(pick) => write!(f, "{repo}:{pick}"),
            },
            Name::Short { family, tag, quant } => {
                write!(f, "{family}")?;
                [tag, quant].iter().try_for_each(|part| match part {
                    Some(part) => write!(f, ":{part}"),
                    None => Ok(()),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repo(text: &str) -> (Site, String, Pick) {
        match Name::parse(text).unwrap() {
            Name::Repo { repo, pick } => (repo.site, repo.id(), pick),
            short => panic!("{text} is {short:?}"),
        }
    }

    #[test]
    fn a_repository_is_named_in_many_ways() {
        let plain = (Site::HuggingFace, "Qwen/Qwen3-4B-GGUF".to_owned(), Pick::Default);
        for before in
            ["", "hf:", "hf.co/", "huggingface.co/", "https://huggingface.co/", "https://hf.co/"]
        {
            assert_eq!(repo(&format!("{before}Qwen/Qwen3-4B-GGUF")), plain);
        }
        assert_eq!(repo("https://huggingface.co/Qwen/Qwen3-4B-GGUF/tree/main"), plain);
        assert_eq!(repo("https://huggingface.co/Qwen/Qwen3-4B-GGUF/?x=1"), plain);
        assert_eq!(repo("a/b:q4_k_m").2, Pick::Quant("q4_k_m".into()));
        assert_eq!(repo("a/b:UD-Q4_K_XL").2, Pick::Quant("UD-Q4_K_XL".into()));
        assert_eq!(repo("a/b:Q8_0/b-Q8_0.gguf").2, Pick::File("Q8_0/b-Q8_0.gguf".into()));
        let file = Pick::File("sub/b-Q8_0.gguf".into());
        assert_eq!(repo("https://huggingface.co/a/b/blob/main/sub/b-Q8_0.gguf").2, file);
        assert_eq!(repo("hf.co/a/b/resolve/main/sub/b-Q8_0.gguf?download=true").2, file);
        assert_eq!(
            repo("ms:a/b:Q8_0"),
            (Site::ModelScope, "a/b".into(), Pick::Quant("Q8_0".into()))
        );
        assert_eq!(repo("https://www.modelscope.cn/models/a/b").0, Site::ModelScope);
        assert_eq!(repo("modelscope.cn/a/b").1, "a/b");
    }

    #[test]
    fn short_names_have_a_tag_and_a_quantisation() {
        let short = |text: &str| Name::parse(text).unwrap().to_string();
        for text in ["qwen3", "qwen3:4b", "gpt-oss:20b", "qwen3:4b:Q8_0", "qwen2.5:0.5b"] {
            assert_eq!(short(text), text);
        }
        assert!(
            matches!(Name::parse("qwen3:4b").unwrap(), Name::Short { tag: Some(t), .. } if t == "4b")
        );
    }

    #[test]
    fn names_that_are_none_are_told() {
        for text in [
            "",
            "/",
            "a/",
            "/b",
            "a/b/c",
            "a/b:",
            ":",
            "a b",
            "a/b:c:d",
            "../b",
            "a/..",
            "a/b:../x.gguf",
            "a/b:/x.gguf",
            "hf:a",
            "hf.co/a",
            "ms:",
            "a:b:c:d",
            "a:",
            "a/b:x y",
            "é/b",
            "a/b/blob/main/x.txt",
            "a/b/blob/other/x.gguf",
            "a/b/tree/main:Q4_0",
            "-a/b",
            "é.gguf:",
            "a/b:é",
        ] {
            let error = Name::parse(text).expect_err(text).to_string();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn what_is_printed_is_read_again() {
        for text in ["a/b", "a/b:Q4_0", "a/b:x/y.gguf", "ms:a/b:Q4_0", "qwen3:4b:q8_0"] {
            let name = Name::parse(text).unwrap();
            assert_eq!(name.to_string(), text);
            assert_eq!(Name::parse(&name.to_string()).unwrap(), name);
        }
    }
}
