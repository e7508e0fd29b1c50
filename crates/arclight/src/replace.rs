//! Writing a model file so that there is never half a model under its name.

use crate::error::Error;
use crate::term;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

/// Writes beside the file and renames.
pub(crate) fn file(
    path: &Path,
    write: impl FnOnce(BufWriter<File>) -> Result<(), gguf::Error>,
) -> Result<(), Error> {
    let fault =
        |source: io::Error| Error::Io { what: format!("cannot write {}", path.display()), source };
    if path.is_dir() {
        return Err(Error::Usage(format!("{} is a directory: name a file", path.display())));
    }
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let file = File::create(&part).map_err(fault)?;
    if let Err(source) = write(BufWriter::new(file)) {
        let _ = std::fs::remove_file(&part);
        return Err(Error::Write { path: path.to_owned(), source });
    }
    std::fs::rename(&part, path).map_err(fault)
}

/// Refuses to write what the disk has no room for. Where the system does not tell, it is tried.
pub(crate) fn room(path: &Path, bytes: u64) -> Result<(), Error> {
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let Ok(free) = fs4::available_space(folder) else { return Ok(()) };
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
