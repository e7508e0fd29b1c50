//! Mapped files: what can be opened, and that released pages leave and come back.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use arclight_memory::{Advice, Error, MappedFile};

/// A directory that goes away with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("arclight-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn page() -> usize {
    // SAFETY: sysconf has no preconditions.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Bytes of the mapping that contains `addr` that this process holds, by its page tables.
fn resident(addr: usize) -> usize {
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut inside = false;
    for line in smaps.lines() {
        let first = line.split(' ').next().unwrap();
        if let Some((start, end)) = first.split_once('-') {
            let number = |s| usize::from_str_radix(s, 16).unwrap();
            inside = (number(start)..number(end)).contains(&addr);
        } else if inside && first == "Rss:" {
            let kib = line.trim_end_matches(" kB").rsplit(' ').next().unwrap();
            return kib.parse::<usize>().unwrap() * 1024;
        }
    }
    panic!("no mapping at {addr:x}");
}

/// 64 pages and a piece of one.
fn contents() -> Vec<u8> {
    (0..64 * page() as u32 + 100).map(|i| (i.wrapping_mul(2654435761) >> 24) as u8).collect()
}

#[test]
fn a_file_is_its_bytes() {
    let scratch = Scratch::new("bytes");
    let path = scratch.file("model", b"GGUF and so on");
    let file = MappedFile::open(&path).unwrap();
    assert_eq!(&*file, b"GGUF and so on");
    assert_eq!(file.path(), path);
    file.advise(&file, Advice::Sequential).unwrap();
    file.advise(&file[3..7], Advice::WillNeed).unwrap();
}

#[test]
fn what_cannot_be_opened_is_told_apart() {
    let scratch = Scratch::new("errors");
    let open = |path: PathBuf| MappedFile::open(&path).unwrap_err();

    let error = open(scratch.0.join("absent"));
    assert!(matches!(error, Error::NotFound { .. }));
    assert!(error.to_string().ends_with("absent: no such file"), "{error}");

    assert!(matches!(open(scratch.0.clone()), Error::Directory { .. }));
    assert!(matches!(open(scratch.file("empty", b"")), Error::Empty { .. }));
    assert!(matches!(open(PathBuf::from("/dev/null")), Error::NotRegular { .. }));

    let secret = scratch.file("secret", b"x");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).unwrap();
    // The superuser may read everything, and then there is nothing to see here.
    if fs::File::open(&secret).is_err() {
        assert!(matches!(open(secret), Error::Permission { .. }));
    }
}

#[test]
fn released_pages_leave_and_come_back_with_the_same_bytes() {
    let (scratch, bytes, page) = (Scratch::new("release"), contents(), page());
    let file = MappedFile::open(&scratch.file("model", &bytes)).unwrap();
    let (addr, whole) = (file.as_ptr().addr(), 65 * page);
    let look = || assert!(*file == *bytes);

    look();
    assert_eq!(resident(addr), whole);
    // From inside page 10 to inside page 21: pages 11 to 20 lie wholly inside.
    file.release(&file[10 * page + 1..21 * page + 5]).unwrap();
    assert_eq!(resident(addr), whole - 10 * page);
    look();
    assert_eq!(resident(addr), whole);

    // Nothing lies wholly inside.
    file.release(&file[page + 1..3 * page - 1]).unwrap();
    file.release(&file[5 * page + 1..5 * page + 2]).unwrap();
    file.release(&file[..0]).unwrap();
    assert_eq!(resident(addr), whole);

    // The last page is the file's alone, though the file ends inside it.
    file.release(&file[60 * page..]).unwrap();
    assert_eq!(resident(addr), whole - 5 * page);
    file.release(&file).unwrap();
    assert_eq!(resident(addr), 0);
    look();
}

#[test]
fn a_file_mapped_again_is_the_same_file_with_pages_of_its_own() {
    let (scratch, bytes, page) = (Scratch::new("again"), contents(), page());
    let path = scratch.file("model", &bytes);
    let file = MappedFile::open(&path).unwrap();
    // Another file takes its name.
    fs::rename(scratch.file("other", &[1; 100]), &path).unwrap();
    let again = file.again().unwrap();
    assert!(*file == *bytes && *again == *bytes);
    file.release(&file).unwrap();
    let held = [&file, &again].map(|f| resident(f.as_ptr().addr()));
    assert_eq!(held, [0, 65 * page]);
}

#[test]
fn a_file_that_has_changed_its_length_is_not_mapped_again() {
    let scratch = Scratch::new("longer");
    let path = scratch.file("model", &contents());
    let file = MappedFile::open(&path).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
    assert!(file.again().unwrap_err().to_string().contains("changed its length"));
}

#[test]
fn bytes_of_another_mapping_are_refused() {
    let (scratch, bytes) = (Scratch::new("outside"), contents());
    let file = MappedFile::open(&scratch.file("model", &bytes)).unwrap();
    let other = MappedFile::open(&scratch.file("other", &bytes)).unwrap();
    for foreign in [&bytes[..], &other[..], &other[100..200]] {
        let error = file.release(foreign).unwrap_err();
        assert!(matches!(error, Error::Outside { len, .. } if len == foreign.len()), "{error}");
        assert!(matches!(file.advise(foreign, Advice::WillNeed), Err(Error::Outside { .. })));
    }
}
