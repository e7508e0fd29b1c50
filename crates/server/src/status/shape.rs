//! The status as it is written, and where its figures are from.

use super::causes::{Reason, Worked, contention};
use super::limits::Limit;
use super::rates::{self, Group, Look};
use super::readiness;
use super::recent::Served;
use crate::model::Model;
use crate::operate::Slow;
use crate::state::App;
use arclight_engine::{GroupStatus, Mode, ReplicaInfo, ReplicaStatus};
use schemars::JsonSchema;
use serde::Serialize;
use std::time::{Duration, SystemTime};
use topology::Machine;
use why::NoShare;
use why::machine::Check;
use why::server::{Done, Facts, Readiness};

/// What the server and its machine do at this moment. Rates are of the last seconds, between two requests for this;
/// what is not known is null, or not there.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Status {
    #[schemars(extend("enum" = ["loading", "ready", "unloaded", "failed", "stopping"]))]
    phase: &'static str,
    version: &'static str,
    /// That what follows is of: where there are several, the one of `?model=`, or the one that was asked for last.
    model: String,
    /// All models, where the server has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    models: Option<Views>,
    /// Since the server was started.
    uptime_seconds: u64,
    machine: Option<MachineStatus>,
    /// Copies of the model; none while it is being loaded.
    replicas: Vec<ReplicaView>,
    /// Of all replicas together, over the last seconds; null at the first request, and without steps.
    rates: Option<Rates>,
    /// Answers that ended, the last first.
    requests: Vec<ServedView>,
    /// What bounds the speed and what to do about it, the most important first.
    why: Vec<Reason>,
    /// Figures that are not there, and why.
    unknown: Vec<Unknown>,
}

/// All models of a server.
#[derive(Clone, Serialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct Views(pub(crate) Vec<ModelView>);

/// A model of a server with several.
#[derive(Clone, Serialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct ModelView {
    pub(crate) name: String,
    #[schemars(extend("enum" = ["unloaded", "loading", "loaded", "unloading", "failed"]))]
    pub(crate) state: &'static str,
    /// Why it could not be loaded, or does not work any more.
    pub(crate) error: Option<String>,
    pub(crate) pinned: bool,
    pub(crate) running: usize,
    pub(crate) waiting: usize,
    /// Of weights and KV pages; 0 while it is not loaded.
    pub(crate) bytes: u64,
    /// Since its last request; null while it is not loaded.
    pub(crate) idle_seconds: Option<u64>,
    /// Set if it has been loading or leaving for longer than 120 s.
    pub(crate) slow: Option<Slow>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct MachineStatus {
    cpu: Option<String>,
    /// That this process may use.
    cores: usize,
    nodes: Vec<NodeView>,
    /// Of all caches of levels 2 and 3.
    cache_bytes: u64,
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct NodeView {
    node: u32,
    /// Physical cores that this process may use.
    cores: usize,
    memory_bytes: u64,
    /// That could be had at this moment.
    available_bytes: Option<u64>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct ReplicaView {
    /// How its nodes share the model.
    mode: String,
    threads: usize,
    /// Answers that it can give at once.
    slots: usize,
    running: usize,
    waiting: usize,
    /// Tokens left to compute for both.
    outstanding_tokens: u64,
    pages: Pages,
    groups: Vec<GroupView>,
    /// How tokens went to experts, since the model was loaded; null without experts or tokens.
    experts: Option<Experts>,
    /// Why it is out of service.
    failure: Option<String>,
    totals: Totals,
}

/// Pages of keys and values, of 32 tokens each.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct Pages {
    total: usize,
    /// By requests that run.
    used: usize,
    /// Only kept for requests that begin alike: given up when a page is needed.
    cached: usize,
    free: usize,
}

/// Since the model was loaded.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct Totals {
    answers: u64,
    prompt_tokens: u64,
    cached_tokens: u64,
    /// Of the cached ones those that came from disk.
    restored_tokens: u64,
    generated_tokens: u64,
    drafted_tokens: u64,
    accepted_tokens: u64,
    preemptions: u64,
    steps: u64,
    step_seconds: f64,
    /// Between steps, while answers were under way.
    between_seconds: f64,
}

/// Threads that are on a node together.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct GroupView {
    /// Null on a machine without memory nodes.
    node: Option<u32>,
    threads: usize,
    /// That its memory delivers to these threads, as measured once in idle time.
    limit_bytes_per_second: Option<f64>,
    /// Over the last seconds; null if nothing was computed.
    rates: Option<GroupRates>,
}

/// Shares are of the threads' time in steps.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct GroupRates {
    /// Weights, keys and values that were read, per second of computing.
    read_bytes_per_second: f64,
    /// The share of the limit, at most 1. Null without a limit, and if the limit is exceeded: then caches serve a part,
    /// or other programs ran while it was measured.
    of_limit: Option<f64>,
    /// Share of the bytes that were in the memory of other nodes.
    remote_share: Option<f64>,
    working: f64,
    waiting_node: f64,
    waiting_machine: f64,
    /// Of the tiles that threads share, the share of those that were dealt to another one.
    stolen_share: Option<f64>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct Rates {
    /// The time that they are of.
    seconds: f64,
    generated_per_second: f64,
    /// Of prompts, without those found in the cache.
    prompt_per_second: f64,
    steps_per_second: f64,
    /// Mean time of a step; null without steps.
    step_ms: Option<f64>,
    /// Mean time between two steps while answers were under way: sampling, and the work of a single thread while the
    /// others wait; null without steps.
    between_ms: Option<f64>,
    /// Tokens of answers in a step, on average.
    answers_per_step: Option<f64>,
    /// Share of the time in which a step was under way; the mean of the replicas.
    computing: f64,
    /// Share of the tokens of prompts that were found in the cache; null without prompts.
    cached_share: Option<f64>,
    /// Share of the guessed tokens that came true; null without guesses.
    accepted_share: Option<f64>,
    preemptions: u64,
}

/// How tokens went to experts.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct Experts {
    /// Layers with experts.
    layers: usize,
    /// Tokens of a layer's busiest expert over its even share: on average, and at most.
    busiest: f64,
    busiest_of_all: f64,
    /// Share of the experts that no token went to.
    idle_share: f64,
    /// Shares of a layer's choices by rank, from the busiest expert; the mean of the layers.
    by_rank: Vec<f64>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct ServedView {
    /// Seconds since 1970.
    ended: f64,
    #[schemars(extend("enum" = ["stop", "length", "tool_calls", "abort", "error"]))]
    end: &'static str,
    /// Known of answers that ended by themselves, as is the time in the queue.
    replica: Option<usize>,
    queued_ms: Option<f64>,
    /// From the request to the first token; null without one.
    first_ms: Option<f64>,
    /// From the request to the last token.
    total_ms: f64,
    prompt_tokens: usize,
    cached_tokens: usize,
    tokens: usize,
    /// Behind the first token; null without further ones.
    tokens_per_second: Option<f64>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct Unknown {
    what: &'static str,
    why: String,
}

/// Puts everything together: the model with its engines now and before, and what costs speed on the machine.
pub(super) fn status(
    app: &App,
    phase: Readiness,
    loaded: Option<(&Model, Look, Option<Look>)>,
    checks: Vec<Check>,
    models: Option<Views>,
) -> Status {
    let watcher = &app.status;
    let mut unknown = Vec::new();
    let machine = match watcher.machine() {
        Ok(machine) => Some(machine),
        Err(why) => {
            unknown.push(Unknown { what: "machine", why: why.to_owned() });
            None
        }
    };
    let caches = machine.map_or(0, cache_bytes);
    let (mut replicas, mut rates, mut facts) = (Vec::new(), None, Facts::default());
    if let Some((model, now, before)) = &loaded {
        let before = before.as_ref();
        let seconds = before.map(|before| (now.at - before.at).as_secs_f64());
        let done = before.zip(seconds).map(|(before, seconds)| {
            let pairs = before.replicas.iter().zip(&now.replicas);
            let done = |(b, n): (&ReplicaStatus, &ReplicaStatus)| {
                rates::done(&b.counters, &n.counters, seconds)
            };
            pairs.map(done).fold(Done::default(), rates::sum)
        });
        match &done {
            None => unknown.push(Unknown {
                what: "rates",
                why: "they are of the time between two requests for the status, and this is the first".into(),
            }),
            Some(done) => rates = Some(all_rates(done, now.replicas.len())),
        }
        let infos = model.replicas.replicas();
        for (at, (info, status)) in infos.iter().zip(&now.replicas).enumerate() {
            let limit = watcher.limits.of(at);
            if let Some(why) = no_limit(&limit, app.options.measure_reads.is_some()) {
                unknown.push(Unknown { what: "limit_bytes_per_second", why });
            }
            let before = before.and_then(|before| before.replicas.get(at));
            replicas.push(replica(info, status, before, &limit, caches, &mut facts));
        }
        let mut remote = now.replicas.iter().flat_map(|replica| &replica.groups);
        if remote.any(|group| group.remote.is_none()) {
            let why = "the kernel does not tell on which nodes pages are".to_owned();
            unknown.push(Unknown { what: "remote_share", why });
        }
        let pairs = before.iter().flat_map(|before| before.replicas.iter().zip(&now.replicas));
        let company = pairs.map(|(before, now)| now.company.since(&before.company));
        facts.contention = company.map(contention).collect();
        facts.done = done;
        facts.running = now.replicas.iter().map(|replica| replica.running).sum();
        facts.waiting = now.replicas.iter().map(|replica| replica.waiting).sum();
        facts.slots = model.replicas.slots();
        facts.replicas = now.replicas.len();
    }
    let served = app.metrics.recent.all();
    let word = readiness::word(&phase);
    facts.phase = phase;
    facts.nodes = machine.map_or(1, |machine| machine.usable_nodes().count());
    facts.checks = checks;
    facts.idle = served.first().and_then(|last| last.ended.elapsed().ok());
    Status {
        phase: word,
        version: env!("CARGO_PKG_VERSION"),
        model: app.name().to_owned(),
        models,
        uptime_seconds: crate::stamp::now().saturating_sub(app.started),
        machine: machine.map(self::machine),
        replicas,
        rates,
        requests: served.iter().map(view).collect(),
        why: facts.reasons().into_iter().map(Reason::from).collect(),
        unknown,
    }
}

fn no_limit(limit: &Limit, measured: bool) -> Option<String> {
    match limit {
        Limit::Known(_) => None,
        Limit::Failed(why) => Some(why.clone()),
        Limit::Asked => {
            Some("it is measured as soon as the server has nothing to do for a second".into())
        }
        Limit::Unasked if measured => Some("it has not been measured yet".into()),
        Limit::Unasked => Some("this program does not measure it".into()),
    }
}

fn cache_bytes(machine: &Machine) -> u64 {
    machine.caches().iter().map(|cache| cache.size_bytes).sum()
}

fn machine(machine: &Machine) -> MachineStatus {
    let node = |node: &topology::Node| {
        let cpus = machine.cpus().iter().filter(|cpu| cpu.node == node.id);
        let cores: std::collections::BTreeSet<_> = cpus.map(|cpu| cpu.core).collect();
        NodeView {
            node: node.id.0,
            cores: cores.len(),
            memory_bytes: node.memory_bytes,
            available_bytes: machine.available(node.id),
        }
    };
    MachineStatus {
        cpu: machine.model().map(str::to_owned),
        cores: machine.usable_cores(),
        nodes: machine.usable_nodes().map(node).collect(),
        cache_bytes: cache_bytes(machine),
    }
}

fn replica(
    info: &ReplicaInfo,
    now: &ReplicaStatus,
    before: Option<&ReplicaStatus>,
    limit: &Limit,
    cache_bytes: u64,
    facts: &mut Facts,
) -> ReplicaView {
    let mut worked = Worked {
        pipeline: info.report.mode == Mode::Pipeline,
        steps: before.map_or(0, |before| now.counters.steps - before.counters.steps),
        cache_bytes,
        groups: Vec::new(),
    };
    let group = |(at, group): (usize, &GroupStatus)| {
        let before = before.and_then(|before| before.groups.get(at));
        let rates = before.and_then(|before| Group::between(before, group));
        let limit = match limit {
            Limit::Known(groups) => groups.get(at).copied().filter(|limit| *limit > 0.0),
            _ => None,
        };
        if let Some(rates) = &rates {
            worked.groups.push((group.node.map(|node| node.0), rates.clone(), limit));
        }
        GroupView {
            node: group.node.map(|node| node.0),
            threads: group.threads,
            limit_bytes_per_second: limit,
            rates: rates.map(|rates| GroupRates {
                read_bytes_per_second: rates.read_bytes_per_second,
                of_limit: limit.and_then(|limit| {
                    why::share(rates.read_bytes_per_second, limit, NoShare::Memory).ok()
                }),
                remote_share: rates.remote,
                working: rates.working,
                waiting_node: rates.waiting_node,
                waiting_machine: rates.waiting_machine,
                stolen_share: rates.stolen,
            }),
        }
    };
    let groups = now.groups.iter().enumerate().map(group).collect();
    facts.engines.push(worked.into());
    let pages = Pages {
        total: now.pages.total,
        used: now.pages.total - now.pages.free - now.pages.cached,
        cached: now.pages.cached,
        free: now.pages.free,
    };
    facts.pages.0 += pages.used;
    facts.pages.1 += pages.total;
    facts.failures.extend(now.failure.clone());
    let experts = experts(&now.experts);
    facts.busiest = facts.busiest.max(experts.as_ref().map_or(0.0, |experts| experts.busiest));
    let done = &now.counters;
    ReplicaView {
        mode: info.report.mode.to_string(),
        threads: info.threads,
        slots: info.sequences,
        running: now.running,
        waiting: now.waiting,
        outstanding_tokens: now.outstanding,
        pages,
        groups,
        experts,
        failure: now.failure.clone(),
        totals: Totals {
            answers: done.served,
            prompt_tokens: done.prompt_tokens,
            cached_tokens: done.cached_tokens,
            restored_tokens: done.restored_tokens,
            generated_tokens: done.generated_tokens,
            drafted_tokens: done.drafted_tokens,
            accepted_tokens: done.accepted_tokens,
            preemptions: done.preemptions,
            steps: done.steps,
            step_seconds: done.step_time.as_secs_f64(),
            between_seconds: done.between_time.as_secs_f64(),
        },
    }
}

/// The share of a part; `None` if the whole is 0.
fn share(part: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| part as f64 / all as f64)
}

fn all_rates(done: &Done, replicas: usize) -> Rates {
    let per_second = |count: u64| count as f64 / done.seconds;
    let steps = (done.steps > 0).then_some(done.steps as f64);
    Rates {
        seconds: done.seconds,
        generated_per_second: per_second(done.generated_tokens),
        prompt_per_second: per_second(done.computed_tokens),
        steps_per_second: per_second(done.steps),
        step_ms: steps.map(|steps| done.step_seconds * 1e3 / steps),
        between_ms: steps.map(|steps| done.between_seconds * 1e3 / steps),
        answers_per_step: steps.map(|steps| done.generated_tokens as f64 / steps),
        computing: (done.step_seconds / (done.seconds * replicas.max(1) as f64)).min(1.0),
        cached_share: share(done.cached_tokens, done.prompt_tokens),
        accepted_share: share(done.accepted_tokens, done.drafted_tokens),
        preemptions: done.preemptions,
    }
}

fn experts(chosen: &[Vec<u64>]) -> Option<Experts> {
    // One that all tokens go to is no choice.
    let layers: Vec<&Vec<u64>> =
        chosen.iter().filter(|layer| layer.len() > 1 && layer.iter().any(|&n| n > 0)).collect();
    let longest = layers.iter().map(|layer| layer.len()).max()?;
    let mut by_rank = vec![0.0; longest];
    let (mut busiest, mut busiest_of_all, mut idle) = (0.0, 0.0_f64, 0);
    for layer in &layers {
        let all = layer.iter().sum::<u64>() as f64;
        let mut sorted: Vec<u64> = layer.to_vec();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        let most = sorted[0] as f64 * layer.len() as f64 / all;
        busiest += most / layers.len() as f64;
        busiest_of_all = busiest_of_all.max(most);
        idle += sorted.iter().filter(|&&n| n == 0).count();
        for (mean, n) in by_rank.iter_mut().zip(sorted) {
            *mean += n as f64 / all / layers.len() as f64;
        }
    }
    let count: usize = layers.iter().map(|layer| layer.len()).sum();
    let idle_share = idle as f64 / count as f64;
    Some(Experts { layers: layers.len(), busiest, busiest_of_all, idle_share, by_rank })
}

fn view(served: &Served) -> ServedView {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let ended = served.ended.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let rest = served.rest.as_secs_f64();
    ServedView {
        ended: ended.as_secs_f64(),
        end: served.end,
        replica: served.place.map(|(replica, _)| replica),
        queued_ms: served.place.map(|(_, queued)| ms(queued)),
        first_ms: served.first.map(ms),
        total_ms: ms(served.first.unwrap_or_default() + served.rest),
        prompt_tokens: served.prompt_tokens,
        cached_tokens: served.cached_tokens,
        tokens: served.tokens,
        tokens_per_second: (served.tokens > 1 && rest > 0.0)
            .then(|| (served.tokens - 1) as f64 / rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experts_are_held_against_an_even_share() {
        let all = experts(&[vec![4, 2, 2, 0], vec![9], vec![0, 6, 1, 1], vec![0, 0]]).unwrap();
        assert_eq!(
            (all.layers, all.busiest, all.busiest_of_all, all.idle_share),
            (2, 2.5, 3.0, 0.25)
        );
        assert_eq!(all.by_rank, [0.625, 0.1875, 0.1875, 0.0]);
        assert!(experts(&[vec![7]]).is_none() && experts(&[]).is_none());
    }
}
