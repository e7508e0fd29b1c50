//! Cores that other programs are busy on: steps go without them, and come back to them.
//!
//! Threads wait for each other many times in a step, so one that is not let run holds up all. The scheduler's account
//! of each thread tells (`threads::CpuTime`); [`policy`] decides, and the executor goes on without the core
//! ([`graph::Executor::leave_out`]). Answers are the same bits.
//!
//! Between windows nothing is done but to add up times. A window ends with one read of a small file for each thread,
//! so it is longer where there are many, and with another of `/proc/stat` while a core is left out.

mod policy;

use graph::Executor;
use policy::{Policy, WINDOW, Window};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use threads::CpuTime;
use topology::{CpuId, CpuTicks, Machine};

/// To read an account takes a microsecond or two; of a window's time that is at most a 300th.
const READ: Duration = Duration::from_micros(500);
/// Three periods of the usual length of a quota.
const PERIODS: Duration = Duration::from_millis(300);
/// Between two looks at what CPUs do that are left out.
const LOOK: Duration = Duration::from_millis(100);
/// From this share of a window on that a thread was not let run, threads take over tiles of products from each other,
/// and for so long after.
const LATE: f64 = 0.01;
const SHARED: Duration = Duration::from_secs(1);
/// After such a pause between steps what was seen before it is too old.
const PAUSE: Duration = Duration::from_secs(1);

/// What an engine has seen of others on its cores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Company {
    /// CPUs that steps go without now.
    pub left_out: Vec<CpuId>,
    /// Time of steps, in all.
    pub steps: Duration,
    /// Of it, the time of steps without some of the cores.
    pub steps_without: Duration,
    /// The time of all windows: steps, and the pauses between them.
    pub watched: Duration,
    /// The part of [`watched`](Company::watched) for which the thread of each CPU was ready to run and had no core.
    pub delayed: BTreeMap<CpuId, Duration>,
}

impl Company {
    /// What was seen after another look.
    pub fn since(&self, before: &Company) -> Company {
        let delayed = self.delayed.iter().map(|(cpu, delayed)| {
            let earlier = before.delayed.get(cpu).copied().unwrap_or_default();
            (*cpu, delayed.saturating_sub(earlier))
        });
        Company {
            left_out: self.left_out.clone(),
            steps: self.steps.saturating_sub(before.steps),
            steps_without: self.steps_without.saturating_sub(before.steps_without),
            watched: self.watched.saturating_sub(before.watched),
            delayed: delayed.collect(),
        }
    }
}

/// Looks after an engine's cores.
pub(crate) struct Watchman {
    policy: Policy,
    start: Instant,
    /// The window under way: when it was begun, and what the threads and the book had then.
    window: Option<Open>,
    length: Duration,
    ticks: (Instant, BTreeMap<CpuId, CpuTicks>),
    /// Cores are to be left out, or come back, before the next step.
    changed: bool,
    /// Cores could not be left out, or taken back: it stays as it is.
    failed: bool,
    /// No core is to be left out.
    fixed: bool,
    /// When a thread was late last.
    late: Option<Instant>,
    seen: Company,
}

struct Open {
    times: Vec<CpuTime>,
    bytes: u64,
    tokens: u64,
    steps: Duration,
    begun: Instant,
    last: Instant,
}

impl Watchman {
    /// `None` where nothing can be seen or left out. With `fixed` cores it looks and leaves out none.
    pub(crate) fn new(executor: &mut Executor, machine: &Machine, fixed: bool) -> Option<Watchman> {
        if !executor.can_leave_out() {
            return None;
        }
        let threads = executor.cpu_times()?.len();
        // A quota stops threads for a part of its period.
        let stopped = machine.quota().is_some_and(|quota| quota < threads as f64);
        let least = if stopped { PERIODS } else { WINDOW };
        Some(Watchman {
            policy: Policy::new(executor.cpus()),
            start: Instant::now(),
            window: None,
            length: least.max(READ * threads as u32),
            ticks: (Instant::now(), BTreeMap::new()),
            changed: false,
            failed: false,
            fixed,
            late: None,
            seen: Company::default(),
        })
    }

    /// What it has seen so far.
    pub(crate) fn seen(&self) -> &Company {
        &self.seen
    }

    /// Whether no core is left out, nor is about to be.
    pub(crate) fn sees_nobody(&self) -> bool {
        self.seen.left_out.is_empty() && !self.changed && !self.policy.on_trial()
    }

    /// Before a step: does what was decided after the one before.
    pub(crate) fn settle(&mut self, executor: &mut Executor) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        let left: Vec<CpuId> = self.policy.left().iter().copied().collect();
        let word = if self.policy.on_trial() { "on trial" } else { "after a trial" };
        match executor.leave_out(&left) {
            Ok(()) if left.is_empty() => tracing::debug!("steps go with all cores now, {word}"),
            Ok(()) => {
                let cpus: Vec<String> = left.iter().map(|cpu| cpu.0.to_string()).collect();
                tracing::debug!("steps go without CPU {} now, {word}", cpus.join(", "));
            }
            Err(error) => {
                tracing::warn!("the cores that take steps stay what they are: {error}");
                self.failed = true;
                return;
            }
        }
        self.seen.left_out = self.policy.left().iter().copied().collect();
        self.window = None;
    }

    /// After a step that took so long.
    pub(crate) fn observe(&mut self, executor: &mut Executor, took: Duration) {
        self.seen.steps += took;
        if !self.seen.left_out.is_empty() {
            self.seen.steps_without += took;
        }
        if self.failed {
            return;
        }
        let now = Instant::now();
        if let Some(window) = &mut self.window
            && now - window.last < PAUSE + took
        {
            window.steps += took;
            window.last = now;
            if window.steps < self.length {
                return;
            }
        } else {
            self.window = None;
        }
        let Some(times) = executor.cpu_times() else { return };
        let (bytes, tokens) = done(executor);
        let next = Open { times, bytes, tokens, steps: Duration::ZERO, begun: now, last: now };
        if let Some(window) = self.window.take() {
            self.close(executor, window, &next);
        }
        self.window = Some(next);
    }

    /// Judges a window that ends where the next one begins.
    fn close(&mut self, executor: &mut Executor, window: Open, next: &Open) {
        let now = next.last;
        let watched = now - window.begun;
        self.seen.watched += watched;
        let cpus = executor.plan().groups.iter().flat_map(|group| &group.cpus);
        let mut delayed = Vec::with_capacity(next.times.len());
        for ((cpu, after), before) in cpus.zip(&next.times).zip(&window.times) {
            // The kernel adds a delay when it ends, so one that began before the window is in here whole.
            let time = after.delayed.saturating_sub(before.delayed).min(watched);
            *self.seen.delayed.entry(*cpu).or_default() += time;
            delayed.push((*cpu, time.as_secs_f64()));
        }
        let late = LATE * window.steps.as_secs_f64();
        if delayed.iter().any(|(_, delayed)| *delayed >= late) {
            self.late = Some(now);
        }
        executor.share_products(self.late.is_some_and(|late| now - late < SHARED));
        if self.fixed || !executor.can_leave_out() {
            return;
        }
        let idle = (!self.policy.left().is_empty()).then(|| self.look(now)).flatten();
        let window = Window {
            now: (now - self.start).as_secs_f64(),
            seconds: window.steps.as_secs_f64(),
            // Counts may have begun anew meanwhile.
            bytes: next.bytes.saturating_sub(window.bytes),
            tokens: next.tokens.saturating_sub(window.tokens),
            delayed,
            idle,
        };
        if window.tokens > 0 {
            self.changed = self.policy.judge(&window);
        }
    }

    /// Idle shares of all CPUs since the last look, if that was some time ago.
    fn look(&mut self, now: Instant) -> Option<Vec<(CpuId, f64)>> {
        let (last, before) = &self.ticks;
        if now - *last < LOOK {
            return None;
        }
        let fresh = now - *last < PAUSE + LOOK;
        let ticks = CpuTicks::read(Path::new("/"));
        let share = |(cpu, ticks): (&CpuId, &CpuTicks)| {
            let since = ticks.since(*before.get(cpu)?);
            (since.all > 0).then(|| (*cpu, since.idle as f64 / since.all as f64))
        };
        let idle = ticks.iter().filter_map(share).collect();
        self.ticks = (now, ticks);
        fresh.then_some(idle)
    }
}

/// Bytes that steps have read, and their tokens, by the book.
fn done(executor: &Executor) -> (u64, u64) {
    let counts = executor.counts();
    (counts.places.iter().map(|place| place.weights + place.kv).sum(), counts.tokens)
}
