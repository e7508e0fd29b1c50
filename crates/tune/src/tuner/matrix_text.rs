//! Schedules of matrices as part of a profile's text: `[schedules]`, and a `[[matrix]]` for each.
//!
//! Micro-kernels stand there by name; whether there are such is the caller's to say
//! ([`Matrix::named`](crate::schedule::Matrix::named)).

use super::profile_text::quoted;
use crate::Error;
use crate::schedule::{Compared, Grid, Matrix, Row, Schedule, Schedules, Slice};
use serde::Deserialize;
use std::fmt::Write;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SchedulesText {
    complete: bool,
    evaluations: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MatrixText {
    name: String,
    tiles: usize,
    threads: usize,
    rows: Vec<RowText>,
    #[serde(default)]
    measured: Vec<Compared>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RowText {
    up_to: usize,
    kernel: Option<String>,
    slice: Option<[usize; 2]>,
    grid: Option<[usize; 3]>,
    ahead: Option<u32>,
}

/// Schedules from their text; none where there is none.
pub(super) fn schedules(
    about: Option<SchedulesText>,
    matrices: Vec<MatrixText>,
) -> Result<Schedules, Error> {
    let Some(SchedulesText { complete, evaluations }) = about else {
        return match matrices.first() {
            None => Ok(Schedules::default()),
            Some(matrix) => {
                let reason = format!("matrix {:?} without [schedules]", matrix.name);
                Err(Error::BadProfile(reason))
            }
        };
    };
    let mut read: Vec<Matrix> = vec![];
    for text in matrices {
        let matrix = matrix(text).map_err(|e| Error::BadProfile(e.to_string()))?;
        let same = |m: &Matrix| (m.name(), m.threads()) == (matrix.name(), matrix.threads());
        if read.iter().any(same) {
            let (name, threads) = (matrix.name(), matrix.threads());
            let reason = format!("matrix {name:?} is there twice for {threads} threads");
            return Err(Error::BadProfile(reason));
        }
        read.push(matrix);
    }
    Ok(Schedules { matrices: read, evaluations, complete })
}

fn matrix(text: MatrixText) -> Result<Matrix, Error> {
    let MatrixText { name, tiles, threads, rows, measured } = text;
    let row = |row: RowText| -> Result<Row, Error> {
        let RowText { up_to, kernel, slice, grid, ahead } = row;
        let schedule = match (kernel, slice, grid, ahead) {
            (None, None, None, None) => None,
            (Some(kernel), Some([tiles, tokens]), Some([rows, parts, splits]), Some(ahead)) => {
                let slice = Slice { tiles, tokens };
                Some(Schedule { kernel, slice, grid: Grid { rows, tokens: parts, splits }, ahead })
            }
            _ => {
                let reason = format!(
                    "the row up to {up_to} tokens has some of kernel, slice, grid and ahead, and \
                     needs all or none"
                );
                return Err(Error::BadSchedule { matrix: name.clone(), reason });
            }
        };
        Ok(Row { up_to, schedule })
    };
    let rows = rows.into_iter().map(row).collect::<Result<_, _>>()?;
    Matrix::new(name, tiles, threads, rows, measured)
}

/// Writes them; nothing where there are none.
pub(super) fn write(out: &mut String, schedules: &Schedules) -> std::fmt::Result {
    let Schedules { matrices, evaluations, complete } = schedules;
    if *schedules == Schedules::default() {
        return Ok(());
    }
    writeln!(out, "\n# How matrices are multiplied, and how that was found.")?;
    writeln!(out, "[schedules]\ncomplete = {complete}\nevaluations = {evaluations}")?;
    out.push_str(
        "\n# For steps of up to so many tokens: the micro-kernel; tiles of 16 rows and tokens\n\
         # that a thread takes at a time; parts of tiles, tokens and columns; bytes of prefetch.\n\
         # Rows without a kernel are as without tuning. Measured are seconds of a product.\n",
    );
    for matrix in matrices {
        writeln!(out, "[[matrix]]\nname = {}", quoted(matrix.name()))?;
        writeln!(out, "tiles = {}\nthreads = {}\nrows = [", matrix.tiles(), matrix.threads())?;
        for Row { up_to, schedule } in matrix.rows() {
            write!(out, "  {{ up_to = {up_to}")?;
            if let Some(Schedule { kernel, slice, grid, ahead }) = schedule {
                write!(out, ", kernel = {}", quoted(kernel))?;
                write!(out, ", slice = [{}, {}]", slice.tiles, slice.tokens)?;
                let Grid { rows, tokens, splits } = grid;
                write!(out, ", grid = [{rows}, {tokens}, {splits}], ahead = {ahead}")?;
            }
            writeln!(out, " }},")?;
        }
        writeln!(out, "]\nmeasured = [")?;
        for Compared { tokens, default, tuned, repetitions } in matrix.compared() {
            write!(out, "  {{ tokens = {tokens}, default = {default:?}, tuned = {tuned:?}")?;
            writeln!(out, ", repetitions = {repetitions} }},")?;
        }
        writeln!(out, "]")?;
    }
    Ok(())
}
