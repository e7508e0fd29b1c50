//! Which steps are tried on fewer threads, and what is concluded.
//!
//! Steps of few tokens read all weights for little work: where fewer threads than all fill the memory's bandwidth, the
//! others only wait. A *class* are steps of up to 1, 2, 4, 8 or 16 tokens. For a class fewer threads and the best so far
//! take runs of steps in turns, and are compared in bytes a second by the book. Halving finds how few are too few,
//! bisection what is between; in the end the fewest meet those that took the steps before. Fewer threads stay if they
//! are at least as fast in the middle of the pairs, both times.
//!
//! It reads no clock and knows no threads: all it knows comes with the steps. Threads are counted in the largest
//! group; others have the same share of theirs.

/// Larger steps are taken by all threads.
const LARGEST: usize = 16;
/// Steps of a class before it is looked at: caches, pages and clocks have settled then.
const WARM: u32 = 32;
/// A run is so many steps and so long, after one that is not counted: threads have to wake up.
const RUN: (u32, f64) = (2, 0.005);
/// Pairs of runs that decide.
const PAIRS: usize = 9;
/// What is so much slower in the first pair is given up.
const HOPELESS: f64 = 0.8;
/// What is so much slower in each of the first three pairs is given up.
const SLOWER: (usize, f64) = (3, 0.97);
/// What is so much faster in each of the first five pairs is taken.
const FASTER: (usize, f64) = (5, 1.03);

/// What a step did.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub tokens: usize,
    /// Bytes that were read, by the book.
    pub bytes: u64,
    pub seconds: f64,
}

/// Threads of steps of up to so many tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub tokens: usize,
    pub threads: usize,
    /// Found or confirmed by these steps; otherwise it was found earlier.
    pub sure: bool,
}

/// Why fewer threads are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// They were found earlier.
    Known,
    Halving,
    Between,
    /// Against those before the search.
    Final,
}

/// A search for the threads of a class.
#[derive(Debug)]
struct Search {
    class: usize,
    /// Before it.
    was: usize,
    best: usize,
    /// Too few.
    bound: usize,
    why: Why,
    trial: Trial,
}

/// Runs of fewer threads and of more, in turns.
#[derive(Debug, Default)]
struct Trial {
    fewer: usize,
    more: usize,
    /// Bytes a second of the fewer over those of the more.
    ratios: Vec<f64>,
    /// Bytes a second of the first run of a pair.
    first: Option<f64>,
    run: Run,
}

#[derive(Debug, Default)]
struct Run {
    begun: bool,
    steps: u32,
    bytes: u64,
    seconds: f64,
}

impl Trial {
    fn new(fewer: usize, more: usize) -> Trial {
        Trial { fewer, more, ..Trial::default() }
    }

    /// Whether the run under way is of the fewer: first in every other pair.
    fn of_fewer(&self) -> bool {
        self.ratios.len().is_multiple_of(2) == self.first.is_none()
    }

    /// Adds a step of the run; whether the fewer have won, when that is decided.
    fn add(&mut self, step: Step) -> Option<bool> {
        if !std::mem::replace(&mut self.run.begun, true) {
            return None;
        }
        self.run.steps += 1;
        self.run.bytes += step.bytes;
        self.run.seconds += step.seconds;
        if self.run.steps < RUN.0 || self.run.seconds < RUN.1 {
            return None;
        }
        let (of_fewer, run) = (self.of_fewer(), std::mem::take(&mut self.run));
        let rate = run.bytes as f64 / run.seconds;
        let Some(first) = self.first.take() else {
            self.first = Some(rate);
            return None;
        };
        let [fewer, more] = if of_fewer { [rate, first] } else { [first, rate] };
        self.ratios.push(fewer / more.max(f64::MIN_POSITIVE));
        self.decided()
    }

    fn decided(&self) -> Option<bool> {
        let ratios = &self.ratios;
        if ratios.len() == 1 && ratios[0] < HOPELESS
            || ratios.len() >= SLOWER.0 && ratios.iter().all(|&ratio| ratio < SLOWER.1)
        {
            return Some(false);
        }
        if ratios.len() >= FASTER.0 && ratios.iter().all(|&ratio| ratio >= FASTER.1) {
            return Some(true);
        }
        (ratios.len() >= PAIRS).then(|| {
            let mut sorted = ratios.clone();
            sorted.sort_by(f64::total_cmp);
            sorted[sorted.len() / 2] >= 1.0
        })
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Policy {
    all: usize,
    rows: Vec<Row>,             // ascending in tokens and threads
    waiting: [(usize, u32); 5], // class, steps so far
    search: Option<Search>,
}

/// The class of a step, by its largest number of tokens.
fn class(tokens: usize) -> Option<usize> {
    (1..=LARGEST).contains(&tokens).then(|| tokens.next_power_of_two())
}

impl Policy {
    /// For groups of which the largest has `all` threads, and what was found earlier.
    pub(super) fn new(all: usize, known: Vec<Row>) -> Policy {
        let waiting = [1, 2, 4, 8, 16].map(|class| (class, 0));
        Policy { all, rows: known, waiting, search: None }
    }

    /// What is known of steps, ascending in tokens.
    pub(super) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Whether steps are being compared.
    pub(super) fn is_searching(&self) -> bool {
        self.search.is_some()
    }

    /// Forgets the search under way: it begins anew some steps later.
    pub(super) fn give_up(&mut self) {
        self.search = None;
        self.waiting.iter_mut().for_each(|(_, steps)| *steps = 0);
    }

    /// All numbers of threads that steps may have now, ascending; the last is all.
    pub(super) fn levels(&self) -> Vec<usize> {
        let tried = self.search.iter().flat_map(|s| [s.trial.fewer, s.trial.more]);
        let rows = self.rows.iter().map(|row| row.threads);
        let mut levels: Vec<usize> = rows.chain(tried).chain([self.all]).collect();
        levels.sort_unstable();
        levels.dedup();
        levels
    }

    /// The threads of the next step.
    pub(super) fn threads(&self, tokens: usize) -> usize {
        match &self.search {
            Some(search) if class(tokens) == Some(search.class) => match &search.trial {
                trial if trial.of_fewer() => trial.fewer,
                trial => trial.more,
            },
            _ => self.settled(tokens),
        }
    }

    fn settled(&self, tokens: usize) -> usize {
        let row = self.rows.iter().find(|row| tokens <= row.tokens);
        row.map_or(self.all, |row| row.threads)
    }

    /// Hears of a step; whether other numbers of threads are wanted from here on.
    pub(super) fn observe(&mut self, step: Step) -> bool {
        let class = class(step.tokens);
        let Some(search) = &mut self.search else {
            return class.is_some_and(|class| self.wait(class));
        };
        if class != Some(search.class) {
            // Whoever took that step, others may take the next.
            search.trial.run = Run::default();
            return false;
        }
        let Some(won) = search.trial.add(step) else { return false };
        self.conclude(won);
        true
    }

    /// Counts a step; whether a search begins.
    fn wait(&mut self, class: usize) -> bool {
        let own = self.rows.iter().find(|row| row.tokens == class);
        if own.is_some_and(|row| row.sure) {
            return false;
        }
        let waiting = self.waiting.iter_mut().find(|(of, _)| *of == class);
        let Some((_, steps)) = waiting else { return false };
        *steps += 1;
        if *steps < WARM {
            return false;
        }
        let below = self.rows.iter().rfind(|row| row.tokens < class);
        // Larger steps do not want fewer.
        let bound = below.map_or(0, |row| row.threads - 1);
        let known = own.map(|row| row.threads).filter(|&threads| threads < self.all);
        let was = if known.is_some() { self.all } else { self.settled(class) };
        let (why, trial) = (Why::Halving, Trial::default());
        let mut search = Search { class, was, best: was, bound, why, trial };
        match known {
            Some(threads) => {
                (search.why, search.trial) = (Why::Known, Trial::new(threads, self.all));
                self.search = Some(search);
            }
            None => self.go_on(search),
        }
        self.search.is_some()
    }

    /// What follows from a trial.
    fn conclude(&mut self, won: bool) {
        let Some(mut search) = self.search.take() else { return };
        let tried = search.trial.fewer;
        match (search.why, won) {
            (Why::Known | Why::Final, true) => return self.settle(search.class, tried),
            (Why::Final, false) => return self.settle(search.class, search.was),
            (_, true) => search.best = tried,
            (_, false) => (search.bound, search.why) = (tried, Why::Between),
        }
        self.go_on(search);
    }

    /// Tries the next number of threads, or ends a search.
    fn go_on(&mut self, mut search: Search) {
        let Search { best, bound, why, .. } = search;
        let next = match why {
            Why::Halving => best.div_ceil(2).max(bound + 1),
            _ if best - bound > (self.all / 16).max(1) => (best + bound) / 2,
            _ => best,
        };
        search.trial = match (next < best, best < search.was) {
            (true, _) => Trial::new(next, best),
            (false, true) => {
                search.why = Why::Final;
                Trial::new(best, search.was)
            }
            (false, false) => return self.settle(search.class, best),
        };
        self.search = Some(search);
    }

    fn settle(&mut self, tokens: usize, threads: usize) {
        self.search = None;
        self.rows.retain(|row| row.tokens != tokens);
        // What was found for other classes stays in order.
        self.rows.retain(|row| {
            (row.tokens < tokens) == (row.threads < threads) || row.threads == threads
        });
        self.rows.push(Row { tokens, threads, sure: true });
        self.rows.sort_by_key(|row| row.tokens);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine whose memory gives so much to so many threads, in GB/s.
    struct Planted<'a> {
        policy: Policy,
        read: &'a dyn Fn(usize) -> f64,
        noise: f64,
        state: u64,
    }

    impl<'a> Planted<'a> {
        fn new(all: usize, read: &'a dyn Fn(usize) -> f64) -> Planted<'a> {
            Planted { policy: Policy::new(all, Vec::new()), read, noise: 0.0, state: 1 }
        }

        /// About uniform in ±√3, so of deviation 1.
        fn luck(&mut self) -> f64 {
            self.state =
                self.state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            3f64.sqrt() * ((self.state >> 33) as f64 / f64::from(1u32 << 30) - 1.0)
        }

        /// Takes a step of a 1 GB model; the seconds that it takes.
        fn step(&mut self, tokens: usize) -> f64 {
            let threads = self.policy.threads(tokens);
            let seconds = (1.0 + self.noise * self.luck()) / (self.read)(threads);
            self.policy.observe(Step { tokens, bytes: 1_000_000_000, seconds });
            seconds
        }

        /// Takes steps; the seconds that they take.
        fn steps(&mut self, count: usize, tokens: usize) -> f64 {
            (0..count).map(|_| self.step(tokens)).sum()
        }

        fn row(&self, tokens: usize) -> usize {
            assert!(!self.policy.is_searching());
            self.policy.settled(tokens)
        }
    }

    /// Each thread reads 8 GB/s, and all together no more than so much; every further one costs a share of that.
    fn filled_by(threads: usize, share: f64) -> impl Fn(usize) -> f64 {
        move |n| {
            let over = n.saturating_sub(threads) as f64;
            8.0 * n.min(threads) as f64 / (1.0 + share * over)
        }
    }

    #[test]
    fn the_threads_that_fill_the_memory_decode() {
        for (all, fill) in [(16, 5), (16, 8), (64, 11), (64, 40), (6, 4), (192, 48)] {
            let read = filled_by(fill, 0.001);
            let mut planted = Planted::new(all, &read);
            planted.steps(600, 1);
            let found = planted.row(1);
            let grain = (all / 16).max(1);
            assert!((fill..fill + grain).contains(&found), "{all}, {fill}: {found}");
            assert_eq!(planted.row(17), all, "prompts have all");
        }
    }

    #[test]
    fn where_every_thread_reads_more_all_decode_and_little_is_lost() {
        for all in [2, 3, 8, 64] {
            let read = |n: usize| n as f64;
            let mut planted = Planted::new(all, &read);
            let took = planted.steps(1000, 1);
            assert_eq!(planted.row(1), all);
            let lost = took * read(all) / 1000.0 - 1.0;
            assert!(lost < 0.02, "{all}: {lost}");
        }
    }

    #[test]
    fn with_noise_nothing_is_lost_but_noise() {
        let mut few = 0;
        for seed in 0..40 {
            for (fill, share) in [(64, 0.0), (20, 0.0), (20, 0.005), (11, 0.02)] {
                let read = filled_by(fill, share);
                let mut planted = Planted::new(64, &read);
                (planted.noise, planted.state) = (0.03, 1000 + seed);
                planted.steps(1500, 1);
                let found = planted.row(1);
                let over_all = read(found) / read(64);
                assert!(over_all > 0.97, "seed {seed}, {fill}: {found} threads, {over_all}");
                few += usize::from(found < 64 && fill < 64);
            }
        }
        // 120 of these machines want fewer; of 40 all numbers from 20 threads on are as fast, so chance has a say.
        assert!(few > 80, "{few}");
    }

    #[test]
    fn larger_steps_have_as_many_threads_and_more() {
        let read = filled_by(6, 0.01);
        let mut planted = Planted::new(16, &read);
        planted.steps(600, 8);
        assert_eq!((planted.row(8), planted.row(9)), (6, 16));
        // As many are enough for one token, and nothing is gained with fewer.
        assert_eq!(planted.row(1), 6);
        planted.steps(600, 1);
        assert_eq!((planted.row(1), planted.row(8)), (6, 6));
        let rows: Vec<usize> = planted.policy.rows().iter().map(|row| row.tokens).collect();
        assert_eq!(rows, [1, 8]);
    }

    #[test]
    fn what_was_found_earlier_is_kept_only_if_it_still_holds() {
        let known = |threads| vec![Row { tokens: 1, threads, sure: false }];
        let read = filled_by(5, 0.01);
        let mut planted = Planted::new(16, &read);
        planted.policy = Policy::new(16, known(5));
        assert_eq!(planted.policy.threads(1), 5);
        planted.steps(32, 1);
        assert_eq!(planted.policy.levels(), [5, 16]);
        planted.steps(100, 1);
        assert_eq!(planted.row(1), 5);
        // Other memory.
        let read = |n: usize| n as f64;
        let mut planted = Planted::new(16, &read);
        planted.policy = Policy::new(16, known(5));
        planted.steps(600, 1);
        assert_eq!(planted.row(1), 16);
    }

    #[test]
    fn prompts_between_steps_change_nothing() {
        let read = filled_by(4, 0.01);
        let mut planted = Planted::new(16, &read);
        for _ in 0..600 {
            assert_eq!(planted.policy.threads(300), 16);
            planted.step(300);
            planted.steps(3, 2);
        }
        assert_eq!((planted.row(2), planted.row(1), planted.row(3)), (4, 4, 16));
    }

    #[test]
    fn a_search_that_is_given_up_begins_anew() {
        let read = filled_by(5, 0.01);
        let mut planted = Planted::new(16, &read);
        planted.steps(50, 1);
        assert!(planted.policy.is_searching());
        planted.policy.give_up();
        assert_eq!((planted.policy.threads(1), planted.policy.levels()), (16, vec![16]));
        planted.steps(600, 1);
        assert_eq!(planted.row(1), 5);
    }
}
