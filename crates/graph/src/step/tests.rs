//! What is derived from steps, and steps that are refused.

use super::*;

const VOCAB: Ids = Ids { vocab: 10, types: 1, width: 0 };

fn table(first: usize, pages: Range<u32>) -> PageTable {
    PageTable { first, pages: pages.map(PageId).collect() }
}

#[test]
fn items_follow_sequences_pages_and_ranges() {
    // Full attention, and a window of 100.
    let a = [table(0, 0..9), table(4, 0..5)];
    let b = [table(0, 9..11), table(0, 5..7)];
    let long: Vec<u32> = vec![1; 10];
    let seqs = [
        SeqInput {
            tokens: &long,
            past: 250,
            tables: &a,
            outputs: Outputs::Last,
            saves: &[],
            insets: &[],
        },
        SeqInput {
            tokens: &[2],
            past: 40,
            tables: &b,
            outputs: Outputs::All,
            saves: &[],
            insets: &[],
        },
    ];
    let mut p = StepInput::default();
    p.set(seqs.iter().copied(), VOCAB, &[Keep::All, Keep::Window(100)], &[11, 7], 4).unwrap();
    assert_eq!(p.tiles, [0..4, 4..8, 8..10, 10..11]);
    assert_eq!(p.page_runs, [0..6, 6..10, 10..11], "position 256 begins a page");
    assert_eq!(p.outputs, [9, 10]);
    assert!(!p.single);
    let full = &p.classes[0];
    assert_eq!(full.ranges.len(), 6 + 4 * 2 + 1, "tokens from position 256 see two ranges");
    assert_eq!((full.seen[10].table, full.seen[10].first, full.seen[10].end), (9, 0, 41));
    let windowed = &p.classes[1];
    let last = windowed.seen[9];
    assert_eq!((last.first, last.end, last.table, last.page), (160, 260, 0, 4));
    assert_eq!(windowed.seen[10].table, 5);
    assert_eq!(p.ranges(), 15);
    // Ranges wholly behind the window are none.
    let far = [table(0, 0..40), table(28, 0..12)];
    let seq = SeqInput {
        tokens: &[1],
        past: 1100,
        tables: &far,
        outputs: Outputs::Last,
        saves: &[],
        insets: &[],
    };
    p.set([seq].into_iter(), VOCAB, &[Keep::All, Keep::Window(100)], &[40, 12], 4).unwrap();
    assert_eq!(p.classes[0].ranges.len(), 5);
    assert_eq!(p.classes[1].ranges, [(0, 3), (0, 4)]);
}

#[test]
fn contradictions_are_refused() {
    let one = [table(0, 0..1)];
    let seq = |tokens, past, outputs| SeqInput {
        tokens,
        past,
        tables: &one,
        outputs,
        saves: &[],
        insets: &[],
    };
    let mut p = StepInput::default();
    let mut set = |seqs: &[SeqInput<'_>]| {
        p.set(seqs.iter().copied(), VOCAB, &[Keep::All], &[4], 4).unwrap_err()
    };
    let err = set(&[seq(&[], 0, Outputs::None)]);
    assert!(err.to_string().contains("no tokens"));
    let err = set(&[seq(&[1], 32, Outputs::None)]);
    assert!(err.to_string().contains("pages for 32 tokens but needs 33"));
    let err = set(&[seq(&[10], 0, Outputs::None)]);
    assert!(matches!(err, Error::UnknownToken { token: 10, vocab: 10 }));
    let err = set(&[seq(&[1], 0, Outputs::Last), seq(&[1], 0, Outputs::Last)]);
    assert!(err.to_string().contains("shares page 0"));
    let mut set = |table: PageTable, classes: &[Keep]| {
        let tables = [table];
        let seq = SeqInput {
            tokens: &[1],
            past: 163,
            tables: &tables,
            outputs: Outputs::None,
            saves: &[],
            insets: &[],
        };
        p.set([seq].into_iter(), VOCAB, classes, &[4; 2], 4).map_err(|e| e.to_string())
    };
    let refused = set(table(3, 0..3), &[Keep::Window(69)]).unwrap_err();
    assert!(refused.contains("pages from token 96 but sees token 95"), "{refused}");
    set(table(3, 0..3), &[Keep::Window(68)]).unwrap();
    let refused = set(table(3, 0..3), &[Keep::All, Keep::Window(68)]).unwrap_err();
    assert!(refused.contains("page tables for 1 KV classes of 2"), "{refused}");
    let refused = set(table(0, 3..9), &[Keep::All]).unwrap_err();
    assert!(refused.contains("names page 4 of 4"), "{refused}");
    let refused = set(table(0, 0..0), &[Keep::Fixed]).unwrap_err();
    assert!(refused.contains("0 states but needs one"), "{refused}");
    let refused = set(table(0, 4..5), &[Keep::Fixed]).unwrap_err();
    assert!(refused.contains("names page 4 of 4"), "{refused}");
    set(table(0, 3..4), &[Keep::Fixed]).unwrap();
}

#[test]
fn a_state_of_fixed_size_has_one_page_and_all_tokens_of_its_sequence() {
    let tables = [[table(0, 5..6)], [table(0, 2..3)]];
    let seq = |tokens, past, at: usize| SeqInput {
        tokens,
        past,
        tables: &tables[at],
        outputs: Outputs::Last,
        saves: &[],
        insets: &[],
    };
    let mut p = StepInput::default();
    let seqs = [seq(&[1, 2, 3], 0, 0), seq(&[4], 900, 1)];
    p.set(seqs.into_iter(), VOCAB, &[Keep::Fixed], &[6], 4).unwrap();
    let run = |tokens, page, fresh| StateRun { tokens, page: PageId(page), fresh, saves: 0..0 };
    assert_eq!(p.classes[0].sequences, [run(0..3, 5, true), run(3..4, 2, false)]);
    let same = [seq(&[1], 0, 0), seq(&[4], 900, 0)];
    let err = p.set(same.into_iter(), VOCAB, &[Keep::Fixed], &[6], 4).unwrap_err();
    assert!(err.to_string().contains("shares page 5"), "{err}");
}

#[test]
fn a_state_is_kept_behind_tokens_of_the_step() {
    let tables = [[table(0, 5..6)], [table(0, 2..3)]];
    let save = |len, page| Save { len, pages: vec![Some(PageId(page))] };
    // Of the first sequence one was made before, one is within, one at the end, one comes later.
    let saves = [save(10, 0), save(12, 1), save(14, 3), save(20, 4)];
    let seq = |tokens, past, at: usize, saves| SeqInput {
        tokens,
        past,
        tables: &tables[at],
        outputs: Outputs::Last,
        saves,
        insets: &[],
    };
    let mut p = StepInput::default();
    let seqs = [seq(&[4], 900, 1, &[]), seq(&[1, 2, 3, 4], 10, 0, &saves)];
    p.set(seqs.into_iter(), VOCAB, &[Keep::Fixed], &[6], 4).unwrap();
    let class = &p.classes[0];
    let parts = |at: usize| class.sequences[at].parts(class).collect::<Vec<_>>();
    assert_eq!(parts(0), [(0..1, None)]);
    assert_eq!(parts(1), [(1..3, Some(PageId(1))), (3..5, Some(PageId(3)))]);
    let own = [save(11, 5)];
    let err = p.set([seq(&[1, 2], 10, 0, &own)].into_iter(), VOCAB, &[Keep::Fixed], &[6], 4);
    assert!(err.unwrap_err().to_string().contains("shares page 5"));
}
