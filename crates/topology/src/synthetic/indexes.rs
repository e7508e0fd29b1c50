//! The numbers of a level's objects, where `indexes=` gives them.

use super::words::{Level, fault, kind};
use crate::{Error, MAX_ID};
use std::collections::BTreeSet;

/// The numbers of a level, in the order of the tree.
pub(super) fn numbers(levels: &[Level], level: &Level) -> Result<Vec<u32>, Error> {
    match &level.indexes {
        Some(text) => read(levels, &level.word, text, level.width),
        None => Ok((0..level.width as u32).collect()),
    }
}

/// The `total` numbers that the text of an `indexes=` gives, `word` being where it stands.
pub(super) fn read(
    levels: &[Level],
    word: &str,
    text: &str,
    total: usize,
) -> Result<Vec<u32>, Error> {
    let numbers = if text.bytes().all(|b| b.is_ascii_digit() || b == b',') {
        list(word, text)?
    } else {
        let loops = if text.starts_with(|c: char| c.is_ascii_digit()) {
            steps(word, text)?
        } else {
            along(levels, word, text, total)?
        };
        interleaved(word, loops, total)?
    };
    let distinct: BTreeSet<u32> = numbers.iter().copied().collect();
    if numbers.len() != total || distinct.len() != total {
        let different = distinct.len();
        return Err(fault(word, format!("{different} different indexes, {total} are needed")));
    }
    match distinct.last() {
        Some(&id) if id > MAX_ID => Err(fault(word, format!("index {id} is above {MAX_ID}"))),
        _ => Ok(numbers),
    }
}

fn list(word: &str, text: &str) -> Result<Vec<u32>, Error> {
    let number = |item: &str| {
        let number = item.parse::<u32>();
        number.map_err(|_| fault(word, format!("{item:?} in its indexes is no number")))
    };
    text.split(',').map(number).collect()
}

/// A loop: neighbours `step` objects apart get neighbouring numbers, `count` of them.
#[derive(Clone, Copy)]
struct Loop {
    step: usize,
    count: usize,
}

/// `4*2:1*4`.
fn steps(word: &str, text: &str) -> Result<Vec<Loop>, Error> {
    let one = |item: &str| {
        let (step, count) = item.split_once('*')?;
        let number = |text: &str| text.parse::<usize>().ok().filter(|&n| n > 0);
        Some(Loop { step: number(step)?, count: number(count)? })
    };
    let bad = |item: &str| fault(word, format!("{item:?} in its indexes is not step*count"));
    text.split(':').map(|item| one(item).ok_or_else(|| bad(item))).collect()
}

/// `core:pack`: through the levels of these types, each within the named one above it.
fn along(levels: &[Level], word: &str, text: &str, total: usize) -> Result<Vec<Loop>, Error> {
    let find = |item: &str| {
        let kind = kind(item);
        let level = levels.iter().find(|level| Some(level.kind) == kind);
        let level = level.filter(|level| total.is_multiple_of(level.width));
        let bad = || fault(word, format!("{item:?} in its indexes is no level above"));
        level.map(|level| level.width).ok_or_else(bad)
    };
    let widths: Vec<usize> = text.split(':').map(find).collect::<Result<_, _>>()?;
    let within = |width: usize| widths.iter().copied().filter(|&w| w < width).max().unwrap_or(1);
    Ok(widths.iter().map(|&w| Loop { step: total / w, count: w / within(w) }).collect())
}

fn interleaved(word: &str, mut loops: Vec<Loop>, total: usize) -> Result<Vec<u32>, Error> {
    let covered = loops.iter().try_fold(1usize, |all, l| all.checked_mul(l.count));
    let covered = covered.filter(|&n| total.is_multiple_of(n));
    let covered = covered.ok_or_else(|| fault(word, format!("its indexes do not make {total}")))?;
    let smallest = loops.iter().map(|l| l.step).min().unwrap_or(1);
    // The innermost loop may be left out.
    if covered < total && smallest == total / covered {
        loops.push(Loop { step: 1, count: smallest });
    }
    let mut numbers = vec![0; total];
    let mut scale = 1;
    for Loop { step, count } in loops {
        for (i, number) in numbers.iter_mut().enumerate() {
            *number += (i / step % count * scale) as u32;
        }
        scale *= count;
    }
    Ok(numbers)
}
