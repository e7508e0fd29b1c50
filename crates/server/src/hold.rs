//! A value whose owner waits for the end of all other holds, and then drops it on its own thread.
//!
//! A model's end joins threads and gives memory back, which takes long. Requests and `/status.json` hold the model
//! for some time only. Their threads serve connections, so the end of a model does not belong there.

use std::convert::Infallible;
use std::ops::Deref;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Access to a value, which stays as long as there is one.
pub struct Hold<T> {
    value: Arc<T>,
    /// Nothing is sent: the channel ends with its last sender. It is dropped after `value`.
    _open: Sender<Infallible>,
}

impl<T> Clone for Hold<T> {
    fn clone(&self) -> Hold<T> {
        Hold { value: self.value.clone(), _open: self._open.clone() }
    }
}

impl<T> Deref for Hold<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// The owner of a value.
pub(crate) struct Owner<T> {
    hold: Hold<T>,
    end: Mutex<Receiver<Infallible>>,
}

impl<T> Owner<T> {
    pub(crate) fn new(value: T) -> Owner<T> {
        let (open, end) = channel();
        Owner { hold: Hold { value: Arc::new(value), _open: open }, end: Mutex::new(end) }
    }

    pub(crate) fn hold(&self) -> Hold<T> {
        self.hold.clone()
    }

    /// Waits until there is no other hold and drops the value. After `time`, if there is one, it leaves that to the
    /// last hold.
    pub(crate) fn end(self, time: Option<Duration>) {
        let Owner { hold: Hold { value, _open: open }, end } = self;
        drop(open);
        let end = end.into_inner().unwrap_or_else(PoisonError::into_inner);
        let ended = match time {
            Some(time) => end.recv_timeout(time),
            None => end.recv().map_err(RecvTimeoutError::from),
        };
        match ended {
            Ok(never) => match never {},
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => drop(value),
        }
    }
}

impl<T> Deref for Owner<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.hold
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::{self, ThreadId};
    use std::time::Instant;

    /// Reports the thread that drops it.
    struct Reported(Sender<ThreadId>);

    impl Drop for Reported {
        fn drop(&mut self) {
            let _ = self.0.send(thread::current().id());
        }
    }

    #[test]
    fn the_owner_waits_for_the_last_hold_and_drops_the_value() {
        let (to, dropped) = channel();
        let owner = Owner::new(Reported(to));
        let holds = [owner.hold(), owner.hold().clone()];
        let waits = thread::spawn(move || owner.end(None));
        let me = waits.thread().id();
        for hold in holds {
            assert!(dropped.try_recv().is_err());
            drop(hold);
        }
        waits.join().unwrap();
        assert_eq!(dropped.recv(), Ok(me));
    }

    #[test]
    fn after_its_time_the_last_hold_drops_the_value() {
        let (to, dropped) = channel();
        let owner = Owner::new(Reported(to));
        let hold = owner.hold();
        let begin = Instant::now();
        owner.end(Some(Duration::from_millis(20)));
        assert!(begin.elapsed() >= Duration::from_millis(20));
        assert!(dropped.try_recv().is_err());
        drop(hold);
        assert_eq!(dropped.recv(), Ok(thread::current().id()));
    }
}
