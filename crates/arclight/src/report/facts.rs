//! The arithmetic of the report: from facts to figures, without asking anybody.

use super::experts::Experts;
use super::figures::{
    Busy, Figures, Memory, NodesReport, PageCounts, Thread, Time, Traffic, Waiting,
};
use super::phase::Phase;
use super::reads::Reads;
use super::tasks::Tasks;
use super::verdict;
use arclight_engine::{Activity, NodeBytes, Placement, Plan};
use std::collections::BTreeSet;
use std::ops::Range;
use topology::NodeId;
use why::Cause;

/// Everything that the figures follow from.
pub(super) struct Facts<'a> {
    pub(super) plan: &'a Plan,
    /// Bytes in each place, as loading tells.
    pub(super) loaded: &'a [NodeBytes],
    /// Where pages are, or why that is not known.
    pub(super) placement: Result<&'a Placement, &'a str>,
    pub(super) phase: &'a Phase,
    /// Bytes of the weights that each thread multiplies in a step of all; none if that is not known.
    pub(super) weights: &'a [u64],
    /// Share of the peak of multiplications that was reached, where it was measured.
    pub(super) of_peak: Option<f64>,
    /// What took speed from it.
    pub(super) causes: &'a [Cause],
    pub(super) tasks: Option<Tasks>,
    /// What the threads can read.
    pub(super) reads: &'a Reads,
    /// Bytes of the machine's caches.
    pub(super) caches: u64,
}

impl NodesReport {
    /// # Panics
    /// When no token was computed.
    pub(super) fn of(facts: &Facts<'_>) -> NodesReport {
        let Facts { plan, phase, .. } = facts;
        let counts = &phase.activity.counts;
        assert!(counts.tokens > 0, "somebody has worked");
        let ids: Vec<Option<NodeId>> = plan.groups.iter().map(|g| g.node).collect();
        let distinct = ids.iter().flatten().collect::<BTreeSet<_>>().len() == ids.len();
        let cpus: Vec<_> = plan.groups.iter().flat_map(|g| &g.cpus).collect();
        let threads = threads(plan, &phase.activity, facts.weights);
        let (memory, all_memory) = memory(facts, distinct);
        let mut traffic: Vec<Traffic> = (0..ids.len()).map(|g| traffic(facts, g)).collect();
        let mut all_traffic = sum(&traffic, facts.reads.all);
        let read = all_traffic.read_bytes_per_second * phase.time.as_secs_f64();
        let step_bytes = (read / counts.steps as f64) as u64;
        for one in traffic.iter_mut().chain([&mut all_traffic]) {
            one.compare(step_bytes, facts.caches);
        }
        let time = |range: Range<usize>| time(&threads, range, phase);
        let groups = plan.group_threads().into_iter().enumerate();
        let nodes: Vec<Figures> = groups
            .map(|(g, range)| Figures {
                node: ids[g].map(|id| id.0),
                threads: range.len(),
                memory: memory[g],
                traffic: traffic[g],
                time: time(range),
            })
            .collect();
        let all = Figures {
            node: None,
            threads: threads.len(),
            memory: all_memory,
            traffic: all_traffic,
            time: time(0..threads.len()),
        };
        let mut report = NodesReport {
            phase: if phase.decoding { "decode" } else { "prompt" },
            steps: counts.steps,
            tokens: counts.tokens,
            seconds: phase.time.as_secs_f64(),
            mode: plan.mode.to_string(),
            virtual_nodes: ids.len() > 1 && !distinct,
            shared_activations: plan.places() < ids.len(),
            cpus_shared: cpus.iter().collect::<BTreeSet<_>>().len() < cpus.len(),
            cache_bytes: facts.caches,
            pages_unknown: facts.placement.err().map(str::to_owned),
            nodes,
            all,
            waits_as_compiled: threads.iter().all(Thread::as_compiled),
            threads,
            tasks: facts.tasks.clone(),
            scheduled: None,
            experts: Experts::of(&facts.phase.activity.experts),
            counted: phase.counted.clone(),
            of_peak: facts.of_peak,
            causes: facts.causes.to_vec(),
            verdict: Vec::new(),
        };
        report.verdict = verdict::of(&report, plan.mode);
        report
    }
}

/// What there is on each node and in all. An arena that nodes share is counted where its pages are,
/// if `distinct` nodes make that a question.
fn memory(facts: &Facts<'_>, distinct: bool) -> (Vec<Memory>, Memory) {
    let groups = &facts.plan.groups;
    let mut nodes = vec![Memory::default(); groups.len()];
    let mut all = Memory::default();
    let Ok(placement) = facts.placement else {
        let own = facts.loaded.len() == nodes.len();
        for (place, bytes) in facts.loaded.iter().enumerate() {
            let own = own.then(|| &mut nodes[place]);
            for to in own.into_iter().chain([&mut all]) {
                to.weights_bytes += bytes.weights as u64;
                to.kv_bytes += bytes.kv as u64;
                to.activation_bytes += bytes.activations as u64;
            }
        }
        return (nodes, all);
    };
    for arena in &placement.arenas {
        let (present, wrong) = (arena.pages.present(), arena.misplaced());
        let bytes = arena.bytes as u64;
        let whole = PageCounts {
            right: present - wrong,
            wrong,
            absent: arena.pages.absent,
            unknown: arena.pages.failed.values().sum(),
            huge_bytes: arena.huge_bytes,
            present_bytes: part_of(bytes, present, arena.pages.total()),
            ..PageCounts::default()
        };
        all.add(arena.name, bytes, whole);
        match arena.group {
            Some(group) => nodes[group].add(arena.name, bytes, whole),
            None if distinct && present > 0 => {
                for (to, group) in nodes.iter_mut().zip(groups) {
                    let here = group.node.and_then(|id| arena.pages.by_node.get(&id));
                    let here = here.copied().unwrap_or(0);
                    let part = |of| part_of(of, here, present);
                    let pages = PageCounts {
                        right: here,
                        huge_bytes: part(whole.huge_bytes),
                        present_bytes: part(whole.present_bytes),
                        ..PageCounts::default()
                    };
                    to.add(arena.name, part(bytes), pages);
                }
            }
            None => {}
        }
    }
    (nodes, all)
}

impl Memory {
    fn add(&mut self, name: &str, bytes: u64, pages: PageCounts) {
        match name {
            "weights" => self.weights_bytes += bytes,
            "KV pages" => self.kv_bytes += bytes,
            _ => self.activation_bytes += bytes,
        }
        let to = self.pages.get_or_insert_default();
        to.right += pages.right;
        to.wrong += pages.wrong;
        to.absent += pages.absent;
        to.unknown += pages.unknown;
        to.huge_bytes += pages.huge_bytes;
        to.present_bytes += pages.present_bytes;
        // A mapping's huge pages may reach beyond what of it is given out.
        to.huge_share = ratio(to.huge_bytes as f64, to.present_bytes as f64).min(1.0);
    }
}

/// What the threads of `group` move.
fn traffic(facts: &Facts<'_>, group: usize) -> Traffic {
    let Facts { plan, phase, .. } = facts;
    let moved = phase.activity.moved(plan, group);
    let tokens = phase.activity.counts.tokens as f64;
    let elsewhere = facts.placement.ok().and_then(|p| p.elsewhere(group));
    let remote = elsewhere.map(|elsewhere| moved.remote(elsewhere));
    let read = (moved.weights + moved.kv) / phase.time.as_secs_f64();
    Traffic {
        weights_bytes_per_token: moved.weights / tokens,
        kv_bytes_per_token: moved.kv / tokens,
        exchanged_bytes_per_token: moved.exchanged / tokens,
        remote_bytes_per_token: remote.map(|remote| remote / tokens),
        remote_share: remote.map(|r| ratio(r, moved.weights + moved.kv + moved.exchanged)),
        read_bytes_per_second: read,
        limit_bytes_per_second: facts.reads.groups[group],
        ..Traffic::default()
    }
}

/// What all nodes move together.
fn sum(nodes: &[Traffic], limit: f64) -> Traffic {
    let mut all = Traffic {
        remote_bytes_per_token: Some(0.0),
        limit_bytes_per_second: limit,
        ..Traffic::default()
    };
    for node in nodes {
        all.weights_bytes_per_token += node.weights_bytes_per_token;
        all.kv_bytes_per_token += node.kv_bytes_per_token;
        all.exchanged_bytes_per_token += node.exchanged_bytes_per_token;
        let remote = all.remote_bytes_per_token.zip(node.remote_bytes_per_token);
        all.remote_bytes_per_token = remote.map(|(all, one)| all + one);
        all.read_bytes_per_second += node.read_bytes_per_second;
    }
    let moved =
        all.weights_bytes_per_token + all.kv_bytes_per_token + all.exchanged_bytes_per_token;
    all.remote_share = all.remote_bytes_per_token.map(|remote| ratio(remote, moved));
    all
}

fn threads(plan: &Plan, activity: &Activity, weights: &[u64]) -> Vec<Thread> {
    let groups = plan.groups.iter().enumerate();
    let cpus = groups.flat_map(|(node, group)| group.cpus.iter().map(move |cpu| (node, cpu)));
    let us = |nanos: u64| nanos as f64 / 1e3;
    cpus.zip(activity.waits.iter().zip(&activity.threads))
        .enumerate()
        .map(|(number, ((node, cpu), (book, t)))| {
            // A pool of one group knows no global waits.
            let (local, global) = match plan.groups.len() {
                1 => (book.local + book.global, 0),
                _ => (book.local, book.global),
            };
            Thread {
                node,
                cpu: cpu.0,
                jobs: t.jobs.count,
                jobs_us: us(t.jobs.nanos),
                busy_us: us(t.busy_nanos()),
                local_waits: t.local.count,
                local_us: us(t.local.nanos),
                global_waits: t.global.count,
                global_us: us(t.global.nanos),
                crossings: t.crossings,
                last_waits: t.last.count,
                last_us: us(t.last.nanos),
                weights_bytes: weights.get(number).copied().unwrap_or(0),
                compiled_local_waits: local,
                compiled_global_waits: global,
            }
        })
        .collect()
}

/// Where the time of some threads went.
fn time(threads: &[Thread], range: Range<usize>, phase: &Phase) -> Time {
    let counts = &phase.activity.counts;
    let (tokens, steps) = (counts.tokens as f64, counts.steps as f64);
    let own = || range.clone().map(|at| &threads[at]);
    let busy = |at: usize| Busy { thread: at, us_per_token: threads[at].busy_us / tokens };
    let by_work = |a: &usize, b: &usize| threads[*a].busy_us.total_cmp(&threads[*b].busy_us);
    let mean = |of: &dyn Fn(&Thread) -> f64| ratio(own().map(of).sum(), range.len() as f64);
    let waiting = |compiled: &dyn Fn(&Thread) -> u64, us: &dyn Fn(&Thread) -> f64| Waiting {
        per_step: mean(&|t| compiled(t) as f64) / steps,
        us_per_token: mean(us) / tokens,
        most_us_per_token: own().map(us).fold(0.0, f64::max) / tokens,
    };
    let whole = phase.time.as_secs_f64() * 1e6;
    // The thread that is in steps longest tells how long they are.
    let steps_us = threads.iter().map(|t| t.jobs_us).fold(0.0, f64::max).min(whole);
    let ends_us = mean(&|t| (steps_us - t.jobs_us).max(0.0));
    let waits_us = mean(&|t| t.local_us + t.global_us);
    Time {
        fastest: range.clone().min_by(by_work).map(busy).unwrap_or_default(),
        slowest: range.clone().max_by(by_work).map(busy).unwrap_or_default(),
        local: waiting(&|t| t.compiled_local_waits, &|t| t.local_us),
        global: waiting(&|t| t.compiled_global_waits, &|t| t.global_us),
        step_ends_us_per_token: ends_us / tokens,
        working: ratio(mean(&|t| t.busy_us), whole),
        waiting: ratio(waits_us + ends_us, whole),
        between_steps: 1.0 - ratio(steps_us, whole),
    }
}

/// As much of `bytes` as `pages` of `all` have.
fn part_of(bytes: u64, pages: usize, all: usize) -> u64 {
    (bytes as f64 * ratio(pages as f64, all as f64)).round() as u64
}

/// 0 where there is nothing to divide by.
fn ratio(of: f64, by: f64) -> f64 {
    if by > 0.0 { of / by } else { 0.0 }
}
