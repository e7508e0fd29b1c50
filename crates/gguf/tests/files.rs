//! Whole files: those of our writer, of the Python package, and of split models.

use std::io::Write;

use arclight_gguf::{
    Array, Error, Gguf, Metadata, OwnedValue, TensorType, Value, ValueType, Writer,
};

fn written(writer: &mut Writer<'_>) -> Vec<u8> {
    let mut file = Vec::new();
    writer.write_to(&mut file).unwrap();
    file
}

/// What `vectors/make.py` put into its file, read through the getters.
#[test]
fn a_file_of_the_python_writer_is_read_in_full() {
    let file = include_bytes!("vectors/python.gguf");
    let gguf = Gguf::parse(file).unwrap();
    let m = gguf.metadata();
    assert_eq!(gguf.version(), 3);
    assert_eq!(gguf.alignment(), 64);
    assert_eq!(m.iter().next().unwrap(), ("general.architecture", &Value::Str(b"test")));
    let scalars = [
        ("u8", Value::U8(200)),
        ("i8", Value::I8(-100)),
        ("u16", Value::U16(60000)),
        ("i16", Value::I16(-30000)),
        ("u32", Value::U32(4_000_000_000)),
        ("i32", Value::I32(-2_000_000_000)),
        ("u64", Value::U64(1 << 63)),
        ("i64", Value::I64(-(1 << 62))),
        ("f32", Value::F32(0.15625)),
        ("f64", Value::F64(0.1)),
        ("bool", Value::Bool(true)),
        ("string", Value::Str("naïve ✓".as_bytes())),
    ];
    for (key, want) in scalars {
        assert_eq!(m.get(&format!("scalar.{key}")), Some(&want), "{key}");
    }
    assert_eq!(m.i32s("array.u8").unwrap(), [1, 2, 255]);
    assert_eq!(m.i32s("array.i32").unwrap(), [1, -2, 3]);
    assert_eq!(m.array("array.u64").unwrap().ints().unwrap().collect::<Vec<_>>(), [1 << 40]);
    assert_eq!(m.f32s("array.f32").unwrap(), [0.5, -1.25]);
    assert_eq!(m.array("array.f64").unwrap().floats().unwrap().collect::<Vec<_>>(), [0.1]);
    let bools: Vec<_> = m.array("array.bool").unwrap().values().collect();
    assert_eq!(bools, [Value::Bool(true), Value::Bool(false), Value::Bool(true)]);
    let strings: Vec<_> = m.strings("array.string").unwrap().collect();
    assert_eq!(strings, [b"", b"a".as_slice(), "naïve ✓".as_bytes()]);
    let bytes: Vec<_> = m.strings("array.bytes").unwrap().collect();
    assert_eq!(bytes, [b"\xe2\x9c".as_slice(), b"\xff"]);

    assert_eq!(gguf.tensors().len(), 3);
    let one = gguf.tensor("one").unwrap();
    assert_eq!((one.ty, one.shape.dims(), one.rows()), (TensorType::F32, &[3][..], 1));
    let mut values = [0.0; 3];
    one.ty.dequantize(one.data, &mut values).unwrap();
    assert_eq!(values, [0.0, 1.0, 2.0]);
    let cube = gguf.tensor("cube").unwrap();
    assert_eq!((cube.shape.dims(), cube.rows(), cube.cols()), (&[4, 3, 2][..], 6, 4));
    let mut values = [0.0; 4];
    cube.ty.dequantize(cube.row(5), &mut values).unwrap();
    assert_eq!(values, [2.5, 2.625, 2.75, 2.875]);
    let quantised = gguf.tensor("quantised").unwrap();
    assert_eq!((quantised.ty, quantised.rows(), quantised.row_bytes()), (TensorType::Q8_0, 2, 68));
    for tensor in gguf.tensors() {
        assert_eq!(tensor.offset % 64, 0);
        assert_eq!(&file[tensor.offset as usize..][..tensor.data.len()], tensor.data);
    }
}

#[test]
fn what_is_written_is_read_back() {
    // No Rust type converts to a nested array: [[1, 2], []] by hand, in a file of its own.
    let (u8s, array) = (ValueType::U8.id(), ValueType::Array.id());
    let mut by_hand = b"GGUF\x03\0\0\0".to_vec();
    by_hand.extend([0u64, 1, 1].iter().flat_map(|v| v.to_le_bytes()));
    by_hand.extend(b"k");
    by_hand.extend([array, array].iter().flat_map(|v| v.to_le_bytes()));
    by_hand.extend(2u64.to_le_bytes());
    by_hand.extend(u8s.to_le_bytes());
    by_hand.extend(2u64.to_le_bytes());
    by_hand.extend([1, 2]);
    by_hand.extend(u8s.to_le_bytes());
    by_hand.extend(0u64.to_le_bytes());
    let nested = Gguf::parse(&by_hand).unwrap().metadata().array("k").unwrap();
    let streamed = |out: &mut dyn Write| (0..4).try_for_each(|i| out.write_all(&[i; 9]));
    let file = written(
        Writer::new()
            .kv("general.alignment", 128u32)
            .kv("", "an empty key")
            .kv("u8", 1u8)
            .kv("i8", -1i8)
            .kv("u16", 2u16)
            .kv("i16", -2i16)
            .kv("i32", -3i32)
            .kv("u64", u64::MAX)
            .kv("i64", i64::MIN)
            .kv("f32", 1.5f32)
            .kv("f64", -2.5f64)
            .kv("bool", false)
            .kv("bytes", OwnedValue::bytes(b"\xff\0"))
            .kv("empty", Vec::<f32>::new())
            .kv("strings", vec!["a", ""])
            .kv("bools", &[true, false][..])
            .kv("nested", nested)
            .tensor("a", &[3], TensorType::BF16, vec![1; 6])
            .tensor_with("b", &[32, 1, 2, 1], TensorType::Q4_0, streamed)
            .tensor("c", &[1], TensorType::F32, &[2; 4]),
    );
    let gguf = Gguf::parse(&file).unwrap();
    let m = gguf.metadata();
    assert_eq!(gguf.version(), 3);
    assert_eq!(gguf.alignment(), 128);
    let shown: Vec<String> = m.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(
        shown.join(" "),
        "general.alignment=128 =\"an empty key\" u8=1 i8=-1 u16=2 i16=-2 i32=-3 \
         u64=18446744073709551615 i64=-9223372036854775808 f32=1.5 f64=-2.5 bool=false \
         bytes=\"\u{fffd}\\0\" empty=[] strings=[\"a\", \"\"] bools=[true, false] \
         nested=[[1, 2], []]"
    );
    let names: Vec<_> = gguf.tensors().iter().map(|t| (t.name(), t.data.len())).collect();
    assert_eq!(names, [("a", 6), ("b", 36), ("c", 4)]);
    let b = gguf.tensor("b").unwrap();
    assert_eq!(b.shape.dims(), [32, 1, 2, 1]);
    assert_eq!((b.row(0)[0], b.row(1)[0], b.row(1)[17]), (0, 2, 3));
    assert!(gguf.tensors().iter().all(|t| t.offset % 128 == 0));
    assert!(gguf.tensor("d").is_none());

    // Writing what was read gives the same file.
    let mut again = Writer::new();
    for (key, value) in m.iter() {
        again.kv(key, value);
    }
    for t in gguf.tensors() {
        again.tensor(t.name(), t.shape.dims(), t.ty, t.data);
    }
    assert_eq!(written(&mut again), file);
    assert_eq!(written(&mut again), file, "a writer can be used twice");
}

#[test]
fn version_2_is_read() {
    let mut file = written(Writer::new().kv("k", 7u32).tensor("t", &[1], TensorType::F32, &[0; 4]));
    file[4] = 2;
    let gguf = Gguf::parse(&file).unwrap();
    assert_eq!((gguf.version(), gguf.metadata().u32("k").unwrap()), (2, 7));
}

#[test]
fn a_file_of_metadata_alone_needs_no_data_section() {
    let file = written(Writer::new().kv("k", "v"));
    let header = file.len() - file.iter().rev().take_while(|&&b| b == 0).count();
    let gguf = Gguf::parse(&file[..header]).unwrap();
    assert_eq!(gguf.metadata().str("k").unwrap(), "v");
    assert!(gguf.tensors().is_empty());
}

#[test]
fn getters_convert_widths_and_name_the_key() {
    let file = written(
        Writer::new()
            .kv("small", 7u8)
            .kv("negative", -7i64)
            .kv("large", 1u64 << 32)
            .kv("double", 0.5f64)
            .kv("text", "7")
            .kv("bytes", OwnedValue::bytes(b"\xff"))
            .kv("mixed", vec![1i64, -1, 1 << 40])
            .kv("texts", vec!["a"]),
    );
    let gguf = Gguf::parse(&file).unwrap();
    let m: &Metadata<'_> = gguf.metadata();
    assert_eq!((m.len(), m.is_empty()), (8, false));
    assert_eq!(m.u32("small").unwrap(), 7);
    assert_eq!(m.u64("large").unwrap(), 1 << 32);
    assert_eq!(m.i64("negative").unwrap(), -7);
    assert_eq!(m.f32("double").unwrap(), 0.5);
    assert_eq!(m.bytes("bytes").unwrap(), b"\xff");
    assert_eq!(m.opt_u32("absent").unwrap(), None);
    assert_eq!(m.array("texts").map(|a: Array<'_>| (a.len(), a.is_empty())).unwrap(), (1, false));
    for (error, want) in [
        (m.u32("absent").unwrap_err(), "metadata key \"absent\" is missing"),
        (m.u32("large").unwrap_err(), "holds 4294967296, which does not fit u32"),
        (m.u64("negative").unwrap_err(), "holds -7, which does not fit u64"),
        (m.u32("text").unwrap_err(), "key \"text\" at offset 121 is string, expected integer"),
        (m.opt_f32("small").unwrap_err(), "is u8, expected float"),
        (m.opt_bool("small").unwrap_err(), "is u8, expected bool"),
        (m.str("bytes").unwrap_err(), "is not valid UTF-8 text"),
        (m.str("texts").unwrap_err(), "is array of string, expected string"),
        (m.i32s("mixed").unwrap_err(), "holds 1099511627776, which does not fit array of i32"),
        (m.u32s("mixed").unwrap_err(), "holds -1, which does not fit array of u32"),
        (m.f32s("mixed").unwrap_err(), "is array of i64, expected array of floats"),
        (m.opt_i32s("texts").unwrap_err(), "is array of string, expected array of i32"),
        (m.opt_strings("text").err().unwrap(), "is string, expected array of strings"),
    ] {
        assert!(error.to_string().contains(want), "{error}");
    }
}

#[test]
#[should_panic(expected = "row 2 of tensor \"t\" with 2 rows")]
fn a_row_beyond_the_last_is_a_bug_of_the_caller() {
    let file = written(Writer::new().tensor("t", &[1, 2], TensorType::F32, &[0; 8]));
    Gguf::parse(&file).unwrap().tensor("t").unwrap().row(2);
}

/// Part `no` of `count`, holding tensors of these names.
fn part(no: u16, count: u16, total: i32, names: &[&str]) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.kv("split.no", no).kv("split.count", count).kv("split.tensors.count", total);
    writer.kv("only.in", u32::from(no));
    for name in names {
        writer.tensor(*name, &[2], TensorType::F16, vec![no as u8; 4]);
    }
    written(&mut writer)
}

#[test]
fn a_split_model_is_one_model() {
    let parts = [part(0, 3, 3, &["a"]), part(1, 3, 3, &[]), part(2, 3, 3, &["b", "c"])];
    let gguf = Gguf::parse_split(&[&parts[0], &parts[1], &parts[2]]).unwrap();
    assert_eq!(gguf.metadata().u32("only.in").unwrap(), 0);
    let places: Vec<_> = gguf.tensors().iter().map(|t| (t.name(), t.part, t.data[0])).collect();
    assert_eq!(places, [("a", 0, 0), ("b", 2, 2), ("c", 2, 2)]);
    assert_eq!(gguf.tensor("c").unwrap().name(), "c");
}

#[test]
fn a_whole_file_is_a_split_model_of_one_part() {
    let plain = written(Writer::new().kv("k", 1u32));
    assert!(Gguf::parse_split(&[&plain]).is_ok());
    let one = part(0, 1, 1, &["a"]);
    assert!(Gguf::parse_split(&[&one]).is_ok());
    assert!(Gguf::parse(&one).is_ok());
}

#[test]
fn parts_that_do_not_belong_together_are_refused() {
    let good = [part(0, 2, 2, &["a"]), part(1, 2, 2, &["b"])];
    let split = |parts: &[&[u8]]| Gguf::parse_split(parts).unwrap_err();

    assert!(matches!(split(&[]), Error::NoParts));
    let lone = Gguf::parse(&good[0]).unwrap_err();
    assert!(matches!(lone, Error::LonePart { part: 0, count: 2 }), "{lone}");
    let mut absurd = Writer::new();
    let absurd = written(absurd.kv("split.no", u64::MAX).kv("split.count", u64::MAX));
    let text = Gguf::parse(&absurd).unwrap_err().to_string();
    assert!(
        text.starts_with("file is part 18446744073709551615 of 18446744073709551615"),
        "{text}"
    );

    let mismatch = |parts: &[&[u8]]| match split(parts) {
        Error::SplitMismatch { part, key, found, expected } => (part, key, found, expected),
        other => panic!("{other}"),
    };
    assert_eq!(mismatch(&[&good[0]]), (0, "split.count", 2, 1));
    assert_eq!(mismatch(&[&good[1], &good[0]]), (0, "split.no", 1, 0));
    assert_eq!(mismatch(&[&good[0], &good[0]]), (1, "split.no", 0, 1));
    let other_total = part(1, 2, 3, &["b"]);
    assert_eq!(mismatch(&[&good[0], &other_total]), (1, "split.tensors.count", 3, 2));
    let incomplete = part(1, 2, 2, &[]);
    assert_eq!(mismatch(&[&good[0], &incomplete]), (0, "split.tensors.count", 2, 1));

    let twin = part(1, 2, 2, &["a"]);
    let error = split(&[&good[0], &twin]);
    assert!(matches!(error, Error::DuplicateTensor { ref tensor, .. } if tensor == "a"), "{error}");

    let stranger = written(Writer::new().kv("k", 1u32));
    let error = split(&[&good[0], &stranger]);
    assert_eq!(error.to_string(), "part 2: metadata key \"split.count\" is missing");
    let error = split(&[&good[0], &good[1][..20]]);
    assert!(matches!(error, Error::InPart { part: 1, .. }), "{error}");
}

#[test]
fn the_writer_refuses_what_the_reader_would() {
    let f32s = TensorType::F32;
    let fails = |writer: &mut Writer<'_>| {
        let mut out = Vec::new();
        let error = writer.write_to(&mut out).unwrap_err();
        assert!(out.is_empty(), "nothing is written before the check");
        error
    };
    let mut w = Writer::new();
    assert!(matches!(fails(w.kv("k", 1u8).kv("k", 2u8)), Error::DuplicateKey { .. }));
    let mut w = Writer::new();
    assert!(matches!(fails(w.kv("k".repeat(65536), 1u8)), Error::NameTooLong { .. }));
    let mut w = Writer::new();
    assert!(matches!(fails(w.kv("general.alignment", 48u32)), Error::BadAlignment { .. }));
    let mut w = Writer::new();
    assert!(matches!(fails(w.kv("general.alignment", 64u64)), Error::WrongType { .. }));

    let tensor = |dims: &[usize], ty, bytes: usize| {
        fails(Writer::new().tensor("t", dims, ty, vec![0; bytes]))
    };
    assert!(matches!(tensor(&[], f32s, 0), Error::BadDimCount { found: 0, .. }));
    assert!(matches!(tensor(&[1; 5], f32s, 4), Error::BadDimCount { found: 5, .. }));
    assert!(matches!(tensor(&[1, 0], f32s, 0), Error::ZeroDim { dim: 1, .. }));
    assert!(matches!(tensor(&[usize::MAX, 2], f32s, 0), Error::ShapeTooLarge { .. }));
    assert!(matches!(tensor(&[usize::MAX], f32s, 0), Error::ShapeTooLarge { .. }));
    assert!(matches!(tensor(&[31], TensorType::Q4_0, 18), Error::PartialBlock { .. }));
    assert!(matches!(tensor(&[3], f32s, 11), Error::WrongDataLength { found: 11, needed: 12, .. }));
    let mut w = Writer::new();
    w.tensor("t", &[1], f32s, vec![0; 4]).tensor("t", &[1], f32s, vec![0; 4]);
    assert!(matches!(fails(&mut w), Error::DuplicateTensor { .. }));

    let mut w = Writer::new();
    w.tensor_with("t", &[3], f32s, |out| out.write_all(&[0; 13]));
    let error = w.write_to(std::io::sink()).unwrap_err();
    assert!(matches!(error, Error::WrongDataLength { found: 13, needed: 12, .. }));
}

#[test]
fn a_writer_passes_on_faults_of_its_output() {
    let mut w = Writer::new();
    let error = w.kv("k", "v").write_to(&mut [0u8; 10][..]).unwrap_err();
    assert!(matches!(error, Error::Io(_)), "{error}");
}
