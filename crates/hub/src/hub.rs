//! Names to models: what is here, what a site has, and the way from there to here.

use crate::api::{Api, Listing, RemoteFile};
use crate::cache::{RepoFolder, files_below};
use crate::choose::{self, NoChoice};
use crate::fetch::fetch;
use crate::http::Http;
use crate::local::{self, Cached, Model, Place};
use crate::name::{Pick, Repo, Site};
use crate::near::near;
use crate::partial::{self, Partial, Unfinished};
use crate::{Error, Name, Settings, ollama, table};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// How far a download is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A file's download begins.
    Begin {
        /// Its name in the repository.
        file: &'a str,
        /// Its bytes.
        bytes: u64,
        /// Of these, how many were here already.
        done: u64,
    },
    /// So many more bytes have come.
    Bytes(u64),
    /// Something failed that may pass; the next try comes after a wait.
    Wait {
        /// What failed.
        why: &'a str,
        /// The time until the next try.
        wait: Duration,
    },
    /// Another program fetches this file, and it is waited for.
    Busy {
        /// Its name in the repository.
        file: &'a str,
    },
    /// A file is here, and its checksum is right.
    End,
}

/// What a site has by a name.
#[derive(Clone, Debug)]
pub struct Remote {
    repo: Repo,
    commit: String,
    branch: &'static str,
    files: Vec<RemoteFile>,
    /// The image encoder that goes with it.
    encoder: Option<RemoteFile>,
    /// Bytes of it that are to be fetched yet.
    missing_encoder: u64,
    /// Licence of the weights, by the site's identifier.
    pub licence: Option<String>,
    /// As files are labelled: `Q4_K_M`; empty if its name does not tell.
    pub quant: String,
    /// Bytes that are to be fetched yet; 0 when all is here.
    pub missing: u64,
}

impl Remote {
    /// The repository.
    pub fn repo(&self) -> &Repo {
        &self.repo
    }

    /// Its files and their bytes.
    pub fn files(&self) -> impl Iterator<Item = (&str, u64)> {
        self.files.iter().map(|file| (file.path.as_str(), file.size))
    }

    /// Its files and their SHA-256 as hexadecimal digits, of those for which the site tells it.
    pub fn digests(&self) -> impl Iterator<Item = (&str, &str)> {
        let known = self.files.iter().filter(|file| file.checksum.kind() == "sha256");
        known.map(|file| (file.path.as_str(), file.checksum.hex()))
    }

    /// Bytes of all files, that of the image encoder among them.
    pub fn bytes(&self) -> u64 {
        self.all().map(|file| file.size).sum()
    }

    /// The image encoder (`mmproj`) that the repository has for the model, which is fetched with it, and its bytes.
    pub fn encoder(&self) -> Option<(&str, u64)> {
        self.encoder.as_ref().map(|file| (file.path.as_str(), file.size))
    }

    /// Leaves the image encoder out of what is fetched.
    pub fn without_encoder(&mut self) {
        self.encoder = None;
        self.missing = self.missing.saturating_sub(self.missing_encoder);
        self.missing_encoder = 0;
    }

    fn all(&self) -> impl Iterator<Item = &RemoteFile> {
        self.files.iter().chain(&self.encoder)
    }
}

/// The models of this machine, and the way to more.
#[derive(Debug)]
pub struct Hub {
    settings: Settings,
}

impl Hub {
    /// With these sites and folders.
    pub fn new(settings: Settings) -> Hub {
        Hub { settings }
    }

    /// The sites and folders.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The models on this machine that a name stands for, the one to take first. Those of Ollama come last:
    /// some of them only Ollama can read.
    pub fn find(&self, name: &Name) -> Vec<Model> {
        match name {
            Name::Repo { repo, pick } => local::of_repo(&self.settings, repo, pick),
            Name::Short { family, tag, quant } => {
                let short = table::find(family, tag.as_deref());
                let mut found = short.map_or_else(Vec::new, |short| {
                    let pick = short.pick(quant.as_deref());
                    local::of_repo(&self.settings, &short.repo(), &pick)
                });
                if quant.is_none() {
                    found.extend(ollama::of_short(&self.settings.ollama, family, tag.as_deref()));
                }
                found.sort_by_key(|model| model.place == Place::Ollama);
                found
            }
        }
    }

    /// The name of the image encoder that is meant where a name stands for one: a file by its name, and otherwise the
    /// encoder of the repository, with the type that the name says.
    ///
    /// # Errors
    /// When a short name is unknown.
    pub fn encoder_name(&self, name: &Name) -> Result<Name, Error> {
        let asked = match name {
            Name::Repo { pick: Pick::Quant(asked) | Pick::File(asked), .. } => Some(asked.clone()),
            Name::Repo { .. } => None,
            Name::Short { quant, .. } => quant.clone(),
        };
        let (repo, _) = self.meaning(name)?;
        Ok(Name::Repo { repo, pick: Pick::Encoder(asked) })
    }

    /// All models on this machine.
    pub fn models(&self) -> Vec<Model> {
        local::all(&self.settings)
    }

    /// Downloads that were not finished, with their repositories.
    pub fn unfinished(&self) -> Vec<(Repo, Unfinished)> {
        let all = [Site::HuggingFace, Site::ModelScope].into_iter();
        all.flat_map(|site| RepoFolder::all(self.settings.cache_of(site), site))
            .flat_map(|(repo, folder)| {
                let found = partial::unfinished(&folder.blobs());
                found.into_iter().map(move |file| (repo.clone(), file))
            })
            .collect()
    }

    /// That a name stands for nothing on this machine, with names that are near.
    pub fn not_here(&self, name: &Name) -> Error {
        let models = self.models();
        let names = models.iter().map(|model| model.name.as_str());
        let typed = name.to_string();
        let repo = typed.split(':').next().unwrap_or(&typed);
        let mut close = near(&typed, names.clone(), 3);
        if close.is_empty() {
            close = near(repo, names, 3);
        }
        Error::NotHere { name: typed, near: close }
    }

    /// The repository and files that a name stands for.
    fn meaning(&self, name: &Name) -> Result<(Repo, Pick), Error> {
        match name {
            Name::Repo { repo, pick } => Ok((repo.clone(), pick.clone())),
            Name::Short { family, tag, quant } => match table::find(family, tag.as_deref()) {
                Some(short) => Ok((short.repo(), short.pick(quant.as_deref()))),
                None => {
                    let typed = name.to_string();
                    let names = table::shorts().iter().map(|short| short.name.as_str());
                    Err(Error::UnknownShort { near: near(&typed, names, 4), name: typed })
                }
            },
        }
    }

    /// Asks the site what a name stands for.
    ///
    /// # Errors
    /// When the name means nothing, the site does not have it or cannot be asked, or when offline.
    pub fn look(&self, name: &Name, report: &mut dyn FnMut(Event<'_>)) -> Result<Remote, Error> {
        let (repo, pick) = self.meaning(name)?;
        if self.settings.offline {
            return Err(Error::Offline { name: name.to_string() });
        }
        let http = self.http(repo.site)?;
        let api = Api { settings: &self.settings, http: &http };
        let listing = api.listing(&repo, &mut |why, wait| report(Event::Wait { why, wait }))?;
        let (quant, files) = pick_of(&api, &repo, &pick, &listing)?;
        let encoder = match pick {
            Pick::Encoder(_) => None,
            _ => encoder_of(&files, &listing),
        };
        let folder = self.folder(&repo);
        let left = |file: &RemoteFile| match folder.blob(file.checksum.hex()).exists() {
            true => 0,
            false => {
                let begun = partial::unfinished(&folder.blobs());
                let begun = begun.into_iter().find(|b| b.file == file.path && b.size == file.size);
                file.size - begun.map_or(0, |b| b.done)
            }
        };
        let missing_encoder = encoder.as_ref().map_or(0, left);
        let missing = files.iter().map(left).sum::<u64>() + missing_encoder;
        let Listing { commit, branch, licence, .. } = listing;
        Ok(Remote {
            repo,
            commit,
            branch,
            files,
            encoder,
            missing_encoder,
            licence,
            quant,
            missing,
        })
    }

    /// Brings what a site has: only what is not here yet.
    ///
    /// # Errors
    /// When there is too little room, the site or the network fails for good, or the bytes that come are
    /// not the repository's. What has come by then is kept for the next try, unless it was damaged.
    pub fn fetch(
        &self,
        remote: &Remote,
        report: &mut dyn FnMut(Event<'_>),
    ) -> Result<Model, Error> {
        let folder = self.folder(&remote.repo);
        folder.create()?;
        check_space(&folder.blobs(), remote.missing)?;
        let http = self.http(remote.repo.site)?;
        let api = Api { settings: &self.settings, http: &http };
        for file in remote.all() {
            let etag = file.checksum.hex();
            let blob = folder.blob(etag);
            let _lock = folder.lock(etag, &mut || report(Event::Busy { file: &file.path }))?;
            if !blob.exists() {
                let mut partial = Partial::open(&folder, &file.path, file.size, &file.checksum)?;
                let done = partial.done();
                report(Event::Begin { file: &file.path, bytes: file.size, done });
                match fetch(&api, &remote.repo, &remote.commit, file, &mut partial, report) {
                    Ok(()) => partial.finish(&blob)?,
                    Err(damaged @ Error::Checksum { .. }) => {
                        partial.discard()?;
                        return Err(damaged);
                    }
                    Err(e) => return Err(e),
                }
                report(Event::End);
            }
            partial::tidy(&folder, &file.checksum)?;
            folder.link(&remote.commit, &file.path, etag)?;
        }
        folder.set_branch(remote.branch, &remote.commit)?;
        let files: Vec<String> = remote.files.iter().map(|file| file.path.clone()).collect();
        let snapshot = folder.pointer(&remote.commit, "");
        let chosen = choose::Candidate { quant: remote.quant.clone(), files };
        let pick = Pick::File(chosen.files[0].clone());
        Ok(local::cached(&remote.repo, &folder, &snapshot, chosen, &pick))
    }

    /// Removes a model from the cache; gives the bytes that are free now.
    ///
    /// # Errors
    /// When it belongs to another program, or its files cannot be removed.
    pub fn remove(&self, model: &Model) -> Result<u64, Error> {
        let Some(Cached { folder, files }) = &model.cached else {
            let owner = match model.place {
                Place::LmStudio => "LM Studio",
                _ => "Ollama",
            };
            return Err(Error::NotOurs { path: model.path().to_owned(), owner });
        };
        let mut freed = folder.remove(files)?;
        // Without a model its image encoder is of no use.
        let rest = || folder.snapshots().into_iter().flat_map(|one| files_below(&one));
        if !rest().any(|file| file.ends_with(".gguf") && !choose::is_encoder(&file)) {
            let encoders: Vec<String> = rest().filter(|file| choose::is_encoder(file)).collect();
            freed += folder.remove(&encoders)?;
        }
        Ok(freed)
    }

    /// Removes what has come of a download that was not finished; gives the bytes that are free now.
    ///
    /// # Errors
    /// When the files cannot be removed.
    pub fn remove_unfinished(&self, repo: &Repo, file: &Unfinished) -> Result<u64, Error> {
        for path in file.paths.iter().filter(|path| path.exists()) {
            fs::remove_file(path).map_err(Error::io("remove", path))?;
        }
        self.folder(repo).remove_if_empty()?;
        Ok(file.done)
    }

    fn folder(&self, repo: &Repo) -> RepoFolder {
        RepoFolder::new(self.settings.cache_of(repo.site), repo)
    }

    fn http(&self, site: Site) -> Result<Http, Error> {
        let token = self.settings.token.as_deref().filter(|_| site == Site::HuggingFace);
        Http::new(&self.settings, self.settings.endpoint_of(site), token)
    }
}

/// The image encoder that a repository has for a model.
fn encoder_of(model: &[RemoteFile], listing: &Listing) -> Option<RemoteFile> {
    let first = model.first().filter(|file| !choose::is_encoder(&file.path))?;
    let names: Vec<String> = listing.files.iter().map(|file| file.path.clone()).collect();
    let name = choose::encoder_beside(&names, &first.path)?;
    listing.files.iter().find(|file| file.path == name).cloned()
}

/// The files of a listing that are asked for, and how they are labelled.
fn pick_of(
    api: &Api<'_>,
    repo: &Repo,
    pick: &Pick,
    listing: &Listing,
) -> Result<(String, Vec<RemoteFile>), Error> {
    let names: Vec<String> = listing.files.iter().map(|file| file.path.clone()).collect();
    match choose::choose(&names, pick) {
        Ok(chosen) => {
            let file =
                |name: &String| listing.files.iter().find(|file| file.path == *name).cloned();
            Ok((chosen.quant, chosen.files.iter().filter_map(file).collect()))
        }
        Err(NoChoice::NoGguf) => {
            Err(Error::NoGguf { repo: repo.to_string(), near: api.near(repo) })
        }
        Err(NoChoice::NotAmong { asked, have }) => {
            Err(Error::NoFile { repo: repo.to_string(), asked, have })
        }
        Err(NoChoice::Incomplete { first, missing }) => {
            Err(Error::MissingPart { repo: repo.to_string(), first, missing })
        }
    }
}

/// Whether a folder's file system has room.
fn check_space(folder: &Path, need: u64) -> Result<(), Error> {
    let free = fs4::available_space(folder).map_err(Error::io("ask for free space of", folder))?;
    if need <= free {
        return Ok(());
    }
    Err(Error::NoSpace { folder: folder.to_owned(), need, free })
}
