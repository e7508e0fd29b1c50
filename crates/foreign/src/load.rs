//! Shared objects with kernels.

use std::ffi::{CStr, c_char};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;

use gguf::TensorType;
use kernels::{Foreign, Isa, IsaError, MatKernel, TILE_ROWS};
use libloading::Library;

use crate::error::{Error, Fault};
use crate::interface::{
    MOST_KERNELS, MOST_NAME, MOST_RESULTS, MOST_ROWS, RawKernel, RawList, SYMBOL, VERSION,
};
use crate::product::Loaded;
use crate::trial;

/// The types of matrices that kernels from elsewhere multiply: those whose layout the header describes.
pub const fn types() -> [TensorType; 2] {
    [TensorType::Q8_0, TensorType::Q4_0]
}

/// A file whose kernels are loaded.
struct File {
    path: PathBuf,
    digest: String,
    kernels: Vec<&'static Foreign>,
}

static LOADED: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// Loads the kernels of a file, tries them, and puts them beside those that there are. A file that is loaded
/// already, and has not changed, is not loaded again.
///
/// Its code is run, with all that this program may do: name files that you trust as you trust the program.
///
/// # Errors
///
/// [`Error`] says what is wrong with the file. Then none of its kernels is used.
pub fn load(path: &Path) -> Result<Vec<&'static Foreign>, Error> {
    let fault = |fault| Error { path: path.to_owned(), fault };
    let read = |e| fault(Fault::Read(e));
    // With a slash in it: a bare name is looked for in the system's folders.
    let real = path.canonicalize().map_err(read)?;
    let bytes = std::fs::read(&real).map_err(read)?;
    let digest = blake3::hash(&bytes).to_hex()[..16].to_owned();
    let mut files = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(file) = files.iter().find(|file| file.path == real && file.digest == digest) {
        return Ok(file.kernels.clone());
    }
    let found = open(&real).map_err(fault)?;
    let taken = |(name, _): &&(String, Loaded)| {
        Foreign::loaded().iter().any(|other| other.name() == name)
            || found.iter().filter(|(other, _)| other == name).count() > 1
    };
    if let Some((name, _)) = found.iter().find(taken) {
        return Err(fault(Fault::Taken(name.clone())));
    }
    let found = found.into_iter().map(|(name, loaded)| {
        let kernel = Foreign::named(&name, &digest);
        kernel.load(Box::new(loaded));
        kernel
    });
    let kernels: Vec<_> = found.collect();
    files.push(File { path: real, digest, kernels: kernels.clone() });
    Ok(kernels)
}

/// The kernels of a shared object that have passed their trials.
fn open(path: &Path) -> Result<Vec<(String, Loaded)>, Fault> {
    let library = library(path)?;
    let list = list(&library)?;
    let kernels = list.iter().enumerate().map(|(at, raw)| kernel(at + 1, raw));
    let found = kernels.collect::<Result<Vec<_>, Fault>>()?;
    for (name, kernel) in &found {
        let differs = |difference| Fault::Differs { name: name.clone(), difference };
        trial::run(kernel).map_err(|difference| differs(Box::new(difference)))?;
    }
    // Its functions are called from now on.
    std::mem::forget(library);
    Ok(found)
}

/// Loads a shared object, on a thread of its own: the start files of GCC's -ffast-math make that thread round the
/// smallest numbers to zero, and no others.
fn library(path: &Path) -> Result<Library, Fault> {
    thread::scope(|scope| {
        // SAFETY: what the file does when it is loaded is what the user vouches for by naming it.
        let open = || unsafe { Library::new(path) }.map_err(|e| Fault::Open(words(&e)));
        scope.spawn(open).join().expect("it does not panic")
    })
}

/// What is wrong, as the system says it, and not twice.
fn words(error: &libloading::Error) -> String {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    cause.unwrap_or_else(|| error.to_string())
}

/// The list of a shared object, as long as it says.
fn list(library: &Library) -> Result<&[RawKernel], Fault> {
    // SAFETY: it is a pointer to data, whatever they are.
    let symbol = unsafe { library.get::<*const RawList>(SYMBOL) }.map_err(|_| Fault::NoList)?;
    let list: *const RawList = *symbol;
    if list.is_null() {
        return Err(Fault::NoList);
    }
    // SAFETY: a list of any version begins with its number.
    let version = unsafe { (&raw const (*list).version).read() };
    if version != VERSION {
        return Err(Fault::Version(version));
    }
    // SAFETY: the symbol of this version is such a list, as the header says.
    let &RawList { count, kernels, .. } = unsafe { &*list };
    if !(1..=MOST_KERNELS).contains(&count) || kernels.is_null() {
        return Err(Fault::Count(count));
    }
    // SAFETY: as above, and it lives as long as the library.
    Ok(unsafe { std::slice::from_raw_parts(kernels, count as usize) })
}

/// A kernel of a list, all of whose words are checked.
fn kernel(number: usize, raw: &RawKernel) -> Result<(String, Loaded), Fault> {
    let missing = |what| Fault::Missing { number, what };
    let name = text(raw.name).ok_or(missing("name"))?;
    let ty = text(raw.ty).ok_or(missing("type"))?;
    let instructions = text(raw.instructions).ok_or(missing("instructions"))?;
    let multiply = raw.multiply.ok_or(missing("function"))?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let own = name == "usual" || name.parse::<MatKernel>().is_ok();
    if name.is_empty() || name.len() > MOST_NAME || !name.chars().all(plain) || own {
        return Err(Fault::Name(name));
    }
    let Some(ty) = types().into_iter().find(|own| own.name() == ty) else {
        return Err(Fault::Type { name, ty });
    };
    match Isa::from_name(&instructions) {
        Ok(_) => {}
        Err(IsaError::Unknown { .. }) => return Err(Fault::NoIsa { name, instructions }),
        Err(IsaError::Unavailable { isa }) => return Err(Fault::Isa { name, isa }),
    }
    let RawKernel { rows, tokens, .. } = *raw;
    let fits = (1..=MOST_ROWS).contains(&rows)
        && (rows as usize).is_multiple_of(TILE_ROWS)
        && tokens >= 1
        && (rows as usize).saturating_mul(tokens as usize) <= MOST_RESULTS;
    if !fits {
        return Err(Fault::Size { name, rows, tokens });
    }
    let (tiles, tokens) = (rows as usize / TILE_ROWS, tokens as usize);
    Ok((name, Loaded { ty, tiles, tokens, multiply }))
}

/// A text of a list.
fn text(start: *const c_char) -> Option<String> {
    if start.is_null() {
        return None;
    }
    // SAFETY: it ends in a zero, as the header says of texts.
    let text = unsafe { CStr::from_ptr(start) };
    Some(text.to_string_lossy().into_owned())
}
