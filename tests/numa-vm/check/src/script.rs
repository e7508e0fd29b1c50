//! The fixed script: a prompt in uneven chunks, then one token after the other.
//!
//! The prompt's tokens are pseudo-random, so that any vocabulary will do. What follows is the
//! reference's own greedy continuation; every other run is fed with it, so that a difference in
//! one step does not change what the next steps are about.

use crate::error::Error;
use crate::load::LoadArgs;
use arclight_engine::{BatchEntry, Engine, Outputs};
use std::fs;
use std::path::Path;

/// The prompt is prefilled in these pieces.
pub(crate) const CHUNKS: [usize; 3] = [7, 1, 16];
/// Tokens that are decoded after it.
pub(crate) const DECODE: usize = 64;
/// One row of logits for each piece and each decoded token.
const ROWS: usize = CHUNKS.len() + DECODE;

/// Logits of all steps of the script: `[ROWS, vocab]`.
#[derive(Clone, PartialEq)]
pub(crate) struct Rows {
    values: Vec<f32>,
    vocab: usize,
}

impl Rows {
    /// Reads a reference that [`write_reference`] wrote.
    pub(crate) fn read(path: &Path, vocab: usize) -> Result<Rows, Error> {
        let fault = |source| Error::Io { verb: "read", path: path.to_owned(), source };
        let bytes = fs::read(path).map_err(fault)?;
        let want = ROWS * vocab * size_of::<f32>();
        if bytes.len() != want {
            return Err(Error::Reference { path: path.to_owned(), got: bytes.len(), want });
        }
        let (floats, _) = bytes.as_chunks::<4>();
        Ok(Rows { values: floats.iter().map(|b| f32::from_ne_bytes(*b)).collect(), vocab })
    }

    /// The tokens that the script decodes, by the rows that precede them.
    pub(crate) fn continuation(&self) -> Vec<u32> {
        let rows = self.values.chunks(self.vocab).skip(CHUNKS.len() - 1);
        rows.take(DECODE).map(argmax).collect()
    }

    /// Largest difference of any logit.
    pub(crate) fn distance(&self, other: &Rows) -> f32 {
        let pairs = self.values.iter().zip(&other.values);
        // A NaN would vanish in `max`.
        pairs.map(|(a, b)| (a - b).abs()).fold(0.0, |m, d| if d > m || d.is_nan() { d } else { m })
    }

    /// Whether all bits are the same, which `==` of floats does not say.
    pub(crate) fn same_bits(&self, other: &Rows) -> bool {
        self.values.iter().map(|v| v.to_bits()).eq(other.values.iter().map(|v| v.to_bits()))
    }

    /// Largest magnitude of any logit.
    pub(crate) fn largest(&self) -> f32 {
        self.values.iter().fold(0.0, |m, v| m.max(v.abs()))
    }
}

fn argmax(row: &[f32]) -> u32 {
    let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    best.map_or(0, |(i, _)| i as u32)
}

/// Pseudo-random tokens of a vocabulary (Knuth's MMIX generator, the upper half of its state).
pub(crate) fn tokens(count: usize, vocab: usize) -> Vec<u32> {
    let step = |s: &u64| {
        Some(s.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
    };
    let states = std::iter::successors(Some(1), step).skip(1);
    states.take(count).map(|s| ((s >> 33) % vocab as u64) as u32).collect()
}

/// Runs the script and returns its logits. `forced`: the tokens to decode, or the greedy ones.
pub(crate) fn run(engine: &mut Engine, forced: Option<&[u32]>) -> Result<Rows, Error> {
    let vocab = engine.hparams().vocab;
    let sequence = engine.new_sequence()?;
    let mut values = Vec::with_capacity(ROWS * vocab);
    let mut step = |tokens: &[u32]| -> Result<u32, Error> {
        let entry = BatchEntry { sequence, tokens, outputs: Outputs::Last };
        let logits = engine.step(&[entry])?;
        values.extend_from_slice(logits.row(0));
        Ok(argmax(logits.row(0)))
    };
    let prompt = tokens(CHUNKS.iter().sum(), vocab);
    let mut rest = prompt.as_slice();
    let mut next = 0;
    for size in CHUNKS {
        let (chunk, after) = rest.split_at(size);
        next = step(chunk)?;
        rest = after;
    }
    for i in 0..DECODE {
        let token = forced.map_or(next, |tokens| tokens[i]);
        next = step(&[token])?;
    }
    engine.free(sequence)?;
    Ok(Rows { values, vocab })
}

/// Writes the reference.
pub(crate) fn write_reference(load: &LoadArgs, out: &Path) -> Result<(), Error> {
    let mut engine = load.load(None)?;
    let rows = run(&mut engine, None)?;
    let bytes: Vec<u8> = rows.values.iter().flat_map(|v| v.to_ne_bytes()).collect();
    fs::write(out, bytes).map_err(|source| Error::Io {
        verb: "write",
        path: out.into(),
        source,
    })?;
    println!("wrote {ROWS} rows of {} logits to {}", rows.vocab, out.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nan_is_not_near_anything() {
        let rows = |values: &[f32]| Rows { values: values.to_vec(), vocab: values.len() };
        assert_eq!(rows(&[1.0, 2.0]).distance(&rows(&[1.5, 2.0])), 0.5);
        assert!(rows(&[f32::NAN, 2.0]).distance(&rows(&[1.5, 9.0])).is_nan());
        assert!(rows(&[f32::NAN, 2.0, 3.0]).distance(&rows(&[1.5, 9.0, 3.0])).is_nan());
        assert!(rows(&[0.0]) == rows(&[-0.0]) && !rows(&[0.0]).same_bits(&rows(&[-0.0])));
    }

    #[test]
    fn tokens_lie_in_the_vocabulary_and_differ() {
        let tokens = tokens(100, 50);
        assert!(tokens.iter().all(|&t| t < 50));
        assert!(tokens.iter().collect::<std::collections::BTreeSet<_>>().len() > 30);
    }
}
