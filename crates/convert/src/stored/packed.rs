//! Small integers, several to a word, with scales and zero points of groups of columns: GPTQ, AWQ and
//! compressed-tensors.

use super::{Whole, needed, shaped};
use crate::array::{Array, Blocks};
use crate::dtype::Dtype;
use crate::error::Error;
use crate::folder::{Folder, Source, Tensor};
use std::ops::Range;

/// Bits of a word.
const WORD: usize = 32;

/// Which number of a word AWQ has its columns at.
const AWQ_PLACES: [usize; 8] = [0, 4, 1, 5, 2, 6, 3, 7];

/// Integers in words.
struct Words {
    source: Source,
    /// Words of a row.
    across: usize,
    bits: u32,
    places: Option<[usize; 8]>,
}

impl Words {
    fn of(tensor: &Tensor, bits: u32, places: Option<[usize; 8]>) -> Result<Words, Error> {
        let (shape, name) = (&tensor.entry.shape, &tensor.entry.name);
        match (tensor.entry.dtype, &shape[..]) {
            (Dtype::I32, &[_, across]) => {
                Ok(Words { source: tensor.source(), across, bits, places })
            }
            (dtype, _) => Err(Error::Shape {
                name: name.clone(),
                shape: shape.clone(),
                want: format!("of {dtype:?}: it should be a matrix of I32"),
            }),
        }
    }

    fn per_word(&self) -> usize {
        WORD / self.bits as usize
    }

    fn word(&self, row: usize, word: usize) -> u32 {
        let at = 4 * (row * self.across + word);
        let bytes = self.source.bytes()[at..].first_chunk::<4>();
        u32::from_le_bytes(*bytes.expect("the shape was checked"))
    }

    fn number(&self, word: u32, n: usize) -> i32 {
        let place = self.places.map_or(n, |places| places[n]);
        (word >> (place as u32 * self.bits) & ((1 << self.bits) - 1)) as i32
    }

    /// Number `col` of a row whose words are side by side.
    fn across(&self, row: usize, col: usize) -> i32 {
        let each = self.per_word();
        self.number(self.word(row, col / each), col % each)
    }

    /// Number `row` of a column whose words stand on each other.
    fn down(&self, row: usize, col: usize) -> i32 {
        let each = self.per_word();
        self.number(self.word(row / each, col), row % each)
    }
}

/// How the integers of a matrix lie.
enum Lie {
    /// Inputs by words, outputs side by side (GPTQ).
    InputsDown(Words),
    /// Inputs one below the other, outputs by words (AWQ).
    OutputsAcross(Words),
    /// Outputs one below the other, inputs by words (compressed-tensors).
    InputsAcross(Words),
}

/// What is taken from integers.
enum Zeros {
    All(i32),
    /// Groups one below the other, outputs by words; and what is added.
    OutputsAcross(Words, i32),
    /// Outputs by words, groups side by side.
    OutputsDown(Words),
}

struct Packed {
    lie: Lie,
    zeros: Zeros,
    scales: Array,
    /// Scales are `[groups, outputs]`, not `[outputs, groups]`.
    scales_turned: bool,
    /// The group of each column.
    groups: Vec<u32>,
}

impl Packed {
    fn zero(&self, group: usize, output: usize) -> i32 {
        match &self.zeros {
            Zeros::All(zero) => *zero,
            Zeros::OutputsAcross(words, add) => words.across(group, output) + add,
            Zeros::OutputsDown(words) => words.down(output, group),
        }
    }

    fn integer(&self, output: usize, input: usize) -> i32 {
        match &self.lie {
            Lie::InputsDown(words) => words.down(input, output),
            Lie::OutputsAcross(words) => words.across(input, output),
            Lie::InputsAcross(words) => words.across(output, input),
        }
    }
}

impl Blocks for Packed {
    fn block(&self, rows: Range<usize>, cols: Range<usize>, out: &mut [f32]) {
        let groups = if self.scales_turned { self.scales.shape()[0] } else { self.scales.cols() };
        let mut scales = vec![0.0; groups * rows.len()];
        match self.scales_turned {
            true => self.scales.read_block(0..groups, rows.clone(), &mut scales),
            false => self.scales.read_block(rows.clone(), 0..groups, &mut scales),
        }
        let (first, width) = (rows.start, cols.len());
        let count = rows.len();
        // Inputs outside, so that words of several outputs are read where they lie together.
        for (at, input) in cols.enumerate() {
            let group = self.groups[input] as usize;
            for n in 0..count {
                let scale =
                    scales[if self.scales_turned { group * count + n } else { n * groups + group }];
                let integer = self.integer(first + n, input) - self.zero(group, first + n);
                out[n * width + at] = scale * integer as f32;
            }
        }
    }
}

/// Groups of a fixed number of columns.
fn even(cols: usize, groups: usize, of: &Tensor) -> Result<Vec<u32>, Error> {
    if groups == 0 || cols < groups {
        return Err(Error::Shape {
            name: of.entry.name.clone(),
            shape: of.entry.shape.clone(),
            want: format!("which {cols} columns cannot be cut into"),
        });
    }
    let each = cols.div_ceil(groups);
    Ok((0..cols).map(|col| (col / each) as u32).collect())
}

/// Groups as a tensor names them.
fn named(tensor: &Tensor, cols: usize, groups: usize) -> Result<Vec<u32>, Error> {
    shaped(tensor, &[cols])?;
    let numbers = tensor.values().into_iter();
    let all: Option<Vec<u32>> =
        numbers.map(|x| (x >= 0.0 && (x as usize) < groups).then_some(x as u32)).collect();
    all.ok_or_else(|| Error::Shape {
        name: tensor.entry.name.clone(),
        shape: tensor.entry.shape.clone(),
        want: format!("and names a group beyond the {groups} that there are"),
    })
}

/// The two dimensions of a matrix.
fn two(tensor: &Tensor) -> Result<(usize, usize), Error> {
    match tensor.entry.shape[..] {
        [rows, cols] => Ok((rows, cols)),
        _ => Err(Error::Shape {
            name: tensor.entry.name.clone(),
            shape: tensor.entry.shape.clone(),
            want: "and should be a matrix".to_owned(),
        }),
    }
}

/// `qweight`, `qzeros`, `scales` and `g_idx` of GPTQ.
pub(super) fn gptq(
    folder: &Folder,
    name: &str,
    bits: u32,
    add: i32,
) -> Result<Option<Whole>, Error> {
    let Some(stem) = name.strip_suffix(".qweight") else { return Ok(None) };
    let weight = format!("{stem}.weight");
    let part = |ending: &str| needed(folder, &format!("{stem}.{ending}"), &weight);
    let (words, zeros, scales) = (part("qweight")?, part("qzeros")?, part("scales")?);
    let each = WORD / bits as usize;
    let (down, outputs) = two(words)?;
    let (groups, _) = two(scales)?;
    let inputs = down * each;
    shaped(scales, &[groups, outputs])?;
    shaped(zeros, &[groups, outputs.div_ceil(each)])?;
    let order = folder.tensor(&format!("{stem}.g_idx"));
    let packed = Packed {
        lie: Lie::InputsDown(Words::of(words, bits, None)?),
        zeros: Zeros::OutputsAcross(Words::of(zeros, bits, None)?, add),
        scales: scales.array(),
        scales_turned: true,
        groups: match order {
            Some(order) => named(order, inputs, groups)?,
            None => even(inputs, groups, scales)?,
        },
    };
    Ok(Some(whole(
        stem,
        &weight,
        &["qweight", "qzeros", "scales", "g_idx"],
        [outputs, inputs],
        packed,
    )))
}

/// `qweight`, `qzeros` and `scales` of AWQ.
pub(super) fn awq(folder: &Folder, name: &str, bits: u32) -> Result<Option<Whole>, Error> {
    let Some(stem) = name.strip_suffix(".qweight") else { return Ok(None) };
    let weight = format!("{stem}.weight");
    let part = |ending: &str| needed(folder, &format!("{stem}.{ending}"), &weight);
    let (words, scales) = (part("qweight")?, part("scales")?);
    let each = WORD / bits as usize;
    let (inputs, across) = two(words)?;
    let (groups, outputs) = two(scales)?;
    shaped(words, &[inputs, outputs.div_ceil(each)])?;
    let zeros = match folder.tensor(&format!("{stem}.qzeros")) {
        Some(zeros) => {
            shaped(zeros, &[groups, across])?;
            Zeros::OutputsAcross(Words::of(zeros, bits, Some(AWQ_PLACES))?, 0)
        }
        None => Zeros::All(1 << (bits - 1)),
    };
    let packed = Packed {
        lie: Lie::OutputsAcross(Words::of(words, bits, Some(AWQ_PLACES))?),
        zeros,
        scales: scales.array(),
        scales_turned: true,
        groups: even(inputs, groups, scales)?,
    };
    Ok(Some(whole(stem, &weight, &["qweight", "qzeros", "scales"], [outputs, inputs], packed)))
}

/// `weight_packed`, `weight_scale`, `weight_shape` and, in some, `weight_zero_point` of compressed-tensors.
pub(super) fn compressed(folder: &Folder, name: &str, bits: u32) -> Result<Option<Whole>, Error> {
    let Some(weight) = name.strip_suffix("_packed") else { return Ok(None) };
    let part = |ending: &str| needed(folder, &format!("{weight}{ending}"), weight);
    let (words, scales, shape) = (part("_packed")?, part("_scale")?, part("_shape")?);
    let each = WORD / bits as usize;
    let whole_shape: Vec<usize> = shape.values().into_iter().map(|x| x as usize).collect();
    let &[outputs, inputs] = &whole_shape[..] else {
        return Err(Error::Shape {
            name: shape.entry.name.clone(),
            shape: shape.entry.shape.clone(),
            want: "and should be two numbers".to_owned(),
        });
    };
    let (rows, groups) = two(scales)?;
    shaped(words, &[outputs, inputs.div_ceil(each)])?;
    shaped(scales, &[outputs, groups])?;
    debug_assert_eq!(rows, outputs);
    let zeros = match folder.tensor(&format!("{weight}_zero_point")) {
        Some(zeros) => {
            shaped(zeros, &[outputs.div_ceil(each), groups])?;
            Zeros::OutputsDown(Words::of(zeros, bits, None)?)
        }
        None => Zeros::All(1 << (bits - 1)),
    };
    let order = folder.tensor(&format!("{weight}_g_idx"));
    let packed = Packed {
        lie: Lie::InputsAcross(Words::of(words, bits, None)?),
        zeros,
        scales: scales.array(),
        scales_turned: false,
        groups: match order {
            Some(order) => named(order, inputs, groups)?,
            None => even(inputs, groups, scales)?,
        },
    };
    let endings = ["_packed", "_scale", "_shape", "_zero_point", "_g_idx"];
    let parts = endings.map(|ending| format!("{weight}{ending}")).to_vec();
    let array = Array::new(&[outputs, inputs], false, packed);
    Ok(Some(Whole { name: weight.to_owned(), array, parts }))
}

fn whole(stem: &str, weight: &str, endings: &[&str], shape: [usize; 2], packed: Packed) -> Whole {
    Whole {
        name: weight.to_owned(),
        array: Array::new(&shape, false, packed),
        parts: endings.iter().map(|ending| format!("{stem}.{ending}")).collect(),
    }
}
