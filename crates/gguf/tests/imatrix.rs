//! Importance matrix files of both formats, whole and broken.

use arclight_gguf::{Error, Importances, OwnedValue, TensorType, Writer};
use proptest::prelude::*;

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// A tensor's name, dimensions and values.
type Numbers<'a> = (&'a str, &'a [usize], &'a [f32]);

/// A file in the current format.
fn current(tensors: &[Numbers<'_>]) -> Vec<u8> {
    let mut writer = Writer::new();
    writer
        .kv("general.type", "imatrix")
        .kv("imatrix.datasets", OwnedValue::strings(["wiki.txt", "code.txt"]))
        .kv("imatrix.chunk_count", 12u32)
        .kv("imatrix.chunk_size", 512u32);
    for (name, dims, values) in tensors {
        writer.tensor(*name, dims, TensorType::F32, floats(values));
    }
    let mut file = Vec::new();
    writer.write_to(&mut file).unwrap();
    file
}

/// Name, calls and sums of an entry of the old format.
type Entry<'a> = (&'a str, i32, &'a [f32]);

/// A file in the old format, without what may follow the entries.
fn old(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut file = (entries.len() as i32).to_le_bytes().to_vec();
    for (name, calls, sums) in entries {
        file.extend((name.len() as i32).to_le_bytes());
        file.extend(name.bytes());
        file.extend(calls.to_le_bytes());
        file.extend((sums.len() as i32).to_le_bytes());
        file.extend(floats(sums));
    }
    file
}

fn fault(file: &[u8]) -> Error {
    Importances::parse(file).unwrap_err()
}

#[test]
fn sums_are_divided_by_counts_expert_by_expert() {
    let file = current(&[
        ("a.in_sum2", &[2, 3], &[2.0, 4.0, 9.0, 3.0, 5.0, 7.0]),
        ("a.counts", &[1, 3], &[2.0, 3.0, 0.0]),
        ("b.counts", &[1, 1], &[4.0]),
        ("b.in_sum2", &[3], &[4.0, 0.0, 1.0]),
        ("remark", &[1], &[f32::NAN]),
    ]);
    let read = Importances::parse(&file).unwrap();
    // An expert that was never reached counts 1.
    assert_eq!(read.get("a"), Some(&[1.0, 2.0, 3.0, 1.0, 1.0, 1.0][..]));
    assert_eq!(read.get("b"), Some(&[1.0, 0.0, 0.25][..]));
    assert_eq!((read.get("c"), read.len(), read.is_empty()), (None, 2, false));
    assert_eq!((read.datasets(), read.chunks()), (&["wiki.txt".into(), "code.txt".into()][..], 12));
}

#[test]
fn the_old_format_has_means_of_calls_and_perhaps_a_source() {
    let mut file = old(&[("a", 4, &[4.0, 8.0]), ("b", 0, &[3.0])]);
    let read = Importances::parse(&file).unwrap();
    assert_eq!((read.get("a"), read.get("b")), (Some(&[1.0, 2.0][..]), Some(&[3.0][..])));
    assert_eq!((read.datasets().len(), read.chunks()), (0, 0));
    file.extend(9i32.to_le_bytes());
    assert_eq!(Importances::parse(&file).unwrap().chunks(), 9);
    file.extend(3i32.to_le_bytes());
    file.extend(b"txt");
    let read = Importances::parse(&file).unwrap();
    assert_eq!((read.datasets(), read.chunks()), (&["txt".into()][..], 9));
}

#[test]
fn faults_are_named() {
    let sums: Numbers<'_> = ("a.in_sum2", &[4], &[1.0; 4]);
    let cases: [(&[Numbers<'_>], &str); 6] = [
        (&[sums], "a.counts is missing"),
        (&[("a.counts", &[1], &[1.0])], "a.in_sum2 is missing"),
        (&[sums, ("a.counts", &[3], &[1.0; 3])], "4 sums cannot be shared by 3"),
        (&[sums, ("a.counts", &[1], &[f32::NAN])], "number 0 is NaN"),
        (&[("a.counts", &[1], &[2.0]), ("a.in_sum2", &[2], &[0.0, -1.0])], "number 1 is -0.5"),
        (&[("b", &[1], &[1.0])], "no entries"),
    ];
    for (tensors, part) in cases {
        let fault = fault(&current(tensors)).to_string();
        assert!(fault.contains(part), "{fault}");
    }
    let old_cases = [
        (old(&[]), "no entries"),
        (old(&[("a", 1, &[f32::INFINITY])]), "number 0 is inf"),
        (old(&[("a", 1, &[1.0]), ("a", 1, &[1.0])]), "duplicate tensor \"a\""),
        (b"Once upon a time there was".to_vec(), "it begins with \"Once\""),
        (b"ab".to_vec(), "it begins with \"ab\""),
        (Vec::new(), "it begins with \"\""),
    ];
    for (file, part) in old_cases {
        let fault = fault(&file).to_string();
        assert!(fault.contains(part), "{fault}");
    }
    // Any other GGUF file.
    let mut model = Vec::new();
    Writer::new().kv("general.architecture", "qwen3").write_to(&mut model).unwrap();
    assert!(matches!(fault(&model), Error::MissingKey { .. }));
    let mut halves = Vec::new();
    Writer::new()
        .kv("imatrix.datasets", OwnedValue::strings(["wiki.txt"]))
        .kv("imatrix.chunk_count", 1u32)
        .tensor("a.in_sum2", &[1], TensorType::F16, &[0u8; 2])
        .tensor("a.counts", &[1], TensorType::F32, &[0u8; 4])
        .write_to(&mut halves)
        .unwrap();
    assert!(fault(&halves).to_string().contains("\"a.in_sum2\" are F16"));
}

#[test]
fn every_cut_of_an_old_file_is_an_error_or_lacks_its_source() {
    let mut file = old(&[("blk.0.attn_q.weight", 4, &[4.0, 8.0]), ("b", 1, &[3.0])]);
    let entries = file.len();
    file.extend(9i32.to_le_bytes());
    file.extend(3i32.to_le_bytes());
    file.extend(b"txt");
    for cut in 0..file.len() {
        let read = Importances::parse(&file[..cut]);
        let whole = [entries, entries + 4].contains(&cut);
        assert_eq!(read.is_ok(), whole, "cut at {cut}");
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_no_harm(mut bytes in prop::collection::vec(any::<u8>(), 0..400), entries in 0u8..4) {
        if let Some(count) = bytes.first_chunk_mut::<4>() {
            *count = [entries, 0, 0, 0];
        }
        let _ = Importances::parse(&bytes);
    }
}
