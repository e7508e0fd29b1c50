//! Reads past the page cache, and what the page cache has of a file.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use arclight_memory::{DirectFile, Error, MappedFile, Stage};

/// A file on the file system that the tests are built on, which goes away with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::write(&path, bytes).unwrap();
        // Pages that are not written back stay in the page cache.
        File::open(&path).unwrap().sync_all().unwrap();
        Self(path)
    }

    /// Open past the page cache; `None`, and said, where that cannot be.
    fn direct(&self) -> Option<DirectFile> {
        match DirectFile::open(&self.0) {
            Err(fault @ Error::NoDirect { .. }) => {
                eprintln!("skipped: {fault}");
                None
            }
            opened => Some(opened.unwrap()),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Over two reads of 8 MiB, and no multiple of anything.
const LEN: usize = (17 << 20) + 777;

fn contents() -> Vec<u8> {
    (0..LEN as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 23) as u8).collect()
}

#[test]
fn any_part_of_a_file_is_read() {
    let bytes = contents();
    let scratch = Scratch::new("direct-parts", &bytes);
    let Some(file) = scratch.direct() else { return };
    assert_eq!(file.len(), LEN as u64);
    let mut reused = Stage::new(LEN + (1 << 16)).unwrap();
    let page = 4096;
    for (start, end) in [
        (0, 1),
        (0, page),
        (1, page - 1),
        (page - 1, page + 1),
        (page, 3 * page),
        (12_345, 9_876_543),
        (0, LEN),
        (777, LEN),
        // The last block is shorter than the others.
        (LEN - 1, LEN),
        (LEN - 777, LEN),
        (LEN - 778, LEN - 1),
        (LEN - 5 * page, LEN),
        (5, 5),
        (LEN, LEN),
    ] {
        let range = start as u64..end as u64;
        let mut own = Stage::new(file.stage_bytes(&range)).unwrap();
        for stage in [&mut own, &mut reused] {
            file.read(range.clone(), stage).unwrap();
            assert!(**stage == bytes[start..end], "{start}..{end}");
        }
    }
}

#[test]
fn what_is_not_there_is_an_error() {
    let scratch = Scratch::new("direct-faults", &contents());
    let Some(file) = scratch.direct() else { return };
    let len = LEN as u64;
    let mut stage = Stage::new(1 << 20).unwrap();
    #[expect(clippy::reversed_empty_ranges, reason = "a caller's fault is an error, too")]
    for range in [len..len + 1, 0..len + 1, u64::MAX - 1..u64::MAX, 7..5] {
        let fault = file.read(range, &mut stage).unwrap_err();
        assert!(matches!(fault, Error::Read { .. }), "{fault}");
        assert!(stage.is_empty());
    }
    let fault = file.read(0..2 << 20, &mut stage).unwrap_err().to_string();
    assert!(fault.contains("direct-faults") && fault.contains("too small"), "{fault}");
    // Somebody cuts it off while it is read.
    File::options().write(true).open(&scratch.0).unwrap().set_len(100_000).unwrap();
    file.read(0..100_000, &mut stage).unwrap();
    let fault = file.read(0..100_001, &mut stage).unwrap_err().to_string();
    assert!(
        fault.contains("reading 100001 bytes at 0") && fault.contains("end of file"),
        "{fault}"
    );
}

#[test]
fn a_file_system_without_such_reads_is_told() {
    let fault = DirectFile::open(Path::new("/proc/version")).unwrap_err();
    assert!(matches!(fault, Error::NoDirect { .. }), "{fault:?}");
    let text = fault.to_string();
    assert!(text.starts_with("/proc/version: ") && text.contains("--load mapped"), "{text}");
    let missing = DirectFile::open(Path::new("/proc/no-such-file")).unwrap_err();
    assert!(matches!(missing, Error::NotFound { .. }), "{missing:?}");
}

#[test]
fn pages_leave_the_page_cache() {
    let bytes = contents();
    let scratch = Scratch::new("uncached", &bytes);
    let file = MappedFile::open(&scratch.0).unwrap();
    let other = MappedFile::open(&scratch.0).unwrap();
    let whole = LEN.next_multiple_of(4096);
    assert!(*file == *bytes);
    assert_eq!(file.cached_bytes().unwrap(), whole);
    assert_eq!(file.place(&file[5..99]).unwrap(), 5..99);

    file.uncache(&file).unwrap();
    if file.cached_bytes().unwrap() == whole {
        eprintln!("skipped: this file system keeps all pages");
        return;
    }
    assert_eq!(file.cached_bytes().unwrap(), 0);
    // They come back, and a part leaves; the kernel may keep up to 2 MiB together at each end.
    assert!(*file == *bytes);
    file.uncache(&file[1 << 20..15 << 20]).unwrap();
    let cached = file.cached_bytes().unwrap();
    assert!((whole - (14 << 20)..=whole - (10 << 20)).contains(&cached), "{cached} of {whole}");
    file.uncache(&file[..0]).unwrap();
    assert_eq!(file.cached_bytes().unwrap(), cached);
    assert!(*file == *bytes);

    // What another has mapped stays.
    assert!(*other == *bytes);
    file.uncache(&file).unwrap();
    assert_eq!(file.cached_bytes().unwrap(), whole);
    assert!(file.uncache(&other[..4096]).is_err());
}

#[test]
fn a_read_past_the_page_cache_leaves_nothing_there() {
    let bytes = contents();
    let scratch = Scratch::new("direct-cache", &bytes);
    let Some(direct) = scratch.direct() else { return };
    let file = MappedFile::open(&scratch.0).unwrap();
    file.uncache(&file).unwrap();
    let before = file.cached_bytes().unwrap();
    if before > 0 {
        eprintln!("skipped: this file system keeps {before} bytes");
        return;
    }
    let all = 0..LEN as u64;
    let mut stage = Stage::new(direct.stage_bytes(&all)).unwrap();
    direct.read(all, &mut stage).unwrap();
    assert!(*stage == *bytes);
    assert_eq!(file.cached_bytes().unwrap(), 0);
}
