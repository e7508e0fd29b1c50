//! Sequences with states of fixed size: where they can go back to, and where others can begin.

use super::sharing::Memory;
use super::*;

const BOTH: [Keep; 2] = [Keep::All, Keep::Fixed];
const LONG: usize = 4000;

fn memory(sequences: usize) -> Memory {
    let room = Room { context: LONG, tokens: LONG * sequences };
    let classes = BOTH.map(|keep| (keep, pages(keep, room, sequences, 512)));
    let mut memory = Memory::new(sequences, &classes);
    memory.kv.context = LONG;
    memory
}

fn text(len: usize) -> Vec<u32> {
    (0..len as u32).map(|at| at * 7 % 101).collect()
}

/// Computes the rest of a text in large steps, which pass where snapshots are made.
fn compute(memory: &mut Memory, id: SeqId, all: &[u32]) {
    loop {
        let len = memory.kv.len(id).unwrap();
        let step = (all.len() - len).min(700);
        if step == 0 {
            return memory.check(id, all);
        }
        assert!(memory.step(id, &all[..len + step], step));
    }
}

#[test]
fn a_guess_that_is_refused_goes_back_to_the_checkpoint() {
    let mut memory = memory(1);
    let all = text(90);
    let id = memory.kv.create(&[]).unwrap();
    compute(&mut memory, id, &all[..80]);
    // Without a checkpoint there is no way back.
    memory.kv.checkpoint(id).unwrap();
    assert!(memory.step(id, &all[..84], 4));
    assert_eq!(memory.kv.truncate(id, 82).unwrap(), 80, "what was right is computed again");
    memory.check(id, &all[..80]);
    compute(&mut memory, id, &all[..85]);
    // It can be gone back to again, until the next one.
    assert_eq!(memory.kv.truncate(id, 84).unwrap(), 80);
    compute(&mut memory, id, &all[..82]);
    memory.kv.checkpoint(id).unwrap();
    assert_eq!(memory.kv.truncate(id, 81).unwrap(), 0);
    assert_eq!(memory.kv.counts().free, memory.kv.counts().total);
}

#[test]
fn prefixes_are_found_where_snapshots_are() {
    let mut memory = memory(3);
    let all = text(2500);
    let (a, found) = memory.kv.begin(&all, &[]).unwrap();
    assert_eq!(found, 0);
    compute(&mut memory, a, &all);
    // While it runs: at its prompt's last page bound.
    let (b, found) = memory.kv.begin(&all, &[]).unwrap();
    assert_eq!(found, 2496);
    memory.check(b, &all[..found]);
    // Who agrees less begins at the last multiple of 1024, although keys are there up to 2400.
    let other = [&all[..2410], &[5; 40]].concat();
    let (c, found) = memory.kv.begin(&other, &[]).unwrap();
    assert_eq!(found, 2048);
    memory.check(c, &other[..found]);
    memory.kv.remove(c).unwrap();
    compute(&mut memory, b, &all);
    memory.kv.remove(b).unwrap();
    memory.kv.remove(a).unwrap();
    // The end of a sequence is one: a second turn computes its new tokens only.
    let longer = [all.as_slice(), &[5; 40]].concat();
    let (b, found) = memory.kv.begin(&longer, &[]).unwrap();
    assert_eq!(found, 2500);
    compute(&mut memory, b, &longer);
    // Of the same text the last token is to be computed, and there is no state right before it.
    assert_eq!(memory.kv.begin(&all, &[]).unwrap().1, 2496);
}

#[test]
fn a_sequence_goes_back_to_a_snapshot_of_its_prefix() {
    let mut memory = memory(1);
    let all = text(2500);
    let (id, _) = memory.kv.begin(&all, &[]).unwrap();
    compute(&mut memory, id, &all);
    assert_eq!(memory.kv.truncate(id, 2400).unwrap(), 2048);
    memory.check(id, &all[..2048]);
    compute(&mut memory, id, &all[..2100]);
    assert_eq!(memory.kv.truncate(id, 2047).unwrap(), 1024);
    assert_eq!(memory.kv.truncate(id, 1000).unwrap(), 0);
    compute(&mut memory, id, &all[..100]);
}

#[test]
fn copies_share_a_state_until_they_differ() {
    let mut memory = memory(3);
    let prompt = text(70);
    let (a, _) = memory.kv.begin(&prompt, &[]).unwrap();
    compute(&mut memory, a, &prompt);
    let (b, c) = (memory.kv.fork(a).unwrap(), memory.kv.fork(a).unwrap());
    for (id, token) in [(a, 1), (b, 2), (c, 3)] {
        let next = [prompt.as_slice(), &[token]].concat();
        assert!(memory.step(id, &next, 1));
        memory.check(id, &next);
    }
}

#[test]
fn a_sequence_that_ends_on_a_page_leaves_its_state() {
    let mut memory = memory(1);
    let all = text(96);
    let (a, _) = memory.kv.begin(&all, &[]).unwrap();
    compute(&mut memory, a, &all);
    memory.kv.remove(a).unwrap();
    let longer = [all.as_slice(), &[5]].concat();
    let (b, found) = memory.kv.begin(&longer, &[]).unwrap();
    assert_eq!(found, 96);
    memory.check(b, &all);
}

#[test]
fn snapshots_are_as_far_apart_as_keys_and_values_take_their_memory() {
    assert_eq!(interval(1 << 20, 64 << 10), 1024, "not nearer than this");
    assert_eq!(interval(75 << 20, 24 << 10), 4096);
    assert_eq!(interval(75 << 20, 0), 1024, "there are no keys");
}

#[test]
fn snapshots_that_nobody_has_pages_for_are_not_made() {
    // Two states: that of the sequence, and one that stays for others.
    let mut memory = Memory::new(1, &[(Keep::All, 200), (Keep::Fixed, 2)]);
    memory.kv.context = LONG;
    let all = text(3000);
    let (a, _) = memory.kv.begin(&all, &[]).unwrap();
    compute(&mut memory, a, &all);
    assert_eq!(memory.kv.begin(&all, &[]).ok().map(|(_, found)| found), None, "one sequence");
    memory.kv.remove(a).unwrap();
    let longer = [all.as_slice(), &[5]].concat();
    assert_eq!(memory.kv.begin(&longer, &[]).unwrap().1, 3000);
}
