//! Views of rows: what they show, and what they refuse.

use arclight_kernels::{Rows, RowsMut};

#[test]
fn rows_lie_a_stride_apart() {
    let data: Vec<u32> = (0..14).collect();
    let rows = Rows::new(&data, 3, 4, 5);
    assert_eq!(rows.row(2), [10, 11, 12, 13]);
    let last = rows.sub(1..3);
    assert_eq!((last.rows(), last.row(0)), (2, &data[5..9]));
    assert_eq!(rows.sub(3..3).rows(), 0);
}

#[test]
fn columns_of_one_buffer_are_written_apart() {
    let mut data = vec![0; 3 * 4];
    let start = data.as_mut_ptr();
    // SAFETY: columns 0..2 and 2..4 of the same three rows do not meet.
    let (mut left, mut right) = unsafe {
        (RowsMut::from_raw_parts(start, 3, 2, 4), RowsMut::from_raw_parts(start.add(2), 3, 2, 4))
    };
    for r in 0..3 {
        left.row_mut(r).fill(1);
        right.sub(r..r + 1).row_mut(0).fill(2);
    }
    assert_eq!(right.reborrow().as_rows().row(1), [2, 2]);
    assert_eq!(data, [1, 1, 2, 2].repeat(3));
}

#[test]
#[should_panic(expected = "3 rows of 4 elements at a stride of 5 do not fit in 13")]
fn rows_beyond_the_data_are_refused() {
    Rows::new(&[0; 13], 3, 4, 5);
}

#[test]
#[should_panic(expected = "do not fit")]
fn a_stride_that_overflows_is_refused() {
    Rows::new(&[0; 13], 3, 4, usize::MAX / 2 + 1);
}

#[test]
#[should_panic(expected = "rows of 6 elements overlap at a stride of 5")]
fn overlapping_rows_are_refused() {
    RowsMut::new(&mut [0; 20], 3, 6, 5);
}

#[test]
#[should_panic(expected = "row 3 of 3")]
fn a_row_too_many_is_refused() {
    Rows::new(&[0; 14], 3, 4, 5).row(3);
}
