//! What a site says of a repository: its files with checksums, its licence, names that are near.
//!
//! The Hugging Face Hub: `/api/models/ID/revision/main` for the commit and the licence,
//! `/api/models/ID/tree/COMMIT?recursive=true` for the files in pages, `/api/models?search=` for near
//! names, `/ID/resolve/COMMIT/FILE` for a file. ModelScope: `/api/v1/models/ID/repo/files` and
//! `/api/v1/models/ID/repo?FilePath=`.

use crate::digest::Checksum;
use crate::http::{Backoff, Http, Refusal, Trouble, escaped};
use crate::name::{Repo, Site, is_file};
use crate::near::near;
use crate::{Error, Settings};
use serde::Deserialize;
use std::thread::sleep;
use std::time::Duration;

/// A repository as it is now.
#[derive(Clone, Debug)]
pub(crate) struct Listing {
    /// The commit that `main` is at.
    pub(crate) commit: String,
    /// The branch's name.
    pub(crate) branch: &'static str,
    pub(crate) licence: Option<String>,
    pub(crate) files: Vec<RemoteFile>,
}

/// A file of a repository.
#[derive(Clone, Debug)]
pub(crate) struct RemoteFile {
    pub(crate) path: String,
    /// Bytes.
    pub(crate) size: u64,
    pub(crate) checksum: Checksum,
}

/// Asks a site about repositories.
pub(crate) struct Api<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) http: &'a Http,
}

#[derive(Deserialize)]
struct Info {
    sha: Option<String>,
    #[serde(rename = "cardData")]
    card: Option<Card>,
    #[serde(default)]
    tags: Vec<String>,
}

#[derive(Deserialize)]
struct Card {
    license: Option<serde_json::Value>,
    license_name: Option<String>,
}

impl Info {
    fn licence(&self) -> Option<String> {
        let card = self.card.as_ref();
        // Where the card says `other`, it may name the licence.
        let named = card.and_then(|card| card.license_name.clone());
        let license = card.and_then(|card| card.license.as_ref()?.as_str()).map(str::to_owned);
        let tag =
            || self.tags.iter().find_map(|tag| tag.strip_prefix("license:")).map(str::to_owned);
        license.or_else(tag).map(|license| match named {
            Some(name) if license == "other" => name,
            _ => license,
        })
    }
}

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    oid: String,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    oid: String,
    size: u64,
}

#[derive(Deserialize)]
struct Found {
    id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ScopeAnswer {
    data: Option<ScopeData>,
    message: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ScopeData {
    #[serde(default)]
    files: Vec<ScopeFile>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ScopeFile {
    path: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    sha256: String,
    #[serde(default, rename = "Type")]
    kind: String,
}

impl Api<'_> {
    /// A repository's files.
    pub(crate) fn listing(
        &self,
        repo: &Repo,
        wait: &mut dyn FnMut(&str, Duration),
    ) -> Result<Listing, Error> {
        match repo.site {
            Site::HuggingFace => self.of_hub(repo, wait),
            Site::ModelScope => self.of_modelscope(repo, wait),
        }
    }

    fn of_hub(&self, repo: &Repo, wait: &mut dyn FnMut(&str, Duration)) -> Result<Listing, Error> {
        let base = format!("{}/api/models/{}", self.settings.endpoint, repo.id());
        let (info, _): (Info, _) = self.json(repo, &format!("{base}/revision/main"), wait)?;
        let commit =
            info.sha.clone().filter(|sha| is_hex(sha, 40)).ok_or_else(|| Error::BadAnswer {
                url: format!("{base}/revision/main"),
                why: "it names no commit".into(),
            })?;
        let mut files = Vec::new();
        let mut page = Some(format!("{base}/tree/{commit}?recursive=true"));
        while let Some(url) = page {
            let (entries, next): (Vec<Entry>, _) = self.json(repo, &url, wait)?;
            for entry in
                entries.into_iter().filter(|entry| entry.kind == "file" && is_file(&entry.path))
            {
                let (size, checksum) = match entry.lfs {
                    Some(lfs) => (lfs.size, Checksum::sha256(&lfs.oid)),
                    None => (entry.size, Checksum::git(&entry.oid)),
                };
                let checksum = checksum.ok_or_else(|| Error::BadAnswer {
                    url: url.clone(),
                    why: format!("{} has no checksum", entry.path),
                })?;
                files.push(RemoteFile { path: entry.path, size, checksum });
            }
            page = next;
        }
        Ok(Listing { commit, branch: "main", licence: info.licence(), files })
    }

    fn of_modelscope(
        &self,
        repo: &Repo,
        wait: &mut dyn FnMut(&str, Duration),
    ) -> Result<Listing, Error> {
        let base = &self.settings.modelscope;
        let url =
            format!("{base}/api/v1/models/{}/repo/files?Revision=master&Recursive=True", repo.id());
        let (answer, _): (ScopeAnswer, _) = self.json(repo, &url, wait)?;
        let bad = |why: String| Error::BadAnswer { url: url.clone(), why };
        let data = answer
            .data
            .ok_or_else(|| bad(answer.message.unwrap_or_else(|| "it has no data".into())))?;
        let files =
            data.files.into_iter().filter(|file| file.kind != "tree" && is_file(&file.path));
        let files = files.map(|file| {
            let checksum = Checksum::sha256(&file.sha256)
                .ok_or_else(|| bad(format!("{} has no checksum", file.path)))?;
            Ok(RemoteFile { path: file.path, size: file.size, checksum })
        });
        // ModelScope names no commit that would stand for all files.
        let files = files.collect::<Result<_, Error>>()?;
        Ok(Listing { commit: "master".into(), branch: "master", licence: None, files })
    }

    /// Where a file's bytes are.
    pub(crate) fn file_url(&self, repo: &Repo, commit: &str, path: &str) -> String {
        let endpoint = self.settings.endpoint_of(repo.site);
        match repo.site {
            Site::HuggingFace => {
                format!("{endpoint}/{}/resolve/{commit}/{}", repo.id(), escaped(path, "/"))
            }
            Site::ModelScope => format!(
                "{endpoint}/api/v1/models/{}/repo?Revision={commit}&FilePath={}",
                repo.id(),
                escaped(path, "")
            ),
        }
    }

    /// Repositories with GGUF files that are called alike: of the same owner first, then of others.
    pub(crate) fn near(&self, repo: &Repo) -> Vec<String> {
        if repo.site != Site::HuggingFace {
            return Vec::new();
        }
        let search = |query: String| -> Vec<String> {
            let url = format!("{}/api/models?{query}&filter=gguf&limit=50", self.settings.endpoint);
            // A hint that cannot be had is none.
            let found: Result<(Vec<Found>, _), _> = self.http.json(&url);
            found.map(|(found, _)| found.into_iter().map(|f| f.id).collect()).unwrap_or_default()
        };
        let plain = repo.name.trim_end_matches("-GGUF").trim_end_matches("-gguf");
        let (author, plain) = (escaped(&repo.owner, ""), escaped(plain, ""));
        let other =
            |found: Vec<String>| found.into_iter().filter(|name| *name != repo.id()).collect();
        let ranked = |found: Vec<String>| near(&repo.id(), found.iter().map(String::as_str), 3);
        let tries: [&dyn Fn() -> Vec<String>; 3] = [
            &|| ranked(other(search(format!("author={author}&search={plain}")))),
            &|| ranked(other(search(format!("author={author}")))),
            &|| other(search(format!("search={plain}"))).into_iter().take(3).collect(),
        ];
        tries.iter().map(|look| look()).find(|names| !names.is_empty()).unwrap_or_default()
    }

    /// The JSON of an answer, after as many tries as it takes.
    fn json<T: serde::de::DeserializeOwned>(
        &self,
        repo: &Repo,
        url: &str,
        wait: &mut dyn FnMut(&str, Duration),
    ) -> Result<(T, Option<String>), Error> {
        let mut backoff = Backoff::new(self.settings);
        loop {
            match self.http.json(url) {
                Ok(answer) => return Ok(answer),
                Err(Trouble::Passing { why, wait: asked }) => {
                    let Some(time) = backoff.failed(asked) else {
                        return Err(Error::Cut {
                            file: repo.to_string(),
                            why,
                            tries: backoff.failures(),
                        });
                    };
                    wait(&why, time);
                    sleep(time);
                }
                Err(Trouble::Refused(refusal)) => return Err(self.refused(repo, refusal)),
                Err(other) => return Err(other.into_error()),
            }
        }
    }

    /// What a refusal means for a repository.
    pub(crate) fn refused(&self, repo: &Repo, refusal: Refusal) -> Error {
        let site = self.settings.host(repo.site).to_owned();
        let token = self.http.has_token();
        let says = |text: &str| refusal.message.as_ref().is_some_and(|m| m.contains(text));
        match (refusal.code.as_str(), refusal.status) {
            ("GatedRepo", _) => Error::Gated {
                repo: repo.id(),
                page: format!("{}/{}", self.settings.endpoint_of(repo.site), repo.id()),
                token,
            },
            (_, 401) if token && says("Invalid credentials") => {
                Error::BadToken { site, file: self.settings.token_file.clone() }
            }
            // The Hub answers 401 for what is not there, lest it tell what is private.
            ("RepoNotFound", _) | (_, 401) => {
                Error::NoRepository { site, repo: repo.id(), token, near: self.near(repo) }
            }
            ("", 404) => {
                Error::NoRepository { site, repo: repo.id(), token, near: self.near(repo) }
            }
            _ => refusal.into(),
        }
    }
}

pub(crate) fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}
