//! The progress of a model that is being made, for any number of clients.
//!
//! A client that reads slowly gets the newest line of each file and the last few others; what is kept does not grow
//! with the length of the work.

use super::PullStep;
use crate::fault::Fault;
use axum::body::{Body as HttpBody, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use futures_util::stream;
use serde_json::{Value as Json, json};
use std::convert::Infallible;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Between two lines about the same file.
const PAUSE: Duration = Duration::from_millis(100);

/// Lines that are about no file.
const KEPT: usize = 16;

const LOST: &str = "the work has ended without a result: the log says why";

/// The newest lines.
#[derive(Debug, Default)]
pub(super) struct Board {
    /// Number of the newest line.
    newest: u64,
    /// By their numbers.
    lines: Vec<Line>,
    /// The work has ended, and how.
    ended: Option<Result<(), Fault>>,
}

#[derive(Debug)]
struct Line {
    number: u64,
    /// The file that it is about.
    file: Option<String>,
    text: Json,
}

impl Board {
    /// Adds a line, in the place of the last one about the same file.
    fn add(&mut self, file: Option<String>, text: Json) {
        match &file {
            Some(_) => self.lines.retain(|line| line.file != file),
            None => {
                let others = self.lines.iter().filter(|line| line.file.is_none()).count();
                let oldest = self.lines.iter().position(|line| line.file.is_none());
                if let Some(oldest) = oldest.filter(|_| others >= KEPT) {
                    self.lines.remove(oldest);
                }
            }
        }
        self.newest += 1;
        self.lines.push(Line { number: self.newest, file, text });
    }

    /// Lines after one of a number, as they are sent.
    fn after(&self, seen: u64) -> String {
        let new = self.lines.iter().filter(|line| line.number > seen);
        new.map(|line| format!("{}\n", line.text)).collect()
    }
}

/// Where the work reports.
pub(super) struct Reporter {
    board: watch::Sender<Board>,
    /// The file that was reported last, and when.
    last: Option<(String, Instant)>,
}

impl Reporter {
    pub(super) fn new() -> (Reporter, Reader) {
        let (board, reader) = watch::channel(Board::default());
        (Reporter { board, last: None }, Reader(reader))
    }

    pub(super) fn status(&self, status: &str) {
        self.board.send_modify(|board| board.add(None, json!({"status": status})));
    }

    pub(super) fn step(&mut self, step: PullStep) {
        match step {
            PullStep::Status(status) => self.status(&status),
            PullStep::File { digest, name, total, completed } => {
                let soon = self.last.as_ref().is_some_and(|(file, at)| {
                    *file == name && at.elapsed() < PAUSE && completed < total
                });
                if soon {
                    return;
                }
                self.last = Some((name.clone(), Instant::now()));
                let mut line = json!({"status": format!("pulling {name}"), "total": total, "completed": completed});
                if let Some(digest) = digest {
                    line["digest"] = format!("sha256:{digest}").into();
                }
                self.board.send_modify(|board| board.add(Some(name), line));
            }
        }
    }

    /// The work has ended.
    pub(super) fn end(self, done: Result<(), Fault>) {
        let line = match &done {
            Ok(()) => json!({"status": "success"}),
            Err(fault) => json!({"error": fault.message}),
        };
        self.board.send_modify(|board| {
            board.add(None, line);
            board.ended = Some(done);
        });
    }
}

/// What a client reads. Each clone begins with the first line that is kept.
#[derive(Clone)]
pub(super) struct Reader(watch::Receiver<Board>);

impl Reader {
    /// The response of a request: lines as they come if it is a stream, the end alone otherwise.
    pub(super) async fn response(self, stream: bool) -> Result<Response, Fault> {
        let (kind, body) = match stream {
            true => ("application/x-ndjson", self.lines()),
            false => {
                self.end().await?;
                ("application/json", HttpBody::from(json!({"status": "success"}).to_string()))
            }
        };
        let mut response = Response::new(body);
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        Ok(response)
    }

    /// Waits for the end.
    async fn end(mut self) -> Result<(), Fault> {
        let lost = || Fault::internal(LOST);
        let ended = self.0.wait_for(|board| board.ended.is_some()).await.map_err(|_| lost())?;
        ended.ended.clone().unwrap_or_else(|| Err(lost()))
    }

    fn lines(self) -> HttpBody {
        let next = |(mut reader, seen): (Reader, Option<u64>)| async move {
            let mut seen = seen?;
            loop {
                let (text, ended) = {
                    let board = reader.0.borrow_and_update();
                    let text = board.after(seen);
                    seen = board.newest;
                    (text, board.ended.is_some())
                };
                if !text.is_empty() {
                    let then = (reader, (!ended).then_some(seen));
                    return Some((Ok::<_, Infallible>(Bytes::from(text)), then));
                }
                if reader.0.changed().await.is_err() {
                    let line = format!("{}\n", json!({"error": LOST}));
                    return Some((Ok(line.into()), (reader, None)));
                }
            }
        };
        HttpBody::from_stream(stream::unfold((self, Some(0)), next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    fn file(name: &str, completed: u64) -> PullStep {
        PullStep::File { digest: None, name: name.into(), total: 1000, completed }
    }

    #[tokio::test]
    async fn a_slow_reader_gets_the_newest_line_of_each_file() {
        let (mut reporter, reader) = Reporter::new();
        reporter.status("pulling manifest");
        for completed in 0..=1000 {
            for name in ["a", "b"] {
                reporter.step(file(name, completed));
            }
        }
        assert!(reader.0.borrow().lines.len() <= KEPT + 2);
        let late = reader.clone();
        reporter.end(Ok(()));
        for reader in [reader, late] {
            let body = reader.response(true).await.unwrap().into_body();
            let text =
                String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
            let lines: Vec<Json> =
                text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let told = |at: usize, key: &str| lines[at][key].clone();
            assert_eq!([told(0, "status"), told(3, "status")], ["pulling manifest", "success"]);
            assert_eq!([told(1, "completed"), told(2, "completed")], [1000, 1000]);
            assert_eq!(lines.len(), 4, "{text}");
        }
    }

    #[tokio::test]
    async fn lines_about_no_file_are_bounded_and_a_panic_is_an_end() {
        let (reporter, reader) = Reporter::new();
        (0..1000).for_each(|n| reporter.status(&format!("next try in {n} s")));
        assert_eq!(reader.0.borrow().lines.len(), KEPT);
        drop(reporter);
        let text = reader.clone().response(true).await.unwrap().into_body().collect().await;
        let text = String::from_utf8(text.unwrap().to_bytes().to_vec()).unwrap();
        assert!(text.contains("next try in 999 s") && text.contains(LOST), "{text}");
        assert_eq!(reader.response(false).await.unwrap_err().status, 500);
    }
}
