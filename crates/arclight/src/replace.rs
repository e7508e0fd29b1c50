//! Writing a file so that there is never half of it under its name, and what was there stays until the new file is on
//! the disk.
//!
//! The text goes to `NAME.part` in the same folder, which is locked meanwhile and takes the name in the end. One that a
//! crash has left is written over by the next run.

use crate::error::Error;
use crate::term;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Writes a model file.
pub(crate) fn file(
    path: &Path,
    write: impl FnOnce(BufWriter<File>) -> Result<(), gguf::Error>,
) -> Result<(), Error> {
    if path.is_dir() {
        return Err(Error::Usage(format!("{} is a directory: name a file", path.display())));
    }
    let fault = |e| Error::write(path, e);
    let unwritten = |source| Error::Write { path: path.to_owned(), source };
    if is_special(path) {
        let out = File::options().write(true).open(path).map_err(fault)?;
        return write(BufWriter::new(out)).map_err(unwritten);
    }
    let part = Part::open(path).map_err(fault)?;
    let out = part.file.try_clone().map_err(fault)?;
    write(BufWriter::new(out)).map_err(unwritten)?;
    part.keep().map_err(fault)
}

/// Writes a file of these bytes.
pub(crate) fn bytes(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if is_special(path) {
        return fs::write(path, bytes);
    }
    let mut part = Part::open(path)?;
    part.file.write_all(bytes)?;
    part.keep()
}

/// Whether it is a pipe or a device, which is written to and not replaced.
fn is_special(path: &Path) -> bool {
    path.metadata().is_ok_and(|about| !about.is_file() && !about.is_dir())
}

/// Whether an open file is the one of that name.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    // Not by another descriptor: there may be none left.
    let [own, named] = [file.metadata()?, path.metadata()?];
    Ok((own.dev(), own.ino()) == (named.dev(), named.ino()))
}

/// Whether an open file is the one of that name.
#[cfg(not(unix))]
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let own = same_file::Handle::from_file(file.try_clone()?)?;
    Ok(same_file::Handle::from_path(path)? == own)
}

/// Whether a file can be written.
pub(crate) fn probe(path: &Path) -> io::Result<()> {
    Part::open(path).map(drop)
}

/// Where a file is, and where it is until it is finished. A link stays one.
fn places(path: &Path) -> (PathBuf, PathBuf) {
    let name = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut part = name.as_os_str().to_owned();
    part.push(".part");
    (name, part.into())
}

/// A file that does not have its name yet; it is removed unless it is kept.
struct Part {
    file: File,
    path: PathBuf,
    /// Its place.
    name: PathBuf,
    kept: bool,
}

impl Part {
    fn open(path: &Path) -> io::Result<Part> {
        let (name, path) = places(path);
        loop {
            let mut options = File::options();
            let file = options.read(true).write(true).create(true).truncate(false).open(&path)?;
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => {
                    let why = format!("another process is writing {}", path.display());
                    return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
                }
                // Some file systems have no locks.
                Ok(()) | Err(TryLockError::Error(_)) => {}
            }
            // A process that had the lock until now may have given the file its name.
            match is_at(&file, &path) {
                Ok(true) => {
                    let part = Part { file, path, name, kept: false };
                    part.file.set_len(0)?;
                    return Ok(part);
                }
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                Ok(false) | Err(_) => {}
            }
        }
    }

    /// Puts it in its place.
    fn keep(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.path, &self.name)?;
        self.kept = true;
        let folder = self.name.parent().filter(|folder| !folder.as_os_str().is_empty());
        match cfg!(unix) {
            // The name is to last as well.
            true => File::open(folder.unwrap_or(Path::new(".")))?.sync_all(),
            false => Ok(()),
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.kept {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Refuses to write what the disk has no room for. Where the system does not tell, it is tried.
pub(crate) fn room(path: &Path, bytes: u64) -> Result<(), Error> {
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let Ok(free) = fs4::available_space(folder) else { return Ok(()) };
    // A part that a crash has left is written over.
    let left = places(path).1.metadata().map_or(0, |part| part.len());
    let free = free.saturating_add(left);
    if bytes <= free {
        return Ok(());
    }
    let size = |bytes: u64| term::size(usize::try_from(bytes).unwrap_or(usize::MAX));
    Err(Error::Refused(format!(
        "{}: the file takes {}, and its disk has {} left",
        path.display(),
        size(bytes),
        size(free)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_leaves_the_old_file_and_no_part() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.gguf");
        let part = folder.path().join("a.gguf.part");
        // Of a run that was killed; longer than what is written now.
        fs::write(&part, [9; 100]).unwrap();
        file(&path, |mut out| Ok(out.write_all(b"old").and_then(|()| out.flush())?)).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        let full = file(&path, |mut out| {
            out.write_all(b"half")?;
            Err(io::Error::from(io::ErrorKind::StorageFull).into())
        });
        let line = full.unwrap_err().line();
        assert!(line.contains("a.gguf"), "{line}");
        assert_eq!((fs::read(&path).unwrap(), part.exists()), (b"old".to_vec(), false));
        bytes(&path, b"new").unwrap();
        assert_eq!((fs::read(&path).unwrap(), part.exists()), (b"new".to_vec(), false));
    }

    #[test]
    fn two_writers_of_a_name_do_not_mix() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let first = Part::open(&path).unwrap();
        let error = bytes(&path, b"second").unwrap_err().to_string();
        assert!(error.contains("another process") && error.contains("a.part"), "{error}");
        first.keep().unwrap();
        bytes(&path, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
    }

    #[test]
    #[cfg(unix)]
    fn links_and_devices_stay_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let (link, target) = (folder.path().join("link"), folder.path().join("target"));
        fs::write(&target, b"old").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        bytes(&link, b"new").unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"new");
        assert!(link.symlink_metadata().unwrap().is_symlink());
        bytes(Path::new("/dev/null"), b"gone").unwrap();
        file(Path::new("/dev/null"), |mut out| Ok(out.write_all(b"gone")?)).unwrap();
        assert!(!Path::new("/dev/null").metadata().unwrap().is_file());
    }
}
