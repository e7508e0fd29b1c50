//! A watchdog over requests that run: those that make no progress are named in the log, with what they wait for.
//!
//! The thread of a replica cannot report that it hangs in a step, in a hook of a request or on another host, so another
//! thread looks from time to time at what the replicas have reported last.

use super::queue::Shared;
use super::status::Seen;
use crate::kv::PageCounts;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often it looks.
const LOOK: Duration = Duration::from_secs(5);

/// Time without progress after which a request is named; each further time after twice that.
const PATIENCE: Duration = Duration::from_secs(30);

/// Requests of a replica that are named at once.
const NAMED: usize = 8;

/// What is known of a request.
struct Mark {
    progress: u64,
    since: Instant,
    /// Time without progress after which it is named next.
    next: Duration,
}

/// Requests that were seen, by replica and number.
#[derive(Default)]
struct Marks(HashMap<(usize, u64), Mark>);

impl Marks {
    /// Compares with what was seen before: a line for each replica with requests that do not go on.
    fn look(&mut self, replicas: &[Seen], now: Instant) -> Vec<String> {
        let runs = |&(replica, id): &(usize, u64)| {
            replicas[replica].standings.iter().any(|standing| standing.id == id)
        };
        self.0.retain(|key, _| runs(key));
        let lines = replicas.iter().enumerate();
        lines.filter_map(|(at, seen)| self.line(at, seen, now)).collect()
    }

    fn line(&mut self, replica: usize, seen: &Seen, now: Instant) -> Option<String> {
        let mut stalled = Vec::new();
        for standing in &seen.standings {
            let new = || Mark { progress: standing.progress, since: now, next: PATIENCE };
            let mark = self.0.entry((replica, standing.id)).or_insert_with(new);
            if mark.progress != standing.progress {
                *mark = new();
            }
            let still = now.duration_since(mark.since);
            if still >= mark.next {
                mark.next = still * 2;
                stalled.push((standing, still));
            }
        }
        let &(first, still) = stalled.first()?;
        let ids: Vec<String> = stalled.iter().take(NAMED).map(|(s, _)| s.id.to_string()).collect();
        let more = match stalled.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let silent = now.saturating_duration_since(seen.reported);
        let why = match silent >= PATIENCE {
            true => format!(
                "the replica has been in one step, or in what follows it, for {} s",
                silent.as_secs()
            ),
            false => {
                let PageCounts { total, free, cached } = seen.pages;
                format!("{}; {} of {total} pages are free", first.waits, free + cached)
            }
        };
        let (ids, still) = (ids.join(", "), still.as_secs());
        Some(format!(
            "requests on replica {replica} make no progress: {ids}{more}, for {still} s: {why}"
        ))
    }
}

/// The thread that looks.
pub(super) struct Watchdog {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    pub(super) fn new(shared: Arc<Shared>) -> Watchdog {
        let (stop, stopped) = channel();
        let body = move || {
            let mut marks = Marks::default();
            while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                for line in marks.look(&shared.seen(), Instant::now()) {
                    tracing::warn!("{line}");
                }
            }
        };
        let thread = thread::Builder::new().name("watchdog".to_owned()).spawn(body);
        if let Err(error) = &thread {
            tracing::warn!(
                "requests that make no progress will not be logged: no thread for that: {error}"
            );
        }
        Watchdog { stop: Some(stop), thread: thread.ok() }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic there concerns nothing else.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{Standing, Waits};

    fn seen(standings: &[(u64, u64, Waits)], reported: Instant) -> Vec<Seen> {
        let standing =
            |&(id, progress, waits): &(u64, u64, Waits)| Standing { id, progress, waits };
        let standings = standings.iter().map(standing).collect();
        vec![Seen { standings, reported, pages: PageCounts { total: 9, free: 2, cached: 1 } }]
    }

    #[test]
    fn requests_without_progress_are_named_with_what_they_wait_for() {
        let mut marks = Marks::default();
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let (pages, step) = (Waits::Pages(70), Waits::Step);
        let mut look =
            |standings: &[_], seconds| marks.look(&seen(standings, at(seconds)), at(seconds));
        assert!(look(&[(4, 1, pages), (5, 1, step)], 0).is_empty());
        assert!(look(&[(4, 1, pages), (5, 2, step)], 29).is_empty());
        let line = "requests on replica 0 make no progress: 4, for 30 s: it waits for room in the KV cache for 70 \
                    tokens; 3 of 9 pages are free";
        assert_eq!(look(&[(4, 1, pages), (5, 3, step)], 30), [line]);
        assert!(look(&[(4, 1, pages), (5, 3, step)], 59).is_empty(), "not again and again");
        assert_eq!(look(&[(4, 1, pages), (5, 4, step)], 60).len(), 1);
        assert!(look(&[(4, 2, step), (5, 4, step)], 89).is_empty(), "it goes on");
        assert_eq!(look(&[(4, 2, step), (5, 4, step)], 90).len(), 1, "the other does not");
        // One that has gone is forgotten.
        assert!(look(&[], 91).is_empty() && look(&[(4, 2, step)], 300).is_empty());
    }

    #[test]
    fn a_replica_that_does_not_report_is_named_too() {
        let mut marks = Marks::default();
        let begin = Instant::now();
        let all: Vec<_> = (0..20).map(|id| (id, 3, Waits::Step)).collect();
        let replicas = seen(&all, begin);
        assert!(marks.look(&replicas, begin).is_empty());
        let lines = marks.look(&replicas, begin + Duration::from_secs(45));
        let line = "requests on replica 0 make no progress: 0, 1, 2, 3, 4, 5, 6, 7 and 12 more, for 45 s: the replica \
                    has been in one step, or in what follows it, for 45 s";
        assert_eq!(lines, [line]);
    }
}
