//! Models that clients add and remove (`--manage-models`).
//!
//! All of it is in the folder of models: `.arclight/models/NAME.json` says which file a model is, and what it has
//! beside that (its prompt of the system, template, parameters); `.arclight/hub` is the cache of what is fetched.

use super::maker::{Kept, Maker};
use super::manifest::{Manifest, OWN, Origin};
use super::stored::{Stored, is_model};
use crate::error::Error;
use crate::model_file;
use arclight_server::{ModelEntry, ModelKeeper, PullStep, Recipe};
use hub::{Event, Hub, Name, Settings};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokenizer::ChatTemplate;

/// The folder of models, and what clients have made of it.
pub(super) struct Keeper {
    maker: Arc<Maker>,
    folder: PathBuf,
    known: Mutex<BTreeMap<String, Origin>>,
    /// One change at a time: no file goes while a model is made of it.
    changing: Mutex<()>,
}

impl Keeper {
    /// One for a folder, which must be writable, with the models that there are.
    pub(super) fn open(
        maker: Arc<Maker>,
        folder: &Path,
        known: BTreeMap<String, Origin>,
    ) -> Result<Keeper, Error> {
        let own = folder.join(OWN).join("models");
        let writable = fs::create_dir_all(&own).and_then(|()| {
            let probe = own.join("probe.tmp");
            fs::write(&probe, b"").and_then(|()| fs::remove_file(probe))
        });
        writable.map_err(|e| {
            let folder = folder.display();
            Error::Usage(format!("--manage-models: {folder} cannot be written: {e}"))
        })?;
        Ok(Keeper {
            maker,
            folder: folder.to_owned(),
            known: Mutex::new(known),
            changing: Mutex::default(),
        })
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Origin>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cache of what is fetched, which is the folder's own.
    fn hub(&self) -> Result<Hub, Error> {
        let own = self.folder.join(OWN);
        Ok(Hub::new(Settings {
            cache: own.join("hub"),
            modelscope_cache: own.join("modelscope"),
            ollama: Vec::new(),
            lm_studio: Vec::new(),
            ..Settings::from_env()?
        }))
    }

    /// Describes a model on the disk, and serves it from now on.
    fn keep(&self, name: &str, path: &Path, recipe: Recipe) -> Result<ModelEntry, Error> {
        recipe.check_size().map_err(|fault| Error::Refused(fault.message))?;
        let file = model_file::open(path)?;
        if !is_model(&file)? {
            let path = path.display();
            return Err(Error::Refused(format!("{path} is an adapter or an image encoder")));
        }
        let relative = path.strip_prefix(&self.folder).unwrap_or(path);
        let manifest = Manifest { name: name.to_owned(), file: relative.to_owned(), recipe };
        let file = Stored::new(file);
        let entry = self.maker.made(&manifest, file.clone())?;
        manifest.save(&self.folder)?;
        let recipe = manifest.recipe.clone();
        self.maker.keep(Kept { table: None, name: name.to_owned(), file, recipe });
        self.known().insert(name.to_owned(), Origin::Made(Box::new(manifest)));
        Ok(entry)
    }

    /// The file of a model, and what it has beside it.
    fn of(&self, name: &str) -> Result<(PathBuf, Recipe), Error> {
        match self.known().get(name) {
            Some(Origin::Given(path) | Origin::File(path)) => Ok((path.clone(), Recipe::default())),
            Some(Origin::Made(manifest)) => {
                Ok((manifest.path(&self.folder), manifest.recipe.clone()))
            }
            None => Err(Error::Refused(format!("there is no model {name:?}"))),
        }
    }

    /// The models that were made of a file.
    fn users(&self, path: &Path) -> Vec<String> {
        let known = self.known();
        let uses = |(name, origin): (&String, &Origin)| match origin {
            Origin::Made(manifest) if manifest.path(&self.folder) == path => Some(name.clone()),
            _ => None,
        };
        known.iter().filter_map(uses).collect()
    }

    fn try_pull(&self, name: &str, report: &mut dyn FnMut(PullStep)) -> Result<ModelEntry, Error> {
        let parsed = Name::parse(name)?;
        let hub = self.hub()?;
        let waits = |event: &Event<'_>, report: &mut dyn FnMut(PullStep)| match event {
            Event::Wait { why, wait } => {
                let text = format!("{why}; next try in {} s", wait.as_secs());
                report(PullStep::Status(text));
            }
            Event::Busy { file } => {
                report(PullStep::Status(format!("{file} is being fetched by another program")));
            }
            _ => {}
        };
        let remote = hub.look(&parsed, &mut |event| waits(&event, report))?;
        let digests: BTreeMap<String, String> =
            remote.digests().map(|(file, hex)| (file.to_owned(), hex.to_owned())).collect();
        let mut now: Option<(String, u64, u64)> = None;
        let model = hub.fetch(&remote, &mut |event| {
            match &event {
                Event::Begin { file, bytes, done } => {
                    now = Some(((*file).to_owned(), *bytes, *done));
                }
                Event::Bytes(more) => {
                    if let Some((_, _, done)) = &mut now {
                        *done += more;
                    }
                }
                Event::End => {
                    now = None;
                    report(PullStep::Status("verifying sha256 digest".to_owned()));
                }
                other => waits(other, report),
            }
            if let Some((file, total, completed)) = &now {
                report(PullStep::File {
                    digest: digests.get(file).cloned(),
                    name: file.clone(),
                    total: *total,
                    completed: (*completed).min(*total),
                });
            }
        })?;
        report(PullStep::Status("writing manifest".to_owned()));
        let _alone = self.changing();
        self.keep(name, model.path(), Recipe::default())
    }

    fn try_create(&self, name: &str, from: &str, recipe: Recipe) -> Result<ModelEntry, Error> {
        let _alone = self.changing();
        let (path, base) = self.of(from)?;
        if let Some(template) = &recipe.template {
            let fault = |why: String| Error::Refused(format!("template must be in Jinja: {why}"));
            if is_go(template) {
                return Err(fault("this one is in the language of Go's templates".to_owned()));
            }
            ChatTemplate::new(template, None, None).map_err(|e| fault(e.to_string()))?;
        }
        self.keep(name, &path, recipe.over(&base))
    }

    fn try_delete(&self, name: &str) -> Result<(), Error> {
        let removed = |path: &Path| match fs::remove_file(path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::Io { what: format!("cannot remove {}", path.display()), source: e })
            }
            _ => Ok(()),
        };
        let origin = self.known().get(name).cloned();
        match origin {
            Some(Origin::Made(manifest)) => {
                removed(&Manifest::place(name, &self.folder))?;
                self.known().remove(name);
                let path = manifest.path(&self.folder);
                // Of what was fetched the file goes with the last model that is made of it.
                if path.starts_with(self.folder.join(OWN)) && self.users(&path).is_empty() {
                    let hub = self.hub()?;
                    let fetched = hub.models().into_iter().find(|one| one.files.contains(&path));
                    if let Some(fetched) = fetched {
                        hub.remove(&fetched)?;
                    }
                }
                Ok(())
            }
            Some(Origin::File(path)) => {
                parts(&path).iter().try_for_each(|part| removed(part))?;
                self.known().remove(name);
                Ok(())
            }
            Some(Origin::Given(_)) | None => Err(self.stays(name)),
        }
    }

    fn stays(&self, name: &str) -> Error {
        Error::Refused(format!("{name:?} was named when the server was started: it stays"))
    }
}

impl ModelKeeper for Keeper {
    fn pull(&self, name: &str, report: &mut dyn FnMut(PullStep)) -> Result<ModelEntry, String> {
        self.try_pull(name, report).map_err(|e| e.line())
    }

    fn create(&self, name: &str, from: &str, recipe: Recipe) -> Result<ModelEntry, String> {
        self.try_create(name, from, recipe).map_err(|e| e.line())
    }

    fn copy(&self, from: &str, to: &str) -> Result<ModelEntry, String> {
        let _alone = self.changing();
        self.of(from).and_then(|(path, recipe)| self.keep(to, &path, recipe)).map_err(|e| e.line())
    }

    fn may_delete(&self, name: &str) -> Result<(), String> {
        let origin = self.known().get(name).cloned();
        match origin {
            Some(Origin::Made(_)) => Ok(()),
            Some(Origin::File(path)) => match self.users(&path).as_slice() {
                _ if path.is_dir() => Err(format!("{} is a folder: it stays", path.display())),
                [] => Ok(()),
                users => Err(format!("{name:?} is the file of {}, too", users.join(", "))),
            },
            Some(Origin::Given(_)) | None => Err(self.stays(name).line()),
        }
    }

    fn delete(&self, name: &str) -> Result<(), String> {
        let _alone = self.changing();
        // A model may have been made of its file while its requests ended.
        self.may_delete(name)?;
        self.try_delete(name).map_err(|e| e.line())?;
        self.maker.forget(name);
        Ok(())
    }
}

/// Whether a template is in Go's language, of which a part would be read as Jinja too: `{{ if .System }}`.
fn is_go(template: &str) -> bool {
    const WORDS: [&str; 7] = ["if", "range", "with", "end", "else", "define", "block"];
    template.split("{{").skip(1).any(|action| {
        let action = action.trim_start_matches('-').trim_start();
        let word = action.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        action.starts_with(['.', '$']) || WORDS.contains(&word)
    })
}

/// All parts of a model whose first is given.
fn parts(path: &Path) -> Vec<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let split = name.strip_suffix(".gguf").and_then(|stem| {
        let (stem, count) = stem.rsplit_once("-of-")?;
        Some((stem.strip_suffix("-00001")?.to_owned(), count.to_owned()))
    });
    let count = split.as_ref().and_then(|(_, count)| count.parse::<u32>().ok());
    match (split, count) {
        (Some((stem, count)), Some(all)) => (1..=all)
            .map(|part| path.with_file_name(format!("{stem}-{part:05}-of-{count}.gguf")))
            .collect(),
        _ => vec![path.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_goes_with_all_its_parts() {
        let names = |path: &str| {
            let all = parts(Path::new(path)).into_iter();
            all.map(|part| part.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names("a/b.gguf"), ["a/b.gguf"]);
        let two = ["a/b-00001-of-00002.gguf", "a/b-00002-of-00002.gguf"];
        assert_eq!(names("a/b-00001-of-00002.gguf"), two);
    }

    #[test]
    fn templates_of_go_are_told_from_jinja() {
        assert!(
            is_go("{{ if .System }}a{{ end }}") && is_go("{{- .Prompt }}") && is_go("x{{end}}")
        );
        assert!(!is_go("{% if a %}{{ endpoint }}{{ messages[0].content }}{% endif %}"));
    }
}
