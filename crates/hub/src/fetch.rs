//! A file's bytes, over several connections, into a [`Partial`].
//!
//! Connections take pieces from a queue and write where they belong. The calling thread records what has
//! come, reports it, and sums up the bytes from the beginning on while the rest is on its way. A piece
//! asks the site itself and is sent on from there, so the signed address that it gets is never old. A
//! piece that is cut goes on where it was cut.

use crate::api::{Api, RemoteFile};
use crate::http::{Backoff, Trouble, header, host};
use crate::name::Repo;
use crate::partial::{BLOCK, Partial};
use crate::{Error, Event};
use std::collections::VecDeque;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes that are read at once.
const CHUNK: usize = 256 << 10;

/// Files below this many bytes come over one connection.
const SMALL: u64 = 32 << 20;

/// What connections tell the calling thread.
enum Word {
    /// Bytes that lie in the file now.
    Wrote { from: u64, bytes: u64 },
    /// A wait before the next try.
    Waits { why: String, wait: Duration },
    /// A connection has nothing more to do.
    Ended(Result<(), Error>),
}

/// One file's way here.
struct Way<'a> {
    api: &'a Api<'a>,
    repo: &'a Repo,
    file: &'a RemoteFile,
    url: String,
    data: &'a std::fs::File,
    path: &'a std::path::Path,
    queue: Mutex<VecDeque<(u64, u64)>>,
    stop: AtomicBool,
}

/// Fetches what is missing of a file, and compares its checksum.
///
/// # Errors
/// [`Error::Checksum`] when the bytes are others than the repository's; what connections and disk say.
pub(crate) fn fetch(
    api: &Api<'_>,
    repo: &Repo,
    commit: &str,
    file: &RemoteFile,
    partial: &mut Partial,
    report: &mut dyn FnMut(Event<'_>),
) -> Result<(), Error> {
    let settings = api.settings;
    let connections = if file.size < SMALL { 1 } else { settings.connections.max(1) };
    let piece = match connections {
        1 => u64::MAX / 2,
        _ => settings.piece.min(file.size.div_ceil(4 * connections as u64)),
    };
    let pieces = partial.missing(piece);
    let connections = connections.min(pieces.len());
    let data = partial.data().try_clone().map_err(Error::io("open", partial.data_path()))?;
    let path = partial.data_path().to_owned();
    let way = Way {
        api,
        repo,
        file,
        url: api.file_url(repo, commit, &file.path),
        data: &data,
        path: &path,
        queue: Mutex::new(pieces.into()),
        stop: AtomicBool::new(false),
    };
    let mut sum =
        Summing { sum: file.checksum.begin(file.size), upto: 0, buffer: vec![0; BLOCK as usize] };
    thread::scope(|scope| {
        let (words, heard) = channel();
        for _ in 0..connections {
            let (way, words) = (&way, words.clone());
            scope.spawn(move || {
                let end = way.connection(&words);
                // Who listens no more has an error of its own.
                let _ = words.send(Word::Ended(end));
            });
        }
        drop(words);
        let end = listen(&way, &heard, partial, &mut sum, report);
        way.stop.store(true, Relaxed);
        end
    })?;
    if partial.beginning() < file.size {
        return Err(Error::Cut { file: file.path.clone(), why: "it ended early".into(), tries: 1 });
    }
    while sum.upto < file.size {
        sum.step(&way, file.size)?;
    }
    let got = sum.sum.finish();
    if got == file.checksum.hex() {
        return Ok(());
    }
    let (kind, want) = (file.checksum.kind(), file.checksum.hex().to_owned());
    Err(Error::Checksum { file: file.path.clone(), kind, want, got })
}

/// Records and reports until all connections have ended.
fn listen(
    way: &Way<'_>,
    heard: &Receiver<Word>,
    partial: &mut Partial,
    sum: &mut Summing,
    report: &mut dyn FnMut(Event<'_>),
) -> Result<(), Error> {
    loop {
        let ready = partial.beginning();
        let word = match sum.upto < ready {
            true => match heard.try_recv() {
                Err(TryRecvError::Empty) => {
                    sum.step(way, ready)?;
                    continue;
                }
                Err(TryRecvError::Disconnected) => return Ok(()),
                Ok(word) => word,
            },
            false => match heard.recv() {
                Err(_) => return Ok(()),
                Ok(word) => word,
            },
        };
        match word {
            Word::Wrote { from, bytes } => {
                partial.wrote(from, bytes)?;
                report(Event::Bytes(bytes));
            }
            Word::Waits { why, wait } => report(Event::Wait { why: &why, wait }),
            Word::Ended(end) => end?,
        }
    }
}

/// The checksum of the bytes so far.
struct Summing {
    sum: crate::digest::Sum,
    upto: u64,
    buffer: Vec<u8>,
}

impl Summing {
    /// Adds a block at most.
    fn step(&mut self, way: &Way<'_>, ready: u64) -> Result<(), Error> {
        let bytes = BLOCK.min(ready - self.upto) as usize;
        let buffer = &mut self.buffer[..bytes];
        crate::at::read_exact(way.data, buffer, self.upto).map_err(Error::io("read", way.path))?;
        self.sum.update(buffer);
        self.upto += bytes as u64;
        Ok(())
    }
}

impl Way<'_> {
    /// Fetches pieces until there are none.
    fn connection(&self, words: &Sender<Word>) -> Result<(), Error> {
        let mut backoff = Backoff::new(self.api.settings);
        let next = || self.queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        while let Some((mut from, to)) = next() {
            while from < to {
                if self.stop.load(Relaxed) {
                    return Ok(());
                }
                let before = from;
                let trouble = match self.piece(&mut from, to, words) {
                    Ok(()) => continue,
                    Err(trouble) => trouble,
                };
                if from > before {
                    backoff.succeeded();
                }
                // A network that was there a moment ago may come back.
                let (why, asked) = match trouble {
                    Trouble::Passing { why, wait } => (why, wait),
                    Trouble::Unreachable { host, why } => (format!("{host}: {why}"), None),
                    Trouble::Refused(refusal) => return Err(self.api.refused(self.repo, refusal)),
                    Trouble::Final(error) => return Err(error),
                };
                let Some(wait) = backoff.failed(asked) else {
                    let tries = backoff.failures();
                    return Err(Error::Cut { file: self.file.path.clone(), why, tries });
                };
                let _ = words.send(Word::Waits { why, wait });
                self.sleep(wait);
            }
        }
        Ok(())
    }

    /// Waits, but not when it is over.
    fn sleep(&self, wait: Duration) {
        let end = Instant::now() + wait;
        while !self.stop.load(Relaxed) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(Duration::from_millis(100)));
        }
    }

    /// Fetches `from..to`, and moves `from` with what has come.
    fn piece(&self, from: &mut u64, to: u64, words: &Sender<Word>) -> Result<(), Trouble> {
        let answer = self.api.http.get(&self.url, Some((*from, to)))?;
        self.check(&answer, *from, to)?;
        let mut reader = answer.into_body().into_reader();
        let mut buffer = vec![0; CHUNK];
        while *from < to && !self.stop.load(Relaxed) {
            let most = CHUNK.min((to - *from) as usize);
            let passing = |why: String| Trouble::Passing { why, wait: None };
            let bytes = match reader.read(&mut buffer[..most]) {
                Ok(0) => return Err(passing("the connection was cut".into())),
                Ok(bytes) => bytes,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(passing(format!("the connection was cut: {e}"))),
            };
            let written = crate::at::write_all(self.data, &buffer[..bytes], *from);
            written.map_err(|e| Trouble::Final(Error::io("write", self.path)(e)))?;
            let _ = words.send(Word::Wrote { from: *from, bytes: bytes as u64 });
            *from += bytes as u64;
        }
        Ok(())
    }

    /// Whether an answer is the piece that was asked for.
    fn check(
        &self,
        answer: &ureq::http::Response<ureq::Body>,
        from: u64,
        to: u64,
    ) -> Result<(), Trouble> {
        let bad = |why: String| Trouble::Final(Error::BadAnswer { url: self.url.clone(), why });
        if answer.status() != 206 {
            return match (from, to == self.file.size) {
                (0, true) => Ok(()),
                _ => Err(Trouble::Final(Error::NoRanges { host: host(&self.url).to_owned() })),
            };
        }
        let range = header(answer.headers(), "content-range").unwrap_or("");
        let parts = range.strip_prefix("bytes ").and_then(|r| r.split_once('/'));
        let Some((span, size)) = parts else { return Err(bad(format!("its range is {range:?}"))) };
        let begins = span.split('-').next().and_then(|at| at.parse().ok());
        if begins != Some(from) || (size != "*" && size.parse() != Ok(self.file.size)) {
            let size = self.file.size;
            return Err(bad(format!(
                "its range is {range:?}, asked for was {from}-{} of {size}",
                to - 1
            )));
        }
        Ok(())
    }
}
