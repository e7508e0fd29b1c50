//! Bounded reading of small text files under a root, and the notes about what was missing.

use crate::MAX_ID;
use crate::bitmap::Bitmap;
use crate::idlist::{format_ids, parse_ids};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Most bytes read of any one file. The largest that matters, `mountinfo`, is a few KB.
pub(crate) const MAX_BYTES: u64 = 256 * 1024;
/// Most bytes read of `zoneinfo`, which has some lines for each CPU in each zone.
pub(crate) const MAX_ZONEINFO: u64 = 16 << 20;
/// Most directory entries looked at; a node's directory has one per 128 MiB of its memory.
const MAX_ENTRIES: usize = 65_536;
/// Most notes kept one by one; a broken tree could otherwise give one per file.
const MAX_NOTES: usize = 48;

/// Notes quote files, whose lines may be long.
const MAX_NOTE_CHARS: usize = 240;

/// The sysfs, procfs and cgroupfs files of a machine under a root path. Reads are bounded.
pub struct Tree {
    root: PathBuf,
    notes: Vec<String>,
    dropped: usize,
    cpu_faults: BTreeMap<&'static str, Vec<u32>>,
}

impl Tree {
    /// The files under `root`, which is `/` for this machine.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), notes: vec![], dropped: 0, cpu_faults: BTreeMap::new() }
    }

    /// Records something that made the description coarser.
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        let mut text: String = text.into();
        if let Some((end, _)) = text.char_indices().nth(MAX_NOTE_CHARS) {
            text.truncate(end);
            text.push('…');
        }
        if self.notes.contains(&text) {
            return;
        }
        if self.notes.len() < MAX_NOTES {
            self.notes.push(text);
        } else {
            self.dropped += 1;
        }
    }

    /// Records a fault that many CPUs are likely to share: one note lists them all.
    pub(crate) fn cpu_fault(&mut self, what: &'static str, cpu: u32) {
        self.cpu_faults.entry(what).or_default().push(cpu);
    }

    pub(crate) fn into_notes(mut self) -> Vec<String> {
        for (what, cpus) in self.cpu_faults {
            self.notes.push(format!("cpus {}: {what}", format_ids(cpus)));
        }
        if self.dropped > 0 {
            self.notes.push(format!("{} further notes left out", self.dropped));
        }
        self.notes
    }

    /// The text of the file at a path relative to the root; `None` if the file does not exist or cannot be read. Only
    /// the first 256 KiB are read, cut at a line end.
    pub fn text(&mut self, path: &str) -> Option<String> {
        match read_bounded(&self.root.join(path), MAX_BYTES) {
            Ok((text, false)) => Some(text),
            Ok((mut text, true)) => {
                self.note(format!("/{path} is longer than {MAX_BYTES} bytes: the rest is ignored"));
                text.truncate(text.rfind('\n').unwrap_or(0));
                Some(text)
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            // A path through a file, such as an unusual mount: as absent as the above.
            Err(e) if e.kind() == io::ErrorKind::NotADirectory => None,
            Err(e) => {
                self.note(format!("/{path} cannot be read ({e})"));
                None
            }
        }
    }

    /// The first `MAX_BYTES` of a file that is expected to be longer.
    pub(crate) fn head(&mut self, path: &str) -> Option<String> {
        read_bounded(&self.root.join(path), MAX_BYTES).ok().map(|(text, _)| text)
    }

    /// The list of ids in a file; a malformed list is noted and taken as missing.
    pub(crate) fn ids(&mut self, path: &str) -> Option<Vec<u32>> {
        let text = self.text(path)?;
        self.checked(path, parse_ids(&text))
    }

    /// The ids in the file of a list or, as kernels before 2.6.26 have it, in that of a mask.
    /// Where the two differ, as they did in some kernels for caches, the mask is right.
    pub(crate) fn mask_or_ids(&mut self, mask: &str, list: &str) -> Option<Vec<u32>> {
        let text = self.text(mask);
        let ids = text.and_then(|text| self.checked(mask, parse_mask(&text)));
        ids.or_else(|| self.ids(list))
    }

    /// The number in the file at a path relative to the root; `None` if there is no file or no number.
    pub fn number(&mut self, path: &str) -> Option<i64> {
        let text = self.text(path)?;
        let number = text.trim().parse::<i64>();
        self.checked(path, number)
    }

    /// `value`, or a note that the content of `path` is ignored.
    pub(crate) fn checked<T, E: std::fmt::Display>(
        &mut self,
        path: &str,
        value: Result<T, E>,
    ) -> Option<T> {
        value.map_err(|e| self.note(format!("/{path} is ignored: {e}"))).ok()
    }

    /// The numbers N of the directory's entries `{prefix}N`, ascending; empty without it.
    pub(crate) fn numbered(&mut self, dir: &str, prefix: &str) -> Vec<u32> {
        let Ok(entries) = fs::read_dir(self.root.join(dir)) else { return vec![] };
        let mut ids: Vec<u32> = entries
            .take(MAX_ENTRIES)
            .flatten()
            .filter_map(|e| parse_entry(e.file_name().to_str()?, prefix))
            .collect();
        ids.sort_unstable();
        ids
    }
}

fn parse_mask(text: &str) -> Result<Vec<u32>, String> {
    let ids = Bitmap::parse(text)?.ids().ok_or("it has no end")?;
    match ids.last() {
        Some(&id) if id > MAX_ID => Err(format!("{id} is above the highest id, {MAX_ID}")),
        _ => Ok(ids),
    }
}

/// `cpu12` → 12; `cpufreq`, `cpu012` and ids beyond the bound are none.
fn parse_entry(name: &str, prefix: &str) -> Option<u32> {
    let digits = name.strip_prefix(prefix)?;
    let id: u32 = digits.parse().ok()?;
    (id <= MAX_ID && digits == id.to_string()).then_some(id)
}

/// The text and whether there was more. Opening a pipe would block for ever, so only regular
/// files (which procfs and sysfs files are) are opened.
pub(crate) fn read_bounded(path: &Path, max: u64) -> io::Result<(String, bool)> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = vec![];
    File::open(path)?.take(max + 1).read_to_end(&mut bytes)?;
    let more = bytes.len() as u64 > max;
    bytes.truncate(max as usize);
    Ok((String::from_utf8_lossy(&bytes).into_owned(), more))
}

/// The value, in bytes, of the line of a `meminfo` file that has this key.
pub(crate) fn field_kib(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find(|l| l.split_whitespace().any(|word| word == key))?;
    let value = line.split_once(':')?.1.trim().strip_suffix("kB")?;
    value.trim().parse::<u64>().ok()?.checked_mul(1024)
}
