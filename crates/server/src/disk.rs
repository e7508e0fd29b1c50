//! Files that requests name or fill: which may be read, and the answer where the disk refuses.

use crate::fault::Fault;
use axum::http::StatusCode;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Why a file was not read.
#[derive(Debug)]
pub(crate) enum Unread {
    /// There is no such file.
    Missing,
    /// A folder, a symbolic link, a pipe, a socket or a device.
    NotPlain,
    /// It has more bytes than allowed.
    TooLarge(u64),
    /// The system's reason.
    Io(io::Error),
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Unread {
        match error.kind() {
            io::ErrorKind::NotFound => Unread::Missing,
            _ => Unread::Io(error),
        }
    }
}

/// Reads a regular file of at most `most` bytes. A symbolic link at the end of the path is not followed, and opening
/// never waits: a pipe without a writer would hold the thread until there is one.
///
/// # Errors
/// Whatever [`Unread`] lists.
pub(crate) fn read_plain(path: &Path, most: u64) -> Result<Vec<u8>, Unread> {
    // Opening some devices has effects, so the kind is looked at before, too.
    if !path.symlink_metadata()?.is_file() {
        return Err(Unread::NotPlain);
    }
    let mut options = File::options();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        libc::O_NOFOLLOW | libc::O_NONBLOCK,
    );
    let file = options.open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(Unread::NotPlain);
    }
    if about.len() > most {
        return Err(Unread::TooLarge(about.len()));
    }
    let mut bytes = Vec::new();
    // No overflow: it is at most `most`, and what cannot be had is an error.
    let len = usize::try_from(about.len()).unwrap_or(usize::MAX);
    bytes.try_reserve_exact(len).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    // The file may grow meanwhile.
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    match bytes.len() as u64 {
        len if len > most => Err(Unread::TooLarge(len)),
        _ => Ok(bytes),
    }
}

/// The answer where the disk refuses something; `what` begins the message and names it.
pub(crate) fn refused(what: &str, error: &io::Error) -> Fault {
    use io::ErrorKind as Kind;
    tracing::error!("{what}: {error}");
    let fault = |status, to_do: &str| Fault::new(status, format!("{what}: {error}{to_do}"));
    match error.kind() {
        Kind::StorageFull | Kind::QuotaExceeded => {
            let to_do = "; make room on the disk of the server's folder";
            fault(StatusCode::INSUFFICIENT_STORAGE, to_do).code("storage_full")
        }
        Kind::ReadOnlyFilesystem | Kind::PermissionDenied => {
            let to_do = "; the server's user must be able to write to the folder";
            fault(StatusCode::INTERNAL_SERVER_ERROR, to_do).code("storage_failed")
        }
        _ if is_out_of_descriptors(error) => {
            let to_do = "; the server has no file descriptors left (`ulimit -n`)";
            let fault = fault(StatusCode::SERVICE_UNAVAILABLE, to_do).code("no_descriptors");
            Fault { retry_after: Some(5), ..fault }
        }
        _ => fault(StatusCode::INTERNAL_SERVER_ERROR, "").code("storage_failed"),
    }
}

/// Whether the process or the system has no file descriptors left.
fn is_out_of_descriptors(error: &io::Error) -> bool {
    #[cfg(unix)]
    return matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE));
    #[cfg(not(unix))]
    return {
        let _ = error;
        false
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn only_regular_files_within_the_limit_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("file"), b"12345").unwrap();
        std::os::unix::fs::symlink(path("file"), path("link")).unwrap();
        std::fs::create_dir(path("folder")).unwrap();
        let made = std::process::Command::new("mkfifo").arg(path("pipe")).status().unwrap();
        assert!(made.success());
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        let read = |path: &Path| read_plain(path, 5);
        assert_eq!(read(&path("file")).unwrap(), b"12345");
        for name in ["link", "folder", "pipe", "socket"] {
            let result = read(&path(name));
            assert!(matches!(result, Err(Unread::NotPlain)), "{name}: {result:?}");
        }
        for device in ["/dev/zero", "/dev/tty", "/dev/null"].map(Path::new) {
            let result = read(device);
            assert!(matches!(result, Err(Unread::NotPlain | Unread::Missing)), "{result:?}");
        }
        assert!(matches!(read(&path("none")), Err(Unread::Missing)));
        assert!(matches!(read_plain(&path("file"), 4), Err(Unread::TooLarge(5))));
        // A file of the kernel says that it has no bytes.
        assert!(matches!(read(Path::new("/proc/self/status")), Err(Unread::TooLarge(6))));
        // A hole takes no disk, but would take memory.
        std::fs::File::create(path("hole")).unwrap().set_len(1 << 40).unwrap();
        assert!(matches!(read(&path("hole")), Err(Unread::TooLarge(_))));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_answer_depends_on_why_the_disk_refuses() {
        for (error, status, words) in [
            (libc::ENOSPC, 507, "make room"),
            (libc::EDQUOT, 507, "make room"),
            (libc::EROFS, 500, "must be able to write"),
            (libc::EACCES, 500, "must be able to write"),
            (libc::EMFILE, 503, "no file descriptors"),
            (libc::EIO, 500, "a.bin: "),
        ] {
            let fault = refused("a.bin", &io::Error::from_raw_os_error(error));
            assert_eq!(fault.status.as_u16(), status, "{fault:?}");
            assert!(
                fault.message.starts_with("a.bin: ") && fault.message.contains(words),
                "{fault:?}"
            );
        }
    }
}
