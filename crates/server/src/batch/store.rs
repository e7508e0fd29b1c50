//! The folder of files and batches, and what is in it.

use super::disk::{Budget, apart, sync_folder, write_whole};
use super::object::{KeptBatch, KeptFile};
use crate::error::Error;
use crate::stamp::now;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, Semaphore};

/// Files that are sent or read at once.
const TRANSFERS: usize = 32;

/// Files, and batches, that are kept.
pub(super) const MOST: usize = 10_000;

/// Where files are kept, and how many.
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// The folder; made if it is not there. One server at a time can have it.
    pub folder: PathBuf,
    /// Bytes of one file.
    pub file_bytes: u64,
    /// Bytes of all files together, answers among them.
    pub total_bytes: u64,
    /// Requests of one batch.
    pub lines: u64,
}

/// Files and batches in a folder. Clones are the same.
#[derive(Clone)]
pub struct FileStore(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) options: FileOptions,
    pub(super) budget: Arc<Budget>,
    pub(super) transfers: Arc<Semaphore>,
    index: Mutex<Index>,
    /// One state is written at a time.
    saving: tokio::sync::Mutex<()>,
    /// There is a new batch.
    pub(super) added: Notify,
    /// A batch was cancelled.
    pub(super) changed: Notify,
    /// No other server has the folder.
    _lock: File,
}

#[derive(Default)]
struct Index {
    files: HashMap<String, KeptFile>,
    batches: HashMap<String, KeptBatch>,
}

impl std::fmt::Debug for FileStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("FileStore").field(&self.0.options).finish()
    }
}

impl FileStore {
    /// Opens a folder; what was left unfinished in it goes on when the server runs.
    ///
    /// # Errors
    /// When it cannot be read or written, or another server has it.
    pub fn open(options: FileOptions) -> Result<FileStore, Error> {
        let fault = |why: String| Error::Files { folder: options.folder.clone(), why };
        let open = || -> io::Result<(File, Index, u64)> {
            let mut builder = std::fs::DirBuilder::new();
            // What clients have sent is nobody else's business.
            builder.recursive(true);
            #[cfg(unix)]
            std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
            for folder in ["files", "batches"] {
                builder.create(options.folder.join(folder))?;
            }
            let lock = File::create(options.folder.join("lock"))?;
            lock.try_lock().map_err(|e| match e {
                std::fs::TryLockError::WouldBlock => io::Error::other("another server has it"),
                std::fs::TryLockError::Error(error) => error,
            })?;
            let index = Index {
                files: read_all(&options.folder.join("files"), |file: &KeptFile| &file.id)?,
                batches: read_all(&options.folder.join("batches"), |batch: &KeptBatch| &batch.id)?,
            };
            let used = tidy(&options.folder.join("files"), &index)?;
            remove_unfinished(&options.folder.join("batches"))?;
            Ok((lock, index, used))
        };
        let (lock, index, used) = open().map_err(|e| fault(e.to_string()))?;
        Ok(FileStore(Arc::new(Inner {
            budget: Arc::new(Budget::new(options.total_bytes, used)),
            transfers: Arc::new(Semaphore::new(TRANSFERS)),
            options,
            index: Mutex::new(index),
            saving: tokio::sync::Mutex::default(),
            added: Notify::new(),
            changed: Notify::new(),
            _lock: lock,
        })))
    }
}

/// All descriptions in a folder, by their ids. One that cannot be read is told and left alone.
fn read_all<T: DeserializeOwned>(
    folder: &Path,
    id: impl Fn(&T) -> &String,
) -> io::Result<HashMap<String, T>> {
    let mut all = HashMap::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_none_or(|kind| kind != "json") {
            continue;
        }
        match serde_json::from_slice::<T>(&std::fs::read(&path)?) {
            Ok(one) if path.file_stem().is_some_and(|stem| stem == &**id(&one)) => {
                all.insert(id(&one).clone(), one);
            }
            Ok(_) => tracing::warn!("{}: it has another id than its name says", path.display()),
            Err(error) => tracing::warn!("{}: {error}", path.display()),
        }
    }
    Ok(all)
}

/// Removes what an end of the server has left half: files that were being sent. Gives the bytes of what stays.
fn tidy(folder: &Path, index: &Index) -> io::Result<u64> {
    let unfinished = index.batches.values().filter(|batch| !batch.status.is_final());
    let outputs: HashSet<&str> =
        unfinished.flat_map(|batch| [&*batch.output, &*batch.error]).collect();
    let mut used = 0;
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let kind = path.extension().unwrap_or_default();
        let left = match kind.to_str() {
            Some("data") => !index.files.contains_key(&*stem) && !outputs.contains(&*stem),
            Some("part" | "tmp") => true,
            _ => false,
        };
        if left {
            std::fs::remove_file(&path)?;
        } else if kind == "data" {
            used += path.metadata()?.len();
        }
    }
    Ok(used)
}

/// Removes descriptions that were being written when the server ended.
fn remove_unfinished(folder: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|kind| kind == "tmp") {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

impl FileStore {
    fn index(&self) -> MutexGuard<'_, Index> {
        self.0.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a file's bytes are.
    pub(super) fn data(&self, id: &str) -> PathBuf {
        self.0.options.folder.join("files").join(format!("{id}.data"))
    }

    /// Where its bytes are until all have come.
    pub(super) fn part(&self, id: &str) -> PathBuf {
        self.0.options.folder.join("files").join(format!("{id}.part"))
    }

    /// A file of a client's.
    pub(super) fn file(&self, owner: &str, id: &str) -> Option<KeptFile> {
        let file = self.index().files.get(id).filter(|file| file.owner == owner).cloned();
        file.filter(|file| file.expires_at.is_none_or(|at| at > now()))
    }

    /// All files of a client's.
    pub(super) fn files(&self, owner: &str) -> Vec<KeptFile> {
        let now = now();
        let all = self.index();
        let own = all.files.values().filter(|file| file.owner == owner);
        own.filter(|file| file.expires_at.is_none_or(|at| at > now)).cloned().collect()
    }

    /// Whether there is room for one more.
    pub(super) fn has_room_for_a_file(&self) -> bool {
        self.index().files.len() < MOST
    }

    /// Writes what a file is, and lists it.
    pub(super) fn put_file(&self, file: KeptFile) -> io::Result<()> {
        let path = self.0.options.folder.join("files").join(format!("{}.json", file.id));
        write_whole(&path, &text(&file)?)?;
        self.index().files.insert(file.id.clone(), file);
        Ok(())
    }

    /// The batch that has not ended and reads or writes a file.
    pub(super) fn user_of(&self, id: &str) -> Option<String> {
        let index = self.index();
        let mut running = index.batches.values().filter(|batch| !batch.status.is_final());
        running.find(|batch| batch.input_file_id == id).map(|batch| batch.id.clone())
    }

    /// Removes a file; not more than once at the same time.
    pub(super) fn remove_file(&self, id: &str) -> io::Result<bool> {
        let Some(file) = self.index().files.remove(id) else { return Ok(false) };
        let folder = self.0.options.folder.join("files");
        let removed = std::fs::remove_file(folder.join(format!("{id}.json")));
        if let Err(error) = removed.or_else(missing_is_fine) {
            self.index().files.insert(file.id.clone(), file);
            return Err(error);
        }
        std::fs::remove_file(self.data(id)).or_else(missing_is_fine)?;
        self.0.budget.release(file.bytes);
        sync_folder(&self.data(id))?;
        Ok(true)
    }

    /// Removes files whose time is over.
    pub(super) fn remove_expired(&self) {
        let now = now();
        let old: Vec<String> = {
            let index = self.index();
            let old = index.files.values().filter(|f| f.expires_at.is_some_and(|at| at <= now));
            old.map(|file| file.id.clone()).collect()
        };
        for id in old.iter().filter(|id| self.user_of(id).is_none()) {
            match self.remove_file(id) {
                Ok(_) => tracing::info!(file = id, "removed: its time is over"),
                Err(error) => tracing::error!(file = id, "not removed: {error}"),
            }
        }
    }

    /// A batch of a client's.
    pub(super) fn batch(&self, owner: &str, id: &str) -> Option<KeptBatch> {
        self.index().batches.get(id).filter(|batch| batch.owner == owner).cloned()
    }

    /// All batches of a client's.
    pub(super) fn batches(&self, owner: &str) -> Vec<KeptBatch> {
        self.index().batches.values().filter(|batch| batch.owner == owner).cloned().collect()
    }

    /// Batches that have not ended, the oldest first.
    pub(super) fn unfinished(&self) -> Vec<KeptBatch> {
        let index = self.index();
        let mut all: Vec<KeptBatch> =
            index.batches.values().filter(|batch| !batch.status.is_final()).cloned().collect();
        all.sort_by(|a, b| (a.times.created_at, &a.id).cmp(&(b.times.created_at, &b.id)));
        all
    }

    /// Makes room for a batch: of too many the one that was made first goes, if it has ended.
    pub(super) fn make_room_for_a_batch(&self) -> io::Result<bool> {
        let mut index = self.index();
        while index.batches.len() >= MOST {
            let ended = index.batches.values().filter(|batch| batch.status.is_final());
            let oldest = ended.min_by_key(|batch| batch.times.created_at).map(|b| b.id.clone());
            let Some(oldest) = oldest else { return Ok(false) };
            let path = self.0.options.folder.join("batches").join(format!("{oldest}.json"));
            std::fs::remove_file(path).or_else(missing_is_fine)?;
            index.batches.remove(&oldest);
        }
        Ok(true)
    }

    /// Lists a batch, which has yet to be saved.
    pub(super) fn add_batch(&self, batch: KeptBatch) {
        self.index().batches.insert(batch.id.clone(), batch);
    }

    /// Takes a batch back that could not be saved.
    pub(super) fn drop_batch(&self, id: &str) {
        self.index().batches.remove(id);
    }

    /// Changes a batch in memory; how it is then.
    pub(super) fn update<T>(
        &self,
        id: &str,
        change: impl FnOnce(&mut KeptBatch) -> T,
    ) -> Option<T> {
        self.index().batches.get_mut(id).map(change)
    }

    /// How a batch is.
    pub(super) fn state(&self, id: &str) -> Option<KeptBatch> {
        self.index().batches.get(id).cloned()
    }

    /// Writes a batch as it is.
    pub(super) async fn save(&self, id: &str) -> io::Result<()> {
        let _alone = self.0.saving.lock().await;
        let Some(batch) = self.state(id) else { return Ok(()) };
        let path = self.0.options.folder.join("batches").join(format!("{id}.json"));
        apart(move || write_whole(&path, &text(&batch)?)).await?
    }
}

fn text<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    Ok(serde_json::to_vec(value)?)
}

fn missing_is_fine(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(folder: &Path) -> FileOptions {
        FileOptions { folder: folder.to_owned(), file_bytes: 100, total_bytes: 1000, lines: 10 }
    }

    fn file(id: &str, owner: &str, expires_at: Option<u64>) -> KeptFile {
        KeptFile {
            id: id.into(),
            owner: owner.into(),
            bytes: 5,
            created_at: 1,
            expires_at,
            filename: "a".into(),
            purpose: "batch".into(),
        }
    }

    #[test]
    fn a_folder_is_read_again_without_what_was_half() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::open(options(folder.path())).unwrap();
        let error = FileStore::open(options(folder.path())).unwrap_err().to_string();
        assert!(error.contains("another server has it"), "{error}");
        std::fs::write(store.data("file-a"), "12345").unwrap();
        store.put_file(file("file-a", "me", None)).unwrap();
        std::fs::write(store.data("file-b"), "no description").unwrap();
        std::fs::write(store.part("file-c"), "half").unwrap();
        std::fs::write(folder.path().join("files/file-d.json"), "{").unwrap();
        drop(store);
        let store = FileStore::open(options(folder.path())).unwrap();
        assert_eq!(store.file("me", "file-a").unwrap().bytes, 5);
        assert!(store.file("other", "file-a").is_none() && store.files("other").is_empty());
        assert!(!store.data("file-b").exists() && !store.part("file-c").exists());
        assert!(store.0.budget.claim(996).is_err() && store.0.budget.claim(995).is_ok());
        assert!(store.remove_file("file-a").unwrap() && !store.remove_file("file-a").unwrap());
        assert!(store.0.budget.claim(5).is_ok());
    }

    #[test]
    fn files_go_when_their_time_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::open(options(folder.path())).unwrap();
        store.put_file(file("file-old", "", Some(now() - 1))).unwrap();
        store.put_file(file("file-new", "", Some(now() + 1000))).unwrap();
        assert!(store.file("", "file-old").is_none());
        store.remove_expired();
        assert!(!folder.path().join("files/file-old.json").exists());
        assert_eq!(store.files("").len(), 1);
    }
}
