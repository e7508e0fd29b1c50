//! Files with one fault each: every one gives its own error, none a panic.

use arclight_gguf::{Error, Gguf, TYPES, TensorType, Value, Writer};
use proptest::prelude::*;

const HEADER: usize = 4 + 4 + 8 + 8;

/// A file put together by hand, so that every field can be wrong.
struct File {
    magic: [u8; 4],
    version: u32,
    tensor_count: Option<u64>,
    entry_count: Option<u64>,
    entries: Vec<Vec<u8>>,
    tensors: Vec<Vec<u8>>,
    data: Vec<u8>,
    alignment: usize,
}

fn string(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let bytes = bytes.as_ref();
    [&(bytes.len() as u64).to_le_bytes(), bytes].concat()
}

fn entry(key: impl AsRef<[u8]>, ty: u32, value: &[u8]) -> Vec<u8> {
    [&string(key), &ty.to_le_bytes()[..], value].concat()
}

/// An array value: element type, length, elements.
fn array(ty: u32, len: u64, elements: &[u8]) -> Vec<u8> {
    [&ty.to_le_bytes()[..], &len.to_le_bytes(), elements].concat()
}

fn tensor(name: impl AsRef<[u8]>, dims: &[u64], ty: u32, offset: u64) -> Vec<u8> {
    let mut bytes = string(name);
    bytes.extend((dims.len() as u32).to_le_bytes());
    bytes.extend(dims.iter().flat_map(|d| d.to_le_bytes()));
    bytes.extend(ty.to_le_bytes());
    bytes.extend(offset.to_le_bytes());
    bytes
}

const F32: u32 = 0;
const Q4_0: u32 = 2;
const U32: u32 = 4;
const BOOL: u32 = 7;
const STR: u32 = 8;
const ARRAY: u32 = 9;

impl File {
    /// A sound file: an entry of each kind, two tensors, 64 bytes of data.
    fn good() -> Self {
        File {
            magic: *b"GGUF",
            version: 3,
            tensor_count: None,
            entry_count: None,
            entries: vec![
                entry("arch", STR, &string("test")),
                entry("on", BOOL, &[1]),
                entry("words", ARRAY, &array(STR, 2, &[string("a"), string("bc")].concat())),
                entry("flags", ARRAY, &array(BOOL, 3, &[1, 0, 1])),
                entry("nest", ARRAY, &array(ARRAY, 1, &array(U32, 1, &[1, 0, 0, 0]))),
            ],
            tensors: vec![tensor("a", &[4, 2], F32, 0), tensor("b", &[32, 1], Q4_0, 32)],
            data: vec![0; 50],
            alignment: 32,
        }
    }

    fn with(entry: Vec<u8>) -> Self {
        let mut file = Self::good();
        file.entries.push(entry);
        file
    }

    fn with_tensor(tensor: Vec<u8>) -> Self {
        let mut file = Self::good();
        file.data.resize(128, 0);
        file.tensors.push(tensor);
        file
    }

    /// Where entry `i` starts.
    fn entry_offset(&self, i: usize) -> u64 {
        (HEADER + self.entries[..i].iter().map(Vec::len).sum::<usize>()) as u64
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = self.magic.to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend(self.tensor_count.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.entry_count.unwrap_or(self.entries.len() as u64).to_le_bytes());
        out.extend(self.entries.concat());
        out.extend(self.tensors.concat());
        out.resize(out.len().next_multiple_of(self.alignment), 0);
        out.extend(&self.data);
        out
    }

    fn error(&self) -> Error {
        Gguf::parse(&self.bytes()).expect_err("a fault")
    }
}

/// Asserts that a file gives an error of this pattern.
macro_rules! refused {
    ($file:expr, $($pattern:tt)+) => {{
        let error = $file.error();
        let text = format!("{error}: {error:?}");
        assert!(matches!(error, $($pattern)+), "{text}");
    }};
}

#[test]
fn the_file_that_the_others_are_made_from_is_sound() {
    let bytes = File::good().bytes();
    let gguf = Gguf::parse(&bytes).unwrap();
    assert_eq!((gguf.metadata().len(), gguf.tensors().len()), (5, 2));
}

#[test]
fn cut_anywhere_it_is_an_error() {
    let bytes = File::good().bytes();
    for len in 0..bytes.len() {
        match Gguf::parse(&bytes[..len]) {
            Err(Error::Truncated { offset, needed, available, .. }) => {
                assert_eq!(offset + available, len as u64);
                assert!(needed > available);
            }
            Err(Error::CountTooLarge { count, most, .. }) => assert!(count > most),
            Err(Error::DataOutOfBounds { needed, available, .. }) => assert!(needed > available),
            other => panic!("cut at {len}: {other:?}"),
        }
    }
}

#[test]
fn magic_and_version() {
    refused!(File { magic: *b"ggml", ..File::good() }, Error::BadMagic { found } if &found == b"ggml");
    refused!(File { magic: [0; 4], ..File::good() }, Error::BadMagic { .. });
    refused!(File { magic: *b"FUGG", ..File::good() }, Error::BigEndian { offset: 0 });
    for version in [2u32, 3] {
        let version = version.swap_bytes();
        refused!(File { version, ..File::good() }, Error::BigEndian { offset: 4 });
    }
    for version in [0, 1, 4, u32::MAX] {
        refused!(
            File { version, ..File::good() },
            Error::UnsupportedVersion { version: v } if v == version
        );
    }
}

#[test]
fn huge_counts() {
    // One too many: tensors are read as metadata, data as tensors.
    File { entry_count: Some(6), ..File::good() }.error();
    refused!(File { tensor_count: Some(3), ..File::good() }, Error::BadDimCount { found: 0, .. });
    for count in [1 << 32, 1 << 60, u64::MAX] {
        refused!(
            File { tensor_count: Some(count), ..File::good() },
            Error::CountTooLarge { offset: 8, .. }
        );
        refused!(
            File { entry_count: Some(count), ..File::good() },
            Error::CountTooLarge { offset: 16, .. }
        );
        for ty in 0..13 {
            let file = File::with(entry("k", ARRAY, &array(ty, count, &[])));
            refused!(file, Error::CountTooLarge { what, .. } if what == "value of key \"k\"");
        }
    }
}

#[test]
fn keys() {
    let file = File::with(entry("arch", STR, &string("again")));
    let at = file.entry_offset(5);
    refused!(file, Error::DuplicateKey { key, offset } if key == "arch" && offset == at);
    refused!(File::with(entry(b"\xff", BOOL, &[0])), Error::NameNotUtf8 { .. });
    refused!(
        File::with(entry("k".repeat(65536), BOOL, &[0])),
        Error::NameTooLong { length: 65536, .. }
    );
    let longest = File::with(entry("k".repeat(65535), BOOL, &[0])).bytes();
    assert!(Gguf::parse(&longest).is_ok());
    for length in [1 << 40, u64::MAX] {
        let mut key = entry("k", BOOL, &[0]);
        key[..8].copy_from_slice(&u64::to_le_bytes(length));
        refused!(File::with(key), Error::NameTooLong { .. });
    }
    let mut key = entry("k", BOOL, &[0]);
    key[..8].copy_from_slice(&60000u64.to_le_bytes());
    refused!(File::with(key), Error::Truncated { needed: 60000, .. });
}

#[test]
fn values() {
    for id in [13, 255, u32::MAX] {
        refused!(File::with(entry("k", id, &[])), Error::UnknownValueType { id: i, .. } if i == id);
        let file = File::with(entry("k", ARRAY, &array(id, 0, &[])));
        refused!(file, Error::UnknownValueType { id: i, .. } if i == id);
    }
    for length in [1 << 20, i64::MAX as u64, u64::MAX - 7, u64::MAX] {
        let value = length.to_le_bytes();
        refused!(File::with(entry("k", STR, &value)), Error::Truncated { needed, .. } if needed == length);
        let file = File::with(entry("k", ARRAY, &array(STR, 1, &value)));
        refused!(file, Error::Truncated { needed, .. } if needed == length);
    }
}

/// ggml takes every byte but 0 for true.
#[test]
fn booleans_of_other_bytes_are_true_and_named() {
    let mut file = File::good();
    let flags = array(BOOL, 4, &[0, 255, 1, 3]);
    let nested = array(ARRAY, 2, &[array(BOOL, 1, &[1]), array(BOOL, 2, &[0, 9])].concat());
    file.entries.push(entry("odd", BOOL, &[2]));
    file.entries.push(entry("odd.flags", ARRAY, &flags));
    file.entries.push(entry("odd.nested", ARRAY, &nested));
    file.entries.push(entry("even", BOOL, &[0]));
    // Bytes above 1 are common in values of other types.
    file.entries.push(entry("text", STR, &string([7, 7])));
    file.entries.push(entry("bytes", ARRAY, &array(0, 2, &[7, 7])));
    let bytes = file.bytes();
    let gguf = Gguf::parse(&bytes).unwrap();
    let metadata = gguf.metadata();
    assert_eq!(metadata.odd_bools(), [("odd", 2), ("odd.flags", 255), ("odd.nested", 9)]);
    assert_eq!((metadata.bool("odd").unwrap(), metadata.bool("even").unwrap()), (true, false));
    let values: Vec<Value<'_>> = metadata.array("odd.flags").unwrap().values().collect();
    assert_eq!(values, [false, true, true, true].map(Value::Bool));
    assert_eq!(metadata.get("odd.nested").unwrap().to_string(), "[[true], [false, true]]");
    let even = File::good().bytes();
    assert!(Gguf::parse(&even).unwrap().metadata().odd_bools().is_empty());
}

#[test]
fn nested_arrays_have_a_limit() {
    let nest = |depth: usize| {
        let mut value = array(ARRAY, 1, &[]).repeat(depth - 1);
        value.extend(array(U32, 1, &[7, 0, 0, 0]));
        File::with(entry("k", ARRAY, &value))
    };
    let bytes = nest(4).bytes();
    let gguf = Gguf::parse(&bytes).unwrap();
    assert_eq!(gguf.metadata().get("k").unwrap().to_string(), "[[[[7]]]]");
    refused!(nest(5), Error::NestedTooDeep { limit: 4, .. });
    refused!(nest(100_000), Error::NestedTooDeep { .. });
}

#[test]
fn alignment() {
    let file =
        |alignment: u32| File::with(entry("general.alignment", U32, &alignment.to_le_bytes()));
    for value in [0, 3, 33, u32::MAX] {
        let file = file(value);
        let at = file.entry_offset(5);
        refused!(file, Error::BadAlignment { value: v, offset } if v == value && offset == at);
    }
    for value in [1, 2, 4, 8, 16] {
        let file = File { alignment: value as usize, ..file(value) };
        assert_eq!(Gguf::parse(&file.bytes()).unwrap().alignment(), value);
    }
    refused!(file(64), Error::Misaligned { alignment: 64, offset: 32, .. });
    refused!(file(1 << 31), Error::DataOutOfBounds { .. } | Error::Misaligned { .. });
    let text = File::with(entry("general.alignment", STR, &string("32")));
    refused!(text, Error::WrongType { .. });
    let wide = File::with(entry("general.alignment", 10, &u64::MAX.to_le_bytes()));
    refused!(wide, Error::OutOfRange { .. });
}

#[test]
fn tensor_names() {
    refused!(
        File::with_tensor(tensor("a", &[1], F32, 64)),
        Error::DuplicateTensor { tensor, .. } if tensor == "a"
    );
    refused!(File::with_tensor(tensor(b"\xc3", &[1], F32, 64)), Error::NameNotUtf8 { .. });
    refused!(
        File::with_tensor(tensor("t".repeat(65536), &[1], F32, 64)),
        Error::NameTooLong { .. }
    );
}

#[test]
fn shapes() {
    let of = |dims: &[u64], ty| File::with_tensor(tensor("t", dims, ty, 64));
    assert!(Gguf::parse(&of(&[2, 2, 2, 2], F32).bytes()).is_ok());
    refused!(of(&[], F32), Error::BadDimCount { found: 0, .. });
    refused!(of(&[1; 5], F32), Error::BadDimCount { found: 5, .. });
    let mut many = tensor("t", &[1], F32, 64);
    many[9..13].copy_from_slice(&u32::MAX.to_le_bytes());
    refused!(File::with_tensor(many), Error::BadDimCount { found: 0xFFFF_FFFF, .. });
    for dim in 0..4 {
        let mut dims = [1; 4];
        dims[dim] = 0;
        refused!(of(&dims, F32), Error::ZeroDim { dim: d, .. } if d == dim);
    }
    // The zero must not hide the overflow of the others, nor the other way round.
    refused!(of(&[u64::MAX, u64::MAX, 0], F32), Error::ZeroDim { dim: 2, .. });
    for dims in [
        &[u64::MAX, 2][..],
        &[1 << 32, 1 << 32],
        &[1 << 16, 1 << 16, 1 << 16, 1 << 16],
        &[1 << 62],
        // The product is 4 modulo 2^64.
        &[4, (1 << 63) + 1, 2],
    ] {
        refused!(of(dims, F32), Error::ShapeTooLarge { .. });
    }
    refused!(of(&[1 << 60], Q4_0), Error::DataOutOfBounds { .. });
    refused!(of(&[16, 2], Q4_0), Error::PartialBlock { cols: 16, ty: TensorType::Q4_0, .. });
    for info in TYPES.iter().filter(|info| info.block_len > 1) {
        let cols = info.block_len as u64 + 1;
        refused!(of(&[cols], info.id), Error::PartialBlock { .. });
    }
}

#[test]
fn types() {
    let of = |ty| File::with_tensor(tensor("blk.0.ffn", &[256], ty, 64));
    for (id, name) in [(4, "Q4_2"), (9, "Q8_1"), (26, "I32"), (36, "IQ4_NL_4_4"), (41, "Q1_0")] {
        let error = of(id).error();
        assert!(matches!(error, Error::UnsupportedType { name: n, .. } if n == name), "{error}");
        let text = error.to_string();
        assert!(
            text.contains(name) && text.contains("blk.0.ffn") && text.contains("Q4_K"),
            "{text}"
        );
    }
    for id in [999, u32::MAX] {
        refused!(of(id), Error::UnknownType { id: i, .. } if i == id);
    }
}

#[test]
fn a_survey_shows_tensors_of_other_types() {
    let mut file = File::good();
    // Behind `a` and `b` of the sound file, and one between them in the data section.
    file.data.resize(256, 0);
    file.tensors.push(tensor("old", &[32, 2], 31, 64));
    file.tensors.push(tensor("c", &[8], F32, 128));
    file.tensors.push(tensor("new", &[7, 3], 1000, 192));
    let bytes = file.bytes();
    let gguf = Gguf::survey(&[&bytes]).unwrap();
    let names: Vec<&str> = gguf.tensors().iter().map(|tensor| tensor.name()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    let [old, new] = gguf.others() else { panic!("{:?}", gguf.others()) };
    assert_eq!(
        (old.name(), old.type_name(), old.shape.dims(), old.bytes),
        ("old", Some("Q4_0_4_4"), &[32, 2][..], 64)
    );
    assert_eq!((new.name(), new.type_name(), new.type_id, new.bytes), ("new", None, 1000, 64));
    assert!(gguf.tensor("c").is_some() && gguf.tensor("old").is_none());
    // To load is to refuse, with the first one's name.
    refused!(file, Error::UnsupportedType { tensor, name: "Q4_0_4_4", .. } if tensor == "old");
    let survey = |file: &File| Gguf::survey(&[&file.bytes()]).map(|_| ()).unwrap_err();
    let with = |more| {
        let mut file = File::good();
        file.tensors.push(more);
        survey(&file)
    };
    // Everything else is checked.
    assert!(matches!(with(tensor("a", &[1], 31, 64)), Error::DuplicateTensor { .. }));
    assert!(matches!(with(tensor("t", &[0], 31, 64)), Error::ZeroDim { .. }));
    assert!(matches!(with(tensor("t", &[1 << 40, 1 << 40], 31, 64)), Error::ShapeTooLarge { .. }));
    assert!(matches!(with(tensor("t", &[1], 31, 65)), Error::Misaligned { .. }));
    assert!(matches!(with(tensor("t", &[1], 31, 64)), Error::DataOutOfBounds { needed: 1, .. }));
    assert!(matches!(with(tensor("t", &[1], 31, 1 << 40)), Error::DataOutOfBounds { .. }));
    assert!(matches!(
        survey(&File::with_tensor(tensor("t", &[99], F32, 64))),
        Error::DataOutOfBounds { .. }
    ));
}

#[test]
fn places_of_data() {
    let at = |offset| File::with_tensor(tensor("t", &[8], F32, offset));
    assert!(Gguf::parse(&at(64).bytes()).is_ok());
    assert!(Gguf::parse(&at(96).bytes()).is_ok());
    refused!(at(128), Error::DataOutOfBounds { needed: 32, available: 0, .. });
    refused!(at(1 << 40), Error::DataOutOfBounds { .. });
    refused!(at(u64::MAX - 31), Error::DataOutOfBounds { .. });
    refused!(at(65), Error::Misaligned { offset: 65, alignment: 32, .. });
    refused!(at(u64::MAX), Error::Misaligned { .. });
    refused!(at(32), Error::Overlap { tensor, other, .. } if tensor == "t" && other == "b");
    let around = File::with_tensor(tensor("t", &[32], F32, 0));
    refused!(around, Error::Overlap { .. });
}

#[test]
fn messages_stay_short_and_printable() {
    let name = "\x1b[2J\n".repeat(10_000);
    let text = File::with_tensor(tensor(&name, &[0], F32, 64)).error().to_string();
    assert!(text.len() < 600 && !text.contains(['\x1b', '\n']), "{text}");
    let text = File::with(entry("✓".repeat(20_000), 99, &[])).error().to_string();
    assert!(text.len() < 600, "{text}");
}

/// Reads everything there is to read of a file that parses.
fn walk(bytes: &[u8]) {
    let Ok(gguf) = Gguf::parse(bytes) else { return };
    fn visit(value: &Value<'_>) -> usize {
        match value {
            Value::Array(array) => {
                let values = array.values();
                assert_eq!(values.len(), array.len());
                1 + values.map(|v| visit(&v)).sum::<usize>()
            }
            _ => 1,
        }
    }
    for (key, value) in gguf.metadata().iter() {
        assert_eq!(gguf.metadata().get(key).map(Value::value_type), Some(value.value_type()));
        assert!(visit(value) > 0);
        let _ = (gguf.metadata().opt_u32(key), gguf.metadata().opt_str(key), value.to_string());
        let _ = (gguf.metadata().opt_i32s(key), gguf.metadata().opt_f32s(key));
        if let Ok(Some(strings)) = gguf.metadata().opt_strings(key) {
            assert_eq!(strings.len(), strings.count());
        }
    }
    let mut total = 0;
    for tensor in gguf.tensors() {
        assert!(std::ptr::eq(gguf.tensor(tensor.name()).unwrap(), tensor));
        total += tensor.data.len();
        let last = tensor.row(tensor.rows() - 1);
        let mut values = vec![0.0; tensor.cols()];
        tensor.ty.dequantize(last, &mut values).unwrap();
    }
    assert!(total <= bytes.len(), "tensors overlap");
}

#[test]
fn every_byte_of_a_file_may_be_wrong() {
    let good = File::good().bytes();
    walk(&good);
    for i in 0..good.len() {
        for byte in [0, 1, 2, 0x7F, 0x80, 0xFF, good[i] ^ 1, good[i].wrapping_add(1)] {
            let mut bad = good.clone();
            bad[i] = byte;
            walk(&bad);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4000) })]

    #[test]
    fn mutated_files_never_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = File::good().bytes();
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        walk(&bytes);
    }

    #[test]
    fn mutated_fields_never_panic(
        field in any::<prop::sample::Index>(),
        value in prop_oneof![any::<u64>(), 0..300u64, (0..64u32).prop_map(|s| 1 << s), (0..64u32).prop_map(|s| u64::MAX >> s)],
        width in prop_oneof![Just(4usize), Just(8)],
    ) {
        let mut bytes = File::good().bytes();
        let at = field.index(bytes.len() - width);
        bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
        walk(&bytes);
    }

    #[test]
    fn arbitrary_bytes_after_a_header_never_panic(body in prop::collection::vec(any::<u8>(), 0..400)) {
        walk(&[&b"GGUF\x03\0\0\0"[..], &body].concat());
        walk(&body);
    }

    #[test]
    fn files_of_the_writer_are_always_sound(
        texts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..5),
        rows in prop::collection::vec(1..5usize, 0..6),
        shift in 0..10u32,
    ) {
        let mut writer = Writer::new();
        writer.kv("general.alignment", 1u32 << shift);
        writer.kv("texts", arclight_gguf::OwnedValue::strings(&texts));
        for (i, &rows) in rows.iter().enumerate() {
            let info = TYPES[i % TYPES.len()];
            let data = vec![i as u8; rows * info.block_bytes];
            writer.tensor(format!("t{i}"), &[info.block_len, rows], info.ty, data);
        }
        let mut file = Vec::new();
        writer.write_to(&mut file).unwrap();
        let gguf = Gguf::parse(&file).unwrap();
        prop_assert!(gguf.metadata().strings("texts").unwrap().eq(&texts));
        for (i, tensor) in gguf.tensors().iter().enumerate() {
            prop_assert!(tensor.data.iter().all(|&b| b == i as u8));
            prop_assert_eq!(tensor.rows(), rows[i]);
        }
        walk(&file);
    }
}
