//! Causes of a server: its queue, KV pages, prompts, draft tokens and experts, with those of its engines' threads
//! ([`crate::threads`]) and of its machine ([`crate::machine`]), in the order of their importance.

use crate::Cause;
use crate::machine::Check;
use crate::threads::{Contention, Work, between};
use std::time::Duration;
use topology::percent;

/// From this share of the shared tiles on, it is worth a sentence that threads take them from each other.
const MUCH_STOLEN: f64 = 0.2;
/// From this share of the pages in use on, requests will soon have to wait for pages.
const FULL: f64 = 0.9;
/// From this share of the work on, prompts are most of it.
const MOSTLY_PROMPTS: f64 = 0.8;
/// Below this share of accepted draft tokens, drafting costs more than it saves.
const FEW_TRUE: f64 = 0.4;
/// From this multiple of its even share of the tokens on, an expert is a bottleneck.
const BUSY_EXPERT: f64 = 4.0;

/// A sentence about a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// A sentence with its figure.
    pub text: String,
    /// Remedies, the best first.
    pub mend: Vec<String>,
    /// Whether speed is lost. A reason without loss describes the state of the server.
    pub costs: bool,
}

/// Whether a model answers requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Readiness {
    /// The model is being loaded.
    #[default]
    Loading,
    /// The model answers.
    Ready,
    /// The model is not in memory; a request loads it.
    Unloaded,
    /// The model is out of service, with the error.
    Failed(String),
    /// The server is shutting down.
    Stopping,
}

/// Counts of a replica over some seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Length of the time span.
    pub seconds: f64,
    /// Number of steps.
    pub steps: u64,
    /// Time in steps.
    pub step_seconds: f64,
    /// Time between steps while requests were running.
    pub between_seconds: f64,
    /// Tokens of prompts.
    pub prompt_tokens: u64,
    /// Prompt tokens found in the prefix cache.
    pub cached_tokens: u64,
    /// Prompt tokens computed.
    pub computed_tokens: u64,
    /// Tokens of answers.
    pub generated_tokens: u64,
    /// Draft tokens.
    pub drafted_tokens: u64,
    /// Draft tokens that were accepted.
    pub accepted_tokens: u64,
    /// Requests that gave up their pages for others.
    pub preemptions: u64,
}

/// The work of one engine.
#[derive(Clone, Debug, Default)]
pub struct Engine {
    /// The work of its groups; those that computed nothing are left out.
    pub work: Work,
    /// Share of the time that the threads of its least busy group worked; `None` if nothing was computed.
    pub least_working: Option<f64>,
    /// Share of the shared tiles that were taken over from other threads, in the group where it is largest.
    pub most_stolen: Option<f64>,
}

/// The counts of a server.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Whether the model answers.
    pub phase: Readiness,
    /// The errors of replicas that are out of service.
    pub failures: Vec<String>,
    /// Number of running requests.
    pub running: usize,
    /// Number of waiting requests.
    pub waiting: usize,
    /// Number of requests that can run at once.
    pub slots: usize,
    /// Number of replicas.
    pub replicas: usize,
    /// Number of KV pages in use, and number of all.
    pub pages: (usize, usize),
    /// The sum over all replicas for the last seconds.
    pub done: Option<Done>,
    /// One for each replica.
    pub engines: Vec<Engine>,
    /// Number of memory nodes.
    pub nodes: usize,
    /// Tokens of a layer's busiest expert divided by its even share, on average.
    pub busiest: f64,
    /// Time that other programs took from each engine's cores.
    pub contention: Vec<Contention>,
    /// Losses on the machine, the largest first.
    pub checks: Vec<Check>,
    /// Time since the last answer ended; `None` if no answer has ended.
    pub idle: Option<Duration>,
}

impl From<Cause> for Reason {
    fn from(Cause { text, mend }: Cause) -> Reason {
        Reason { text, mend, costs: true }
    }
}

fn costs(text: String, mend: &[&str]) -> Reason {
    Cause::new(text, mend).into()
}

fn tells(text: String) -> Reason {
    Reason { text, mend: Vec::new(), costs: false }
}

impl Facts {
    /// All reasons, the largest loss first.
    pub fn reasons(&self) -> Vec<Reason> {
        match &self.phase {
            Readiness::Loading => return vec![tells("The model is being loaded.".into())],
            Readiness::Unloaded => {
                return vec![tells(
                    "The model is not in memory: a request for it loads it.".into(),
                )];
            }
            Readiness::Failed(why) => {
                return vec![costs(
                    format!("The model is out of service: {why}."),
                    &["the server's log has more"],
                )];
            }
            Readiness::Stopping => return vec![tells("The server is shutting down.".into())],
            Readiness::Ready => {}
        }
        let mut all = Vec::new();
        all.extend(self.failures.iter().map(|failure| {
            costs(
                format!("A replica is out of service: {failure}."),
                &["it is loaded again by itself; the server's log has more"],
            )
        }));
        all.extend(self.queue());
        all.extend(self.pages());
        // Losses to other programs and limits do not depend on the model.
        all.extend(self.checks.iter().filter_map(Check::cause).map(Reason::from));
        let busy = self.done.as_ref().filter(|done| done.steps > 0);
        if let Some(done) = busy {
            all.extend(self.contention.iter().filter_map(Contention::cause).map(Reason::from));
            all.extend(self.threads());
            all.extend(between_steps(done));
            all.extend(self.prompts(done));
            all.extend(guesses(done));
        }
        if self.busiest >= BUSY_EXPERT && busy.is_some() {
            all.push(tells(format!(
                "Experts are chosen unevenly: the busiest of a layer has {:.1} times its even share of the tokens.",
                self.busiest
            )));
        }
        if busy.is_none() && self.waiting == 0 || !all.iter().any(|reason| reason.costs) {
            all.insert(0, self.nothing(busy));
        }
        all
    }

    /// Requests that wait while all slots are in use. With a free slot a request begins at once.
    fn queue(&self) -> Option<Reason> {
        (self.waiting > 0 && self.running >= self.slots).then(|| {
            let wait = match self.waiting {
                1 => "1 answer waits".to_owned(),
                n => format!("{n} answers wait"),
            };
            let text = match self.slots {
                1 => format!("{wait}: the only slot is in use."),
                all => format!("{wait}: all {all} slots are in use."),
            };
            let more = "more at once: --parallel, which makes each a little slower and all together faster";
            let mut reason = costs(text, &[more]);
            if self.nodes > self.replicas {
                let nodes = self.nodes;
                reason.mend.push(format!("a copy of the model on each of the {nodes} nodes: --replicas {nodes}"));
            }
            reason
        })
    }

    fn pages(&self) -> Option<Reason> {
        let (used, total) = self.pages;
        let preempted = self.done.map_or(0, |done| done.preemptions);
        let full = share(used as u64, total as u64).filter(|share| *share >= FULL);
        let mend = [
            "more memory for them: --kv-tokens, or --ctx smaller",
            "keys and values of fewer bits, see arclight serve --help",
        ];
        if preempted > 0 {
            let gave =
                if preempted == 1 { "1 answer gave" } else { &format!("{preempted} answers gave") };
            let text = format!(
                "{gave} up its pages for others in the last seconds, to be computed again."
            );
            return Some(costs(text, &mend));
        }
        full.map(|share| {
            costs(format!("{} of the {total} KV pages are in use.", percent(share)), &mend)
        })
    }

    /// Causes in the threads of all engines. A cause that several engines have comes once.
    fn threads(&self) -> Vec<Reason> {
        let mut told: Vec<Cause> = Vec::new();
        for engine in &self.engines {
            let causes = engine.work.causes();
            told.extend(
                causes.into_iter().filter(|cause| !told.contains(cause)).collect::<Vec<_>>(),
            );
        }
        let mut all: Vec<Reason> = told.into_iter().map(Reason::from).collect();
        let stolen = self.engines.iter().filter_map(|engine| engine.most_stolen).reduce(f64::max);
        if let Some(stolen) = stolen.filter(|stolen| *stolen > MUCH_STOLEN) {
            all.push(costs(
                format!("{} of the tiles that threads share were taken over from other threads: some are slower.", percent(stolen)),
                &["arclight doctor finds what slows them"],
            ));
        }
        all
    }

    /// Work on prompts, which delays answers.
    fn prompts(&self, done: &Done) -> Option<Reason> {
        let prompts = share(done.computed_tokens, done.computed_tokens + done.generated_tokens)?;
        let cached = share(done.cached_tokens, done.prompt_tokens);
        (prompts >= MOSTLY_PROMPTS && done.computed_tokens > 256).then(|| {
            let found = cached.map_or_else(String::new, |share| {
                format!(" {} of the prompts' tokens were found in the cache.", percent(share))
            });
            let text = format!(
                "Prompts are most of the work: {} tokens of them beside {} of answers.{found}",
                done.computed_tokens, done.generated_tokens
            );
            let mend = [
                "begin requests alike, with what changes at their end: the same beginning is computed once",
                "--cache-dir keeps what was computed over a restart",
            ];
            costs(text, &mend)
        })
    }

    /// The sentence for a server without a cause.
    fn nothing(&self, busy: Option<&Done>) -> Reason {
        let Some(done) = busy else {
            let text = match (self.running, self.idle) {
                (0, Some(time)) => {
                    format!("Nothing is computed: the last answer ended {} s ago.", time.as_secs())
                }
                (0, None) => "Nothing is computed: there has been no request yet.".to_owned(),
                (1, _) => "1 answer under way; rates follow in a second.".to_owned(),
                (n, _) => format!("{n} answers under way; rates follow in a second."),
            };
            return tells(text);
        };
        let working =
            self.engines.iter().filter_map(|engine| engine.least_working).reduce(f64::min);
        let step = done.step_seconds * 1e3 / done.steps as f64;
        let working = working.map_or_else(String::new, |share| {
            format!(": threads work {} of the time", percent(share))
        });
        tells(format!(
            "Nothing stands out{working}, and a step takes {step:.1} ms for {:.1} answers on average.",
            done.generated_tokens as f64 / done.steps as f64
        ))
    }
}

fn share(part: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| part as f64 / all as f64)
}

/// The time between steps while answers are under way.
fn between_steps(done: &Done) -> Option<Reason> {
    let (step, gap) = (done.step_seconds, done.between_seconds);
    let steps = done.steps as f64;
    between(gap / (step + gap), step / steps, gap / steps).map(Reason::from)
}

/// Draft tokens of which too few are accepted.
fn guesses(done: &Done) -> Option<Reason> {
    let right = share(done.accepted_tokens, done.drafted_tokens)?;
    (right < FEW_TRUE && done.drafted_tokens > 32).then(|| {
        let text =
            format!("{} of {} guessed tokens came true.", percent(right), done.drafted_tokens);
        costs(text, &["--speculate off, or a draft model that is nearer to this one"])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::State;
    use crate::threads::{GroupWork, ThreadWork};
    use topology::CpuId;

    fn group(node: u32, read: f64, working: f64, limit: Option<f64>) -> GroupWork {
        let thread = |cpu| ThreadWork { cpu: CpuId(cpu), working, held: 0.0, weights: 1 };
        GroupWork {
            node,
            read,
            limit,
            remote: Some(0.0),
            misplaced: Some((0, 100)),
            waiting: 1.0 - working,
            waiting_machine: 0.0,
            threads: [0, 1].map(thread).to_vec(),
        }
    }

    /// A server that computes, with nothing to complain of.
    fn busy() -> Facts {
        let done = Done {
            seconds: 5.0,
            steps: 100,
            step_seconds: 4.9,
            generated_tokens: 400,
            computed_tokens: 100,
            prompt_tokens: 100,
            ..Done::default()
        };
        Facts {
            phase: Readiness::Ready,
            running: 4,
            slots: 8,
            replicas: 1,
            pages: (10, 100),
            done: Some(done),
            engines: vec![engine(7e9, 0.95)],
            nodes: 1,
            ..Facts::default()
        }
    }

    /// An engine with one group of threads.
    fn engine(read: f64, working: f64) -> Engine {
        let work = Work {
            groups: vec![group(0, read, working, Some(12.5e9))],
            apart: true,
            step_bytes: 1 << 33,
            cache_bytes: 1 << 20,
            ..Work::default()
        };
        Engine { work, least_working: Some(working), most_stolen: None }
    }

    /// The only group.
    fn own(facts: &mut Facts) -> &mut GroupWork {
        &mut facts.engines[0].work.groups[0]
    }

    fn first(facts: &Facts) -> String {
        facts.reasons().remove(0).text
    }

    #[test]
    fn what_works_well_is_said() {
        let reasons = busy().reasons();
        assert_eq!(reasons.len(), 1);
        assert!(!reasons[0].costs);
        assert_eq!(
            reasons[0].text,
            "Nothing stands out: threads work 95 % of the time, and a step takes 49.0 ms for 4.0 answers on average."
        );
        let idle = Facts { phase: Readiness::Ready, ..Facts::default() };
        assert_eq!(first(&idle), "Nothing is computed: there has been no request yet.");
        assert_eq!(
            first(&Facts { phase: Readiness::Loading, ..busy() }),
            "The model is being loaded."
        );
        let failed = Facts { phase: Readiness::Failed("no pages".into()), ..busy() };
        assert_eq!(first(&failed), "The model is out of service: no pages.");
    }

    #[test]
    fn memory_near_its_limit_bounds_the_work_unless_caches_serve_it() {
        let mut facts = busy();
        facts.engines[0] = engine(10e9, 0.9);
        assert_eq!(
            first(&facts),
            "Memory bounds the work: node 0 is read at 10.0 GB/s of the 12.5 GB/s that it can deliver, 80 % of it (89 \
             % while its threads work)."
        );
        assert!(!facts.reasons()[0].mend.is_empty());
        facts.engines[0].work.cache_bytes = 1 << 40;
        assert!(first(&facts).starts_with(
            "Computing bounds it: threads work 90 % of the time, and what a step reads"
        ));
        // Without a limit nothing is said of it.
        facts.engines[0].work.cache_bytes = 1 << 20;
        own(&mut facts).limit = None;
        assert!(first(&facts).starts_with("Nothing stands out"));
    }

    #[test]
    fn copies_are_for_machines_with_several_nodes() {
        let full = |nodes, replicas| {
            let facts = Facts { waiting: 3, running: 8, nodes, replicas, ..busy() };
            facts.reasons().remove(0).mend
        };
        assert_eq!(full(1, 1).len(), 1);
        assert_eq!(full(4, 4).len(), 1);
        assert_eq!(full(4, 1)[1], "a copy of the model on each of the 4 nodes: --replicas 4");
        // A replica without work waits between two requests, not between two steps.
        let mut idle = busy();
        idle.done.as_mut().unwrap().step_seconds = 2.5;
        assert!(idle.reasons()[0].text.starts_with("Nothing stands out"));
        // Who waits beside free slots is begun in the next step.
        let facts = Facts { waiting: 1, ..busy() };
        assert!(facts.reasons()[0].text.starts_with("Nothing stands out"));
    }

    #[test]
    fn each_cause_has_its_sentence_and_its_figure() {
        let says = |change: &dyn Fn(&mut Facts), words: &str| {
            let mut facts = busy();
            change(&mut facts);
            let reasons = facts.reasons();
            assert!(reasons[0].costs && !reasons[0].mend.is_empty(), "{reasons:?}");
            assert!(reasons[0].text.contains(words), "{reasons:?}");
        };
        says(&|f| (f.waiting, f.running) = (3, 8), "3 answers wait: all 8 slots are in use.");
        says(
            &|f| (f.waiting, f.running, f.slots) = (1, 1, 1),
            "1 answer waits: the only slot is in use.",
        );
        says(
            &|f| {
                let seconds = Duration::from_secs;
                f.contention.push(Contention {
                    left_out: vec![CpuId(3), CpuId(4)],
                    steps: seconds(10),
                    steps_without: seconds(4),
                    ..Contention::default()
                });
            },
            "busy on CPUs 3, 4: the steps of 40 % of the time went without them",
        );
        says(&|f| f.pages = (95, 100), "95 % of the 100 KV pages are in use.");
        says(&|f| f.done.as_mut().unwrap().preemptions = 2, "2 answers gave up");
        says(&|f| f.failures = vec!["it panicked".into()], "out of service: it panicked.");
        says(
            &|f| {
                f.nodes = 2;
                own(f).remote = Some(0.31);
            },
            "31 % of the bytes are in another node's memory.",
        );
        says(&|f| f.engines[0] = engine(4e9, 0.6), "Waiting takes 40 % of the time.");
        says(
            &|f| own(f).misplaced = Some((20, 100)),
            "20 % of the pages meant for node 0 lie on others (20 of 100)",
        );
        says(
            &|f| {
                f.engines[0] = engine(4e9, 0.6);
                own(f).threads[0].working = 0.3;
                own(f).threads[1].working = 0.9;
            },
            "Waiting takes 40 % of the time, most of it for thread 1 (CPU 1, node 0): it works 90 % of the time, the \
             others 30 % on average.",
        );
        says(
            &|f| {
                f.engines[0] = engine(4e9, 0.3);
                f.engines[0].work.groups.push(group(1, 4e9, 0.9, None));
            },
            "Waiting takes 40 % of the time, most of it for node 1: its threads work 90 % of the time and read \
             4.4 GB/s meanwhile, those of others 30 % and 13.3 GB/s.",
        );
        says(
            &|f| {
                own(f).waiting = 0.05 + 0.3;
                own(f).waiting_machine = 0.3;
            },
            "Waiting takes 35 % of the time, most of it for other nodes (30 %).",
        );
        says(
            &|f| {
                let done = f.done.as_mut().unwrap();
                (done.step_seconds, done.between_seconds) = (2.5, 2.5);
            },
            "50 % of the time passes between steps, in which tokens are chosen and sent: a step takes 25.0 ms, and what is \
             between two 25.0 ms.",
        );
        says(&|f| f.engines[0].most_stolen = Some(0.5), "50 % of the tiles that threads share");
        says(
            &|f| {
                let done = f.done.as_mut().unwrap();
                (done.computed_tokens, done.prompt_tokens, done.cached_tokens) =
                    (9000, 10_000, 1000);
            },
            "9000 tokens of them beside 400 of answers. 10 % of the prompts' tokens were found",
        );
        says(
            &|f| {
                let done = f.done.as_mut().unwrap();
                (done.drafted_tokens, done.accepted_tokens) = (100, 10);
            },
            "10 % of 100 guessed tokens came true.",
        );
        says(
            &|f| {
                let state = State::Costs { share: 0.5, mend: vec!["more".into()] };
                f.checks = vec![Check { name: "CPU quota", seen: "2 CPUs".into(), state }];
            },
            "Up to 50 % is lost to CPU quota: 2 CPUs.",
        );
    }
}
