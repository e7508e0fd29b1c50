//! Guesses of the model's own layer that predicts further tokens.
//!
//! The layer has keys and values of a position `p` of token `p` and of the hidden state that the model has behind
//! token `p - 1`. So when a step of the model is done, and it is known which token comes behind each of its tokens,
//! the layer takes these, also where nothing is guessed (prompts): its keys and values follow the model's. The last
//! gives logits of the token behind, which is the first of the guess; each further one is made of the token guessed
//! before and the layer's own hidden state, and its keys and values are written over by the next step's.

use super::ahead::{Taken, Text};
use crate::engine::{Engine, Prediction};
use crate::error::Error;
use crate::sampler::Sampler;
use crate::sequence::SeqId;
use graph::{Outputs, Recalled};
use std::ops::Range;

/// A text that the layer takes tokens of.
struct Reader {
    text: usize,
    sequence: SeqId,
    /// Positions of its tokens.
    first: usize,
    end: usize,
    recalled: Vec<Recalled>,
    /// Tokens to guess.
    wanted: usize,
    sampler: Option<Sampler>,
}

/// Takes what the model's last step had, and guesses; without `wanted`, of prompts only.
pub(super) fn guess(
    engine: &mut Engine,
    texts: &mut [Text<'_>],
    wanted: bool,
) -> Result<(), Error> {
    let taken = texts.iter().filter_map(|text| text.ahead.last);
    let mut spare = engine.limits().tokens - taken.map(|taken| taken.count).sum::<usize>();
    let mut readers = Vec::with_capacity(texts.len());
    for (at, text) in texts.iter_mut().enumerate() {
        let Some(taken) = text.ahead.last.take() else { continue };
        // Tokens that the model has not computed are known up to the last one.
        let last = (taken.position + taken.count).min(text.tokens.len() - 1);
        if last <= taken.position || text.room > 0 && !wanted {
            continue;
        }
        let known = last + 1 == text.tokens.len();
        let wanted = if known { text.ahead.wanted() } else { 0 };
        let mut first = text.ahead.predicted.clamp(taken.position, last);
        if first == taken.position && spare == 0 {
            first += 1;
        }
        spare -= usize::from(first == taken.position);
        match engine.reserve_up_to(text.sequence, last + 1 + wanted.saturating_sub(1)) {
            Ok(()) => {}
            // Another time, when there is more room.
            Err(Error::NoPages { .. } | Error::ContextFull { .. }) => continue,
            Err(error) => return Err(error),
        }
        let (sequence, end) = (text.sequence, last + 1);
        text.ahead.predicted = end;
        let of = |positions: Range<usize>| positions.map(|at| recalled(taken, at)).collect();
        // Another text may have begun alike and share these pages, so they are not written beside it.
        let shared = first..engine.own_from(sequence)?.min(last);
        if !shared.is_empty() {
            let recalled: Vec<_> = of(shared.clone());
            engine.predict(&[Prediction {
                sequence,
                position: shared.start,
                tokens: &text.tokens[shared.clone()],
                recalled: &recalled,
                outputs: Outputs::None,
            }])?;
            first = shared.end;
        }
        let sampler = (wanted > 0).then(|| text.sampler.clone());
        let recalled = of(first..end);
        readers.push(Reader { text: at, sequence, first, end, recalled, wanted, sampler });
    }
    while !readers.is_empty() {
        let batch = readers.iter().map(|reader| {
            let text = &texts[reader.text];
            let guess = text.ahead.guess();
            let tokens = match guess.last() {
                Some(last) => std::slice::from_ref(last),
                None => &text.tokens[reader.first..reader.end],
            };
            Prediction {
                sequence: reader.sequence,
                position: reader.first,
                tokens,
                recalled: &reader.recalled,
                outputs: if reader.wanted > 0 { Outputs::Last } else { Outputs::None },
            }
        });
        let batch: Vec<Prediction<'_>> = batch.collect();
        let mut rows = 0;
        let lasts: Vec<u32> = batch
            .iter()
            .map(|entry| {
                rows += entry.tokens.len() as u32;
                rows - 1
            })
            .collect();
        let logits = engine.predict(&batch)?;
        let mut outputs = 0..;
        for (reader, last) in readers.iter_mut().zip(lasts) {
            let Some(sampler) = &mut reader.sampler else { continue };
            let row = outputs.next().unwrap_or(0);
            texts[reader.text].ahead.push(sampler.sample(logits.row(row)));
            reader.first = reader.end;
            reader.end += 1;
            reader.recalled.clear();
            reader.recalled.push(Recalled::Predicted(last));
        }
        readers.retain(|reader| texts[reader.text].ahead.guess().len() < reader.wanted);
    }
    Ok(())
}

/// The hidden state with which the token at `position` comes: that of the one before, in the last step.
fn recalled(taken: Taken, position: usize) -> Recalled {
    match position.checked_sub(taken.position + 1) {
        None => Recalled::Nothing,
        Some(before) => Recalled::Step((taken.row + before) as u32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_with_the_hidden_state_of_the_one_before() {
        let taken = Taken { row: 5, position: 30, count: 3 };
        assert_eq!(recalled(taken, 30), Recalled::Nothing);
        assert_eq!(recalled(taken, 31), Recalled::Step(5));
        assert_eq!(recalled(taken, 33), Recalled::Step(7));
    }
}
