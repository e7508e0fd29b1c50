//! The head of a file of tensors: 8 bytes of length, JSON, then the data.
//!
//! Read here and not by a crate: it is one length and one object, and what is wrong with it is told by file and
//! tensor.

use crate::dtype::Dtype;
use serde_json::Value;
use std::ops::Range;

/// No head is longer.
const MAX_HEAD: u64 = 100 << 20;

/// A tensor as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    /// Outermost dimension first.
    pub(crate) shape: Vec<usize>,
    /// Bytes of the file.
    pub(crate) bytes: Range<usize>,
}

/// All tensors of a file, in the order of their data.
///
/// # Errors
/// What is wrong, for a person; whoever calls names the file.
pub(crate) fn entries(file: &[u8]) -> Result<Vec<Entry>, String> {
    let Some((length, rest)) = file.split_first_chunk::<8>() else {
        return Err(format!("it is no safetensors file: it has {} bytes", file.len()));
    };
    let length = u64::from_le_bytes(*length);
    if length > MAX_HEAD || length as usize > rest.len() {
        return Err("it is no safetensors file, or was cut off: its head is longer than it".into());
    }
    let (head, data) = rest.split_at(length as usize);
    let head: Value = serde_json::from_slice(head)
        .map_err(|e| format!("it is no safetensors file: its head is no JSON: {e}"))?;
    let head = head.as_object().ok_or("its head is no JSON object")?;
    let mut entries = Vec::with_capacity(head.len());
    for (name, value) in head.iter().filter(|(name, _)| *name != "__metadata__") {
        let fault = |what: String| format!("tensor `{name}`: {what}");
        entries.push(entry(name, value, data.len(), 8 + length as usize).map_err(fault)?);
    }
    entries.sort_by(|a, b| (a.bytes.start, &a.name).cmp(&(b.bytes.start, &b.name)));
    Ok(entries)
}

fn entry(name: &str, value: &Value, data: usize, base: usize) -> Result<Entry, String> {
    let dtype = value["dtype"].as_str().ok_or("it has no dtype")?;
    let dtype = Dtype::named(dtype).ok_or_else(|| format!("its dtype {dtype} is not read"))?;
    let numbers = |key: &str| -> Result<Vec<usize>, String> {
        let list = value[key].as_array().ok_or_else(|| format!("it has no {key}"))?;
        let number = |v: &Value| v.as_u64().and_then(|v| usize::try_from(v).ok());
        list.iter()
            .map(number)
            .collect::<Option<_>>()
            .ok_or_else(|| format!("its {key} are no numbers"))
    };
    let (shape, offsets) = (numbers("shape")?, numbers("data_offsets")?);
    let [start, end] = offsets[..] else { return Err("its data_offsets are not two".into()) };
    let elements = shape.iter().try_fold(1_usize, |n, &d| n.checked_mul(d));
    let needed = elements.and_then(|n| n.checked_mul(dtype.bits())).map(|bits| bits.div_ceil(8));
    if start > end || end > data {
        return Err(format!(
            "its data ends at {end}, and the file has {data} bytes of data: it was cut off"
        ));
    }
    if needed != Some(end - start) {
        return Err(format!(
            "its {} bytes of data are not what {shape:?} of {dtype:?} take",
            end - start
        ));
    }
    Ok(Entry { name: name.to_owned(), dtype, shape, bytes: base + start..base + end })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(head: &str, data: usize) -> Vec<u8> {
        let mut file = (head.len() as u64).to_le_bytes().to_vec();
        file.extend(head.as_bytes());
        file.resize(file.len() + data, 0);
        file
    }

    #[test]
    fn tensors_come_in_the_order_of_their_data() {
        let head = r#"{"__metadata__":{"format":"pt"},
            "b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},
            "a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
        let found = entries(&file(head, 16)).unwrap();
        let start = 8 + head.len();
        assert_eq!(found[0].name, "a");
        assert_eq!(found[1].bytes, start + 4..start + 16);
        assert_eq!((found[1].dtype, &found[1].shape[..]), (Dtype::BF16, &[2, 3][..]));
    }

    #[test]
    fn faults_are_named() {
        let fault = |head: &str, data| entries(&file(head, data)).unwrap_err();
        assert!(entries(b"abc").unwrap_err().contains("3 bytes"));
        assert!(entries(&u64::MAX.to_le_bytes()).unwrap_err().contains("longer than it"));
        assert!(fault("[", 0).contains("no JSON"));
        let of = |dtype, shape, offsets| {
            format!(r#"{{"x":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#)
        };
        assert!(fault(&of("C64", "[1]", "[0,8]"), 8).contains("`x`: its dtype C64"));
        assert!(fault(&of("F32", "[2]", "[0,8]"), 4).contains("cut off"));
        assert!(fault(&of("F32", "[2]", "[4,8]"), 8).contains("are not what"));
        assert!(fault(&of("F32", "[-1]", "[0,4]"), 4).contains("no numbers"));
        assert!(
            fault(&of("F32", "[4294967296,4294967296,16]", "[0,0]"), 4).contains("are not what")
        );
    }
}
