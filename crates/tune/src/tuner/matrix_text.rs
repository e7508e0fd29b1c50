//! Schedules of matrices as part of a profile's text: `[schedules]`, and a `[[matrix]]` for each.
//!
//! Micro-kernels stand there by name, `usual` for what the kernels take by themselves; whether a CPU has
//! such is for the caller to find out ([`Schedule::check_kernel`]). Of kernels from elsewhere `[schedules]` has a
//! list, with the digests of their files; they may not be loaded.

use super::profile_text::{STOPPED, quoted};
use crate::Error;
use crate::schedule::{Compared, Tuned, TunedRow, TunedSchedules};
use graph::{Grid, Schedule, Slice};
use kernels::{Foreign, How, MatKernel};
use serde::Deserialize;
use std::fmt::Write;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SchedulesText {
    complete: bool,
    evaluations: usize,
    #[serde(default)]
    kernels: Vec<ForeignText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ForeignText {
    name: String,
    digest: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MatrixText {
    name: String,
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
    grid: Option<[usize; 2]>,
    ahead: Option<usize>,
}

/// Schedules from their text; none where there is none.
pub(super) fn schedules(
    about: Option<SchedulesText>,
    matrices: Vec<MatrixText>,
) -> Result<TunedSchedules, Error> {
    let Some(SchedulesText { complete, evaluations, kernels }) = about else {
        return match matrices.first() {
            None => Ok(TunedSchedules::default()),
            Some(matrix) => {
                let reason = format!("matrix {:?} without [schedules]", matrix.name);
                Err(Error::BadProfile(reason))
            }
        };
    };
    let foreign: Vec<_> =
        kernels.iter().map(|kernel| Foreign::named(&kernel.name, &kernel.digest)).collect();
    let named = |kernel: &&Foreign| foreign.iter().filter(|f| f.name() == kernel.name()).count();
    if let Some(kernel) = foreign.iter().find(|kernel| named(kernel) > 1 || is_own(kernel.name())) {
        let reason = format!("kernel {:?} is the name of another, too", kernel.name());
        return Err(Error::BadProfile(reason));
    }
    let mut read: Vec<Tuned> = vec![];
    for text in matrices {
        let matrix = matrix(text, &foreign).map_err(|e| Error::BadProfile(e.to_string()))?;
        if read.iter().any(|other| other.shape() == matrix.shape()) {
            return Err(Error::BadProfile(format!("matrix {} is there twice", matrix.shape())));
        }
        read.push(matrix);
    }
    Ok(TunedSchedules { matrices: read, evaluations, complete, foreign })
}

/// What a row says where the kernels choose.
const USUAL: &str = "usual";

/// Whether a name says what our kernels are called.
fn is_own(name: &str) -> bool {
    name == USUAL || name.parse::<MatKernel>().is_ok()
}

fn matrix(text: MatrixText, foreign: &[&'static Foreign]) -> Result<Tuned, Error> {
    let MatrixText { name, rows, measured } = text;
    let bad = |fault: &dyn std::fmt::Display| Error::BadProfile(fault.to_string());
    let shape: graph::MatrixShape = name.parse().map_err(|fault| bad(&fault))?;
    let row = |row: RowText| -> Result<TunedRow, Error> {
        let RowText { up_to, kernel, slice, grid, ahead } = row;
        let schedule = match (kernel, slice, grid, ahead) {
            (None, None, None, None) => None,
            (Some(kernel), slice, Some([parts, splits]), Some(ahead)) => {
                let kernel = match kernel.as_str() {
                    USUAL => None,
                    name => match foreign.iter().find(|kernel| kernel.name() == name) {
                        Some(kernel) => Some(MatKernel::Foreign(kernel)),
                        None => Some(name.parse::<MatKernel>().map_err(|fault| bad(&fault))?),
                    },
                };
                let slice = slice.map(|[tiles, tokens]| Slice { tiles, tokens });
                let grid = Grid { tokens: parts, splits };
                Some(Schedule { how: How { kernel, ahead }, slice, grid })
            }
            _ => {
                let reason = format!(
                    "the row up to {up_to} tokens has some of kernel, grid and ahead, and \
                     needs all or none"
                );
                return Err(Error::BadSchedule { shape: shape.clone(), reason });
            }
        };
        Ok(TunedRow { up_to, schedule })
    };
    let rows = rows.into_iter().map(row).collect::<Result<_, _>>()?;
    Tuned::new(shape, rows, measured)
}

/// Writes them; nothing where there are none.
pub(super) fn write(out: &mut String, schedules: &TunedSchedules) -> std::fmt::Result {
    let TunedSchedules { matrices, evaluations, complete, foreign } = schedules;
    if *schedules == TunedSchedules::default() {
        return Ok(());
    }
    let stopped = if *complete { "" } else { STOPPED };
    writeln!(out, "\n# How matrices are multiplied, and how that was found{stopped}.")?;
    writeln!(out, "[schedules]\ncomplete = {complete}\nevaluations = {evaluations}")?;
    if !foreign.is_empty() {
        out.push_str(
            "# Kernels that were written elsewhere, and digests of their files.\nkernels = [\n",
        );
        for kernel in foreign {
            let (name, digest) = (quoted(kernel.name()), quoted(kernel.digest()));
            writeln!(out, "  {{ name = {name}, digest = {digest} }},")?;
        }
        out.push_str("]\n");
    }
    out.push_str(
        "\n# For steps of up to so many tokens: the micro-kernel; tiles of 16 rows and tokens\n\
         # that a thread takes at a time; parts of tokens and columns; bytes of prefetch.\n\
         # Rows without a kernel are as without tuning. Measured are seconds of a product.\n",
    );
    for matrix in matrices {
        let name = quoted(&matrix.shape().to_string());
        writeln!(out, "[[matrix]]\nname = {name}\nrows = [")?;
        for TunedRow { up_to, schedule } in matrix.rows() {
            write!(out, "  {{ up_to = {up_to}")?;
            if let Some(Schedule { how: How { kernel, ahead }, slice, grid }) = schedule {
                let kernel = kernel.map_or(USUAL.to_owned(), |kernel| kernel.to_string());
                write!(out, ", kernel = {}", quoted(&kernel))?;
                if let Some(Slice { tiles, tokens }) = slice {
                    write!(out, ", slice = [{tiles}, {tokens}]")?;
                }
                let Grid { tokens, splits } = grid;
                write!(out, ", grid = [{tokens}, {splits}], ahead = {ahead}")?;
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
