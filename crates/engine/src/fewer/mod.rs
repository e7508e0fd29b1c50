//! Fewer threads for steps of few tokens, found while they are taken.
//!
//! Reading the weights for a token fills a memory's bandwidth with fewer cores than multiplying a prompt needs; how
//! many depends on machine and model. So a model that is loaded with no word about threads tries it on the steps that
//! it takes anyway ([`policy`]): nothing is measured at the start, and all threads give the same bits.
//!
//! Between trials nothing is done but to count steps. For a trial the plan gets the levels that are compared
//! ([`Executor::set_phases`], some milliseconds) and each step is told its own. It waits while cores are left out
//! because other programs are busy on them, while steps are recorded, and ends for good where somebody else arranges
//! the threads (`tune` in idle time).

mod policy;

use graph::{Executor, Phase};
use policy::{Policy, Row, Step};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Threads that steps of few tokens were found to want.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FewThreads {
    /// Threads of each group, in all.
    pub of: Vec<usize>,
    /// Steps of up to so many tokens, ascending, and the threads of each group that take them: all, where fewer were
    /// found to be slower.
    pub phases: Vec<Phase>,
}

/// Who is told what was found. It is called between two steps.
#[derive(Clone)]
pub struct TellFew(Arc<dyn Fn(&FewThreads) + Send + Sync>);

impl TellFew {
    /// Tells this.
    pub fn new(tell: impl Fn(&FewThreads) + Send + Sync + 'static) -> TellFew {
        TellFew(Arc::new(tell))
    }
}

impl fmt::Debug for TellFew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TellFew")
    }
}

impl PartialEq for TellFew {
    fn eq(&self, other: &TellFew) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for TellFew {}

/// Tries fewer threads on an engine's steps.
pub(crate) struct Trials {
    policy: Policy,
    /// Threads of each group.
    of: Vec<usize>,
    tell: TellFew,
    /// The phases that it has set, or found when the model was loaded.
    own: Vec<Phase>,
    /// What was told last.
    told: Vec<Phase>,
    /// Other levels are wanted before the next step.
    changed: bool,
    /// Bytes by the book before the step under way, if it is one to be judged.
    before: Option<u64>,
    over: bool,
}

impl Trials {
    /// For an engine that is loaded; `None` if there is nothing to choose.
    pub(crate) fn new(executor: &Executor, tell: TellFew) -> Option<Trials> {
        let plan = executor.plan();
        let of: Vec<usize> = plan.groups.iter().map(|group| group.cpus.len()).collect();
        let all = of.iter().copied().max().filter(|&all| all > 1)?;
        let largest = of.iter().position(|&threads| threads == all)?;
        let row = |phase: &Phase| Row {
            tokens: phase.tokens,
            threads: phase.threads[largest],
            sure: false,
        };
        let known = plan.phases.iter().map(row).collect();
        let (own, told) = (plan.phases.clone(), plan.phases.clone());
        let policy = Policy::new(all, known);
        Some(Trials { policy, of, tell, own, told, changed: false, before: None, over: false })
    }

    /// Before a step: has it taken by the threads whose turn it is. `alone`: no core is left out because of others,
    /// nor is about to be.
    pub(crate) fn settle(&mut self, executor: &mut Executor, tokens: usize, alone: bool) {
        self.before = None;
        if self.over {
            return;
        }
        if !alone {
            if self.policy.is_searching() {
                self.policy.give_up();
                self.arrange(executor);
            }
            return;
        }
        if executor.plan().phases != self.own {
            self.over = true;
            return;
        }
        if !executor.can_leave_out() {
            return;
        }
        if std::mem::take(&mut self.changed) {
            self.arrange(executor);
        }
        if self.over {
            return;
        }
        // Bytes count where runs are compared; otherwise steps do.
        self.before = Some(0);
        if self.policy.is_searching() {
            self.before = Some(bytes(executor));
            let threads = self.threads(self.policy.threads(tokens));
            let level = executor.plan().levels().iter().position(|level| *level == threads);
            executor.force_level(level);
        }
    }

    /// After a step; it took so long, unless it failed.
    pub(crate) fn observe(
        &mut self,
        executor: &mut Executor,
        tokens: usize,
        took: Option<Duration>,
    ) {
        let Some(before) = self.before.take() else { return };
        let mut read = 0;
        if self.policy.is_searching() {
            executor.force_level(None);
            read = bytes(executor).saturating_sub(before);
        }
        let Some(took) = took else { return };
        self.changed =
            self.policy.observe(Step { tokens, bytes: read, seconds: took.as_secs_f64() });
        if self.changed && !self.policy.is_searching() {
            let phases = self.phases();
            if self.told != phases {
                self.told.clone_from(&phases);
                (self.tell.0)(&FewThreads { of: self.of.clone(), phases });
            }
        }
    }

    /// What was found until now, for all steps.
    fn phases(&self) -> Vec<Phase> {
        let rows = self.policy.rows().iter();
        rows.map(|row| Phase { tokens: row.tokens, threads: self.threads(row.threads) }).collect()
    }

    /// Gives the plan the levels that are wanted now.
    fn arrange(&mut self, executor: &mut Executor) {
        self.changed = false;
        let phases = match self.policy.is_searching() {
            false => self.phases(),
            // They are there to name levels: every step is told its own.
            true => {
                let levels = self.policy.levels().into_iter().zip(1..);
                levels.map(|(n, tokens)| Phase { tokens, threads: self.threads(n) }).collect()
            }
        };
        if phases == executor.plan().phases {
            return;
        }
        match executor.set_phases(phases.clone()) {
            Ok(()) => self.own = phases,
            Err(error) => {
                tracing::warn!("all threads take all steps: {error}");
                self.policy.give_up();
                self.over = true;
            }
        }
    }

    /// Threads of each group, where the largest has `n`.
    fn threads(&self, n: usize) -> Vec<usize> {
        let all = self.of.iter().copied().max().unwrap_or(1);
        self.of.iter().map(|own| (own * n).div_ceil(all)).collect()
    }
}

/// Bytes that steps have read, by the book.
fn bytes(executor: &Executor) -> u64 {
    executor.counts().places.iter().map(|place| place.weights + place.kv).sum()
}
