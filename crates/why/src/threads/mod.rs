//! Causes in the work of an engine's threads: memory at its limit, slow nodes and cores, uneven shares, misplaced pages,
//! time between steps, other programs on the same cores.
//!
//! The reports of the command line and the status of a server have the same thresholds and sentences; their counts come
//! from different sources.

use crate::{Cause, NoShare, beaten_memory, share};
use std::collections::BTreeMap;
use std::time::Duration;
use topology::{CpuId, percent};

/// From this share of its read limit on, while threads work, a memory is the bottleneck.
const NEAR_LIMIT: f64 = 0.7;
/// Below this share of its read limit, a memory is not the bottleneck.
const FAR_FROM_LIMIT: f64 = 0.5;
/// From this share of the time on, waiting is worth a sentence.
const MUCH_WAITING: f64 = 0.2;
/// From this share of the time on, so is the time between steps.
const MUCH_BETWEEN: f64 = 0.25;
/// From this share of the bytes on, so are reads from other nodes.
const MUCH_REMOTE: f64 = 0.1;
/// From this share of the pages on, so are pages on other nodes than planned.
const MUCH_MISPLACED: f64 = 0.01;
/// From this share of the time on, the computing of threads is the bottleneck.
const MUCH_WORK: f64 = 0.8;
/// From this share of the time on, other programs on the cores are worth a sentence.
const MUCH_CONTENTION: f64 = 0.02;

/// The work of an engine's threads in a number of steps. All shares refer to one time: that of the steps, or all of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    /// One for each group of threads.
    pub groups: Vec<GroupWork>,
    /// The groups are on memory nodes of their own.
    pub apart: bool,
    /// Groups take turns at a sequence.
    pub pipeline: bool,
    /// Several threads run on one CPU, so the time of each includes that of the others.
    pub cpus_shared: bool,
    /// Bytes that a step reads.
    pub step_bytes: u64,
    /// Bytes of all caches of the machine.
    pub cache_bytes: u64,
    /// Number of waits of a thread in a step and their mean time in seconds, if they were counted.
    pub waits: Option<(f64, f64)>,
    /// Share of the peak multiplication rate that was reached, if it was measured.
    pub of_peak: Option<f64>,
}

/// The work of a group of threads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupWork {
    /// The number of its memory node, or of the group on virtual nodes.
    pub node: u32,
    /// Bytes read per second.
    pub read: f64,
    /// Bytes per second that its memory can deliver to it.
    pub limit: Option<f64>,
    /// Share of the bytes that were in other nodes' memory.
    pub remote: Option<f64>,
    /// Number of pages on another node than planned, and number of all pages.
    pub misplaced: Option<(u64, u64)>,
    /// Share of the time that its threads waited.
    pub waiting: f64,
    /// Share of the time that its threads waited for other groups, a part of `waiting`.
    pub waiting_machine: f64,
    /// Its threads.
    pub threads: Vec<ThreadWork>,
}

/// The work of a thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThreadWork {
    /// Its CPU.
    pub cpu: CpuId,
    /// Share of the time that it worked.
    pub working: f64,
    /// Share of the time for which all others waited for it alone; 0 if that is not known.
    pub held: f64,
    /// Bytes of the weights that it multiplies; 0 if that is not known.
    pub weights: u64,
}

fn rate(bytes_per_second: f64) -> String {
    format!("{:.1} GB/s", bytes_per_second / 1e9)
}

fn seconds(s: f64) -> String {
    match s {
        s if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        s => format!("{:.1} ms", s * 1e3),
    }
}

fn mean(of: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = of.fold((0.0, 0), |(sum, n), x| (sum + x, n + 1));
    if n > 0 { sum / f64::from(n) } else { 0.0 }
}

fn ratio(of: f64, by: f64) -> Option<f64> {
    (by > 0.0).then(|| of / by)
}

/// A thread among all, with its group and its number.
#[derive(Clone, Copy)]
struct Seat {
    group: usize,
    number: usize,
    did: ThreadWork,
}

/// Means over all threads but one.
struct Others {
    working: f64,
    waiting: f64,
    held: f64,
    weights: f64,
}

impl Work {
    /// All causes, the most important first.
    pub fn causes(&self) -> Vec<Cause> {
        let mut all: Vec<Cause> = self.memory().into_iter().chain(self.waiting()).collect();
        // A memory that is read at its limit for a short part of the time bounds that part only.
        if self.waiting_share() > self.working() {
            all.reverse();
        }
        all.extend(self.misplaced());
        all.extend(self.remote());
        if all.is_empty() {
            all.extend(self.computing());
        }
        all
    }

    /// Whether the bytes that a step reads fit into the caches.
    pub fn is_cached(&self) -> bool {
        self.step_bytes < self.cache_bytes
    }

    /// Mean share of the time that threads work.
    pub fn working(&self) -> f64 {
        mean(self.seats().map(|seat| seat.did.working))
    }

    /// Mean share of the time that threads wait.
    pub fn waiting_share(&self) -> f64 {
        self.mean_of(|group| group.waiting)
    }

    /// By threads.
    fn mean_of(&self, of: fn(&GroupWork) -> f64) -> f64 {
        mean(self.groups.iter().flat_map(|g| std::iter::repeat_n(of(g), g.threads.len())))
    }

    fn seats(&self) -> impl Iterator<Item = Seat> {
        let groups = self.groups.iter().enumerate();
        let threads = groups.flat_map(|(group, g)| g.threads.iter().map(move |did| (group, *did)));
        threads.enumerate().map(|(number, (group, did))| Seat { group, number, did })
    }

    fn others_than(&self, one: Seat) -> Others {
        let of = |what: fn(ThreadWork) -> f64| {
            let others = self.seats().filter(|seat| seat.number != one.number);
            mean(others.map(|seat| what(seat.did)))
        };
        let working = of(|did| did.working);
        Others {
            working,
            // They wait for as much longer as they work less.
            waiting: self.waiting_share() + self.working() - working,
            held: of(|did| did.held),
            weights: of(|did| did.weights as f64),
        }
    }

    fn slowest(&self) -> Option<Seat> {
        self.seats().max_by(|a, b| a.did.working.total_cmp(&b.did.working))
    }

    /// The mean of what threads of a group worked, or of the others.
    fn working_of(&self, is_one: impl Fn(usize) -> bool) -> f64 {
        mean(self.seats().filter(|seat| is_one(seat.group)).map(|seat| seat.did.working))
    }

    /// The share of its limit at which a node is read; `Err` if it is read faster than that, or has none.
    fn of_limit(&self, group: &GroupWork) -> Result<f64, NoShare> {
        let limit = group.limit.ok_or(NoShare::Unmeasured)?;
        share(group.read, limit, beaten_memory(self.step_bytes, self.cache_bytes))
    }

    /// The same while its threads work.
    fn near_limit(&self, group: &GroupWork) -> Option<f64> {
        let of = self.of_limit(group).ok()?;
        let working = mean(group.threads.iter().map(|thread| thread.working));
        let working = if self.cpus_shared { 1.0 } else { working };
        // More than the limit while they work: then only the share of all the time is certain.
        Some(share(of, working, NoShare::Memory).unwrap_or(of))
    }

    fn far_share(&self) -> Option<f64> {
        let most = self.groups.iter().filter_map(|group| group.remote).reduce(f64::max);
        // Virtual nodes are not far from each other.
        most.filter(|share| self.apart && *share >= MUCH_REMOTE)
    }

    /// The memory of the slowest thread's node, if it is read near its limit. All other threads wait for this thread.
    fn memory(&self) -> Option<Cause> {
        let group = &self.groups[self.slowest()?.group];
        let (near, limit) = (self.near_limit(group)?, group.limit?);
        // The limit is that of a node's own memory, so it does not apply to reads from other nodes.
        let far = self.apart && group.remote.is_some_and(|share| share >= MUCH_REMOTE);
        if self.is_cached() || far || near < NEAR_LIMIT {
            return None;
        }
        let of = self.of_limit(group).ok()?;
        let working = match near > of {
            true => format!(" ({} while its threads work)", percent(near)),
            false => String::new(),
        };
        let text = format!(
            "Memory bounds the work: node {} is read at {} of the {} that it can deliver, {} of it{working}.",
            group.node,
            rate(group.read),
            rate(limit),
            percent(of),
        );
        Some(Cause::new(
            text,
            &[
                "fewer bytes: a file of fewer bits, such as Q4_K_M, or a smaller model",
                "more answers at once share what is read (--parallel), and so do guesses (--speculate)",
            ],
        ))
    }

    fn misplaced(&self) -> Option<Cause> {
        let share = |group: &GroupWork| {
            let (wrong, all) = group.misplaced?;
            Some((ratio(wrong as f64, all as f64)?, group.node, wrong, all))
        };
        let worst = self.groups.iter().filter_map(share).max_by(|a, b| a.0.total_cmp(&b.0));
        let (share, node, wrong, all) = worst.filter(|(share, ..)| *share >= MUCH_MISPLACED)?;
        let text = format!(
            "{} of the pages meant for node {node} lie on others ({wrong} of {all}), and are read from there.",
            percent(share)
        );
        Some(Cause::new(
            text,
            &[
                "make room on it, or stop what moves pages (numastat -m, cpusets, numad), and load the model anew",
            ],
        ))
    }

    fn remote(&self) -> Option<Cause> {
        self.far_share().map(|share| {
            Cause::new(
                format!("{} of the bytes are in another node's memory.", percent(share)),
                &[
                    "--numa tp, or --replicas for many requests",
                    "arclight run --report shows which node's",
                ],
            )
        })
    }

    /// Why threads wait: for a node, for one of them, for other nodes or for each other.
    fn waiting(&self) -> Option<Cause> {
        let waiting = self.waiting_share();
        if waiting < MUCH_WAITING {
            return None;
        }
        let takes = format!("Waiting takes {} of the time", percent(waiting));
        let all = self.working();
        let slowest = self.slowest()?;
        // On average, the others wait for as long as the slowest works longer than the mean.
        let beyond = slowest.did.working - all;
        let of_group = self.working_of(|group| group == slowest.group);
        let by_node = self.groups.len() > 1 && of_group - all >= beyond / 2.0;
        let (longer, waited) = match by_node {
            true => {
                let others = self.groups.iter().enumerate().filter(|(at, _)| *at != slowest.group);
                let rest = self.working_of(|group| group != slowest.group);
                (of_group - rest, mean(others.map(|(_, group)| group.waiting)))
            }
            false => {
                let rest = self.others_than(slowest);
                (slowest.did.working - rest.working, rest.waiting)
            }
        };
        if self.seats().count() > 1 && longer >= waited / 2.0 && !self.pipeline {
            return Some(match by_node {
                true => self.slow_node(&takes, slowest.group),
                false => self.slow_thread(&takes, slowest),
            });
        }
        if let Some(seat) = self.held_up_by().filter(|_| !self.pipeline) {
            return Some(self.late_thread(&takes, seat));
        }
        if self.pipeline && self.groups.len() > 1 {
            return Some(Cause::new(
                format!("{takes}: the nodes of a pipeline take turns at a sequence."),
                &[
                    "more answers at once (--parallel), or --numa tp, where all nodes work on each token",
                ],
            ));
        }
        let others = self.mean_of(|group| group.waiting_machine);
        let most = if others > waiting / 2.0 {
            format!(", most of it for other nodes ({})", percent(others))
        } else {
            String::new()
        };
        let each = self.waits.map_or_else(String::new, |(waits, each)| {
            format!(", in {waits:.0} waits a step of {} on average", seconds(each))
        });
        Some(Cause::new(
            format!("{takes}{most}{each}."),
            &[
                "arclight tune finds the cores with which they wait least",
                "arclight doctor finds who delays them",
            ],
        ))
    }

    fn slow_node(&self, takes: &str, at: usize) -> Cause {
        let of = |one: bool| {
            let seats = || self.seats().filter(move |seat| (seat.group == at) == one);
            let working = mean(seats().map(|seat| seat.did.working));
            let weights = mean(seats().map(|seat| seat.did.weights as f64));
            (working, weights)
        };
        let ((own, weights), (others, others_weights)) = (of(true), of(false));
        let takes = format!("{takes}, most of it for node {}", self.groups[at].node);
        let (works, rest_works) = (percent(own), percent(others));
        if let Some(more) = self.more(weights, others_weights, own, others) {
            let text = format!(
                "{takes}: its threads work {works} of the time, those of others {rest_works}, because each has {more:.1} \
                 times as much of the weights."
            );
            return Cause::new(text, UNEVEN);
        }
        // Bytes per second that a node's memory delivers while its threads work.
        let gives = |group: &GroupWork| {
            ratio(group.read, mean(group.threads.iter().map(|thread| thread.working)))
                .unwrap_or(0.0)
        };
        let rest = self.groups.iter().enumerate().filter(|(group, _)| *group != at);
        let rest = rate(mean(rest.map(|(_, group)| gives(group))));
        let text = format!(
            "{takes}: its threads work {works} of the time and read {} meanwhile, those of others {rest_works} and {rest}.",
            rate(gives(&self.groups[at])),
        );
        Cause::new(
            text,
            &[
                "arclight doctor shows other programs there and missing memory modules",
                "fewer threads on it (--cpus) give it a smaller part of the model",
            ],
        )
    }

    fn slow_thread(&self, takes: &str, seat: Seat) -> Cause {
        let others = self.others_than(seat);
        let Seat { group, number, did } = seat;
        let text = format!(
            "{takes}, most of it for thread {number} (CPU {}, node {}): it works {} of the time, the others {} on average",
            did.cpu.0,
            self.groups[group].node,
            percent(did.working),
            percent(others.working),
        );
        match self.more(did.weights as f64, others.weights, did.working, others.working) {
            Some(more) => Cause::new(
                format!("{text}, because it has {more:.1} times as much of the weights."),
                UNEVEN,
            ),
            None => Cause::new(format!("{text}."), LATE),
        }
    }

    /// The thread that causes at least half of the waiting of the others, if there is one. A slow thread works no longer
    /// than other threads if these take over the tiles that it has not started. They still wait for those that it has.
    fn held_up_by(&self) -> Option<Seat> {
        let latest = self.seats().max_by(|a, b| a.did.held.total_cmp(&b.did.held))?;
        let others = self.others_than(latest);
        // Delays that other threads cause as well do not count.
        let beyond = latest.did.held - others.held;
        (self.seats().count() > 1 && beyond >= others.waiting / 2.0).then_some(latest)
    }

    fn late_thread(&self, takes: &str, Seat { group, number, did }: Seat) -> Cause {
        let text = format!(
            "{takes}, most of it for thread {number} (CPU {}, node {}): for {} of the time all others waited for it alone.",
            did.cpu.0,
            self.groups[group].node,
            percent(did.held),
        );
        Cause::new(text, LATE)
    }

    /// The ratio of a thread's weights to those of others, if it explains at least half of the additional time.
    fn more(&self, own: f64, others: f64, working: f64, others_working: f64) -> Option<f64> {
        let (more, longer) = (ratio(own, others)?, ratio(working, others_working)?);
        (more > 1.0 && more - 1.0 >= (longer - 1.0) / 2.0).then_some(more)
    }

    /// The sentence for work without a cause. The shares are those of the caller's report: of the time, `working` and
    /// `waiting`, and of its memory's limit, the rate at which the node of the slowest thread was read.
    pub fn nothing(&self, working: f64, waiting: f64, of_limit: Result<f64, NoShare>) -> Cause {
        let memory = match of_limit {
            _ if self.is_cached() => "what a step reads fits into the caches".to_owned(),
            Ok(share) => format!("memory is read at {} of its limit", percent(share)),
            Err(why) => format!("of memory it is {why}"),
        };
        let (working, waiting) = (percent(working), percent(waiting));
        let text = format!(
            "Nothing stands out: threads work {working} of the time and wait {waiting}, and {memory}."
        );
        Cause::new(text, &[])
    }

    /// Threads work nearly all of the time, and memory is far from its limit.
    fn computing(&self) -> Option<Cause> {
        let working = self.working();
        let group = self.slowest().map(|slowest| &self.groups[slowest.group])?;
        let near = self.near_limit(group);
        let far = self.is_cached() || near.is_some_and(|near| near < FAR_FROM_LIMIT);
        if working < MUCH_WORK || !far {
            return None;
        }
        let peak = self.of_peak.map_or_else(String::new, |share| {
            format!(", at {} of the multiplications that the cores can do", percent(share))
        });
        let memory = match (self.is_cached(), near) {
            (false, Some(near)) => format!("memory is read at {} of its limit", percent(near)),
            _ => "what a step reads fits into the caches".to_owned(),
        };
        Some(Cause::new(
            format!(
                "Computing bounds it: threads work {} of the time{peak}, and {memory}.",
                percent(working)
            ),
            &[
                "more cores (--threads), or a type whose products are cheaper here: arclight bench --limits",
                "prompts that begin alike are computed once (--cache-dir keeps them over a restart)",
            ],
        ))
    }
}

/// For a thread that is slower than others.
const LATE: &[&str] = &[
    "arclight doctor names what else runs there; --cpus chooses other cores",
    "arclight bench --report shows whether it is always the same core",
];

/// For work that is dealt unevenly.
const UNEVEN: &[&str] = &[
    "a number of threads that divides the model's rows and heads better: arclight tune finds it",
    "--threads, --cpus and --nodes set it",
];

/// The cause for a large share of the time between steps. `step` is the mean time of a step and `gap` that between two
/// steps, in seconds.
pub fn between(share: f64, step: f64, gap: f64) -> Option<Cause> {
    (share >= MUCH_BETWEEN).then(|| {
        let text = format!(
            "{} of the time passes between steps, in which tokens are chosen and sent: a step takes {}, and what is \
             between two {}.",
            percent(share),
            seconds(step),
            seconds(gap),
        );
        Cause::new(
            text,
            &[
                "grammars, log-probabilities and penalties are computed there: leave out what is not needed",
                "on a busy machine other programs delay it: arclight doctor names them",
            ],
        )
    })
}

/// Time that other programs took from the cores of an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contention {
    /// CPUs that steps leave out at this moment.
    pub left_out: Vec<CpuId>,
    /// Time of all steps.
    pub steps: Duration,
    /// Time of the steps that left out at least one CPU.
    pub steps_without: Duration,
    /// The time in which delays were counted: the steps and what was between them.
    pub watched: Duration,
    /// For each CPU, the time of it for which its thread was ready and another program ran.
    pub delayed: BTreeMap<CpuId, Duration>,
}

impl Contention {
    /// The cause, if the time is a large enough share of that of the steps.
    pub fn cause(&self) -> Option<Cause> {
        let steps = self.steps.as_secs_f64();
        if steps == 0.0 {
            return None;
        }
        let without = self.steps_without.as_secs_f64() / steps;
        let watched = self.watched.as_secs_f64();
        let of_time = |time: &Duration| ratio(time.as_secs_f64(), watched);
        let delays = self.delayed.iter().filter_map(|(cpu, time)| Some((of_time(time)?, cpu.0)));
        let worst = delays.max_by(|a, b| a.0.total_cmp(&b.0));
        // Threads do not wait for a core that is left out. The sentence is about the larger of both shares.
        let late = worst.map_or(0.0, |(share, _)| share);
        let text = if without >= MUCH_CONTENTION.max(late) {
            let cpus: Vec<u32> = match self.left_out.as_slice() {
                [] => worst.iter().map(|(_, cpu)| *cpu).collect(),
                some => some.iter().map(|cpu| cpu.0).collect(),
            };
            let ids = cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            let (are, them) = if cpus.len() == 1 { ("CPU", "it") } else { ("CPUs", "them") };
            format!(
                "Other programs are busy on {are} {ids}: the steps of {} of the time went without {them}, which is faster \
                 than to wait for {them}.",
                percent(without)
            )
        } else {
            let (share, cpu) = worst.filter(|(share, _)| *share >= MUCH_CONTENTION)?;
            format!(
                "The thread on CPU {cpu} was not let run for {} of the time: the others waited for it, or took over what it \
                 had not begun.",
                percent(share)
            )
        };
        Some(Cause::new(text, &["arclight doctor names the programs; --cpus chooses other cores"]))
    }
}

#[cfg(test)]
mod tests;
