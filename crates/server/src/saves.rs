//! The folder of `--slot-save-path`: files that are there whole or not at all, within limits of bytes and number.

use crate::batch::sync_folder;
use crate::disk;
use crate::fault::Fault;
use axum::http::StatusCode;
use std::fs::{DirBuilder, File, TryLockError};
use std::io::{self, Write};
use std::path::Path;

/// Files of the folder at most.
const FILES: usize = 10_000;

/// How names of unfinished files begin and end. A client's names never begin with a dot.
const UNFINISHED: (&str, &str) = (".slot-", ".tmp");

/// Makes the folder of [`Options::slot_saves`](crate::Options::slot_saves), for the server's user alone, if there is
/// none, and removes files that a crash has left unfinished.
///
/// # Errors
/// When it cannot be made or read, or a file of it not be removed.
pub fn open_slot_folder(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    // Saved slots hold conversations.
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)?;
    for entry in folder.read_dir()? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let unfinished = name.starts_with(UNFINISHED.0) && name.ends_with(UNFINISHED.1);
        if unfinished && entry.file_type()?.is_file() && !is_being_written(&entry.path()) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Whether another server holds the lock of a file that it writes.
fn is_being_written(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

/// Saves a file of at most `most` bytes together with all others of the folder; it is on the disk when this returns.
///
/// # Errors
/// 507 beyond the limits and where the disk is full; what else the disk says. A file of this name stays as it was.
pub(crate) fn save(folder: &Path, name: &str, bytes: &[u8], most: u64) -> Result<(), Fault> {
    let what = format!("{name} cannot be saved");
    let (files, used) = others(folder, name).map_err(|e| disk::refused(&what, &e))?;
    let size = bytes.len() as u64;
    if files >= FILES {
        return Err(full(format!(
            "{what}: the folder of --slot-save-path has {files} files, the limit: delete some"
        )));
    }
    if used.saturating_add(size) > most {
        return Err(full(format!(
            "{what}: it takes {size} bytes, and the other files of --slot-save-path have {used} of the {most} that \
             --slot-save-bytes allows: delete some, or raise the option"
        )));
    }
    write(folder, name, bytes).map_err(|error| {
        let free =
            fs4::available_space(folder).map(|free| format!(", {free} of {size} bytes are free"));
        let free = free.ok().filter(|_| error.kind() == io::ErrorKind::StorageFull);
        disk::refused(&format!("{what}{}", free.unwrap_or_default()), &error)
    })
}

fn full(message: String) -> Fault {
    Fault::new(StatusCode::INSUFFICIENT_STORAGE, message).code("storage_full")
}

/// How many files there are beside one of a name, and their bytes.
fn others(folder: &Path, name: &str) -> io::Result<(usize, u64)> {
    let (mut files, mut used) = (0, 0_u64);
    for entry in folder.read_dir()? {
        let entry = entry?;
        match entry.metadata() {
            Ok(about) if about.is_file() && entry.file_name() != name => {
                files += 1;
                used = used.saturating_add(about.len());
            }
            // Deleted meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(_) => {}
        }
    }
    Ok((files, used))
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let mut builder = tempfile::Builder::new();
    let mut file = builder.prefix(UNFINISHED.0).suffix(UNFINISHED.1).tempfile_in(folder)?;
    // Where the file system has no locks, a server that starts meanwhile may remove it, and this is an error then.
    let _ = file.as_file().lock();
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    let path = folder.join(name);
    file.persist(&path).map_err(|unkept| unkept.error)?;
    sync_folder(&path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn names(folder: &Path) -> BTreeSet<String> {
        let entries = folder.read_dir().unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn files_stay_within_the_limit_and_none_is_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        save(folder, "a", &[1; 60], 100).unwrap();
        let fault = save(folder, "b", &[2; 41], 100).unwrap_err();
        assert_eq!((fault.status.as_u16(), fault.code), (507, Some("storage_full")));
        assert!(
            fault.message.contains("60 of the 100") && fault.message.contains("--slot-save-bytes"),
            "{fault:?}"
        );
        assert_eq!(names(folder), ["a".to_owned()].into());
        save(folder, "b", &[2; 40], 100).unwrap();
        // The file that is replaced does not count, and stays where the new one does not fit.
        save(folder, "a", &[3; 50], 100).unwrap();
        assert!(save(folder, "a", &[4; 61], 100).is_err());
        assert_eq!(std::fs::read(folder.join("a")).unwrap(), [3; 50]);
        // Nor are files of others.
        std::fs::write(folder.join("notes"), [0; 20]).unwrap();
        assert!(save(folder, "c", &[1], 100).is_err());
        assert_eq!(names(folder).len(), 3);
    }

    #[test]
    fn the_number_of_files_is_limited() {
        let folder = tempfile::tempdir().unwrap();
        for at in 0..FILES {
            File::create(folder.path().join(at.to_string())).unwrap();
        }
        let fault = save(folder.path(), "more", b"", 100).unwrap_err();
        assert!(fault.status == 507 && fault.message.contains("10000 files"), "{fault:?}");
        save(folder.path(), "7", b"again", 100).unwrap();
    }

    #[test]
    fn unfinished_files_are_removed_unless_they_are_being_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in [".slot-left.tmp", ".slot-written.tmp", "a.tmp", ".hidden"] {
            std::fs::write(path(name), b"half").unwrap();
        }
        let written = File::options().write(true).open(path(".slot-written.tmp")).unwrap();
        written.lock().unwrap();
        open_slot_folder(folder.path()).unwrap();
        let left = [".hidden", ".slot-written.tmp", "a.tmp"].map(str::to_owned);
        assert_eq!(names(folder.path()), left.into());
    }

    #[test]
    fn saves_of_one_name_at_the_same_time_do_not_mix() {
        let folder = tempfile::tempdir().unwrap();
        let bodies: Vec<Vec<u8>> = (1..=4).map(|n| vec![n; 200_000]).collect();
        std::thread::scope(|scope| {
            for body in &bodies {
                scope.spawn(|| save(folder.path(), "same", body, 1 << 30).unwrap());
            }
        });
        let saved = std::fs::read(folder.path().join("same")).unwrap();
        assert!(bodies.contains(&saved), "{} bytes", saved.len());
        assert_eq!(names(folder.path()).len(), 1);
    }

    #[test]
    #[cfg(unix)]
    fn a_link_is_replaced_and_what_it_leads_to_stays() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let outside = other.path().join("outside");
        std::fs::write(&outside, b"outside").unwrap();
        std::os::unix::fs::symlink(&outside, folder.path().join("a")).unwrap();
        save(folder.path(), "a", b"saved", 100).unwrap();
        assert_eq!(std::fs::read(outside).unwrap(), b"outside");
        assert!(folder.path().join("a").symlink_metadata().unwrap().is_file());
    }
}
