//! What comes from outside while a person types: lines, from a thread of their own, and timings of the search that
//! goes on meanwhile ([`Untuned::learn`]). Lines go first, and a timing begins only when nothing was typed to the end for
//! a second.

use super::input::{Input, Line};
use crate::error::Error;
use crate::term::note;
use crate::tune::first::{Finds, Untuned};
use crate::tune::hot::EngineTask;
use arclight_engine::Engine;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a line is waited for before the engine has idle time.
const REST: Duration = Duration::from_secs(1);

enum Event {
    Line(Result<Line, Error>),
    Task(EngineTask),
    /// What the search has found.
    Found(String),
}

/// Lines that are typed.
pub(super) struct Lines {
    /// Each asks for one. Dropped, it ends the thread.
    wanted: Sender<()>,
    reader: JoinHandle<()>,
    events: Receiver<Event>,
    /// What the engine is to do when there is time.
    waiting: Option<EngineTask>,
    /// What was found while answers were given.
    finds: Finds,
}

impl Lines {
    /// Begins to read, and to learn what there is to be learned of an untuned model.
    pub(super) fn new(untuned: Option<Untuned>) -> Result<Lines, Error> {
        let (wanted, asked) = channel();
        let (told, events) = channel();
        let of_reader = told.clone();
        let reader = thread::Builder::new().name("input".to_owned());
        let reader = reader.spawn(move || read(&asked, &of_reader)).map_err(|source| {
            Error::Io { what: "cannot start a thread for the terminal".to_owned(), source }
        })?;
        let finds = untuned.as_ref().map(Untuned::finds).unwrap_or_default();
        if let Some(untuned) = untuned {
            let found = told.clone();
            let gone = |_| arclight_engine::Error::ReplicasClosed.into();
            let when_idle = move |task| told.send(Event::Task(task)).map_err(gone);
            // Nobody listens any more in the end.
            untuned.learn(Box::new(when_idle), move |line| _ = found.send(Event::Found(line)));
        }
        Ok(Lines { wanted, reader, events, waiting: None, finds })
    }

    /// The next message or command. Meanwhile `engine` may be timed.
    pub(super) fn next(&mut self, engine: &mut Engine) -> Result<Line, Error> {
        // Whoever reads tells of its end.
        self.finds.take().iter().for_each(|line| note!("[{line}]"));
        let _ = self.wanted.send(());
        let (start, mut found) = (Instant::now(), None);
        let line = loop {
            let event = match &self.waiting {
                None => self.events.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(_) => self.events.recv_timeout(REST.saturating_sub(start.elapsed())),
            };
            match event {
                Ok(Event::Line(line)) => break line,
                Ok(Event::Task(task)) => self.waiting = Some(task),
                Ok(Event::Found(line)) => found = Some(line),
                Err(RecvTimeoutError::Timeout) => {
                    self.waiting.take().into_iter().for_each(|task| task(engine));
                }
                Err(RecvTimeoutError::Disconnected) => break Ok(Line::End),
            }
        };
        // Not into the line that is typed.
        found.iter().for_each(|line| note!("[{line}]"));
        line
    }

    /// Keeps the history for the next time, if that can be.
    pub(super) fn save(self) {
        drop(self.wanted);
        // It has nothing to say any more.
        let _ = self.reader.join();
    }
}

/// Reads a line whenever one is asked for.
fn read(asked: &Receiver<()>, told: &Sender<Event>) {
    let mut input = match Input::new() {
        Ok(input) => input,
        Err(e) => {
            let _ = told.send(Event::Line(Err(e)));
            return;
        }
    };
    while asked.recv().is_ok() {
        if told.send(Event::Line(input.read())).is_err() {
            return;
        }
    }
    input.save();
}

#[cfg(test)]
mod tests {
    use super::*;
    use arclight_engine::{LoadOptions, ModelFile};

    #[test]
    fn the_engine_is_timed_while_nothing_is_typed() {
        let bytes = testkit::TinyModel::qwen3(gguf::TensorType::Q4_0).gguf();
        let file = ModelFile::from_bytes("tiny", bytes);
        let options = LoadOptions { context: Some(64), ..LoadOptions::default() };
        let mut engine = Engine::load(&file, &options, &mut |_| {}).unwrap();
        let (wanted, _asked) = channel();
        let (told, events) = channel();
        let reader = thread::spawn(|| ());
        let finds = Finds::default();
        let mut lines = Lines { wanted, reader, events, waiting: None, finds };
        let (done, heard) = channel();
        let line = || Event::Line(Ok(Line::Empty));
        let of_task = told.clone();
        // It is typed on as soon as the task is done.
        let task = move |engine: &mut Engine| {
            done.send(engine.context()).unwrap();
            of_task.send(line()).unwrap();
        };
        let text = Event::Line(Ok(Line::Text("at once".to_owned())));
        told.send(Event::Task(Box::new(task))).unwrap();
        told.send(text).unwrap();
        let Ok(Line::Text(_)) = lines.next(&mut engine) else { panic!("a line goes first") };
        assert!(heard.try_recv().is_err());
        let Ok(Line::Empty) = lines.next(&mut engine) else { panic!("the next comes later") };
        assert_eq!(heard.recv().unwrap(), 64);
    }
}
