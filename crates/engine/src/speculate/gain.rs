//! Whether guessing pays: tokens a second with guesses and without, as measured.
//!
//! What a guess costs depends on how many texts are answered at once, so each number of texts, up to the next
//! power of two, has rates of its own. While guesses pay, a step without one is taken now and then; while
//! they do not, a few steps with.

use std::time::Duration;

/// Texts that are told apart: 1, 2, up to 4, up to 8, more.
const SIZES: usize = 5;

/// The part of what is known that each new step replaces.
const NEW: f64 = 1.0 / 16.0;

/// Steps before a rate counts. The first of them, which finds cold caches and memory that was never touched, is
/// left out.
const TRIED: u32 = 5;

/// Steps with guesses, between which one without is taken.
const PLAIN_EVERY: u32 = 64;

/// Steps without guesses, between which some with them are tried; twice as many after each trial that lost, up
/// to the most.
const TRY_EVERY: u32 = 16;
const TRY_AT_MOST: u32 = 2048;

/// What a guessed token costs before it is measured, as a part of a step without guesses.
pub(super) const COST: f64 = 0.05;

/// By how much guesses have to be ahead, or behind, for a change.
const MARGIN: f64 = 0.02;

/// Rates with and without guesses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gain {
    sizes: [Rates; SIZES],
}

#[derive(Clone, Copy, Debug, Default)]
struct Rates {
    plain: Rate,
    guessing: Rate,
    /// Seconds that each guessed token has added to a step.
    token: f64,
    /// Whether guesses have lost, and steps since that was last tried.
    lost: bool,
    since: u32,
    wait: u32,
}

/// Tokens a second; what is old counts less.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    tokens: f64,
    seconds: f64,
    steps: u32,
}

impl Rate {
    fn add(&mut self, tokens: usize, time: Duration) {
        let new = if self.steps < 2 { 1.0 } else { NEW.max(1.0 / f64::from(self.steps)) };
        self.tokens += (tokens as f64 - self.tokens) * new;
        self.seconds += (time.as_secs_f64() - self.seconds) * new;
        self.steps += 1;
    }

    fn per_second(&self) -> Option<f64> {
        (self.steps >= TRIED && self.seconds > 0.0).then(|| self.tokens / self.seconds)
    }
}

impl Gain {
    fn rates(&mut self, texts: usize) -> &mut Rates {
        let size = texts.next_power_of_two().ilog2() as usize;
        &mut self.sizes[size.min(SIZES - 1)]
    }

    /// Whether the next step of `texts` texts is to have guesses.
    pub(super) fn wants(&mut self, texts: usize) -> bool {
        self.rates(texts).wants()
    }

    /// What a guessed token takes, as a part of a step of `texts` texts without guesses.
    pub(super) fn cost(&mut self, texts: usize) -> f64 {
        let Rates { plain, guessing, token, .. } = self.rates(texts);
        match plain.steps.min(guessing.steps) {
            0 => COST,
            _ => (*token / plain.seconds).clamp(0.0, 2.0),
        }
    }

    /// A step of `texts` texts with so many guessed tokens gave so many.
    pub(super) fn observe(&mut self, texts: usize, guessed: usize, tokens: usize, time: Duration) {
        self.rates(texts).observe(guessed, tokens, time);
    }
}

impl Rates {
    fn wants(&self) -> bool {
        match (self.guessing.per_second(), self.plain.per_second()) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(_), Some(_)) if self.lost => self.since >= self.wait,
            (Some(_), Some(_)) => self.since < PLAIN_EVERY,
        }
    }

    fn observe(&mut self, guesses: usize, tokens: usize, time: Duration) {
        let guessed = guesses > 0;
        if guessed && self.plain.steps > 0 && self.guessing.steps > 0 {
            let more = (time.as_secs_f64() - self.plain.seconds) / guesses as f64;
            self.token += (more - self.token) * if self.token == 0.0 { 1.0 } else { NEW };
        }
        let rate = if guessed { &mut self.guessing } else { &mut self.plain };
        rate.add(tokens, time);
        let (Some(guessing), Some(plain)) = (self.guessing.per_second(), self.plain.per_second())
        else {
            return;
        };
        match (self.lost, guessed) {
            (false, _) if guessing < plain * (1.0 - MARGIN) => {
                (self.lost, self.since, self.wait) = (true, 0, self.wait.max(TRY_EVERY));
            }
            (false, true) => self.since += 1,
            // Whatever the reason for it was.
            (false, false) => self.since = 0,
            (true, false) => self.since += 1,
            // A trial: it is over when it is known what it gives.
            (true, true) if self.since >= self.wait => {
                if self.since == self.wait {
                    self.guessing = Rate::default();
                    self.guessing.add(tokens, time);
                }
                self.since += 1;
            }
            (true, true) => {}
        }
        if self.lost && self.since >= self.wait + TRIED {
            let won = self.guessing.per_second().is_some_and(|now| now > plain * (1.0 + MARGIN));
            self.since = 0;
            (self.lost, self.wait) = match won {
                true => (false, 0),
                false => (true, (self.wait * 2).min(TRY_AT_MOST)),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps of which each with guesses takes `cost` times as long as one without and gives `tokens`; how many of
    /// `steps` had guesses.
    fn guessed(gain: &mut Gain, steps: usize, cost: f64, tokens: usize) -> usize {
        let mut of = 0;
        for _ in 0..steps {
            let guess = gain.wants(1);
            of += usize::from(guess);
            let (tokens, time) = if guess { (tokens, cost) } else { (1, 1.0) };
            gain.observe(1, usize::from(guess), tokens, Duration::from_secs_f64(time / 100.0));
        }
        of
    }

    #[test]
    fn guesses_stop_where_they_lose_and_come_back_where_they_pay() {
        let mut gain = Gain::default();
        assert!(guessed(&mut gain, 1000, 1.5, 2) > 970, "they pay");
        // What they gave before counts for some steps.
        guessed(&mut gain, 40, 2.5, 2);
        let lost = guessed(&mut gain, 4000, 2.5, 2);
        assert!(lost < 60, "{lost} of 4000 steps, more than 1.5 %");
        guessed(&mut gain, 2100, 1.2, 2);
        assert!(guessed(&mut gain, 1000, 1.2, 2) > 970, "they pay again");
    }

    #[test]
    fn what_a_token_costs_is_measured() {
        let mut gain = Gain::default();
        assert_eq!(gain.cost(1), COST);
        for at in 0..100 {
            let guesses = at % 4;
            let time = Duration::from_secs_f64((1.0 + 0.2 * guesses as f64) / 100.0);
            gain.observe(1, guesses, 1, time);
        }
        assert!((gain.cost(1) - 0.2).abs() < 0.02, "{}", gain.cost(1));
        assert_eq!(gain.cost(16), COST);
    }

    #[test]
    fn each_number_of_texts_has_rates_of_its_own() {
        let mut gain = Gain::default();
        for _ in 0..100 {
            for (texts, cost) in [(1, 1.2), (16, 4.0)] {
                let guess = gain.wants(texts);
                let (tokens, time) = if guess { (2 * texts, cost) } else { (texts, 1.0) };
                let time = Duration::from_secs_f64(time / 100.0);
                gain.observe(texts, usize::from(guess), tokens, time);
            }
        }
        assert!(gain.wants(1) && !gain.wants(16));
        assert!(!gain.wants(12), "as many as 16");
    }

    #[test]
    fn texts_for_which_there_is_no_guess_are_steps_without() {
        let mut gain = Gain::default();
        for _ in 0..50 {
            assert!(gain.wants(1), "nothing is known of guesses");
            gain.observe(1, 0, 1, Duration::from_millis(10));
        }
    }
}
