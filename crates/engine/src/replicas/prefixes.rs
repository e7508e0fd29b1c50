//! Which replica has computed what: beginnings of prompts by the replicas that they were sent to.
//!
//! A prompt is cut into KV pages, and each page named by a hash of all tokens up to its end. That a
//! replica was sent a prompt does not say that its prefix cache still has it, so this is a good guess;
//! answers do not depend on it.

use graph::Adapted;
use kernels::KV_PAGE;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// What a page of a prompt is called: it tells of all tokens up to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PageName(u64);

/// The names of a prompt's whole pages, with these adapters.
pub(super) fn page_names(prompt: &[u32], adapters: &[Adapted]) -> Vec<PageName> {
    let mut hasher = DefaultHasher::new();
    for Adapted { adapter, scale } in adapters {
        (adapter, scale.to_bits()).hash(&mut hasher);
    }
    let name = |page: &[u32]| {
        page.hash(&mut hasher);
        PageName(hasher.finish())
    };
    prompt.chunks_exact(KV_PAGE).map(name).collect()
}

/// Pages that are remembered before the older half is forgotten: 2 million tokens in some 3 MiB.
const MOST_PAGES: usize = 1 << 16;

/// Replicas that are told apart: those beyond are taken for having computed nothing.
const LANES: usize = 64;

#[derive(Default)]
pub(super) struct Beginnings {
    lanes: HashMap<PageName, (u64, u64)>, // a bit for each replica, and when it was last used
    now: u64,
}

impl Beginnings {
    /// Tokens that each of `lanes` replicas has computed of a prompt's beginning, as far as is known.
    pub(super) fn computed(&self, pages: &[PageName], lanes: usize) -> Vec<u64> {
        let mut computed = vec![0; lanes];
        let mut all = u64::MAX;
        for page in pages {
            all &= self.lanes.get(page).map_or(0, |(lanes, _)| *lanes);
            if all == 0 {
                break;
            }
            for (lane, computed) in computed.iter_mut().enumerate().take(LANES) {
                *computed += (all >> lane & 1) * KV_PAGE as u64;
            }
        }
        computed
    }

    /// A prompt was sent to a replica.
    pub(super) fn note(&mut self, pages: &[PageName], lane: usize) {
        if lane >= LANES {
            return;
        }
        self.now += 1;
        for &page in pages {
            let (lanes, used) = self.lanes.entry(page).or_default();
            *lanes |= 1 << lane;
            *used = self.now;
        }
        if self.lanes.len() > MOST_PAGES {
            let mut used: Vec<u64> = self.lanes.values().map(|(_, used)| *used).collect();
            let middle = used.len() / 2;
            let old = *used.select_nth_unstable(middle).1;
            self.lanes.retain(|_, (_, used)| *used > old);
        }
    }

    /// A replica has nothing any more.
    pub(super) fn forget(&mut self, lane: usize) {
        let bit = if lane < LANES { 1 << lane } else { 0 };
        self.lanes.values_mut().for_each(|(lanes, _)| *lanes &= !bit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(common: usize, own: u32) -> Vec<PageName> {
        page_names(&(0..200).map(|at| if at < common { 1 } else { own }).collect::<Vec<_>>(), &[])
    }

    #[test]
    fn what_is_computed_is_counted_by_replica_and_from_the_beginning() {
        let mut beginnings = Beginnings::default();
        beginnings.note(&prompt(100, 5), 0);
        beginnings.note(&prompt(40, 6), 2);
        assert_eq!(beginnings.computed(&prompt(100, 5), 3), [192, 0, 32]);
        assert_eq!(beginnings.computed(&prompt(100, 7), 3), [96, 0, 32]);
        assert_eq!(beginnings.computed(&prompt(0, 5), 3), [0; 3]);
        beginnings.forget(0);
        assert_eq!(beginnings.computed(&prompt(100, 5), 3), [0, 0, 32]);
    }

    #[test]
    fn the_older_half_is_forgotten() {
        let mut beginnings = Beginnings::default();
        let of = |own: u32| page_names(&[own; KV_PAGE], &[]);
        for own in 0..=MOST_PAGES as u32 {
            beginnings.note(&of(own), 1);
        }
        assert!(beginnings.lanes.len() <= MOST_PAGES / 2 + 1);
        assert_eq!(beginnings.computed(&of(0), 2), [0, 0]);
        assert_eq!(beginnings.computed(&of(MOST_PAGES as u32), 2), [0, 32]);
    }
}
