//! When steps go without a core, and when with it again.
//!
//! Every *window* of steps gives two things: how long each thread was not let run, and how fast the steps were. A
//! core whose thread was held up much is left out *on trial*: it stays out when the steps are faster without it. Left
//! out, it is taken back on trial when it has been idle for a while, and from time to time in any case. Trials that
//! fail make the next one wait twice as long, so what they cost goes towards nothing.
//!
//! It reads no clock and no files: all it knows comes with the windows.

use std::collections::BTreeSet;
use std::time::Duration;
use topology::CpuId;

/// From this share of the steps' time on that a thread was not let run, its core is left out on trial. Below, a trial
/// costs more than there is to gain: on the smallest machine, of two cores, half of the speed in its window.
const LOST: f64 = 0.08;
/// Of the CPU that is lost most, so much: cores that lose less are kept at first.
const AS_LOST: f64 = 0.5;
/// Steps must be so many times as fast without a core as with it.
const GAIN: f64 = 1.02;
/// With a core again they may be so much slower: then nothing speaks for leaving it out.
const AS_FAST: f64 = 0.97;
/// From this idle share on, nothing else wants a CPU.
const IDLE: f64 = 0.75;
/// Looks in turn at which it must be so.
const IDLE_LOOKS: u32 = 2;
/// Windows that differ by so much in tokens for each byte that is read are of different work.
const ALIKE: f64 = 0.1;
/// Windows after which a trial ends in any case.
const LONGEST_TRIAL: u32 = 4;
/// After a trial of leaving that failed, and of coming back to a core that is not idle, the next one waits so long at
/// first, and at most.
const WAIT: ([f64; 2], f64) = ([1.0, 5.0], 60.0);

/// What steps did for some time.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    /// When it ended, in seconds.
    pub now: f64,
    /// Seconds of steps.
    pub seconds: f64,
    /// Bytes that were read, by the book, and tokens.
    pub bytes: u64,
    pub tokens: u64,
    /// Seconds for which the threads were not let run, by the CPU that each has.
    pub delayed: Vec<(CpuId, f64)>,
    /// Idle shares of CPUs that are left out, if somebody has looked.
    pub idle: Option<Vec<(CpuId, f64)>>,
}

/// How fast steps were.
#[derive(Clone, Copy, Debug)]
struct Rates {
    bytes: f64,
    tokens: f64,
}

impl Rates {
    fn of(window: &Window) -> Rates {
        let rate = |amount: u64| amount as f64 / window.seconds.max(1e-9);
        Rates { bytes: rate(window.bytes), tokens: rate(window.tokens) }
    }

    /// How many times as fast as others; whether that is of the same work.
    fn over(self, others: Rates) -> (f64, bool) {
        let [bytes, tokens] =
            [self.bytes / others.bytes.max(1e-9), self.tokens / others.tokens.max(1e-9)];
        let alike = (tokens / bytes.max(1e-9) - 1.0).abs() < ALIKE;
        if alike { (bytes, true) } else { ((bytes * tokens).sqrt(), false) }
    }
}

/// A change that is to be judged.
#[derive(Clone, Debug)]
struct Trial {
    before: Rates,
    was: BTreeSet<CpuId>,
    windows: u32,
}

/// See the module.
pub(super) struct Policy {
    groups: Vec<Vec<CpuId>>,
    left: BTreeSet<CpuId>,
    trial: Option<Trial>,
    /// Until when nothing more is left out, and until when nothing is taken back that is not idle.
    no_leaving: f64,
    no_return: f64,
    /// How long the next failure makes that.
    waits: [f64; 2],
    idle: Vec<(CpuId, u32)>, // looks in turn
    /// CPUs that were lost in the window before. One in which a program began says too little of how fast steps are
    /// beside it.
    lost: BTreeSet<CpuId>,
}

impl Policy {
    /// All CPUs of the groups have a part in steps.
    pub(super) fn new(groups: Vec<Vec<CpuId>>) -> Policy {
        Policy {
            groups,
            left: BTreeSet::new(),
            trial: None,
            no_leaving: 0.0,
            no_return: 0.0,
            waits: WAIT.0,
            lost: BTreeSet::new(),
            idle: Vec::new(),
        }
    }

    /// The CPUs that are left out.
    pub(super) fn left(&self) -> &BTreeSet<CpuId> {
        &self.left
    }

    /// Whether the cores that are left out are so on trial.
    pub(super) fn on_trial(&self) -> bool {
        self.trial.is_some()
    }

    /// Judges a window; whether other CPUs are left out from here on.
    pub(super) fn judge(&mut self, window: &Window) -> bool {
        let rates = Rates::of(window);
        if let Some(looks) = &window.idle {
            self.see_idle(looks);
        }
        if let Some(trial) = self.trial.take() {
            return self.judge_trial(trial, rates, window.now);
        }
        let now = self.lost(window);
        let lost: BTreeSet<CpuId> = now.intersection(&self.lost).copied().collect();
        self.lost = now;
        if !lost.is_empty() && window.now >= self.no_leaving {
            let left = self.left.union(&lost).copied().collect();
            return self.begin(left, rates);
        }
        if self.left.is_empty() {
            return false;
        }
        let idle = self.idle.iter().filter(|(_, looks)| *looks >= IDLE_LOOKS);
        let idle: BTreeSet<CpuId> = idle.map(|(cpu, _)| *cpu).collect();
        if window.now >= self.no_return {
            return self.begin(BTreeSet::new(), rates);
        }
        let left: BTreeSet<CpuId> = self.left.difference(&idle).copied().collect();
        left.len() < self.left.len() && self.begin(left, rates)
    }

    fn begin(&mut self, left: BTreeSet<CpuId>, before: Rates) -> bool {
        let was = std::mem::replace(&mut self.left, left);
        self.trial = Some(Trial { before, was, windows: 0 });
        self.idle.clear();
        self.lost.clear();
        true
    }

    fn judge_trial(&mut self, mut trial: Trial, rates: Rates, now: f64) -> bool {
        trial.windows += 1;
        let (times, alike) = rates.over(trial.before);
        if !alike && trial.windows < LONGEST_TRIAL {
            self.trial = Some(trial);
            return false;
        }
        let leaving = self.left.len() > trial.was.len();
        let (kept, which) = if leaving { (times >= GAIN, 0) } else { (times >= AS_FAST, 1) };
        let wait = self.waits[which];
        if kept {
            self.waits[which] = WAIT.0[which];
            if leaving {
                self.no_return = now + self.waits[1];
            }
            return false;
        }
        self.waits[which] = (2.0 * wait).min(WAIT.1);
        if leaving {
            self.no_leaving = now + wait;
        } else {
            self.no_return = now + wait;
        }
        self.left = trial.was;
        true
    }

    /// CPUs whose threads were held up much, as many as may be left out.
    fn lost(&self, window: &Window) -> BTreeSet<CpuId> {
        let share = |delayed: f64| delayed / window.seconds.max(1e-9);
        let mut lost: Vec<(f64, CpuId)> =
            window.delayed.iter().map(|(cpu, delayed)| (share(*delayed), *cpu)).collect();
        lost.sort_by(|a, b| b.0.total_cmp(&a.0));
        let worst = lost.first().map_or(0.0, |(share, _)| *share);
        lost.retain(|(share, _)| *share >= LOST.max(AS_LOST * worst));
        let all: usize = self.groups.iter().map(Vec::len).sum();
        let mut room = (all / 2).saturating_sub(self.left.len());
        let mut chosen = BTreeSet::new();
        for (_, cpu) in lost {
            let group = self.groups.iter().find(|group| group.contains(&cpu));
            let stays = |other: &&CpuId| !self.left.contains(other) && !chosen.contains(*other);
            let others = group.map_or(0, |group| group.iter().filter(stays).count());
            if room > 0 && others > 1 && !self.left.contains(&cpu) {
                chosen.insert(cpu);
                room -= 1;
            }
        }
        chosen
    }

    fn see_idle(&mut self, looks: &[(CpuId, f64)]) {
        let before = std::mem::take(&mut self.idle);
        let in_turn = |cpu| before.iter().find(|(c, _)| *c == cpu).map_or(0, |(_, looks)| *looks);
        let looks = looks.iter().filter(|(cpu, share)| *share >= IDLE && self.left.contains(cpu));
        self.idle = looks.map(|(cpu, _)| (*cpu, in_turn(*cpu) + 1)).collect();
    }
}

/// The least time of steps of a window: the scheduler's turns are some milliseconds.
pub(super) const WINDOW: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine on which steps take as long as the slowest thread that takes part.
    struct Simulated {
        policy: Policy,
        now: f64,
        /// What others take of each CPU.
        taken: Vec<f64>,
        /// How much of a step all threads share.
        scales: f64,
    }

    impl Simulated {
        fn new(groups: &[std::ops::Range<u32>], scales: f64) -> Simulated {
            let groups: Vec<Vec<CpuId>> =
                groups.iter().map(|g| g.clone().map(CpuId).collect()).collect();
            let cpus = groups.iter().map(Vec::len).sum();
            Simulated { policy: Policy::new(groups), now: 0.0, taken: vec![0.0; cpus], scales }
        }

        /// A group of two cores.
        fn two(scales: f64) -> Simulated {
            Simulated::new(std::slice::from_ref(&(0..2)), scales)
        }

        /// Steps a second.
        fn speed(&self) -> f64 {
            let all = self.taken.len() as f64;
            let takes = |cpu: &usize| !self.policy.left().contains(&CpuId(*cpu as u32));
            let part: Vec<f64> =
                (0..self.taken.len()).filter(takes).map(|c| self.taken[c]).collect();
            let slowest = part.iter().fold(0.0, |a: f64, b| a.max(*b));
            100.0 * (1.0 - slowest) * (part.len() as f64 / all).powf(self.scales)
        }

        /// Whether anything changes.
        fn window(&mut self, tokens: u64) -> bool {
            let seconds = 0.05;
            self.now += seconds;
            let work = (self.speed() * seconds * 1e6) as u64;
            let ids = (0..self.taken.len()).map(|cpu| CpuId(cpu as u32));
            let part = ids.clone().filter(|cpu| !self.policy.left().contains(cpu));
            let window = Window {
                now: self.now,
                seconds,
                bytes: work,
                tokens: work * tokens,
                delayed: part.map(|c| (c, self.taken[c.0 as usize] * seconds)).collect(),
                idle: Some(ids.map(|c| (c, 1.0 - self.taken[c.0 as usize])).collect()),
            };
            self.policy.judge(&window)
        }

        fn windows(&mut self, count: usize) -> usize {
            (0..count).filter(|_| self.window(1)).count()
        }

        fn left(&self) -> Vec<u32> {
            self.policy.left().iter().map(|cpu| cpu.0).collect()
        }
    }

    #[test]
    fn a_busy_core_is_left_out_and_comes_back() {
        let mut two = Simulated::two(0.6);
        assert_eq!(two.windows(100), 0);
        two.taken[0] = 0.5;
        // Two windows show it, so at most 150 ms pass.
        assert_eq!((two.windows(1), two.left()), (0, vec![]));
        assert_eq!((two.windows(1), two.left()), (1, vec![0]));
        assert_eq!((two.windows(20), two.left()), (0, vec![0]));
        two.taken[0] = 0.0;
        let changes = two.windows(4);
        assert_eq!((changes, two.left()), (1, vec![]));
        assert_eq!(two.windows(100), 0);
    }

    #[test]
    fn trials_of_a_core_that_stays_busy_cost_little() {
        let mut two = Simulated::two(0.6);
        two.taken[1] = 0.5;
        two.windows(3);
        // Ten minutes: it is tried after 5, 10, 20, 40 and 60 seconds, and then each minute.
        let away = (0..12_000).filter(|_| {
            two.window(1);
            two.left().is_empty()
        });
        let away = away.count();
        assert!((10..25).contains(&away), "{away} windows of 12,000");
        assert_eq!(two.left(), [1]);
    }

    #[test]
    fn what_does_not_pay_is_undone() {
        // A tenth is lost of one of two cores, and one alone makes half of what two do.
        let mut two = Simulated::two(1.0);
        two.taken[1] = 0.1;
        let without = (0..12_000).filter(|_| {
            two.window(1);
            !two.left().is_empty()
        });
        let without = without.count();
        assert!((5..25).contains(&without), "{without} windows of 12,000");
        assert!(two.left().is_empty());
    }

    #[test]
    fn every_group_keeps_a_thread_and_half_of_the_machine_stays() {
        let mut four = Simulated::new(&[0..1, 1..8], 0.2);
        four.taken = vec![0.6; 8];
        four.taken[7] = 0.0;
        four.windows(2);
        let left = four.left();
        assert!(left.len() == 4 && !left.contains(&0) && !left.contains(&7), "{left:?}");
    }

    #[test]
    fn many_cores_at_once() {
        let mut many = Simulated::new(&[0..32, 32..64], 0.7);
        for cpu in [3, 40, 41] {
            many.taken[cpu] = 0.5;
        }
        many.windows(3);
        assert_eq!(many.left(), [3, 40, 41]);
        // One is free again; the others stay out.
        many.taken[40] = 0.0;
        many.windows(5);
        assert_eq!(many.left(), [3, 41]);
        // One more is lost.
        many.taken[0] = 0.5;
        many.windows(3);
        assert_eq!(many.left(), [0, 3, 41]);
    }

    #[test]
    fn other_work_is_no_measure() {
        let mut two = Simulated::two(0.6);
        two.taken[1] = 0.5;
        two.windows(2);
        // A prompt instead of an answer: many tokens for a byte. The trial goes on.
        two.window(100);
        assert!(two.policy.on_trial());
        two.windows(1);
        assert!(!two.policy.on_trial());
        assert_eq!(two.left(), [1]);
    }
}
