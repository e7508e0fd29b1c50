//! Parses a file and reads everything it offers: no panic, no memory beyond a multiple of the input.
#![no_main]

use gguf::{Gguf, Value};
use libfuzzer_sys::fuzz_target;

/// Largest tensor that is converted, in elements.
const SMALL: usize = 1 << 16;

fn visit(value: &Value<'_>) {
    if let Value::Array(array) = value {
        assert_eq!(array.values().map(|v| visit(&v)).count(), array.len());
    }
}

fuzz_target!(|bytes: &[u8]| {
    let _ = Gguf::parse_split(&[bytes, bytes]);
    let gguf = match Gguf::survey(&[bytes]) {
        Ok(gguf) => gguf,
        Err(error) => {
            assert!(Gguf::parse(bytes).is_err());
            return assert!(error.to_string().len() < 4096);
        }
    };
    assert_eq!(Gguf::parse(bytes).is_ok(), gguf.others().is_empty());
    for other in gguf.others() {
        assert!(other.bytes > 0 && other.offset + other.bytes as u64 <= bytes.len() as u64);
        assert!(gguf.tensor(other.name()).is_none() && other.fault().to_string().len() < 4096);
    }
    let metadata = gguf.metadata();
    for (key, value) in metadata.iter() {
        visit(value);
        let _ = (value.to_string(), metadata.opt_u32(key), metadata.opt_f32(key));
        let _ = (metadata.opt_str(key), metadata.opt_i32s(key), metadata.opt_f32s(key));
        if let Ok(Some(strings)) = metadata.opt_strings(key) {
            assert_eq!(strings.len(), strings.count());
        }
    }
    let mut total = 0;
    for tensor in gguf.tensors() {
        assert_eq!(gguf.tensor(tensor.name()), Some(tensor));
        assert_eq!(tensor.row_bytes() * tensor.rows(), tensor.data.len());
        total += tensor.data.len();
        if tensor.elements() <= SMALL {
            let mut values = vec![0.0; tensor.elements()];
            tensor.ty.dequantize(tensor.data, &mut values).unwrap();
        }
    }
    assert!(total <= bytes.len());
});
