//! Folders of the Hugging Face Hub that are kept as the files that they are converted to (`--keep-converted`).
//!
//! A kept file's name has the folder's path and, of each of its files, name, size and time of the last change: a folder
//! that has changed is another one. The program's version counts as well, as a conversion may differ from one to the
//! next. The file of a folder as it was before is removed when a new one is made. Beside it is a lock, whose text is the
//! folder's path: so `list` and `rm` know it when the folder is gone.

use crate::error::Error;
use crate::folder;
use crate::quantize::making::Making;
use crate::term::note;
use arclight_engine::ModelFile;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The file that a folder is kept as, if there is one.
pub(crate) fn find(folder: &Path) -> Option<ModelFile> {
    let place = Place::of(folder).ok()?;
    let file = ModelFile::open_as(&place.file(), folder).ok()?;
    // A file that somebody has damaged is made again.
    file.gguf().is_ok().then_some(file)
}

/// The same; it is made unless there is one.
pub(crate) fn open(folder: &Path) -> Result<ModelFile, Error> {
    let place = Place::of(folder)?;
    let io = |what: &str, path: &Path| {
        let what = format!("cannot {what} {}", path.display());
        move |source| Error::Io { what, source }
    };
    fs::create_dir_all(&place.cache).map_err(io("make", &place.cache))?;
    // Others that convert the same folder wait for its file.
    let lock = place.cache.join(format!("{}.lock", place.name));
    let open = File::options().create(true).truncate(false).write(true).open(&lock);
    let mut held = open.map_err(io("write", &lock))?;
    held.lock().map_err(io("lock", &lock))?;
    let path = place.folder.as_os_str().as_encoded_bytes();
    let told = held.set_len(0).and_then(|()| held.write_all(path));
    told.map_err(io("write", &lock))?;
    if let Some(file) = find(folder) {
        return Ok(file);
    }
    let (converted, notes) = folder::converted(folder, &convert::Options::default())?;
    for note in notes {
        tracing::warn!("{note}");
    }
    let making = Making {
        file: &converted,
        output: Some(&place.file()),
        mix: None,
        rules: &[],
        pure: false,
        allow_requantize: false,
        imatrix: None,
        threads: None,
        dry_run: false,
    };
    making.make("converting")?;
    place.forget_others();
    ModelFile::open_as(&place.file(), folder).map_err(Error::from)
}

/// A file that a folder is kept as.
pub(crate) struct Kept {
    /// The folder, which may be gone; `None` if nobody has noted it.
    pub(crate) folder: Option<PathBuf>,
    pub(crate) file: PathBuf,
    pub(crate) bytes: u64,
    /// The type of most of its bytes; `None` if it cannot be read.
    pub(crate) quant: Option<String>,
    /// When it was made.
    pub(crate) made: Option<SystemTime>,
}

impl Kept {
    fn read(file: PathBuf) -> Option<Kept> {
        if file.extension()? != "gguf" {
            return None;
        }
        let about = fs::metadata(&file).ok().filter(fs::Metadata::is_file)?;
        // What stands behind the last dash is the content.
        let (name, _) = file.file_stem()?.to_str()?.rsplit_once('-')?;
        let lock = file.with_file_name(format!("{name}.lock"));
        let folder = fs::read(lock).ok().and_then(|text| String::from_utf8(text).ok());
        let opened = ModelFile::open(&file).ok();
        let quant = opened.as_ref().and_then(|file| {
            let mut bytes = BTreeMap::new();
            for tensor in file.gguf().ok()?.tensors() {
                *bytes.entry(tensor.ty.to_string()).or_insert(0) += tensor.data.len();
            }
            bytes.into_iter().max_by_key(|(_, bytes)| *bytes).map(|(ty, _)| ty)
        });
        Some(Kept {
            folder: folder.filter(|path| !path.is_empty()).map(PathBuf::from),
            bytes: about.len(),
            quant,
            made: about.modified().ok(),
            file,
        })
    }

    /// Whether its folder is no more.
    pub(crate) fn is_orphan(&self) -> bool {
        self.folder.as_ref().is_some_and(|folder| !folder.exists())
    }

    /// Takes it away; the bytes that are free now. Its lock stays: somebody may hold it.
    pub(crate) fn remove(&self) -> Result<u64, Error> {
        fs::remove_file(&self.file).map_err(|source| {
            let what = format!("cannot remove {}", self.file.display());
            Error::Io { what, source }
        })?;
        Ok(self.bytes)
    }
}

/// All that is kept, in the order of the folders.
pub(crate) fn all() -> Result<Vec<Kept>, Error> {
    let cache = hub::Settings::from_env()?.converted;
    let entries = fs::read_dir(cache).into_iter().flatten().flatten();
    let mut all: Vec<Kept> = entries.filter_map(|entry| Kept::read(entry.path())).collect();
    all.sort_by(|a, b| (&a.folder, &a.file).cmp(&(&b.folder, &b.file)));
    Ok(all)
}

/// What is kept of a folder, which need not be there any more, or has a path.
pub(crate) fn of(path: &Path) -> Result<Vec<Kept>, Error> {
    let Ok(absolute) = std::path::absolute(path) else { return Ok(Vec::new()) };
    // As it was named when it was converted: without links.
    let real = absolute
        .canonicalize()
        .ok()
        .or_else(|| Some(absolute.parent()?.canonicalize().ok()?.join(absolute.file_name()?)));
    let is = |known: &Path| known == absolute || real.as_deref() == Some(known);
    let mut all = all()?;
    all.retain(|kept| is(&kept.file) || kept.folder.as_deref().is_some_and(is));
    Ok(all)
}

/// Where a folder's file belongs.
struct Place {
    cache: PathBuf,
    folder: PathBuf,
    /// Of the folder: its last part, and a hash of where it is.
    name: String,
    /// A hash of what it has.
    content: String,
}

impl Place {
    fn of(folder: &Path) -> Result<Place, Error> {
        let path = folder.canonicalize().map_err(|source| {
            let what = format!("cannot find {}", folder.display());
            Error::Io { what, source }
        })?;
        // The path of a file of tensors names its folder.
        let path = if path.is_dir() { path } else { path.parent().unwrap_or(&path).to_owned() };
        let hex = |hasher: &blake3::Hasher| hasher.finalize().to_hex()[..16].to_owned();
        let mut of_path = blake3::Hasher::new();
        of_path.update(path.as_os_str().as_encoded_bytes());
        let last = path.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("{last}-{}", hex(&of_path));
        let mut of_content = blake3::Hasher::new();
        of_content.update(env!("CARGO_PKG_VERSION").as_bytes());
        for (file, bytes, changed) in files(&path) {
            of_content.update(format!("\0{}\0{bytes} {changed}", file.display()).as_bytes());
        }
        let cache = hub::Settings::from_env()?.converted;
        Ok(Place { cache, folder: path, name, content: hex(&of_content) })
    }

    fn file(&self) -> PathBuf {
        self.cache.join(format!("{}-{}.gguf", self.name, self.content))
    }

    /// Removes what the folder was kept as before.
    fn forget_others(&self) {
        let own = self.file();
        let is_other = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let rest = name.strip_prefix(&self.name).and_then(|rest| rest.strip_prefix('-'));
            path != &own
                && rest.is_some_and(|rest| rest.ends_with(".gguf") || rest.ends_with(".gguf.part"))
        };
        let all = fs::read_dir(&self.cache).into_iter().flatten().flatten().map(|e| e.path());
        for other in all.filter(is_other) {
            match fs::remove_file(&other) {
                Ok(()) => note!("removed {}: its folder has changed", other.display()),
                Err(e) => tracing::warn!("{} cannot be removed: {e}", other.display()),
            }
        }
    }
}

/// Files of a folder and of those in it, with their bytes and the time of their last change, in order of their paths.
fn files(folder: &Path) -> Vec<(PathBuf, u64, u128)> {
    let mut found = Vec::new();
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    for path in entries {
        // Files in the Hub's cache are links.
        let Ok(file) = fs::metadata(&path) else { continue };
        if file.is_dir() {
            let modules = fs::read_dir(&path).into_iter().flatten().flatten().map(|e| e.path());
            found.extend(modules.filter_map(|path| about(path, None)));
        } else {
            found.extend(about(path, Some(file)));
        }
    }
    found.sort();
    found
}

fn about(path: PathBuf, file: Option<fs::Metadata>) -> Option<(PathBuf, u64, u128)> {
    let file = file.or_else(|| fs::metadata(&path).ok())?;
    let changed = file.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let changed = changed.map_or(0, |time| time.as_nanos());
    file.is_file().then_some((path, file.len(), changed))
}
