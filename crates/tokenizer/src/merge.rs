//! Byte-pair merging (Sennrich, Haddow and Birch, 2016): neighbours become one symbol, the best pair first, the leftmost
//! of equal ones, until no pair is left that merges.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use hashbrown::HashMap;

/// Symbols up to which all pairs are looked at before each merge; more are kept in a heap.
const FEW: usize = 24;

/// What two neighbours become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Merged {
    /// Lower ones first.
    pub(crate) order: u32,
    /// The token.
    pub(crate) id: u32,
}

/// A run of the text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Symbol {
    start: u32,
    end: u32,
    /// Its token, if it is known and there is one.
    pub(crate) id: Option<u32>,
}

impl Symbol {
    pub(crate) fn new(range: Range<usize>, id: Option<u32>) -> Symbol {
        Symbol { start: range.start as u32, end: range.end as u32, id }
    }

    pub(crate) fn range(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    fn and(&self, right: &Symbol, merged: Merged) -> Symbol {
        Symbol { start: self.start, end: right.end, id: Some(merged.id) }
    }
}

/// Merges `symbols`, which follow each other; `pair` says what two neighbours become.
pub(crate) fn merge(symbols: &mut Vec<Symbol>, pair: impl Fn(&Symbol, &Symbol) -> Option<Merged>) {
    if symbols.len() <= FEW { merge_few(symbols, pair) } else { merge_many(symbols, pair) }
}

fn merge_few(symbols: &mut Vec<Symbol>, pair: impl Fn(&Symbol, &Symbol) -> Option<Merged>) {
    let mut pairs = [None; FEW];
    for at in 1..symbols.len() {
        pairs[at - 1] = pair(&symbols[at - 1], &symbols[at]);
    }
    while symbols.len() > 1 {
        let known = pairs[..symbols.len() - 1].iter().enumerate();
        let best = known.filter_map(|(at, merged)| Some((at, (*merged)?)));
        let Some((at, merged)) = best.min_by_key(|(at, merged)| (merged.order, *at)) else {
            return;
        };
        symbols[at] = symbols[at].and(&symbols[at + 1], merged);
        symbols.remove(at + 1);
        pairs.copy_within(at + 1..symbols.len(), at);
        if at > 0 {
            pairs[at - 1] = pair(&symbols[at - 1], &symbols[at]);
        }
        pairs[at] = symbols.get(at + 1).and_then(|right| pair(&symbols[at], right));
    }
}

fn merge_many(symbols: &mut Vec<Symbol>, pair: impl Fn(&Symbol, &Symbol) -> Option<Merged>) {
    const END: u32 = u32::MAX;
    let count = symbols.len() as u32;
    // Neighbours of what is left. A symbol that has been merged into the one before has no length.
    let mut before: Vec<u32> = (0..count).map(|at| at.wrapping_sub(1)).collect();
    let mut after: Vec<u32> = (1..count).chain([END]).collect();
    // By order and place, with the token and where the pair ended, which shows whether it still is one.
    let mut heap: BinaryHeap<Reverse<(u32, u32, u32, u32)>> = BinaryHeap::new();
    let push = |heap: &mut BinaryHeap<_>, symbols: &[Symbol], left: u32, right: u32| {
        let (l, r) = (&symbols[left as usize], &symbols[right as usize]);
        if let Some(Merged { order, id }) = pair(l, r) {
            heap.push(Reverse((order, left, r.end, id)));
        }
    };
    (1..count).for_each(|right| push(&mut heap, symbols, right - 1, right));
    while let Some(Reverse((order, left, end, id))) = heap.pop() {
        let right = after[left as usize];
        let gone = symbols[left as usize].range().is_empty() || right == END;
        if gone || symbols[right as usize].end != end {
            continue;
        }
        let (l, r) = (symbols[left as usize], symbols[right as usize]);
        // The pair that was there may have had another left part.
        if pair(&l, &r) != Some(Merged { order, id }) {
            continue;
        }
        symbols[left as usize] = l.and(&r, Merged { order, id });
        symbols[right as usize].end = symbols[right as usize].start;
        let next = after[right as usize];
        after[left as usize] = next;
        if next != END {
            before[next as usize] = left;
            push(&mut heap, symbols, left, next);
        }
        let previous = before[left as usize];
        if previous != END {
            push(&mut heap, symbols, previous, left);
        }
    }
    symbols.retain(|symbol| !symbol.range().is_empty());
}

/// The merges of a list, by the tokens of both parts.
pub(crate) struct Pairs(HashMap<u64, (u32, u32)>);

impl Pairs {
    pub(crate) fn with_capacity(merges: usize) -> Pairs {
        Pairs(HashMap::with_capacity(merges))
    }

    /// Adds a merge, unless there is one of these parts, which is better.
    pub(crate) fn add(&mut self, left: u32, right: u32, merged: Merged) {
        self.0.entry(key(left, right)).or_insert((merged.order, merged.id));
    }

    /// What two symbols become.
    pub(crate) fn get(&self, left: &Symbol, right: &Symbol) -> Option<Merged> {
        let (order, id) = *self.0.get(&key(left.id?, right.id?))?;
        Some(Merged { order, id })
    }
}

fn key(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Orders by the sum of both lengths and where they begin, some of which do not merge.
    fn pair(left: &Symbol, right: &Symbol) -> Option<Merged> {
        let (l, r) = (left.range(), right.range());
        let mix = (l.start * 31 + l.len() * 7 + r.len() * 13) % 11;
        (mix > 2 && l.len() + r.len() < 9)
            .then_some(Merged { order: mix as u32 % 4, id: mix as u32 })
    }

    #[test]
    fn the_leftmost_of_equal_pairs_merges_first() {
        let symbols = || (0..5).map(|at| Symbol::new(at..at + 1, Some(0))).collect::<Vec<_>>();
        let two = |left: &Symbol, right: &Symbol| {
            (left.range().len() + right.range().len() == 2).then_some(Merged { order: 0, id: 1 })
        };
        let (mut few, mut many) = (symbols(), symbols());
        merge_few(&mut few, two);
        merge_many(&mut many, two);
        for symbols in [few, many] {
            let ranges: Vec<_> = symbols.iter().map(Symbol::range).collect();
            assert_eq!(ranges, [0..2, 2..4, 4..5]);
        }
    }

    proptest! {
        #[test]
        fn both_ways_give_the_same(lengths in prop::collection::vec(1usize..4, 0..FEW + 1)) {
            let mut at = 0;
            let symbols: Vec<Symbol> = lengths.iter().map(|len| {
                at += len;
                Symbol::new(at - len..at, Some(*len as u32))
            }).collect();
            let (mut few, mut many) = (symbols.clone(), symbols);
            merge_few(&mut few, pair);
            merge_many(&mut many, pair);
            let shown = |symbols: &[Symbol]| {
                symbols.iter().map(|s| (s.range(), s.id)).collect::<Vec<_>>()
            };
            prop_assert_eq!(shown(&few), shown(&many));
        }
    }
}
