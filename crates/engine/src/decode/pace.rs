//! How much of a prompt a step takes.
//!
//! A step has a token of every running answer; what it takes of prompts besides makes those answers
//! wait (chunked prefill: Sarathi-Serve, §4). So a step may last as long as was asked for. If nothing
//! was, prompts get time by how many wait for theirs beside how many go on with an answer: one long
//! prompt slows answers by [`STRETCH`], many prompts hold up few answers for longer. That is fair, and
//! it pays: a step of few answers costs nearly what one of many costs, so answers that run alone while
//! others wait for their first token waste the machine. How long steps last is learnt from the steps
//! themselves, and time is accounted for: far into a long prompt even the least part of it may take
//! longer than it should, as its keys and values are read for it, and then the next steps have none
//! until answers have caught up. The same holds for what cannot be cut, such as the rows of an image that
//! attend to each other: it is computed whole, however long that takes, and paid for afterwards. While no answer
//! waits for a next token, a step is long enough to be efficient, and short enough for requests that come meanwhile.

use std::time::Duration;

/// The time that one prompt gets, over that of steps without: those who measure ask for twice that at
/// most, in 99 answers of 100.
const STRETCH: f64 = 0.75;

/// The time that each further prompt gets, the same over the number of answers. For 16 streams of 128
/// and 64 tokens (Qwen3-0.6B on 2 cores; `arclight bench-serve URL --concurrency 16 -n 48 --input-len 128
/// --output-len 64`) medians of times to first tokens and per token were 4.3 s and 36 ms with 0.8, 3.0 to
/// 3.6 s and 41 to 48 ms with 2, 2.8 to 3.3 s and 48 to 49 ms with 3, 2.6 to 2.9 s and 48 to 55 ms with 4.
const EACH: f64 = 3.0;

/// Tokens of the longest prompt that weighs as much as any.
const SHORT: f64 = 512.0;

/// How long a step of prompts alone may last, in seconds.
const ALONE: f64 = 0.25;

/// The most that prompts may owe, in seconds, unless what they had was to take longer: a step that something
/// else held up is not held against them for longer.
const DEBT: f64 = 1.0;

/// Steps that prompts wait at most, whatever they owe: where answers take little time, paying takes many steps.
pub(super) const LONGEST: u32 = 1024;

/// The least that is taken of prompts: fewer tokens than this cost as much.
const LEAST: usize = 8;

/// Tokens from which a step of prompts alone tells what one costs.
const TELLING: usize = 32;

/// The weight of what was measured last, if it is less than what was known, and if it is more: steps
/// are disturbed more often than they are too fast.
const NEWEST: [f64; 2] = [0.4, 0.1];

/// What is known of the time of steps.
#[derive(Debug)]
pub(crate) struct Pace {
    asked: Option<f64>,        // seconds
    answers: Vec<Option<f64>>, // [rows of running answers]: seconds of a step with nothing else
    alone: Option<f64>,        // seconds for a token of a prompt, alone
    beside: f64,               // how many times that beside answers
    credit: f64,               // seconds that prompts may take now; negative if they took more
    waited: u32,               // steps without prompts since
    /// In tests, replaces the clock: seconds of a step by its rows of answers and tokens of prompts.
    #[cfg(test)]
    pub(super) times: Option<fn(usize, usize) -> f64>,
}

impl Pace {
    /// For steps with at most `rows` rows of running answers, of at most `longest` if that is asked for.
    pub(crate) fn new(rows: usize, longest: Option<Duration>) -> Pace {
        let asked = longest.map(|d| d.as_secs_f64());
        Pace {
            asked,
            answers: vec![None; rows + 1],
            alone: None,
            beside: 1.0,
            credit: 0.0,
            waited: 0,
            #[cfg(test)]
            times: None,
        }
    }

    /// Seconds of a step with `rows` rows of running answers and nothing else, as far as is known.
    fn base(&self, rows: usize) -> Option<f64> {
        let known = |rows: &usize| self.answers.get(*rows).copied().flatten();
        // More rows do not take less time, and not much more.
        (1..=rows).rev().chain(rows + 1..self.answers.len()).find_map(|rows| known(&rows))
    }

    /// Tokens that prompts get together beside `rows` rows of `answers` running answers, at most `most`; none while
    /// they owe time. `waiting` is what the prompts weigh together, each by [`weight`](Pace::weight).
    pub(crate) fn prompt_tokens(
        &mut self,
        rows: usize,
        answers: usize,
        waiting: f64,
        most: usize,
    ) -> usize {
        if rows == 0 {
            (self.credit, self.waited) = (0.0, 0);
            let tokens = self.alone.map(|token| self.asked.unwrap_or(ALONE) / token.max(1e-9));
            return tokens.map_or(TELLING, |tokens| (tokens as usize).max(LEAST)).min(most);
        }
        let Some(base) = self.base(rows) else {
            // Something to learn from.
            return most.min(TELLING);
        };
        let token = self.alone.map(|alone| (alone * self.beside).max(1e-9));
        let time = match self.asked {
            // The least part is taken even if steps without it last longer than that.
            Some(asked) => {
                (asked - base).max(token.map_or(STRETCH * base, |token| token * LEAST as f64))
            }
            None => {
                let more = (waiting - 1.0).max(0.0) / answers.max(1) as f64;
                ((STRETCH + EACH * more) * base).min(ALONE)
            }
        };
        // What was not used is gone.
        self.credit = (self.credit + time).min(time);
        if self.credit <= 0.0 && self.waited < LONGEST {
            self.waited += 1;
            return 0;
        }
        self.waited = 0;
        let tokens = token.map_or(TELLING, |token| (self.credit.max(0.0) / token) as usize);
        tokens.max(LEAST).min(most)
    }

    /// What a prompt weighs with `pending` tokens to compute: one, or less if it is long. Who sends a long
    /// one waits in any case, and answers are not to be slower by several such.
    pub(crate) fn weight(pending: usize) -> f64 {
        (SHORT / pending.max(1) as f64).min(1.0)
    }

    /// A step with `rows` rows of running answers and `prompt` tokens of prompts took `seconds`. `left_out`: some
    /// answers had to wait for it.
    pub(crate) fn observe(&mut self, rows: usize, prompt: usize, seconds: f64, left_out: bool) {
        #[cfg(test)]
        let seconds = self.times.map_or(seconds, |times| times(rows, prompt));
        if prompt == 0 {
            let known = self.answers.get_mut(rows);
            known.into_iter().for_each(|known| learn(known, seconds));
            return;
        }
        let base = if rows == 0 { Some(0.0) } else { self.base(rows) };
        let Some(base) = base else { return };
        let took = (seconds - base).max(0.0);
        let expected = self.alone.map_or(0.0, |alone| prompt as f64 * alone * self.beside);
        match (rows, self.alone) {
            (0, _) | (_, None) if prompt >= TELLING => {
                learn(&mut self.alone, took / prompt as f64);
            }
            (1.., Some(alone)) if prompt >= LEAST => {
                // Noise must not make it nothing, or everything.
                let beside = (took / prompt as f64 / alone).clamp(0.5, 2.0);
                self.beside += NEWEST[1] * (beside - self.beside);
            }
            _ => {}
        }
        if rows > 0 || left_out {
            self.owe(took, expected);
        }
    }

    /// Prompts took `seconds` outside of steps.
    pub(crate) fn charge(&mut self, seconds: f64) {
        #[cfg(test)]
        let seconds = self.times.map_or(seconds, |_| 0.0);
        self.owe(seconds, 0.0);
    }

    fn owe(&mut self, seconds: f64, expected: f64) {
        self.credit = (self.credit - seconds).max(-expected.max(DEBT)).min(self.credit);
    }
}

fn learn(known: &mut Option<f64>, seen: f64) {
    *known = Some(
        known.map_or(seen, |known| known + NEWEST[usize::from(seen > known)] * (seen - known)),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets `pace` see steps that take 10 ms, 0.1 ms more for each answer and 1 ms for each token of
    /// a prompt.
    fn taught(mut pace: Pace) -> Pace {
        let seconds = |rows: usize, prompt: usize| {
            let base = if rows == 0 { 0.0 } else { 0.01 + rows as f64 * 1e-4 };
            base + prompt as f64 * 1e-3
        };
        pace.observe(0, 100, seconds(0, 100), false);
        for rows in [1, 4] {
            pace.observe(rows, 0, seconds(rows, 0), false);
            for _ in 0..20 {
                let prompt = pace.prompt_tokens(rows, rows, 1.0, 512);
                pace.observe(rows, prompt, seconds(rows, prompt), false);
            }
        }
        pace
    }

    #[test]
    fn prompts_stretch_steps_as_far_as_they_may() {
        let mut pace = taught(Pace::new(16, None));
        let tokens = |pace: &mut Pace, answers, waiting| {
            pace.credit = 0.0;
            pace.prompt_tokens(answers, answers, waiting, 512)
        };
        // 0.75 of 10.4 ms are seven tokens, but eight cost no more.
        assert_eq!(tokens(&mut pace, 4, 1.0), LEAST);
        // Ten prompts beside nine answers get 3.75 times the time of a step, 10.4 ms as far as is known.
        assert_eq!(tokens(&mut pace, 9, 10.0), 39);
        // Ten long ones weigh little more than one.
        assert_eq!(tokens(&mut pace, 9, 10.0 * Pace::weight(5120)), LEAST);
        // Beside one they would get 28 times as much.
        assert_eq!(tokens(&mut pace, 1, 10.0), 250);
        let mut asked = taught(Pace::new(16, Some(Duration::from_millis(60))));
        // 49 tokens fit into what 10.4 ms leave of 60.
        assert_eq!(asked.prompt_tokens(4, 4, 1.0, 512), 49);
        assert_eq!(asked.prompt_tokens(16, 16, 1.0, 512), 49);
        assert_eq!(asked.prompt_tokens(4, 4, 1.0, 30), 30);
        // Nobody waits: a quarter of a second, or what was asked for.
        assert_eq!(pace.prompt_tokens(0, 0, 1.0, 512), 250);
        assert_eq!(asked.prompt_tokens(0, 0, 1.0, 512), 60);
    }

    #[test]
    fn what_takes_longer_is_taken_less_often() {
        let mut pace = taught(Pace::new(4, None));
        let base = 0.0104;
        let (mut all, mut parts) = (0.0, 0);
        for _ in 0..1000 {
            let prompt = pace.prompt_tokens(4, 4, 1.0, 512);
            // Deep in the prompt a token takes eight times as long.
            let seconds = base + prompt as f64 * 8e-3;
            pace.observe(4, prompt, seconds, false);
            all += seconds;
            parts += usize::from(prompt > 0);
        }
        let stretch = all / 1000.0 / base;
        assert!((stretch - 1.0 - STRETCH).abs() < 0.02, "{stretch}");
        // A part of eight tokens takes 64 ms, for which eight steps save.
        assert!((110..140).contains(&parts), "{parts}");
    }

    #[test]
    fn prompts_do_not_wait_long_for_a_step_that_was_held_up() {
        let mut pace = taught(Pace::new(4, None));
        // The machine slept for an hour.
        pace.observe(4, LEAST, 3600.0, false);
        let waited = (0..10_000).take_while(|_| pace.prompt_tokens(4, 4, 1.0, 512) == 0).count();
        // A second, in steps that give 7.8 ms each.
        assert!((100..140).contains(&waited), "{waited}");
    }

    #[test]
    fn the_least_parts_are_paid_for_too() {
        let mut pace = taught(Pace::new(4, None));
        pace.credit = 0.0;
        assert!(pace.prompt_tokens(4, 4, 1.0, 3) > 0);
        pace.observe(4, 3, 0.1104, false);
        assert_eq!(pace.prompt_tokens(4, 4, 1.0, 3), 0);
    }

    #[test]
    fn what_is_unknown_is_tried_carefully() {
        let mut pace = Pace::new(4, None);
        assert_eq!(pace.prompt_tokens(0, 0, 1.0, 512), TELLING);
        pace.observe(0, 32, 0.032, false);
        assert_eq!(pace.prompt_tokens(3, 3, 1.0, 512), TELLING);
        assert!(pace.prompt_tokens(0, 0, 1.0, 512) > 200);
    }

    #[test]
    fn a_disturbed_step_changes_little() {
        let mut pace = taught(Pace::new(4, None));
        pace.credit = 0.0;
        let before = pace.prompt_tokens(4, 4, 8.0, 512);
        pace.observe(4, 0, 0.05, false);
        pace.observe(4, 16, 0.2, false);
        pace.observe(4, 16, 0.001, false);
        pace.credit = 0.0;
        let after = pace.prompt_tokens(4, 4, 8.0, 512);
        assert!(after < 2 * before && before < 2 * after, "{before}, then {after}");
    }

    /// Steps without prompts that follow.
    fn waits(pace: &mut Pace) -> usize {
        (0..10_000).take_while(|_| pace.prompt_tokens(4, 4, 1.0, 512) == 0).count()
    }

    #[test]
    fn a_piece_that_is_larger_than_allowed_is_paid_for() {
        let asked = Some(Duration::from_millis(60));
        // Two seconds, of which a step gives 7.8 ms, or 49.6.
        for (longest, want) in [(None, 240..270), (asked, 38..43)] {
            let mut pace = taught(Pace::new(4, longest));
            pace.credit = 0.0;
            pace.observe(4, 2000, 2.0104, false);
            let waited = waits(&mut pace);
            assert!(want.contains(&waited), "{waited}");
            // Answers that were left out of it are owed as much.
            pace.observe(0, 2000, 2.0, true);
            let waited = waits(&mut pace);
            assert!(want.contains(&waited), "{waited}");
            pace.observe(0, 2000, 2.0, false);
            assert_eq!(waits(&mut pace), 0);
        }
    }

    #[test]
    fn the_time_of_prompts_is_learnt_next_to_answers_if_need_be() {
        let mut pace = Pace::new(4, None);
        pace.observe(4, 0, 0.01, false);
        assert_eq!(pace.prompt_tokens(4, 4, 1.0, 512), TELLING);
        pace.observe(4, 100, 0.11, false);
        assert_eq!(pace.alone, Some(0.001));
        assert!(waits(&mut pace) > 10, "it is paid for");
    }

    #[test]
    fn prompts_wait_a_bounded_number_of_steps_even_if_these_take_no_time() {
        let mut pace = Pace::new(4, None);
        pace.observe(4, 0, 0.0, false);
        pace.observe(4, 100, 1.0, false);
        assert_eq!(waits(&mut pace), LONGEST as usize);
        pace.charge(1.0);
        assert_eq!(waits(&mut pace), LONGEST as usize);
        // What is owed does not become less by a small debt.
        pace.observe(4, 10_000, 100.0, false);
        let owed = pace.credit;
        pace.charge(0.001);
        assert!(pace.credit <= owed && owed < -90.0, "{owed}");
    }
}
