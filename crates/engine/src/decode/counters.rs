//! What was done, counted.

use std::time::Duration;

/// What has been done since the model was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Steps.
    pub steps: u64,
    /// How long they took.
    pub step_time: Duration,
    /// Time from the end of a step to the start of the next one while requests were running: sampling, drafts of another
    /// model, and the work of a single thread while the others wait. Image encoding is excluded. Always zero for a model
    /// on several hosts, whose steps overlap.
    pub between_time: Duration,
    /// Requests that were served to their end.
    pub served: u64,
    /// Tokens of prompts of begun requests, found in the prefix cache or computed.
    pub prompt_tokens: u64,
    /// Those of them that were found.
    pub cached_tokens: u64,
    /// Those of the found that were read from disk.
    pub restored_tokens: u64,
    /// Tokens of prompts that were computed, again after a preemption too.
    pub computed_tokens: u64,
    /// Tokens of answers.
    pub generated_tokens: u64,
    /// Tokens that were guessed ahead.
    pub drafted_tokens: u64,
    /// Those of them that came true.
    pub accepted_tokens: u64,
    /// How often a request had to give up its pages for others.
    pub preemptions: u64,
    /// Steps that had nothing to compute while requests waited for one: faults of the scheduler, after each of which
    /// the smallest piece that can be computed was.
    pub empty_steps: u64,
}

impl std::ops::AddAssign for Counters {
    fn add_assign(&mut self, more: Counters) {
        self.steps += more.steps;
        self.step_time += more.step_time;
        self.between_time += more.between_time;
        self.served += more.served;
        self.prompt_tokens += more.prompt_tokens;
        self.cached_tokens += more.cached_tokens;
        self.restored_tokens += more.restored_tokens;
        self.computed_tokens += more.computed_tokens;
        self.generated_tokens += more.generated_tokens;
        self.drafted_tokens += more.drafted_tokens;
        self.accepted_tokens += more.accepted_tokens;
        self.preemptions += more.preemptions;
        self.empty_steps += more.empty_steps;
    }
}
