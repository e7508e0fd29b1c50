//! The Hugging Face Hub's cache on disk, shared with `huggingface_hub` and everything built on it.
//!
//! ```text
//! CACHE/models--OWNER--REPO/blobs/ETAG           bytes of a file; of LFS files the etag is the SHA-256
//! CACHE/models--OWNER--REPO/refs/main            the commit that main was at
//! CACHE/models--OWNER--REPO/snapshots/COMMIT/... links to blobs, by the files' names
//! CACHE/.locks/models--OWNER--REPO/ETAG.lock     held (flock) by who fetches that blob
//! ```
//!
//! Source: <https://huggingface.co/docs/hub/local-cache>, and what `huggingface_hub` 2.4 does.

use crate::Error;
use crate::name::{Repo, Site};
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Folders below a snapshot that are looked into.
const DEPTH: usize = 6;

/// The lock that is held while a file or link of a repository is put in its place.
const PLACING: &str = "placing";

/// What it is until then, in the repository's folder.
const UNPLACED: &str = ".unplaced";

/// A repository's folder in a cache.
#[derive(Clone, Debug)]
pub(crate) struct RepoFolder {
    /// The cache's folder.
    root: PathBuf,
    /// `models--OWNER--REPO`.
    name: String,
}

impl RepoFolder {
    pub(crate) fn new(root: &Path, repo: &Repo) -> RepoFolder {
        RepoFolder { root: root.to_owned(), name: format!("models--{}--{}", repo.owner, repo.name) }
    }

    /// All repositories of models in a cache.
    pub(crate) fn all(root: &Path, site: Site) -> Vec<(Repo, RepoFolder)> {
        let mut found = Vec::new();
        for name in names(root) {
            let id = name.strip_prefix("models--").and_then(|id| id.split_once("--"));
            if let Some((owner, repo)) = id {
                let repo = Repo { site, owner: owner.to_owned(), name: repo.to_owned() };
                found.push((repo.clone(), RepoFolder::new(root, &repo)));
            }
        }
        found
    }

    fn folder(&self) -> PathBuf {
        self.root.join(&self.name)
    }

    pub(crate) fn blobs(&self) -> PathBuf {
        self.folder().join("blobs")
    }

    pub(crate) fn blob(&self, etag: &str) -> PathBuf {
        self.blobs().join(etag)
    }

    /// Folders of commits: those that branches are at first, then the newest.
    pub(crate) fn snapshots(&self) -> Vec<PathBuf> {
        let folder = self.folder().join("snapshots");
        let branch = ["main", "master"].iter().find_map(|branch| {
            let commit = fs::read_to_string(self.folder().join("refs").join(branch)).ok()?;
            Some(commit.trim().to_owned())
        });
        let mut all = names(&folder);
        let time = |name: &String| fs::metadata(folder.join(name)).and_then(|m| m.modified()).ok();
        all.sort_by_key(|name| (Some(name) != branch.as_ref(), std::cmp::Reverse(time(name))));
        all.into_iter().map(|name| folder.join(name)).collect()
    }

    /// Makes the folders, and marks the cache as one for programs that make backups.
    pub(crate) fn create(&self) -> Result<(), Error> {
        let blobs = self.blobs();
        fs::create_dir_all(&blobs).map_err(Error::io("make", &blobs))?;
        let tag = self.root.join("CACHEDIR.TAG");
        if fs::metadata(&tag).map_or(0, |tag| tag.len()) == 0 {
            let text = "Signature: 8a477f597d28d172789f06886806bc55\n\
                        # This is a cache directory: see https://bford.info/cachedir/\n";
            fs::write(&tag, text).map_err(Error::io("write", &tag))?;
        }
        Ok(())
    }

    /// Takes the lock of a blob, after `busy` was called once if somebody else has it.
    pub(crate) fn lock(&self, etag: &str, busy: &mut dyn FnMut()) -> Result<Lock, Error> {
        let folder = self.locks();
        let path = folder.join(format!("{etag}.lock"));
        let fault = Error::io("lock", &path);
        let mut told = false;
        loop {
            fs::create_dir_all(&folder).map_err(Error::io("make", &folder))?;
            let file =
                File::options().read(true).write(true).create(true).truncate(false).open(&path);
            let file = file.map_err(&fault)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::Error(e)) => return Err(fault(e)),
                Err(TryLockError::WouldBlock) => {
                    if !std::mem::replace(&mut told, true) {
                        busy();
                    }
                    file.lock().map_err(&fault)?;
                }
            }
            // Who had it may have removed the file: then others lock a new one of the same name.
            let own = same_file::Handle::from_file(file.try_clone().map_err(&fault)?);
            let own = own.map_err(&fault)?;
            match same_file::Handle::from_path(&path) {
                Ok(now) if now == own => return Ok(Lock { _file: file }),
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(fault(e)),
                Ok(_) | Err(_) => {}
            }
        }
    }

    fn locks(&self) -> PathBuf {
        self.root.join(".locks").join(&self.name)
    }

    /// The path of a file of a commit.
    pub(crate) fn pointer(&self, commit: &str, file: &str) -> PathBuf {
        self.folder().join("snapshots").join(commit).join(file)
    }

    /// Makes a file of a commit point at its blob. Where the file system knows no links, the blob itself
    /// is moved there.
    pub(crate) fn link(&self, commit: &str, file: &str, etag: &str) -> Result<PathBuf, Error> {
        let pointer = self.pointer(commit, file);
        let fault = Error::io("make", &pointer);
        let parent = pointer.parent().expect("it has the snapshot's folder above it");
        fs::create_dir_all(parent).map_err(&fault)?;
        let up = "../".repeat(2 + file.split('/').count() - 1);
        let target = PathBuf::from(format!("{up}blobs/{etag}"));
        if fs::read_link(&pointer).is_ok_and(|old| old == target) {
            return Ok(pointer);
        }
        // The old link stays until the new one is in its place.
        let _lock = self.lock(PLACING, &mut || {})?;
        let unplaced = self.unplaced()?;
        match link(&target, &unplaced) {
            Ok(true) => fs::rename(&unplaced, &pointer).map_err(&fault)?,
            Ok(false) => fs::rename(self.blob(etag), &pointer).map_err(&fault)?,
            Err(e) => return Err(fault(e)),
        }
        Ok(pointer)
    }

    /// The path of what is about to be put in its place, for the holder of that lock; what a crash has left there is
    /// removed.
    fn unplaced(&self) -> Result<PathBuf, Error> {
        let path = self.folder().join(UNPLACED);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", &path)(e)),
            _ => Ok(path),
        }
    }

    /// Records the commit that a branch is at.
    pub(crate) fn set_branch(&self, branch: &str, commit: &str) -> Result<(), Error> {
        let folder = self.folder().join("refs");
        fs::create_dir_all(&folder).map_err(Error::io("make", &folder))?;
        let path = folder.join(branch);
        if fs::read_to_string(&path).is_ok_and(|old| old == commit) {
            return Ok(());
        }
        let _lock = self.lock(PLACING, &mut || {})?;
        let unplaced = self.unplaced()?;
        let written = File::create_new(&unplaced)
            .and_then(|mut file| file.write_all(commit.as_bytes()).and_then(|()| file.sync_all()));
        written.and_then(|()| fs::rename(&unplaced, &path)).map_err(Error::io("write", &path))
    }

    /// Removes files from all commits, and blobs that no commit links to any more; the whole folder when
    /// nothing is left. Gives the bytes that are free now.
    pub(crate) fn remove(&self, files: &[String]) -> Result<u64, Error> {
        let mut blobs = Vec::new();
        let mut freed = 0;
        for snapshot in self.snapshots() {
            for path in files.iter().map(|file| snapshot.join(file)) {
                let Ok(kind) = fs::symlink_metadata(&path) else { continue };
                match fs::canonicalize(&path) {
                    Ok(blob) if kind.is_symlink() => blobs.push(blob),
                    _ => freed += kind.len(),
                }
                fs::remove_file(&path).map_err(Error::io("remove", &path))?;
                remove_empty(path.parent(), &snapshot);
            }
        }
        blobs.sort();
        blobs.dedup();
        let linked: Vec<PathBuf> = self.linked();
        for blob in blobs.iter().filter(|blob| !linked.contains(blob)) {
            let size = fs::metadata(blob).map_or(0, |m| m.len());
            fs::remove_file(blob).map_err(Error::io("remove", blob))?;
            freed += size;
        }
        self.remove_if_empty()?;
        Ok(freed)
    }

    /// The blobs that commits link to.
    fn linked(&self) -> Vec<PathBuf> {
        let files = self.snapshots().into_iter().flat_map(|s| {
            files_below(&s).into_iter().map(move |file| s.join(file)).collect::<Vec<_>>()
        });
        files.filter_map(|file| fs::canonicalize(file).ok()).collect()
    }

    /// Removes the folder when no blob and no file of a commit is in it.
    pub(crate) fn remove_if_empty(&self) -> Result<(), Error> {
        let folder = self.folder();
        if !folder.exists() || !names(&self.blobs()).is_empty() {
            return Ok(());
        }
        if self.snapshots().iter().any(|snapshot| !files_below(snapshot).is_empty()) {
            return Ok(());
        }
        fs::remove_dir_all(&folder).map_err(Error::io("remove", &folder))?;
        let locks = self.locks();
        match fs::remove_dir_all(&locks) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", &locks)(e)),
            _ => Ok(()),
        }
    }
}

/// The lock of a blob, given back when this is dropped.
pub(crate) struct Lock {
    _file: File,
}

/// Names in a folder, in order; none if it cannot be read.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|e| e.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// The files below a folder that are there, links followed, by their paths from it.
pub(crate) fn files_below(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    collect(folder, "", DEPTH, &mut found);
    found
}

fn collect(folder: &Path, before: &str, depth: usize, found: &mut Vec<String>) {
    for name in names(folder) {
        let path = folder.join(&name);
        let inside = format!("{before}{name}");
        match fs::metadata(&path) {
            Ok(kind) if kind.is_dir() && depth > 0 => {
                collect(&path, &format!("{inside}/"), depth - 1, found);
            }
            Ok(kind) if kind.is_file() => found.push(inside),
            _ => {}
        }
    }
}

/// Removes a folder and those above it, up to and with `top`, as far as they are empty.
fn remove_empty(folder: Option<&Path>, top: &Path) {
    let mut folder = folder;
    while let Some(path) = folder.filter(|path| path.starts_with(top)) {
        if fs::remove_dir(path).is_err() {
            return;
        }
        folder = path.parent();
    }
}

/// Makes a symbolic link, if the file system and the rights of this user allow it.
fn link(target: &Path, at: &Path) -> io::Result<bool> {
    #[cfg(unix)]
    let made = std::os::unix::fs::symlink(target, at);
    #[cfg(windows)]
    let made = std::os::windows::fs::symlink_file(target, at);
    // What Windows says without the privilege for links, which few users have.
    const ERROR_PRIVILEGE_NOT_HELD: i32 = 1314;
    match made {
        Ok(()) => Ok(true),
        Err(e) if cfg!(windows) && e.raw_os_error() == Some(ERROR_PRIVILEGE_NOT_HELD) => Ok(false),
        Err(e) => match e.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported => Ok(false),
            _ => Err(e),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repo() -> Repo {
        Repo { site: Site::HuggingFace, owner: "o".into(), name: "r--x-GGUF".into() }
    }

    fn blob(folder: &RepoFolder, etag: &str) {
        folder.create().unwrap();
        fs::write(folder.blob(etag), etag).unwrap();
    }

    #[test]
    fn links_lead_to_blobs_from_any_depth() {
        let root = tempfile::tempdir().unwrap();
        let folder = RepoFolder::new(root.path(), &repo());
        blob(&folder, "e1");
        for file in ["m.gguf", "a/m.gguf", "a/b/m.gguf"] {
            let pointer = folder.link("c", file, "e1").unwrap();
            assert_eq!(fs::read_to_string(pointer).unwrap(), "e1");
        }
        // Made again it points at the new blob.
        blob(&folder, "e2");
        let pointer = folder.link("c", "m.gguf", "e2").unwrap();
        assert_eq!(fs::read_to_string(pointer).unwrap(), "e2");
        let all = RepoFolder::all(root.path(), Site::HuggingFace);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].0, repo());
    }

    #[test]
    fn what_a_crash_has_left_unplaced_is_in_nobodys_way() {
        let root = tempfile::tempdir().unwrap();
        let folder = RepoFolder::new(root.path(), &repo());
        blob(&folder, "e");
        folder.set_branch("main", "c").unwrap();
        // A link that leads to nothing, and a file.
        let unplaced = folder.folder().join(UNPLACED);
        assert!(link(Path::new("nowhere"), &unplaced).unwrap());
        folder.set_branch("main", "d").unwrap();
        assert_eq!(fs::read_to_string(folder.folder().join("refs/main")).unwrap(), "d");
        fs::write(&unplaced, "half").unwrap();
        let pointer = folder.link("d", "m.gguf", "e").unwrap();
        assert_eq!(fs::read_to_string(pointer).unwrap(), "e");
        assert!(unplaced.symlink_metadata().is_err());
    }

    #[test]
    fn a_branch_comes_before_newer_commits() {
        let root = tempfile::tempdir().unwrap();
        let folder = RepoFolder::new(root.path(), &repo());
        blob(&folder, "e");
        folder.link("old", "m.gguf", "e").unwrap();
        folder.set_branch("main", "old").unwrap();
        folder.link("new", "m.gguf", "e").unwrap();
        assert!(folder.snapshots()[0].ends_with("old"));
    }

    #[test]
    fn removing_keeps_what_others_link_to() {
        let root = tempfile::tempdir().unwrap();
        let folder = RepoFolder::new(root.path(), &repo());
        for etag in ["shared", "own", "other"] {
            blob(&folder, etag);
        }
        folder.link("c1", "a.gguf", "shared").unwrap();
        folder.link("c1", "b.gguf", "shared").unwrap();
        folder.link("c1", "d/own.gguf", "own").unwrap();
        folder.link("c2", "d/own.gguf", "own").unwrap();
        folder.link("c2", "README.md", "other").unwrap();
        let own = folder.remove(&["d/own.gguf".to_owned()]).unwrap();
        assert_eq!(own, "own".len() as u64);
        assert!(!folder.blob("own").exists() && folder.blob("shared").exists());
        assert_eq!(folder.remove(&["a.gguf".to_owned()]).unwrap(), 0);
        assert_eq!(folder.remove(&["b.gguf".to_owned()]).unwrap(), "shared".len() as u64);
        assert!(folder.folder().exists(), "somebody's README is still there");
        folder.remove(&["README.md".to_owned()]).unwrap();
        assert!(!folder.folder().exists());
    }

    #[test]
    fn a_lock_is_held_by_one_at_a_time() {
        let root = tempfile::tempdir().unwrap();
        let folder = RepoFolder::new(root.path(), &repo());
        let first = folder.lock("e", &mut || panic!("nobody else has it")).unwrap();
        let mut told = 0;
        std::thread::scope(|scope| {
            let second = scope.spawn(|| folder.lock("e", &mut || told += 1).map(|_| ()));
            // The second waits whenever it comes, since the first gives up only now or before it.
            std::thread::sleep(std::time::Duration::from_millis(50));
            drop(first);
            second.join().unwrap().unwrap();
        });
        assert!(told <= 1);
    }
}
