//! NumPy's format for one array, version 1.0 (NEP 1).

use std::io::{self, Write};

const MAGIC: &[u8] = b"\x93NUMPY\x01\x00";

/// What the data begins at a multiple of.
const ALIGN: usize = 64;

/// Writes rows of equal length as a matrix of little-endian f32.
///
/// # Errors
/// When `to` cannot be written.
pub(super) fn write(mut to: impl Write, rows: &[Vec<f32>]) -> io::Result<()> {
    let (count, width) = (rows.len(), rows.first().map_or(0, Vec::len));
    let head = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({count}, {width}), }}");
    // Its length stands before it, a line feed ends it.
    let before = MAGIC.len() + size_of::<u16>();
    let len = (before + head.len() + 1).next_multiple_of(ALIGN) - before;
    to.write_all(MAGIC)?;
    to.write_all(&(len as u16).to_le_bytes())?;
    writeln!(to, "{head:<width$}", width = len - 1)?;
    for value in rows.iter().flatten() {
        to.write_all(&value.to_le_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_fills_whole_lines_and_the_data_follows() {
        let mut bytes = Vec::new();
        write(&mut bytes, &[vec![1.0, 2.0, 3.0], vec![4.0, 5.0, 6.0]]).unwrap();
        let text = String::from_utf8_lossy(&bytes[10..128]).into_owned();
        assert!(text.starts_with("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"));
        assert_eq!(usize::from(u16::from_le_bytes([bytes[8], bytes[9]])), 118);
        assert_eq!(bytes[127], b'\n');
        let data: Vec<f32> =
            bytes[128..].as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        assert_eq!(data, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    }
}
