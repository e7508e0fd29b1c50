//! What a step gives the caller.

/// What one step gave: a row of `vocab` f32 for every token whose logits were asked for, and one as wide
/// as the residual stream for every hidden state.
#[derive(Copy, Clone, Debug)]
pub struct Logits<'a> {
    logits: Table<'a>,
    hidden: Table<'a>,
}

/// Rows for the caller.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Table<'a> {
    values: &'a [f32],
    rows: usize,
    stride: usize,
    width: usize,
}

impl<'a> Table<'a> {
    /// `rows` rows of `width` values, `stride` apart.
    pub(crate) fn new(values: &'a [f32], rows: usize, stride: usize, width: usize) -> Table<'a> {
        Table { values, rows, stride, width }
    }

    fn row(&self, i: usize, what: &str) -> &'a [f32] {
        assert!(i < self.rows, "row {i} of {} rows of {what}", self.rows);
        &self.values[i * self.stride..][..self.width]
    }
}

impl<'a> Logits<'a> {
    pub(crate) fn new(logits: Table<'a>, hidden: Table<'a>) -> Logits<'a> {
        Logits { logits, hidden }
    }

    /// Number of rows of logits.
    pub fn len(&self) -> usize {
        self.logits.rows
    }

    /// Whether nobody asked for logits.
    pub fn is_empty(&self) -> bool {
        self.logits.rows == 0
    }

    /// Row `i`, in the order of sequences and their tokens: `[vocab]`.
    ///
    /// # Panics
    /// When there are not so many rows.
    pub fn row(&self, i: usize) -> &'a [f32] {
        self.logits.row(i, "logits")
    }

    /// Hidden state `i`, counted without the rows of logits, in the order of sequences and their
    /// tokens: `[hidden]`.
    ///
    /// # Panics
    /// When there are not so many.
    pub fn hidden(&self, i: usize) -> &'a [f32] {
        self.hidden.row(i, "hidden states")
    }
}
