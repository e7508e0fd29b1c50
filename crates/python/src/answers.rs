//! Answers on their way: several requests, read as they end or piece by piece.

use crate::faults::refused;
use crate::values::{Asked, answered, piece};
use crate::waiting::LOOK;
use arclight_server::Fault;
use arclight_server::local::{Answer, Delta, Event, Whole};
use pyo3::prelude::*;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

/// What is told of one of them.
enum News {
    Whole(Asked, Vec<Whole>),
    Piece { choice: usize, delta: Delta, asked: Option<Asked> },
    Failed(Fault),
}

/// What threads of the engine write and a thread of Python reads.
#[derive(Default)]
struct Inside {
    news: VecDeque<(usize, News)>,
    /// Answers that have not ended.
    open: usize,
    /// Is called when there are news, and nobody waits.
    ready: Option<Py<PyAny>>,
}

#[derive(Default)]
struct Shared {
    inside: Mutex<Inside>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds news; `ends`: the last of an answer.
    fn tell(&self, at: usize, news: News, ends: bool) {
        let mut inside = self.lock();
        // Cancelled: nobody reads it.
        if inside.open == 0 {
            return;
        }
        let first = inside.news.is_empty();
        inside.news.push_back((at, news));
        inside.open -= usize::from(ends);
        let calls = first && inside.ready.is_some();
        drop(inside);
        self.changed.notify_all();
        if calls {
            self.call();
        }
    }

    /// Calls who wants to know. Only with the interpreter's lock, which is never waited for with ours.
    fn call(&self) {
        // An interpreter that is about to end wants to know nothing.
        let _ = Python::try_attach(|py| {
            let ready = self.lock().ready.as_ref().map(|ready| ready.clone_ref(py));
            // A loop of events that is closed has nobody who waits.
            if let Some(Err(raised)) = ready.map(|ready| ready.call0(py)) {
                raised.write_unraisable(py, None);
            }
        });
    }
}

/// Answers that are being given. Dropping it cancels them.
#[pyclass(frozen, module = "arclight._native")]
pub(crate) struct Answers {
    shared: Arc<Shared>,
    tasks: Vec<AbortHandle>,
}

impl Answers {
    /// Reads answers, whole or in pieces.
    pub(crate) fn read(
        runtime: &Handle,
        answers: Vec<Answer>,
        stream: bool,
        echo: bool,
    ) -> Answers {
        let shared = Arc::new(Shared::default());
        shared.lock().open = answers.len();
        let tasks = answers.into_iter().enumerate().map(|(at, answer)| {
            let shared = shared.clone();
            let task = match stream {
                true => runtime.spawn(in_pieces(shared, at, answer, echo)),
                false => runtime.spawn(as_whole(shared, at, answer, echo)),
            };
            task.abort_handle()
        });
        Answers { tasks: tasks.collect(), shared }
    }

    fn stop(&self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

async fn as_whole(shared: Arc<Shared>, at: usize, mut answer: Answer, echo: bool) {
    let news = match answer.collect().await {
        Ok(choices) => News::Whole(Asked::of(&answer, echo), choices),
        Err(fault) => News::Failed(fault),
    };
    shared.tell(at, news, true);
}

async fn in_pieces(shared: Arc<Shared>, at: usize, mut answer: Answer, echo: bool) {
    let (mut first, mut open) = (true, answer.choices());
    while let Some((choice, delta)) = answer.next().await {
        let asked = first.then(|| Asked::of(&answer, echo));
        first = false;
        match delta.event {
            Event::Failed(fault) => return shared.tell(at, News::Failed(fault), true),
            Event::Finished(_) => open -= 1,
            Event::Segment(_) => {}
        }
        shared.tell(at, News::Piece { choice, delta, asked }, open == 0);
    }
}

#[pymethods]
impl Answers {
    /// What is new, as `(answer, dict)`, or `(answer, exception)` for one that failed. Waits for so many seconds at
    /// most until there is something; an empty list if there is nothing then, or all have ended.
    fn wait<'py>(
        &self,
        py: Python<'py>,
        seconds: f64,
    ) -> PyResult<Vec<(usize, Bound<'py, PyAny>)>> {
        let end =
            Duration::try_from_secs_f64(seconds).ok().and_then(|s| Instant::now().checked_add(s));
        loop {
            let news = py.detach(|| {
                let left = end.map_or(LOOK, |end| end.saturating_duration_since(Instant::now()));
                let inside = self.shared.lock();
                let none = |inside: &mut Inside| inside.news.is_empty() && inside.open > 0;
                let waited = self.shared.changed.wait_timeout_while(inside, left.min(LOOK), none);
                let (mut inside, _) = waited.unwrap_or_else(PoisonError::into_inner);
                let news = std::mem::take(&mut inside.news);
                let over = inside.open == 0 || left <= LOOK;
                if news.is_empty() && !over { None } else { Some(news) }
            });
            if let Err(raised) = py.check_signals() {
                self.stop();
                return Err(raised);
            }
            if let Some(news) = news {
                return news.into_iter().map(|(at, news)| Ok((at, value(py, news)?))).collect();
            }
        }
    }

    /// Whether all have ended and `wait` has returned all of their news.
    #[getter]
    fn done(&self) -> bool {
        let inside = self.shared.lock();
        inside.open == 0 && inside.news.is_empty()
    }

    /// Calls `ready` without arguments, in a thread of the engine, when there is something new after there was nothing.
    fn on_ready(&self, ready: Py<PyAny>) {
        let mut inside = self.shared.lock();
        inside.ready = Some(ready);
        let calls = !inside.news.is_empty();
        drop(inside);
        if calls {
            self.shared.call();
        }
    }

    /// Cancels all that have not ended, and wakes the threads and coroutines that wait.
    fn cancel(&self) {
        self.stop();
        let mut inside = self.shared.lock();
        inside.open = 0;
        inside.news.clear();
        drop(inside);
        self.shared.changed.notify_all();
        self.shared.call();
        let ready = self.shared.lock().ready.take();
        drop(ready);
    }
}

fn value(py: Python<'_>, news: News) -> PyResult<Bound<'_, PyAny>> {
    Ok(match news {
        News::Whole(asked, choices) => answered(py, &asked, &choices)?.into_any(),
        News::Piece { choice, delta, asked } => {
            piece(py, choice, &delta, asked.as_ref())?.into_any()
        }
        News::Failed(fault) => refused(fault).into_value(py).into_bound(py).into_any(),
    })
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.stop();
    }
}
