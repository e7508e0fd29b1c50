//! Models that are on this machine: in the Hub's cache, in LM Studio's and in Ollama's folders.

use crate::cache::{RepoFolder, files_below};
use crate::choose::{self, Candidate};
use crate::name::{Pick, Repo, Site};
use crate::{Name, Settings, ollama};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Whose folder a model is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The Hugging Face Hub's cache.
    HuggingFace,
    /// What came from ModelScope.
    ModelScope,
    /// LM Studio's.
    LmStudio,
    /// Ollama's.
    Ollama,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Place::HuggingFace => "Hugging Face",
            Place::ModelScope => "ModelScope",
            Place::LmStudio => "LM Studio",
            Place::Ollama => "Ollama",
        })
    }
}

/// A model on this machine.
#[derive(Clone, Debug)]
pub struct Model {
    /// A name that finds it again.
    pub name: String,
    /// Whose it is.
    pub place: Place,
    /// As files are labelled: `Q4_K_M`; empty if its name does not tell.
    pub quant: String,
    /// Its files; the first is the one to open.
    pub files: Vec<PathBuf>,
    /// Bytes of its files.
    pub bytes: u64,
    /// When it was last read, as far as the file system records that.
    pub used: Option<SystemTime>,
    /// Where it is in a cache.
    pub(crate) cached: Option<Cached>,
}

/// A model's place in a cache.
#[derive(Clone, Debug)]
pub(crate) struct Cached {
    pub(crate) folder: RepoFolder,
    /// Its files by their names in the repository.
    pub(crate) files: Vec<String>,
}

impl Model {
    pub(crate) fn new(name: String, place: Place, quant: String, files: Vec<PathBuf>) -> Model {
        let facts: Vec<_> = files.iter().filter_map(|file| fs::metadata(file).ok()).collect();
        let used =
            facts.iter().filter_map(|m| m.accessed().ok()?.max(m.modified().ok()?).into()).max();
        let bytes = facts.iter().map(fs::Metadata::len).sum();
        Model { name, place, quant, files, bytes, used, cached: None }
    }

    /// The file to open.
    pub fn path(&self) -> &Path {
        &self.files[0]
    }

    /// Whether files are in the cache's own layout, and may be removed.
    pub fn is_ours(&self) -> bool {
        self.cached.is_some()
    }
}

/// The image encoder (`mmproj`) that goes with a model in a folder of a repository's files; the model's path and the
/// result are relative to the folder.
pub fn encoder_beside(folder: &Path, model: &Path) -> Option<PathBuf> {
    choose::encoder_beside(&files_below(folder), model.to_str()?).map(PathBuf::from)
}

/// The models that a repository's name stands for, the one to take first.
pub(crate) fn of_repo(settings: &Settings, repo: &Repo, pick: &Pick) -> Vec<Model> {
    let folder = RepoFolder::new(settings.cache_of(repo.site), repo);
    let mut found: Vec<Model> = folder
        .snapshots()
        .into_iter()
        .filter_map(|snapshot| {
            let chosen = choose::choose(&files_below(&snapshot), pick).ok()?;
            Some(cached(repo, &folder, &snapshot, chosen, pick))
        })
        .collect();
    if repo.site == Site::HuggingFace {
        for root in &settings.lm_studio {
            let folder = root.join(&repo.owner).join(&repo.name);
            if let Ok(chosen) = choose::choose(&files_below(&folder), pick) {
                found.push(beside(repo, &folder, chosen));
            }
        }
        found.extend(ollama::of_repo(&settings.ollama, repo, pick));
    }
    found
}

/// All models on this machine, each once.
pub(crate) fn all(settings: &Settings) -> Vec<Model> {
    let mut found = Vec::new();
    for site in [Site::HuggingFace, Site::ModelScope] {
        for (repo, folder) in RepoFolder::all(settings.cache_of(site), site) {
            let mut names = Vec::new();
            for snapshot in folder.snapshots() {
                for candidate in choose::candidates(&files_below(&snapshot)).0 {
                    let model = cached(&repo, &folder, &snapshot, candidate, &Pick::Default);
                    // An older commit's files of the same name are not told apart.
                    if !names.contains(&model.name) {
                        names.push(model.name.clone());
                        found.push(model);
                    }
                }
            }
        }
    }
    for root in &settings.lm_studio {
        for owner in crate::cache::names(root) {
            for name in crate::cache::names(&root.join(&owner)) {
                let folder = root.join(&owner).join(&name);
                let repo = Repo { site: Site::HuggingFace, owner: owner.clone(), name };
                let candidates = choose::candidates(&files_below(&folder)).0;
                found.extend(candidates.into_iter().map(|c| beside(&repo, &folder, c)));
            }
        }
    }
    found.extend(ollama::all(&settings.ollama));
    found.sort_by(|a, b| (a.place, &a.name).cmp(&(b.place, &b.name)));
    found
}

/// A model of a cache's snapshot.
pub(crate) fn cached(
    repo: &Repo,
    folder: &RepoFolder,
    snapshot: &Path,
    chosen: Candidate,
    pick: &Pick,
) -> Model {
    let place = match repo.site {
        Site::HuggingFace => Place::HuggingFace,
        Site::ModelScope => Place::ModelScope,
    };
    let name = name_of(repo, &files_below(snapshot), &chosen, pick);
    let paths = chosen.files.iter().map(|file| snapshot.join(file)).collect();
    let mut model = Model::new(name, place, chosen.quant, paths);
    model.cached = Some(Cached { folder: folder.clone(), files: chosen.files });
    model
}

/// A model of LM Studio's.
fn beside(repo: &Repo, folder: &Path, chosen: Candidate) -> Model {
    let name = name_of(repo, &files_below(folder), &chosen, &Pick::Default);
    let paths = chosen.files.iter().map(|file| folder.join(file)).collect();
    Model::new(name, Place::LmStudio, chosen.quant, paths)
}

/// The name that finds a model among its neighbours: by quantisation where that is enough.
fn name_of(repo: &Repo, files: &[String], chosen: &Candidate, pick: &Pick) -> String {
    let quant = Pick::Quant(chosen.quant.clone());
    let by_quant = !chosen.quant.is_empty()
        && choose::choose(files, &quant).is_ok_and(|found| found.files == chosen.files);
    let pick = match pick {
        Pick::File(file) if !by_quant => Pick::File(file.clone()),
        Pick::Encoder(_) => Pick::File(chosen.files[0].clone()),
        _ if by_quant => quant,
        _ => Pick::File(chosen.files[0].clone()),
    };
    Name::Repo { repo: repo.clone(), pick }.to_string()
}
