//! Sending requests: in an open loop as they arrive, or in a closed one by streams.
//!
//! In an open loop a thread of its own starts every request at its time, whatever has become of those
//! before: nothing that the server does can hold it up. What the machine does can, and shows as lag in
//! the figures. In a closed loop each stream sends its next request when the last has ended.
//!
//! Everything else runs on the caller's runtime, which is to have one thread: the load must not take
//! cores from a server on the same machine.

use crate::arrivals::Arrivals;
use crate::error::Error;
use crate::exchange::{Job, Line};
use crate::record::{Outcome, Record};
use crate::rng::Rng;
use crate::server::Server;
use crate::workload::{Ask, Prompt};
use std::fmt;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};

/// How often it is asked whether the user has seen enough.
const GLANCE: Duration = Duration::from_millis(50);
/// Prompts that are counted at once.
const COUNTED_AT_ONCE: usize = 8;

/// How requests follow each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// They arrive, whether or not others have been answered.
    Open(Arrivals),
    /// So many are on their way at any time.
    Closed(usize),
}

/// In a word or two, as in `0.5/s` or `4 streams`.
impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Load::Open(arrivals) => f.pad(&format!("{}/s", arrivals.rate())),
            Load::Closed(1) => f.pad("one by one"),
            Load::Closed(streams) => f.pad(&format!("{streams} streams")),
        }
    }
}

/// A long prompt every now and then, to see what it does to the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Intruder {
    /// Tokens of its prompt.
    pub input: usize,
    /// Tokens of its answer.
    pub output: usize,
    /// From one to the next, and from the beginning to the first.
    pub every: Duration,
}

/// Runs a benchmark on a runtime of one thread.
///
/// # Errors
/// When the system gives no runtime.
pub fn block_on<T>(future: impl Future<Output = T>) -> Result<T, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.map_err(Error::System)?.block_on(future))
}

/// Everything that a run sends, in words.
#[derive(Debug)]
pub struct Prepared {
    load: Load,
    jobs: Vec<(Job, Option<Duration>)>,
    intruder: Option<(Intruder, String)>,
    seed: u64,
}

/// What is known of a run.
#[derive(Clone, Debug)]
pub struct Run {
    /// How requests followed each other.
    pub load: Load,
    /// Requests in the order of their ids.
    pub records: Vec<Record>,
    /// Intruders.
    pub intruders: Vec<Record>,
    /// Requests that were to be sent.
    pub planned: usize,
    /// Seconds from the beginning to the end of the last request.
    pub seconds: f64,
    /// The user has ended it.
    pub interrupted: bool,
}

/// How far a run may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
enum Phase {
    Going,
    /// No request is left to be disturbed.
    Answered,
    Interrupted,
}

/// What all tasks of a run share.
#[derive(Clone)]
struct Tasks {
    line: Line,
    clock: Instant,
    phase: watch::Receiver<Phase>,
    records: mpsc::UnboundedSender<Record>,
}

impl Server {
    /// Puts requests into words; `run` numbers the runs of a benchmark, so that no two have the same
    /// prompts (the same `seed` and `run` do). All prompts begin with the same `prefix` tokens, which
    /// are not counted in their lengths.
    pub async fn prepare(
        self: &Arc<Self>,
        load: Load,
        asks: &[Ask],
        prefix: usize,
        intruder: Option<Intruder>,
        (seed, run): (u64, usize),
    ) -> Prepared {
        let prefix_text = match prefix {
            0 => String::new(),
            n => self.write(n, "", &mut Rng::new(seed, "prefix")).await,
        };
        let prefix_text: Arc<str> = prefix_text.into();
        let mut jobs: Vec<Option<Job>> = vec![None; asks.len()];
        let mut waiting = tokio::task::JoinSet::new();
        let mut rest = asks.iter().cloned().enumerate();
        loop {
            while waiting.len() < COUNTED_AT_ONCE
                && let Some((id, mut ask)) = rest.next()
            {
                if let Prompt::Tokens(n) = &mut ask.prompt {
                    *n += prefix;
                }
                let (server, prefix) = (self.clone(), prefix_text.clone());
                waiting.spawn(async move {
                    let purpose = format!("run {run}");
                    let (prompt, tokens) =
                        server.put_into_words(&ask.prompt, &prefix, &purpose, id, seed).await;
                    server.job(id, &prompt, tokens, ask.output)
                });
            }
            match waiting.join_next().await {
                Some(job) => {
                    let job = job.expect("putting into words does not panic");
                    let id = job.id;
                    jobs[id] = Some(job);
                }
                None => break,
            }
        }
        let jobs = jobs.into_iter().map(|job| job.expect("every request was put into words"));
        let times: Vec<Option<Duration>> = match load {
            Load::Open(arrivals) => {
                arrivals.times(asks.len(), seed).into_iter().map(Some).collect()
            }
            Load::Closed(_) => vec![None; asks.len()],
        };
        let intruder = match intruder {
            None => None,
            Some(intruder) => {
                let mut rng = Rng::new(seed, &format!("run {run} intruder"));
                Some((intruder, self.write(intruder.input, "", &mut rng).await))
            }
        };
        Prepared { load, jobs: jobs.zip(times).collect(), intruder, seed }
    }

    /// Sends everything; `progress` sees each request's record as it ends, and when `interrupted`
    /// says so, what is on its way is given up.
    ///
    /// # Errors
    /// When the system gives no thread for arrivals.
    pub async fn run(
        self: &Arc<Self>,
        prepared: Prepared,
        progress: &mut dyn FnMut(&Record),
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Run, Error> {
        let Prepared { load, jobs, intruder, seed } = prepared;
        let planned = jobs.len();
        let (set_phase, phase) = watch::channel(Phase::Going);
        let (to_records, mut records) = mpsc::unbounded_channel();
        let clock = Instant::now();
        let tasks = Tasks { line: self.line.clone(), clock, phase, records: to_records };
        if let Some((intruder, text)) = intruder {
            tokio::spawn(tasks.clone().intrude(self.clone(), intruder, text, seed));
        }
        let arrivals = match load {
            Load::Open(_) => Some(tasks.open_loop(jobs)?),
            Load::Closed(streams) => {
                tasks.closed_loop(jobs, streams);
                None
            }
        };

        let mut run = Run {
            load,
            records: Vec::with_capacity(planned),
            intruders: Vec::new(),
            planned,
            seconds: 0.0,
            interrupted: false,
        };
        let mut glances = tokio::time::interval(GLANCE);
        // Ends when the last task has dropped its end.
        loop {
            tokio::select! {
                record = records.recv() => match record {
                    None => break,
                    Some(record) if record.intruder => run.intruders.push(record),
                    Some(record) => {
                        progress(&record);
                        run.records.push(record);
                        if run.records.len() == planned {
                            set_phase.send_if_modified(|p| raise(p, Phase::Answered));
                        }
                    }
                },
                _ = glances.tick() => if interrupted() {
                    run.interrupted = true;
                    set_phase.send_if_modified(|p| raise(p, Phase::Interrupted));
                    // The thread drops what it has not sent.
                    if let Some(thread) = &arrivals {
                        thread.stop();
                    }
                },
            }
        }
        drop(arrivals);
        run.seconds = run.records.iter().map(|r| r.end).fold(0.0, f64::max);
        run.records.sort_by_key(|r| r.id);
        run.intruders.sort_by_key(|r| r.id);
        Ok(run)
    }
}

/// Phases only go forward.
fn raise(phase: &mut Phase, to: Phase) -> bool {
    let higher = to > *phase;
    if higher {
        *phase = to;
    }
    higher
}

/// The thread from which arrivals come.
struct Scheduler {
    stop: Mutex<Option<std::sync::mpsc::Sender<()>>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Scheduler {
    /// Nothing more arrives.
    fn stop(&self) {
        self.stop.lock().expect("no holder panics").take();
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            // It ends at once, and has nothing to say.
            let _ = thread.join();
        }
    }
}

impl Tasks {
    fn open_loop(self, jobs: Vec<(Job, Option<Duration>)>) -> Result<Scheduler, Error> {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let runtime = tokio::runtime::Handle::current();
        let arrive = move || {
            for (job, at) in jobs {
                let at = at.unwrap_or_default();
                // Timers of the runtime are exact to a millisecond, those of the system to less
                // than a tenth.
                let left = at.saturating_sub(self.clock.elapsed());
                match stopped.recv_timeout(left) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
                }
                let tasks = self.clone();
                runtime.spawn(async move {
                    let record = tasks.attend(&job, Some(at), Phase::Interrupted).await;
                    // Only a run that is over does not listen.
                    let _ = tasks.records.send(record);
                });
            }
        };
        let thread = std::thread::Builder::new().name("arrivals".to_owned()).spawn(arrive);
        let thread = thread.map_err(Error::System)?;
        Ok(Scheduler { stop: Mutex::new(Some(stop)), thread: Some(thread) })
    }

    fn closed_loop(self, jobs: Vec<(Job, Option<Duration>)>, streams: usize) {
        let streams = streams.min(jobs.len());
        let jobs = Arc::new(Mutex::new(jobs.into_iter()));
        for _ in 0..streams {
            let (tasks, jobs) = (self.clone(), jobs.clone());
            tokio::spawn(async move {
                while *tasks.phase.borrow() != Phase::Interrupted {
                    let next = jobs.lock().expect("no holder panics").next();
                    let Some((job, _)) = next else { break };
                    let record = tasks.attend(&job, None, Phase::Interrupted).await;
                    let _ = tasks.records.send(record);
                }
            });
        }
    }

    async fn intrude(self, server: Arc<Server>, intruder: Intruder, first: String, seed: u64) {
        let mut phase = self.phase.clone();
        let mut text = first;
        let words = text.split(' ').count();
        for id in 0.. {
            let at = intruder.every * (id as u32 + 1);
            let wait = at.saturating_sub(self.clock.elapsed());
            tokio::select! {
                _ = tokio::time::sleep(wait) => {}
                _ = phase.wait_for(|&p| p >= Phase::Answered) => return,
            }
            let prompt = Prompt::Text(std::mem::take(&mut text));
            let mut job = server.job(id, &prompt, Some(intruder.input), intruder.output);
            job.intruder = true;
            let tasks = self.clone();
            tokio::spawn(async move {
                let record = tasks.attend(&job, Some(at), Phase::Answered).await;
                let _ = tasks.records.send(record);
            });
            // Other words, so that no cache has them; as many as were right for the first.
            let mut rng = Rng::new(seed, &format!("intruder {id}"));
            crate::words::append(&mut text, words, &crate::words::WORDS, &mut rng);
        }
    }

    /// Sends a request and waits for its end, or until the run has come to this phase.
    async fn attend(&self, job: &Job, at: Option<Duration>, until: Phase) -> Record {
        let mut phase = self.phase.clone();
        let mut record = Record::begin(job, at, self.clock);
        let outcome = tokio::select! {
            biased;
            outcome = self.line.exchange(job.body.clone(), self.clock, &mut record) => outcome,
            _ = phase.wait_for(|&p| p >= until) => Outcome::Unfinished,
        };
        record.outcome = outcome;
        record.end = self.clock.elapsed().as_secs_f64();
        record
    }
}
