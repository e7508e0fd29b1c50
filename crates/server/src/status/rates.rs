//! Rates: what has been done between two looks at the engines.

use arclight_engine::{Counters, GroupStatus, ReplicaStatus, Replicas, ThreadStatus};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use why::server::Done;
use why::threads::ThreadWork;

/// Rates are of about so much time: longer than steps are, short enough to be of this moment.
const SPAN: Duration = Duration::from_secs(5);
/// Looks that follow sooner are not remembered.
const APART: Duration = Duration::from_millis(500);

/// The engines at one time.
#[derive(Clone)]
pub(super) struct Look {
    pub(super) at: Instant,
    pub(super) replicas: Vec<ReplicaStatus>,
}

impl Look {
    pub(super) fn take(replicas: &Replicas) -> Look {
        let replicas = replicas.status();
        Look { at: Instant::now(), replicas }
    }
}

/// The looks of the last seconds.
#[derive(Default)]
pub(super) struct Looks(VecDeque<Look>);

impl Looks {
    /// Remembers a look; the one to compare it with: the oldest of the span, or the last one before it.
    pub(super) fn before(&mut self, now: &Look) -> Option<Look> {
        let age = |look: &Look| now.at.saturating_duration_since(look.at);
        while self.0.len() > 1 && age(&self.0[1]) >= SPAN {
            self.0.pop_front();
        }
        let before = self.0.front().filter(|look| age(look) >= APART).cloned();
        if self.0.back().is_none_or(|last| age(last) >= APART) {
            self.0.push_back(now.clone());
        }
        before
    }
}

/// The counts of a replica between two looks.
pub(super) fn done(before: &Counters, now: &Counters, seconds: f64) -> Done {
    let time = |of: fn(&Counters) -> Duration| of(now).saturating_sub(of(before)).as_secs_f64();
    Done {
        seconds,
        steps: now.steps - before.steps,
        step_seconds: time(|done| done.step_time),
        between_seconds: time(|done| done.between_time),
        prompt_tokens: now.prompt_tokens - before.prompt_tokens,
        cached_tokens: now.cached_tokens - before.cached_tokens,
        computed_tokens: now.computed_tokens - before.computed_tokens,
        generated_tokens: now.generated_tokens - before.generated_tokens,
        drafted_tokens: now.drafted_tokens - before.drafted_tokens,
        accepted_tokens: now.accepted_tokens - before.accepted_tokens,
        preemptions: now.preemptions - before.preemptions,
    }
}

/// The sum of the counts of replicas over the same time.
pub(super) fn sum(all: Done, one: Done) -> Done {
    Done {
        seconds: one.seconds,
        steps: all.steps + one.steps,
        step_seconds: all.step_seconds + one.step_seconds,
        between_seconds: all.between_seconds + one.between_seconds,
        prompt_tokens: all.prompt_tokens + one.prompt_tokens,
        cached_tokens: all.cached_tokens + one.cached_tokens,
        computed_tokens: all.computed_tokens + one.computed_tokens,
        generated_tokens: all.generated_tokens + one.generated_tokens,
        drafted_tokens: all.drafted_tokens + one.drafted_tokens,
        accepted_tokens: all.accepted_tokens + one.accepted_tokens,
        preemptions: all.preemptions + one.preemptions,
    }
}

/// What the threads of a group have done between two looks. Shares are of the threads' time in steps.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Group {
    /// While they computed.
    pub(super) read_bytes_per_second: f64,
    /// Of the bytes that they moved.
    pub(super) remote: Option<f64>,
    pub(super) working: f64,
    pub(super) waiting_node: f64,
    pub(super) waiting_machine: f64,
    /// Of the tiles that they ran where threads share them; `None` without any.
    pub(super) stolen: Option<f64>,
    pub(super) read_bytes: u64,
    /// Pages on another node than they were meant for, and all.
    pub(super) misplaced: Option<(u64, u64)>,
    pub(super) threads: Vec<ThreadWork>,
}

impl Group {
    /// `None` if nothing was computed, or it was not measured.
    pub(super) fn between(before: &GroupStatus, now: &GroupStatus) -> Option<Group> {
        let time =
            |of: fn(&GroupStatus) -> Duration| of(now).saturating_sub(of(before)).as_secs_f64();
        let (busy, local, global) =
            (time(|g| g.busy), time(|g| g.local_waits), time(|g| g.global_waits));
        let all = busy + local + global;
        if all <= 0.0 || now.threads == 0 {
            return None;
        }
        let read = now.read.saturating_sub(before.read);
        let remote = now.remote.zip(before.remote).map(|(now, before)| now.saturating_sub(before));
        let tasks = now.tasks.saturating_sub(before.tasks);
        let stolen = now.stolen_tasks.saturating_sub(before.stolen_tasks);
        Some(Group {
            read_bytes_per_second: read as f64 * now.threads as f64 / all,
            remote: remote.filter(|_| read > 0).map(|remote| remote as f64 / read as f64),
            working: busy / all,
            waiting_node: local / all,
            waiting_machine: global / all,
            stolen: (tasks > 0).then(|| stolen as f64 / tasks as f64),
            read_bytes: read,
            misplaced: now.misplaced,
            threads: threads(before, now, all, busy / all),
        })
    }
}

/// What each thread did of the time that all spent in steps, which is `working` on average. Threads that had no part in
/// some of the steps, because cores were left out or a step had too few tokens, cannot be held against each other: then
/// it is the mean of each.
fn threads(before: &GroupStatus, now: &GroupStatus, all: f64, working: f64) -> Vec<ThreadWork> {
    let did = |now: &ThreadStatus| {
        let before = before.each.iter().find(|thread| thread.cpu == now.cpu);
        ThreadStatus {
            steps: now.steps.saturating_sub(before.map_or(0, |b| b.steps)),
            busy: now.busy.saturating_sub(before.map_or(Duration::ZERO, |b| b.busy)),
            held: now.held.saturating_sub(before.map_or(Duration::ZERO, |b| b.held)),
            ..*now
        }
    };
    let did: Vec<_> = now.each.iter().map(did).collect();
    let alike =
        before.each.len() == now.each.len() && did.iter().all(|one| one.steps == did[0].steps);
    let work = |&ThreadStatus { cpu, busy, held, weights, .. }: &ThreadStatus| {
        let share = |time: Duration| time.as_secs_f64() * now.threads as f64 / all;
        match alike {
            true => ThreadWork { cpu, working: share(busy), held: share(held), weights },
            false => ThreadWork { cpu, working, held: 0.0, weights },
        }
    };
    did.iter().map(work).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arclight_engine::CpuId;

    #[test]
    fn rates_are_of_the_last_seconds() {
        let start = Instant::now();
        let look = |ms| Look { at: start + Duration::from_millis(ms), replicas: Vec::new() };
        let mut looks = Looks::default();
        let mut before = |ms| looks.before(&look(ms)).map(|look| (look.at - start).as_millis());
        assert_eq!(before(0), None);
        // Too soon to tell.
        assert_eq!(before(100), None);
        assert_eq!(before(1000), Some(0));
        assert_eq!(before(4000), Some(0));
        assert_eq!(before(7000), Some(1000));
        // After a pause: all of it.
        assert_eq!(before(60_000), Some(7000));
        assert_eq!(before(61_000), Some(7000));
        assert_eq!(before(66_000), Some(61_000));
    }

    #[test]
    fn shares_are_of_the_time_in_steps() {
        let ms = Duration::from_millis;
        let before =
            GroupStatus { threads: 4, read: 1000, remote: Some(10), ..GroupStatus::default() };
        let thread = |cpu, steps, busy| ThreadStatus {
            cpu: CpuId(cpu),
            steps,
            busy: ms(busy),
            held: ms(busy / 10),
            weights: 7,
        };
        let before = GroupStatus { each: vec![thread(4, 2, 30), thread(9, 1, 500)], ..before };
        assert_eq!(Group::between(&before, &before), None);
        let now = GroupStatus {
            read: 5000,
            remote: Some(1010),
            busy: ms(600),
            local_waits: ms(150),
            global_waits: ms(50),
            tasks: 10,
            stolen_tasks: 2,
            left_tasks: 5,
            misplaced: Some((3, 9)),
            each: vec![thread(9, 4, 600), thread(4, 5, 50)],
            ..before.clone()
        };
        let expected = Group {
            // 4,000 bytes in the 0.2 seconds in which four threads computed.
            read_bytes_per_second: 20_000.0,
            remote: Some(0.25),
            working: 0.75,
            waiting_node: 0.1875,
            waiting_machine: 0.0625,
            stolen: Some(0.2),
            read_bytes: 4000,
            misplaced: Some((3, 9)),
            threads: Vec::new(),
        };
        let got = Group::between(&before, &now).unwrap();
        assert!((got.read_bytes_per_second - 20_000.0).abs() < 1e-6);
        // Of 0.2 seconds each.
        let working = got.threads.iter().map(|t| (t.cpu.0, (t.working * 1e3).round()));
        assert_eq!(working.collect::<Vec<_>>(), [(9, 500.0), (4, 100.0)]);
        let held = got.threads.iter().map(|t| (t.held * 1e3).round());
        assert_eq!(held.collect::<Vec<_>>(), [50.0, 10.0]);
        // One had no part in one of the steps, or is new: no thread is told apart.
        let mean = |each| {
            let now = GroupStatus { each, ..now.clone() };
            let threads = Group::between(&before, &now).unwrap().threads;
            threads.iter().all(|t| (t.working - 0.75).abs() < 1e-9 && t.held == 0.0)
        };
        assert!(mean(vec![thread(9, 4, 600), thread(4, 4, 50)]));
        assert!(mean(vec![thread(9, 4, 600)]));
        let got = Group { read_bytes_per_second: 20_000.0, threads: Vec::new(), ..got };
        assert!((got.working - 0.75).abs() < 1e-9 && (got.waiting_machine - 0.0625).abs() < 1e-9);
        let got = Group { working: 0.75, waiting_node: 0.1875, waiting_machine: 0.0625, ..got };
        assert_eq!(got, expected);
    }
}
