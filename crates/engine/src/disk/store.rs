//! Files of a folder by name: written by a thread, read at once, the oldest deleted.

use super::names::Name;
use crate::error::Error;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// Begins every file; the last byte counts forms of files.
const MAGIC: [u8; 8] = *b"ARCLKV\0\x01";
const HASH: usize = 32;
const HEADER: usize = MAGIC.len() + HASH;
/// Bytes that may wait to be written: more would be memory that nobody asked for.
const WAITING: usize = 256 << 20;

/// Where pages and snapshots are kept, and how much of them.
#[derive(Clone, Debug)]
pub struct DiskCache {
    /// A folder, which is made if there is none.
    pub folder: PathBuf,
    /// Bytes that its files have together, at most. What was used longest ago goes first.
    pub bytes: u64,
}

/// A file: a page of a class.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub name: Name,
    pub class: u8,
}

impl Key {
    fn file(self) -> String {
        format!("{}.{}.kv", self.name, self.class)
    }

    fn of(file: &str) -> Option<Key> {
        let (name, class) = file.strip_suffix(".kv")?.split_once('.')?;
        let mut bytes = [0; 16];
        if name.len() != 2 * bytes.len() || !name.is_ascii() {
            return None;
        }
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&name[2 * at..2 * at + 2], 16).ok()?;
        }
        // A number can be written in several ways, of which one is a key's.
        Some(Key { name: Name(bytes), class: class.parse().ok()? }).filter(|key| key.file() == file)
    }
}

/// The files of a folder.
pub(crate) struct Store {
    shared: Arc<Shared>,
    /// Ended by being dropped.
    queue: Option<Sender<(Key, Vec<u8>)>>,
    writer: Option<JoinHandle<()>>,
}

struct Shared {
    folder: PathBuf,
    most: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Those that are there, by when they were used last.
    files: HashMap<Key, (u64, u64)>, // (bytes, used)
    by_use: BTreeMap<u64, Key>,
    bytes: u64,
    clock: u64,
    /// Those that wait to be written, and their bytes.
    coming: HashMap<Key, usize>,
    waiting: usize,
    /// Bytes that were read and found right, and seconds that it took.
    read: (f64, f64),
    /// Whether a fault of the folder has been told.
    told: bool,
}

impl State {
    fn add(&mut self, key: Key, bytes: u64) {
        self.remove(key);
        self.clock += 1;
        self.files.insert(key, (bytes, self.clock));
        self.by_use.insert(self.clock, key);
        self.bytes += bytes;
    }

    fn remove(&mut self, key: Key) {
        if let Some((bytes, used)) = self.files.remove(&key) {
            self.by_use.remove(&used);
            self.bytes -= bytes;
        }
    }

    /// The one that was used longest ago, of too many.
    fn surplus(&mut self, most: u64) -> Option<Key> {
        let (_, key) = self.by_use.first_key_value().filter(|_| self.bytes > most)?;
        let key = *key;
        self.remove(key);
        Some(key)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, key: Key) -> PathBuf {
        self.folder.join(key.file())
    }

    /// Tells of a fault of the folder, once.
    fn tell(&self, what: &str, error: &std::io::Error) {
        let told = std::mem::replace(&mut self.state().told, true);
        if !told {
            tracing::warn!("the prefix cache in {}: {what}: {error}", self.folder.display());
        }
    }

    fn write(&self, key: Key, body: &[u8]) -> std::io::Result<u64> {
        // A file is there whole or not at all.
        let path = self.path(key);
        let unfinished = path.with_extension(format!("{}.tmp", std::process::id()));
        let mut file = fs::File::create(&unfinished)?;
        let written = file
            .write_all(&MAGIC)
            .and_then(|()| file.write_all(checksum(key, body).as_bytes()))
            .and_then(|()| file.write_all(body))
            .and_then(|()| fs::rename(&unfinished, &path));
        if written.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        written.map(|()| (HEADER + body.len()) as u64)
    }

    fn serve(&self, queue: &Receiver<(Key, Vec<u8>)>) {
        for (key, body) in queue {
            let written = self.write(key, &body);
            let mut state = self.state();
            state.coming.remove(&key);
            state.waiting -= body.len();
            match written {
                Ok(bytes) => state.add(key, bytes),
                Err(error) => {
                    drop(state);
                    self.tell("a page could not be written", &error);
                    continue;
                }
            }
            let gone: Vec<Key> = std::iter::from_fn(|| state.surplus(self.most)).collect();
            drop(state);
            for key in gone {
                let _ = fs::remove_file(self.path(key));
            }
        }
    }
}

/// Of what a file is, and what it holds.
fn checksum(key: Key, body: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(key.file().as_bytes());
    hasher.update(body);
    hasher.finalize()
}

impl Store {
    /// Finds what is in the folder, and makes it if there is none.
    ///
    /// # Errors
    /// When it cannot be made, read or written.
    pub(crate) fn open(options: &DiskCache) -> Result<Store, Error> {
        let folder = options.folder.clone();
        let fault = |source| Error::CacheFolder { folder: folder.clone(), source };
        // Whoever reads it can test whether a text was asked.
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&folder).map_err(fault)?;
        let probe = folder.join(format!("probe.{}.tmp", std::process::id()));
        fs::write(&probe, []).and_then(|()| fs::remove_file(&probe)).map_err(fault)?;
        let mut found = Vec::new();
        for entry in fs::read_dir(&folder).map_err(fault)? {
            let entry = entry.map_err(fault)?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if is_left_over(name) {
                // Of a server that was killed while it wrote.
                let _ = fs::remove_file(entry.path());
            }
            let (Some(key), Ok(about)) = (Key::of(name), entry.metadata()) else { continue };
            let used = about.modified().ok();
            found.push((used, key, about.len()));
        }
        found.sort_unstable();
        let mut state = State::default();
        found.into_iter().for_each(|(_, key, bytes)| state.add(key, bytes));
        let shared =
            Arc::new(Shared { folder: folder.clone(), most: options.bytes, state: state.into() });
        let gone: Vec<Key> = {
            let mut state = shared.state();
            std::iter::from_fn(|| state.surplus(shared.most)).collect()
        };
        gone.into_iter().for_each(|key| _ = fs::remove_file(shared.path(key)));
        // `put` is called only while there `has_room`.
        let (queue, waiting) = channel();
        let of_writer = shared.clone();
        let writer = thread::Builder::new().name("prefix-cache".to_owned());
        let writer = writer.spawn(move || of_writer.serve(&waiting)).map_err(fault)?;
        Ok(Store { shared, queue: Some(queue), writer: Some(writer) })
    }

    /// Bytes of a file, if it is there.
    pub(crate) fn len(&self, key: Key) -> Option<u64> {
        self.shared.state().files.get(&key).map(|(bytes, _)| *bytes)
    }

    /// Whether a file is there or will be. It is used, then.
    pub(crate) fn refresh(&self, key: Key) -> bool {
        let mut state = self.shared.state();
        match state.files.get(&key) {
            Some(&(bytes, _)) => state.add(key, bytes),
            None => return state.coming.contains_key(&key),
        }
        true
    }

    /// Whether more may wait to be written.
    pub(crate) fn has_room(&self) -> bool {
        self.shared.state().waiting < WAITING
    }

    /// Has a file written, unless there is one.
    pub(crate) fn put(&self, key: Key, body: Vec<u8>) {
        let mut state = self.shared.state();
        if state.files.contains_key(&key) || state.coming.contains_key(&key) {
            return;
        }
        state.coming.insert(key, body.len());
        state.waiting += body.len();
        drop(state);
        if let Some(queue) = &self.queue {
            let _ = queue.send((key, body));
        }
    }

    /// What a file holds; none if it is not there, or damaged, and then it is deleted.
    pub(crate) fn get(&self, key: Key) -> Option<Vec<u8>> {
        self.len(key)?;
        let (begin, path) = (Instant::now(), self.shared.path(key));
        let body = match fs::read(&path) {
            Ok(bytes) => body_of(key, bytes),
            Err(error) => {
                if error.kind() != ErrorKind::NotFound {
                    self.shared.tell("a page could not be read", &error);
                }
                None
            }
        };
        let mut state = self.shared.state();
        match &body {
            Some(body) => {
                state.add(key, (HEADER + body.len()) as u64);
                state.read.0 += body.len() as f64;
                state.read.1 += begin.elapsed().as_secs_f64();
            }
            None => {
                state.remove(key);
                drop(state);
                let _ = fs::remove_file(&path);
                return None;
            }
        }
        drop(state);
        touch(&path);
        body
    }

    /// Bytes per second at which files were read, once some were.
    pub(crate) fn rate(&self) -> Option<f64> {
        let (bytes, seconds) = self.shared.state().read;
        (bytes > 0.0 && seconds > 0.0).then(|| bytes / seconds)
    }

    /// Waits until everything that waits is written.
    #[cfg(test)]
    pub(crate) fn settle(&self) {
        while !self.shared.state().coming.is_empty() {
            thread::sleep(std::time::Duration::from_millis(2));
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

/// Whether a file is one of ours that was never finished.
fn is_left_over(name: &str) -> bool {
    let mut parts = name.split('.');
    let ours = parts.next().is_some_and(|name| name.len() == 32 || name == "probe");
    ours && name.ends_with(".tmp")
}

/// What follows the header, if the checksum is right.
fn body_of(key: Key, mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    let (magic, rest) = bytes.split_first_chunk()?;
    let (stated, body) = rest.split_first_chunk::<HASH>()?;
    if *magic != MAGIC || checksum(key, body).as_bytes() != stated {
        return None;
    }
    bytes.drain(..HEADER);
    Some(bytes)
}

/// Says that a file was used, for who finds it next.
fn touch(path: &Path) {
    if let Ok(file) = fs::File::options().append(true).open(path) {
        let _ = file.set_modified(std::time::SystemTime::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(folder: &Path, bytes: u64) -> Store {
        Store::open(&DiskCache { folder: folder.to_owned(), bytes }).unwrap()
    }

    fn key(n: u8, class: u8) -> Key {
        Key { name: Name([n; 16]), class }
    }

    #[test]
    fn what_was_put_is_found_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path(), 1 << 20);
        let (a, b) = (key(1, 0), key(1, 1));
        assert!(store.get(a).is_none());
        store.put(a, vec![1; 1000]);
        store.put(b, vec![2; 10]);
        assert!(store.refresh(a));
        drop(store);
        let store = open(folder.path(), 1 << 20);
        assert_eq!((store.get(a).unwrap(), store.get(b).unwrap()), (vec![1; 1000], vec![2; 10]));
        assert_eq!(store.len(a), Some((HEADER + 1000) as u64));
        assert!(store.rate().unwrap() > 0.0);
    }

    #[test]
    fn torn_damaged_and_foreign_files_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let keys = [1, 2, 3, 4].map(|n| key(n, 0));
        let store = open(folder.path(), 1 << 20);
        keys.into_iter().for_each(|key| store.put(key, vec![7; 500]));
        drop(store);
        let path = |key: Key| folder.path().join(key.file());
        let whole = fs::read(path(keys[0])).unwrap();
        fs::write(path(keys[0]), &whole[..whole.len() - 1]).unwrap();
        let mut flipped = whole.clone();
        flipped[HEADER + 17] ^= 4;
        fs::write(path(keys[1]), flipped).unwrap();
        // Another page's file under this name.
        fs::copy(path(keys[3]), path(keys[2])).unwrap();
        let half = folder.path().join(format!("{}.12.tmp", keys[0].name));
        fs::write(&half, b"half").unwrap();
        fs::write(folder.path().join("notes.txt"), b"somebody's").unwrap();
        let store = open(folder.path(), 1 << 20);
        assert!(!half.exists(), "what was never finished is deleted");
        for key in &keys[..3] {
            assert!(store.get(*key).is_none() && !path(*key).exists() && !store.refresh(*key));
        }
        assert_eq!(store.get(keys[3]).unwrap(), [7; 500]);
        assert!(folder.path().join("notes.txt").exists(), "other files are left alone");
    }

    #[test]
    fn a_key_has_one_name() {
        let file = format!("{}.3.kv", "0f".repeat(16));
        assert_eq!(Key::of(&file), Some(key(15, 3)));
        let (plus, upper) = ("+f".repeat(16), "0F".repeat(16));
        for name in [
            format!("{plus}.3.kv"),
            format!("{upper}.3.kv"),
            file.replace(".3.", ".03."),
            file.replace(".3.", ".+3."),
        ] {
            assert_eq!(Key::of(&name), None, "{name}");
        }
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let each = (HEADER + 100) as u64;
        let store = open(folder.path(), 3 * each);
        let keys: Vec<Key> = (0..5).map(|n| key(n, 0)).collect();
        for key in &keys[..3] {
            store.put(*key, vec![1; 100]);
            store.settle();
        }
        store.get(keys[0]).unwrap();
        for key in &keys[3..] {
            store.put(*key, vec![1; 100]);
            store.settle();
        }
        drop(store);
        let store = open(folder.path(), 3 * each);
        let held: Vec<bool> = keys.iter().map(|key| store.refresh(*key)).collect();
        assert_eq!(held, [true, false, false, true, true], "the first was used again");
        drop(store);
        // A smaller bound, later.
        let store = open(folder.path(), each);
        assert_eq!(keys.iter().filter(|key| store.refresh(**key)).count(), 1);
    }

    #[test]
    fn a_folder_that_cannot_be_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, b"no folder").unwrap();
        let options = DiskCache { folder: file.clone(), bytes: 1 };
        let error = Store::open(&options).err().unwrap().to_string();
        assert!(error.contains(file.to_str().unwrap()), "{error}");
    }
}
