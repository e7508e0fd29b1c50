//! Sequences that share pages, with what would be in the pages.

use super::*;
use crate::disk::{Key, Name};
use graph::PageId;
use std::collections::HashMap;

/// Pages with contents: of every token, the tokens up to it; of a state, all tokens that made it.
pub(super) struct Memory {
    pub(super) kv: KvCache,
    slots: HashMap<(usize, PageId), Vec<Vec<u32>>>, // [class, page][slot]
    disk: HashMap<Key, Vec<Vec<u32>>>,
}

impl Memory {
    pub(super) fn new<K: Into<Keep> + Copy>(sequences: usize, classes: &[(K, usize)]) -> Memory {
        let kv = cache(sequences, CONTEXT, classes.iter().copied());
        Memory { kv, slots: HashMap::new(), disk: HashMap::new() }
    }

    /// Writes what ended sequences have left, but for some files.
    fn spill(&mut self, most: usize) {
        for (key, page) in std::iter::from_fn(|| self.kv.outgoing()).flatten().take(most) {
            let page = self.slots[&(usize::from(key.class), page)].clone();
            self.disk.entry(key).or_insert(page);
        }
    }

    fn copy(&mut self) {
        for &PageCopy { class, from, to } in self.kv.copies() {
            let page = self.slots[&(class, from)].clone();
            self.slots.insert((class, to), page);
        }
        self.kv.copied();
    }

    /// Begins a sequence with what is on disk, as an engine does.
    fn begin(&mut self, tokens: &[u32]) -> (SeqId, usize) {
        let (id, have) = self.kv.begin(tokens, &[]).unwrap();
        let bytes = |key| self.disk.get(&key).map(|page| page.len() as u64);
        let Some(found) = self.kv.find_on_disk(id, tokens, have, &bytes) else {
            return (id, have);
        };
        assert!(have < found.len && found.len < tokens.len());
        let mut firsts = vec![0; self.kv.pools.len()];
        loop {
            let piece = match self.kv.next_piece(id, tokens, &found) {
                Ok(Some(piece)) => piece,
                Ok(None) => break,
                Err(_) => {
                    self.kv.discard(id).unwrap();
                    return self.kv.begin(tokens, &[]).unwrap();
                }
            };
            self.copy();
            for &(key, page) in &piece.reads {
                let class = usize::from(key.class);
                assert!(!self.kv.pools[class].is_shared(page), "a shared page is written");
                self.slots.insert((class, page), self.disk[&key].clone());
            }
            self.kv.take_piece(id, tokens, &piece, &mut firsts).unwrap();
        }
        self.kv.restored(id, &firsts).unwrap();
        (id, found.len)
    }

    /// What a step does; false if there are no pages for it.
    pub(super) fn step(&mut self, id: SeqId, all: &[u32], new: usize) -> bool {
        let past = all.len() - new;
        assert_eq!(self.kv.len(id).unwrap(), past);
        if !self.kv.has_room(id, new, 0).unwrap() {
            assert!(matches!(self.kv.reserve(id, new), Err(Error::NoPages { .. })));
            return false;
        }
        self.kv.reserve(id, new).unwrap();
        self.copy();
        for save in self.kv.saves(id).unwrap() {
            assert!(past < save.len && save.len < all.len(), "within the step");
            for (class, page) in save.pages.iter().enumerate() {
                if let Some(page) = *page {
                    assert!(!self.kv.pools[class].is_shared(page), "a shared state is written");
                    self.slots.insert((class, page), vec![all[..save.len].to_vec()]);
                }
            }
        }
        for (class, table) in self.kv.tables(id).unwrap().iter().enumerate() {
            if !self.kv.pools[class].keep().is_paged() {
                if new == 0 {
                    continue;
                }
                let [page] = table.pages[..] else { panic!("one state, not {table:?}") };
                assert!(!self.kv.pools[class].is_shared(page), "a shared state is changed");
                let before = self.slots.get(&(class, page)).filter(|_| past > 0);
                assert!(before.is_none_or(|state| state[0] == all[..past]), "another's state");
                self.slots.insert((class, page), vec![all.to_vec()]);
                continue;
            }
            for position in past..all.len() {
                let page = table.pages[position / KV_PAGE - table.first];
                assert!(!self.kv.pools[class].is_shared(page), "a shared page is written");
                let slots = self.slots.entry((class, page)).or_default();
                slots.resize(KV_PAGE, Vec::new());
                slots[position % KV_PAGE] = all[..=position].to_vec();
            }
        }
        self.kv.advance(id, &all[past..]).unwrap();
        true
    }

    /// Whether a sequence has all that its next token sees.
    pub(super) fn check(&self, id: SeqId, all: &[u32]) {
        for (class, table) in self.kv.tables(id).unwrap().iter().enumerate() {
            if !self.kv.pools[class].keep().is_paged() {
                if let Some(page) = table.pages.first().filter(|_| !all.is_empty()) {
                    assert_eq!(self.slots[&(class, *page)], [all], "class {class}");
                }
                assert_eq!(table.pages.len(), usize::from(!all.is_empty()));
                continue;
            }
            for position in self.kv.pools[class].needs(all.len())..all.len() {
                let page = table.pages[position / KV_PAGE - table.first];
                let found = &self.slots[&(class, page)][position % KV_PAGE];
                assert_eq!(found, &all[..=position], "class {class}, position {position}");
            }
        }
    }
}

/// Tokens of a text out of few beginnings, which agree to various lengths.
fn text(kind: usize, len: usize) -> Vec<u32> {
    let common = [0, 17, 32, 70, 100][kind % 5].min(len);
    (0..len as u32).map(|at| if (at as usize) < common { 9 } else { at + kind as u32 }).collect()
}

#[test]
fn what_was_computed_before_is_found_to_the_token() {
    let mut memory = Memory::new(2, &[(None, 40)]);
    let first = text(0, 80);
    let (a, found) = memory.kv.begin(&first, &[]).unwrap();
    assert_eq!(found, 0);
    assert!(memory.step(a, &first, 80));
    // While it still runs, its full pages are there.
    let (b, found) = memory.kv.begin(&first, &[]).unwrap();
    assert_eq!(found, 64);
    memory.check(b, &first[..64]);
    memory.kv.remove(b).unwrap();
    memory.kv.remove(a).unwrap();
    // Afterwards all of it, but of the same text the last token is computed again.
    assert_eq!(memory.kv.counts(), PageCounts { total: 40, free: 37, cached: 3 });
    let longer = [first.as_slice(), &[7; 30]].concat();
    let (b, found) = memory.kv.begin(&longer, &[]).unwrap();
    assert_eq!(found, 80);
    let (a, found) = memory.kv.begin(&first, &[]).unwrap();
    assert_eq!(found, 79);
    assert!(memory.step(b, &longer, 30) && memory.step(a, &first, 1));
    memory.check(b, &longer);
    memory.check(a, &first);
    memory.kv.remove(a).unwrap();
    memory.kv.remove(b).unwrap();
    // The end of the longer text has replaced that of the shorter.
    assert_eq!(memory.kv.begin(&longer, &[]).unwrap().1, 109);
}

#[test]
fn copies_of_a_sequence_share_until_they_differ() {
    let mut memory = Memory::new(3, &[(None, 5)]);
    let prompt = text(0, 70);
    let (a, _) = memory.kv.begin(&prompt, &[]).unwrap();
    assert!(memory.step(a, &prompt, 70));
    let (b, c) = (memory.kv.fork(a).unwrap(), memory.kv.fork(a).unwrap());
    assert_eq!(memory.kv.counts().free, 2);
    let next = |token| [prompt.as_slice(), &[token]].concat();
    // Two copies of the last page are needed, the third sequence keeps it.
    for (id, token) in [(a, 1), (b, 2), (c, 3)] {
        assert!(memory.step(id, &next(token), 1));
    }
    assert_eq!(memory.kv.counts().free, 0);
    for (id, token) in [(a, 1), (b, 2), (c, 3)] {
        memory.check(id, &next(token));
    }
}

#[test]
fn beginnings_outlive_what_follows_them() {
    let mut memory = Memory::new(1, &[(None, 8)]);
    let system = text(4, 64);
    let chat = |user: u32| [system.as_slice(), &[user + 500; 60]].concat();
    for user in 0..5 {
        let prompt = chat(user);
        let (id, found) = memory.kv.begin(&prompt, &[]).unwrap();
        assert_eq!(found, if user == 0 { 0 } else { 64 });
        assert!(memory.step(id, &prompt, prompt.len() - found));
        memory.check(id, &prompt);
        memory.kv.remove(id).unwrap();
    }
    // Two pages of the system prompt and two for each of three users.
    assert_eq!(memory.kv.counts(), PageCounts { total: 8, free: 0, cached: 8 });
    assert_eq!(
        [4, 3, 2, 1, 0].map(|user| {
            let (id, found) = memory.kv.begin(&chat(user), &[]).unwrap();
            memory.kv.remove(id).unwrap();
            found
        }),
        [123, 123, 123, 64, 64]
    );
}

#[test]
fn behind_a_window_only_what_is_seen_is_needed() {
    let windows = [None, Some(40)];
    let classes = windows.map(|w| (w, pages(w, each(CONTEXT, 2), 2, 400)));
    let mut memory = Memory::new(2, &classes);
    let prompt = text(0, 300);
    let (a, _) = memory.kv.begin(&prompt, &[]).unwrap();
    assert!(memory.step(a, &prompt, 300));
    memory.kv.remove(a).unwrap();
    let (b, found) = memory.kv.begin(&prompt, &[]).unwrap();
    assert_eq!(found, 299);
    memory.check(b, &prompt[..299]);
    let [_, windowed] = memory.kv.tables(b).unwrap() else { panic!("two classes") };
    assert!(windowed.first > 0, "{windowed:?}");
}

#[test]
fn of_a_window_only_what_was_read_is_there() {
    let windows = [None, Some(40)];
    let classes = windows.map(|w| (w, pages(w, each(CONTEXT, 2), 2, 400)));
    let memory = || {
        let mut memory = Memory::new(2, &classes);
        memory.kv.name_pages(Name::of_test(), Vec::new());
        memory.kv.write_pages();
        memory
    };
    let mut before = memory();
    let prompt = text(0, 300);
    let (a, _) = before.begin(&prompt);
    assert!(before.step(a, &prompt, 300));
    before.kv.remove(a).unwrap();
    before.spill(usize::MAX);
    // Ten pages of each class, of which memory may have lost those of the window before it could write them.
    assert_eq!(before.disk.len(), 20);
    let mut after = memory();
    after.disk = before.disk;
    let begun = |memory: &mut Memory, len: usize, found: usize| {
        let (id, have) = memory.begin(&prompt[..len]);
        assert_eq!(have, found);
        memory.check(id, &prompt[..have]);
        id
    };
    let b = begun(&mut after, 300, 288);
    // 40 tokens before 289 begin in page 7.
    let [_, windowed] = after.kv.tables(b).unwrap() else { panic!("two classes") };
    assert_eq!((windowed.first, windowed.pages.len()), (7, 2));
    // At 270 the window begins in page 7, at 250 in page 6, which was not read.
    assert_eq!(after.kv.truncate(b, 270).unwrap(), 270);
    after.check(b, &prompt[..270]);
    assert_eq!(after.kv.truncate(b, 250).unwrap(), 0);
    after.kv.remove(b).unwrap();
    // Shorter ones find what they need on disk, not in pages that nobody has filled.
    let c = begun(&mut after, 200, 192);
    after.kv.remove(c).unwrap();
    after.disk.clear();
    begun(&mut after, 200, 192);
    begun(&mut after, 120, 0);
}

#[derive(Clone, Debug)]
enum Share {
    Begin(usize, usize),
    Spill(usize),
    Step(usize, usize),
    Fork(usize),
    Truncate(usize, usize),
    Checkpoint(usize),
    Remove(usize),
}

fn any_share() -> impl Strategy<Value = Share> {
    let who = || 0usize..6;
    prop_oneof![
        4 => (0usize..10, 1usize..300).prop_map(|(kind, len)| Share::Begin(kind, len)),
        8 => (who(), prop_oneof![Just(1usize), 1usize..120]).prop_map(|(w, n)| Share::Step(w, n)),
        2 => who().prop_map(Share::Fork),
        1 => (who(), 0usize..300).prop_map(|(w, len)| Share::Truncate(w, len)),
        1 => who().prop_map(Share::Checkpoint),
        3 => who().prop_map(Share::Remove),
        1 => (1usize..40).prop_map(Share::Spill),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    /// Whatever sequences share, in memory or from a disk, each sees its own tokens and no others, no page is lost,
    /// and there is room as long as the pages that sequences hold leave some.
    #[test]
    fn sharing_is_never_seen(
        few in 12usize..40,
        windows in prop_oneof![
            Just(vec![None]), Just(vec![None, Some(40)]), Just(vec![Some(1), None, Some(100)]),
            Just(vec![Some(64)]),
        ].prop_map(|windows| windows.into_iter().map(Keep::from).collect::<Vec<_>>()),
        states in 0usize..3,
        actions in prop::collection::vec(any_share(), 1..80),
    ) {
        let fixed = std::iter::repeat_n(Keep::Fixed, states);
        let classes: Vec<_> = windows.into_iter().chain(fixed).map(|keep| (keep, few)).collect();
        let mut memory = Memory::new(6, &classes);
        memory.kv.name_pages(Name::of_test(), Vec::new());
        memory.kv.write_pages();
        let mut live: Vec<(SeqId, Vec<u32>, Vec<u32>)> = Vec::new(); // computed, and what may follow
        for action in actions {
            match action {
                Share::Begin(kind, len) if live.len() < 6 => {
                    let all = text(kind, len);
                    let (id, found) = memory.begin(&all);
                    prop_assert!(found < len);
                    memory.check(id, &all[..found]);
                    live.push((id, all[..found].to_vec(), all[found..].to_vec()));
                }
                Share::Step(who, n) if who < live.len() => {
                    let (id, done, rest) = &mut live[who];
                    let n = n.min(CONTEXT - done.len());
                    let take = rest.len().min(n);
                    let mut all = done.clone();
                    all.extend(rest[..take].iter().copied());
                    all.extend(std::iter::repeat_n(who as u32 + 40, n - take));
                    if memory.step(*id, &all, n) {
                        rest.drain(..take);
                        *done = all;
                    }
                }
                Share::Fork(who) if who < live.len() && live.len() < 6 => {
                    let (id, done, _) = &live[who];
                    let copy = (memory.kv.fork(*id).unwrap(), done.clone(), Vec::new());
                    live.push(copy);
                }
                Share::Truncate(who, len) if who < live.len() => {
                    let (id, done, rest) = &mut live[who];
                    let kept = memory.kv.truncate(*id, len).unwrap();
                    done.truncate(kept);
                    rest.clear();
                }
                Share::Checkpoint(who) if who < live.len() => {
                    let (id, done, _) = &live[who];
                    memory.kv.checkpoint(*id).unwrap();
                    prop_assert_eq!(memory.kv.len(*id).unwrap(), done.len());
                }
                Share::Remove(who) if who < live.len() => {
                    memory.kv.remove(live.remove(who).0).unwrap();
                }
                Share::Spill(files) => memory.spill(files),
                _ => {}
            }
            for (id, done, _) in &live {
                prop_assert_eq!(memory.kv.len(*id).unwrap(), done.len());
                memory.check(*id, done);
            }
            for (class, pool) in memory.kv.pools.iter().enumerate() {
                let tables = live.iter().map(|l| &memory.kv.tables(l.0).unwrap()[class]);
                let checkpoints = memory.kv.slots.iter().filter_map(|s| s.checkpoint.as_ref());
                let checkpoints = checkpoints.filter_map(|c| c.pages[class]);
                let mut held: Vec<PageId> =
                    tables.flat_map(|t| t.pages.clone()).chain(checkpoints).collect();
                held.sort_unstable();
                held.dedup();
                prop_assert_eq!(held.len() + pool.free() + pool.idle(), pool.len());
            }
        }
        for (id, ..) in live {
            memory.kv.remove(id).unwrap();
        }
        // Everything that is cached can be given up.
        let all = vec![77; few.min(CONTEXT / KV_PAGE) * KV_PAGE];
        let (id, _) = memory.kv.begin(&all, &[]).unwrap();
        prop_assert!(memory.step(id, &all, all.len()));
    }
}
