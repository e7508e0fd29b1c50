//! Which layers each of several hosts has of a model.

use crate::{Error, Model, layer_of};
use graph::TensorSpec;
use std::ops::Range;

/// Cuts a whole model into so many runs of layers, one after the other, of which the largest is as small as can be: by
/// the bytes of their tensors in the file, the head's counted with the last run. The embedding, of which a step reads
/// few rows, is not counted.
///
/// # Errors
/// When there are more stages than layers, or none.
pub fn stages(model: &Model, stages: usize) -> Result<Vec<Range<usize>>, Error> {
    let layers = model.hparams.layers;
    if stages == 0 || stages > layers {
        return Err(Error::TooManyStages { stages, layers });
    }
    let tensors = model.graph.tensors();
    let mut bytes = vec![0; layers];
    for tensor in tensors {
        if let Some(bytes) = layer_of(&tensor.name).and_then(|layer| bytes.get_mut(layer)) {
            *bytes += tensor.bytes();
        }
    }
    let named = |name: &str| tensors.iter().find(|tensor| tensor.name == name);
    let head = named("output.weight").or_else(|| named("token_embd.weight"));
    bytes[layers - 1] += head.map_or(0, TensorSpec::bytes);
    Ok(cut(&bytes, stages))
}

/// Cuts a list into so many runs, none empty, of which the largest sum is least.
fn cut(bytes: &[usize], runs: usize) -> Vec<Range<usize>> {
    let before: Vec<usize> = std::iter::once(0)
        .chain(bytes.iter().scan(0, |sum, bytes| {
            *sum += bytes;
            Some(*sum)
        }))
        .collect();
    let len = bytes.len();
    // [runs so far][end]: the largest sum, and where the last run begins.
    let mut best = vec![vec![(usize::MAX, 0); len + 1]; runs + 1];
    best[0][0] = (0, 0);
    for run in 1..=runs {
        for end in run..=len {
            let last =
                |begin: usize| (best[run - 1][begin].0.max(before[end] - before[begin]), begin);
            best[run][end] = (run - 1..end).map(last).min().unwrap_or((usize::MAX, 0));
        }
    }
    let (mut end, mut cut) = (len, Vec::with_capacity(runs));
    for run in (1..=runs).rev() {
        let begin = best[run][end].1;
        cut.push(begin..end);
        end = begin;
    }
    cut.reverse();
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_run_is_as_small_as_can_be() {
        assert_eq!(cut(&[1, 1, 1, 1, 1, 1], 3), [0..2, 2..4, 4..6]);
        assert_eq!(cut(&[1, 1, 1, 1, 1, 5], 2), [0..5, 5..6]);
        assert_eq!(cut(&[9, 1, 1, 1, 1], 3).len(), 3);
        assert_eq!(cut(&[9, 1, 1, 1, 1], 3)[0], 0..1);
        assert_eq!(cut(&[4, 4], 1).first(), Some(&(0..2)));
        assert_eq!(cut(&[0, 0, 7], 3), [0..1, 1..2, 2..3]);
    }
}
