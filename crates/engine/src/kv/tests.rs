//! Pages of sequences, without an engine.

use super::*;
use crate::room::Room;
use graph::PageId;
use proptest::prelude::*;

/// Room for whole contexts.
fn each(context: usize, sequences: usize) -> Room {
    Room { context, tokens: context * sequences }
}

/// Pages of a class, with snapshots at every 1024th token.
fn pages(keep: impl Into<Keep>, room: Room, sequences: usize, step: usize) -> usize {
    Sizes { sequences, context: room.context, interval: 1024 }.pages(keep, room.tokens, step)
}

/// A cache with such snapshots.
fn cache<K: Into<Keep>>(
    sequences: usize,
    context: usize,
    classes: impl IntoIterator<Item = (K, usize)>,
) -> KvCache {
    KvCache::new(Sizes { sequences, context, interval: 1024 }, classes)
}

#[test]
fn a_freed_id_is_not_its_successor() {
    let mut kv = cache(1, 128, [(None, 4)]);
    let a = kv.create(&[]).unwrap();
    assert!(matches!(kv.create(&[]), Err(Error::TooManySequences { max: 1 })));
    kv.remove(a).unwrap();
    let b = kv.create(&[]).unwrap();
    assert!(matches!(kv.len(a), Err(Error::UnknownSequence(_))));
    assert_eq!(kv.len(b).unwrap(), 0);
}

#[test]
fn a_reservation_that_fails_changes_nothing() {
    // The first class has room, the second has not.
    for pages in [[3, 3], [9, 3]] {
        let classes = [None, Some(40)].into_iter().zip(pages);
        let mut kv = cache(2, 1000, classes);
        let (a, b) = (kv.create(&[]).unwrap(), kv.create(&[]).unwrap());
        kv.reserve(a, 2 * KV_PAGE).unwrap();
        let free = kv.counts();
        assert!(matches!(kv.reserve(b, 2 * KV_PAGE), Err(Error::NoPages { pages: 3 })));
        assert_eq!(kv.counts(), free);
        assert!(kv.tables(b).unwrap().iter().all(|t| t.pages.is_empty()));
        assert!(matches!(kv.reserve(a, 1001), Err(Error::ContextFull { context: 1000 })));
    }
}

#[test]
fn what_a_window_has_left_behind_is_given_back_but_for_a_few_tokens() {
    let context = 4000;
    let of = |window| pages(window, each(context, 1), 1, 512);
    let windows = [None, Some(100)];
    let mut kv = cache(1, context, windows.map(|w| (w, of(w))));
    let a = kv.create(&[]).unwrap();
    for _ in 0..5 {
        kv.reserve(a, 500).unwrap();
        kv.advance(a, &[0; 500]).unwrap();
    }
    // The next token sees 2401 to 2500; 64 tokens before, one would see 2337 to 2436.
    let first = 2337 / KV_PAGE;
    let [all, windowed] = kv.tables(a).unwrap() else { panic!("two classes") };
    assert_eq!((all.first, all.pages.len()), (0, 79));
    assert_eq!((windowed.first, windowed.pages.len()), (first, 79 - first));
    // A page begins at 2336, which the token at 2435 needs.
    assert_eq!(kv.truncate(a, 2435).unwrap(), 2435);
    assert_eq!(kv.len(a).unwrap(), 2435);
    assert_eq!(kv.truncate(a, 2434).unwrap(), 0);
    assert_eq!((kv.len(a).unwrap(), kv.counts().free), (0, of(None) + of(Some(100))));
    kv.reserve(a, 10).unwrap();
    assert_eq!(kv.tables(a).unwrap()[1].first, 0);
}

#[test]
fn windows_need_no_more_than_they_span() {
    assert_eq!(pages(None, each(4096, 3), 3, 512), 3 * 128 + 1);
    let together = |tokens| pages(None, Room { context: 4096, tokens }, 3, 512);
    assert_eq!([together(0), together(5000), together(1 << 20)], [129, 158, 385]);
    // 4096 + 64 - 1 tokens lie in 131 pages at most; a sequence begins one, a step fills 16. Three windows of 128
    // pages stay for others to go on from.
    assert_eq!(pages(Some(4096), each(1 << 17, 2), 2, 512), 2 * 132 + 3 * 128 + 16 + 1);
    assert_eq!(pages(Some(4096), each(4100, 1), 1, 512), 130);
}

#[test]
fn another_answer_to_a_prompt_finds_what_it_sees_behind_a_window() {
    let context = 16_000;
    let windows = [None, Some(100)];
    let classes = windows.map(|w| (w, pages(w, each(context, 1), 1, 512)));
    let mut kv = cache(1, context, classes);
    let write = |kv: &mut KvCache, id, tokens: &[u32]| {
        for step in tokens.chunks(200) {
            kv.reserve(id, step.len()).unwrap();
            kv.advance(id, step).unwrap();
        }
    };
    let prompt: Vec<u32> = (0..330).collect();
    let turn = |n: u32| (n * 10_000..).take(2000).collect::<Vec<u32>>();
    // Many turns of a chat, each with the thoughts of the last one left out.
    let mut chat = prompt;
    for n in 1..6 {
        let (id, len) = kv.begin(&chat, &[]).unwrap();
        let told = if n == 1 { 0 } else { chat.len() - 100 - 1 };
        assert!(len >= told / KV_PAGE * KV_PAGE, "turn {n}: {len} of {}", chat.len());
        write(&mut kv, id, &chat[len..]);
        write(&mut kv, id, &turn(n));
        kv.remove(id).unwrap();
        // Another answer begins in the prompt's last page, or before it.
        let (again, len) = kv.begin(&[&chat[..], &[1, 2, 3]].concat(), &[]).unwrap();
        assert!(len >= (chat.len() - 1) / KV_PAGE * KV_PAGE, "turn {n}: {len} of {}", chat.len());
        kv.remove(again).unwrap();
        // And the next turn at the answer's end, to the token.
        let all = [&chat[..], &turn(n)].concat();
        let (next, len) = kv.begin(&[&all[..], &[1]].concat(), &[]).unwrap();
        assert_eq!(len, all.len(), "turn {n}");
        kv.remove(next).unwrap();
        chat.extend((n * 10_000 + 5000..).take(100));
    }
}

#[derive(Clone, Debug)]
enum Do {
    /// A step with so many tokens of each sequence.
    Step([usize; 3]),
    /// One that fails.
    Fail([usize; 3]),
    Truncate(usize, usize),
    Renew(usize),
}

fn any() -> impl Strategy<Value = Do> {
    let few = || prop_oneof![3 => 0usize..2, 1 => 0usize..STEP + 1];
    let step = || (few(), few(), few()).prop_map(|(a, b, c)| [a, b, c]);
    prop_oneof![
        8 => step().prop_map(Do::Step),
        1 => step().prop_map(Do::Fail),
        2 => (0usize..3, 0usize..CONTEXT).prop_map(|(who, len)| Do::Truncate(who, len)),
        1 => (0usize..3).prop_map(Do::Renew),
    ]
}

const CONTEXT: usize = 400;
const STEP: usize = 90;

proptest! {
    /// Whatever happens, in every class a page is free or in exactly one sequence, no sequence
    /// lacks what its next token sees, and no step within the limits lacks pages.
    #[test]
    fn pages_are_never_lost_shared_missed_or_short(
        actions in prop::collection::vec(any(), 1..60)
    ) {
        let windows = [Some(40), None, Some(1), Some(100), Some(CONTEXT + 1)];
        let classes = windows.map(|w| (w, pages(w, each(CONTEXT, 3), 3, STEP)));
        let mut kv = cache(3, CONTEXT, classes);
        let mut ids: Vec<SeqId> = (0..3).map(|_| kv.create(&[]).unwrap()).collect();
        let mut longest = [0; 3]; // that each was since it was empty
        for action in actions {
            match action {
                Do::Step(tokens) | Do::Fail(tokens) => {
                    let mut left = STEP;
                    let tokens = tokens.map(|n| {
                        let n = n.min(left);
                        left -= n;
                        n
                    });
                    let mut reserved = Vec::new();
                    for (&id, n) in ids.iter().zip(tokens) {
                        match kv.reserve(id, n) {
                            Ok(()) => reserved.push((id, n)),
                            Err(Error::ContextFull { .. }) => {}
                            Err(e) => prop_assert!(false, "{e}"),
                        }
                    }
                    for (id, n) in reserved {
                        let len = kv.len(id).unwrap();
                        match action {
                            Do::Step(_) => kv.advance(id, &vec![0; n]).unwrap(),
                            _ => prop_assert_eq!(kv.truncate(id, len).unwrap(), len),
                        }
                    }
                }
                Do::Truncate(who, len) => {
                    let before = kv.len(ids[who]).unwrap();
                    let kept = kv.truncate(ids[who], len).unwrap();
                    prop_assert!(kept == len.min(before) || kept == 0);
                    prop_assert!(kept == len.min(before) || len + ROLLBACK < longest[who]);
                }
                Do::Renew(who) => {
                    kv.remove(ids[who]).unwrap();
                    ids[who] = kv.create(&[]).unwrap();
                }
            }
            for (longest, id) in longest.iter_mut().zip(&ids) {
                let len = kv.len(*id).unwrap();
                *longest = if len == 0 { 0 } else { len.max(*longest) };
            }
            for (c, class) in kv.pools.iter().enumerate() {
                let tables = ids.iter().map(|id| &kv.tables(*id).unwrap()[c]);
                let mut held: Vec<PageId> = tables.clone().flat_map(|t| t.pages.clone()).collect();
                held.sort_unstable();
                prop_assert!(held.windows(2).all(|two| two[0] != two[1]), "{held:?}");
                prop_assert_eq!(held.len() + class.free(), class.len());
                for (table, id) in tables.zip(&ids) {
                    let len = kv.len(*id).unwrap();
                    prop_assert!(table.first * KV_PAGE <= class.needs(len));
                    prop_assert_eq!(table.room(), len.next_multiple_of(KV_PAGE));
                }
            }
        }
    }
}

mod sharing;
mod states;
