//! Lines of files: read one by one, and answers appended so that none is there twice after a crash.

use super::disk::{Budget, Full};
use super::object::{Answered, Usage};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::sync::Arc;

/// A request of a batch.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) custom_id: String,
    pub(super) method: String,
    pub(super) url: String,
    /// An object.
    pub(super) body: Box<RawValue>,
}

/// The fields of a line's body that concern batches.
#[derive(Default, Deserialize)]
pub(super) struct Head<'a> {
    #[serde(borrow)]
    pub(super) model: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) stream: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) store: Option<&'a RawValue>,
}

impl Line {
    /// These fields. A body that has one of them twice has none: its endpoint refuses it.
    pub(super) fn head(&self) -> Head<'_> {
        serde_json::from_str(self.body.get()).unwrap_or_default()
    }
}

/// A line as it stands in the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Raw {
    Text(Vec<u8>),
    /// It has more bytes than may be.
    TooLong,
}

/// Reads lines of bounded length.
pub(super) struct Lines {
    file: BufReader<File>,
    most: usize,
    /// The number of the last line, from 1.
    pub(super) number: u64,
    /// How many lines were given: empty ones do not count.
    pub(super) given: u64,
}

impl Lines {
    pub(super) fn open(path: &Path, most: usize) -> io::Result<Lines> {
        let file = BufReader::with_capacity(64 << 10, File::open(path)?);
        Ok(Lines { file, most, number: 0, given: 0 })
    }

    /// The next line that is not empty, without its end.
    pub(super) fn next(&mut self) -> io::Result<Option<Raw>> {
        loop {
            let mut text = Vec::new();
            let read = (&mut self.file).take(self.most as u64 + 1).read_until(b'\n', &mut text)?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            let too_long = text.last() != Some(&b'\n') && text.len() > self.most;
            if too_long {
                self.file.skip_until(b'\n')?;
            } else if text.trim_ascii().is_empty() {
                continue;
            }
            self.given += 1;
            return Ok(Some(if too_long { Raw::TooLong } else { Raw::Text(text) }));
        }
    }
}

/// What became of a line.
#[derive(Debug, Serialize)]
pub(super) struct Answer {
    pub(super) id: String,
    pub(super) custom_id: String,
    pub(super) response: Option<Response>,
    pub(super) error: Option<LineError>,
}

/// The answer of the line's endpoint.
#[derive(Debug, Serialize)]
pub(super) struct Response {
    pub(super) status_code: u16,
    pub(super) request_id: String,
    pub(super) body: Box<RawValue>,
}

/// Why there is none.
#[derive(Debug, Serialize)]
pub(super) struct LineError {
    pub(super) code: &'static str,
    pub(super) message: String,
}

impl Answer {
    /// Whether it stands in the file of answers, and not in that of errors.
    pub(super) fn is_success(&self) -> bool {
        self.response.as_ref().is_some_and(|response| response.status_code == 200)
    }

    /// The id of the answer to a request, by its number.
    pub(super) fn id_of(tag: &str, line: u64) -> String {
        format!("batch_req_{tag}_{line}")
    }
}

/// The line that an id is of.
fn line_of(id: &str) -> Option<u64> {
    id.rsplit_once('_')?.1.parse().ok()
}

/// Lines that are answered: a bit for each.
#[derive(Debug, Default)]
pub(super) struct Done(Vec<u64>);

impl Done {
    /// Marks a line; whether it was not marked before.
    pub(super) fn mark(&mut self, line: u64) -> bool {
        let (word, bit) = ((line / 64) as usize, 1 << (line % 64));
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        let new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        new
    }

    /// Number of marked lines.
    pub(super) fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    pub(super) fn has(&self, line: u64) -> bool {
        self.0.get((line / 64) as usize).is_some_and(|word| word & (1 << (line % 64)) != 0)
    }
}

/// What was found in the files of a batch.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) done: Done,
    pub(super) completed: u64,
    pub(super) failed: u64,
    pub(super) usage: Usage,
}

/// The files that answers are appended to.
#[derive(Debug)]
pub(super) struct Outputs {
    answers: File,
    errors: File,
    budget: Arc<Budget>,
}

/// Why nothing was appended.
#[derive(Debug)]
pub(super) enum Refused {
    Full(Full),
    Io(io::Error),
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refused::Full(full) => full.fmt(f),
            Refused::Io(error) => write!(f, "the answers cannot be written: {error}"),
        }
    }
}

/// The part of a line that tells which one it was.
#[derive(Deserialize)]
struct Written {
    id: String,
    response: Option<WrittenResponse>,
}

#[derive(Deserialize)]
struct WrittenResponse {
    body: Answered,
}

impl Outputs {
    /// Opens both files, and finds what is in them of `most` requests. A line that a crash has cut off is taken away.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(super) fn open(
        answers: &Path,
        errors: &Path,
        budget: Arc<Budget>,
        most: u64,
    ) -> io::Result<(Outputs, Found)> {
        let mut found = Found::default();
        let mut open = |path: &Path, success: bool| -> io::Result<File> {
            let mut options = File::options();
            let file = options.create(true).read(true).append(true).open(path)?;
            let (mut reader, mut whole) = (BufReader::new(&file), 0);
            let mut text = Vec::new();
            loop {
                text.clear();
                let read = reader.read_until(b'\n', &mut text)? as u64;
                if read == 0 {
                    break;
                }
                let written = serde_json::from_slice::<Written>(&text).ok();
                let line = written.as_ref().and_then(|written| line_of(&written.id));
                let line = line.filter(|line| *line <= most && text.ends_with(b"\n"));
                // What follows a torn line was never synced either.
                let (Some(written), Some(line)) = (written, line) else { break };
                whole += read;
                if found.done.mark(line) {
                    let counter = if success { &mut found.completed } else { &mut found.failed };
                    *counter += 1;
                    if let Some(response) = written.response.filter(|_| success) {
                        found.usage.add(&response.body);
                    }
                }
            }
            let length = file.metadata()?.len();
            if length > whole {
                file.set_len(whole)?;
                file.sync_all()?;
                budget.release(length - whole);
            }
            Ok(file)
        };
        let (answers, errors) = (open(answers, true)?, open(errors, false)?);
        Ok((Outputs { answers, errors, budget }, found))
    }

    /// Appends answers; they are on the disk when this returns.
    ///
    /// # Errors
    /// When there is no room, or the disk refuses them. Those that were appended stay.
    pub(super) fn append(&mut self, all: &[Answer]) -> Result<(), Refused> {
        for success in [true, false] {
            let mut text = Vec::new();
            for answer in all.iter().filter(|answer| answer.is_success() == success) {
                serde_json::to_writer(&mut text, answer).map_err(|e| Refused::Io(e.into()))?;
                text.push(b'\n');
            }
            if text.is_empty() {
                continue;
            }
            let bytes = text.len() as u64;
            let file = if success { &mut self.answers } else { &mut self.errors };
            let before = file.metadata().map_err(Refused::Io)?.len();
            self.budget.claim(bytes).map_err(Refused::Full)?;
            if let Err(error) = file.write_all(&text).and_then(|()| file.sync_data()) {
                // Half a line would make the file unreadable.
                let _ = file.set_len(before);
                self.budget.release(bytes);
                return Err(Refused::Io(error));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer(line: u64, status_code: u16) -> Answer {
        let body =
            json!({"usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}});
        Answer {
            id: Answer::id_of("x_y", line),
            custom_id: format!("c{line}"),
            response: Some(Response {
                status_code,
                request_id: "r".into(),
                body: serde_json::value::to_raw_value(&body).unwrap(),
            }),
            error: None,
        }
    }

    #[test]
    fn lines_are_bounded_and_numbered() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in");
        std::fs::write(&path, "abcd\n\n  \nabcdefgh\r\nabcdefghijk\nlast").unwrap();
        let mut lines = Lines::open(&path, 10).unwrap();
        let mut all = Vec::new();
        while let Some(raw) = lines.next().unwrap() {
            let text = match raw {
                Raw::Text(text) => String::from_utf8(text).unwrap(),
                Raw::TooLong => "too long".to_owned(),
            };
            all.push((lines.number, lines.given, text));
        }
        let expected =
            [(1, 1, "abcd\n"), (4, 2, "abcdefgh\r\n"), (5, 3, "too long"), (6, 4, "last")];
        assert_eq!(all, expected.map(|(number, given, text)| (number, given, text.to_owned())));
    }

    #[test]
    fn what_was_written_is_found_again_and_what_was_torn_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let (good, bad) = (folder.path().join("good"), folder.path().join("bad"));
        let budget = Arc::new(Budget::new(10_000, 0));
        let open = || Outputs::open(&good, &bad, budget.clone(), 100).unwrap();
        let (mut outputs, found) = open();
        assert_eq!(found.completed + found.failed, 0);
        outputs.append(&[answer(1, 200), answer(3, 400), answer(2, 200)]).unwrap();
        drop(outputs);
        let whole = std::fs::read(&good).unwrap();
        // A crash in the middle of the next line.
        let mut torn = whole.clone();
        torn.extend_from_slice(br#"{"id": "batch_req_x_y_4", "cust"#);
        std::fs::write(&good, &torn).unwrap();
        let (mut outputs, found) = open();
        assert_eq!((found.completed, found.failed), (2, 1));
        assert_eq!((found.usage.input_tokens, found.usage.total_tokens), (6, 10));
        let done = [1, 2, 3, 4, 99].map(|line| found.done.has(line));
        assert_eq!(done, [true, true, true, false, false]);
        assert_eq!(std::fs::read(&good).unwrap(), whole);
        outputs.append(&[answer(4, 200)]).unwrap();
        assert_eq!(open().1.completed, 3);
    }

    #[test]
    fn without_room_nothing_is_appended() {
        let folder = tempfile::tempdir().unwrap();
        let (good, bad) = (folder.path().join("good"), folder.path().join("bad"));
        let budget = Arc::new(Budget::new(200, 0));
        let (mut outputs, _) = Outputs::open(&good, &bad, budget, 100).unwrap();
        outputs.append(&[answer(1, 200)]).unwrap();
        let length = good.metadata().unwrap().len();
        assert!(matches!(outputs.append(&[answer(2, 200)]), Err(Refused::Full(_))));
        assert_eq!(good.metadata().unwrap().len(), length);
    }
}
