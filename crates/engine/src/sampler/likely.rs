//! The likeliest of many: finding tokens without sorting a vocabulary.
//!
//! A row of logits is looked at in blocks. The k-th greatest of the blocks' maxima is reached by at
//! least k logits, so none of the k greatest is below it; what is not has mostly been sorted out then,
//! at the speed of reading. Weights use the vectors' exponential, and their sums, in double precision, are kept by
//! block: a draw goes over blocks, then over the tokens of one. The cut of `top_p` is found in sums by fine steps of the
//! logarithm, then by halving the tokens of one step.
//!
//! `cargo bench -p arclight-engine --bench sampler` measures a vocabulary of 152,000.

use kernels::{Curve, Kernels};
use std::cell::RefCell;

/// Logits of a block.
const BLOCK: usize = 128;
/// Logits that are weighed at once: they and their weights stay in the first cache until they are summed.
const CHUNK: usize = 8 * BLOCK;

/// Steps that are compared at once.
const PART: usize = 16;

/// Steps of a coarse one, an eighth in the exponent: what is laid out for a draw is by these.
const FINE: i16 = Curve::STEPS / 8;

/// Length of the table of sums by step: a power of two, so that an index needs a mask and no bounds check.
const SUMS: usize = 1024;
const _: () = assert!((Curve::LAST_STEP as usize) < SUMS);

/// A token and its logit, or its weight.
pub(super) type Candidate = (f32, u32);
/// Logit and token, and its weight.
type Weighed = (Candidate, f32);

/// Descending logits; equal ones in the order of ids, so that a cut is well defined.
fn descending(a: &Candidate, b: &Candidate) -> std::cmp::Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

/// The greatest logit; NaN is none.
pub(super) fn greatest(logits: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; 16];
    let (whole, rest) = logits.as_chunks::<16>();
    for chunk in whole {
        for lane in 0..16 {
            lanes[lane] = if chunk[lane] > lanes[lane] { chunk[lane] } else { lanes[lane] };
        }
    }
    lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |most, &l| if l > most { l } else { most })
}

thread_local! {
    /// One for each thread, not for each request: it stays in the cache for the next request of the step.
    static ROOM: RefCell<Room> = RefCell::default();
}

/// Room for the work, reused.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// Logits that are not taken as they are.
    pub(super) row: Vec<f32>,
    maxima: Vec<f32>,
    sorted: Vec<f32>,
    kept: Vec<Candidate>,
    /// Weights of all tokens, and sums of their blocks.
    weights: Vec<f32>,
    sums: Vec<f64>,
    /// How far each is below the greatest, in [steps](Kernels::weigh).
    steps: Vec<i16>,
    /// Where they were cut last, and what was kept of the step of the cut.
    cut: Cut,
    last: Vec<Weighed>,
}

impl Room {
    /// Works in the thread's room.
    pub(super) fn with<R>(work: impl FnOnce(&mut Room) -> R) -> R {
        ROOM.with_borrow_mut(work)
    }

    /// The `k` greatest logits in descending order; fewer if others are NaN.
    pub(super) fn best(&mut self, logits: &[f32], k: usize) -> &mut Vec<Candidate> {
        let Room { maxima, sorted, kept, .. } = self;
        kept.clear();
        maxima.clear();
        maxima.extend(logits.chunks(BLOCK).map(greatest));
        let mut least = f32::NEG_INFINITY;
        if 0 < k && k < maxima.len() {
            sorted.clone_from(maxima);
            least = *sorted.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a)).1;
        }
        for (block, _) in maxima.iter().enumerate().filter(|(_, max)| **max >= least) {
            let from = block * BLOCK;
            let block = &logits[from..logits.len().min(from + BLOCK)];
            let tokens = block.iter().copied().zip(from as u32..);
            kept.extend(tokens.filter(|(logit, _)| *logit >= least));
        }
        if k < kept.len() {
            kept.select_nth_unstable_by(k.max(1) - 1, descending);
            kept.truncate(k);
        }
        kept.sort_unstable_by(descending);
        kept
    }

    /// All logits of at least `least`, in the order of ids.
    pub(super) fn above(&mut self, logits: &[f32], least: f32) -> &mut Vec<Candidate> {
        self.kept.clear();
        for (block, from) in logits.chunks(BLOCK).zip((0..).step_by(BLOCK)) {
            if greatest(block) >= least {
                let tokens = block.iter().copied().zip(from..);
                self.kept.extend(tokens.filter(|(logit, _)| *logit >= least));
            }
        }
        &mut self.kept
    }

    /// Weighs all tokens, NaN with 0. Returns the sum.
    pub(super) fn weigh(&mut self, kernels: &Kernels, logits: &[f32], curve: Curve) -> f64 {
        let Room { weights, sums, .. } = self;
        weights.resize(logits.len(), 0.0);
        sums.clear();
        for (logits, weights) in logits.chunks(CHUNK).zip(weights.chunks_mut(CHUNK)) {
            kernels.weigh(curve, logits, weights, &mut []);
            sums.extend(weights.chunks(BLOCK).map(sum));
        }
        sums.iter().sum()
    }

    /// Weighs all tokens and finds the likeliest whose weights reach `share` of the sum, no more than it takes; of
    /// these, those of at least the weight `least` are kept. Returns their sum; [`draw_kept`](Room::draw_kept) draws.
    pub(super) fn nucleus(
        &mut self,
        kernels: &Kernels,
        logits: &[f32],
        curve: Curve,
        share: f32,
        least: f32,
    ) -> f64 {
        let Room { weights, steps, last, cut, .. } = self;
        weights.resize(logits.len(), 0.0);
        steps.resize(logits.len(), 0);
        last.clear();
        let mut by_step = [[0.0; 4]; SUMS];
        let chunks = logits.chunks(CHUNK).zip(weights.chunks_mut(CHUNK));
        for ((logits, weights), steps) in chunks.zip(steps.chunks_mut(CHUNK)) {
            kernels.weigh(curve, logits, weights, steps);
            add_by_step(&mut by_step, steps, weights);
        }
        let sums = by_step.map(|lanes| lanes.iter().sum::<f64>());
        let limit = sums.iter().sum::<f64>() * f64::from(share);
        let (mut before, mut at) = (0.0, 0);
        while at < Curve::LAST_STEP && before + sums[at as usize] < limit {
            before += sums[at as usize];
            at += 1;
        }
        // Earlier steps are kept whole; tokens of this one are cut.
        find(steps, at, |token| {
            last.push(((logits[token as usize], token), weights[token as usize]));
        });
        let kept = reaching(last, limit - before);
        last.truncate(kept);
        last.retain(|(_, weight)| *weight >= least);
        *cut = Cut { at, least, whole: sums[..(at / FINE * FINE) as usize].iter().sum() };
        let mut earlier = before;
        if least > 0.0 {
            let blocks = || weights.chunks(BLOCK).zip(steps.chunks(BLOCK));
            cut.whole = blocks().map(|of| cut.sum(of, at / FINE * FINE)).sum();
            earlier = blocks().map(|of| cut.sum(of, at)).sum();
        }
        earlier + last.iter().map(|(_, weight)| f64::from(*weight)).sum::<f64>()
    }

    /// The token in whose weight `at` falls when all tokens are laid out one after the other.
    pub(super) fn draw(&self, mut at: f64) -> Option<u32> {
        let Room { weights, sums, .. } = self;
        for ((block, from), &sum) in weights.chunks(BLOCK).zip((0..).step_by(BLOCK)).zip(sums) {
            if at < sum {
                return draw(block.iter().copied().zip(from..), at);
            }
            at -= sum;
        }
        // By rounding it can be beyond the end.
        weights.iter().rposition(|weight| *weight > 0.0).map(|at| at as u32)
    }

    /// The token in whose weight `at` falls when those that [`nucleus`](Room::nucleus) kept of these logits are laid out
    /// one after the other: first those of whole coarse steps, by their ids, then those of the coarse step of the cut,
    /// from the likeliest on.
    pub(super) fn draw_kept(&mut self, logits: &[f32], at: f64) -> Option<u32> {
        let Room { weights, steps, last, cut, .. } = self;
        let whole = cut.at / FINE * FINE;
        if at < cut.whole {
            let mut at = at;
            let blocks = weights.chunks(BLOCK).zip(steps.chunks(BLOCK));
            for (block, from) in blocks.zip((0..).step_by(BLOCK)) {
                let sum = cut.sum(block, whole);
                if at < sum {
                    return draw(cut.kept(block, whole).zip(from..), at);
                }
                at -= sum;
            }
        }
        let at = (at - cut.whole).max(0.0);
        // Few draws fall here: the other tokens of the coarse step are looked for when one does.
        for (token, (step, weight)) in (0..).zip(steps.iter().zip(&*weights)) {
            if (whole..cut.at).contains(step) && *weight >= cut.least {
                last.push(((logits[token as usize], token), *weight));
            }
        }
        last.sort_unstable_by(|a, b| descending(&a.0, &b.0));
        let drawn = draw(last.iter().map(|((_, token), weight)| (*weight, *token)), at);
        // By rounding it can be beyond the end of the others, and nothing comes behind them.
        let end = || cut.kept((weights, steps), whole).rposition(|weight| weight > 0.0);
        drawn.or_else(|| end().map(|at| at as u32))
    }
}

/// Where tokens are cut off.
#[derive(Clone, Copy, Debug, Default)]
struct Cut {
    /// The step that is cut.
    at: i16,
    /// The least weight.
    least: f32,
    /// Sum of what is kept of whole coarse steps.
    whole: f64,
}

impl Cut {
    /// The weights of the tokens before a step that are kept, and 0 of all others.
    fn kept(
        self,
        (weights, steps): (&[f32], &[i16]),
        before: i16,
    ) -> impl DoubleEndedIterator<Item = f32> + ExactSizeIterator {
        let kept = move |(weight, step): (&f32, &i16)| (*step < before) & (*weight >= self.least);
        weights.iter().zip(steps).map(move |of| if kept(of) { *of.0 } else { 0.0 })
    }

    /// The sum of a block's [weights that are kept](Cut::kept).
    fn sum(self, (weights, steps): (&[f32], &[i16]), before: i16) -> f64 {
        let mut block = [0.0; BLOCK];
        block
            .iter_mut()
            .zip(self.kept((weights, steps), before))
            .for_each(|(to, weight)| *to = weight);
        sum(&block)
    }
}

/// The tokens of a step.
fn find(steps: &[i16], at: i16, mut found: impl FnMut(u32)) {
    let (parts, rest) = steps.as_chunks::<PART>();
    for (part, from) in parts.iter().zip((0..).step_by(PART)) {
        // No branch for each token, neither to test a part nor to compact it.
        if part.iter().fold(0, |any, &step| any | u16::from(step == at)) != 0 {
            let (mut tokens, mut count) = ([0; PART], 0);
            for (token, step) in (from..).zip(part) {
                tokens[count % PART] = token;
                count += usize::from(*step == at);
            }
            tokens[..count].iter().copied().for_each(&mut found);
        }
    }
    let tail = (steps.len() - rest.len()) as u32;
    (tail..).zip(rest).filter(|(_, step)| **step == at).for_each(|(token, _)| found(token));
}

/// In several sums, as no addition waits for the one before it then.
fn sum(weights: &[f32]) -> f64 {
    let mut lanes = [0.0f64; 8];
    let (whole, rest) = weights.as_chunks::<8>();
    for chunk in whole {
        for lane in 0..8 {
            lanes[lane] += f64::from(chunk[lane]);
        }
    }
    let rest: f64 = rest.iter().copied().map(f64::from).sum();
    lanes.iter().sum::<f64>() + rest
}

/// Adds weights to the sums of their steps, which are several as well.
fn add_by_step(sums: &mut [[f64; 4]; SUMS], steps: &[i16], weights: &[f32]) {
    let (whole, rest) = steps.as_chunks::<4>();
    let (whole_weights, rest_weights) = weights.as_chunks::<4>();
    for (steps, weights) in whole.iter().zip(whole_weights) {
        for lane in 0..4 {
            sums[steps[lane] as usize % SUMS][lane] += f64::from(weights[lane]);
        }
    }
    for (step, weight) in rest.iter().zip(rest_weights) {
        sums[*step as usize % SUMS][0] += f64::from(*weight);
    }
}

/// How many of the likeliest it takes for their weights to reach `limit`, or all; these come first then, in no order.
fn reaching(of: &mut [Weighed], limit: f64) -> usize {
    let (mut first, mut end, mut sum) = (0, of.len(), 0.0);
    while end - first > 1 {
        let open = &mut of[first..end];
        let half = open.len() / 2;
        open.select_nth_unstable_by(half, |a, b| descending(&a.0, &b.0));
        let greater: f64 = open[..half].iter().map(|(_, weight)| f64::from(*weight)).sum();
        if sum + greater >= limit {
            end = first + half;
        } else {
            (first, sum) = (first + half, sum + greater);
        }
    }
    end
}

/// The token in whose weight `at` falls, when weights are laid out one after the other.
pub(super) fn draw(weights: impl Iterator<Item = Candidate>, mut at: f64) -> Option<u32> {
    let mut last = None;
    for (weight, token) in weights.filter(|(weight, _)| *weight > 0.0) {
        at -= f64::from(weight);
        last = Some(token);
        if at < 0.0 {
            break;
        }
    }
    last
}
