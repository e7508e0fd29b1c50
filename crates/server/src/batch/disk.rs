//! The disk: work on threads of its own, files that are there whole or not at all, and how many bytes there may be.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use tokio::sync::oneshot;

/// Does what may wait for the disk on a thread of its own: those for requests' work are few, and a sync can take
/// seconds.
pub(crate) async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (done, result) = oneshot::channel();
    thread::Builder::new().name("files".to_owned()).spawn(move || {
        let _ = done.send(work());
    })?;
    result.await.map_err(|_| io::Error::other("the thread for it has panicked"))
}

/// Writes a file that is there whole or not at all, even after a crash.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let unfinished = path.with_added_extension("tmp");
    let write = || {
        let mut file = File::create(&unfinished)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&unfinished, path)?;
        sync_folder(path)
    };
    write().inspect_err(|_| {
        let _ = std::fs::remove_file(&unfinished);
    })
}

/// Makes the name of a file in its folder last, where folders can be opened: Windows keeps names by itself.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if cfg!(unix) => File::open(folder)?.sync_all(),
        _ => Ok(()),
    }
}

/// Bytes that all files may have together.
#[derive(Debug)]
pub(super) struct Budget {
    most: u64,
    used: AtomicU64,
}

/// There is no more room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full {
    pub(super) most: u64,
}

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "all files together may have {} bytes: delete some", self.most)
    }
}

impl Budget {
    pub(super) fn new(most: u64, used: u64) -> Budget {
        Budget { most, used: AtomicU64::new(used) }
    }

    /// Takes room for so many bytes.
    pub(super) fn claim(&self, bytes: u64) -> Result<(), Full> {
        let taken = self.used.fetch_update(SeqCst, SeqCst, |used| {
            used.checked_add(bytes).filter(|used| *used <= self.most)
        });
        taken.map(|_| ()).map_err(|_| Full { most: self.most })
    }

    /// Gives it back.
    pub(super) fn release(&self, bytes: u64) {
        let _ = self.used.fetch_update(SeqCst, SeqCst, |used| Some(used.saturating_sub(bytes)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_bounded() {
        let budget = Budget::new(10, 4);
        assert_eq!(budget.claim(6), Ok(()));
        assert_eq!(budget.claim(1), Err(Full { most: 10 }));
        budget.release(3);
        assert_eq!(budget.claim(4), Err(Full { most: 10 }));
        assert_eq!(budget.claim(3), Ok(()));
        assert_eq!(budget.claim(u64::MAX), Err(Full { most: 10 }));
    }

    #[tokio::test]
    async fn a_file_is_whole_and_a_panic_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        write_whole(&path, b"one").unwrap();
        write_whole(&path, b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(write_whole(&folder.path().join("no/a"), b"").is_err());
        assert!(apart(|| panic!("as a test")).await.map(|(): ()| ()).is_err());
    }
}
