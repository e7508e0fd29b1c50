//! Batches as they are worked on.
//!
//! Each batch is a task: it waits for its turn, reads a line, and has the line answered by the routes that answer live
//! requests. Batches take turns line by line. A line has its turn when no request waits and, beside those that run, a
//! slot is left for a live one; in the queue it is behind all of them. What is answered is appended and synced before
//! the next line begins, so memory has no more than the lines that run. The number of a line is in the id of its
//! answer; by that a server that begins anew knows what is left.

use super::check::{LineLimits, check, line};
use super::disk::apart;
use super::lines::{Answer, Done, Line, LineError, Lines, Outputs, Raw, Refused, Response};
use super::object::{BatchError, KeptBatch, KeptFile, Status};
use super::store::FileStore;
use crate::fault::Fault;
use crate::http::{Client, Rank};
use crate::keys::{KeyLease, Keys};
use crate::model::Model;
use crate::stamp::{self, now};
use axum::Router;
use axum::body::Body as HttpBody;
use axum::http::{Request, StatusCode, header};
use futures_util::FutureExt;
use http_body_util::BodyExt;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tower::ServiceExt;
use tracing::Instrument;

/// Whether models have room for a line, for a number of lines that run.
pub(crate) struct Gate {
    is_open: Box<dyn Fn(usize) -> bool + Send + Sync>,
    /// Is notified whenever a closed gate may have opened.
    changed: Arc<Notify>,
}

impl Gate {
    pub(crate) fn new(
        changed: Arc<Notify>,
        is_open: impl Fn(usize) -> bool + Send + Sync + 'static,
    ) -> Gate {
        Gate { is_open: Box::new(is_open), changed }
    }

    /// Waits until there is room for a line.
    async fn opened(&self, running: &AtomicUsize) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Before the question: a change after it ends the wait.
            changed.as_mut().enable();
            if (self.is_open)(running.load(SeqCst)) {
                return;
            }
            changed.await;
        }
    }
}

/// Lines of all batches that run at once, whatever the model has room for.
const LINES: usize = 256;

/// How often it is looked whether the time of files is over, and whether the disk takes the end of a batch again.
const TIDY: Duration = Duration::from_secs(10);

/// How often a line is tried whose model cannot be loaded, or which takes too long.
const TRIES: u32 = 3;

/// Between two attempts, at first and at most.
const WAIT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Errors that are written at once.
const PIECE: usize = 1000;

/// Whether models have a slot for a line: nobody waits, and one slot stays free.
pub(crate) fn has_room<'m>(models: impl Iterator<Item = &'m Model>, running: usize) -> bool {
    let (mut slots, mut busy, mut waiting) = (0, 0, 0);
    for model in models {
        let now = model.replicas.occupancy();
        slots += model.replicas.slots();
        busy += now.running;
        waiting += now.waiting;
    }
    // Lines that run are not in the queue from their first moment on.
    waiting == 0 && busy.max(running) < slots.saturating_sub(1).max(1)
}

/// What works on batches.
pub(crate) struct Worker {
    store: FileStore,
    /// Answers lines.
    routes: Router,
    keys: Keys,
    gate: Gate,
    line_bytes: usize,
    turns: Arc<Semaphore>,
    running: Arc<AtomicUsize>,
    /// Held by the one line that asks the gate.
    first: tokio::sync::Mutex<()>,
    /// One file is checked at a time.
    checking: tokio::sync::Mutex<()>,
}

/// A line's right to run.
struct Turn {
    client: Client,
    running: Arc<AtomicUsize>,
    changed: Arc<Notify>,
    _lease: Option<KeyLease>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.running.fetch_sub(1, SeqCst);
        self.changed.notify_waiters();
    }
}

/// How a batch ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Completed,
    Expired,
    Cancelled,
}

impl Worker {
    /// One that has lines answered by these routes, each of so many bytes at most.
    pub(crate) fn new(
        store: FileStore,
        routes: Router,
        keys: Keys,
        line_bytes: usize,
        gate: Gate,
    ) -> Worker {
        Worker {
            store,
            routes,
            keys,
            gate,
            line_bytes,
            turns: Arc::new(Semaphore::new(LINES)),
            running: Arc::default(),
            first: tokio::sync::Mutex::default(),
            checking: tokio::sync::Mutex::default(),
        }
    }

    /// Works on all batches, those of an earlier start first, until it is dropped.
    pub(crate) async fn run(self: Arc<Worker>) {
        let (mut tasks, mut begun) = (JoinSet::new(), HashSet::new());
        loop {
            for batch in self.store.unfinished() {
                if begun.insert(batch.id.clone()) {
                    let span = tracing::info_span!("batch", id = batch.id);
                    tasks.spawn(self.clone().batch(batch.id).instrument(span));
                }
            }
            tokio::select! {
                () = self.store.0.added.notified() => {}
                Some(ended) = tasks.join_next() => if let Err(error) = ended {
                    tracing::error!("a batch has panicked: {error}");
                },
                () = tokio::time::sleep(TIDY) => {
                    let store = self.store.clone();
                    let _ = apart(move || store.remove_expired()).await;
                }
            }
        }
    }

    async fn batch(self: Arc<Worker>, id: String) {
        if let Err(Wrong { code, message }) = self.work(&id).await {
            tracing::error!(code, "the batch has failed: {message}");
            // What was answered can be read. Until the disk allows that the batch stays as it was: after a restart it
            // would go on.
            let (output, error) = loop {
                match self.publish(&id).await {
                    Ok(listed) => break listed,
                    Err(Wrong { message, .. }) => {
                        tracing::error!("the batch's files cannot be listed yet: {message}");
                        tokio::time::sleep(TIDY).await;
                    }
                }
            };
            self.store.update(&id, |batch| {
                batch.status = Status::Failed;
                batch.times.failed_at = Some(now());
                (batch.output_file_id, batch.error_file_id) = (output, error);
                let code = code.to_owned();
                batch.errors.push(BatchError { code, message, param: None, line: None });
            });
            while let Err(error) = self.store.save(&id).await {
                tracing::error!("the batch's state cannot be written yet: {error}");
                tokio::time::sleep(TIDY).await;
            }
        }
    }

    /// Brings a batch to its end.
    async fn work(self: &Arc<Worker>, id: &str) -> Result<(), Wrong> {
        let Some(batch) = self.store.state(id) else { return Ok(()) };
        if batch.status == Status::Validating && !self.check(&batch).await? {
            return Ok(());
        }
        let Some(batch) = self.store.state(id) else { return Ok(()) };
        let (store, kept) = (self.store.clone(), batch.clone());
        let open = move || {
            let (answers, errors) = (store.data(&kept.output), store.data(&kept.error));
            Outputs::open(&answers, &errors, store.0.budget.clone(), kept.counts.total)
        };
        let (outputs, found) = apart(open).await.and_then(|opened| opened)?;
        self.store.update(id, |batch| {
            (batch.counts.completed, batch.counts.failed) = (found.completed, found.failed);
            batch.usage = found.usage;
        });
        let all = found.completed + found.failed >= batch.counts.total;
        let end = match batch.status {
            Status::Finalizing if all => End::Completed,
            Status::Finalizing => End::Expired,
            _ => self.answer_all(&batch, outputs, found.done).await?,
        };
        if end != End::Cancelled {
            self.store.update(id, |batch| {
                batch.status = Status::Finalizing;
                batch.times.finalizing_at = Some(now());
            });
            self.store.save(id).await?;
        }
        let (output, error) = self.publish(id).await?;
        self.store.update(id, |batch| {
            (batch.output_file_id, batch.error_file_id) = (output, error);
            let (status, at) = match end {
                End::Completed => (Status::Completed, &mut batch.times.completed_at),
                End::Expired => (Status::Expired, &mut batch.times.expired_at),
                End::Cancelled => (Status::Cancelled, &mut batch.times.cancelled_at),
            };
            *at = Some(now());
            batch.status = status;
        });
        self.store.save(id).await?;
        tracing::info!("the batch has ended: {end:?}");
        Ok(())
    }

    /// Checks the lines; whether they can be answered.
    async fn check(&self, batch: &KeptBatch) -> Result<bool, Wrong> {
        let _alone = self.checking.lock().await;
        let (path, endpoint) = (self.store.data(&batch.input_file_id), batch.endpoint.clone());
        let limits = LineLimits { bytes: self.line_bytes, lines: self.store.0.options.lines };
        let checked =
            apart(move || check(&path, &endpoint, limits)).await.and_then(|found| found)?;
        let fine = checked.errors.is_empty();
        self.store.update(&batch.id, |batch| {
            batch.counts.total = checked.total;
            batch.model = checked.model;
            // It may have been cancelled meanwhile.
            if batch.status != Status::Validating {
                return;
            }
            if fine {
                batch.status = Status::InProgress;
                batch.times.in_progress_at = Some(now());
            } else {
                batch.status = Status::Failed;
                batch.times.failed_at = Some(now());
                batch.errors = checked.errors;
            }
        });
        self.store.save(&batch.id).await?;
        Ok(self.store.state(&batch.id).is_some_and(|batch| batch.status != Status::Failed))
    }

    /// Answers the lines that are not answered yet, until all are, or the time is over, or nobody wants them any more.
    async fn answer_all(
        self: &Arc<Worker>,
        batch: &KeptBatch,
        mut outputs: Outputs,
        mut done: Done,
    ) -> Result<End, Wrong> {
        let id = &*batch.id;
        let path = self.store.data(&batch.input_file_id);
        let mut reader = Some(Reader::open(path.clone(), self.line_bytes).await?);
        // Lines that are neither answered nor begun.
        let mut unread = batch.counts.total.saturating_sub(done.count());
        let mut running: JoinSet<(u64, Answer)> = JoinSet::new();
        let end = loop {
            let changed = self.store.0.changed.notified();
            tokio::pin!(changed);
            // From here on it hears of changes.
            changed.as_mut().enable();
            if self.store.state(id).is_none_or(|batch| batch.status == Status::Cancelling) {
                break End::Cancelled;
            }
            let left = batch.times.expires_at.saturating_sub(now());
            if left == 0 {
                break End::Expired;
            }
            if unread == 0 {
                reader = None;
            }
            if reader.is_none() && running.is_empty() {
                break End::Completed;
            }
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep(Duration::from_secs(left)) => {}
                Some(first) = running.join_next() => {
                    let mut all = vec![first];
                    while let Some(more) = running.try_join_next() {
                        all.push(more);
                    }
                    let all = all.into_iter().filter_map(Result::ok).collect();
                    outputs = self.append(id, outputs, all, &mut done).await?;
                }
                // The line is read after that: lines that wait take no memory.
                turn = self.turn(&batch.owner), if reader.is_some() => {
                    let Some(from) = reader.take() else { continue };
                    let (from, read) = from.next(&mut done).await?;
                    // Without a line the file has ended early.
                    let Some((number, raw)) = read else { continue };
                    unread -= 1;
                    reader = Some(from);
                    let answer = self.clone().answer(batch.clone(), number, raw, turn);
                    running.spawn(answer.map(move |answer| (number, answer)).in_current_span());
                }
            }
        };
        // What is ready by now counts.
        let mut all = Vec::new();
        while let Some(ready) = running.try_join_next() {
            all.extend(ready);
        }
        running.shutdown().await;
        outputs = self.append(id, outputs, all, &mut done).await?;
        if end == End::Expired {
            self.expire(batch, outputs, done).await?;
        }
        Ok(end)
    }

    /// Appends answers and counts them.
    async fn append(
        &self,
        id: &str,
        mut outputs: Outputs,
        all: Vec<(u64, Answer)>,
        done: &mut Done,
    ) -> Result<Outputs, Wrong> {
        if all.is_empty() {
            return Ok(outputs);
        }
        let (numbers, answers): (Vec<u64>, Vec<Answer>) = all.into_iter().unzip();
        let write = move || {
            let written = outputs.append(&answers);
            (outputs, answers, written)
        };
        let (outputs, answers, written) = apart(write).await?;
        written?;
        for number in numbers {
            done.mark(number);
        }
        self.store.update(id, |batch| {
            for answer in &answers {
                match &answer.response {
                    Some(response) if answer.is_success() => {
                        batch.counts.completed += 1;
                        let counts = serde_json::from_str(response.body.get());
                        batch.usage.add(&counts.unwrap_or_default());
                    }
                    _ => batch.counts.failed += 1,
                }
            }
        });
        Ok(outputs)
    }

    /// Writes for each line that was not answered in time that it was not.
    async fn expire(
        &self,
        batch: &KeptBatch,
        mut outputs: Outputs,
        mut done: Done,
    ) -> Result<(), Wrong> {
        let path = self.store.data(&batch.input_file_id);
        let mut reader = Some(Reader::open(path, self.line_bytes).await?);
        let mut late = Vec::new();
        loop {
            let read = match reader.take() {
                None => None,
                Some(from) => {
                    let (from, read) = from.next(&mut done).await?;
                    reader = Some(from);
                    read
                }
            };
            let ended = read.is_none();
            if let Some((number, raw)) = read {
                let custom_id = line(&raw, &batch.endpoint, self.line_bytes)
                    .map_or_else(|_| String::new(), |line| line.custom_id);
                let message = "the request was not answered within the completion window";
                late.push((number, failure(batch, number, custom_id, "batch_expired", message)));
            }
            if ended || late.len() >= PIECE {
                outputs =
                    self.append(&batch.id, outputs, std::mem::take(&mut late), &mut done).await?;
            }
            if ended {
                return Ok(());
            }
        }
    }

    /// Lists the files of answers and errors, if there are any in them.
    async fn publish(&self, id: &str) -> Result<(Option<String>, Option<String>), Wrong> {
        let Some(batch) = self.store.state(id) else { return Ok((None, None)) };
        let store = self.store.clone();
        let work = move || -> io::Result<(Option<String>, Option<String>)> {
            let list = |file: &str, what: &str| -> io::Result<Option<String>> {
                let data = store.data(file);
                let Ok(bytes) = data.metadata().map(|data| data.len()) else { return Ok(None) };
                if bytes == 0 {
                    std::fs::remove_file(data)?;
                    return Ok(None);
                }
                let created_at = now();
                store.put_file(KeptFile {
                    id: file.to_owned(),
                    owner: batch.owner.clone(),
                    bytes,
                    created_at,
                    expires_at: batch.output_expires_after.map(|seconds| created_at + seconds),
                    filename: format!("{}_{what}.jsonl", batch.id),
                    purpose: "batch_output".to_owned(),
                })?;
                Ok(Some(file.to_owned()))
            };
            Ok((list(&batch.output, "output")?, list(&batch.error, "error")?))
        };
        Ok(apart(work).await.and_then(|listed| listed)?)
    }

    /// Waits until a line of a client's may run. Limits of its key hold; a key that is gone may come back.
    async fn turn(&self, owner: &str) -> Turn {
        loop {
            let permit = self.turns.clone().acquire_owned().await;
            // The semaphore is never closed.
            let Ok(permit) = permit else { return std::future::pending().await };
            // The gate is asked by one line at a time, which then counts as running: others wait for that.
            let first = self.first.lock().await;
            self.gate.opened(&self.running).await;
            let (client, lease) = match (self.keys.is_empty(), self.keys.of_owner(owner)) {
                (true, _) => (0, None),
                (false, Some(key)) => match key.begin_later() {
                    Ok(lease) => (key.client(), Some(lease)),
                    Err(wait) => {
                        drop((first, permit));
                        tokio::time::sleep(wait).await;
                        continue;
                    }
                },
                (false, None) => {
                    drop((first, permit));
                    tokio::time::sleep(WAIT.1).await;
                    continue;
                }
            };
            self.running.fetch_add(1, SeqCst);
            return Turn {
                client: Client(client, Rank::Later),
                running: self.running.clone(),
                changed: self.gate.changed.clone(),
                _lease: lease,
                _permit: permit,
            };
        }
    }

    /// Answers a line.
    async fn answer(
        self: Arc<Worker>,
        batch: KeptBatch,
        number: u64,
        raw: Raw,
        turn: Turn,
    ) -> Answer {
        let line = match line(&raw, &batch.endpoint, self.line_bytes) {
            Ok(line) => line,
            // The file was checked: somebody has changed it since.
            Err((code, message, _)) => {
                return failure(&batch, number, String::new(), code, &message);
            }
        };
        let custom_id = line.custom_id.clone();
        let asked = AssertUnwindSafe(self.ask(line, turn.client)).catch_unwind().await;
        drop(turn);
        let response = asked.unwrap_or_else(|_| {
            tracing::error!(number, "the handler of a line panicked");
            let fault = Fault::internal("the server has a fault; its log tells more");
            let (status_code, request_id) = (fault.status.as_u16(), stamp::id("req-"));
            Response { status_code, request_id, body: told(&fault) }
        });
        let id = Answer::id_of(batch.tag(), number);
        Answer { id, custom_id, response: Some(response), error: None }
    }

    /// Has the routes answer, again where the server could not at the moment.
    async fn ask(&self, line: Line, client: Client) -> Response {
        // Live clients' responses would have to go for them.
        let text = if line.url == "/v1/responses" && line.head().store.is_none() {
            unstored(&line.body)
        } else {
            line.body.get().to_owned()
        };
        let Line { url, body, .. } = line;
        drop(body);
        let (mut tries, mut wait) = (1, WAIT.0);
        loop {
            let request_id = stamp::id("req-");
            let request = Request::post(&url)
                .header(header::CONTENT_TYPE, "application/json")
                .extension(client)
                .body(HttpBody::from(text.clone()));
            let response = match request {
                Ok(request) => match self.routes.clone().oneshot(request).await {
                    Ok(response) => response,
                    Err(never) => match never {},
                },
                // Its path is one of a list.
                Err(error) => {
                    let body = told(&Fault::internal(error.to_string()));
                    return Response { status_code: 500, request_id, body };
                }
            };
            let code = response.extensions().get::<Fault>().and_then(|fault| fault.code);
            let status = response.status();
            let again = match (status, code) {
                (StatusCode::GATEWAY_TIMEOUT, _) => tries < TRIES,
                (_, Some("load_failed" | "replica_failed")) => tries < TRIES,
                (StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS, _) => true,
                _ => false,
            };
            if again {
                tries += 1;
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(WAIT.1);
                continue;
            }
            let body = match response.into_body().collect().await {
                Ok(body) => serde_json::from_slice(&body.to_bytes())
                    .unwrap_or_else(|_| RawValue::NULL.to_owned()),
                Err(error) => told(&Fault::internal(error.to_string())),
            };
            return Response { status_code: status.as_u16(), request_id, body };
        }
    }
}

/// A fault as the body of an answer.
fn told(fault: &Fault) -> Box<RawValue> {
    serde_json::value::to_raw_value(&fault.json()).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// The body of a response that is not to be kept.
fn unstored(body: &RawValue) -> String {
    let fields = serde_json::from_str::<BTreeMap<String, &RawValue>>(body.get());
    let stored = fields.and_then(|mut fields| {
        let no = RawValue::FALSE;
        fields.insert("store".to_owned(), no);
        serde_json::to_string(&fields)
    });
    // Its endpoint says what is wrong with it.
    stored.unwrap_or_else(|_| body.get().to_owned())
}

/// Why a batch fails.
struct Wrong {
    code: &'static str,
    message: String,
}

impl From<io::Error> for Wrong {
    fn from(error: io::Error) -> Wrong {
        Wrong { code: "storage_failed", message: format!("the folder of files: {error}") }
    }
}

impl From<Refused> for Wrong {
    fn from(refused: Refused) -> Wrong {
        let code = match refused {
            Refused::Full(_) => "storage_full",
            Refused::Io(_) => "storage_failed",
        };
        Wrong { code, message: refused.to_string() }
    }
}

fn failure(
    batch: &KeptBatch,
    number: u64,
    custom_id: String,
    code: &'static str,
    message: &str,
) -> Answer {
    let error = Some(LineError { code, message: message.to_owned() });
    Answer { id: Answer::id_of(batch.tag(), number), custom_id, response: None, error }
}

/// Reads lines on threads for the disk.
struct Reader(Lines);

impl Reader {
    async fn open(path: std::path::PathBuf, most: usize) -> io::Result<Reader> {
        apart(move || Lines::open(&path, most)).await.and_then(|lines| lines.map(Reader))
    }

    /// The next line that is not done, and its number.
    async fn next(self, done: &mut Done) -> io::Result<(Reader, Option<(u64, Raw)>)> {
        let (mut lines, known) = (self.0, std::mem::take(done));
        let read = move || {
            let found = loop {
                match lines.next() {
                    Ok(Some(_)) if known.has(lines.given) => {}
                    Ok(Some(raw)) => break Ok(Some((lines.given, raw))),
                    Ok(None) => break Ok(None),
                    Err(error) => break Err(error),
                }
            };
            (lines, known, found)
        };
        let (lines, known, found) = apart(read).await?;
        *done = known;
        Ok((Reader(lines), found?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_closed_gate_is_asked_again_only_after_a_change() {
        let (open, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (changed, running) = (Arc::new(Notify::new()), AtomicUsize::new(0));
        let (is_open, count) = (open.clone(), asked.clone());
        let gate = Gate::new(changed.clone(), move |_| {
            count.fetch_add(1, SeqCst);
            is_open.load(SeqCst)
        });
        let mut wait = Box::pin(gate.opened(&running));
        for _ in 0..3 {
            assert!(wait.as_mut().now_or_never().is_none());
        }
        assert_eq!(asked.load(SeqCst), 1);
        changed.notify_waiters();
        assert!(wait.as_mut().now_or_never().is_none());
        assert_eq!(asked.load(SeqCst), 2);
        open.store(true, SeqCst);
        assert!(wait.as_mut().now_or_never().is_none());
        changed.notify_waiters();
        assert!(wait.as_mut().now_or_never().is_some());
        assert_eq!(asked.load(SeqCst), 3);
    }

    #[test]
    fn a_change_during_the_question_is_not_lost() {
        let (changed, running) = (Arc::new(Notify::new()), AtomicUsize::new(0));
        let (notify, asked) = (changed.clone(), AtomicUsize::new(0));
        let gate = Gate::new(changed, move |_| {
            notify.notify_waiters();
            asked.fetch_add(1, SeqCst) > 0
        });
        assert!(gate.opened(&running).now_or_never().is_some());
    }
}
